// SPDX-License-Identifier: MIT
//! Programs of known sites, sampled by chance, and what they counted.

use quarry_trace::sample::Sampling;

use super::*;

const RATE: u64 = 1 << 14;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// What a site has: blocks of one size, so many.
type Site = Vec<(u64, u64)>;

fn class_of(size: u64) -> u64 {
    let step = (size.next_power_of_two() / 8).max(16);
    size.div_ceil(step) * step
}

fn sites(random: &mut Random, n: u64) -> Vec<Site> {
    let mut site = || {
        let sizes = 1 + random.below(3);
        (0..sizes).map(|_| (1 + random.below(2000), 500 + random.below(4000))).collect()
    };
    (0..n).map(|_| site()).collect()
}

/// What a process that has these counts.
fn counted(sites: &[Site], whole: bool) -> Counted {
    let mut classes: BTreeMap<u64, u64> = BTreeMap::new();
    for &(size, blocks) in sites.iter().flatten() {
        *classes.entry(class_of(size)).or_default() += blocks;
    }
    let live_bytes = classes.iter().map(|(size, blocks)| size * blocks).sum();
    let classes = classes.into_iter().map(|(size, blocks)| (size as u32, blocks)).collect();
    Counted { live_bytes, whole, classes, ..Counted::default() }
}

/// Which of these are sampled. As many blocks come between two as a geometric distribution says.
fn drawn(sites: &[Site], random: &mut Random) -> Vec<(u32, u64)> {
    let mut live = Vec::new();
    for (row, site) in sites.iter().enumerate() {
        for &(size, blocks) in site {
            let missed = -(size as f64) / RATE as f64;
            let mut at = 0.0;
            loop {
                at += ((1.0 - random.part()).ln() / missed).floor() + 1.0;
                if at > blocks as f64 {
                    break;
                }
                live.push((row as u32, size));
            }
        }
    }
    live
}

fn weighed(live: Vec<(u32, u64)>) -> impl Iterator<Item = (u32, u64, Weight)> {
    let sampling = Sampling::one_in(RATE);
    live.into_iter().map(move |(row, size)| (row, size, sampling.weight(size)))
}

fn truth(site: &Site) -> u64 {
    site.iter().map(|&(size, blocks)| class_of(size) * blocks).sum()
}

fn close(sites: &[Site], counted: &Counted, random: &mut Random) -> Closing {
    Closing::new(counted, sites.len(), weighed(drawn(sites, random)))
}

fn sum(closing: &Closing) -> i64 {
    let unsampled: u64 = closing.not_sampled.iter().map(|size| size.1).sum();
    let parts = closing.rows.iter().sum::<u64>() + closing.before.bytes + unsampled;
    parts as i64 + closing.changed
}

/// A thousand programs of twenty sites: the interval holds the truth in 95 of 100 of them.
#[test]
fn intervals_hold_the_truth() {
    for began in [1.0, 0.6] {
        let (mut held, mut all, mut error, mut whole) = (0, 0, 0.0, 0.0);
        for seed in 1..=1000 {
            let mut random = Random(seed);
            let sites = sites(&mut random, 20);
            // Of a program that was sampled late, others were there before.
            let old: Vec<Site> = if began < 1.0 { self::sites(&mut random, 15) } else { Vec::new() };
            let everything: Vec<Site> = sites.iter().chain(&old).cloned().collect();
            let counted = counted(&everything, began >= 1.0);
            let closing = close(&sites, &counted, &mut random);
            for (row, site) in sites.iter().enumerate() {
                let (part, truth) = (closing.part(&[row as u32]), truth(site));
                held += u32::from(part.interval.0 <= truth && truth <= part.interval.1);
                all += 1;
                error += part.bytes as f64 - truth as f64;
                whole += truth as f64;
            }
            // Sizes without a sample are not charged to anybody.
            error += closing.not_sampled.iter().map(|size| size.1).sum::<u64>() as f64;
            assert_eq!(sum(&closing), counted.live_bytes as i64, "seed {seed}");
        }
        let coverage = f64::from(held) / f64::from(all);
        assert!((0.93..=0.97).contains(&coverage), "{coverage} of {all}, from {began} on");
        // Of a size there is never more than was counted: that takes a little away where little else was there before.
        let least = if began < 1.0 { 0.005 } else { 0.001 };
        assert!((error / whole).abs() < least, "{} of the truth", error / whole);
        println!("from {began} on: {coverage:.4} of {all} are held, and {:.5} too much said", error / whole);
    }
}

/// Sizes are counted less often than their sum. A program that has freed most since then does not hold it at the end.
#[test]
fn what_went_since_sizes_were_counted_is_not_live() {
    let (sites, old): (Vec<Site>, Vec<Site>) = (vec![vec![(100, 4000)]], vec![vec![(800, 50_000)]]);
    let everything: Vec<Site> = sites.iter().chain(&old).cloned().collect();
    let mut counted = counted(&everything, false);
    counted.live_bytes /= 20;
    let closing = close(&sites, &counted, &mut Random(3));
    let held = closing.part(&[0]).bytes;
    assert!(held > 0 && held < counted.live_bytes, "{held} of {}", counted.live_bytes);
    assert_eq!((closing.before.bytes, closing.changed), (counted.live_bytes - held, 0));
    assert!(closing.before.interval.1 <= counted.live_bytes, "{:?}", closing.before);
    // Of less than the samples say, nothing can have been there before.
    counted.live_bytes = held / 2;
    let closing = close(&sites, &counted, &mut Random(3));
    assert_eq!((closing.before.bytes, sum(&closing)), (0, counted.live_bytes as i64));
}

#[test]
fn a_part_of_a_known_whole_is_known_better() {
    let sites: Vec<Site> = vec![vec![(500, 20_000)], vec![(500, 1000)]];
    let counted = counted(&sites, true);
    let closing = close(&sites, &counted, &mut Random(7));
    let (most, all) = (closing.part(&[0]), closing.part(&[0, 1]));
    assert_eq!(all.bytes, counted.live_bytes);
    // Of some 600 samples alone it would be 8 % to each side.
    let width = (most.interval.1 - most.interval.0) as f64 / most.bytes as f64;
    assert!(width < 0.05, "{most:?}");
}

#[test]
fn whatever_was_counted_the_parts_close() {
    for seed in 1..=500 {
        let mut random = Random(seed);
        let n = 1 + random.below(8);
        let sites = sites(&mut random, n);
        let mut counted = counted(&sites, random.below(2) == 0);
        // Of another moment, of sizes that are not there, and of some that nobody drew.
        counted.live_bytes = counted.live_bytes.wrapping_add(random.below(100_000)).saturating_sub(50_000);
        counted.large_bytes = random.below(3) * 1_000_000;
        counted.classes.iter_mut().for_each(|class| class.1 = class.1 * random.below(3) / 2);
        counted.classes.push((random.below(5000) as u32, random.below(2)));
        let closing = close(&sites, &counted, &mut random);
        assert_eq!(sum(&closing), counted.live_bytes as i64, "seed {seed}");
        for row in 0..sites.len() as u32 {
            let part = closing.part(&[row]);
            assert!(part.interval.0 <= part.bytes && part.bytes <= part.interval.1, "{part:?}");
        }
    }
    // Files may say anything.
    let wild = Counted {
        live_bytes: u64::MAX,
        large_bytes: u64::MAX,
        classes: vec![(0, 5), (u32::MAX, u64::MAX), (u32::MAX, 1)],
        ..Counted::default()
    };
    let closing = Closing::new(&wild, 1, weighed(vec![(0, u64::MAX), (0, 0)]));
    assert_eq!(sum(&closing), closing.total as i64);
    let many = Counted {
        whole: true,
        classes: (1..2000).map(|size| (size, u64::MAX)).collect(),
        ..Counted::default()
    };
    for live in [vec![], (1..2000).map(|size| (0, size)).collect()] {
        let closing = Closing::new(&many, 1, weighed(live));
        assert_eq!(sum(&closing), closing.total as i64);
    }
    // A block of no bytes, of which nothing was counted.
    let whole = Counted { whole: true, ..Counted::default() };
    let closing = Closing::new(&whole, 2, weighed(vec![(0, 0), (1, 0)]));
    assert_eq!(sum(&closing), closing.total as i64);
    let none = Closing::new(&Counted::default(), 1, weighed(vec![(0, 7)]));
    assert_eq!((sum(&none), none.part(&[0]).bytes), (0, 0));
}

#[test]
fn sizes_of_which_nobody_was_drawn_have_a_line() {
    let counted = Counted {
        whole: true,
        live_bytes: 1000 * 64 + 3 * 96,
        classes: vec![(96, 3), (64, 1000)],
        ..Counted::default()
    };
    let closing = Closing::new(&counted, 1, weighed(vec![(0, 60), (0, 33)]));
    assert_eq!((closing.rows[0], closing.not_sampled.as_slice()), (64_000, &[(96, 288)][..]));
    // All blocks of this size may be of this site, or a few of them may not.
    let part = closing.part(&[0]);
    assert!(part.interval.0 < 64_000 && part.interval.1 == 64_000, "{part:?}");
    assert!(estimate(&part).starts_with("≤ "));
}
