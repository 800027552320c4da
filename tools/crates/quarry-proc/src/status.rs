// SPDX-License-Identifier: MIT
//! /proc/PID/status: names and sums for people.

use crate::text;

/// What status says of memory. What the kernel does not tell is `None`: a kernel thread has no memory, an older kernel
/// fewer lines. Bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// Its name, up to 15 bytes; special characters are written as in C.
    pub name: String,
    /// R, S, D, T, t, Z, X, I.
    pub state: char,
    /// The process.
    pub tgid: Option<u64>,
    /// The number that it knows itself by: another one in a PID namespace of its own.
    pub inner: Option<u64>,
    /// Its parent.
    pub parent: Option<u64>,
    /// The real user.
    pub user: Option<u64>,
    /// Threads.
    pub threads: Option<u64>,
    /// Most address space so far.
    pub vm_peak: Option<u64>,
    /// Address space.
    pub vm_size: Option<u64>,
    /// Locked by mlock.
    pub vm_lck: Option<u64>,
    /// Pinned, for devices that write to it.
    pub vm_pin: Option<u64>,
    /// Most resident memory so far.
    pub vm_hwm: Option<u64>,
    /// Resident memory: the sum of the next three.
    pub vm_rss: Option<u64>,
    /// Resident anonymous pages.
    pub rss_anon: Option<u64>,
    /// Resident pages of files.
    pub rss_file: Option<u64>,
    /// Resident shared memory.
    pub rss_shmem: Option<u64>,
    /// Address space of private writable mappings.
    pub vm_data: Option<u64>,
    /// Address space of stacks that grow.
    pub vm_stk: Option<u64>,
    /// Code of the program.
    pub vm_exe: Option<u64>,
    /// Code of libraries.
    pub vm_lib: Option<u64>,
    /// Page tables.
    pub vm_pte: Option<u64>,
    /// Anonymous memory in swap. Shared memory in swap is not in it.
    pub vm_swap: Option<u64>,
    /// Pages of hugetlbfs, which are in no other line.
    pub hugetlb: Option<u64>,
}

impl Status {
    /// Read it. `None` where it is no status at all.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut status = Self { state: '?', ..Self::default() };
        let mut known = 0;
        for line in text::lines(bytes) {
            let Some(colon) = line.iter().position(|&byte| byte == b':') else { continue };
            let (key, value) = (&line[..colon], line[colon + 1..].trim_ascii());
            let size = text::kilobytes(value);
            let count = text::words(value).next().and_then(text::decimal);
            match key {
                b"Name" => status.name = text::lossy(value),
                b"State" => status.state = value.first().map_or('?', |&byte| char::from(byte)),
                b"Tgid" => status.tgid = count,
                b"NStgid" => status.inner = text::words(value).last().and_then(text::decimal),
                b"PPid" => status.parent = count,
                b"Uid" => status.user = count,
                b"Threads" => status.threads = count,
                b"VmPeak" => status.vm_peak = size,
                b"VmSize" => status.vm_size = size,
                b"VmLck" => status.vm_lck = size,
                b"VmPin" => status.vm_pin = size,
                b"VmHWM" => status.vm_hwm = size,
                b"VmRSS" => status.vm_rss = size,
                b"RssAnon" => status.rss_anon = size,
                b"RssFile" => status.rss_file = size,
                b"RssShmem" => status.rss_shmem = size,
                b"VmData" => status.vm_data = size,
                b"VmStk" => status.vm_stk = size,
                b"VmExe" => status.vm_exe = size,
                b"VmLib" => status.vm_lib = size,
                b"VmPTE" => status.vm_pte = size,
                b"VmSwap" => status.vm_swap = size,
                b"HugetlbPages" => status.hugetlb = size,
                _ => continue,
            }
            known += 1;
        }
        (known > 0).then_some(status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_unknown() {
        let status = Status::parse(b"Name:\tkworker/0:1\nState:\tI (idle)\nThreads:\t1\nNew:\tx\n").unwrap();
        assert_eq!((status.name.as_str(), status.state, status.threads), ("kworker/0:1", 'I', Some(1)));
        assert_eq!((status.vm_rss, status.vm_swap), (None, None));
        let inside = Status::parse(b"Tgid:\t4711\nNStgid:\t4711\t12\t1\n").unwrap();
        assert_eq!((inside.tgid, inside.inner), (Some(4711), Some(1)));
        assert!(Status::parse(b"nothing of the kind\n\n").is_none());
    }

    #[test]
    fn our_own_adds_up() {
        let status = Status::parse(&std::fs::read("/proc/self/status").unwrap()).unwrap();
        assert_eq!(status.tgid, Some(u64::from(std::process::id())));
        assert!(status.inner.is_none_or(|inner| inner == u64::from(std::process::id())));
        let parts = [status.rss_anon, status.rss_file, status.rss_shmem];
        assert_eq!(parts.into_iter().sum::<Option<u64>>(), status.vm_rss);
    }
}
