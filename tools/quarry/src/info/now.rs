// SPDX-License-Identifier: MIT
//! Does the process go on whose trace has no end?

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use quarry_report::info::Now;
use quarry_trace::Head;

/// What it does, if it is there and still has the trace mapped: its number alone may be another's by now.
pub fn find(trace: &Path, head: &Head) -> Option<Now> {
    let process = Path::new("/proc").join(head.process.to_string());
    let about = fs::metadata(trace).ok()?;
    let (device, inode) = (device(about.dev()), about.ino().to_string());
    let name = trace.file_name()?.as_encoded_bytes();
    let maps = fs::read(process.join("maps")).ok()?;
    let is_it = |line: &[u8]| {
        let mut fields = line.split(|&byte| byte == b' ').filter(|field| !field.is_empty());
        let (of_device, of_inode) = (fields.nth(3), fields.next());
        // A recorder's file gets its name when it is mapped already, and is shown without. Some file systems have one device
        // for files and another for what is mapped.
        let same_place = of_device == Some(device.as_bytes()) || line.ends_with(name);
        of_inode == Some(inode.as_bytes()) && same_place
    };
    if !maps.split(|&byte| byte == b'\n').any(is_it) {
        return None;
    }
    // The state stands behind the name, which may have anything in it.
    let stat = fs::read(process.join("stat")).ok()?;
    let behind = stat.iter().rposition(|&byte| byte == b')')?;
    Some(match stat.get(behind + 2)? {
        b'T' | b't' => Now::Stopped,
        _ => Now::Runs,
    })
}

/// A device as the kernel writes it in maps.
fn device(number: u64) -> String {
    let major = (number >> 8) & 0xfff | (number >> 32) & !0xfff;
    let minor = number & 0xff | (number >> 12) & 0xffff_ff00;
    format!("{major:02x}:{minor:02x}")
}
