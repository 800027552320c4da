// SPDX-License-Identifier: MIT
//! The samples of runs, and the file that holds them (schema quarry-suite/1).

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::sums;

/// The name and version of the form.
pub const SCHEMA: &str = "quarry-suite/1";

/// One run of a program under one malloc.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Sample {
    /// What the run printed, in few digits. Runs that may print anything have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// `seconds` is the run's figure and `elapsed` the clock's; `cpu`, `system`, `peak_kib`, `faults`, and what else the run
    /// names.
    #[serde(flatten)]
    pub figures: BTreeMap<String, f64>,
}

/// The samples of a run's mallocs, one right after the other.
pub type Round = IndexMap<String, Sample>;
/// The rounds of each run.
pub type Visits = IndexMap<String, Vec<Round>>;

/// What a malloc is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Library {
    /// The name of its file. The system's malloc has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The digest of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Its version, where somebody knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Variables of its runs.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub variables: IndexMap<String, String>,
}

impl Library {
    /// Is `other` the same file, with the same variables? For a peer the same version is enough, wherever it was
    /// built. Of one version of ours there are many builds, and these are what is measured. The system's malloc has
    /// a version only.
    fn is_same(&self, name: &str, other: &Library) -> bool {
        let same = |of: fn(&Library) -> &Option<String>| of(self).is_some() && of(self) == of(other);
        self.variables == other.variables
            && (same(|library| &library.sha256) || sums::is_peer(name) && same(|library| &library.version))
    }

    /// What people call it.
    pub fn text(&self) -> &str {
        self.version.as_deref().or(self.file.as_deref()).unwrap_or("unknown")
    }
}

/// All samples, and how they were taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`SCHEMA`]
    pub schema: String,
    /// What the suite calls N.
    pub threads: usize,
    /// How long the runs last that stop by the clock.
    pub seconds: f64,
    /// What the order of runs was drawn from.
    pub seed: u64,
    /// The load average before.
    pub load_before: f64,
    /// The processors that runs had.
    pub processors: Vec<usize>,
    /// The release of the kernel.
    pub kernel: String,
    /// Who took part.
    pub mallocs: IndexMap<String, Library>,
    /// Did each thread stay on one processor?
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pin: bool,
    /// Run, malloc, and what went wrong there.
    pub faults: Vec<(String, String, String)>,
    /// The samples.
    pub runs: Visits,
}

/// Why samples cannot be used.
#[derive(Debug, Error)]
pub enum Error {
    /// There is no such file, or it is damaged.
    #[error("{0}: cannot be read: {1}")]
    Unreadable(String, String),
    /// Another form.
    #[error("{0}: not a result of this command")]
    Schema(String),
    /// It was made in another way.
    #[error("{0}: {1}")]
    Other(String, String),
}

impl Record {
    /// Read one. A file that ends in .zst is unpacked.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let name = path.display().to_string();
        let unreadable = |why: String| Error::Unreadable(name.clone(), why);
        let packed = fs::read(path).map_err(|error| unreadable(error.to_string()))?;
        let bytes = match path.extension().and_then(|ending| ending.to_str()) {
            Some("zst") => unpacked(&packed).map_err(|error| unreadable(error.to_string()))?,
            Some("xz") => return Err(unreadable(String::from("unpack it first, with xz -d"))),
            _ => packed,
        };
        let value: serde_json::Value =
            serde_json::from_slice(&bytes).map_err(|error| unreadable(error.to_string()))?;
        if value["schema"].as_str() != Some(SCHEMA) {
            return Err(Error::Schema(name));
        }
        serde_json::from_slice(&bytes).map_err(|error| unreadable(error.to_string()))
    }

    /// The same without samples.
    pub fn emptied(&self) -> Self {
        let faults = Vec::new();
        let runs = self.runs.keys().map(|run| (run.clone(), Vec::new())).collect();
        Self { faults, runs, mallocs: self.mallocs.clone(), ..self.about() }
    }

    fn about(&self) -> Self {
        Self {
            schema: self.schema.clone(),
            kernel: self.kernel.clone(),
            processors: self.processors.clone(),
            mallocs: IndexMap::new(),
            faults: Vec::new(),
            runs: Visits::new(),
            ..*self
        }
    }

    /// What went wrong at this run under this malloc.
    pub fn fault(&self, run: &str, malloc: &str) -> Option<&str> {
        self.faults.iter().find(|(r, m, _)| r == run && m == malloc).map(|(_, _, why)| why.as_str())
    }

    /// Take over the samples of `other`, which `name` holds, for the runs and the mallocs that are known here.
    pub fn add(&mut self, other: Record, name: &str) -> Result<(), Error> {
        let wrong = |why: String| Err(Error::Other(name.to_owned(), why));
        for (malloc, library) in &other.mallocs {
            if self.mallocs.get(malloc).is_some_and(|mine| !mine.is_same(malloc, library)) {
                return wrong(format!("{malloc} is not the same library, or has other variables"));
            }
        }
        if other.threads != self.threads {
            return wrong(format!("made with --threads {}", other.threads));
        }
        if other.seconds != self.seconds {
            return wrong(format!("made with --seconds {}", other.seconds));
        }
        if other.pin != self.pin {
            return wrong(format!("made {} --pin", if other.pin { "with" } else { "without" }));
        }
        self.load_before = self.load_before.max(other.load_before);
        for (run, rounds) in other.runs {
            let Some(mine) = self.runs.get_mut(&run) else { continue };
            let known = rounds.into_iter().map(|mut round| {
                round.retain(|malloc, _| self.mallocs.contains_key(malloc));
                round
            });
            mine.extend(known.filter(|round| !round.is_empty()));
        }
        for (run, malloc, why) in other.faults {
            if self.runs.contains_key(&run) && self.mallocs.contains_key(&malloc) {
                self.faults.retain(|(r, m, _)| *r != run || *m != malloc);
                self.faults.push((run, malloc, why));
            }
        }
        Ok(())
    }

    /// As JSON.
    pub fn text(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }
}

fn unpacked(packed: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    zstd::Decoder::new(packed)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(threads: usize, quarry: &str, peer: (&str, &str)) -> Record {
        let library = |sha: &str, version: Option<&str>| Library {
            sha256: Some(sha.to_owned()),
            version: version.map(str::to_owned),
            ..Library::default()
        };
        let sample = Sample { output: None, figures: BTreeMap::from([(String::from("seconds"), 1.5)]) };
        let round = Round::from([(String::from("quarry"), sample.clone()), (String::from("x"), sample)]);
        Record {
            schema: SCHEMA.to_owned(),
            threads,
            seconds: 1.0,
            seed: 1,
            load_before: 0.5,
            processors: vec![0],
            kernel: String::from("6"),
            mallocs: IndexMap::from([
                (String::from("quarry"), library(quarry, Some("1"))),
                (String::from("x"), library(peer.0, Some(peer.1))),
            ]),
            pin: false,
            faults: vec![(String::from("a"), String::from("x"), String::from("status 3"))],
            runs: Visits::from([(String::from("a"), vec![round])]),
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let (plain, packed) = (dir.path().join("r.json"), dir.path().join("r.json.zst"));
        let record = record(2, "1", ("1", "1"));
        let text = record.text().unwrap();
        assert!(!text.contains("pin") && text.contains("\"seconds\": 1.5"), "{text}");
        fs::write(&plain, &text).unwrap();
        fs::write(&packed, zstd::encode_all(text.as_bytes(), 1).unwrap()).unwrap();
        assert_eq!(Record::read(&plain).unwrap(), record);
        assert_eq!(Record::read(&packed).unwrap(), record);
        fs::write(&plain, text.replace("quarry-suite/1", "x")).unwrap();
        assert!(matches!(Record::read(&plain), Err(Error::Schema(_))));
        fs::write(&plain, "{").unwrap();
        assert!(matches!(Record::read(&plain), Err(Error::Unreadable(..))));
    }

    #[test]
    fn variables_and_the_version_of_the_system_count() {
        let of = |version: &str, variable: &str| {
            let variables = IndexMap::from([(String::from("A"), variable.to_owned())]);
            let system = Library { version: Some(version.to_owned()), variables, ..Library::default() };
            Record {
                mallocs: IndexMap::from([(String::from(sums::SYSTEM), system)]),
                ..record(2, "1", ("1", "1"))
            }
        };
        let mut mine = of("glibc 2.36", "1");
        assert!(mine.add(of("glibc 2.36", "1"), "other").is_ok());
        assert!(mine.add(of("glibc 2.41", "1"), "other").is_err());
        assert!(mine.add(of("glibc 2.36", "2"), "other").is_err());
    }

    #[test]
    fn samples_of_the_same_libraries_add_up() {
        let mut mine = record(2, "1", ("1", "1"));
        // A peer of the same version may be another file; ours may not.
        mine.add(record(2, "1", ("2", "1")), "other").unwrap();
        assert_eq!((mine.runs["a"].len(), mine.faults.len()), (2, 1));
        assert_eq!(mine.fault("a", "x"), Some("status 3"));
        for wrong in [record(2, "2", ("1", "1")), record(2, "1", ("2", "2")), record(3, "1", ("1", "1"))] {
            assert!(mine.add(wrong, "other").is_err());
        }
        let pinned = Record { pin: true, ..record(2, "1", ("1", "1")) };
        assert!(mine.add(pinned, "other").unwrap_err().to_string().contains("with --pin"));
        assert_eq!(mine.runs["a"].len(), 2);
        // What is unknown here is left out.
        let mut few = record(2, "1", ("1", "1")).emptied();
        few.mallocs.shift_remove("x");
        few.add(record(2, "1", ("1", "1")), "other").unwrap();
        assert_eq!((few.runs["a"][0].len(), few.faults.len()), (1, 0));
    }
}
