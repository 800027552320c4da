// SPDX-License-Identifier: MIT
//! Variables that change which malloc serves, or that only another malloc obeys.

use std::ffi::OsString;
use std::path::Path;

use quarry_measure::elf;
use quarry_proc::{Process, mallocs};

use super::finding::Finding;

/// The table of the heap's options, as the library has it.
const OPTIONS: &str = include_str!("../../../../src/rt/opts.def");

/// Settings of glibc that look for errors.
const CHECKS: [&str; 3] = ["MALLOC_CHECK_", "MALLOC_PERTURB_", "MALLOC_TRACE"];

/// How the settings of other mallocs begin.
const OTHERS: [(&str, &str); 8] = [
    ("MALLOC_CONF", "jemalloc"),
    ("JE_MALLOC_CONF", "jemalloc"),
    ("_RJEM_MALLOC_CONF", "jemalloc"),
    ("MIMALLOC_", "mimalloc"),
    ("TCMALLOC_", "tcmalloc"),
    ("TBB_MALLOC_", "tbbmalloc"),
    ("SCUDO_OPTIONS", "scudo"),
    ("MALLOC_", "glibc"),
];

type Variables = Vec<(OsString, OsString)>;

/// What one has; nothing if it is not set.
pub fn value(variables: &[(OsString, OsString)], name: &str) -> String {
    let found = variables.iter().find(|(one, _)| one == name);
    found.map_or_else(String::new, |(_, value)| value.to_string_lossy().into_owned())
}

/// Findings, or why the environment cannot be read. `process`: whose it is, if it is not ours.
pub fn of(variables: Result<Variables, String>, process: Option<&Process>) -> Vec<Finding> {
    let has_malloc = |file: &Path| {
        let seen = match process {
            // It may have another root than we have.
            Some(process) if file.is_absolute() => process.file_seen(file.to_str()?),
            // In which folder it was started is not known.
            Some(_) => return Some(by_name(file)),
            None => file.to_owned(),
        };
        elf::read(&seen).ok().flatten().map(|facts| facts.exports_malloc)
    };
    match variables {
        Ok(variables) => findings(&variables, &has_malloc),
        Err(error) => {
            vec![Finding::note("environment", error, "Run this as the user of the process, or as root.")]
        }
    }
}

/// Has a library a malloc, by its name alone?
fn by_name(file: &Path) -> bool {
    mallocs::of_file(&file.to_string_lossy()).is_some()
}

/// `has_malloc`: whether a library brings a malloc; `None`: there is no such library.
fn findings(variables: &Variables, has_malloc: &dyn Fn(&Path) -> Option<bool>) -> Vec<Finding> {
    let text = |value: &OsString| value.to_string_lossy().into_owned();
    let named: Vec<(String, String)> =
        variables.iter().map(|(name, value)| (text(name), text(value))).collect();
    let value = |wanted: &str| {
        let found = named.iter().find(|(name, value)| name == wanted && !value.is_empty());
        found.map_or("", |(_, value)| value.as_str())
    };
    let mut all = vec![preloaded(value("LD_PRELOAD"), has_malloc), conf(value("QUARRY_CONF"))];
    let tunables: Vec<&str> =
        value("GLIBC_TUNABLES").split(':').filter(|one| one.starts_with("glibc.malloc.")).collect();
    if !tunables.is_empty() {
        let value = tunables.join(":");
        all.push(Finding::note(
            "GLIBC_TUNABLES",
            value,
            "They set glibc's heap. Quarry does not obey them: see QUARRY_CONF in quarry(7).",
        ));
    }
    all.extend(named.iter().filter_map(|(name, value)| other_setting(name, value)));
    if all.len() == 2 {
        all.push(Finding::ok("settings of other mallocs", "none"));
    }
    all
}

fn other_setting(name: &str, value: &str) -> Option<Finding> {
    let (_, malloc) = OTHERS.iter().find(|(begin, _)| name.starts_with(begin))?;
    let next = if CHECKS.contains(&name) {
        String::from(
            "It makes glibc's heap look for errors. On Quarry it does nothing: use quarry check -- CMD.",
        )
    } else {
        format!(
            "It sets {malloc}. Quarry does not obey it: see QUARRY_CONF in quarry(7), and purge_delay and arenas there."
        )
    };
    Some(Finding::note(name, value, next))
}

/// Keys that no option has. The library warns of them once, and goes on without.
fn conf(value: &str) -> Finding {
    let known = |key: &str| OPTIONS.contains(&format!("\nX({key}, "));
    let keys =
        value.split(',').filter(|part| !part.is_empty()).map(|part| part.split(':').next().unwrap_or(part));
    let unknown: Vec<&str> = keys.filter(|key| !known(key)).collect();
    if !unknown.is_empty() {
        let next =
            format!("There is no option {}. quarry(7) lists them, with what each does.", unknown.join(", "));
        return Finding::problem("QUARRY_CONF", value, next);
    }
    Finding::ok("QUARRY_CONF", if value.is_empty() { "not set" } else { value })
}

/// The first library with a malloc serves the program.
fn preloaded(value: &str, has_malloc: &dyn Fn(&Path) -> Option<bool>) -> Finding {
    let name = "LD_PRELOAD";
    if value.is_empty() {
        return Finding::ok(name, "not set");
    }
    let files: Vec<&Path> = value.split([':', ' ']).filter(|file| !file.is_empty()).map(Path::new).collect();
    let base = |file: &Path| file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let is_ours = |file: &Path| base(file).starts_with("libquarry");
    // One without a slash is looked for by the dynamic linker, which also knows what $LIB and $ORIGIN stand for.
    let is_path = |file: &Path| file.components().count() > 1 && !file.to_string_lossy().contains('$');
    let known = |file: &Path| if is_path(file) { has_malloc(file) } else { Some(by_name(file)) };
    if let Some(missing) = files.iter().find(|file| known(file).is_none()) {
        let next = format!(
            "{} is no library. The dynamic linker leaves it out and goes on. Correct the path.",
            missing.display()
        );
        return if is_ours(missing) {
            Finding::problem(name, value, next)
        } else {
            Finding::note(name, value, next)
        };
    }
    // The recorder has a malloc, which hands each call on to the next.
    let serves = |file: &&Path| known(file) == Some(true) && !base(file).starts_with("libquarry-record");
    let mallocs: Vec<&Path> = files.into_iter().filter(serves).collect();
    let Some(first) = mallocs.first() else { return Finding::ok(name, value) };
    let has_ours = mallocs.iter().any(|file| is_ours(file));
    if is_ours(first) {
        let Some(other) = mallocs.iter().find(|file| !is_ours(file)) else { return Finding::ok(name, value) };
        let next =
            format!("Quarry comes first and serves. {} is loaded for nothing: take it out.", base(other));
        return Finding::note(name, value, next);
    }
    if has_ours {
        let next = format!(
            "{} comes first and serves, and Quarry does not. Put libquarry-malloc.so first.",
            base(first)
        );
        return Finding::problem(name, value, next);
    }
    let next = format!("Programs run on {}. quarry run puts Quarry before it.", base(first));
    Finding::note(name, value, next)
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level::{self, Note, Ok, Problem};
    use super::*;

    fn finding(pairs: &[(&str, &str)], name: &str) -> Finding {
        let variables: Variables = pairs.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let libraries = |file: &Path| match file.to_str() {
            Some("/l/libjemalloc.so.2" | "/l/libquarry-malloc.so" | "/l/libquarry-record.so") => Some(true),
            Some("/l/libfine.so" | "/l/libquarry.so") => Some(false),
            _ => None,
        };
        let all = findings(&variables, &libraries);
        let found =
            all.iter().find(|finding| finding.name == name).unwrap_or_else(|| panic!("no {name} in {all:?}"));
        assert_eq!(found.next.is_empty(), found.level == Ok, "{found:?}");
        found.clone()
    }

    fn level(pairs: &[(&str, &str)], name: &str) -> Level {
        finding(pairs, name).level
    }

    #[test]
    fn the_first_malloc_serves() {
        for (value, expected) in [
            ("", Ok),
            ("/l/libfine.so", Ok),
            ("/l/libquarry-malloc.so:/l/libfine.so", Ok),
            ("/l/libquarry-malloc.so /l/libjemalloc.so.2", Note),
            ("/l/libjemalloc.so.2", Note),
            ("libjemalloc.so.2", Note),
            ("/l/libfine.so:/l/libjemalloc.so.2:libquarry-malloc.so", Problem),
            ("/none/$LIB/libjemalloc.so.2", Note),
            ("$ORIGIN/../libquarry-malloc.so", Ok),
            ("/none/libfine.so", Note),
            ("/none/libquarry-malloc.so", Problem),
            ("/l/libquarry-record.so", Ok),
            ("/l/libquarry-record.so:/l/libquarry-malloc.so", Ok),
            ("/l/libquarry-record.so:/l/libjemalloc.so.2:/l/libquarry-malloc.so", Problem),
        ] {
            assert_eq!(level(&[("LD_PRELOAD", value)], "LD_PRELOAD"), expected, "{value}");
        }
    }

    /// The recorder and the pools stand before the malloc that serves.
    #[test]
    fn not_all_of_ours_serve_malloc() {
        for first in ["/l/libquarry-record.so", "libquarry-record.so.0", "/l/libquarry.so", "libquarry.so.0"]
        {
            let found = finding(&[("LD_PRELOAD", &format!("{first}:/l/libjemalloc.so.2"))], "LD_PRELOAD");
            assert_eq!(found.level, Note, "{found:?}");
            assert!(found.next.starts_with("Programs run on libjemalloc.so.2."), "{found:?}");
        }
    }

    #[test]
    fn settings_of_other_mallocs_are_named() {
        for name in
            ["MALLOC_ARENA_MAX", "MALLOC_PERTURB_", "MALLOC_CONF", "MIMALLOC_SHOW_STATS", "GLIBC_TUNABLES"]
        {
            let value =
                if name == "GLIBC_TUNABLES" { "glibc.rtld.nns=2:glibc.malloc.arena_max=1" } else { "1" };
            assert_eq!(level(&[("HOME", "/"), (name, value)], name), Note);
        }
        assert_eq!(level(&[("GLIBC_TUNABLES", "glibc.rtld.nns=2")], "settings of other mallocs"), Ok);
        let next = |name| other_setting(name, "1").unwrap().next;
        assert!(
            next("MALLOC_CHECK_").contains("quarry check")
                && next("MALLOC_TRIM_THRESHOLD_").contains("glibc")
        );
        assert!(next("MALLOC_CONF").contains("jemalloc"));
    }

    #[test]
    fn keys_are_those_of_the_table() {
        for (value, expected) in
            [("", Ok), ("purge_delay:100,stats:on", Ok), ("stats,", Ok), ("purge_dealy:1", Problem)]
        {
            assert_eq!(level(&[("QUARRY_CONF", value)], "QUARRY_CONF"), expected, "{value}");
        }
    }
}
