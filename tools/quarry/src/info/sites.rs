// SPDX-License-Identifier: MIT
//! Call stacks by the place in the code that they come from.

use std::collections::HashMap;

use quarry_report::info::CallSite;
use quarry_symbols::{Frame, Symbols};
use quarry_trace::StackTree;
use quarry_trace::analysis::{Site, Summary};

/// Most call stacks that are looked up; the others, which allocated least, are one site.
const MOST: usize = 200_000;
/// Frames that are kept of a site's heaviest stack.
const DEPTH: usize = 16;

/// Call sites with names.
#[derive(Default)]
pub struct Named {
    pub sites: Vec<CallSite>,
    /// Files without symbols, and why.
    pub missing: Vec<String>,
}

/// Join the call stacks that come from the same line, or from the same address where lines are not known.
pub fn name(summary: &Summary, stacks: &StackTree, mut symbols: Symbols) -> Named {
    let mut heaviest: Vec<&Site> = summary.sites.iter().collect();
    heaviest.sort_by_key(|site| (std::cmp::Reverse(site.bytes), site.stack));
    let mut sites: Vec<CallSite> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    for (index, site) in heaviest.into_iter().enumerate() {
        let frames =
            if index < MOST { frames(&mut symbols, stacks, site) } else { vec!["(other stacks)".into()] };
        let place = *known.entry(frames[0].clone()).or_insert_with(|| {
            sites.push(CallSite { frames, ..CallSite::default() });
            sites.len() - 1
        });
        let to = &mut sites[place];
        to.stacks += 1;
        to.count += site.count;
        to.bytes = to.bytes.wrapping_add(site.bytes);
        to.live += site.live;
        to.live_bytes = to.live_bytes.wrapping_add(site.live_bytes);
        to.peak_bytes = to.peak_bytes.wrapping_add(site.peak_bytes);
        to.temporary += site.temporary;
        to.zeroed.add(&site.zeroed);
    }
    Named { sites, missing: symbols.missing().to_vec() }
}

/// The function that allocated, and its callers; never empty.
fn frames(symbols: &mut Symbols, stacks: &StackTree, site: &Site) -> Vec<String> {
    /// What allocates for others is a few frames deep.
    const PLUMBING: usize = 16;
    let frames = symbols.stack(stacks, site.stack, PLUMBING + DEPTH);
    let first = frames.iter().take(PLUMBING).position(|frame| !frame.is_plumbing()).unwrap_or(0);
    let texts: Vec<String> = frames[first..].iter().take(DEPTH).map(Frame::text).collect();
    if texts.is_empty() { vec!["(no stack recorded)".into()] } else { texts }
}
