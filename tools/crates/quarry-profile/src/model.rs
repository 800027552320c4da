// SPDX-License-Identifier: MIT
//! What a trace says of each call stack over time, in one pass over its events.
//!
//! Memory is bounded by live blocks (those of the tracker, below 48 bytes each), by call stacks, and by a fixed number of entries over
//! time: where there are many call stacks, time is divided into fewer spans.

mod hosts;
mod lifetimes;
mod rows;
mod series;
mod tally;

use std::collections::BTreeMap;

use quarry_trace::analysis::{Ended, Extent, Pool, Pools};
use quarry_trace::live::{Change, Curve, Follower, Object, Tracker};
use quarry_trace::sample::{Means, Sampling, Weight};
use quarry_trace::{Counted, Event, Module, PoolWhat, ThreadId, Trace, What};

use crate::closing::Closing;
use crate::estimate::bytes;
use hosts::Hosts;
use rows::{Place, Rows};

pub use lifetimes::{Lifetimes, Median};
pub use rows::{Key, Live, OTHERS, Row, Sums};
pub(crate) use series::join_equal;
pub use series::{Entry, SPANS, Series, Spans};

/// Most characters that are kept of a name.
const NAME: usize = 128;
/// Most threads whose names are kept.
const MOST_THREADS: usize = 1 << 20;

/// What rows are divided by, beside their call stacks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Division {
    /// Nothing.
    #[default]
    Stack,
    /// The thread that allocated a block, or changed its size last.
    Thread,
    /// The size, in powers of two.
    Size,
}

impl Division {
    #[inline]
    fn part(self, thread: ThreadId, size: u64) -> u32 {
        match self {
            Division::Stack => 0,
            Division::Thread => thread,
            // Never 0, which is the part of rows that are not divided.
            Division::Size => 65 - size.leading_zeros(),
        }
    }

    /// The least and the highest size of a part.
    pub fn sizes(part: u32) -> (u64, u64) {
        match part {
            0 | 1 => (0, 0),
            part => (1 << (part - 2), u64::MAX >> (65 - part)),
        }
    }
}

/// What a pool's block is charged to.
#[derive(Debug, Clone, Copy, Default)]
struct Tag {
    row: u32,
    /// When it was made.
    time: u64,
}

/// Follows the events of a trace.
#[derive(Debug, Clone)]
pub struct Builder {
    sampling: Sampling,
    /// The rates that blocks were drawn at.
    means: Means,
    division: Division,
    follower: Follower,
    pools: Pools<Tag>,
    hosts: Hosts,
    rows: Rows,
    live: Live,
    peak: Peak,
    most_blocks: u64,
    curve: Curve,
    /// Moments that were asked for, in ticks, and what is live then.
    moments: Vec<u64>,
    passed: Vec<Live>,
    extent: Extent,
    lost: u64,
    threads: BTreeMap<ThreadId, String>,
    modules: Vec<Module>,
    scratch: Vec<Ended<Tag>>,
    counted: Option<Counted>,
}

/// When most bytes were live.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Peak {
    /// What was live.
    pub live: Live,
    /// In ticks.
    pub time: u64,
    /// How many events were before it, itself included.
    pub events: u64,
}

/// What a trace says.
#[derive(Debug, Clone)]
pub struct Profile {
    /// Whether blocks were left out: then sums are estimates.
    pub sampling: Sampling,
    /// At which rates blocks were drawn.
    pub means: Means,
    /// What rows are divided by.
    pub division: Division,
    /// By key.
    pub rows: Vec<Row>,
    /// When most bytes were live.
    pub peak: Peak,
    /// Most blocks that were live at once.
    pub most_blocks: u64,
    /// What is live at the end.
    pub end: Live,
    /// The same, as the process has counted it: of samples that have it.
    pub closing: Option<Closing>,
    /// What was live at the moments that were asked for.
    pub moments: Vec<(u64, Live)>,
    /// Live bytes over time: the highest of each span of time.
    pub curve: Curve,
    /// The spans of the rows' series.
    pub spans: Spans,
    /// Time of the first event, in ticks.
    pub first: u64,
    /// Time of the last event, in ticks.
    pub last: u64,
    /// Events of the file.
    pub events: u64,
    /// Events that were lost.
    pub lost: u64,
    /// Names of threads, as far as they have some.
    pub threads: BTreeMap<ThreadId, String>,
    /// Quarry's pools, by number.
    pub pools: Vec<Pool>,
    /// Files that were mapped.
    pub modules: Vec<Module>,
}

impl Profile {
    /// Mean bytes from one drawn byte to the next, in words.
    pub(crate) fn means_text(&self) -> String {
        self.means.words(bytes)
    }
}

fn place(object: &Object) -> Place {
    Place { pool: 0, address: object.address, size: object.size }
}

impl Builder {
    /// Nothing has happened yet. `moments` are the times, in ticks, at which sums are kept.
    pub fn new(sampling: Sampling, division: Division, spans: Spans, moments: &[u64]) -> Self {
        let mut moments = moments.to_vec();
        moments.sort_unstable();
        Self {
            sampling,
            means: Means::of(sampling),
            division,
            follower: Follower::of(sampling),
            pools: Pools::default(),
            hosts: Hosts::default(),
            rows: Rows::new(spans, sampling),
            live: Live::default(),
            peak: Peak::default(),
            most_blocks: 0,
            curve: Curve::new(SPANS),
            moments,
            passed: Vec::new(),
            extent: Extent::default(),
            lost: 0,
            threads: BTreeMap::new(),
            modules: Vec::new(),
            scratch: Vec::new(),
            counted: None,
        }
    }

    /// What the process has counted of its live blocks when the trace ended: a sample is held to that.
    pub fn counted(&mut self, counted: &Counted) {
        self.counted = Some(counted.clone());
    }

    /// Which blocks are live after the events so far.
    #[inline]
    pub fn tracker(&self) -> &Tracker {
        self.follower.tracker()
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.extent.events()
    }

    /// Take an event into account. They come in the order of [`Trace::events`].
    #[inline]
    pub fn add(&mut self, event: &Event) {
        self.extent.add(event.time);
        while self.moments.get(self.passed.len()).is_some_and(|&moment| event.time > moment) {
            self.pass();
        }
        let change = self.follower.feed(event);
        match event.what {
            What::Alloc { .. } | What::Free { .. } | What::Realloc { .. } => self.changed(event, &change),
            _ => self.other(event),
        }
        self.curve.add(event.time, self.live.bytes.value());
        self.rows.bound();
    }

    #[cold]
    fn pass(&mut self) {
        self.passed.push(self.live);
        self.rows.mark();
    }

    fn row_of(&mut self, object: &Object) -> u32 {
        let part = self.division.part(object.thread, object.size);
        self.rows.find(Key { stack: object.stack, pool: 0, part })
    }

    #[inline]
    fn changed(&mut self, event: &Event, change: &Change) {
        let step = &change.step;
        if let Some(object) = &step.ended {
            self.gone(object, event.time, change);
        }
        if let Some(object) = &step.displaced {
            self.gone(object, event.time, &Change::default());
        }
        if let Some(object) = &step.born {
            self.born(object, event.time);
        }
    }

    #[inline]
    fn born(&mut self, object: &Object, time: u64) {
        let weight = self.sampling.weight_of(object);
        let row = self.row_of(object);
        self.rows.born(row, object.size, weight, time);
        self.live.blocks.count(weight);
        self.live.bytes.add(object.size, weight);
        if !self.sampling.is_sample() {
            self.hosts.born(&place(object), row);
        }
        self.look_for_peak(time);
    }

    #[inline]
    fn look_for_peak(&mut self, time: u64) {
        self.most_blocks = self.most_blocks.max(self.live.blocks.value());
        if self.live.bytes.value() > self.peak.live.bytes.value() {
            self.peak = Peak { live: self.live, time, events: self.extent.events() };
            self.rows.peak();
        }
    }

    #[inline]
    fn gone(&mut self, object: &Object, time: u64, change: &Change) {
        let weight = self.sampling.weight_of(object);
        let row = self.row_of(object);
        if !self.sampling.is_sample() {
            // What pools still have of it is counted at their sites, and stays there.
            let lent = self.hosts.gone(&place(object));
            if lent > 0 {
                self.rows.take_back(row, lent, time);
                self.live.bytes.add(lent, Weight::ONE);
            }
        }
        self.rows.gone(row, object.size, weight, time);
        self.live.blocks.take(1, weight);
        self.live.bytes.take(object.size, weight);
        if change.temporary {
            self.rows.temporary(row, object.size);
        }
        if change.whole_life {
            self.rows.lives(row).ended(time.saturating_sub(object.time), weight.blocks());
        }
    }

    #[cold]
    fn other(&mut self, event: &Event) {
        match &event.what {
            What::Pool { pool, what } => self.pool(event, *pool, what),
            What::ModuleLoaded { .. } | What::ModuleUnloaded { .. } => {
                Trace::note_module(&mut self.modules, event);
            }
            What::ThreadName(name)
                if self.threads.len() < MOST_THREADS || self.threads.contains_key(&event.thread) =>
            {
                self.threads.insert(event.thread, name.chars().take(NAME).collect());
            }
            What::Sampled { mean } if self.sampling.is_sample() => self.means.add(*mean),
            What::Lost { count, .. } => self.lost = self.lost.saturating_add(*count),
            _ => {}
        }
    }

    /// A pool's block is charged to its own row, and taken off the chunk that it lies in.
    fn pool(&mut self, event: &Event, pool: u32, what: &PoolWhat) {
        let made = match *what {
            PoolWhat::Alloc { size, address, stack, .. } => Some((address, size, stack)),
            PoolWhat::Resized { size, new, stack, .. } => Some((new, size, stack)),
            _ => None,
        };
        let mut tag = Tag { time: event.time, ..Tag::default() };
        if let Some((_, size, stack)) = made {
            let part = self.division.part(event.thread, size);
            tag.row = self.rows.find(Key { stack, pool, part });
        }
        let mut ended = std::mem::take(&mut self.scratch);
        let known = self.pools.add(pool, what, tag, &mut |block| ended.push(block));
        for block in ended.drain(..) {
            self.pool_gone(pool, &block, event.time);
        }
        self.scratch = ended;
        if let (Some((address, size, _)), true) = (made, known) {
            self.pool_born(&Place { pool, address, size }, tag.row, event.time);
        }
    }

    fn pool_born(&mut self, at: &Place, row: u32, time: u64) {
        if let Some(object) = self.follower.tracker().get(at.address)
            && object.size >= at.size
        {
            let of = self.row_of(&object);
            self.hosts.adopt(&place(&object), of);
        }
        if let Some(host) = self.hosts.take(at) {
            self.rows.lend(host, at.size, time);
            self.live.bytes.take(at.size, Weight::ONE);
        }
        self.rows.born(row, at.size, Weight::ONE, time);
        self.hosts.born(at, row);
        self.live.blocks.count(Weight::ONE);
        self.live.bytes.add(at.size, Weight::ONE);
        self.look_for_peak(time);
    }

    fn pool_gone(&mut self, pool: u32, block: &Ended<Tag>, time: u64) {
        let &Ended { address, size, tag, resized } = block;
        let at = Place { pool, address, size };
        let lent = self.hosts.gone(&at);
        if lent > 0 {
            self.rows.take_back(tag.row, lent, time);
            self.live.bytes.add(lent, Weight::ONE);
        }
        self.rows.gone(tag.row, size, Weight::ONE, time);
        self.live.blocks.take(1, Weight::ONE);
        self.live.bytes.take(size, Weight::ONE);
        if let Some(host) = self.hosts.give(&at) {
            self.rows.take_back(host, size, time);
            self.live.bytes.add(size, Weight::ONE);
        }
        if !resized {
            self.rows.lives(tag.row).ended(time.saturating_sub(tag.time), 1.0);
        }
    }

    /// The rows and sizes of the live blocks of a sample, if something is known of all of them.
    fn live_by_key(&self) -> Vec<(Key, u64, Weight)> {
        if self.counted.is_none() || !self.sampling.is_sample() {
            return Vec::new();
        }
        let key = |object: Object| {
            let part = self.division.part(object.thread, object.size);
            (Key { stack: object.stack, pool: 0, part }, object.size, self.sampling.weight_of(&object))
        };
        self.follower.tracker().objects().map(key).collect()
    }

    /// What was found so far.
    pub fn so_far(&self) -> Profile {
        self.clone().finish()
    }

    /// What was found.
    pub fn finish(mut self) -> Profile {
        while self.passed.len() < self.moments.len() {
            self.pass();
        }
        let last = self.extent.last();
        let live = self.live_by_key();
        let Self { follower, rows, division, sampling, .. } = &mut self;
        for object in follower.tracker().objects().filter(|object| !follower.is_partly_known(object.id)) {
            let part = division.part(object.thread, object.size);
            let row = rows.find(Key { stack: object.stack, pool: 0, part });
            let blocks = sampling.weight_of(&object).blocks();
            rows.lives(row).survived(last.saturating_sub(object.time), blocks);
        }
        for tag in self.pools.live() {
            self.rows.lives(tag.row).survived(last.saturating_sub(tag.time), 1.0);
        }
        let spans = self.rows.spans;
        let rows = self.rows.finish();
        let row_of = |key: &Key| rows.binary_search_by_key(key, |row| row.key);
        let row_of = |key: &Key| row_of(key).or_else(|_| row_of(&OTHERS)).unwrap_or_default() as u32;
        let live = live.iter().map(|(key, size, weight)| (row_of(key), *size, *weight));
        let closing = self.counted.map(|counted| Closing::new(&counted, rows.len(), live));
        Profile {
            closing,
            sampling: self.sampling,
            means: self.means,
            division: self.division,
            peak: self.peak,
            most_blocks: self.most_blocks,
            end: self.live,
            moments: self.moments.iter().copied().zip(self.passed).collect(),
            curve: self.curve,
            spans,
            rows,
            first: self.extent.first(),
            last: self.extent.last(),
            events: self.extent.events(),
            lost: self.lost,
            threads: self.threads,
            pools: self.pools.finish(),
            modules: self.modules,
        }
    }
}
