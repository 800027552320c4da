// SPDX-License-Identifier: MIT
//! The address space of one process, with all that helps to understand it, from wherever it is read.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use quarry_input::Input;

use crate::cgroup::Cgroup;
use crate::counters::{Counters, Field};
use crate::error::{ProcError, optional};
use crate::limits::Limits;
use crate::mapping::Mapping;
use crate::process::Process;
use crate::smaps::{self, Damage};
use crate::stat::{Stat, Statm};
use crate::status::Status;
use crate::task::Tasks;
use crate::{core_file, shown, sys, text};

/// A process that changes while it is read is read again so often.
const TRIES: usize = 3;

/// Where an address space was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A process of this machine.
    Live,
    /// A saved folder of /proc.
    Folder,
    /// A saved smaps or maps.
    Text,
    /// A core file.
    Core,
}

/// Addresses of a heap that says itself where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// The first.
    pub from: u64,
    /// The address behind it.
    pub to: u64,
    /// What is there: a name as a heap gives it to the kernel, such as "quarry heap".
    pub name: &'static str,
}

/// An address space. What its origin does not have is `None` or empty.
#[derive(Debug, Clone)]
pub struct Space {
    /// Where it is from.
    pub origin: Origin,
    /// The process.
    pub pid: Option<u32>,
    /// Its short name.
    pub name: Option<String>,
    /// The words it was started with.
    pub command: Vec<String>,
    /// Its mappings, by address.
    pub mappings: Vec<Mapping>,
    /// What could not be read of them.
    pub damage: Damage,
    /// Its threads.
    pub tasks: Tasks,
    /// stat.
    pub stat: Option<Stat>,
    /// statm.
    pub statm: Option<Statm>,
    /// status.
    pub status: Option<Status>,
    /// smaps_rollup.
    pub rollup: Option<Counters>,
    /// limits.
    pub limits: Option<Limits>,
    /// Its control group.
    pub cgroup: Option<Cgroup>,
    /// Devices whose files live in memory and swap.
    pub memory_devices: HashSet<(u32, u32)>,
    /// An address in the main stack, where that has no name.
    pub main_stack: Option<u64>,
    /// Where the vdso begins, where that has no name.
    pub vdso: Option<u64>,
    /// The page size.
    pub page: u64,
    /// Addresses of which somebody said what they are; nobody did, unless the caller filled this in.
    pub known: Vec<Known>,
    /// It did not change while it was read, nor did what it shares with others; `None` where it could not.
    pub steady: Option<bool>,
    /// The process, to find its files.
    pub process: Option<Process>,
}

impl Space {
    /// What a process has now. One that runs is read up to three times, until its accounts agree.
    pub fn of_process(process: &Process) -> Result<Self, ProcError> {
        Self::of_process_within(process, Duration::MAX)
    }

    /// The same; if one reading takes longer than `most`, it is the only one.
    pub fn of_process_within(process: &Process, most: Duration) -> Result<Self, ProcError> {
        let start = Instant::now();
        let mut space = Self::read(process)?;
        if process.is_live() {
            let mut tries = 1;
            while space.steady == Some(false) && tries < TRIES && start.elapsed() <= most {
                space = Self::read(process)?;
                tries += 1;
            }
            // The number may have been given to another process meanwhile.
            if space.stat.as_ref().map(|stat| stat.started)
                != optional(process.stat())?.map(|stat| stat.started)
            {
                return Err(ProcError::Gone(process.pid().unwrap_or_default()));
            }
        }
        Ok(space)
    }

    fn read(process: &Process) -> Result<Self, ProcError> {
        let before = optional(process.statm())?;
        let (mappings, damage) = process.mappings()?;
        let rollup = optional(process.rollup())?;
        let (statm, status) = (optional(process.statm())?, optional(process.status())?);
        let page = page_of(&mappings);
        let steady = process.is_live().then(|| {
            let size = statm.map(|statm| statm.size.wrapping_mul(page));
            before == statm
                && size.is_none_or(|size| size == reserved(&mappings))
                && rollup.as_ref().is_none_or(|whole| whole.is_sum_of(&mappings))
        });
        let mut devices = HashSet::new();
        for mount in optional(process.mounts())?.unwrap_or_default() {
            if mount.is_memory() {
                devices.insert(mount.device);
            }
        }
        let mut space = Self {
            origin: if process.is_live() { Origin::Live } else { Origin::Folder },
            pid: process.pid(),
            name: optional(process.comm())?,
            command: optional(process.cmdline())?.unwrap_or_default(),
            tasks: optional(process.tasks())?.unwrap_or_default(),
            stat: optional(process.stat())?,
            statm,
            status,
            rollup,
            limits: optional(process.limits())?,
            cgroup: optional(process.cgroup())?.flatten(),
            memory_devices: devices,
            page,
            steady,
            process: Some(process.clone()),
            ..Self::bare(Origin::Live, mappings, damage)
        };
        space.find_memory_devices();
        Ok(space)
    }

    /// From a saved folder of a process, a saved smaps or maps, or a core file. Files may be packed, or come from a pipe.
    pub fn of_file(path: &Path) -> Result<Self, ProcError> {
        if fs::metadata(path).is_ok_and(|about| about.is_dir()) {
            return Self::of_process(&Process::saved(path));
        }
        let file = || PathBuf::from(quarry_input::name(path));
        let input = Input::open(path).map_err(|source| ProcError::Io { file: file(), source })?;
        Self::of_input(input, file())
    }

    fn of_input(mut input: Input, file: PathBuf) -> Result<Self, ProcError> {
        let refused = |what: String| ProcError::Damaged { file: file.clone(), what };
        let io = |source| ProcError::Io { file: file.clone(), source };
        if input.begin().is_empty() {
            return Err(refused(String::from("is empty")));
        }
        if input.begin().starts_with(b"\x7fELF") {
            let (core, cut) = input.into_file().map_err(io)?;
            let mut core = core_file::read(core).map_err(|error| refused(error.to_string()))?;
            core.cut |= cut;
            return Ok(Self::of_core(core));
        }
        if !smaps::is_one(input.begin()) {
            let line = text::lines(input.begin()).next().unwrap_or_default();
            let line: String = text::lossy(line).chars().take(60).collect();
            let what = format!("is neither smaps or maps nor a core file: line 1 is '{}'", shown(&line));
            return Err(refused(what));
        }
        let (mappings, mut damage) = smaps::read_saved(&mut input).map_err(io)?;
        damage.cut |= input.is_cut();
        if mappings.is_empty() {
            let what = "is neither smaps or maps nor a core file: there is no mapping in it";
            return Err(refused(String::from(what)));
        }
        Ok(Self::of_mappings(mappings, damage))
    }

    /// From mappings alone, as [`smaps::read_all`] reads them.
    pub fn of_mappings(mappings: Vec<Mapping>, damage: Damage) -> Self {
        let mut space = Self::bare(Origin::Text, mappings, damage);
        space.find_memory_devices();
        space
    }

    /// From a core file.
    pub fn of_core(core: core_file::CoreFile) -> Self {
        let page = core.page;
        let damage = Damage { cut: core.cut, notes: core.notes_cut, ..Damage::default() };
        let mut space = Self {
            pid: core.pid,
            name: core.name,
            command: core.command.into_iter().collect(),
            tasks: core.tasks,
            main_stack: core.main_stack,
            vdso: core.vdso,
            ..Self::bare(Origin::Core, core.mappings, damage)
        };
        space.page = page.unwrap_or(space.page);
        space
    }

    fn bare(origin: Origin, mappings: Vec<Mapping>, damage: Damage) -> Self {
        Self {
            origin,
            pid: None,
            name: None,
            command: Vec::new(),
            damage,
            tasks: Tasks::default(),
            stat: None,
            statm: None,
            status: None,
            rollup: None,
            limits: None,
            cgroup: None,
            memory_devices: HashSet::new(),
            main_stack: None,
            vdso: None,
            page: page_of(&mappings),
            known: Vec::new(),
            steady: None,
            process: None,
            mappings,
        }
    }

    /// Shared memory without a mounted file system lies on a device of the kernel's own, which its names betray.
    fn find_memory_devices(&mut self) {
        // Where the mounted file systems are known, they say what /dev/shm is.
        let guess = self.memory_devices.is_empty();
        let betrays = |mapping: &&Mapping| {
            ["/memfd:", "/SYSV"].iter().any(|begin| mapping.name.starts_with(begin))
                || (&*mapping.name == "/dev/zero" && mapping.perms.shared)
                || (guess && mapping.name.starts_with("/dev/shm/"))
        };
        let found: Vec<_> = self
            .mappings
            .iter()
            .filter(|mapping| mapping.inode != 0)
            .filter(betrays)
            .map(|mapping| mapping.device)
            .collect();
        self.memory_devices.extend(found);
    }
}

/// What the kernel counts as address space: all but the page that is the same in every process.
pub(crate) fn reserved(mappings: &[Mapping]) -> u64 {
    let own = mappings.iter().filter(|mapping| &*mapping.name != "[vsyscall]");
    own.fold(0u64, |sum, mapping| sum.saturating_add(mapping.size()))
}

/// The smallest page size of the mappings; where they do not tell, this machine's.
fn page_of(mappings: &[Mapping]) -> u64 {
    let told = mappings.iter().filter_map(|mapping| mapping.counters.get(Field::KernelPageSize));
    told.filter(|page| page.is_power_of_two()).min().unwrap_or_else(sys::page_size)
}
