// SPDX-License-Identifier: MIT
//! A frame as text and as a line of JSON, for scripts and where there is no terminal.

use std::time::Duration;

use quarry_proc::sum::Sum;
use quarry_proc::{MemInfo, shown};
use serde_json::{Map, Value, json};

use super::column::Column;
use super::draw::machine;
use super::inside::{COUNTERS, fact_line, outside, part_heads, part_line};
use super::most;
use super::opened::{Opened, Part};
use super::row::Row;
use crate::map::Column as Counter;
use crate::style::Style;
use crate::units;
use crate::view::{Heading, Page};

/// All that is known at one moment, as far as it is written.
#[derive(Debug, Clone)]
pub struct Frame<'a> {
    /// The first is 1.
    pub number: u64,
    /// Since the first look.
    pub time: Duration,
    /// What looking took, ...
    pub cost: Duration,
    /// ... and how many files of the dear kind were read for it.
    pub asked: u64,
    /// The machine's memory.
    pub memory: MemInfo,
    /// Processes that there are, ...
    pub count: usize,
    /// ... and those that the filter lets through.
    pub matching: usize,
    /// What they are sorted by.
    pub sort: Column,
    /// The order is that of all processes.
    pub exact: bool,
    /// Those that are written, in order.
    pub rows: &'a [Row],
    /// At most so many rows, or parts of an open process.
    pub page: usize,
    /// One process is looked into, ...
    pub inside: bool,
    /// ... this is what was found, ...
    pub opened: Option<&'a Opened>,
    /// ... or why nothing was.
    pub refused: Option<&'a str>,
}

impl Frame<'_> {
    /// As text.
    pub fn text(&self, style: Style) -> String {
        let machine = machine(&self.memory);
        if self.inside {
            let mut page = Page::new(style, self.number, machine);
            self.opened(&mut page);
            return page.text();
        }
        let mut page =
            Page::new(style, self.number, format!("{}  {machine}", units::of(self.count as u64, "process")));
        let cell = |column: Column, row: &Row| column.cell(row, self.memory.total);
        page.table(self.sort, self.rows, cell, self.matching - self.rows.len());
        if !self.exact {
            let likeliest = most(self.page);
            page.line(format!("the order by {} is that of the likeliest {likeliest}", self.sort.name()));
        }
        page.text()
    }

    fn opened(&self, page: &mut Page) {
        let Some(opened) = self.opened else {
            for row in self.rows {
                page.head(&format!("{} {}", row.pid, row.label()));
                outside(row).into_iter().for_each(|line| page.line(line));
            }
            if let Some(refused) = self.refused {
                page.line(refused.to_owned());
            }
            return;
        };
        page.head(&format!("{} {}, threads {}", opened.pid, shown(&opened.name), opened.threads));
        opened.facts.iter().map(fact_line).for_each(|line| page.line(line));
        opened.remark.iter().for_each(|line| page.line(line.clone()));
        page.head(&part_heads());
        let width = page.width;
        let parts = opened.parts.iter().take(self.page).map(|part| part_line(part, width));
        page.rows(parts, opened.parts.len().saturating_sub(self.page));
    }

    /// As JSON. Bytes; what is not known is null.
    pub fn json(&self) -> Value {
        let memory = &self.memory;
        json!({
            "schema": "quarry-top/1",
            "frame": self.number,
            "seconds": self.time.as_secs_f64(),
            "cost_seconds": self.cost.as_secs_f64(),
            "files_of_visible_rows": self.asked,
            "machine": {
                "total": memory.total,
                "available": memory.available,
                "swap_total": memory.swap_total,
                "swap_free": memory.swap_free,
            },
            "count": self.count,
            "matching": self.matching,
            "sort": self.sort.key(),
            "exact": self.exact,
            "processes": self.rows.iter().map(|row| process(row, memory.total)).collect::<Vec<_>>(),
            "opened": self.opened.map(opened),
            "refused": self.refused,
        })
    }
}

fn process(row: &Row, total: Option<u64>) -> Value {
    let mut object = json!({
        "pid": row.pid,
        "name": row.name,
        "state": row.state.to_string(),
        "started": row.started,
        "mem_percent": row.percent(total),
        "faults_per_s": row.faults,
        "major_faults_per_s": row.major,
        "growth_per_s": row.growth,
        "grown": row.grown.map(|bytes| bytes as i64),
        "missing": row.missing,
    });
    for column in Column::of_bytes() {
        object[column.key()] = json!(column.bytes(row));
    }
    object
}

fn opened(opened: &Opened) -> Value {
    json!({
        "pid": opened.pid,
        "name": opened.name,
        "command": opened.command,
        "threads": opened.threads,
        "facts": opened.facts.iter().map(|fact| json!({
            "name": fact.name,
            "bytes": fact.bytes,
            "what": fact.what,
        })).collect::<Vec<_>>(),
        "total": sum(&opened.total),
        "parts": opened.parts.iter().map(part).collect::<Vec<_>>(),
        "remark": opened.remark,
    })
}

fn part(part: &Part) -> Value {
    let mut object = sum(&part.sum);
    object["quadrant"] = json!(part.quadrant);
    object["kind"] = json!(part.kind);
    object["what"] = json!(part.what);
    object["growth_per_s"] = json!(part.growth);
    object
}

fn sum(sum: &Sum) -> Value {
    let counter = |counter: Counter| (counter.key().to_owned(), json!(counter.of(sum)));
    let mut object: Map<String, Value> = COUNTERS.map(counter).into_iter().collect();
    object.insert("mappings".into(), json!(sum.count));
    object.insert("pages".into(), json!(sum.pages));
    Value::Object(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(rows: &[Row]) -> Frame<'_> {
        Frame {
            number: 1,
            time: Duration::from_secs(3),
            cost: Duration::from_millis(2),
            asked: 4,
            memory: MemInfo { total: Some(200 << 20), ..MemInfo::default() },
            count: 9,
            matching: rows.len() + 1,
            sort: Column::Pss,
            exact: false,
            rows,
            page: 2,
            inside: false,
            opened: None,
            refused: None,
        }
    }

    #[test]
    fn text_and_json_are_of_the_same_frame() {
        let rows = [7, 8].map(|pid| Row {
            pid,
            name: String::from("a\nname"),
            state: 'S',
            res: Some(20 << 20),
            grown: Some(4096.0),
            ..Row::default()
        });
        let first = frame(&rows);
        let text = first.text(Style::default());
        assert!(
            text.starts_with("9 processes  memory 200M available -") && text.contains("a\\nname"),
            "{text}"
        );
        assert!(text.contains("and 1 more\nthe order by PSS is that of the likeliest 512\n"), "{text}");
        assert_eq!(Frame { number: 2, ..first.clone() }.text(Style::default()), format!("\n{text}"));
        // More rows than that are all read.
        let many = Frame { page: 600, ..first.clone() }.text(Style::default());
        assert!(many.contains("the order by PSS is that of the likeliest 600\n"), "{many}");
        let narrow = first.text(Style { color: false, width: Some(30) });
        assert!(narrow.lines().nth(2).is_some_and(|line| line.chars().count() <= 30), "{narrow}");
        let json = first.json();
        assert_eq!(
            (&json["schema"], &json["count"], &json["matching"]),
            (&json!("quarry-top/1"), &json!(9), &json!(3))
        );
        let process = &json["processes"][1];
        assert_eq!(
            (&process["pid"], &process["res"], &process["pss"]),
            (&json!(8), &json!(20 << 20), &Value::Null)
        );
        assert_eq!((&process["mem_percent"], &process["grown"]), (&json!(10.0), &json!(4096)));
    }

    #[test]
    fn a_process_has_its_parts_or_why_there_are_none() {
        let rows = [Row { pid: 7, name: String::from("prog"), ..Row::default() }];
        let part = |what: &str| Part {
            quadrant: 1,
            kind: Some("heap"),
            what: what.to_owned(),
            sum: Sum::default(),
            growth: None,
        };
        let opened = Opened {
            pid: 7,
            name: String::from("prog"),
            command: String::from("prog -x"),
            threads: 3,
            facts: Vec::new(),
            parts: vec![part("one"), part("two"), part("three")],
            total: Sum::default(),
            remark: Some(String::from("it changed")),
        };
        let found = Frame { inside: true, opened: Some(&opened), ..frame(&rows) };
        let text = found.text(Style::default());
        assert!(
            text.contains("7 prog, threads 3\nit changed\n") && text.ends_with("two\nand 1 more\n"),
            "{text}"
        );
        assert_eq!(found.json()["opened"]["parts"][2]["what"], "three");
        let refused = Frame { inside: true, refused: Some("not yours"), ..frame(&rows) };
        let text = refused.text(Style::default());
        assert!(text.contains("7 prog\n") && text.ends_with("not yours\n"), "{text}");
        assert_eq!(refused.json()["refused"], "not yours");
    }
}
