// SPDX-License-Identifier: MIT
//! The control group of a process: its limits of memory, what it uses, and whether it waits for memory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::text;

/// Control groups deeper than that are not looked for.
const DEEPEST: usize = 64;
/// Files of control groups are short.
const LONGEST: u64 = 64 << 10;

/// Which interface of control groups the memory of a process is under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// memory.limit_in_bytes and its kin.
    V1,
    /// memory.max and its kin.
    V2,
}

/// How long tasks waited for memory.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Pressure {
    /// Percent of the last 10, 60 and 300 seconds in which some task waited.
    pub some: [f64; 3],
    /// The same for all tasks at once.
    pub full: [f64; 3],
    /// Microseconds in which some task waited, since the beginning.
    pub some_total_us: u64,
    /// The same for all tasks at once.
    pub full_total_us: u64,
}

/// A limit, and how near it is. Bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    /// What the group and those in it may have together (memory.max).
    pub bytes: u64,
    /// What they use (memory.current).
    pub used: Option<u64>,
    /// The folder of the group whose limit it is.
    pub folder: PathBuf,
}

/// What the control group says of memory. What it does not tell is `None`. Bytes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Memory {
    /// The folder.
    pub folder: PathBuf,
    /// Its own limit (memory.max); `None`: none.
    pub max: Option<u64>,
    /// From where on it is slowed down (memory.high; v1: the soft limit, above which memory is taken from it first when there is
    /// too little).
    pub high: Option<u64>,
    /// The tightest limit of it and the groups around it.
    pub tightest: Option<Limit>,
    /// How much more it can have before any of their limits is met: that need not be the tightest.
    pub room: Option<u64>,
    /// What it uses (memory.current).
    pub current: Option<u64>,
    /// The most it used (memory.peak).
    pub peak: Option<u64>,
    /// What of it is in swap.
    pub swap: Option<u64>,
    /// memory.stat.
    pub stat: BTreeMap<String, u64>,
    /// memory.events: how often it met its limits.
    pub events: BTreeMap<String, u64>,
    /// memory.pressure.
    pub pressure: Option<Pressure>,
}

/// A process's control group for memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Cgroup {
    /// The interface.
    pub version: Version,
    /// Its path, as /proc/PID/cgroup has it.
    pub path: String,
    /// What it says; `None` where its folder is not visible here.
    pub memory: Option<Memory>,
}

/// The version and path of the group that accounts the memory: /proc/PID/cgroup.
pub fn membership(bytes: &[u8]) -> Option<(Version, String)> {
    let mut v2 = None;
    for line in text::lines(bytes) {
        let mut parts = line.splitn(3, |&byte| byte == b':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        if controllers.split(|&byte| byte == b',').any(|name| name == b"memory") {
            return Some((Version::V1, text::lossy(path)));
        }
        if controllers.is_empty() {
            v2 = Some((Version::V2, text::lossy(path)));
        }
    }
    v2
}

/// What the group says, below the folder `mounted` where control groups are (/sys/fs/cgroup).
pub fn read(mounted: &Path, version: Version, path: &str) -> Cgroup {
    let tops: &[&str] = match version {
        Version::V1 => &["memory"],
        Version::V2 => &["", "unified"],
    };
    let memory = tops.iter().find_map(|top| {
        let top = mounted.join(top);
        let own = below(&top, path)?;
        // In a container the path may be the host's, while its own group is mounted as the top.
        let own = if own.is_dir() { own } else { top.clone() };
        // A group may count no memory of its own. Then the nearest one around it that counts has its limits.
        let around = own.ancestors().take_while(|around| around.starts_with(&top));
        around.map(Path::to_owned).find_map(|folder| memory(&top, folder, version))
    });
    Cgroup { version, path: path.to_owned(), memory }
}

/// The folder of a path that begins with a slash; none that leads out of `top`.
fn below(top: &Path, path: &str) -> Option<PathBuf> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let sound = parts.len() <= DEEPEST && parts.iter().all(|part| *part != "..");
    sound.then(|| parts.iter().fold(top.to_owned(), |folder, part| folder.join(part)))
}

fn memory(top: &Path, folder: PathBuf, version: Version) -> Option<Memory> {
    let names = match version {
        Version::V1 => ["limit_in_bytes", "soft_limit_in_bytes", "usage_in_bytes", "max_usage_in_bytes"],
        Version::V2 => ["max", "high", "current", "peak"],
    };
    let number = |folder: &Path, name: &str| limit(&file(folder, &format!("memory.{name}"))?);
    let around = folder.ancestors().take_while(|around| around.starts_with(top));
    let limits: Vec<Limit> = around
        .filter_map(|around| {
            let (bytes, used) = (number(around, names[0])?, number(around, names[2]));
            Some(Limit { bytes, used, folder: around.to_owned() })
        })
        .collect();
    let stat = table(&file(&folder, "memory.stat")?);
    let swap = match version {
        Version::V1 => stat.get("swap").copied(),
        Version::V2 => number(&folder, "swap.current"),
    };
    Some(Memory {
        max: number(&folder, names[0]),
        high: number(&folder, names[1]),
        current: number(&folder, names[2]),
        peak: number(&folder, names[3]),
        room: limits.iter().filter_map(|limit| Some(limit.bytes.saturating_sub(limit.used?))).min(),
        tightest: limits.into_iter().min_by_key(|limit| limit.bytes),
        swap,
        events: file(&folder, "memory.events").map(|text| table(&text)).unwrap_or_default(),
        pressure: file(&folder, "memory.pressure").and_then(|text| pressure(&text)),
        stat,
        folder,
    })
}

/// A file of a group. Its absence is a value: the top group has no limits, older kernels no pressure.
fn file(folder: &Path, name: &str) -> Option<Vec<u8>> {
    crate::process::read_file(&folder.join(name), LONGEST).ok()
}

/// A number; "max", and what v1 has for it, is none.
fn limit(bytes: &[u8]) -> Option<u64> {
    // v1 has the largest number of pages that a signed number holds.
    const UNLIMITED: u64 = 0x7fff_ffff_ffff_0000;
    text::decimal(bytes.trim_ascii()).filter(|limit| *limit < UNLIMITED)
}

fn table(bytes: &[u8]) -> BTreeMap<String, u64> {
    let row = |line: &[u8]| {
        let mut words = text::words(line);
        Some((text::lossy(words.next()?), text::decimal(words.next()?)?))
    };
    text::lines(bytes).filter_map(row).collect()
}

/// "some avg10=0.00 avg60=0.00 avg300=0.00 total=0".
pub fn pressure(bytes: &[u8]) -> Option<Pressure> {
    let mut pressure = Pressure::default();
    let mut found = false;
    for line in text::lines(bytes) {
        let line = String::from_utf8_lossy(line);
        let mut words = line.split_ascii_whitespace();
        let (averages, total) = match words.next() {
            Some("some") => (&mut pressure.some, &mut pressure.some_total_us),
            Some("full") => (&mut pressure.full, &mut pressure.full_total_us),
            _ => continue,
        };
        for (key, value) in words.filter_map(|word| word.split_once('=')) {
            let average = || value.parse::<f64>().ok().filter(|share| (0.0..=100.0).contains(share));
            match key {
                "avg10" => averages[0] = average()?,
                "avg60" => averages[1] = average()?,
                "avg300" => averages[2] = average()?,
                "total" => *total = text::decimal(value.as_bytes())?,
                _ => {}
            }
        }
        found = true;
    }
    found.then_some(pressure)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_group_that_counts() {
        let v1 = b"9:name=systemd:/\n4:cpu,memory:/a/b:c\n0::/x\n";
        assert_eq!(membership(v1), Some((Version::V1, String::from("/a/b:c"))));
        assert_eq!(membership(b"0::/x\n1:cpu:/\n"), Some((Version::V2, String::from("/x"))));
        assert_eq!(membership(b"garbage\n"), None);
    }

    #[test]
    fn the_tightest_limit_may_be_a_parents() {
        let top = tempfile::tempdir().unwrap();
        let inner = top.path().join("a/b");
        fs::create_dir_all(&inner).unwrap();
        let write = |folder: &Path, name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
        write(&inner, "memory.stat", "anon 4096\nfile 8192\nodd\n");
        write(&inner, "memory.max", "max\n");
        write(&inner, "memory.current", "12288\n");
        write(&inner, "memory.events", "low 0\noom_kill 2\n");
        write(&inner, "memory.pressure", "some avg10=1.50 avg60=0.00 avg300=0.00 total=7\n");
        write(&top.path().join("a"), "memory.max", "65536\n");
        write(&top.path().join("a"), "memory.current", "32768\n");
        let group = read(top.path(), Version::V2, "/a/b");
        let memory = group.memory.unwrap();
        assert_eq!((memory.max, memory.current, memory.high), (None, Some(12288), None));
        let limit = Limit { bytes: 65536, used: Some(32768), folder: top.path().join("a") };
        assert_eq!((memory.tightest, memory.room), (Some(limit), Some(32768)));
        assert_eq!((memory.stat["anon"], memory.events["oom_kill"]), (4096, 2));
        let pressure = memory.pressure.unwrap();
        assert_eq!((pressure.some[0], pressure.some_total_us), (1.5, 7));
        assert!(read(top.path(), Version::V2, "/gone").memory.is_none());
        assert!(read(top.path(), Version::V2, "/a/../../..").memory.is_none());
        assert!(read(top.path(), Version::V1, "/a/b").memory.is_none());
    }

    #[test]
    fn a_group_that_counts_no_memory_is_in_one_that_does() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir_all(top.path().join("a/b")).unwrap();
        for (name, text) in [
            ("memory.stat", ""),
            ("a/memory.stat", ""),
            ("a/memory.max", "65536"),
            ("a/memory.current", "4096"),
        ] {
            fs::write(top.path().join(name), text).unwrap();
        }
        let memory = |path: &str| read(top.path(), Version::V2, path).memory.unwrap();
        assert_eq!((memory("/a/b").tightest.unwrap().bytes, memory("/a/b").room), (65536, Some(61440)));
        // A path of the host, in a container that has a folder of this name, too.
        assert_eq!(memory("/a/container").folder, top.path());
    }

    #[test]
    fn the_limit_that_is_met_first_need_not_be_the_tightest() {
        let top = tempfile::tempdir().unwrap();
        let inner = top.path().join("a/b");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("memory.stat"), "").unwrap();
        for (folder, max, current) in [("a/b", "1000", "100"), ("a", "2000", "1900")] {
            fs::write(top.path().join(folder).join("memory.max"), max).unwrap();
            fs::write(top.path().join(folder).join("memory.current"), current).unwrap();
        }
        let memory = read(top.path(), Version::V2, "/a/b").memory.unwrap();
        assert_eq!((memory.tightest.unwrap().bytes, memory.room), (1000, Some(100)));
    }

    #[test]
    fn pressure_is_a_share() {
        assert_eq!(pressure(b"some avg10=101.0 avg60=0 avg300=0 total=0\n"), None);
        assert_eq!(pressure(b"none\n"), None);
    }
}
