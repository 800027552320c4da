// SPDX-License-Identifier: MIT
//! One file with symbols.

use std::fs;
use std::path::{Path, PathBuf};

use addr2line::Loader;
use object::Object;

use crate::Frame;

/// Where distributions put the debug information that they took out of programs.
const DEBUG: &str = "/usr/lib/debug/.build-id";

/// A program or library, and its debug information where that is a file of its own.
pub(crate) struct SymbolFile {
    main: Loader,
    debug: Option<Loader>,
}

impl SymbolFile {
    /// Open it, if it is the one that was mapped: a file with another build id was replaced since.
    pub(crate) fn open(path: &Path, build_id: &str) -> Result<Self, String> {
        // Not a pipe, which would be waited for, and not the name of something that is no file, like [vdso].
        match fs::metadata(path) {
            Ok(about) if about.is_file() => {}
            Ok(_) => return Err("not a regular file".into()),
            Err(error) => return Err(error.to_string()),
        }
        if !build_id.is_empty() {
            match own_build_id(path) {
                Some(own) if own == build_id.to_ascii_lowercase() => {}
                _ => return Err("was replaced since the recording; its symbols are not used".into()),
            }
        }
        let main = Loader::new(path).map_err(|error| error.to_string())?;
        let debug = debug_file(build_id).and_then(|path| Loader::new(path).ok());
        Ok(Self { main, debug })
    }

    /// The functions at an address of the file; none if it knows none.
    pub(crate) fn frames(&self, address: u64, bare: &Frame) -> Vec<Frame> {
        let loaders = || self.debug.iter().chain([&self.main]);
        let found = loaders().map(|loader| lines(loader, address, bare)).find(|frames| !frames.is_empty());
        let named = || {
            let name = loaders().find_map(|loader| symbol(loader, address))?;
            Some(vec![Frame { function: Some(demangled(name)), ..bare.clone() }])
        };
        found.or_else(named).unwrap_or_default()
    }
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
            .and_then(|name| name.demangle().ok().map(|name| name.into_owned()))
            .filter(|n| !n.is_empty());
        let location = frame.location.as_ref();
        frames.push(Frame {
            // A line without a function: the symbol table may know it.
            function: function.or_else(|| symbol(loader, address).map(demangled)),
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

/// The function whose symbol is before an address. Symbols that mark the end of a part of the file name what comes
/// behind it, however far, and nothing there.
fn symbol(loader: &Loader, address: u64) -> Option<&str> {
    const ENDS: [&str; 5] = ["_end", "end", "_edata", "_etext", "__bss_start"];
    loader.find_symbol(address).filter(|name| !ENDS.contains(name))
}

fn demangled(name: &str) -> String {
    // Versions of symbols are none of the name.
    let name = name.split_once('@').map_or(name, |(name, _)| name);
    addr2line::demangle_auto(name.into(), None).into_owned()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The build id of a file. Only its headers and notes are read.
fn own_build_id(path: &Path) -> Option<String> {
    let file = fs::File::open(path).ok()?;
    let cache = object::ReadCache::new(file);
    let parsed = object::File::parse(&cache).ok()?;
    parsed.build_id().ok()?.map(hex)
}

/// Where the debug information of a build would be.
fn debug_file(build_id: &str) -> Option<PathBuf> {
    let is_hex = build_id.len() > 2 && build_id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_hex {
        return None;
    }
    let (first, rest) = build_id.split_at(2);
    let path = Path::new(DEBUG).join(first).join(format!("{rest}.debug"));
    path.is_file().then_some(path)
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
