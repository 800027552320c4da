// SPDX-License-Identifier: MIT
//! The report of `quarry profile` as text.

use quarry_report::style::Style;
use quarry_report::table::{self, Align, Text};
use quarry_report::units;
use quarry_trace::{End, Trace};

use crate::calls::Calls;
use crate::estimate::{FEW, bytes, change, count, estimated, live, part, time};
use crate::gate::Outcome;
use crate::graph::graph;
use crate::model::{Lifetimes, Live, Median, Profile};
use crate::query::{Answer, At, By, Group, Query, Sort, live_at, live_over_time};
use crate::tree::{Direction, Summed};
use crate::verdict::{Course, Floor, cause};
use crate::waste::Waste;

/// Callers that are shown below a site.
const CALLERS: usize = 2;

/// What the column is.
const LASTING: &str = "\
lasting: growth from the first quarter of the time to the least that is live in its last quarter.
A cache that fills and empties has none. What grows evenly has about half of its growth.
";

/// What there is to report.
#[derive(Debug, Clone, Copy)]
pub struct Report<'a> {
    /// The file.
    pub file: &'a str,
    /// Is the file there when the report is read?
    pub kept: bool,
    /// The trace.
    pub trace: &'a Trace,
    /// What it says.
    pub profile: &'a Profile,
    /// The names of its call stacks.
    pub calls: &'a Calls,
    /// What was asked.
    pub query: &'a Query,
    /// And found.
    pub answer: &'a Answer,
    /// Limits, and what became of them.
    pub gates: &'a [Outcome],
    /// Waste of pages by site, where it was asked for.
    pub waste: Option<&'a Waste>,
    /// Files without names, and why.
    pub missing: &'a [String],
}

/// "1 allocation", "≤ 6 allocations": a bound or an interval is of several, whatever the estimate.
fn allocations(count: &str) -> String {
    format!("{count} {}", units::noun(if count == "1" { 1 } else { 2 }, "allocation"))
}

impl Report<'_> {
    /// Nanoseconds between the first event and this time.
    pub fn after(&self, ticks: u64) -> u64 {
        self.trace.duration_ns(ticks.saturating_sub(self.profile.first))
    }

    /// The moment that leads, in ticks.
    pub fn moment(&self) -> u64 {
        match self.query.at {
            At::Peak => self.profile.peak.time,
            At::End => self.profile.last,
            At::Moment(number) => {
                self.profile.moments.get(number).map_or(self.profile.last, |moment| moment.0)
            }
        }
    }

    /// "at the peak", "at the end", "after 3.00 s".
    pub fn moment_text(&self) -> String {
        match self.query.at {
            At::Peak => String::from("at the peak"),
            At::End => String::from("at the end"),
            At::Moment(_) => format!("after {}", time(self.after(self.moment()))),
        }
    }

    /// The window of time, in nanoseconds after the first event.
    pub fn window(&self) -> Option<(u64, u64)> {
        let time =
            |number: usize| self.profile.moments.get(number).map_or(self.profile.last, |moment| moment.0);
        self.query.window.map(|(from, to)| (self.after(time(from)), self.after(time(to))))
    }

    /// The course of live memory.
    pub fn course(&self) -> Course {
        Course::of(&live_over_time(self.profile, &self.answer.all.rows))
    }

    /// A line on it.
    pub fn verdict(&self) -> String {
        let course = self.course();
        let most = self.answer.grower.as_ref();
        let most = most.map(|(name, rows)| {
            (name.as_str(), course.rise(&live_over_time(self.profile, rows)).round() as i64)
        });
        let text = course.text(most, self.cause());
        match self.riser() {
            Some(site) => format!("{text}. {site}"),
            None => text,
        }
    }

    /// What may be behind memory that ever rises.
    fn cause(&self) -> &'static str {
        // That is how a sample of a running process ends.
        let is_part = |end: &End| end.live.as_ref().is_none_or(|live| !live.whole);
        let is_late = self.trace.end().is_some_and(|end| end.reason == "detached" && is_part(end));
        cause(self.after(self.profile.last), is_late)
    }

    /// A site that ever rises, in words, where all together does not.
    fn riser(&self) -> Option<String> {
        let (name, course) = self.answer.riser.as_ref().filter(|_| !self.course().is_rising())?;
        let (Course::Rising(first, last) | Course::Level(first, last)) = *course else { return None };
        let begin = |floor: Floor| self.after(self.profile.spans.begin(floor.span));
        course.text_of_site(name, self.cause(), begin(last).saturating_sub(begin(first)))
    }

    /// The half-life of blocks, in words.
    pub fn median(&self, lives: &Lifetimes) -> String {
        match lives.median() {
            Median::None => String::from("-"),
            Median::Within(ticks) => format!("≤ {}", time(self.trace.duration_ns(ticks))),
            Median::Beyond => String::from("longer"),
        }
    }

    fn head(&self, style: Style) -> String {
        let (profile, head) = (self.profile, self.trace.head());
        let command: String =
            head.command_line().chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        let file = if self.kept { self.file } else { "not kept (--trace FILE keeps it)" };
        let mut rows = vec![("trace", format!("{file}, {}", units::of(profile.events, "event")))];
        if !command.is_empty() {
            rows.push(("program", command));
        }
        rows.push(("time", time(self.after(profile.last))));
        if profile.sampling.is_sample() {
            let rate = profile.means_text();
            rows.push((
                "sample",
                format!(
                    "one byte in {rate} was drawn: sums are estimates, with the bounds of their 95 % interval, or an \
                     upper bound where fewer than {FEW} blocks were drawn. Which blocks are temporary is not known"
                ),
            ));
        }
        let (peak, end) = self.live_of_all();
        let when = if self.query.filter.is_some() { " at the peak of all," } else { "" };
        rows.push(("peak", format!("{}{when} after {}", live(&peak), time(self.after(profile.peak.time)))));
        let all = &self.answer.all.sums;
        let requested = estimated(&all.bytes, all.allocs.seen(), bytes);
        let allocs = estimated(&all.allocs, all.allocs.seen(), count);
        rows.push(("allocated", format!("{requested} in {}", allocations(&allocs))));
        rows.push(("at the end", format!("{} still live", live(&end))));
        if profile.lost > 0 {
            rows.push(("lost", format!("{}, which are in no sum", units::of(profile.lost, "event"))));
        }
        let rows = rows.into_iter().map(|(name, value)| vec![Text::from(name.to_owned()), Text::from(value)]);
        table::render(style, &[Align::Left, Align::Left], &[], rows.collect())
    }

    /// What is live of what was asked about, at the peak of all and at the end: of everything, unless there is a filter.
    pub fn live_of_all(&self) -> (Live, Live) {
        let all = &self.answer.all;
        (all.peak, Live { blocks: all.sums.live, bytes: all.sums.live_bytes })
    }

    /// The graph, and what it says.
    fn course_text(&self, style: Style) -> String {
        let profile = self.profile;
        let (ends, duration) = ((profile.first, profile.last), time(self.after(profile.last)));
        let graph = graph(&profile.curve, ends, profile.peak.time, &duration, style.width);
        if graph.is_empty() {
            return graph;
        }
        let marks = ": live bytes, @ one moment in ten (their sites are in the JSON), # the peak\n";
        let (title, of) = match self.query.filter {
            Some(_) => ("Live memory of all call stacks", "What fits --filter: "),
            None => ("Live memory", ""),
        };
        format!("\n{}\n{graph}{marks}{of}{}\n", style.bold(title), self.verdict())
    }

    fn gates_text(&self) -> String {
        self.gates.iter().map(|gate| gate.text.clone() + "\n").collect()
    }

    /// The table of groups.
    pub fn text(&self, style: Style) -> String {
        self.head(style)
            + &self.course_text(style)
            + &self.table(style)
            + &self.closing_text(style)
            + &self.waste_text(style)
            + &self.gates_text()
    }

    /// The tree of calls instead of the table.
    pub fn tree_text(&self, style: Style, direction: Direction) -> String {
        let (profile, at) = (self.profile, self.query.at);
        let of = |row: u32| (self.calls.leaf(row as usize), live_at(&profile.rows[row as usize], at));
        let rows = self.answer.all.rows.iter().copied().filter(|&row| of(row).1.blocks.value() > 0);
        let tree = Summed::new(self.calls, &rows.collect::<Vec<u32>>(), &of, direction);
        let way = match direction {
            Direction::Down => "from callers to sites",
            Direction::Up => "from sites to callers",
        };
        let title = style.bold(&format!("Live {}, {way}", self.moment_text()));
        self.head(style)
            + &self.course_text(style)
            + &format!("\n{title}\n{}", tree.text(self.calls))
            + &self.gates_text()
    }

    /// The table of groups alone.
    pub fn table(&self, style: Style) -> String {
        let answer = self.answer;
        let sample = self.profile.sampling.is_sample();
        if answer.groups.is_empty() {
            let what =
                if sample { "nothing was sampled: no block was drawn" } else { "nothing was allocated" };
            return format!("\n{what}\n");
        }
        let window = self.window();
        let at = format!("live {}", self.moment_text());
        let mut names = vec![at.as_str(), "", "allocated", "allocations"];
        if !sample {
            names.push("temporary");
        }
        names.extend(["half-life", "at the end"]);
        if window.is_some() {
            names.extend(["growth", "lasting", "allocated in it"]);
        } else if self.query.sort == Sort::Growth {
            names.push("lasting");
        }
        let mut align = vec![Align::Right; names.len()];
        names.push(self.query.by.name());
        align.push(Align::Left);
        let whole = answer.all.at.bytes.value();
        let row = |group: &Group| {
            let sums = &group.sums;
            let mut cells = vec![
                live(&group.at),
                part(group.at.bytes.value(), whole),
                estimated(&sums.bytes, sums.allocs.seen(), bytes),
                estimated(&sums.allocs, sums.allocs.seen(), count),
            ];
            if !sample {
                cells.push(part(sums.temporary, sums.allocs.value()));
            }
            cells.push(self.median(&group.lives));
            cells.push(estimated(&sums.live_bytes, sums.live.seen(), bytes));
            if window.is_some() {
                let error = group.change.error();
                let behind = if error > 0.0 { format!(" ±{}", bytes(error as u64)) } else { String::new() };
                cells.push(change(group.change.growth()) + &behind);
                cells.push(change(group.change.sure));
                cells.push(estimated(&group.change.bytes, group.change.allocs.seen(), bytes));
            } else if self.query.sort == Sort::Growth {
                cells.push(change(group.change.sure));
            }
            cells.push(self.where_text(group));
            cells.into_iter().map(Text::from).collect::<Vec<Text>>()
        };
        // Of a table of growth, what did not grow says nothing.
        let by_growth = self.query.sort == Sort::Growth;
        let grew = |group: &&Group| !by_growth || group.change.sure > 0 || group.change.growth() > 0;
        let mut rows: Vec<Vec<Text>> = answer.groups.iter().filter(grew).map(row).collect();
        let shown = rows.len();
        if answer.count > 1 {
            rows.push(row(&answer.all));
        }
        let mut title = format!("By {}, {}", self.query.by.name(), order(self.query.sort));
        if let Some((from, to)) = window {
            title += &format!("; window from {} to {}", time(from), time(to));
        }
        let mut text = format!("\n{}\n{}", style.bold(&title), table::render(style, &align, &names, rows));
        let more = answer.count.saturating_sub(shown);
        if more > 0 && shown < answer.groups.len() {
            text += &format!("and {} more without lasting growth\n", count(more as u64));
        } else if more > 0 {
            text += &format!("and {} more\n", count(more as u64));
        }
        if window.is_some() || by_growth {
            text += LASTING;
        }
        text
    }

    /// The name of a group, and the nearest callers of its heaviest stack.
    fn where_text(&self, group: &Group) -> String {
        let mut text = group.name.clone();
        let is_all = group.rows.len() == self.answer.all.rows.len() && self.answer.count > 1;
        if self.query.by == By::Site && group.heaviest != crate::calls::ROOT && !is_all {
            for caller in self.calls.up(group.heaviest).skip(1).take(CALLERS) {
                text += &format!("\n  < {}", self.calls.label(caller).text);
            }
        }
        text
    }

    fn closing_text(&self, style: Style) -> String {
        self.profile.closing.as_ref().map_or_else(String::new, |of| crate::closing::text(self, of, style))
    }

    fn waste_text(&self, style: Style) -> String {
        self.waste.map_or_else(String::new, |waste| crate::waste::text(self, waste, style))
    }
}

/// What comes first, in words.
fn order(sort: Sort) -> &'static str {
    match sort {
        Sort::Live => "most live bytes first",
        Sort::Growth => "most lasting growth first",
        Sort::Allocated => "most bytes allocated first",
        Sort::Allocations => "most allocations first",
        Sort::Temporary => "most temporary allocations first",
        Sort::End => "most bytes live at the end first",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_of_several() {
        assert_eq!(allocations("1"), "1 allocation");
        assert_eq!(allocations("≤ 6"), "≤ 6 allocations");
        assert_eq!(allocations("1 (1 … 3)"), "1 (1 … 3) allocations");
    }
}
