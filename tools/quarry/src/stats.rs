// SPDX-License-Identifier: MIT
//! quarry stats: what processes on Quarry say of their memory while they run.

mod serve;

use std::time::Duration;

use clap::Args;
use quarry_report::stats as report;
use quarry_stats::openmetrics;
use quarry_stats::{Found, NoPage, find, maker};

use crate::failure;
use crate::format::{Format, Makes, Report, Reports};
use crate::output::{Output, Place, Series};
use crate::quantity::seconds;

/// Show the statistics of running processes
///
/// A process on Quarry keeps a page of statistics in its memory. Reading the page does not stop or disturb the process.
/// It takes the right to trace the process: root has it, and the same user unless kernel.yama.ptrace_scope forbids it.
/// Without -p the report lists all processes that have such a page. It shows how old the numbers are: an idle process
/// does not update them.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct StatsOptions {
    /// Report on the process with this number. May be repeated
    #[arg(short, long = "pid", value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub pids: Vec<i32>,
    /// Show all sizes of blocks, not only those with most memory
    #[arg(long)]
    pub all: bool,
    /// Repeat every SECONDS, until the process ends.
    ///
    /// With --json there is a line for each time. OpenMetrics text cannot be repeated.
    #[arg(long, value_name = "SECONDS", value_parser = seconds(0.01..=86_400.0))]
    pub watch: Option<Duration>,
    /// Serve the numbers at http://ADDR:PORT/metrics for a scraper. Without ADDR only this machine can reach it.
    ///
    /// There is no authentication.
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = serve::parse, conflicts_with_all = ["json", "format", "watch", "output"])]
    pub serve: Option<std::net::SocketAddr>,
    #[command(flatten)]
    pub reports: Reports<Self>,
}

impl Makes for StatsOptions {
    const VERB: &'static str = "stats";
    const FORMATS: &'static [Format] = &[Format::Text, Format::Json, Format::OpenMetrics];
    const SCHEMA: &'static str = "quarry-stats/1";
}

const EXAMPLES: &str = "Examples:
  quarry stats
  quarry stats -p 4711
  quarry stats -p 4711 --watch 1
  quarry stats --format openmetrics    for a scraper
  quarry stats --serve 9273

Exit code: 0; 1 when a process of -p has no statistics; a message says why.";

/// A process of -p, and when it was started: its number may be given to another one.
type Named = (i32, Option<u64>);

/// Report, and say how to end.
pub fn main(options: &StatsOptions, output: &Output) -> anyhow::Result<i32> {
    let first: Vec<Named> = options.pids.iter().map(|&pid| (pid, maker::started(pid))).collect();
    if let Some(address) = options.serve {
        return serve::main(address, &first, output);
    }
    let reports = options.reports.all(Place::Stdout)?;
    let Some(pause) = options.watch else {
        let found = collect(options, output)?;
        output.reports(&reports, |wish| Ok(rendered(options, &found, output, wish)))?;
        return Ok(0);
    };
    if reports.iter().any(|wish| wish.format == Format::OpenMetrics) {
        return Err(failure::usage("OpenMetrics text is of one time; leave out --watch, or say --serve"));
    }
    let mut found = again(options, &first, output)?;
    let mut series: Vec<_> =
        reports.iter().map(|wish| Ok((wish, Series::open(&wish.place)?))).collect::<anyhow::Result<_>>()?;
    loop {
        for (wish, series) in &mut series {
            if !series.report(&rendered(options, &found, output, wish))? {
                return Ok(0);
            }
        }
        std::thread::sleep(pause);
        found = match again(options, &first, output) {
            Ok(found) => found,
            Err(error) if first.iter().all(|&(pid, started)| gone(pid, started)) => {
                output.note(format_args!("there is nothing more to watch, it has ended: {error}"));
                return Ok(0);
            }
            Err(error) => return Err(error),
        };
    }
}

/// What is asked for, of the same processes as at first.
fn again(options: &StatsOptions, first: &[Named], output: &Output) -> anyhow::Result<Vec<Found>> {
    let found = collect(options, output)?;
    match first.iter().find(|&&(pid, started)| maker::started(pid) != started) {
        Some((pid, _)) => Err(failure::failed(format_args!("the number {pid} is another process's now"))),
        None => Ok(found),
    }
}

fn gone(pid: i32, started: Option<u64>) -> bool {
    maker::started(pid) != started
        || matches!(find::of_process(pid), Err(NoPage::NoProcess(_) | NoPage::NoMemory(_)))
}

/// What is asked for; processes that were named must have a page.
fn collect(options: &StatsOptions, output: &Output) -> anyhow::Result<Vec<Found>> {
    if options.pids.is_empty() {
        let all = find::all();
        if let Some(refused) = all.refused.first() {
            let more = match all.refused.len() - 1 {
                0 => String::new(),
                more => format!(" (and {more} more)"),
            };
            output.note(format_args!("not in the list: {refused}{more}"));
        }
        return Ok(all.found);
    }
    options.pids.iter().map(|&pid| find::of_process(pid).map_err(failure::failed)).collect()
}

fn rendered(options: &StatsOptions, found: &[Found], output: &Output, wish: &Report) -> String {
    match wish.format {
        Format::OpenMetrics => return openmetrics::render(found, openmetrics::Format::OpenMetrics),
        Format::Json if options.watch.is_some() => return format!("{}\n", report::json(found)),
        Format::Json => return format!("{:#}\n", report::json(found)),
        _ => {}
    }
    let style = output.style(&wish.place);
    let mut text = String::new();
    if options.pids.is_empty() {
        text.push_str(&report::list(found, style));
    }
    for (index, one) in found.iter().enumerate().filter(|_| !options.pids.is_empty()) {
        if index > 0 {
            text.push('\n');
        }
        text.push_str(&report::process(one, options.all, style));
    }
    if options.watch.is_some() {
        text.push('\n');
    }
    text
}
