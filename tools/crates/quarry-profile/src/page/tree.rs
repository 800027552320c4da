// SPDX-License-Identifier: MIT
//! The tree of calls of a page: what each call has of its own, in either direction, with small branches joined.

use std::collections::HashMap;

use quarry_trace::sample::Estimate;
use serde_json::{Value, json};

use crate::calls::ROOT;
use crate::estimate::FEW;
use crate::model::{Entry, join_equal};

/// Entries over time in a tree. With more, spans are joined.
const ENTRIES: usize = 50_000;
/// The label of calls that are joined.
pub const OTHERS: u32 = 0;

/// A sum of a sample.
#[derive(Debug, Clone, Copy, Default)]
pub struct Drawn {
    /// The sum.
    pub sum: Estimate,
    /// Blocks in the trace that it comes from.
    pub blocks: u64,
}

impl Drawn {
    fn add(&mut self, other: &Self) {
        self.sum += other.sum;
        self.blocks = self.blocks.wrapping_add(other.blocks);
    }

    /// It, and the bounds of its interval. The lower one is null where the upper bound is all that can be said.
    fn bounds(&self) -> [Value; 3] {
        let (low, high) = self.sum.interval();
        let low = if low != high && self.blocks < FEW { Value::Null } else { json!(low) };
        [json!(self.sum.value()), low, json!(high)]
    }
}

/// What a call has of its own.
#[derive(Debug, Clone, Default)]
pub struct Own {
    /// Sums, which all calls of a tree have in the same order.
    pub values: Vec<f64>,
    /// What changed over time.
    pub series: Vec<Entry>,
    /// Of a sample: some of the sums with their intervals, likewise in one order.
    pub drawn: Vec<Drawn>,
    /// Of a comparison: the variance of the difference.
    pub variance: f64,
}

impl Own {
    fn is_empty(&self) -> bool {
        self.values.iter().all(|value| *value == 0.0)
    }

    fn add_sums(&mut self, other: &Self) {
        self.values.resize(self.values.len().max(other.values.len()), 0.0);
        self.values.iter_mut().zip(&other.values).for_each(|(value, more)| *value += more);
        self.drawn.resize(self.drawn.len().max(other.drawn.len()), Drawn::default());
        self.drawn.iter_mut().zip(&other.drawn).for_each(|(sum, more)| sum.add(more));
        self.variance += other.variance;
    }

    /// Take in what another call has.
    pub fn add(&mut self, other: &Self) {
        self.add_sums(other);
        if self.series.is_empty() {
            self.series.clone_from(&other.series);
        } else {
            self.series.extend_from_slice(&other.series);
            self.series.sort_by_key(|entry| entry.span);
            join_equal(&mut self.series);
        }
    }
}

/// A tree of calls. Labels have numbers.
#[derive(Debug, Default)]
pub struct Tree {
    /// Caller and label; a call comes after its caller, and the first one is the root.
    pub calls: Vec<(u32, u32)>,
    /// By call.
    pub own: Vec<Own>,
}

/// Are these sums large enough to be shown, in any respect?
fn is_kept(sums: &[f64], whole: &[f64], least: f64) -> bool {
    sums.iter().zip(whole).any(|(sum, whole)| *whole > 0.0 && *sum >= whole * least)
}

fn add_positive(sums: &mut [f64], values: &[f64]) {
    sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value.max(0.0));
}

impl Tree {
    /// A tree that has its root only.
    pub fn of_root(label: u32) -> Self {
        Self { calls: vec![(ROOT, label)], own: vec![Own::default()] }
    }

    /// One more call.
    pub fn push(&mut self, parent: u32, label: u32) -> u32 {
        self.calls.push((parent, label));
        self.own.push(Own::default());
        self.calls.len() as u32 - 1
    }

    fn width(&self) -> usize {
        self.own.iter().map(|own| own.values.len()).max().unwrap_or(0)
    }

    /// By call: the sums of it and of all below.
    fn sums(&self) -> Vec<Vec<f64>> {
        let width = self.width();
        let mut sums = vec![vec![0.0; width]; self.calls.len()];
        sums.iter_mut().zip(&self.own).for_each(|(sums, own)| add_positive(sums, &own.values));
        for call in (1..self.calls.len()).rev() {
            let below = std::mem::take(&mut sums[call]);
            add_positive(&mut sums[self.calls[call].0 as usize], &below);
            sums[call] = below;
        }
        sums
    }

    /// Without the calls whose part of the whole is below `least` in every respect.
    pub fn pruned(&self, least: f64) -> Self {
        let sums = self.sums();
        let mut tree = Self::of_root(self.calls[0].1);
        tree.own[0] = self.own[0].clone();
        let mut place = vec![ROOT; self.calls.len()];
        let mut joined: HashMap<u32, u32> = HashMap::new();
        let mut is_joined = vec![false; self.calls.len()];
        for call in 1..self.calls.len() {
            let (up, label) = self.calls[call];
            let parent = place[up as usize];
            let small = label == OTHERS || !is_kept(&sums[call], &sums[0], least);
            is_joined[call] = is_joined[up as usize] || small;
            place[call] = if is_joined[up as usize] {
                parent
            } else if is_joined[call] {
                *joined.entry(parent).or_insert_with(|| tree.push(parent, OTHERS))
            } else {
                tree.push(parent, label)
            };
            tree.own[place[call] as usize].add(&self.own[call]);
        }
        tree
    }

    /// From the places where something is to their callers, without what is small. A label has one branch, whichever calls have it.
    pub fn inverted(&self, least: f64) -> Self {
        let mut tree = Self::of_root(self.calls[0].1);
        tree.own[0] = self.own[0].clone();
        let mut whole = vec![0.0; self.width()];
        self.own.iter().for_each(|own| add_positive(&mut whole, &own.values));
        // A call that has something, and how far up its callers are known to be the same as those of its neighbours.
        let places = (1..self.calls.len() as u32).filter(|&call| !self.own[call as usize].is_empty());
        let mut ahead = vec![(ROOT, places.map(|call| (call, call)).collect::<Vec<(u32, u32)>>())];
        while let Some((node, mut places)) = ahead.pop() {
            places.sort_unstable_by_key(|&(call, at)| (self.calls[at as usize].1, call));
            let mut others = None;
            for same in places.chunk_by(|a, b| self.calls[a.1 as usize].1 == self.calls[b.1 as usize].1) {
                let mut sums = vec![0.0; whole.len()];
                same.iter().for_each(|place| add_positive(&mut sums, &self.own[place.0 as usize].values));
                let label = self.calls[same[0].1 as usize].1;
                if label == OTHERS || !is_kept(&sums, &whole, least) {
                    let to = *others.get_or_insert_with(|| tree.push(node, OTHERS)) as usize;
                    same.iter().for_each(|place| tree.own[to].add(&self.own[place.0 as usize]));
                    continue;
                }
                let next = tree.push(node, label);
                let mut callers = Vec::new();
                for &(call, at) in same {
                    match self.calls[at as usize].0 {
                        ROOT => tree.own[next as usize].add(&self.own[call as usize]),
                        up => callers.push((call, up)),
                    }
                }
                if !callers.is_empty() {
                    ahead.push((next, callers));
                }
            }
        }
        tree
    }

    /// With spans joined, so that there are few enough entries: `joined` of them are one already, and the answer is how many are then.
    pub fn thin(&mut self, mut joined: u32, least: u32) -> u32 {
        let entries = |tree: &Self| tree.own.iter().map(|own| own.series.len()).sum::<usize>();
        while joined < least || (entries(self) > ENTRIES && joined < 512) {
            joined *= 2;
            for own in &mut self.own {
                own.series.iter_mut().for_each(|entry| entry.span /= 2);
                join_equal(&mut own.series);
                own.series.retain(|entry| entry.bytes != 0.0 || entry.born != 0.0);
            }
        }
        joined
    }

    /// By call that has something: number, sums, and what changed over time or, of a comparison, the variance.
    fn rows(&self) -> Value {
        let row = |(call, own): (usize, &Own)| {
            let values: Vec<i64> = own.values.iter().map(|value| value.round() as i64).collect();
            let flat = |entry: &Entry| {
                [i64::from(entry.span), entry.bytes.round() as i64, entry.born.round() as i64]
            };
            let series: Vec<i64> = own.series.iter().flat_map(flat).collect();
            match own.variance > 0.0 {
                true => json!([call, values, series, own.variance.round()]),
                false => json!([call, values, series]),
            }
        };
        self.own.iter().enumerate().filter(|(_, own)| !own.is_empty()).map(row).collect()
    }

    /// By call: what it and all below it have, with intervals. A sum of a sample is rounded once: rounded parts do not add up to it.
    fn bounds(&self) -> Value {
        let mut sums: Vec<Own> =
            self.own.iter().map(|own| Own { series: Vec::new(), ..own.clone() }).collect();
        for call in (1..self.calls.len()).rev() {
            let below = std::mem::take(&mut sums[call]);
            sums[self.calls[call].0 as usize].add_sums(&below);
            sums[call] = below;
        }
        let of = |own: &Own| own.drawn.iter().flat_map(Drawn::bounds).collect::<Value>();
        if sums[0].drawn.is_empty() { Value::Null } else { sums.iter().map(of).collect() }
    }

    /// For the page.
    pub fn json(&self, names: &mut Names) -> Value {
        let call = |(up, label): &(u32, u32)| json!([up, names.number(*label)]);
        let calls: Value = self.calls.iter().map(call).collect();
        json!({ "calls": calls, "rows": self.rows(), "bounds": self.bounds() })
    }
}

/// The labels that are on the page, by their numbers there.
#[derive(Debug)]
pub struct Names<'a> {
    all: &'a [String],
    numbers: HashMap<u32, u32>,
    /// In order.
    pub texts: Vec<&'a str>,
}

impl<'a> Names<'a> {
    /// None so far of all these.
    pub fn of(all: &'a [String]) -> Self {
        Self { all, numbers: HashMap::new(), texts: Vec::new() }
    }

    fn number(&mut self, label: u32) -> u32 {
        *self.numbers.entry(label).or_insert_with(|| {
            self.texts.push(&self.all[label as usize]);
            self.texts.len() as u32 - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `n` sites, a hundred callers, and three sites that have most.
    fn leaves(n: u32) -> Tree {
        let mut tree = Tree::of_root(1);
        let main = tree.push(ROOT, 2);
        let callers: Vec<u32> = (0..100).map(|at| tree.push(main, 3 + at)).collect();
        for at in 0..n {
            let call = tree.push(callers[at as usize % 100], 1000 + at) as usize;
            tree.own[call].values = vec![1.0 + f64::from(at % 7), if at < 3 { 1e6 } else { 1.0 }];
        }
        tree
    }

    fn all(tree: &Tree) -> Vec<f64> {
        let mut all = Own::default();
        tree.own.iter().for_each(|own| all.add(own));
        all.values
    }

    fn labels(tree: &Tree) -> Vec<u32> {
        tree.calls.iter().map(|call| call.1).collect()
    }

    #[test]
    fn what_is_joined_keeps_its_sum() {
        let tree = leaves(100_000);
        let small = tree.pruned(0.0005);
        assert_eq!(all(&small), all(&tree));
        assert!(small.calls.len() < 1000, "{} calls", small.calls.len());
        assert!(labels(&small).contains(&1000) && !labels(&small).contains(&1099));
        let others = labels(&small).iter().filter(|&&label| label == OTHERS).count();
        assert!((1..=102).contains(&others), "{others}");
        assert!(small.calls.iter().enumerate().skip(1).all(|(at, call)| (call.0 as usize) < at));
        // What was joined once is joined again, beside more.
        let smaller = small.pruned(0.1);
        assert_eq!(all(&smaller), all(&tree));
        assert!(smaller.calls.len() < 20, "{}", smaller.calls.len());
    }

    #[test]
    fn sites_are_whole_when_the_tree_is_inverted() {
        // A site that a thousand callers share: none of them is large, all of them together are.
        let mut tree = Tree::of_root(1);
        for at in 0..1000 {
            let caller = tree.push(ROOT, 10 + at);
            let site = tree.push(caller, 2) as usize;
            tree.own[site].values = vec![1.0];
        }
        let large = tree.push(ROOT, 3) as usize;
        tree.own[large].values = vec![1000.0];
        let up = tree.inverted(0.01);
        assert_eq!(all(&up), [2000.0]);
        let sums = up.sums();
        let site = up.calls.iter().position(|call| call.1 == 2).unwrap();
        assert_eq!((up.calls[site].0, sums[site][0]), (ROOT, 1000.0));
        assert_eq!(labels(&up).iter().filter(|&&label| label == OTHERS).count(), 1);
        assert!(up.calls.iter().enumerate().skip(1).all(|(at, call)| (call.0 as usize) < at));
        // With no threshold the callers are there, each with its part.
        let whole = tree.inverted(0.0);
        assert_eq!((whole.calls.len(), all(&whole)), (1 + 1 + 1000 + 1, vec![2000.0]));
        assert_eq!(all(&up.pruned(0.9)), [2000.0]);
    }

    #[test]
    fn what_has_no_stack_stays_at_the_root() {
        let mut tree = Tree::of_root(1);
        tree.own[0].values = vec![5.0];
        let site = tree.push(ROOT, 2) as usize;
        tree.own[site].values = vec![7.0];
        let up = tree.inverted(0.0);
        assert_eq!((up.own[0].values[0], all(&up)[0]), (5.0, 12.0));
    }

    #[test]
    fn spans_are_joined_until_they_fit() {
        let mut tree = leaves(1000);
        for own in tree.own.iter_mut().skip(1) {
            own.series = (0..512).map(|span| Entry { span, bytes: 1.0, born: 2.0 }).collect();
        }
        let born =
            |tree: &Tree| tree.own.iter().flat_map(|own| &own.series).map(|entry| entry.born).sum::<f32>();
        let before = born(&tree);
        let joined = tree.thin(1, 1);
        assert!(joined >= 8 && born(&tree) == before);
        assert!(tree.own.iter().map(|own| own.series.len()).sum::<usize>() <= ENTRIES);
        assert_eq!((tree.thin(joined, 2 * joined), born(&tree)), (2 * joined, before));
    }

    #[test]
    fn few_draws_have_an_upper_bound_only() {
        use quarry_trace::sample::Sampling;
        let weight = Sampling::one_in(1 << 20).weight(1000);
        let mut tree = Tree::of_root(1);
        for (label, blocks) in [(2, 4), (3, 50)] {
            let call = tree.push(ROOT, label) as usize;
            let mut sum = Estimate::default();
            (0..blocks).for_each(|_| sum.add(1000, weight));
            tree.own[call] = Own {
                values: vec![sum.value() as f64],
                drawn: vec![Drawn { sum, blocks }],
                ..Own::default()
            };
        }
        let bounds = tree.bounds();
        assert!(bounds[1][1].is_null());
        assert!(bounds[2][1].as_u64().unwrap() < 50 << 20 && bounds[2][2].as_u64().unwrap() > 50 << 20);
        // 54 blocks were drawn of both.
        assert!(bounds[0][1].as_u64().unwrap() > 30 << 20, "{bounds}");
    }
}
