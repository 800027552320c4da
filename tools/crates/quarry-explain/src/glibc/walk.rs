// SPDX-License-Identifier: MIT
//! From the first block of a heap to its end, while the process goes on.
//!
//! Blocks are followed in copies of a mebibyte, so that little changes within one. Where a size leads nowhere nevertheless, something
//! changed between two copies, or a page was touched that was not resident before. Then which pages are resident is asked again,
//! and the heap is followed again from a block before that place, four times from further and further back. What still makes
//! no sense is left out, up to the next place from which many blocks lead on, and counts as not read.

use super::{FLAGS, HEAD, HEAP_ALIGN, MAPPED, PREVIOUS_IN_USE, SMALLEST, lists};
use crate::peek::Reader;

/// After so many live blocks a heap is surely one, ...
const SURE: u64 = 8;
/// ... and after so many blocks nothing but a change while it was read leads nowhere.
const FAR: u64 = 64;
/// The first block is looked for within so much.
pub(super) const FIRST_WITHIN: u64 = 16 << 10;
/// A place to go back to, each so many bytes, and how many are kept.
const MARK_EACH: u64 = 64 << 10;
const MARKS: usize = 64;
/// So often the same place is read again; the first time from so far before it, then from four times as far.
const AGAIN: u32 = 4;
/// So many blocks that lead from one to the next are no chance.
const CHAIN: usize = 24;
/// A heap may have grown by so much since its resident pages were asked for.
pub(super) const GROWTH: u64 = 64 << 20;

/// What is spent on all heaps at most. What changes faster than it can be read would keep us busy.
pub(super) struct Budget {
    /// Parts that are read again.
    mends: u64,
    /// Words that are looked at to find where blocks lead on.
    probes: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { mends: 2048, probes: 1 << 22 }
    }
}

/// Sums over blocks.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Sums {
    pub blocks: u64,
    pub live: u64,
    pub live_blocks: u64,
    pub heads: u64,
    pub free: u64,
    pub free_pages: u64,
    /// What was left out.
    pub unread: u64,
}

/// What one heap's blocks are.
#[derive(Debug, Default)]
pub(super) struct Walked {
    /// The first block, the last one (the free end), and the address behind that.
    pub first: u64,
    pub top: u64,
    pub end: u64,
    pub sums: Sums,
    /// Blocks of a size that caches of threads have.
    pub suspects: Vec<u64>,
    /// Bytes that were read again.
    pub again: u64,
}

/// Where the blocks of a heap end.
#[derive(Clone, Copy)]
pub(super) enum Ends {
    /// At the end of [heap], which was there a moment ago.
    WhereItEnds(u64),
    /// Where the record at the beginning of this heap says, the last ones being only marks if the arena has gone on in another heap.
    AsItSays(u64),
}

/// What its record says, if that can be.
fn size_of_heap(reader: &mut Reader, heap: u64) -> Option<u64> {
    reader.word(heap + 16).filter(|&size| size > 0 && size <= HEAP_ALIGN && size.is_multiple_of(4096))
}

/// Follow the blocks of a heap whose first one is somewhere behind `from`. What leads far and then nowhere is a heap that changes too
/// fast, of which the next block leads nowhere, too.
pub(super) fn first_walk(reader: &mut Reader, from: u64, end: Ends, budget: &mut Budget) -> Option<Walked> {
    let mut at = from.next_multiple_of(16);
    while at < from + FIRST_WITHIN {
        let head = reader.word(at + 8)?;
        // Nothing lies before the first block, so it is as if something live did.
        if head & PREVIOUS_IN_USE != 0 && head & !FLAGS >= SMALLEST {
            let mut walk = Walk::new(reader, at, head & !FLAGS, end, budget)?;
            // What ends a heap is free. Fewer blocks could be anything.
            if walk.follow().is_some() && walk.walked.sums.live_blocks > 0 {
                return Some(walk.walked);
            }
            if walk.walked.sums.blocks >= FAR {
                return None;
            }
        }
        at += 16;
    }
    None
}

/// A place to go back to.
struct Mark {
    at: u64,
    size: u64,
    sums: Sums,
    suspects: usize,
}

struct Walk<'r, 't> {
    reader: &'r mut Reader<'t>,
    ends: Ends,
    /// Where it ends now.
    end: u64,
    /// The last address that may be its own.
    most: u64,
    at: u64,
    size: u64,
    walked: Walked,
    marks: Vec<Mark>,
    /// It is a heap: what leads nowhere changed.
    is_heap: bool,
    /// The last place that led nowhere, and how often it did.
    torn: u64,
    times: u32,
    budget: &'r mut Budget,
}

enum Step {
    On,
    End,
    /// It leads nowhere from here.
    Torn(u64),
}

/// What comes behind a block.
enum Follows {
    Block,
    /// It is the last one; a live one, or the free end.
    Nothing {
        live: bool,
    },
}

/// May this be the head of a block in a heap?
fn is_sound(head: u64) -> bool {
    let size = head & !FLAGS;
    size >= 0x10 && size.is_multiple_of(16) && head & MAPPED == 0
}

impl<'r, 't> Walk<'r, 't> {
    fn new(
        reader: &'r mut Reader<'t>,
        first: u64,
        size: u64,
        ends: Ends,
        budget: &'r mut Budget,
    ) -> Option<Self> {
        let most = reader.extent(first)?.end;
        let end = match ends {
            Ends::WhereItEnds(end) => end,
            Ends::AsItSays(heap) => heap + size_of_heap(reader, heap)?,
        };
        let walked = Walked { first, ..Walked::default() };
        let marks = vec![Mark { at: first, size, sums: Sums::default(), suspects: 0 }];
        let (is_heap, torn, times) = (false, 0, 0);
        Some(Self { reader, ends, end, most, at: first, size, walked, marks, is_heap, torn, times, budget })
    }

    fn follow(&mut self) -> Option<()> {
        loop {
            match self.step()? {
                Step::On => {}
                Step::End => return Some(()),
                Step::Torn(place) => {
                    let sums = &self.walked.sums;
                    self.is_heap |= sums.blocks >= FAR && sums.live_blocks >= SURE;
                    if !self.is_heap {
                        return None;
                    }
                    self.mend(place)?;
                    if self.at >= self.walked.end && self.walked.end > 0 {
                        return Some(());
                    }
                }
            }
        }
    }

    /// From this block to the next.
    fn step(&mut self) -> Option<Step> {
        let (at, size) = (self.at, self.size);
        let Some(next) = at.checked_add(size).filter(|&next| next <= self.most) else {
            return Some(Step::Torn(at));
        };
        let head = self.head(next);
        match self.what_follows(next, head) {
            Follows::Block => {}
            // The pages behind it may be there by now.
            Follows::Nothing { live: true }
                if head.is_none() && self.is_heap_by_now() && next > self.torn =>
            {
                return Some(Step::Torn(next));
            }
            Follows::Nothing { live } => {
                if live {
                    self.count(true)?;
                }
                self.walked.top = if live { next } else { at };
                self.walked.end = match self.ends {
                    // What is behind it has been touched since.
                    Ends::WhereItEnds(end) if live => end.max(next),
                    Ends::WhereItEnds(_) => next,
                    Ends::AsItSays(_) => self.end,
                };
                return Some(Step::End);
            }
        }
        let Some(head) = head.filter(|&head| is_sound(head)) else { return Some(Step::Torn(next)) };
        self.count(head & PREVIOUS_IN_USE != 0)?;
        (self.at, self.size) = (next, head & !FLAGS);
        self.mark();
        Some(Step::On)
    }

    fn is_heap_by_now(&self) -> bool {
        self.is_heap || self.walked.sums.blocks >= FAR && self.walked.sums.live_blocks >= SURE
    }

    /// The word with the size of a block, of a copy that goes on behind it.
    fn head(&mut self, at: u64) -> Option<u64> {
        if !self.reader.has_copied(at + 8) && self.reader.extent(at + 8)?.is_resident(at + 8) {
            self.reader.copy_from(at + 8);
        }
        self.reader.word(at + 8)
    }

    fn what_follows(&mut self, next: u64, head: Option<u64>) -> Follows {
        let page = self.reader.target().page();
        let mut is_empty = |from: u64, to: u64| {
            head.is_none() && self.reader.extent(from).is_none_or(|extent| extent.resident(from, to) == 0)
        };
        let end = self.end;
        let to = match self.ends {
            Ends::WhereItEnds(_) => {
                // [heap] may have ended elsewhere when this was read.
                let to = end.max(next + page);
                if next == end || next.is_multiple_of(page) && is_empty(next, to) {
                    return Follows::Nothing { live: false };
                }
                to
            }
            Ends::AsItSays(_) if next == end => return Follows::Nothing { live: false },
            Ends::AsItSays(_)
                if next < end && end - next <= 0x20 && head.is_none_or(|head| head & !FLAGS <= 0x10) =>
            {
                return Follows::Nothing { live: head.is_some_and(|head| head & PREVIOUS_IN_USE != 0) };
            }
            Ends::AsItSays(_) => end,
        };
        // The heap goes on in pages that were touched after these were asked for.
        if self.walked.sums.live_blocks >= SURE && next < to && is_empty(next, to) {
            return Follows::Nothing { live: true };
        }
        Follows::Block
    }

    fn count(&mut self, live: bool) -> Option<()> {
        let (at, size) = (self.at, self.size);
        // The word before a block's size belongs to the block before it, unless that is free.
        let (from, to) = (at + 8, at + size + 8);
        let extent = self.reader.extent(at)?;
        let sums = &mut self.walked.sums;
        sums.blocks += 1;
        if size < SMALLEST {
            // A mark between memory that the program asked brk for and ours.
            sums.heads += extent.resident(from, to);
        } else if live {
            let resident = extent.resident(from, to);
            sums.live += resident.saturating_sub(HEAD);
            sums.heads += resident.min(HEAD);
            sums.live_blocks += 1;
            if lists::may_be_cache(size) {
                self.walked.suspects.push(at);
            }
        } else {
            sums.free += extent.resident(from, to);
            // Its first words link it, its last one says its size.
            sums.free_pages += extent.whole_pages(at + 0x30, at + size);
        }
        Some(())
    }

    // ---- what changed while it was read -----------------------------------------------------------------

    /// This block is one to go back to, if the last one is far away.
    fn mark(&mut self) {
        if self.marks.last().is_none_or(|mark| self.at - mark.at >= MARK_EACH) {
            if self.marks.len() == MARKS {
                self.marks.remove(0);
            }
            let (sums, suspects) = (self.walked.sums, self.walked.suspects.len());
            self.marks.push(Mark { at: self.at, size: self.size, sums, suspects });
        }
    }

    /// Go on from somewhere, since from here it leads nowhere.
    fn mend(&mut self, place: u64) -> Option<()> {
        self.times = if place > self.torn { 1 } else { self.times + 1 };
        self.torn = self.torn.max(place);
        if self.times > AGAIN || self.budget.mends == 0 {
            return self.leave_out();
        }
        self.budget.mends -= 1;
        let back = MARK_EACH << (2 * (self.times - 1));
        while self.marks.len() > 1 && self.marks.last()?.at + back > place {
            self.marks.pop();
        }
        let mark = self.marks.last()?;
        let (at, size) = (mark.at, mark.size);
        self.walked.sums = mark.sums;
        self.walked.again += place.saturating_sub(at);
        self.walked.suspects.truncate(mark.suspects);
        self.ask_again(at);
        // Its own size may have changed.
        let head = self.head(at).filter(|&head| is_sound(head));
        (self.at, self.size) = (at, head.map_or(size, |head| head & !FLAGS));
        Some(())
    }

    /// Which pages are resident from here on, and where the heap ends.
    fn ask_again(&mut self, from: u64) {
        let page = self.reader.target().page();
        self.reader.renew(from / page * page, self.at.max(self.torn).saturating_add(GROWTH).min(self.most));
        if let Ends::AsItSays(heap) = self.ends
            && let Some(size) = size_of_heap(self.reader, heap)
        {
            self.end = heap + size;
        }
    }

    /// Leave out what comes up to the next place from which blocks lead on.
    fn leave_out(&mut self) -> Option<()> {
        let (from, page) = (self.at, self.reader.target().page());
        self.budget.mends = self.budget.mends.saturating_sub(1);
        self.ask_again(from);
        let last = self.end.max(self.torn).min(self.most);
        let (mut at, mut found) = (from + 16, None);
        while found.is_none() && at < last && self.budget.mends > 0 && self.budget.probes > 0 {
            if !self.reader.extent(at)?.is_resident(at + 8) {
                at = (at + 8) / page * page + page;
                continue;
            }
            self.budget.probes -= 1;
            match self.head(at).filter(|&head| is_sound(head)) {
                Some(head) if self.leads_on(at, head) => found = Some(head),
                _ => at += 16,
            }
        }
        let to = if found.is_some() { at } else { last };
        self.walked.sums.unread += self.reader.extent(from)?.resident(from + 8, to + 8);
        self.torn = self.torn.max(to);
        self.times = 0;
        self.marks.clear();
        match found {
            Some(head) => {
                (self.at, self.size) = (at, head & !FLAGS);
                self.mark();
            }
            None => {
                self.at = last;
                (self.walked.top, self.walked.end) = (last, last);
            }
        }
        Some(())
    }

    /// Do many blocks lead on from here, or some to the end? Of free ones the next one says the size, too.
    fn leads_on(&mut self, mut at: u64, mut head: u64) -> bool {
        for _ in 0..CHAIN {
            self.budget.probes = self.budget.probes.saturating_sub(1);
            let size = head & !FLAGS;
            let Some(next) = at.checked_add(size).filter(|&next| next <= self.most && size >= SMALLEST)
            else {
                return false;
            };
            if next == self.end {
                return true;
            }
            let Some(next_head) = self.reader.word(next + 8).filter(|&head| is_sound(head)) else {
                return false;
            };
            if next_head & PREVIOUS_IN_USE == 0 && self.reader.word(next) != Some(size) {
                return false;
            }
            (at, head) = (next, next_head);
        }
        true
    }
}
