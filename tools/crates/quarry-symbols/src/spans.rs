// SPDX-License-Identifier: MIT
//! Modules by address. A log of mtrace may have tens of thousands, which come while others are asked for.

use std::collections::HashMap;

use quarry_trace::{Module, Segment};

/// Which modules may be at an address.
///
/// Addresses are cut into blocks of each power of two. A segment is noted in the blocks that are the least ones not shorter than it. It
/// touches two of them at most.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spans {
    /// By the logarithm of the blocks and the number of the block.
    blocks: HashMap<(u32, u64), Vec<u32>>,
    /// A bit for each logarithm that has some, which are few.
    logs: u128,
    /// Modules so far.
    modules: usize,
}

impl Spans {
    /// Of these modules.
    pub(crate) fn of(modules: &[Module]) -> Self {
        let mut spans = Self::default();
        spans.extend(modules);
        spans
    }

    /// Take note of the modules behind those that were noted.
    pub(crate) fn extend(&mut self, modules: &[Module]) {
        for (index, module) in modules.iter().enumerate().skip(self.modules) {
            for &Segment(at, bytes, _) in module.segments.iter().filter(|segment| segment.1 > 0) {
                let log = u64::BITS - (bytes - 1).leading_zeros();
                let begin = module.base.wrapping_add(at);
                let [first, last] = [begin, begin.wrapping_add(bytes - 1)].map(|address| block(address, log));
                self.logs |= 1 << log;
                self.note((log, first), index);
                if last != first {
                    self.note((log, last), index);
                }
            }
        }
        self.modules = modules.len();
    }

    fn note(&mut self, block: (u32, u64), index: usize) {
        let noted = self.blocks.entry(block).or_default();
        // Segments of one module come in a row.
        if noted.last() != Some(&(index as u32)) {
            noted.push(index as u32);
        }
    }

    /// The numbers of the modules that may be at this address, some of them twice.
    pub(crate) fn at(&self, address: u64) -> impl Iterator<Item = usize> + '_ {
        let logs = (0..=u64::BITS).filter(|log| self.logs >> log & 1 == 1);
        let noted = logs.filter_map(move |log| self.blocks.get(&(log, block(address, log))));
        noted.flatten().map(|&index| index as usize)
    }
}

fn block(address: u64, log: u32) -> u64 {
    address.checked_shr(log).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quarry_measure::rng::Rng;
    use quarry_trace::{Event, Trace, What};

    #[test]
    fn all_modules_at_an_address_are_found() {
        let mut rng = Rng::new(7);
        let mut modules = Vec::new();
        let mut spans = Spans::default();
        for round in 0..300 {
            // Of all lengths, around the end of the address space, too.
            let base = rng.bits() << (rng.below(3) * 24);
            let mut part = || (rng.bits() >> 20 >> rng.below(44), rng.bits() >> rng.below(64));
            let (first, second) = (part(), part());
            let about = format!(
                r#"{{"path":"/{round}","segments":[[{},{},5],[{},{},5],[0,0,5]]}}"#,
                first.0, first.1, second.0, second.1
            );
            let what = What::ModuleLoaded { base, about };
            Trace::note_module(&mut modules, &Event { time: 0, thread: 1, what });
            spans.extend(&modules);
            let Module { base, segments, .. } = &modules[rng.below(modules.len())];
            let Segment(at, bytes, _) = segments[rng.below(2)];
            let begin = base.wrapping_add(at);
            for address in [begin, begin.wrapping_sub(1), begin.wrapping_add(bytes), rng.bits(), 0, u64::MAX]
            {
                let mut found: Vec<usize> =
                    spans.at(address).filter(|&index| modules[index].contains(address)).collect();
                found.sort_unstable();
                found.dedup();
                let all: Vec<usize> =
                    (0..modules.len()).filter(|&index| modules[index].contains(address)).collect();
                assert_eq!(found, all, "{address:#x}");
            }
        }
    }
}
