// SPDX-License-Identifier: MIT
//! The sums of the suite, on samples whose sums are known.

use std::collections::BTreeMap;

use quarry_measure::rng::Rng;

use super::samples::{Round, Sample, Visits};
use super::sums::*;

/// A run, and its rounds: who took how much of everything.
pub type Taken<'a> = (&'a str, &'a [&'a [(&'a str, f64)]]);

pub fn visits(runs: &[Taken]) -> Visits {
    let sample = |figure: f64| Sample {
        output: None,
        figures: ["seconds", "peak_kib", "cpu", "faults"].map(|m| (m.to_owned(), figure)).into(),
    };
    let round = |round: &&[(&str, f64)]| -> Round {
        round.iter().map(|(name, figure)| ((*name).to_owned(), sample(*figure))).collect()
    };
    runs.iter().map(|(run, rounds)| ((*run).to_owned(), rounds.iter().map(round).collect())).collect()
}

pub fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn figures(mallocs: &[&str], runs: &[Taken]) -> Figures {
    Figures::of(&visits(runs), &names(mallocs), "seconds")
}

#[track_caller]
fn near(found: Option<f64>, wanted: f64) {
    assert!(found.is_some_and(|found| (found / wanted - 1.0).abs() < 1e-9), "{found:?}, not {wanted}");
}

/// The ends of a malloc's interval.
#[track_caller]
fn ends(found: Option<(f64, f64)>, (low, high): (f64, f64)) {
    near(found.map(|found| found.0), low);
    near(found.map(|found| found.1), high);
}

#[test]
fn means_are_of_ratios_to_the_best_peer() {
    let all = figures(
        &["quarry", "x", "y"],
        &[
            ("a", &[&[("quarry", 2.0), ("x", 1.0), ("y", 4.0)][..]; 3]),
            ("b", &[&[("quarry", 1.0), ("x", 8.0), ("y", 2.0)][..]; 3]),
            ("c", &[&[("x", 5.0)][..]; 3]),
        ],
    );
    let means = all.view().means();
    // 2 × 0.5: better than the best peer is below 1.
    near(means[0].map(|mean| mean.0), 1.0);
    near(means[1].map(|mean| mean.0), 4f64.powf(1.0 / 3.0));
    near(means[2].map(|mean| mean.0), 2.0);
    assert_eq!(means.iter().map(|mean| mean.unwrap().1).collect::<Vec<_>>(), [2, 3, 2]);
    assert_eq!(all.view().beyond(1.15), [("a", 2.0, "x")]);
    ends(all.view().intervals(View::mean_row)[2], (2.0, 2.0));
    let few = figures(&["quarry", "x"], &[("a", &[&[("quarry", 2.0), ("x", 1.0)][..]; 2])]);
    assert_eq!(few.view().intervals(View::mean_row), [None, None]);
}

#[test]
fn medians_are_over_the_rounds_that_there_are() {
    let mixed = figures(
        &["quarry", "x"],
        &[(
            "a",
            &[&[("quarry", 1.0), ("x", 1.0)], &[("quarry", 9.0), ("x", 1.0)], &[("quarry", 2.0), ("x", 1.0)]],
        )],
    );
    assert_eq!(mixed.view().medians()[0].1, [Some(2.0), Some(1.0)]);
    ends(mixed.view().intervals(View::mean_row)[0], (1.0, 9.0));
    let parts = figures(&["quarry", "x", "z"], &[("a", &[&[("x", 1.0)], &[("x", 3.0), ("quarry", 2.0)]])]);
    assert_eq!(parts.view().medians()[0].1, [Some(2.0), Some(2.0), None]);
    // Another build of ours is no measure of anybody.
    let two =
        figures(&["quarry", "quarry2", "x"], &[("a", &[&[("quarry", 2.0), ("quarry2", 0.5), ("x", 1.0)]])]);
    near(two.view().mean_row()[0], 2.0);
}

#[test]
fn one_peer_is_compared_within_rounds() {
    // The machine is ten times slower in one round, and one round of x has bad luck.
    let all = figures(
        &["quarry", "x", "y"],
        &[
            (
                "a",
                &[
                    &[("quarry", 2.0), ("x", 1.0)],
                    &[("quarry", 20.0), ("x", 10.0)],
                    &[("quarry", 2.0), ("x", 9.0), ("y", 4.0)],
                ],
            ),
            (
                "b",
                &[
                    &[("quarry", 1.0), ("x", 8.0)],
                    &[("x", 8.0)],
                    &[("quarry", 3.0), ("x", 24.0)],
                    &[("quarry", 1.0), ("x", 8.0)],
                ],
            ),
        ],
    );
    let against = all.view().against();
    near(against[1], 0.5);
    near(against[2], 0.5);
    assert_eq!(against[0], None);
    ends(all.view().intervals(View::against)[1], ((2.0f64 / 9.0 / 8.0).sqrt(), 0.5));
    assert_eq!(figures(&["x"], &[("a", &[&[("x", 1.0)]])]).view().against(), [None]);
}

#[test]
fn a_round_that_names_no_peer_has_no_luck() {
    // Each peer has luck once, in a round in which the others do not take it for the best; the machine is slow in one round.
    let lucky = figures(
        &["quarry", "x", "y", "z"],
        &[(
            "a",
            &[
                &[("quarry", 1.0), ("x", 0.5), ("y", 1.0), ("z", 1.0)],
                &[("quarry", 7.0), ("x", 7.0), ("y", 3.5), ("z", 7.0)],
                &[("quarry", 1.0), ("x", 1.0), ("y", 1.0), ("z", 0.5)],
            ],
        )],
    );
    near(lucky.view().without_luck().view().means_of_medians()[0], 1.0);
    // Who is really best is so in all rounds, and is 1. Nobody names a peer where there is one round, or no peer.
    let round = |speed: f64| {
        [("quarry", 3.0 * speed), ("quarry2", 0.1 * speed), ("x", 2.0 * speed), ("y", 4.0 * speed)]
    };
    let clear = figures(
        &["quarry", "x", "y"],
        &[
            ("a", &[&round(1.0), &round(5.0), &round(2.0)]),
            ("b", &[&[("quarry", 9.0), ("x", 1.0)]]),
            ("c", &[&[("quarry", 1.0)][..]; 3]),
        ],
    );
    let fair = clear.view().without_luck();
    let fair = fair.view().means_of_medians();
    near(fair[0], 1.5);
    near(fair[1], 1.0);
    near(fair[2], 2.0);
}

/// Samples of ten mallocs that differ by noise alone.
fn equal_ones(rng: &mut Rng, noise: f64, runs: usize) -> Figures {
    // The sum of twelve even numbers is nearly normal.
    let mut draw = || (0..12).map(|_| rng.bits() as f64 / u64::MAX as f64).sum::<f64>() - 6.0;
    let all: Vec<String> = std::iter::once(OURS.to_owned()).chain((0..9).map(|n| format!("p{n}"))).collect();
    let mut visits = Visits::new();
    for run in 0..runs {
        let mut sample = || Sample {
            output: None,
            figures: BTreeMap::from([("seconds".to_owned(), (draw() * noise).exp())]),
        };
        let rounds: Vec<Round> =
            (0..5).map(|_| all.iter().map(|name| (name.clone(), sample())).collect()).collect();
        visits.insert(run.to_string(), rounds);
    }
    Figures::of(&visits, &all, "seconds")
}

#[test]
fn the_best_of_nine_equals_is_lucky_and_a_named_one_is_not() {
    let noisy = equal_ones(&mut Rng::new(1), 0.1, 160);
    assert!(noisy.view().mean_row()[0].unwrap() > 1.05);
    let fair = noisy.view().without_luck().view().means_of_medians()[0].unwrap();
    assert!((fair - 1.0).abs() < 0.03, "{fair}");
}

#[test]
fn the_noise_of_a_machine_moves_the_mean_and_not_the_fair_one() {
    let mut rng = Rng::new(3);
    let (quiet, noisy) = (equal_ones(&mut rng, 0.01, 30), equal_ones(&mut rng, 0.15, 30));
    let mean = |figures: &Figures| figures.view().intervals(View::mean_row)[0].unwrap();
    let fair = |figures: &Figures| {
        figures.view().without_luck().view().intervals(View::means_of_medians)[0].unwrap()
    };
    let apart = |(a, b): ((f64, f64), (f64, f64))| a.0.max(b.0) > a.1.min(b.1);
    assert!(apart((mean(&quiet), mean(&noisy))));
    assert!(!apart((fair(&quiet), fair(&noisy))));
}

#[test]
fn a_peer_is_ahead_beyond_noise_or_not() {
    // x is always 1 % ahead, y mostly by half, z never.
    let of = |count: usize| {
        let round = |i: usize| {
            let base = i as f64;
            let y = (1.01 + base) * if i > 0 { 0.5 } else { 4.0 };
            [("quarry", 1.01 + base), ("x", 1.0 + base * 0.99), ("y", y), ("z", 9.0 + base)]
        };
        let rounds: Vec<[(&str, f64); 4]> = (0..count).map(round).collect();
        let rounds: Vec<&[(&str, f64)]> = rounds.iter().map(|round| &round[..]).collect();
        figures(&["quarry", "x", "y", "z"], &[("a", &rounds)])
    };
    let eight = of(8);
    let found = eight.view().ahead(0).unwrap();
    assert_eq!(found.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["x"]);
    assert!(found[0].1 > 1.009 && found[0].1 < 1.011, "{found:?}");
    assert_eq!(of(5).view().ahead(0), None);
    let level = figures(&["quarry", "x"], &[("b", &[&[("quarry", 1.0), ("x", 1.0)][..]; 8])]);
    assert_eq!(level.view().ahead(0), Some(Vec::new()));
}
