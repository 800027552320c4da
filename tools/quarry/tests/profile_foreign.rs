// SPDX-License-Identifier: MIT
//! What quarry profile writes for heaptrack: read by heaptrack's own reader, and its sums compared with the JSON of the same trace.

use std::fs;
use std::process::Command;

use crate::common::{Ended, text};
use crate::foreign::is_missing;
use crate::profile::Recorder;

#[test]
fn heaptrack_print_says_what_the_profile_says() {
    let Some(recorder) = Recorder::new() else { return };
    let trace = recorder.trace("t.qtr");
    let file = text(&recorder.bench.path("t.heaptrack")).to_owned();
    recorder.quarry(&["profile", "-q", "-o", &file, &trace]).expect(0);
    // The same file as that of convert.
    let converted = text(&recorder.bench.path("c.heaptrack")).to_owned();
    recorder.quarry(&["convert", &trace, "-o", &converted]).expect(0);
    assert_eq!(fs::read(&file).unwrap(), fs::read(&converted).unwrap());
    if is_missing("heaptrack_print") {
        return;
    }
    let json = recorder.json(&["-n", "10000", "--by", "function", &trace]);
    // heaptrack's costs of each stack, in the forms of a flame graph.
    let costs = |cost: &str| -> Vec<(String, u64)> {
        let folded = recorder.bench.path(cost);
        let mut print = Command::new("heaptrack_print");
        print.arg(&file).args(["--flamegraph-cost-type", cost, "-F"]).arg(&folded);
        Ended::from(print.output().unwrap()).expect(0);
        let lines = fs::read_to_string(&folded).unwrap();
        lines
            .lines()
            .map(|line| {
                let (stack, cost) = line.rsplit_once(' ').unwrap();
                (stack.to_owned(), cost.parse().unwrap())
            })
            .collect()
    };
    let sums = [
        ("leaked", json["end"]["bytes"].as_u64()),
        ("allocations", json["totals"]["allocations"].as_u64()),
        ("temporary", json["totals"]["temporary"].as_u64()),
        ("peak", json["peak"]["live"]["bytes"].as_u64()),
    ];
    for (cost, said) in sums {
        let costs = costs(cost);
        assert_eq!(Some(costs.iter().map(|(_, cost)| cost).sum::<u64>()), said, "{cost}: {costs:#?}");
    }
    let (leaked, peak, temporary) = (costs("leaked"), costs("peak"), costs("temporary"));
    let of = |costs: &[(String, u64)], function: &str| -> u64 {
        costs.iter().filter(|(stack, _)| stack.contains(function)).map(|(_, cost)| cost).sum()
    };
    assert_eq!((of(&leaked, "held"), of(&leaked, "leaking")), (1_000_000, 800_000), "{leaked:#?}");
    assert_eq!((of(&peak, "held"), of(&peak, "freed")), (1_000_000, 3_000_000), "{peak:#?}");
    assert_eq!(of(&temporary, "churning"), 500, "{temporary:#?}");
}
