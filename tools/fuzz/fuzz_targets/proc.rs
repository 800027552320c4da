// SPDX-License-Identifier: MIT
//! What a kernel says of a process, or a copy that says anything: read, classified, added up, compared.

#![no_main]

use libfuzzer_sys::fuzz_target;
use quarry_proc::classify::{Files, Quadrant, classify};
use quarry_proc::limits::Limits;
use quarry_proc::stat::{Stat, Statm};
use quarry_proc::status::Status;
use quarry_proc::sum::{self, By};
use quarry_proc::{Space, cgroup, check, core_file, elf, mounts, smaps, task};

fuzz_target!(|data: &[u8]| {
    // The first byte says what the rest is.
    let Some((what, data)) = data.split_first() else { return };
    match what % 6 {
        0 => whole(data),
        1 => {
            if let Ok(core) = core_file::parse(data) {
                explained(Space::of_core(core));
            }
        }
        2 => {
            if let Some(layout) = elf::Layout::parse(data, 4096) {
                let _ = (layout.zeroed(4096).count(), layout.sections(4096, 0, u64::MAX).count());
            }
        }
        3 => drop((Stat::parse(data), Statm::parse(data), Status::parse(data), task::stack_pointer(data))),
        4 => {
            drop((Limits::parse(data), mounts::parse(data), cgroup::membership(data), cgroup::pressure(data)))
        }
        _ => drop(smaps::rollup(data)),
    }
});

/// A text of mappings.
fn whole(data: &[u8]) {
    let Ok((mappings, damage)) = smaps::read_all(data) else { return };
    let _ = damage.sentence();
    explained(Space::of_mappings(mappings, damage));
}

/// Everything that is done with an address space.
fn explained(space: Space) {
    let classes = classify(&space, &mut Files::default());
    assert_eq!(classes.len(), space.mappings.len());
    let total = sum::total(&space.mappings, &classes);
    let _ = check::check(&space, &classes, &total);
    for by in [By::Quadrant, By::Kind, By::Object, By::File] {
        let groups = sum::groups(&space.mappings, &classes, by, |_| true);
        let members: usize = groups.iter().map(|group| group.members.len()).sum();
        assert_eq!(members, classes.len());
    }
    if let Some(resident) = total.resident()
        && resident < u64::MAX
    {
        let pages: u64 = Quadrant::ALL.iter().map(|quadrant| total.pages[*quadrant as usize]).sum();
        assert_eq!(pages, resident);
    }
}
