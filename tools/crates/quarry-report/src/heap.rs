// SPDX-License-Identifier: MIT
//! The statistics a heap leaves at the end of a process: one line of JSON with the members of
//! struct quarry_stats, and `pid` and `program`.

use serde_json::{Map, Value};

use crate::style::Style;
use crate::table::{self, Align};
use crate::units;

/// One member of struct quarry_stats.
struct Field {
    key: &'static str,
    label: &'static str,
    kind: Kind,
    meaning: &'static str,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Bytes,
    Count,
}

const fn bytes(key: &'static str, label: &'static str, meaning: &'static str) -> Field {
    Field { key, label, kind: Kind::Bytes, meaning }
}

const fn count(key: &'static str, label: &'static str, meaning: &'static str) -> Field {
    Field { key, label, kind: Kind::Count, meaning }
}

/// In the order they are shown. A test holds this against the header.
const FIELDS: [Field; 24] = [
    bytes("mapped_bytes", "mapped", "address space open for blocks; the sum of the next seven rows"),
    bytes("live_bytes", "  live", "given to the program and not freed"),
    bytes("cached_bytes", "  cached", "freed, kept at hand by the last thread"),
    bytes("slab_free_bytes", "  free in slabs", "freed, among blocks of the same size"),
    bytes("slab_fresh_bytes", "  fresh in slabs", "never given out yet"),
    bytes("run_slack_bytes", "  slack", "behind large blocks, up to the next unit"),
    bytes("pages_dirty_bytes", "  dirty pages", "free, perhaps still in memory"),
    bytes("pages_clean_bytes", "  clean pages", "free and not in memory"),
    bytes("slab_purged_bytes", "purged in slabs", "free blocks that touch a page given back, whole"),
    bytes("metadata_bytes", "metadata", "the heap's own bookkeeping, beside what is mapped"),
    bytes("purged_bytes", "purged in all", "given back to the kernel over the whole run"),
    bytes("regret_bytes", "  regretted", "of which was needed again within a second"),
    count("purges", "purges", "in so many steps"),
    count("live_blocks", "live blocks", "given to the program and not freed"),
    count("runs", "large blocks", "those that have pages of their own"),
    count("slabs", "slabs", "runs of equal small blocks"),
    count("heaps", "heaps", "one for each thread, and those the program made"),
    count("heaps_idle", "  idle", "their threads ended"),
    count("heap_adoptions", "  adopted", "idle heaps taken over by new threads"),
    count("slab_steals", "slabs adopted", "taken from idle heaps"),
    count("refills", "refills", "allocations that found their thread cache empty"),
    count("flushes", "flushes", "times a full thread cache sent blocks home"),
    count("remote_publishes", "sent remote", "groups of blocks freed by another thread than their heap's"),
    count("remote_adoptions", "got remote", "such groups taken in"),
];

/// The statistics of one process, or the sum over several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heap {
    /// The process.
    pub pid: i32,
    /// Its name.
    pub program: String,
    values: [u64; FIELDS.len()],
}

impl Heap {
    /// Read one line; `None` when it is not such a line, for example cut short by a full disk.
    pub fn parse(line: &str) -> Option<Self> {
        let object: Map<String, Value> = serde_json::from_str(line).ok()?;
        let mut values = [0; FIELDS.len()];
        for (value, field) in values.iter_mut().zip(&FIELDS) {
            *value = object.get(field.key)?.as_u64()?;
        }
        let pid = i32::try_from(object.get("pid")?.as_i64()?).ok()?;
        Some(Self { pid, program: object.get("program")?.as_str()?.to_owned(), values })
    }

    fn json(&self) -> Value {
        FIELDS
            .iter()
            .zip(self.values)
            .map(|(field, value)| (field.key.to_owned(), Value::from(value)))
            .collect()
    }
}

/// What the processes of one run left.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Heaps {
    /// The process that was started, if it left something.
    pub top: Option<Heap>,
    /// How many others did.
    pub others: usize,
    /// Lines that could not be read.
    pub unreadable: usize,
    sum: [u64; FIELDS.len()],
}

impl Heaps {
    /// Read a statistics file; `top` is the process that was started.
    pub fn parse(text: &str, top: i32) -> Self {
        let mut heaps = Self::default();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            match Heap::parse(line) {
                None => heaps.unreadable += 1,
                Some(heap) if heap.pid == top && heaps.top.is_none() => heaps.top = Some(heap),
                Some(heap) => {
                    heaps.others += 1;
                    heaps.sum.iter_mut().zip(heap.values).for_each(|(sum, value)| *sum += value);
                }
            }
        }
        heaps
    }

    /// Was nothing left?
    pub fn is_empty(&self) -> bool {
        self.top.is_none() && self.others == 0
    }

    /// As JSON: `program` and `others`, null where there is nothing.
    pub fn json(&self) -> Value {
        let top = self.top.as_ref().map(|heap| {
            let mut json = heap.json();
            json["pid"] = heap.pid.into();
            json["program"] = heap.program.clone().into();
            json
        });
        let sum = Heap { pid: 0, program: String::new(), values: self.sum }.json();
        let others = (self.others > 0).then(|| serde_json::json!({ "processes": self.others, "sum": sum }));
        serde_json::json!({ "program": top, "others": others })
    }

    /// As a table; empty when there is nothing.
    pub fn text(&self, style: Style) -> String {
        let mut header = vec![String::from("heap at exit")];
        let mut columns = Vec::new();
        if let Some(heap) = &self.top {
            header.push(format!("{} ({})", heap.program, heap.pid));
            columns.push(heap.values);
        }
        if self.others > 0 {
            let which = if self.top.is_some() { "other processes" } else { "processes" };
            header.push(format!("{} {which}", self.others));
            columns.push(self.sum);
        }
        if columns.is_empty() {
            return String::new();
        }
        header.push(String::new());
        let rows = FIELDS.iter().enumerate().map(|(index, field)| {
            let value = |values: &[u64; FIELDS.len()]| match field.kind {
                Kind::Bytes => units::bytes(values[index] as f64),
                Kind::Count => units::count(values[index] as f64),
            };
            let cells = columns.iter().map(|values| value(values).into());
            std::iter::once(field.label.to_owned().into())
                .chain(cells)
                .chain([field.meaning.to_owned().into()])
                .collect()
        });
        let mut align = vec![Align::Right; header.len()];
        align[0] = Align::Left;
        align[header.len() - 1] = Align::Left;
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        table::render(style, &align, &header, rows.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(pid: i32, value: u64) -> String {
        let mut map: Map<String, Value> = FIELDS.iter().map(|f| (f.key.to_owned(), value.into())).collect();
        map.insert("pid".into(), pid.into());
        map.insert("program".into(), "prog".into());
        serde_json::to_string(&map).unwrap()
    }

    #[test]
    fn the_fields_are_those_of_the_header() {
        let header = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../include/quarry/stats.h");
        let header = std::fs::read_to_string(header).unwrap();
        let mut theirs: Vec<&str> = header
            .lines()
            .filter_map(|line| line.trim().strip_prefix("size_t "))
            .filter_map(|rest| rest.split_once(';').map(|(name, _)| name))
            .collect();
        let mut ours: Vec<&str> = FIELDS.iter().map(|field| field.key).collect();
        theirs.sort_unstable();
        ours.sort_unstable();
        assert_eq!(ours, theirs);
        for field in &FIELDS {
            assert_eq!(field.kind == Kind::Bytes, field.key.ends_with("_bytes"), "{}", field.key);
        }
    }

    #[test]
    fn the_started_process_stands_apart() {
        let text =
            [line(5, 1), line(7, 100), line(6, 2), String::new(), line(7, 4)[..40].to_owned()].join("\n");
        let heaps = Heaps::parse(&text, 7);
        assert_eq!(heaps.top.as_ref().map(|heap| heap.values[0]), Some(100));
        assert_eq!((heaps.others, heaps.sum[3], heaps.unreadable), (2, 3, 1));
        let json = heaps.json();
        assert_eq!(json["program"]["mapped_bytes"], 100);
        assert_eq!(json["program"]["pid"], 7);
        assert_eq!(json["others"]["processes"], 2);
        assert_eq!(json["others"]["sum"]["purges"], 3);
        let shown = heaps.text(Style::default());
        assert!(shown.contains("prog (7)") && shown.contains("2 other processes"), "{shown}");
        assert_eq!(shown.lines().count(), 1 + FIELDS.len());
    }

    #[test]
    fn nothing_left_is_nothing_shown() {
        let heaps = Heaps::parse("", 1);
        assert!(heaps.is_empty());
        assert_eq!(heaps.text(Style::default()), "");
        assert_eq!(heaps.json()["program"], Value::Null);
        assert_eq!(heaps.json()["others"], Value::Null);
    }

    #[test]
    fn lines_that_lack_a_field_are_not_trusted() {
        assert!(Heap::parse(&line(1, 2)).is_some());
        assert!(Heap::parse(&line(1, 2).replace("\"purges\"", "\"burges\"")).is_none());
        assert!(Heap::parse("{}").is_none());
    }
}
