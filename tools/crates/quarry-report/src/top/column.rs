// SPDX-License-Identifier: MIT
//! The columns: what they are called, what is behind them, and how they are written.

use super::row::Row;
use crate::view::{Heading, change, known, rate};

/// A column of the table of processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// The number.
    Pid,
    /// What it is doing.
    State,
    /// Address space.
    Virt,
    /// Resident.
    Res,
    /// Resident, of files or shared memory.
    Shr,
    /// The program's own code.
    Code,
    /// Private writable mappings.
    Data,
    /// In swap.
    Swap,
    /// Of the machine's memory.
    Mem,
    /// Resident, anonymous.
    Anon,
    /// Resident, of files.
    File,
    /// Resident, shared memory.
    Shm,
    /// Resident, each page divided by its mappings.
    Pss,
    /// Resident, and nobody else has it.
    Uss,
    /// Page faults a second.
    Faults,
    /// Of them, those that waited for a disk.
    Major,
    /// Change a second.
    Growth,
    /// Change since it was seen first.
    Grown,
    /// Its name.
    Command,
}

/// What has to be read of a process to know a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// stat and statm, which are read of all.
    Nothing,
    /// status.
    Status,
    /// smaps_rollup.
    Rollup,
}

/// A value to sort by: numbers by size, text by letters, and what is not known behind both.
#[derive(Debug, Clone, PartialEq, PartialOrd)]
pub enum Key<'a> {
    /// By size.
    Number(f64),
    /// By letters.
    Text(&'a str),
}

impl Heading for Column {
    const ALL: &'static [Self] = &[
        Self::Pid,
        Self::State,
        Self::Virt,
        Self::Res,
        Self::Shr,
        Self::Code,
        Self::Data,
        Self::Swap,
        Self::Mem,
        Self::Anon,
        Self::File,
        Self::Shm,
        Self::Pss,
        Self::Uss,
        Self::Faults,
        Self::Major,
        Self::Growth,
        Self::Grown,
        Self::Command,
    ];

    const OPTIONAL: &'static [Self] = &[
        Self::File,
        Self::Shm,
        Self::Anon,
        Self::Grown,
        Self::State,
        Self::Major,
        Self::Code,
        Self::Swap,
        Self::Data,
        Self::Mem,
        Self::Virt,
        Self::Shr,
    ];

    const TEXT: Self = Self::Command;
    const LEAST: usize = 12;

    fn name(self) -> &'static str {
        match self {
            Self::Pid => "PID",
            Self::State => "S",
            Self::Virt => "VIRT",
            Self::Res => "RES",
            Self::Shr => "SHR",
            Self::Code => "CODE",
            Self::Data => "DATA",
            Self::Swap => "SWAP",
            Self::Mem => "%MEM",
            Self::Anon => "ANON",
            Self::File => "FILE",
            Self::Shm => "SHM",
            Self::Pss => "PSS",
            Self::Uss => "USS",
            Self::Faults => "FLT/s",
            Self::Major => "MAJ/s",
            Self::Growth => "GROW/s",
            Self::Grown => "GROWN",
            Self::Command => "COMMAND",
        }
    }

    fn key(self) -> &'static str {
        match self {
            Self::Pid => "pid",
            Self::State => "state",
            Self::Virt => "virt",
            Self::Res => "res",
            Self::Shr => "shr",
            Self::Code => "code",
            Self::Data => "data",
            Self::Swap => "swap",
            Self::Mem => "mem",
            Self::Anon => "anon",
            Self::File => "file",
            Self::Shm => "shm",
            Self::Pss => "pss",
            Self::Uss => "uss",
            Self::Faults => "faults",
            Self::Major => "major",
            Self::Growth => "growth",
            Self::Grown => "grown",
            Self::Command => "command",
        }
    }

    fn help(self) -> (&'static str, &'static str) {
        match self {
            Self::Pid => ("/proc/PID", "the number of the process"),
            Self::State => (
                "stat 3",
                "R runs, S sleeps, D waits for a disk, T stopped, t traced, Z ended and not yet waited for, I idle thread of the kernel",
            ),
            Self::Virt => {
                ("statm 1", "address space: all that is mapped. It costs nothing until it is touched")
            }
            Self::Res => (
                "statm 2",
                "resident: RssAnon + RssFile + RssShmem. Pages of several processes count in each, so the sum of RES may exceed the machine's memory",
            ),
            Self::Shr => (
                "statm 3",
                "RssFile + RssShmem: the resident part that has a file or is shared memory. Not what is in fact shared, and nothing that is not resident; a written page of a private file leaves it",
            ),
            Self::Code => ("statm 4", "address space of the program's own code, without libraries"),
            Self::Data => (
                "statm 6",
                "address space of private writable mappings and stacks. Says nothing of what is resident; older texts count quadrant 1",
            ),
            Self::Swap => (
                "status, VmSwap",
                "anonymous memory in swap; never VIRT - RES. More than 0 says that memory was short once. Shared memory in swap is not in it",
            ),
            Self::Mem => ("RES / MemTotal", "RES in percent of the machine's memory"),
            Self::Anon => {
                ("status, RssAnon", "resident anonymous pages: heap, stacks, written pages of private files")
            }
            Self::File => {
                ("status, RssFile", "resident pages of files, which the kernel can drop and read again")
            }
            Self::Shm => (
                "status, RssShmem",
                "resident shared memory: mmap(ANONYMOUS|SHARED), memfd, System V, POSIX, tmpfs",
            ),
            Self::Pss => (
                "smaps_rollup, Pss",
                "resident, each page divided by the number of mappings it is in: these may be added up",
            ),
            Self::Uss => (
                "smaps_rollup, Private_Clean + Private_Dirty",
                "pages that nobody else has: what would be free if the process ended",
            ),
            Self::Faults => (
                "stat 10 + 12",
                "page faults per second since the last frame: pages touched for the first time, copied or read",
            ),
            Self::Major => ("stat 12", "those of them that waited for a disk"),
            Self::Growth => ("statm 2", "change of RES per second since the last frame"),
            Self::Grown => ("statm 2", "change of RES since quarry top saw the process first"),
            Self::Command => ("stat 2", "its short name"),
        }
    }

    fn width(self) -> usize {
        match self {
            Self::Pid => 7,
            Self::State => 1,
            Self::Growth | Self::Grown => 6,
            _ => 5,
        }
    }
}

impl Column {
    /// What must be read for it.
    pub fn needs(self) -> Needs {
        match self {
            Self::Swap | Self::Anon | Self::File | Self::Shm => Needs::Status,
            Self::Pss | Self::Uss => Needs::Rollup,
            _ => Needs::Nothing,
        }
    }

    /// Those that are bytes.
    pub fn of_bytes() -> impl Iterator<Item = Column> {
        let is_bytes = |column: &Column| {
            use Column::{Command, Faults, Grown, Growth, Major, Mem, Pid, State};
            !matches!(column, Pid | State | Mem | Faults | Major | Growth | Grown | Command)
        };
        Self::ALL.iter().copied().filter(is_bytes)
    }

    /// The number of bytes, where it is one.
    pub fn bytes(self, row: &Row) -> Option<u64> {
        match self {
            Self::Virt => row.virt,
            Self::Res => row.res,
            Self::Shr => row.shr,
            Self::Code => row.code,
            Self::Data => row.data,
            Self::Swap => row.status.swap,
            Self::Anon => row.status.anon,
            Self::File => row.status.file,
            Self::Shm => row.status.shm,
            Self::Pss => row.rollup.pss,
            Self::Uss => row.rollup.uss,
            _ => None,
        }
    }

    /// What rows are sorted by; `None` where it is not known.
    pub fn sort_key(self, row: &Row) -> Option<Key<'_>> {
        match self {
            Self::Pid => Some(Key::Number(f64::from(row.pid))),
            Self::State => Some(Key::Number(f64::from(u32::from(row.state)))),
            Self::Mem => row.res.map(|bytes| Key::Number(bytes as f64)),
            Self::Faults => row.faults.map(Key::Number),
            Self::Major => row.major.map(Key::Number),
            Self::Growth => row.growth.map(Key::Number),
            Self::Grown => row.grown.map(Key::Number),
            Self::Command => Some(Key::Text(&row.name)),
            column => column.bytes(row).map(|bytes| Key::Number(bytes as f64)),
        }
    }

    /// The cell of a row, at most as wide as the column; the command may be of any width. "-": not known.
    pub fn cell(self, row: &Row, total: Option<u64>) -> String {
        let unknown = || String::from("-");
        match self {
            Self::Pid => row.pid.to_string(),
            Self::State => row.state.to_string(),
            Self::Mem => row.percent(total).map_or_else(unknown, |percent| format!("{percent:.1}")),
            Self::Faults => row.faults.map_or_else(unknown, rate),
            Self::Major => row.major.map_or_else(unknown, rate),
            Self::Growth => row.growth.map_or_else(unknown, change),
            Self::Grown => row.grown.map_or_else(unknown, change),
            Self::Command => row.label(),
            column => known(column.bytes(row)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_explains_itself_and_has_a_word() {
        for &column in Column::ALL {
            let (source, what) = column.help();
            assert!(!source.is_empty() && what.len() > 10);
            assert!(column == Column::Command || column.width() >= column.name().len(), "{column:?}");
            assert_eq!(Column::with_key(&column.key().to_uppercase()), Some(column));
        }
    }
}
