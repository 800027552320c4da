// SPDX-License-Identifier: MIT
//! Which slot a block gets, so that the table stays as small as what is live, and nobody waits for a slot.
//!
//! A thread takes first what it has freed last. What it does not need itself goes into a queue for all,
//! from which a slot is taken when it was freed a window of epochs ago: then nobody has to wait for it. New slots
//! are dealt out by the handful, so that threads do not write into the same cache line.

use std::collections::VecDeque;

use crate::plan::{PlanError, SLOTS_MAX};

/// Freed slots that a thread keeps for itself.
const KEPT: usize = 256;
/// New slots in a handful.
const HANDFUL: u32 = 16;

/// What is known of a slot.
#[derive(Debug, Clone, Copy, Default)]
pub struct Slot {
    /// Operations on it so far.
    pub stamp: u32,
    /// Who touched it last; of no meaning at stamp 0.
    pub thread: u32,
    /// In this epoch.
    pub epoch: u32,
    /// In this segment of the epoch,
    pub segment: u32,
    /// with this word of the segment.
    pub at: u32,
    /// Requested bytes of its block.
    pub size: u64,
}

/// A thread's own part.
#[derive(Debug, Default)]
pub struct Own {
    freed: VecDeque<u32>,
    fresh: std::ops::Range<u32>,
}

/// The table of slots.
#[derive(Debug, Default)]
pub struct Slots {
    table: Vec<Slot>,
    old: VecDeque<u32>,
    fresh: Vec<std::ops::Range<u32>>,
}

impl Slots {
    /// How many there are.
    pub fn len(&self) -> u32 {
        self.table.len() as u32
    }

    /// Make sure that slot number `slot` exists, for those who number slots themselves.
    pub fn reach(&mut self, slot: u32) -> Result<(), PlanError> {
        if slot >= SLOTS_MAX {
            return Err(PlanError::Slots);
        }
        if slot >= self.len() {
            self.table.resize(slot as usize + 1, Slot::default());
        }
        Ok(())
    }

    /// What is known of a slot.
    pub fn get(&mut self, slot: u32) -> &mut Slot {
        &mut self.table[slot as usize]
    }

    /// An empty slot for a thread. `usable` says of another thread's slot if it may be taken without waiting.
    pub fn take(&mut self, own: &mut Own, usable: impl Fn(&Slot) -> bool) -> Result<u32, PlanError> {
        if let Some(slot) = own.freed.pop_back() {
            return Ok(slot);
        }
        if let Some(&slot) = self.old.front().filter(|&&slot| usable(&self.table[slot as usize])) {
            self.old.pop_front();
            return Ok(slot);
        }
        if own.fresh.is_empty() {
            own.fresh = match self.fresh.pop() {
                Some(range) => range,
                None => self.deal()?,
            };
        }
        own.fresh.next().ok_or(PlanError::Slots)
    }

    fn deal(&mut self) -> Result<std::ops::Range<u32>, PlanError> {
        let first = self.len();
        self.reach(first.saturating_add(HANDFUL - 1))?;
        Ok(first..self.len())
    }

    /// The thread has freed the block in this slot.
    pub fn give(&mut self, own: &mut Own, slot: u32) {
        own.freed.push_back(slot);
        if own.freed.len() > KEPT {
            self.old.extend(own.freed.drain(..KEPT / 2));
        }
    }

    /// The thread has ended.
    pub fn inherit(&mut self, own: &mut Own) {
        self.old.extend(own.freed.drain(..));
        let fresh = std::mem::take(&mut own.fresh);
        if !fresh.is_empty() {
            self.fresh.push(fresh);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_freed_last_is_taken_first() {
        let (mut slots, mut own) = (Slots::default(), Own::default());
        let taken: Vec<u32> = (0..40).map(|_| slots.take(&mut own, |_| false).unwrap()).collect();
        assert_eq!(taken, (0..40).collect::<Vec<u32>>());
        assert_eq!(slots.len(), 48);
        slots.give(&mut own, 7);
        slots.give(&mut own, 3);
        assert_eq!(slots.take(&mut own, |_| false).unwrap(), 3);
        assert_eq!(slots.take(&mut own, |_| false).unwrap(), 7);
    }

    #[test]
    fn what_others_freed_is_taken_when_it_is_old_enough() {
        let (mut slots, mut giver, mut taker) = (Slots::default(), Own::default(), Own::default());
        for _ in 0..300 {
            let slot = slots.take(&mut taker, |_| false).unwrap();
            slots.get(slot).epoch = slot / 10;
            slots.give(&mut giver, slot);
        }
        // The giver keeps the last ones.
        assert_eq!(slots.take(&mut taker, |slot| slot.epoch == 0).unwrap(), 0);
        let fresh = slots.take(&mut taker, |_| false).unwrap();
        assert!(fresh >= 300, "{fresh}");
        slots.inherit(&mut giver);
        assert_eq!(slots.take(&mut taker, |_| true).unwrap(), 1);
    }

    #[test]
    fn new_slots_of_the_dead_are_not_lost() {
        let (mut slots, mut first, mut second) = (Slots::default(), Own::default(), Own::default());
        assert_eq!(slots.take(&mut first, |_| true).unwrap(), 0);
        slots.inherit(&mut first);
        assert_eq!(slots.take(&mut second, |_| true).unwrap(), 1);
        assert_eq!(slots.len(), 16);
    }

    #[test]
    fn there_is_an_end_of_slots() {
        let mut slots = Slots::default();
        assert!(matches!(slots.reach(SLOTS_MAX), Err(PlanError::Slots)));
        slots.reach(70_000).unwrap();
        assert_eq!(slots.len(), 70_001);
    }
}
