// SPDX-License-Identifier: MIT
//! A program as in the founding documents' chapter on massif: allocators that wrap malloc, a table that grows, a configuration, and
//! memory that ever rises. ms_print shows of our file what it shows of massif's own.

use std::process::Command;

use crate::common::{Ended, text};
use crate::foreign::is_missing;
use crate::profile::Recorder;

const PROGRAM: &str = r#"
#include <stdlib.h>
#define KEEP __attribute__((noinline, noclone))
#define BARRIER __asm__ volatile("" ::: "memory")
KEEP void *libc_malloc(size_t n) { void *p = malloc(n); BARRIER; return p; }
KEEP void *libc_realloc(void *p, size_t n) { p = realloc(p, n); BARRIER; return p; }
KEEP void *mem_alloc(size_t n) { void *p = libc_malloc(n); BARRIER; return p; }
static char *conf, *threads[16], *services[7], *lines[3000];
static void **table;
static size_t places;
KEEP void master_load_conf(void) { conf = mem_alloc(65536); BARRIER; }
KEEP void thr_initialize(void) { for (int i = 0; i < 16; i++) { threads[i] = libc_malloc(4416); BARRIER; } }
KEEP void platform_initialize(void) { thr_initialize(); BARRIER; }
KEEP void register_service(int i) { services[i] = mem_alloc(240); BARRIER; }
KEEP void qhash_resize_start(size_t n) { table = libc_realloc(table, n * sizeof *table); places = n; BARRIER; }
KEEP void qhash_put(size_t i) { if (i >= places) { qhash_resize_start(places ? 2 * places : 64); } table[i] = 0; BARRIER; }
KEEP void iop_register_class(size_t i) { qhash_put(i); BARRIER; }
KEEP void platform_start_master(void) {
    platform_initialize();
    master_load_conf();
    for (int i = 0; i < 7; i++) { register_service(i); }
    BARRIER;
}
KEEP void serve(int i) { char *request = mem_alloc(500); lines[i] = mem_alloc(300); BARRIER; free(request); BARRIER; }
int main(void) {
    for (size_t i = 0; i < 3000; i++) { iop_register_class(i); }
    platform_start_master();
    for (int i = 0; i < 3000; i++) { serve(i); }
    return 0;
}
"#;

/// What is live at the peak of that program: blocks of `serve` with the last request, the start, and the table.
const PEAK: u64 = 3000 * 300 + 500 + 65536 + 16 * 4416 + 7 * 240 + 8 * 4096;

/// A line of ms_print's tree: how deep it is, its bytes, and what it is called without its address.
type Line = (usize, u64, String);

/// What ms_print shows of a file.
struct Shown {
    text: String,
    /// How high each column of the graph is, and whether the peak is in it.
    columns: Vec<(usize, bool)>,
    /// Useful bytes of the peak.
    useful: u64,
    tree: Vec<Line>,
}

fn number(text: &str) -> u64 {
    text.replace(',', "").parse().unwrap_or_else(|_| panic!("{text}"))
}

/// "| ->74.74% (65,536B) 0x42AB07: master_load_conf (master.blk:2612)"
fn tree_line(line: &str) -> Option<Line> {
    let (place, rest) = line.split_once("% (")?;
    let (bytes, name) = rest.split_once("B) ")?;
    let name =
        name.split_once(": ").filter(|(address, _)| address.starts_with("0x")).map_or(name, |(_, name)| name);
    // What is small is joined by whoever meets it first: massif, or ms_print.
    let name = if name.contains("below ") { "(small)" } else { name };
    Some((place.find("->").map_or(0, |at| at / 2 + 1), number(bytes), name.to_owned()))
}

fn shown(file: &str) -> Shown {
    let text = Ended::from(Command::new("ms_print").arg(file).output().unwrap()).expect(0).stdout;
    let graph: Vec<Vec<char>> = text
        .lines()
        .filter(|line| line.get(5..6).is_some_and(|mark| mark == "|" || mark == "^"))
        .map(|line| line.chars().skip(7).collect())
        .collect();
    let width = graph.iter().map(Vec::len).max().unwrap();
    // Between two bars only the top of a column is drawn, and sometimes not even that.
    let mut before = 0;
    let mut column = |at: usize| {
        let marked = |row: &&Vec<char>| row.get(at).is_some_and(|mark| *mark != ' ');
        let top = graph.iter().position(|row| marked(&row)).map_or(before, |row| graph.len() - row);
        before = top;
        (top, graph.iter().any(|row| row.get(at) == Some(&'#')))
    };
    let columns = (0..width).map(&mut column).collect();
    let (_, detailed) = text.split_once("Detailed snapshots: [").unwrap();
    let (before, _) = detailed.split_once(" (peak)").unwrap_or_else(|| panic!("no peak: {text}"));
    let peak = before.rsplit(", ").next().unwrap();
    let mut lines =
        text.lines().skip_while(|line| line.split_whitespace().next() != Some(peak) || line.contains('%'));
    let row: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    let tree = lines.take_while(|line| !line.starts_with("---")).filter_map(tree_line).collect();
    Shown { columns, useful: number(row[3]), tree, text }
}

#[test]
fn ms_print_shows_of_our_file_what_it_shows_of_massifs() {
    let Some(mut recorder) = Recorder::new() else { return };
    if is_missing("valgrind") || is_missing("ms_print") {
        return;
    }
    let program = recorder.bench.compile("master", PROGRAM, &["-g", "-O1"]).unwrap();
    recorder.program = text(&program).to_owned();
    let trace = recorder.trace("master.qtr");
    let said = recorder.quarry(&["profile", &trace]).expect(0).stdout;
    assert!(said.contains("ever rising"), "{said}");
    let wrappers = ["libc_malloc", "libc_realloc", "mem_alloc"];
    let hide = format!("--hide=^({})$", wrappers.join("|"));
    let alloc_fns = wrappers.map(|name| format!("--alloc-fn={name}"));
    for (folded, ours, theirs) in [(false, &[][..], &[][..]), (true, &[hide.as_str()], &alloc_fns)] {
        let [our_file, their_file] =
            ["ours", "theirs"].map(|name| text(&recorder.bench.path(name)).to_owned());
        recorder
            .quarry(&[&["profile", "-q", "--format", "massif", "-o", &our_file, &trace], ours].concat())
            .expect(0);
        let massif = Command::new("valgrind")
            .args(["-q", "--tool=massif", "--time-unit=B", "--peak-inaccuracy=0.0", "--threshold=0.1"])
            .arg(format!("--massif-out-file={their_file}"))
            .args(theirs)
            .arg(&program)
            .output()
            .unwrap();
        Ended::from(massif).expect(0);
        let (ours, theirs) = (shown(&our_file), shown(&their_file));
        assert_eq!((ours.useful, theirs.useful), (PEAK, PEAK), "{}", ours.text);
        assert_eq!(ours.tree, theirs.tree, "{}\n{}", ours.text, theirs.text);
        // The last request is from another instruction, and small.
        let site = |name: &str| {
            ours.tree.iter().filter(|line| line.2.starts_with(name)).map(|line| line.1).sum::<u64>()
        };
        assert_eq!((site("serve"), site("master_load_conf"), site("qhash_put")), (900_000, 65_536, 32_768));
        assert_eq!(site("libc_malloc") == 0, folded, "{}", ours.text);
        // A machine so busy that the program takes a tenth of a second gives a graph over time, which is not to be compared.
        if std::fs::read_to_string(&our_file).unwrap().contains("\ntime_unit: ms\n") {
            continue;
        }
        // The same picture, to one of its twenty lines on average: massif's time and height have 8 bytes for each block in them, so
        // that a step may be in the next column. Both rise all the time, and end in the peak.
        assert_eq!(ours.columns.len(), theirs.columns.len());
        let pairs = ours.columns.iter().zip(&theirs.columns);
        let apart: usize = pairs.map(|(ours, theirs)| ours.0.abs_diff(theirs.0)).sum();
        assert!(apart <= ours.columns.len(), "{apart}: {}\n{}", ours.text, theirs.text);
        for columns in [&ours.columns, &theirs.columns] {
            assert_eq!(
                columns.last().map(|last| last.1),
                Some(true),
                "{columns:?}\n{}\n{}",
                ours.text,
                theirs.text
            );
            assert!(columns.is_sorted(), "{}\n{}", ours.text, theirs.text);
        }
    }
}
