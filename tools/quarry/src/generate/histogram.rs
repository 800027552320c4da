// SPDX-License-Identifier: MIT
//! Distributions out of files: lines of text, a model's histogram, or what `quarry info --json` says.

use std::path::Path;

use quarry_measure::quantity;
use quarry_synth::dist::{self, Bin, Dist};
use serde_json::Value;

use crate::opened;

/// The schema of `quarry info --json`.
const INFO: &str = "quarry-info/1";

/// What is to be distributed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    Sizes,
    Lifetimes,
}

/// A histogram from a file: lines of `SIZE COUNT` or `FROM TO COUNT`, the JSON of a model's histogram, or that of
/// `quarry info`.
pub fn read(path: &Path, of: Of) -> Result<Dist, String> {
    let name = path.display();
    let text = opened::text(path).map_err(|error| error.to_string())?;
    let dist = if text.trim_start().starts_with('{') { of_json(&text, of) } else { of_lines(&text) };
    dist.map_err(|what| format!("{name}: {what}"))
}

fn of_lines(text: &str) -> Result<Dist, String> {
    let mut bins = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("").trim();
        let words: Vec<&str> = line.split_whitespace().collect();
        let bin = match words[..] {
            [] => continue,
            [size, count] => quantity::bytes(size).zip(count.parse().ok()).map(|(n, weight)| (n, n, weight)),
            [from, to, count] => quantity::bytes(from)
                .zip(quantity::bytes(to))
                .zip(count.parse().ok())
                .map(|((from, to), weight)| (from, to, weight)),
            _ => None,
        };
        bins.push(Bin::from(
            bin.ok_or_else(|| format!("line {}: say SIZE COUNT or FROM TO COUNT", index + 1))?,
        ));
    }
    Dist::histogram(bins).map_err(|error| error.to_string())
}

fn of_json(text: &str, of: Of) -> Result<Dist, String> {
    let json: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if json["schema"] != INFO {
        return serde_json::from_value(json)
            .map_err(|_| format!("is neither a histogram nor the JSON of quarry info ({INFO})"));
    }
    let bars = match of {
        Of::Sizes => &json["allocations"]["sizes"],
        Of::Lifetimes => &json["lifetimes"]["allocations"],
    };
    let number =
        |value: &Value, key: &str| value[key].as_u64().ok_or_else(|| format!("a bar has no \"{key}\""));
    let mut bins = Vec::new();
    for bar in bars.as_array().ok_or("has no histogram")? {
        bins.push(Bin {
            from: number(bar, "from")?.min(dist::MOST),
            to: number(bar, "to")?.min(dist::MOST),
            weight: number(bar, "count")? as f64,
        });
    }
    // Frequent sizes are known exactly, and are taken out of their bars.
    let known = if of == Of::Sizes { json["allocations"]["top_sizes"].as_array() } else { None };
    for one in known.into_iter().flatten() {
        let (size, count) = (number(one, "size")?, number(one, "count")? as f64);
        if let Some(bar) = bins.iter_mut().find(|bar| bar.from <= size && size <= bar.to && bar.from < bar.to)
        {
            let count = count.min(bar.weight);
            bar.weight -= count;
            bins.push(Bin { from: size, to: size, weight: count });
        }
    }
    Dist::histogram(bins).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_json() {
        let bins = |dist: Dist| match dist {
            Dist::Histogram(bins) => bins.into_iter().map(<(u64, u64, f64)>::from).collect::<Vec<_>>(),
            other => panic!("{other}"),
        };
        assert_eq!(
            bins(of_lines("# sizes\n16 3\n\n1k 2k 0.5 # large\n").unwrap()),
            [(16, 16, 3.0), (1024, 2048, 0.5)]
        );
        for text in ["", "16", "16 x", "1 2 3 4", "5 4 1", "16 -1"] {
            assert!(of_lines(text).is_err(), "{text}");
        }
        let model = r#"{"histogram":[[1,2,3.0]]}"#;
        assert_eq!(bins(of_json(model, Of::Sizes).unwrap()), [(1, 2, 3.0)]);
        let info = r#"{"schema":"quarry-info/1","allocations":{"sizes":[{"from":16,"to":31,"count":10,"bytes":1}],
            "top_sizes":[{"size":24,"count":7}]},"lifetimes":{"allocations":[{"from":0,"to":0,"count":5,"bytes":1}]}}"#;
        assert_eq!(bins(of_json(info, Of::Sizes).unwrap()), [(16, 31, 3.0), (24, 24, 7.0)]);
        assert_eq!(bins(of_json(info, Of::Lifetimes).unwrap()), [(0, 0, 5.0)]);
        for text in [
            "{",
            "{}",
            r#"{"schema":"quarry-info/1"}"#,
            r#"{"schema":"quarry-info/1","allocations":{"sizes":[{}]}}"#,
        ] {
            assert!(of_json(text, Of::Sizes).is_err(), "{text}");
        }
    }
}
