// SPDX-License-Identifier: MIT
//! /proc/PID/mountinfo: which devices are file systems in memory.

use crate::text;

/// A mounted file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Its device, as maps shows it for files on it.
    pub device: (u32, u32),
    /// The part of the file system that is mounted.
    pub root: String,
    /// Where.
    pub point: String,
    /// "ext4", "tmpfs", "cgroup2", ...
    pub kind: String,
    /// The options of the file system.
    pub options: String,
}

/// Read them; lines that are none are left out.
pub fn parse(bytes: &[u8]) -> Vec<Mount> {
    text::lines(bytes).filter_map(mount).collect()
}

/// "ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [TAG...] - KIND SOURCE OPTIONS".
fn mount(line: &[u8]) -> Option<Mount> {
    let words: Vec<&[u8]> = text::words(line).collect();
    let dash = words.iter().position(|word| *word == b"-")?;
    let device = words.get(2)?;
    let colon = device.iter().position(|&byte| byte == b':')?;
    let part = |digits: &[u8]| text::decimal(digits).and_then(|number| u32::try_from(number).ok());
    Some(Mount {
        device: (part(&device[..colon])?, part(&device[colon + 1..])?),
        root: text::lossy(words.get(3)?),
        point: text::lossy(words.get(4)?),
        kind: text::lossy(words.get(dash + 1)?),
        options: words.get(dash + 3).map(|options| text::lossy(options)).unwrap_or_default(),
    })
}

impl Mount {
    /// Do its files live in memory and swap? Those of a ramfs never go to swap, and the kernel counts their pages as those of
    /// files.
    pub fn is_memory(&self) -> bool {
        matches!(self.kind.as_str(), "tmpfs" | "devtmpfs")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_optional() {
        let text = b"22 27 0:21 / /proc rw,relatime - proc proc rw,hidepid=invisible\n\
                     23 27 0:22 /a /dev/shm rw shared:3 master:1 - tmpfs tmpfs rw\n\
                     24 27 0-22 / / rw - ext4 x rw\n25 26\n";
        let mounts = parse(text);
        assert_eq!(mounts.len(), 2);
        assert_eq!((mounts[0].kind.as_str(), mounts[0].options.as_str()), ("proc", "rw,hidepid=invisible"));
        assert_eq!(
            (mounts[1].device, mounts[1].point.as_str(), mounts[1].root.as_str()),
            ((0, 22), "/dev/shm", "/a")
        );
        assert!(mounts[1].is_memory() && !mounts[0].is_memory());
        let ramfs = parse(b"25 27 0:23 / /ram rw,relatime - ramfs none rw\n");
        assert!(!ramfs[0].is_memory());
    }
}
