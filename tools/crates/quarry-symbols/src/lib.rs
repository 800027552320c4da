// SPDX-License-Identifier: MIT
//! Names of functions and lines for the addresses in a trace: those that were put into it ([`Names`]), and those in the
//! files that were mapped. These are looked for in several [`Places`], without a network. A file is used only if it is
//! provably the one that was recorded (`proof.rs`). Any other leaves its name and an offset in it.

#![deny(unsafe_code)]

use std::borrow::Cow;

mod file;
pub mod jit;
mod mapped;
mod mini;
mod names;
pub mod once;
mod places;
mod plumbing;
mod proof;
mod short;
mod spans;
mod symbols;

pub use file::demangled;
pub use mapped::Mapped;
pub use names::{Name, Names};
pub use places::Places;
pub use plumbing::{Folding, Question};
pub use short::shortened;
pub use symbols::{Code, Symbols};

/// A function that was running; what was inlined has frames of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frame {
    /// Its name, demangled; `None`: not known.
    pub function: Option<String>,
    /// The file of its code.
    pub file: Option<String>,
    /// The line in it.
    pub line: Option<u32>,
    /// The file that was mapped there; empty: none that the trace knows.
    pub module: String,
    /// The address in that file's own addresses, or as it was if there is no file.
    pub offset: u64,
    /// Is the address as it was although there is a file? Files of other tools may not say where theirs was mapped.
    pub unplaced: bool,
    /// Is of that address only the part within a page left?
    pub within_page: bool,
}

impl Frame {
    /// The last part of the module's path.
    pub fn module_name(&self) -> &str {
        self.module.rsplit('/').next().unwrap_or_default()
    }

    /// The name as people say it.
    pub fn short(&self) -> Option<Cow<'_, str>> {
        self.function.as_deref().map(shortened)
    }

    /// "main at a.c:12", "malloc_init in libfoo.so", "libfoo.so+0x123".
    pub fn text(&self) -> String {
        let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        let place = match (self.module.is_empty(), self.unplaced) {
            (true, _) => format!("{:#x}", self.offset),
            (false, true) if self.within_page => format!("0x…{:03x} in {}", self.offset, self.module_name()),
            (false, true) => format!("{:#x} in {}", self.offset, self.module_name()),
            (false, false) => format!("{}+{:#x}", self.module_name(), self.offset),
        };
        match (self.short(), &self.file, self.line) {
            (Some(function), Some(file), Some(line)) => format!("{function} at {}:{line}", name(file)),
            (Some(function), Some(file), None) => format!("{function} at {}", name(file)),
            (Some(function), None, _) if !self.module.is_empty() => {
                format!("{function} in {}", self.module_name())
            }
            (Some(function), None, _) => function.into_owned(),
            (None, ..) => place,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        let frame = |function: Option<&str>, file: Option<&str>, line, module: &str| Frame {
            function: function.map(Into::into),
            file: file.map(Into::into),
            line,
            module: module.into(),
            offset: 0x12,
            unplaced: false,
            within_page: false,
        };
        assert_eq!(frame(Some("f(int)"), Some("/a/b.c"), Some(3), "/x").text(), "f(int) at b.c:3");
        assert_eq!(frame(Some("f"), None, None, "/lib/libx.so").text(), "f in libx.so");
        let long = frame(Some("std::vector<int, std::allocator<int> >::f()"), None, None, "/x");
        assert_eq!(long.text(), "std::vector<int>::f() in x");
        assert_eq!(frame(None, None, None, "/lib/libx.so").text(), "libx.so+0x12");
        assert_eq!(frame(None, None, None, "").text(), "0x12");
        let unplaced = Frame { unplaced: true, ..frame(None, None, None, "/lib/libx.so") };
        assert_eq!(unplaced.text(), "0x12 in libx.so");
        assert_eq!(Frame { within_page: true, ..unplaced }.text(), "0x…012 in libx.so");
    }
}
