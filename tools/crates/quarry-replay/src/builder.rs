// SPDX-License-Identifier: MIT
//! Writes a plan from operations that come in the recorded order, in one pass. In memory are the table of
//! slots and the last epochs: what is older is written.
//!
//! `tools/replay/plan.h` says what a plan promises. Here is how it comes about: the last operation on each slot is
//! known. If another thread did it, and not a window of epochs ago, then this thread's operation gets a WAIT
//! before it, and that one, which is still in memory, its SIGNAL bit.

use std::collections::VecDeque;
use std::io::{Seek, SeekFrom, Write};

use crate::plan::{self, Head, PlanError, word};
use crate::slots::{Own, Slots};

/// What orders the operations of different threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// What each block needs, and that no thread runs far ahead.
    Deps,
    /// The recorded order, exactly.
    Strict,
}

/// How a plan is cut.
#[derive(Debug, Clone, Copy)]
pub struct Cut {
    /// What orders threads.
    pub order: Order,
    /// Operations in an epoch.
    pub operations: u32,
    /// An epoch also ends with so many requested bytes, or a 64th of what is live if that is more.
    pub bytes: u64,
    /// Epochs a thread may be ahead.
    pub window: u32,
}

impl Cut {
    /// What suits most traces: epochs of a fraction of a millisecond.
    pub fn new(order: Order) -> Self {
        Self { order, operations: 4096, bytes: 16 << 20, window: 2 }
    }
}

/// So few operations are in an epoch however large they are.
const FEWEST: u32 = 32;
/// Words of a segment in a strict plan.
const STRICT_WORDS: usize = 1 << 20;
/// The lines that a plan counts in.
const TOUCH_LINE: u64 = 64;
/// Times closer to each other are not written.
const TIME_GRAIN_NS: u64 = 50_000;

/// A thread of the plan.
#[derive(Debug, Default)]
struct Thread {
    own: Own,
    /// Its segment of the current epoch; of no meaning in another epoch.
    epoch: u32,
    segment: u32,
    begun: bool,
    ended: bool,
    time_ns: u64,
}

#[derive(Debug, Default)]
struct Segment {
    thread: u32,
    operations: u32,
    words: Vec<u64>,
}

/// How an allocation is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// malloc
    Malloc,
    /// calloc
    Calloc,
    /// aligned to 2 to the power of this
    Aligned(u8),
    /// realloc of NULL
    Realloc,
}

/// Writes a plan.
#[derive(Debug)]
pub struct Builder<W> {
    output: W,
    cut: Cut,
    head: Head,
    slots: Slots,
    threads: Vec<Thread>,
    /// Threads that have ended and are not joined.
    ended: Vec<u32>,
    alive: u32,
    spawned: u32,
    epoch: u32,
    epoch_operations: u32,
    epoch_bytes: u64,
    /// Segments of the epochs that are in memory, the current one last.
    epochs: VecDeque<Vec<Segment>>,
    /// Vectors to use again.
    spare: Vec<Vec<u64>>,
    /// Wider than a size: a trace may say anything, and what was added is taken off again.
    live: u128,
    blocks: u64,
    looks: u32,
    touched: Option<u64>,
}

impl<W: Write + Seek> Builder<W> {
    /// Begin a plan. It has thread 0, which lives as long as the plan.
    pub fn new(mut output: W, cut: Cut) -> Result<Self, PlanError> {
        output.write_all(&Head::default().to_bytes())?;
        let flags = if cut.order == Order::Strict { plan::STRICT } else { 0 };
        Ok(Self {
            output,
            cut,
            head: Head { flags, window: cut.window, bytes: plan::HEAD_BYTES as u64, ..Head::default() },
            slots: Slots::default(),
            threads: vec![Thread { epoch: u32::MAX, ..Thread::default() }],
            ended: Vec::new(),
            alive: 1,
            spawned: 0,
            epoch: 0,
            epoch_operations: 0,
            epoch_bytes: 0,
            epochs: VecDeque::from([Vec::new()]),
            spare: Vec::new(),
            live: 0,
            blocks: 0,
            looks: 0,
            touched: None,
        })
    }

    /// A new thread, made by `creator`, or by thread 0 if that has ended.
    pub fn begin(&mut self, creator: u32) -> Result<u32, PlanError> {
        let gone = self.threads.get(creator as usize).is_none_or(|thread| thread.ended);
        let creator = if gone { 0 } else { creator };
        let thread = u32::try_from(self.threads.len()).ok().filter(|&n| n < plan::SLOTS_MAX);
        let thread = thread.ok_or(PlanError::TooMany("threads"))?;
        self.threads.push(Thread { epoch: u32::MAX, ..Thread::default() });
        // Whoever ended before this one began is no longer there when it begins.
        self.join_ended(creator)?;
        self.push(creator, word(plan::SPAWN, thread, self.spawned))?;
        self.spawned += 1;
        self.alive += 1;
        self.head.alive = self.head.alive.max(self.alive);
        Ok(thread)
    }

    /// The thread ends; thread 0 never does.
    pub fn end(&mut self, thread: u32) {
        let state = &mut self.threads[thread as usize];
        if thread > 0 && !state.ended {
            state.ended = true;
            self.slots.inherit(&mut state.own);
            self.ended.push(thread);
        }
    }

    /// Has the thread ended, so that it can do nothing any more?
    pub fn has_ended(&self, thread: u32) -> bool {
        self.threads[thread as usize].ended
    }

    /// A thread that has ended goes on after all, as it may until somebody was told to wait for its end.
    pub fn revive(&mut self, thread: u32) -> bool {
        let Some(at) = self.ended.iter().position(|&ended| ended == thread) else { return false };
        self.ended.remove(at);
        self.threads[thread as usize].ended = false;
        true
    }

    /// It is this late in the trace, as far as this thread is concerned.
    pub fn time(&mut self, thread: u32, ns: u64) -> Result<(), PlanError> {
        let ns = ns.min(u64::MAX >> plan::INDEX_SHIFT);
        self.head.duration_ns = self.head.duration_ns.max(ns);
        let state = &mut self.threads[thread as usize];
        if state.begun && ns.saturating_sub(state.time_ns) < TIME_GRAIN_NS {
            return Ok(());
        }
        state.begun = true;
        state.time_ns = ns;
        self.push(thread, plan::TIME | ns << plan::INDEX_SHIFT)
    }

    /// The recorder looked at the process; how often before is the number of this look. A look is alone in its epoch: in a
    /// run that looks all that was done before is done then, by all threads, and nothing else. Whoever has ended before
    /// the look of the end is waited for: what malloc keeps for a thread goes with the thread.
    pub fn look(&mut self, thread: u32, is_last: bool) -> Result<(), PlanError> {
        let number = self.looks;
        self.looks = self.looks.checked_add(1).ok_or(PlanError::TooMany("looks"))?;
        self.cut_here()?;
        if is_last {
            self.join_ended(thread)?;
        }
        self.push(thread, word(plan::LOOK, 0, number))?;
        self.cut_here()
    }

    fn join_ended(&mut self, by: u32) -> Result<(), PlanError> {
        for ended in std::mem::take(&mut self.ended) {
            self.push(by, word(plan::JOIN, ended, 0))?;
            self.alive -= 1;
        }
        Ok(())
    }

    /// What comes is of another epoch. A strict plan has one.
    fn cut_here(&mut self) -> Result<(), PlanError> {
        match self.epochs.back() {
            Some(epoch) if self.cut.order == Order::Deps && !epoch.is_empty() => self.next_epoch(),
            _ => Ok(()),
        }
    }

    /// Of the block that the next operation makes or resizes the program wrote no more than so many bytes.
    pub fn touched(&mut self, bytes: u64) {
        self.touched = Some(bytes);
    }

    /// A block of this size, in a new slot.
    pub fn alloc(&mut self, thread: u32, how: How, size: u64) -> Result<u32, PlanError> {
        let (epoch, window, strict) = (self.epoch, self.cut.window, self.cut.order == Order::Strict);
        let usable =
            |slot: &crate::slots::Slot| strict || slot.thread == thread || slot.epoch + window <= epoch;
        let own = &mut self.threads[thread as usize].own;
        let slot = self.slots.take(own, usable)?;
        self.alloc_in(thread, slot, how, size)?;
        Ok(slot)
    }

    /// The same in a slot that the caller chose, and that is empty.
    pub fn alloc_in(&mut self, thread: u32, slot: u32, how: How, size: u64) -> Result<(), PlanError> {
        self.slots.reach(slot)?;
        self.wait_for(thread, slot)?;
        self.put_touched(thread)?;
        let kind = match how {
            How::Malloc => plan::MALLOC,
            How::Calloc => plan::CALLOC,
            How::Realloc => plan::REALLOC,
            How::Aligned(align) => {
                self.push(thread, word(plan::ALIGN, 0, u32::from(align.min(plan::ALIGN_MAX))))?;
                plan::MEMALIGN
            }
        };
        self.blocks += 1;
        self.head.peak_blocks = self.head.peak_blocks.max(self.blocks);
        self.sized(thread, kind, slot, size)
    }

    /// Another size for the block in this slot.
    pub fn realloc(&mut self, thread: u32, slot: u32, size: u64) -> Result<(), PlanError> {
        self.wait_for(thread, slot)?;
        self.put_touched(thread)?;
        self.sized(thread, plan::REALLOC, slot, size)
    }

    fn put_touched(&mut self, thread: u32) -> Result<(), PlanError> {
        let Some(bytes) = self.touched.take() else { return Ok(()) };
        // What has no room in a word is as good as all.
        let Ok(lines) = u32::try_from(bytes.div_ceil(TOUCH_LINE)) else { return Ok(()) };
        self.push(thread, word(plan::TOUCH, 0, lines))
    }

    /// Free the block in this slot; somebody else may get the slot.
    pub fn free(&mut self, thread: u32, slot: u32) -> Result<(), PlanError> {
        self.free_in(thread, slot)?;
        self.slots.give(&mut self.threads[thread as usize].own, slot);
        Ok(())
    }

    /// The same if the caller keeps the slot.
    pub fn free_in(&mut self, thread: u32, slot: u32) -> Result<(), PlanError> {
        self.wait_for(thread, slot)?;
        self.live -= u128::from(std::mem::take(&mut self.slots.get(slot).size));
        self.blocks -= 1;
        self.touch(thread, word(plan::FREE, slot, 0), slot)?;
        self.count(thread, plan::FREE, 0)
    }

    /// free(NULL)
    pub fn free_null(&mut self, thread: u32) -> Result<(), PlanError> {
        self.push(thread, plan::FREE_NULL)?;
        self.count(thread, plan::FREE_NULL, 0)
    }

    /// The statistics function of `.ms` files.
    pub fn stats(&mut self, thread: u32) -> Result<(), PlanError> {
        self.push(thread, plan::STATS)?;
        self.count(thread, plan::STATS, 0)
    }

    /// Requested bytes that are live now.
    pub fn live(&self) -> u64 {
        u64::try_from(self.live).unwrap_or(u64::MAX)
    }

    /// Write what is left. The plan is complete then.
    pub fn finish(mut self) -> Result<Head, PlanError> {
        while let Some(epoch) = self.epochs.pop_front() {
            let number = self.epoch - self.epochs.len() as u32;
            self.write_epoch(epoch, number)?;
        }
        self.head.threads = self.threads.len() as u32;
        self.head.alive = self.head.alive.max(1);
        self.head.slots = self.slots.len();
        self.head.epochs = if self.cut.order == Order::Strict { 1 } else { self.epoch + 1 };
        self.head.operations[0] = self.head.operations[1..].iter().sum();
        self.head.end_live = self.live();
        self.output.seek(SeekFrom::Start(0))?;
        self.output.write_all(&self.head.to_bytes())?;
        self.output.flush()?;
        Ok(self.head)
    }

    /// Have the thread wait until the slot is as it expects it, if it might not be.
    fn wait_for(&mut self, thread: u32, slot: u32) -> Result<(), PlanError> {
        let state = *self.slots.get(slot);
        let old = u64::from(state.epoch) + u64::from(self.cut.window) <= u64::from(self.epoch);
        if self.cut.order == Order::Strict || state.stamp == 0 || state.thread == thread || old {
            return Ok(());
        }
        let back = (self.epoch - state.epoch) as usize;
        let epoch = self.epochs.len() - 1 - back;
        self.epochs[epoch][state.segment as usize].words[state.at as usize] |= plan::SIGNAL;
        self.push(thread, word(plan::WAIT, slot, state.stamp))
    }

    fn sized(&mut self, thread: u32, kind: u64, slot: u32, size: u64) -> Result<(), PlanError> {
        let wide = (size >> 32) as u32;
        if wide > 0 {
            self.push(thread, word(plan::WIDE, 0, wide))?;
        }
        let before = std::mem::replace(&mut self.slots.get(slot).size, size);
        self.live = self.live - u128::from(before) + u128::from(size);
        self.head.peak_live = self.head.peak_live.max(self.live());
        self.touch(thread, word(kind, slot, size as u32), slot)?;
        self.count(thread, kind, size)
    }

    /// An operation on a slot: where it stands is remembered.
    fn touch(&mut self, thread: u32, word: u64, slot: u32) -> Result<(), PlanError> {
        self.push(thread, word)?;
        let segment = self.threads[thread as usize].segment;
        let at = self.current(segment).words.len() as u32 - 1;
        let epoch = self.epoch;
        let state = self.slots.get(slot);
        state.stamp = state.stamp.wrapping_add(1);
        (state.thread, state.epoch, state.segment, state.at) = (thread, epoch, segment, at);
        Ok(())
    }

    fn current(&mut self, segment: u32) -> &mut Segment {
        let epoch = self.epochs.len() - 1;
        &mut self.epochs[epoch][segment as usize]
    }

    /// An operation is complete; with it the epoch may be.
    fn count(&mut self, thread: u32, kind: u64, size: u64) -> Result<(), PlanError> {
        self.head.operations[kind as usize] += 1;
        let segment = self.threads[thread as usize].segment;
        self.current(segment).operations += 1;
        self.epoch_operations += 1;
        self.epoch_bytes = self.epoch_bytes.saturating_add(size);
        let large =
            self.epoch_bytes >= self.cut.bytes.max(self.live() / 64) && self.epoch_operations >= FEWEST;
        if self.cut.order == Order::Deps && (large || self.epoch_operations >= self.cut.operations) {
            self.next_epoch()?;
        }
        Ok(())
    }

    fn next_epoch(&mut self) -> Result<(), PlanError> {
        self.epoch_operations = 0;
        self.epoch_bytes = 0;
        self.epoch += 1;
        if self.epoch == u32::MAX - plan::WINDOW_MAX {
            return Err(PlanError::TooMany("epochs"));
        }
        self.epochs.push_back(Vec::new());
        if self.epochs.len() > self.cut.window as usize {
            let oldest = self.epochs.pop_front().unwrap_or_default();
            self.write_epoch(oldest, self.epoch - self.cut.window)?;
        }
        Ok(())
    }

    /// Append a word to the thread's segment of this epoch.
    fn push(&mut self, thread: u32, word: u64) -> Result<(), PlanError> {
        if self.cut.order == Order::Strict {
            self.turn_to(thread)?;
        } else if self.threads[thread as usize].epoch != self.epoch {
            self.open_segment(thread);
        }
        let segment = self.threads[thread as usize].segment;
        self.current(segment).words.push(word);
        Ok(())
    }

    fn open_segment(&mut self, thread: u32) {
        let words = self.spare.pop().unwrap_or_default();
        let epoch = self.epochs.len() - 1;
        self.epochs[epoch].push(Segment { thread, operations: 0, words });
        let state = &mut self.threads[thread as usize];
        state.epoch = self.epoch;
        state.segment = self.epochs[epoch].len() as u32 - 1;
    }

    /// A strict plan has one open segment: that of the thread whose turn it is.
    fn turn_to(&mut self, thread: u32) -> Result<(), PlanError> {
        let open = self.epochs[0].last();
        // Prefixes stay with what they belong to: a segment is never cut behind one.
        let prefixed = |s: &Segment| {
            s.words.last().is_some_and(|&w| matches!(plan::kind(w), plan::WIDE | plan::ALIGN | plan::TOUCH))
        };
        if open.is_some_and(|s| s.thread == thread && (s.words.len() < STRICT_WORDS || prefixed(s))) {
            return Ok(());
        }
        let done = std::mem::take(&mut self.epochs[0]);
        self.write_epoch(done, 0)?;
        self.open_segment(thread);
        Ok(())
    }

    fn write_epoch(&mut self, segments: Vec<Segment>, epoch: u32) -> Result<(), PlanError> {
        for mut segment in segments {
            let words = segment.words.len() as u32;
            for number in [segment.thread, epoch, words, segment.operations] {
                self.output.write_all(&number.to_le_bytes())?;
            }
            let mut bytes = Vec::with_capacity(segment.words.len() * 8);
            bytes.extend(segment.words.iter().flat_map(|word| word.to_le_bytes()));
            self.output.write_all(&bytes)?;
            self.head.bytes += (plan::SEGMENT_BYTES + bytes.len()) as u64;
            self.head.segments = self.head.segments.checked_add(1).ok_or(PlanError::TooMany("segments"))?;
            segment.words.clear();
            if self.spare.len() < 4096 {
                self.spare.push(segment.words);
            }
        }
        Ok(())
    }
}
