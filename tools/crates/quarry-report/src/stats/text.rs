// SPDX-License-Identifier: MIT
//! The statistics as tables.

use crate::style::Style;
use crate::table::{Align, Text, render};
use crate::units;
use quarry_stats::breakdown::heap_breakdown;
use quarry_stats::{Class, Found, Heap, Page, Pools, Sums};

use quarry_proc::shown;

/// Sizes of blocks shown when not all are: those with most memory.
const CLASSES: usize = 12;

fn bytes(value: u64) -> String {
    units::bytes(value as f64)
}

fn count(value: u64) -> String {
    units::count(value as f64)
}

fn age(now: u64, at: u64) -> String {
    units::seconds(now.saturating_sub(at) as f64 / 1e9)
}

fn cells(row: impl IntoIterator<Item = String>) -> Vec<Text> {
    row.into_iter().map(Text::from).collect()
}

/// All processes, a line each.
pub fn list(found: &[Found], style: Style) -> String {
    if found.is_empty() {
        return String::from(
            "no process of this user has a statistics page; start one with `quarry run -- CMD`\n",
        );
    }
    let row = |one: &Found| {
        let b = heap_breakdown(&one.pages, None);
        let newest = one.pages.iter().filter_map(newest).max().unwrap_or(0);
        let columns = [
            b.live_bytes,
            b.cached_bytes,
            b.slab_free_bytes,
            b.pages_free_bytes,
            b.metadata_bytes,
            b.pools_bytes,
        ];
        let mut row = vec![one.pid.to_string()];
        row.extend(columns.into_iter().map(bytes));
        row.push(age(one.read_ns, newest));
        row.push(shown(&one.program));
        cells(row)
    };
    let mut align = vec![Align::Right; 8];
    align.push(Align::Left);
    let header =
        ["pid", "live", "caches", "free in slabs", "free pages", "metadata", "pools", "age", "program"];
    render(style, &align, &header, found.iter().map(row).collect())
}

/// When something was last written to it.
fn newest(page: &Page) -> Option<u64> {
    let heap = page.heap.as_ref().and_then(|heap| heap.sums).map(|sums| sums.at_ns);
    let pools = page.pools.iter().flat_map(|pools| &pools.pools).map(|pool| pool.at_ns).max();
    heap.max(pools)
}

/// One process in full.
pub fn process(found: &Found, all: bool, style: Style) -> String {
    let mut text = String::new();
    for page in &found.pages {
        let title = format!(
            "process {} ({}), {} {}",
            found.pid,
            shown(&found.program),
            page.library(),
            shown(&page.version)
        );
        text.push_str(&style.bold(&title));
        text.push('\n');
        if let Some(heap) = &page.heap {
            text.push_str(&self::heap(heap, found.read_ns, all, style));
        }
        if let Some(pools) = &page.pools {
            text.push_str(&self::pools(pools, found.read_ns, style));
        }
    }
    text
}

fn heap(heap: &Heap, now: u64, all: bool, style: Style) -> String {
    let Some(sums) = &heap.sums else {
        return String::from("heap: nothing could be read; it is being written all the time, or never was\n");
    };
    let mut text = format!("heap, {} ago\n", age(now, sums.at_ns));
    text.push_str(&render(style, &[Align::Left, Align::Right, Align::Left], &[], rows(sums)));
    if heap.skipped > 0 {
        text.push_str(&format!(
            "  ({} a heap was too busy to be counted)\n",
            units::of(heap.skipped, "time")
        ));
    }
    if !heap.classes.is_empty() {
        text.push_str(&format!("blocks by size, {} ago\n", age(now, heap.classes_at_ns)));
        text.push_str(&classes(&heap.classes, all, style));
    }
    text
}

fn rows(sums: &Sums) -> Vec<Vec<Text>> {
    let live = format!("{}, {} among them", units::of(sums.runs, "run"), units::of(sums.huges, "mapping"));
    let free = format!("of which {} in blocks that touch a page given back", bytes(sums.slab_purged_bytes));
    let each = sums.metadata_bytes / sums.heaps.max(1);
    let idle = count(sums.heaps_idle);
    let heaps = format!("of {} ({idle} idle), {} for each", units::of(sums.heaps, "heap"), bytes(each));
    let rows = [
        (
            "  mapped",
            sums.mapped_bytes,
            String::from("address space open for blocks, in chunks of 2 MiB; the sum of what follows"),
        ),
        ("    live", sums.live_bytes(), live),
        (
            "    thread caches",
            sums.cached_bytes,
            format!("{}, as was last counted", units::of(sums.cached_blocks, "block")),
        ),
        ("    free in slabs", sums.slab_free_bytes, free),
        ("    on their way home", sums.slab_mailed_bytes, String::from("freed by other threads")),
        ("    never used in slabs", sums.slab_fresh_bytes, String::from("and ends of slabs")),
        ("    slack", sums.run_slack_bytes, String::from("ends of large blocks")),
        ("    free pages, touched", sums.pages_dirty_bytes, String::from("going back when they stay unused")),
        ("    free mappings", sums.huge_cached_bytes, String::from("could not be unmapped yet")),
        ("    free pages, untouched", sums.pages_clean_bytes, String::from("no memory")),
        ("  metadata", sums.metadata_bytes, heaps),
        ("  given back since the start", sums.purged_bytes, format!("in {}", units::of(sums.purges, "step"))),
        ("    needed again", sums.regret_bytes, String::from("within a second: given back for nothing")),
    ];
    rows.into_iter().map(|(label, value, note)| cells([label.to_owned(), bytes(value), note])).collect()
}

fn class_row(name: String, c: &Class) -> Vec<Text> {
    cells([
        name,
        count(c.slabs),
        bytes(c.slabs_bytes),
        count(c.out_blocks),
        count(c.free_blocks),
        count(c.purged_blocks),
        bytes(c.fresh_bytes),
    ])
}

fn classes(classes: &[Class], all: bool, style: Style) -> String {
    let mut largest: Vec<&Class> = classes.iter().collect();
    largest.sort_by_key(|class| std::cmp::Reverse(class.slabs_bytes));
    let rest = if all { Vec::new() } else { largest.split_off(CLASSES.min(largest.len())) };
    largest.sort_by_key(|class| class.block_bytes);
    let mut rows: Vec<Vec<Text>> = largest
        .iter()
        .map(|class| class_row(format!("  {}", count(class.block_bytes.into())), class))
        .collect();
    if !rest.is_empty() {
        let sum =
            |value: fn(&Class) -> u64| rest.iter().fold(0u64, |sum, class| sum.saturating_add(value(class)));
        let others = Class {
            block_bytes: 0,
            slabs: sum(|c| c.slabs),
            slabs_bytes: sum(|c| c.slabs_bytes),
            out_blocks: sum(|c| c.out_blocks),
            free_blocks: sum(|c| c.free_blocks),
            purged_blocks: sum(|c| c.purged_blocks),
            fresh_bytes: sum(|c| c.fresh_bytes),
            cached_blocks: None,
        };
        rows.push(class_row(format!("  {}", units::of(rest.len() as u64, "other")), &others));
    }
    let header = ["  size", "slabs", "bytes", "given out", "free", "given back", "never used"];
    render(style, &[Align::Right; 7], &header, rows)
}

fn pools(pools: &Pools, now: u64, style: Style) -> String {
    if pools.pools.is_empty() && pools.others == 0 {
        return String::from("pools: none has memory\n");
    }
    let row = |pool: &quarry_stats::Pool| {
        cells([
            format!("  {}", pool.kind),
            shown(&pool.name),
            bytes(pool.held_bytes),
            pool.used_bytes.map_or_else(|| String::from("-"), bytes),
            bytes(pool.peak_held_bytes),
            if pool.limit_bytes > 0 { bytes(pool.limit_bytes) } else { String::from("-") },
            count(pool.chunk_gets),
            count(pool.chunk_puts),
            age(now, pool.at_ns),
        ])
    };
    let mut sorted: Vec<&quarry_stats::Pool> = pools.pools.iter().collect();
    sorted.sort_by_key(|pool| std::cmp::Reverse(pool.held_bytes));
    let mut align = vec![Align::Left; 2];
    align.resize(9, Align::Right);
    let header = ["  kind", "name", "held", "used", "peak", "limit", "gets", "puts", "age"];
    let mut text = String::from("pools\n");
    text.push_str(&render(style, &align, &header, sorted.into_iter().map(row).collect()));
    if pools.others > 0 {
        text.push_str(&format!(
            "  and {} more, which hold {}\n",
            count(pools.others),
            bytes(pools.others_held_bytes)
        ));
    }
    if pools.busy > 0 {
        text.push_str(&format!("  and {} that were being written\n", pools.busy));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_a_kind_is_no_plural() {
        let heaps = |heaps| {
            let sums = Sums { heaps, ..Sums::default() };
            render(Style::default(), &[Align::Left, Align::Right, Align::Left], &[], rows(&sums))
        };
        assert!(heaps(1).contains("of 1 heap (0 idle)") && heaps(2).contains("of 2 heaps (0 idle)"));
        let class = |block_bytes| Class {
            block_bytes,
            slabs: 1,
            slabs_bytes: 65_536,
            out_blocks: 0,
            free_blocks: 0,
            purged_blocks: 0,
            fresh_bytes: 0,
            cached_blocks: None,
        };
        let others = |more: usize| {
            let all: Vec<Class> = (1..=CLASSES + more).map(|number| class(16 * number as u32)).collect();
            classes(&all, false, Style::default())
        };
        assert!(others(1).contains("  1 other ") && others(2).contains("  2 others "), "{}", others(1));
    }
}
