// SPDX-License-Identifier: MIT
//! Pictures: what is in them, and that names cannot break out of them.

use super::super::tests::log;
use super::*;

/// Every tag that is opened is closed, in order, and no text holds a bare mark.
fn check_nesting(markup: &str) {
    let mut open = Vec::new();
    let mut rest = markup;
    while let Some(at) = rest.find('<') {
        let end = rest[at..].find('>').expect("a tag ends") + at;
        let tag = &rest[at + 1..end];
        let name: &str = tag.trim_start_matches('/').split([' ', '\n', '/']).next().unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "at {tag}");
        } else if !tag.ends_with('/') && !["!DOCTYPE", "?xml", "meta", "input"].contains(&name) {
            open.push(name);
        }
        rest = &rest[end + 1..];
    }
    assert_eq!(open, Vec::<&str>::new());
}

fn plot<'a>(logs: &'a [Log], filter: &'a Filter) -> Plot<'a> {
    Plot { logs, filter, top: 16, axis: Axis::Dump }
}

#[test]
fn a_picture_has_both_lines_and_the_marks() {
    let logs = [log()];
    let svg = plot(&logs, &Filter::All).svg();
    check_nesting(&svg);
    // One panel: of the others one has no entry and one a single one.
    assert_eq!(svg.matches(">dump number<").count(), 1);
    assert!(svg.contains("a&amp;b: fifo 1 of p&lt;b&gt; (40)"), "{svg}");
    assert!(svg.contains("2 pools that held less or did nothing are not shown"));
    assert!(svg.contains("2 001 entries, 2 to a point"));
    // A line each, and one in the legend.
    assert_eq!(svg.matches("class=\"l h k0\"").count(), 1 + 1);
    assert_eq!(svg.matches("class=\"l k5\"").count(), 1 + 1);
    // Four chunks in one lane, and the mark of the legend.
    let chunks: Vec<&str> = svg.lines().filter(|line| line.ends_with("class=\"f5\"/>")).collect();
    assert_eq!(chunks.iter().map(|line| line.matches('z').count()).collect::<Vec<_>>(), [1, 4], "{svg}");
    assert!(svg.contains("1.00 MiB") && svg.contains("512 KiB"));
}

#[test]
fn a_page_has_both_axes_and_nothing_from_elsewhere() {
    let logs = [log()];
    let page = plot(&logs, &Filter::All).html();
    check_nesting(&page);
    assert!(page.contains("dump number") && page.contains("time since the pool was made"));
    assert!(page.contains("id=\"by-dump\" checked") && !page.contains("id=\"by-time\" checked"));
    assert!(page.contains("some.log") && page.contains("209 KiB per million operations"));
    assert!(!page.contains("p<b>"));
    let elsewhere = page.replace("http://www.w3.org/2000/svg", "");
    assert!(!elsewhere.contains("://") && !elsewhere.contains("src=") && !elsewhere.contains("href="));
}

#[test]
fn nothing_to_draw_is_a_picture_too() {
    let logs = [log()];
    let none = Filter::Named(String::from("inner"));
    check_nesting(&plot(&logs, &none).svg());
    check_nesting(&plot(&[], &Filter::All).html());
}

fn group(first: u64, entries: u64, min: u64, max: u64) -> Group {
    let range = Range { min, max };
    Group {
        first,
        entries,
        start_ns: first,
        end_ns: first + entries - 1,
        held: range,
        used: range,
        gets: 0,
        puts: 0,
        resets: 0,
    }
}

#[test]
fn a_line_touches_least_and_most() {
    let ends = |group: &Group| (group.start_ns as f64, group.end_ns as f64);
    let groups = [group(0, 2, 1, 5), group(2, 2, 4, 9), group(4, 1, 0, 0)];
    let dump = line(&groups, ends, |group| group.used, Axis::Dump);
    assert_eq!(dump, [(0.0, 1.0), (1.0, 5.0), (2.0, 4.0), (3.0, 9.0), (4.0, 0.0)]);
    let time = line(&groups, ends, |group| group.used, Axis::Time);
    assert_eq!(time, [(0.0, 1.0), (1.0, 5.0), (2.0, 5.0), (2.0, 4.0), (3.0, 9.0), (4.0, 9.0), (4.0, 0.0)]);
}

#[test]
fn neighbouring_marks_are_one_box() {
    let boxes = marks(0.0, 800.0, [(10.0, 12.0), (13.0, 13.0), (100.0, 100.0), (800.0, 800.0)].into_iter());
    assert_eq!(boxes, [(10.0, 14.0), (100.0, 101.0), (799.0, 800.0)]);
    assert_eq!(marks(0.0, 1.0, std::iter::empty()), []);
}
