// SPDX-License-Identifier: MIT
//! Libraries that bring a malloc, by the names of their files.

/// How the files begin, and what users call them.
const KNOWN: [(&str, &str); 12] = [
    ("libquarry-malloc", "Quarry"),
    ("libquarry-check", "Quarry's checker"),
    ("libquarry-pow2", "Quarry's pool of powers of two"),
    ("libjemalloc", "jemalloc"),
    ("libmimalloc", "mimalloc"),
    ("libtcmalloc", "tcmalloc"),
    ("libtbbmalloc", "tbbmalloc"),
    ("libsnmalloc", "snmalloc"),
    ("librpmalloc", "rpmalloc"),
    ("libscudo", "scudo"),
    ("libhardened_malloc", "hardened_malloc"),
    ("libhoard", "Hoard"),
];

/// What this file brings.
pub fn of_file(path: &str) -> Option<&'static str> {
    let file = path.rsplit('/').next().unwrap_or_default();
    let is = |stem: &str| file.strip_prefix(stem).is_some_and(|rest| rest.starts_with(['.', '-', '_']));
    KNOWN.into_iter().find(|(stem, _)| is(stem)).map(|(_, name)| name)
}

/// Is it one of ours?
pub fn is_ours(name: &str) -> bool {
    name.starts_with("Quarry")
}

/// Those of files that are mapped, each once.
pub fn of_files<'a>(paths: impl Iterator<Item = &'a str>) -> Vec<&'static str> {
    let mut found: Vec<&str> = paths.filter_map(of_file).collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_all_of_its_stem() {
        assert_eq!(of_file("/l/libtcmalloc_minimal.so.4"), Some("tcmalloc"));
        assert_eq!(of_file("/l/libquarry-malloc.so.0"), Some("Quarry"));
        assert_eq!(of_file("/libjemalloc.so/libjemallocator.so"), None);
        assert_eq!(of_files(["/b/libscudo.so", "/a", "/b/libscudo.so"].into_iter()), ["scudo"]);
    }
}
