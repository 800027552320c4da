// SPDX-License-Identifier: MIT
//! What the replay of a sample shows, and what it cannot.

use quarry_trace::sample::{Estimate, Means};
use serde_json::{Value, json};

use crate::units;

/// The sample that is played.
#[derive(Debug, Clone, Copy)]
pub struct Sampled {
    /// Mean bytes from one drawn byte to the next, as the head says.
    pub rate: u64,
    /// The rates that its blocks were drawn at.
    pub means: Means,
    /// Most bytes that the program had live, as the sample has it.
    pub peak: Estimate,
}

impl Sampled {
    /// Of a replay with `live` bytes at most.
    pub(super) fn text(&self, live: u64) -> String {
        let bytes = |n: u64| units::bytes(n as f64);
        let (low, high) = self.peak.interval();
        format!(
            "A sample, of one byte in {}: the program had about {} live at most (95 % interval {} … {}), and this replay {}.\n\
             Times, RSS and RSS/live are those of the drawn blocks, not of the program: its small blocks are hardly among \
             them.\n`quarry gen --fit` makes a trace of the program's full size from a sample.\n",
            self.means.words(bytes),
            bytes(self.peak.value()),
            bytes(low),
            bytes(high),
            bytes(live)
        )
    }

    pub(super) fn json(&self) -> Value {
        let (low, high) = self.peak.interval();
        json!({
            "mean_bytes": self.rate,
            "mean_bytes_from_to": [self.means.least, self.means.most],
            "program_peak_live_bytes": self.peak.value(),
            "program_peak_live_bytes_interval": [low, high],
            "note": "times, resident memory and rss_per_live are those of the drawn blocks, not of the program",
        })
    }
}
