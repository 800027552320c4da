// SPDX-License-Identifier: MIT
//! The screen of one process: what the columns are made of, and its mappings.

use quarry_proc::shown;
use std::time::Duration;

use ratatui_core::style::Style;

use super::column::Column;
use super::draw::Picture;
use super::opened::{Fact, Part, res_of, shr_of};
use super::row::Row;
use crate::fit::{fitted, wrapped};
use crate::map::Column as Counter;
use crate::view::{Heading, Look, Pen, change, known};

/// One process; where the last screen of its parts begins.
pub fn process(pen: &mut Pen, look: &Look<Column>, picture: &Picture, pid: u32) -> usize {
    let row = picture.rows.iter().find(|row| row.pid == pid);
    let Some(opened) = picture.opened else {
        refused(pen, picture, pid, row);
        return 0;
    };
    let rates = row.map_or_else(String::new, |row| {
        let cell = |column: Column| format!("  {} {}", column.name(), column.cell(row, picture.memory.total));
        [Column::Mem, Column::Faults, Column::Major, Column::Growth, Column::Grown].map(cell).concat()
    });
    pen.line(2, &format!("{pid} {}  threads {}{rates}", shown(&opened.name), opened.threads), Pen::bold());
    // What is older than a tenth of a second is of another frame; the columns are of this one then.
    let behind = picture.behind.filter(|(age, _)| *age >= Duration::from_millis(100));
    for (index, fact) in opened.facts.iter().enumerate() {
        let text = match row.filter(|_| behind.is_some()) {
            Some(row) => fact_line(&anew(fact, row)),
            None => fact_line(fact),
        };
        pen.line(3 + index, &text, Style::new());
        pen.mark(3 + index, 0, 11, Pen::bold());
    }
    let mut line = 3 + opened.facts.len();
    if let Some(remark) = &opened.remark {
        let warning = pen.warning();
        pen.line(line, remark, warning);
        line += 1;
    }
    if let Some((age, took)) = behind {
        let (age, took) = (age.as_secs_f64(), took.as_secs_f64());
        pen.line(
            line,
            &format!("mappings of {age:.1} s ago: {} take {took:.1} s", opened.total.count),
            Style::new(),
        );
        line += 1;
    }
    pen.bar(line, &part_heads());
    let room = pen.height().saturating_sub(line + 2);
    let furthest = opened.parts.len().saturating_sub(room);
    for (index, part) in opened.parts.iter().skip(look.part.min(furthest)).take(room).enumerate() {
        let text = part_line(part, pen.width());
        pen.line(line + 1 + index, &text, Style::new());
    }
    furthest
}

/// What is known without looking into it, and why it is no more.
fn refused(pen: &mut Pen, picture: &Picture, pid: u32, row: Option<&Row>) {
    pen.line(2, &format!("{pid} {}", row.map(Row::label).unwrap_or_default()), Pen::bold());
    let known = row.map(outside).unwrap_or_default();
    for (index, line) in known.iter().enumerate() {
        pen.line(3 + index, line, Style::new());
    }
    let warning = pen.warning();
    for (index, line) in wrapped(picture.refused.unwrap_or_default(), pen.width(), "", "").lines().enumerate()
    {
        pen.line(4 + known.len() + index, line, warning);
    }
}

/// What everybody may know of a process, in lines.
pub fn outside(row: &Row) -> Vec<String> {
    let columns = [Column::Virt, Column::Res, Column::Shr, Column::Data, Column::Code, Column::Swap];
    let line =
        |column: Column| format!("{:>5} {:>5}  {}", column.name(), known(column.bytes(row)), column.help().1);
    columns.map(line).to_vec()
}

/// A fact as it is in this frame, as far as that is known without reading mappings.
fn anew(fact: &Fact, row: &Row) -> Fact {
    let column = Column::of_bytes().find(|column| column.name() == fact.name);
    let bytes = column.and_then(|column| column.bytes(row)).or(fact.bytes);
    let of = |column: Column| column.bytes(row);
    let (anon, file, shm) = (of(Column::Anon), of(Column::File), of(Column::Shm));
    let what = match fact.name {
        "RES" => res_of(anon, file, shm),
        "SHR" => shr_of(file, shm),
        _ => fact.what.clone(),
    };
    Fact { name: fact.name, bytes, what }
}

/// A column of top, its value, and what that is made of.
pub fn fact_line(fact: &Fact) -> String {
    format!("{:>5} {:>5}  {}", fact.name, known(fact.bytes), fact.what)
}

/// What is shown of each part of a process, of what quarry map shows.
pub const COUNTERS: [Counter; 6] =
    [Counter::Size, Counter::Rss, Counter::Pss, Counter::Uss, Counter::Dirty, Counter::Swap];

/// The heads over the parts of a process.
pub fn part_heads() -> String {
    let heads = COUNTERS.map(|counter| format!("{:>5} ", counter.name().to_uppercase())).concat();
    format!("{heads}{:>6} Q {:<13} WHAT", Column::Growth.name(), "KIND")
}

/// A part of a process.
pub fn part_line(part: &Part, width: usize) -> String {
    let cells = COUNTERS.map(|counter| format!("{:>5} ", known(counter.of(&part.sum)))).concat();
    let growth = part.growth.map_or_else(|| String::from("-"), change);
    let line = format!("{cells}{growth:>6} {} {:<13} ", part.quadrant, part.kind.unwrap_or("all"));
    // Of a path, the end is what tells files apart; anything else is cut by the screen.
    let room = width.saturating_sub(line.len());
    line + &fitted(&part.what, (part.what.starts_with('/') && room >= 8).then_some(room))
}
