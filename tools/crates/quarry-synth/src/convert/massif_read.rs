// SPDX-License-Identifier: MIT
//! Reads files of valgrind's massif. Lines of comments and empty ones are left out. ms_print takes any `#` for the begin of a comment, but
//! massif puts it into names as it is, as in `{closure#0}`.
//!
//! `valgrind --xtree-memory` writes files of the same look. Their snapshots are trees of different things at one moment.

use super::Error;
use super::input::{Input, Lines, shown};
use super::profile::{Profile, Snapshot, Stack, Sum};

/// Deeper no tree is believed.
const DEEPEST: usize = 4096;
/// More call stacks are not kept of one snapshot.
const MOST: usize = 1 << 20;

/// What the root of a tree of live bytes is called in a file of `valgrind --xtree-memory`.
const LIVE_BYTES: &str = "curB ";
const NO_LIVE_BYTES: &str = "the file has trees of valgrind's (xtree), and none of live bytes (curB); \
    valgrind --xtree-memory=full --xtree-memory-file=FILE.ms writes one";

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
            let line = line.trim_end();
            if !line.is_empty() && !line.trim_start().starts_with('#') {
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
    let mut is_xtree = false;
    while let Some(line) = text.next()? {
        let Some(about) = line.strip_prefix("desc:") else {
            text.held = Some(line);
            break;
        };
        is_xtree |= about.trim_start().starts_with("xtree.");
    }
    profile.command = text.value("cmd", ':')?.unwrap_or_default();
    profile.unit = text.value("time_unit", ':')?.unwrap_or_default();
    let (mut complete, mut best) = (!profile.unit.is_empty(), (false, 0));
    while complete && let Some(line) = text.next()? {
        if ["desc:", "cmd:"].iter().any(|begin| line.starts_with(begin)) {
            text.lines.end_before_another();
            break;
        }
        text.held = Some(line);
        let Some((snapshot, is_peak, tree)) = snapshot(&mut text)? else {
            complete = false;
            break;
        };
        let is_of_bytes = tree.as_ref().is_some_and(|tree| tree.root.starts_with(LIVE_BYTES));
        if is_xtree && !is_of_bytes {
            continue;
        }
        // The stacks of the peak are kept, or of the last snapshot that has some.
        if let Some(tree) = tree
            && (is_peak || !best.0)
        {
            best = (is_peak, profile.snapshots.len());
            (profile.of, profile.of_peak, profile.stacks) = (Some(best.1), is_peak, tree.stacks);
        }
        profile.snapshots.push(snapshot);
    }
    if is_xtree && complete && profile.snapshots.is_empty() {
        return Err(Error::line(text.lines.number(), NO_LIVE_BYTES));
    }
    profile.remarks = text.lines.remarks();
    profile.damaged = text.lines.is_cut() || !complete;
    if !complete && profile.remarks.is_empty() {
        profile.remarks.push(super::input::cut_off(text.lines.number()));
    }
    Ok(profile)
}

type Read = (Snapshot, bool, Option<Tree>);

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
    let tree = tree(text)?;
    snapshot.is_detailed = tree.is_some();
    Ok(tree.map(|tree| (snapshot, kind == "peak", Some(tree))))
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
    let (name, place) = name.strip_suffix(')').and_then(place).unwrap_or((name, ""));
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

/// "leaks (a.c:2" in its parts. Brackets may be in the name, as in `f(int (*)(char))`, and in the place, as in `in /dir (2)/lib.so`.
fn place(text: &str) -> Option<(&str, &str)> {
    if let Some(at) = text.find(" (in /") {
        return Some((&text[..at], &text[at + 2..]));
    }
    let mut open = 1;
    let begins = |&(_, byte): &(usize, u8)| {
        open += i32::from(byte == b')') - i32::from(byte == b'(');
        open == 0
    };
    let begin = text.bytes().enumerate().rev().find(begins).map(|(at, _)| at);
    let at = begin.and_then(|at| at.checked_sub(1)).filter(|&at| text.as_bytes()[at] == b' ');
    let at = at.or_else(|| text.rfind(" ("))?;
    Some((&text[..at], &text[at + 2..]))
}

/// A tree of a snapshot.
struct Tree {
    /// What its root is called.
    root: String,
    stacks: Vec<Stack>,
}

/// The stacks of a tree: a node has what its children leave of it. `None`: the file was cut off in it.
fn tree(text: &mut Text) -> Result<Option<Tree>, Error> {
    /// A node whose children are being read.
    struct Open {
        frame: Option<String>,
        children: usize,
        rest: u64,
    }
    let mut open: Vec<Open> = Vec::new();
    let (mut root, mut stacks) = (String::new(), Vec::new());
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
        if is_root {
            name.clone_into(&mut root);
        }
        open.push(Open { frame: (!is_root).then(|| frame(name)), children, rest: bytes });
        while open.last().is_some_and(|node| node.children == 0) {
            let frames: Vec<String> = open.iter().filter_map(|node| node.frame.clone()).collect();
            let rest = open.pop().map_or(0, |node| node.rest);
            if rest > 0 {
                stacks.push(Stack { frames, live: Sum { blocks: None, bytes: rest }, allocated: None });
            }
        }
        if open.is_empty() {
            return Ok(Some(Tree { root, stacks }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(text: &str) -> Result<Profile, Error> {
        let input = Input::new(std::io::Cursor::new(text.to_owned()), text.len() as u64).unwrap();
        Profile::read(super::super::Format::Massif, input, |symbols| symbols)
    }

    fn snapshot(number: u32, bytes: u64, tree: &str) -> String {
        format!(
            "#-----------\nsnapshot={number}\n#-----------\ntime=5\nmem_heap_B={bytes}\nmem_heap_extra_B=0\nmem_stacks_B=0\n\
             heap_tree=detailed\n{tree}"
        )
    }

    /// Blocks are no bytes, and what was allocated is not live.
    #[test]
    fn of_the_trees_of_valgrind_the_live_bytes_are_read() {
        let head = "desc: xtree.produce_report\ncmd: ./a\ntime_unit: ms\n";
        let live = snapshot(0, 300, "n1: 300 curB : currently allocated Bytes\n n0: 300 0x1: f (a.c:1)\n");
        let blocks = snapshot(1, 3, "n1: 3 curBk : currently allocated Blocks\n n0: 3 0x1: f (a.c:1)\n");
        let total = snapshot(2, 900, "n1: 900 totB : total allocated Bytes\n n0: 900 0x1: f (a.c:1)\n");
        let read = profile(&format!("{head}{live}{blocks}{total}")).unwrap();
        assert_eq!((read.snapshots.len(), read.snapshots[0].heap, read.of), (1, 300, Some(0)));
        assert_eq!((read.live(), read.damaged), (Sum { blocks: None, bytes: 300 }, false));
        let error = profile(&format!("{head}{blocks}{total}")).unwrap_err().to_string();
        assert!(error.contains("none of live bytes (curB); valgrind --xtree-memory=full"), "{error}");
    }

    #[test]
    fn only_whole_lines_are_comments() {
        let tree = "n2: 30 (heap)\n  # of an editor\n n0: 20 0x1: a::{closure#0} (a.rs:3)\n n0: 10 0x2: a::{closure#1} (a.rs:3)\n";
        let read = profile(&format!("cmd: ./prog a#b\ntime_unit: i\n{}", snapshot(0, 30, tree))).unwrap();
        let names: Vec<&str> = read.stacks.iter().map(|stack| stack.frames[0].as_str()).collect();
        assert_eq!((read.command.as_str(), read.damaged), ("./prog a#b", false));
        assert_eq!(names, ["a::{closure#0} at a.rs:3", "a::{closure#1} at a.rs:3"]);
    }

    #[test]
    fn another_file_behind_the_first_is_told() {
        for (head, line) in [("desc: (none)\ncmd: ./a\ntime_unit: i\n", 13), ("cmd: ./a\ntime_unit: i\n", 12)]
        {
            let one = format!("{head}{}", snapshot(0, 30, "n0: 30 (heap)\n"));
            let read = profile(&one.repeat(2)).unwrap();
            assert_eq!((read.snapshots.len(), read.damaged), (1, true));
            assert!(
                read.remarks[0].starts_with(&format!("another file begins in line {line};")),
                "{:?}",
                read.remarks
            );
        }
    }

    #[test]
    fn without_a_snapshot_nothing_is_known_of_blocks() {
        let cut = profile("cmd: ./a\ntime_unit: i\nsnapshot=0\ntime=0\nmem_heap_B=300\n").unwrap();
        assert_eq!((cut.live(), cut.damaged), (Sum { blocks: None, bytes: 0 }, true));
    }

    #[test]
    fn frames_keep_their_names_and_places() {
        for (text, named) in [
            ("0x109149: leaks (a.c:2)", "leaks at a.c:2"),
            ("0x4C2AB80: f (in /lib/libf.so)", "f in libf.so"),
            ("0x4C2AB80: ???", "0x4c2ab80"),
            ("0x109149: (below main) (libc_start.h:58)", "(below main) at libc_start.h:58"),
            ("0x1: f(int (*)(char), long) (a.c:3)", "f(int (*)(char), long) at a.c:3"),
            (
                "0x1: (anonymous namespace)::f() (dir (2)/a.c:3)",
                "(anonymous namespace)::f() at dir (2)/a.c:3",
            ),
            ("0x1: f (a).c:3)", "f at a).c:3"),
            ("0x10A: ??? (in /x/od (2)/prog)", "0x10a in prog"),
            ("0x1: f() (in /x (y/a (1).so)", "f() in a (1).so"),
            ("0x1: a::{closure#1} (a.rs:3)", "a::{closure#1} at a.rs:3"),
            ("in 2 places", "(in 2 places)"),
        ] {
            assert_eq!(frame(text), named, "{text}");
        }
    }
}
