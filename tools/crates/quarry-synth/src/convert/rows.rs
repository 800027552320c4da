// SPDX-License-Identifier: MIT
//! Traces as tables: a row for each event, or one for each block. `docs/convert.md` has the columns.

use quarry_trace::sample::Rate;
use quarry_trace::{AllocApi, End, Event, FreeApi, Head, HiddenChild, PoolWhat, StackId, ThreadId, What};

use super::{Error, Item, Losses, Sink, nanoseconds};
use crate::hash::Map;
use crate::names;

/// What a row stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// An event.
    Events,
    /// A block, from its allocation or reallocation to its free or reallocation.
    Objects,
}

/// The type of a column; all but `Text` may be missing in a row where it says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number of 64 bits.
    Number,
    /// A number that may be missing.
    Maybe,
    /// A word that may be missing.
    Text,
}

/// A column: its name and its type.
pub type Column = (&'static str, Kind);

/// The columns of events.
pub const EVENTS: [Column; 12] = [
    ("time_ns", Kind::Number),
    ("thread", Kind::Number),
    ("op", Kind::Text),
    ("api", Kind::Text),
    ("size", Kind::Maybe),
    ("address", Kind::Maybe),
    ("align", Kind::Maybe),
    ("old_address", Kind::Maybe),
    ("took_ns", Kind::Maybe),
    ("stack", Kind::Maybe),
    ("pool", Kind::Maybe),
    ("text", Kind::Text),
];

/// The columns of objects.
pub const OBJECTS: [Column; 17] = [
    ("object", Kind::Number),
    ("part", Kind::Number),
    ("size", Kind::Number),
    ("align", Kind::Maybe),
    ("api", Kind::Text),
    ("address", Kind::Number),
    ("thread", Kind::Number),
    ("birth", Kind::Number),
    ("birth_ns", Kind::Number),
    ("death", Kind::Maybe),
    ("death_ns", Kind::Maybe),
    ("lifetime", Kind::Maybe),
    ("lifetime_ns", Kind::Maybe),
    ("freed_by", Kind::Maybe),
    ("ended", Kind::Text),
    ("stack", Kind::Maybe),
    ("sample_mean", Kind::Maybe),
];

impl Rows {
    /// Its columns.
    pub fn columns(self) -> &'static [Column] {
        match self {
            Rows::Events => &EVENTS,
            Rows::Objects => &OBJECTS,
        }
    }
}

/// What stands in a column of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Nothing.
    Null,
    /// A number.
    Number(u64),
    /// A word that is always the same.
    Word(&'static str),
    /// A text.
    Text(String),
}

impl From<Option<u64>> for Value {
    fn from(value: Option<u64>) -> Self {
        value.map_or(Value::Null, Value::Number)
    }
}

/// Where rows go.
pub trait Table {
    /// One more.
    fn row(&mut self, row: &[Value]) -> Result<(), Error>;
    /// That was all.
    fn finish(&mut self) -> Result<(), Error>;
}

/// Makes rows of items.
pub struct RowSink<T: Table> {
    table: T,
    rows: Rows,
    /// For durations in ticks.
    head: Head,
    /// Mean bytes between samples, of threads that have another mean than the head's.
    means: Map<ThreadId, u64>,
    live: Map<u64, Block>,
    /// Allocations so far; also the number of the next object.
    births: u64,
    written: u64,
    losses: Losses,
}

/// A block that lives.
#[derive(Debug, Clone, Copy)]
struct Block {
    object: u64,
    part: u64,
    size: u64,
    align: u8,
    api: AllocApi,
    address: u64,
    thread: ThreadId,
    birth: u64,
    birth_ns: u64,
    stack: StackId,
    /// Mean bytes between samples where it was drawn; 0: all blocks are there.
    mean: u64,
}

impl<T: Table> RowSink<T> {
    /// Begin.
    pub fn new(table: T, rows: Rows, head: &Head) -> Self {
        let head = Head { start_ticks: 0, ..head.clone() };
        Self {
            table,
            rows,
            head,
            means: Map::default(),
            live: Map::default(),
            births: 0,
            written: 0,
            losses: Losses::default(),
        }
    }

    /// Rows so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    fn row(&mut self, row: &[Value]) -> Result<(), Error> {
        self.written += 1;
        self.table.row(row)
    }

    fn birth(&mut self, block: Block) -> Result<(), Error> {
        match self.live.insert(block.address, block) {
            None => Ok(()),
            Some(lost) => {
                self.losses.add("frees that are missing from the trace");
                self.write(&lost, None, "lost")
            }
        }
    }

    /// A row for a block: how it died, if it did.
    fn write(
        &mut self,
        block: &Block,
        death: Option<(u64, ThreadId)>,
        ended: &'static str,
    ) -> Result<(), Error> {
        let number = Value::Number;
        let dead = |n: u64| Value::from(death.map(|_| n));
        // The birth of the first part is an allocation itself, that of a later one lies between two.
        let own = u64::from(block.part == 0);
        let row = [
            number(block.object),
            number(block.part),
            number(block.size),
            Value::from((block.align > 0).then(|| 1 << block.align)),
            Value::Word(names::of_alloc(block.api)),
            number(block.address),
            number(block.thread.into()),
            number(block.birth),
            number(block.birth_ns),
            dead(self.births),
            death.map(|(ns, _)| ns).into(),
            dead(self.births.saturating_sub(block.birth + own)),
            death.map(|(ns, _)| ns.saturating_sub(block.birth_ns)).into(),
            death.map(|(_, thread)| thread.into()).into(),
            Value::Word(ended),
            Value::from((block.stack > 0).then_some(block.stack.into())),
            Value::from((block.mean > 0).then_some(block.mean)),
        ];
        self.row(&row)
    }

    fn object(&mut self, event: &Event, ns: u64) -> Result<(), Error> {
        let thread = event.thread;
        let mean = self.means.get(&thread).copied().unwrap_or(self.head.sample);
        let (births, fresh) = (self.births, |object| Block {
            object,
            part: 0,
            size: 0,
            align: 0,
            api: AllocApi::Realloc,
            address: 0,
            thread,
            birth: 0,
            birth_ns: ns,
            stack: 0,
            mean,
        });
        match event.what {
            What::Alloc { api, size, address, align, stack } => {
                self.births += 1;
                self.birth(Block { api, size, address, align, stack, birth: births, ..fresh(births) })
            }
            What::Free { api: FreeApi::Null, .. } => Ok(()),
            What::Free { address, .. } => match self.live.remove(&address) {
                Some(block) => self.write(&block, Some((ns, thread)), "free"),
                None => {
                    self.losses.add("frees of unknown blocks");
                    Ok(())
                }
            },
            What::Realloc { old, size, new, stack, .. } => {
                let before = self.live.remove(&old);
                let (object, part) = before.map_or((births, 0), |block| (block.object, block.part + 1));
                match before {
                    Some(block) => self.write(&block, Some((ns, thread)), "realloc")?,
                    None => {
                        self.losses.add("reallocations of unknown blocks, which become allocations");
                        self.births += 1;
                    }
                }
                self.birth(Block { part, size, address: new, stack, birth: births, ..fresh(object) })
            }
            What::Pool { .. } => {
                self.losses.add("events of pools");
                Ok(())
            }
            What::Sampled { mean } if self.head.sample > 0 => {
                match Rate::one_in(mean).mean() {
                    0 => self.means.remove(&thread),
                    mean => self.means.insert(thread, mean),
                };
                Ok(())
            }
            _ => {
                self.losses.add("events that are about no block");
                Ok(())
            }
        }
    }

    fn event(&mut self, event: &Event, ns: u64) -> Result<(), Error> {
        let mut row: [Value; EVENTS.len()] = [const { Value::Null }; EVENTS.len()];
        row[0] = Value::Number(ns);
        row[1] = Value::Number(event.thread.into());
        describe(&event.what, &mut row);
        if let What::Realloc { took, .. } = event.what {
            row[8] = Value::Number(nanoseconds(&self.head, took));
        }
        self.row(&row)
    }
}

/// The columns of an event behind its time and thread.
fn describe(what: &What, row: &mut [Value; EVENTS.len()]) {
    let [_, _, op, api, size, address, align, old, _, stack, pool, text] = row;
    let number = Value::Number;
    let mut set = |word| *op = Value::Word(word);
    let some = |n: u32| Value::from((n > 0).then_some(u64::from(n)));
    let power = |log: u8| Value::from((log > 0).then(|| 1_u64 << log.min(63)));
    match what {
        What::Alloc { api: by, size: bytes, address: at, align: log, stack: from } => {
            set("alloc");
            *api = Value::Word(names::of_alloc(*by));
            (*size, *address, *align, *stack) = (number(*bytes), number(*at), power(*log), some(*from));
        }
        What::Free { api: by, address: at, touched } => {
            set("free");
            *api = Value::Word(names::of_free(*by));
            (*size, *address) = ((*touched).into(), Value::from((*at != 0).then_some(*at)));
        }
        What::Realloc { old: before, size: bytes, new, stack: from, .. } => {
            set("realloc");
            (*old, *size, *address, *stack) = (number(*before), number(*bytes), number(*new), some(*from));
        }
        What::Zeroed { address: at, size: bytes, .. } => {
            set("zeroed");
            (*address, *size) = (number(*at), number(*bytes));
        }
        What::Failed { api: by, size: bytes } => {
            set("failed");
            *api = Value::Word(names::of_alloc(*by));
            *size = number(*bytes);
        }
        What::ThreadBegin { .. } => set("thread_begin"),
        What::ThreadEnd => set("thread_end"),
        What::ThreadGone => set("thread_gone"),
        What::Sampled { mean } => {
            set("sampled");
            *size = Value::Number(*mean);
        }
        What::ThreadName(name) => {
            set("thread_name");
            *text = Value::Text(name.clone());
        }
        What::Fork { child } => {
            set("fork");
            *text = Value::Text(child.to_string());
        }
        What::ChildEnded { child, status } => {
            set("child_ended");
            (*size, *text) = (number((*status).into()), Value::Text(child.to_string()));
        }
        What::HiddenChildEnded(HiddenChild { status, began_ns, ended_ns }) => {
            set("hidden_child_ended");
            (*size, *text) = (number((*status).into()), Value::Text(format!("{began_ns} to {ended_ns} ns")));
        }
        What::Exec(program) => {
            set("exec");
            *text = Value::Text(program.clone());
        }
        What::Exit { status } => {
            set("exit");
            *text = Value::Text(status.to_string());
        }
        What::Memory { anonymous, .. } => {
            set("memory");
            *size = number(*anonymous);
        }
        What::Usage(usage) => {
            set("usage");
            *size = number(usage.peak);
        }
        What::Resident { address: of, bytes } => {
            set("resident");
            (*address, *size) = (number(*of), number(*bytes));
        }
        What::Written { address: of, bytes } => {
            set("written");
            (*address, *size) = (number(*of), number(*bytes));
        }
        What::Clock { .. } => set("clock"),
        What::ModuleLoaded { base, about } => {
            set("module_loaded");
            (*address, *text) = (number(*base), Value::Text(about.clone()));
        }
        What::ModuleUnloaded { base, about } => {
            set("module_unloaded");
            *address = number(*base);
            if !about.is_empty() {
                *text = Value::Text(about.clone());
            }
        }
        What::Lost { count, .. } => {
            set("lost");
            *size = number(*count);
        }
        What::Mark(mark) => {
            set("mark");
            *text = Value::Text(mark.clone());
        }
        What::Pool { pool: which, what } => {
            *pool = number((*which).into());
            match what {
                PoolWhat::Created { kind, name, .. } => {
                    set("pool_created");
                    *text = Value::Text(format!("{kind} {name}"));
                }
                PoolWhat::Destroyed => set("pool_destroyed"),
                PoolWhat::Pushed => set("pool_pushed"),
                PoolWhat::Popped => set("pool_popped"),
                PoolWhat::Sealed { .. } => set("pool_sealed"),
                PoolWhat::Released { .. } => set("pool_released"),
                PoolWhat::Alloc { size: bytes, address: at, align: log, stack: from } => {
                    set("pool_alloc");
                    (*size, *address, *align, *stack) =
                        (number(*bytes), number(*at), power(*log), some(*from));
                }
                PoolWhat::Free { address: at } => {
                    set("pool_free");
                    *address = number(*at);
                }
                PoolWhat::Resized { old: before, size: bytes, new, stack: from } => {
                    set("pool_resized");
                    (*old, *size, *address, *stack) =
                        (number(*before), number(*bytes), number(*new), some(*from));
                }
                PoolWhat::Emptied => set("pool_emptied"),
                PoolWhat::Held { held, .. } => {
                    set("pool_held");
                    *size = number(*held);
                }
            }
        }
    }
}

impl<T: Table> Sink for RowSink<T> {
    fn item(&mut self, item: &Item) -> Result<(), Error> {
        match item {
            Item::Event(event, ns) => match self.rows {
                Rows::Events => self.event(event, *ns),
                Rows::Objects => self.object(event, *ns),
            },
            Item::Stack(..) => {
                self.losses.add("frames of stacks (their numbers are kept)");
                Ok(())
            }
        }
    }

    fn finish(&mut self, _: &End) -> Result<(), Error> {
        let mut left: Vec<Block> = std::mem::take(&mut self.live).into_values().collect();
        left.sort_unstable_by_key(|block| (block.object, block.part));
        for block in &left {
            self.write(block, None, "live")?;
        }
        self.table.finish()
    }

    fn losses(&self) -> &Losses {
        &self.losses
    }
}
