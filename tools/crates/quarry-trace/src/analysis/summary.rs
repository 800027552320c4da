// SPDX-License-Identifier: MIT
//! What a trace says, when all of it is read.

use super::ends::{Frees, Reallocs};
use super::histogram::Histogram;
use super::kinds::KINDS;
use super::notes::Notes;
use super::pools::Pool;
use super::resident::Resident;
use super::sites::Site;
use super::threads::ThreadSum;
use super::zeroed::Zeroed;
use super::{Analysis, Peak};
use crate::live::{Curve, Impossibles};
use crate::module::Module;
use crate::sample::{Estimate, Means, Sampling};

/// What a trace says.
#[derive(Debug, Clone)]
pub struct Summary {
    /// Whether blocks were left out: then sums are estimates.
    pub sampling: Sampling,
    /// At which rates blocks were drawn.
    pub means: Means,
    /// Events by kind: a name of [`KINDS`], and how many.
    pub kinds: Vec<(&'static str, Estimate)>,
    /// All events of the file.
    pub events: u64,
    /// Time of the first event, in ticks.
    pub first: u64,
    /// Time of the last event, in ticks.
    pub last: u64,
    /// Allocations by size.
    pub sizes: Histogram,
    /// How many different sizes were requested, by the blocks of the file.
    pub distinct_sizes: u64,
    /// The sizes that were requested most often, with their counts.
    pub top_sizes: Vec<(u64, Estimate)>,
    /// The sizes that had most bytes, with their counts.
    pub top_sizes_by_bytes: Vec<(u64, Estimate)>,
    /// Requests that the exact sizes leave out, because there are too many.
    pub uncounted_sizes: u64,
    /// Blocks that ended, by allocations made between their birth and their end. In a sample, those that were not
    /// resized.
    pub lifetimes_allocs: Histogram,
    /// Blocks that ended, by ticks from their birth to their end.
    pub lifetimes_ticks: Histogram,
    /// Allocations.
    pub births: Estimate,
    /// Bytes requested, by reallocs too.
    pub requested: Estimate,
    /// Allocations that were to be zero.
    pub zeroed: Estimate,
    /// Large blocks of calloc that were looked at.
    pub calloc: Zeroed,
    /// Allocations with an alignment.
    pub aligned: Estimate,
    /// Bytes of requests that failed.
    pub failed_bytes: Estimate,
    /// How blocks ended.
    pub frees: Frees,
    /// What reallocs did.
    pub reallocs: Reallocs,
    /// The threads, by number.
    pub threads: Vec<ThreadSum>,
    /// Call stacks that allocated, in no order.
    pub sites: Vec<Site>,
    /// Quarry's pools, by number.
    pub pools: Vec<Pool>,
    /// Events of pools.
    pub pool_events: u64,
    /// When most bytes were live.
    pub peak: Peak,
    /// Most blocks that were live at once.
    pub peak_objects: Estimate,
    /// Blocks that are live at the end.
    pub live: Estimate,
    /// Their bytes.
    pub live_bytes: Estimate,
    /// Live bytes over time.
    pub curve: Curve,
    /// Live blocks over time.
    pub objects: Curve,
    /// Resident bytes over time.
    pub resident: Curve,
    /// When most bytes were resident, as far as was looked.
    pub resident_peak: Option<Resident>,
    /// The last look before most bytes were live.
    pub resident_at_peak: Option<Resident>,
    /// Events that were lost, by reason: other, no room, re-entered, disk full, table full.
    pub lost: [u64; 5],
    /// What happened to the process.
    pub notes: Notes,
    /// Files that were mapped.
    pub modules: Vec<Module>,
    /// What cannot be.
    pub impossible: Impossibles,
    /// Memory that was in use for live blocks, at the end.
    pub tracker_bytes: usize,
}

impl Analysis {
    /// The sizes of most blocks, and of most bytes.
    fn top_sizes(&self, n: usize) -> [Vec<(u64, Estimate)>; 2] {
        if !self.sampling.is_sample() {
            let exact =
                |top: Vec<(u64, u64)>| top.into_iter().map(|(size, n)| (size, Estimate::exact(n))).collect();
            let bytes = |size: u64, n: u64| u128::from(size).saturating_mul(n.into());
            return [exact(self.exact.top(n, |_, n| n.into())), exact(self.exact.top(n, bytes))];
        }
        let all = self.exact.estimates(self.sampling);
        let top = |key: &dyn Fn(u64, u64) -> u128| {
            let mut top = all.clone();
            top.sort_unstable_by_key(|(size, blocks)| (std::cmp::Reverse(key(*size, blocks.value())), *size));
            top.truncate(n);
            top
        };
        [top(&|_, n| n.into()), top(&|size, n| u128::from(size).saturating_mul(n.into()))]
    }

    /// The sums, with this many of the top sizes.
    pub fn finish(self, top_sizes: usize) -> Summary {
        let kinds = KINDS.into_iter().zip(self.kinds).filter(|(_, count)| count.value() > 0);
        let sampling = self.sampling;
        let [top_sizes, top_sizes_by_bytes] = self.top_sizes(top_sizes);
        let mut impossible = *self.follower.tracker().impossible();
        if sampling.is_sample() {
            // The block before was not drawn.
            impossible.realloc_of_unknown = 0;
        }
        Summary {
            sampling,
            means: self.means,
            kinds: kinds.collect(),
            events: self.extent.events(),
            first: self.extent.first(),
            last: self.extent.last(),
            sizes: self.sizes,
            distinct_sizes: self.exact.distinct(),
            top_sizes,
            top_sizes_by_bytes,
            uncounted_sizes: self.exact.uncounted,
            lifetimes_allocs: self.by_allocs,
            lifetimes_ticks: self.by_ticks,
            births: self.allocations,
            requested: self.requested,
            zeroed: self.zeroed,
            calloc: self.calloc,
            aligned: self.aligned,
            failed_bytes: self.failed_bytes,
            frees: self.frees,
            reallocs: self.reallocs,
            threads: self.threads.finish(),
            sites: self.sites.finish(),
            pool_events: self.pools.events(),
            pools: self.pools.finish(),
            peak: self.peak,
            peak_objects: self.most_blocks,
            live: self.live.blocks,
            live_bytes: self.live.bytes,
            curve: self.curve,
            objects: self.objects,
            resident_peak: self.looks.most(),
            resident_at_peak: self.looks.before_peak(),
            resident: self.looks.curve,
            lost: self.lost,
            notes: self.notes,
            modules: self.modules,
            impossible,
            tracker_bytes: self.follower.tracker().memory(),
        }
    }
}
