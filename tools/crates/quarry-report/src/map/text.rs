// SPDX-License-Identifier: MIT
//! The report as text.

use crate::style::Style;
use crate::units;
use quarry_proc::check::Line;
use quarry_proc::classify::{Kind, Quadrant};
use quarry_proc::shown;
use quarry_proc::sum::Sum;

use super::remarks;
use super::table::Table;
use super::view::{Column, View};
use crate::fit::fitted;

/// How numbers are written.
#[derive(Clone, Copy)]
pub struct Numbers {
    /// All digits.
    pub bytes: bool,
}

impl Numbers {
    /// A size; "-" where it is not known.
    pub fn size(self, value: Option<u64>) -> String {
        match value {
            None => String::from("-"),
            Some(0) => String::from("0"),
            Some(bytes) if self.bytes => bytes.to_string(),
            Some(bytes) => units::bytes(bytes as f64),
        }
    }
}

/// The columns that are not 0 everywhere, and the names of those that are.
pub fn columns(sum: &Sum) -> (Vec<Column>, Vec<&'static str>) {
    let known = Column::ALL.into_iter().filter(|column| column.of(sum).is_some());
    let (shown, zero): (Vec<Column>, Vec<Column>) =
        known.partition(|column| matches!(column, Column::Size | Column::Rss) || column.of(sum) != Some(0));
    (shown, zero.into_iter().map(Column::name).collect())
}

/// The whole report.
pub fn report(view: &View, top: usize, check: bool, numbers: Numbers, style: Style) -> String {
    let mut text = format!(
        "{}, {}, {}\n",
        style.bold(&view.title()),
        units::of(view.total.count, "mapping"),
        view.origin()
    );
    if !view.space.command.is_empty() {
        text += &format!("{}\n", fitted(&shown(&view.space.command.join(" ")), style.width.map(usize::from)));
    }
    text += &head(view, numbers);
    text += "\n";
    text += &quadrants(view, numbers, style);
    text += "\n";
    text += &rows(view, top, numbers, style);
    text += &threads(view, top, numbers, style);
    text += "\n";
    text += &checks(view, check, numbers);
    for remark in remarks::remarks(view) {
        text += &format!("{remark}\n");
    }
    text
}

/// The figures that top has.
fn head(view: &View, numbers: Numbers) -> String {
    let total = &view.total;
    let mut parts = vec![format!("VIRT {}", numbers.size(Some(total.size)))];
    if let Some(resident) = total.resident() {
        let shared = total.file().saturating_add(total.shmem);
        parts.push(format!("RES {}", numbers.size(Some(resident))));
        parts.push(format!("SHR {}", numbers.size(Some(shared))));
        let pss = view.space.rollup.as_ref().and_then(|all| all.get(quarry_proc::counters::Field::Pss));
        parts.push(format!("PSS {}", numbers.size(pss.or(Column::Pss.of(total)))));
        parts.push(format!("USS {}", numbers.size(Column::Uss.of(total))));
        let swap = remarks::swap(view.space, Column::Swap.of(total)).map(|(bytes, _)| bytes);
        parts.push(format!("SWAP {}", numbers.size(swap)));
    }
    if let Some(dumped) = total.dumped {
        parts.push(format!("saved {}", numbers.size(Some(dumped))));
    }
    parts.join("  ") + "\n"
}

/// The four kinds of memory.
fn quadrants(view: &View, numbers: Numbers, style: Style) -> String {
    let resident = view.total.resident().is_some();
    let columns: Vec<Column> =
        [Column::Size, Column::Rss, Column::Pss, Column::Uss, Column::Dirty, Column::Swap]
            .into_iter()
            .chain(view.total.dumped.map(|_| Column::Dumped))
            .filter(|column| column.of(&view.total).is_some())
            .collect();
    let mut header: Vec<String> = columns.iter().map(|column| column.name().to_owned()).collect();
    if resident {
        header.push("pages".into());
    }
    header.push("mappings".into());
    header.push(String::new());
    let mut table = Table::new(header);
    table.may_leave_out(&["mappings", "dirty", "PSS", "swap"]);
    let row = |name: &str, sum: &Sum, pages: u64| {
        // Of no mapping at all, all is known.
        let value = |column: &Column| if sum.count == 0 { Some(0) } else { column.of(sum) };
        let mut cells: Vec<String> = columns.iter().map(|column| numbers.size(value(column))).collect();
        if resident {
            cells.push(numbers.size(Some(pages)));
        }
        cells.push(units::count(sum.count as f64));
        cells.push(name.to_owned());
        cells
    };
    for quadrant in Quadrant::ALL {
        let sum = &view.quadrants[quadrant as usize];
        let name = format!("{} {}", quadrant.number(), quadrant.name());
        table.row(row(&name, sum, view.chosen.pages[quadrant as usize]));
    }
    let name = if view.is_filtered() { "of those asked for" } else { "all" };
    let pages = view.chosen.pages.iter().fold(0u64, |sum, pages| sum.saturating_add(*pages));
    table.row(row(name, &view.chosen, pages));
    let mut text = table.render(style);
    if resident {
        text +=
            "pages: resident pages by what they are; a written page of a private file is an anonymous one\n";
    }
    text
}

/// The main table.
fn rows(view: &View, top: usize, numbers: Numbers, style: Style) -> String {
    let (columns, zero) = columns(&view.chosen);
    let addresses = view.rows.iter().any(|row| row.address.is_some());
    let mut header = Vec::new();
    if addresses {
        header.push("address".to_owned());
    }
    header.extend(columns.iter().map(|column| column.name().to_owned()));
    let numbers_end = header.len();
    header.extend(["maps", "mode", "", "kind", "what"].map(String::from));
    let mut table = Table::new(header);
    table.left_from(numbers_end + 1);
    // The rarest interest first.
    let rare =
        columns.iter().rev().map(|column| column.name()).filter(|name| !matches!(*name, "size" | "RSS"));
    let (details, usual): (Vec<&str>, Vec<&str>) =
        rare.partition(|name| !matches!(*name, "PSS" | "USS" | "dirty"));
    table.may_leave_out(&[&details[..], &["maps", "mode"], &usual].concat());
    let shown = if top == 0 { view.rows.len() } else { top.min(view.rows.len()) };
    for row in &view.rows[..shown] {
        let mut cells = Vec::new();
        if addresses {
            cells.push(row.address.map_or_else(String::new, |address| format!("{address:012x}")));
        }
        cells.extend(columns.iter().map(|column| numbers.size(column.of(&row.sum))));
        cells.push(row.sum.count.to_string());
        cells.push(row.modes.clone());
        cells.push(row.quadrant.map_or_else(String::new, |quadrant| quadrant.number().to_string()));
        cells.push(row.kind.map_or("", Kind::name).to_owned());
        cells.push(row.what.clone());
        table.row(cells);
    }
    let mut text = table.render(style);
    if shown < view.rows.len() {
        let mut rest = Sum::default();
        for row in &view.rows[shown..] {
            rest.size = rest.size.saturating_add(row.sum.size);
            rest.counters.add(&row.sum.counters);
        }
        let resident = rest
            .resident()
            .map_or_else(String::new, |bytes| format!(" with {} of RSS", numbers.size(Some(bytes))));
        text += &format!("and {} more{resident} (-n 0 shows all)\n", view.rows.len() - shown);
    }
    let narrow = table.left_out(style);
    if !narrow.is_empty() {
        text += &format!("too narrow for: {} (they are in --json, or with -o FILE)\n", narrow.join(", "));
    }
    if !zero.is_empty() {
        text += &format!("0 everywhere: {}\n", zero.join(", "));
    }
    text
}

/// The stacks of threads.
fn threads(view: &View, top: usize, numbers: Numbers, style: Style) -> String {
    let stack = |index: &usize| matches!(view.classes[*index].kind, Kind::ThreadStack | Kind::MainStack);
    let mut found: Vec<usize> =
        (0..view.classes.len()).filter(stack).filter(|&index| view.wanted[index]).collect();
    if found.len() < 2 {
        return String::new();
    }
    let value = |index: usize, column: Column| {
        let mut sum = Sum::default();
        sum.add(&view.space.mappings[index], &view.classes[index]);
        column.of(&sum)
    };
    found.sort_by_key(|&index| std::cmp::Reverse(value(index, Column::Rss)));
    let mut table = Table::new(["stack", "RSS", "swap", "thread"].map(String::from).to_vec());
    let limit = if top == 0 { found.len() } else { top.min(found.len()) };
    for &index in &found[..limit] {
        let class = &view.classes[index];
        let names: Vec<String> = class.threads.iter().map(|&number| view.thread(number)).collect();
        let name = match (names.is_empty(), class.kind) {
            (false, _) => names.join(", "),
            (true, Kind::MainStack) => String::from("the first"),
            (true, _) => String::from("none now, by its looks"),
        };
        let cells =
            [Column::Size, Column::Rss, Column::Swap].map(|column| numbers.size(value(index, column)));
        table.row(cells.into_iter().chain([name]).collect());
    }
    let more = match found.len() - limit {
        0 => String::new(),
        more => format!("and {more} more {}\n", units::noun(more as u64, "stack")),
    };
    format!("\n{}{more}", table.render(style))
}

/// Our sums and the kernel's.
fn checks(view: &View, all: bool, numbers: Numbers) -> String {
    if view.checks.is_empty() {
        return String::new();
    }
    let differing = view.differences().count();
    let mut text = if differing == 0 {
        format!("all {} sums equal the kernel's own (statm, status, smaps_rollup)\n", view.checks.len())
    } else {
        format!("{differing} of {} sums differ from the kernel's own:\n", view.checks.len())
    };
    for line in view.checks.iter().filter(|line| all || !line.agrees()) {
        text += &format!("  {}\n", check_line(line, numbers));
    }
    text
}

fn check_line(line: &Line, numbers: Numbers) -> String {
    let (ours, kernel) = (numbers.size(Some(line.ours)), numbers.size(Some(line.kernel)));
    let verdict = match (line.agrees(), line.ours == line.kernel) {
        (true, true) => "equal".to_owned(),
        (true, false) => format!("equal but for rounding ({})", units::of(line.kernel - line.ours, "byte")),
        (false, _) => format!("differ by {}", units::of(line.ours.abs_diff(line.kernel), "byte")),
    };
    format!("{}: {ours}, {} {kernel}: {verdict}", line.what, line.source)
}
