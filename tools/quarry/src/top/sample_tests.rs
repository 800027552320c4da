// SPDX-License-Identifier: MIT
//! Frames of a /proc that is made here: rates, ranks, and what the ranking reads.

use std::fs;
use std::path::Path;

use super::*;
use quarry_report::top::Column;
use quarry_report::view;

use crate::top::App;
use crate::top::options::TopOptions;

type Order = view::Order<Column>;

/// A process with `pages` pages. A tenth of them is its proportional share, and another tenth is in swap.
fn process(root: &Path, pid: u32, started: u64, faults: u64, pages: u64) {
    let folder = root.join(pid.to_string());
    fs::create_dir_all(&folder).unwrap();
    let stat = format!(
        "{pid} (p{pid}) S 1 1 1 0 -1 4194304 {faults} 0 {} 0 5 6 0 0 20 0 1 0 {started} 4096 {pages} \
         18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
        faults / 10
    );
    fs::write(folder.join("stat"), stat).unwrap();
    fs::write(folder.join("statm"), format!("{} {pages} 1 2 0 3 0\n", pages * 2)).unwrap();
    let kib = pages * page_size() / 1024;
    let status = format!("Name:\tp{pid}\nVmRSS:\t{kib} kB\nRssAnon:\t{kib} kB\nVmSwap:\t{} kB\n", kib / 10);
    fs::write(folder.join("status"), status).unwrap();
    let rollup = format!(
        "00000000-7fff00000000 ---p 00000000 00:00 0  [rollup]\nRss: {kib} kB\nPss: {} kB\nPrivate_Clean: 0 kB\n\
         Private_Dirty: {} kB\n",
        kib / 10,
        kib / 20
    );
    fs::write(folder.join("smaps_rollup"), rollup).unwrap();
}

fn order(sort: Column) -> Order {
    Order { sort, reverse: false, filter: String::new() }
}

fn app(root: &Path, sort: Column) -> App {
    let options = TopOptions {
        pid: None,
        proc: None,
        delay: Duration::from_secs(2),
        sort,
        reverse: false,
        filter: String::new(),
        frames: None,
        once: false,
        rows: 25,
        reports: Default::default(),
    };
    App::new(&options, Root::copy(root))
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn pids(rows: &[Row]) -> Vec<u32> {
    rows.iter().map(|row| row.pid).collect()
}

#[test]
fn rates_are_per_second_and_of_the_same_process() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let page = page_size() as f64;
    process(root, 1, 100, 1000, 50);
    process(root, 2, 100, 1000, 50);
    let mut watch = Watch::new(Root::copy(root));
    let first = watch.frame(seconds(10), |_| true).unwrap();
    assert!(first.iter().all(|row| row.faults.is_none() && row.growth.is_none() && row.grown.is_none()));
    process(root, 1, 100, 1200, 40);
    // The number is another process's now, and a new one came.
    process(root, 2, 300, 5, 70);
    process(root, 3, 300, 5, 70);
    let rows = watch.frame(seconds(14), |_| true).unwrap();
    assert_eq!((rows[0].faults, rows[0].major), (Some(55.0), Some(5.0)));
    assert_eq!((rows[0].growth, rows[0].grown), (Some(-2.5 * page), Some(-10.0 * page)));
    for row in &rows[1..] {
        assert_eq!((row.faults, row.growth, row.grown), (None, None, None));
    }
    process(root, 1, 100, 1200, 45);
    fs::remove_dir_all(root.join("2")).unwrap();
    let rows = watch.frame(seconds(15), |_| true).unwrap();
    assert_eq!(pids(&rows), [1, 3]);
    assert_eq!((rows[0].growth, rows[0].grown), (Some(5.0 * page), Some(-5.0 * page)));
    // No time has passed: no rates, and no division by it.
    assert_eq!(watch.frame(seconds(15), |_| true).unwrap()[0].faults, None);
}

#[test]
fn only_visible_rows_are_dear() {
    let folder = tempfile::tempdir().unwrap();
    for pid in 1..=600 {
        process(folder.path(), pid, 1, 0, u64::from(pid) * 10);
    }
    let mut app = app(folder.path(), Column::Res);
    (app.state.look.page, app.state.look.first, app.state.look.selected) = (20, 100, 100);
    app.read().unwrap();
    assert_eq!(pids(&app.rows[..3]), [600, 599, 598]);
    assert_eq!(app.watch.asked(), 40, "status and smaps_rollup of 20");
    let read: Vec<bool> = app.rows.iter().map(|row| row.rollup.pss.is_some()).collect();
    assert_eq!(read, (0..600).map(|index| (100..120).contains(&index)).collect::<Vec<_>>());
    // A key reads what came onto the screen, and nothing twice.
    (app.state.look.first, app.state.look.selected) = (105, 105);
    app.rank();
    assert_eq!(app.watch.asked(), 50);

    // PSS is a tenth of RES, and only whoever has less RES than the 20th has PSS cannot be among them.
    app.state.look.first = 0;
    app.state.look.selected = 0;
    app.state.look.order.sort = Column::Pss;
    fs::write(folder.path().join("590/smaps_rollup"), "[nothing").unwrap();
    app.read().unwrap();
    assert!(!app.ranked.exact, "that is more than a frame reads");
    assert_eq!(pids(&app.rows[..3]), [600, 599, 598]);
    assert!(app.watch.asked() <= 512 + 20, "{}", app.watch.asked());
    assert!(pids(&app.rows[..20]).iter().all(|pid| *pid != 590));

    // What is anonymous at most, statm says.
    app.state.look.order.sort = Column::Anon;
    app.read().unwrap();
    assert_eq!((app.ranked.exact, pids(&app.rows[..3])), (true, vec![600, 599, 598]));
    assert_eq!(app.watch.asked(), 40);

    app.state.look.page = 5;
    app.state.look.order = Order { filter: "p5".into(), ..order(Column::Uss) };
    app.read().unwrap();
    assert_eq!((app.ranked.matching, app.ranked.exact), (111, true));
    assert_eq!(pids(&app.rows[..5]), [599, 598, 597, 596, 595]);
    app.state.look.order.reverse = true;
    app.read().unwrap();
    assert_eq!(pids(&app.shown()[..3]), [5, 50, 51]);
}

/// What changes between the list of processes and the dear files of one of them is not mixed in its row.
#[test]
fn a_row_is_of_one_moment() {
    let folder = tempfile::tempdir().unwrap();
    process(folder.path(), 7, 1, 0, 100);
    let mut watch = Watch::new(Root::copy(folder.path()));
    let mut rows = watch.frame(Duration::ZERO, |_| true).unwrap();
    let before = rows[0].res;
    // It has grown since.
    process(folder.path(), 7, 1, 0, 5000);
    watch.read_all(&mut rows[0]);
    let (res, pss) = (rows[0].res, rows[0].rollup.pss);
    assert!(res > before && pss.is_some() && pss <= res, "{:?}", rows[0]);
    // Once in a frame.
    let asked = watch.asked();
    process(folder.path(), 7, 1, 0, 9000);
    watch.read_all(&mut rows[0]);
    assert_eq!((watch.asked(), rows[0].res), (asked, res));
}

#[test]
fn the_cursor_takes_the_order_along() {
    let folder = tempfile::tempdir().unwrap();
    for pid in 1..=100 {
        process(folder.path(), pid, 1, 0, u64::from(pid) * 10);
    }
    let mut app = app(folder.path(), Column::Pid);
    (app.state.look.page, app.state.follow) = (10, Some(12));
    app.read().unwrap();
    assert_eq!((app.state.look.first, app.state.look.selected), (2, 11));
    app.state.look.order.sort = Column::Pss;
    app.rank();
    let (first, selected) = (app.state.look.first, app.state.look.selected);
    assert_eq!((app.shown()[selected].pid, first), (12, 79));
    assert_eq!(pids(&app.shown()[first..first + 10]), (12..=21).rev().collect::<Vec<_>>());
    assert!(
        app.shown()[first..first + 10]
            .iter()
            .all(|row| row.rollup.pss.is_some() && row.status.swap.is_some())
    );
}

#[test]
fn without_swap_nothing_is_read_to_sort_by_it() {
    let folder = tempfile::tempdir().unwrap();
    for pid in 1..=50 {
        process(folder.path(), pid, 1, 0, u64::from(pid));
    }
    let mut app = app(folder.path(), Column::Swap);
    app.state.look.page = 2;
    app.read().unwrap();
    // What the machine has is not known here, so all are looked at.
    assert_eq!((app.rows[0].pid, app.ranked.exact), (50, true));
    fs::write(folder.path().join("meminfo"), "MemTotal: 1000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n").unwrap();
    app.read().unwrap();
    assert!(app.watch.asked() <= 5, "{}", app.watch.asked());
}

#[test]
fn what_has_no_memory_has_none_of_any_kind() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    process(root, 2, 1, 0, 0);
    process(root, 3, 1, 0, 100);
    // A thread of the kernel has no such lines, and neither has a process of a kernel that does not count them.
    for pid in [2, 3] {
        fs::write(root.join(format!("{pid}/status")), "Name:\tname\n").unwrap();
        fs::write(root.join(format!("{pid}/smaps_rollup")), "").unwrap();
    }
    let mut app = app(root, Column::Res);
    app.state.look.page = 2;
    app.read().unwrap();
    let dear = [Column::Swap, Column::Anon, Column::File, Column::Shm, Column::Pss, Column::Uss];
    let values = |row: usize| dear.map(|column| column.bytes(&app.rows[row]));
    assert_eq!((values(0), values(1)), ([None; 6], [Some(0); 6]));
    assert_eq!(Column::Swap.cell(&app.rows[0], None), "-");
    assert_eq!((app.rows[1].missing, app.watch.asked()), (None, 2));
}
