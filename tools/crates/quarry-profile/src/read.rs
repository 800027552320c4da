// SPDX-License-Identifier: MIT
//! One pass over a trace.

use quarry_trace::sample::Sampling;
use quarry_trace::{Damage, StackTree, Trace, TraceError};

use crate::model::{Builder, Division, Profile, Spans};

/// `progress` is told about every so many events.
const PERIOD: u64 = 1 << 18;

/// What a trace says, and what of it could not be read.
#[derive(Debug)]
pub struct Read {
    /// What it says.
    pub profile: Profile,
    /// Its call stacks.
    pub stacks: StackTree,
    /// What could not be read.
    pub damage: Damage,
}

/// A moment of a trace.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Moment {
    /// Nanoseconds after the first event.
    After(u64),
    /// A part of the time, from 0 to 1.
    Part(f64),
}

/// The time of a trace's first and of its last event, in ticks, as far as its first and last blocks can be read.
pub fn ends(trace: &Trace) -> (u64, u64) {
    let times = trace.threads().iter().filter_map(|thread| thread.times);
    times.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or_default()
}

impl Moment {
    /// In ticks of a trace.
    pub fn ticks(self, trace: &Trace) -> u64 {
        let (first, last) = ends(trace);
        let after = match self {
            Moment::Part(part) => ((last - first) as f64 * part.clamp(0.0, 1.0)) as u64,
            Moment::After(ns) => {
                let (mut low, mut high) = (0, u64::MAX - first);
                while low < high {
                    let middle = low + (high - low) / 2;
                    if trace.duration_ns(middle) < ns { low = middle + 1 } else { high = middle }
                }
                low
            }
        };
        // Nobody knows what was live behind the end.
        first.saturating_add(after).min(last)
    }
}

/// Read a trace to its end. `moments` are the times, in ticks, whose sums are kept, in order.
pub fn read(
    trace: &Trace,
    division: Division,
    moments: &[u64],
    mut progress: impl FnMut(u64, u64),
) -> Result<Read, TraceError> {
    let (first, last) = ends(trace);
    let mut builder = Builder::new(Sampling::of(trace.head()), division, Spans::new(first, last), moments);
    if let (Some(counted), true) = (trace.end().and_then(|end| end.live.as_ref()), trace.head().sample != 0) {
        builder.counted(counted);
    }
    let mut events = trace.events().keep_stacks();
    while let Some(event) = events.next_with(|address| builder.tracker().is_live(address)) {
        builder.add(&event?);
        if builder.events().is_multiple_of(PERIOD) {
            progress(builder.events(), events.bytes_read());
        }
    }
    let stacks = events.take_stacks();
    let mut damage = trace.damage().clone();
    damage.merge(events.damage());
    let mut profile = builder.finish();
    profile.lost = trace.lost(profile.lost);
    Ok(Read { profile, stacks, damage })
}
