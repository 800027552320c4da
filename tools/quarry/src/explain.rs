// SPDX-License-Identifier: MIT
//! quarry explain: why a process has as much memory as it has.

use std::time::Duration;

use clap::Args;
use quarry_explain::verdict::{self, Growth};
use quarry_explain::{Look, look};
use quarry_proc::{ProcError, Root};
use quarry_report::explain as report;

use crate::failure;
use crate::format::{Format, Makes, Reports};
use crate::output::{Output, Place};
use crate::quantity::seconds;

/// Say why a process has as much memory as it has
///
/// The report begins with the kernel's figure for resident memory and divides it into parts that add up to that figure. Memory is
/// private or shared, and of files or not. Memory of a heap is live, kept in the caches of threads, free between live blocks,
/// or about to be given back. A process on Quarry publishes these figures itself. The heap of glibc is read from outside, while
/// the process works on. Of other heaps the report shows what can be seen. It ends with a verdict, what to try, and what to
/// expect of that.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ExplainOptions {
    /// The process with this number
    #[arg(short, long, value_name = "PID")]
    pub pid: u32,
    /// Look twice, SECONDS apart, to see what grows; 0: look once
    #[arg(long = "for", value_name = "SECONDS", value_parser = seconds(0.0..=86_400.0), default_value = "2")]
    pub window: Duration,
    /// Stop the process while it is looked at, some milliseconds to a second, as its memory is
    ///
    /// All figures are then of one moment. The process is traced meanwhile, so it goes on even if this tool is killed. The report says
    /// how long it was stopped.
    #[arg(long)]
    pub stop: bool,
    /// Sizes in bytes instead of KiB, MiB, ...
    #[arg(long)]
    pub bytes: bool,
    #[command(flatten)]
    pub reports: Reports<Self>,
}

impl Makes for ExplainOptions {
    const VERB: &'static str = "explain";
    const FORMATS: &'static [Format] = &[Format::Text, Format::Json, Format::Html];
    const SCHEMA: &'static str = "quarry-explain/1";
}

const EXAMPLES: &str = "Examples:
  quarry explain -p 1234
  quarry explain -p 1234 --for 60         does it grow in a minute?
  quarry explain -p 1234 --for 0 --json   at once, for scripts
  quarry explain -p 1234 --for 0 --stop   while it stands still, some milliseconds
  quarry explain -p 1234 -o why.html      the same as a page

Exit code: 0; 1 when there is no such process or it may not be read.";

/// Look, wait, look again, and report.
pub fn main(options: &ExplainOptions, output: &Output) -> anyhow::Result<i32> {
    let reports = options.reports.all(Place::Stdout)?;
    output.expect_all(&reports)?;
    let process = Root::live().process(options.pid).map_err(failure::failed)?;
    let first = look(&process, options.stop).map_err(failure::failed)?;
    let (last, growth) = if options.window.is_zero() {
        (first, None)
    } else {
        std::thread::sleep(options.window);
        match again(&process, options.stop, &first) {
            Ok(second) => {
                let growth = Growth::between(&first, &second);
                (second, Some(growth))
            }
            Err(error) => {
                output.warn(format_args!(
                    "{error}: this is what it had before, and nothing is known of its growth"
                ));
                (first, None)
            }
        }
    };
    let machine = Root::live().pressure();
    let verdict = verdict::judge(&last, growth);
    output.reports(&reports, |wish| {
        Ok(match wish.format {
            Format::Json => format!("{:#}\n", report::json(&last, &verdict, machine)),
            Format::Html => report::page(&last, &verdict, machine, options.bytes),
            _ => report::text(&last, &verdict, machine, options.bytes, output.style(&wish.place)),
        })
    })?;
    if reports.iter().any(|wish| wish.format == Format::Text) {
        last.gaps.iter().for_each(|gap| output.note(gap));
    }
    Ok(0)
}

/// The same process, not another one that got its number.
fn again(process: &quarry_proc::Process, stop: bool, first: &Look) -> Result<Look, ProcError> {
    let second = look(process, stop)?;
    let started = |look: &Look| look.space.stat.as_ref().map(|stat| stat.started);
    if started(first) == started(&second) {
        Ok(second)
    } else {
        Err(ProcError::Gone(process.pid().unwrap_or_default()))
    }
}
