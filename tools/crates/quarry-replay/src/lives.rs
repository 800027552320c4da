// SPDX-License-Identifier: MIT
//! The blocks of which it matters how much the program wrote: those of a page and more.
//!
//! A life begins when a block is allocated with so many bytes, or grows to as many, and ends with the block. Lives are numbered
//! in the order in which they begin, which is the same in both passes over a trace.
//!
//! Of large blocks the recorder says what was resident at their end, of some of the smaller ones what was written. A block
//! of which it says nothing is taken to be written as the next block of its kind of which it does: one that was made in the
//! same way and has the same size, or nearly the same.

use std::collections::HashMap;

use quarry_trace::{AllocApi, Event, ThreadId, What};

use crate::hash::AddressMap;

/// From this size on a block has pages of its own.
const LEAST: u64 = 4 << 10;
/// From this size on the recorder says what was resident. What it says of one block is not believed of another.
pub(crate) const LARGE: u64 = 128 << 10;

/// A life, or another size in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stage {
    life: usize,
    is_first: bool,
    kind: Kind,
}

/// How a block came about, and its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Kind {
    by: u8,
    size: u64,
}

const BY_REALLOC: u8 = 255;

impl Kind {
    /// All within an eighth to a quarter of its size.
    fn coarse(self) -> Self {
        let bits = self.size.ilog2().saturating_sub(2);
        Self { size: self.size >> bits << bits, ..self }
    }
}

/// Numbers the lives.
#[derive(Debug, Default)]
pub(crate) struct Lives {
    live: AddressMap<Stage>,
    begun: usize,
}

impl Lives {
    /// The stage that begins with this event, if one does.
    pub(crate) fn begun_by(&mut self, event: &Event) -> Option<Stage> {
        match event.what {
            What::Alloc { api: AllocApi::Pool, .. } => None,
            What::Alloc { api, size, address, .. } => {
                if size < LEAST {
                    // Of a block whose end was lost.
                    self.live.remove(&address);
                    return None;
                }
                // operator new is malloc.
                let api = if api == AllocApi::New { AllocApi::Malloc } else { api };
                Some(self.begin(address, Kind { by: api as u8, size }, None))
            }
            What::Free { address, .. } => {
                self.live.remove(&address);
                None
            }
            What::Realloc { old, size, new, .. } => {
                let before = self.live.remove(&old);
                (size >= LEAST).then(|| self.begin(new, Kind { by: BY_REALLOC, size }, before))
            }
            _ => None,
        }
    }

    fn begin(&mut self, address: u64, kind: Kind, before: Option<Stage>) -> Stage {
        let life = before.map_or(self.begun, |stage| stage.life);
        let stage = Stage { life, is_first: before.is_none(), kind };
        self.begun += usize::from(stage.is_first);
        self.live.insert(address, stage);
        stage
    }
}

/// What the recorder said of lives.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// Said before the free of the block by the same thread, or at the end of the process.
    pending: HashMap<(ThreadId, u64), u64>,
    of_life: HashMap<usize, u64>,
    /// Of watched blocks of one kind: the life, the size, and what was written of it, in the order of their ends.
    same: HashMap<Kind, Vec<Watched>>,
    alike: HashMap<Kind, Vec<Watched>>,
}

#[derive(Debug, Clone, Copy)]
struct Watched {
    life: usize,
    size: u64,
    bytes: u64,
}

impl Written {
    /// What the event says of others: before it takes effect.
    pub(crate) fn note(&mut self, event: &Event, lives: &Lives) {
        match event.what {
            What::Written { address, bytes } => {
                self.pending.insert((event.thread, address), bytes);
            }
            What::Free { address, touched, .. } => {
                if let Some(stage) = lives.live.get(&address) {
                    self.resident(stage, touched);
                    let said =
                        (!self.pending.is_empty()).then(|| self.pending.remove(&(event.thread, address)));
                    self.watched(stage, said.flatten());
                }
            }
            What::Resident { address, bytes } => {
                if let Some(stage) = lives.live.get(&address) {
                    self.resident(stage, Some(bytes));
                }
            }
            _ => {}
        }
    }

    /// All events were noted.
    pub(crate) fn finish(&mut self, lives: &Lives) {
        for ((_, address), bytes) in std::mem::take(&mut self.pending) {
            if let Some(stage) = lives.live.get(&address) {
                self.watched(stage, Some(bytes));
            }
        }
        self.same.values_mut().chain(self.alike.values_mut()).for_each(|all| all.sort_by_key(|one| one.life));
    }

    fn resident(&mut self, stage: &Stage, bytes: Option<u64>) {
        if let Some(bytes) = bytes.filter(|&bytes| bytes < stage.kind.size) {
            self.of_life.insert(stage.life, bytes);
        }
    }

    fn watched(&mut self, stage: &Stage, bytes: Option<u64>) {
        let (Some(bytes), true) = (bytes, stage.kind.size < LARGE) else { return };
        let Stage { life, kind, .. } = *stage;
        let watched = Watched { life, size: kind.size, bytes: bytes.min(kind.size) };
        self.of_life.insert(life, watched.bytes);
        self.same.entry(kind).or_default().push(watched);
        self.alike.entry(kind.coarse()).or_default().push(watched);
    }

    /// How much is to be written of the block from this stage on. None: all, or what was said at a stage before.
    pub(crate) fn of(&self, stage: &Stage) -> Option<u64> {
        if let Some(&bytes) = self.of_life.get(&stage.life) {
            return stage.is_first.then_some(bytes);
        }
        let kind = stage.kind;
        let example = || {
            let all = self.same.get(&kind).or_else(|| self.alike.get(&kind.coarse()))?;
            Some(all[all.partition_point(|one| one.life < stage.life).min(all.len() - 1)])
        };
        let guess = (kind.size < LARGE).then(example).flatten().map(|one| match one.bytes {
            bytes if bytes == one.size => kind.size,
            bytes => (u128::from(bytes) * u128::from(kind.size) / u128::from(one.size)) as u64,
        });
        // Another stage may have had a guess.
        guess.or((!stage.is_first && !self.same.is_empty()).then_some(kind.size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quarry_trace::FreeApi;

    fn event(thread: ThreadId, what: What) -> Event {
        Event { time: 0, thread, what }
    }

    fn alloc(api: AllocApi, size: u64, address: u64) -> What {
        What::Alloc { api, size, address, align: 0, stack: 0 }
    }

    /// What is written at each allocation and realloc of these events.
    fn stages(events: &[Event]) -> Vec<Option<u64>> {
        let (mut lives, mut written) = (Lives::default(), Written::default());
        for event in events {
            written.note(event, &lives);
            lives.begun_by(event);
        }
        written.finish(&lives);
        let mut lives = Lives::default();
        events.iter().filter_map(|event| lives.begun_by(event)).map(|stage| written.of(&stage)).collect()
    }

    #[test]
    fn a_block_is_written_as_the_next_one_of_its_kind() {
        let free = |address| What::Free { api: FreeApi::Free, address, touched: None };
        let said = |address, bytes| What::Written { address, bytes };
        let events = [
            event(1, alloc(AllocApi::Malloc, 8192, 0x10000)),
            event(1, alloc(AllocApi::Malloc, 8192, 0x20000)),
            event(1, alloc(AllocApi::New, 8192, 0x30000)),
            event(1, alloc(AllocApi::Malloc, 8192, 0x40000)),
            event(1, alloc(AllocApi::Malloc, 9000, 0x50000)), // nearly as large
            event(1, alloc(AllocApi::Malloc, 16384, 0x60000)),
            event(1, alloc(AllocApi::Calloc, 8192, 0x70000)),
            event(1, alloc(AllocApi::Malloc, 4095, 0x80000)), // no life
            // Said by the thread that frees, at the time of what it did before.
            event(2, said(0x20000, 100)),
            event(1, said(0x20000, 7777)),
            event(2, free(0x20000)),
            event(1, said(0x40000, 5000)),
        ];
        let guess = 5000 * 9000 / 8192;
        let all = [Some(100), Some(100), Some(5000), Some(5000), Some(guess), None, None];
        assert_eq!(stages(&events), all);
    }

    #[test]
    fn a_block_that_is_resized_is_of_another_kind() {
        let realloc = |old, size, new| What::Realloc { took: 0, old, size, new, stack: 0 };
        let events = [
            event(1, alloc(AllocApi::Malloc, 8192, 0x10000)),
            event(1, alloc(AllocApi::Malloc, 8192, 0x20000)),
            event(1, alloc(AllocApi::Malloc, 1000, 0x30000)),
            event(1, realloc(0x30000, 65536, 0x40000)), // the life begins here
            event(1, realloc(0x20000, 65536, 0x50000)), // as that one
            event(1, realloc(0x50000, 1 << 20, 0x60000)), // nobody knows
            event(1, What::Written { address: 0x10000, bytes: 4096 }),
            event(1, What::Written { address: 0x40000, bytes: 20000 }),
        ];
        assert_eq!(stages(&events), [Some(4096), Some(4096), Some(20000), Some(20000), Some(1 << 20)]);
        // Without a word of the recorder all is written, as before.
        assert_eq!(stages(&events[..6]), [None; 5]);
    }

    #[test]
    fn of_a_large_block_what_was_resident() {
        let free = |address, bytes| What::Free { api: FreeApi::Free, address, touched: Some(bytes) };
        let events = [
            event(1, alloc(AllocApi::Malloc, LARGE, 0x100000)),
            event(1, alloc(AllocApi::Malloc, LARGE, 0x200000)),
            event(1, alloc(AllocApi::Malloc, LARGE, 0x300000)),
            event(1, free(0x100000, 4096)),
            event(1, free(0x200000, LARGE + 4096)),
            event(1, What::Resident { address: 0x300000, bytes: 8192 }),
        ];
        assert_eq!(stages(&events), [Some(4096), None, Some(8192)]);
    }
}
