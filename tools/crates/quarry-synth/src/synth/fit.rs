// SPDX-License-Identifier: MIT
//! The model that imitates a trace.
//!
//! The trace is cut into phases of as many allocations each. Within a phase, blocks are counted by thread, function,
//! size, life and growth together; sizes that are frequent or large stand for themselves, the others and all
//! lifetimes share bins of an eighth of a doubling. What dies far from its birth is noted with the phase it dies in, so
//! that the bytes that live rise and fall as in the trace. Who frees is counted apart from that, for each pair of
//! threads. What is lost is the order within a phase.

use std::collections::{BTreeMap, HashSet};

use quarry_trace::sample::Sampling;
use quarry_trace::{AllocApi, Event, ThreadId};

use super::model::{Api, Cell, Counted, Grows, Life, Model, Phase, THREADS};
use super::objects::{Change, Object, Objects, apart};
use super::profile::{self, Profile};
use crate::dist::MOST;
use crate::hash::{Map, Seed};

/// Most phases by default.
pub const PHASES: u64 = 200;

/// Allocations that a phase has at least by default.
const PHASE: u64 = 500;

/// A size stands for itself if it is that part of all requests, or if requests of it are that part of all bytes.
const OWN: u64 = 1000;

/// Sizes that are counted to find them.
const COUNTED_SIZES: usize = 1 << 20;

/// Lifetimes of up to so many phases are noted themselves: a bin is narrower than a phase up to here.
const NEAR: u64 = 4;

/// From so many cells on bins are made wider.
const CELLS: usize = 1 << 21;

/// log2 of the bins for each doubling at first.
const BITS: u32 = 3;

/// A model and what it was made from.
#[derive(Debug)]
pub struct Fit {
    /// The model.
    pub model: Model,
    /// What the trace is like.
    pub profile: Profile,
    /// log2 of the bins for each doubling, in the end.
    pub bits: u32,
    /// Threads above this number were taken together with lower ones.
    pub folded: bool,
}

/// What the first pass finds.
#[derive(Debug, Default)]
struct Survey {
    allocations: u64,
    own_sizes: HashSet<u64, Seed>,
}

impl Survey {
    fn of<E>(events: impl Iterator<Item = Result<Event, E>>, sampling: Sampling) -> Result<Self, E> {
        let mut objects = Objects::of(sampling);
        let mut counts: Map<u64, u64> = Map::default();
        for event in events {
            for event in apart(sampling, event?) {
                let (size, times) = match objects.see(&event) {
                    Some(Change::Birth(size, times)) => (size, times),
                    Some(Change::Resize(size)) => (size, 1),
                    _ => continue,
                };
                let room = counts.len() < COUNTED_SIZES;
                if let Some(count) = counts.get_mut(&size) {
                    *count += times;
                } else if room {
                    counts.insert(size, times);
                }
            }
        }
        let weight = |(&size, &count): (&u64, &u64)| u128::from(size) * u128::from(count);
        let (requests, bytes) = (counts.values().sum::<u64>(), counts.iter().map(weight).sum::<u128>());
        let is_own = |size: &u64, count: &u64| {
            *count >= requests.div_ceil(OWN) || weight((size, count)) >= bytes.div_ceil(OWN.into())
        };
        let own_sizes =
            counts.iter().filter(|(size, count)| is_own(size, count)).map(|(&size, _)| size).collect();
        Ok(Self { allocations: objects.allocations, own_sizes })
    }
}

/// A sort of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Sort {
    phase: u32,
    thread: ThreadId,
    api: AllocApi,
    align: u8,
    size: (u64, u64),
    life: Life,
    grows: Option<Grows>,
}

/// Make the model that imitates a trace, which is read twice. `phases`: how many, else as many as the trace has use
/// for; `ticks_per_second` is that of the trace's clock. What a sample leaves out is in the model: each of its blocks
/// counts for as many as it stands for.
pub fn fit<E, I>(
    mut open: impl FnMut() -> Result<I, E>,
    phases: Option<u64>,
    ticks_per_second: u64,
    sampling: Sampling,
) -> Result<Fit, E>
where
    I: Iterator<Item = Result<Event, E>>,
{
    let survey = Survey::of(open()?, sampling)?;
    let phases = phases.unwrap_or((survey.allocations / PHASE).clamp(1, PHASES));
    let phases = phases.clamp(1, survey.allocations.max(1));
    let mut fitter = Fitter::new(&survey, phases, Profile::of(sampling));
    for event in open()? {
        apart(sampling, event?).for_each(|event| fitter.see(&event));
    }
    Ok(fitter.finish(ticks_per_second))
}

struct Fitter<'s> {
    survey: &'s Survey,
    /// The number of the first allocation of each phase, and of the one behind the last.
    starts: Vec<u64>,
    /// When each phase begins.
    times: Vec<u64>,
    time: u64,
    profile: Profile,
    sorts: Map<Sort, u64>,
    handovers: BTreeMap<(u32, ThreadId, ThreadId), u64>,
    bits: u32,
    folded: bool,
}

impl<'s> Fitter<'s> {
    fn new(survey: &'s Survey, phases: u64, profile: Profile) -> Self {
        let start = |phase| (u128::from(survey.allocations) * u128::from(phase) / u128::from(phases)) as u64;
        Self {
            survey,
            starts: (0..=phases).map(start).collect(),
            times: Vec::new(),
            time: 0,
            profile,
            sorts: Map::default(),
            handovers: BTreeMap::new(),
            bits: BITS,
            folded: false,
        }
    }

    fn see(&mut self, event: &Event) {
        match self.profile.see(event) {
            Some(Change::Birth(_, times)) => {
                let number = self.profile.allocations() - times;
                while self.times.len() + 1 < self.starts.len() && self.starts[self.times.len()] <= number {
                    self.times.push(event.time);
                }
                self.time = event.time;
            }
            Some(Change::Death(object, by)) => {
                let life = self.life(&object);
                self.count(&object, life);
                let (phase, from, to) = (self.phase(object.born), self.fold(object.thread), self.fold(by));
                if from != to {
                    *self.handovers.entry((phase, from, to)).or_default() += object.stands;
                }
            }
            _ => {}
        }
    }

    /// The phase of an allocation.
    fn phase(&self, number: u64) -> u32 {
        // Phases without allocations begin where the next one does.
        (self.starts.partition_point(|&start| start <= number) - 1).min(self.starts.len() - 2) as u32
    }

    fn fold(&mut self, thread: ThreadId) -> ThreadId {
        self.folded |= thread > THREADS;
        (thread.max(1) - 1) % THREADS + 1
    }

    /// The life of an object that dies now.
    fn life(&self, object: &Object) -> Life {
        let now = self.profile.allocations();
        let lifetime = now - (object.born + object.stands);
        let born = self.phase(object.born);
        let phase = self.starts[born as usize + 1] - self.starts[born as usize];
        if now == self.survey.allocations && lifetime > phase / 4 {
            Life::End
        } else if lifetime <= phase * NEAR {
            let (from, to) = self.bin(lifetime);
            Life::After(from, to)
        } else {
            Life::Phase(self.phase(now) - born)
        }
    }

    fn bin(&self, value: u64) -> (u64, u64) {
        let (from, to) = profile::bin(value, self.bits);
        (from.min(MOST), to.min(MOST))
    }

    fn size(&self, size: u64) -> (u64, u64) {
        if self.survey.own_sizes.contains(&size) { (size.min(MOST), size.min(MOST)) } else { self.bin(size) }
    }

    fn count(&mut self, object: &Object, life: Life) {
        let grows = (object.steps > 0).then(|| Grows {
            steps: object.steps.min(10_000),
            last: self.size(object.size),
            span: self.bin(object.stepped.saturating_sub(object.born + object.stands)),
        });
        let sort = Sort {
            phase: self.phase(object.born),
            thread: self.fold(object.thread),
            api: object.api,
            align: object.align,
            size: self.size(object.first),
            life,
            grows,
        };
        *self.sorts.entry(sort).or_default() += object.stands;
        if self.sorts.len() > CELLS && self.bits > 0 {
            self.bits -= 1;
            let bits = self.bits;
            let wide = |(from, to)| (profile::bin(from, bits).0, profile::bin(to, bits).1.min(MOST));
            for (mut sort, count) in std::mem::take(&mut self.sorts) {
                sort.size = wide(sort.size);
                if let Life::After(from, to) = sort.life {
                    let (from, to) = wide((from, to));
                    sort.life = Life::After(from, to);
                }
                if let Some(grows) = &mut sort.grows {
                    (grows.last, grows.span) = (wide(grows.last), wide(grows.span));
                }
                *self.sorts.entry(sort).or_default() += count;
            }
        }
    }

    fn finish(mut self, ticks_per_second: u64) -> Fit {
        self.profile.finish();
        let survivors: Vec<Object> = self.profile.survivors().copied().collect();
        for object in survivors {
            self.count(&object, Life::Never);
        }
        let mut cells: Vec<Vec<Cell>> = vec![Vec::new(); self.starts.len() - 1];
        for (sort, count) in self.sorts {
            cells[sort.phase as usize].push(Cell {
                count,
                thread: sort.thread,
                size: sort.size,
                api: Api(sort.api),
                align: sort.align,
                life: sort.life,
                grows: sort.grows,
            });
        }
        let mut handovers = vec![Vec::new(); self.starts.len() - 1];
        for ((phase, from, to), count) in self.handovers {
            handovers[phase as usize].push((from, to, count));
        }
        self.times.resize(self.starts.len() - 1, self.time);
        self.times.push(self.time);
        let mut phases = Vec::new();
        for (index, (mut cells, handovers)) in cells.into_iter().zip(handovers).enumerate() {
            cells.sort_unstable_by_key(|cell| {
                let grows = cell.grows.map(|grows| (grows.steps, grows.last, grows.span));
                (cell.thread, cell.size, cell.api.0, cell.align, life_order(cell.life), grows)
            });
            // A trace that was cut, or has impossible events, may have lost objects: what is counted counts.
            let allocations = cells.iter().map(|cell| cell.count).sum();
            let ticks = self.times[index + 1].saturating_sub(self.times[index]);
            let seconds = ticks as f64 / ticks_per_second.max(1) as f64;
            let rate = if seconds > 0.0 { (allocations as f64 / seconds).clamp(1e-3, 1e9) } else { 1e9 };
            let counted = Counted { cells, handovers };
            phases.push(Phase { allocations, rate, drawn: None, counted: Some(counted) });
        }
        Fit {
            model: Model::new(String::new(), phases),
            profile: self.profile,
            bits: self.bits,
            folded: self.folded,
        }
    }
}

fn life_order(life: Life) -> (u8, u64, u64) {
    match life {
        Life::After(from, to) => (0, from, to),
        Life::Phase(ahead) => (1, u64::from(ahead), 0),
        Life::End => (2, 0, 0),
        Life::Never => (3, 0, 0),
    }
}
