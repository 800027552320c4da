// SPDX-License-Identifier: MIT
//! The figures of a chapter as rows of bars: what they mean, their lengths, and how they are written.

use crate::units;

use super::run::Run;

/// One figure over all steps.
pub struct Figure<'a> {
    /// As the kernel calls it.
    pub name: &'a str,
    pub meaning: &'static str,
    pub rows: Vec<Row<'a>>,
}

/// One figure at one step.
pub struct Row<'a> {
    pub step: &'a str,
    /// `None`: it was not there yet, or this kernel does not tell it.
    pub value: Option<Value>,
}

/// A value, ready to be shown.
pub struct Value {
    pub text: String,
    /// Since the step of the same process before; empty if nothing changed.
    pub change: String,
    /// Its part of the longest bar of the chapter: of all sizes, or of all counts.
    pub part: f64,
}

/// What the figures mean that chapters show.
const MEANINGS: [(&str, &str); 29] = [
    ("VmSize", "all addresses that are taken"),
    ("VmRSS", "all that is resident"),
    ("RssAnon", "resident, of no file"),
    ("RssFile", "resident, of files"),
    ("RssShmem", "resident, shared memory"),
    ("VmData", "private memory that may be written to, resident or not"),
    ("VmStk", "the stack of the first thread, resident or not"),
    ("VmExe", "the program's own instructions"),
    ("VmPTE", "the kernel's tables for the pages"),
    ("VmSwap", "swapped out"),
    ("top.VIRT", "column VIRT of top: all addresses that are taken"),
    ("top.RES", "column RES of top: all that is resident"),
    ("top.SHR", "column SHR of top: resident, of files and shared memory"),
    ("top.CODE", "column CODE of top: the program's own instructions"),
    ("top.DATA", "column DATA of top: private memory that may be written to, resident or not"),
    ("map.Size", "this mapping: its addresses"),
    ("map.Rss", "this mapping: resident"),
    ("map.Pss", "this mapping: resident, each page divided by those who have it"),
    ("map.Shared_Clean", "this mapping: others have it too, as it is in its file"),
    ("map.Shared_Dirty", "this mapping: others have it too, written to"),
    ("map.Private_Clean", "this mapping: nobody else has it, as it is in its file"),
    ("map.Private_Dirty", "this mapping: nobody else has it, written to"),
    ("map.Anonymous", "this mapping: resident, of no file"),
    ("map.LazyFree", "this mapping: resident, to be taken away when memory is short"),
    ("map.AnonHugePages", "this mapping: in huge pages"),
    ("map.Swap", "this mapping: swapped out"),
    ("all.Pss", "all that is resident, each page divided by those who have it"),
    ("minor", "page faults so far that needed no disk"),
    ("major", "page faults so far that waited for a disk"),
];

/// What this figure means; `None` if it is not one.
pub fn meaning(name: &str) -> Option<&'static str> {
    MEANINGS.iter().find(|(known, _)| *known == name).map(|(_, meaning)| *meaning)
}

/// Is it a count and not a size?
fn is_count(name: &str) -> bool {
    matches!(name, "minor" | "major")
}

/// A figure as text: "1.50 MiB", "8 192".
pub fn written(name: &str, value: i64) -> String {
    let magnitude = value.unsigned_abs() as f64;
    let text = if is_count(name) { units::count(magnitude) } else { units::bytes(magnitude * 1024.0) };
    if value < 0 { format!("-{text}") } else { text }
}

/// The figures that the run wants to be shown.
pub fn figures(run: &Run) -> Vec<Figure<'_>> {
    let largest = |counts: bool| {
        let names = || run.show.iter().filter(|name| is_count(name) == counts);
        let values = run.steps().flat_map(|step| names().filter_map(|name| step.figures.get(name)));
        values.copied().max().unwrap_or(0).max(1) as f64
    };
    let scales = [largest(false), largest(true)];
    run.show.iter().map(|name| figure(run, name, scales[usize::from(is_count(name))])).collect()
}

/// One of them over all steps; the longest bar is `scale`.
fn figure<'a>(run: &'a Run, name: &'a str, scale: f64) -> Figure<'a> {
    let mut rows = Vec::new();
    for (index, step) in run.steps().enumerate() {
        let value = step.figures.get(name).map(|&value| {
            let before = run.steps().take(index).filter(|other| other.process == step.process).last();
            let change = before.and_then(|other| other.figures.get(name)).map_or(0, |other| value - other);
            let sign = if change > 0 { "+" } else { "" };
            Value {
                text: written(name, value),
                change: if change == 0 { String::new() } else { format!("{sign}{}", written(name, change)) },
                part: value.max(0) as f64 / scale,
            }
        });
        rows.push(Row { step: &step.name, value });
    }
    Figure { name, meaning: meaning(name).unwrap_or("as the kernel calls it"), rows }
}

#[cfg(test)]
pub mod tests {
    use super::super::run::{Claim, Event, Step};
    use super::*;

    pub fn step(name: &str, process: &str, figures: &[(&str, i64)]) -> Event {
        let figures = figures.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        Event::Step(Step { name: name.to_owned(), process: process.to_owned(), figures })
    }

    /// A run with steps of two processes, and of every other event one.
    pub fn example() -> Run {
        Run {
            show: vec![String::from("VmSize"), String::from("map.Rss"), String::from("minor")],
            kernel: String::from("6.1.0"),
            page_kib: 4,
            memory_kib: 1 << 20,
            events: vec![
                step("begun", "", &[("VmSize", 2048), ("minor", 100)]),
                step("of a child", "child", &[("VmSize", 1024), ("map.Rss", 512), ("minor", 2)]),
                step("grown", "", &[("VmSize", 8192), ("map.Rss", 1024), ("minor", 1100)]),
                Event::Maps(vec![String::from("7f00-7f01 rw-p <heap>")]),
                Event::Claim(Claim { text: String::from("It grew."), holds: true, numbers: None }),
                Event::Claim(Claim {
                    text: String::from("It fell."),
                    holds: false,
                    numbers: Some((6144, -6144, 4)),
                }),
                Event::Note(String::from("By the way.")),
            ],
            ..Run::default()
        }
    }

    #[test]
    fn bars_share_a_scale_and_changes_are_of_one_process() {
        let run = example();
        let figures = figures(&run);
        let names: Vec<&str> = figures.iter().map(|figure| figure.name).collect();
        assert_eq!(names, ["VmSize", "map.Rss", "minor"]);
        let parts = |figure: &Figure| -> Vec<Option<f64>> {
            figure.rows.iter().map(|row| row.value.as_ref().map(|value| value.part)).collect()
        };
        assert_eq!(parts(&figures[0]), [Some(0.25), Some(0.125), Some(1.0)]);
        assert_eq!(parts(&figures[1]), [None, Some(0.0625), Some(0.125)]);
        assert_eq!(parts(&figures[2])[2], Some(1.0));
        let last = figures[0].rows[2].value.as_ref().unwrap();
        assert_eq!((last.text.as_str(), last.change.as_str()), ("8.00 MiB", "+6.00 MiB"));
        let child = figures[0].rows[1].value.as_ref().unwrap();
        assert_eq!(child.change, "", "a child has nothing before its first step");
        assert_eq!(figures[2].rows[2].value.as_ref().unwrap().change, "+1 000");
        assert_eq!(written("VmRSS", -1536), "-1.50 MiB");
    }

    #[test]
    fn what_chapters_show_has_a_meaning() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/tour");
        let mut seen = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let source = std::fs::read_to_string(entry.unwrap().path()).unwrap_or_default();
            let shown = source.split_once("tour_begin(\"").and_then(|(_, rest)| rest.split_once('"'));
            for name in shown.iter().flat_map(|(names, _)| names.split_whitespace()) {
                assert!(meaning(name).is_some(), "{name}");
                seen += 1;
            }
        }
        assert!(seen > 50, "{seen}");
    }
}
