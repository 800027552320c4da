// SPDX-License-Identifier: MIT
//! The screen of the table, and the lines around every screen.

use std::time::Duration;

use quarry_proc::MemInfo;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Modifier, Style};

use super::column::{Column, known, size};
use super::look::Look;
use super::opened::Opened;
use super::pen::Pen;
use super::row::Row;
use super::{MOST, help, inside};
use quarry_proc::shown;

/// The last column is never narrower than that, if the screen is not.
const COMMAND: usize = 12;
/// On a smaller screen there is nothing to see.
const LEAST: (u16, u16) = (20, 5);

/// What is drawn, besides what the user wants to see.
#[derive(Debug, Clone)]
pub struct Picture<'a> {
    /// Those that the filter lets through, in order.
    pub rows: &'a [Row],
    /// Their order is that of all processes.
    pub exact: bool,
    /// Processes that there are.
    pub count: usize,
    /// The machine's memory.
    pub memory: MemInfo,
    /// The process that is open.
    pub opened: Option<&'a Opened>,
    /// How much older its mappings are than this frame, and what reading them took.
    pub behind: Option<(Duration, Duration)>,
    /// Why the process cannot be shown.
    pub refused: Option<&'a str>,
    /// What the last frame took.
    pub cost: Duration,
    /// Use the one colour.
    pub color: bool,
}

/// Lines of the screen that are not rows: the summary, the heads, the keys.
pub const AROUND: usize = 4;

/// Draw all of it. Of what can be scrolled, the last screen begins at the line that is returned.
pub fn draw(buffer: &mut Buffer, area: Rect, look: &Look, picture: &Picture) -> usize {
    let mut pen = Pen { buffer, area, color: picture.color };
    if area.width < LEAST.0 || area.height < LEAST.1 {
        pen.line(0, "too small", Style::new());
        return 0;
    }
    if let Some(first) = look.help {
        return help::help(&mut pen, first);
    }
    summary(&mut pen, look, picture);
    let furthest = match look.opened {
        Some(pid) => inside::process(&mut pen, look, picture, pid),
        None => {
            table(&mut pen, look, picture);
            0
        }
    };
    last_line(&mut pen, look);
    furthest
}

/// The first two lines: the machine, and what looking at it costs.
fn summary(pen: &mut Pen, look: &Look, picture: &Picture) {
    let memory = picture.memory;
    let pause = match look.paused {
        true => String::from("PAUSED"),
        false => format!("every {} s", look.delay.as_secs_f64()),
    };
    let processes = match look.opened {
        Some(_) => String::new(),
        None => format!("  {} processes", picture.count),
    };
    let text = format!("quarry top  {pause}{processes}  {}", machine(&memory));
    pen.line(0, &text, Pen::bold());
    if look.paused
        && let Some(at) = text.find("PAUSED")
    {
        let warning = pen.warning();
        pen.mark(0, at, "PAUSED".len(), warning);
    }
    let cost = format!(" frame {} ms", picture.cost.as_millis());
    let room = pen.width().saturating_sub(cost.len());
    let second = match look.opened {
        Some(_) => picture.opened.map_or_else(String::new, |opened| shown(&opened.command)),
        None => sums(look, picture),
    };
    // Numbers are not cut.
    if look.opened.is_some() || second.chars().count() <= room {
        pen.line(1, &format!("{second:room$.room$}{cost}"), Style::new());
    } else {
        pen.line(1, &second, Style::new());
    }
}

/// The machine's memory.
pub fn machine(memory: &MemInfo) -> String {
    let used = memory.swap_total.zip(memory.swap_free).map(|(all, free)| all.saturating_sub(free));
    let swap = match memory.swap_total {
        Some(0) => String::from("no swap"),
        all => format!("swap {} of {}", known(used), known(all)),
    };
    format!("memory {} available {}  {swap}", known(memory.total), known(memory.available))
}

/// What the processes on the screen have together.
fn sums(look: &Look, picture: &Picture) -> String {
    let on_screen = picture.rows.iter().skip(look.first).take(look.page);
    let readable: Vec<&Row> = on_screen.filter(|row| row.rollup.pss.is_some()).collect();
    let sum = |column: Column| {
        size(readable.iter().filter_map(|row| column.bytes(row)).fold(0, u64::saturating_add))
    };
    let (res, pss) = (sum(Column::Res), sum(Column::Pss));
    let exact = if picture.exact { String::new() } else { format!("; sorted: the {MOST} likeliest only") };
    format!("these {}: RES {res} counts shared pages each time, PSS {pss} once{exact}", readable.len())
}

/// The columns that fit, and those that one asked for.
pub fn fitting(width: usize, sort: Column) -> Vec<Column> {
    let mut columns: Vec<Column> = Column::ALL.to_vec();
    let taken = |columns: &[Column]| {
        let cells = columns.iter().filter(|column| **column != Column::Command);
        cells.map(|column| column.width() + 1).sum::<usize>() + COMMAND
    };
    for optional in Column::OPTIONAL {
        if taken(&columns) <= width {
            break;
        }
        columns.retain(|column| *column != optional || *column == sort);
    }
    columns
}

/// A line of cells; the last one is text.
pub fn line_of(columns: &[Column], cell: impl Fn(Column) -> String) -> String {
    let mut line = String::new();
    for (index, column) in columns.iter().enumerate() {
        if index > 0 {
            line.push(' ');
        }
        let (text, width) = (cell(*column), column.width());
        match column {
            Column::Command => line += &text,
            _ => line += &format!("{text:>width$}"),
        }
    }
    line
}

/// The table of processes.
fn table(pen: &mut Pen, look: &Look, picture: &Picture) {
    let columns = fitting(pen.width(), look.order.sort);
    pen.bar(2, &line_of(&columns, |column| column.name().to_owned()));
    let mut from = 0;
    for column in &columns {
        let width = if *column == Column::Command { column.name().len() } else { column.width() };
        if *column == look.order.sort {
            let style = Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
            pen.mark(2, from + width - column.name().len(), column.name().len(), style);
        }
        from += width + 1;
    }
    let total = picture.memory.total;
    let rows = picture.rows.iter().enumerate().skip(look.first).take(pen.height().saturating_sub(AROUND));
    for (line, (index, row)) in rows.enumerate() {
        let text = line_of(&columns, |column| column.cell(row, total));
        if index == look.selected {
            pen.bar(3 + line, &text);
        } else {
            pen.line(3 + line, &text, Style::new());
        }
        if row.missing.is_some()
            && index != look.selected
            && let Some(at) = text.rfind('(')
        {
            let (warning, before) = (pen.warning(), text[..at].chars().count());
            pen.mark(3 + line, before, text.len() - at, warning);
        }
    }
    if picture.rows.is_empty() {
        pen.line(3, "no process has this in its name; Esc shows all", Style::new());
    }
}

fn last_line(pen: &mut Pen, look: &Look) {
    let row = pen.height() - 1;
    let filter = match &look.order.filter {
        filter if filter.is_empty() => String::new(),
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
        () if look.opened.is_some() => {
            pen.line(row, "h help  Esc back  g group  arrows scroll  space pause  q quit", Style::new());
        }
        () => {
            let keys = "h help  Enter open  < > sort  r reverse  / filter  space pause  q quit";
            pen.line(row, &format!("{filter}{keys}"), Style::new());
        }
    }
}

#[cfg(test)]
#[path = "draw_tests.rs"]
mod tests;
