// SPDX-License-Identifier: MIT
//! How much was resident, where somebody looked.

use super::POINTS;
use crate::live::Curve;

/// Resident bytes, as the kernel counted them now and then.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Resident {
    /// When, in ticks.
    pub time: u64,
    /// Bytes of anonymous memory.
    pub anonymous: u64,
    /// Bytes of files and shared memory.
    pub file: u64,
}

/// All looks.
#[derive(Debug)]
pub(super) struct Looks {
    pub curve: Curve,
    most: Resident,
    last: Option<Resident>,
    before_peak: Option<Resident>,
}

impl Default for Looks {
    fn default() -> Self {
        Self { curve: Curve::new(POINTS), most: Resident::default(), last: None, before_peak: None }
    }
}

impl Looks {
    pub(super) fn add(&mut self, now: Resident) {
        let sum = now.anonymous.saturating_add(now.file);
        self.curve.add(now.time, sum);
        self.last = Some(now);
        if sum > self.most.anonymous.saturating_add(self.most.file) {
            self.most = now;
        }
    }

    /// More is live now than ever before.
    #[inline]
    pub(super) fn peak(&mut self) {
        self.before_peak = self.last;
    }

    /// When most was resident.
    pub(super) fn most(&self) -> Option<Resident> {
        self.last.map(|_| self.most)
    }

    /// The last look before most was live.
    pub(super) fn before_peak(&self) -> Option<Resident> {
        self.before_peak
    }
}
