// SPDX-License-Identifier: MIT
//! quarry tour: what memory is, as experiments that run here and now.
//!
//! A chapter is a program of `examples/tour` and its source: `run` runs the program, and `quarry_report::tour` shows both.

use anyhow::Context;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use quarry_measure::locate;
use quarry_report::tour::{self as report, Chapter, Run};

use crate::failure;
use crate::format::{Format, Makes, Report, Reports};
use crate::output::{Output, Place};

mod run;

/// Show what memory is, by experiments that run here and now
///
/// Each chapter is a small program. The tour explains its idea, shows the code, and runs it. Then it shows what the
/// kernel counted at each step (a `tour_step` in the code), what these figures mean, and what older texts say about the
/// subject. A chapter takes seconds at most.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct TourOptions {
    /// Names or numbers of chapters [default: all of them]
    #[arg(value_name = "CHAPTER")]
    chapters: Vec<String>,
    /// List the chapters, and run nothing.
    ///
    /// In JSON with their texts and code.
    #[arg(long)]
    list: bool,
    /// Let chapters change settings of the system while they run. The chapter on merged pages switches the kernel's
    /// page merging on, which needs root. Without this option, or the right, it shows a run that was recorded elsewhere.
    ///
    /// So does the chapter on swapping where there is no swap space.
    #[arg(long)]
    system: bool,
    #[command(flatten)]
    pub reports: Reports<Self>,
}

impl Makes for TourOptions {
    const VERB: &'static str = "tour";
    const FORMATS: &'static [Format] = &[Format::Text, Format::Json, Format::Html];
    const SCHEMA: &'static str = "quarry-tour/2";
}

const EXAMPLES: &str = "Examples:
  quarry tour                    all chapters, one after the other
  quarry tour --list             what there is
  quarry tour fork zero-page     two of them
  quarry tour 6                  by its number
  quarry tour -o tour.html       a page with pictures

Exit code: 0; 1 when a chapter failed, or saw something else than it expected; 2 when there is no such chapter; else as for quarry.";

/// The exit code when not all was as expected.
const UNEXPECTED: i32 = 1;

/// Run and show; the exit code says whether all was as expected.
pub fn main(options: &TourOptions, output: &Output) -> anyhow::Result<i32> {
    let folder = locate::tour_folder()?;
    let all = report::read_all(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let chosen = choose(&all, &options.chapters)?;
    let reports = options.reports.all(Place::Stdout)?;
    output.expect_all(&reports)?;
    if options.list {
        output.reports(&reports, |wish| match wish.format {
            Format::Json => Ok(format!("{:#}\n", report::list_json(&chosen))),
            Format::Html => Err(failure::usage("--list is text or JSON; leave it out for the page")),
            _ => Ok(report::list(&chosen)),
        })?;
        return Ok(0);
    }
    let bar = progress(chosen.len(), output)?;
    let play = |chapter: &Chapter| {
        bar.set_message(chapter.name.clone());
        let run = run::run(chapter, options.system);
        bar.inc(1);
        run
    };
    let mut runs: Vec<Run> = Vec::new();
    if let [Report { place, format: Format::Text }] = &reports[..] {
        let style = output.style(place);
        output.write(place, |to| {
            for chapter in &chosen {
                let run = play(chapter);
                let text = report::chapter(chapter, &run, &style);
                // Each when it is there: some take seconds, and the reader begins with the first.
                bar.suspend(|| to.write_all(text.as_bytes()).and_then(|()| to.flush()))?;
                runs.push(run);
            }
            Ok(())
        })?;
        bar.finish_and_clear();
    } else {
        runs.extend(chosen.iter().map(|chapter| play(chapter)));
        bar.finish_and_clear();
        output.reports_or_print(&reports, |wish| {
            let style = output.style(&wish.place);
            let both = chosen.iter().zip(&runs);
            Ok(match wish.format {
                Format::Json => format!("{:#}\n", report::json(&chosen, &runs)),
                Format::Html => report::page(&chosen, &runs),
                _ => both.map(|(chapter, run)| report::chapter(chapter, run, &style)).collect(),
            })
        })?;
    }
    for (chapter, run) in chosen.iter().zip(&runs) {
        if let Some(why) = &run.failed {
            output.warn(format_args!("{}: {why}", chapter.name));
        } else if run.unexpected() > 0 {
            let what = if run.unexpected() == 1 { "one thing was" } else { "some things were" };
            output.warn(format_args!("{}: {what} not as expected", chapter.name));
        }
    }
    let good = runs.iter().all(|run| run.failed.is_none() && run.unexpected() == 0);
    Ok(if good { 0 } else { UNEXPECTED })
}

/// Those asked for, in the order of the tour; all if none is.
fn choose<'a>(all: &'a [Chapter], wishes: &[String]) -> anyhow::Result<Vec<&'a Chapter>> {
    let is = |chapter: &Chapter, wish: &str| {
        chapter.name == wish || wish.parse() == Ok(chapter.number) || chapter.program_name() == wish
    };
    if let Some(wish) = wishes.iter().find(|wish| !all.iter().any(|chapter| is(chapter, wish))) {
        let names: Vec<&str> = all.iter().map(|chapter| chapter.name.as_str()).collect();
        return Err(failure::usage(format!("there is no chapter {wish}; there are: {}", names.join(", "))));
    }
    let wanted = |chapter: &&Chapter| wishes.is_empty() || wishes.iter().any(|wish| is(chapter, wish));
    Ok(all.iter().filter(wanted).collect())
}

fn progress(chapters: usize, output: &Output) -> anyhow::Result<ProgressBar> {
    let target = if output.is_quiet() { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let bar = ProgressBar::with_draw_target(Some(chapters as u64), target);
    bar.set_style(ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg}")?);
    Ok(bar)
}
