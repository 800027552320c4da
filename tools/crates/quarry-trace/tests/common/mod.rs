// SPDX-License-Identifier: MIT
//! Random numbers, random events, and blocks made by hand.

#![allow(dead_code, reason = "each test binary uses its part")]

use quarry_trace::{
    AllocApi, Counts, Damage, End, Event, FreeApi, Head, HiddenChild, PoolWhat, StackNode, ThreadId, Trace,
    TraceWriter, Usage, What, WriteOptions,
};

/// splitmix64, from QUARRY_SEED or the clock.
pub struct Random(u64);

impl Random {
    pub fn new() -> Self {
        let chosen = std::env::var("QUARRY_SEED").ok().and_then(|seed| seed.parse().ok());
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let seed = chosen.unwrap_or(now.as_nanos() as u64);
        println!("QUARRY_SEED={seed}");
        Self(seed)
    }

    pub fn of(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// A number of any length.
    pub fn any(&mut self) -> u64 {
        let bits = self.below(65);
        if bits == 0 { 0 } else { self.next() >> (64 - bits) }
    }

    pub fn text(&mut self) -> String {
        let n = self.below(20);
        (0..n).map(|_| ['a', 'ß', '\n', '"', '€', ' ', '\0', '𝄞'][self.below(8) as usize]).collect()
    }
}

pub const ALLOC_APIS: [AllocApi; 8] = [
    AllocApi::Malloc,
    AllocApi::Calloc,
    AllocApi::Memalign,
    AllocApi::New,
    AllocApi::AlignedNew,
    AllocApi::Realloc,
    AllocApi::Pool,
    AllocApi::Other,
];

pub const FREE_APIS: [FreeApi; 5] =
    [FreeApi::Free, FreeApi::Delete, FreeApi::Sized, FreeApi::Null, FreeApi::Other];

/// An address as processes have them; now and then an odd one.
fn address(random: &mut Random) -> u64 {
    match random.below(10) {
        0 => random.next() >> 3,
        1 => 0x5555_0000_0000 + random.below(1 << 20),
        _ => 0x7f00_0000_0000 + random.below(1 << 24) * 16,
    }
}

fn stack(random: &mut Random) -> u32 {
    if random.below(2) == 0 { 0 } else { random.any() as u32 }
}

fn pool_what(random: &mut Random) -> PoolWhat {
    match random.below(11) {
        0 => PoolWhat::Created { parent: random.any() as u32, kind: random.text(), name: random.text() },
        1 => PoolWhat::Destroyed,
        2 => PoolWhat::Pushed,
        3 => PoolWhat::Popped,
        4 => PoolWhat::Sealed { cookie: random.any() },
        5 => PoolWhat::Released { cookie: random.any() },
        6 => PoolWhat::Alloc {
            size: random.any(),
            address: address(random),
            align: random.below(64) as u8,
            stack: stack(random),
        },
        7 => PoolWhat::Free { address: address(random) },
        8 => PoolWhat::Resized {
            old: address(random),
            size: random.any(),
            new: address(random),
            stack: stack(random),
        },
        9 => PoolWhat::Emptied,
        _ => PoolWhat::Held { held: random.any(), used: random.any() },
    }
}

/// Anything that can happen.
pub fn what(random: &mut Random) -> What {
    match random.below(46) {
        0..=12 => {
            let api = ALLOC_APIS[random.below(8) as usize];
            let aligned = matches!(api, AllocApi::Memalign | AllocApi::AlignedNew);
            let align = if aligned { random.below(64) as u8 } else { 0 };
            let size = if random.below(4) == 0 { random.any() } else { random.below(1000) };
            What::Alloc { api, size, address: address(random), align, stack: stack(random) }
        }
        13..=21 => {
            let api = FREE_APIS[random.below(5) as usize];
            let address = if api == FreeApi::Null { 0 } else { address(random) };
            let touched = (random.below(8) == 0).then(|| random.any());
            What::Free { api, address, touched }
        }
        22..=24 => {
            let old = address(random);
            let new = if random.below(2) == 0 { old } else { address(random) };
            What::Realloc { took: random.any() >> 1, old, size: random.any(), new, stack: stack(random) }
        }
        25 => What::Failed { api: ALLOC_APIS[random.below(8) as usize], size: random.any() },
        26 => What::ThreadBegin { tid: random.any() as u32, creator: random.any() as u32 },
        27 => What::ThreadName(random.text()),
        28 => What::Fork { child: random.any() as u32 },
        29 => What::Exec(random.text()),
        30 => What::Exit { status: random.any() as u32 },
        38 => What::Zeroed { address: address(random), size: random.any(), resident: random.any() },
        31 => What::Memory { anonymous: random.any(), file: random.any() },
        32 => What::Clock { ns: random.any() },
        33 => What::ModuleLoaded { base: random.any(), about: random.text() },
        34 => What::ModuleUnloaded { base: random.any(), about: random.text() },
        35 => What::Lost { count: random.any(), reason: random.below(256) as u8 },
        36 => What::Mark(random.text()),
        37 => What::ThreadGone,
        40 => What::Usage(Box::new(Usage::of_numbers(std::array::from_fn(|_| random.any())))),
        42 => What::ChildEnded { child: random.any() as u32, status: random.any() as u32 },
        43 => What::Sampled { mean: random.any() },
        44 => What::HiddenChildEnded(HiddenChild {
            status: random.any() as u32,
            began_ns: random.any(),
            ended_ns: random.any(),
        }),
        41 => What::Resident { address: random.any(), bytes: random.any() },
        45 => What::Written { address: random.any(), bytes: random.any() },
        _ => What::Pool { pool: random.any() as u32, what: pool_what(random) },
    }
}

/// A process with random events: what each thread does, and the stacks they define.
pub struct History {
    pub events: Vec<Event>,
    pub stacks: Vec<(ThreadId, StackNode)>,
}

impl History {
    pub fn random(random: &mut Random, threads: u32, events: usize) -> Self {
        let mut times = vec![0u64; threads as usize];
        let mut history = Self { events: Vec::new(), stacks: Vec::new() };
        for _ in 0..events {
            let thread = random.below(threads.into()) as usize;
            // 2^40 ticks are twenty minutes.
            let dt = if random.below(50) == 0 { random.next() >> 24 } else { random.below(300) };
            times[thread] += dt;
            let event = Event { time: times[thread], thread: thread as u32 + 1, what: what(random) };
            history.events.push(event);
            if random.below(10) == 0 {
                let id = history.stacks.len() as u32 + 1 + if random.below(100) == 0 { 1 << 30 } else { 0 };
                let pc = random.any();
                let parent = random.any() as u32;
                let node = StackNode { id, parent, pc, is_return: random.below(2) == 0 };
                history.stacks.push((thread as u32 + 1, node));
            }
        }
        history
    }

    pub fn write(&self, packed: bool) -> Vec<u8> {
        let head = Head { process: 4711, ..Head::default() };
        let mut writer = TraceWriter::create(Vec::new(), &head, WriteOptions { packed }).unwrap();
        let mut stacks = self.stacks.iter();
        for (index, event) in self.events.iter().enumerate() {
            writer.event(event).unwrap();
            if index % 10 == 0
                && let Some((thread, node)) = stacks.next()
            {
                writer.stack(*thread, node).unwrap();
            }
        }
        for (thread, node) in stacks {
            writer.stack(*thread, node).unwrap();
        }
        let events = self.events.len() as u64;
        writer.finish(&End { reason: "exit".into(), events, ..End::default() }).unwrap()
    }

    pub fn of(&self, thread: ThreadId) -> Vec<Event> {
        self.events.iter().filter(|event| event.thread == thread).cloned().collect()
    }
}

/// What the events add up to.
fn counts_of(events: &[Event]) -> Counts {
    let mut counts = Counts { events: events.len() as u64, ..Counts::default() };
    for event in events {
        match event.what {
            What::Alloc { .. } | What::Realloc { .. } | What::Failed { .. } => counts.allocations += 1,
            What::Lost { count, .. } => counts.lost = counts.lost.saturating_add(count),
            What::Fork { .. } => counts.forks += 1,
            What::ChildEnded { child, status } => counts.children.push((child, status)),
            What::HiddenChildEnded(child) => counts.hidden.push(child),
            _ => {}
        }
    }
    counts.children.sort_unstable();
    counts.hidden.sort_unstable();
    counts
}

/// Read all there is to read, in every way there is; the events in their order, and all damage.
pub fn read_all(trace: &Trace) -> (Vec<Event>, Damage) {
    let mut merged = trace.events().keep_stacks();
    let mut events = Vec::new();
    for event in merged.by_ref() {
        match event {
            Ok(event) => events.push(event),
            Err(error) => panic!("{error}"),
        }
    }
    let mut damage = trace.damage().clone();
    damage.merge(merged.damage());
    let mut alone = 0;
    let mut counted = Counts::default();
    for info in trace.threads() {
        let mut one_by_one = trace.thread_events(info.thread);
        alone += one_by_one.by_ref().map(|event| assert!(event.is_ok())).count();
        let mut counting = trace.thread_events(info.thread);
        while counting.count_on(&mut counted).unwrap() {}
        assert_eq!(counting.damage(), one_by_one.damage(), "counting finds what decoding finds");
    }
    assert_eq!(alone, events.len(), "merging neither adds nor drops");
    counted.children.sort_unstable();
    counted.hidden.sort_unstable();
    // A realloc that ended its block is read as such a free.
    let ended = |event: &&Event| matches!(event.what, What::Free { api: FreeApi::Other, .. });
    let most = events.iter().filter(ended).count() as u64;
    let wanted = counts_of(&events);
    assert!((wanted.allocations..=wanted.allocations + most).contains(&counted.allocations));
    counted.allocations = wanted.allocations;
    assert_eq!(counted, wanted, "counting gives what decoding gives");
    trace.modules();
    trace.stacks().unwrap();
    (events, damage)
}

// ---- blocks made by hand, from the page that describes the format ---------------------------------

pub const SEALED: u8 = 1;
pub const PACKED: u8 = 2;

#[derive(Clone)]
pub struct Block {
    pub kind: u8,
    pub flags: u8,
    pub version: u16,
    pub thread: u32,
    pub sequence: u32,
    pub events: u32,
    pub time: u64,
    pub address: u64,
    pub payload: Vec<u8>,
    pub raw: Option<u32>,
    pub span: Option<u32>,
    pub used: Option<u32>,
}

impl Block {
    pub fn events(thread: u32, sequence: u32, payload: &[u8]) -> Self {
        Self {
            kind: 2,
            flags: SEALED,
            version: 1,
            thread,
            sequence,
            events: 0,
            time: 0,
            address: 0,
            payload: payload.to_vec(),
            raw: None,
            span: None,
            used: None,
        }
    }

    pub fn json(kind: u8, text: &str) -> Self {
        Self { kind, ..Self::events(0, 0, text.as_bytes()) }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut sum = 0xcbf2_9ce4_8422_2325u64;
        for chunk in self.payload.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            sum = (sum ^ u64::from_le_bytes(word)).wrapping_mul(0x100_0000_01b3);
            sum ^= sum >> 32;
        }
        let length = self.payload.len() as u32;
        let span = self.span.unwrap_or((64 + length).next_multiple_of(8));
        let mut bytes = b"QTRB".to_vec();
        bytes.extend([self.kind, self.flags]);
        bytes.extend(self.version.to_le_bytes());
        for word in [
            span,
            self.used.unwrap_or(length),
            self.raw.unwrap_or(length),
            self.thread,
            self.sequence,
            self.events,
        ] {
            bytes.extend(word.to_le_bytes());
        }
        for word in [self.time, self.address, sum] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend([0; 8]);
        bytes.extend(&self.payload);
        bytes.resize(bytes.len().max(span as usize), 0);
        bytes
    }
}

pub fn head() -> Vec<u8> {
    Block::json(1, r#"{"format":"quarry-trace/1"}"#).bytes()
}

/// The head of a recorder's file: a grain of its own.
pub fn recorder_head() -> Vec<u8> {
    let block = Block::json(1, r#"{"format":"quarry-trace/1","grain":4096}"#);
    Block { span: Some(4096), ..block }.bytes()
}
