// SPDX-License-Identifier: MIT
//! All threads' events in one order.
//!
//! Each thread has a cursor. As long as one thread is ahead of nobody, its events are handed out as they are decoded; the
//! others wait in a heap, each with the event that is its next. A thread whose first block is younger than
//! what is handed out has no cursor yet, and one that ended has none any more.
//!
//! A realloc that moves a block gives the old one away and gets the new one at another time. As malloc
//! implementations get the new block before they give away the old one, there is a moment between in which it can
//! be done as a whole: it is handed out when it is over, or before that when another thread gets the
//! old block.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::cursor::{Counts, Cursor};
use crate::damage::Damage;
use crate::error::TraceError;
use crate::event::{Event, FreeApi, ThreadId, What};
use crate::hash::{AddressSet, NumberMap};
use crate::pool_blocks::PoolBlocks;
use crate::reading::Reading;
use crate::stacks::StackTree;
use crate::trace::Trace;

/// Most threads that may have events at the same time: what a reader keeps of each is about a KiB.
const MOST_OPEN: usize = 32 * 1024;
/// Most reallocs that are handed out early for one event.
const CHAIN: usize = 64;
/// How many places in the heap may have been left, beside one for each thread.
const SPARE: usize = 64;

/// The address an event gets, if it gets one.
#[inline]
fn gets(event: &Event) -> Option<u64> {
    match event.what {
        What::Alloc { address, .. } => Some(address),
        What::Realloc { old, new, .. } if old != new => Some(new),
        _ => None,
    }
}

/// The address a realloc gives away, if it moves.
#[inline]
fn moves(event: &Event) -> Option<u64> {
    match event.what {
        What::Realloc { old, new, .. } if old != new => Some(old),
        _ => None,
    }
}

/// When an event is over.
#[inline]
fn over(event: &Event) -> u64 {
    match event.what {
        What::Realloc { old, new, took, .. } if old != new => event.time.saturating_add(took),
        _ => event.time,
    }
}

/// Can it happen, where these blocks are live?
fn is_possible(event: &Event, live: impl Fn(u64) -> bool, pools: Option<&PoolBlocks>) -> bool {
    match event.what {
        What::Pool { pool, ref what } => pools.is_none_or(|pools| pools.is_possible(pool, what)),
        What::Alloc { address, .. } => !live(address),
        What::Free { api: FreeApi::Null, .. } => true,
        What::Free { address, .. } => live(address),
        What::Realloc { old, new, .. } => live(old) && (old == new || !live(new)),
        _ => true,
    }
}

/// What stands in the heap for a thread: when its next event is over, its number, its place, and how often that
/// place has been left without being taken from the heap.
type Waiting = Reverse<(u64, ThreadId, u32, u32)>;

#[derive(Debug)]
struct Slot<'a> {
    cursor: Cursor<'a>,
    thread: ThreadId,
    /// The event that is next, while the thread waits.
    head: Option<Event>,
    stamp: u32,
}

/// Does this place in the heap count, or has it been left?
fn waits(slots: &[Option<Slot>], place: u32, stamp: u32) -> bool {
    let slot = slots.get(place as usize).and_then(|slot| slot.as_ref());
    slot.is_some_and(|slot| slot.stamp == stamp && slot.head.is_some())
}

/// The events of all threads in the order that the format defines. Yields an error at most once, and then ends.
#[derive(Debug)]
pub struct Merged<'a> {
    trace: &'a Trace,
    reading: Reading<'a>,
    slots: Vec<Option<Slot<'a>>>,
    /// Places without a thread, and the stamp that the next one begins with.
    unused: Vec<(u32, u32)>,
    heap: BinaryHeap<Waiting>,
    /// Streams without a cursor yet, the next one last.
    later: Vec<(u64, u32)>,
    /// The thread that is read without waiting.
    current: Option<u32>,
    /// It may go on without waiting up to here, this time not included.
    limit: u64,
    /// Places of threads whose next events are over at the same time, by thread.
    tied: Vec<u32>,
    tied_at: u64,
    /// Reallocs that wait, by the block they give away: the place of the one that begins first.
    moving: NumberMap<u32>,
    /// Reallocs that wait for an earlier one of the same address.
    hidden: usize,
    /// What is live, where only this knows.
    live: Option<AddressSet>,
    /// What is live in pools; of one thread nobody asks.
    pools: Option<PoolBlocks>,
    failed: bool,
}

impl<'a> Merged<'a> {
    pub(crate) fn new(trace: &'a Trace) -> Self {
        let streams = trace.streams();
        let first = |index: usize| trace.blocks(&streams[index])[0].time;
        let mut later: Vec<(u64, u32)> =
            (0..streams.len()).map(|index| (first(index), index as u32)).collect();
        later.sort_unstable_by_key(|&(time, index)| Reverse((time, index)));
        Self {
            trace,
            reading: Reading::new(trace.source()),
            slots: Vec::new(),
            unused: Vec::new(),
            heap: BinaryHeap::new(),
            live: (later.len() > 1).then(AddressSet::default),
            pools: (later.len() > 1).then(PoolBlocks::default),
            later,
            current: None,
            limit: 0,
            tied: Vec::new(),
            tied_at: 0,
            moving: NumberMap::default(),
            hidden: 0,
            failed: false,
        }
    }

    /// Keep the stacks that are defined on the way, for [`Merged::take_stacks`].
    pub fn keep_stacks(mut self) -> Self {
        self.reading.stacks = Some(StackTree::new());
        self
    }

    /// The stacks that were defined so far.
    pub fn stacks(&self) -> Option<&StackTree> {
        self.reading.stacks.as_ref()
    }

    /// The stacks that were defined so far; no more are kept.
    pub fn take_stacks(&mut self) -> StackTree {
        self.reading.stacks.take().unwrap_or_default()
    }

    /// What was found damaged on the way, beside [`Trace::damage`].
    pub fn damage(&self) -> &Damage {
        &self.reading.damage
    }

    /// Bytes of the file read so far.
    pub fn bytes_read(&self) -> u64 {
        self.reading.bytes
    }

    /// The next event, for those who know which blocks are live: the effects of all events so far, and of
    /// nothing else. Takes less time and memory than the iterator, which has to find that out; all events must be
    /// taken in the same way.
    #[inline]
    pub fn next_with(&mut self, live: impl Fn(u64) -> bool) -> Option<Result<Event, TraceError>> {
        match self.step(&live) {
            Ok(event) => {
                if let (Some(event @ Event { what: What::Pool { .. }, .. }), Some(pools)) =
                    (&event, &mut self.pools)
                {
                    pools.note(event);
                }
                event.map(Ok)
            }
            Err(error) => {
                self.fail();
                Some(Err(error))
            }
        }
    }

    #[cold]
    fn fail(&mut self) {
        self.failed = true;
        self.current = None;
        self.tied.clear();
        self.heap.clear();
        self.later.clear();
        self.slots.clear();
    }

    #[inline]
    fn step(&mut self, live: &impl Fn(u64) -> bool) -> Result<Option<Event>, TraceError> {
        loop {
            let Some(place) = self.current else {
                return self.wake(live);
            };
            let Some(slot) = &mut self.slots[place as usize] else { return Ok(None) };
            match slot.cursor.next_event(&mut self.reading)? {
                Some(event) if over(&event) < self.limit && self.moving.is_empty() => return Ok(Some(event)),
                Some(event) if over(&event) < self.limit => return Ok(Some(self.hand_out(place, event))),
                Some(event) => self.wait(place, event),
                None => self.close(place),
            }
            self.current = None;
        }
    }

    /// Let a thread wait with its next event.
    fn wait(&mut self, place: u32, event: Event) {
        self.note_move(place, &event);
        let Some(slot) = &mut self.slots[place as usize] else { return };
        self.heap.push(Reverse((over(&event), slot.thread, place, slot.stamp)));
        slot.head = Some(event);
        // Places that were left far in the future never come to the top, and there may be many for each event.
        if self.heap.len() > 2 * self.slots.len() + SPARE {
            let slots = &self.slots;
            self.heap.retain(|&Reverse((_, _, place, stamp))| waits(slots, place, stamp));
        }
    }

    /// The next event of a thread that waited. It must be in the heap no more.
    fn take(&mut self, place: u32) -> Option<Event> {
        let event = self.slots[place as usize].as_mut()?.head.take()?;
        if let Some(old) = moves(&event) {
            if self.moving.get(old) == Some(&place) {
                self.moving.remove(old);
                self.unhide(old);
            } else {
                self.hidden -= 1;
            }
        }
        Some(event)
    }

    /// An event begins to wait. Of reallocs of the same address the first one counts, then that of the first thread.
    fn note_move(&mut self, place: u32, event: &Event) {
        let Some(old) = moves(event) else { return };
        let other =
            self.moving.get(old).and_then(|&other| self.slots[other as usize].as_ref()?.head.as_ref());
        self.hidden += usize::from(other.is_some());
        if other.is_none_or(|other| (event.time, event.thread) < (other.time, other.thread)) {
            self.moving.insert(old, place);
        }
    }

    /// Another realloc of this block that waits, if there is one.
    fn unhide(&mut self, old: u64) {
        if self.hidden == 0 {
            return;
        }
        let heads = self.slots.iter().enumerate();
        let heads = heads.filter_map(|(place, slot)| Some((slot.as_ref()?.head.as_ref()?, place)));
        let same = heads.filter(|(head, _)| moves(head) == Some(old));
        if let Some((_, place)) = same.min_by_key(|(head, _)| (head.time, head.thread)) {
            self.hidden -= 1;
            self.moving.insert(old, place as u32);
        }
    }

    fn close(&mut self, place: u32) {
        let stamp = self.slots[place as usize].take().map_or(0, |slot| slot.stamp);
        self.unused.push((place, stamp.wrapping_add(1)));
        self.reading.open = self.slots.len() - self.unused.len();
    }

    /// Hand out this event of a thread that does not wait, or before it the realloc of another thread that gives
    /// away the address it gets.
    fn hand_out(&mut self, place: u32, event: Event) -> Event {
        let now = over(&event);
        let (mut place, mut event) = (place, event);
        for _ in 0..CHAIN {
            let giver = gets(&event).and_then(|address| self.moving.get(address)).copied();
            let Some(giver) = giver.filter(|&giver| giver != place && self.has_begun(giver, now)) else {
                break;
            };
            // The giver leaves its place in the heap behind.
            if let Some(slot) = &mut self.slots[giver as usize] {
                slot.stamp = slot.stamp.wrapping_add(1);
            }
            let Some(realloc) = self.take(giver) else { break };
            self.tied.retain(|&tied| tied != giver);
            self.wait(place, event);
            if let Some(index) = self.tied.iter().position(|&tied| tied == place) {
                self.tied.remove(index);
            }
            (place, event) = (giver, realloc);
            self.current = Some(giver);
            self.limit = 0;
        }
        event
    }

    fn has_begun(&self, place: u32, now: u64) -> bool {
        let head = self.slots[place as usize].as_ref().and_then(|slot| slot.head.as_ref());
        head.is_some_and(|head| head.time <= now)
    }

    /// Nobody may go on without waiting: see whose turn it is.
    #[inline(never)]
    fn wake(&mut self, live: &impl Fn(u64) -> bool) -> Result<Option<Event>, TraceError> {
        loop {
            while !self.tied.is_empty() {
                let event = self.next_tied(live)?;
                if event.is_some() {
                    return Ok(event);
                }
            }
            self.open_later()?;
            let Some((time, place)) = self.pop() else { return Ok(None) };
            if self.peek() != Some(time) {
                self.go_on(place);
                return Ok(self.take(place).map(|event| self.hand_out(place, event)));
            }
            self.tied_at = time;
            self.tied.push(place);
            while self.peek() == Some(time) {
                let Some((_, other)) = self.pop() else { break };
                self.tied.push(other);
            }
        }
    }

    /// This thread may go on without waiting as long as it is ahead of nobody.
    fn go_on(&mut self, place: u32) {
        self.current = Some(place);
        let next = self.later.last().map_or(u64::MAX, |&(time, _)| time);
        self.limit = self.peek().map_or(next, |time| time.min(next));
    }

    /// Threads that begin before the next event get a cursor.
    fn open_later(&mut self) -> Result<(), TraceError> {
        while let Some(&(time, index)) = self.later.last() {
            if self.peek().is_some_and(|next| next < time) {
                break;
            }
            self.later.pop();
            let stream = &self.trace.streams()[index as usize];
            let mut cursor = Cursor::new(stream.thread, self.trace.blocks(stream));
            let Some(event) = cursor.next_event(&mut self.reading)? else { continue };
            let (place, stamp) = match self.unused.pop() {
                Some(unused) => unused,
                None if self.slots.len() < MOST_OPEN => {
                    self.slots.push(None);
                    ((self.slots.len() - 1) as u32, 0)
                }
                None => return Err(TraceError::Threads(MOST_OPEN)),
            };
            self.slots[place as usize] = Some(Slot { cursor, thread: stream.thread, head: None, stamp });
            self.reading.open = self.slots.len() - self.unused.len();
            self.wait(place, event);
        }
        Ok(())
    }

    /// When the next event is over of those that wait.
    fn peek(&mut self) -> Option<u64> {
        while let Some(&Reverse((time, _, place, stamp))) = self.heap.peek() {
            if waits(&self.slots, place, stamp) {
                return Some(time);
            }
            self.heap.pop();
        }
        None
    }

    fn pop(&mut self) -> Option<(u64, u32)> {
        while let Some(Reverse((time, _, place, stamp))) = self.heap.pop() {
            if waits(&self.slots, place, stamp) {
                return Some((time, place));
            }
        }
        None
    }

    /// Of events with equal times, the first one that is possible, by thread; if none is, the first one.
    fn next_tied(&mut self, live: &impl Fn(u64) -> bool) -> Result<Option<Event>, TraceError> {
        let possible = |place: &u32| {
            let head = self.slots[*place as usize].as_ref().and_then(|slot| slot.head.as_ref());
            head.is_none_or(|event| is_possible(event, live, self.pools.as_ref()))
        };
        let index = self.tied.iter().position(possible).unwrap_or(0);
        let place = self.tied[index];
        let Some(event) = self.take(place) else {
            // Cannot be: who is tied has an event.
            self.tied.remove(index);
            return Ok(None);
        };
        let event = self.hand_out(place, event);
        if self.current.is_some() {
            // A realloc of somebody else came first.
            self.untie();
            return Ok(Some(event));
        }
        let Some(slot) = &mut self.slots[place as usize] else { return Ok(Some(event)) };
        match slot.cursor.next_event(&mut self.reading)? {
            Some(next) if over(&next) <= self.tied_at => {
                self.note_move(place, &next);
                if let Some(slot) = &mut self.slots[place as usize] {
                    slot.head = Some(next);
                }
            }
            Some(next) => {
                self.tied.remove(index);
                self.wait(place, next);
            }
            None => {
                self.tied.remove(index);
                self.close(place);
            }
        }
        if self.tied.len() == 1 {
            self.untie();
        }
        Ok(Some(event))
    }

    /// Those that are tied wait like all others.
    fn untie(&mut self) {
        for place in std::mem::take(&mut self.tied) {
            if let Some(event) = self.take(place) {
                self.wait(place, event);
            }
        }
    }

    /// The state that the iterator keeps, brought up to date.
    #[inline]
    fn note(live: &mut AddressSet, event: &Event) {
        match event.what {
            What::Alloc { address, .. } => live.insert(address),
            What::Free { address, .. } => live.remove(address),
            What::Realloc { old, new, .. } => {
                live.remove(old);
                live.insert(new);
            }
            _ => {}
        }
    }
}

impl Iterator for Merged<'_> {
    type Item = Result<Event, TraceError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let Some(mut live) = self.live.take() else { return self.next_with(|_| false) };
        let event = self.next_with(|address| live.contains(address));
        if let Some(Ok(event)) = &event {
            Self::note(&mut live, event);
        }
        self.live = Some(live);
        event
    }
}

/// The events of one thread, in its own order. Yields an error at most once, and then ends.
#[derive(Debug)]
pub struct ThreadEvents<'a> {
    cursor: Cursor<'a>,
    reading: Reading<'a>,
    failed: bool,
}

impl<'a> ThreadEvents<'a> {
    pub(crate) fn new(cursor: Cursor<'a>, reading: Reading<'a>) -> Self {
        Self { cursor, reading, failed: false }
    }

    /// What was found damaged on the way.
    pub fn damage(&self) -> &Damage {
        &self.reading.damage
    }

    /// Count events that are left, a piece at a time; is there more to count? Several times faster than to take them one by one.
    pub fn count_on(&mut self, counts: &mut Counts) -> Result<bool, TraceError> {
        let more = !self.failed
            && self.cursor.count(counts, &mut self.reading).inspect_err(|_| self.failed = true)?;
        Ok(more)
    }
}

impl Iterator for ThreadEvents<'_> {
    type Item = Result<Event, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let event = self.cursor.next_event(&mut self.reading).transpose();
        self.failed = matches!(event, Some(Err(_)));
        event
    }
}
