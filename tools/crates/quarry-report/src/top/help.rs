// SPDX-License-Identifier: MIT
//! The screen that says what the columns are.

use ratatui_core::style::Style;

use super::column::Column;
use super::pen::Pen;
use crate::fit;

const KEYS: &str = "Keys: arrows, Page Up/Down, Home, End move; Enter opens the process, Esc goes back; < and > (or left and right) \
                    choose the column to sort by, r turns the order; / filters by name or number, Esc shows all again; space pauses; + and - change \
                    the delay; g, in a process, groups by kind, object or quadrant; Ctrl-L draws anew; Ctrl-Z stops it, fg goes on; q quits.";
const QUADRANTS: &str = "Q: 1 private anonymous (malloc, stacks), 2 shared anonymous (shm, memfd), 3 private file (programs, \
                         libraries), 4 shared file. A written page of 3 is anonymous from then on.";
const COSTS: &str = "Only stat and statm are read of all processes; status and smaps_rollup of those on the screen, smaps of the \
                     one that is open, less often where that takes long. A column that is hidden on a narrow screen is shown when it is sorted by.";

const MISSING: &str = "(not yours): PSS and USS are for the process's user, and for root (CAP_SYS_PTRACE). (hidden): /proc hides \
                       it (hidepid). (unreadable): its files are not what the kernel writes.";

/// Text in lines of at most so many characters.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    fit::wrapped(text, width, "", "").lines().map(str::to_owned).collect()
}

/// Each line of the help.
pub fn help_lines(width: usize) -> Vec<String> {
    let mut lines = wrapped(KEYS, width);
    lines.push(String::new());
    for column in Column::ALL {
        let (source, what) = column.help();
        let text = wrapped(&format!("{what} [{source}]"), width.saturating_sub(8));
        for (index, line) in text.into_iter().enumerate() {
            let name = if index == 0 { column.name() } else { "" };
            lines.push(format!("{name:<8}{line}"));
        }
    }
    lines.push(String::new());
    lines.extend(wrapped(QUADRANTS, width));
    lines.extend(wrapped(COSTS, width));
    lines.extend(wrapped(MISSING, width));
    lines
}

/// The help from this line on; where its last screen begins.
pub fn help(pen: &mut Pen, first: usize) -> usize {
    let lines = help_lines(pen.width());
    let rows = pen.height() - 2;
    let furthest = lines.len().saturating_sub(rows);
    let first = first.min(furthest);
    pen.bar(0, "What the columns are, and in [ ] the kernel's counter (a file of /proc/PID)");
    for (index, line) in lines.iter().skip(first).take(rows).enumerate() {
        pen.line(1 + index, line, Style::new());
        let name = line.split(' ').next().unwrap_or_default();
        if Column::ALL.iter().any(|column| column.name() == name) {
            pen.mark(1 + index, 0, name.len(), Pen::bold());
        }
    }
    let end = (first + rows).min(lines.len());
    let text =
        format!("lines {} to {end} of {}  arrows scroll, any other key goes back", first + 1, lines.len());
    pen.line(rows + 1, &text, Pen::bold());
    furthest
}
