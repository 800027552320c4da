// SPDX-License-Identifier: MIT
//! Pages as text for a scraper: OpenMetrics 1.0, and the older text format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::find::Found;
use crate::page::{Page, Pool, Sums};

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The text format 0.0.4, for those that don't know the other.
    Prometheus,
}

impl Format {
    /// What a server calls it.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Gauge,
    Counter,
}

/// All samples of a name; they must stand together.
struct Family {
    kind: Kind,
    unit: &'static str,
    help: &'static str,
    /// By their labels. What a page says twice is added up: no two samples may have the same labels, and one process shall not
    /// make those of all others unreadable.
    samples: BTreeMap<String, f64>,
}

/// Families in the order they were begun.
#[derive(Default)]
struct Families {
    names: Vec<&'static str>,
    by_name: BTreeMap<&'static str, Family>,
}

impl Families {
    /// A sample; names of counters come without their ending, and with their unit.
    fn add(&mut self, (name, kind, unit, help): Describe, labels: String, value: f64) {
        let family = self.by_name.entry(name).or_insert_with(|| {
            self.names.push(name);
            Family { kind, unit, help, samples: BTreeMap::new() }
        });
        *family.samples.entry(labels).or_default() += value;
    }

    fn text(&self, format: Format) -> String {
        let mut text = String::new();
        for name in &self.names {
            let family = &self.by_name[name];
            let total = if family.kind == Kind::Counter { "_total" } else { "" };
            // The older format knows a counter by its whole name.
            let declared = if format == Format::Prometheus { total } else { "" };
            let kind = if family.kind == Kind::Counter { "counter" } else { "gauge" };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "# HELP {name}{declared} {}", family.help);
            let _ = writeln!(text, "# TYPE {name}{declared} {kind}");
            if format == Format::OpenMetrics && !family.unit.is_empty() {
                let _ = writeln!(text, "# UNIT {name} {}", family.unit);
            }
            for (labels, value) in &family.samples {
                let _ = writeln!(text, "{name}{total}{{{labels}}} {value}");
            }
        }
        if format == Format::OpenMetrics {
            text.push_str("# EOF\n");
        }
        text
    }
}

type Describe = (&'static str, Kind, &'static str, &'static str);

const HEAP: Describe = (
    "quarry_heap_bytes",
    Kind::Gauge,
    "bytes",
    "Bytes of the heap's mappings by what they are for; their sum is what is mapped",
);
const METADATA: Describe =
    ("quarry_heap_metadata_bytes", Kind::Gauge, "bytes", "The heap's own records, beside its mappings");
const PURGED: Describe = (
    "quarry_heap_slab_purged_bytes",
    Kind::Gauge,
    "bytes",
    "Of the free bytes in slabs, those of blocks that touch a page given back, whole",
);
const AGE: Describe = ("quarry_heap_age_seconds", Kind::Gauge, "seconds", "How old the heap's numbers are");
const THINGS: Describe = ("quarry_heap_things", Kind::Gauge, "", "Heaps, slabs and large objects that exist");
const EVENTS: Describe = ("quarry_heap_events", Kind::Counter, "", "Slow events of the heap since its start");
const RETURNED: Describe =
    ("quarry_heap_purged_bytes", Kind::Counter, "bytes", "Memory given back to the kernel since the start");
const REGRET: Describe = (
    "quarry_heap_regret_bytes",
    Kind::Counter,
    "bytes",
    "Memory given back to the kernel and needed again within a second",
);
const CLASS_OUT: Describe = (
    "quarry_heap_class_out_blocks",
    Kind::Gauge,
    "blocks",
    "Blocks of a size that are live or in a thread's cache",
);
const CLASS_FREE: Describe =
    ("quarry_heap_class_free_blocks", Kind::Gauge, "blocks", "Free blocks of a size in slabs");
const CLASS_BYTES: Describe =
    ("quarry_heap_class_slab_bytes", Kind::Gauge, "bytes", "Slabs of a size of block");
const POOL_COUNT: Describe = ("quarry_pools", Kind::Gauge, "", "Pools of a kind and name");
const POOL_HELD: Describe = ("quarry_pool_held_bytes", Kind::Gauge, "bytes", "Memory that pools have");
const POOL_USED: Describe = (
    "quarry_pool_used_bytes",
    Kind::Gauge,
    "bytes",
    "Of it in use, when they last got memory or gave some back",
);
const POOL_PEAK: Describe =
    ("quarry_pool_peak_held_bytes", Kind::Gauge, "bytes", "The most that pools had, each at its time");
const POOL_GETS: Describe = ("quarry_pool_chunk_gets", Kind::Counter, "", "Times pools got memory");
const POOL_PUTS: Describe = ("quarry_pool_chunk_puts", Kind::Counter, "", "Times pools gave memory back");

/// A label's value: what would end it or its line is escaped.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The pages of all these processes.
pub fn render(found: &[Found], format: Format) -> String {
    let mut families = Families::default();
    for process in found {
        let mut copies: BTreeMap<&str, usize> = BTreeMap::new();
        for page in &process.pages {
            let copy = copies.entry(page.library()).or_default();
            *copy += 1;
            // Two of one kind in a process are told apart, since no two samples may have the same labels.
            let library =
                if *copy == 1 { page.library().to_owned() } else { format!("{}#{copy}", page.library()) };
            let base = format!(
                "pid=\"{}\",program=\"{}\",library=\"{library}\"",
                process.pid,
                escaped(&process.program)
            );
            add_page(&mut families, page, &base, process.read_ns);
        }
    }
    families.text(format)
}

fn add_page(families: &mut Families, page: &Page, base: &str, now: u64) {
    if let Some(heap) = &page.heap {
        if let Some(sums) = &heap.sums {
            add_sums(families, sums, base, now);
        }
        for class in &heap.classes {
            let labels = || format!("{base},block_bytes=\"{}\"", class.block_bytes);
            families.add(CLASS_OUT, labels(), class.out_blocks as f64);
            families.add(CLASS_FREE, labels(), class.free_blocks as f64);
            families.add(CLASS_BYTES, labels(), class.slabs_bytes as f64);
        }
    }
    if let Some(pools) = &page.pools {
        // Pools may share a name; samples may not.
        let mut named: BTreeMap<(&str, &str), Vec<&Pool>> = BTreeMap::new();
        for pool in &pools.pools {
            named.entry((&pool.kind, &pool.name)).or_default().push(pool);
        }
        for ((kind, name), pools) in named {
            let labels = || format!("{base},kind=\"{}\",pool=\"{}\"", escaped(kind), escaped(name));
            let sum = |value: fn(&Pool) -> u64| pools.iter().map(|pool| value(pool) as f64).sum::<f64>();
            families.add(POOL_COUNT, labels(), pools.len() as f64);
            families.add(POOL_HELD, labels(), sum(|pool| pool.held_bytes));
            if pools.iter().all(|pool| pool.used_bytes.is_some()) {
                families.add(POOL_USED, labels(), sum(|pool| pool.used_bytes.unwrap_or(0)));
            }
            families.add(POOL_PEAK, labels(), sum(|pool| pool.peak_held_bytes));
            families.add(POOL_GETS, labels(), sum(|pool| pool.chunk_gets));
            families.add(POOL_PUTS, labels(), sum(|pool| pool.chunk_puts));
        }
        if pools.others > 0 {
            let labels = || format!("{base},kind=\"\",pool=\"\"");
            families.add(POOL_COUNT, labels(), pools.others as f64);
            families.add(POOL_HELD, labels(), pools.others_held_bytes as f64);
        }
    }
}

fn add_sums(families: &mut Families, sums: &Sums, base: &str, now: u64) {
    let slabs_live = sums.slab_out_bytes().saturating_sub(sums.cached_bytes);
    let states = [
        ("slab_live", slabs_live),
        ("cached", sums.cached_bytes),
        ("slab_free", sums.slab_free_bytes),
        ("slab_mailed", sums.slab_mailed_bytes),
        ("slab_fresh", sums.slab_fresh_bytes),
        ("run_live", sums.run_live_bytes),
        ("run_slack", sums.run_slack_bytes),
        ("huge_live", sums.huge_live_bytes),
        ("huge_cached", sums.huge_cached_bytes),
        ("pages_dirty", sums.pages_dirty_bytes),
        ("pages_clean", sums.pages_clean_bytes),
    ];
    for (state, bytes) in states {
        families.add(HEAP, format!("{base},state=\"{state}\""), bytes as f64);
    }
    families.add(METADATA, base.to_owned(), sums.metadata_bytes as f64);
    families.add(PURGED, base.to_owned(), sums.slab_purged_bytes as f64);
    families.add(AGE, base.to_owned(), now.saturating_sub(sums.at_ns) as f64 / 1e9);
    let things = [
        ("heaps", sums.heaps),
        ("heaps_idle", sums.heaps_idle),
        ("slabs", sums.slabs),
        ("runs", sums.runs),
        ("huges", sums.huges),
    ];
    for (thing, count) in things {
        families.add(THINGS, format!("{base},thing=\"{thing}\""), count as f64);
    }
    let events = [
        ("refill", sums.refills),
        ("flush", sums.flushes),
        ("remote_publish", sums.remote_publishes),
        ("remote_adoption", sums.remote_adoptions),
        ("heap_adoption", sums.heap_adoptions),
        ("slab_steal", sums.slab_steals),
        ("purge", sums.purges),
    ];
    for (event, count) in events {
        families.add(EVENTS, format!("{base},event=\"{event}\""), count as f64);
    }
    families.add(RETURNED, base.to_owned(), sums.purged_bytes as f64);
    families.add(REGRET, base.to_owned(), sums.regret_bytes as f64);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{Class, Heap, Pools};

    fn found() -> Vec<Found> {
        let class = Class {
            block_bytes: 64,
            slabs: 1,
            slabs_bytes: 65536,
            out_blocks: 10,
            free_blocks: 20,
            purged_blocks: 0,
            fresh_bytes: 0,
            cached_blocks: None,
        };
        let sums = Sums {
            at_ns: 1_000_000_000,
            slabs_bytes: 65536,
            slab_free_bytes: 1280,
            purged_bytes: 7,
            regret_bytes: 3,
            ..Sums::default()
        };
        let pool = |kind: &str, name: &str, used| Pool {
            kind: kind.into(),
            name: name.into(),
            at_ns: 0,
            held_bytes: 100,
            peak_held_bytes: 200,
            limit_bytes: 0,
            used_bytes: used,
            requested_bytes: None,
            calls: None,
            slow_calls: 0,
            chunk_gets: 3,
            chunk_puts: 1,
            slow_ns: 0,
        };
        let page = Page {
            pid: 1,
            version: "0".into(),
            born_ns: 0,
            sampler_at: 0,
            sampler_bytes: 0,
            heap: Some(Heap { sums: Some(sums), classes: vec![class, class], ..Heap::default() }),
            pools: Some(Pools {
                // One that calls itself as those without a name are called.
                pools: vec![
                    pool("stack", "a \"b\"\\", Some(50)),
                    pool("stack", "a \"b\"\\", Some(1)),
                    pool("", "", None),
                ],
                others: 2,
                others_held_bytes: 9,
                busy: 0,
            }),
        };
        vec![Found {
            pid: 1,
            program: "x\ny".into(),
            pages: vec![page.clone(), page],
            read_ns: 3_500_000_000,
        }]
    }

    #[test]
    fn every_sample_is_told_apart_and_belongs_to_a_family() {
        for format in [Format::OpenMetrics, Format::Prometheus] {
            let text = render(&found(), format);
            let mut seen = std::collections::BTreeSet::new();
            let mut family = String::new();
            let mut families = std::collections::BTreeSet::new();
            for line in text.lines() {
                if let Some(rest) = line.strip_prefix("# HELP ") {
                    family = rest.split(' ').next().unwrap().to_owned();
                    assert!(families.insert(family.clone()), "{family} begins twice");
                } else if !line.starts_with('#') {
                    let (sample, value) = line.rsplit_once(' ').unwrap();
                    assert!(sample.starts_with(&family), "{sample} is not of {family}");
                    assert!(seen.insert(sample.to_owned()), "{sample} is there twice");
                    assert!(value.parse::<f64>().unwrap() >= 0.0);
                }
            }
            assert_eq!(text.ends_with("# EOF\n"), format == Format::OpenMetrics);
        }
    }

    #[test]
    fn samples() {
        let text = render(&found(), Format::OpenMetrics);
        let base = "pid=\"1\",program=\"x\\ny\",library=\"libquarry\"";
        for line in [
            "# TYPE quarry_heap_events counter".to_owned(),
            "# UNIT quarry_heap_purged_bytes bytes".to_owned(),
            format!("quarry_heap_purged_bytes_total{{{base}}} 7"),
            format!("quarry_heap_regret_bytes_total{{{base}}} 3"),
            format!("quarry_heap_age_seconds{{{base}}} 2.5"),
            format!("quarry_heap_bytes{{{base},state=\"slab_live\"}} 64256"),
            format!("quarry_heap_class_out_blocks{{{base},block_bytes=\"64\"}} 20"),
            format!("quarry_pool_used_bytes{{{base},kind=\"stack\",pool=\"a \\\"b\\\"\\\\\"}} 51"),
            format!("quarry_pools{{{base},kind=\"\",pool=\"\"}} 3"),
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        let older = render(&found(), Format::Prometheus);
        assert!(older.contains("# TYPE quarry_heap_events_total counter"));
    }
}
