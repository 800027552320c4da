// SPDX-License-Identifier: MIT
//! The screen of the table, and the lines around every screen.

use std::time::Duration;

use quarry_proc::MemInfo;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::Style;

use super::column::Column;
use super::opened::Opened;
use super::row::Row;
use super::{inside, most};
use crate::units;
use crate::view::{self, Binding, Line, Look, Pen, fitting, known, line_of, size};
use quarry_proc::shown;

const KEYS: &str = "h help  Enter open  < > sort  r reverse  / filter  space pause  q quit";
const KEYS_INSIDE: &str = "h help  Esc back  g group  arrows scroll  space pause  q quit";
const HELP: &str = "What the columns are, and in [ ] the kernel's counter (a file of /proc/PID)";
/// The keys that it has besides those of every view.
pub const OWN: &[Binding] = &[
    Binding { keys: &["Enter", "Esc"], does: "open the process; back" },
    Binding { keys: &["g"], does: "in a process: by kind, by object, by quadrant" },
    Binding { keys: &["q", "Ctrl-C"], does: "quit" },
];
const QUADRANTS: &str = "Q: 1 private anonymous (malloc, stacks), 2 shared anonymous (shm, memfd), 3 private file (programs, \
                         libraries), 4 shared file. A written page of 3 is anonymous from then on.";
const COSTS: &str = "Only stat and statm are read of all processes; status and smaps_rollup of those on the screen, smaps of the \
                     one that is open, less often where that takes long. A column that is hidden on a narrow screen is shown when it is sorted by.";
const MISSING: &str = "(not yours): PSS and USS are for the process's user, and for root (CAP_SYS_PTRACE). (hidden): /proc hides \
                       it (hidepid). (unreadable): its files are not what the kernel writes.";

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

/// Draw all of it. Of what can be scrolled, the last screen begins at the line that is returned.
pub fn draw(buffer: &mut Buffer, area: Rect, look: &Look<Column>, picture: &Picture) -> usize {
    let mut pen = Pen { buffer, area, color: picture.color };
    if view::is_too_small(&mut pen, area) {
        return 0;
    }
    if let Some(first) = look.help {
        return view::help::<Column>(&mut pen, first, HELP, OWN, &[QUADRANTS, COSTS, MISSING]);
    }
    summary(&mut pen, look, picture);
    let furthest = match look.opened {
        Some(pid) => inside::process(&mut pen, look, picture, pid),
        None => {
            processes(&mut pen, look, picture);
            0
        }
    };
    view::last_line(&mut pen, look, if look.opened.is_some() { KEYS_INSIDE } else { KEYS });
    furthest
}

/// The first two lines: the machine, and what looking at it costs.
fn summary(pen: &mut Pen, look: &Look<Column>, picture: &Picture) {
    let processes = match look.opened {
        Some(_) => String::new(),
        None => format!("  {}", units::of(picture.count as u64, "process")),
    };
    view::title(pen, look, "quarry top", &format!("{processes}  {}", machine(&picture.memory)));
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
fn sums(look: &Look<Column>, picture: &Picture) -> String {
    let on_screen = picture.rows.iter().skip(look.first).take(look.page);
    let readable: Vec<&Row> = on_screen.filter(|row| row.rollup.pss.is_some()).collect();
    let sum = |column: Column| {
        size(readable.iter().filter_map(|row| column.bytes(row)).fold(0, u64::saturating_add))
    };
    let (res, pss) = (sum(Column::Res), sum(Column::Pss));
    let likeliest = || format!("; sorted: the {} likeliest only", most(look.page));
    let exact = if picture.exact { String::new() } else { likeliest() };
    format!("these {}: RES {res} counts shared pages each time, PSS {pss} once{exact}", readable.len())
}

/// The table of processes.
fn processes(pen: &mut Pen, look: &Look<Column>, picture: &Picture) {
    let columns = fitting(pen.width(), look.order.sort);
    let total = picture.memory.total;
    let line = |index: usize| {
        let row = &picture.rows[index];
        let text = line_of(&columns, |column| column.cell(row, total));
        let at = row.missing.and_then(|_| text.rfind('('));
        let mark = at.map(|at| (text[..at].chars().count(), text.len() - at));
        Line { text, mark }
    };
    view::table(pen, look, &columns, picture.rows.len(), line);
    if picture.rows.is_empty() {
        pen.line(3, "no process has this in its name; Esc shows all", Style::new());
    }
}

#[cfg(test)]
#[path = "draw_tests.rs"]
mod tests;
