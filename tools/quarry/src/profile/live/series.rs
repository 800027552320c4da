// SPDX-License-Identifier: MIT
//! Frames one after the other, for scripts and where there is no terminal.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use quarry_measure::signals::Forwarding;

use super::super::options::ProfileOptions;
use super::super::running::PAUSE;
use super::Written;
use super::app::App;
use crate::output::{Output, Place, Series};
use crate::view::SHARE;

/// Writes in a thread of its own: while a reader does not read, the process is sampled on, and signals are seen.
struct Writer {
    texts: SyncSender<String>,
    written: Receiver<anyhow::Result<bool>>,
}

impl Writer {
    fn start() -> anyhow::Result<Self> {
        let (texts, taken) = sync_channel::<String>(0);
        let (done, written) = sync_channel(1);
        let write = move || {
            let series = Series::open(&Place::Stdout);
            let Ok(mut series) = series else {
                let _ = done.send(series.map(|_| false));
                return;
            };
            for text in taken {
                if done.send(series.report(&text)).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("write".into()).spawn(write).context("cannot start a thread")?;
        Ok(Self { texts, written })
    }

    /// What became of the text that was sent last, if that is known by then.
    fn result(&self, most: Duration) -> anyhow::Result<Option<bool>> {
        match self.written.recv_timeout(most) {
            Ok(result) => result.map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Ok(Some(false)),
        }
    }
}

/// Why frames end.
enum Stop {
    Signal(i32),
    /// Nobody reads them any more.
    Unread,
}

/// Write frames until there were as many as were asked for, the time is up, the process has ended, or a signal came, which is returned.
pub fn write(
    app: &mut App,
    options: &ProfileOptions,
    written: &Written,
    signals: &Forwarding,
    output: &Output,
) -> anyhow::Result<Option<i32>> {
    let writer = Writer::start()?;
    let style = output.style(&Place::Stdout);
    let most = options.frames.or(options.once.then_some(1)).unwrap_or(u64::MAX);
    for number in 1..=most {
        let next = Instant::now() + app.state.look.delay.max(app.cost * SHARE);
        while app.ended.is_none() && Instant::now() < next {
            thread::sleep(PAUSE.min(next.saturating_duration_since(Instant::now())));
            if let Some(signal) = signals.seen() {
                return Ok(Some(signal));
            }
            app.poll()?;
        }
        app.look()?;
        let Some(seen) = &app.seen else { break };
        let frame = app.frame(number, seen);
        let text = match written {
            Written::Lines => format!("{}\n", frame.json()),
            Written::Text => frame.text(style),
        };
        let is_last = app.ended.is_some();
        match send(app, &writer, text, signals)? {
            Some(Stop::Signal(signal)) => return Ok(Some(signal)),
            Some(Stop::Unread) => break,
            None if is_last => break,
            None => {}
        }
    }
    Ok(None)
}

/// Have it written.
fn send(app: &mut App, writer: &Writer, text: String, signals: &Forwarding) -> anyhow::Result<Option<Stop>> {
    if writer.texts.send(text).is_err() {
        writer.result(Duration::ZERO)?;
        return Ok(Some(Stop::Unread));
    }
    loop {
        match writer.result(PAUSE)? {
            Some(true) => return Ok(None),
            Some(false) => return Ok(Some(Stop::Unread)),
            None => {}
        }
        if let Some(signal) = signals.seen() {
            return Ok(Some(Stop::Signal(signal)));
        }
        app.poll()?;
    }
}
