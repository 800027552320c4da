// SPDX-License-Identifier: MIT
//! Builds the tree of calls. Each node of the tree of stacks is looked at once, and so is each place in the code, whatever the number
//! of call stacks that lead through it.

use std::borrow::Cow;
use std::collections::HashMap;

use quarry_symbols::once::{Numbers, Texts};
use quarry_symbols::{Code, Folding, Frame, Question, Symbols};
use quarry_trace::{StackId, StackNode, StackTree};

use super::{Call, Calls, Label, Parts, ROOT};
use crate::model::{Key, OTHERS, Profile};

/// Frames of a stack that are kept. The recorder keeps no more.
const DEEPEST: u32 = 256;
/// Most places in the code whose frames are remembered.
const MOST_CODES: usize = 1 << 18;
/// Numbers of nodes may run so far ahead of how many there are, and still be kept in a row.
const AHEAD: usize = 1 << 16;
/// No call.
const NONE: u32 = u32::MAX;

/// A node of the tree of stacks.
#[derive(Debug, Clone, Copy)]
struct Seen {
    /// Its frames: a range of [`Maker::frames`], what was inlined first.
    at: u32,
    n: u32,
    /// The call that it is, with all of its callers; `NONE`: nobody has asked yet.
    call: u32,
    /// Frames of it and of its callers, if there is a call.
    depth: u32,
}

/// Nodes by their numbers.
#[derive(Default)]
struct Nodes {
    row: Vec<Seen>,
    far: HashMap<StackId, Seen>,
    limit: usize,
}

const UNSEEN: Seen = Seen { at: 0, n: 0, call: NONE, depth: 0 };

impl Nodes {
    fn get(&self, id: StackId) -> Option<Seen> {
        match self.row.get(id as usize) {
            Some(seen) => Some(*seen).filter(|seen| seen.n > 0),
            None => self.far.get(&id).copied(),
        }
    }

    fn set(&mut self, id: StackId, seen: Seen) {
        let at = id as usize;
        if at >= self.limit {
            self.far.insert(id, seen);
            return;
        }
        if at >= self.row.len() {
            self.row.resize(at + 1, UNSEEN);
        }
        self.row[at] = seen;
    }
}

/// A frame of a stack: its place in [`Maker::frames`], where those of its node end, and the calling node.
#[derive(Debug, Clone, Copy)]
struct Spot {
    at: u32,
    end: u32,
    parent: StackId,
}

/// Builds a tree.
pub(super) struct Maker<'m> {
    stacks: &'m StackTree,
    symbols: &'m mut Symbols,
    folding: &'m Folding,
    /// What stands behind the sites of a pool.
    pools: HashMap<u32, String>,
    texts: Texts,
    labels: Vec<Parts>,
    label_numbers: Numbers,
    /// By label: what the folding says of it.
    enters: Vec<bool>,
    folds: Vec<bool>,
    calls: Vec<Call>,
    call_numbers: Numbers,
    /// The labels of frames.
    frames: Vec<u32>,
    codes: HashMap<Code, (u32, u32)>,
    nodes: Nodes,
    spots: Vec<Spot>,
    chain: Vec<(StackId, Seen)>,
}

fn pool_text(name: &str, kind: &str, number: u32) -> String {
    let name = if name.is_empty() { format!("{kind} {number}") } else { name.to_owned() };
    format!(" (pool {})", name.trim())
}

/// Whoever reads a report is not to be fooled by what a program calls its things.
fn harmless(text: &str) -> Cow<'_, str> {
    match text.contains(char::is_control) {
        true => text.chars().map(|c| if c.is_control() { '?' } else { c }).collect::<String>().into(),
        false => text.into(),
    }
}

impl<'m> Maker<'m> {
    pub fn new(
        profile: &Profile,
        stacks: &'m StackTree,
        symbols: &'m mut Symbols,
        folding: &'m Folding,
    ) -> Self {
        let pools = profile.pools.iter();
        let pools = pools.map(|pool| (pool.number, pool_text(&pool.name, &pool.kind, pool.number)));
        let mut maker = Self {
            stacks,
            symbols,
            folding,
            pools: pools.collect(),
            texts: Texts::default(),
            labels: Vec::new(),
            label_numbers: Numbers::default(),
            enters: Vec::new(),
            folds: Vec::new(),
            calls: Vec::new(),
            call_numbers: Numbers::default(),
            frames: Vec::new(),
            codes: HashMap::new(),
            nodes: Nodes { limit: 2 * stacks.len() + AHEAD, ..Nodes::default() },
            spots: Vec::new(),
            chain: Vec::new(),
        };
        let label = maker.plain("all");
        maker.calls.push(Call { parent: ROOT, label });
        maker
    }

    /// The number of a label.
    fn label(&mut self, label: &Label) -> u32 {
        let mut number = |text: &str| self.texts.number(&harmless(text));
        let parts = Parts {
            text: number(label.text),
            function: number(label.function),
            file: number(label.file),
            line: label.line,
            module: number(label.module),
        };
        self.number(parts)
    }

    fn number(&mut self, parts: Parts) -> u32 {
        let labels = &mut self.labels;
        let number = self.label_numbers.of(&parts, labels.len(), |number| &labels[number as usize]);
        if number as usize == labels.len() {
            labels.push(parts);
            self.enters.push(false);
            self.folds.push(false);
        }
        number
    }

    /// What is no function.
    fn plain(&mut self, text: &str) -> u32 {
        self.label(&Label { text, function: text, ..Label::default() })
    }

    fn frame(&mut self, frame: &Frame) -> u32 {
        let (text, before) = (frame.text(), self.labels.len());
        let short = frame.short();
        let number = self.label(&Label {
            text: &text,
            function: short.as_deref().unwrap_or(&text),
            file: frame.file.as_deref().unwrap_or_default(),
            line: frame.line.unwrap_or(0),
            module: &frame.module,
        });
        if number as usize >= before {
            self.enters[number as usize] = self.folding.enters(frame);
            self.folds[number as usize] = self.folding.folds(frame);
        }
        number
    }

    /// A label with the name of a pool.
    fn behind(&mut self, label: u32, pool: &str) -> u32 {
        if pool.is_empty() {
            return label;
        }
        let parts = self.labels[label as usize];
        let mut with = |text: u32| {
            let text = format!("{}{pool}", self.texts.get(text));
            self.texts.number(&harmless(&text))
        };
        let parts = Parts { text: with(parts.text), function: with(parts.function), ..parts };
        self.number(parts)
    }

    fn call(&mut self, parent: u32, label: u32) -> u32 {
        let (calls, call) = (&mut self.calls, Call { parent, label });
        let number = self.call_numbers.of(&call, calls.len(), |number| &calls[number as usize]);
        if number as usize == calls.len() {
            calls.push(call);
        }
        number
    }

    fn node(&mut self, node: &StackNode) -> Seen {
        if let Some(seen) = self.nodes.get(node.id) {
            return seen;
        }
        let code = self.symbols.code(node);
        let (at, n) = match self.codes.get(&code) {
            Some(&range) => range,
            None => {
                let frames = self.symbols.find(node, &code);
                let at = self.frames.len() as u32;
                for frame in &frames {
                    let label = self.frame(frame);
                    self.frames.push(label);
                }
                let range = (at, frames.len() as u32);
                if self.codes.len() < MOST_CODES {
                    self.codes.insert(code, range);
                }
                range
            }
        };
        let seen = Seen { at, n, ..UNSEEN };
        self.nodes.set(node.id, seen);
        seen
    }

    /// Where the blocks of a key come from.
    pub fn leaf(&mut self, key: Key) -> u32 {
        if key == OTHERS {
            let label = self.plain("(other stacks)");
            return self.call(ROOT, label);
        }
        let pool = self.pools.get(&key.pool).cloned().unwrap_or_default();
        match self.site(key.stack) {
            Some(site) => self.site_call(site, &pool),
            None => {
                let label = self.plain("(no stack recorded)");
                let label = self.behind(label, &pool);
                self.call(ROOT, label)
            }
        }
    }

    /// The frame that the blocks of a stack come from. Only as many nodes are looked at as are needed for it.
    fn site(&mut self, stack: StackId) -> Option<Spot> {
        let mut spots = std::mem::take(&mut self.spots);
        spots.clear();
        let mut next = self.stacks.get(stack);
        let site = Folding::site_by(|at, question| {
            while spots.len() <= at
                && let Some(node) = next
            {
                let Seen { at, n, .. } = self.node(&node);
                spots.extend((at..at + n).map(|place| Spot { at: place, end: at + n, parent: node.parent }));
                next = self.stacks.get(node.parent);
            }
            let label = self.frames[spots.get(at)?.at as usize] as usize;
            Some(match question {
                Question::Enters => self.enters[label],
                Question::Folds => self.folds[label],
            })
        });
        let found = spots.get(site).copied();
        self.spots = spots;
        found
    }

    /// The call of a site.
    fn site_call(&mut self, site: Spot, pool: &str) -> u32 {
        let mut call = match self.callers(site.parent, site.end - site.at) {
            Some(call) => self.inlined(call, site.at + 1, site.end),
            None => self.cut(site),
        };
        let label = self.behind(self.frames[site.at as usize], pool);
        call = self.call(call, label);
        call
    }

    /// Calls of a node's frames, the outermost first.
    fn inlined(&mut self, mut call: u32, from: u32, to: u32) -> u32 {
        for at in (from..to).rev() {
            call = self.call(call, self.frames[at as usize]);
        }
        call
    }

    /// The call that a node is, with all of its callers. `None`: with `more` frames the stack is too deep.
    fn callers(&mut self, node: StackId, more: u32) -> Option<u32> {
        let mut chain = std::mem::take(&mut self.chain);
        chain.clear();
        let (mut frames, mut next) = (more, self.stacks.get(node));
        let (mut call, mut depth) = (ROOT, 0);
        while let Some(node) = next.filter(|_| frames <= DEEPEST) {
            let seen = self.node(&node);
            if seen.call != NONE {
                (call, depth) = (seen.call, seen.depth);
                break;
            }
            frames += seen.n;
            chain.push((node.id, seen));
            next = self.stacks.get(node.parent);
        }
        let fits = frames + depth <= DEEPEST;
        if fits {
            for (id, seen) in chain.iter().rev() {
                call = self.inlined(call, seen.at, seen.at + seen.n);
                depth += seen.n;
                self.nodes.set(*id, Seen { call, depth, ..*seen });
            }
        }
        self.chain = chain;
        fits.then_some(call)
    }

    /// The caller of a site whose stack is too deep: its outermost frames are left out.
    fn cut(&mut self, site: Spot) -> u32 {
        let mut frames: Vec<u32> = self.frames[site.at as usize + 1..site.end as usize].to_vec();
        let mut next = self.stacks.get(site.parent);
        while let Some(node) = next.filter(|_| frames.len() < DEEPEST as usize) {
            let seen = self.node(&node);
            frames.extend_from_slice(&self.frames[seen.at as usize..(seen.at + seen.n) as usize]);
            next = self.stacks.get(node.parent);
        }
        frames.truncate(DEEPEST as usize - 1);
        frames.iter().rev().fold(ROOT, |call, &label| self.call(call, label))
    }

    /// The tree, without labels that no call has.
    pub fn finish(self, leaves: Vec<u32>) -> Calls {
        let Self { mut texts, labels, mut calls, .. } = self;
        let mut numbers = vec![NONE; labels.len()];
        let mut kept = Vec::new();
        for call in &mut calls {
            let number = &mut numbers[call.label as usize];
            if *number == NONE {
                *number = kept.len() as u32;
                kept.push(labels[call.label as usize]);
            }
            call.label = *number;
        }
        texts.close();
        Calls { texts, labels: kept, calls, leaves }
    }
}
