// SPDX-License-Identifier: MIT
//! A chapter on a terminal.

use std::fmt::Write;

use crate::fit::wrapped;
use crate::style::Style;

use super::chapter::Chapter;
use super::figure::{self, Figure};
use super::run::{Claim, Event, Run};

/// Columns where nobody says how many there are, and the most that text is set in.
const USUAL: usize = 80;
const WIDEST: usize = 100;

/// The longest bar.
const LONGEST: usize = 40;

/// What there is.
pub fn list(chapters: &[&Chapter]) -> String {
    let width = chapters.iter().map(|chapter| chapter.name.len()).max().unwrap_or(0);
    chapters
        .iter()
        .map(|chapter| format!("{:2}  {:width$}  {}\n", chapter.number, chapter.name, chapter.title))
        .collect()
}

/// All of a chapter.
pub fn chapter(chapter: &Chapter, run: &Run, style: &Style) -> String {
    let width = style.width.map_or(USUAL, usize::from).clamp(24, WIDEST);
    let mut text = String::new();
    let title = format!("{}. {}: {}", chapter.number, chapter.name, chapter.title);
    let _ = writeln!(text, "{}\n", style.bold(&wrapped(&title, width, "", "")));
    let _ = writeln!(text, "{}\n", wrapped(&chapter.idea, width, "", ""));
    for line in chapter.code.lines() {
        // Code is not broken: the terminal does that better.
        text.push_str(format!("    {line}").trim_end());
        text.push('\n');
    }
    text.push('\n');
    if let Some(why) = &run.recorded {
        let about = format!("Not run here: {why}. What follows was recorded on Linux {}.", run.kernel);
        let _ = writeln!(text, "{}\n", style.warning(&wrapped(&about, width, "", "")));
    } else if let Some(why) = &run.skipped {
        let _ =
            writeln!(text, "{}\n", style.warning(&wrapped(&format!("Not run here: {why}."), width, "", "")));
    }
    if let Some(why) = &run.failed {
        let _ = writeln!(text, "{}\n", style.error(&wrapped(&format!("It failed: {why}."), width, "", "")));
    }
    let figures = figure::figures(run);
    let has_steps = run.steps().next().is_some();
    let columns = Columns::of(&figures, width);
    for figure in figures.iter().filter(|_| has_steps) {
        bars(&mut text, figure, &columns, width, style);
    }
    for event in &run.events {
        if let Event::Maps(lines) = event {
            lines.iter().for_each(|line| {
                let _ = writeln!(text, "    {}", squeezed(line));
            });
            text.push('\n');
        }
    }
    seen(&mut text, run, width, style);
    if !chapter.now.is_empty() {
        let _ = writeln!(text, "{}\n{}\n", style.bold("Then and now"), wrapped(&chapter.now, width, "", ""));
    }
    text
}

/// What is to be seen in the figures.
fn seen(text: &mut String, run: &Run, width: usize, style: &Style) {
    let mut lines = String::new();
    for event in &run.events {
        match event {
            Event::Claim(Claim { text, holds: true, .. }) => {
                let _ = writeln!(lines, "{}", wrapped(text, width, "  ✓ ", "    "));
            }
            Event::Claim(Claim { text, numbers, .. }) => {
                let numbers = numbers.map_or_else(String::new, |(measured, expected, slack)| {
                    format!(" (measured {measured}, expected {expected}, give or take {slack})")
                });
                let line = format!("NOT SO HERE: {text}{numbers}");
                let _ = writeln!(lines, "{}", style.error(&wrapped(&line, width, "  ✗ ", "    ")));
            }
            Event::Note(text) => {
                let _ = writeln!(lines, "{}", wrapped(text, width, "  · ", "    "));
            }
            _ => {}
        }
    }
    if !lines.is_empty() {
        let _ = writeln!(text, "{}\n{lines}", style.bold("What is to be seen"));
    }
}

/// The columns of all figures of a chapter: the same, so that their bars can be compared.
struct Columns {
    step: usize,
    bar: usize,
    value: usize,
    change: usize,
}

impl Columns {
    fn of(figures: &[Figure], width: usize) -> Self {
        let rows = || figures.iter().flat_map(|figure| &figure.rows);
        let longest = |pick: fn(&figure::Value) -> &str| {
            rows()
                .filter_map(|row| row.value.as_ref())
                .map(|value| pick(value).chars().count())
                .max()
                .unwrap_or(0)
        };
        let (value, change) = (longest(|value| &value.text), longest(|value| &value.change));
        let step = rows().map(|row| row.step.chars().count()).max().unwrap_or(0);
        // What comes first gives way last: the value, the step, the bar, the change.
        let room = |taken: usize| width.saturating_sub(taken);
        let step = step.min(room(2 + 2 + value + 2)).max(4);
        let fixed = 2 + step + 2 + 2 + value;
        let change = if room(fixed + 8) >= change + 2 { change } else { 0 };
        let bar = room(fixed + if change > 0 { change + 2 } else { 0 }).min(LONGEST);
        Self { step, bar: if bar < 4 { 0 } else { bar }, value, change }
    }
}

/// A figure: a line for each step, with a bar.
fn bars(text: &mut String, figure: &Figure, columns: &Columns, width: usize, style: &Style) {
    let head = wrapped(&format!("{}: {}", figure.name, figure.meaning), width, "  ", "  ");
    let _ = writeln!(text, "{}", style.bold(&head));
    let Columns { step: steps, bar, value: values, change: changes } = *columns;
    for row in &figure.rows {
        let step: String = row.step.chars().take(steps).collect();
        let (value, change, part) = row
            .value
            .as_ref()
            .map_or(("-", "", 0.0), |value| (value.text.as_str(), value.change.as_str(), value.part));
        let drawn = if bar > 0 { format!("{:bar$}  ", blocks(part, bar)) } else { String::new() };
        let change = if changes > 0 { change } else { "" };
        let line = format!("  {step:steps$}  {drawn}{value:>values$}  {change:>changes$}");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text.push('\n');
}

/// A bar of eighths of a column; what is not nothing is to be seen.
fn blocks(part: f64, width: usize) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let eighths = (part.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
    let eighths = if part > 0.0 { eighths.max(1) } else { 0 };
    let mut bar = "█".repeat(eighths / 8);
    if eighths % 8 > 0 {
        bar.push(EIGHTHS[eighths % 8]);
    }
    bar
}

/// A line of maps without the blanks that the kernel aligns names with.
fn squeezed(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::figure::tests::example;
    use super::*;

    fn sample() -> Chapter {
        Chapter {
            number: 3,
            name: String::from("x"),
            title: String::from("a title"),
            idea: String::from(
                "Words that are to be set in lines of a width that depends on the terminal and nothing else.",
            ),
            now: String::from("It was otherwise."),
            code: String::from("int x;\n\nint y;"),
            ..Chapter::default()
        }
    }

    #[test]
    fn a_chapter_has_all_its_parts() {
        let text = chapter(&sample(), &example(), &Style::default());
        for part in [
            "3. x: a title\n",
            "    int x;\n\n    int y;\n",
            "VmSize: all addresses that are taken\n",
            "2.00 MiB\n",
            "8.00 MiB  +6.00 MiB\n",
            "    7f00-7f01 rw-p <heap>\n",
            "  ✓ It grew.\n",
            "  ✗ NOT SO HERE: It fell. (measured 6144, expected -6144, give or take 4)\n",
            "  · By the way.\n",
            "Then and now\nIt was otherwise.\n",
        ] {
            assert!(text.contains(part), "{part:?} is not in:\n{text}");
        }
        assert!(!text.contains('\x1b'));
        let colour = chapter(&sample(), &example(), &Style { color: true, width: None });
        assert!(colour.contains("\x1b[1;31m  ✗"));
    }

    #[test]
    fn every_width_is_kept() {
        for columns in [24, 30, 40, 60, 80, 100] {
            let text = chapter(&sample(), &example(), &Style { color: false, width: Some(columns) });
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
            // A line of maps or code is as long as it is.
            assert!(widest <= usize::from(columns).max(27), "{widest} in {columns}:\n{text}");
            assert!(text.contains("8.00 MiB"), "{text}");
            assert_eq!(text.contains('█'), columns >= 30, "{text}");
        }
    }

    #[test]
    fn bars_are_as_long_as_their_part() {
        assert_eq!(blocks(0.0, 10), "");
        assert_eq!(blocks(1.0, 3), "███");
        assert_eq!(blocks(0.5, 3), "█▌");
        assert_eq!(blocks(1e-9, 10), "▏", "what is not nothing is to be seen");
    }

    #[test]
    fn a_run_that_is_none_says_so() {
        let run = Run { skipped: Some(String::from("there is no swap space")), ..Run::default() };
        assert!(
            chapter(&sample(), &run, &Style::default()).contains("Not run here: there is no swap space.")
        );
        let run = Run { recorded: Some(String::from("no swap")), ..example() };
        let text = chapter(&sample(), &run, &Style::default());
        assert!(text.contains("Not run here: no swap. What follows was recorded on Linux 6.1.0."), "{text}");
        let run = Run { failed: Some(String::from("it crashed")), ..Run::default() };
        assert!(chapter(&sample(), &run, &Style::default()).contains("It failed: it crashed."));
    }
}
