// SPDX-License-Identifier: MIT
//! What the replayer says, as it says it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The format this understands.
pub const FORMAT: &str = "quarry-replayer/1";

/// One run of the replayer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`FORMAT`]
    pub format: String,
    /// Threads of the plan.
    pub threads: u32,
    /// Most of them at once.
    pub alive: u32,
    /// Slots of its table.
    pub slots: u32,
    /// The recorded order was kept exactly.
    pub strict: bool,
    /// Operations done, over all instances and repeats.
    pub played: u64,
    /// Elapsed time of the plan, over all repeats; of the slowest instance.
    pub wall_ns: u64,
    /// Sum over the threads of the time they lived.
    pub busy_ns: u64,
    /// Of this, waiting for other threads.
    pub waited_ns: u64,
    /// At most so late behind the recorded time.
    pub late_ns: u64,
    /// Processor time in the process.
    pub user_ns: u64,
    /// Processor time in the kernel for it.
    pub system_ns: u64,
    /// Page faults without a disk.
    pub minor_faults: u64,
    /// Page faults that waited for a disk.
    pub major_faults: u64,
    /// Times it waited.
    pub voluntary_switches: u64,
    /// Times it was interrupted.
    pub involuntary_switches: u64,
    /// Elapsed time of each repeat of the first instance, of a thousand at most.
    pub repeats_ns: Vec<u64>,
    /// What single calls were timed with.
    pub timer: Timer,
    /// By name: malloc, calloc, memalign, realloc, free, free_null, stats.
    pub operations: BTreeMap<String, Operation>,
    /// What the plan had not freed at its end.
    pub left: Left,
    /// Anonymous memory of the process.
    pub rss: Rss,
    /// Memory where the recorder looked, if that was asked for.
    #[serde(default)]
    pub looks: Option<Looks>,
    /// Live bytes at every so many operations, where the order is exact and it was asked for.
    pub curve: Option<Curve>,
    /// Memory over time.
    pub samples: Samples,
    /// What was found by comparing contents.
    pub verify: Option<Verify>,
}

/// A clock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timer {
    /// tsc, counter or monotonic
    pub clock: String,
    /// Nanoseconds of a tick.
    pub ns_per_tick: f64,
    /// What reading it twice costs; taken off all times.
    pub cost_ns: f64,
}

/// Calls of one kind. Times are there if calls were timed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Operation {
    /// Calls.
    pub count: u64,
    /// Those that returned NULL.
    pub failed: u64,
    /// All of them together.
    pub sum_ns: Option<f64>,
    /// Half took less.
    pub p50_ns: Option<f64>,
    /// Nine of ten took less.
    pub p90_ns: Option<f64>,
    /// 99 of 100 took less.
    pub p99_ns: Option<f64>,
    /// 999 of 1000 took less.
    pub p999_ns: Option<f64>,
    /// The slowest.
    pub max_ns: Option<f64>,
    /// Calls by duration: nanoseconds at the lower end of a bucket, calls in it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub buckets: Vec<(f64, u64)>,
}

/// What was live at the end of the repeats.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// Blocks.
    pub blocks: u64,
    /// Requested bytes of them.
    pub bytes: u64,
    /// What it took to free them, which is in no other time.
    pub free_ns: u64,
}

/// Anonymous memory in bytes. All but `own` and `start` count what is not libc's and the stack's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rss {
    /// What libc, the dynamic linker and the first stack had before the start.
    pub own: u64,
    /// All of the process's before the start: `own`, and what the allocator has taken by then.
    pub start: u64,
    /// The most.
    pub peak: u64,
    /// "kernel": its own account of the peak; "samples": the largest sample.
    pub peak_from: String,
    /// When the plan has ended.
    pub end: u64,
    /// After idling then.
    pub end_idle: Option<u64>,
    /// When all is freed.
    pub freed: u64,
    /// After idling then.
    pub freed_idle: Option<u64>,
}

/// Memory where the recorder looked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Looks {
    /// Bytes that malloc said all blocks have that were allocated, in all.
    #[serde(default)]
    pub usable_bytes: u64,
    /// Anonymous bytes after all destructors, if that could be seen.
    #[serde(default)]
    pub after: Option<u64>,
    /// Resident bytes of the allocator's files and of what else came with it, a mapping at a time.
    pub files: Vec<(String, u64)>,
    /// Anonymous bytes at each look, and the most since the look before.
    pub rows: Vec<(u64, u64)>,
}

/// Live bytes by operations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// An entry stands for so many operations.
    pub step: u64,
    /// The most after any operation.
    pub peak: u64,
    /// At the end.
    pub end: u64,
    /// After each `step` operations.
    pub live: Vec<u64>,
}

/// Memory over time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Samples {
    /// Between two of them.
    pub interval_ns: u64,
    /// The most anonymous memory seen.
    pub peak_anonymous: u64,
    /// The most live bytes seen.
    pub peak_live: i64,
    /// The names of a row's numbers.
    pub columns: Vec<String>,
    /// Nanoseconds since the start, anonymous bytes, live bytes, operations.
    pub rows: Vec<(u64, u64, i64, u64)>,
}

/// Contents compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verify {
    /// Blocks examined.
    pub checked: u64,
    /// Blocks whose contents were not what was written.
    pub wrong: u64,
    /// Blocks at addresses of less alignment than asked for.
    pub misaligned: u64,
    /// The first of the wrong ones.
    pub first: Option<Wrong>,
}

/// Where contents had changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Wrong {
    /// The plan's number of the thread that looked; −1: at the end.
    pub thread: i64,
    /// The block's slot.
    pub slot: u32,
    /// The block's size.
    pub size: u64,
    /// Where in the block.
    pub offset: u64,
    /// What was written there, in hexadecimal.
    pub expected: String,
    /// What is there.
    pub seen: String,
}

impl Report {
    /// Read one, and make all sizes those without `own`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut report: Report = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if report.format != FORMAT {
            return Err(format!("it is of the format {}, and this tool knows {FORMAT}", report.format));
        }
        let own = report.rss.own;
        let net = |bytes: &mut u64| *bytes = bytes.saturating_sub(own);
        let rss = &mut report.rss;
        [&mut rss.peak, &mut rss.end, &mut rss.freed].into_iter().for_each(net);
        rss.end_idle.as_mut().into_iter().chain(rss.freed_idle.as_mut()).for_each(net);
        net(&mut report.samples.peak_anonymous);
        report.samples.rows.iter_mut().for_each(|row| net(&mut row.1));
        if let Some(looks) = &mut report.looks {
            looks.after.iter_mut().for_each(net);
            for row in &mut looks.rows {
                net(&mut row.0);
                net(&mut row.1);
            }
        }
        Ok(report)
    }

    /// Calls of all kinds that were timed, together: seconds.
    pub fn in_calls_ns(&self) -> Option<f64> {
        let sums: Vec<f64> = self.operations.values().filter_map(|operation| operation.sum_ns).collect();
        (!sums.is_empty()).then(|| sums.iter().sum())
    }

    /// Calls that returned NULL.
    pub fn failed(&self) -> u64 {
        self.operations.values().map(|operation| operation.failed).sum()
    }
}
