// SPDX-License-Identifier: MIT
//! Naming the segments of shared memory in which a process on Quarry keeps its statistics; the kernel calls them /SYSV00000000.

use quarry_proc::{Origin, Space};
use quarry_stats::find;

/// The space, with these segments named. What they hold is looked at, so no other one is taken for such a page.
pub fn named(mut space: Space) -> Space {
    let may_be = |space: &Space| space.mappings.iter().any(|mapping| mapping.name.starts_with("/SYSV"));
    let pid = space.pid.and_then(|pid| i32::try_from(pid).ok());
    if let Some(pid) = pid.filter(|_| space.origin == Origin::Live && may_be(&space)) {
        let numbers = find::segments_of(pid).into_iter().filter_map(|number| u64::try_from(number).ok());
        space.segments.extend(numbers.map(|number| (number, "quarry statistics page".into())));
    }
    space
}
