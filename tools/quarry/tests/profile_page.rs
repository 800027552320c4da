// SPDX-License-Identifier: MIT
//! The pages of quarry profile, driven in Chromium as people do: by pointer, by keys alone, on a desktop and on a phone. What they show is
//! compared with the JSON of the same trace.

use std::fs;
use std::io::{BufWriter, ErrorKind};
use std::net::TcpListener;
use std::path::Path;
use std::time::Instant;

use quarry_measure::units;
use quarry_trace::{AllocApi, End, Event, FreeApi, Head, StackNode, TraceWriter, What, WriteOptions};
use serde_json::{Value, json};

use crate::common::browser::{Browser, DARK, DESKTOP, PHONE};
use crate::common::{Bench, text};
use crate::profile_exports::{export, trace};

/// Helpers of the scripts below.
const HELPERS: &str = r#"window.T = {
    boxes: () => [...document.querySelectorAll('#flame button')].map(box => box.getAttribute('aria-label')),
    box: name => [...document.querySelectorAll('#flame button')].find(box => box.getAttribute('aria-label').startsWith(name)),
    rows: id => [...document.querySelectorAll('#' + id + ' tbody tr')].map(row => [...row.cells].map(cell => cell.textContent)),
    said: id => document.getElementById(id).textContent,
    focused: () => document.activeElement.getAttribute('aria-label') ?? document.activeElement.id + document.activeElement.textContent,
}; true"#;

fn open(browser: &mut Browser, page: &str) {
    browser.open(Path::new(page));
    browser.eval(HELPERS);
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

fn has(texts: &[String], start: &str) -> bool {
    texts.iter().any(|text| text.starts_with(start))
}

/// A profile as JSON.
fn asked(bench: &Bench, options: &[&str], trace: &str) -> Value {
    bench.run(&[&["profile", "-q", "--json"], options, &[trace]].concat()).expect(0).json()
}

fn find<'a>(groups: &'a Value, name: &str) -> &'a Value {
    groups.as_array().unwrap().iter().find(|group| group["name"] == name).unwrap_or_else(|| panic!("{name}"))
}

/// A sum of the JSON as the reports write it.
fn shown(object: &Value, key: &str, blocks: &str, label: fn(f64) -> String) -> String {
    let value = label(object[key].as_f64().unwrap());
    let bounds = &object[format!("{key}_interval")];
    let Some(bounds) = bounds.as_array() else { return value };
    let [low, high] = [0, 1].map(|at| label(bounds[at].as_f64().unwrap()));
    // How many blocks were drawn is not in the JSON. Below one in all, as below five drawn, no lower bound is shown.
    if blocks == "few" { format!("≤ {high}") } else { format!("{value} ({low} … {high})") }
}

#[test]
fn the_page_does_what_it_says() {
    let (Some(bench), Some(mut browser)) = (Bench::new(), Browser::new(DESKTOP)) else { return };
    let trace = trace(&bench, "t.qtr", 2000);
    let page = export(&bench, &trace, "t.html", &[]);
    open(&mut browser, &page);
    let first = strings(&browser.eval("T.boxes()"));
    assert!(first[0].starts_with("all: 2.00 MiB, 100 %"), "{first:?}");
    assert!(has(&first, "leaks at demo.c:4: 1.91 MiB, 95 %"), "{first:?}");
    assert!(browser.text("document.querySelector('.verdict').textContent").starts_with("ever rising"));

    // Zoom in and out, and through the history.
    browser.click("T.box('left')");
    let zoomed = strings(&browser.eval("T.boxes()"));
    assert!(has(&zoomed, "main") && has(&zoomed, "leaks") && !has(&zoomed, "right"), "{zoomed:?}");
    assert!(browser.text("T.focused()").starts_with("left"));
    browser.history(-1);
    assert_eq!(strings(&browser.eval("T.boxes()")), first);
    browser.history(1);
    assert_eq!(strings(&browser.eval("T.boxes()")), zoomed);
    browser.key("Escape");
    assert!(browser.text("T.focused()").starts_with("main"));
    browser.click("document.getElementById('out')");
    assert_eq!(strings(&browser.eval("T.boxes()")), first);
    assert_eq!(browser.eval("document.getElementById('out').disabled"), true);

    // The other way round: sites first.
    browser.click("document.getElementById('up')");
    let up = strings(&browser.eval("T.boxes()"));
    assert!(
        has(&up, "leaks at demo.c:4: 1.91 MiB, 95 %") && has(&up, "main at demo.c:1: 2.00 MiB, 100 %")
            || has(&up, "main"),
        "{up:?}"
    );
    let level = browser.text("T.box('leaks').getAttribute('aria-level')");
    assert_eq!(level, "2");
    browser.history(-1);
    assert_eq!(browser.eval("document.getElementById('down').checked"), true);

    // Search.
    browser.click("document.getElementById('search')");
    browser.type_text("LEAK");
    assert_eq!(browser.eval("document.querySelectorAll('#flame .hit').length"), 1);
    for kib in
        [1, 9, 10, 99, 100, 999, 1000, 1012, 1023, 1024, 1025, 999 << 10, 1000 << 10, 1023 << 10, 1 << 20]
    {
        let n = kib << 10;
        assert_eq!(browser.text(&format!("bytes({n})")), units::bytes(f64::from(n as u32)), "{n}");
    }
    for n in [0, 1, 999, 1000, 1023, 1025] {
        assert_eq!(browser.text(&format!("bytes({n})")), units::bytes(f64::from(n)), "{n}");
    }
    assert_eq!(browser.text("T.said('found')"), "1 box of the whole graph, 1.91 MiB, 95 %");
    assert_eq!(browser.eval("T.rows('sites').map(row => row[0])"), json!(["leaks at demo.c:4"]));
    browser.type_text("xyz");
    assert_eq!(
        browser.text("T.said('found') + T.said('none')"),
        "no box has this in its nameno site has this in its name"
    );
    browser.history(-1);
    assert_eq!(browser.text("document.getElementById('search').value"), "");
    assert_eq!(strings(&browser.eval("T.boxes()")), first);
    assert_eq!(browser.complaints(), [""; 0]);
}

/// The window that the page shows, as the option of the command line. The page's spans end where the next begins.
fn window(browser: &mut Browser) -> String {
    let ends = browser
        .eval("[data.ends[state.from], data.ends[state.to + 1], isAll(), state.to === data.spans - 1]");
    let [from, to] = [0, 1].map(|at| ends[at].as_u64().unwrap());
    format!("{}ns..{}ns", from.saturating_sub(1), if ends[3] == true { to } else { to - 1 })
}

#[test]
fn a_window_of_time_is_dragged() {
    let (Some(bench), Some(mut browser)) = (Bench::new(), Browser::new(DESKTOP)) else { return };
    let trace = trace(&bench, "t.qtr", 2000);
    let page = export(&bench, &trace, "t.html", &[]);
    open(&mut browser, &page);
    let place = |browser: &mut Browser, part: f64| {
        browser.eval("document.getElementById('course').scrollIntoView({ block: 'center' })");
        let place = browser.eval("(() => { const r = course.getBoundingClientRect(); return [r.left, r.width, r.top + r.height / 2, ...plot()]; })()");
        let number = |at: usize| place[at].as_f64().unwrap();
        let left = number(0) + number(1) * number(3);
        (left + number(1) * (number(4) - number(3)) * part, number(2))
    };
    // Within spans whose numbers are known. A browser may round a place down to a pixel, of which a span has more than one.
    let parts = browser.eval("[0.5, 0.75].map(part => Math.floor(data.spans * part)).map(span => [span, (data.ends[span] + 3 * data.ends[span + 1]) / 4 / data.duration])");
    let [from, to] = [0, 1].map(|at| place(&mut browser, parts[at][1].as_f64().unwrap()));
    browser.drag(from, to);
    assert_eq!(browser.eval("[state.from, state.to]"), json!([parts[0][0], parts[1][0]]));
    assert_eq!(browser.eval("shade.hidden"), false);
    assert_eq!(
        browser.text("document.getElementById('metric').selectedOptions[0].text"),
        "growth in the window"
    );
    let json = asked(&bench, &["--window", &window(&mut browser)], &trace);
    for row in browser.eval("T.rows('sites')").as_array().unwrap() {
        let group = find(&json["groups"], row[0].as_str().unwrap());
        let window = &group["window"];
        assert_eq!(row[2], shown(&window["to"], "bytes", "", units::bytes), "{row}");
        let growth = window["growth_bytes"].as_f64().unwrap();
        let sign = if growth < 0.0 { "-" } else { "+" };
        assert_eq!(row[3], format!("{sign}{}", units::bytes(growth.abs())), "{row}");
        assert_eq!(row[4], shown(window, "allocated_bytes", "", units::bytes), "{row}");
    }
    let leaks = find(&json["groups"], "leaks at demo.c:4")["window"]["growth_bytes"].as_f64().unwrap();
    assert!(
        (495_000.0..505_000.0).contains(&leaks),
        "a quarter of the time has a quarter of the leak: {leaks}"
    );
    // A drag is one step of the history, from the left or from the right.
    browser.history(-1);
    assert_eq!((browser.eval("isAll()"), browser.eval("state.metric")), (json!(true), json!(0)));
    browser.history(1);
    let once = browser.eval("[state.from, state.to]");
    browser.drag(to, from);
    assert_eq!(browser.eval("[state.from, state.to]"), once);
    // A click chooses all.
    let middle = place(&mut browser, 0.3);
    browser.drag(middle, middle);
    assert_eq!((browser.eval("isAll()"), browser.eval("shade.hidden")), (json!(true), json!(true)));
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn a_finger_chooses_a_window() {
    let (Some(bench), Some(mut browser)) = (Bench::new(), Browser::new(PHONE)) else { return };
    let page = export(&bench, &trace(&bench, "t.qtr", 2000), "t.html", &[]);
    open(&mut browser, &page);
    browser.eval("document.getElementById('course').scrollIntoView({ block: 'center' })");
    let place = browser.eval("(() => { const r = course.getBoundingClientRect(); return [r.left, r.width, r.top + r.height / 2, ...plot()]; })()");
    let number = |at: usize| place[at].as_f64().unwrap();
    let at = |part: f64| (number(0) + number(1) * (number(3) + (number(4) - number(3)) * part), number(2));
    // Across the graph it chooses a window.
    browser.swipe(at(0.25), at(0.75));
    let parts =
        browser.eval("[data.ends[state.from], data.ends[state.to + 1]].map(end => end / data.duration)");
    let parts = [0, 1].map(|at| parts[at].as_f64().unwrap());
    assert!((parts[0] - 0.25).abs() < 0.02 && (parts[1] - 0.75).abs() < 0.02, "{parts:?}");
    assert_eq!(browser.eval("shade.hidden"), false);
    // Up the page it is scrolled, and the window stays.
    let before = browser.eval("[state.from, state.to]");
    let (x, y) = at(0.5);
    browser.swipe((x, y), (x, y - 200.0));
    assert_eq!(browser.eval("[state.from, state.to]"), before);
    // A finger on a box zooms.
    let leaks = browser.place("T.box('leaks')");
    browser.swipe(leaks, leaks);
    assert!(browser.text("tree().name(zoomed())").starts_with("leaks"));
    assert_eq!(browser.complaints(), [""; 0]);
}

/// A program with many call stacks, for pages that are full.
pub struct Forest {
    pub events: u64,
    pub stacks: u32,
    pub seconds: u64,
    /// One byte in so many is drawn; 0: all.
    pub sample: u64,
    /// Of what happens, and not of the names.
    pub seed: u64,
    /// Of the sites of the first function, so much more than of the others.
    pub grown: u64,
}

const WORDS: [&str; 24] = [
    "main",
    "event_loop",
    "handle_request",
    "parse_header",
    "parse_body",
    "json::Value::from_str",
    "std::vector<std::string>::push_back",
    "render_page",
    "Template::expand",
    "cache_insert",
    "cache_lookup",
    "sql_prepare",
    "sql_step",
    "btree_insert",
    "read_file",
    "decode_utf8",
    "compress_block",
    "log_line",
    "session_open",
    "thread_pool::run",
    "regex_compile",
    "hash_grow",
    "arena_chunk",
    "string_dup",
];

impl Forest {
    pub const SMALL: Self = Self { events: 60_000, stacks: 600, seconds: 60, sample: 0, seed: 7, grown: 1 };

    /// Write it; the path.
    pub fn plant(&self, bench: &Bench, name: &str) -> String {
        let head = Head {
            process: 7,
            program: "/usr/bin/forest".into(),
            command: vec!["forest".into(), "--requests".into(), "1000".into()],
            clock: "synthetic".into(),
            ticks_per_second: 1_000_000_000,
            stacks: "fp".into(),
            sample: self.sample,
            ..Head::default()
        };
        let path = bench.path(name);
        let file = BufWriter::new(fs::File::create(&path).unwrap());
        let mut writer = TraceWriter::create(file, &head, WriteOptions { packed: true }).unwrap();
        let mut state = 7u64;
        let mut random = move |seed: u64| {
            state ^= seed;
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        // A random tree: each stack goes on from an earlier one, 30 deep at most.
        let mut depths = vec![0u32];
        let mut nodes = Vec::new();
        for id in 1..=self.stacks {
            let near = u64::from(id).min(1 + u64::from(id) / 3);
            let mut parent = if id <= 2 { id - 1 } else { (u64::from(id) - 1 - random(0) % near) as u32 };
            if depths[parent as usize] >= 30 {
                parent = 1;
            }
            depths.push(depths[parent as usize] + 1);
            let word = if id == 1 { 0 } else { 1 + random(0) % 23 };
            nodes.push((word, 1 + random(0) % 300));
            writer.stack(1, &StackNode { id, parent, pc: u64::from(id) * 16, is_return: false }).unwrap();
        }
        random(self.seed << 20);
        let mut live: Vec<u64> = vec![0; 1 + self.events as usize / 8];
        let step = (self.seconds * 1_000_000_000 / self.events).max(1);
        let slots = live.len() as u64;
        for n in 0..self.events / 2 {
            // What is young dies young; one slot in eight is seldom touched. A fresh address each time.
            let slot =
                if n % 16 == 0 { n % slots } else { slots - 1 - random(0) % (slots / 8 + 1).min(slots) };
            let time = n * 2 * step;
            if live[slot as usize] != 0 {
                let what = What::Free { api: FreeApi::Free, address: live[slot as usize], touched: None };
                writer.event(&Event { time, thread: 1, what }).unwrap();
            }
            let (a, b) = (random(0) % u64::from(self.stacks), random(0) % u64::from(self.stacks));
            let stack = 1 + a.min(b) as u32;
            let more = if nodes[stack as usize - 1].0 % 5 == 0 { self.grown } else { 1 };
            let size = (16 << (random(0) % 8)) * more + random(0) % 48;
            let address = 0x1_0000 + n * 4096 + random(0) % 128 * 16;
            live[slot as usize] = address;
            let what = What::Alloc { api: AllocApi::Malloc, size, address, align: 0, stack };
            writer.event(&Event { time: time + step, thread: 1, what }).unwrap();
        }
        let strings: Vec<&str> = WORDS.iter().copied().chain(["/src/forest.cc"]).collect();
        for (part, nodes) in nodes.chunks(8192).enumerate() {
            let frames: Vec<Value> =
                nodes.iter().map(|(word, line)| json!([word + 1, WORDS.len() + 1, line])).collect();
            let numbers: Vec<Value> = (1..=nodes.len()).map(|at| json!([part * 8192 + at, at])).collect();
            let names =
                json!({ "text": "quarry-names/1", "strings": strings, "frames": frames, "nodes": numbers });
            writer.text(names.to_string().as_bytes()).unwrap();
        }
        let end = self.events * step;
        writer.finish(&End { reason: "exit".into(), end_ticks: end, ..End::default() }).unwrap();
        text(&path).to_owned()
    }
}

/// All rows of a table of the page stand in the JSON with the same numbers.
fn compare_sites(rows: &Value, json: &Value) -> usize {
    let rows = rows.as_array().unwrap();
    for row in rows.iter().filter(|row| row[0] != "(others)") {
        let group = find(&json["groups"], row[0].as_str().unwrap());
        let few = |cell: usize| if row[cell].as_str().unwrap().starts_with('≤') { "few" } else { "" };
        assert_eq!(row[1], shown(&group["at"], "bytes", few(1), units::bytes), "{row}");
        assert_eq!(row[2], shown(group, "end_bytes", few(2), units::bytes), "{row}");
        assert_eq!(row[4], shown(group, "allocated_bytes", few(4), units::bytes), "{row}");
        assert_eq!(row[5], shown(group, "allocations", few(5), units::count), "{row}");
        assert_eq!(row[6], shown(group, "end_bytes", few(6), units::bytes), "{row}");
    }
    rows.len()
}

#[test]
fn the_page_has_the_numbers_of_the_json() {
    let (Some(bench), Some(mut browser)) = (Bench::new(), Browser::new(DESKTOP)) else { return };
    for (name, forest, options) in [
        ("whole", Forest::SMALL, &["--waste", "--top", "100"][..]),
        ("sample", Forest { sample: 4096, seed: 9, ..Forest::SMALL }, &[]),
        ("end", Forest { seed: 11, ..Forest::SMALL }, &["--at", "end", "--filter", "parse"]),
        ("moment", Forest { seed: 13, ..Forest::SMALL }, &["--at", "20s"]),
    ] {
        let trace = forest.plant(&bench, &format!("{name}.qtr"));
        let page = export(&bench, &trace, &format!("{name}.html"), options);
        let json = asked(
            &bench,
            &[options, &["--top", "10000"]].concat().iter().copied().fold(Vec::new(), keep_last),
            &trace,
        );
        open(&mut browser, &page);
        browser.click("document.getElementById('more')");
        let rows = browser.eval("T.rows('sites')");
        assert!(compare_sites(&rows, &json) >= 50, "{name}: {rows}");
        assert_eq!(
            browser.eval("T.rows('sites').some(row => row[1].startsWith('≤'))"),
            name == "sample",
            "{name}"
        );
        assert_eq!(
            browser.eval("T.rows('sites').some(row => row[1].includes(' … '))"),
            name == "sample",
            "{name}"
        );
        // The boxes of the sites, too, in the view that begins with them.
        browser.click("document.getElementById('up')");
        for group in json["groups"].as_array().unwrap().iter().take(5) {
            let site = format!(
                "{}: {}, ",
                group["name"].as_str().unwrap(),
                shown(&group["at"], "bytes", "", units::bytes)
            );
            let texts = strings(&browser.eval("T.boxes()"));
            assert!(has(&texts, &site), "{name}: no '{site}' in {texts:#?}");
        }
        if name == "whole" {
            let sites = json["page_waste"]["sites"].as_array().unwrap();
            let shown: Vec<Value> = sites
                .iter()
                .take(100)
                .map(|site| {
                    let number = |key: &str| site[key].as_f64().unwrap();
                    let [waste, rounding, live, sole] =
                        ["waste_bytes", "rounding_bytes", "live_bytes", "sole_waste_bytes"]
                            .map(|key| units::bytes(number(key)));
                    let [blocks, pages] = ["blocks", "sole_pages"].map(|key| units::count(number(key)));
                    json!([site["name"], waste, rounding, live, blocks, pages, sole])
                })
                .collect();
            assert_eq!(browser.eval("T.rows('waste')"), json!(shown));
            assert_eq!(browser.eval("metrics.at(-1).name"), "waste of pages");
            let all = units::bytes(json["page_waste"]["now"]["waste_bytes"].as_f64().unwrap());
            browser.eval("change({ metric: metrics.length - 1 })");
            assert!(browser.text("T.boxes()[0]").starts_with(&format!("all: {all}, 100 %")));
        }
        assert_eq!(browser.complaints(), [""; 0]);
    }
}

#[test]
fn each_box_of_a_sample_has_an_interval() {
    let (Some(bench), Some(mut browser)) = (Bench::new(), Browser::new(DESKTOP)) else { return };
    let trace = Forest { sample: 4096, seed: 9, ..Forest::SMALL }.plant(&bench, "s.qtr");
    let page = export(&bench, &trace, "s.html", &["--at", "end"]);
    open(&mut browser, &page);
    let metrics = strings(&browser.eval("metrics.map(metric => metric.name)"));
    assert!(metrics.iter().any(|name| name == "live at the peak"), "{metrics:?}");
    for (number, name) in metrics.iter().enumerate() {
        browser.eval(&format!("change({{ metric: {number} }})"));
        let whole = browser.text("T.boxes()[0]");
        assert!(whole.contains(" … "), "{name}: {whole}");
    }
    assert_eq!(browser.complaints(), [""; 0]);
}

/// Of an option that is there twice only the last one is kept.
fn keep_last<'a>(mut list: Vec<&'a str>, word: &'a str) -> Vec<&'a str> {
    if let Some(at) = list.iter().position(|&known| word == "--top" && known == word) {
        list.drain(at..at + 2);
    }
    list.push(word);
    list
}

#[test]
fn keys_alone_reach_everything() {
    let (Some(bench), Some(mut browser)) = (Bench::new(), Browser::new(DESKTOP)) else { return };
    let page = export(&bench, &trace(&bench, "t.qtr", 2000), "t.html", &["--waste"]);
    open(&mut browser, &page);
    let mut reached = Vec::new();
    for _ in 0..30 {
        browser.key("Tab");
        let at = browser.text("document.activeElement === document.body ? '' : document.activeElement.id || document.activeElement.getAttribute('aria-label') || document.activeElement.textContent");
        // The focus is seen.
        let is_seen = "document.activeElement === document.body || getComputedStyle(document.activeElement).outlineStyle !== 'none'";
        assert_eq!(browser.eval(is_seen), true, "{at}");
        if at.is_empty() {
            break;
        }
        reached.push(at);
    }
    let expected = [
        "from",
        "to",
        "whole",
        "metric",
        "down",
        "search",
        "all: 2.00 MiB, 100 %",
        "Sites",
        "site",
        "live at the peak",
        "live at the end of the window",
    ];
    assert_eq!(reached[..expected.len()], expected, "{reached:#?}");
    assert_eq!(
        reached[expected.len() + 4..],
        [
            "How long blocks live",
            "Pages that are kept for little",
            "site",
            "waste",
            "rounding",
            "live",
            "blocks",
            "sole pages",
            "waste there"
        ],
        "{reached:#?}"
    );

    // The flame graph: down, aside, in, out.
    browser.eval("T.box('all').focus()");
    for (key, at) in [
        ("ArrowDown", "main"),
        ("ArrowDown", "left"),
        ("ArrowRight", "right"),
        ("ArrowLeft", "left"),
        ("ArrowUp", "main"),
        ("ArrowDown", "left"),
        ("ArrowDown", "leaks"),
        ("ArrowDown", "leaks"),
        ("Home", "all"),
        ("ArrowDown", "main"),
        ("ArrowDown", "left"),
    ] {
        browser.key(key);
        assert!(browser.text("T.focused()").starts_with(at), "{key}: {}", browser.text("T.focused()"));
        assert!(browser.text("T.said('detail')").starts_with(at), "{key}");
    }
    browser.key("Enter");
    assert_eq!(
        browser.eval("tree().name(zoomed())").as_str().map(|name| name.starts_with("left")),
        Some(true)
    );
    browser.key("/");
    assert_eq!(browser.text("document.activeElement.id"), "search");
    browser.type_text("churn");
    assert_eq!(browser.text("T.said('found')"), "1 box of the whole graph, 300 B, 0.0 %");
    browser.key("Escape");
    assert_eq!(browser.text("document.getElementById('search').value"), "");
    browser.key("Escape");
    assert!(browser.text("T.focused()").starts_with("main"));
    // The window of time: the left end to the right.
    browser.eval("document.getElementById('from').focus()");
    browser.key("ArrowRight");
    assert_eq!((browser.eval("state.from"), browser.eval("shade.hidden")), (json!(1), json!(false)));
    browser.key("Home");
    // The order of a table.
    for (column, orders) in [(1, ["ascending", "descending"]), (5, ["descending", "ascending"])] {
        let head = format!("document.querySelector('#sites th:nth-child({column})')");
        browser.eval(&format!("{head}.querySelector('button').focus()"));
        for (order, first) in orders.iter().zip([["churns", "right"], ["leaks", "right"]][column / 5]) {
            browser.key("Enter");
            assert_eq!(browser.text(&format!("{head}.ariaSort")), *order);
            assert!(browser.text("T.rows('sites')[0][0]").starts_with(first), "{column} {order}");
        }
    }
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn the_page_of_a_comparison() {
    let (Some(bench), Some(mut browser)) = (Bench::new(), Browser::new(DESKTOP)) else { return };
    let (before, after) = (trace(&bench, "a.qtr", 2000), trace(&bench, "b.qtr", 2500));
    let page = text(&bench.path("d.html")).to_owned();
    bench.run(&["profile", "-q", "-o", &page, &before, &after]).expect(0);
    open(&mut browser, &page);
    let boxes = strings(&browser.eval("T.boxes()"));
    assert!(has(&boxes, "leaks: itself 1.91 MiB before, 2.38 MiB after, +488 KiB"), "{boxes:#?}");
    let class = |browser: &mut Browser, name: &str| browser.text(&format!("T.box('{name}').className"));
    // Who calls what has grown has not grown itself.
    assert_eq!(["leaks", "right", "main"].map(|name| class(&mut browser, name)), ["up1", "same", "same"]);
    assert!(browser.text("T.box('leaks').textContent").starts_with("+488 KiB leaks"));
    browser.eval("change({ metric: 1 })");
    assert_eq!(["leaks", "right", "main"].map(|name| class(&mut browser, name)), ["up1", "same", "up1"]);
    assert_eq!(
        browser.eval("T.rows('sites')[0]"),
        json!(["leaks at demo.c:4", "1.91 MiB", "2.38 MiB", "+488 KiB"])
    );
    assert!(browser.text("document.body.textContent").contains("nothing is known of noise"));
    browser.click("document.getElementById('up')");
    assert_eq!(class(&mut browser, "leaks"), "up1");

    // Runs of both sides: what is within noise is grey, and the table says so, as the JSON does.
    let forests: Vec<String> = [(7, 1), (8, 1), (9, 1), (7, 3), (8, 3), (9, 3)]
        .iter()
        .enumerate()
        .map(|(at, &(seed, grown))| {
            Forest { seed, grown, ..Forest::SMALL }.plant(&bench, &format!("{at}.qtr"))
        })
        .collect();
    let sides = [forests[..3].join(","), forests[3..].join(",")];
    bench.run(&["profile", "-q", "-o", &page, "--diff", &sides[0], &sides[1]]).expect(0);
    let json = bench
        .run(&["profile", "-q", "--json", "--top", "10000", "--diff", &sides[0], &sides[1]])
        .expect(0)
        .json();
    open(&mut browser, &page);
    let rows = browser.eval("T.rows('sites')");
    let (mut within, mut beyond) = (0, 0);
    for row in rows.as_array().unwrap() {
        let site = find(&json["diff"]["sites"], row[0].as_str().unwrap());
        let number = |key: &str| site[key].as_f64().unwrap();
        assert_eq!(row[1], units::bytes(number("before_bytes")), "{row}");
        assert_eq!(row[2], units::bytes(number("after_bytes")), "{row}");
        assert_eq!(row[4], format!("±{}", units::bytes(number("noise_bytes"))), "{row}");
        let is_beyond = site["significant"] == true;
        assert_eq!(row[5], if is_beyond { "more than noise" } else { "within noise" }, "{row}");
        *if is_beyond { &mut beyond } else { &mut within } += 1;
    }
    assert!(within > 5 && beyond > 5, "{within} {beyond}");
    let grey = "[...document.querySelectorAll('#flame .same')].some(box => box.getAttribute('aria-label').includes('within noise'))";
    assert_eq!(browser.eval(grey), true);
    assert_eq!(browser.complaints(), [""; 0]);
}

/// The least contrast of a text with what is behind it, and the text.
const CONTRAST: &str = r#"(() => {
    const parts = color => color.match(/[\d.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4).reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
    const behind = at => { for (; at; at = at.parentElement) { const c = parts(getComputedStyle(at).backgroundColor); if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
    let least = [99, ''];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let text = walker.nextNode(); text; text = walker.nextNode()) {
        const at = text.parentElement, style = getComputedStyle(at);
        if (!text.data.trim() || at.closest('script,style,noscript,title,desc,:disabled,.away') || !at.getClientRects().length) continue;
        const isSvg = at instanceof SVGElement, [a, b] = [light(parts(isSvg ? style.fill : style.color)), light(behind(at))];
        const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (contrast < least[0]) least = [contrast, text.data];
    }
    return least;
})()"#;

/// A picture goes to the folder that QUARRY_TEST_PICTURES names, where it does.
fn look(browser: &mut Browser, name: &str) {
    if let Some(folder) = std::env::var_os("QUARRY_TEST_PICTURES") {
        browser.picture(&Path::new(&folder).join(format!("{name}.png")));
    }
    let least = browser.eval(CONTRAST);
    assert!(least[0].as_f64().unwrap() >= 4.5, "{name}: {least}");
    let wide = browser.eval("[document.documentElement.scrollWidth, innerWidth]");
    assert!(wide[0].as_u64() <= wide[1].as_u64(), "{name}: {wide}");
    assert_eq!(browser.eval("document.getAnimations().length"), 0, "{name}");
    let twice = "[...document.querySelectorAll('[id]')].map(at => at.id).filter((id, at, all) => all.indexOf(id) !== at)";
    assert_eq!(browser.eval(twice), json!([]), "{name}");
    let told = browser.told();
    let roles = [
        "button",
        "textbox",
        "searchbox",
        "slider",
        "combobox",
        "radio",
        "treeitem",
        "tree",
        "img",
        "image",
        "region",
        "columnheader",
        "rowheader",
    ];
    for (role, said) in &told {
        assert!(
            !roles.contains(&role.as_str()) || !said.trim().is_empty(),
            "{name}: a {role} without a name"
        );
    }
    for role in ["searchbox", "combobox", "radio", "tree", "treeitem", "columnheader"] {
        assert!(told.iter().any(|(found, _)| found == role), "{name}: no {role} in {told:#?}");
    }
    // What is touched is large enough for a finger.
    let small = "matchMedia('(pointer:coarse)').matches ? [...document.querySelectorAll('#flame button')].filter(at => at.getBoundingClientRect().height < 24).length : 0";
    assert_eq!(browser.eval(small), 0, "{name}");
}

#[test]
fn pages_can_be_read_by_all() {
    let (Some(bench), Some(mut browser)) = (Bench::new(), Browser::new(DESKTOP)) else { return };
    let plant = |name: &str, seed: u64, sample: u64, grown: u64| {
        Forest { seed, sample, grown, ..Forest::SMALL }.plant(&bench, name)
    };
    let (a, b, sample) = (plant("a.qtr", 7, 0, 1), plant("b.qtr", 8, 0, 2), plant("s.qtr", 9, 4096, 1));
    let diff = text(&bench.path("d.html")).to_owned();
    bench.run(&["profile", "-q", "-o", &diff, &a, &b]).expect(0);
    let pages = [
        ("whole", export(&bench, &a, "a.html", &["--waste"])),
        ("sample", export(&bench, &sample, "s.html", &[])),
        ("comparison", diff),
    ];
    for (name, page) in &pages {
        for (screen, kind) in [
            (DESKTOP, "light"),
            (DARK, "dark"),
            (PHONE, "phone"),
            (crate::common::browser::Screen { is_dark: true, ..PHONE }, "dark-phone"),
        ] {
            browser.screen(screen);
            open(&mut browser, page);
            look(&mut browser, &format!("{name}-{kind}"));
        }
        browser.screen(DESKTOP);
        open(&mut browser, page);
        if *name == "whole" {
            browser.eval("change({ from: 100, to: 200, metric: GROWTH, query: 'parse', way: 'up' })");
            browser.drawn();
            look(&mut browser, "window");
        }
        assert_eq!(browser.complaints(), [""; 0]);
    }
}

/// Texts of a program do no harm, and an address that somebody made up leads to the beginning.
#[test]
fn what_is_hostile_is_text() {
    let (Some(bench), Some(mut browser)) = (Bench::new(), Browser::new(DESKTOP)) else { return };
    let trace = trace(&bench, "t.qtr", 2000);
    let page = export(&bench, &trace, "t.html", &[]);
    let html = fs::read_to_string(&page).unwrap();
    let evil = "</script><img src=http://127.0.0.1:9/x onerror=window.evil=1>";
    let escaped = evil.replace('<', "\\\\u003c");
    let with = text(&bench.path("evil.html")).to_owned();
    fs::write(&with, html.replace("leaks at demo.c:4", &escaped.replace("\\\\", "\\"))).unwrap();
    open(&mut browser, &with);
    assert_eq!(browser.text("T.rows('sites')[0][0]"), evil);
    assert_eq!(browser.eval("window.evil ?? null"), Value::Null);
    assert_eq!(browser.complaints(), [""; 0]);
    // Whatever stands in a page, it may ask for nothing: nobody comes to this address.
    let net = TcpListener::bind("127.0.0.1:0").unwrap();
    net.set_nonblocking(true).unwrap();
    let image = format!("<img src=http://{}/x>", net.local_addr().unwrap());
    let is_blocked = format!(
        "new Promise(done => {{ addEventListener('securitypolicyviolation', () => done(true)); document.body.insertAdjacentHTML('beforeend', '{image}'); }})"
    );
    assert_eq!(browser.eval(&is_blocked), true);
    assert_eq!(net.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    for hash in
        ["z=9.9.9&f=7&t=99999999&m=-1&q=%ff%&w=x", "f=9&t=3&m=1e9&z=abc", "%%%", "z=__proto__&t=NaN&f=-0.5"]
    {
        browser.open(Path::new("/dev/null"));
        browser.call("Page.navigate", json!({ "url": format!("file://{page}#{hash}") }));
        browser.drawn();
        browser.eval(HELPERS);
        assert!(browser.text("T.boxes()[0]").starts_with("all: "), "{hash}");
    }
    assert!(browser.complaints().is_empty());
}

/// What takes long: `make torture` runs it, and says how long the page took to open.
#[test]
#[ignore = "takes long: make torture runs it"]
fn pages_of_large_traces() {
    let (Some(bench), Some(mut browser)) = (Bench::new(), Browser::new(DESKTOP)) else { return };
    let number =
        |name: &str, otherwise: u64| std::env::var(name).map_or(otherwise, |text| text.parse().unwrap());
    let forest = Forest {
        events: number("QUARRY_TEST_EVENTS", 16_000_000),
        stacks: 100_000,
        seconds: 600,
        ..Forest::SMALL
    };
    let trace = forest.plant(&bench, "large.qtr");
    let bytes = fs::metadata(&trace).unwrap().len();
    assert!(bytes >= 50_000_000, "{bytes}");
    let page = export(&bench, &trace, "large.html", &[]);
    let size = fs::metadata(&page).unwrap().len();
    assert!(size <= 5 << 20, "{size}");
    for run in 0..number("QUARRY_TEST_RUNS", 3) {
        let begin = Instant::now();
        open(&mut browser, &page);
        let whole = begin.elapsed();
        let inner = browser.eval("(() => { const n = performance.getEntriesByType('navigation')[0]; return [n.domInteractive, n.loadEventEnd, performance.getEntriesByName('first-contentful-paint')[0]?.startTime, document.querySelectorAll('#flame button').length]; })()");
        eprintln!(
            "{} events, trace {bytes} B, page {size} B, run {run}: drawn and answering after {whole:.0?}; interactive, loaded, painted (ms), boxes: {inner}",
            forest.events
        );
    }
    let json = asked(&bench, &["--top", "10000"], &trace);
    browser.click("document.getElementById('more')");
    let rows = browser.eval("T.rows('sites')");
    assert!(compare_sites(&rows, &json) >= 1000, "{rows}");
    browser.click("document.getElementById('search')");
    browser.type_text("parse");
    assert!(browser.text("T.said('found')").contains("boxes"));
    browser.click("document.querySelectorAll('#flame button')[3]");
    browser.history(-1);
    assert_eq!(browser.complaints(), [""; 0]);
}

/// What all pages share holds for those of other verbs.
#[test]
fn the_page_of_a_map_is_sorted_by_keys() {
    let (Some(bench), Some(mut browser)) = (Bench::new(), Browser::new(DESKTOP)) else { return };
    let page = text(&bench.path("map.html")).to_owned();
    bench.run(&["map", "-q", "-p", &std::process::id().to_string(), "-o", &page]).expect(0);
    for screen in [DESKTOP, DARK, PHONE] {
        browser.screen(screen);
        open(&mut browser, &page);
        let least = browser.eval(CONTRAST);
        assert!(least[0].as_f64().unwrap() >= 4.5, "{least}");
    }
    let table = "document.querySelector('.sortable')";
    let column = format!("[...{table}.tBodies[0].rows].map(row => +row.cells[3].dataset.v)");
    for (order, rises) in [("descending", false), ("ascending", true)] {
        browser.eval(&format!("{table}.tHead.rows[0].cells[3].querySelector('button').focus()"));
        browser.key("Enter");
        let numbers: Vec<f64> =
            browser.eval(&column).as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect();
        assert!(numbers.len() > 3 && numbers.first() != numbers.last(), "{numbers:?}");
        assert!(numbers.is_sorted_by(|a, b| if rises { a <= b } else { a >= b }), "{order}: {numbers:?}");
        assert_eq!(browser.text(&format!("{table}.tHead.rows[0].cells[3].ariaSort")), order);
    }
    browser.click(&format!("{table}.tHead.rows[0].cells[0].querySelector('button')"));
    let names =
        strings(&browser.eval(&format!("[...{table}.tBodies[0].rows].map(row => row.cells[0].textContent)")));
    let ordered = browser.eval(&format!("{}.toSorted((a, b) => a.localeCompare(b))", json!(names)));
    assert_eq!(json!(names), ordered);
    assert_eq!(browser.complaints(), [""; 0]);
}
