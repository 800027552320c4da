// SPDX-License-Identifier: MIT
//! A run of a chapter's program: the lines of JSON that it writes.

use std::collections::BTreeMap;
use std::env;
use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::chapter::Chapter;

/// Chapters take seconds: this one is stuck.
const LONGEST: Duration = Duration::from_secs(60);

/// The exit code by which a program says that the experiment is impossible here.
const SKIPPED: i32 = 77;

/// What a program told, in its order.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    Step(Step),
    /// Lines of /proc/PID/maps.
    Maps(Vec<String>),
    Claim(Claim),
    /// A sentence that cannot be wrong.
    Note(String),
}

/// What the kernel counted at a moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    pub name: String,
    /// Empty for the program's first process.
    pub process: String,
    /// "VmSize", "top.SHR", "map.Pss", "minor": KiB, or counts.
    pub figures: BTreeMap<String, i64>,
}

/// What is to be seen, and whether it was.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    pub text: String,
    pub holds: bool,
    /// Measured, expected, and how far apart they may be.
    pub numbers: Option<(i64, i64, i64)>,
}

/// A run.
#[derive(Debug, Default, PartialEq)]
pub struct Run {
    /// The figures that tell the story.
    pub show: Vec<String>,
    pub kernel: String,
    pub machine: String,
    pub page_kib: i64,
    pub memory_kib: i64,
    pub events: Vec<Event>,
    /// It is one of another machine, because here ...
    pub recorded: Option<String>,
    /// There is none, because ...
    pub skipped: Option<String>,
    /// The program did not do what it should.
    pub failed: Option<String>,
    pub seconds: f64,
}

impl Run {
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.events.iter().filter_map(|event| if let Event::Step(step) = event { Some(step) } else { None })
    }

    /// How many claims did not hold.
    pub fn unexpected(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::Claim(claim) if !claim.holds)).count()
    }

    /// From the lines of a program that has ended well.
    fn parse(text: &str) -> Result<Self, String> {
        let mut run = Self::default();
        let mut ended = false;
        for line in text.lines() {
            let value: Value = serde_json::from_str(line).map_err(|error| format!("{error} in: {line}"))?;
            run.add(&value).ok_or_else(|| format!("a line without a meaning: {line}"))?;
            ended |= value["end"]["steps"] == json!(run.steps().count());
        }
        let complete = ended || run.skipped.is_some();
        if complete { Ok(run) } else { Err(String::from("it stopped in the middle")) }
    }

    fn add(&mut self, value: &Value) -> Option<()> {
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        let number = |key: &str| value[key].as_i64();
        if let Some(show) = text("show") {
            self.show = show.split_whitespace().map(str::to_owned).collect();
            self.kernel = text("kernel")?;
            self.machine = text("machine")?;
            self.page_kib = number("page_kib")?;
            self.memory_kib = number("memory_kib")?;
        } else if let Some(name) = text("step") {
            let figures = figures(value)?;
            self.events.push(Event::Step(Step { name, process: text("process")?, figures }));
        } else if let Some(lines) = value["maps"].as_array() {
            let lines = lines.iter().filter_map(|line| line.as_str().map(str::to_owned));
            self.events.push(Event::Maps(lines.collect()));
        } else if let Some(text) = text("claim") {
            let numbers = number("measured").zip(number("expected")).zip(number("slack"));
            let numbers = numbers.map(|((measured, expected), slack)| (measured, expected, slack));
            self.events.push(Event::Claim(Claim { text, holds: value["holds"].as_bool()?, numbers }));
        } else if let Some(text) = text("note") {
            self.events.push(Event::Note(text));
        } else if let Some(why) = text("skip") {
            self.skipped = Some(why);
        } else if !value["end"].is_object() {
            return None;
        }
        Some(())
    }

    /// All of it, for the report.
    pub fn json(&self) -> Value {
        let mut steps = Vec::new();
        let (mut maps, mut claims, mut notes) = (Vec::new(), Vec::new(), Vec::new());
        for event in &self.events {
            match event {
                Event::Step(Step { name, process, figures }) => {
                    steps.push(json!({"name": name, "process": process, "figures": figures}));
                }
                Event::Maps(lines) => {
                    maps.push(json!({"after": steps.last().map(|step| &step["name"]), "lines": lines}));
                }
                Event::Claim(Claim { text, holds, numbers }) => claims.push(json!({
                    "text": text, "holds": holds, "measured": numbers.map(|n| n.0), "expected": numbers.map(|n| n.1),
                    "slack": numbers.map(|n| n.2),
                })),
                Event::Note(text) => notes.push(json!(text)),
            }
        }
        json!({
            "kernel": self.kernel, "machine": self.machine, "page_kib": self.page_kib, "memory_kib": self.memory_kib,
            "recorded": self.recorded, "skipped": self.skipped, "failed": self.failed, "seconds": self.seconds,
            "show": self.show, "steps": steps, "maps": maps, "claims": claims, "notes": notes,
        })
    }
}

/// The figures of a step's line: those of the groups "status" and "faults" go by their own names.
fn figures(value: &Value) -> Option<BTreeMap<String, i64>> {
    let mut figures = BTreeMap::new();
    for (group, members) in value.as_object()? {
        for (name, figure) in members.as_object().into_iter().flatten() {
            let name = match group.as_str() {
                "status" | "faults" => name.clone(),
                group => format!("{group}.{name}"),
            };
            figures.insert(name, figure.as_i64()?);
        }
    }
    Some(figures)
}

/// Run the chapter's program, or take the recorded run where it cannot be done here.
pub fn run(chapter: &Chapter, system: bool) -> Run {
    let begun = Instant::now();
    let mut run = match execute(chapter, system) {
        Ok(text) => Run::parse(&text).unwrap_or_else(failed),
        Err(why) => failed(why),
    };
    run.seconds = begun.elapsed().as_secs_f64();
    let Some(why) = run.skipped.clone() else { return run };
    match chapter.record().map(|text| Run::parse(&text)) {
        Some(Ok(record)) => Run { recorded: Some(why), ..record },
        Some(Err(error)) => failed(format!("its recorded run cannot be read: {error}")),
        None => run,
    }
}

fn failed(why: String) -> Run {
    Run { failed: Some(why), ..Run::default() }
}

/// What the program writes. It runs as it is: no other malloc, and no settings of malloc from the environment.
fn execute(chapter: &Chapter, system: bool) -> Result<String, String> {
    let program = chapter.program();
    let mut command = Command::new(&program);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("MALLOC_")
            || matches!(&*text, "LD_PRELOAD" | "GLIBC_TUNABLES" | "QUARRY_TOUR_SYSTEM")
        {
            command.env_remove(&name);
        }
    }
    if system {
        command.env("QUARRY_TOUR_SYSTEM", "1");
    }
    let started = command.spawn();
    let mut child = started.map_err(|error| format!("{} cannot be run: {error}", program.display()))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let readers = [thread::spawn(move || read(stdout)), thread::spawn(move || read(stderr))];
    let begun = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Ok(status),
            Ok(None) if begun.elapsed() < LONGEST => thread::sleep(Duration::from_millis(5)),
            Ok(None) => {
                // Its children end with it, by their own wish.
                let _ = child.kill().and_then(|()| child.wait().map(drop));
                break Err(format!("it had not ended after {} seconds", LONGEST.as_secs()));
            }
            Err(error) => break Err(error.to_string()),
        }
    };
    let [text, errors] = readers.map(|reader| reader.join().unwrap_or_else(|_| Ok(String::new())));
    let errors = errors.unwrap_or_default();
    match status? {
        status if matches!(status.code(), Some(0 | 1 | SKIPPED)) => text.map_err(|error| error.to_string()),
        status => Err(ended(status, &errors)),
    }
}

fn read(from: Option<impl Read>) -> io::Result<String> {
    let mut text = String::new();
    from.map_or(Ok(0), |mut from| from.read_to_string(&mut text)).map(|_| text)
}

fn ended(status: ExitStatus, errors: &str) -> String {
    let how = match (status.code(), status.signal()) {
        (Some(code), _) => format!("it ended with code {code}"),
        (None, signal) => format!("signal {} ended it", signal.unwrap_or(0)),
    };
    errors.lines().last().map_or_else(|| how.clone(), |line| format!("{how}: {line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: &str =
        r#"{"show":"VmSize map.Rss","kernel":"6.1","machine":"x86_64","page_kib":4,"memory_kib":1000}"#;
    const STEP: &str =
        r#"{"step":"s","process":"child","status":{"VmSize":5},"map":{"Rss":4},"faults":{"minor":3}}"#;

    #[test]
    fn lines_become_a_run() {
        let maps = r#"{"maps":["a","b"]}"#;
        let claim = r#"{"claim":"c","holds":false,"measured":1,"expected":2,"slack":0}"#;
        let end = r#"{"end":{"steps":1,"claims":1,"failed":1}}"#;
        let text = [BEGIN, STEP, maps, claim, r#"{"note":"n"}"#, end].join("\n");
        let run = Run::parse(&text).unwrap();
        assert_eq!(run.show, ["VmSize", "map.Rss"]);
        assert_eq!((run.unexpected(), run.page_kib, run.memory_kib), (1, 4, 1000));
        let step = run.steps().next().unwrap();
        assert_eq!(step.process, "child");
        let figures: Vec<(&str, i64)> = step.figures.iter().map(|(k, v)| (k.as_str(), *v)).collect();
        assert_eq!(figures, [("VmSize", 5), ("map.Rss", 4), ("minor", 3)]);
        let json = run.json();
        assert_eq!(json["maps"][0], json!({"after": "s", "lines": ["a", "b"]}));
        assert_eq!(json["claims"][0]["measured"], 1);
        assert_eq!(json["notes"][0], "n");
    }

    #[test]
    fn what_is_not_whole_is_no_run() {
        let whole = [BEGIN, STEP, r#"{"end":{"steps":1,"claims":0,"failed":0}}"#].join("\n");
        assert!(Run::parse(&whole).is_ok());
        assert_eq!(
            Run::parse(&[BEGIN, r#"{"skip":"why"}"#].join("\n")).unwrap().skipped.as_deref(),
            Some("why")
        );
        for text in [
            String::new(),
            [BEGIN, STEP].join("\n"),
            whole.replace("\"steps\":1", "\"steps\":2"),
            whole.replace("{\"end\"", "{\"and\""),
            whole.replace("\"VmSize\":5", "\"VmSize\":\"x\""),
            whole[..whole.len() - 3].to_owned(),
        ] {
            assert!(Run::parse(&text).is_err(), "{text}");
        }
    }
}
