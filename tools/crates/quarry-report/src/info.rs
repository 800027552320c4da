// SPDX-License-Identifier: MIT
//! The report of `quarry info`: what a trace of allocations says, as text with pictures of characters, and in
//! [`json`] with the schema quarry-info/1.

mod bars;
mod end;
mod json;

use quarry_trace::analysis::{Histogram, Summary, Zeroed};
use quarry_trace::{Damage, Trace};

use crate::style::Style;
use crate::table::{self, Align, Text};
use crate::units;

pub use end::Now;
pub use json::{SCHEMA, json};

/// What was allocated from one place in the code.
#[derive(Debug, Clone, Default)]
pub struct CallSite {
    /// The function that allocated, and its callers.
    pub frames: Vec<String>,
    /// Call stacks that end there.
    pub stacks: u64,
    /// Allocations and reallocs.
    pub count: u64,
    /// Bytes requested by them.
    pub bytes: u64,
    /// Blocks of it that are live at the end.
    pub live: u64,
    /// Bytes of them.
    pub live_bytes: u64,
    /// Bytes of it that were live when most were.
    pub peak_bytes: u64,
    /// Allocations whose free was their thread's next event.
    pub temporary: u64,
    /// Its large blocks of calloc.
    pub zeroed: Zeroed,
}

/// What there is to report about a trace.
#[derive(Debug)]
pub struct Info<'a> {
    /// The file.
    pub file: String,
    /// The trace.
    pub trace: &'a Trace,
    /// What its events say.
    pub summary: &'a Summary,
    /// What of it could not be read.
    pub damage: &'a Damage,
    /// Where blocks came from, in no order; empty if no stacks were recorded.
    pub sites: &'a [CallSite],
    /// Files without symbols, and why.
    pub missing: &'a [String],
    /// How many rows of a table.
    pub top: usize,
    /// What its process does, if it is known to go on.
    pub now: Option<Now>,
}

/// Columns of a bar, and of a curve where the terminal has room.
const BAR: usize = 30;
const CURVE: usize = 72;

fn count(n: u64) -> String {
    units::count(n as f64)
}

fn bytes(n: u64) -> String {
    units::bytes(n as f64)
}

/// A part of a whole, "-" of nothing.
fn part(n: u64, of: u64) -> String {
    if of == 0 { String::from("-") } else { units::percent(n as f64 / of as f64) }
}

/// A time: "80 ns", "1.23 ms".
fn time(ns: u64) -> String {
    if ns < 1000 { format!("{ns} ns") } else { units::seconds(ns as f64 / 1e9) }
}

/// Whoever reads a report is not to be fooled by what a program calls its things.
fn harmless(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// "2026-11-21 18:00:05 UTC", of nanoseconds since 1970.
fn date(unix_ns: u64) -> String {
    let seconds = unix_ns / 1_000_000_000;
    let (mut days, rest) = (seconds / 86_400, seconds % 86_400);
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let months = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= months[month] {
        days -= months[month];
        month += 1;
    }
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year}-{:02}-{:02} {hour:02}:{minute:02}:{second:02} UTC", month + 1, days + 1)
}

impl Info<'_> {
    /// Nanoseconds from the first event to the last one.
    fn duration_ns(&self) -> u64 {
        self.trace.duration_ns(self.summary.last.saturating_sub(self.summary.first))
    }

    /// Events that are not in the trace: what it says itself, at its end or in between.
    fn lost(&self) -> u64 {
        let noted = self.summary.lost.iter().fold(0u64, |sum, &n| sum.saturating_add(n));
        self.trace.end().map_or(noted, |end| end.lost.max(noted))
    }

    /// Resident bytes when most bytes were live, or shortly before.
    fn resident_at_peak(&self) -> Option<u64> {
        self.summary.resident_at_peak.map(|now| now.anonymous.saturating_add(now.file))
    }

    /// The rows that lead by a number, if it is not 0.
    fn leading(&self, key: impl Fn(&CallSite) -> u64) -> Vec<&CallSite> {
        let mut sites: Vec<&CallSite> = self.sites.iter().filter(|site| key(site) > 0).collect();
        sites.sort_by_key(|site| (std::cmp::Reverse(key(site)), site.frames.first()));
        sites.truncate(self.top);
        sites
    }

    /// Sentences about what is not as it should be, which people see on standard error.
    pub fn complaints(&self) -> Vec<String> {
        let file = &self.file;
        let mut all: Vec<String> =
            self.damage.places.iter().map(|place| format!("{file}: {place}")).collect();
        let more = self.damage.count - all.len() as u64;
        if more > 0 {
            let bytes = self.damage.bytes;
            all.push(format!("{file}: and {more} more places; {bytes} bytes left out in all"));
        }
        all.extend(end::complaint(self));
        all
    }
}

// ---- text -----------------------------------------------------------------------------------------

/// The report as text.
pub fn text(info: &Info, style: Style) -> String {
    let mut text = head(info, style);
    let mut section = |title: &str, body: String| {
        if !body.is_empty() {
            text += &format!("\n{}\n{body}", style.bold(title));
        }
    };
    section("Events", kinds(info, style));
    if info.summary.births > 0 {
        section("Sizes of allocations", sizes(info, style));
        section("Sizes asked for most often", top_sizes(info, style));
        section("Lifetimes, in allocations", lifetimes_allocs(info, style));
        section("Lifetimes, in time", lifetimes_time(info, style));
        section("Frees", frees(info, style));
        section("Reallocs", reallocs(info, style));
        section("Live memory", live(info, style));
    }
    section("Call sites by bytes live at the peak", sites(info, style, |site| site.peak_bytes));
    section("Call sites by bytes allocated", sites(info, style, |site| site.bytes));
    section("Call sites by allocations", sites(info, style, |site| site.count));
    section("Call sites by temporary allocations", sites(info, style, |site| site.temporary));
    section("Call sites by bytes live at the end", sites(info, style, |site| site.live_bytes));
    section("Large blocks of calloc", calloc(info, style));
    section("Threads", threads(info, style));
    section("Pools", pools(info, style));
    section("Notes of the program", marks(info));
    section("Impossible events", impossible(info, style));
    section("Files without names", without_names(info));
    text
}

/// Rows of a name and a text.
fn pairs(style: Style, rows: Vec<(&str, String)>) -> String {
    let rows = rows.into_iter().map(|(name, value)| vec![Text::from(name.to_owned()), Text::from(value)]);
    table::render(style, &[Align::Left, Align::Left], &[], rows.collect())
}

fn head(info: &Info, style: Style) -> String {
    let (head, summary) = (info.trace.head(), info.summary);
    let mut rows = Vec::new();
    let command = if head.command.is_empty() { head.program.clone() } else { head.command.join(" ") };
    let or = |text: &str, other: &str| if text.is_empty() { other.to_owned() } else { harmless(text) };
    let mut process = or(&command, "not named");
    if head.process != 0 {
        process += &format!(" (process {})", head.process);
    }
    rows.push(("program", process));
    let mut when = time(info.duration_ns());
    if head.start_unix_ns > 0 {
        when += &format!(", from {}", date(head.start_unix_ns));
    }
    rows.push(("time", when));
    let mut how = or(&head.writer, "an unnamed writer");
    match head.stacks.as_str() {
        "" | "none" => how += "; no call stacks",
        stacks => how += &format!("; call stacks: {}", harmless(stacks)),
    }
    if head.sample > 0 {
        how += &format!("; sampled, one allocation in {}", bytes(head.sample));
    }
    if !head.malloc.is_empty() {
        how += &format!("; malloc of {}", harmless(&head.malloc));
    }
    rows.push(("recorded by", how));
    let mut size = format!("{}, {} events", bytes(info.trace.bytes()), count(summary.events));
    if summary.events > 0 {
        size += &format!(", {:.1} bytes each", info.trace.bytes() as f64 / summary.events as f64);
    }
    size += &format!(", {} lost", count(info.lost()));
    rows.push(("trace", size));
    rows.push(("end", end::text(info)));
    for (name, list) in [
        ("forked", summary.notes.forks.iter().map(u32::to_string).collect::<Vec<_>>()),
        ("became", summary.notes.execs.iter().map(|program| harmless(program)).collect()),
    ] {
        if !list.is_empty() {
            rows.push((name, list.join(", ")));
        }
    }
    if !info.damage.is_empty() {
        rows.push((
            "damage",
            format!("{} places, {} left out", count(info.damage.count), bytes(info.damage.bytes)),
        ));
    }
    pairs(style, rows)
}

/// Files whose functions cannot be named, each with the reason.
fn without_names(info: &Info) -> String {
    let mut text = String::new();
    for missing in info.missing.iter().take(info.top) {
        text += &format!("{}\n", harmless(missing));
    }
    let more = info.missing.len().saturating_sub(info.top);
    if more > 0 {
        text += &format!("and {} more\n", count(more as u64));
    }
    text
}

fn kinds(info: &Info, style: Style) -> String {
    let most = info.summary.kinds.iter().map(|kind| kind.1).max().unwrap_or(0);
    let rows = info.summary.kinds.iter().map(|&(name, n)| {
        [name.to_owned(), count(n), part(n, info.summary.events), bars::bar(n as f64 / most as f64, BAR)]
            .map(Text::from)
            .to_vec()
    });
    table::render(style, &[Align::Left, Align::Right, Align::Right, Align::Left], &[], rows.collect())
}

/// A histogram with a bar for each power of two.
fn histogram(histogram: &Histogram, style: Style, what: &str, label: impl Fn(u64) -> String) -> String {
    let most = histogram.bars.iter().map(|bar| bar.count).max().unwrap_or(0);
    let rows = histogram.filled().map(|index| {
        let bar = histogram.bars[index];
        let (low, high) = Histogram::range(index);
        let range = if low == high { label(low) } else { format!("{} … {}", label(low), label(high)) };
        let cells = [
            range,
            count(bar.count),
            part(bar.count, histogram.count),
            bytes(bar.bytes),
            bars::bar(bar.count as f64 / most as f64, BAR),
        ];
        cells.map(Text::from).to_vec()
    });
    let align = [Align::Right, Align::Right, Align::Right, Align::Right, Align::Left];
    table::render(style, &align, &[what, "blocks", "", "bytes", ""], rows.collect())
}

fn sizes(info: &Info, style: Style) -> String {
    let summary = info.summary;
    let mut text = format!(
        "{} allocations of {} on average, of {} different sizes",
        count(summary.births),
        units::bytes(
            summary.sizes.bars.iter().map(|bar| bar.bytes as f64).sum::<f64>()
                / summary.sizes.count.max(1) as f64
        ),
        count(summary.distinct_sizes)
    );
    let ns = info.duration_ns();
    if ns > 0 {
        text += &format!("; {} in a second", count((summary.births as f64 * 1e9 / ns as f64) as u64));
    }
    if summary.zeroed > 0 {
        text += &format!("; {} zeroed", part(summary.zeroed, summary.births));
    }
    if summary.aligned > 0 {
        text += &format!("; {} aligned", part(summary.aligned, summary.births));
    }
    text + "\n" + &histogram(&summary.sizes, style, "size", |size| units::bytes(size as f64))
}

fn top_sizes(info: &Info, style: Style) -> String {
    let summary = info.summary;
    let row = |&(size, n): &(u64, u64)| {
        let sum = (size as f64) * (n as f64);
        let cells = [count(size), count(n), part(n, summary.sizes.count), units::bytes(sum)];
        cells.map(Text::from).to_vec()
    };
    let rows = summary.top_sizes.iter().take(info.top).map(row).collect();
    let mut text = table::render(style, &[Align::Right; 4], &["bytes", "blocks", "", "in all"], rows);
    if summary.uncounted_sizes > 0 {
        text += &format!("{} requests of still other sizes are left out\n", count(summary.uncounted_sizes));
    }
    text
}

/// "half of the blocks ended within 3, nine tenths within 500".
fn quantiles(histogram: &Histogram, label: impl Fn(u64) -> String) -> String {
    let (half, most) = (histogram.quantile(0.5), histogram.quantile(0.9));
    format!(
        "half of the blocks that ended did so within {}, nine tenths within {}\n",
        label(half),
        label(most)
    )
}

fn lifetimes_allocs(info: &Info, style: Style) -> String {
    let lifetimes = &info.summary.lifetimes_allocs;
    if lifetimes.count == 0 {
        return String::new();
    }
    let text = quantiles(lifetimes, |n| format!("{} allocations", count(n)));
    text + &histogram(lifetimes, style, "allocations later", count)
}

/// The same by nanoseconds: ticks have no unit that means anything.
fn in_time(info: &Info) -> Histogram {
    let mut by_ns = Histogram::default();
    let ticks = &info.summary.lifetimes_ticks;
    for index in ticks.filled() {
        let (low, high) = Histogram::range(index);
        let bar = ticks.bars[index];
        // The middle of a bar stands for what is in it.
        let ns = info.trace.duration_ns(low + (high - low) / 2);
        let to = &mut by_ns.bars[(64 - ns.leading_zeros()) as usize];
        to.count += bar.count;
        to.bytes = to.bytes.wrapping_add(bar.bytes);
        by_ns.count += bar.count;
    }
    by_ns
}

fn lifetimes_time(info: &Info, style: Style) -> String {
    let lifetimes = in_time(info);
    if lifetimes.count == 0 {
        return String::new();
    }
    quantiles(&lifetimes, time) + &histogram(&lifetimes, style, "time", time)
}

fn frees(info: &Info, style: Style) -> String {
    let frees = &info.summary.frees;
    if frees.count == 0 {
        return String::new();
    }
    let of =
        |n: u64, size: u64| format!("{} ({} of all frees), {}", count(n), part(n, frees.count), bytes(size));
    let mut rows = vec![
        ("blocks freed", format!("{}, {}", count(frees.count), bytes(frees.bytes))),
        ("by another thread", of(frees.foreign, frees.foreign_bytes)),
        ("temporary", of(frees.temporary, frees.temporary_bytes)),
    ];
    if frees.looked_at > 0 {
        rows.push((
            "resident at their end",
            format!(
                "{} of {} in {} blocks that were looked at",
                bytes(frees.touched_bytes),
                bytes(frees.looked_at_bytes),
                count(frees.looked_at)
            ),
        ));
    }
    pairs(style, rows)
}

fn reallocs(info: &Info, style: Style) -> String {
    let reallocs = &info.summary.reallocs;
    if reallocs.count == 0 {
        return String::new();
    }
    let of = |n: u64| format!("{} ({})", count(n), part(n, reallocs.count));
    let mean = info.trace.duration_ns(reallocs.ticks) / reallocs.count;
    pairs(
        style,
        vec![
            ("reallocs", format!("{}, {} on average", count(reallocs.count), time(mean))),
            ("stayed in place", of(reallocs.in_place)),
            ("moved", format!("{}, {} to copy", of(reallocs.moved), bytes(reallocs.copied))),
            ("grew", of(reallocs.grew)),
            ("shrank", of(reallocs.shrank)),
            ("same size", of(reallocs.same)),
        ],
    )
}

fn live(info: &Info, style: Style) -> String {
    let (summary, trace) = (info.summary, info.trace);
    let after = |ticks: u64| time(trace.duration_ns(ticks.saturating_sub(summary.first)));
    let peak = &summary.peak;
    let mut rows = vec![
        (
            "peak",
            format!(
                "{} ({} bytes) in {} blocks, after {} and {} allocations",
                bytes(peak.bytes),
                count(peak.bytes),
                count(peak.objects),
                after(peak.time),
                count(peak.births)
            ),
        ),
        ("most blocks", count(summary.peak_objects)),
        ("at the end", format!("{} in {} blocks still live", bytes(summary.live_bytes), count(summary.live))),
    ];
    if let Some(resident) = info.resident_at_peak() {
        rows.push((
            "resident at the peak",
            format!("{}; live: {} of it", bytes(resident), part(peak.bytes, resident)),
        ));
    }
    if let Some(most) = &summary.resident_peak {
        let (anonymous, file) = (most.anonymous, most.file);
        let sum = anonymous.saturating_add(file);
        let parts = format!("{} anonymous, {} of files", bytes(anonymous), bytes(file));
        rows.push(("resident at most", format!("{} ({parts}), after {}", bytes(sum), after(most.time))));
    }
    let mut text = pairs(style, rows);
    let width = style.width.map_or(CURVE, |width| usize::from(width).saturating_sub(12).clamp(20, CURVE));
    let curves =
        [("live bytes", &summary.curve), ("blocks", &summary.objects), ("resident", &summary.resident)];
    for (name, curve) in curves {
        let points = curve.points();
        if points.len() > 1 {
            let values = bars::columns(&points, summary.first, summary.last, width);
            text += &format!("{name:>10}  {}\n", bars::spark(&values, curve.most()));
        }
    }
    text
}

fn sites(info: &Info, style: Style, key: impl Fn(&CallSite) -> u64) -> String {
    /// Callers that are shown below the function itself.
    const CALLERS: usize = 2;
    let sites = info.leading(key);
    if sites.is_empty() {
        return String::new();
    }
    let rows = sites.into_iter().map(|site| {
        let callers: Vec<String> =
            site.frames.iter().take(1 + CALLERS).map(|frame| harmless(frame)).collect();
        let cells = [
            bytes(site.peak_bytes),
            bytes(site.bytes),
            count(site.count),
            part(site.temporary, site.count),
            bytes(site.live_bytes),
            callers.join("\n  < "),
        ];
        cells.map(Text::from).to_vec()
    });
    let names = ["at the peak", "allocated", "allocations", "temporary", "at the end", "where"];
    let align = [Align::Right, Align::Right, Align::Right, Align::Right, Align::Right, Align::Left];
    table::render(style, &align, &names, rows.collect())
}

/// Which were fresh from the kernel, which had to be cleared, and what was touched afterwards.
fn calloc(info: &Info, style: Style) -> String {
    let row = |sums: &Zeroed, place: String| {
        let cells = [
            count(sums.count),
            bytes(sums.bytes),
            bytes(sums.fresh()),
            bytes(sums.cleared),
            if sums.ended_bytes > 0 { bytes(sums.touched) } else { String::from("-") },
            bytes(sums.ended_bytes),
            place,
        ];
        cells.map(Text::from).to_vec()
    };
    let all = &info.summary.calloc;
    if all.count == 0 {
        return String::new();
    }
    let mut rows = vec![row(all, String::from("all"))];
    let sites = info.leading(|site| site.zeroed.bytes);
    rows.extend(sites.into_iter().map(|site| row(&site.zeroed, harmless(&site.frames[0]))));
    let names = ["blocks", "asked for", "fresh", "cleared", "touched later", "of ended", "where"];
    let mut align = [Align::Right; 7];
    align[6] = Align::Left;
    table::render(style, &align, &names, rows)
}

fn threads(info: &Info, style: Style) -> String {
    let mut threads: Vec<_> = info.summary.threads.iter().collect();
    let all = threads.len();
    threads.sort_by_key(|thread| (std::cmp::Reverse(thread.allocs + thread.frees), thread.thread));
    threads.truncate(info.top);
    let rows = threads.into_iter().map(|thread| {
        let tid = if thread.tid == 0 { String::from("-") } else { thread.tid.to_string() };
        let life = info.trace.duration_ns(thread.last.saturating_sub(thread.first));
        let cells = [
            thread.thread.to_string(),
            tid,
            harmless(&thread.name),
            count(thread.allocs),
            bytes(thread.bytes),
            count(thread.frees),
            part(thread.foreign_frees, thread.frees),
            count(thread.reallocs),
            time(life),
            String::from(end::of_thread_in_words(info, thread)),
        ];
        cells.map(Text::from).to_vec()
    });
    let names = [
        "thread",
        "tid",
        "name",
        "allocations",
        "bytes",
        "frees",
        "of others' blocks",
        "reallocs",
        "life",
        "end",
    ];
    let mut align = [Align::Right; 10];
    (align[2], align[9]) = (Align::Left, Align::Left);
    let text = table::render(style, &align, &names, rows.collect());
    if all > info.top { text + &format!("and {} more\n", count((all - info.top) as u64)) } else { text }
}

fn pools(info: &Info, style: Style) -> String {
    let pools = &info.summary.pools;
    if pools.is_empty() {
        return String::new();
    }
    let mut shown: Vec<_> = pools.iter().collect();
    shown.sort_by_key(|pool| (std::cmp::Reverse(pool.bytes), pool.number));
    let rows = shown.into_iter().take(info.top).map(|pool| {
        let cells = [
            pool.number.to_string(),
            if pool.parent == 0 { String::new() } else { pool.parent.to_string() },
            harmless(&pool.kind),
            harmless(&pool.name),
            count(pool.allocs),
            bytes(pool.bytes),
            count(pool.frees),
            count(pool.ended),
            count(pool.pushed),
            bytes(pool.peak_bytes),
            bytes(pool.live_bytes),
            bytes(pool.held),
            String::from(if pool.destroyed { "" } else { "not destroyed" }),
        ];
        cells.map(Text::from).to_vec()
    });
    let names = [
        "pool",
        "parent",
        "kind",
        "name",
        "allocations",
        "bytes",
        "freed",
        "with frame",
        "frames",
        "peak live",
        "live",
        "peak held",
        "",
    ];
    let mut align = [Align::Right; 13];
    (align[2], align[3], align[12]) = (Align::Left, Align::Left, Align::Left);
    let mut text = table::render(style, &align, &names, rows.collect());
    let more = pools.len().saturating_sub(info.top);
    if more > 0 {
        text += &format!("and {} more\n", count(more as u64));
    }
    let (unknown, doubled) = pools
        .iter()
        .fold((0, 0), |(unknown, doubled), pool| (unknown + pool.unknown, doubled + pool.doubled));
    if unknown > 0 {
        text += &format!("{} ends of blocks and frames from before the recording\n", count(unknown));
    }
    if doubled > 0 {
        text +=
            &format!("{} allocations where a block of the pool is live, which cannot be\n", count(doubled));
    }
    text
}

fn marks(info: &Info) -> String {
    let marks = info.summary.notes.marks.iter().take(info.top);
    let line = |(ticks, note): &(u64, String)| {
        let after = info.trace.duration_ns(ticks.saturating_sub(info.summary.first));
        format!("{:>10}  {}\n", time(after), harmless(note))
    };
    marks.map(line).collect()
}

fn impossible(info: &Info, style: Style) -> String {
    let impossible = &info.summary.impossible;
    if impossible.total() == 0 {
        return String::new();
    }
    let rows = [
        ("frees of blocks that are not live", impossible.free_of_unknown),
        ("reallocs of blocks that are not live", impossible.realloc_of_unknown),
        ("allocations of live blocks", impossible.alloc_of_live),
        ("reallocs to live blocks", impossible.realloc_to_live),
        ("allocations beyond 2^32 live blocks", impossible.full),
    ];
    let rows = rows.into_iter().filter(|row| row.1 > 0).map(|(name, n)| (name, count(n)));
    pairs(style, rows.collect()) + "Blocks from before the recording, or records that are lost.\n"
}

#[cfg(test)]
mod tests;
