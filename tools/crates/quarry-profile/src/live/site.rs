// SPDX-License-Identifier: MIT
//! A row of the view: what one site, function or module has, and how that changes.

use std::cmp::Ordering;

use quarry_report::view::Order;

use super::column::Column;
use crate::model::{Live, Median};

/// What is more or less than before.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Change {
    /// Bytes.
    pub bytes: f64,
    /// Of a sample, the variance of these.
    pub variance: f64,
}

impl Change {
    /// Half of the 95 % interval.
    pub fn error(&self) -> f64 {
        1.96 * self.variance.sqrt()
    }

    /// Is it more than noise?
    pub fn is_sure(&self) -> bool {
        self.bytes != 0.0 && self.bytes.abs() > 2.0 * self.variance.sqrt()
    }

    pub(super) fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.variance += other.variance;
    }
}

/// A row.
#[derive(Debug, Clone)]
pub struct Site {
    /// Names it for as long as the view lasts.
    pub id: u32,
    /// What it is called.
    pub name: String,
    /// What is live.
    pub live: Live,
    /// Since changes are counted.
    pub grown: Change,
    /// In the last seconds.
    pub last: Change,
    /// Bytes allocated per second, in the last seconds.
    pub bytes_rate: f64,
    /// Allocations per second, likewise.
    pub calls_rate: f64,
    /// When half of the blocks have ended, in nanoseconds.
    pub half: Median,
    /// Bytes live in each of the last frames, the oldest first.
    pub trend: Vec<f64>,
    /// Its rows of the profile.
    pub rows: Vec<u32>,
    /// The call that has most of it.
    pub heaviest: u32,
}

/// Numbers from the largest on, names by letters; the other way round where that is wanted.
pub fn sort(sites: &mut [Site], order: &Order<Column>) {
    sites.sort_by(|one, other| {
        let by_value = match order.sort {
            Column::Site => one.name.cmp(&other.name),
            column => column.sort_key(other).partial_cmp(&column.sort_key(one)).unwrap_or(Ordering::Equal),
        };
        let by_value = if order.reverse { by_value.reverse() } else { by_value };
        by_value.then_with(|| one.name.cmp(&other.name))
    });
}
