// SPDX-License-Identifier: MIT
//! What was found, and how it is shown.

use quarry_proc::shown;
use quarry_report::fit::wrapped;
use quarry_report::style::Style;
use serde_json::{Value, json};

/// How much it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// As it should be.
    Ok,
    /// It costs something or hides something; Quarry works.
    Note,
    /// Quarry does not serve the program, or a verb cannot work.
    Problem,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Note => "note",
            Level::Problem => "problem",
        }
    }

    fn styled(self, style: Style) -> String {
        let padded = format!("{:7}", self.name());
        match self {
            Level::Ok => padded,
            Level::Note => style.warning(&padded),
            Level::Problem => style.error(&padded),
        }
    }
}

/// One line of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at.
    pub name: String,
    /// How much it matters.
    pub level: Level,
    /// What is there.
    pub value: String,
    /// What to do next; empty where nothing is to be done.
    pub next: String,
}

impl Finding {
    /// As it should be.
    pub fn ok(name: &str, value: impl Into<String>) -> Self {
        Self { name: name.into(), level: Level::Ok, value: value.into(), next: String::new() }
    }

    /// Good to know, with what to do about it.
    pub fn note(name: &str, value: impl Into<String>, next: impl Into<String>) -> Self {
        Self { name: name.into(), level: Level::Note, value: value.into(), next: next.into() }
    }

    /// In the way, with what to do about it.
    pub fn problem(name: &str, value: impl Into<String>, next: impl Into<String>) -> Self {
        Self { level: Level::Problem, ..Self::note(name, value, next) }
    }

    fn json(&self) -> Value {
        let next = (!self.next.is_empty()).then_some(&self.next);
        json!({ "name": self.name, "level": self.level.name(), "value": self.value, "next": next })
    }
}

/// Findings of one kind.
pub struct Group {
    pub name: &'static str,
    pub findings: Vec<Finding>,
}

/// All of it.
pub struct Diagnosis {
    pub groups: Vec<Group>,
}

/// Where the reports without a terminal wrap.
const WIDTH: usize = 100;

impl Diagnosis {
    fn count(&self, level: Level) -> usize {
        self.groups.iter().flat_map(|group| &group.findings).filter(|finding| finding.level == level).count()
    }

    /// Is something in the way?
    pub fn has_problem(&self) -> bool {
        self.count(Level::Problem) > 0
    }

    /// For people.
    pub fn text(&self, style: Style) -> String {
        let width = style.width.map_or(WIDTH, usize::from);
        // Words of a process, names of its variables and of files may have anything in them.
        let findings = self.groups.iter().flat_map(|group| &group.findings);
        let column = findings.map(|finding| shown(&finding.name).chars().count()).max().unwrap_or(0);
        let mut text = String::new();
        for group in &self.groups {
            text += &format!("{}\n", style.bold(group.name));
            for finding in &group.findings {
                let level = finding.level.styled(style);
                text += &format!("  {level}  {:column$}  {}\n", shown(&finding.name), shown(&finding.value));
                if !finding.next.is_empty() {
                    text += &(wrapped(&shown(&finding.next), width, "           ", "           ") + "\n");
                }
            }
            text += "\n";
        }
        let of = |count: usize, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
        let (problems, notes) = (self.count(Level::Problem), self.count(Level::Note));
        text + &format!("{}, {}.\n", of(problems, "problem"), of(notes, "note"))
    }

    /// For machines.
    pub fn json(&self, schema: &str) -> Value {
        let of = |group: &Group| {
            let findings: Vec<Value> = group.findings.iter().map(Finding::json).collect();
            json!({ "name": group.name.to_lowercase(), "findings": findings })
        };
        let groups: Vec<Value> = self.groups.iter().map(of).collect();
        json!({ "schema": schema, "problems": self.count(Level::Problem), "notes": self.count(Level::Note), "groups": groups })
    }
}
