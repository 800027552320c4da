// SPDX-License-Identifier: MIT
//! What the next block is like, drawn from the phase that its number falls into.

use std::collections::BTreeMap;

use quarry_measure::rng::Rng;
use quarry_trace::{AllocApi, ThreadId};

use super::calendar::NEVER;
use super::model::{Cell, Counted, Drawn, Growth, Life, Model};
use crate::dist::{Alias, MOST, Sampler, between, fraction};

/// In what order a block dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// When its own time comes.
    Own,
    /// Of its thread's blocks of this order the youngest dies first.
    Lifo,
    /// The oldest.
    Fifo,
}

/// How a block grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Growing {
    /// how often
    pub steps: u32,
    /// bytes in the end
    pub last: u64,
    /// allocations to the last reallocation
    pub span: u64,
}

/// A block to be.
#[derive(Debug, Clone)]
pub struct Birth {
    pub thread: ThreadId,
    pub freed_by: ThreadId,
    pub api: AllocApi,
    pub align: u8,
    pub size: u64,
    /// The number of the allocation before which it dies.
    pub due: u64,
    pub order: Order,
    pub growth: Option<Growing>,
    pub max_live: Option<u64>,
    /// Allocations in a second.
    pub rate: f64,
}

/// All blocks of a model, in order.
#[derive(Debug)]
pub struct Births<'m> {
    model: &'m Model,
    /// The number of the first allocation of each phase, and of the one behind the last.
    starts: Vec<u64>,
    phase: usize,
    draw: Draw<'m>,
}

/// How the current phase draws.
#[derive(Debug)]
enum Draw<'m> {
    Drawn(Box<Drawing<'m>>),
    Counted(Counting<'m>),
}

impl<'m> Births<'m> {
    /// The model has been checked: it has a phase, and each is either drawn or counted.
    pub fn new(model: &'m Model, rng: &mut Rng) -> Self {
        let mut starts = vec![0];
        for phase in &model.phases {
            starts.push(starts[starts.len() - 1] + phase.allocations);
        }
        Self { model, starts, phase: 0, draw: Draw::of(model, 0, rng) }
    }

    /// The block of this number; `None` behind the last one.
    pub fn next(&mut self, now: u64, rng: &mut Rng) -> Option<Birth> {
        while now >= self.starts[self.phase + 1] {
            if self.phase + 1 == self.model.phases.len() {
                return None;
            }
            self.phase += 1;
            self.draw = Draw::of(self.model, self.phase, rng);
        }
        let mut birth = match &mut self.draw {
            Draw::Drawn(drawing) => drawing.next(now, rng),
            Draw::Counted(counting) => counting.next(now, self.phase, &self.starts, rng)?,
        };
        birth.rate = self.model.phases[self.phase].rate;
        Some(birth)
    }
}

impl<'m> Draw<'m> {
    fn of(model: &'m Model, phase: usize, rng: &mut Rng) -> Self {
        static NOTHING: Counted = Counted { cells: Vec::new(), handovers: Vec::new() };
        let phase = &model.phases[phase];
        match &phase.drawn {
            Some(drawn) => Draw::Drawn(Box::new(Drawing::new(drawn))),
            None => Draw::Counted(Counting::new(phase.counted.as_ref().unwrap_or(&NOTHING), rng)),
        }
    }
}

/// Draws from distributions.
#[derive(Debug)]
struct Drawing<'m> {
    drawn: &'m Drawn,
    sizes: Sampler,
    lifetimes: Sampler,
    rates: Option<Alias>,
    /// Who frees what a thread allocated.
    handovers: BTreeMap<ThreadId, (Alias, Vec<ThreadId>)>,
}

impl<'m> Drawing<'m> {
    fn new(drawn: &'m Drawn) -> Self {
        let mut by_thread: BTreeMap<ThreadId, (Vec<f64>, Vec<ThreadId>)> = BTreeMap::new();
        for &(from, to, weight) in &drawn.handovers {
            let (weights, threads) = by_thread.entry(from).or_default();
            weights.push(weight);
            threads.push(to);
        }
        let alias = |(from, (weights, threads)): (ThreadId, (Vec<f64>, Vec<ThreadId>))| {
            (from, (Alias::new(&weights), threads))
        };
        Self {
            drawn,
            sizes: drawn.sizes.sampler(),
            lifetimes: drawn.lifetimes.sampler(),
            rates: (!drawn.rates.is_empty()).then(|| Alias::new(&drawn.rates)),
            handovers: by_thread.into_iter().map(alias).collect(),
        }
    }

    fn next(&mut self, now: u64, rng: &mut Rng) -> Birth {
        let drawn = self.drawn;
        let size = self.sizes.draw(rng).unwrap_or(0);
        let lifetime = self.lifetimes.draw(rng);
        let index = match &self.rates {
            Some(rates) => rates.draw(rng),
            None => rng.below(drawn.threads as usize),
        };
        let thread = index as ThreadId + 1;
        let chance = |share: f64, rng: &mut Rng| share > 0.0 && fraction(rng) < share;
        let freed_by = match self.handovers.get(&thread) {
            Some((which, threads)) => threads[which.draw(rng)],
            None if self.handovers.is_empty() && chance(drawn.handover, rng) => {
                partner(thread, drawn.threads)
            }
            None => thread,
        };
        let order = if drawn.lifo + drawn.fifo > 0.0 {
            match fraction(rng) {
                x if x < drawn.lifo => Order::Lifo,
                x if x < drawn.lifo + drawn.fifo => Order::Fifo,
                _ => Order::Own,
            }
        } else {
            Order::Own
        };
        let growth = drawn.growth.as_ref().filter(|growth| chance(growth.share, rng));
        let growth = growth.map(|growth| growing(growth, size, lifetime, rng));
        let api = if chance(drawn.calloc, rng) { AllocApi::Calloc } else { AllocApi::Malloc };
        Birth {
            thread,
            freed_by,
            api,
            align: 0,
            size,
            due: lifetime.map_or(NEVER, |lifetime| now + 1 + lifetime),
            order,
            growth,
            max_live: drawn.max_live,
            rate: 0.0,
        }
    }
}

/// Who frees for whom: 1 and 2 do it for each other, 3 and 4, and the last of an odd number for the first.
fn partner(thread: ThreadId, threads: u32) -> ThreadId {
    if thread.is_multiple_of(2) {
        thread - 1
    } else if thread < threads {
        thread + 1
    } else {
        1
    }
}

fn growing(growth: &Growth, size: u64, lifetime: Option<u64>, rng: &mut Rng) -> Growing {
    // Any number whose mean is the one wished. One without bound would make some blocks larger than all others
    // together.
    let steps = between(rng, 1, (2.0 * growth.steps - 1.0).round() as u64) as u32;
    let last = size as f64 * libm::pow(growth.factor, f64::from(steps));
    let span = lifetime.unwrap_or(1 << 16);
    Growing { steps, last: (last.round().min(MOST as f64) as u64).max(1), span: between(rng, span / 2, span) }
}

/// Makes what was counted, in random order.
#[derive(Debug)]
struct Counting<'m> {
    cells: &'m [Cell],
    /// Indices of cells that are still to come.
    left: Vec<u32>,
    /// Who frees what a thread allocated: still to come.
    handovers: BTreeMap<ThreadId, Vec<ThreadId>>,
}

impl<'m> Counting<'m> {
    fn new(counted: &'m Counted, rng: &mut Rng) -> Self {
        let mut left = Vec::new();
        for (index, cell) in counted.cells.iter().enumerate() {
            left.extend(std::iter::repeat_n(index as u32, cell.count as usize));
        }
        rng.shuffle(&mut left);
        let mut handovers: BTreeMap<ThreadId, Vec<ThreadId>> = BTreeMap::new();
        for &(from, to, count) in &counted.handovers {
            handovers.entry(from).or_default().extend(std::iter::repeat_n(to, count as usize));
        }
        handovers.values_mut().for_each(|threads| rng.shuffle(threads));
        Self { cells: &counted.cells, left, handovers }
    }

    fn next(&mut self, now: u64, phase: usize, starts: &[u64], rng: &mut Rng) -> Option<Birth> {
        let cell = &self.cells[self.left.pop()? as usize];
        let end = starts[starts.len() - 1];
        let due = match cell.life {
            Life::After(from, to) => now + 1 + between(rng, from, to),
            Life::Phase(ahead) => {
                let phase = phase.saturating_add(ahead as usize).min(starts.len() - 2);
                between(rng, (now + 1).max(starts[phase] + 1), starts[phase + 1])
            }
            Life::End => end,
            Life::Never => NEVER,
        };
        // The imitated trace has it freed before its end.
        let due = if cell.life == Life::Never { NEVER } else { due.min(end) };
        let freed = due != NEVER;
        let freed_by = if freed { self.handovers.get_mut(&cell.thread).and_then(Vec::pop) } else { None };
        let growth = cell.grows.map(|grows| {
            let span = between(rng, grows.span.0, grows.span.1).min(due.min(end).saturating_sub(now + 1));
            Growing { steps: grows.steps, last: between(rng, grows.last.0, grows.last.1), span }
        });
        Some(Birth {
            thread: cell.thread,
            freed_by: freed_by.unwrap_or(cell.thread),
            api: cell.api.0,
            align: cell.align,
            size: between(rng, cell.size.0, cell.size.1),
            due,
            order: Order::Own,
            growth,
            max_live: None,
            rate: 0.0,
        })
    }
}
