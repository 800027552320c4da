// SPDX-License-Identifier: MIT
//! A chapter, as its source tells it: the first comment, and the lines that are shown.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// What is known without running it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Chapter {
    /// Its place in the tour.
    pub number: u32,
    /// "zero-page".
    pub name: String,
    /// What it is about, in a few words.
    pub title: String,
    /// In plain words.
    pub idea: String,
    /// What older texts say of it, and how it is on the kernels that Quarry runs on.
    pub now: String,
    /// The lines that are shown.
    pub code: String,
    /// Where its program and its files are.
    pub folder: PathBuf,
}

impl Chapter {
    /// "02-zero-page": the program's name, and the stem of its files.
    pub fn program_name(&self) -> String {
        format!("{:02}-{}", self.number, self.name)
    }

    /// The program.
    pub fn program(&self) -> PathBuf {
        self.folder.join(self.program_name())
    }

    /// The lines that it wrote on another machine, if there are any.
    pub fn record(&self) -> Option<String> {
        fs::read_to_string(self.folder.join(self.program_name() + ".jsonl")).ok()
    }

    /// All of it but the folder.
    pub fn json(&self) -> Value {
        json!({
            "number": self.number, "name": self.name, "title": self.title, "idea": self.idea, "then_and_now": self.now,
            "code": self.code,
        })
    }

    /// From a source of this name. `None`: it is not a chapter.
    fn parse(stem: &str, folder: &Path, source: &str) -> Option<Self> {
        let (number, name) = stem.split_once('-')?;
        let number = number.parse().ok()?;
        let paragraphs = head(source);
        let first = paragraphs.first()?;
        let title = first.split_once(".c: ")?.1.to_owned();
        let after = |label: &str| {
            paragraphs.iter().find_map(|text| text.strip_prefix(label)).unwrap_or_default().trim().to_owned()
        };
        Some(Self {
            number,
            name: name.to_owned(),
            title,
            idea: after("Idea:"),
            now: after("Then and now:"),
            code: shown(source),
            folder: folder.to_owned(),
        })
    }
}

/// All chapters whose sources lie in this folder, in order.
pub fn read_all(folder: &Path) -> io::Result<Vec<Chapter>> {
    let mut chapters = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if let Some(stem) = path.file_stem().and_then(|stem| stem.to_str())
            && path.extension().is_some_and(|extension| extension == "c")
        {
            chapters.extend(Chapter::parse(stem, folder, &fs::read_to_string(&path)?));
        }
    }
    chapters.sort_by(|a, b| (a.number, &a.name).cmp(&(b.number, &b.name)));
    Ok(chapters)
}

/// The paragraphs of the first comment, each as one line, without the licence.
fn head(source: &str) -> Vec<String> {
    let lines = source.lines().take_while(|line| line.starts_with("//"));
    let mut paragraphs = vec![String::new()];
    for line in lines.filter(|line| !line.contains("SPDX")) {
        let line = line.trim_start_matches('/').trim();
        let last = paragraphs.last_mut().expect("there is always one");
        match (line.is_empty(), last.is_empty()) {
            (true, _) => paragraphs.push(String::new()),
            (false, true) => last.push_str(line),
            (false, false) => *last = format!("{last} {line}"),
        }
    }
    paragraphs.retain(|paragraph| !paragraph.is_empty());
    paragraphs
}

/// What lies between the marks; each part moved to the left as far as it goes.
fn shown(source: &str) -> String {
    let mut parts: Vec<Vec<&str>> = Vec::new();
    let mut inside = false;
    for line in source.lines() {
        match line.trim() {
            "// tour: show" => {
                inside = true;
                parts.push(Vec::new());
            }
            "// tour: hide" => inside = false,
            _ if inside => parts.last_mut().expect("one was begun").push(line),
            _ => {}
        }
    }
    let mut code = String::new();
    for part in parts {
        let indent = |line: &&&str| line.len() - line.trim_start().len();
        let common = part.iter().filter(|line| !line.trim().is_empty()).map(|line| indent(&line)).min();
        for line in &part {
            code.push_str(line.get(common.unwrap_or(0)..).unwrap_or_default());
            code.push('\n');
        }
    }
    code.trim_matches('\n').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
// SPDX-License-Identifier: MIT
// 07-x-y.c: a title: with a colon
//
// Idea: Words that
// go on.
//
// Then and now: Other words.
#include \"tour.h\"
// not of the head

// tour: show
static int before;
// tour: hide
int main(void) {
    hidden();
    // tour: show
    if (shown())
        deeper();

    // tour: hide
    hidden();
    // tour: show
    last();
    // tour: hide
}
";

    #[test]
    fn a_source_tells_its_chapter() {
        let chapter = Chapter::parse("07-x-y", Path::new("/f"), SOURCE).unwrap();
        assert_eq!((chapter.number, chapter.name.as_str()), (7, "x-y"));
        assert_eq!(chapter.title, "a title: with a colon");
        assert_eq!(chapter.idea, "Words that go on.");
        assert_eq!(chapter.now, "Other words.");
        assert_eq!(chapter.code, "static int before;\nif (shown())\n    deeper();\n\nlast();");
        assert_eq!(chapter.program(), Path::new("/f/07-x-y"));
    }

    #[test]
    fn other_sources_are_no_chapters() {
        for (stem, source) in [("tour", SOURCE), ("x-y", SOURCE), ("07-x", ""), ("07-x", "// no title\n")] {
            assert_eq!(Chapter::parse(stem, Path::new("/f"), source), None, "{stem}");
        }
    }
}
