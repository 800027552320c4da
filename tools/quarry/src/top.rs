// SPDX-License-Identifier: MIT
//! quarry top: the memory of all processes, again and again.
//!
//! `sample` reads, `rank` orders and reads what that needs, `opened` looks into one process, and `series` is for who
//! has no terminal; [`crate::view`] is for those who have. What they show is [`quarry_report::top`].

mod looker;
mod opened;
mod options;
mod rank;
mod sample;
mod series;

use std::time::{Duration, Instant};

use crossterm::event::{KeyCode, KeyEvent};
use quarry_proc::sum::By;
use quarry_proc::{ProcError, Root};
use quarry_report::top::{Column, Frame, Opened, Picture, Row, draw};
use quarry_report::view::Order;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;

pub use options::TopOptions;

use crate::failure;
use crate::output::{Output, Place};
use crate::view::{self, Do, State, View};
use looker::{Found, Looker};
use rank::Ranked;
use sample::Watch;

/// How long a frame waits for the mappings of the open process. Those that take longer are in a later one.
const MAPPINGS: Duration = Duration::from_millis(50);

/// Watch, or write as many frames as were asked for.
pub fn main(options: &TopOptions, output: &Output) -> anyhow::Result<i32> {
    let root = options.proc.as_deref().map_or_else(Root::live, Root::copy);
    if let Some(pid) = options.pid {
        root.process(pid).map_err(failure::failed)?;
    }
    let written = options.once || options.reports.wanted();
    // The screen goes back to the list, and what is written does not.
    if written && options.pid.is_some() && (options.reverse || !options.filter.is_empty()) {
        return Err(failure::usage("-p is of one process, of which --filter and --reverse say nothing"));
    }
    let app = App::new(options, root);
    if written {
        return series::write(app, options, output);
    }
    view::needs_terminal("quarry top")?;
    let ended = view::watch(&mut { app }, options.frames, output.style(&Place::Stdout).color)?;
    Ok(ended.map_or(0, |signal| 128 + signal))
}

/// All that is looked at, and how.
struct App {
    watch: Watch,
    began: Instant,
    state: State<Column>,
    /// How the mappings of the process that is open are put together.
    by: By,
    /// All processes of the last frame; those that are shown come first, in order.
    rows: Vec<Row>,
    ranked: Ranked,
    looker: Option<Looker>,
    opened: Option<Seen>,
    refused: Option<String>,
    /// How long a frame waits for mappings.
    patience: Duration,
    /// When the last frame was read, since `began`.
    at: Duration,
    cost: Duration,
}

/// An open process, when it was looked at, and what that took.
struct Seen {
    opened: Opened,
    at: Duration,
    took: Duration,
}

impl App {
    fn new(options: &TopOptions, root: Root) -> Self {
        let order = Order { sort: options.sort, reverse: options.reverse, filter: options.filter.clone() };
        Self {
            watch: Watch::new(root),
            began: Instant::now(),
            state: State::new(order, options.delay, options.pid),
            by: By::Kind,
            rows: Vec::new(),
            ranked: Ranked { matching: 0, exact: true },
            looker: None,
            opened: None,
            refused: None,
            patience: MAPPINGS,
            at: Duration::ZERO,
            cost: Duration::ZERO,
        }
    }

    /// Read what there is now.
    fn read(&mut self) -> Result<(), ProcError> {
        let start = Instant::now();
        let now = self.began.elapsed();
        let opened = self.state.look.opened;
        self.at = now;
        self.rows = self.watch.frame(now, |pid| opened.is_none_or(|opened| opened == pid))?;
        self.look(now);
        if opened.is_some() && self.state.look.opened.is_none() {
            // It has ended, and of the others nothing was read.
            self.rows = self.watch.frame(now, |_| true)?;
        }
        self.rank();
        self.cost = start.elapsed();
        Ok(())
    }

    /// Order what was read. Beyond that, only what the screen shows is read.
    fn rank(&mut self) {
        if self.state.look.opened.is_some() {
            self.rows.iter_mut().for_each(|row| self.watch.read_all(row));
            self.ranked = Ranked { matching: self.rows.len(), exact: true };
            return;
        }
        let page = self.state.look.page;
        // The cursor may go with its process to where the order is not known yet; then it is made known there. This ends,
        // for it goes down only.
        loop {
            let first = self.state.look.first;
            self.ranked = rank::rank(&mut self.watch, &mut self.rows, &self.state.look.order, first, page);
            self.state.settle(&self.pids());
            if self.state.look.first <= first {
                break;
            }
        }
        let matching = &mut self.rows[..self.ranked.matching];
        let first = self.state.look.first.min(matching.len());
        let end = first.saturating_add(page).min(matching.len());
        let shown = &mut matching[first..end];
        shown.iter_mut().for_each(|row| self.watch.read_all(row));
        // What has changed meanwhile may have another place.
        rank::sort(shown, &self.state.look.order);
    }

    /// Those that the filter lets through.
    fn shown(&self) -> &[Row] {
        &self.rows[..self.ranked.matching]
    }

    fn pids(&self) -> Vec<u32> {
        self.shown().iter().map(|row| row.pid).collect()
    }

    /// Look into the process that is open. One that has ended leads back to the table.
    fn look(&mut self, now: Duration) {
        let Some(pid) = self.state.look.opened else {
            (self.looker, self.opened, self.refused) = (None, None, None);
            return;
        };
        if self.looker.as_ref().is_none_or(|looker| looker.pid() != pid) {
            self.opened = None;
            match Looker::new(self.watch.root().clone(), pid) {
                Ok(looker) => (self.looker, self.refused) = (Some(looker), None),
                Err(error) => {
                    self.refused =
                        Some(format!("cannot look at its mappings, as no thread can be started: {error}"));
                    return;
                }
            }
        }
        let is_there = self.rows.iter().any(|row| row.pid == pid);
        let (by, patience) = (self.by, self.patience);
        let found = self.looker.as_mut().and_then(|looker| looker.look(now, by, !is_there, patience));
        found.into_iter().for_each(|found| self.take(pid, found));
    }

    /// Mappings that a frame did not wait for. True: there is something new to draw.
    fn late(&mut self) -> bool {
        let (now, by) = (self.began.elapsed(), self.by);
        let Some(pid) = self.state.look.opened else { return false };
        let looker = self.looker.as_mut().filter(|looker| looker.pid() == pid);
        let Some(found) = looker.and_then(|looker| looker.found(now, by, Duration::ZERO)) else {
            return false;
        };
        self.take(pid, found);
        true
    }

    fn take(&mut self, pid: u32, Found { at, took, opened, .. }: Found) {
        self.refused = None;
        match opened {
            Ok(opened) => self.opened = Some(Seen { opened, at, took }),
            Err(error) => {
                self.opened = None;
                self.refused = Some(error.to_string());
                if error.is_gone() {
                    self.state.look.opened = None;
                    self.state.look.message = Some(format!("process {pid} has ended"));
                }
            }
        }
    }

    /// What is written of it: as many rows as there is room for.
    fn frame(&self, number: u64) -> Frame<'_> {
        let page = self.state.look.page;
        Frame {
            number,
            time: self.began.elapsed(),
            cost: self.cost,
            asked: self.watch.asked(),
            memory: self.watch.memory(),
            count: self.rows.len(),
            matching: self.ranked.matching,
            sort: self.state.look.order.sort,
            exact: self.ranked.exact,
            rows: &self.shown()[..self.ranked.matching.min(page)],
            page,
            inside: self.state.look.opened.is_some(),
            opened: self.opened.as_ref().map(|seen| &seen.opened),
            refused: self.refused.as_deref(),
        }
    }

    fn picture(&self, color: bool) -> Picture<'_> {
        let waiting = self.looker.as_ref().is_some_and(Looker::is_busy);
        Picture {
            rows: self.shown(),
            exact: self.ranked.exact,
            count: self.rows.len(),
            memory: self.watch.memory(),
            opened: self.opened.as_ref().map(|seen| &seen.opened),
            behind: self.opened.as_ref().and_then(|seen| Some((self.at.checked_sub(seen.at)?, seen.took))),
            refused: self.refused.as_deref().or(waiting.then_some("its mappings are being read")),
            cost: self.cost,
            color,
        }
    }
}

impl View for App {
    type Column = Column;

    fn state(&mut self) -> &mut State<Column> {
        &mut self.state
    }

    fn read(&mut self) -> anyhow::Result<()> {
        Ok(App::read(self)?)
    }

    fn cost(&self) -> Duration {
        self.cost
    }

    fn meanwhile(&mut self) -> anyhow::Result<Do> {
        Ok(match self.late() {
            // It has ended, and of the others nothing was read.
            true if self.state.look.opened.is_none() => Do::Read,
            true => Do::Draw,
            false => Do::Nothing,
        })
    }

    fn rank(&mut self) {
        App::rank(self);
    }

    fn key(&mut self, key: KeyEvent) -> Do {
        match self.state.key(key, &self.pids()) {
            Do::Own if self.state.look.opened.is_some() && key.code == KeyCode::Char('g') => {
                self.by = match self.by {
                    By::Quadrant => By::Kind,
                    By::Kind => By::Object,
                    _ => By::Quadrant,
                };
                self.state.look.part = 0;
                Do::Read
            }
            todo => todo,
        }
    }

    fn draw(&self, buffer: &mut Buffer, area: Rect, color: bool) -> usize {
        draw(buffer, area, &self.state.look, &self.picture(color))
    }
}
