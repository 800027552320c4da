// SPDX-License-Identifier: MIT
//! Samples a process, and knows what is shown of it.

use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use crossterm::event::{KeyCode, KeyEvent};
use quarry_profile::live::{Column, Frame, Ongoing, Picture, Sampled, Seen, Site, draw, sort};
use quarry_profile::query::{By, Sort};
use quarry_report::view::Order;
use quarry_stats::maker;
use quarry_stats::sampler::{Reader, Sampler};
use quarry_symbols::Symbols;
use quarry_trace::sample::Sampling;
use quarry_trace::{End, Event, StackNode};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;

use super::super::options::{DELAY, ProfileOptions};
use super::super::running::{self, On, PAUSE, Sink, Taken, Trace, Wanted};
use super::snapshot::{Snapshot, Writer};
use crate::failure;
use crate::output::Output;
use crate::view::{Do, State, View};

/// Where events go: into the trace, and into what is shown.
struct Both {
    writer: Writer,
    ongoing: Ongoing,
}

impl Sink for Both {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        self.ongoing.event(event);
        self.writer.event(event)
    }

    fn stack(&mut self, thread: u32, node: &StackNode) -> io::Result<()> {
        self.ongoing.stack(node);
        self.writer.stack(thread, node)
    }
}

/// All that is looked at, and how.
pub struct App<'a> {
    options: &'a ProfileOptions,
    pid: i32,
    sampler: &'a Sampler,
    /// What all live blocks of the process have, as it counts them.
    heap: Option<u64>,
    /// When the process was started: with its number this names it.
    started: Option<u64>,
    span: Duration,
    program: String,
    mean: u64,
    /// None when nothing more is sampled.
    on: Option<On<'a>>,
    reader: &'a mut Reader<'a, File>,
    lost_before: u64,
    lost: u64,
    trace: Trace<Both>,
    snapshot: Snapshot<'a>,
    began: Instant,
    /// When it was read last.
    polled: Instant,
    /// How long it was sampled.
    time: Duration,
    pub state: State<Column>,
    by: By,
    pub seen: Option<Seen>,
    /// Those that the filter lets through, in order.
    pub shown: Vec<Site>,
    pub ended: Option<&'static str>,
    pub cost: Duration,
}

fn column(sort: Option<Sort>) -> anyhow::Result<Column> {
    Ok(match sort {
        None | Some(Sort::Live | Sort::End) => Column::Live,
        Some(Sort::Growth) => Column::Grown,
        Some(Sort::Allocated) => Column::Bytes,
        Some(Sort::Allocations) => Column::Calls,
        Some(Sort::Temporary) => {
            return Err(failure::usage("which blocks are temporary is not known from a sample"));
        }
    })
}

impl<'a> App<'a> {
    pub fn new(
        options: &'a ProfileOptions,
        wanted: &Wanted,
        sampler: &'a Sampler,
        on: On<'a>,
        reader: &'a mut Reader<'a, File>,
        snapshot: Snapshot<'a>,
    ) -> anyhow::Result<Self> {
        let pid = wanted.pid;
        let head = running::head(pid, on.rate);
        let mut symbols = Symbols::new(Vec::new()).in_places(options.places.places());
        if options.no_symbols {
            symbols.without_names();
        }
        let by = options.by;
        let ongoing = Ongoing::new(
            Sampling::of(&head),
            by.division(),
            symbols,
            crate::info::hiding(&options.hide)?,
            Duration::ZERO,
        );
        let writer = snapshot.begin(&head)?;
        let order = Order { sort: column(options.sort)?, reverse: false, filter: String::new() };
        let (now, program) = (Instant::now(), head.program.rsplit('/').next().unwrap_or_default());
        Ok(Self {
            options,
            pid,
            sampler,
            heap: None,
            started: maker::started(pid),
            span: wanted.span,
            program: quarry_proc::shown(program),
            mean: head.sample,
            on: Some(on),
            lost_before: reader.lost().map_err(|error| running::gone(pid, &error))?,
            lost: 0,
            reader,
            trace: Trace::begin(pid, &head, Both { writer, ongoing })?,
            snapshot,
            began: now,
            polled: now,
            time: Duration::ZERO,
            state: State::new(order, options.delay.unwrap_or(DELAY), None),
            by,
            seen: None,
            shown: Vec::new(),
            ended: None,
            cost: Duration::ZERO,
        })
    }

    /// Take what the process has told meanwhile.
    pub fn poll(&mut self) -> anyhow::Result<()> {
        let Some(on) = &mut self.on else { return Ok(()) };
        (self.polled, self.time) = (Instant::now(), self.began.elapsed());
        if on.keep(self.reader) {
            self.state.look.message =
                Some(String::from("the sampler was switched off meanwhile; it is on again"));
        }
        if let Ok(Some(rate)) = self.reader.rate() {
            self.mean = 1 << rate;
        }
        let is_there = self.trace.read(self.reader)? && maker::started(self.pid) == self.started;
        self.lost = self.reader.lost().map_or(self.lost, |now| now.saturating_sub(self.lost_before));
        if !is_there {
            self.end(running::ended(self.pid, self.started));
        } else if self.time >= self.span {
            self.end("the time is up");
        }
        Ok(())
    }

    fn end(&mut self, why: &'static str) {
        self.on = None;
        self.ended = Some(why);
    }

    fn taken(&self) -> Taken {
        let mut taken = self.trace.taken;
        taken.lost = taken.lost.saturating_add(self.lost);
        taken
    }

    /// The end of a trace that ends now.
    fn ended_now(&mut self) -> anyhow::Result<End> {
        let lost = self.taken().lost;
        Ok(End { lost, ..self.trace.end()? })
    }

    /// One more frame of what was sampled.
    pub fn look(&mut self) -> anyhow::Result<()> {
        let start = Instant::now();
        if self.ended.is_none() {
            self.trace.looked()?;
        }
        // Of a process that has ended, what it counted last.
        self.heap =
            self.sampler.heap().and_then(|heap| heap.sums).map(|sums| sums.live_bytes()).or(self.heap);
        let profile = self.trace.sink.ongoing.frame(self.time);
        self.seen = Some(self.trace.sink.ongoing.look(profile, self.by, self.options.filter.as_ref()));
        self.order();
        self.cost = start.elapsed().saturating_sub(self.trace.sink.ongoing.naming());
        Ok(())
    }

    /// Choose and order what is shown.
    fn order(&mut self) {
        let (order, seen) = (&self.state.look.order, self.seen.as_ref());
        let fits = |site: &&Site| order.filter.is_empty() || site.name.contains(&order.filter);
        self.shown = seen.map_or_else(Vec::new, |seen| seen.sites.iter().filter(fits).cloned().collect());
        sort(&mut self.shown, order);
        let ids = self.ids();
        self.state.settle(&ids);
    }

    fn ids(&self) -> Vec<u32> {
        self.shown.iter().map(|site| site.id).collect()
    }

    /// What one row is, the next of what there is.
    fn fold(&mut self) {
        let first = self.options.by;
        let mut ways = vec![By::Site, By::Function, By::Module];
        if !ways.contains(&first) {
            ways.push(first);
        }
        let at = ways.iter().position(|by| *by == self.by).unwrap_or_default();
        self.by = ways[(at + 1) % ways.len()];
        self.state.follow = None;
        (self.state.look.selected, self.state.look.first) = (0, 0);
        if let Some(seen) = self.seen.take() {
            let filter = self.options.filter.as_ref();
            self.seen = Some(self.trace.sink.ongoing.look(seen.profile, self.by, filter));
        }
        self.order();
    }

    /// Switch the sampler off, and write what nobody has asked for yet.
    pub fn finish(mut self, output: &Output) -> anyhow::Result<()> {
        if self.on.take().is_some() {
            // The last of it, unless the process has gone.
            let _ = self.trace.read(self.reader);
        }
        if let Some(why) = self.ended {
            output.note(why);
        }
        if self.snapshot.is_due() {
            let end = self.ended_now()?;
            let names = self.snapshot.write(&mut self.trace.sink.writer, &end)?;
            output.note(format_args!("written: {names}"));
        }
        Ok(())
    }

    /// What is written of it.
    pub fn frame<'b>(&'b self, number: u64, seen: &'b Seen) -> Frame<'b> {
        Frame {
            number,
            sampled: self.sampled(),
            sort: self.state.look.order.sort,
            seen,
            sites: &self.shown[..self.shown.len().min(self.options.top as usize)],
        }
    }

    fn sampled(&self) -> Sampled<'_> {
        let taken = self.taken();
        Sampled {
            process: self.pid,
            program: &self.program,
            mean: self.mean,
            samples: taken.samples,
            lost: taken.lost,
            heap: self.heap,
            time: self.time,
            cost: self.cost,
            by: self.by,
            ended: self.ended,
        }
    }
}

impl View for App<'_> {
    type Column = Column;

    fn state(&mut self) -> &mut State<Column> {
        &mut self.state
    }

    fn read(&mut self) -> anyhow::Result<()> {
        self.poll()?;
        self.look()
    }

    fn cost(&self) -> Duration {
        self.cost
    }

    /// The ring of events is small: it is read more often than frames are, and in a pause, too.
    fn meanwhile(&mut self) -> anyhow::Result<Do> {
        if self.on.is_none() || self.polled.elapsed() < PAUSE {
            return Ok(Do::Nothing);
        }
        let ended = self.ended;
        self.poll()?;
        Ok(if self.ended != ended { Do::Read } else { Do::Nothing })
    }

    fn rank(&mut self) {
        self.order();
    }

    fn key(&mut self, key: KeyEvent) -> Do {
        let ids = self.ids();
        let inside = self.state.look.opened.is_some();
        let todo = self.state.key(key, &ids);
        match (todo, key.code) {
            (Do::Own, KeyCode::Char('w')) if self.snapshot.is_wanted() => {
                self.state.look.message = Some(String::from("writing ..."));
                Do::Work
            }
            (Do::Own, KeyCode::Char('w')) => {
                let why = "there is nothing to write to: name files with -o or --trace when you start this";
                self.state.look.message = Some(String::from(why));
                Do::Draw
            }
            (Do::Own, KeyCode::Char('b')) => {
                self.trace.sink.ongoing.begin_changes();
                self.state.look.message = Some(String::from("GROWN counts from now on"));
                Do::Read
            }
            (Do::Own, KeyCode::Char('g')) if !inside => {
                self.fold();
                Do::Draw
            }
            // What was seen is here: it is not looked at before its time for that.
            (Do::Read, KeyCode::Enter | KeyCode::Esc) => Do::Rank,
            (todo, _) => todo,
        }
    }

    fn draw(&self, buffer: &mut Buffer, area: Rect, color: bool) -> usize {
        let picture =
            Picture { sampled: self.sampled(), seen: self.seen.as_ref(), sites: &self.shown, color };
        draw(buffer, area, &self.state.look, &picture)
    }

    fn work(&mut self) {
        let written = self.ended_now().and_then(|end| self.snapshot.write(&mut self.trace.sink.writer, &end));
        self.state.look.message = Some(match written {
            Ok(names) => format!("written: {names}"),
            Err(error) => format!("not written: {}", failure::words(&error)),
        });
    }
}
