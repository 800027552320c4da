// SPDX-License-Identifier: MIT
//! Which malloc a running process has, and whether it can be looked into.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use quarry_proc::{Process, mallocs};
use quarry_stats::refusal;

use super::finding::{Finding, Level};
use super::program;

/// Its variables as they were when it was started, or why they cannot be read.
pub fn environment(process: &Process) -> Result<Vec<(OsString, OsString)>, String> {
    let bytes = process.read("environ").map_err(|error| error.to_string())?;
    let pair = |part: &[u8]| {
        let at = part.iter().position(|&byte| byte == b'=')?;
        Some((OsString::from_vec(part[..at].to_vec()), OsString::from_vec(part[at + 1..].to_vec())))
    };
    Ok(bytes.split(|&byte| byte == 0).filter_map(pair).collect())
}

/// Its malloc, what stands in the way of another one, and the right to read it. `preload`: its LD_PRELOAD.
pub fn findings(process: &Process, preload: &str, library: Option<&Path>) -> Vec<Finding> {
    let words = process.cmdline().unwrap_or_default().join(" ");
    let mut all = vec![Finding::ok("command", words)];
    let pid = process.pid().and_then(|pid| i32::try_from(pid).ok()).unwrap_or_default();
    match process.read("maps") {
        Ok(maps) => {
            let served = malloc(&String::from_utf8_lossy(&maps), preload);
            let is_ours = served.level == Level::Ok;
            all.push(served);
            if !is_ours {
                all.extend(program::of_file(&process.folder().join("exe"), library));
            }
        }
        Err(error) => {
            all.push(Finding::note("malloc", format!("not known: {error}"), refusal::advice(pid)));
        }
    }
    all.push(match File::open(process.folder().join("mem")) {
        Ok(_) => Finding::ok("right to read it", "yes"),
        Err(error) => Finding::note("right to read it", error.to_string(), refusal::advice(pid)),
    });
    all
}

/// By the libraries that are mapped. Of several that one serves which was preloaded first: what is preloaded comes before what the program
/// is linked with.
fn malloc(maps: &str, preload: &str) -> Finding {
    let paths = maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..]));
    let found = mallocs::of_files(paths);
    let first = preload.split([':', ' ']).filter_map(mallocs::of_file).find(|name| found.contains(name));
    let name = match (first, found.as_slice()) {
        (Some(name), _) | (None, &[name]) => name,
        (None, []) => "that of its C library, or one that is linked in",
        (None, many) => {
            let value = format!("one of these, not known which: {}", many.join(", "));
            return Finding::note(
                "malloc",
                value,
                "It has several, and LD_PRELOAD names none. Take out all but one.",
            );
        }
    };
    if mallocs::is_ours(name) {
        return Finding::ok("malloc", name);
    }
    let next = "Start it on Quarry: quarry run -- CMD. map, top and explain work as it is.";
    Finding::note("malloc", name, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_malloc_by_what_is_mapped() {
        let of = |files: &[&str], preload: &str| {
            let line = |file: &&str| format!("7f00-7f01 r-xp 0 00:00 1    /l/{file}\n");
            let maps: String = files.iter().map(line).collect();
            malloc(&format!("7f00-7f01 r--p 0 00:00 1 /bin/x\n{maps}"), preload).value
        };
        let (ours, other) = ("libquarry-malloc.so.0", "libjemalloc.so.2");
        assert_eq!(of(&[ours], ""), "Quarry");
        assert_eq!(of(&[other], ""), "jemalloc");
        assert!(of(&["libc.so.6"], "").contains("C library"));
        // Addresses say nothing of the order.
        assert_eq!(of(&[ours, other], &format!("/l/{other}:/l/{ours}")), "jemalloc");
        assert_eq!(of(&[ours, other], &format!("{ours} {other}")), "Quarry");
        assert_eq!(of(&[ours, other], ours), "Quarry");
        assert_eq!(of(&[ours, other], "/l/x.so"), "one of these, not known which: Quarry, jemalloc");
        assert_eq!(of(&[ours], other), "Quarry");
    }
}
