// SPDX-License-Identifier: MIT
//! The runs of a suite: what is started, what its figure is, and where its parts are looked for.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use quarry_measure::program;
use regex_lite::Regex;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The runs that the tool comes with.
pub const OURS: &str = include_str!("../../suite.toml");

/// Which runs belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Set {
    /// The field's usual suite.
    #[default]
    Suite,
    /// Our own programs, for what the heap is to reach.
    Targets,
    /// Real programs, as they are installed.
    Real,
}

/// One program with its arguments. The head of suite.toml explains the fields.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the head of suite.toml has them")]
pub struct Run {
    pub name: String,
    #[serde(default)]
    pub set: Set,
    pub command: Vec<String>,
    #[serde(default)]
    pub program: bool,
    #[serde(default = "yes")]
    pub threads: bool,
    pub figure: Option<String>,
    pub work: Option<f64>,
    #[serde(default)]
    pub also: IndexMap<String, String>,
    pub says: Option<String>,
    #[serde(default)]
    pub same_output: bool,
    pub result: Option<String>,
    pub folder: Option<PathBuf>,
    #[serde(default)]
    pub env: IndexMap<String, String>,
    pub stdin: Option<String>,
    #[serde(default)]
    pub files: Vec<String>,
    pub copy: Option<String>,
    #[serde(default)]
    pub before: Vec<String>,
    #[serde(default)]
    pub server: Vec<String>,
    #[serde(default)]
    pub ready: Vec<String>,
    #[serde(default)]
    pub stop: Vec<String>,
}

fn yes() -> bool {
    true
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[serde(default)]
    held_out: Vec<String>,
    run: Vec<Run>,
}

/// Why a table of runs is none.
#[derive(Debug, Error)]
pub enum Error {
    /// Not of its form.
    #[error(transparent)]
    Toml(#[from] toml::de::Error),
    /// Not of its form.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// A run makes no sense.
    #[error("run {0}: {1}")]
    Run(String, String),
}

/// Read a table of runs.
pub fn parse(text: &str) -> Result<Vec<Run>, Error> {
    checked(toml::from_str::<Table>(text)?.run)
}

/// The names in it of real programs that nothing is tuned by.
pub fn held_out(text: &str) -> Result<Vec<String>, Error> {
    Ok(toml::from_str::<Table>(text)?.held_out)
}

/// The same table as JSON.
pub fn parse_json(text: &str) -> Result<Vec<Run>, Error> {
    checked(serde_json::from_str::<Table>(text)?.run)
}

fn checked(runs: Vec<Run>) -> Result<Vec<Run>, Error> {
    for (at, run) in runs.iter().enumerate() {
        let wrong = |why: String| Err(Error::Run(run.name.clone(), why));
        if runs[..at].iter().any(|other| other.name == run.name) {
            return wrong(String::from("there are two of this name"));
        }
        if run.command.is_empty() {
            return wrong(String::from("without a command"));
        }
        if [&run.server, &run.ready, &run.stop].iter().any(|words| words.is_empty() != run.server.is_empty())
        {
            return wrong(String::from("server, ready and stop belong together"));
        }
        let patterns = [&run.figure, &run.says, &run.result].into_iter().flatten().chain(run.also.values());
        for pattern in patterns {
            if let Err(error) = Regex::new(pattern) {
                return wrong(format!("'{pattern}': {error}"));
            }
        }
    }
    Ok(runs)
}

/// A part of the suite that is not in its folder.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("no {0}")]
pub struct Missing(String);

/// What a run is told of its folder and the port of its server.
#[derive(Debug, Clone, Default)]
pub struct Here {
    /// A fresh folder.
    pub folder: PathBuf,
    /// A free port.
    pub port: u16,
}

/// Where the suite is, and what its commands are told.
#[derive(Debug, Clone)]
pub struct Place {
    /// The folder of the suite.
    pub suite: PathBuf,
    /// The folder of our own programs.
    pub loads: PathBuf,
    /// What the suite calls N.
    pub threads: usize,
    /// How long the runs last that stop by the clock.
    pub seconds: f64,
}

impl Place {
    /// The command with all names replaced and its program found.
    pub fn words(&self, command: &[String], here: &Here) -> Result<Vec<String>, Missing> {
        let mut words = command.iter().map(|word| self.fill(word, here));
        let pattern = words.next().unwrap_or_default();
        let found = match pattern.contains('/') {
            true => last_match(Path::new(&pattern)),
            false => program::find(OsStr::new(&pattern)),
        };
        let executable = found.filter(|file| program::is_executable(file));
        let first = executable.ok_or_else(|| Missing(format!("program {pattern}")))?;
        Ok(std::iter::once(first.display().to_string()).chain(words).collect())
    }

    fn fill(&self, word: &str, here: &Here) -> String {
        let suite = self.suite.display();
        let names = [
            ("{bin}", format!("{suite}/out/bench")),
            ("{suite}", suite.to_string()),
            ("{loads}", self.loads.display().to_string()),
            ("{here}", here.folder.display().to_string()),
            ("{port}", here.port.to_string()),
            ("{n}", self.threads.to_string()),
            ("{n2}", (2 * self.threads).to_string()),
            ("{seconds}", self.seconds.to_string()),
        ];
        names.iter().fold(word.to_owned(), |word, (name, value)| word.replace(name, value))
    }

    /// A file in the folder of the suite.
    pub fn file(&self, name: &str) -> Result<PathBuf, Missing> {
        let path = self.suite.join(name);
        if path.exists() { Ok(path) } else { Err(Missing(path.display().to_string())) }
    }

    /// Is all there that the run needs?
    pub fn check(&self, run: &Run) -> Result<(), Missing> {
        for name in run.stdin.iter().chain(&run.copy).chain(&run.files) {
            self.file(name)?;
        }
        if let Some(folder) = run.folder.as_ref().filter(|folder| !folder.is_dir()) {
            return Err(Missing(folder.display().to_string()));
        }
        let commands = [&run.command, &run.before, &run.server, &run.ready, &run.stop];
        for command in commands.into_iter().filter(|command| !command.is_empty()) {
            self.words(command, &Here::default())?;
        }
        Ok(())
    }
}

/// The last of the files that a path with `*` in its folders matches.
fn last_match(pattern: &Path) -> Option<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for part in pattern.components() {
        let part = part.as_os_str();
        if !part.to_string_lossy().contains(['*', '?']) {
            found.iter_mut().for_each(|path| path.push(part));
            continue;
        }
        let entries = found.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
        let fits = |name: &OsStr| is_like(&name.to_string_lossy(), &part.to_string_lossy());
        found = entries.filter(|entry| fits(&entry.file_name())).map(|entry| entry.path()).collect();
    }
    found.into_iter().filter(|path| path.exists()).max()
}

/// Does the name match a pattern of the shell, in which `*` is any text and `?` any letter?
pub fn is_like(name: &str, pattern: &str) -> bool {
    let mut letters = pattern.chars();
    match letters.next() {
        None => name.is_empty(),
        Some('*') => {
            let rest = letters.as_str();
            name.char_indices().map(|(at, _)| at).chain([name.len()]).any(|at| is_like(&name[at..], rest))
        }
        Some(wanted) => {
            let mut own = name.chars();
            own.next().is_some_and(|letter| wanted == '?' || wanted == letter)
                && is_like(own.as_str(), letters.as_str())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(suite: &Path) -> Place {
        Place { suite: suite.to_owned(), loads: "/loads".into(), threads: 4, seconds: 1.5 }
    }

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn the_tools_own_runs_make_sense() {
        let runs = parse(OURS).unwrap();
        assert_eq!(runs.iter().filter(|run| run.set == Set::Suite).count(), 30);
        assert!(runs.iter().all(|run| run.set != Set::Real));
        let of = |name: &str| runs.iter().find(|run| run.name == name).unwrap();
        assert!(of("redis").program && !of("redis").server.is_empty() && of("redis").work == Some(2e6));
        assert!(!of("cfrac").threads && of("cfrac").same_output && of("larsonN").threads);
    }

    #[test]
    fn nonsense_is_named() {
        let fault = |text: &str| parse(text).unwrap_err().to_string();
        let one = "[[run]]\nname = 'a'\ncommand = ['x']\n";
        assert!(parse(one).is_ok());
        assert!(fault(&one.repeat(2)).contains("two of this name"));
        assert!(fault("[[run]]\nname = 'a'\ncommand = []").contains("without a command"));
        assert!(fault(&format!("{one}figure = '('")).contains("run a: '('"));
        assert!(fault(&format!("{one}server = ['x']")).contains("belong together"));
        assert!(fault(&format!("{one}nonsense = 1")).contains("nonsense"));
        assert!(parse_json(r#"{"run": [{"name": "a", "command": ["x"]}]}"#).is_ok());
    }

    #[test]
    fn names_are_replaced_and_programs_found() {
        let dir = tempfile::tempdir().unwrap();
        let place = place(dir.path());
        let here = Here { folder: "/here".into(), port: 7 };
        let found = place.words(&words("sh {n} {n2} {seconds} {here}/{port} {bin} {loads}"), &here).unwrap();
        let bin = format!("{}/out/bench", dir.path().display());
        assert!(found[0].ends_with("/sh"));
        assert_eq!(found[1..], ["4", "8", "1.5", "/here/7", &bin, "/loads"]);
        let missing = place.words(&words("{bin}/not-there"), &here).unwrap_err();
        assert_eq!(missing.to_string(), format!("no program {bin}/not-there"));
        for version in ["redis-6", "redis-7", "other-9"] {
            let folder = dir.path().join("extern").join(version);
            fs::create_dir_all(&folder).unwrap();
            std::os::unix::fs::symlink("/bin/sh", folder.join("server")).unwrap();
        }
        let newest = place.words(&words("{suite}/extern/redis-*/server"), &here).unwrap();
        assert!(newest[0].ends_with("redis-7/server"), "{newest:?}");
        fs::write(dir.path().join("text"), "").unwrap();
        assert!(place.words(&words("{suite}/text"), &here).is_err(), "what cannot be executed was found");
    }

    #[test]
    fn all_parts_of_a_run_are_looked_for() {
        let dir = tempfile::tempdir().unwrap();
        let place = place(dir.path());
        let run =
            |more: &str| parse(&format!("[[run]]\nname = 'a'\ncommand = ['sh']\n{more}")).unwrap().remove(0);
        assert_eq!(place.check(&run("")), Ok(()));
        for part in [
            "stdin = 'x'",
            "copy = 'x'",
            "files = ['x']",
            "before = ['not-there-at-all']",
            "folder = '/no/x'",
        ] {
            assert!(place.check(&run(part)).is_err(), "{part}");
        }
    }

    #[test]
    fn patterns_are_those_of_the_shell() {
        for (name, pattern, like) in [
            ("larsonN", "larson*", true),
            ("larsonN-sized", "larson?", false),
            ("larsonN", "larson?", true),
            ("a", "*a*", true),
            ("ab", "a", false),
            ("", "*", true),
            ("x-y-z", "x*z", true),
        ] {
            assert_eq!(is_like(name, pattern), like, "{name} {pattern}");
        }
    }
}
