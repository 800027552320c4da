// SPDX-License-Identifier: MIT
//! The address space as a list of regions that fit into a picture.

use quarry_proc::classify::{Class, Kind, Quadrant};
use quarry_proc::counters::Field;
use quarry_proc::mapping::Mapping;
use quarry_proc::shown;

use super::view::{View, describe, mapping_name};

/// Unmapped space from which on it is shown.
const GAP: u64 = 16 << 20;

/// Mappings that lie together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    pub start: u64,
    pub end: u64,
    /// Unmapped space before it, since the region before.
    pub gap: u64,
    pub count: usize,
    pub size: u64,
    /// `None` where it is not known; then what a core file has of it stands in its place.
    pub resident: Option<u64>,
    pub swap: u64,
    pub quadrant: Quadrant,
    pub label: String,
    /// Several regions that are too small to be shown one by one.
    pub folded: bool,
}

impl Region {
    fn of(view: &View, index: usize) -> Self {
        let (mapping, class) = (&view.space.mappings[index], &view.classes[index]);
        Self {
            start: mapping.start,
            end: mapping.end,
            gap: 0,
            count: 1,
            size: mapping.size(),
            resident: mapping.counters.get(Field::Rss).or(mapping.dumped),
            swap: mapping.counters.value(Field::Swap),
            quadrant: class.quadrant,
            label: label(view, mapping, class),
            folded: false,
        }
    }

    fn join(&mut self, other: &Region) {
        self.end = self.end.max(other.end);
        self.count += other.count;
        // The quadrant of the larger part colours the whole.
        if other.size > self.size {
            self.quadrant = other.quadrant;
        }
        self.size = self.size.saturating_add(other.size);
        self.swap = self.swap.saturating_add(other.swap);
        self.resident = match (self.resident, other.resident) {
            (Some(one), Some(more)) => Some(one.saturating_add(more)),
            (one, more) => one.or(more),
        };
    }

    /// What is in memory of it, from 0 to 1.
    pub fn share(&self) -> f64 {
        let resident = self.resident.unwrap_or(0).min(self.size);
        if self.size == 0 { 0.0 } else { resident as f64 / self.size as f64 }
    }

    /// How long its bar is, from 0 to 1: sizes differ by many powers of ten, so it is their logarithm.
    pub fn length(&self, page: u64, largest: u64) -> f64 {
        let doublings = |size: u64| (size.max(page) as f64 / page as f64).log2();
        (1.0 + doublings(self.size)) / (1.0 + doublings(largest.max(page)))
    }
}

/// What is written beside a mapping: for parts of a program or library its file alone, since they are joined.
fn label(view: &View, mapping: &Mapping, class: &Class) -> String {
    let file = class.kind.is_program() && !class.object.is_empty();
    let base = class.object.rsplit('/').next().unwrap_or_default();
    match () {
        () if file => shown(base),
        () if class.sections.is_empty() && !class.threads.is_empty() => {
            mapping_name(view.space, mapping, class)
        }
        () if class.object.is_empty() && mapping.name.is_empty() => describe(class.kind).to_owned(),
        () if class.object.starts_with('/') => format!("{} ({})", shown(base), class.kind.name()),
        () => mapping_name(view.space, mapping, class),
    }
}

/// At most so many regions (0: all), by address. Neighbours of the same label are one; what is small is folded.
pub fn regions(view: &View, most: usize) -> Vec<Region> {
    let mut all: Vec<Region> = Vec::new();
    // The page at the other end of all addresses is the same everywhere and would only stretch the picture.
    let drawn = |&index: &usize| view.wanted[index] && view.classes[index].kind != Kind::Vsyscall;
    for index in (0..view.space.mappings.len()).filter(drawn) {
        let region = Region::of(view, index);
        match all.last_mut() {
            Some(last) if last.label == region.label && region.start.saturating_sub(last.end) < GAP => {
                last.join(&region)
            }
            _ => all.push(region),
        }
    }
    let mut shown = fold(all, most);
    for at in 1..shown.len() {
        let gap = shown[at].start.saturating_sub(shown[at - 1].end);
        shown[at].gap = if gap >= GAP { gap } else { 0 };
    }
    shown
}

/// Keep those with most memory; the others between two of them become one.
fn fold(all: Vec<Region>, most: usize) -> Vec<Region> {
    if most == 0 || all.len() <= most {
        return all;
    }
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|&at| std::cmp::Reverse((all[at].resident, all[at].size)));
    // Between two that are kept there may be one that stands for the rest.
    let mut kept = vec![false; all.len()];
    order.iter().take(most.div_ceil(2)).for_each(|&at| kept[at] = true);
    let mut shown: Vec<Region> = Vec::new();
    for (region, kept) in all.into_iter().zip(kept) {
        match shown.last_mut() {
            Some(last) if !kept && last.folded => last.join(&region),
            _ => shown.push(Region { folded: !kept, ..region }),
        }
    }
    for region in shown.iter_mut().filter(|region| region.folded && region.count > 1) {
        region.label = format!("{} small mappings", region.count);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(start: u64, size: u64, resident: u64) -> Region {
        Region {
            start,
            end: start + size,
            gap: 0,
            count: 1,
            size,
            resident: Some(resident),
            swap: 0,
            quadrant: Quadrant::PrivateAnonymous,
            label: format!("at {start}"),
            folded: false,
        }
    }

    #[test]
    fn small_ones_between_large_ones_are_one() {
        let all: Vec<Region> = (0..9).map(|at| region(at * 10, 10, if at == 4 { 9 } else { 1 })).collect();
        assert_eq!(fold(all.clone(), 0), all);
        assert_eq!(fold(all.clone(), 9), all);
        let shown = fold(all, 2);
        assert_eq!(shown.len(), 3);
        assert_eq!((shown[0].count, shown[1].count, shown[2].count), (4, 1, 4));
        assert_eq!((shown[0].size, shown[0].resident), (40, Some(4)));
        assert_eq!((shown[0].label.as_str(), shown[1].label.as_str()), ("4 small mappings", "at 40"));
    }

    #[test]
    fn bars_grow_with_the_logarithm() {
        let one = |size| region(0, size, 0).length(4096, 1 << 40);
        assert!((one(1 << 40) - 1.0).abs() < 1e-9);
        assert!(one(4096) > 0.0 && one(0) == one(4096));
        assert!((one(1 << 30) - one(1 << 20) - (one(1 << 20) - one(1 << 10 << 2)) * 10.0 / 8.0).abs() < 1e-9);
        assert_eq!(region(0, 8, 4).share(), 0.5);
        assert_eq!(region(0, 0, 4).share(), 0.0);
    }
}
