// SPDX-License-Identifier: MIT
//! The tables of call sites.

use std::cmp::Reverse;

use quarry_trace::analysis::Zeroed;
use quarry_trace::sample::Estimate;

use super::{CallSite, Info, Stack, Sums, between, bytes, count, harmless, part};
use crate::style::Style;
use crate::table::{self, Align, Text};

/// Callers that are shown below the function itself.
const CALLERS: usize = 2;
/// Ways to a function that are shown where not all are wanted.
const WAYS: usize = 3;

/// The sites that lead by a sum.
pub(super) fn table(info: &Info, style: Style, key: impl Fn(&Sums) -> Estimate) -> String {
    let sites = info.leading(|site| key(&site.sums).value());
    if sites.is_empty() {
        return String::new();
    }
    let sample = info.summary.sampling.is_sample();
    let rows = sites.into_iter().map(|site| {
        let sums = &site.sums;
        let mut cells = vec![
            bytes(sums.peak_bytes.value()),
            bytes(sums.bytes.value()),
            count(sums.count.value()),
            part(sums.temporary.value(), sums.count.value()),
            bytes(sums.live_bytes.value()),
        ];
        if sample {
            // What is temporary is not known.
            cells.remove(3);
            let is_count = key(sums) == sums.count;
            let interval = between(&key(sums), if is_count { count } else { bytes });
            cells.push(interval.trim_start_matches(" (").trim_end_matches(')').to_owned());
        }
        cells.push(if info.all_stacks { all(site, &key) } else { ways(site, &key) });
        cells.into_iter().map(Text::from).collect()
    });
    let mut names = vec!["at the peak", "allocated", "allocations", "temporary", "at the end"];
    if sample {
        names.remove(3);
        names.push("95 % interval");
    }
    let mut align = vec![Align::Right; names.len()];
    names.push("where");
    align.push(Align::Left);
    table::render(style, &align, &names, rows.collect())
}

/// Which large blocks of calloc were fresh from the kernel, which had to be cleared, and what was touched afterwards.
pub(super) fn calloc(info: &Info, style: Style) -> String {
    let row = |sums: &Zeroed, place: String| {
        let ended = sums.ended_bytes.value();
        let cells = [
            count(sums.count.value()),
            bytes(sums.bytes.value()),
            bytes(sums.fresh()),
            bytes(sums.cleared.value()),
            if ended > 0 { bytes(sums.touched.value()) } else { String::from("-") },
            bytes(ended),
            place,
        ];
        cells.map(Text::from).to_vec()
    };
    let all = &info.summary.calloc;
    if all.count.value() == 0 {
        return String::new();
    }
    let mut rows = vec![row(all, String::from("all"))];
    let sites = info.leading(|site| site.zeroed.bytes.value());
    let name = |site: &CallSite| harmless(site.frames().first().map_or("", |frame| frame));
    rows.extend(sites.into_iter().map(|site| row(&site.zeroed, name(site))));
    let names = ["blocks", "asked for", "fresh", "cleared", "touched later", "of ended", "where"];
    let mut align = [Align::Right; 7];
    align[6] = Align::Left;
    table::render(style, &align, &names, rows)
}

/// The stacks that have something of a sum, the one with most of it first.
fn by<'a>(site: &'a CallSite, key: &impl Fn(&Sums) -> Estimate) -> Vec<(&'a Stack, u64)> {
    let with = site.stacks.iter().map(|stack| (stack, key(&stack.sums).value()));
    let mut stacks: Vec<_> = with.filter(|(_, sum)| *sum > 0).collect();
    stacks.sort_by_key(|(_, sum)| Reverse(*sum));
    stacks
}

/// The function, and the nearest callers of its heaviest stacks.
fn ways(site: &CallSite, key: &impl Fn(&Sums) -> Estimate) -> String {
    let mut ways: Vec<(Vec<String>, u64)> = Vec::new();
    let stacks = by(site, key);
    for (stack, sum) in &stacks {
        let callers: Vec<String> =
            stack.frames.iter().skip(1).take(CALLERS).map(|frame| harmless(frame)).collect();
        match ways.iter_mut().find(|(known, _)| *known == callers) {
            Some((_, sums)) => *sums = sums.saturating_add(*sum),
            None => ways.push((callers, *sum)),
        }
    }
    let mut lines = vec![harmless(site.frames().first().map_or("", |frame| frame))];
    if let [(callers, _)] = &ways[..] {
        lines.extend(callers.iter().map(|caller| format!("  < {caller}")));
        return lines.join("\n");
    }
    ways.sort_by_key(|(_, sum)| Reverse(*sum));
    let whole = key(&site.sums).value();
    for (callers, sum) in ways.iter().take(WAYS) {
        let callers = if callers.is_empty() { String::from("(no caller)") } else { callers.join(" < ") };
        lines.push(format!("  {:>5} < {callers}", part(*sum, whole)));
    }
    let shown = WAYS.min(ways.len());
    if ways.len() > shown {
        lines.push(format!("  and {} more; --stacks shows all", count((ways.len() - shown) as u64)));
    }
    lines.join("\n")
}

/// The function, and all of its stacks with all of their callers.
fn all(site: &CallSite, key: &impl Fn(&Sums) -> Estimate) -> String {
    let mut lines = vec![harmless(site.frames().first().map_or("", |frame| frame))];
    let whole = key(&site.sums).value();
    for (stack, sum) in by(site, key) {
        lines.push(format!("  {:>5} of it", part(sum, whole)));
        lines.extend(stack.frames.iter().skip(1).map(|caller| format!("    < {}", harmless(caller))));
    }
    lines.join("\n")
}
