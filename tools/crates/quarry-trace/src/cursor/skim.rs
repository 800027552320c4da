// SPDX-License-Identifier: MIT
//! Counting the events of a thread, without what is in them.
//!
//! Most records are allocations and frees. Of these only the time is read; their other fields are passed over. All else is decoded as for any reader.

use super::Cursor;
use crate::decode::{WITH_STACK, later, op};
use crate::error::TraceError;
use crate::event::{HiddenChild, What};
use crate::reading::Reading;
use crate::wire::Bytes;

/// A record that is passed over has at most a tag and six varints of ten bytes, and eight bytes are looked at where one begins.
const ROOM: usize = 72;

/// What the events of a thread add up to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events.
    pub events: u64,
    /// Allocations and reallocs, also those that failed or ended the block.
    pub allocations: u64,
    /// Events that the recorder lost, by its own word.
    pub lost: u64,
    /// Processes that were made.
    pub forks: u64,
    /// Children that were waited for: their process ids, and how they ended, as wait(2) gives it.
    pub children: Vec<(u32, u32)>,
    /// Children that a call waited for that tells nobody their process ids.
    pub hidden: Vec<HiddenChild>,
}

impl Counts {
    fn add(&mut self, what: &What) {
        self.events += 1;
        match *what {
            What::Alloc { .. } | What::Realloc { .. } | What::Failed { .. } => self.allocations += 1,
            What::Fork { .. } => self.forks += 1,
            What::ChildEnded { child, status } => self.children.push((child, status)),
            What::HiddenChildEnded(child) => self.hidden.push(child),
            What::Lost { count, .. } => self.lost = self.lost.saturating_add(count),
            _ => {}
        }
    }
}

impl<'a> Cursor<'a> {
    /// Count on. Returns after some hundred thousand events at most; is there more?
    pub(crate) fn count(
        &mut self,
        counts: &mut Counts,
        reading: &mut Reading<'a>,
    ) -> Result<bool, TraceError> {
        let before = self.records;
        while self.records - before < 1 << 18 {
            self.pass_over(counts);
            let Some(event) = self.next_event(reading)? else { return Ok(false) };
            counts.add(&event.what);
            // Whether it ended its block is in its addresses, which depend on those that were passed over.
            let realloc = self.tag & 15 == op::REALLOC;
            counts.allocations += u64::from(realloc && matches!(event.what, What::Free { .. }));
        }
        Ok(true)
    }

    /// Pass over records as far as that can be done. A block without a valid sum is decoded in full: it may be damaged anywhere.
    fn pass_over(&mut self, counts: &mut Counts) {
        if !self.block.as_ref().is_some_and(|(block, _)| block.whole) {
            return;
        }
        while let Some(bytes) = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk::<ROOM>()) {
            let variant = bytes[0] >> 4;
            // How many varints follow the time, without that of the stack, and what the record counts as.
            let (fields, allocations) = match bytes[0] & 15 {
                op::ALLOC if !matches!(variant & 7, 2 | 4) => (2, 1),
                op::FREE if matches!(variant, 0 | 1 | 2 | 4) => (1, 0),
                op::REALLOC if variant & !(1 | WITH_STACK) == 0 => (4 - (variant & 1), 1),
                _ => return,
            };
            let mut from = Bytes::new(bytes, 1);
            let Some(time) = from.varint().ok().and_then(|dt| later(&self.state, dt).ok()) else { return };
            let stacks = u8::from(bytes[0] & 15 != op::FREE && variant & WITH_STACK != 0);
            let short = (0..fields).all(|_| from.skip_varint()) && (0..stacks).all(|_| from.u32().is_ok());
            // Times that go back are for the reader that notes them, and numbers of more than 56 bits for who can tell
            // if they have too many.
            if time < self.last || !short {
                return;
            }
            self.state.time = time;
            self.last = time;
            self.at += from.at;
            self.records += 1;
            counts.events += 1;
            counts.allocations += allocations;
        }
    }
}
