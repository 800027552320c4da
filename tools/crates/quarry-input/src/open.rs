// SPDX-License-Identifier: MIT
//! From a path to something that can be read. What has no end, or no content, is refused with a reason.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Read};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use quarry_measure::descriptor;

/// What can be read, the same as a file where it is a regular one, and its length, 0 if that is not known.
type Opened = (Box<dyn Read>, Option<File>, u64);

pub(crate) fn open(path: &Path) -> io::Result<Opened> {
    if path == Path::new("-") {
        return Ok((Box::new(io::stdin()), None, 0));
    }
    let about = fs::metadata(path)?;
    if about.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "is a directory; name a file in it"));
    }
    if about.file_type().is_socket() {
        // One that has no name in the file system cannot be opened by that of its descriptor.
        let reader: Box<dyn Read> = match number(path) {
            Some(number) => Box::new(File::from(descriptor::duplicate(number)?)),
            None => Box::new(UnixStream::connect(path)?),
        };
        return Ok((reader, None, 0));
    }
    let file = File::open(path)?;
    let kind = file.metadata()?.file_type();
    if (kind.is_char_device() || kind.is_block_device()) && !file.is_terminal() {
        return Err(io::Error::other("is a device, and no file that could be read to its end"));
    }
    // Files of /proc have no length and cannot be read twice alike.
    let length = if kind.is_file() { file.metadata()?.len() } else { 0 };
    let again = if length > 0 { Some(file.try_clone()?) } else { None };
    Ok((Box::new(file), again, length))
}

/// The number of the descriptor that a path like /dev/stdin and /dev/fd/5 stands for.
fn number(path: &Path) -> Option<i32> {
    /// As the kernel has it.
    const MOST: usize = 40;
    let mut path = PathBuf::from(path);
    for _ in 0..MOST {
        let text = path.to_str()?;
        let own = format!("/proc/{}/fd/", std::process::id());
        let digits =
            [own.as_str(), "/proc/self/fd/", "/dev/fd/"].iter().find_map(|begin| text.strip_prefix(begin));
        if let Some(number) = digits.and_then(|digits| digits.parse().ok()) {
            return Some(number);
        }
        let next = fs::read_link(&path).ok()?;
        path = path.parent()?.join(next);
    }
    None
}
