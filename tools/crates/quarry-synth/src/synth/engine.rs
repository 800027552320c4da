// SPDX-License-Identifier: MIT
//! From a model to events, one after the other: memory is that of the blocks that live, whatever the length.
//!
//! Time is counted in allocations. Before an allocation is made, what is due at its number is done: blocks die, or
//! are reallocated.

use std::collections::VecDeque;

use quarry_measure::rng::Rng;
use quarry_trace::{AllocApi, Event, FreeApi, ThreadId, What};

use super::birth::{Birth, Births, Order};
use super::calendar::{Calendar, NEVER};
use super::model::Model;
use crate::space::Space;

/// Ticks of the synthetic clock in a second.
pub const TICKS_PER_SECOND: u64 = 1_000_000_000;

/// What a run of the engine could not do as the model says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Remarks {
    /// Blocks that died early to keep to `max_live`.
    pub died_early: u64,
    /// Blocks that are smaller than drawn because of it.
    pub cut: u64,
    /// Allocations for which there was no address.
    pub failed: u64,
}

/// A block that lives, or a place for one.
#[derive(Debug, Clone)]
struct Block {
    address: u64,
    size: u64,
    thread: ThreadId,
    freed_by: ThreadId,
    api: AllocApi,
    align: u8,
    live: bool,
    /// Entries of the calendar that are about an earlier block here do not count.
    generation: u32,
    growth: Option<Box<(u64, u64, u32)>>,
}

/// Who dies.
#[derive(Debug, Clone, Copy)]
enum Death {
    /// This block.
    Block { id: u32, generation: u32 },
    /// The youngest of this thread's blocks that die in that order.
    Youngest(ThreadId),
    /// The oldest.
    Oldest(ThreadId),
}

/// Who is reallocated, and for the how-manieth time.
#[derive(Debug, Clone, Copy)]
struct Step {
    id: u32,
    generation: u32,
    step: u32,
}

/// Blocks of a thread that die in an order.
#[derive(Debug, Clone, Default)]
struct Ordered {
    begun: bool,
    lifo: Vec<u32>,
    fifo: VecDeque<u32>,
}

/// The events of a model.
#[derive(Debug)]
pub struct Engine<'m> {
    model: &'m Model,
    rng: Rng,
    births: Births<'m>,
    space: Space,
    blocks: Vec<Block>,
    unused: Vec<u32>,
    threads: Vec<Ordered>,
    deaths: Calendar<Death>,
    steps: Calendar<Step>,
    due_deaths: Vec<Death>,
    due_steps: Vec<Step>,
    /// Of allocations.
    now: u64,
    live_bytes: u64,
    bounded: bool,
    /// The bound of the phase of the last allocation.
    max_live: Option<u64>,
    /// Of the clock, in ticks: of the last event, and when the current allocation is.
    last_time: u64,
    time: f64,
    ended: bool,
    events: VecDeque<Event>,
    remarks: Remarks,
}

impl<'m> Engine<'m> {
    /// The model has been checked.
    pub fn new(model: &'m Model, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let births = Births::new(model, &mut rng);
        let bound = |phase: &super::model::Phase| phase.drawn.as_ref().is_some_and(|d| d.max_live.is_some());
        Self {
            model,
            rng,
            births,
            space: Space::new(),
            blocks: Vec::new(),
            unused: Vec::new(),
            threads: Vec::new(),
            deaths: Calendar::new(0),
            steps: Calendar::new(0),
            due_deaths: Vec::new(),
            due_steps: Vec::new(),
            now: 0,
            live_bytes: 0,
            bounded: model.phases.iter().any(bound),
            max_live: None,
            last_time: 0,
            time: 0.0,
            ended: false,
            events: VecDeque::new(),
            remarks: Remarks::default(),
        }
    }

    /// What could not be done so far.
    pub fn remarks(&self) -> Remarks {
        self.remarks
    }

    /// Allocations made so far.
    pub fn allocations(&self) -> u64 {
        self.now
    }

    /// The time of the last event.
    pub fn end_time(&self) -> u64 {
        self.last_time
    }

    /// What happens up to the next allocation.
    fn advance(&mut self) {
        self.do_what_is_due();
        match self.births.next(self.now, &mut self.rng) {
            Some(birth) => {
                self.time += TICKS_PER_SECOND as f64 / birth.rate;
                self.allocate(&birth);
                self.now += 1;
            }
            None => self.end(),
        }
    }

    fn do_what_is_due(&mut self) {
        let mut steps = std::mem::take(&mut self.due_steps);
        self.steps.take(&mut steps);
        for step in steps.drain(..) {
            self.reallocate(step);
        }
        self.due_steps = steps;
        let mut deaths = std::mem::take(&mut self.due_deaths);
        self.deaths.take(&mut deaths);
        for death in deaths.drain(..) {
            self.die(death);
        }
        self.due_deaths = deaths;
    }

    fn end(&mut self) {
        if self.model.free_all {
            for id in 0..self.blocks.len() as u32 {
                if self.blocks[id as usize].live {
                    self.free(id);
                }
            }
        }
        for index in 0..self.threads.len() {
            if self.threads[index].begun {
                self.emit(index as ThreadId + 1, What::ThreadEnd);
            }
        }
        self.ended = true;
    }

    fn allocate(&mut self, birth: &Birth) {
        self.max_live = birth.max_live;
        let size = self.make_room(birth.size);
        let Some(address) = self.space.take(size, birth.align) else {
            self.remarks.failed += 1;
            self.emit(birth.thread, What::Failed { api: birth.api, size });
            return;
        };
        self.live_bytes += size;
        let generation = self.now as u32;
        let block = Block {
            address,
            size,
            thread: birth.thread,
            freed_by: birth.freed_by,
            api: birth.api,
            align: birth.align,
            live: true,
            generation,
            growth: birth.growth.as_ref().map(|g| Box::new((size, g.last, g.steps))),
        };
        let id = match self.unused.pop() {
            Some(id) => {
                self.blocks[id as usize] = block;
                id
            }
            None => {
                self.blocks.push(block);
                (self.blocks.len() - 1) as u32
            }
        };
        self.emit(birth.thread, What::Alloc { api: birth.api, size, address, align: birth.align, stack: 0 });
        let threads = &mut self.threads[birth.thread as usize - 1];
        let death = match birth.order {
            Order::Own => Death::Block { id, generation },
            Order::Lifo => {
                threads.lifo.push(id);
                Death::Youngest(birth.thread)
            }
            Order::Fifo => {
                threads.fifo.push_back(id);
                Death::Oldest(birth.thread)
            }
        };
        if birth.due != NEVER || self.bounded {
            self.deaths.add(birth.due, death);
        }
        if let Some(growth) = &birth.growth {
            for step in 1..=growth.steps {
                // As an array that is filled at a constant rate and grows by a factor: the last half of its time
                // passes between the last step but one and the last.
                let ahead = growth.span >> (growth.steps - step).min(63);
                let date = self.now + 1 + ahead;
                if date <= birth.due {
                    self.steps.add(date, Step { id, generation, step });
                }
            }
        }
    }

    /// Have blocks die until so many bytes more fit; how many do.
    fn make_room(&mut self, size: u64) -> u64 {
        let Some(most) = self.max_live else { return size };
        while self.live_bytes.saturating_add(size) > most {
            let Some(death) = self.deaths.take_early() else { break };
            if self.die(death) {
                self.remarks.died_early += 1;
            }
        }
        let room = most.saturating_sub(self.live_bytes);
        if size > room {
            self.remarks.cut += 1;
        }
        size.min(room)
    }

    fn reallocate(&mut self, Step { id, generation, step }: Step) {
        let is_it = |block: &Block| block.live && block.generation == generation;
        let block = &self.blocks[id as usize];
        if !is_it(block) {
            return;
        }
        let Some((first, last, steps)) = block.growth.as_deref().copied() else { return };
        let before = block.size;
        let mut size = between_in_steps(first, last, steps, step);
        if size > before {
            size = before + self.make_room(size - before);
        }
        let block = &mut self.blocks[id as usize];
        // It may be the one that died to make room.
        if !is_it(block) {
            return;
        }
        let (old, thread) = (block.address, block.thread);
        let Some(new) = self.space.resize(old, block.size, size, block.align) else {
            self.remarks.failed += 1;
            self.emit(thread, What::Failed { api: AllocApi::Realloc, size });
            return;
        };
        self.live_bytes = self.live_bytes - block.size + size;
        (block.address, block.size) = (new, size);
        self.emit(thread, What::Realloc { took: 0, old, size, new, stack: 0 });
    }

    /// Did a block die? It may have done so before.
    fn die(&mut self, death: Death) -> bool {
        let of = |thread: ThreadId| thread as usize - 1;
        let id = match death {
            Death::Block { id, generation } => {
                let block = &self.blocks[id as usize];
                (block.live && block.generation == generation).then_some(id)
            }
            Death::Youngest(thread) => self.threads[of(thread)].lifo.pop(),
            Death::Oldest(thread) => self.threads[of(thread)].fifo.pop_front(),
        };
        if let Some(id) = id {
            self.free(id);
        }
        id.is_some()
    }

    fn free(&mut self, id: u32) {
        let block = &mut self.blocks[id as usize];
        block.live = false;
        block.growth = None;
        let (address, size, align, thread) = (block.address, block.size, block.align, block.freed_by);
        let api = match block.api {
            AllocApi::New | AllocApi::AlignedNew => FreeApi::Delete,
            AllocApi::Pool => FreeApi::Other,
            _ => FreeApi::Free,
        };
        self.live_bytes -= size;
        self.space.give(address, size, align);
        self.unused.push(id);
        self.emit(thread, What::Free { api, address, touched: None });
    }

    /// Events of all threads have different times, so their order is that of the file's reader too.
    fn emit(&mut self, thread: ThreadId, what: What) {
        let time = (self.time as u64).max(self.last_time + 1);
        self.last_time = time;
        let index = thread as usize - 1;
        if self.threads.len() <= index {
            self.threads.resize_with(index + 1, Ordered::default);
        }
        if !std::mem::replace(&mut self.threads[index].begun, true) {
            self.events.push_back(Event {
                time,
                thread,
                what: What::ThreadBegin { tid: thread, creator: 0 },
            });
        }
        self.events.push_back(Event { time, thread, what });
    }
}

/// The size after `step` of `steps` on the way from `first` to `last`, in geometric sequence.
fn between_in_steps(first: u64, last: u64, steps: u32, step: u32) -> u64 {
    if step >= steps {
        return last;
    }
    let (a, b) = (libm::log(first.max(1) as f64), libm::log(last.max(1) as f64));
    libm::exp(a + (b - a) * f64::from(step) / f64::from(steps)).round() as u64
}

impl Iterator for Engine<'_> {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            if self.ended {
                return None;
            }
            self.advance();
        }
    }
}
