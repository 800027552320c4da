// SPDX-License-Identifier: MIT
//! Call stacks with names: a tree of calls from the outermost function to the place in the code that a block comes from.

use std::collections::HashMap;
use std::rc::Rc;

use quarry_symbols::{Folding, Frame, Symbols};
use quarry_trace::{StackId, StackTree};

use crate::model::{Key, OTHERS, Profile};

/// Frames of a stack that are kept. The recorder keeps no more.
const DEEPEST: usize = 256;
/// Number of the tree's root.
pub const ROOT: u32 = 0;

/// A function, or what is shown instead.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Label {
    /// "f at a.c:3", "f in libx.so", "libx.so+0x12".
    pub text: Rc<str>,
    /// The name of the function, or the text.
    pub function: Rc<str>,
    /// The path of its source file; empty: not known.
    pub file: Rc<str>,
    /// The line in it; 0: not known.
    pub line: u32,
    /// The path of the file that was mapped there; empty: none that is known.
    pub module: Rc<str>,
}

/// A call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// The calling one; that of the root is the root.
    pub parent: u32,
    /// What is called.
    pub label: u32,
}

/// The tree. A call has a higher number than its caller.
#[derive(Debug, Clone)]
pub struct Calls {
    labels: Vec<Label>,
    calls: Vec<Call>,
    /// By row of the profile: where its blocks come from.
    leaves: Vec<u32>,
}

/// Whoever reads a report is not to be fooled by what a program calls its things.
fn harmless(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Builds a tree.
#[derive(Default)]
struct Maker {
    labels: Vec<Label>,
    known_labels: HashMap<Label, u32>,
    texts: HashMap<String, Rc<str>>,
    calls: Vec<Call>,
    known_calls: HashMap<(u32, u32), u32>,
}

impl Maker {
    fn new() -> Self {
        let mut maker = Self::default();
        let label = maker.label("all", "all", "", 0, "");
        maker.calls.push(Call { parent: ROOT, label });
        maker
    }

    fn text(&mut self, text: &str) -> Rc<str> {
        if let Some(known) = self.texts.get(text) {
            return known.clone();
        }
        let made: Rc<str> = harmless(text).into();
        self.texts.insert(text.to_owned(), made.clone());
        made
    }

    fn label(&mut self, text: &str, function: &str, file: &str, line: u32, module: &str) -> u32 {
        let label = Label {
            text: self.text(text),
            function: self.text(function),
            file: self.text(file),
            line,
            module: self.text(module),
        };
        let labels = &mut self.labels;
        *self.known_labels.entry(label.clone()).or_insert_with(|| {
            labels.push(label);
            labels.len() as u32 - 1
        })
    }

    fn frame(&mut self, frame: &Frame, behind: &str) -> u32 {
        let text = frame.text() + behind;
        let function = frame.function.clone().map_or_else(|| text.clone(), |name| name + behind);
        let file = frame.file.as_deref().unwrap_or_default();
        self.label(&text, &function, file, frame.line.unwrap_or(0), &frame.module)
    }

    fn call(&mut self, parent: u32, label: u32) -> u32 {
        let calls = &mut self.calls;
        *self.known_calls.entry((parent, label)).or_insert_with(|| {
            calls.push(Call { parent, label });
            calls.len() as u32 - 1
        })
    }
}

impl Calls {
    /// The rows of a profile by name. What `folding` folds is left out; in any case there is one call.
    pub fn of(profile: &Profile, stacks: &StackTree, symbols: &mut Symbols, folding: &Folding) -> Self {
        let mut maker = Maker::new();
        let pools: HashMap<u32, String> = profile
            .pools
            .iter()
            .map(|pool| (pool.number, pool_text(&pool.name, &pool.kind, pool.number)))
            .collect();
        let mut known: HashMap<(StackId, u32), u32> = HashMap::new();
        let mut leaf = |key: Key| {
            *known.entry((key.stack, key.pool)).or_insert_with(|| {
                let behind = pools.get(&key.pool).map_or("", String::as_str);
                leaf(&mut maker, key, behind, stacks, symbols, folding)
            })
        };
        let leaves = profile.rows.iter().map(|row| leaf(row.key)).collect();
        Self { labels: maker.labels, calls: maker.calls, leaves }
    }

    /// All labels.
    pub fn labels(&self) -> &[Label] {
        &self.labels
    }

    /// All calls; the first one is the root.
    pub fn calls(&self) -> &[Call] {
        &self.calls
    }

    /// Where the blocks of a row come from.
    pub fn leaf(&self, row: usize) -> u32 {
        self.leaves[row]
    }

    /// What is called there.
    pub fn label(&self, call: u32) -> &Label {
        &self.labels[self.calls[call as usize].label as usize]
    }

    /// A call and its callers, without the root.
    pub fn up(&self, call: u32) -> impl Iterator<Item = u32> + '_ {
        let next = |&call: &u32| Some(self.calls[call as usize].parent);
        std::iter::successors(Some(call), next).take_while(|&call| call != ROOT)
    }

    /// By call: does the pattern fit it or one of its callers?
    pub fn fits(&self, pattern: &regex_lite::Regex) -> Vec<bool> {
        let labels: Vec<bool> = self
            .labels
            .iter()
            .map(|label| pattern.is_match(&label.text) || pattern.is_match(&label.function))
            .collect();
        let mut fits = vec![false; self.calls.len()];
        for (at, call) in self.calls.iter().enumerate().skip(1) {
            fits[at] = fits[call.parent as usize] || labels[call.label as usize];
        }
        fits
    }
}

fn pool_text(name: &str, kind: &str, number: u32) -> String {
    let name = if name.is_empty() { format!("{kind} {number}") } else { name.to_owned() };
    format!(" (pool {})", name.trim())
}

fn leaf(
    maker: &mut Maker,
    key: Key,
    behind: &str,
    stacks: &StackTree,
    symbols: &mut Symbols,
    folding: &Folding,
) -> u32 {
    if key == OTHERS {
        let label = maker.label("(other stacks)", "(other stacks)", "", 0, "");
        return maker.call(ROOT, label);
    }
    let frames = symbols.stack(stacks, key.stack, DEEPEST);
    let first = folding.site(&frames);
    let mut call = ROOT;
    for (at, frame) in frames.iter().enumerate().skip(first).rev() {
        let label = maker.frame(frame, if at == first { behind } else { "" });
        call = maker.call(call, label);
    }
    if call == ROOT {
        let text = format!("(no stack recorded){behind}");
        let label = maker.label(&text, &text, "", 0, "");
        call = maker.call(ROOT, label);
    }
    call
}
