// SPDX-License-Identifier: MIT
//! One file with symbols.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use addr2line::Loader;
use object::{Object, ReadCache};
use quarry_trace::Module;

use crate::mini::Mini;
use crate::proof::About;
use crate::{Frame, Places};

/// A program or library, and its debug information where that is a file of its own.
pub(crate) struct SymbolFile {
    /// The one with debug information first.
    loaders: Vec<(PathBuf, Loader)>,
    /// Where there is no debug information: symbols that the file has beside those that it exports.
    mini: Option<Mini>,
}

impl SymbolFile {
    /// Find the file of a module, or its debug information. Else why there is neither.
    pub(crate) fn find(module: &Module, places: &Places, recorded_ns: u64) -> Result<Self, String> {
        let mut refused: Option<String> = None;
        let mut found = None;
        for path in places.files(module) {
            let tried = About::read(&path).and_then(|about| about.prove(module, recorded_ns));
            match tried.and_then(|()| load(&path, places).map_err(|error| error.to_string())) {
                Ok(loader) => {
                    found = Some((path, loader));
                    break;
                }
                // That a file is another one says more than that a place has none.
                Err(why) if refused.as_ref().is_none_or(|before| before == NONE) => refused = Some(why),
                Err(_) => {}
            }
        }
        let debug = debug_file(module, found.as_ref().map(|(path, _)| path.as_path()), places);
        let mini = found.as_ref().filter(|_| debug.is_none()).and_then(|(path, _)| Mini::of(path));
        let loaders: Vec<_> = debug.into_iter().chain(found).collect();
        match loaders.is_empty() {
            true => Err(refused.unwrap_or_else(|| NONE.to_owned())),
            false => Ok(Self { loaders, mini }),
        }
    }

    /// Where names come from.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.loaders.iter().map(|(path, _)| path.as_path())
    }

    /// The functions at an address of the file; none if it knows none.
    pub(crate) fn frames(&self, address: u64, bare: &Frame) -> Vec<Frame> {
        let loaders = self.loaders.iter().map(|(_, loader)| loader);
        let found = loaders.map(|loader| lines(loader, address, bare)).find(|frames| !frames.is_empty());
        let named = || {
            let name = self.symbol(address)?;
            Some(vec![Frame { function: Some(demangled(name)), ..bare.clone() }])
        };
        found.or_else(named).unwrap_or_default()
    }

    /// The symbol that begins last before an address, in all tables of symbols. A table that lacks the function may have one
    /// before it whose length is not known.
    fn symbol(&self, address: u64) -> Option<&str> {
        let of_loaders = self.loaders.iter().filter_map(|(_, loader)| symbol(loader, address));
        let found = of_loaders.chain(self.mini.iter().filter_map(|mini| mini.find(address)));
        // Of equal ones the first.
        found.reduce(|best, next| if next.1 > best.1 { next } else { best }).map(|(name, _)| name)
    }
}

/// A file with what it says that it shares with others.
fn load(path: &Path, places: &Places) -> Result<Loader, Box<dyn std::error::Error>> {
    match supplement(path, places) {
        Some(sup) => Loader::new_with_sup(path, Some(sup)),
        None => Loader::new(path),
    }
}

/// What is said where nothing was found.
const NONE: &str = "not found";

/// The debug information of a module, whose file may have been found.
fn debug_file(module: &Module, file: Option<&Path>, places: &Places) -> Option<(PathBuf, Loader)> {
    let of_build = places.of_build(&module.build_id).into_iter().filter(|path| {
        About::read(path).is_ok_and(|about| about.build_id() == module.build_id.to_ascii_lowercase())
    });
    let linked = || file.map(|file| linked(module, file, places)).unwrap_or_default();
    let mut paths = of_build.chain(std::iter::once_with(linked).flatten());
    paths.find_map(|path| load(&path, places).ok().map(|loader| (path, loader)))
}

/// Files that a debug link names, if they are what it says: of this build, or of the sum that it holds.
fn linked(module: &Module, file: &Path, places: &Places) -> Vec<PathBuf> {
    let Some((name, sum)) = parsed(file, |file| {
        let (name, sum) = file.gnu_debuglink().ok()??;
        Some((PathBuf::from(std::ffi::OsStr::from_bytes(name)), sum))
    }) else {
        return Vec::new();
    };
    let is_it = |path: &PathBuf| {
        let Ok(about) = About::read(path) else { return false };
        let is_file = path.canonicalize().ok() == file.canonicalize().ok();
        let same_build =
            !module.build_id.is_empty() && about.build_id() == module.build_id.to_ascii_lowercase();
        !is_file && (same_build || fs::read(path).is_ok_and(|bytes| crc32(&bytes) == sum))
    };
    places.of_link(file, &name).into_iter().filter(is_it).collect()
}

/// What several files of debug information share, and which a link in each names.
fn supplement(debug: &Path, places: &Places) -> Option<PathBuf> {
    let (name, build_id) = parsed(debug, |file| {
        let (name, id) = file.gnu_debugaltlink().ok()??;
        let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        Some((PathBuf::from(std::ffi::OsStr::from_bytes(name)), id))
    })?;
    let mut paths = places.of_supplement(debug, &name, &build_id).into_iter();
    paths.find(|path| About::read(path).is_ok_and(|about| about.build_id() == build_id))
}

fn parsed<T>(
    path: &Path,
    ask: impl FnOnce(&object::File<'_, &ReadCache<fs::File>>) -> Option<T>,
) -> Option<T> {
    let cache = ReadCache::new(fs::File::open(path).ok()?);
    let file = object::File::parse(&cache).ok()?;
    ask(&file)
}

/// The sum that debug links have: CRC-32 as in zip.
fn crc32(bytes: &[u8]) -> u32 {
    let mut sum = flate2::Crc::new();
    sum.update(bytes);
    sum.sum()
}

/// What debug information says.
fn lines(loader: &Loader, address: u64, bare: &Frame) -> Vec<Frame> {
    /// More is inlined into one place by nobody.
    const DEEPEST: usize = 256;
    let mut frames = Vec::new();
    let Ok(mut found) = loader.find_frames(address) else { return frames };
    while let Ok(Some(frame)) = found.next() {
        let function = frame.function.as_ref();
        let function = function
            .and_then(|name| name.raw_name().ok())
            .map(|name| demangled(&name))
            .filter(|n| !n.is_empty());
        let location = frame.location.as_ref();
        frames.push(Frame {
            // A line without a function: the symbol table may know it.
            function: function.or_else(|| symbol(loader, address).map(|(name, _)| demangled(name))),
            file: location.and_then(|location| location.file).map(Into::into),
            line: location.and_then(|location| location.line),
            ..bare.clone()
        });
        if frames.len() >= DEEPEST {
            break;
        }
    }
    // Code without debug information in a file that has some: only its symbol is known.
    frames.retain(|frame| frame.function.is_some());
    frames
}

/// The function whose symbol is before an address, and where it begins. Symbols that mark the end of a part of the file
/// name what comes behind it, however far, and nothing there.
fn symbol(loader: &Loader, address: u64) -> Option<(&str, u64)> {
    const ENDS: [&str; 5] = ["_end", "end", "_edata", "_etext", "__bss_start"];
    let found = loader.find_symbol_info(address).filter(|found| !ENDS.contains(&found.name()))?;
    Some((found.name(), found.address()))
}

/// A name as its language has it, whichever that is; what is no mangled name stays.
pub fn demangled(name: &str) -> String {
    // Versions of symbols are none of the name.
    let name = name.split_once('@').map_or(name, |(name, _)| name);
    // The demangler takes codes of types, too: a function of C whose name is "f" would become "float".
    if !["_Z", "__Z", "___Z", "_R", "__R"].iter().any(|begin| name.starts_with(begin)) {
        return name.into();
    }
    addr2line::demangle_auto(name.into(), None).into_owned()
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
