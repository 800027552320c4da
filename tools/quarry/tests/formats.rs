// SPDX-License-Identifier: MIT
//! `-o FILE` means the same in every verb: the ending says the format, `--format` overrides it, and what a verb does not
//! make it refuses before it begins. The verbs are those that the tool itself lists, so no new one is forgotten.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};

use serde_json::Value;

use crate::common::{Bench, Ended, text};
use crate::{bench, check, pools, replay, run};

const ENDINGS: [(&str, &str); 5] =
    [("html", "html"), ("json", "json"), ("text", "txt"), ("svg", "svg"), ("csv", "csv")];

/// A process to look at.
struct Sleeper(Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// A verb with what it needs to report on something small.
struct Subject {
    bench: Bench,
    before: Vec<String>,
    after: Vec<String>,
    _sleeper: Option<Sleeper>,
}

impl Subject {
    fn new(bench: Bench, before: &[&str], after: &[&str]) -> Self {
        let owned = |words: &[&str]| words.iter().map(|&word| String::from(word)).collect();
        Self { bench, before: owned(before), after: owned(after), _sleeper: None }
    }

    /// `None`: there is no C compiler, and so no subject. A verb that is not known here ends the test.
    fn of(verb: &str) -> Option<Self> {
        let mark = ["--", "touch", "mark"];
        let plain = |before: &[&str], after: &[&str]| Some(Self::new(Bench::new()?, before, after));
        match verb {
            "run" => plain(&[], &mark),
            // Whatever comes next is refused, so nothing is recorded and nothing generated.
            "record" => plain(&[], &mark),
            "gen" => plain(&[], &[]),
            "compare" => plain(&["-n", "1", "--warmup", "0", "--with", "system"], &mark),
            "check" => {
                let bench = Bench::new()?;
                let file = bench.path("1.1.check");
                fs::write(&file, check::QUIET).unwrap();
                Some(Self::new(bench, &[text(&file)], &[]))
            }
            "completions" => plain(&["bash"], &[]),
            "man" => plain(&[], &[]),
            "stats" => plain(&[], &[]),
            "map" => Self::of_process(&[]),
            "top" => Self::of_process(&["--rows", "3"]),
            "explain" => Self::of_process(&["--for", "0"]),
            "doctor" => Self::of_process(&[]),
            "pools" => {
                let (bench, log, _) = pools::logged()?;
                Some(Self::new(bench, &[text(&log)], &[]))
            }
            "info" | "profile" | "convert" | "symbolize" => {
                let stage = replay::Stage::new()?;
                let trace = stage.trace("a.qtr", &["--allocations", "300"]);
                Some(Self::new(stage.bench, &[text(&trace)], &[]))
            }
            "replay" => {
                let stage = replay::Stage::new()?;
                let trace = stage.trace("a.qtr", &["--allocations", "300"]);
                let quick = [text(&trace), "--with", "quarry", "-n", "1", "--no-warmup", "--no-latency"];
                Some(Self::new(stage.bench, &quick, &[]))
            }
            "bench" => {
                let tried = bench::Tried::new()?;
                let result = tried.bench.path("result");
                let said = tried.run(&["--smoke", "--json", "--with", "system", "tiny"]).expect(0).stdout;
                fs::write(&result, said).unwrap();
                Some(Self::new(tried.bench, &["--from", text(&result)], &[]))
            }
            "tour" => {
                let bench = run::tour(&[("01-first", &run::experiment(true))])?;
                Some(Self::new(bench, &[], &[]))
            }
            other => panic!("the verb {other} is not known here: say how it is tested"),
        }
    }

    fn of_process(options: &[&str]) -> Option<Self> {
        let bench = Bench::new()?;
        let sleeper = Sleeper(Command::new("sleep").arg("600").spawn().unwrap());
        let pid = sleeper.0.id().to_string();
        let args = [&["-p", &pid], options].concat();
        Some(Self { _sleeper: Some(sleeper), ..Self::new(bench, &args, &[]) })
    }

    fn run(&self, verb: &str, options: &[&str]) -> Ended {
        let (before, after) = (self.before.iter().map(String::as_str), self.after.iter().map(String::as_str));
        let args = [verb].into_iter().chain(before).chain(options.iter().copied()).chain(after);
        let mut command = self.bench.quarry(args);
        command.current_dir(self.bench.path("."));
        Ended::from(command.output().unwrap())
    }

    /// What the help lists behind --format.
    fn formats(&self, verb: &str) -> Vec<String> {
        let help = self.bench.run(&[verb, "--help"]).expect(0).stdout;
        let (_, behind) = help.split_once("--format <FORMAT>").unwrap_or_else(|| panic!("{verb}: {help}"));
        let (_, behind) = behind.split_once("[possible values:").unwrap();
        let (list, _) = behind.split_once(']').unwrap();
        list.split(',').map(|name| name.trim().to_owned()).collect()
    }
}

/// Does a file look like one of this format?
#[track_caller]
fn assert_is(format: &str, path: &Path) {
    let content = fs::read_to_string(path).unwrap();
    let is_json = |text: &str| serde_json::from_str::<Value>(text).is_ok();
    let is_page = content.starts_with("<!DOCTYPE html>") && content.trim_end().ends_with("</html>");
    let is_picture = content.contains("<svg") && content.trim_end().ends_with("</svg>");
    let is = match format {
        "html" => is_page,
        "svg" => is_picture,
        "json" => is_json(&content) || content.lines().all(is_json),
        "csv" => content.lines().next().is_some_and(|line| line.contains(',')),
        _ => !content.is_empty() && !is_page && !is_picture && !is_json(&content),
    };
    assert!(is, "no {format}: {:.300}", content);
}

/// The verbs that the tool lists, without clap's own.
fn verbs() -> Vec<String> {
    let help = Ended::from(Command::new(env!("CARGO_BIN_EXE_quarry")).arg("--help").output().unwrap());
    let (_, list) = help.stdout.split_once("Commands:\n").unwrap();
    let lines = list.lines().take_while(|line| !line.is_empty());
    let verb = |line: &str| Some(line.strip_prefix("  ")?.split(' ').next()?.to_owned());
    lines.filter_map(verb).filter(|verb| !verb.is_empty() && verb != "help").collect()
}

#[test]
fn every_verb_makes_what_the_ending_says_or_refuses_it() {
    let verbs = verbs();
    assert!(verbs.len() >= 16 && verbs.iter().any(|verb| verb == "info"), "{verbs:?}");
    for verb in &verbs {
        let Some(subject) = Subject::of(verb) else { return };
        let made = subject.formats(verb);
        for (format, ending) in ENDINGS {
            let (file, mark) = (subject.bench.path(&format!("x.{ending}")), subject.bench.path("mark"));
            let ended = subject.run(verb, &["-o", text(&file)]);
            if made.iter().any(|name| name == format || format == "json" && name == "jsonl") {
                ended.expect(0);
                assert_is(format, &file);
                let _ = fs::remove_file(mark);
                continue;
            }
            let words = format!("quarry {verb} makes no {format}, but {}", made.join(", "));
            ended.expect(2).says(&words).says("--format");
            assert!(!file.exists() && !mark.exists(), "{verb} began before it refused {format}");
        }
    }
}

#[test]
fn the_option_overrides_the_ending_in_every_verb() {
    for verb in verbs() {
        let Some(subject) = Subject::of(&verb) else { return };
        let made = subject.formats(&verb);
        let file = subject.bench.path("x.html");
        for format in made.iter().filter(|format| ["text", "json"].contains(&format.as_str())) {
            subject.run(&verb, &["--format", format, "-o", text(&file)]).expect(0);
            assert_is(format, &file);
        }
        subject.run(&verb, &["--format", "poem", "-o", text(&file)]).expect(2).says(&made[0]);
    }
}

#[test]
fn several_files_have_the_formats_of_their_endings() {
    let Some(subject) = Subject::of("explain") else { return };
    let files = ["a.html", "a.json", "a.txt"].map(|name| subject.bench.path(name));
    let options: Vec<&str> = files.iter().flat_map(|file| ["-o", text(file)]).collect();
    assert_eq!(subject.run("explain", &options).expect(0).stdout, "");
    files.iter().zip(["html", "json", "text"]).for_each(|(file, format)| assert_is(format, file));
    let options = [&options[..], &["--json"]].concat();
    subject.run("explain", &options).expect(2).says("are for one -o FILE");
}
