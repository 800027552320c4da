// SPDX-License-Identifier: MIT
//! What of a profile is shown: which moment, which window, which rows together, in which order.

use std::collections::HashMap;

use quarry_trace::sample::Estimate;
use regex_lite::Regex;

use crate::calls::Calls;
use crate::model::{Division, Lifetimes, Live, Profile, Row, Sums};

/// The moment whose live bytes lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// When most bytes were live.
    Peak,
    /// The last event.
    End,
    /// The moment of this number among those that the profile kept.
    Moment(usize),
}

/// Which rows are one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum By {
    /// Those of the same line, or of the same address where lines are not known.
    #[default]
    Site,
    /// Those of the same function.
    Function,
    /// Those of the same mapped file.
    Module,
    /// Those of the same source file.
    File,
    /// Those of the same thread.
    Thread,
    /// Those of about the same size.
    Size,
}

impl By {
    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            By::Site => "site",
            By::Function => "function",
            By::Module => "module",
            By::File => "file",
            By::Thread => "thread",
            By::Size => "size",
        }
    }

    /// What the rows of the profile must be divided by.
    pub fn division(self) -> Division {
        match self {
            By::Thread => Division::Thread,
            By::Size => Division::Size,
            _ => Division::Stack,
        }
    }
}

/// What comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// Bytes live at the moment.
    Live,
    /// Growth in the window.
    Growth,
    /// Bytes allocated: in the window, if there is one.
    Allocated,
    /// Allocations: in the window, if there is one.
    Allocations,
    /// Temporary allocations.
    Temporary,
    /// Bytes live at the end.
    End,
}

/// A window of time: the numbers of its moments among those that the profile kept.
pub type Window = (usize, usize);

/// What is asked.
#[derive(Debug, Clone)]
pub struct Query {
    /// Which moment leads.
    pub at: At,
    /// Which window of time.
    pub window: Option<Window>,
    /// Which rows are one.
    pub by: By,
    /// The order.
    pub sort: Sort,
    /// Only stacks with a frame that this fits.
    pub filter: Option<Regex>,
    /// How many groups.
    pub top: usize,
}

/// What a window of time changed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Change {
    /// What was live at its beginning.
    pub from: Live,
    /// And at its end.
    pub to: Live,
    /// Allocations in it.
    pub allocs: Estimate,
    /// Bytes of them.
    pub bytes: Estimate,
    /// Growth that lasts. The window has sixteen parts, and the least that is live in one is its floor. This is the lowest floor of the
    /// last quarter, less the highest one of the first. So it is negative for what only comes and goes. Where the window has too few
    /// spans of time, it is the difference between its ends.
    pub sure: i64,
}

impl Change {
    /// Bytes that are live at its end more than at its beginning.
    pub fn growth(&self) -> i64 {
        self.to.bytes.value() as i64 - self.from.bytes.value() as i64
    }

    /// Half of the 95 % interval of the growth. Blocks that are live at both ends count twice, so it is rather too wide.
    pub fn error(&self) -> f64 {
        1.96 * (self.from.bytes.variance() + self.to.bytes.variance()).sqrt()
    }
}

/// Rows that are one.
#[derive(Debug, Clone, Default)]
pub struct Group {
    /// What they are called.
    pub name: String,
    /// Their numbers.
    pub rows: Vec<u32>,
    /// From the beginning to the end.
    pub sums: Sums,
    /// When the whole program had most.
    pub peak: Live,
    /// At the moment that was asked for.
    pub at: Live,
    /// In the window.
    pub change: Change,
    /// How long blocks lived.
    pub lives: Lifetimes,
    /// The call that has most of it.
    pub heaviest: u32,
}

impl Group {
    /// By what groups are ordered.
    fn key(&self, query: &Query) -> i128 {
        let window = query.window.is_some();
        match query.sort {
            Sort::Live => self.at.bytes.value().into(),
            Sort::Growth => self.change.sure.into(),
            Sort::Allocated if window => self.change.bytes.value().into(),
            Sort::Allocated => self.sums.bytes.value().into(),
            Sort::Allocations if window => self.change.allocs.value().into(),
            Sort::Allocations => self.sums.allocs.value().into(),
            Sort::Temporary => self.sums.temporary.into(),
            Sort::End => self.sums.live_bytes.value().into(),
        }
    }
}

/// What a query finds.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The first of the groups, in order.
    pub groups: Vec<Group>,
    /// All groups together.
    pub all: Group,
    /// How many groups there are.
    pub count: usize,
    /// The group with most lasting growth, shown or not, and its growth.
    pub grower: Option<(String, i64)>,
    /// By row of the profile: is it among them?
    pub chosen: Vec<bool>,
}

/// A row's live blocks at a moment.
pub fn live_at(row: &Row, at: At) -> Live {
    match at {
        At::Peak => row.peak,
        At::End => Live { blocks: row.sums.live, bytes: row.sums.live_bytes },
        At::Moment(number) => row
            .marks
            .get(number)
            .map_or_else(Live::default, |sums| Live { blocks: sums.live, bytes: sums.live_bytes }),
    }
}

/// Ask.
pub fn answer(profile: &Profile, calls: &Calls, query: &Query) -> Answer {
    let chosen: Vec<bool> = match &query.filter {
        None => vec![true; profile.rows.len()],
        Some(pattern) => {
            let fits = calls.fits(pattern);
            (0..profile.rows.len()).map(|row| fits[calls.leaf(row) as usize]).collect()
        }
    };
    let mut index: HashMap<String, usize> = HashMap::new();
    let mut groups: Vec<Group> = Vec::new();
    let mut all = Group { name: String::from("all"), ..Group::default() };
    for number in (0..profile.rows.len()).filter(|&number| chosen[number]) {
        let name = name_of(profile, calls, query.by, number);
        let place = match index.get(&name) {
            Some(&place) => place,
            None => {
                index.insert(name.clone(), groups.len());
                groups.push(Group { name, ..Group::default() });
                groups.len() - 1
            }
        };
        add(&mut groups[place], profile, query, number);
        add(&mut all, profile, query, number);
    }
    for group in groups.iter_mut().chain([&mut all]) {
        complete(group, profile, calls, query);
    }
    groups.sort_by(|a, b| b.key(query).cmp(&a.key(query)).then_with(|| a.name.cmp(&b.name)));
    let grower = groups.iter().max_by_key(|group| group.change.sure);
    let grower = grower.map(|group| (group.name.clone(), group.change.sure));
    let count = groups.len();
    groups.truncate(query.top);
    Answer { groups, all, count, grower, chosen }
}

fn name_of(profile: &Profile, calls: &Calls, by: By, number: usize) -> String {
    let (label, key) = (calls.label(calls.leaf(number)), profile.rows[number].key);
    let or = |text: &str, other: &str| if text.is_empty() { other.to_owned() } else { text.to_owned() };
    match by {
        By::Site => label.text.to_string(),
        By::Function => label.function.to_string(),
        By::Module => or(&label.module, "(no file)"),
        By::File => or(&label.file, "(not known)"),
        By::Thread => match profile.threads.get(&key.part) {
            Some(name) if !name.is_empty() => format!("{} {name}", key.part),
            _ => key.part.to_string(),
        },
        By::Size => {
            let (low, high) = Division::sizes(key.part);
            let text = |size: u64| quarry_report::units::bytes(size as f64);
            if low == high { text(low) } else { format!("{} … {}", text(low), text(high)) }
        }
    }
}

fn add(group: &mut Group, profile: &Profile, query: &Query, number: usize) {
    let row = &profile.rows[number];
    group.rows.push(number as u32);
    group.sums += row.sums;
    group.peak += row.peak;
    group.at += live_at(row, query.at);
    group.lives += &row.lives;
    let Some((from, to)) = query.window else { return };
    let change = &mut group.change;
    change.from += live_at(row, At::Moment(from));
    change.to += live_at(row, At::Moment(to));
    if let (Some(from), Some(to)) = (row.marks.get(from), row.marks.get(to)) {
        change.allocs += to.allocs.since(&from.allocs);
        change.bytes += to.bytes.since(&from.bytes);
    }
}

/// What needs all rows of a group at once.
fn complete(group: &mut Group, profile: &Profile, calls: &Calls, query: &Query) {
    let heaviest = group.rows.iter().max_by_key(|&&number| {
        let row = &profile.rows[number as usize];
        (live_at(row, query.at).bytes.value(), row.sums.bytes.value(), std::cmp::Reverse(number))
    });
    group.heaviest = heaviest.map_or(crate::calls::ROOT, |&number| calls.leaf(number as usize));
    let time = |number: usize| profile.moments.get(number).map_or(profile.last, |moment| moment.0);
    let ends = query.window.map_or((profile.first, profile.last), |(from, to)| (time(from), time(to)));
    group.change.sure = sure_growth(profile, group, ends);
}

/// Live bytes of some rows at the end of each span of time.
pub fn live_over_time(profile: &Profile, rows: &[u32]) -> Vec<f64> {
    let mut live = vec![0.0; profile.spans.count()];
    rows.iter().for_each(|&row| profile.rows[row as usize].series.add_to(&mut live));
    live
}

fn sure_growth(profile: &Profile, group: &Group, (from, to): (u64, u64)) -> i64 {
    /// Parts of a window, each with a floor: the least that is live in it.
    const PARTS: usize = 16;
    let (first, last) = (profile.spans.of(from) as usize, profile.spans.of(to) as usize);
    let count = last + 1 - first;
    if count < PARTS {
        return group.change.growth();
    }
    let live = &live_over_time(profile, &group.rows)[first..=last];
    let floor = |part: usize| {
        let range = part * count / PARTS..(part + 1) * count / PARTS;
        live[range].iter().copied().fold(f64::INFINITY, f64::min)
    };
    let before = (0..PARTS / 4).map(floor).fold(f64::NEG_INFINITY, f64::max);
    let after = (PARTS - PARTS / 4..PARTS).map(floor).fold(f64::INFINITY, f64::min);
    (after - before) as i64
}
