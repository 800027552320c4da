// SPDX-License-Identifier: MIT
//! The order of rows, reading as little as that takes.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use quarry_report::top::{Column, Needs, Row, most};
use quarry_report::view;

type Order = view::Order<Column>;

use super::sample::Watch;

/// How a ranking was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ranked {
    /// Rows that the filter lets through. They are the first.
    pub matching: usize,
    /// The order is that of all rows, not of a part of them.
    pub exact: bool,
}

/// Put the rows that the filter lets through before all others, and order them so that rows `first` to `first + count` are
/// those that belong there. What was read for it stays in the rows.
pub fn rank(watch: &mut Watch, rows: &mut [Row], order: &Order, first: usize, count: usize) -> Ranked {
    rows.sort_by_cached_key(|row| !row.matches(&order.filter));
    let matching = rows.partition_point(|row| row.matches(&order.filter));
    let rows = &mut rows[..matching];
    let exact = match order.sort.needs() {
        Needs::Nothing => true,
        _ if order.reverse => read_smallest(watch, rows, order, count),
        _ => read_largest(watch, rows, order, first.saturating_add(count).min(matching), count),
    };
    sort(rows, order);
    Ranked { matching, exact }
}

/// Read what a column needs.
fn read(watch: &mut Watch, row: &mut Row, column: Column) {
    match column.needs() {
        Needs::Nothing => {}
        Needs::Status => watch.read_status(row),
        Needs::Rollup => watch.read_rollup(row),
    }
}

/// No process has more in this column than that, by what is known of it already: RES is ANON and SHR, and SHR is FILE and SHM.
fn bound(column: Column, row: &Row, swap_used: Option<u64>) -> u64 {
    let (res, shr) = (row.res.unwrap_or(0), row.shr.unwrap_or(0));
    match column {
        Column::Swap => row.virt.unwrap_or(0).min(swap_used.unwrap_or(u64::MAX)),
        Column::Anon => res.saturating_sub(shr),
        Column::File | Column::Shm => shr,
        _ => res,
    }
}

/// Read what makes the `end` largest known: rows are read in the order of what they have at most, until no other can be among
/// them. False: that was too much.
fn read_largest(watch: &mut Watch, rows: &mut [Row], order: &Order, end: usize, count: usize) -> bool {
    let swap_used = watch.swap_used();
    rows.sort_by_key(|row| Reverse((bound(order.sort, row, swap_used), Reverse(row.pid))));
    let mut best: BinaryHeap<Reverse<u64>> = BinaryHeap::new();
    for (looked_at, row) in rows.iter_mut().enumerate() {
        let least = best.peek().map_or(0, |Reverse(least)| *least);
        if best.len() >= end && bound(order.sort, row, swap_used) <= least {
            return true;
        }
        if looked_at >= most(count) {
            return false;
        }
        read(watch, row, order.sort);
        if let Some(value) = order.sort.bytes(row) {
            best.push(Reverse(value));
            if best.len() > end {
                best.pop();
            }
        }
    }
    true
}

/// The smallest cannot be told without looking at all.
fn read_smallest(watch: &mut Watch, rows: &mut [Row], order: &Order, count: usize) -> bool {
    let most = most(count);
    rows.sort_by_key(|row| (bound(order.sort, row, None), row.pid));
    for row in rows.iter_mut().take(most) {
        read(watch, row, order.sort);
    }
    rows.len() <= most
}

/// By what is known; what is not known comes last, by what it may be. Equals are ordered by number.
pub fn sort(rows: &mut [Row], order: &Order) {
    let column = order.sort;
    // Letters and numbers of processes are wanted from the beginning, sizes from the end.
    let ascending = matches!(column, Column::Pid | Column::State | Column::Command) != order.reverse;
    rows.sort_by(|one, other| {
        let by_value = match (column.sort_key(one), column.sort_key(other)) {
            (Some(one), Some(other)) => {
                let order = one.partial_cmp(&other).unwrap_or(Ordering::Equal);
                if ascending { order } else { order.reverse() }
            }
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => bound(column, other, None).cmp(&bound(column, one, None)),
        };
        by_value.then(one.pid.cmp(&other.pid))
    });
}
