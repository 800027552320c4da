// SPDX-License-Identifier: MIT
//! Screens of all sizes.

use quarry_proc::sum::Sum;
use ratatui_core::style::Color;

use super::*;
use crate::top::opened::Fact;
use crate::view::{Heading, Order, help_lines};

fn row(pid: u32, name: &str) -> Row {
    Row { pid, name: name.into(), state: 'S', virt: Some(1 << 30), res: Some(20 << 20), ..Row::default() }
}

fn picture(rows: &[Row]) -> Picture<'_> {
    Picture {
        rows,
        exact: true,
        count: rows.len(),
        memory: MemInfo { total: Some(200 << 20), ..MemInfo::default() },
        opened: None,
        behind: None,
        refused: None,
        cost: Duration::from_millis(3),
        color: true,
    }
}

fn look() -> Look<Column> {
    let order = Order { sort: Column::Res, reverse: false, filter: String::new() };
    Look { page: 20, ..Look::new(order, Duration::from_secs(2), None) }
}

fn lines(look: &Look<Column>, picture: &Picture, width: u16, height: u16) -> Vec<String> {
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    draw(&mut buffer, area, look, picture);
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(line).collect()
}

#[test]
fn every_size_is_drawn() {
    let rows: Vec<Row> = (1..=60).map(|pid| row(pid, "a long name of a process")).collect();
    let picture = picture(&rows);
    let states = [
        look(),
        Look { help: Some(1000), ..look() },
        Look { opened: Some(3), ..look() },
        Look { typing: Some(String::new()), ..look() },
        Look { first: 59, selected: 59, message: Some("gone".into()), ..look() },
    ];
    for state in &states {
        for width in (0..200).step_by(7) {
            for height in [0, 1, 2, 4, 5, 6, 9, 24, 60] {
                lines(state, &picture, width, height);
            }
        }
    }
}

#[test]
fn a_narrow_screen_has_what_is_sorted_by() {
    for width in [40, 60, 80, 100, 132, 200] {
        for &sort in Column::ALL {
            let columns = fitting(width, sort);
            assert!(columns.contains(&sort) && columns.contains(&Column::Command));
            assert!(columns.contains(&Column::Pss) && columns.contains(&Column::Growth));
        }
    }
    let used = |columns: &[Column]| columns.iter().map(|column| column.width() + 1).sum::<usize>();
    assert!(used(&fitting(80, Column::Res)) <= 80);
    assert_eq!(fitting(200, Column::Res).len(), Column::ALL.len());
}

#[test]
fn what_cannot_be_known_is_said_in_the_row() {
    let mut rows = vec![row(7, "bash"), row(8, "evil\u{1b}[2J\nname")];
    rows[0].missing = Some("not yours");
    let picture = picture(&rows);
    let screen = lines(&look(), &picture, 160, 10);
    assert!(
        screen[2].contains("%MEM") && screen[3].contains("10.0") && screen[3].contains("1.0G"),
        "{screen:#?}"
    );
    assert!(screen[3].contains("bash (not yours)"), "{}", screen[3]);
    assert!(screen[4].contains("evil\\u{1b}[2J\\nname"), "{}", screen[4]);
    let refused = Picture { refused: Some("not permitted; it needs root"), ..picture };
    let screen = lines(&Look { opened: Some(7), ..look() }, &refused, 80, 24).join("\n");
    assert!(screen.contains("not permitted") && screen.contains("resident"), "{screen}");
}

#[test]
fn mappings_may_be_older_than_the_columns() {
    let row = Row { shr: Some(5 << 20), ..row(7, "large") };
    let fact =
        |name, bytes| Fact { name, bytes: Some(bytes), what: String::from("as it was with the mappings") };
    let opened = Opened {
        pid: 7,
        name: "large".into(),
        command: "large".into(),
        threads: 1,
        facts: vec![fact("VIRT", 3 << 30), fact("RES", 10 << 20), fact("SHR", 1 << 20), fact("USS", 2 << 20)],
        parts: Vec::new(),
        total: Sum { count: 100_000, ..Sum::default() },
        remark: None,
    };
    let rows = [row];
    let shown = |behind| {
        let picture = Picture { opened: Some(&opened), behind, ..picture(&rows) };
        lines(&Look { opened: Some(7), ..look() }, &picture, 80, 24)
    };
    let (age, took) = (Duration::from_millis(3200), Duration::from_millis(400));
    for screen in [shown(None), shown(Some((Duration::ZERO, took)))] {
        assert!(screen[3].contains("3.0G") && screen[4].contains("10M  as it was"), "{screen:#?}");
        assert!(screen[7].contains("KIND"), "{screen:#?}");
    }
    // The columns are of this frame, what only mappings tell is as it was.
    let screen = shown(Some((age, took)));
    assert!(screen[3].contains(" 1.0G") && screen[4].contains(" 20M  anonymous"), "{screen:#?}");
    assert!(screen[5].contains(" 5.0M") && screen[6].contains(" 2.0M"), "{screen:#?}");
    assert!(screen[7].starts_with("mappings of 3.2 s ago: 100000 take 0.4 s"), "{screen:#?}");
    assert!(screen[8].contains("KIND"), "{screen:#?}");
}

#[test]
fn without_colour_no_cell_has_one() {
    let mut rows = vec![row(7, "bash"), row(8, "other")];
    rows[1].missing = Some("nothing");
    let area = Rect::new(0, 0, 80, 24);
    for (color, colored) in [(false, false), (true, true)] {
        let mut buffer = Buffer::empty(area);
        let picture = Picture { color, ..picture(&rows) };
        draw(&mut buffer, area, &look(), &picture);
        assert_eq!(buffer.content().iter().any(|cell| cell.fg != Color::Reset), colored);
        assert!(buffer.content().iter().all(|cell| cell.bg == Color::Reset));
    }
}

fn help(width: usize) -> Vec<String> {
    help_lines::<Column>(OWN, &[QUADRANTS, COSTS, MISSING], width)
}

#[test]
fn the_help_has_every_column() {
    for width in [30, 80, 200] {
        let lines = help(width);
        for column in Column::ALL {
            assert!(lines.iter().any(|line| line.starts_with(column.name())), "{}", column.name());
        }
        let longest = lines.iter().map(|line| line.chars().count()).max();
        assert!(longest <= Some(width + 30), "{longest:?} of {width}");
    }
    // The end is on the last screen, and further it does not go.
    let (area, all) = (Rect::new(0, 0, 80, 24), help(80));
    let mut buffer = Buffer::empty(area);
    let state = Look { help: Some(usize::MAX), ..look() };
    assert_eq!(draw(&mut buffer, area, &state, &picture(&[])), all.len() - 22);
    assert!(lines(&state, &picture(&[]), 80, 24)[22].starts_with(all.last().unwrap().as_str()));
}
