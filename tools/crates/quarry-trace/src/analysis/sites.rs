// SPDX-License-Identifier: MIT
//! What was allocated from where.

use super::Analysis;
use super::zeroed::Zeroed;
use crate::event::StackId;
use crate::hash::NumberMap;
use crate::sample::{Estimate, Weight};

/// What one call stack allocated.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Site {
    /// The stack; 0: not recorded.
    pub stack: StackId,
    /// Allocations and reallocs.
    pub count: Estimate,
    /// Bytes requested by them.
    pub bytes: Estimate,
    /// Blocks of it that are live.
    pub live: Estimate,
    /// Bytes of them.
    pub live_bytes: Estimate,
    /// Blocks of it that were live when the program had most live.
    pub peak: Estimate,
    /// Bytes of it that were live when the program had most live.
    pub peak_bytes: Estimate,
    /// Allocations that were the thread's last event before their free.
    pub temporary: Estimate,
    /// Its large blocks of calloc.
    pub zeroed: Zeroed,
    /// The peak that `peak_bytes` is about.
    epoch: u64,
}

/// All call stacks that allocated. Memory grows with their number.
#[derive(Debug, Default)]
pub(crate) struct Sites {
    sites: Vec<Site>,
    index: NumberMap<u32>,
    /// Peaks so far.
    epoch: u64,
}

impl Sites {
    #[inline]
    fn at(&mut self, stack: StackId) -> &mut Site {
        let (sites, epoch) = (&mut self.sites, self.epoch);
        let index = *self.index.get_or(stack.into(), || {
            sites.push(Site { stack, epoch, ..Site::default() });
            sites.len() as u32 - 1
        });
        let site = &mut sites[index as usize];
        // A peak since the last change here: what is live now was live then.
        if site.epoch != epoch {
            site.epoch = epoch;
            (site.peak, site.peak_bytes) = (site.live, site.live_bytes);
        }
        site
    }

    #[inline]
    pub(crate) fn born(&mut self, stack: StackId, bytes: u64, weight: Weight) {
        let site = self.at(stack);
        site.count.count(weight);
        site.bytes.add(bytes, weight);
        site.live.count(weight);
        site.live_bytes.add(bytes, weight);
    }

    #[inline]
    pub(crate) fn ended(&mut self, stack: StackId, bytes: u64, weight: Weight, temporary: bool) {
        let site = self.at(stack);
        site.live.take(1, weight);
        site.live_bytes.take(bytes, weight);
        if temporary {
            site.temporary.count(weight);
        }
    }

    /// Large blocks of calloc came or went.
    pub(crate) fn zeroed(&mut self, stack: StackId, sums: &Zeroed) {
        self.at(stack).zeroed.add(sums);
    }

    /// More is live now than ever before.
    #[inline]
    pub(crate) fn peak(&mut self) {
        self.epoch += 1;
    }

    /// All sites that allocated anything.
    pub(crate) fn finish(self) -> Vec<Site> {
        let epoch = self.epoch;
        let mut sites = self.sites;
        for site in &mut sites {
            if site.epoch != epoch {
                (site.peak, site.peak_bytes) = (site.live, site.live_bytes);
            }
        }
        sites
    }
}

impl Analysis {
    /// Bytes that are live after the events so far.
    #[inline]
    pub fn live_bytes(&self) -> u64 {
        self.live.bytes.value()
    }

    /// The call stacks that have blocks now, with the bytes of these, in no order.
    pub fn live_by_stack(&self) -> impl Iterator<Item = (StackId, u64)> {
        let sites = self.sites.sites.iter().map(|site| (site.stack, site.live_bytes.value()));
        sites.filter(|(_, bytes)| *bytes > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_had_at_the_peak() {
        let mut sites = Sites::default();
        let (mut live, mut most) = (0i64, 0);
        let mut at_peak = [0; 3];
        let mut now = [0i64; 3];
        let steps =
            [(1, 100), (2, 50), (1, -100), (2, 70), (1, 10), (1, 5), (2, -120), (1, 20), (0, 400), (0, -400)];
        for (site, bytes) in steps {
            if bytes > 0 {
                sites.born(site, bytes as u64, Weight::ONE);
            } else {
                sites.ended(site, -bytes as u64, Weight::ONE, false);
            }
            live += bytes;
            now[site as usize] += bytes;
            if live > most {
                most = live;
                at_peak = now;
                sites.peak();
            }
        }
        let done = sites.finish();
        for site in done {
            assert_eq!(site.peak_bytes.value() as i64, at_peak[site.stack as usize], "{site:?}");
        }
        assert_eq!(at_peak, [400, 35, 0]);
    }
}
