// SPDX-License-Identifier: MIT
//! Traces as lines of JSON, one object each, without loss. The schema is in `docs/convert.md`.

use std::io::Write;

use quarry_trace::{AllocApi, End, Event, FreeApi, Head, HiddenChild, PoolWhat, StackNode, Usage, What};
use serde::{Deserialize, Deserializer, de};
use serde_json::json;

use super::input::{Input, Lines, shown};
use super::{Error, Item, Losses, Sink, Source, nanoseconds, synthetic};
use crate::hash::Map;
use crate::names;

/// The name of the schema, in the first line.
pub const SCHEMA: &str = "quarry-trace-lines/1";

/// A number that stands for an address: "0x1f" or 31.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Hex(u64);

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Hex;

            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("an address: \"0x...\" or a number")
            }

            fn visit_u64<E: de::Error>(self, n: u64) -> Result<Hex, E> {
                Ok(Hex(n))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Hex, E> {
                let digits = text.strip_prefix("0x").filter(|digits| !digits.starts_with('+'));
                let value = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
                value.map(Hex).ok_or_else(|| E::custom(format_args!("'{text}' is no address: say \"0x...\"")))
            }
        }
        from.deserialize_any(Visitor)
    }
}

/// All that a line may have. Unknown keys are ignored.
#[derive(Debug, Deserialize)]
struct Line {
    schema: Option<String>,
    head: Option<Head>,
    end: Option<End>,
    tool: Option<serde_json::Value>,
    t: Option<u64>,
    thread: Option<u32>,
    op: Option<String>,
    api: Option<String>,
    size: Option<u64>,
    address: Option<Hex>,
    align: Option<u8>,
    stack: Option<u32>,
    touched: Option<u64>,
    took: Option<u64>,
    old: Option<Hex>,
    tid: Option<u32>,
    creator: Option<u32>,
    text: Option<String>,
    child: Option<u32>,
    status: Option<u32>,
    anonymous: Option<u64>,
    file: Option<u64>,
    shared: Option<u64>,
    peak: Option<u64>,
    own_anonymous: Option<u64>,
    own_file: Option<u64>,
    cpu_ns: Option<u64>,
    traits: Option<u64>,
    bytes: Option<u64>,
    ns: Option<u64>,
    began_ns: Option<u64>,
    ended_ns: Option<u64>,
    pool: Option<u32>,
    parent: Option<u32>,
    kind: Option<String>,
    name: Option<String>,
    cookie: Option<Hex>,
    held: Option<u64>,
    used: Option<u64>,
    count: Option<u64>,
    reason: Option<u8>,
    id: Option<u32>,
    pc: Option<Hex>,
    exact: Option<bool>,
}

fn need<T>(value: Option<T>, key: &str) -> Result<T, String> {
    value.ok_or_else(|| format!("has no \"{key}\""))
}

impl Line {
    fn alloc_api(&self) -> Result<AllocApi, String> {
        let word = self.api.as_deref().unwrap_or("malloc");
        names::alloc(word).ok_or_else(|| format!("'{word}' is no function that allocates"))
    }

    fn free_api(&self) -> Result<FreeApi, String> {
        let word = self.api.as_deref().unwrap_or("free");
        names::free(word).ok_or_else(|| format!("'{word}' is no function that frees"))
    }

    fn align(&self, api: Option<AllocApi>) -> Result<u8, String> {
        let align = self.align.unwrap_or(0);
        if align >= 64 {
            return Err("\"align\" is a logarithm and below 64".into());
        }
        if align > 0 && !api.is_none_or(names::has_align) {
            return Err("only memalign and aligned_new have an \"align\"".into());
        }
        Ok(align)
    }

    fn address(&self, key: &str) -> Result<u64, String> {
        need(if key == "old" { self.old } else { self.address }, key).map(|Hex(address)| address)
    }

    fn text(&self) -> Result<String, String> {
        need(self.text.clone(), "text")
    }

    fn node(&self) -> Result<StackNode, String> {
        let id = need(self.id, "id")?;
        if id == 0 {
            return Err("0 is the id of the root, which has no line".into());
        }
        Ok(StackNode {
            id,
            parent: self.parent.unwrap_or(0),
            pc: need(self.pc, "pc")?.0,
            is_return: !self.exact.unwrap_or(false),
        })
    }

    fn what(&self, op: &str) -> Result<What, String> {
        let stack = self.stack.unwrap_or(0);
        if let Some(event) = op.strip_prefix("pool_") {
            return Ok(What::Pool { pool: need(self.pool, "pool")?, what: self.pool_what(event)? });
        }
        Ok(match op {
            "alloc" => {
                let api = self.alloc_api()?;
                let (size, address) = (need(self.size, "size")?, self.address("address")?);
                What::Alloc { api, size, address, align: self.align(Some(api))?, stack }
            }
            "free" => match self.free_api()? {
                FreeApi::Null => What::Free { api: FreeApi::Null, address: 0, touched: None },
                api => What::Free { api, address: self.address("address")?, touched: self.touched },
            },
            "realloc" => {
                let (old, new) = (self.address("old")?, self.address("address")?);
                What::realloc(self.took.unwrap_or(0), old, need(self.size, "size")?, new, stack)
            }
            "zeroed" => What::Zeroed {
                address: self.address("address")?,
                size: need(self.size, "size")?,
                resident: need(self.touched, "touched")?,
            },
            "failed" => What::Failed { api: self.alloc_api()?, size: need(self.size, "size")? },
            "thread_begin" => {
                What::ThreadBegin { tid: self.tid.unwrap_or(0), creator: self.creator.unwrap_or(0) }
            }
            "thread_end" => What::ThreadEnd,
            "thread_gone" => What::ThreadGone,
            "thread_name" => What::ThreadName(self.text()?),
            "sampled" => What::Sampled { mean: need(self.bytes, "bytes")? },
            "fork" => What::Fork { child: need(self.child, "child")? },
            "child_ended" => {
                What::ChildEnded { child: need(self.child, "child")?, status: need(self.status, "status")? }
            }
            "hidden_child_ended" => What::HiddenChildEnded(HiddenChild {
                status: need(self.status, "status")?,
                began_ns: need(self.began_ns, "began_ns")?,
                ended_ns: need(self.ended_ns, "ended_ns")?,
            }),
            "exec" => What::Exec(self.text()?),
            "exit" => What::Exit { status: self.status.unwrap_or(0) },
            "memory" => {
                What::Memory { anonymous: need(self.anonymous, "anonymous")?, file: self.file.unwrap_or(0) }
            }
            "usage" => What::Usage(Box::new(Usage {
                anonymous: need(self.anonymous, "anonymous")?,
                file: self.file.unwrap_or(0),
                shared: self.shared.unwrap_or(0),
                peak: need(self.peak, "peak")?,
                own_anonymous: self.own_anonymous.unwrap_or(0),
                own_file: self.own_file.unwrap_or(0),
                cpu_ns: self.cpu_ns.unwrap_or(0),
                traits: self.traits.unwrap_or(0),
            })),
            "resident" => {
                What::Resident { address: self.address("address")?, bytes: need(self.bytes, "bytes")? }
            }
            "written" => {
                What::Written { address: self.address("address")?, bytes: need(self.bytes, "bytes")? }
            }
            "clock" => What::Clock { ns: need(self.ns, "ns")? },
            "module_loaded" => What::ModuleLoaded { base: self.address("address")?, about: self.text()? },
            "module_unloaded" => What::ModuleUnloaded {
                base: self.address("address")?,
                about: self.text.clone().unwrap_or_default(),
            },
            "lost" => What::Lost { count: need(self.count, "count")?, reason: self.reason.unwrap_or(0) },
            "mark" => What::Mark(self.text()?),
            _ => return Err(format!("no event is called '{}'", shown(op.as_bytes()))),
        })
    }

    fn pool_what(&self, event: &str) -> Result<PoolWhat, String> {
        let cookie = || need(self.cookie, "cookie").map(|Hex(cookie)| cookie);
        let stack = self.stack.unwrap_or(0);
        Ok(match event {
            "created" => PoolWhat::Created {
                parent: self.parent.unwrap_or(0),
                kind: need(self.kind.clone(), "kind")?,
                name: self.name.clone().unwrap_or_default(),
            },
            "destroyed" => PoolWhat::Destroyed,
            "pushed" => PoolWhat::Pushed,
            "popped" => PoolWhat::Popped,
            "sealed" => PoolWhat::Sealed { cookie: cookie()? },
            "released" => PoolWhat::Released { cookie: cookie()? },
            "alloc" => PoolWhat::Alloc {
                size: need(self.size, "size")?,
                address: self.address("address")?,
                align: self.align(None)?,
                stack,
            },
            "free" => PoolWhat::Free { address: self.address("address")? },
            "resized" => PoolWhat::Resized {
                old: self.address("old")?,
                size: need(self.size, "size")?,
                new: self.address("address")?,
                stack,
            },
            "emptied" => PoolWhat::Emptied,
            "held" => PoolWhat::Held { held: need(self.held, "held")?, used: need(self.used, "used")? },
            _ => return Err(format!("no event is called 'pool_{}'", shown(event.as_bytes()))),
        })
    }
}

/// Reads lines of JSON.
pub struct JsonSource {
    head: Head,
    lines: Lines,
    /// The first line, where it was no head.
    first: Option<Item>,
    end: Option<End>,
    time: u64,
    /// Of each thread: the time of its last event, and when all of its events are over.
    threads: Map<u32, (u64, u64)>,
    events: u64,
    /// Stacks that are defined.
    stacks: Map<u32, ()>,
    /// What tools had put into the trace.
    texts: Vec<Vec<u8>>,
    done: bool,
}

/// What a line turned out to be.
enum Read {
    Head(Head),
    End(End),
    Item(Item),
    Nothing,
}

impl JsonSource {
    /// Read the head, or what stands in its place.
    pub fn new(input: Input) -> Result<Self, Error> {
        let mut source = Self {
            head: synthetic("quarry convert, from JSON lines"),
            lines: Lines::new(input),
            first: None,
            end: None,
            time: 0,
            threads: Map::default(),
            events: 0,
            stacks: Map::default(),
            texts: Vec::new(),
            done: false,
        };
        match source.read()? {
            Some(Read::Head(head)) => {
                source.time = head.start_ticks;
                source.head = head;
            }
            Some(Read::Item(item)) => source.first = Some(item),
            Some(Read::End(end)) => source.end = Some(end),
            Some(Read::Nothing) | None => source.done = true,
        }
        Ok(source)
    }

    /// The next line that says something.
    fn read(&mut self) -> Result<Option<Read>, Error> {
        while self.lines.advance()? {
            let text = self.lines.line();
            if text.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let parsed = serde_json::from_slice::<Line>(text).map_err(|error| error.to_string());
            match parsed.and_then(|line| self.understand(line)) {
                Ok(Read::Nothing) => {}
                Ok(read) => return Ok(Some(read)),
                Err(what) => self.lines.refuse(what)?,
            }
        }
        Ok(None)
    }

    fn understand(&mut self, mut line: Line) -> Result<Read, String> {
        if let Some(schema) = line.schema.as_deref().filter(|schema| *schema != SCHEMA) {
            return Err(format!("the schema is '{}', and not {SCHEMA}", shown(schema.as_bytes())));
        }
        if let Some(head) = line.head.take() {
            if self.events == 0 && self.stacks.is_empty() && self.end.is_none() {
                return Ok(Read::Head(head));
            }
            self.lines.end_before_another();
            return Ok(Read::Nothing);
        }
        if self.end.is_some() {
            return Err("a line behind the end".into());
        }
        if let Some(end) = line.end.take() {
            return Ok(Read::End(end));
        }
        if let Some(text) = line.tool.take() {
            self.texts.push(text.to_string().into_bytes());
            return Ok(Read::Nothing);
        }
        let Some(op) = line.op.take() else {
            // A line that only names the schema.
            return if line.schema.is_some() { Ok(Read::Nothing) } else { Err("has no \"op\"".into()) };
        };
        let thread = line.thread.unwrap_or(1);
        if op == "stack" {
            let node = line.node()?;
            if node.parent != 0 && !self.stacks.contains_key(&node.parent) {
                return Err(format!("the parent {} of stack {} is not defined before", node.parent, node.id));
            }
            if self.stacks.insert(node.id, ()).is_some() {
                return Err(format!("stack {} is defined again", node.id));
            }
            return Ok(Read::Item(Item::Stack(thread, node)));
        }
        let what = line.what(&op)?;
        if let Some(stack) = line.stack.filter(|stack| *stack != 0 && !self.stacks.contains_key(stack)) {
            return Err(format!("stack {stack} is not defined before"));
        }
        let time = line.t.unwrap_or(self.time.saturating_add(1));
        // A realloc that moves a block stands where it is over, with the time at which it began. So do the events of
        // its thread that tell more of it.
        let (last, done) = self.threads.get(&thread).copied().unwrap_or_default();
        let over = match what {
            What::Realloc { took, old, new, .. } if old != new => time.saturating_add(took).max(done),
            _ => time.max(done),
        };
        if time < last || over < self.time {
            return Err(format!(
                "the time {time} is before that of the last event, {}; sort by \"t\", a realloc by \"t\" + \"took\"",
                self.time.max(last)
            ));
        }
        self.threads.insert(thread, (time, over));
        self.time = self.time.max(time);
        self.events += 1;
        Ok(Read::Item(Item::Event(Event { time, thread, what }, nanoseconds(&self.head, time))))
    }
}

impl Source for JsonSource {
    fn head(&self) -> &Head {
        &self.head
    }

    fn next_item(&mut self) -> Option<Result<Item, Error>> {
        if let Some(item) = self.first.take() {
            return Some(Ok(item));
        }
        while !self.done {
            match self.read() {
                Ok(Some(Read::Item(item))) => return Some(Ok(item)),
                Ok(Some(Read::End(end))) => self.end = Some(end),
                Ok(Some(Read::Head(_) | Read::Nothing)) => {}
                Ok(None) => self.done = true,
                Err(error) => {
                    self.done = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }

    fn end(&self) -> End {
        let unknown = || End {
            reason: if self.lines.is_cut() { "cut off".into() } else { String::new() },
            end_ticks: self.time,
            events: self.events,
            ..End::default()
        };
        self.end.clone().unwrap_or_else(unknown)
    }

    fn done(&self) -> u64 {
        self.lines.input().done()
    }

    fn length(&self) -> u64 {
        self.lines.input().length()
    }

    fn remarks(&self) -> Vec<String> {
        self.lines.remarks()
    }

    fn texts(&self) -> Vec<Vec<u8>> {
        self.texts.clone()
    }

    fn damaged(&self) -> bool {
        self.lines.is_cut()
    }
}

/// Writes lines of JSON.
pub struct JsonSink<W: Write> {
    output: W,
    losses: Losses,
}

impl<W: Write> JsonSink<W> {
    /// Write the head.
    pub fn new(mut output: W, head: &Head) -> Result<Self, Error> {
        writeln!(output, "{}", json!({"schema": SCHEMA, "head": head})).map_err(Error::Write)?;
        Ok(Self { output, losses: Losses::default() })
    }
}

/// A text as JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn write_event(to: &mut impl Write, event: &Event) -> std::io::Result<()> {
    write!(to, "{{\"t\":{},\"thread\":{},\"op\":", event.time, event.thread)?;
    match &event.what {
        What::Alloc { api, size, address, align, stack } => {
            let api = names::of_alloc(*api);
            write!(to, "\"alloc\",\"api\":\"{api}\",\"size\":{size},\"address\":\"{address:#x}\"")?;
            write_align(to, *align)?;
            write_stack(to, *stack)
        }
        What::Free { api, address, touched } => {
            write!(to, "\"free\",\"api\":\"{}\"", names::of_free(*api))?;
            if *api != FreeApi::Null {
                write!(to, ",\"address\":\"{address:#x}\"")?;
            }
            touched.map_or(Ok(()), |touched| write!(to, ",\"touched\":{touched}"))
        }
        What::Realloc { took, old, size, new, stack } => {
            write!(
                to,
                "\"realloc\",\"took\":{took},\"old\":\"{old:#x}\",\"size\":{size},\"address\":\"{new:#x}\""
            )?;
            write_stack(to, *stack)
        }
        What::Zeroed { address, size, resident } => {
            write!(to, "\"zeroed\",\"address\":\"{address:#x}\",\"size\":{size},\"touched\":{resident}")
        }
        What::Failed { api, size } => {
            write!(to, "\"failed\",\"api\":\"{}\",\"size\":{size}", names::of_alloc(*api))
        }
        What::ThreadBegin { tid, creator } => {
            write!(to, "\"thread_begin\",\"tid\":{tid},\"creator\":{creator}")
        }
        What::ThreadEnd => write!(to, "\"thread_end\""),
        What::ThreadGone => write!(to, "\"thread_gone\""),
        What::Sampled { mean } => write!(to, "\"sampled\",\"bytes\":{mean}"),
        What::ThreadName(text) => write!(to, "\"thread_name\",\"text\":{}", quoted(text)),
        What::Fork { child } => write!(to, "\"fork\",\"child\":{child}"),
        What::ChildEnded { child, status } => {
            write!(to, "\"child_ended\",\"child\":{child},\"status\":{status}")
        }
        What::HiddenChildEnded(HiddenChild { status, began_ns, ended_ns }) => {
            write!(to, "\"hidden_child_ended\",\"status\":{status}")?;
            write!(to, ",\"began_ns\":{began_ns},\"ended_ns\":{ended_ns}")
        }
        What::Exec(text) => write!(to, "\"exec\",\"text\":{}", quoted(text)),
        What::Exit { status } => write!(to, "\"exit\",\"status\":{status}"),
        What::Memory { anonymous, file } => {
            write!(to, "\"memory\",\"anonymous\":{anonymous},\"file\":{file}")
        }
        What::Usage(usage) => {
            let Usage { anonymous, file, shared, peak, own_anonymous, own_file, cpu_ns, traits } = **usage;
            write!(
                to,
                "\"usage\",\"anonymous\":{anonymous},\"file\":{file},\"shared\":{shared},\"peak\":{peak},\
                 \"own_anonymous\":{own_anonymous},\"own_file\":{own_file},\"cpu_ns\":{cpu_ns},\"traits\":{traits}"
            )
        }
        What::Resident { address, bytes } => {
            write!(to, "\"resident\",\"address\":\"{address:#x}\",\"bytes\":{bytes}")
        }
        What::Written { address, bytes } => {
            write!(to, "\"written\",\"address\":\"{address:#x}\",\"bytes\":{bytes}")
        }
        What::Clock { ns } => write!(to, "\"clock\",\"ns\":{ns}"),
        What::ModuleLoaded { base, about } => {
            write!(to, "\"module_loaded\",\"address\":\"{base:#x}\",\"text\":{}", quoted(about))
        }
        What::ModuleUnloaded { base, about } => {
            write!(to, "\"module_unloaded\",\"address\":\"{base:#x}\"")?;
            if about.is_empty() { Ok(()) } else { write!(to, ",\"text\":{}", quoted(about)) }
        }
        What::Pool { pool, what } => write_pool(to, *pool, what),
        What::Lost { count, reason } => write!(to, "\"lost\",\"count\":{count},\"reason\":{reason}"),
        What::Mark(text) => write!(to, "\"mark\",\"text\":{}", quoted(text)),
    }?;
    to.write_all(b"}\n")
}

fn write_align(to: &mut impl Write, align: u8) -> std::io::Result<()> {
    if align > 0 { write!(to, ",\"align\":{align}") } else { Ok(()) }
}

fn write_stack(to: &mut impl Write, stack: u32) -> std::io::Result<()> {
    if stack > 0 { write!(to, ",\"stack\":{stack}") } else { Ok(()) }
}

fn write_pool(to: &mut impl Write, pool: u32, what: &PoolWhat) -> std::io::Result<()> {
    let word = match what {
        PoolWhat::Created { .. } => "created",
        PoolWhat::Destroyed => "destroyed",
        PoolWhat::Pushed => "pushed",
        PoolWhat::Popped => "popped",
        PoolWhat::Sealed { .. } => "sealed",
        PoolWhat::Released { .. } => "released",
        PoolWhat::Alloc { .. } => "alloc",
        PoolWhat::Free { .. } => "free",
        PoolWhat::Resized { .. } => "resized",
        PoolWhat::Emptied => "emptied",
        PoolWhat::Held { .. } => "held",
    };
    write!(to, "\"pool_{word}\",\"pool\":{pool}")?;
    match what {
        PoolWhat::Created { parent, kind, name } => {
            write!(to, ",\"parent\":{parent},\"kind\":{},\"name\":{}", quoted(kind), quoted(name))
        }
        PoolWhat::Sealed { cookie } | PoolWhat::Released { cookie } => {
            write!(to, ",\"cookie\":\"{cookie:#x}\"")
        }
        PoolWhat::Alloc { size, address, align, stack } => {
            write!(to, ",\"size\":{size},\"address\":\"{address:#x}\"")?;
            write_align(to, *align)?;
            write_stack(to, *stack)
        }
        PoolWhat::Free { address } => write!(to, ",\"address\":\"{address:#x}\""),
        PoolWhat::Resized { old, size, new, stack } => {
            write!(to, ",\"old\":\"{old:#x}\",\"size\":{size},\"address\":\"{new:#x}\"")?;
            write_stack(to, *stack)
        }
        PoolWhat::Held { held, used } => write!(to, ",\"held\":{held},\"used\":{used}"),
        PoolWhat::Destroyed | PoolWhat::Pushed | PoolWhat::Popped | PoolWhat::Emptied => Ok(()),
    }
}

impl<W: Write> Sink for JsonSink<W> {
    fn item(&mut self, item: &Item) -> Result<(), Error> {
        match item {
            Item::Event(event, _) => write_event(&mut self.output, event),
            Item::Stack(thread, StackNode { id, parent, pc, is_return }) => {
                let exact = if *is_return { "" } else { ",\"exact\":true" };
                writeln!(
                    self.output,
                    "{{\"op\":\"stack\",\"thread\":{thread},\"id\":{id},\"parent\":{parent},\"pc\":\"{pc:#x}\"{exact}}}"
                )
            }
        }
        .map_err(Error::Write)
    }

    fn text(&mut self, text: &[u8]) -> Result<(), Error> {
        // Read again, so that it is one line whoever wrote it.
        match serde_json::from_slice::<serde_json::Value>(text) {
            Ok(text) => writeln!(self.output, "{}", json!({"tool": text})).map_err(Error::Write),
            Err(_) => {
                self.losses.add("texts of tools that are no JSON");
                Ok(())
            }
        }
    }

    fn finish(&mut self, end: &End) -> Result<(), Error> {
        writeln!(self.output, "{}", json!({"end": end}))
            .and_then(|()| self.output.flush())
            .map_err(Error::Write)
    }

    fn losses(&self) -> &Losses {
        &self.losses
    }
}
