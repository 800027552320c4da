// SPDX-License-Identifier: MIT
//! Reads files of valgrind's massif: as liberally as ms_print does, which leaves out comments and empty lines.

use super::Error;
use super::input::{Input, Lines, shown};
use super::profile::{Profile, Snapshot, Stack, Sum};

/// Deeper no tree is believed.
const DEEPEST: usize = 4096;
/// More call stacks are not kept of one snapshot.
const MOST: usize = 1 << 20;

/// Lines without what ms_print does not look at.
struct Text {
    lines: Lines,
    /// A line that was read and not used.
    held: Option<String>,
}

impl Text {
    fn next(&mut self) -> Result<Option<String>, Error> {
        if let Some(line) = self.held.take() {
            return Ok(Some(line));
        }
        while self.lines.advance()? && !self.lines.is_part() {
            let line = String::from_utf8_lossy(self.lines.line()).into_owned();
            let line = line.split('#').next().unwrap_or("").trim_end();
            if !line.trim().is_empty() {
                return Ok(Some(line.to_owned()));
            }
        }
        Ok(None)
    }

    /// The line that must be `key` and `separator` and a value. `None`: the file was cut off there.
    fn value(&mut self, key: &str, separator: char) -> Result<Option<String>, Error> {
        let Some(line) = self.next()? else { return Ok(None) };
        match line.strip_prefix(key).and_then(|rest| rest.strip_prefix(separator)) {
            Some(value) => Ok(Some(value.trim().to_owned())),
            None => {
                self.refuse(&line, &format!("'{key}{separator}' is expected"))?;
                Ok(None)
            }
        }
    }

    fn number(&mut self, key: &str) -> Result<Option<u64>, Error> {
        let Some(value) = self.value(key, '=')? else { return Ok(None) };
        match value.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => {
                self.refuse(&value, &format!("{key} is no number"))?;
                Ok(None)
            }
        }
    }

    fn refuse(&mut self, line: &str, what: &str) -> Result<(), Error> {
        self.lines.refuse(format!("{what}, and there is '{}'", shown(line.as_bytes())))
    }
}

pub(super) fn read(input: Input) -> Result<Profile, Error> {
    let mut text = Text { lines: Lines::new(input), held: None };
    let mut profile = Profile::default();
    while let Some(line) = text.next()? {
        if !line.starts_with("desc:") {
            text.held = Some(line);
            break;
        }
    }
    profile.command = text.value("cmd", ':')?.unwrap_or_default();
    profile.unit = text.value("time_unit", ':')?.unwrap_or_default();
    let (mut complete, mut best) = (!profile.unit.is_empty(), (false, 0));
    while complete && let Some(line) = text.next()? {
        text.held = Some(line);
        let Some((snapshot, is_peak, stacks)) = snapshot(&mut text)? else {
            complete = false;
            break;
        };
        // The stacks of the peak are kept, or of the last snapshot that has some.
        if let Some(stacks) = stacks
            && (is_peak || !best.0)
        {
            best = (is_peak, profile.snapshots.len());
            (profile.of, profile.of_peak, profile.stacks) = (Some(best.1), is_peak, stacks);
        }
        profile.snapshots.push(snapshot);
    }
    profile.remarks = text.lines.remarks();
    profile.damaged = text.lines.is_cut() || !complete;
    if !complete && profile.remarks.is_empty() {
        profile.remarks.push(super::input::cut_off(text.lines.number()));
    }
    Ok(profile)
}

type Read = (Snapshot, bool, Option<Vec<Stack>>);

/// `None`: the file was cut off in it.
fn snapshot(text: &mut Text) -> Result<Option<Read>, Error> {
    let mut numbers = [0; 5];
    for (number, key) in
        numbers.iter_mut().zip(["snapshot", "time", "mem_heap_B", "mem_heap_extra_B", "mem_stacks_B"])
    {
        let Some(value) = text.number(key)? else { return Ok(None) };
        *number = value;
    }
    let Some(kind) = text.value("heap_tree", '=')? else { return Ok(None) };
    let [_, time, heap, extra, stacks] = numbers;
    let mut snapshot = Snapshot { time, heap, extra, stacks, is_detailed: kind != "empty" };
    if !snapshot.is_detailed {
        return Ok(Some((snapshot, false, None)));
    }
    if kind != "detailed" && kind != "peak" {
        text.refuse(&kind, "'empty', 'detailed' or 'peak' is expected")?;
        return Ok(None);
    }
    let stacks = tree(text)?;
    snapshot.is_detailed = stacks.is_some();
    Ok(stacks.map(|stacks| (snapshot, kind == "peak", Some(stacks))))
}

/// "n2: 1234 0x109149: leaks (a.c:2)": children, bytes, text.
fn node(line: &str) -> Option<(usize, u64, &str)> {
    let (children, rest) = line.trim_start().strip_prefix('n')?.split_once(':')?;
    let rest = rest.trim_start();
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    Some((children.parse().ok()?, rest[..end].parse().ok()?, rest[end..].trim()))
}

/// "0x109149: leaks (a.c:2)" as we call it: "leaks at a.c:2".
fn frame(text: &str) -> String {
    let Some((address, name)) = text.split_once(": ").filter(|(address, _)| address.starts_with("0x")) else {
        return format!("({text})");
    };
    let (name, place) = match name.strip_suffix(')').and_then(|name| name.rsplit_once(" (")) {
        Some((name, place)) => (name, place),
        None => (name, ""),
    };
    match (name, place.strip_prefix("in ")) {
        ("???", Some(file)) => {
            format!("{} in {}", address.to_ascii_lowercase(), file.rsplit('/').next().unwrap_or(file))
        }
        ("???", None) => address.to_ascii_lowercase(),
        (name, Some(file)) => format!("{name} in {}", file.rsplit('/').next().unwrap_or(file)),
        (name, None) if place.is_empty() => name.to_owned(),
        (name, None) => format!("{name} at {place}"),
    }
}

/// The stacks of a tree: a node has what its children leave of it. `None`: the file was cut off in it.
fn tree(text: &mut Text) -> Result<Option<Vec<Stack>>, Error> {
    /// A node whose children are being read.
    struct Open {
        frame: Option<String>,
        children: usize,
        rest: u64,
    }
    let mut open: Vec<Open> = Vec::new();
    let mut stacks = Vec::new();
    loop {
        let Some(line) = text.next()? else { return Ok(None) };
        let Some((children, bytes, name)) = node(&line) else {
            text.refuse(&line, "a node of a tree, 'n0: 123 ...', is expected")?;
            return Ok(None);
        };
        if open.len() >= DEEPEST || stacks.len() >= MOST {
            return Err(Error::line(text.lines.number(), "a tree so deep or wide is none of massif's"));
        }
        if let Some(parent) = open.last_mut() {
            parent.children -= 1;
            parent.rest = parent.rest.saturating_sub(bytes);
        }
        let is_root = open.is_empty();
        open.push(Open { frame: (!is_root).then(|| frame(name)), children, rest: bytes });
        while open.last().is_some_and(|node| node.children == 0) {
            let frames: Vec<String> = open.iter().filter_map(|node| node.frame.clone()).collect();
            let rest = open.pop().map_or(0, |node| node.rest);
            if rest > 0 {
                stacks.push(Stack { frames, live: Sum { blocks: None, bytes: rest }, allocated: None });
            }
        }
        if open.is_empty() {
            return Ok(Some(stacks));
        }
    }
}
