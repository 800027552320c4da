// SPDX-License-Identifier: MIT
//! quarry replay: a trace, played on any allocator.

mod predict;

use std::ffi::OsString;
use std::io::{BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use quarry_measure::live::{self, DryRun};
use quarry_measure::machine::Machine;
use quarry_measure::preload::Conf;
use quarry_measure::scratch::Scratch;
use quarry_measure::signals::{self, Forwarding};
use quarry_measure::spawn::{self, End};
use quarry_measure::wish::{Candidate, OURS};
use quarry_measure::{elf, locate};
use quarry_replay::builder::{Cut, Order};
use quarry_replay::compile::{self, Counts};
use quarry_replay::handed::Handed;
use quarry_replay::plan::{self, Head, PlanError};
use quarry_replay::session::{self, Contestant, Session, Settings};
use quarry_replay::simulation;
use quarry_report::compare::Allocator;
use quarry_report::replay::Replay;
use quarry_report::replay::sample::Sampled;
use quarry_synth::convert::Format as TraceFormat;
use quarry_trace::analysis::Analysis;
use quarry_trace::sample::Sampling;
use quarry_trace::{Head as TraceHead, Trace, Usage};

use crate::format::{Format, Makes, Reports};
use crate::opened::{Opened, Simulation, Whole};
use crate::output::{Output, Place};
use crate::quantity::{seconds, timeout};
use crate::under::{self, Heap};
use crate::{compare, failure, inputs};

/// Play a trace of allocations on any allocator
///
/// Repeats what a program did with memory, as `quarry record` or another tool recorded it, under the system's malloc
/// and others. It does so in several rounds, each in random order. Threads begin and end as recorded, blocks are freed
/// by the threads that freed them, and written as far as the program wrote them. A .ms file is played as by the
/// simulator it was made for, and with --with like a trace.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ReplayOptions {
    #[command(flatten)]
    heap: Heap,
    /// The mallocs to play on: system, quarry, quarry-pow2, jemalloc, mimalloc, tcmalloc, tbbmalloc, the path of a
    /// library, or LABEL=PATH. Options of QUARRY_CONF may follow each: NAME:KEY:VALUE [default: quarry and all
    /// installed; the system's malloc always takes part].
    ///
    /// For example quarry:tcache:off, or p4=quarry-pow2:pow2_partitions:4. The system's malloc may be called glibc, too.
    #[arg(long, value_name = "NAME|PATH,...", value_delimiter = ',')]
    with: Vec<String>,
    /// Performances at a time, each with all threads of the trace
    #[arg(short = 't', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    threads: u32,
    /// Repeats of each performance.
    ///
    /// What is live at the end of one is freed before the next.
    #[arg(short = 'r', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    repeats: u32,
    /// Rounds [default: what fits into half a minute, but 5 to 10]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rounds: Option<u32>,
    /// What is written into blocks
    #[arg(long, value_name = "WHAT", default_value = "recorded")]
    touch: Touch,
    /// When operations are done
    #[arg(long, value_name = "WHEN", default_value = "max")]
    timing: Timing,
    /// What keeps the operations of different threads in order
    #[arg(long, value_name = "HOW", default_value = "deps")]
    order: Ordering,
    /// Fill blocks in the warm-up, and compare when they are resized or freed
    #[arg(long)]
    verify: bool,
    /// Leave the warm-up out, for traces that take long
    #[arg(long, conflicts_with = "verify")]
    no_warmup: bool,
    /// Idle at the end of each run, before and after all blocks are freed, and show what memory is left
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = seconds(0.0..=86_400.0))]
    idle: Duration,
    /// Do not time single calls
    #[arg(long)]
    no_latency: bool,
    /// Show the times of single calls, how the replay was done, and what the columns are, too
    #[arg(long)]
    details: bool,
    /// Note live bytes at every Nth operation. They are in JSON, and need an exact order: one thread, or --order strict.
    ///
    /// They are of the first repeat, and not of the runs that time each call.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    curve: Option<u64>,
    /// Use this seed for the order of runs, to repeat that of an earlier replay
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Kill a run after this time, and count it as failed [default: 50 times what the system's malloc takes, but a
    /// minute at least]
    #[arg(long, value_name = "SECONDS", value_parser = timeout)]
    timeout: Option<Duration>,
    /// Then run the program itself under each allocator, in as many rounds (3 without -n) and with its output
    /// discarded. Show the memory and time that it really takes beside the prediction.
    ///
    /// The order is random, and the input is empty.
    #[arg(long, requires = "command")]
    validate: bool,
    /// Allow slots above 4095 in a .ms file
    #[arg(long)]
    wide: bool,
    /// For a .ms file without --with: show no summaries and no statistics
    #[arg(short = 's', long)]
    silent: bool,
    /// For a .ms file without --with: show each operation, with its pointer and time
    #[arg(short = 'd', long)]
    debug: bool,
    #[command(flatten)]
    pub reports: Reports<Self>,
    /// The trace, a .ms file, or what else quarry convert reads; - is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The program that was recorded, with its arguments, for --validate
    #[arg(value_name = "CMD", last = true, requires = "validate")]
    command: Vec<OsString>,
}

impl Makes for ReplayOptions {
    const VERB: &'static str = "replay";
    const FORMATS: &'static [Format] = &[Format::Text, Format::Json, Format::Html];
    const SCHEMA: &'static str = "quarry-replay/1";
}

const EXAMPLES: &str = "Examples:
  quarry record -o prog.qtr -- ./prog      make a trace
  quarry replay prog.qtr                   on every allocator installed
  quarry replay prog.qtr --details         with the times of single calls
  quarry replay prog.qtr -n 3 --no-latency   the quick form: no times of single calls
  quarry replay prog.qtr --with jemalloc,old=../old/libquarry-malloc.so -o page.html -o -
  quarry replay prog.qtr --with quarry,quarry:tcache:off -n 20
  quarry replay prog.qtr --verify --idle 2
  quarry replay prog.qtr --validate -- ./prog input   what is predicted, and what is true
  quarry replay -t 20 -r 20 test.ms        as the simulator of .ms files does
  quarry replay -t 20 -r 20 test.ms --with quarry-pow2:pow2_partitions:4

Exit code: 0; 1 when an allocator failed where the system's malloc did not, or --verify found
something wrong in a .ms file without --with; 125 when the system's malloc failed, or quarry itself; 128+N when signal N stopped it; 2 the command line makes no sense.";

impl ReplayOptions {
    /// The first option given that only a replay in rounds heeds.
    fn of_rounds(&self) -> Option<&'static str> {
        let given = [
            (self.rounds.is_some(), "--rounds"),
            (self.timing == Timing::Real, "--timing"),
            (self.no_warmup, "--no-warmup"),
            (!self.idle.is_zero(), "--idle"),
            (self.no_latency, "--no-latency"),
            (self.details, "--details"),
            (self.curve.is_some(), "--curve"),
            (self.seed.is_some(), "--seed"),
            (self.timeout.is_some(), "--timeout"),
            (self.validate, "--validate"),
            (self.heap.lib.is_some(), "--lib"),
        ];
        given.into_iter().find_map(|(given, name)| given.then_some(name))
    }
}

/// What is written into blocks.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Touch {
    /// A word in each cache line, of large blocks only as far as the program wrote
    Recorded,
    /// A word in each cache line
    All,
    /// The first byte in each page
    First,
    /// Nothing
    None,
}

/// When operations are done.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Timing {
    /// As soon as possible
    Max,
    /// Not before the recorded time
    Real,
}

/// What keeps operations in order.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Ordering {
    /// What each block needs, and that no thread runs far ahead
    Deps,
    /// One at a time, exactly as recorded
    Strict,
}

/// What the rounds may take when the user does not say how many, and how many at least and at most. Of fewer
/// than five the report names no fastest.
const BUDGET: Duration = Duration::from_secs(30);
const ROUNDS: (usize, usize) = (5, 10);

/// Replay; the exit code says what was found.
pub fn main(options: &ReplayOptions, output: &Output) -> anyhow::Result<i32> {
    inputs::spare([&options.file], options.reports.files())?;
    let replayer = locate::replayer()?;
    let reports = options.reports.all(Place::Stdout)?;
    output.expect_all(&reports)?;
    output.detail(format_args!("the replayer is {}", replayer.display()));
    // A pipe may be waited for, until a signal ends that.
    let begun = Begun::open(options).map_err(|error| anyhow::anyhow!(failure::words(&error)))?;
    let signals = Forwarding::stopping();
    let bar = bar(output)?;
    let compiled = match Compiled::new(begun, options, &bar, &signals) {
        Ok(compiled) => compiled,
        Err(_) if signals.seen().is_some() => return Ok(stopped(signals.seen(), 0, output)),
        Err(error) => return Err(error),
    };
    if signals.seen().is_some() {
        return Ok(stopped(signals.seen(), 0, output));
    }
    output.detail(format_args!(
        "the plan has {}, {}, {}",
        quarry_report::units::of(compiled.head.bytes, "byte"),
        quarry_report::units::of(u64::from(compiled.head.slots), "slot"),
        quarry_report::units::of(u64::from(compiled.head.segments), "segment")
    ));
    if compiled.is_simulation && options.with.is_empty() && !options.reports.wanted() {
        if let Some(what) = options.of_rounds() {
            return Err(failure::usage(format!(
                "{what} means nothing for a .ms file without --with, --format, --json and --output, which is played once on \
                 the malloc that is there; add --with, for example --with system"
            )));
        }
        return simulate(options, &replayer, &compiled);
    }
    if options.validate && compiled.is_simulation {
        return Err(failure::usage("--validate runs a program that was recorded, and a .ms file is of none"));
    }
    if options.silent || options.debug {
        let what = if options.silent { "--silent" } else { "--debug" };
        return Err(failure::usage(format!(
            "{what} is for a .ms file without --with, --format, --json and --output"
        )));
    }
    if options.curve.is_some() && !reports.iter().any(|wish| wish.format == Format::Json) {
        return Err(failure::usage("--curve is noted in JSON, and no table or page shows it; add --json"));
    }
    if under::existing_preload().is_some() {
        output.warn("LD_PRELOAD is set and kept, so what it loads takes part in every run");
    }
    if options.curve.is_some() && options.order == Ordering::Deps && compiled.head.threads > 1 {
        output
            .warn("no --curve: only one operation after the other has exact live bytes; add --order strict");
    }
    let (contestants, allocators) = contestants(options, &replayer, output)?;
    play(options, output, signals, &bar, replayer, &compiled, contestants, allocators)
}

fn bar(output: &Output) -> anyhow::Result<ProgressBar> {
    let target = if output.is_quiet() { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let bar = ProgressBar::with_draw_target(None, target);
    bar.set_style(ProgressStyle::with_template("{wide_bar} {percent} % {msg} ({eta} left)")?);
    Ok(bar)
}

fn stopped(signal: Option<i32>, rounds: usize, output: &Output) -> i32 {
    let signal = signal.unwrap_or(0);
    let name = signals::name(signal);
    output.warn(format_args!("{name} stopped the replay after {rounds} complete rounds"));
    128 + signal
}

/// What is to be played, open and told.
struct Begun {
    name: String,
    what: What,
}

enum What {
    Trace(Box<Whole>),
    Simulation(Simulation),
}

impl Begun {
    fn open(options: &ReplayOptions) -> anyhow::Result<Self> {
        let opened = Opened::open(&options.file, None, options.wide)?;
        let name = opened.name.clone();
        let what = if opened.format == TraceFormat::Ms {
            What::Simulation(opened.into_simulation()?)
        } else {
            What::Trace(Box::new(opened.into_trace()?))
        };
        Ok(Self { name, what })
    }
}

/// A plan in a temporary file, and what it was made of.
struct Compiled {
    plan: Scratch,
    head: Head,
    counts: Option<Counts>,
    about: String,
    damage: Option<String>,
    sample: Option<Sampled>,
    is_simulation: bool,
    recording: Option<Recording>,
}

/// What a trace knows of the program beside its heap.
struct Recording {
    head: TraceHead,
    usage: Vec<Usage>,
    /// Has it the look at the end of the process?
    ended: bool,
    /// Were its destructors called?
    destructed: bool,
    /// How the process ended, if that is known.
    end: Option<End>,
    modules: Vec<String>,
    handed: Handed,
    duration_ns: u64,
}

impl Compiled {
    fn new(
        begun: Begun,
        options: &ReplayOptions,
        bar: &ProgressBar,
        signals: &Forwarding,
    ) -> anyhow::Result<Self> {
        let name = begun.name;
        let plan =
            Scratch::new().context("cannot make a temporary file for the plan; is there room in TMPDIR?")?;
        let cut = Cut::new(match options.order {
            Ordering::Deps => Order::Deps,
            Ordering::Strict => Order::Strict,
        });
        let writer = BufWriter::with_capacity(1 << 20, plan.file());
        let bytes = match &begun.what {
            What::Trace(whole) => whole.trace.bytes(),
            What::Simulation(simulation) => simulation.length,
        };
        let mut sample = None;
        // A trace is read twice.
        bar.set_length((2 * bytes).max(1));
        bar.set_message("compiling");
        let mut progress = |read: u64| {
            bar.set_position(read);
            signals.seen().is_none()
        };
        let explain = |error: PlanError| match error {
            PlanError::Write(_) => anyhow::Error::new(error).context(
                "the plan has 8 bytes for each operation; TMPDIR names the directory it is written to",
            ),
            error => anyhow::Error::new(error).context(name.clone()),
        };
        let (head, counts, about, damage, recording) = match begun.what {
            What::Trace(whole) => {
                let Whole { trace, remarks, .. } = *whole;
                let compiled = compile::compile(&trace, writer, cut, &mut progress).map_err(explain)?;
                sample = sampled(&trace);
                let head = trace.head();
                let command = head.command_line();
                let mut damage = trace.damage().clone();
                damage.merge(&compiled.damage);
                let damage = Some(damage.to_string()).filter(|damage| !damage.is_empty());
                let damage: Vec<String> = damage.into_iter().chain(remarks).collect();
                let damage = (!damage.is_empty()).then(|| damage.join("; "));
                let recording = Recording {
                    head: head.clone(),
                    usage: compiled.usage,
                    ended: compiled.status.is_some(),
                    destructed: trace.end().is_some_and(|end| end.reason == "exit"),
                    end: end_of(&trace, compiled.status),
                    modules: compiled.modules,
                    handed: compiled.handed,
                    duration_ns: compiled.head.duration_ns,
                };
                (compiled.head, Some(compiled.counts), command, damage, Some(recording))
            }
            What::Simulation(Simulation { file, cut: damage, .. }) => {
                let input = BufReader::new(file);
                let head = simulation::compile(input, writer, cut, options.wide, &mut progress);
                (head.map_err(explain)?, None, String::new(), damage, None)
            }
        };
        bar.set_position(2 * bytes);
        let is_simulation = counts.is_none();
        if head.operations[0] == head.operations[plan::STATS as usize] {
            // Any text that has an e before the first number is an empty simulation.
            let hint = match &damage {
                _ if is_simulation => "is it a .ms file or a trace of quarry record?",
                Some(damage) => damage,
                None => "its program never asked malloc",
            };
            anyhow::bail!("{name}: there is nothing to play: no allocation and no free; {hint}");
        }
        Ok(Self { plan, head, counts, about, damage, sample, is_simulation, recording })
    }
}

/// How the recorded process ended: its parent has told of a signal, an event or the end of the trace has the status.
fn end_of(trace: &Trace, status: Option<u32>) -> Option<End> {
    let told = trace.end();
    let number = |value: u32| i32::try_from(value).ok();
    if let Some(signal) = told.and_then(|end| end.signal) {
        return number(signal).map(End::Signal);
    }
    status.or(told.and_then(|end| end.status)).and_then(number).map(End::Exit)
}

/// What a sample says of its program. The replay has said what cannot be read.
fn sampled(trace: &Trace) -> Option<Sampled> {
    let sampling = Sampling::of(trace.head());
    sampling.is_sample().then(|| {
        let mut analysis = Analysis::of(sampling);
        trace.events().map_while(Result::ok).for_each(|event| analysis.add(&event));
        let summary = analysis.finish(0);
        Sampled { rate: sampling.rate(), means: summary.means, peak: summary.peak.bytes }
    })
}

/// A .ms file on whatever malloc is there, with the lines of its own simulator.
fn simulate(options: &ReplayOptions, replayer: &Path, compiled: &Compiled) -> anyhow::Result<i32> {
    let mut command = std::process::Command::new(replayer);
    command.arg(if options.debug { "--talk" } else { "--classic" });
    if options.silent {
        command.arg("--silent");
    }
    if options.verify {
        command.arg("--verify");
    }
    command.arg("--instances").arg(options.threads.to_string());
    command.arg("--repeats").arg(options.repeats.to_string());
    command.arg("--touch").arg(options.touch.into_session().name());
    command.arg("--no-samples").arg(compiled.plan.path());
    under::set_conf(&mut command, &under::merged_conf(&options.heap.conf()));
    let ran = spawn::run(&mut command).with_context(|| replayer.display().to_string())?;
    Ok(match ran.end {
        End::Exit(0) => 0,
        End::Exit(session::WRONG) => 1,
        // Who read what it printed went away, and has seen what it wanted.
        End::Signal(signals::BROKEN_PIPE) => 0,
        // Not the code of a command: the replayer could not play, and has said why.
        End::Exit(_) => 125,
        end => end.code(),
    })
}

impl Touch {
    fn into_session(self) -> session::Touch {
        match self {
            Touch::Recorded => session::Touch::Recorded,
            Touch::All => session::Touch::All,
            Touch::First => session::Touch::First,
            Touch::None => session::Touch::None,
        }
    }
}

/// The mallocs that replay: the system's, then those asked for, or quarry and all that are installed.
fn contestants(
    options: &ReplayOptions,
    replayer: &Path,
    output: &Output,
) -> anyhow::Result<(Vec<Contestant>, Vec<Allocator>)> {
    let lib = options.heap.lib.as_deref();
    let mut found = vec![Candidate::system()];
    if options.with.is_empty() || options.with.iter().any(|wish| wish.trim() == OURS) {
        let library = Some(locate::library(lib)?);
        found.push(Candidate { name: OURS.to_owned(), library, conf: Conf::default() });
    }
    found.extend(compare::asked_for(&options.with, lib, output)?);
    let common = under::merged_conf(&options.heap.conf());
    let (mut contestants, mut allocators) = (Vec::new(), Vec::new());
    for Candidate { name, library, conf } in compare::distinct(found)? {
        let path = library.as_ref().map(|library| library.path.clone());
        let preload = path.as_deref().map(under::preload_value).transpose()?;
        let mut allocator = Allocator {
            library: path.as_ref().map(|path| path.display().to_string()),
            version: library.and_then(|library| library.version),
            loaded: path.is_none().then_some(true),
            notes: Vec::new(),
            name: name.clone(),
        };
        if let (Some(path), Some(preload)) = (&path, &preload) {
            output.detail(format_args!("{name}: LD_PRELOAD={}", Path::new(preload).display()));
            let facts = elf::read(replayer).ok().flatten();
            let linker = facts.and_then(|facts| facts.interpreter);
            match linker.map(|linker| live::dry_run(&linker, replayer, preload, path)) {
                Some(Ok(DryRun::Loads)) => allocator.loaded = Some(true),
                Some(Ok(DryRun::Refuses(reason))) => {
                    allocator.loaded = Some(false);
                    allocator.notes.push(reason);
                }
                _ => {}
            }
        }
        let conf = common.clone().merge(&conf);
        contestants.push(Contestant { name, library: path, preload, conf });
        allocators.push(allocator);
    }
    if let Some(base) = allocators.first_mut() {
        base.version = Some(Machine::read().libc);
    }
    Ok((contestants, allocators))
}

#[allow(clippy::too_many_arguments)]
fn play(
    options: &ReplayOptions,
    output: &Output,
    signals: Forwarding,
    bar: &ProgressBar,
    replayer: PathBuf,
    compiled: &Compiled,
    contestants: Vec<Contestant>,
    allocators: Vec<Allocator>,
) -> anyhow::Result<i32> {
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seed = options.seed.unwrap_or(started.as_nanos() as u64 % 1_000_000);
    let machine = Machine::read();
    let usage = compiled.recording.as_ref().and_then(|recording| recording.usage.last());
    let traits = |traits| usage.is_some_and(|usage| usage.has(traits));
    let settings = Settings {
        instances: options.threads,
        repeats: options.repeats,
        touch: options.touch.into_session(),
        real_time: options.timing == Timing::Real,
        verify: options.verify,
        idle_s: options.idle.as_secs_f64(),
        latency: !options.no_latency,
        curve: options.curve,
        early: traits(Usage::EARLY),
        no_huge_pages: traits(Usage::NO_HUGE_PAGES),
    };
    let plan = compiled.plan.path().to_owned();
    let mut session = Session::new(replayer, plan, settings, contestants, seed)
        .context("cannot make a temporary file for reports")?;
    session.timeout = options.timeout;
    let mut prediction = predict::prepare(options, compiled, &mut session, output);
    let first = usize::from(options.no_warmup);
    let (rounds, ended) =
        match play_rounds(&mut session, first, options.rounds.map(|n| n as usize), &signals, bar) {
            (0, Err(error)) => return Err(error),
            (rounds, ended) => (rounds, ended.map_err(|error| failure::after(error, "replay", rounds))),
        };
    if let Some(prediction) = prediction.as_mut().filter(|_| session.unrecorded) {
        prediction.cpu_unknown =
            Some(String::from("the recorder left no trace of a replay, so what it takes is not known"));
    }
    let ended = ended.and_then(|()| match &mut prediction {
        Some(prediction) if options.validate && signals.seen().is_none() => {
            predict::validate(options, &session, prediction, &signals, bar)
        }
        _ => Ok(()),
    });
    bar.finish_and_clear();
    // Nothing is left to stop but the report, for which its reader may have us wait as long as it likes.
    let signal = signals.seen();
    drop(signals);
    let mut replay = Replay {
        file: options.file.display().to_string(),
        about: compiled.about.clone(),
        head: compiled.head,
        counts: compiled.counts,
        damage: compiled.damage.clone(),
        sample: compiled.sample,
        strict: options.order == Ordering::Strict,
        machine,
        started: started.as_secs(),
        seed,
        rounds,
        interrupted: signal.is_some() || ended.is_err(),
        allocators,
        prediction,
        session: &session,
    };
    for (allocator, seen) in replay.allocators.iter_mut().zip(&session.seen) {
        if *seen == Some(false) && allocator.loaded != Some(false) {
            allocator.loaded = Some(false);
            allocator
                .notes
                .push(String::from("the running replayer does not have the library in its memory"));
        }
    }
    output.all([ended, report(options, output, &replay)])?;
    if signal.is_some() {
        return Ok(stopped(signal, rounds, output));
    }
    Ok(replay.exit_code())
}

fn report(options: &ReplayOptions, output: &Output, replay: &Replay) -> anyhow::Result<()> {
    output.reports_or_print(&options.reports.all(Place::Stdout)?, |wish| {
        Ok(match wish.format {
            Format::Json => format!("{:#}\n", replay.json()),
            Format::Html => replay.html(),
            _ => replay.text(output.style(&wish.place), options.details),
        })
    })
}

/// The warm-up, if `first` is 0, then rounds; how many were complete, and the error that ended them if one did.
fn play_rounds(
    session: &mut Session,
    first: usize,
    wanted: Option<usize>,
    signals: &Forwarding,
    bar: &ProgressBar,
) -> (usize, anyhow::Result<()>) {
    let mut wanted = wanted;
    let mut start = Instant::now();
    let mut round = first;
    let mut done = 0u64;
    while round <= wanted.unwrap_or(1) && session.is_in(0) {
        let each = session.round_length(1) as u64;
        let left = wanted.unwrap_or(ROUNDS.0).saturating_sub(round.max(1) - 1) as u64 * each;
        bar.set_length(done + left + if round == 0 { session.round_length(0) as u64 } else { 0 });
        bar.set_position(done);
        let complete = session.round(round, &mut |name, pass| {
            if !name.is_empty() {
                bar.set_message(match pass {
                    session::Pass::WarmUp => format!("{name}, warm-up"),
                    session::Pass::Totals => name.to_owned(),
                    session::Pass::Latency => format!("{name}, calls"),
                    session::Pass::Memory => format!("{name}, memory"),
                    session::Pass::Recorder => format!("{name}, recorded"),
                });
            } else {
                bar.inc(1);
            }
            signals.seen().is_none()
        });
        match complete {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                let error =
                    anyhow::Error::new(error).context(format!("cannot run {}", session.replayer().display()));
                return (round.saturating_sub(1), Err(error));
            }
        }
        done = bar.position();
        match round {
            0 => start = Instant::now(),
            // The first round tells how long one takes.
            1 => wanted = wanted.or_else(|| Some(rounds_for(start.elapsed()))),
            _ => {}
        }
        round += 1;
    }
    (round.saturating_sub(1), Ok(()))
}

/// How many rounds fit into the budget when one takes `time`.
fn rounds_for(time: Duration) -> usize {
    let fit = BUDGET.as_secs_f64() / time.as_secs_f64().max(1e-6);
    (fit as usize).clamp(ROUNDS.0, ROUNDS.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_fit_the_budget_within_bounds() {
        assert_eq!(rounds_for(Duration::ZERO), 10);
        assert_eq!(rounds_for(Duration::from_secs(5)), 6);
        assert_eq!(rounds_for(Duration::from_secs(600)), 5);
    }
}
