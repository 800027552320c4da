// SPDX-License-Identifier: MIT
//! A view on a terminal: what `quarry top` and `quarry profile --live` have in common.
//!
//! `screen` is the terminal, `state` what keys change, and `session` when is read and drawn. What is shown is another's: see [`View`].

mod screen;
mod session;
mod state;

use std::io::{self, IsTerminal};
use std::time::Duration;

use crossterm::event::KeyEvent;
use quarry_report::view::Heading;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;

pub use session::watch;
pub use state::{Do, FASTEST, SLOWEST, State};

use crate::failure;

/// Looking takes a tenth of the time at most.
pub const SHARE: u32 = 10;

/// What is watched.
pub trait View {
    /// The columns of its table.
    type Column: Heading;

    /// What the user looks at.
    fn state(&mut self) -> &mut State<Self::Column>;
    /// Read what there is now.
    fn read(&mut self) -> anyhow::Result<()>;
    /// What the last frame took.
    fn cost(&self) -> Duration;
    /// What has come meanwhile, between two frames.
    fn meanwhile(&mut self) -> anyhow::Result<Do> {
        Ok(Do::Nothing)
    }
    /// Other rows are wanted of what was read, or in another order.
    fn rank(&mut self);
    /// A key was pressed.
    fn key(&mut self, key: KeyEvent) -> Do;
    /// Draw all of it. Of what can be scrolled, the last screen begins at the line that is returned.
    fn draw(&self, buffer: &mut Buffer, area: Rect, color: bool) -> usize;
    /// Do what was said to take long, by [`Do::Work`]. The screen says already that it is done.
    fn work(&mut self) {}
}

/// Can a view be drawn? `verb` is what has no text for lack of one.
pub fn needs_terminal(verb: &str) -> anyhow::Result<()> {
    let is_dumb = std::env::var_os("TERM").is_none_or(|name| name.is_empty() || name == "dumb");
    if is_dumb || !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(failure::usage(format_args!(
            "{verb} draws on a terminal, and there is none, or TERM says that it cannot; say --once for text, or --json"
        )));
    }
    Ok(())
}
