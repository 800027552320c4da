// SPDX-License-Identifier: MIT
//! Frames one after the other, for scripts and where there is no terminal.

use std::thread;
use std::time::{Duration, Instant};

use super::{App, TopOptions};
use crate::failure;
use crate::format::Format;
use crate::output::{Output, Place, Series};
use crate::view::SHARE;

/// Write as many frames as were asked for, one if nothing was said.
pub fn write(mut app: App, options: &TopOptions, output: &Output) -> anyhow::Result<i32> {
    let reports = options.reports.all(Place::Stdout)?;
    let mut opened = None;
    // Nobody waits for a key: what is written is whole.
    app.patience = Duration::MAX;
    app.state.look.page = if options.rows == 0 { usize::MAX } else { options.rows };
    let frames = options.frames.unwrap_or(1);
    for frame in 1..=frames {
        let start = Instant::now();
        app.read().map_err(failure::failed)?;
        if let Some(why) = app.refused.as_ref().filter(|_| app.state.look.opened.is_none()) {
            // To outlive it is what was asked for, but there must have been something to look at.
            return if frame == 1 { Err(failure::failed(why)) } else { Ok(0) };
        }
        // Not before there is something to write: what cannot be looked at costs no old report.
        let series = match &mut opened {
            Some(series) => series,
            None => opened.insert(
                reports.iter().map(|wish| Series::open(&wish.place)).collect::<anyhow::Result<Vec<_>>>()?,
            ),
        };
        for (wish, series) in reports.iter().zip(series) {
            let text = match wish.format {
                Format::Jsonl => format!("{}\n", app.frame(frame).json()),
                _ => app.frame(frame).text(output.style(&wish.place)),
            };
            if !series.report(&text)? {
                return Ok(0);
            }
        }
        if frame < frames {
            // Signals end us as they end anybody: there is nothing to put in order, and whoever reads may never do so again.
            thread::sleep(options.delay.max(app.cost * SHARE).saturating_sub(start.elapsed()));
        }
    }
    Ok(0)
}
