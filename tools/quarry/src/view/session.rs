// SPDX-License-Identifier: MIT
//! A view on a terminal: when it is read, when it is drawn, and what keys do.

use std::time::{Duration, Instant};

use anyhow::Context;
use crossterm::event::{Event, KeyCode};
use quarry_measure::signals::{Forwarding, Stops};
use quarry_report::view::AROUND;

use super::screen::Screen;
use super::state::Do;
use super::{SHARE, View};

/// How long a signal may wait to be seen.
const PATIENCE: Duration = Duration::from_millis(100);
/// Keys that repeat do not draw faster than that: a slow line gets what is newest, not all that was.
const DRAWING: Duration = Duration::from_millis(40);

/// Draw frames until the user has seen enough, or this many. Some: a signal ended it.
pub fn watch(view: &mut impl View, frames: Option<u64>, color: bool) -> anyhow::Result<Option<i32>> {
    let (signals, stops) = (Forwarding::ending(), Stops::noticed());
    let screen = Screen::take().context("cannot use the terminal")?;
    let mut live =
        Live { view, screen, stops, color, frames: 0, next: Instant::now(), drawn: None, stale: true };
    loop {
        let done = live.step(frames);
        // A terminal that goes away fails, but it has sent SIGHUP before.
        if let Some(signal) = signals.seen() {
            return Ok(Some(signal));
        }
        if done? {
            return Ok(None);
        }
    }
}

struct Live<'a, V> {
    view: &'a mut V,
    screen: Screen,
    stops: Stops,
    color: bool,
    /// Frames that were read.
    frames: u64,
    /// When the next is to be read.
    next: Instant,
    drawn: Option<Instant>,
    /// There is something that was not drawn yet.
    stale: bool,
}

impl<V: View> Live<'_, V> {
    /// Read and draw, if it is time for that, and wait a while for keys. True: that was all.
    fn step(&mut self, most: Option<u64>) -> anyhow::Result<bool> {
        if self.stops.asked() {
            self.stop(false)?;
        }
        if self.stops.continued() {
            self.resume()?;
        }
        self.fit()?;
        if !self.view.state().look.paused && Instant::now() >= self.next {
            self.read()?;
        }
        let todo = self.view.meanwhile()?;
        self.apply(todo)?;
        if self.stale && self.drawn.is_none_or(|at| at.elapsed() >= DRAWING) {
            self.draw()?;
            if most.is_some_and(|most| self.frames >= most) {
                return Ok(true);
            }
        }
        self.keys()
    }

    /// Have as many rows as the screen.
    fn fit(&mut self) -> anyhow::Result<()> {
        let height = self.screen.height().context("the terminal is gone")?;
        self.view.state().look.page = height.saturating_sub(AROUND).max(1);
        Ok(())
    }

    /// Give the terminal back and stop, alone or with the whole job.
    fn stop(&mut self, group: bool) -> anyhow::Result<()> {
        self.screen.release();
        self.stops.stop(group);
        self.resume()
    }

    /// We go on, on a terminal that others had meanwhile.
    fn resume(&mut self) -> anyhow::Result<()> {
        self.stops.continued();
        self.screen.retake().context("cannot use the terminal again")?;
        (self.next, self.drawn, self.stale) = (Instant::now(), None, true);
        Ok(())
    }

    fn read(&mut self) -> anyhow::Result<()> {
        self.view.read()?;
        let cost = self.view.cost();
        self.next = Instant::now() + self.view.state().look.delay.max(cost * SHARE);
        self.frames += 1;
        self.stale = true;
        Ok(())
    }

    fn draw(&mut self) -> anyhow::Result<()> {
        let (start, mut furthest) = (Instant::now(), 0);
        let (view, color) = (&*self.view, self.color);
        let drawing = self.screen.draw(|buffer, area| furthest = view.draw(buffer, area, color));
        drawing.context("cannot draw on the terminal")?;
        self.view.state().scrolled_to(furthest);
        let now = Instant::now();
        (self.drawn, self.stale) = (Some(now), false);
        // A line that was busy this long is left alone as long, for answers to keys.
        self.next = self.next.max(now + (now - start));
        Ok(())
    }

    /// Wait for keys, and do what they say; true: quit. Those that wait together are drawn together.
    fn keys(&mut self) -> anyhow::Result<bool> {
        let mut wait = PATIENCE;
        if !self.view.state().look.paused {
            wait = wait.min(self.next.saturating_duration_since(Instant::now()));
        }
        if self.stale {
            wait = wait.min(DRAWING);
        }
        let mut todo = Do::Nothing;
        while let Some(event) = self.screen.event(wait).context("cannot read from the terminal")? {
            // Enter opens the row under the cursor, as the keys before it have left it.
            if event.as_key_press_event().is_some_and(|key| key.code == KeyCode::Enter) {
                self.apply(std::mem::replace(&mut todo, Do::Nothing))?;
            }
            todo = todo.max(self.handle(&event)?);
            if todo == Do::Quit {
                return Ok(true);
            }
            wait = Duration::ZERO;
        }
        self.apply(todo)?;
        Ok(false)
    }

    fn handle(&mut self, event: &Event) -> anyhow::Result<Do> {
        Ok(match event {
            Event::Key(key) => match self.view.key(*key) {
                Do::Redraw => {
                    self.screen.forget();
                    Do::Draw
                }
                other => other,
            },
            // More or fewer rows, which may not have been read.
            Event::Resize(..) => {
                self.fit()?;
                Do::Rank
            }
            _ => Do::Nothing,
        })
    }

    fn apply(&mut self, todo: Do) -> anyhow::Result<()> {
        match todo {
            Do::Read => self.read()?,
            Do::Rank => self.view.rank(),
            Do::Stop => self.stop(true)?,
            Do::Work => {
                self.draw()?;
                self.view.work();
            }
            _ => {}
        }
        self.stale |= todo != Do::Nothing;
        Ok(())
    }
}
