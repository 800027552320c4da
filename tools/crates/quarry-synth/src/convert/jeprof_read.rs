// SPDX-License-Identifier: MIT
//! Reads heap profiles of gperftools and jemalloc: `heap profile:` and `heap_v2/RATE`, with or without a table of names, as
//! liberally as jeprof does.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

use quarry_symbols::Symbols;
use quarry_trace::{Event, StackNode, Trace, What};
use serde_json::json;

use super::Error;
use super::files::Proof;
use super::input::{Input, Lines, shown};
use super::profile::{Profile, Stack, Sum};

/// The rate that readers take where a profile of the old kind names none.
const USUAL: u64 = 128 << 10;
/// More call stacks are not kept.
const MOST: usize = 1 << 22;

/// How the numbers of a profile were drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Sampling {
    All,
    /// The mean distance of a Poisson process.
    Poisson(u64),
    /// Uniform distances of this mean, by versions of gperftools before 1.0.
    Uniform(u64),
}

impl Sampling {
    fn rate(self) -> u64 {
        match self {
            Sampling::All => 0,
            Sampling::Poisson(rate) | Sampling::Uniform(rate) => rate,
        }
    }

    /// What the blocks of a stack stand for, by their mean size.
    fn weigh(self, [blocks, bytes]: [u64; 2]) -> Sum {
        if blocks == 0 || self.rate() == 0 {
            return Sum { blocks: Some(blocks), bytes };
        }
        let ratio = bytes as f64 / blocks as f64 / self.rate() as f64;
        let factor = match self {
            Sampling::Uniform(_) => 1.0 / ratio.min(1.0),
            _ => -1.0 / (-ratio).exp_m1(),
        };
        let factor = if factor.is_finite() { factor } else { 1.0 };
        let times = |n: u64| (n as f64 * factor).round() as u64;
        Sum { blocks: Some(times(blocks)), bytes: times(bytes) }
    }
}

/// Blocks and bytes that are live, and that were allocated.
type Four = [[u64; 2]; 2];

/// "12: 3456 [78: 9012]" at the beginning of a text, and what stands behind it.
fn four(text: &str) -> Option<(Four, &str)> {
    let (live, rest) = text.split_once('[')?;
    let (all, rest) = rest.split_once(']')?;
    let pair = |text: &str| {
        let (blocks, bytes) = text.split_once(':')?;
        Some([blocks.trim().parse().ok()?, bytes.trim().parse().ok()?])
    };
    Some(([pair(live)?, pair(all)?], rest))
}

fn is_head(line: &str) -> bool {
    line.starts_with("heap profile:") || line.starts_with("heap_v2/")
}

/// What the head says of the numbers, and their sums if it names them.
fn sampling(head: &str) -> Result<(Sampling, Option<Four>), String> {
    if let Some(rate) = head.strip_prefix("heap_v2/") {
        let rate = rate.trim().parse().map_err(|_| "names no rate")?;
        return Ok((Sampling::Poisson(rate), None));
    }
    let Some((numbers, rest)) = head.strip_prefix("heap profile:").and_then(four) else {
        return Err("is no head of a heap profile".into());
    };
    let kind = rest.trim().strip_prefix('@').unwrap_or("").trim();
    let (kind, rate) = kind.split_once('/').unwrap_or((kind, ""));
    let rate = rate.trim().parse().unwrap_or(0);
    let sampling = match kind.trim() {
        // As old as that, it is a sample if nothing was ever freed.
        "" if numbers[0] == numbers[1] => Sampling::Uniform(USUAL),
        "" | "heapprofile" => Sampling::All,
        kind if !kind.contains("heap") => Sampling::All,
        kind if kind.contains("_v2") && rate > 0 => Sampling::Poisson(rate),
        kind if kind.contains("_v2") => Sampling::Poisson(USUAL),
        _ if rate > 0 => Sampling::Uniform((rate / 2).max(1)),
        _ => Sampling::Uniform(USUAL),
    };
    Ok((sampling, Some(numbers)))
}

/// What Go's runtime alone writes: the functions of a stack behind its line, and its own counters.
fn is_of_go(line: &str) -> bool {
    line.starts_with("#\t0x") || line.starts_with("# runtime.MemStats")
}

/// What was inlined into each other, parted by two dashes. The name `operator--` has two of its own, and `operator-` has one.
fn parts(names: &str) -> Vec<&str> {
    const DASHES: &str = "--";
    let (mut parts, mut begin, mut from) = (Vec::new(), 0, 0);
    while let Some(found) = names[from..].find(DASHES) {
        let at = from + found;
        let run = names[at..].len() - names[at..].trim_start_matches('-').len();
        let own = if names[..at].ends_with("operator") { if run > 2 { run - 2 } else { run } } else { 0 };
        from = at + own;
        if own < run {
            parts.push(&names[begin..from]);
            from += DASHES.len();
            begin = from;
        }
    }
    parts.push(&names[begin..]);
    parts
}

/// What was read so far.
struct Reader {
    lines: Lines,
    written: Option<SystemTime>,
    sampling: Sampling,
    /// From a table of names: what was inlined into each other, the innermost first.
    names: HashMap<u64, Vec<String>>,
    profile: Profile,
    /// Numbers of each stack, and its addresses, within the calls.
    stacks: Vec<(Four, Vec<u64>)>,
    /// What all stacks have together, as the file says.
    total: Option<Four>,
    /// Does the total stand behind the head?
    is_jemalloc: bool,
    modules: Vec<quarry_trace::Module>,
}

pub(super) fn read(input: Input, symbols: impl FnOnce(Symbols) -> Symbols) -> Result<Profile, Error> {
    let written = input.modified();
    let mut reader = Reader {
        lines: Lines::new(input),
        written,
        sampling: Sampling::All,
        names: HashMap::new(),
        profile: Profile::default(),
        stacks: Vec::new(),
        total: None,
        is_jemalloc: false,
        modules: Vec::new(),
    };
    reader.read_head()?;
    reader.read_stacks()?;
    reader.read_maps()?;
    Ok(reader.finish(symbols))
}

impl Reader {
    /// The next line, without blanks around it.
    fn next(&mut self) -> Result<Option<String>, Error> {
        let line = self.lines.advance()? && !self.lines.is_part();
        Ok(line.then(|| String::from_utf8_lossy(self.lines.line()).trim().to_owned()))
    }

    /// The same behind the head.
    fn next_of_this(&mut self) -> Result<Option<String>, Error> {
        let line = self.next()?;
        if line.as_deref().is_some_and(|line| is_head(line) || line.starts_with("--- symbol")) {
            self.lines.end_before_another();
            return Ok(None);
        }
        Ok(line)
    }

    /// Comments, a table of names, and the line that says what the numbers are.
    fn read_head(&mut self) -> Result<(), Error> {
        while let Some(line) = self.next()? {
            if let Some(word) = line.strip_prefix("%warn") {
                self.profile.remarks.push(word.trim().to_owned());
            } else if line.starts_with("---") && line.trim_start_matches(['-', ' ']).starts_with("symbol") {
                self.read_names()?;
            } else if !line.is_empty() && !line.starts_with('%') && !line.starts_with("---") {
                match sampling(&line) {
                    Ok((sampling, total)) => (self.sampling, self.total) = (sampling, total),
                    Err(what) => self.lines.refuse(format!("'{}' {what}", shown(line.as_bytes())))?,
                }
                break;
            }
        }
        Ok(())
    }

    /// "binary=./prog", "0x401136 main--inlined".
    fn read_names(&mut self) -> Result<(), Error> {
        while let Some(line) = self.next()?.filter(|line| !line.starts_with("---")) {
            let named = line.split_once(char::is_whitespace);
            let address = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
            match named.and_then(|(at, name)| Some((address(at)?, name.trim()))) {
                Some((at, name)) => {
                    let mut names: Vec<String> =
                        parts(name).into_iter().map(quarry_symbols::demangled).collect();
                    names.reverse();
                    self.names.insert(at, names);
                }
                None => {
                    if let Some(binary) = line.strip_prefix("binary=") {
                        self.profile.command = binary.trim().to_owned();
                    }
                }
            }
        }
        Ok(())
    }

    /// Two kinds: all on one line, or the stack on one and the threads on the next ones. Other lines are left out, as jeprof
    /// does. Numbers that lack a part are none of that.
    fn read_stacks(&mut self) -> Result<(), Error> {
        let mut stack = None;
        while let Some(line) = self.next_of_this()? {
            if line.starts_with("MAPPED_LIBRARIES:") || line.starts_with("--- Memory map:") {
                return Ok(());
            }
            if let Some(addresses) = line.strip_prefix('@') {
                stack = self.addresses(addresses, &line)?;
            } else if let Some(numbers) = line.strip_prefix("t*:") {
                // Before the first stack they are those of the whole program.
                match (four(numbers), stack.take()) {
                    (Some((numbers, _)), Some(stack)) => self.add(numbers, stack)?,
                    (Some((total, _)), None) => (self.total, self.is_jemalloc) = (Some(total), true),
                    (None, _) => self.refuse(&line)?,
                }
            } else if is_of_go(&line) {
                // Go names twice the mean distance of a Poisson process there, and gperftools twice that of uniform distances.
                self.sampling = Sampling::Poisson(self.sampling.rate());
            } else if line.strip_prefix('-').unwrap_or(&line).starts_with(|c: char| c.is_ascii_digit()) {
                let Some((numbers, rest)) = four(&line) else {
                    self.refuse(&line)?;
                    continue;
                };
                if let Some(addresses) = rest.trim().strip_prefix('@')
                    && let Some(stack) = self.addresses(addresses, &line)?
                {
                    self.add(numbers, stack)?;
                }
            }
        }
        Ok(())
    }

    fn refuse(&mut self, line: &str) -> Result<(), Error> {
        self.lines.refuse(format!("'{}' is no line of a heap profile", shown(line.as_bytes())))
    }

    /// All but the innermost are return addresses.
    fn addresses(&mut self, text: &str, line: &str) -> Result<Option<Vec<u64>>, Error> {
        let number = |word: &str| u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok();
        let all: Option<Vec<u64>> = text.split_ascii_whitespace().map(number).collect();
        let Some(mut all) = all else {
            self.refuse(line)?;
            return Ok(None);
        };
        all.iter_mut().skip(1).for_each(|at| *at = at.wrapping_sub(1));
        Ok(Some(all))
    }

    fn add(&mut self, numbers: Four, stack: Vec<u64>) -> Result<(), Error> {
        if self.stacks.len() >= MOST {
            return Err(Error::line(self.lines.number(), "is one call stack too many"));
        }
        self.stacks.push((numbers, stack));
        Ok(())
    }

    /// Lines of /proc/PID/maps; what is none is left out.
    fn read_maps(&mut self) -> Result<(), Error> {
        let mut files: HashMap<String, Option<Proof>> = HashMap::new();
        while let Some(line) = self.next_of_this()? {
            let Some(part) = Part::parse(&line) else { continue };
            if !files.contains_key(part.path) {
                let proof = self.look_at(&part);
                files.insert(part.path.to_owned(), proof);
            }
            let proof = files.get(part.path).and_then(Option::as_ref);
            let (base, segments) = part.place(proof);
            let mut about = json!({"path": part.path, "segments": segments});
            if let Some(proof) = proof {
                proof.tell(&mut about);
            }
            let what = What::ModuleLoaded { base, about: about.to_string() };
            Trace::note_module(&mut self.modules, &Event { time: 0, thread: 1, what });
        }
        Ok(())
    }

    /// The file, if it is the one that was mapped.
    fn look_at(&mut self, part: &Part) -> Option<Proof> {
        let proof = Proof::of(Path::new(part.path), self.written);
        let inode = Path::new(part.path).metadata().map_or(0, |about| about.ino());
        if proof.mapped.is_some() && part.inode != 0 && inode != part.inode {
            let remark = "is another file than the one that was mapped, so nothing is looked up in it";
            self.profile.remarks.push(format!("{}: {remark}", part.path));
            return None;
        }
        self.profile.remarks.extend(proof.remark());
        proof.mapped.is_some().then_some(proof)
    }

    fn finish(mut self, symbols: impl FnOnce(Symbols) -> Symbols) -> Profile {
        let differs = self.total.and_then(|total| self.difference(total));
        let mut symbols = symbols(Symbols::new(self.modules));
        let mut known: HashMap<u64, Vec<String>> = HashMap::new();
        let (names, sampling) = (&self.names, self.sampling);
        for &([live, all], ref addresses) in &self.stacks {
            // jemalloc leaves 0 there unless it was told to count.
            let allocated = (all != [0, 0]).then(|| sampling.weigh(all));
            let mut stack = Stack { frames: Vec::new(), live: sampling.weigh(live), allocated };
            for &pc in addresses {
                let number = known.len() as u32 + 1;
                let texts = known.entry(pc).or_insert_with(|| match names.get(&pc) {
                    Some(names) => names.clone(),
                    None => {
                        let node = StackNode { id: number, parent: 0, pc, is_return: false };
                        symbols.frames(&node).iter().map(quarry_symbols::Frame::text).collect()
                    }
                });
                stack.frames.extend_from_slice(texts);
            }
            self.profile.stacks.push(stack);
        }
        self.profile.sample = sampling.rate();
        self.profile.remarks.extend(self.lines.remarks());
        self.profile.damaged = self.lines.is_cut() || differs.is_some();
        self.profile.remarks.extend(differs);
        self.profile
    }

    /// What the stacks lack of the sums that the file names, or have more.
    fn difference(&self, total: Four) -> Option<String> {
        // jemalloc since 5.3 writes numbers that are right once they are weighed, and only then they have a sum.
        let weigh = |numbers: [u64; 2]| match self.is_jemalloc {
            true => self.sampling.weigh(numbers).bytes,
            false => numbers[1],
        };
        // Their blocks are rounded, and a block stands for the rate at least. Errors of that size add up by the root of their number.
        let rounded = self.sampling.rate() as f64 * (self.stacks.len() as f64 + 1.0).sqrt();
        ["live", "allocated"].into_iter().enumerate().find_map(|(which, what)| {
            let of_stacks = || self.stacks.iter().map(|(numbers, _)| numbers[which]);
            let plain = of_stacks().map(|numbers| numbers[1]).fold(0, u64::saturating_add);
            let (named, found) = (weigh(total[which]), of_stacks().map(weigh).fold(0, u64::saturating_add));
            let is_close = self.is_jemalloc && named.abs_diff(found) as f64 <= rounded;
            (named > 0 && plain != total[which][1] && !is_close).then(|| {
                format!(
                    "its head names {named} {what} bytes, and its call stacks have {found}: a part of it is missing or \
                     wrong"
                )
            })
        })
    }
}

/// A line of maps.
struct Part<'l> {
    begin: u64,
    end: u64,
    offset: u64,
    inode: u64,
    path: &'l str,
}

impl<'l> Part<'l> {
    fn parse(line: &'l str) -> Option<Self> {
        let mut rest = line;
        let mut word = || {
            let (word, behind) = rest.split_once(' ')?;
            rest = behind.trim_start();
            Some(word)
        };
        let (range, flags, offset, _, inode) = (word()?, word()?, word()?, word()?, word()?);
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let (begin, end) = range.split_once('-')?;
        let part = Self {
            begin: hex(begin)?,
            end: hex(end)?,
            offset: hex(offset)?,
            inode: inode.parse().ok()?,
            path: rest.trim(),
        };
        // Names of functions are asked for only where there is code.
        (flags.contains('x') && part.path.contains('/') && part.begin < part.end).then_some(part)
    }

    /// Where its file is loaded, and what of it is mapped there. Without the file, addresses are offsets in it.
    fn place(&self, proof: Option<&Proof>) -> (u64, Vec<quarry_trace::Segment>) {
        const PAGE: u64 = 4096;
        if let Some(mapped) = proof.and_then(|proof| proof.mapped.as_ref()) {
            let mut segments = mapped.segments.iter().zip(&mapped.offsets);
            let is_it = |(_, offset): &(&quarry_trace::Segment, &u64)| **offset / PAGE == self.offset / PAGE;
            let code = segments.clone().filter(|(segment, _)| segment.2 & 1 != 0).find(is_it);
            if let Some((segment, _)) = code.or_else(|| segments.find(is_it)) {
                return (self.begin.wrapping_sub(segment.0 / PAGE * PAGE), mapped.segments.clone());
            }
        }
        let segment = quarry_trace::Segment(self.offset, self.end - self.begin, 5);
        (self.begin.wrapping_sub(self.offset), vec![segment])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_as_all_versions_write_them() {
        for (head, sampling) in [
            ("heap profile:   12:  3456 [  78:  9012] @ heapprofile", Ok(Sampling::All)),
            ("heap profile:   12:  3456 [  78:  9012] @ heap_v2/524288", Ok(Sampling::Poisson(524_288))),
            ("heap profile:   12:  3456 [  78:  9012] @ heapz_v2/1", Ok(Sampling::Poisson(1))),
            ("heap profile: 12: 3456 [12: 3456] @ heap/1048576", Ok(Sampling::Uniform(524_288))),
            ("heap profile: 12: 3456 [12: 3456]", Ok(Sampling::Uniform(USUAL))),
            ("heap profile: 12: 3456 [13: 3456]", Ok(Sampling::All)),
            ("heap profile: 12: 3456 [12: 3456] @ growthz", Ok(Sampling::All)),
            ("heap_v2/524288", Ok(Sampling::Poisson(524_288))),
        ] {
            assert_eq!(super::sampling(head).map(|(sampling, _)| sampling), sampling, "{head}");
        }
        for head in ["heap_v2/", "heap_v2/x", "heap profile: 1 [2: 3]", "heap", ""] {
            assert!(super::sampling(head).is_err(), "{head}");
        }
    }

    fn profile(text: &str) -> Result<Profile, Error> {
        let input = Input::new(std::io::Cursor::new(text.to_owned()), text.len() as u64).unwrap();
        Profile::read(super::super::Format::Jeprof, input, |symbols| symbols)
    }

    /// google/pprof reads Go's profiles so, too.
    #[test]
    fn a_sample_of_go_is_weighed_as_one() {
        let head = "heap profile: 2: 2000 [4: 4000] @ heap/1048576\n";
        let stack = "2: 2000 [4: 4000] @ 0x4c2f10 0x4c3000\n";
        let name = "#\t0x4c2f0f\tmain.f+0x2f\t/a.go:12\n\n";
        for (text, blocks) in [
            (format!("{head}{stack}{name}"), 1050),
            (format!("{head}{stack}\n# runtime.MemStats\n# Alloc = 5\n"), 1050),
            // gperftools before 1.0.
            (format!("{head}{stack}"), 1049),
        ] {
            let profile = profile(&text).unwrap();
            assert_eq!((profile.live().blocks, profile.sample), (Some(blocks), 524_288), "{text}");
            assert!(!profile.damaged, "{:?}", profile.remarks);
        }
    }

    #[test]
    fn what_is_missing_or_behind_it_is_told() {
        let gperftools =
            "heap profile: 3: 300 [4: 400] @ heapprofile\n1: 100 [2: 200] @ 0x10\n2: 200 [2: 200] @ 0x20\n";
        let jemalloc = "heap_v2/1\nt*: 3: 300 [0: 0]\n@ 0x10\nt*: 1: 100 [0: 0]\n@ 0x20\nt*: 2: 200 [0: 0]\n";
        for text in [gperftools, jemalloc] {
            let whole = profile(text).unwrap();
            assert!(!whole.damaged && whole.remarks.is_empty(), "{:?}", whole.remarks);
            // Cut at the end of a line.
            let cut: String =
                text.lines().take(text.lines().count() / 2 + 1).map(|line| format!("{line}\n")).collect();
            let read = profile(&cut).unwrap();
            assert_eq!(read.remarks.len(), 1, "{cut}");
            let remark = "its head names 300 live bytes, and its call stacks have 100: a part of it is missing or wrong";
            assert_eq!((read.damaged, read.remarks[0].as_str()), (true, remark), "{cut}");
            // Two in one file.
            let twice = profile(&format!("{text}\nMAPPED_LIBRARIES:\n\n{text}")).unwrap();
            assert_eq!((twice.damaged, &twice.stacks), (true, &whole.stacks));
            assert!(twice.remarks[0].starts_with("another file begins in line "), "{:?}", twice.remarks);
        }
        // As jemalloc 5.3 writes it: the plain sum is another one than that of the head.
        let unbiased =
            "heap_v2/1024\nt*: 64: 24080 [0: 0]\n@ 0x10\nt*: 2: 22000 [0: 0]\n@ 0x20\nt*: 52: 6240 [0: 0]\n";
        let read = profile(unbiased).unwrap();
        assert_eq!((read.remarks, read.damaged), (Vec::new(), false));
        let error = profile(&gperftools.replace("2: 200 [2", "-2: -200 [2")).unwrap_err().to_string();
        assert!(
            error.starts_with("line 3: '-2: -200 ") && error.ends_with("is no line of a heap profile"),
            "{error}"
        );
    }

    #[test]
    fn dashes_part_names_but_for_those_of_operators() {
        for (names, expected) in [
            ("main", &["main"][..]),
            ("main--inlined--deep", &["main", "inlined", "deep"]),
            ("a::operator--(int)", &["a::operator--(int)"]),
            ("main--a::operator--(int)--deep", &["main", "a::operator--(int)", "deep"]),
            ("a::operator----b", &["a::operator--", "b"]),
            ("operator---b", &["operator-", "b"]),
            ("operator-(a)--operator->--b", &["operator-(a)", "operator->", "b"]),
            ("a--", &["a", ""]),
        ] {
            assert_eq!(parts(names), expected, "{names}");
        }
    }

    #[test]
    fn blocks_are_weighed_by_their_mean_size() {
        let weighed = Sampling::Poisson(524_288).weigh([2, 2000]);
        assert_eq!(weighed, Sum { blocks: Some(1050), bytes: 1_049_576 });
        assert_eq!(Sampling::Poisson(524_288).weigh([0, 0]), Sum { blocks: Some(0), bytes: 0 });
        assert_eq!(Sampling::Poisson(524_288).weigh([3, 0]), Sum { blocks: Some(3), bytes: 0 });
        assert_eq!(Sampling::Uniform(1000).weigh([1, 100]), Sum { blocks: Some(10), bytes: 1000 });
    }
}
