// SPDX-License-Identifier: MIT
//! The terminal: taken, read, and given back as it was, however we end.

use std::io::{self, BufWriter, Stdout, Write};
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use crossterm::cursor::{Hide, MoveTo};
use crossterm::event::{self, Event};
use crossterm::terminal::{Clear, ClearType, EnterAlternateScreen, disable_raw_mode, enable_raw_mode, size};
use crossterm::{execute, queue};
use quarry_measure::memory;
use ratatui_core::buffer::{Buffer, Cell};
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier};

/// A whole frame is written at once, so that a slow line never shows half of one.
const FRAME: usize = 256 << 10;
/// Keys that wait to be read. More of them wait in the terminal.
const KEYS: usize = 256;
/// Letters as the terminal has them by itself.
const PLAIN: &[u8] = b"\x1b[0m";

/// What gives the terminal back, but for its modes: plain letters, the screen that was there before, and its cursor.
const LEAVE: &[u8] = b"\x1b[0m\x1b[?1049l\x1b[?25h";

/// The terminal is ours, and must be given back.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Make the terminal ours.
fn begin() -> io::Result<()> {
    memory::keep_terminal(LEAVE)?;
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen, Hide)
}

/// Give the terminal back, if it is ours.
fn give_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        let mut stdout = io::stdout();
        // It may be gone; then nobody needs it back.
        let _ = stdout.write_all(LEAVE).and_then(|()| stdout.flush());
        let _ = disable_raw_mode();
        memory::terminal_is_back();
    }
}

/// The terminal. Dropped, it is as it was before.
pub struct Screen {
    to: BufWriter<Stdout>,
    /// What the terminal shows, and room for the next frame.
    shown: Buffer,
    next: Buffer,
    events: Receiver<io::Result<Event>>,
}

impl Screen {
    /// Take it. A panic gives it back before it says why.
    pub fn take() -> io::Result<Self> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            before(panic);
        }));
        TAKEN.store(true, Ordering::SeqCst);
        let taken = Self::set_up();
        if taken.is_err() {
            give_back();
        }
        taken
    }

    fn set_up() -> io::Result<Self> {
        if matches!(size()?, (0, _) | (_, 0)) {
            return Err(io::Error::other("it does not know its size; tell it: stty cols 80 rows 24"));
        }
        begin()?;
        // Reading may wait within the first byte of a key for the second, so it is another thread's.
        let (sender, events) = sync_channel(KEYS);
        let read = move || {
            loop {
                let event = event::read();
                let ended = event.is_err();
                if sender.send(event).is_err() || ended {
                    return;
                }
            }
        };
        thread::Builder::new().name("keys".into()).spawn(read)?;
        let to = BufWriter::with_capacity(FRAME, io::stdout());
        Ok(Self { to, shown: Buffer::default(), next: Buffer::default(), events })
    }

    /// Draw a frame; only cells that differ from the frame before are written.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Buffer, Rect)) -> io::Result<()> {
        let (width, height) = size()?;
        let area = Rect::new(0, 0, width, height);
        if area != self.shown.area {
            // Terminals wrap or cut what they show when their size changes.
            queue!(self.to, Clear(ClearType::All))?;
            (self.shown, self.next) = (Buffer::empty(area), Buffer::empty(area));
        }
        self.next.reset();
        draw(&mut self.next, area);
        write_changes(&mut self.to, &self.shown.diff(&self.next))?;
        self.to.flush()?;
        mem::swap(&mut self.shown, &mut self.next);
        Ok(())
    }

    /// Write each cell anew with the next frame.
    pub fn forget(&mut self) {
        self.shown = Buffer::default();
    }

    /// Give it back for a while, as to a shell.
    pub fn release(&mut self) {
        give_back();
    }

    /// Take it again, whatever became of it; the next frame is drawn as a whole.
    pub fn retake(&mut self) -> io::Result<()> {
        // Somebody may have given it other modes, so that what we believe of it is not true.
        disable_raw_mode()?;
        TAKEN.store(true, Ordering::SeqCst);
        begin()?;
        self.forget();
        Ok(())
    }

    /// What happened, within this time at most.
    pub fn event(&self, most: Duration) -> io::Result<Option<Event>> {
        match self.events.recv_timeout(most) {
            Ok(event) => event.map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("the terminal is gone")),
        }
    }

    /// Lines of the screen.
    pub fn height(&self) -> io::Result<usize> {
        Ok(usize::from(size()?.1))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Have the terminal show these cells; without any, nothing is written.
fn write_changes(to: &mut impl Write, changes: &[(u16, u16, &Cell)]) -> io::Result<()> {
    let plain = (Color::Reset, Modifier::empty());
    let (mut look, mut cursor) = (plain, None);
    for &(x, y, cell) in changes {
        if cursor != Some((x, y)) {
            queue!(to, MoveTo(x, y))?;
        }
        if (cell.fg, cell.modifier) != look {
            look = (cell.fg, cell.modifier);
            to.write_all(sequence(cell).as_bytes())?;
        }
        to.write_all(cell.symbol().as_bytes())?;
        // Behind a wide letter it is elsewhere, but the cell there is no change of its own.
        cursor = Some((x + 1, y));
    }
    if look != plain { to.write_all(PLAIN) } else { Ok(()) }
}

/// What makes letters look like that, whatever they were before.
fn sequence(cell: &Cell) -> String {
    let parts = [
        (cell.modifier.contains(Modifier::BOLD), ";1"),
        (cell.modifier.contains(Modifier::UNDERLINED), ";4"),
        (cell.modifier.contains(Modifier::REVERSED), ";7"),
        (cell.fg == Color::Red, ";31"),
    ];
    let wanted: String = parts.iter().filter(|(wanted, _)| *wanted).map(|(_, part)| *part).collect();
    format!("\x1b[0{wanted}m")
}

#[cfg(test)]
#[path = "screen_tests.rs"]
mod tests;
