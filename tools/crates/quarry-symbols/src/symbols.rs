// SPDX-License-Identifier: MIT
//! From the nodes of a tree of stacks to frames with names.

use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;

use quarry_trace::{Event, Module, StackId, StackNode, StackTree, Trace};

use crate::file::{SymbolFile, demangled};
use crate::spans::Spans;
use crate::{Frame, Names, Places};

/// Most nodes whose frames are kept.
const MOST: usize = 1 << 17;

/// What the frames of a node come from. Nodes with equal codes have equal frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code {
    pc: u64,
    /// Of the names in the trace.
    names: (u32, u32),
    /// The index of the module.
    module: Option<u32>,
    is_return: bool,
}

/// Files are mapped by pages of this size, or of a multiple.
const PAGE: u64 = 4096;

/// Knows the modules of a trace, and opens their files when they are asked for.
pub struct Symbols {
    modules: Vec<Module>,
    spans: Spans,
    places: Places,
    names: Names,
    /// When the recording began, in nanoseconds since 1970; 0: not known.
    recorded_ns: u64,
    /// By module: the first of those that are the same file.
    files: HashMap<usize, Option<SymbolFile>>,
    known: HashMap<StackId, Rc<[Frame]>>,
    missing: Vec<String>,
    nameless: bool,
    across_runs: bool,
}

impl Symbols {
    /// For the addresses of a process with these modules.
    pub fn new(modules: Vec<Module>) -> Self {
        Self {
            spans: Spans::of(&modules),
            modules,
            places: Places::of_this_machine(),
            names: Names::default(),
            recorded_ns: 0,
            files: HashMap::new(),
            known: HashMap::new(),
            missing: Vec::new(),
            nameless: false,
            across_runs: false,
        }
    }

    /// For the addresses of a process of which nothing is known yet, and these names.
    pub fn named(names: Names) -> Self {
        Self { names, ..Self::new(Vec::new()) }
    }

    /// When the recording began, in nanoseconds since 1970: older files may be those that ran.
    pub fn recorded_at(mut self, ns: u64) -> Self {
        self.recorded_ns = ns;
        self
    }

    /// Files are looked for there.
    pub fn in_places(mut self, places: Places) -> Self {
        self.places = places;
        self
    }

    /// The modules are these.
    pub fn with_modules(mut self, modules: Vec<Module>) -> Self {
        self.spans = Spans::of(&modules);
        self.modules = modules;
        self
    }

    /// For a trace with these modules, and the names that are in it.
    pub fn of_trace(trace: &Trace, modules: Vec<Module>, places: Places) -> Self {
        let (names, recorded_ns) = (Names::of_trace(trace), trace.head().start_unix_ns);
        Self { places, names, recorded_ns, ..Self::new(modules) }
    }

    /// Take note of what an event says about modules: for those who read a trace for the first time.
    pub fn note(&mut self, event: &Event) {
        Trace::note_module(&mut self.modules, event);
        self.spans.extend(&self.modules);
        self.known.clear();
    }

    /// Open no files: addresses keep the name of their module and an offset in it.
    pub fn without_names(&mut self) {
        self.nameless = true;
    }

    /// Frames are compared with those of other runs. Of an address in a file that lay elsewhere then, only the part within
    /// a page stays the same.
    pub fn across_runs(&mut self) {
        self.across_runs = true;
    }

    /// What runs at a node of a stack: the function, after what was inlined into it there.
    pub fn frames(&mut self, node: &StackNode) -> Rc<[Frame]> {
        if let Some(frames) = self.known.get(&node.id) {
            return frames.clone();
        }
        let frames: Rc<[Frame]> = self.find(node, &self.code(node)).into();
        if self.known.len() < MOST {
            self.known.insert(node.id, frames.clone());
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

    /// All modules.
    pub fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// Where a node lies: the index of the module. Nowhere also if two different files may have been there.
    pub fn module(&self, node: &StackNode) -> Option<usize> {
        let pc = node.pc.wrapping_sub(u64::from(node.is_return));
        let mut found = self.spans.at(pc).filter(|&index| self.modules[index].holds(node));
        let one = found.next()?;
        let mut first = one;
        let are_same = found.all(|index| {
            first = first.min(index);
            self.modules[index].is_same(&self.modules[one])
        });
        are_same.then_some(first)
    }

    /// The first of the modules that are the same file as this one.
    fn first(&self, index: usize) -> usize {
        let module = &self.modules[index];
        let address = module.segments.iter().find(|segment| segment.1 > 0);
        let others = address.map(|segment| self.spans.at(module.base.wrapping_add(segment.0)));
        let same = others.into_iter().flatten().filter(|&other| self.modules[other].is_same(module));
        same.min().unwrap_or(index)
    }

    /// What decides on the frames of a node.
    pub fn code(&self, node: &StackNode) -> Code {
        let module = self.module(node).map(|index| index as u32);
        Code { pc: node.pc, names: self.names.number(node.id), module, is_return: node.is_return }
    }

    /// As [`Symbols::frames`], of a node with this code. Nothing is kept: this is for who asks for a code once.
    pub fn find(&mut self, node: &StackNode, code: &Code) -> Vec<Frame> {
        let index = code.module.map(|index| index as usize);
        let module = index.map(|index| &self.modules[index]);
        let function = module.filter(|_| !self.nameless).and_then(|module| module.function.as_ref());
        let unplaced = self.names.module(node.id).filter(|_| module.is_none());
        let mut bare = Frame {
            function: function.map(|function| demangled(&function.name)),
            module: module
                .map_or_else(|| unplaced.unwrap_or_default().to_owned(), |module| module.path.clone()),
            offset: module.map_or(node.pc, |module| node.pc.wrapping_sub(module.base)),
            unplaced: unplaced.is_some(),
            within_page: self.across_runs && unplaced.is_some(),
            ..Frame::default()
        };
        if bare.within_page {
            bare.offset &= PAGE - 1;
        }
        if self.nameless {
            return vec![bare];
        }
        let mut frames = self.names.frames(node.id, &bare);
        if let (true, Some(index), Some(module)) = (frames.is_empty(), index, module) {
            // The call stands before the address it returns to.
            let offset = node.pc.wrapping_sub(u64::from(node.is_return)).wrapping_sub(module.base);
            frames = self.file(index).map_or_else(Vec::new, |file| file.frames(offset, &bare));
        }
        if frames.is_empty() {
            frames.push(bare);
        }
        frames
    }

    fn file(&mut self, index: usize) -> Option<&SymbolFile> {
        let module = &self.modules[index];
        let first = self.first(index);
        let (places, missing, recorded_ns) = (&self.places, &mut self.missing, self.recorded_ns);
        let file = self.files.entry(first).or_insert_with(|| {
            let opened = SymbolFile::find(module, places, recorded_ns);
            // What has no folder is no file that could be missing, like the kernel's own code.
            let of_file = module.path.contains('/');
            let missed = |why| {
                let line = format!("{}: {why}", module.path);
                // mtrace has a module for each function.
                if of_file && !missing.contains(&line) {
                    missing.push(line);
                }
            };
            opened.map_err(missed).ok()
        });
        file.as_ref()
    }

    /// Files that names came from.
    pub fn used(&self) -> Vec<PathBuf> {
        let mut used: Vec<PathBuf> =
            self.files.values().flatten().flat_map(|file| file.paths().map(PathBuf::from)).collect();
        used.sort();
        used.dedup();
        used
    }
}
