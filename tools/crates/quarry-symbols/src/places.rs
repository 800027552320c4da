// SPDX-License-Identifier: MIT
//! Where files are looked for: where debuggers do, and in folders that hold the files of another machine.

use std::env;
use std::path::{Path, PathBuf};

use quarry_trace::Module;

/// Where distributions put the debug information that they took out of programs.
const DEBUG: &str = "usr/lib/debug";

/// The folders.
#[derive(Debug, Clone, Default)]
pub struct Places {
    /// Each has the files of another machine: under their paths, or by their names alone.
    pub roots: Vec<PathBuf>,
    /// Each has files of debug information, as /usr/lib/debug does.
    pub debug: Vec<PathBuf>,
    /// What debuginfod has fetched, by build id.
    pub(crate) caches: Vec<PathBuf>,
    /// Is this machine looked at, too?
    pub(crate) here: bool,
}

impl Places {
    /// Where a debugger looks on this machine.
    pub fn of_this_machine() -> Self {
        let variable = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let home = variable("HOME");
        // As debuginfod_find_debuginfo(3) has it: the first that is set, and where it once was.
        let cache = variable("DEBUGINFOD_CACHE_PATH")
            .or_else(|| variable("XDG_CACHE_HOME").map(|cache| cache.join("debuginfod_client")))
            .or_else(|| home.as_ref().map(|home| home.join(".cache/debuginfod_client")));
        let old = home.map(|home| home.join(".debuginfod_client_cache"));
        Self { caches: cache.into_iter().chain(old).collect(), here: true, ..Self::default() }
    }

    /// What may be the file of a module, the best first.
    pub(crate) fn files(&self, module: &Module) -> Vec<PathBuf> {
        let path = module.file();
        let mut files = Vec::new();
        for root in &self.roots {
            files.push(below(root, &path));
            files.extend(path.file_name().map(|name| root.join(name)));
        }
        // In the folder of the recording, if at all: this one is another.
        if self.here && path.is_absolute() {
            files.push(path);
        }
        if let Some((first, rest)) = split(&module.build_id) {
            files.extend(self.debug_folders().map(|debug| debug.join(".build-id").join(first).join(rest)));
            files.extend(self.caches.iter().map(|cache| cache.join(&module.build_id).join("executable")));
        }
        files
    }

    /// Where the debug information of a build would be.
    pub(crate) fn of_build(&self, build_id: &str) -> Vec<PathBuf> {
        let Some((first, rest)) = split(build_id) else { return Vec::new() };
        let name = format!("{rest}.debug");
        let folders = self.debug_folders().map(|debug| debug.join(".build-id").join(first).join(&name));
        folders.chain(self.caches.iter().map(|cache| cache.join(build_id).join("debuginfo"))).collect()
    }

    /// Where the file would be that a debug link in `file` names.
    pub(crate) fn of_link(&self, file: &Path, name: &Path) -> Vec<PathBuf> {
        // No link leads out of the folders that debuggers look into.
        if name.components().count() != 1 || name.file_name().is_none() {
            return Vec::new();
        }
        let real = file.canonicalize().unwrap_or_else(|_| file.to_owned());
        let Some(folder) = real.parent() else { return Vec::new() };
        let mut files = vec![folder.join(name), folder.join(".debug").join(name)];
        // Below a root the folder is named as on the other machine.
        let inner = self.roots.iter().find_map(|root| {
            let root = root.canonicalize().ok()?;
            folder.strip_prefix(root).ok().map(Path::to_owned)
        });
        for debug in self.debug_folders() {
            files.push(below(&debug, inner.as_deref().unwrap_or(folder)).join(name));
        }
        files
    }

    /// Where the file would be that several files of debug information share. `debug` is one of these.
    pub(crate) fn of_supplement(&self, debug: &Path, name: &Path, build_id: &str) -> Vec<PathBuf> {
        let mut files = Vec::new();
        if name.is_absolute() {
            files.extend(self.roots.iter().map(|root| below(root, name)));
        }
        if self.here || !name.is_absolute() {
            // The folder that the file is really in: /usr/lib/debug/.build-id may have links.
            let real = debug.canonicalize().unwrap_or_else(|_| debug.to_owned());
            files.extend(real.parent().map(|folder| folder.join(name)));
        }
        // Where dwz puts it, whatever the path says.
        let dwz = name.file_name().map(|file| Path::new(".dwz").join(file));
        files.extend(dwz.iter().flat_map(|dwz| self.debug_folders().map(move |debug| debug.join(dwz))));
        files.extend(self.of_build(build_id));
        files
    }

    fn debug_folders(&self) -> impl Iterator<Item = PathBuf> {
        let of_roots = self.roots.iter().map(|root| root.join(DEBUG));
        let here = self.here.then(|| Path::new("/").join(DEBUG));
        self.debug.iter().cloned().chain(of_roots).chain(here)
    }
}

/// A path of another machine, in its folder here.
fn below(root: &Path, path: &Path) -> PathBuf {
    let parts = path.components().filter(|part| matches!(part, std::path::Component::Normal(_)));
    root.join(parts.collect::<PathBuf>())
}

/// The two parts of a build id in the names of files.
fn split(build_id: &str) -> Option<(&str, &str)> {
    let is_hex = build_id.len() > 2 && build_id.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| build_id.split_at(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leads_out_of_its_folder() {
        assert_eq!(below(Path::new("/r"), Path::new("/../../etc/a")), Path::new("/r/etc/a"));
        assert_eq!(below(Path::new("/r"), Path::new("lib/a")), Path::new("/r/lib/a"));
        let places = Places::of_this_machine();
        assert!(places.of_link(Path::new("/bin/a"), Path::new("../b")).is_empty());
        assert!(places.of_link(Path::new("/bin/a"), Path::new("..")).is_empty());
        assert!(places.of_build("../../../x").is_empty() && places.of_build("a").is_empty());
        assert_eq!(places.of_build("abc")[0], Path::new("/usr/lib/debug/.build-id/ab/c.debug"));
    }
}
