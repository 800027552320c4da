// SPDX-License-Identifier: MIT
//! /proc/PID/stat and statm: one line each.

use crate::text;

/// statm, in pages: what top shows as VIRT, RES, SHR, CODE and DATA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statm {
    /// VIRT: address space.
    pub size: u64,
    /// RES: anonymous pages, pages of files and shared memory that are resident.
    pub resident: u64,
    /// SHR: those of files and shared memory.
    pub shared: u64,
    /// CODE: the code of the program itself.
    pub text: u64,
    /// Always 0 since Linux 2.6.
    pub lib: u64,
    /// DATA: address space of private writable mappings and stacks.
    pub data: u64,
    /// Always 0 since Linux 2.6.
    pub dirty: u64,
}

impl Statm {
    /// Read it.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut words = text::words(bytes).map(text::decimal);
        let mut next = || words.next().flatten();
        Some(Self {
            size: next()?,
            resident: next()?,
            shared: next()?,
            text: next()?,
            lib: next()?,
            data: next()?,
            dirty: next()?,
        })
    }
}

/// The part of stat that is about memory, time and identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// The process, or the thread.
    pub pid: u32,
    /// Its name, up to 15 bytes.
    pub name: String,
    /// R, S, D, T, t, Z, X, I.
    pub state: char,
    /// Its parent.
    pub parent: u32,
    /// Page faults without a disk.
    pub minor_faults: u64,
    /// Page faults that waited for a disk.
    pub major_faults: u64,
    /// Processor time in the program, in ticks.
    pub user_ticks: u64,
    /// Processor time in the kernel, in ticks.
    pub system_ticks: u64,
    /// Threads.
    pub threads: u64,
    /// When it was started, in ticks since boot: with the pid this names a process for ever.
    pub started: u64,
    /// Address space in bytes.
    pub size: u64,
    /// Resident pages.
    pub resident: u64,
    /// Where the code of the program begins and ends; 0 or 1 where that is not ours to know.
    pub code: (u64, u64),
    /// The bottom of the main stack.
    pub stack_start: u64,
    /// The stack pointer; 0 except for a thread that is ending.
    pub stack_pointer: u64,
    /// Initialised and zeroed data of the program.
    pub data: (u64, u64),
    /// Where the heap (brk) begins.
    pub heap_start: u64,
}

impl Stat {
    /// Read it. The name stands in parentheses and may have spaces and parentheses of its own.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let open = bytes.iter().position(|&byte| byte == b'(')?;
        let close = bytes.iter().rposition(|&byte| byte == b')')?;
        let name = bytes.get(open + 1..close)?;
        let fields: Vec<&[u8]> = text::words(&bytes[close + 1..]).collect();
        // In the kernel's counting the state is number 3. Fields of later kernels, and negative ones, count as 0.
        let field = |number: usize| fields.get(number - 3).and_then(|word| text::decimal(word)).unwrap_or(0);
        let state = match fields.first()? {
            [state] => char::from(*state),
            _ => return None,
        };
        // rss is the last that kernels had when this was young.
        fields.get(24 - 3)?;
        Some(Self {
            pid: u32::try_from(text::decimal(bytes[..open].trim_ascii())?).ok()?,
            name: text::lossy(name),
            state,
            parent: u32::try_from(field(4)).unwrap_or(0),
            minor_faults: field(10),
            major_faults: field(12),
            user_ticks: field(14),
            system_ticks: field(15),
            threads: field(20),
            started: field(22),
            size: field(23),
            resident: field(24),
            code: (field(26), field(27)),
            stack_start: field(28),
            stack_pointer: field(29),
            data: (field(45), field(46)),
            heap_start: field(47),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_have_anything_in_them() {
        let line = b"42 (a) R (b c) S 7 1 1 0 -1 4194304 11 12 13 14 15 16 17 18 20 0 3 0 99 4096 5 18446744073709551615 \
                     100 200 300 400 500 0 0 0 0 0 0 0 17 0 0 0 0 0 0 600 700 800 0 0 0 0 0\n";
        let stat = Stat::parse(line).unwrap();
        assert_eq!((stat.pid, stat.name.as_str(), stat.state, stat.parent), (42, "a) R (b c", 'S', 7));
        assert_eq!(
            (stat.minor_faults, stat.major_faults, stat.user_ticks, stat.system_ticks),
            (11, 13, 15, 16)
        );
        assert_eq!((stat.threads, stat.started, stat.size, stat.resident), (3, 99, 4096, 5));
        assert_eq!((stat.code, stat.stack_start, stat.stack_pointer), ((100, 200), 300, 400));
        assert_eq!((stat.data, stat.heap_start), ((600, 700), 800));
        for end in 0..100 {
            assert!(Stat::parse(&line[..end]).is_none_or(|cut| cut.pid == 42));
        }
    }

    #[test]
    fn our_own() {
        let ours = |name: &str| std::fs::read(format!("/proc/self/{name}")).unwrap();
        let stat = Stat::parse(&ours("stat")).unwrap();
        assert_eq!(stat.pid, std::process::id());
        assert!(stat.stack_start != 0 && stat.heap_start != 0 && stat.code.0 < stat.code.1);
        let statm = Statm::parse(&ours("statm")).unwrap();
        assert!(statm.size >= statm.resident && statm.resident >= statm.shared && statm.lib == 0);
        assert!(Statm::parse(b"1 2 3").is_none() && Statm::parse(b"1 2 3 4 5 -6 7").is_none());
    }
}
