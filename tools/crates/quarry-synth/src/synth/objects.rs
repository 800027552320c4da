// SPDX-License-Identifier: MIT
//! What lives, event by event, for the profile of a trace and for imitating it. A block that is reallocated stays
//! the same object. Blocks of Quarry's pools do not count.
use quarry_trace::{AllocApi, Event, ThreadId, What};

use crate::hash::Map;

/// An object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Object {
    /// The number of its allocation, from 0.
    pub born: u64,
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

/// What an event means for objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// One more, with so many bytes.
    Birth(u64),
    /// One less, freed by this thread.
    Death(Object, ThreadId),
    /// One has so many bytes now.
    Resize(u64),
}

/// The objects that live.
#[derive(Debug, Default)]
pub struct Objects {
    live: Map<u64, Object>,
    /// Allocations so far.
    pub allocations: u64,
    /// Bytes that live. Wider than a size: a trace may say anything, and what was added is taken off again.
    bytes: u128,
    /// Events that cannot be: frees of unknown blocks, allocations of live ones.
    pub impossible: u64,
}

impl Objects {
    /// Take note of an event, in the order of time.
    pub fn see(&mut self, event: &Event) -> Option<Change> {
        match event.what {
            What::Alloc { api, size, address, align, .. } => {
                self.birth(event.thread, api, align, size, address);
                Some(Change::Birth(size))
            }
            What::Free { address: 0, .. } => None,
            What::Free { address, .. } => {
                let Some(object) = self.live.remove(&address) else {
                    self.impossible += 1;
                    return None;
                };
                self.bytes -= u128::from(object.size);
                Some(Change::Death(object, event.thread))
            }
            What::Realloc { old, size, new, .. } => match self.live.remove(&old) {
                Some(mut object) => {
                    self.bytes -= u128::from(object.size);
                    object.size = size;
                    object.steps = object.steps.saturating_add(1);
                    object.stepped = self.allocations;
                    self.put(new, object);
                    Some(Change::Resize(size))
                }
                None => {
                    self.impossible += 1;
                    self.birth(event.thread, AllocApi::Realloc, 0, size, new);
                    Some(Change::Birth(size))
                }
            },
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

    fn birth(&mut self, thread: ThreadId, api: AllocApi, align: u8, size: u64, address: u64) {
        let born = self.allocations;
        self.allocations += 1;
        self.put(address, Object { born, thread, api, align, first: size, size, steps: 0, stepped: born });
    }

    fn put(&mut self, address: u64, object: Object) {
        self.bytes += u128::from(object.size);
        if let Some(lost) = self.live.insert(address, object) {
            self.bytes -= u128::from(lost.size);
            self.impossible += 1;
        }
    }
}
