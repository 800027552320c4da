// SPDX-License-Identifier: MIT
//! The profile that grows while its process runs.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use quarry_symbols::{Folding, Symbols};
use quarry_trace::sample::Sampling;
use quarry_trace::{Event, StackNode, StackTree, What};
use regex_lite::Regex;

use super::past::Past;
use super::site::{Change, Site};
use crate::calls::{Calls, ROOT};
use crate::model::{Builder, Division, Profile, Spans};
use crate::query::{self, At, By, Group, Query, Sort, live_at};
use crate::tree::{Direction, Summed};

/// Takes events, and knows what there was in the frames before.
pub struct Ongoing {
    builder: Builder,
    stacks: StackTree,
    symbols: Symbols,
    folding: Folding,
    /// Names of so many rows. Rows only come, so they are the same as long as these are.
    named: Option<(usize, Rc<Calls>)>,
    past: Past,
    ids: HashMap<(By, String), u32>,
    /// How long names were looked up for the last look.
    naming: Duration,
}

/// What there is at one moment.
pub struct Seen {
    /// All that is known.
    pub profile: Profile,
    /// With names.
    pub calls: Rc<Calls>,
    /// A row for each group, in any order.
    pub sites: Vec<Site>,
    /// All of them together.
    pub all: Site,
    /// How long "last" was.
    pub last: Duration,
}

impl Ongoing {
    /// Nothing has happened yet. Times of events are nanoseconds; `at` is the time since some beginning.
    pub fn new(
        sampling: Sampling,
        division: Division,
        symbols: Symbols,
        folding: Folding,
        at: Duration,
    ) -> Self {
        Self {
            // What was when is in frames.
            builder: Builder::new(sampling, division, Spans::new(0, 0), &[]),
            stacks: StackTree::new(),
            symbols,
            folding,
            named: None,
            past: Past::new(at),
            ids: HashMap::new(),
            naming: Duration::ZERO,
        }
    }

    /// Take an event into account.
    pub fn event(&mut self, event: &Event) {
        if let What::ModuleLoaded { .. } | What::ModuleUnloaded { .. } = event.what {
            self.symbols.note(event);
            self.named = None;
        }
        self.builder.add(event);
    }

    /// A new node of stacks.
    pub fn stack(&mut self, node: &StackNode) {
        self.stacks.add(node);
    }

    /// Changes count from the last frame on.
    pub fn begin_changes(&mut self) {
        self.past.begin();
    }

    /// One more frame, at the time since the same beginning.
    pub fn frame(&mut self, at: Duration) -> Profile {
        let profile = self.builder.so_far();
        self.past.push(at, profile.rows.iter().map(|row| (row.key, row.sums())));
        profile
    }

    /// Group what a frame has.
    pub fn look(&mut self, profile: Profile, by: By, filter: Option<&Regex>) -> Seen {
        let calls = self.calls(&profile);
        let query = Query {
            at: At::End,
            window: None,
            by,
            sort: Sort::Live,
            filter: filter.cloned(),
            top: usize::MAX,
        };
        let answer = query::answer(&profile, &calls, &query);
        let (ago, last) = self.past.last();
        let sites = answer.groups.into_iter().map(|group| self.site(group, &profile, by, (ago, last)));
        let sites: Vec<Site> = sites.collect();
        let all = self.site(answer.all, &profile, by, (ago, last));
        Seen { profile, calls, sites, all, last }
    }

    /// How long names were looked up for the last look. Each file is read once, so it says nothing of the next one.
    pub fn naming(&self) -> Duration {
        self.naming
    }

    fn calls(&mut self, profile: &Profile) -> Rc<Calls> {
        self.naming = Duration::ZERO;
        if let Some((rows, calls)) = &self.named
            && *rows == profile.rows.len()
        {
            return calls.clone();
        }
        let start = Instant::now();
        let calls = Rc::new(Calls::of(profile, &self.stacks, &mut self.symbols, &self.folding));
        self.named = Some((profile.rows.len(), calls.clone()));
        self.naming = start.elapsed();
        calls
    }

    fn site(&mut self, group: Group, profile: &Profile, by: By, (ago, time): (usize, Duration)) -> Site {
        let next = self.ids.len() as u32;
        let (mut grown, mut last) = (Change::default(), Change::default());
        let (mut bytes, mut calls) = (0.0, 0.0);
        let mut trend = vec![0.0; self.past.frames()];
        for &row in &group.rows {
            let key = profile.rows[row as usize].key;
            let (since, lately, born) = self.past.changes(key, ago);
            grown.add(since);
            last.add(lately);
            bytes += born.born;
            calls += born.calls;
            self.past.add_trend(key, &mut trend);
        }
        let seconds = time.as_secs_f64();
        let rate = |sum: f64| if seconds > 0.0 { sum / seconds } else { 0.0 };
        Site {
            id: *self.ids.entry((by, group.name.clone())).or_insert(next),
            live: group.at,
            grown,
            last,
            bytes_rate: rate(bytes),
            calls_rate: rate(calls),
            half: group.lives.median(),
            trend,
            rows: group.rows,
            heaviest: group.heaviest,
            name: group.name,
        }
    }
}

impl Seen {
    /// A site's callers, as text: a tree, with what is live through each, or the heaviest stack where nothing is.
    pub fn callers(&self, site: &Site) -> Vec<String> {
        if site.live.blocks.seen() == 0 {
            return self.frames(site).map(str::to_owned).collect();
        }
        let of =
            |row: u32| (self.calls.leaf(row as usize), live_at(&self.profile.rows[row as usize], At::End));
        let live: Vec<u32> = site.rows.iter().copied().filter(|&row| of(row).1.blocks.value() > 0).collect();
        let tree = Summed::new(&self.calls, &live, &of, Direction::Up).text(&self.calls);
        tree.lines().map(str::to_owned).collect()
    }

    /// The heaviest call stack of a site, the innermost first.
    pub fn frames(&self, site: &Site) -> impl Iterator<Item = &str> {
        let heaviest = Some(site.heaviest).filter(|&call| call != ROOT);
        heaviest.into_iter().flat_map(|call| self.calls.up(call)).map(|call| self.calls.label(call).text)
    }
}
