// SPDX-License-Identifier: MIT
//! What a chapter's program told when it ran: the lines of JSON that it wrote.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// What a program told, in its order.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// What the kernel counted.
    Step(Step),
    /// Lines of /proc/PID/maps.
    Maps(Vec<String>),
    /// What is to be seen.
    Claim(Claim),
    /// A sentence that cannot be wrong.
    Note(String),
}

/// What the kernel counted at a moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Its name.
    pub name: String,
    /// Empty for the program's first process.
    pub process: String,
    /// "VmSize", "top.SHR", "map.Pss", "minor": KiB, or counts.
    pub figures: BTreeMap<String, i64>,
}

/// What is to be seen, and whether it was.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// In a sentence.
    pub text: String,
    /// Was it so?
    pub holds: bool,
    /// Measured, expected, and how far apart they may be.
    pub numbers: Option<(i64, i64, i64)>,
}

/// A run.
#[derive(Debug, Default, PartialEq)]
pub struct Run {
    /// The figures that tell the story.
    pub show: Vec<String>,
    /// The kernel's version.
    pub kernel: String,
    /// The processor's kind.
    pub machine: String,
    /// KiB of a page.
    pub page_kib: i64,
    /// KiB of the machine's memory.
    pub memory_kib: i64,
    /// All that it told.
    pub events: Vec<Event>,
    /// It is one of another machine, because here ...
    pub recorded: Option<String>,
    /// There is none, because ...
    pub skipped: Option<String>,
    /// The program did not do what it should.
    pub failed: Option<String>,
    /// How long it took.
    pub seconds: f64,
}

impl Run {
    /// What the kernel counted, in order.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.events.iter().filter_map(|event| if let Event::Step(step) = event { Some(step) } else { None })
    }

    /// How many claims did not hold.
    pub fn unexpected(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::Claim(claim) if !claim.holds)).count()
    }

    /// From the lines of a program that has ended well.
    pub fn parse(text: &str) -> Result<Self, String> {
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
