// SPDX-License-Identifier: MIT
//! What can be typed behind quarry top.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use quarry_report::top::Column;
use quarry_report::view::Heading;

use crate::format::{Format, Makes, Reports};
use crate::quantity::seconds;
use crate::view::{FASTEST, SLOWEST};

/// Watch the memory of all processes, or of one
///
/// Shows a table that is drawn anew every few seconds. It has the columns of top, and those that top leaves out: PSS
/// and USS, page faults and growth per second. The key h explains each column and names the kernel's counter behind it.
/// Enter opens a process and shows its mappings by quadrant and kind. Only two short files of each process are read.
/// The costly ones (status, smaps_rollup) are read only for the processes on the screen.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct TopOptions {
    /// Open the process with this number
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Option<u32>,
    /// Read this copy of /proc instead
    #[arg(long, value_name = "DIR")]
    pub proc: Option<PathBuf>,
    /// Seconds from one frame to the next.
    ///
    /// A frame that takes more than a tenth of that makes the pause longer.
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds(FASTEST.as_secs_f64()..=SLOWEST.as_secs_f64()), default_value = "2")]
    pub delay: Duration,
    /// The column to sort by, the largest first
    #[arg(short, long, value_name = "COLUMN", default_value = "res", ignore_case = true, value_parser = columns())]
    pub sort: Column,
    /// Sort the smallest first
    #[arg(short, long)]
    pub reverse: bool,
    /// Only processes that have TEXT in their name, or as their number
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub filter: String,
    /// End after N frames
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub frames: Option<u64>,
    /// Print one frame as text, or N with -n. This needs no terminal
    #[arg(long)]
    pub once: bool,
    /// Rows of a frame of text or JSON; 0: all
    #[arg(long, value_name = "N", default_value_t = 25)]
    pub rows: usize,
    #[command(flatten)]
    pub reports: Reports<Self>,
}

/// Words for columns.
fn columns() -> impl TypedValueParser<Value = Column> {
    let words = PossibleValuesParser::new(Column::ALL.iter().map(|column| column.key()));
    words.map(|word| Column::with_key(&word).expect("clap knows these words alone"))
}

// Of JSON, a line is a frame: one, or as many as -n says.
impl Makes for TopOptions {
    const VERB: &'static str = "top";
    const FORMATS: &'static [Format] = &[Format::Text, Format::Jsonl];
    const SCHEMA: &'static str = "quarry-top/1";
}

const EXAMPLES: &str = "Examples:
  quarry top
  quarry top -p 4711                  one process, with its mappings
  quarry top --sort growth --filter java
  quarry top --once --sort pss        a table, for a report
  quarry top --json -n 60 -d 1        a minute, a line of JSON each second

Exit code: 0; 1 when there is no such process; 128+N when signal N ended the screen. Where it only writes, the signal itself ends it.";
