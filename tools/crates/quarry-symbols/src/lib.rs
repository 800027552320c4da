// SPDX-License-Identifier: MIT
//! Names of functions and lines for the addresses in a trace, from the files that were mapped: after the fact, and
//! without a network. A file that is gone, was replaced since, or has no symbols leaves its name and an
//! offset in it.

#![deny(unsafe_code)]

mod file;

use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;

use quarry_trace::{Module, StackId, StackNode, StackTree};

use file::SymbolFile;

/// Most addresses whose names are kept.
const MOST: usize = 1 << 17;

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
}

impl Frame {
    /// The last part of the module's path.
    pub fn module_name(&self) -> &str {
        self.module.rsplit('/').next().unwrap_or_default()
    }

    /// "main at a.c:12", "malloc_init in libfoo.so", "libfoo.so+0x123".
    pub fn text(&self) -> String {
        let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        let place = if self.module.is_empty() {
            format!("{:#x}", self.offset)
        } else {
            format!("{}+{:#x}", self.module_name(), self.offset)
        };
        match (&self.function, &self.file, self.line) {
            (Some(function), Some(file), Some(line)) => format!("{function} at {}:{line}", name(file)),
            (Some(function), Some(file), None) => format!("{function} at {}", name(file)),
            (Some(function), None, _) if !self.module.is_empty() => {
                format!("{function} in {}", self.module_name())
            }
            (Some(function), None, _) => function.clone(),
            (None, ..) => place,
        }
    }

    /// Does this function merely stand between a program and its allocator, as operator new does?
    pub fn is_plumbing(&self) -> bool {
        self.function.as_deref().is_some_and(is_plumbing)
    }
}

/// Names of functions that allocate for others.
fn is_plumbing(function: &str) -> bool {
    const EXACT: [&str; 32] = [
        "malloc",
        "calloc",
        "realloc",
        "reallocarray",
        "memalign",
        "posix_memalign",
        "aligned_alloc",
        "valloc",
        "strdup",
        "__strdup",
        "strndup",
        "__strndup",
        "asprintf",
        "vasprintf",
        "xmalloc",
        "xcalloc",
        "xrealloc",
        "xstrdup",
        "g_malloc",
        "g_malloc0",
        "g_realloc",
        "g_strdup",
        "g_slice_alloc",
        "g_malloc_n",
        "g_malloc0_n",
        "__rdl_alloc",
        "__rust_alloc",
        "__rust_realloc",
        "__rg_alloc",
        "exchange_malloc",
        "PyMem_Malloc",
        "PyObject_Malloc",
    ];
    const BEGIN: [&str; 12] = [
        "operator new",
        "alloc::alloc::",
        "<alloc::alloc::Global",
        "alloc::raw_vec::",
        "__gnu_cxx::new_allocator",
        "std::__new_allocator",
        "std::allocator<",
        "std::allocator_traits<",
        "std::_Vector_base<",
        "std::__cxx11::basic_string<",
        "void* std::",
        "__rustc::__r",
    ];
    EXACT.contains(&function) || BEGIN.iter().any(|begin| function.starts_with(begin))
}

/// Knows the modules of a trace, and opens their files when they are asked for.
pub struct Symbols {
    modules: Vec<Module>,
    files: HashMap<String, Option<SymbolFile>>,
    known: HashMap<(u64, bool), Rc<[Frame]>>,
    missing: Vec<String>,
    nameless: bool,
}

impl Symbols {
    /// For the addresses of a process with these modules.
    pub fn new(modules: Vec<Module>) -> Self {
        Self { modules, files: HashMap::new(), known: HashMap::new(), missing: Vec::new(), nameless: false }
    }

    /// Open no files: addresses keep the name of their module and an offset in it.
    pub fn without_names(&mut self) {
        self.nameless = true;
    }

    /// What runs at a node of a stack: the function, after what was inlined into it there.
    pub fn frames(&mut self, node: &StackNode) -> Rc<[Frame]> {
        if let Some(frames) = self.known.get(&(node.pc, node.is_return)) {
            return frames.clone();
        }
        let frames: Rc<[Frame]> = self.find(node).into();
        if self.known.len() < MOST {
            self.known.insert((node.pc, node.is_return), frames.clone());
        }
        frames
    }

    /// A whole stack, the innermost frame first, at most so many.
    pub fn stack(&mut self, tree: &StackTree, stack: StackId, most: usize) -> Vec<Frame> {
        let mut frames = Vec::new();
        for node in tree.frames(stack) {
            frames.extend_from_slice(&self.frames(&node));
            if frames.len() >= most {
                frames.truncate(most);
                break;
            }
        }
        frames
    }

    /// Files that could not be used, and why.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    fn find(&mut self, node: &StackNode) -> Vec<Frame> {
        // The call stands before the address it returns to.
        let pc = if node.is_return { node.pc.wrapping_sub(1) } else { node.pc };
        // The last one that was loaded there: stacks do not tell when they were taken.
        let Some(module) = self.modules.iter().rev().find(|module| module.contains(pc)) else {
            return vec![Frame { offset: node.pc, ..Frame::default() }];
        };
        let offset = pc.wrapping_sub(module.base);
        let bare = || Frame {
            module: module.path.clone(),
            offset: node.pc.wrapping_sub(module.base),
            ..Frame::default()
        };
        if self.nameless {
            return vec![bare()];
        }
        let missing = &mut self.missing;
        let file = self.files.entry(module.path.clone()).or_insert_with(|| {
            let opened = SymbolFile::open(Path::new(&module.path), &module.build_id);
            opened.map_err(|why| missing.push(format!("{}: {why}", module.path))).ok()
        });
        let mut frames = file.as_ref().map_or_else(Vec::new, |file| file.frames(offset, &bare()));
        if frames.is_empty() {
            frames.push(bare());
        }
        frames
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
        };
        assert_eq!(frame(Some("f(int)"), Some("/a/b.c"), Some(3), "/x").text(), "f(int) at b.c:3");
        assert_eq!(frame(Some("f"), None, None, "/lib/libx.so").text(), "f in libx.so");
        assert_eq!(frame(None, None, None, "/lib/libx.so").text(), "libx.so+0x12");
        assert_eq!(frame(None, None, None, "").text(), "0x12");
    }

    #[test]
    fn plumbing() {
        for name in ["operator new(unsigned long)", "alloc::alloc::exchange_malloc", "xmalloc", "strdup"] {
            assert!(is_plumbing(name), "{name}");
        }
        for name in ["main", "newer", "mallocate", "operator<<", "std::map<int>::insert"] {
            assert!(!is_plumbing(name), "{name}");
        }
    }
}
