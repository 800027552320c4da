// SPDX-License-Identifier: MIT
//! Which malloc a running process has, and whether it can be looked into.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use quarry_proc::Process;
use quarry_stats::refusal;

use super::finding::Finding;
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

/// Its malloc, what stands in the way of another one, and the right to read it.
pub fn findings(process: &Process, library: Option<&Path>) -> Vec<Finding> {
    let words = process.cmdline().unwrap_or_default().join(" ");
    let mut all = vec![Finding::ok("command", words)];
    let maps = process.read("maps").unwrap_or_default();
    let served = malloc(&String::from_utf8_lossy(&maps));
    let is_ours = served.level == super::finding::Level::Ok;
    all.push(served);
    if !is_ours {
        all.extend(program::of_file(&process.folder().join("exe"), library));
    }
    let pid = process.pid().and_then(|pid| i32::try_from(pid).ok()).unwrap_or_default();
    all.push(match File::open(process.folder().join("mem")) {
        Ok(_) => Finding::ok("right to read it", "yes"),
        Err(error) => Finding::note("right to read it", error.to_string(), refusal::advice(pid)),
    });
    all
}

/// By the libraries that are mapped.
fn malloc(maps: &str) -> Finding {
    const NAMES: [(&str, &str); 8] = [
        ("libquarry-malloc", "Quarry"),
        ("libquarry-check", "Quarry's checker"),
        ("libquarry-pow2", "Quarry's pool of powers of two"),
        ("libjemalloc", "jemalloc"),
        ("libmimalloc", "mimalloc"),
        ("libtcmalloc", "tcmalloc"),
        ("libtbbmalloc", "tbbmalloc"),
        ("libsnmalloc", "snmalloc"),
    ];
    let files = || maps.lines().filter_map(|line| line.rsplit('/').next());
    let found = NAMES.iter().find(|(stem, _)| files().any(|file| file.starts_with(stem)));
    match found {
        Some((stem, name)) if stem.starts_with("libquarry") => Finding::ok("malloc", *name),
        other => {
            let name = other.map_or("that of its C library, or one that is linked in", |(_, name)| name);
            let next = "Start it on Quarry: quarry run -- CMD. map, top and explain work as it is.";
            Finding::note("malloc", name, next)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_malloc_by_what_is_mapped() {
        let of = |file: &str| {
            malloc(&format!("7f00-7f01 r--p 0 00:00 1 /bin/x\n7f00-7f01 r-xp 0 00:00 1 /l/{file}\n")).value
        };
        assert_eq!(of("libquarry-malloc.so.0"), "Quarry");
        assert_eq!(of("libjemalloc.so.2"), "jemalloc");
        assert!(of("libc.so.6").contains("C library"));
    }
}
