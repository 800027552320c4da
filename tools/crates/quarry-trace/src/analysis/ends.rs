// SPDX-License-Identifier: MIT
//! How blocks ended, and became others.

use crate::sample::Estimate;

/// What reallocs did.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Reallocs {
    /// All.
    pub count: Estimate,
    /// The block stayed where it was.
    pub in_place: Estimate,
    /// The block became larger. A sample does not know the size of a block that was not drawn, so this and the next
    /// three are sums of a whole trace only.
    pub grew: u64,
    /// The block became smaller.
    pub shrank: u64,
    /// The size stayed.
    pub same: u64,
    /// Bytes that moves had to copy: the smaller of both sizes.
    pub copied: u64,
    /// Ticks they took.
    pub ticks: Estimate,
    /// The block got another address.
    pub moved: Estimate,
}

impl Reallocs {
    /// What became of the size.
    pub(super) fn sizes(&mut self, before: u64, after: u64, in_place: bool) {
        let change = match after.cmp(&before) {
            std::cmp::Ordering::Greater => &mut self.grew,
            std::cmp::Ordering::Less => &mut self.shrank,
            std::cmp::Ordering::Equal => &mut self.same,
        };
        *change += 1;
        if !in_place {
            self.copied = self.copied.wrapping_add(after.min(before));
        }
    }
}

/// How blocks ended.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Frees {
    /// Blocks that were freed.
    pub count: Estimate,
    /// Their bytes.
    pub bytes: Estimate,
    /// By another thread than the one that allocated them or changed their size last.
    pub foreign: Estimate,
    /// Their bytes.
    pub foreign_bytes: Estimate,
    /// By their own thread, as its very next event. A sample leaves events out, so it has none of these.
    pub temporary: Estimate,
    /// Their bytes.
    pub temporary_bytes: Estimate,
    /// Blocks of which it was recorded how much was resident.
    pub looked_at: Estimate,
    /// Bytes that they had.
    pub looked_at_bytes: Estimate,
    /// Bytes of them that were resident.
    pub touched_bytes: Estimate,
}
