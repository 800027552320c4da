// SPDX-License-Identifier: MIT
//! Writing on a screen. The one colour can be read on light and on dark; without it everything is still said by bold and
//! reversed letters.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};

/// A place on the screen.
pub struct Pen<'a> {
    /// All cells of the screen.
    pub buffer: &'a mut Buffer,
    /// Where to write.
    pub area: Rect,
    /// Use the one colour.
    pub color: bool,
}

impl Pen<'_> {
    /// A line, cut at the edge.
    pub fn line(&mut self, row: usize, text: &str, style: Style) {
        let Ok(row) = u16::try_from(row) else { return };
        if row < self.area.height {
            let (x, y) = (self.area.x, self.area.y + row);
            self.buffer.set_stringn(x, y, text, usize::from(self.area.width), style);
        }
    }

    /// A line over the whole width.
    pub fn bar(&mut self, row: usize, text: &str) {
        let width = usize::from(self.area.width);
        self.line(row, &format!("{text:width$}"), Style::new().add_modifier(Modifier::REVERSED));
    }

    /// A part of a line that has a style already, cut at the edge.
    pub fn put(&mut self, row: usize, from: usize, text: &str) {
        let (Ok(row), Ok(from)) = (u16::try_from(row), u16::try_from(from)) else { return };
        if row < self.area.height && from < self.area.width {
            let (x, y) = (self.area.x + from, self.area.y + row);
            let style = self.buffer[(x, y)].style();
            self.buffer.set_stringn(x, y, text, usize::from(self.area.width - from), style);
        }
    }

    /// A part of a line that was written already.
    pub fn mark(&mut self, row: usize, from: usize, length: usize, style: Style) {
        let (Ok(row), Ok(from)) = (u16::try_from(row), u16::try_from(from)) else { return };
        let length = u16::try_from(length).unwrap_or(u16::MAX);
        if row < self.area.height && from < self.area.width {
            let place =
                Rect::new(self.area.x + from, self.area.y + row, length.min(self.area.width - from), 1);
            self.buffer.set_style(place, style);
        }
    }

    /// How heads look.
    pub fn bold() -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// How looks what calls for a look.
    pub fn warning(&self) -> Style {
        if self.color { Self::bold().fg(Color::Red) } else { Self::bold() }
    }

    /// Columns that there are.
    pub fn width(&self) -> usize {
        usize::from(self.area.width)
    }

    /// Lines that there are.
    pub fn height(&self) -> usize {
        usize::from(self.area.height)
    }
}
