// SPDX-License-Identifier: MIT
//! The report of `quarry info`: what a trace of allocations says, as text with pictures of characters, and in
//! [`json`] with the schema quarry-info/1.

mod end;
mod json;
mod sites;

use std::ops::AddAssign;
use std::rc::Rc;

use quarry_trace::analysis::{Histogram, Site, Summary, ThreadSum, Zeroed};
use quarry_trace::sample::{Estimate, Means};
use quarry_trace::{Damage, Trace};

use crate::bars;
use crate::style::Style;
use crate::table::{self, Align, Text};
use crate::units;

pub use end::Now;
pub use json::{SCHEMA, json};

/// What one place in the code, or one call stack, allocated.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sums {
    /// Allocations and reallocs.
    pub count: Estimate,
    /// Bytes requested by them.
    pub bytes: Estimate,
    /// Blocks of it that are live at the end.
    pub live: Estimate,
    /// Bytes of them.
    pub live_bytes: Estimate,
    /// Bytes of it that were live when most were.
    pub peak_bytes: Estimate,
    /// Allocations whose free was their thread's next event.
    pub temporary: Estimate,
}

impl From<&Site> for Sums {
    fn from(site: &Site) -> Self {
        let &Site { count, bytes, live, live_bytes, peak_bytes, temporary, .. } = site;
        Self { count, bytes, live, live_bytes, peak_bytes, temporary }
    }
}

impl AddAssign for Sums {
    fn add_assign(&mut self, other: Self) {
        self.count += other.count;
        self.bytes += other.bytes;
        self.live += other.live;
        self.live_bytes += other.live_bytes;
        self.peak_bytes += other.peak_bytes;
        self.temporary += other.temporary;
    }
}

/// A call stack of a place in the code.
#[derive(Debug, Clone, Default)]
pub struct Stack {
    /// The function that allocated, and its callers.
    pub frames: Vec<Rc<str>>,
    /// What it allocated.
    pub sums: Sums,
}

/// What was allocated from one place in the code.
#[derive(Debug, Clone, Default)]
pub struct CallSite {
    /// Its call stacks, the one with most bytes first. There is one at least.
    pub stacks: Vec<Stack>,
    /// What all of them allocated.
    pub sums: Sums,
    /// Its large blocks of calloc.
    pub zeroed: Zeroed,
}

impl CallSite {
    /// The function that allocated, and its callers in the heaviest stack.
    pub fn frames(&self) -> &[Rc<str>] {
        self.stacks.first().map_or(&[], |stack| &stack.frames)
    }
}

/// What there is to report about a trace.
#[derive(Debug, Clone, Copy)]
pub struct Info<'a> {
    /// The file.
    pub file: &'a str,
    /// The trace.
    pub trace: &'a Trace,
    /// What its events say.
    pub summary: &'a Summary,
    /// What of it could not be read.
    pub damage: &'a Damage,
    /// The file of another tool that it was made of was cut off or damaged.
    pub source_damaged: bool,
    /// Where blocks came from, in no order; empty if no stacks were recorded.
    pub sites: &'a [CallSite],
    /// Files without symbols, and why.
    pub missing: &'a [String],
    /// How many rows of a table.
    pub top: usize,
    /// What its process does, if it is known to go on.
    pub now: Option<Now>,
    /// Is every call stack of a site to be shown?
    pub all_stacks: bool,
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

/// " (273 MiB … 301 MiB)" behind an estimate, nothing behind what is known.
fn between(sum: &Estimate, label: impl Fn(u64) -> String) -> String {
    let (low, high) = sum.interval();
    let (low, high) = (label(low), label(high));
    if low == high { String::new() } else { format!(" ({low} … {high})") }
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
        self.trace.lost(noted)
    }

    /// Resident bytes when most bytes were live, or shortly before.
    fn resident_at_peak(&self) -> Option<u64> {
        self.summary.resident_at_peak.map(|now| now.anonymous.saturating_add(now.file))
    }

    /// The rows that lead by a number, if it is not 0.
    fn leading(&self, key: impl Fn(&CallSite) -> u64) -> Vec<&CallSite> {
        let mut sites: Vec<&CallSite> = self.sites.iter().filter(|site| key(site) > 0).collect();
        sites.sort_by_key(|site| (std::cmp::Reverse(key(site)), site.frames().first()));
        sites.truncate(self.top);
        sites
    }

    /// Sentences about what is not as it should be, which people see on standard error.
    pub fn complaints(&self) -> Vec<String> {
        let file = self.file;
        let mut all: Vec<String> =
            self.damage.places.iter().map(|place| format!("{file}: {place}")).collect();
        let more = self.damage.count - all.len() as u64;
        if more > 0 {
            let (places, bytes) = (units::noun(more, "place"), units::of(self.damage.bytes, "byte"));
            all.push(format!("{file}: and {more} more {places}; {bytes} left out in all"));
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
    if info.summary.births.value() > 0 {
        section("Sizes of allocations", sizes(info, style));
        section("Sizes asked for most often", top_sizes(info, style));
        section("Lifetimes, in allocations", lifetimes_allocs(info, style));
        section("Lifetimes, in time", lifetimes_time(info, style));
        section("Frees", frees(info, style));
        section("Reallocs", reallocs(info, style));
        section("Live memory", live(info, style));
    }
    section("Call sites by bytes live at the peak", sites::table(info, style, |sums| sums.peak_bytes));
    section("Call sites by bytes allocated", sites::table(info, style, |sums| sums.bytes));
    section("Call sites by allocations", sites::table(info, style, |sums| sums.count));
    section("Call sites by temporary allocations", sites::table(info, style, |sums| sums.temporary));
    section("Call sites by bytes live at the end", sites::table(info, style, |sums| sums.live_bytes));
    section("Large blocks of calloc", sites::calloc(info, style));
    section("Threads", threads(info, style));
    section("Pools", pools(info, style));
    section("Notes", marks(info));
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
    let or = |text: &str, other: &str| if text.is_empty() { other.to_owned() } else { harmless(text) };
    let mut process = or(&head.command_line(), "not named");
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
    if !head.malloc.is_empty() {
        how += &format!("; malloc of {}", harmless(&head.malloc));
    }
    rows.push(("recorded by", how));
    if head.sample > 0 {
        rows.push(("sample", sampled(summary.means)));
    }
    let mut size = format!("{}, {}", bytes(info.trace.bytes()), units::of(summary.events, "event"));
    if summary.events > 0 {
        size += &format!(", {:.1} bytes each", info.trace.bytes() as f64 / summary.events as f64);
    }
    size += &format!(", {} lost", count(info.lost()));
    rows.push(("trace", size));
    rows.push(("end", end::text(info)));
    let (became, tried) = end::execs(info);
    for (name, list) in [
        ("forked", summary.notes.forks.iter().map(u32::to_string).collect::<Vec<_>>()),
        ("tried", tried.iter().map(|program| harmless(program)).collect()),
        ("became", became.map(harmless).into_iter().collect()),
    ] {
        if !list.is_empty() {
            rows.push((name, list.join(", ")));
        }
    }
    if !info.damage.is_empty() {
        rows.push((
            "damage",
            format!("{}, {} left out", units::of(info.damage.count, "place"), bytes(info.damage.bytes)),
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

/// What the sums below are.
fn sampled(means: Means) -> String {
    format!(
        "one byte in {} was drawn, and the blocks they lie in recorded: all sums below are estimates of the whole, \
         each between the bounds of its 95 % interval where those stand beside; temporary blocks and the sizes \
         before a realloc are not known",
        means.words(bytes)
    )
}

fn kinds(info: &Info, style: Style) -> String {
    let kinds = info.summary.kinds.iter().map(|(name, sum)| (*name, sum.value()));
    let kinds: Vec<(&str, u64)> = kinds.collect();
    let most = kinds.iter().map(|kind| kind.1).max().unwrap_or(0);
    let all = kinds.iter().map(|kind| kind.1).fold(0, u64::saturating_add);
    let rows = kinds.iter().map(|&(name, n)| {
        [name.to_owned(), count(n), part(n, all), bars::bar(n as f64 / most as f64, BAR)]
            .map(Text::from)
            .to_vec()
    });
    table::render(style, &[Align::Left, Align::Right, Align::Right, Align::Left], &[], rows.collect())
}

/// A histogram with a bar for each power of two.
fn histogram(histogram: &Histogram, style: Style, what: &str, label: impl Fn(u64) -> String) -> String {
    let most = histogram.bars.iter().map(|bar| bar.count.value()).max().unwrap_or(0);
    let rows = histogram.filled().map(|index| {
        let bar = histogram.bars[index];
        let (low, high) = Histogram::range(index);
        let range = if low == high { label(low) } else { format!("{} … {}", label(low), label(high)) };
        let cells = [
            range,
            count(bar.count.value()),
            part(bar.count.value(), histogram.count.value()),
            bytes(bar.bytes.value()),
            bars::bar(bar.count.value() as f64 / most as f64, BAR),
        ];
        cells.map(Text::from).to_vec()
    });
    let align = [Align::Right, Align::Right, Align::Right, Align::Right, Align::Left];
    table::render(style, &align, &[what, "blocks", "", "bytes", ""], rows.collect())
}

fn sizes(info: &Info, style: Style) -> String {
    let summary = info.summary;
    let births = summary.births.value();
    let all = summary.sizes.bars.iter().map(|bar| bar.bytes.value() as f64).sum::<f64>();
    let mut text = format!(
        "{}{} {} of {} on average, of {}{} different {}",
        count(births),
        between(&summary.births, count),
        units::noun(births, "allocation"),
        units::bytes(all / summary.sizes.count.value().max(1) as f64),
        // Sizes that were never drawn are not known.
        if summary.sampling.is_sample() { "at least " } else { "" },
        count(summary.distinct_sizes),
        units::noun(summary.distinct_sizes, "size")
    );
    let ns = info.duration_ns();
    if ns > 0 {
        text += &format!("; {} in a second", count((births as f64 * 1e9 / ns as f64) as u64));
    }
    if summary.zeroed.value() > 0 {
        text += &format!("; {} zeroed", part(summary.zeroed.value(), births));
    }
    if summary.aligned.value() > 0 {
        text += &format!("; {} aligned", part(summary.aligned.value(), births));
    }
    text + "\n" + &histogram(&summary.sizes, style, "size", |size| units::bytes(size as f64))
}

fn top_sizes(info: &Info, style: Style) -> String {
    let summary = info.summary;
    let row = |(size, blocks): &(u64, Estimate)| {
        let (size, n) = (*size, blocks.value());
        let sum = (size as f64) * (n as f64);
        let blocks = count(n) + &between(blocks, count);
        let cells = [count(size), blocks, part(n, summary.sizes.count.value()), units::bytes(sum)];
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
    if lifetimes.count.value() == 0 {
        return String::new();
    }
    let text = quantiles(lifetimes, |n| units::of(n, "allocation"));
    text + &histogram(lifetimes, style, "allocations later", count)
}

fn lifetimes_time(info: &Info, style: Style) -> String {
    let lifetimes = &info.summary.lifetimes_ticks;
    if lifetimes.count.value() == 0 {
        return String::new();
    }
    // Bars are of ticks, whose unit means nothing. The bounds of a bar are times.
    let label = |ticks: u64| time(info.trace.duration_ns(ticks));
    quantiles(lifetimes, label) + &histogram(lifetimes, style, "time", label)
}

fn frees(info: &Info, style: Style) -> String {
    let frees = &info.summary.frees;
    let all = frees.count.value();
    if all == 0 {
        return String::new();
    }
    let of = |n: u64, size: u64| format!("{} ({} of all frees), {}", count(n), part(n, all), bytes(size));
    let freed =
        [count(all), between(&frees.count, count), String::from(", "), bytes(frees.bytes.value())].concat();
    let mut rows = vec![
        ("blocks freed", freed + &between(&frees.bytes, bytes)),
        ("by another thread", of(frees.foreign.value(), frees.foreign_bytes.value())),
    ];
    if !info.summary.sampling.is_sample() {
        rows.push(("temporary", of(frees.temporary.value(), frees.temporary_bytes.value())));
    }
    if frees.looked_at.value() > 0 {
        rows.push((
            "resident at their end",
            format!(
                "{} of {} in {} looked at",
                bytes(frees.touched_bytes.value()),
                bytes(frees.looked_at_bytes.value()),
                units::of(frees.looked_at.value(), "block")
            ),
        ));
    }
    pairs(style, rows)
}

fn reallocs(info: &Info, style: Style) -> String {
    let reallocs = &info.summary.reallocs;
    let all = reallocs.count.value();
    if all == 0 {
        return String::new();
    }
    let of = |n: u64| format!("{} ({})", count(n), part(n, all));
    let mean = info.trace.duration_ns(reallocs.ticks.value()) / all;
    let reallocs_of = format!("{}{}, {} on average", count(all), between(&reallocs.count, count), time(mean));
    let mut rows = vec![("reallocs", reallocs_of), ("stayed in place", of(reallocs.in_place.value()))];
    let moved = of(reallocs.moved.value());
    if info.summary.sampling.is_sample() {
        rows.push(("moved", moved));
    } else {
        rows.push(("moved", format!("{moved}, {} to copy", bytes(reallocs.copied))));
        rows.push(("grew", of(reallocs.grew)));
        rows.push(("shrank", of(reallocs.shrank)));
        rows.push(("same size", of(reallocs.same)));
    }
    pairs(style, rows)
}

fn live(info: &Info, style: Style) -> String {
    let (summary, trace) = (info.summary, info.trace);
    let after = |ticks: u64| time(trace.duration_ns(ticks.saturating_sub(summary.first)));
    let peak = &summary.peak;
    let estimated = |sum: &Estimate, label: fn(u64) -> String| label(sum.value()) + &between(sum, label);
    let mut rows = vec![
        (
            "peak",
            format!(
                "{} ({}){} in {}, after {} and {}",
                bytes(peak.bytes.value()),
                units::of(peak.bytes.value(), "byte"),
                between(&peak.bytes, bytes),
                units::of(peak.objects.value(), "block"),
                after(peak.time),
                units::of(peak.births.value(), "allocation")
            ),
        ),
        ("most blocks", estimated(&summary.peak_objects, count)),
        (
            "at the end",
            format!(
                "{} in {} {} still live",
                estimated(&summary.live_bytes, bytes),
                estimated(&summary.live, count),
                units::noun(summary.live.value(), "block")
            ),
        ),
    ];
    if let Some(resident) = info.resident_at_peak() {
        let share = |n| part(n, resident);
        rows.push((
            "resident at the peak",
            format!(
                "{}; live: {} of it{}",
                bytes(resident),
                share(peak.bytes.value()),
                between(&peak.bytes, share)
            ),
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

fn threads(info: &Info, style: Style) -> String {
    let mut threads: Vec<_> = info.summary.threads.iter().collect();
    let all = threads.len();
    let calls = |thread: &ThreadSum| thread.allocs.value().saturating_add(thread.frees.value());
    threads.sort_by_key(|thread| (std::cmp::Reverse(calls(thread)), thread.thread));
    threads.truncate(info.top);
    let rows = threads.into_iter().map(|thread| {
        let tid = if thread.tid == 0 { String::from("-") } else { thread.tid.to_string() };
        let life = info.trace.duration_ns(thread.last.saturating_sub(thread.first));
        let cells = [
            thread.thread.to_string(),
            tid,
            harmless(&thread.name),
            count(thread.allocs.value()) + &between(&thread.allocs, count),
            bytes(thread.bytes.value()) + &between(&thread.bytes, bytes),
            count(thread.frees.value()),
            part(thread.foreign_frees.value(), thread.frees.value()),
            count(thread.reallocs.value()),
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
        text += &format!("{} of a block or frame from before the recording\n", units::of(unknown, "end"));
    }
    if doubled > 0 {
        text += &format!(
            "{} where a block of the pool is live, which cannot be\n",
            units::of(doubled, "allocation")
        );
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
