// SPDX-License-Identifier: MIT
//! quarry explain: why a process has as much memory as it has.

mod chain;
mod glibc;
mod heaps;
mod json;
mod look;
mod page;
mod peek;
mod tcmalloc;
mod text;
mod verdict;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use quarry_proc::{ProcError, Root};

use crate::failure;
use crate::output::{Output, Place};
use look::Look;
use verdict::Growth;

/// Say why a process has as much memory as it has
///
/// Begins with what the kernel counts as resident and says what it consists of: private or shared, of files or not; inside of heaps
/// what is live, what threads keep in their caches, what is free between live blocks and what is about to be given back. For
/// Quarry the process says so itself, glibc's heap is read from outside, without stopping the process, and of others is told what can
/// be seen. The parts always add up to the kernel's figure. Then a verdict, what to try, and what to expect of it.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ExplainOptions {
    /// The process with this number
    #[arg(short, long, value_name = "PID")]
    pub pid: u32,
    /// Look twice, so many seconds apart, to see what grows; 0: look once
    #[arg(long = "for", value_name = "SECONDS", value_parser = seconds, default_value = "2")]
    pub window: Duration,
    /// Sizes in bytes instead of KiB, MiB, ...
    #[arg(long)]
    pub bytes: bool,
    /// Write a page with the same as a picture there; it needs no network
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// JSON instead of text (schema quarry-explain/1)
    #[arg(long)]
    pub json: bool,
    /// Write the report there instead of to standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

const EXAMPLES: &str = "Examples:
  quarry explain -p 1234
  quarry explain -p 1234 --for 60         does it grow in a minute?
  quarry explain -p 1234 --for 0 --json   at once, for scripts

Exit code: 0; 1 when there is no such process or it may not be read.";

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| String::from("not a number"))?;
    if (0.0..=86_400.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(String::from("not between 0 and 86400"))
    }
}

/// Look, wait, look again, and report.
pub fn main(options: &ExplainOptions, output: &Output) -> anyhow::Result<i32> {
    let process = Root::live().process(options.pid).map_err(failure::failed)?;
    let first = look::look(&process).map_err(failure::failed)?;
    let (last, growth) = if options.window.is_zero() {
        (first, None)
    } else {
        std::thread::sleep(options.window);
        match again(&process, &first) {
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
    if let Some(path) = &options.html {
        let page = page::page(&last, &verdict, machine, options.bytes);
        std::fs::write(path, page).with_context(|| format!("cannot write the page to {}", path.display()))?;
    }
    let place = Place::of(options.output.as_deref(), Place::Stdout);
    if options.json {
        let value = json::json(&last, &verdict, machine);
        output.report(&place, &format!("{value:#}\n"))?;
    } else {
        let style = output.style(&place);
        output.report(&place, &text::report(&last, &verdict, machine, options.bytes, style))?;
        for gap in &last.gaps {
            output.note(gap);
        }
    }
    Ok(0)
}

/// The same process, not another one that got its number.
fn again(process: &quarry_proc::Process, first: &Look) -> Result<Look, ProcError> {
    let second = look::look(process)?;
    let started = |look: &Look| look.space.stat.as_ref().map(|stat| stat.started);
    if started(first) == started(&second) {
        Ok(second)
    } else {
        Err(ProcError::Gone(process.pid().unwrap_or_default()))
    }
}
