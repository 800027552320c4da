// SPDX-License-Identifier: MIT
//! Call stacks with names: a tree of calls from the outermost function to the place in the code that a block comes from.

mod maker;

use quarry_symbols::once::Texts;
use quarry_symbols::{Folding, Symbols};
use quarry_trace::StackTree;

use crate::model::Profile;
use maker::Maker;

/// Number of the tree's root.
pub const ROOT: u32 = 0;

/// A function, or what is shown instead.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Label<'a> {
    /// "f at a.c:3", "f in libx.so", "libx.so+0x12".
    pub text: &'a str,
    /// The name of the function, or the text.
    pub function: &'a str,
    /// The path of its source file; empty: not known.
    pub file: &'a str,
    /// The line in it; 0: not known.
    pub line: u32,
    /// The path of the file that was mapped there; empty: none that is known.
    pub module: &'a str,
}

/// A label, whose texts are numbers. Equal texts have equal numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Parts {
    pub text: u32,
    pub function: u32,
    pub file: u32,
    pub line: u32,
    pub module: u32,
}

/// A call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Call {
    /// The calling one; that of the root is the root.
    pub parent: u32,
    /// What is called.
    pub label: u32,
}

/// The tree. A call has a higher number than its caller.
#[derive(Debug, Clone)]
pub struct Calls {
    texts: Texts,
    labels: Vec<Parts>,
    calls: Vec<Call>,
    /// By row of the profile: where its blocks come from.
    leaves: Vec<u32>,
}

impl Calls {
    /// The rows of a profile by name. What `folding` folds is left out; in any case there is one call.
    pub fn of(profile: &Profile, stacks: &StackTree, symbols: &mut Symbols, folding: &Folding) -> Self {
        let mut maker = Maker::new(profile, stacks, symbols, folding);
        let mut leaves: Vec<u32> = Vec::with_capacity(profile.rows.len());
        let mut before = None;
        for row in &profile.rows {
            // Rows of one stack are neighbours.
            let place = (row.key.stack, row.key.pool);
            let leaf = match (before, leaves.last()) {
                (Some(before), Some(&leaf)) if before == place => leaf,
                _ => maker.leaf(row.key),
            };
            before = Some(place);
            leaves.push(leaf);
        }
        maker.finish(leaves)
    }

    /// All labels, by number.
    pub fn labels(&self) -> impl ExactSizeIterator<Item = Label<'_>> {
        (0..self.labels.len() as u32).map(|number| self.label_of(number))
    }

    /// The label of this number.
    pub fn label_of(&self, number: u32) -> Label<'_> {
        let parts = &self.labels[number as usize];
        Label {
            text: self.text(parts.text),
            function: self.text(parts.function),
            file: self.text(parts.file),
            line: parts.line,
            module: self.text(parts.module),
        }
    }

    /// The label of a call, by the numbers of its texts.
    pub(crate) fn parts(&self, call: u32) -> &Parts {
        &self.labels[self.calls[call as usize].label as usize]
    }

    /// The text of this number.
    pub(crate) fn text(&self, number: u32) -> &str {
        self.texts.get(number)
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
    pub fn label(&self, call: u32) -> Label<'_> {
        self.label_of(self.calls[call as usize].label)
    }

    /// A call and its callers, without the root.
    pub fn up(&self, call: u32) -> impl Iterator<Item = u32> + '_ {
        let next = |&call: &u32| Some(self.calls[call as usize].parent);
        std::iter::successors(Some(call), next).take_while(|&call| call != ROOT)
    }

    /// By call: does the pattern fit it or one of its callers?
    pub fn fits(&self, pattern: &regex_lite::Regex) -> Vec<bool> {
        let label = |label: Label<'_>| pattern.is_match(label.text) || pattern.is_match(label.function);
        let labels: Vec<bool> = self.labels().map(label).collect();
        let mut fits = vec![false; self.calls.len()];
        for (at, call) in self.calls.iter().enumerate().skip(1) {
            fits[at] = fits[call.parent as usize] || labels[call.label as usize];
        }
        fits
    }
}
