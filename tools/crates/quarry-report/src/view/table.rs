// SPDX-License-Identifier: MIT
//! The table, and the lines around every screen.

use ratatui_core::layout::Rect;
use ratatui_core::style::{Modifier, Style};

use super::heading::{Heading, line_of};
use super::look::Look;
use super::pen::Pen;

/// On a smaller screen there is nothing to see.
const LEAST: (u16, u16) = (20, 5);
/// Lines of the screen that are not rows: the summary, the heads, the keys.
pub const AROUND: usize = 4;

/// A row of a table as it is written.
#[derive(Debug, Clone, Default)]
pub struct Line {
    /// Its cells.
    pub text: String,
    /// Where something stands that calls for a look: the first character, and how many.
    pub mark: Option<(usize, usize)>,
}

/// Is there no room? Then the screen says so.
pub fn is_too_small(pen: &mut Pen, area: Rect) -> bool {
    let small = area.width < LEAST.0 || area.height < LEAST.1;
    if small {
        pen.line(0, "too small", Style::new());
    }
    small
}

/// The first line: what is shown, how often, and of what. Letters before the latter are returned.
pub fn title<C>(pen: &mut Pen, look: &Look<C>, verb: &str, what: &str) -> usize {
    let pause = match look.paused {
        true => String::from("PAUSED"),
        false => format!("every {} s", look.delay.as_secs_f64()),
    };
    pen.line(0, &format!("{verb}  {pause}{what}"), Pen::bold());
    if look.paused {
        let warning = pen.warning();
        pen.mark(0, verb.len() + 2, pause.len(), warning);
    }
    verb.len() + 2 + pause.len()
}

/// The heads from the third line on, and the rows that are on the screen.
pub fn table<C: Heading>(
    pen: &mut Pen,
    look: &Look<C>,
    columns: &[C],
    count: usize,
    row: impl Fn(usize) -> Line,
) {
    pen.bar(2, &line_of(columns, |column| column.name().to_owned()));
    let mut from = 0;
    for column in columns {
        let letters = column.name().chars().count();
        let width = if *column == C::TEXT { letters } else { column.width() };
        if *column == look.order.sort {
            let style = Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
            pen.mark(2, from + width - letters, letters, style);
        }
        from += width + 1;
    }
    let rows = pen.height().saturating_sub(AROUND);
    for (line, index) in (look.first..count).take(rows).enumerate() {
        let Line { text, mark } = row(index);
        if index == look.selected {
            pen.bar(3 + line, &text);
            continue;
        }
        pen.line(3 + line, &text, Style::new());
        if let Some((from, length)) = mark {
            let warning = pen.warning();
            pen.mark(3 + line, from, length, warning);
        }
    }
}

/// The last line: what is typed, what is to be said, or which keys there are.
pub fn last_line<C>(pen: &mut Pen, look: &Look<C>, keys: &str) {
    let row = pen.height() - 1;
    let filter = match &look.order.filter {
        filter if filter.is_empty() || look.opened.is_some() => String::new(),
        filter => format!("filter: {filter}  "),
    };
    match () {
        () if look.typing.is_some() => {
            pen.bar(row, &format!("/{}_   Enter keeps it, Esc takes it back", look.order.filter));
        }
        () if look.message.is_some() => {
            let warning = pen.warning();
            pen.line(row, look.message.as_deref().unwrap_or_default(), warning);
        }
        () => pen.line(row, &format!("{filter}{keys}"), Style::new()),
    }
}
