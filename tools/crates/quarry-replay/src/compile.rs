// SPDX-License-Identifier: MIT
//! From a trace to a plan, in two passes over its events. The first finds what was written of each large block, which is known
//! only when it ends, which blocks go from thread to thread, and where the recorder looked at the process. In memory are the live blocks and the threads.

use std::io::{Seek, Write};

use quarry_trace::{AllocApi, Damage, Event, FreeApi, Merged, PoolWhat, ThreadId, Trace, Usage, What};
use serde::Serialize;

use crate::builder::{Builder, Cut, How};
use crate::handed::Handed;
use crate::hash::{AddressMap, AddressSet};
use crate::lives::Lives;
use crate::plan::{Head, PlanError};
use crate::survey::Survey;

/// What of a trace became part of the plan, and what did not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Events of the trace.
    pub events: u64,
    /// Calls that failed when they were recorded: not repeated.
    pub failed: u64,
    /// Frees of blocks that were not allocated in the trace: left out.
    pub unknown_frees: u64,
    /// Reallocs of such blocks: made of NULL.
    pub unknown_reallocs: u64,
    /// Frees that are missing, because the address was handed out again: put in.
    pub implied_frees: u64,
    /// Calls of operator new: made by malloc.
    pub news: u64,
    /// Allocations from pools and other things that took their memory from malloc before: left out.
    pub pool_blocks: u64,
    /// Events of Quarry's own pools: left out.
    pub pool_events: u64,
    /// Events that the recorder could not write.
    pub lost: u64,
}

/// A plan that was made of a trace.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// The plan's head.
    pub head: Head,
    /// What became of the events.
    pub counts: Counts,
    /// What the recorder saw, at each look of the plan.
    pub usage: Vec<Usage>,
    /// What the process ended with. None: it did not end in order, and the last look is not that of its end.
    pub status: Option<u32>,
    /// The files that were mapped as parts of the program.
    pub modules: Vec<String>,
    /// What one thread makes and another one frees.
    pub handed: Handed,
    /// What was found damaged on the way, beside [`Trace::damage`].
    pub damage: Damage,
}

/// The creator of a thread, if nobody knows it. Events of that number are those of threads that have ended.
const UNKNOWN: ThreadId = 0;

/// Compile a trace. `progress` is told now and then how many bytes have been read, of two times those of the trace; when it says
/// false, the trace ends there.
pub fn compile<W: Write + Seek>(
    trace: &Trace,
    output: W,
    cut: Cut,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<Compiled, PlanError> {
    const STEP: u64 = 1 << 16;
    let survey = Survey::new(trace, progress)?;
    let read = survey.bytes_read;
    let mut compiler = Compiler::new(Builder::new(output, cut)?);
    compiler.survey = survey;
    let mut events = trace.events();
    while let Some(event) = compiler.next(&mut events) {
        let event = event?;
        let ns = trace.ticks_to_ns(event.time);
        compiler.event(&event, ns)?;
        if compiler.counts.events.is_multiple_of(STEP) && !progress(read + events.bytes_read()) {
            break;
        }
    }
    compiler.counts.lost = trace.lost(compiler.counts.lost);
    Ok(Compiled { damage: events.damage().clone(), ..compiler.finish()? })
}

/// Takes events one by one.
pub struct Compiler<W> {
    builder: Builder<W>,
    counts: Counts,
    /// Slots of live blocks, by address.
    live: AddressMap<u32>,
    /// Live blocks of pools.
    pool_blocks: AddressSet,
    /// The plan's number of each thread of the trace.
    threads: hashbrown::HashMap<ThreadId, u32, crate::hash::Addresses>,
    first_ns: Option<u64>,
    survey: Survey,
    lives: Lives,
    looks: usize,
}

impl<W: Write + Seek> Compiler<W> {
    /// Begin.
    pub fn new(builder: Builder<W>) -> Self {
        Self {
            builder,
            counts: Counts::default(),
            live: AddressMap::default(),
            pool_blocks: AddressSet::default(),
            threads: hashbrown::HashMap::default(),
            first_ns: None,
            survey: Survey::default(),
            lives: Lives::default(),
            looks: 0,
        }
    }

    fn next(&self, events: &mut Merged) -> Option<Result<Event, quarry_trace::TraceError>> {
        events.next_with(|address| self.live.contains_key(&address) || self.pool_blocks.contains(&address))
    }

    /// Requested bytes that are live.
    pub fn live_bytes(&self) -> u64 {
        self.builder.live()
    }

    /// The plan is complete.
    pub fn finish(self) -> Result<Compiled, PlanError> {
        let Survey { usage, status, modules, handed, .. } = self.survey;
        let head = self.builder.finish()?;
        let damage = Damage::default();
        Ok(Compiled { head, counts: self.counts, usage, status, modules, handed, damage })
    }

    /// Take an event, at this time since the beginning of the trace.
    pub fn event(&mut self, event: &Event, ns: u64) -> Result<(), PlanError> {
        self.counts.events += 1;
        match event.what {
            What::ThreadBegin { creator, .. } if !self.threads.contains_key(&event.thread) => {
                self.begin(event.thread, creator)?;
            }
            What::ThreadEnd | What::ThreadGone => {
                let thread = self.thread(event.thread)?;
                self.builder.end(thread);
            }
            What::Failed { .. } => self.counts.failed += 1,
            What::Lost { count, .. } => self.counts.lost = self.counts.lost.saturating_add(count),
            What::Pool { ref what, .. } => {
                self.counts.pool_events += u64::from(!matches!(what, PoolWhat::Held { .. }));
            }
            What::Alloc { .. } | What::Free { .. } | What::Realloc { .. } => {
                let thread = self.thread(event.thread)?;
                let first = *self.first_ns.get_or_insert(ns);
                self.builder.time(thread, ns.saturating_sub(first))?;
                let stage = self.lives.begun_by(event);
                if let Some(bytes) = stage.and_then(|stage| self.survey.written.of(&stage)) {
                    self.builder.touched(bytes);
                }
                self.call(event, thread)?;
            }
            What::Usage(_) => {
                self.looks += 1;
                if self.survey.is_kept(self.looks - 1) {
                    let thread = self.thread(event.thread)?;
                    let first = self.first_ns.unwrap_or(ns);
                    self.builder.time(thread, ns.saturating_sub(first))?;
                    self.builder.look(thread, self.survey.is_last(self.looks - 1))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The first thread of the trace is thread 0, whatever its number. It also makes those whose creator is not known.
    fn begin(&mut self, thread: ThreadId, creator: ThreadId) -> Result<u32, PlanError> {
        let number = if self.threads.is_empty() {
            0
        } else {
            let known = self.threads.get(&creator).filter(|_| creator != UNKNOWN);
            self.builder.begin(known.copied().unwrap_or(0))?
        };
        self.threads.insert(thread, number);
        Ok(number)
    }

    /// The plan's number of a thread. One that is not known has begun unseen, and so has one that goes on
    /// after its end.
    fn thread(&mut self, thread: ThreadId) -> Result<u32, PlanError> {
        match self.threads.get(&thread).copied() {
            Some(number) if !self.builder.has_ended(number) => Ok(number),
            Some(number) if self.builder.revive(number) => Ok(number),
            _ => self.begin(thread, UNKNOWN),
        }
    }

    fn call(&mut self, event: &Event, thread: u32) -> Result<(), PlanError> {
        match event.what {
            What::Alloc { api: AllocApi::Pool, address, .. } => {
                self.counts.pool_blocks += 1;
                self.pool_blocks.insert(address);
                Ok(())
            }
            What::Alloc { api, size, address, align, .. } => self.alloc(thread, api, size, address, align),
            What::Free { api: FreeApi::Null, .. } => self.builder.free_null(thread),
            What::Free { api: FreeApi::Other, address, .. } if self.pool_blocks.remove(&address) => Ok(()),
            What::Free { address, .. } => match self.live.remove(&address) {
                Some(slot) => self.builder.free(thread, slot),
                None => {
                    self.counts.unknown_frees += 1;
                    Ok(())
                }
            },
            What::Realloc { old, size, new, .. } => self.realloc(thread, old, size, new),
            _ => Ok(()),
        }
    }

    fn alloc(
        &mut self,
        thread: u32,
        api: AllocApi,
        size: u64,
        address: u64,
        align: u8,
    ) -> Result<(), PlanError> {
        self.counts.news += u64::from(matches!(api, AllocApi::New | AllocApi::AlignedNew));
        let how = match api {
            AllocApi::Calloc => How::Calloc,
            AllocApi::Realloc => How::Realloc,
            AllocApi::Memalign | AllocApi::AlignedNew if align > 0 => How::Aligned(align),
            _ => How::Malloc,
        };
        let slot = self.builder.alloc(thread, how, size)?;
        self.hold(thread, address, slot)
    }

    fn realloc(&mut self, thread: u32, old: u64, size: u64, new: u64) -> Result<(), PlanError> {
        let slot = match self.live.remove(&old) {
            Some(slot) => {
                self.builder.realloc(thread, slot, size)?;
                slot
            }
            None => {
                self.counts.unknown_reallocs += 1;
                self.builder.alloc(thread, How::Realloc, size)?
            }
        };
        self.hold(thread, new, slot)
    }

    /// The block at this address is in this slot. If another one is said to be there, its free was not recorded.
    fn hold(&mut self, thread: u32, address: u64, slot: u32) -> Result<(), PlanError> {
        if let Some(before) = self.live.insert(address, slot) {
            self.counts.implied_frees += 1;
            self.builder.free(thread, before)?;
        }
        Ok(())
    }
}
