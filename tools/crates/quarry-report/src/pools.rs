// SPDX-License-Identifier: MIT
//! The report of `quarry pools`: a table, JSON (schema quarry-pool-log/1), and the plot in [`plot`].

pub mod plot;

use std::io::{self, Write};

use quarry_poollog::reader::{Lost, Why};
use quarry_poollog::record::{EVENTS, Entry};
use quarry_poollog::summary::{Pool, Summary};
use serde_json::{Value, json};

use crate::style::Style;
use crate::table::{self, Described, Text};
use crate::units;

/// Most places of damage that are kept one by one.
pub const DAMAGE_SHOWN: usize = 20;

/// What could not be read of a log.
#[derive(Debug, Clone, Default)]
pub struct Damage {
    /// The first places.
    pub places: Vec<Lost>,
    /// How many places there are.
    pub count: u64,
    /// How many bytes in all.
    pub bytes: u64,
}

impl Damage {
    /// Add a place.
    pub fn add(&mut self, lost: Lost) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(lost.bytes);
        if self.places.len() < DAMAGE_SHOWN {
            self.places.push(lost);
        }
    }
}

/// A log that was read.
#[derive(Debug, Clone)]
pub struct Log {
    /// The file.
    pub file: String,
    /// Its length.
    pub bytes: u64,
    /// What it says.
    pub summary: Summary,
    /// What of it could not be read.
    pub damage: Damage,
}

/// Which pools to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Filter {
    /// All.
    All,
    /// Those of this name, or of this number.
    Named(String),
}

impl Filter {
    /// Is this one to be shown?
    pub fn wants(&self, pool: &Pool) -> bool {
        match self {
            Filter::All => true,
            Filter::Named(word) => {
                word.parse() == Ok(pool.id) || pool.named.as_ref().is_some_and(|named| named.name == *word)
            }
        }
    }
}

impl Log {
    /// The indices of the pools to be shown.
    pub fn chosen(&self, filter: &Filter) -> Vec<usize> {
        let pools = self.summary.pools.iter().enumerate();
        pools.filter(|(_, pool)| filter.wants(pool)).map(|(index, _)| index).collect()
    }

    /// Bytes of the log for a million operations, where there were some.
    pub fn bytes_per_million(&self) -> Option<f64> {
        let operations = self.summary.operations();
        (operations > 0).then(|| self.bytes as f64 * 1e6 / operations as f64)
    }

    /// What was lost, one sentence for each place.
    pub fn complaints(&self) -> Vec<String> {
        let place = |lost: &Lost| {
            let Lost { offset, bytes, why } = lost;
            let advice = if *why == Why::Ends { " (still being written, killed, or disk full?)" } else { "" };
            let word = units::noun(*bytes, "byte");
            format!("{}: byte {offset}: {bytes} {word} left out: {why}{advice}", self.file)
        };
        let mut all: Vec<String> = self.damage.places.iter().map(place).collect();
        let more = self.damage.count - all.len() as u64;
        if more > 0 {
            all.push(format!(
                "{}: and {more} more {}; {} left out in all",
                self.file,
                units::noun(more, "place"),
                units::of(self.damage.bytes, "byte")
            ));
        }
        all
    }
}

// ---- the table ------------------------------------------------------------------------------------

/// The columns of the table.
pub const COLUMNS: [Described; 15] = [
    Described::right("pool", "its number in the process"),
    Described::left("kind", "its kind"),
    Described::left("name", "the name the program gave it"),
    Described::right(
        "parent",
        "the number of the pool its chunks come from; `-`: the kernel, or a pool that is not logged",
    ),
    Described::right("operations", "allocations, frees, resizes, and frames begun and ended"),
    Described::right("per s", "operations a second, by the time from its first record to its last"),
    Described::right("per min", "the same a minute"),
    Described::right(
        "peak held",
        "the most bytes of chunks it held. Chunks are logged one by one, so this is exact",
    ),
    Described::right(
        "peak used",
        "the most bytes that were given out, as far as entries show: it may have been more between two",
    ),
    Described::right("used at peak", "which part was used of what it held when it held most"),
    Described::right("on average", "which part was used of what it held, over time"),
    Described::right("chunks", "chunks it took from its parent"),
    Described::right("slow", "time spent on taking chunks and giving them back"),
    Described::right("resets", "pages cleaned for reuse"),
    Described::left("life", "from its first record to its last"),
];

/// All logs as text.
pub fn text(logs: &[Log], filter: &Filter, style: Style) -> String {
    let mut text = String::new();
    for log in logs {
        if logs.len() > 1 {
            text += &format!("{}\n", style.bold(&log.file));
        }
        let chosen = log.chosen(filter);
        for process in 0..log.summary.processes.len() {
            let pools: Vec<&Pool> = chosen
                .iter()
                .map(|&i| &log.summary.pools[i])
                .filter(|pool| pool.process == process)
                .collect();
            if !pools.is_empty() {
                text += &format!("{}\n", style.bold(&process_title(&log.summary, process)));
                text += &table::of(style, &COLUMNS, pools.into_iter().map(row).collect());
                text += "\n";
            }
        }
        text += &footer(log);
    }
    text
}

/// "prog (4711), an entry for every 300 operations".
fn process_title(summary: &Summary, process: usize) -> String {
    let process = &summary.processes[process];
    match &process.head {
        Some(head) => {
            let every = match head.every {
                1 => String::from("every operation"),
                n => format!("every {n} operations"),
            };
            format!("{} ({}), an entry for {every}", head.program, head.process)
        }
        None => format!("process {} (its first record is lost)", process.process),
    }
}

fn footer(log: &Log) -> String {
    let summary = &log.summary;
    let mut text = format!(
        "{} of log, {}, {}",
        units::bytes(log.bytes as f64),
        units::of(summary.entries(), "entry"),
        units::of(summary.operations(), "operation")
    );
    if let Some(bytes) = log.bytes_per_million() {
        text += &format!("; {} per million operations", units::bytes(bytes));
    }
    text + "\n"
}

fn row(pool: &Pool) -> Vec<Text> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| String::from("-"));
    let count = |n: u64| units::count(n as f64);
    let bytes = |n: u64| units::bytes(n as f64);
    let named = pool.named.as_ref();
    let life = units::seconds(pool.life_ns() as f64 / 1e9);
    let end = if pool.died { "" } else { ", not destroyed" };
    [
        pool.id.to_string(),
        named.map_or_else(|| String::from("?"), |named| named.kind.clone()),
        named.map_or_else(|| String::from("?"), |named| named.name.clone()),
        or_dash(named.filter(|named| named.parent != 0).map(|named| named.parent.to_string())),
        count(pool.operations()),
        or_dash(pool.rate().map(units::count)),
        or_dash(pool.rate().map(|rate| units::count(rate * 60.0))),
        bytes(pool.peak_held.held),
        bytes(pool.peak_used.used),
        or_dash(pool.used_at_peak().map(units::percent)),
        or_dash(pool.used_on_average().map(units::percent)),
        count(pool.chunk_gets),
        units::seconds(pool.slow_ns() as f64 / 1e9),
        count(pool.resets()),
        format!("{life}{end}"),
    ]
    .map(Text::from)
    .to_vec()
}

// ---- JSON -------------------------------------------------------------------------------------------

/// The schema of the JSON report.
pub const SCHEMA: &str = "quarry-pool-log/1";

fn process_json(summary: &Summary, process: usize) -> Value {
    let process = &summary.processes[process];
    let head = process.head.as_ref();
    json!({
        "process": process.process,
        "program": head.map(|head| &head.program),
        "every": head.map(|head| head.every),
        "start_ns": head.map(|head| head.start_ns),
    })
}

fn pool_json(index: usize, pool: &Pool) -> Value {
    let named = pool.named.as_ref();
    let peak = |peak: &quarry_poollog::summary::Peak| {
        json!({
            "held_bytes": peak.held,
            "used_bytes": peak.used,
            "after_ns": peak.time_ns.saturating_sub(pool.first_ns),
        })
    };
    let events: serde_json::Map<String, Value> =
        EVENTS.iter().zip(pool.events).map(|(event, n)| (event.word().to_owned(), n.into())).collect();
    json!({
        "index": index,
        "process_index": pool.process,
        "pool": pool.id,
        "kind": named.map(|named| &named.kind),
        "name": named.map(|named| &named.name),
        "parent": named.map(|named| named.parent).filter(|&parent| parent != 0),
        "first_ns": pool.first_ns,
        "last_ns": pool.last_ns,
        "life_s": pool.life_ns() as f64 / 1e9,
        "destroyed": pool.died,
        "entries": pool.entries(),
        "events": events,
        "operations": pool.operations(),
        "operations_per_s": pool.rate(),
        "operations_per_minute": pool.rate().map(|rate| rate * 60.0),
        "busiest_minute_operations": pool.busiest_minute,
        "requested_bytes": pool.requested(),
        "chunk_gets": pool.chunk_gets,
        "slow_s": pool.slow_ns() as f64 / 1e9,
        "peak_held": peak(&pool.peak_held),
        "peak_used": peak(&pool.peak_used),
        "used_at_peak": pool.used_at_peak(),
        "mean_held_bytes": pool.mean().map(|mean| mean.0),
        "mean_used_bytes": pool.mean().map(|mean| mean.1),
        "used_on_average": pool.used_on_average(),
        "entries_out_of_order": pool.out_of_order,
    })
}

fn log_json(log: &Log, filter: &Filter) -> Value {
    let summary = &log.summary;
    let processes: Vec<Value> = (0..summary.processes.len()).map(|i| process_json(summary, i)).collect();
    let chosen = log.chosen(filter);
    let pools: Vec<Value> = chosen.into_iter().map(|i| pool_json(i, &summary.pools[i])).collect();
    let place =
        |lost: &Lost| json!({ "offset": lost.offset, "bytes": lost.bytes, "why": lost.why.to_string() });
    let places: Vec<Value> = log.damage.places.iter().map(place).collect();
    json!({
        "file": log.file,
        "bytes": log.bytes,
        "entries": summary.entries(),
        "operations": summary.operations(),
        "bytes_per_million_operations": log.bytes_per_million(),
        "processes": processes,
        "pools": pools,
        "lost": { "bytes": log.damage.bytes, "places": log.damage.count, "first": places },
    })
}

/// All logs as JSON.
pub fn json(logs: &[Log], filter: &Filter) -> Value {
    let logs: Vec<Value> = logs.iter().map(|log| log_json(log, filter)).collect();
    json!({ "schema": SCHEMA, "logs": logs })
}

/// The columns of an entry in the full series.
pub const SERIES_COLUMNS: [&str; 10] = [
    "log",
    "pool_index",
    "time_ns",
    "event",
    "held_bytes",
    "used_bytes",
    "requested_bytes",
    "operations",
    "chunk_gets",
    "slow_ns",
];

/// JSON with every entry, written while the logs are read: `series` comes first, what is concluded from
/// it last, and nothing of it is kept.
pub struct SeriesWriter<'a> {
    to: &'a mut dyn Write,
    any: bool,
}

impl<'a> SeriesWriter<'a> {
    /// Begin.
    pub fn new(to: &'a mut dyn Write) -> io::Result<Self> {
        let columns = Value::from(SERIES_COLUMNS.to_vec());
        write!(to, "{{\"schema\":\"{SCHEMA}\",\"series_columns\":{columns},\"series\":[")?;
        Ok(Self { to, any: false })
    }

    /// Add an entry.
    pub fn add(&mut self, log: usize, pool: usize, entry: &Entry) -> io::Result<()> {
        let comma = if std::mem::replace(&mut self.any, true) { "," } else { "" };
        let Entry { time_ns, held, used, requested, operations, chunk_gets, slow_ns, event, .. } = entry;
        let event = event.word();
        write!(
            self.to,
            "{comma}\n[{log},{pool},{time_ns},\"{event}\",{held},{used},{requested},{operations},{chunk_gets},{slow_ns}]"
        )
    }

    /// End with the summaries.
    pub fn finish(self, logs: &[Log], filter: &Filter) -> io::Result<()> {
        let logs: Vec<Value> = logs.iter().map(|log| log_json(log, filter)).collect();
        writeln!(self.to, "\n],\"logs\":{}}}", Value::from(logs))?;
        self.to.flush()
    }
}

#[cfg(test)]
mod tests;
