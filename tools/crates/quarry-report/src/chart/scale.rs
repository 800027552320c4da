// SPDX-License-Identifier: MIT
//! From values to places on an axis, and where it has marks.

use super::Unit;

/// One axis.
#[derive(Debug, Clone, Default)]
pub struct Axis {
    /// What is along it.
    pub label: String,
    /// Of the numbers.
    pub unit: Unit,
    /// In steps of a factor.
    pub log: bool,
    /// Marks at these values, where given.
    pub at: Vec<f64>,
    /// Its ends, where they are not those of what is shown.
    pub ends: Option<(f64, f64)>,
}

/// From values to places.
pub struct Scale {
    pub low: f64,
    pub high: f64,
    pub ticks: Vec<f64>,
    log: bool,
}

impl Scale {
    /// `zero`: it begins there and has some room at its other end, unless it has steps of a factor.
    pub fn new(axis: &Axis, values: impl Iterator<Item = f64>, zero: bool) -> Self {
        let values: Vec<f64> = values.filter(|v| v.is_finite() && (!axis.log || *v > 0.0)).collect();
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in &values {
            (low, high) = (low.min(*value), high.max(*value));
        }
        if values.is_empty() {
            (low, high) = (1.0, 2.0);
        }
        if axis.log {
            return Self::log(axis, low, high);
        }
        if zero {
            low = low.min(0.0);
            high += (high - low) * 0.05;
        }
        (low, high) = axis.ends.unwrap_or((low, high));
        if high <= low {
            high = low + 1.0;
        }
        let ticks = if axis.at.is_empty() { linear_ticks(low, high, axis.unit) } else { axis.at.clone() };
        Self { low, high, log: false, ticks }
    }

    fn log(axis: &Axis, low: f64, high: f64) -> Self {
        let high = if high > low { high } else { low * 2.0 };
        if !axis.at.is_empty() {
            return Self { low, high, log: true, ticks: axis.at.clone() };
        }
        let base: f64 = if matches!(axis.unit, Unit::Bytes | Unit::Kib) { 4.0 } else { 10.0 };
        let (first, last) = (low.log(base).floor() as i32, high.log(base).ceil() as i32);
        let step = ((last - first) as usize).saturating_sub(1) / 8 + 1;
        let mut ticks: Vec<f64> = (first..=last).step_by(step).map(|power| base.powi(power)).collect();
        let (low, high) = (base.powi(first), base.powi(last.max(first + 1)));
        if ticks.len() < 4 && base > 5.0 {
            let more: Vec<f64> = ticks.iter().flat_map(|tick| [*tick, tick * 2.0, tick * 5.0]).collect();
            ticks = more.into_iter().filter(|tick| *tick <= high).collect();
        }
        Self { low, high, log: true, ticks }
    }

    /// From 0 to 1.
    pub fn place(&self, value: f64) -> f64 {
        if self.log {
            (value.max(self.low * 1e-3) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        }
    }

    /// The marks between its ends.
    pub fn marks(&self) -> impl Iterator<Item = f64> {
        self.ticks.iter().copied().filter(|tick| (-0.001..=1.001).contains(&self.place(*tick)))
    }
}

/// Some six round numbers; of bytes, powers of two.
fn linear_ticks(low: f64, high: f64, unit: Unit) -> Vec<f64> {
    let factor = unit.factor(high);
    let rough = (high - low) / factor / 6.0;
    let step = if matches!(unit, Unit::Bytes | Unit::Kib) {
        factor * rough.log2().ceil().exp2().max(1.0 / 1024.0)
    } else {
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * power).find(|step| *step >= rough);
        step.unwrap_or(rough).max(unit.finest(high - low))
    };
    let first = (low / step).ceil();
    (0..20).map(|n| (first + f64::from(n)) * step).take_while(|tick| *tick <= high * (1.0 + 1e-9)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_at_round_numbers() {
        const MIB: f64 = 1048576.0;
        assert_eq!(linear_ticks(0.0, 10.0, Unit::Seconds), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(linear_ticks(0.0, 96.0 * MIB, Unit::Bytes)[1], 16.0 * MIB);
        assert_eq!(linear_ticks(0.0, 1.05 * MIB, Unit::Bytes), [0.0, 0.25, 0.5, 0.75, 1.0].map(|n| n * MIB));
        assert_eq!(linear_ticks(0.0, 703.0, Unit::Count).len(), 4);
        assert_eq!(linear_ticks(0.0, 3.0, Unit::Count), [0.0, 1.0, 2.0, 3.0]);
        assert_eq!(linear_ticks(0.0, 1.0, Unit::Count).len(), 6);
        assert_eq!(linear_ticks(0.0, 1.05, Unit::Bytes).len(), 5);
        let most = u64::MAX as f64;
        assert!((3..10).contains(&linear_ticks(0.0, most, Unit::Bytes).len()));
        let axis = Axis { unit: Unit::Nanoseconds, log: true, ..Axis::default() };
        let scale = Scale::new(&axis, [3.0, 45_000.0].into_iter(), true);
        assert_eq!((scale.low, scale.high), (1.0, 100_000.0));
        assert!((scale.place(1000.0) - 0.6).abs() < 1e-9);
        let flat = Scale::new(&Axis { log: false, ..axis }, [5.0, 5.0].into_iter(), true);
        assert!(flat.low == 0.0 && flat.high > 5.0 && flat.ticks.len() > 3);
        let fixed = Axis { ends: Some((0.0, 100.0)), ..Axis::default() };
        assert_eq!(Scale::new(&fixed, [5.0, 50.0].into_iter(), false).high, 100.0);
    }
}
