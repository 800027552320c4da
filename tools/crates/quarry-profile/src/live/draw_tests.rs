// SPDX-License-Identifier: MIT
//! Screens of all sizes, of a process that is made here.

use quarry_report::view::Order;
use quarry_symbols::{Folding, Symbols};
use quarry_trace::sample::Sampling;
use quarry_trace::{AllocApi, Event, FreeApi, StackNode, What};
use ratatui_core::style::Color;

use std::time::Duration;

use super::*;
use crate::live::{Frame, Ongoing, sort};
use crate::model::Division;
use crate::query::By;

const MEAN: u64 = 4096;

fn second(second: u64) -> Duration {
    Duration::from_secs(second)
}

/// Site 1 holds more and more, site 2 comes and goes, sites 3 to 60 have one block each.
fn seen(by: By) -> Seen {
    let symbols = Symbols::new(Vec::new());
    let folding = Folding::hiding(&[]).unwrap();
    let mut ongoing = Ongoing::new(Sampling::one_in(MEAN), Division::Stack, symbols, folding, Duration::ZERO);
    for id in 1..=60 {
        // All are called from one.
        let parent = if id == 60 { 0 } else { 60 };
        ongoing.stack(&StackNode { id, parent, pc: 0x1000 * u64::from(id), is_return: true });
    }
    let mut time = 0;
    let mut event = |ongoing: &mut Ongoing, what: What| {
        time += 1_000_000;
        ongoing.event(&Event { time, thread: 1, what });
    };
    let alloc = |address, size, stack| What::Alloc { api: AllocApi::Malloc, size, address, align: 0, stack };
    for stack in 3..60 {
        event(&mut ongoing, alloc(0x10 * u64::from(stack), 100, stack));
    }
    let mut profile = None;
    for frame in 1..=12 {
        for block in 0..100 {
            let address = (frame * 1000 + block) * 0x1000;
            event(&mut ongoing, alloc(address, 1000, 1));
            event(&mut ongoing, alloc(address + 0x800, 500, 2));
            event(&mut ongoing, What::Free { api: FreeApi::Free, address: address + 0x800, touched: None });
        }
        profile = Some(ongoing.frame(second(frame)));
    }
    ongoing.look(profile.unwrap(), by, None)
}

fn ordered(seen: &Seen, sort_by: Column) -> Vec<Site> {
    let mut sites = seen.sites.clone();
    sort(&mut sites, &Order { sort: sort_by, reverse: false, filter: String::new() });
    sites
}

fn picture<'a>(seen: &'a Seen, sites: &'a [Site]) -> Picture<'a> {
    Picture {
        sampled: Sampled {
            process: 4711,
            program: "server",
            mean: MEAN,
            samples: 1000,
            lost: 0,
            heap: Some(5 << 20),
            time: second(12),
            cost: Duration::from_millis(3),
            by: By::Site,
            ended: None,
        },
        seen: Some(seen),
        sites,
        color: true,
    }
}

fn look() -> Look<Column> {
    let order = Order { sort: Column::Live, reverse: false, filter: String::new() };
    Look { page: 20, ..Look::new(order, second(1), None) }
}

fn lines(look: &Look<Column>, picture: &Picture, width: u16, height: u16) -> Vec<String> {
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    draw(&mut buffer, area, look, picture);
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(line).collect()
}

#[test]
fn sites_have_what_happened() {
    let seen = seen(By::Site);
    assert_eq!(seen.sites.len(), 59);
    let sites = ordered(&seen, Column::Live);
    let (held, live) = (&sites[0], sites[0].live.bytes.value() as f64);
    // Each block stands for 1 / p.
    let weight = Sampling::one_in(MEAN).weight(1000).blocks();
    assert!((live - 1_200_000.0 * weight).abs() < 2.0 && held.grown.bytes == live, "{held:?}");
    assert!((held.last.bytes / live - 10.0 / 12.0).abs() < 1e-6 && held.last.is_sure(), "{held:?}");
    assert!((held.bytes_rate - live / 12.0).abs() < 1.0, "{held:?}");
    assert_eq!(seen.last, second(10));
    let churned = &ordered(&seen, Column::Bytes)[1];
    assert!(churned.live.bytes.value() == 0 && churned.bytes_rate > 0.0 && !churned.last.is_sure());
    assert!(churned.trend.iter().all(|live| *live == 0.0));
    // The others were born before the last seconds: they have neither change nor rate.
    let old = sites.iter().filter(|site| site.last.bytes == 0.0 && site.calls_rate == 0.0).count();
    assert_eq!(old, 57);
    let sum: u64 = sites.iter().map(|site| site.live.bytes.value()).sum();
    assert!(sum.abs_diff(seen.all.live.bytes.value()) < 60);
    // All addresses are in no file.
    assert_eq!(seen_of(By::Module), 1);
}

fn seen_of(by: By) -> usize {
    seen(by).sites.len()
}

#[test]
fn every_size_is_drawn() {
    let seen = seen(By::Site);
    let sites = ordered(&seen, Column::Live);
    let whole = picture(&seen, &sites);
    let ended = Sampled { ended: Some("the process has ended"), ..whole.sampled };
    let bare = Picture { sampled: ended, seen: None, sites: &[], color: true };
    let states = [
        look(),
        Look { help: Some(1000), ..look() },
        Look { opened: Some(sites[0].id), part: 1000, ..look() },
        Look { opened: Some(1_000_000), ..look() },
        Look { typing: Some(String::new()), ..look() },
        Look { first: 58, selected: 58, message: Some("written".into()), ..look() },
    ];
    for state in &states {
        for width in (0..200).step_by(7) {
            for height in [0, 1, 2, 4, 5, 6, 9, 24, 60] {
                lines(state, &whole, width, height);
                lines(state, &bare, width, height);
            }
        }
    }
    let screen = lines(&look(), &bare, 100, 10);
    assert!(screen[0].contains("ENDED: the process has ended"), "{screen:#?}");
    assert!(screen[3].contains("no block was drawn yet"), "{screen:#?}");
}

#[test]
fn the_table_says_what_grows() {
    let seen = seen(By::Site);
    let sites = ordered(&seen, Column::Live);
    let screen = lines(&look(), &picture(&seen, &sites), 120, 24);
    assert!(screen[0].contains("4711 server  one sample in 4.00 KiB"), "{screen:#?}");
    assert!(screen[2].contains("TREND") && screen[2].contains("site: 59 of 59"), "{screen:#?}");
    assert!(screen[3].contains('\u{2191}') && screen[3].contains("0x1000"), "{screen:#?}");
    assert!(screen[5].contains('\u{2264}'), "of few draws there is a bound: {screen:#?}");
    // A narrow screen has what matters, and what is sorted by.
    let narrow = lines(&look(), &picture(&seen, &sites), 60, 24);
    assert!(narrow[2].contains("LIVE") && narrow[2].contains("LAST") && narrow[2].contains("SITE"));
    assert!(!narrow[2].contains("BLOCKS"), "{narrow:#?}");
    let mut sorted = look();
    sorted.order.sort = Column::Blocks;
    assert!(lines(&sorted, &picture(&seen, &sites), 60, 24)[2].contains("BLOCKS"));
}

#[test]
fn an_open_site_has_its_callers() {
    let seen = seen(By::Site);
    let sites = ordered(&seen, Column::Live);
    let open = |site: &Site| Look { opened: Some(site.id), ..look() };
    let screen = lines(&open(&sites[0]), &picture(&seen, &sites), 80, 24).join("\n");
    for part in ["0x1000", "LIVE", "HALF", "longer", "LIVE THROUGH ITS CALLERS", "0x3c000"] {
        assert!(screen.contains(part), "no {part} in\n{screen}");
    }
    let churned = &ordered(&seen, Column::Bytes)[1];
    let screen = lines(&open(churned), &picture(&seen, &sites), 80, 24).join("\n");
    assert!(screen.contains("ITS LARGEST CALL STACK") && screen.contains("0x3c000"), "{screen}");
}

#[test]
fn without_colour_no_cell_has_one() {
    let seen = seen(By::Site);
    let sites = ordered(&seen, Column::Live);
    let area = Rect::new(0, 0, 120, 24);
    for color in [false, true] {
        let mut buffer = Buffer::empty(area);
        let state = Look { selected: 5, ..look() };
        draw(&mut buffer, area, &state, &Picture { color, ..picture(&seen, &sites) });
        assert_eq!(buffer.content().iter().any(|cell| cell.fg != Color::Reset), color);
    }
}

#[test]
fn text_and_json_are_of_the_same_frame() {
    let seen = seen(By::Site);
    let sites = ordered(&seen, Column::Live);
    let frame = Frame {
        number: 2,
        sampled: Sampled { lost: 3, ..picture(&seen, &sites).sampled },
        sort: Column::Live,
        seen: &seen,
        sites: &sites[..2],
    };
    let text = frame.text(quarry_report::style::Style::default());
    assert!(
        text.starts_with("\nprocess 4711 server: live ")
            && text.contains("; in all 5.00 MiB, ")
            && text.contains(" samples, 3 missing, one in 4.00 KiB"),
        "{text}"
    );
    assert!(text.contains("0x1000") && text.ends_with("\nand 57 more\n"), "{text}");
    let json = frame.json();
    assert_eq!((json["schema"].as_str(), json["group_count"].as_u64()), (Some(SCHEMA_NAME), Some(59)));
    assert_eq!(json["heap_live_bytes"], 5 << 20);
    let first = &json["groups"][0];
    assert_eq!(first["live_bytes"], sites[0].live.bytes.value());
    assert!(first["live_bytes_interval"].is_array() && first["last_growth"]["sure"] == true, "{first:#}");
    assert_eq!(first["frames"][1], "0x3c000");
    assert!(
        first["half_life_ns"].is_null()
            && json["totals"]["live_bytes"].as_u64() > first["live_bytes"].as_u64()
    );
}

const SCHEMA_NAME: &str = "quarry-profile-live/1";
