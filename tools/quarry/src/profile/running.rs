// SPDX-License-Identifier: MIT
//! quarry profile -p: a running process on Quarry, sampled for a while into a trace.
//!
//! The library in the process takes the samples (src/heap/draw.h). It is switched on through the statistics page, and told to stop at
//! the end, whatever ends this; the process is neither stopped nor traced. What it tells becomes the events of a sampled trace.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{self, Read as _, Write};
use std::path::Path;
use std::time::{Duration, Instant, UNIX_EPOCH};

use quarry_measure::signals::Forwarding;
use quarry_stats::page::Heap;
use quarry_stats::sampler::{self, Event, Reader, Sample, Sampler};
use quarry_stats::{maker, memory, sys};
use quarry_trace::{AllocApi, Counted, End, FreeApi, Head, StackNode, TraceWriter, What, WriteOptions};

use super::modules::Modules;
use crate::failure;
use crate::output::Output;
use crate::trace_file::Target;

/// Between two looks. A process would have to take 65,536 samples and free them in this time to be missed.
pub const PAUSE: Duration = Duration::from_millis(100);
/// Between two renewals of the lease.
const RENEWAL: Duration = Duration::from_secs(1);
/// Between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(5);
/// Looks at what the process counts, until it does not change meanwhile.
const COUNTS: usize = 20;
/// Bytes of a command line.
const COMMAND_MOST: u64 = 64 << 10;
/// No thread.
const PROCESS: u32 = 0;

/// Mean bytes between two samples at the beginning, unless somebody says otherwise.
const MEAN: u64 = 512 << 10;
/// How long, likewise.
pub const SPAN: Duration = Duration::from_secs(30);

/// What is wanted.
pub struct Wanted {
    /// Of this process.
    pub pid: i32,
    /// Mean bytes between two samples: the power of two is taken that is not more. `None`: as many as the process has time for.
    pub mean: Option<u64>,
    /// So long.
    pub span: Duration,
}

/// What was got.
#[derive(Debug, Clone, Copy, Default)]
pub struct Taken {
    /// Sampled allocations.
    pub samples: u64,
    /// Mean bytes between two of them, the most that these were.
    mean: u64,
    /// Samples that the process could not take, and events that were not read.
    pub lost: u64,
    /// What stopped it earlier.
    stopped: Option<&'static str>,
    /// The process was started with the sampler, so its distance is chosen there.
    from_start: bool,
}

impl Taken {
    /// What sets a distance with fewer samples than at any time.
    fn rarer(&self) -> String {
        let mean = self.mean.saturating_mul(4);
        match self.from_start {
            true => format!("sample:{mean} in the QUARRY_CONF of the process"),
            false => format!("--sample {mean}"),
        }
    }
}

/// Sample the process into a trace, and say what is missing in it.
pub fn sample(wanted: &Wanted, trace: &Path, output: &Output) -> anyhow::Result<()> {
    let mut target = Target::open(Some(trace), false)?;
    let taken = take(wanted, io::BufWriter::new(&mut target), output)?;
    target.keep()?;
    if let Some(stopped) = taken.stopped {
        output.note(format_args!("{stopped} before the time was up"));
    }
    if taken.lost > 0 {
        output.warn(format_args!(
            "of samples and their ends, {} lost; {} takes fewer",
            quarry_report::units::of(taken.lost, "record"),
            taken.rarer()
        ));
    }
    Ok(())
}

/// Sample, and write a trace. The process is left as it was, also when a signal ends this.
fn take(wanted: &Wanted, to: impl Write, output: &Output) -> anyhow::Result<Taken> {
    let sampler = Sampler::of(wanted.pid).map_err(failure::failed)?;
    let mut reader = sampler.reader().map_err(failure::failed)?;
    let signals = Forwarding::stopping();
    let mut on = On::switch(&sampler, &reader, wanted, output)?;
    let lost = reader.lost().map_err(|error| gone(wanted.pid, &error))?;
    let head = head(wanted.pid, on.rate);
    let writer = TraceWriter::create(to, &head, WriteOptions { packed: true })?;
    let mut trace = Trace::begin(wanted.pid, &head, writer)?;
    if on.found {
        trace.found(&reader)?;
    }
    let stopped = trace.follow(&mut reader, &mut on, wanted, &signals, output)?;
    let counted = trace.count(&sampler, &mut reader, on.whole)?;
    let from_start = on.found;
    drop(on);
    if counted.is_none() {
        // The last of it, unless the process has gone.
        let _ = trace.read(&mut reader);
    }
    let lost = reader.lost().map_or(0, |now| now.saturating_sub(lost));
    let (mut end, mut taken) = (trace.end()?, trace.taken);
    end.live = counted;
    taken.lost = taken.lost.saturating_add(lost);
    end.lost = taken.lost;
    trace.sink.finish(&end)?;
    (taken.stopped, taken.from_start) = (stopped, from_start);
    Ok(taken)
}

pub fn gone(pid: i32, error: &io::Error) -> anyhow::Error {
    failure::failed(format_args!("process {pid} has gone: {error}"))
}

/// Why nothing can be read any more of a process that was started then.
pub fn ended(pid: i32, started: Option<u64>) -> &'static str {
    // One that has ended and was not waited for has no program.
    let runs = maker::started(pid) == started && fs::read_link(maker::shared(pid).join("exe")).is_ok();
    if runs { "the process became another program" } else { "the process has ended" }
}

/// While it lives, the sampler is on.
pub struct On<'a> {
    sampler: &'a Sampler,
    /// Binary logarithm of the bytes between two samples.
    pub rate: u32,
    /// The process changes it.
    adapts: bool,
    /// It is switched off at the end. One that is on without a lease is not ours.
    ours: bool,
    /// It was on without a lease: since the process began, or since its parent forked it. What it sampled and lives is of interest.
    found: bool,
    /// It has been on since the process began.
    whole: bool,
    renewed: Instant,
}

impl<'a> On<'a> {
    /// Switch it on, unless it is on already: it keeps its rate then.
    pub fn switch<S: memory::Source>(
        sampler: &'a Sampler,
        reader: &Reader<'_, S>,
        wanted: &Wanted,
        output: &Output,
    ) -> anyhow::Result<Self> {
        let failed = |error: io::Error| gone(wanted.pid, &error);
        let wished = wanted.mean.unwrap_or(MEAN).max(1).ilog2().min(sampler::RATE_MOST);
        let adapts = wanted.mean.is_none();
        let before = reader.rate().map_err(failed)?;
        let ours = before.is_none() || sampler.is_let().map_err(failed)?;
        let rate = before.unwrap_or(wished);
        let keeps_pace = before.is_some() && reader.adapts().map_err(failed)?;
        if rate != wished && !(adapts && keeps_pace) {
            output.note(format_args!(
                "the sampler of process {} is on already, at one sample in {} bytes{}",
                wanted.pid,
                1u64 << rate,
                if keeps_pace { " now: it goes on at its own pace" } else { ": it stays so" }
            ));
        }
        match before {
            None => sampler.switch_on(rate, adapts).map_err(failure::failed)?,
            Some(_) if ours => sampler.renew().map_err(failure::failed)?,
            Some(_) => {}
        }
        let whole = reader.is_whole().map_err(failed)?;
        Ok(Self { sampler, rate, adapts, ours, found: !ours, whole, renewed: Instant::now() })
    }

    /// Say that somebody reads it, from time to time. It may have been switched off meanwhile, by another reader that has ended, or since
    /// this one was stopped for longer than the lease: then it is switched on again, and this is true.
    pub fn keep<S: memory::Source>(&mut self, reader: &Reader<'_, S>) -> bool {
        if !self.ours {
            return false;
        }
        if matches!(reader.rate(), Ok(None)) {
            self.renewed = Instant::now();
            return self.sampler.switch_on(self.rate, self.adapts).is_ok();
        }
        if self.renewed.elapsed() >= RENEWAL {
            self.renewed = Instant::now();
            // A process that has gone is noticed when it is read.
            let _ = self.sampler.renew();
        }
        false
    }
}

impl Drop for On<'_> {
    fn drop(&mut self) {
        if self.ours {
            // A process that has gone needs none.
            let _ = self.sampler.switch_off();
        }
    }
}

/// Takes the events of a sampled process.
pub trait Sink {
    fn event(&mut self, event: &quarry_trace::Event) -> io::Result<()>;
    fn stack(&mut self, thread: u32, node: &StackNode) -> io::Result<()>;
}

impl<W: Write> Sink for TraceWriter<W> {
    fn event(&mut self, event: &quarry_trace::Event) -> io::Result<()> {
        TraceWriter::event(self, event)
    }

    fn stack(&mut self, thread: u32, node: &StackNode) -> io::Result<()> {
        TraceWriter::stack(self, thread, node)
    }
}

/// Makes events of what a sampler tells.
pub struct Trace<S> {
    pid: i32,
    rate: u32,
    pub sink: S,
    /// Threads by the kernel's number.
    threads: HashMap<u32, u32>,
    /// The rates that were told of these, by our numbers.
    rates: HashMap<u32, u32>,
    /// Nodes of stacks: the process's, and ours.
    nodes: HashMap<u32, u32>,
    /// Live samples.
    live: HashSet<u64>,
    modules: Modules,
    pub taken: Taken,
    last_ns: u64,
    /// The time of events is ahead of ours.
    ahead_ns: i64,
    events: u64,
}

/// The head of a trace that begins now.
pub fn head(pid: i32, rate: u32) -> Head {
    // In the time of its events.
    let now = sys::now_ns().saturating_add_signed(maker::ahead_ns(pid));
    Head {
        process: pid as u32,
        program: fs::read_link(maker::shared(pid).join("exe"))
            .map_or_else(|_| String::new(), |path| path.display().to_string()),
        command: command_of(pid),
        page: quarry_proc::page_size(),
        clock: "monotonic".into(),
        ticks_per_second: 1_000_000_000,
        start_ticks: now,
        start_monotonic_ns: now,
        start_unix_ns: UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64),
        malloc: "quarry".into(),
        stacks: "cfi".into(),
        sample: 1 << rate,
        pointer: 8,
        writer: concat!("quarry ", env!("CARGO_PKG_VERSION")).into(),
        ..Head::default()
    }
}

impl<T: Sink> Trace<T> {
    pub fn begin(pid: i32, head: &Head, sink: T) -> anyhow::Result<Self> {
        let mut trace = Self {
            pid,
            rate: head.sample.ilog2(),
            sink,
            threads: HashMap::new(),
            rates: HashMap::new(),
            nodes: HashMap::new(),
            live: HashSet::new(),
            modules: Modules::of(pid),
            taken: Taken { mean: head.sample, ..Taken::default() },
            last_ns: head.start_ticks,
            ahead_ns: maker::ahead_ns(pid),
            events: 0,
        };
        trace.modules.look();
        trace.note_modules(0)?;
        Ok(trace)
    }

    /// Until the time is up, the process has gone, or somebody says stop.
    fn follow<S: memory::Source>(
        &mut self,
        reader: &mut Reader<'_, S>,
        on: &mut On<'_>,
        wanted: &Wanted,
        signals: &Forwarding,
        output: &Output,
    ) -> anyhow::Result<Option<&'static str>> {
        let started = maker::started(wanted.pid);
        let begin = Instant::now();
        let mut told = begin;
        while begin.elapsed() < wanted.span {
            std::thread::sleep(PAUSE.min(wanted.span.saturating_sub(begin.elapsed())));
            if signals.seen().is_some() {
                return Ok(Some("a signal stopped it"));
            }
            if on.keep(reader) {
                output.note("the sampler was switched off meanwhile; it is on again");
            }
            if !self.read(reader)? || maker::started(wanted.pid) != started {
                return Ok(Some(ended(wanted.pid, started)));
            }
            if told.elapsed() >= PROGRESS {
                told = Instant::now();
                output.note(format_args!(
                    "{} of {} s, {}",
                    begin.elapsed().as_secs(),
                    wanted.span.as_secs(),
                    quarry_report::units::of(self.taken.samples, "sample")
                ));
            }
        }
        Ok(None)
    }

    /// What has happened since the last time. False: nothing can be read any more.
    pub fn read<S: memory::Source>(&mut self, reader: &mut Reader<'_, S>) -> anyhow::Result<bool> {
        let Ok(read) = reader.read() else { return Ok(false) };
        // A stack may lead through a file that is new, or lies where another one did.
        if read.events.iter().any(|event| event.what == sampler::What::Birth) {
            self.modules.look();
        }
        let before = self.nodes.len() as u32;
        self.taken.lost += read.missed;
        for event in &read.events {
            self.event(event, reader)?;
        }
        self.note_modules(before)?;
        Ok(true)
    }

    /// Samples that live when the reading begins: of a process that is sampled from its start on, or since it was forked.
    fn found<S: memory::Source>(&mut self, reader: &Reader<'_, S>) -> anyhow::Result<()> {
        self.modules.look();
        self.note_modules(0)?;
        for sample in reader.live().unwrap_or_default() {
            let Sample { address, bytes, born_ns, thread, stack, rate } = sample;
            let what = sampler::What::Birth;
            self.event(&Event { what, time_ns: born_ns, address, bytes, thread, stack, rate }, reader)?;
        }
        Ok(())
    }

    /// Read to the end, and what the process has counted then: of one moment, if it lets us. `None`: it has counted nothing, or has gone.
    fn count<S: memory::Source>(
        &mut self,
        sampler: &Sampler,
        reader: &mut Reader<'_, S>,
        whole: bool,
    ) -> anyhow::Result<Option<Counted>> {
        for tries in (0..COUNTS).rev() {
            let Some(before) = sampler.heap() else { return Ok(None) };
            if !self.read(reader)? {
                return Ok(None);
            }
            let Some(after) = sampler.heap() else { return Ok(None) };
            let is_same = before.sums == after.sums && before.classes_at_ns == after.classes_at_ns;
            if is_same || tries == 0 {
                return Ok(counted(&after, whole));
            }
        }
        Ok(None)
    }

    fn event<S: memory::Source>(&mut self, event: &Event, reader: &Reader<'_, S>) -> anyhow::Result<()> {
        let thread = self.thread(event.thread)?;
        // What was told later happened later, whatever a process says of its time.
        self.last_ns = self.last_ns.max(event.time_ns);
        let what = match event.what {
            sampler::What::Birth => {
                if !self.live.insert(event.address) {
                    return Ok(()); // its end was missed
                }
                self.taken.samples += 1;
                self.rate(thread, event.rate)?;
                let stack = self.stack(thread, &reader.frames(event.stack))?;
                What::Alloc {
                    api: AllocApi::Malloc,
                    size: event.bytes,
                    address: event.address,
                    align: 0,
                    stack,
                }
            }
            sampler::What::Death if !self.live.remove(&event.address) => return Ok(()),
            sampler::What::Death => What::Free { api: FreeApi::Free, address: event.address, touched: None },
        };
        self.write(thread, what)
    }

    /// What the thread allocates next was drawn at this rate.
    fn rate(&mut self, thread: u32, rate: u32) -> anyhow::Result<()> {
        self.taken.mean = self.taken.mean.max(1 << rate);
        let told = self.rates.insert(thread, rate).unwrap_or(self.rate);
        if told == rate { Ok(()) } else { self.write(thread, What::Sampled { mean: 1 << rate }) }
    }

    fn write(&mut self, thread: u32, what: What) -> anyhow::Result<()> {
        self.events += 1;
        let event = quarry_trace::Event { thread, time: self.last_ns, what };
        Ok(self.sink.event(&event)?)
    }

    fn thread(&mut self, tid: u32) -> anyhow::Result<u32> {
        if let Some(&thread) = self.threads.get(&tid) {
            return Ok(thread);
        }
        let thread = self.threads.len() as u32 + 1;
        self.threads.insert(tid, thread);
        self.write(thread, What::ThreadBegin { tid, creator: PROCESS })?;
        let name = fs::read(maker::proc(self.pid, &format!("task/{tid}/comm"))).unwrap_or_default();
        if !name.is_empty() {
            self.write(thread, What::ThreadName(String::from_utf8_lossy(&name).trim_end().to_owned()))?;
        }
        Ok(thread)
    }

    /// The number of a stack, whose frames come innermost first.
    fn stack(&mut self, thread: u32, frames: &[sampler::Frame]) -> anyhow::Result<u32> {
        let mut parent = 0;
        for frame in frames.iter().rev() {
            parent = match self.nodes.get(&frame.node) {
                Some(&node) => node,
                None => {
                    let id = self.nodes.len() as u32 + 1;
                    let node = StackNode { id, parent, pc: frame.pc, is_return: frame.is_return };
                    self.sink.stack(thread, &node)?;
                    self.nodes.insert(frame.node, id);
                    id
                }
            };
        }
        Ok(parent)
    }

    /// Files that came and went by the last look. Nodes up to `before` were read before it, and the later ones around it.
    fn note_modules(&mut self, before: u32) -> anyhow::Result<()> {
        for what in self.modules.changes(before, self.nodes.len() as u32) {
            self.write(PROCESS, what)?;
        }
        Ok(())
    }

    /// The process was looked at up to now. What lives has grown older, also where nothing was sampled lately.
    pub fn looked(&mut self) -> anyhow::Result<()> {
        self.last_ns = self.last_ns.max(sys::now_ns().saturating_add_signed(self.ahead_ns));
        self.write(PROCESS, What::Clock { ns: self.last_ns })
    }

    /// The end of a trace that ends now.
    pub fn end(&mut self) -> anyhow::Result<End> {
        self.looked()?;
        Ok(End {
            reason: "detached".into(),
            end_ticks: self.last_ns,
            end_monotonic_ns: self.last_ns,
            events: self.events,
            ..End::default()
        })
    }
}

/// What a heap has counted of its live blocks.
fn counted(heap: &Heap, whole: bool) -> Option<Counted> {
    let sums = heap.sums?;
    let classes = heap.classes.iter().map(|class| Some((class.block_bytes, class.live_blocks()?)));
    Some(Counted {
        at_ns: heap.classes_at_ns,
        live_bytes: sums.live_bytes(),
        whole,
        large_blocks: sums.runs.saturating_add(sums.huges),
        large_bytes: sums.run_live_bytes.saturating_add(sums.huge_live_bytes),
        classes: classes.collect::<Option<_>>()?,
    })
}

fn command_of(pid: i32) -> Vec<String> {
    let mut bytes = Vec::new();
    if let Ok(file) = fs::File::open(maker::shared(pid).join("cmdline")) {
        let _ = file.take(COMMAND_MOST).read_to_end(&mut bytes);
    }
    let words = bytes.strip_suffix(b"\0").unwrap_or(&bytes).split(|&byte| byte == 0);
    words.map(|word| String::from_utf8_lossy(word).into_owned()).filter(|word| !word.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times at which the process was looked at.
    #[derive(Default)]
    struct Looks(Vec<u64>);

    impl Sink for Looks {
        fn event(&mut self, event: &quarry_trace::Event) -> io::Result<()> {
            if let What::Clock { ns } = event.what {
                assert_eq!(event.time, ns);
                self.0.push(ns);
            }
            Ok(())
        }

        fn stack(&mut self, _: u32, _: &StackNode) -> io::Result<()> {
            Ok(())
        }
    }

    /// The process makes its distance longer while it takes too many.
    #[test]
    fn what_is_advised_takes_fewer_samples_than_at_any_time() {
        let pid = std::process::id() as i32;
        let mut trace = Trace::begin(pid, &head(pid, 19), Looks::default()).unwrap();
        assert_eq!(trace.taken.rarer(), "--sample 2097152");
        for rate in [19, 23, 20] {
            trace.rate(PROCESS, rate).unwrap();
        }
        assert_eq!(trace.taken.rarer(), "--sample 33554432");
        // What was on from the start keeps its distance, whatever --sample says.
        trace.taken.from_start = true;
        assert_eq!(trace.taken.rarer(), "sample:33554432 in the QUARRY_CONF of the process");
    }

    #[test]
    fn time_goes_on_where_nothing_is_sampled() {
        let pid = std::process::id() as i32;
        let head = head(pid, 19);
        let mut trace = Trace::begin(pid, &head, Looks::default()).unwrap();
        trace.looked().unwrap();
        let end = trace.end().unwrap();
        let [look, last] = trace.sink.0[..] else { panic!("{:?}", trace.sink.0) };
        assert!(head.start_ticks <= look && look <= last && last == end.end_ticks);
    }
}
