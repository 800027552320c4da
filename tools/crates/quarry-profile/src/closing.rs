// SPDX-License-Identifier: MIT
//! What a sample says of the live blocks, held to what the process has counted of them.
//!
//! A process on Quarry counts its live blocks by size, exactly. So the sum is known, and the sample only divides it. Where blocks were sampled
//! from the start of the process on, the estimates of a size are multiplied by what is counted and divided by what was estimated of all of
//! them: the ratio estimator. Its error is that of a part of a known whole, so it is least for a site that has nearly all blocks of a size. Where
//! sampling began later, the rest of a size is what was live before.
//!
//! Blocks are as large here as they are in the heap. Each part is a number of whole bytes, and the parts add up to what was counted.

use std::collections::{BTreeMap, HashMap};

use quarry_report::style::Style;
use quarry_report::table::{self, Align, Text};
use quarry_trace::Counted;
use quarry_trace::sample::Weight;
use serde_json::{Value, json};

use crate::estimate::{FEW, bytes, part};
use crate::groups::Groups;
use crate::query::{name_of, number_of};
use crate::report::Report;

/// Half of the 95 % interval, in deviations.
const Z: f64 = 1.96;
/// More than any address space: a file may say anything.
const MOST: u64 = 1 << 56;
/// Sizes of blocks that are named.
const NAMED: usize = 8;

/// Sums over sampled blocks.
#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    drawn: u64,
    seen: f64,
    amount: f64,
    variance: f64,
}

impl Cell {
    fn add(&mut self, amount: u64, weight: Weight) {
        let (amount, unseen) = (amount as f64, weight.unseen());
        self.drawn += 1;
        self.seen += amount;
        self.amount += amount * (1.0 + unseen);
        self.variance += amount * amount * unseen * (1.0 + unseen);
    }

    fn include(&mut self, other: &Self) {
        self.drawn += other.drawn;
        self.seen += other.seen;
        self.amount += other.amount;
        self.variance += other.variance;
    }
}

/// Blocks of one size.
#[derive(Debug, Clone)]
struct Stratum {
    /// Of a block; 0: those that are of no class.
    block: u64,
    counted: u64,
    all: Cell,
    /// The sample gives the parts of what was counted. If not, there is more than was sampled.
    is_divided: bool,
}

impl Stratum {
    /// What an estimate is multiplied by.
    fn factor(&self) -> f64 {
        if self.is_divided && self.all.amount > 0.0 { self.counted as f64 / self.all.amount } else { 1.0 }
    }
}

/// A part of what was counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Part {
    /// Bytes.
    pub bytes: u64,
    /// In 95 of 100 samples the truth is between these.
    pub interval: (u64, u64),
    /// Sampled blocks of it.
    pub drawn: u64,
}

/// Live bytes at the end, divided.
#[derive(Debug, Clone)]
pub struct Closing {
    /// What was counted: the sum of all parts.
    pub total: u64,
    /// When, by the monotonic clock.
    pub at_ns: u64,
    /// Of sizes of which no block was sampled: the size, and the bytes. 0 stands for all that are larger than classes.
    pub not_sampled: Vec<(u64, u64)>,
    /// What lives since before the sampling.
    pub before: Part,
    /// Sizes are counted less often than all of it: what came and went between.
    pub changed: i64,
    strata: Vec<Stratum>,
    /// By row of the profile and stratum.
    cells: BTreeMap<(u32, u32), Cell>,
    /// By row.
    rows: Vec<u64>,
    /// Bytes of the sizes of which blocks were sampled.
    sampled: u64,
}

/// The strata of what was counted: classes by their size, and the large ones.
fn strata(counted: &Counted) -> Vec<Stratum> {
    let mut sizes: BTreeMap<u64, u64> = BTreeMap::new();
    for &(block, blocks) in counted.classes.iter().filter(|class| class.0 > 0) {
        let sum = sizes.entry(block.into()).or_default();
        *sum = sum.saturating_add(blocks.saturating_mul(block.into()));
    }
    // A damaged count may be anything, and all of them are added.
    let most = MOST / (sizes.len() as u64 + 1);
    let large = std::iter::once((0, counted.large_bytes));
    let stratum = |(block, counted): (u64, u64)| Stratum {
        block,
        counted: counted.min(most),
        all: Cell::default(),
        is_divided: true,
    };
    sizes.into_iter().chain(large).map(stratum).collect()
}

impl Closing {
    /// Divide what was counted among so many rows, by the sampled blocks that live: the row, the size and the weight of each.
    pub fn new(counted: &Counted, rows: usize, live: impl IntoIterator<Item = (u32, u64, Weight)>) -> Self {
        let mut strata = strata(counted);
        let large = strata.len() - 1;
        let mut cells: BTreeMap<(u32, u32), Cell> = BTreeMap::new();
        for (row, size, weight) in live {
            let number = strata[..large].partition_point(|stratum| stratum.block < size);
            let amount = if number == large { size } else { strata[number].block };
            strata[number].all.add(amount, weight);
            cells.entry((row, number as u32)).or_default().add(amount, weight);
        }
        let mut not_sampled = Vec::new();
        let (mut sampled, mut unsampled) = (0u64, 0u64);
        for stratum in &mut strata {
            stratum.is_divided = counted.whole || stratum.all.amount > stratum.counted as f64;
            if stratum.all.drawn > 0 || !counted.whole {
                sampled += stratum.counted;
            } else if stratum.counted > 0 {
                unsampled += stratum.counted;
                not_sampled.push((stratum.block, stratum.counted));
            }
        }
        let total = counted.live_bytes.min(MOST);
        let changed = total as i64 - (sampled + unsampled) as i64;
        let mut closing = Self {
            total,
            at_ns: counted.at_ns,
            not_sampled,
            before: Part::default(),
            changed,
            strata,
            cells,
            rows: vec![0; rows],
            sampled,
        };
        closing.share(counted.whole);
        closing
    }

    /// Whole bytes for each row. What is rounded off of one goes to the next.
    fn share(&mut self, whole: bool) {
        let mut shares = vec![0.0; self.rows.len()];
        for (&(row, number), cell) in &self.cells {
            shares[row as usize] += cell.amount * self.strata[number as usize].factor();
        }
        let (mut sum, mut given) = (0.0, 0u64);
        let last = shares.iter().rposition(|&share| share > 0.0);
        for (row, share) in shares.into_iter().enumerate() {
            sum += share;
            // What is divided is given whole, whatever floating point says of the sum.
            let until = if whole && Some(row) == last { self.sampled } else { sum.round() as u64 };
            let until = until.clamp(given, self.sampled);
            self.rows[row] = until - given;
            given = until;
        }
        if !whole {
            let drawn = self.strata.iter().filter(|stratum| !stratum.is_divided);
            let mut variance = 0.0;
            drawn.for_each(|stratum| variance += stratum.all.variance);
            let (low, high) = self.interval(given as f64, variance);
            // Sizes were counted earlier than all of it: what went since was live before, rather than sampled.
            let rest = |sum: u64| self.total.saturating_sub(sum);
            self.before = Part { bytes: rest(given), interval: (rest(high), rest(low)), drawn: 0 };
            self.changed = self.total as i64 - (given + self.before.bytes) as i64;
        }
    }

    /// Wilson's interval of a part of what is known, with as many draws as would leave this variance.
    fn interval(&self, sum: f64, variance: f64) -> (u64, u64) {
        let all = self.sampled as f64;
        let part = (sum / all).clamp(0.0, 1.0);
        if all <= 0.0 || variance <= 0.0 {
            return (sum.round() as u64, sum.round() as u64);
        }
        let draws = part * (1.0 - part) * all * all / variance;
        let bend = 1.0 + Z * Z / draws;
        let middle = (part + Z * Z / (2.0 * draws)) / bend;
        let half = Z / bend * (part * (1.0 - part) / draws + Z * Z / (4.0 * draws * draws)).sqrt();
        let (low, high) = if draws > 0.0 { (middle - half, middle + half) } else { (0.0, 1.0) };
        ((low.max(0.0) * all).floor() as u64, (high.min(1.0) * all).ceil() as u64)
    }

    /// What some rows have.
    pub fn part(&self, rows: &[u32]) -> Part {
        let mut mine: HashMap<u32, Cell> = HashMap::new();
        for &row in rows {
            for (&(_, number), cell) in self.cells.range((row, 0)..=(row, u32::MAX)) {
                mine.entry(number).or_default().include(cell);
            }
        }
        let (mut sum, mut variance, mut seen, mut drawn) = (0.0, 0.0, 0.0, 0);
        for (number, cell) in mine {
            let stratum = &self.strata[number as usize];
            sum += cell.amount * stratum.factor();
            variance += of_part(stratum, &cell);
            seen += cell.seen.min(stratum.counted as f64);
            drawn += cell.drawn;
        }
        let bytes = rows.iter().map(|&row| self.rows[row as usize]).sum::<u64>();
        let (low, high) = self.interval(sum, variance);
        Part { bytes, interval: (low.max(seen as u64).min(bytes), high.max(bytes)), drawn }
    }
}

/// The variance of a part of a stratum.
fn of_part(stratum: &Stratum, part: &Cell) -> f64 {
    let all = &stratum.all;
    if !stratum.is_divided || all.variance <= 0.0 {
        return part.variance;
    }
    let (share, factor) = (part.amount / all.amount, stratum.factor());
    // Those who have none of the drawn blocks may have some of the others (Agresti and Coull).
    if part.drawn == all.drawn {
        let draws = all.amount * all.amount / all.variance + Z * Z;
        let share = 1.0 - Z * Z / (2.0 * draws);
        return (stratum.counted as f64).powi(2) * share * (1.0 - share) / draws;
    }
    let others = (all.variance - part.variance).max(0.0);
    factor * factor * ((1.0 - share).powi(2) * part.variance + share * share * others)
}

/// What is shown: the first groups, and what the others have.
struct Shown {
    groups: Vec<(String, Part)>,
    others: u64,
}

fn shown(report: &Report, closing: &Closing) -> Shown {
    let (profile, calls, by) = (report.profile, report.calls, report.query.by);
    let groups = Groups::of(&report.answer.chosen, |row| number_of(profile, calls, by, row));
    let mut order: Vec<(u64, usize)> = (0..groups.len())
        .map(|group| (groups.rows(group).iter().map(|&row| closing.rows[row as usize]).sum(), group))
        .filter(|&(bytes, _)| bytes > 0)
        .collect();
    order.sort_unstable_by_key(|&(bytes, group)| (std::cmp::Reverse(bytes), group));
    let named = |&(_, group): &(u64, usize)| {
        let rows = groups.rows(group);
        (name_of(profile, calls, by, rows[0] as usize), closing.part(rows))
    };
    let groups: Vec<(String, Part)> = order.iter().take(report.query.top).map(named).collect();
    let all: u64 = closing.rows.iter().sum();
    let others = all - groups.iter().map(|group| group.1.bytes).sum::<u64>();
    Shown { groups, others }
}

fn estimate(part: &Part) -> String {
    let (low, high) = part.interval;
    match (bytes(part.bytes), bytes(low), bytes(high)) {
        (value, low, high) if low == high => value,
        (_, _, high) if part.drawn < FEW => format!("≤ {high}"),
        (value, low, high) => format!("{value} ({low} … {high})"),
    }
}

fn sizes(not_sampled: &[(u64, u64)]) -> String {
    let name = |&(block, _): &(u64, u64)| if block == 0 { "larger".to_owned() } else { bytes(block) };
    let mut names: Vec<String> = not_sampled.iter().take(NAMED).map(name).collect();
    if not_sampled.len() > NAMED {
        names.push(format!("{} more", not_sampled.len() - NAMED));
    }
    names.join(", ")
}

/// Title and note of the table.
pub(crate) const WORDS: (&str, &str) = (
    "Live at the end, as the process counts it",
    "the sum is exact, its parts are estimates; blocks with their rounding, as quarry explain has them",
);

/// The rows of the table: bytes, the part of the sum, and what it is.
pub(crate) fn rows(report: &Report, closing: &Closing) -> Vec<[String; 3]> {
    let shown = shown(report, closing);
    let mut rows: Vec<[String; 3]> = Vec::new();
    let mut add =
        |what: String, bytes: u64, name: String| rows.push([what, part(bytes, closing.total), name]);
    for (name, part) in shown.groups {
        add(estimate(&part), part.bytes, name);
    }
    let unsampled: u64 = closing.not_sampled.iter().map(|size| size.1).sum();
    let before = &closing.before;
    let (low, high) = (bytes(before.interval.0), bytes(before.interval.1));
    let before_text = format!("{} ({low} … {high})", bytes(before.bytes));
    for (what, bytes, name) in [
        (bytes(shown.others), shown.others, String::from("(others)")),
        (before_text, before.bytes, String::from("(allocated before sampling began, or not sampled)")),
        (bytes(unsampled), unsampled, format!("(not sampled: blocks of {})", sizes(&closing.not_sampled))),
    ] {
        if bytes > 0 {
            add(what, bytes, name);
        }
    }
    if closing.changed != 0 {
        let (sign, change) = (if closing.changed < 0 { "-" } else { "" }, closing.changed.unsigned_abs());
        add(format!("{sign}{}", bytes(change)), change, String::from("(changed between two counts)"));
    }
    add(bytes(closing.total), closing.total, String::from("all: counted by the process"));
    rows
}

/// The table.
pub(crate) fn text(report: &Report, closing: &Closing, style: Style) -> String {
    let align = [Align::Right, Align::Right, Align::Left];
    let names = ["live", "", report.query.by.name()];
    let rows = rows(report, closing).into_iter().map(|row| row.map(Text::from).to_vec()).collect();
    let (title, note) = WORDS;
    format!("\n{}\n{}{note}\n", style.bold(title), table::render(style, &align, &names, rows))
}

/// The same for machines.
pub(crate) fn json(report: &Report, closing: &Closing) -> Value {
    let shown = shown(report, closing);
    let part = |part: &Part| json!({ "bytes": part.bytes, "bytes_interval": [part.interval.0, part.interval.1], "sampled_blocks": part.drawn });
    let group = |(name, of): &(String, Part)| {
        let mut object = part(of);
        object["name"] = name.as_str().into();
        object
    };
    let size = |&(block, bytes): &(u64, u64)| json!({ "block_bytes": if block == 0 { Value::Null } else { block.into() }, "bytes": bytes });
    json!({
        "total_bytes": closing.total,
        "counted_monotonic_ns": closing.at_ns,
        "groups": shown.groups.iter().map(group).collect::<Vec<_>>(),
        "other_bytes": shown.others,
        "before": part(&closing.before),
        "not_sampled": closing.not_sampled.iter().map(size).collect::<Vec<_>>(),
        "changed_bytes": closing.changed,
    })
}

#[cfg(test)]
#[path = "closing_tests.rs"]
mod tests;
