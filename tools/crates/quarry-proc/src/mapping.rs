// SPDX-License-Identifier: MIT
//! A mapping: pages that lie together and have the same backing and the same access.

use std::sync::Arc;

use crate::counters::{Counters, Other};
use crate::text;

/// What may be done, and for whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Perms {
    /// May be read.
    pub read: bool,
    /// May be written.
    pub write: bool,
    /// May be executed.
    pub exec: bool,
    /// Writes are seen by all who map it.
    pub shared: bool,
}

impl Perms {
    /// "rw-p".
    pub fn parse(text: &[u8]) -> Option<Self> {
        let &[read, write, exec, shared] = text else { return None };
        let is = |byte: u8, yes: u8| match byte {
            b'-' => Some(false),
            byte => (byte == yes).then_some(true),
        };
        let shared = match shared {
            b's' => true,
            b'p' => false,
            _ => return None,
        };
        Some(Self { read: is(read, b'r')?, write: is(write, b'w')?, exec: is(exec, b'x')?, shared })
    }

    /// Nothing at all may be done.
    pub fn is_none(self) -> bool {
        !(self.read || self.write || self.exec)
    }
}

impl std::fmt::Display for Perms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let letter = |is: bool, letter: char| if is { letter } else { '-' };
        let shared = if self.shared { 's' } else { 'p' };
        write!(f, "{}{}{}{shared}", letter(self.read, 'r'), letter(self.write, 'w'), letter(self.exec, 'x'))
    }
}

/// The two letters of each flag in VmFlags, and what they say.
pub const FLAGS: [([u8; 2], &str); 43] = [
    (*b"rd", "may be read"),
    (*b"wr", "may be written"),
    (*b"ex", "may be executed"),
    (*b"sh", "shared"),
    (*b"mr", "could be made readable"),
    (*b"mw", "could be made writable"),
    (*b"me", "could be made executable"),
    (*b"ms", "could be shared"),
    (*b"gd", "grows downwards"),
    (*b"pf", "pages without records (PFN)"),
    (*b"dw", "writes to the file are refused"),
    (*b"lo", "locked in memory"),
    (*b"io", "memory of a device"),
    (*b"sr", "advice: sequential reads"),
    (*b"rr", "advice: random reads"),
    (*b"dc", "not copied by fork"),
    (*b"de", "may not be enlarged"),
    (*b"ac", "counted as a promise of memory"),
    (*b"nr", "no swap space reserved"),
    (*b"ht", "huge pages of hugetlbfs"),
    (*b"sf", "page faults in step with the file"),
    (*b"nl", "nonlinear"),
    (*b"ar", "of the architecture"),
    (*b"wf", "emptied in the child of a fork"),
    (*b"dd", "left out of core dumps"),
    (*b"sd", "soft-dirty"),
    (*b"mm", "mixed pages"),
    (*b"hg", "advice: huge pages"),
    (*b"nh", "advice: no huge pages"),
    (*b"mg", "advice: merge identical pages"),
    (*b"bt", "guarded by BTI"),
    (*b"mt", "tagged memory"),
    (*b"um", "userfaultfd: missing pages"),
    (*b"uw", "userfaultfd: writes"),
    (*b"ui", "userfaultfd: minor faults"),
    (*b"ss", "shadow stack"),
    (*b"sl", "sealed"),
    (*b"lf", "locked when touched"),
    (*b"dp", "may be dropped by the kernel"),
    (*b"gu", "may have guard pages inside"),
    (*b"mp", "protection key"),
    (*b"wp", "write-protected in the background"),
    (*b"?\0", "a flag that is not known here"),
];

/// VmFlags of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags {
    bits: u64,
    known: bool,
}

impl Flags {
    /// What stands behind "VmFlags:".
    pub fn parse(text: &[u8]) -> Self {
        let bit = |word: &[u8]| {
            let at = FLAGS.iter().position(|(code, _)| code == word).unwrap_or(FLAGS.len() - 1);
            1 << at
        };
        Self { bits: text::words(text).fold(0, |bits, word| bits | bit(word)), known: true }
    }

    /// Did the kernel tell them?
    pub fn is_known(self) -> bool {
        self.known
    }

    /// Is this one set?
    pub fn has(self, code: &[u8; 2]) -> bool {
        let at = FLAGS.iter().position(|(known, _)| known == code);
        at.is_some_and(|at| self.bits & 1 << at != 0)
    }

    /// Those that are set, with their meaning.
    pub fn iter(self) -> impl Iterator<Item = ([u8; 2], &'static str)> {
        FLAGS.into_iter().enumerate().filter(move |(at, _)| self.bits & 1 << at != 0).map(|(_, flag)| flag)
    }

    /// As the kernel prints them.
    pub fn text(self) -> String {
        let codes: Vec<String> =
            self.iter().map(|(code, _)| text::lossy(&code).trim_end_matches('\0').into()).collect();
        codes.join(" ")
    }
}

/// A mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// Its first address.
    pub start: u64,
    /// The address behind it.
    pub end: u64,
    /// What may be done with it.
    pub perms: Perms,
    /// Where in the file it begins.
    pub offset: u64,
    /// The device of the file, major and minor.
    pub device: (u32, u32),
    /// The file's number on it; 0: no file.
    pub inode: u64,
    /// The file, or what the kernel calls it in brackets, or nothing; without " (deleted)".
    pub name: Arc<str>,
    /// The file has been deleted.
    pub deleted: bool,
    /// What smaps counts; nothing in a copy of maps.
    pub counters: Counters,
    /// Counters of smaps that are not known here.
    pub others: Vec<Other>,
    /// VmFlags.
    pub flags: Flags,
    /// What a core file has of it; `None` where it was read from anything else.
    pub dumped: Option<u64>,
}

impl Mapping {
    /// Address space.
    pub fn size(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Is it a part of a file, as far as the kernel is concerned?
    pub fn has_file(&self) -> bool {
        // A core file does not know inodes.
        self.inode != 0 || self.name.starts_with('/')
    }

    /// Is this address in it?
    pub fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// "rw-p", with an R behind it where no swap space is reserved.
    pub fn mode(&self) -> String {
        format!("{}{}", self.perms, if self.flags.has(b"nr") { "R" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_strictly_and_written_alike() {
        for text in ["rwxp", "---s", "r-xp", "rw-s", "--xp"] {
            assert_eq!(Perms::parse(text.as_bytes()).unwrap().to_string(), text);
        }
        for text in ["rwx", "rwxpp", "wr-p", "rw-x", "rwx-", ""] {
            assert!(Perms::parse(text.as_bytes()).is_none(), "{text}");
        }
    }

    #[test]
    fn flags_that_came_later_are_kept_as_such() {
        let flags = Flags::parse(b" rd wr mr zz nr ");
        assert!(flags.has(b"nr") && flags.has(b"rd") && !flags.has(b"ex"));
        assert_eq!(flags.text(), "rd wr mr nr ?");
        assert!(!Flags::default().is_known() && Flags::parse(b"").is_known());
    }

    #[test]
    fn codes_are_different() {
        for (at, (code, _)) in FLAGS.iter().enumerate() {
            assert_eq!(FLAGS.iter().position(|(other, _)| other == code), Some(at));
        }
    }
}
