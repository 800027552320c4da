// SPDX-License-Identifier: MIT
//! What was found: errors and leaks with names, each once.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use quarry_symbols::Frame;

use crate::kinds::{self, Kind};
use crate::names::{Mappings, Namer, Place};
use crate::raw::{self, Begin, End, Line, Scan};

/// Frames that tell errors apart.
const TELLING: usize = 4;
/// Most errors, leaks and notes that are kept.
const MOST: usize = 10_000;
/// Most processes that are kept. The test suite of coreutils has 70,673.
pub const PROCESSES: usize = 1 << 17;
/// Most frames of all of them together.
const FRAMES: usize = 1 << 20;

/// A call stack, the innermost place first.
pub type Stack = Vec<Place>;

/// The frames of a stack with what was inlined.
pub fn frames(stack: &Stack) -> impl Iterator<Item = (&Place, &Frame)> {
    stack.iter().flat_map(|place| place.frames.iter().map(move |frame| (place, frame)))
}

/// The same without what calls main.
pub(crate) fn shorn(stack: &Stack) -> impl Iterator<Item = (&Place, &Frame)> {
    let main = |(_, frame): &(&Place, &Frame)| frame.function.as_deref() == Some("main");
    let end = frames(stack).position(|pair| main(&pair)).map_or(usize::MAX, |at| at + 1);
    frames(stack).take(end)
}

/// A thread and where it was.
#[derive(Debug, Clone)]
pub struct At {
    /// The kernel's number of the thread; 0: not known.
    pub tid: u32,
    /// Where it was.
    pub stack: Stack,
}

/// A block of memory.
#[derive(Debug, Clone)]
pub struct Block {
    /// Where it begins.
    pub address: u64,
    /// As asked for.
    pub size: u64,
    /// The function that made it, in a word.
    pub family: String,
    /// The pool that it is of.
    pub pool: Option<String>,
    /// Of which kind that is.
    pub pool_kind: Option<String>,
    /// Was it freed?
    pub freed: bool,
    /// The how-manyeth of its call stack; 0: not known.
    pub ordinal: u64,
    /// The number of its call site; 0: not known. See [`Namer::site`].
    pub site: u64,
    /// Where it was made.
    pub alloc: Option<At>,
    /// Where it was freed.
    pub free: Option<At>,
}

/// An access or a call.
#[derive(Debug, Clone)]
pub struct Fault {
    /// The function that found it.
    pub function: Option<String>,
    /// What was used.
    pub address: u64,
    /// Was it written?
    pub write: bool,
    /// How much.
    pub bytes: u64,
    /// Was it found later, so that nobody knows the instruction?
    pub evidence: bool,
    /// From the block's begin.
    pub offset: i64,
    /// More about it.
    pub detail: Option<String>,
    /// The thread that found it.
    pub thread: raw::Thread,
    /// The block that it is about.
    pub block: Option<Block>,
}

/// Blocks that are lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaked {
    /// Of all blocks.
    pub bytes: u64,
    /// How many.
    pub blocks: u64,
    /// What only these lead to.
    pub indirect_bytes: u64,
    /// How many.
    pub indirect_blocks: u64,
    /// The scan that found them last.
    pub scan: u32,
    /// The index of the process that it was of.
    pub process: Option<usize>,
    /// One of the blocks.
    pub example: u64,
    /// The function that made them, in a word.
    pub family: String,
    /// The pool that the example is of.
    pub pool: Option<String>,
    /// Of which kind that is.
    pub pool_kind: Option<String>,
}

/// What a finding is about.
#[derive(Debug, Clone)]
pub enum What {
    /// An error.
    Fault(Box<Fault>),
    /// A leak.
    Leak(Leaked),
}

/// One finding.
#[derive(Debug, Clone)]
pub struct Finding {
    /// Its number, from 1.
    pub number: usize,
    /// Its kind.
    pub kind: &'static Kind,
    /// The word of the report, which `kind` may not know.
    pub word: String,
    /// The process that had it first.
    pub pid: u32,
    /// How often it was found.
    pub count: u64,
    /// Where it was found, or where the lost blocks were made.
    pub stack: Stack,
    /// What it is about.
    pub what: What,
    /// Was it not asked for?
    pub hidden: bool,
    /// The suppression that hides it.
    pub suppressed: Option<usize>,
}

impl Finding {
    /// The error, where it is one.
    pub fn fault(&self) -> Option<&Fault> {
        match &self.what {
            What::Fault(fault) => Some(fault),
            What::Leak(_) => None,
        }
    }

    /// The leak, where it is one.
    pub fn leak(&self) -> Option<&Leaked> {
        match &self.what {
            What::Fault(_) => None,
            What::Leak(leak) => Some(leak),
        }
    }
}

/// A process, or a program that ran in one.
#[derive(Debug, Clone, Default)]
pub struct Process {
    /// How it began.
    pub begin: Begin,
    /// How it ended; `None`: it was killed, or still runs.
    pub end: Option<End>,
    /// The last scan.
    pub scan: Option<Scan>,
    /// Is it of a second run of the command?
    pub second: bool,
}

impl Process {
    /// The number of blocks that should have had a guard, and for which there was none.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.end.as_ref().and_then(|end| end.guards["refused"].as_u64()).unwrap_or(0)
    }
}

/// The file of one process.
#[derive(Debug, Default)]
pub struct Source {
    /// Its number among all processes, once it has begun.
    process: Option<usize>,
    mappings: Mappings,
}

impl Source {
    /// The index of its process, once it has begun.
    pub fn process(&self) -> Option<usize> {
        self.process
    }
}

/// Everything that was found.
#[derive(Debug, Default)]
pub struct Findings {
    /// In the order in which they came.
    pub all: Vec<Finding>,
    /// The processes.
    pub processes: Vec<Process>,
    /// What could not be done: the process and the note.
    pub notes: Vec<(u32, String)>,
    /// Lines that are damaged.
    pub damaged: u64,
    /// Findings and processes that were dropped, since there are too many.
    pub dropped: u64,
    /// Errors of the first run whose instruction the second run found.
    pub answered: u64,
    known: HashMap<u64, usize>,
    /// By what they are about, the errors of the first run that are evidence.
    evidence: HashMap<u64, Vec<usize>>,
    subjects: HashSet<u64>,
    /// By what they are about, what the second run has answered.
    answers: HashMap<u64, usize>,
    second: bool,
    numbered: usize,
    frames: usize,
}

/// What a line did.
#[derive(Debug, PartialEq, Eq)]
pub enum News {
    /// Nothing to tell at once.
    None,
    /// A finding is new: its index.
    Finding(usize),
    /// The second run knows more about a finding of the first: its index.
    Answer(usize),
    /// A process is new: its index.
    Process(usize),
    /// A note is new: its index.
    Note(usize),
}

impl Findings {
    /// Is what comes from here on of a second run of the command? It has the errors of the first, which are not new.
    pub fn second_run(&mut self, is: bool) {
        self.second = is;
    }

    /// The finding that came last is not shown, and so has no number.
    pub fn hide_last(&mut self) {
        if let Some(finding) = self.all.last_mut()
            && finding.number == self.numbered
        {
            finding.hidden = true;
            finding.number = 0;
            self.numbered -= 1;
        }
    }

    /// Take a line of a file.
    pub fn take(&mut self, source: &mut Source, line: &[u8], namer: &mut Namer) -> News {
        let Some(line) = Line::parse(line) else {
            self.damaged += 1;
            return News::None;
        };
        let pid = source.process.map_or(0, |index| self.processes[index].begin.pid);
        match line {
            Line::Begin(begin) if self.processes.len() < PROCESSES => {
                source.process = Some(self.processes.len());
                self.processes.push(Process { begin, second: self.second, ..Process::default() });
                return News::Process(self.processes.len() - 1);
            }
            Line::Begin(_) => self.dropped += 1,
            Line::Module(module) => namer.module(&mut source.mappings, &module),
            Line::Error(error) => return self.error(source, pid, *error, namer),
            Line::Leak(leak) => return self.leak(source, pid, leak, namer),
            Line::Note(note) => return self.note(pid, note.text),
            Line::Scan(scan) => {
                if let Some(index) = source.process {
                    self.processes[index].scan = Some(scan);
                }
            }
            Line::End(end) => {
                if let Some(index) = source.process {
                    self.processes[index].end = Some(end);
                }
            }
        }
        News::None
    }

    fn error(&mut self, source: &Source, pid: u32, error: raw::Error, namer: &mut Namer) -> News {
        let mut named = |stack: &[raw::Pc]| named(source, stack, namer);
        let stack = named(&error.stack);
        let mut at = |at: raw::At| At { tid: at.tid, stack: named(&at.stack) };
        let mut block = error.block.map(|block| Block {
            address: block.address,
            size: block.size,
            family: block.family,
            pool: block.pool,
            pool_kind: block.pool_kind,
            freed: block.state == "freed",
            ordinal: block.ordinal,
            site: 0,
            alloc: block.alloc.map(&mut at),
            free: block.free.map(&mut at),
        });
        if let Some(Block { site, alloc: Some(alloc), .. }) = &mut block {
            *site = namer.site(&alloc.stack);
        }
        let subject = subject(&error.kind, block.as_ref());
        if self.second && error.evidence && subject.is_some_and(|it| self.subjects.contains(&it)) {
            return News::None; // it knows no more than the first run
        }
        let mut hasher = DefaultHasher::new();
        error.kind.hash(&mut hasher);
        tell(&stack, TELLING, &mut hasher);
        // Nobody knows which instruction did it: the block tells faults apart.
        if let (true, Some(Block { alloc: Some(alloc), .. })) = (error.evidence, &block) {
            tell(&alloc.stack, TELLING, &mut hasher);
        }
        let fault = Fault {
            function: error.function,
            address: error.address,
            write: error.write,
            bytes: error.bytes,
            evidence: error.evidence,
            offset: error.offset,
            detail: error.detail,
            thread: error.thread,
            block,
        };
        let (evidence, what) = (fault.evidence, What::Fault(Box::new(fault)));
        if let Some(index) = if evidence { None } else { self.asked(subject) } {
            self.answers.extend(subject.map(|it| (it, index)));
            return self.answer(index, hasher.finish(), pid, error.kind, stack, what);
        }
        let key = hasher.finish();
        if self.second && !evidence && !self.known.contains_key(&key) {
            self.take_one_of(subject);
        }
        let news = self.add(key, pid, error.kind, stack, what);
        if let (News::Finding(index), Some(subject), false) = (&news, subject, self.second) {
            self.subjects.insert(subject);
            if evidence {
                self.evidence.entry(subject).or_default().push(*index);
            }
        }
        news
    }

    /// The error of the first run that the second may have found at its instruction.
    fn asked(&mut self, subject: Option<u64>) -> Option<usize> {
        let waiting = self.evidence.get_mut(&subject?).filter(|_| self.second)?;
        (!waiting.is_empty()).then(|| waiting.remove(0))
    }

    /// What the first run found several times in one place was done by several instructions, of which this is another.
    fn take_one_of(&mut self, subject: Option<u64>) {
        let Some(&index) = subject.and_then(|it| self.answers.get(&it)) else { return };
        let count = &mut self.all[index].count;
        *count = (*count - 1).max(1);
    }

    fn answer(&mut self, index: usize, key: u64, pid: u32, word: String, stack: Stack, what: What) -> News {
        self.known.insert(key, index);
        self.answered += 1;
        let known = &mut self.all[index];
        known.kind = kinds::of(&word);
        (known.word, known.pid, known.stack, known.what) = (word, pid, stack, what);
        News::Answer(index)
    }

    fn leak(&mut self, source: &Source, pid: u32, leak: raw::Leak, namer: &mut Namer) -> News {
        let stack = named(source, &leak.stack, namer);
        let mut hasher = DefaultHasher::new();
        // Not by its number: that may be given again, and each PID namespace has its own.
        (&leak.kind, source.process).hash(&mut hasher);
        tell(&stack, usize::MAX, &mut hasher);
        let leaked = Leaked {
            bytes: leak.bytes,
            blocks: leak.blocks,
            indirect_bytes: leak.indirect_bytes,
            indirect_blocks: leak.indirect_blocks,
            scan: leak.scan,
            process: source.process,
            example: leak.example,
            family: leak.family,
            pool: leak.pool,
            pool_kind: leak.pool_kind,
        };
        self.add(hasher.finish(), pid, leak.kind, stack, What::Leak(leaked))
    }

    fn add(&mut self, key: u64, pid: u32, word: String, stack: Stack, what: What) -> News {
        if let Some(&index) = self.known.get(&key) {
            let known = &mut self.all[index];
            match (&mut known.what, what) {
                // A later scan knows better.
                (What::Leak(before), What::Leak(now)) => *before = now,
                _ if self.second => {}
                _ => known.count = known.count.saturating_add(1),
            }
            return News::None;
        }
        let block = |what: &What| match what {
            What::Fault(fault) => fault.block.as_ref().map_or(0, |block| {
                [&block.alloc, &block.free].into_iter().flatten().map(|at| at.stack.len()).sum()
            }),
            What::Leak(_) => 0,
        };
        self.frames += stack.len() + block(&what);
        if self.all.len() >= MOST || self.frames > FRAMES {
            self.dropped = self.dropped.saturating_add(1);
            return News::None;
        }
        let index = self.all.len();
        self.known.insert(key, index);
        let kind = kinds::of(&word);
        self.numbered += 1;
        self.all.push(Finding {
            number: self.numbered,
            kind,
            word,
            pid,
            count: 1,
            stack,
            what,
            hidden: false,
            suppressed: None,
        });
        News::Finding(index)
    }

    fn note(&mut self, pid: u32, text: String) -> News {
        if self.notes.len() >= MOST || self.notes.iter().any(|(_, known)| *known == text) {
            return News::None;
        }
        self.notes.push((pid, text));
        News::Note(self.notes.len() - 1)
    }

    /// Hide leaks that an earlier scan found and the last one of the process did not: they were freed, or are of another
    /// kind by now. Returns how many.
    pub fn forget_older_scans(&mut self) -> usize {
        let mut count = 0;
        for finding in self.all.iter_mut().filter(|finding| !finding.hidden && finding.word != "leak-growing")
        {
            let last = finding.leak().and_then(|leak| {
                let scan = self.processes.get(leak.process?)?.scan.as_ref()?;
                Some(scan).filter(|scan| scan.incomplete.is_none() && leak.scan < scan.number)
            });
            if last.is_some() {
                finding.hidden = true;
                count += usize::from(finding.suppressed.is_none());
            }
        }
        count
    }

    /// What was asked for and is not suppressed.
    pub fn shown(&self) -> impl Iterator<Item = &Finding> {
        self.all.iter().filter(|finding| !finding.hidden && finding.suppressed.is_none())
    }

    /// Those of them that are errors, without leaks.
    pub fn errors(&self) -> impl Iterator<Item = &Finding> {
        self.shown().filter(|finding| finding.fault().is_some())
    }

    /// Those of them that are leaks.
    pub fn leaks(&self) -> impl Iterator<Item = &Finding> {
        self.shown().filter(|finding| finding.leak().is_some())
    }
}

fn named(source: &Source, stack: &[raw::Pc], namer: &mut Namer) -> Stack {
    stack.iter().map(|pc| namer.place(&source.mappings, pc)).collect()
}

/// What an error is about: which part of the blocks of a place. An error that is found later and the access that made it
/// have the same. `None`: it has no such part.
fn subject(word: &str, block: Option<&Block>) -> Option<u64> {
    let part = match word {
        "overflow-write" | "overflow-read" => 0,
        "underflow-write" | "underflow-read" => 1,
        "write-after-free" | "use-after-free-write" | "use-after-free-read" => 2,
        "pool-overflow" => 3,
        "use-after-pop" | "use-after-release" => 4,
        _ => return None,
    };
    let mut hasher = DefaultHasher::new();
    part.hash(&mut hasher);
    tell(&block?.alloc.as_ref()?.stack, TELLING, &mut hasher);
    Some(hasher.finish())
}

fn tell(stack: &Stack, most: usize, hasher: &mut DefaultHasher) {
    stack.iter().take(most).for_each(|place| place.key.hash(hasher));
}

#[cfg(test)]
mod tests {
    use super::*;
    use quarry_symbols::Places;

    fn error(kind: &str, pcs: &[u64], rest: &str) -> String {
        let frames: Vec<String> = pcs.iter().map(|pc| format!("{{\"pc\":\"{pc:#x}\"}}")).collect();
        format!(
            "{{\"error\":{{\"kind\":\"{kind}\",\"address\":\"0x10\",\"stack\":[{}]{rest}}}}}",
            frames.join(",")
        )
    }

    fn of(lines: &[String]) -> Findings {
        let (mut findings, mut source) = (Findings::default(), Source::default());
        let mut namer = Namer::new(Places::default(), 0);
        for line in lines {
            findings.take(&mut source, line.as_bytes(), &mut namer);
        }
        findings
    }

    #[test]
    fn one_error_is_told_once() {
        let findings = of(&[
            error("double-free", &[1, 2, 3, 4, 5], ""),
            error("double-free", &[1, 2, 3, 4, 6], ""),
            error("double-free", &[1, 2, 3, 7, 5], ""),
            error("invalid-free", &[1, 2, 3, 4, 5], ""),
        ]);
        let counts: Vec<u64> = findings.all.iter().map(|finding| finding.count).collect();
        assert_eq!(counts, [2, 1, 1]);
    }

    #[test]
    fn evidence_is_told_apart_by_the_block() {
        let block = |pc: u64| {
            let alloc = format!("\"alloc\":{{\"tid\":1,\"stack\":[{{\"pc\":\"{pc:#x}\"}}]}}");
            format!(",\"evidence\":true,\"block\":{{\"address\":\"0x1\",\"size\":8,{alloc}}}")
        };
        let findings = of(&[
            error("overflow-write", &[1], &block(2)),
            error("overflow-write", &[1], &block(3)),
            error("overflow-write", &[1], &block(2)),
        ]);
        assert_eq!(findings.all.len(), 2);
    }

    #[test]
    fn a_second_run_answers_and_adds_nothing_known() {
        let block = |pc: u64, more: &str| {
            let alloc = format!("\"alloc\":{{\"tid\":1,\"stack\":[{{\"pc\":\"{pc:#x}\"}}]}}");
            format!("{more},\"block\":{{\"address\":\"0x1\",\"size\":8,{alloc}}}")
        };
        let late = ",\"evidence\":true";
        let (mut findings, mut source) = (Findings::default(), Source::default());
        let mut namer = Namer::new(Places::default(), 0);
        let mut take =
            |findings: &mut Findings, line: String| findings.take(&mut source, line.as_bytes(), &mut namer);
        take(&mut findings, error("overflow-write", &[1], &block(2, late)));
        take(&mut findings, error("use-after-free-write", &[3], &block(4, "")));
        take(&mut findings, error("double-free", &[5], &block(4, "")));
        findings.second_run(true);
        // What is known, once more; of the second the block is seen late this time.
        let news = take(&mut findings, error("double-free", &[5], &block(4, "")));
        assert_eq!((news, findings.all[2].count), (News::None, 1));
        assert_eq!(take(&mut findings, error("write-after-free", &[9], &block(4, late))), News::None);
        assert_eq!(take(&mut findings, error("overflow-write", &[8], &block(2, late))), News::None);
        // The instruction, and the next one that does it, which is new.
        assert_eq!(take(&mut findings, error("overflow-write", &[6], &block(2, ""))), News::Answer(0));
        assert_eq!(take(&mut findings, error("overflow-write", &[6], &block(2, ""))), News::None);
        assert_eq!(take(&mut findings, error("overflow-write", &[7], &block(2, ""))), News::Finding(3));
        // Of an error that was found twice, each instruction has one.
        findings.all[0].count = 2;
        assert_eq!(take(&mut findings, error("overflow-write", &[17], &block(2, ""))), News::Finding(4));
        assert_eq!((findings.all[0].count, findings.all[4].count), (1, 1));
        // An error of another block, and one at the other end of this.
        assert_eq!(take(&mut findings, error("overflow-write", &[1], &block(6, late))), News::Finding(5));
        assert_eq!(take(&mut findings, error("underflow-write", &[1], &block(2, late))), News::Finding(6));
        let fault = findings.all[0].fault().unwrap();
        assert!(!fault.evidence && findings.answered == 1 && findings.all[0].stack[0].pc == 6);
        assert_eq!(
            findings.all.iter().map(|finding| finding.number).collect::<Vec<_>>(),
            [1, 2, 3, 4, 5, 6, 7]
        );
    }

    #[test]
    fn what_is_hidden_takes_no_number() {
        let (mut findings, mut source) = (Findings::default(), Source::default());
        let mut namer = Namer::new(Places::default(), 0);
        for pc in 1..4 {
            findings.take(&mut source, error("overlap", &[pc], "").as_bytes(), &mut namer);
            if pc == 2 {
                findings.hide_last();
            }
        }
        let numbers: Vec<usize> = findings.shown().map(|finding| finding.number).collect();
        assert_eq!(numbers, [1, 2]);
    }

    #[test]
    fn a_later_scan_replaces_the_numbers_of_a_leak() {
        let leak = |bytes: u64, scan: u32| {
            format!(
                "{{\"leak\":{{\"kind\":\"leak-definite\",\"bytes\":{bytes},\"blocks\":1,\"scan\":{scan},\
                 \"example\":\"0x1\",\"stack\":[{{\"pc\":\"0x5\"}}]}}}}"
            )
        };
        let findings = of(&[leak(8, 1), leak(16, 2)]);
        let leaked = findings.all[0].leak().unwrap();
        assert_eq!((findings.all.len(), leaked.bytes, leaked.scan, findings.all[0].count), (1, 16, 2, 1));
    }

    #[test]
    fn what_the_last_scan_does_not_find_is_no_leak_any_more() {
        let begin = |pid: u32| format!("{{\"begin\":{{\"version\":1,\"pid\":{pid}}}}}");
        let leak = |kind: &str, pc: u32, scan: u32| {
            format!(
                "{{\"leak\":{{\"kind\":\"{kind}\",\"bytes\":8,\"blocks\":1,\"scan\":{scan},\"example\":\"0x1\",\
                 \"stack\":[{{\"pc\":\"{pc:#x}\"}}]}}}}"
            )
        };
        let scan = |number: u32, more: &str| format!("{{\"scan\":{{\"number\":{number}{more}}}}}");
        let shown = |lines: &[String]| {
            let mut findings = of(lines);
            (findings.forget_older_scans(), findings.leaks().count())
        };
        let first = [begin(7), leak("leak-reachable", 5, 1), leak("leak-growing", 6, 1), scan(1, "")];
        assert_eq!(shown(&first), (0, 2));
        let second = [&first[..], &[leak("leak-definite", 5, 2), scan(2, "")]].concat();
        assert_eq!(shown(&second), (1, 2));
        let in_part = [&first[..], &[scan(2, ",\"incomplete\":\"time is up\"")]].concat();
        assert_eq!(shown(&in_part), (0, 2));
        // An exec begins to count anew.
        let other = [&first[..], &[begin(7), leak("leak-definite", 5, 2), scan(2, "")]].concat();
        assert_eq!(shown(&other), (0, 3));
    }

    /// A number is given again, and each namespace has a process 1.
    #[test]
    fn leaks_of_two_processes_with_one_number_are_two() {
        let begin = String::from("{\"begin\":{\"version\":1,\"pid\":1}}");
        let leak = |bytes: u32| {
            format!(
                "{{\"leak\":{{\"kind\":\"leak-definite\",\"bytes\":{bytes},\"blocks\":1,\"scan\":1,\
                 \"example\":\"0x1\",\"stack\":[{{\"pc\":\"0x5\"}}]}}}}"
            )
        };
        let findings = of(&[begin.clone(), leak(16), begin, leak(8), leak(9)]);
        let bytes: Vec<u64> = findings.leaks().filter_map(Finding::leak).map(|leak| leak.bytes).collect();
        assert_eq!(bytes, [16, 9]);
    }

    #[test]
    fn a_flood_is_dropped_and_counted() {
        let lines: Vec<String> = (0..MOST as u64 + 10).map(|pc| error("overlap", &[pc], "")).collect();
        let findings = of(&lines);
        assert_eq!((findings.all.len(), findings.dropped), (MOST, 10));
    }
}
