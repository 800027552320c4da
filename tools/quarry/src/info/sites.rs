// SPDX-License-Identifier: MIT
//! Call stacks by the place in the code that they come from.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use quarry_report::info::{CallSite, Stack, Sums};
use quarry_symbols::{Folding, Symbols};
use quarry_trace::analysis::{Site, Summary};
use quarry_trace::{StackId, StackTree};

/// Most call stacks that are looked up; the others, which allocated least, are one site.
const MOST: usize = 200_000;
/// Frames that are kept of a site's heaviest stack.
const DEPTH: usize = 16;
/// Frames of its other stacks: the function, and two callers.
const SHORT: usize = 3;
/// Frames of a stack where all are wanted. The recorder keeps no more.
const ALL: usize = 256;
/// What allocates for others is some frames deep.
const PLUMBING: usize = 64;

/// Call sites with names.
#[derive(Default)]
pub struct Named {
    pub sites: Vec<CallSite>,
    /// Files without symbols, and why.
    pub missing: Vec<String>,
}

/// How stacks are shown.
pub struct How {
    /// Every stack of a site, with all of its frames.
    pub all: bool,
    /// What is not the place that a block comes from.
    pub folding: Folding,
}

/// Join the call stacks that come from the same line, or from the same address where lines are not known.
pub fn name(summary: &Summary, stacks: &StackTree, symbols: Symbols, how: &How) -> Named {
    let mut namer = Namer { symbols, stacks, folding: &how.folding, texts: HashSet::new() };
    let mut heaviest: Vec<&Site> = summary.sites.iter().collect();
    heaviest.sort_by_key(|site| (std::cmp::Reverse(site.bytes.value()), site.stack));
    let mut sites: Vec<CallSite> = Vec::new();
    let mut known: HashMap<Rc<str>, usize> = HashMap::new();
    for (index, site) in heaviest.into_iter().enumerate() {
        let mut frames = match index < MOST {
            true => namer.frames(site.stack, if how.all { ALL } else { DEPTH }),
            false => vec![namer.text("(other stacks)")],
        };
        let place = *known.entry(frames[0].clone()).or_insert_with(|| {
            sites.push(CallSite::default());
            sites.len() - 1
        });
        let to = &mut sites[place];
        if !how.all && !to.stacks.is_empty() {
            frames.truncate(SHORT);
            frames.shrink_to_fit();
        }
        let sums = Sums::from(site);
        to.sums += sums;
        to.zeroed.add(&site.zeroed);
        to.stacks.push(Stack { frames, sums });
    }
    Named { sites, missing: namer.symbols.missing().to_vec() }
}

/// Names stacks. Equal texts are kept once.
struct Namer<'s> {
    symbols: Symbols,
    stacks: &'s StackTree,
    folding: &'s Folding,
    texts: HashSet<Rc<str>>,
}

impl Namer<'_> {
    /// The function that allocated, and its callers; never empty.
    fn frames(&mut self, stack: StackId, most: usize) -> Vec<Rc<str>> {
        let frames = self.symbols.stack(self.stacks, stack, PLUMBING + most);
        let first = self.folding.site(&frames);
        let texts: Vec<Rc<str>> =
            frames[first..].iter().take(most).map(|frame| self.text(&frame.text())).collect();
        if texts.is_empty() { vec![self.text("(no stack recorded)")] } else { texts }
    }

    fn text(&mut self, text: &str) -> Rc<str> {
        if let Some(known) = self.texts.get(text) {
            return known.clone();
        }
        let text: Rc<str> = text.into();
        self.texts.insert(text.clone());
        text
    }
}
