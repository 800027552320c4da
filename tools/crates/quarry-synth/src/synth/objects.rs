// SPDX-License-Identifier: MIT
//! What lives, event by event, for the profile of a trace and for imitating it. A block that is reallocated stays
//! the same object. Blocks of Quarry's pools do not count.
use quarry_trace::sample::{Rates, Sampling};
use quarry_trace::{AllocApi, Event, FreeApi, ThreadId, What};

use crate::hash::Map;

/// An object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Object {
    /// The number of its allocation, from 0.
    pub born: u64,
    /// It stands for so many objects that are alike and were allocated together: 1 in a whole trace.
    pub stands: u64,
    /// Who allocated it.
    pub thread: ThreadId,
    /// By which function.
    pub api: AllocApi,
    /// log2 of the alignment asked for.
    pub align: u8,
    /// Bytes at first.
    pub first: u64,
    /// Bytes now.
    pub size: u64,
    /// How often it was reallocated.
    pub steps: u32,
    /// How many allocations there had been at the last time.
    pub stepped: u64,
}

/// An object stands for no more than these: a rate of an exabyte is nobody's.
const MOST_STAND: f64 = 1e9;

/// The events of a trace, each realloc of a sample as a free and an allocation: the blocks before and behind it are
/// drawn independently.
pub fn apart(sampling: Sampling, event: Event) -> impl Iterator<Item = Event> {
    let Event { time, thread, .. } = event;
    let (first, second) = match event.what {
        What::Realloc { old, size, new, stack, .. } if sampling.is_sample() => (
            What::Free { api: FreeApi::Other, address: old, touched: None },
            Some(What::Alloc { api: AllocApi::Realloc, size, address: new, align: 0, stack }),
        ),
        what => (what, None),
    };
    std::iter::once(first).chain(second).map(move |what| Event { time, thread, what })
}

/// What an event means for objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// More of so many bytes, and how many.
    Birth(u64, u64),
    /// One less, freed by this thread.
    Death(Object, ThreadId),
    /// One has so many bytes now.
    Resize(u64),
}

/// The objects that live.
#[derive(Debug, Default)]
pub struct Objects {
    live: Map<u64, Object>,
    sampling: Sampling,
    rates: Rates,
    /// A part of an object that the next one stands for as well.
    part: f64,
    /// Allocations so far.
    pub allocations: u64,
    /// Bytes that live. Wider than a size: a trace may say anything, and what was added is taken off again.
    bytes: u128,
    /// Events that cannot be: frees of unknown blocks, allocations of live ones.
    pub impossible: u64,
}

/// The bytes of objects that are alike.
fn bytes(object: &Object) -> u128 {
    u128::from(object.size) * u128::from(object.stands)
}

impl Objects {
    /// Of a trace that may be a sample. A realloc of a sample is a free and an allocation there: [`apart`].
    pub fn of(sampling: Sampling) -> Self {
        Self { sampling, ..Self::default() }
    }

    /// Take note of an event, in the order of time.
    pub fn see(&mut self, event: &Event) -> Option<Change> {
        match event.what {
            What::Alloc { api, size, address, align, .. } => {
                Some(self.birth(event.thread, api, align, size, address))
            }
            What::Free { address: 0, .. } => None,
            What::Free { address, api, .. } => {
                let Some(object) = self.live.remove(&address) else {
                    // The block before a realloc that was not drawn is no surprise.
                    self.impossible += u64::from(!(self.sampling.is_sample() && api == FreeApi::Other));
                    return None;
                };
                self.bytes -= bytes(&object);
                Some(Change::Death(object, event.thread))
            }
            What::Realloc { old, size, new, .. } => match self.live.remove(&old) {
                Some(mut object) => {
                    self.bytes -= bytes(&object);
                    object.size = size;
                    object.steps = object.steps.saturating_add(1);
                    object.stepped = self.allocations;
                    self.put(new, object);
                    Some(Change::Resize(size))
                }
                None => {
                    self.impossible += 1;
                    Some(self.birth(event.thread, AllocApi::Realloc, 0, size, new))
                }
            },
            What::Sampled { mean } => {
                self.rates.set(event.thread, mean);
                None
            }
            _ => None,
        }
    }

    /// Bytes that live.
    pub fn bytes(&self) -> u64 {
        u64::try_from(self.bytes).unwrap_or(u64::MAX)
    }

    /// What is left.
    pub fn survivors(&self) -> impl Iterator<Item = &Object> {
        self.live.values()
    }

    fn birth(&mut self, thread: ThreadId, api: AllocApi, align: u8, size: u64, address: u64) -> Change {
        let (born, stands) = (self.allocations, self.stands(thread, size));
        self.allocations += stands;
        self.put(
            address,
            Object { born, stands, thread, api, align, first: size, size, steps: 0, stepped: born },
        );
        Change::Birth(size, stands)
    }

    /// How many objects one of this size stands for: a whole number, that is right on average.
    fn stands(&mut self, thread: ThreadId, size: u64) -> u64 {
        if !self.sampling.is_sample() {
            return 1;
        }
        let all = self.part + self.sampling.weight_at(self.rates.of(thread), size).blocks().min(MOST_STAND);
        self.part = all.fract();
        all as u64
    }

    fn put(&mut self, address: u64, object: Object) {
        self.bytes += bytes(&object);
        if let Some(lost) = self.live.insert(address, object) {
            self.bytes -= bytes(&lost);
            self.impossible += 1;
        }
    }
}
