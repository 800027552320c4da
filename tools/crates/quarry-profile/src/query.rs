// SPDX-License-Identifier: MIT
//! What of a profile is shown: which moment, which window, which rows together, in which order.

use quarry_trace::sample::Estimate;
use regex_lite::Regex;

use crate::calls::Calls;
use crate::groups::Groups;
use crate::growth::Growth;
use crate::model::{Division, Lifetimes, Live, Profile, Row, Sums};
use crate::verdict::Course;

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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
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

/// A choice, its name, and what it means: for those who offer it.
pub type Choice<T> = (T, &'static str, &'static str);

impl By {
    /// All of them.
    pub const ALL: [Choice<Self>; 6] = [
        (By::Site, "site", "The line of code that a block comes from"),
        (By::Function, "function", "The function"),
        (By::Module, "module", "The program or library"),
        (By::File, "file", "The source file"),
        (By::Thread, "thread", "The thread"),
        (By::Size, "size", "The size, in powers of two"),
    ];

    /// What it is called.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|choice| choice.0 == self).map_or("", |choice| choice.1)
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

impl Sort {
    /// All of them.
    pub const ALL: [Choice<Self>; 6] = [
        (Sort::Live, "live", "Bytes live at the moment"),
        (Sort::Growth, "growth", "Lasting growth in the window, or over all"),
        (Sort::Allocated, "allocated", "Bytes allocated"),
        (Sort::Allocations, "allocations", "Allocations"),
        (Sort::Temporary, "temporary", "Temporary allocations"),
        (Sort::End, "end", "Bytes live at the end"),
    ];
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
    fn key(&self, query: &Query) -> i64 {
        let window = query.window.is_some();
        let sum = match query.sort {
            Sort::Growth => return self.change.sure,
            Sort::Live => self.at.bytes.value(),
            Sort::Allocated if window => self.change.bytes.value(),
            Sort::Allocated => self.sums.bytes.value(),
            Sort::Allocations if window => self.change.allocs.value(),
            Sort::Allocations => self.sums.allocs.value(),
            Sort::Temporary => self.sums.temporary,
            Sort::End => self.sums.live_bytes.value(),
        };
        i64::try_from(sum).unwrap_or(i64::MAX)
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
    /// The group with most lasting growth, shown or not, and its rows.
    pub grower: Option<(String, Vec<u32>)>,
    /// The group that ever rises most, by the least that it holds, and its course; among those with most lasting growth.
    pub riser: Option<(String, Course)>,
    /// By row of the profile: is it among them?
    pub chosen: Vec<bool>,
}

/// A row's live blocks at a moment.
pub fn live_at(row: &Row, at: At) -> Live {
    let live = |sums: Sums| Live { blocks: sums.live, bytes: sums.live_bytes };
    match at {
        At::Peak => row.peak(),
        At::End => live(row.sums()),
        At::Moment(number) => row.mark(number).map_or_else(Live::default, live),
    }
}

/// Ask. Of all groups only what orders them is kept; those that are shown are made whole.
pub fn answer(profile: &Profile, calls: &Calls, query: &Query) -> Answer {
    let chosen: Vec<bool> = match &query.filter {
        None => vec![true; profile.rows.len()],
        Some(pattern) => {
            let fits = calls.fits(pattern);
            (0..profile.rows.len()).map(|row| fits[calls.leaf(row) as usize]).collect()
        }
    };
    let groups = Groups::of(&chosen, |row| number_of(profile, calls, query.by, row));
    let time = |number: usize| profile.moments.get(number).map_or(profile.last, |moment| moment.0);
    let ends = query.window.map_or((profile.first, profile.last), |(from, to)| (time(from), time(to)));
    let mut growth = Growth::new(profile, ends);
    let summed = |rows: &[u32], growth: &mut Growth| {
        let mut group = Group::default();
        rows.iter().for_each(|&row| add(&mut group, &profile.rows[row as usize], query));
        group.change.sure = growth.sure(rows, group.change.growth());
        group
    };
    let named = |number: usize| name_of(profile, calls, query.by, groups.rows(number)[0] as usize);
    let mut order: Vec<(i64, u32)> = Vec::with_capacity(groups.len());
    let mut growers: Vec<(i64, usize)> = Vec::new();
    for number in 0..groups.len() {
        let group = summed(groups.rows(number), &mut growth);
        order.push((group.key(query), number as u32));
        growers.push((group.change.sure, number));
        if growers.len() == 2 * GROWERS {
            keep_most(&mut growers);
        }
    }
    keep_most(&mut growers);
    let by_order = |a: &(i64, u32), b: &(i64, u32)| {
        b.0.cmp(&a.0).then_with(|| named(a.1 as usize).cmp(&named(b.1 as usize)))
    };
    if (1..order.len()).contains(&query.top) {
        order.select_nth_unstable_by(query.top - 1, by_order);
    }
    order.truncate(query.top);
    order.sort_unstable_by(by_order);
    let mut whole = |rows: &[u32], name: String| {
        let mut group = summed(rows, &mut growth);
        group.name = name;
        rows.iter().for_each(|&row| group.lives += &profile.rows[row as usize].lives);
        group.heaviest = heaviest(profile, calls, query, rows);
        group.rows = rows.to_vec();
        group
    };
    let mut all = whole(groups.all(), String::from("all"));
    if query.filter.is_none() {
        // Sums of a sample differ by the order of their parts, and their bounds then by one.
        all.sums.live = profile.end.blocks;
        all.sums.live_bytes = profile.end.bytes;
        all.peak = profile.peak.live;
        match query.at {
            At::Peak => all.at = all.peak,
            At::End => all.at = profile.end,
            At::Moment(_) => {}
        }
    }
    Answer {
        all,
        groups: order
            .iter()
            .map(|&(_, number)| whole(groups.rows(number as usize), named(number as usize)))
            .collect(),
        count: groups.len(),
        grower: growers.first().map(|&(_, number)| (named(number), groups.rows(number).to_vec())),
        riser: riser(&growers, |number| Course::of(&live_over_time(profile, groups.rows(number))))
            .map(|(number, course)| (named(number), course)),
        chosen,
    }
}

/// Groups that are asked whether they ever rise.
const GROWERS: usize = 64;

/// The groups with most growth, the most first; the first of equals.
fn keep_most(growers: &mut Vec<(i64, usize)>) {
    growers.sort_by_key(|&(sure, number)| (std::cmp::Reverse(sure), number));
    growers.truncate(GROWERS);
}

/// Of these groups the one whose floor rises most.
fn riser(growers: &[(i64, usize)], course: impl Fn(usize) -> Course) -> Option<(usize, Course)> {
    let growing = growers.iter().filter(|(sure, _)| *sure > 0);
    let rising =
        growing.map(|&(_, number)| (number, course(number))).filter(|(_, course)| course.is_rising());
    rising.max_by(|(_, one), (_, other)| one.climb().total_cmp(&other.climb()))
}

/// Rows with equal numbers are one group.
pub(crate) fn number_of(profile: &Profile, calls: &Calls, by: By, row: usize) -> u32 {
    let label = calls.parts(calls.leaf(row));
    match by {
        By::Site => label.text,
        By::Function => label.function,
        By::Module => label.module,
        By::File => label.file,
        By::Thread => profile.rows[row].key.part,
        // The row of all that come too late has no size.
        By::Size => profile.rows[row].key.part.max(1),
    }
}

/// What the group of a row is called.
pub(crate) fn name_of(profile: &Profile, calls: &Calls, by: By, row: usize) -> String {
    let (label, part) = (calls.label(calls.leaf(row)), profile.rows[row].key.part);
    let or = |text: &str, other: &str| String::from(if text.is_empty() { other } else { text });
    match by {
        By::Site => label.text.to_owned(),
        By::Function => label.function.to_owned(),
        By::Module => or(label.module, "(no file)"),
        By::File => or(label.file, "(not known)"),
        By::Thread => match profile.threads.get(&part) {
            Some(name) if !name.is_empty() => format!("{part} {name}"),
            _ => part.to_string(),
        },
        By::Size => {
            let (low, high) = Division::sizes(part);
            let text = |size: u64| quarry_report::units::bytes(size as f64);
            if low == high { text(low) } else { format!("{} … {}", text(low), text(high)) }
        }
    }
}

/// The sums of a row.
fn add(group: &mut Group, row: &Row, query: &Query) {
    group.sums += row.sums();
    group.peak += row.peak();
    group.at += live_at(row, query.at);
    let Some((from, to)) = query.window else { return };
    let change = &mut group.change;
    change.from += live_at(row, At::Moment(from));
    change.to += live_at(row, At::Moment(to));
    if let (Some(from), Some(to)) = (row.mark(from), row.mark(to)) {
        change.allocs += to.allocs.since(&from.allocs);
        change.bytes += to.bytes.since(&from.bytes);
    }
}

/// The call that has most of some rows.
fn heaviest(profile: &Profile, calls: &Calls, query: &Query, rows: &[u32]) -> u32 {
    let heaviest = rows.iter().max_by_key(|&&number| {
        let row = &profile.rows[number as usize];
        (live_at(row, query.at).bytes.value(), row.sums().bytes.value(), std::cmp::Reverse(number))
    });
    heaviest.map_or(crate::calls::ROOT, |&number| calls.leaf(number as usize))
}

/// Live bytes of some rows at the end of each span of time.
pub fn live_over_time(profile: &Profile, rows: &[u32]) -> Vec<f64> {
    let mut live = vec![0.0; profile.spans.count()];
    rows.iter().for_each(|&row| profile.rows[row as usize].series.add_to(&mut live));
    let mut now = 0.0;
    for live in &mut live {
        now += *live;
        *live = now;
    }
    live
}
