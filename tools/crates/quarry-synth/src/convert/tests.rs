// SPDX-License-Identifier: MIT
//! Tests of all formats: there and back again, and input that nobody should send.

mod hostile;
mod tables;

use std::collections::BTreeMap;
use std::io::Cursor;

use quarry_measure::rng::Rng;
use quarry_trace::{
    AllocApi, End, Event, FreeApi, Head, HiddenChild, PoolWhat, StackNode, ThreadId, Trace, Usage, What,
    WriteOptions,
};

use super::heaptrack::{HeaptrackSink, HeaptrackSource};
use super::input::Input;
use super::json_lines::{JsonSink, JsonSource};
use super::mtrace::{MtraceSink, MtraceSource};
use super::qtr::{QtrSink, QtrSource};
use super::simulation::{MsSink, MsSource};
use super::*;
use crate::ms::Options;
use crate::space::Space;

fn input(bytes: &[u8]) -> Input {
    Input::new(Cursor::new(bytes.to_vec()), bytes.len() as u64).unwrap()
}

/// All items of a source.
fn all(source: &mut dyn Source) -> Result<Vec<Item>, Error> {
    std::iter::from_fn(|| source.next_item()).collect()
}

/// Hand items to a sink.
fn give(sink: &mut dyn Sink, items: &[Item]) {
    items.iter().for_each(|item| sink.item(item).unwrap());
    sink.finish(&End::default()).unwrap();
}

fn head() -> Head {
    Head {
        program: "/bin/a program".into(),
        ticks_per_second: 1_000_000_000,
        stacks: "fp".into(),
        ..Head::default()
    }
}

/// What a scene may hold.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// One thread that calls malloc, realloc and free, with a stack of one frame now and then.
    Plain,
    /// Everything.
    Rich,
}

/// A random trace without anything impossible; stacks stand right before the event that first names them.
fn scene(seed: u64, length: usize, kind: Kind) -> Vec<Item> {
    let mut scene = Scene {
        rng: Rng::new(seed),
        kind,
        items: Vec::new(),
        time: 0,
        stacks: 0,
        live: Vec::new(),
        space: Space::new(),
    };
    scene.event(1, What::ThreadBegin { tid: 1, creator: 0 });
    while scene.items.len() < length {
        scene.step();
    }
    scene.items
}

struct Scene {
    rng: Rng,
    kind: Kind,
    items: Vec<Item>,
    time: u64,
    stacks: u32,
    live: Vec<(u64, u64, u8)>,
    space: Space,
}

impl Scene {
    fn event(&mut self, thread: ThreadId, what: What) {
        self.time += 1 + self.rng.below(1000) as u64;
        self.items.push(Item::Event(Event { time: self.time, thread, what }, self.time));
    }

    fn stack(&mut self, thread: ThreadId) -> u32 {
        match self.rng.below(4) {
            0 => 0,
            1 if self.stacks > 0 => 1 + self.rng.below(self.stacks as usize) as u32,
            _ => {
                let deep = if self.kind == Kind::Plain { 1 } else { 1 + self.rng.below(4) };
                let known = self.stacks as usize;
                let mut parent =
                    if self.kind == Kind::Plain || known == 0 { 0 } else { self.rng.below(known + 1) as u32 };
                for _ in 0..deep {
                    self.stacks += 1;
                    let pc = 0x40_0000 + self.rng.below(1 << 20) as u64;
                    let is_return = self.kind == Kind::Plain || self.rng.below(2) == 0;
                    self.items
                        .push(Item::Stack(thread, StackNode { id: self.stacks, parent, pc, is_return }));
                    parent = self.stacks;
                }
                parent
            }
        }
    }

    fn size(&mut self) -> u64 {
        (self.rng.bits() >> 30) >> self.rng.below(34)
    }

    fn step(&mut self) {
        let rich = self.kind == Kind::Rich;
        let thread = if rich { 1 + self.rng.below(4) as u32 } else { 1 };
        match self.rng.below(10) {
            0..5 => {
                let (size, stack) = (self.size(), self.stack(thread));
                let (api, align) = match self.rng.below(6) {
                    0 if rich => (AllocApi::Calloc, 0),
                    1 if rich => (AllocApi::Memalign, 5 + self.rng.below(8) as u8),
                    2 if rich => (AllocApi::AlignedNew, 6),
                    3 if rich => (AllocApi::New, 0),
                    _ => (AllocApi::Malloc, 0),
                };
                let address = self.space.take(size, align).unwrap();
                self.live.push((address, size, align));
                self.event(thread, What::Alloc { api, size, address, align, stack });
            }
            5..8 if !self.live.is_empty() => {
                let index = self.rng.below(self.live.len());
                let (address, size, align) = self.live.swap_remove(index);
                self.space.give(address, size, align);
                let touched = if rich && self.rng.below(3) == 0 { Some(4096) } else { None };
                self.event(thread, What::Free { api: FreeApi::Free, address, touched });
            }
            8 if !self.live.is_empty() => {
                let index = self.rng.below(self.live.len());
                let (old, before, align) = self.live[index];
                let (size, stack) = (self.size(), self.stack(thread));
                let new = self.space.resize(old, before, size, align).unwrap();
                self.live[index] = (new, size, align);
                self.event(thread, What::Realloc { took: 0, old, size, new, stack });
            }
            9 if !rich => self.event(1, What::Free { api: FreeApi::Null, address: 0, touched: None }),
            9 => self.rare(thread),
            _ => {}
        }
    }

    fn rare(&mut self, thread: ThreadId) {
        let text = || String::from("a \"quoted\" näme, with\nlines \\ and \t tabs");
        let stack = self.stack(thread);
        let what = match self.rng.below(31) {
            0 => What::Failed { api: AllocApi::Realloc, size: u64::MAX },
            1 => What::ThreadName(text()),
            2 => What::Fork { child: 7 },
            3 => What::Exec(text()),
            4 => What::Exit { status: 3 },
            5 => What::Memory { anonymous: 1 << 33, file: 5 },
            6 => What::Clock { ns: self.time },
            7 => What::ModuleLoaded {
                base: 0x40_0000,
                about: r#"{"path":"/bin/a","segments":[[0,4096,5]]}"#.into(),
            },
            8 => What::ModuleUnloaded { base: 0x40_0000, about: r#"{"nodes":4}"#.into() },
            9 => What::Lost { count: 12, reason: 2 },
            10 => What::Mark(text()),
            11 => What::ThreadBegin { tid: 77, creator: 2 },
            24 => What::ThreadGone,
            12 => What::Free { api: FreeApi::Null, address: 0, touched: None },
            25 => What::Usage(Box::new(Usage::of_numbers([1 << 40, 2, 3, u64::MAX, 5, 6, self.time, 1]))),
            27 => What::ChildEnded { child: 77, status: 9 },
            28 => What::Sampled { mean: 1 << 19 },
            29 => What::HiddenChildEnded(HiddenChild { status: 9, began_ns: 7, ended_ns: 1 << 40 }),
            26 => What::Resident { address: 0x7f00_0000_0010, bytes: 1 << 20 },
            30 => What::Written { address: 0x7f00_0000_0010, bytes: 5000 },
            n => {
                let what = match n {
                    13 => PoolWhat::Created { parent: 0, kind: "fifo".into(), name: text() },
                    14 => PoolWhat::Destroyed,
                    15 => PoolWhat::Pushed,
                    16 => PoolWhat::Popped,
                    17 => PoolWhat::Sealed { cookie: u64::MAX },
                    18 => PoolWhat::Released { cookie: 1 },
                    19 => PoolWhat::Alloc { size: 100, address: 0x7000, align: 4, stack },
                    20 => PoolWhat::Free { address: 0x7000 },
                    21 => PoolWhat::Resized { old: 0x7000, size: 200, new: 0x8000, stack },
                    22 => PoolWhat::Emptied,
                    _ => PoolWhat::Held { held: 4096, used: 100 },
                };
                What::Pool { pool: 3, what }
            }
        };
        self.event(thread, what);
    }
}

/// Stacks stand before the event that needs them; those that nobody needs are not in a trace that is read.
fn tidy(items: &[Item]) -> Vec<Item> {
    let nodes: BTreeMap<u32, StackNode> = items
        .iter()
        .filter_map(|item| if let Item::Stack(_, node) = item { Some((node.id, *node)) } else { None })
        .collect();
    let mut given = std::collections::BTreeSet::new();
    let mut tidy = Vec::new();
    for item in items {
        let Item::Event(event, _) = item else { continue };
        let mut id = super::qtr::stack_of(&mut event.what.clone()).map_or(0, |stack| *stack);
        let mut chain = Vec::new();
        while id != 0 && given.insert(id) {
            chain.push(Item::Stack(event.thread, nodes[&id]));
            id = nodes[&id].parent;
        }
        tidy.extend(chain.into_iter().rev());
        tidy.push(item.clone());
    }
    tidy
}

fn to_qtr(items: &[Item], packed: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    give(&mut QtrSink::new(&mut bytes, &head(), WriteOptions { packed }).unwrap(), items);
    bytes
}

fn from_qtr(bytes: Vec<u8>) -> Vec<Item> {
    let trace = Trace::of_bytes(bytes).unwrap();
    let mut source = QtrSource::new(&trace);
    let items = all(&mut source).unwrap();
    assert_eq!((source.remarks(), source.damaged()), (Vec::new(), false));
    items
}

fn to_json(items: &[Item]) -> Vec<u8> {
    let mut bytes = Vec::new();
    give(&mut JsonSink::new(&mut bytes, &head()).unwrap(), items);
    bytes
}

fn to_ms(items: &[Item]) -> Vec<u8> {
    let mut bytes = Vec::new();
    give(&mut MsSink::new(&mut bytes, Options { wide: true }), items);
    bytes
}

fn to_mtrace(items: &[Item]) -> Vec<u8> {
    let mut bytes = Vec::new();
    give(&mut MtraceSink::new(&mut bytes, &head()).unwrap(), items);
    bytes
}

fn to_heaptrack(items: &[Item]) -> Vec<u8> {
    let mut bytes = Vec::new();
    give(&mut HeaptrackSink::new(&mut bytes, &head(), Names::default()).unwrap(), items);
    bytes
}

#[test]
fn traces_there_and_back() {
    for seed in 0..20 {
        let items = tidy(&scene(seed, 2000, Kind::Rich));
        for packed in [false, true] {
            assert_eq!(from_qtr(to_qtr(&items, packed)), items, "seed {seed}");
        }
    }
}

#[test]
fn json_there_and_back() {
    for seed in 0..20 {
        let items = scene(seed, 2000, Kind::Rich);
        let text = to_json(&items);
        let mut source = JsonSource::new(input(&text)).unwrap();
        assert_eq!(*source.head(), head());
        assert_eq!(all(&mut source).unwrap(), items, "seed {seed}");
        assert!(!source.damaged() && source.remarks().is_empty());
        assert_eq!(source.end(), End::default());
        // And over a trace.
        let items = tidy(&items);
        assert_eq!(
            from_qtr(to_qtr(&all(&mut JsonSource::new(input(&to_json(&items))).unwrap()).unwrap(), true)),
            items
        );
    }
}

#[test]
fn what_threads_do_after_their_end_goes_there_and_back() {
    let event = |time, thread, what| Item::Event(Event { time, thread, what }, time);
    let items = [
        event(1, 1, What::Alloc { api: AllocApi::Malloc, size: 5, address: 16, align: 0, stack: 0 }),
        event(2, 0, What::Free { api: FreeApi::Free, address: 16, touched: None }),
        event(3, 0, What::Alloc { api: AllocApi::Calloc, size: 7, address: 32, align: 0, stack: 0 }),
    ];
    assert_eq!(all(&mut JsonSource::new(input(&to_json(&items))).unwrap()).unwrap(), items);
    assert_eq!(from_qtr(to_qtr(&items, false)), items);
}

#[test]
fn a_realloc_that_began_before_events_of_others_goes_there_and_back() {
    let event = |time, thread, what| Item::Event(Event { time, thread, what }, time);
    let alloc = |address| What::Alloc { api: AllocApi::Malloc, size: 5, address, align: 0, stack: 0 };
    let moved = What::Realloc { took: 50, old: 16, size: 9, new: 32, stack: 0 };
    let items = [
        event(1, 1, alloc(16)),
        event(120, 2, alloc(64)),
        event(100, 1, moved.clone()),
        event(100, 1, What::Mark("of the same moment".into())),
        event(160, 2, alloc(128)),
    ];
    assert_eq!(from_qtr(to_qtr(&items, false)), items);
    assert_eq!(all(&mut JsonSource::new(input(&to_json(&items))).unwrap()).unwrap(), items);
    // What was over before the last event began, and what goes back within a thread, are in no such order.
    for wrong in [event(60, 1, moved), event(119, 3, alloc(96)), event(119, 2, alloc(96))] {
        let text = to_json(&[items[0].clone(), items[1].clone(), wrong]);
        assert!(all(&mut JsonSource::new(input(&text)).unwrap()).is_err());
    }
}

#[test]
fn json_by_hand_may_leave_out_most() {
    let text = "{\"op\":\"alloc\",\"size\":5,\"address\":16}\n\n{\"op\":\"free\",\"address\":\"0x10\"}\r\n{\"op\":\"free\",\"api\":\"null\",\"colour\":\"red\"}";
    let items = all(&mut JsonSource::new(input(text.as_bytes())).unwrap()).unwrap();
    let event = |time, what| Item::Event(Event { time, thread: 1, what }, time);
    assert_eq!(
        items,
        [
            event(1, What::Alloc { api: AllocApi::Malloc, size: 5, address: 16, align: 0, stack: 0 }),
            event(2, What::Free { api: FreeApi::Free, address: 16, touched: None }),
            event(3, What::Free { api: FreeApi::Null, address: 0, touched: None }),
        ]
    );
}

#[test]
fn json_that_makes_no_sense_is_refused_where_it_stands() {
    for (line, what) in [
        ("{\"op\":\"alloc\",\"size\":5}", "has no \"address\""),
        ("{\"op\":\"alloc\",\"address\":5}", "has no \"size\""),
        ("{\"op\":\"alloc\",\"size\":-5,\"address\":1}", "integer `-5`"),
        ("{\"op\":\"alloc\",\"size\":5,\"address\":\"16\"}", "'16' is no address"),
        ("{\"op\":\"alloc\",\"size\":5,\"address\":\"0x+1\"}", "no address"),
        (
            "{\"op\":\"alloc\",\"size\":5,\"address\":1,\"api\":\"foo\"}",
            "'foo' is no function that allocates",
        ),
        ("{\"op\":\"alloc\",\"size\":5,\"address\":1,\"align\":5}", "align"),
        ("{\"op\":\"alloc\",\"size\":5,\"address\":1,\"stack\":5}", "stack 5 is not defined"),
        ("{\"op\":\"stack\",\"id\":1,\"parent\":2,\"pc\":1}", "parent 2"),
        ("{\"op\":\"stack\",\"id\":0,\"pc\":1}", "root"),
        ("{\"op\":\"jump\"}", "'jump'"),
        ("{\"op\":\"pool_jump\",\"pool\":1}", "'pool_jump'"),
        ("{\"t\":1,\"op\":\"thread_end\"}", "before that of the last event"),
        ("{\"x\":1}", "has no \"op\""),
        ("{\"schema\":\"other/1\"}", "'other/1'"),
        ("nonsense", "expected"),
    ] {
        let text = format!("{{\"t\":5,\"op\":\"thread_end\"}}\n{line}\n");
        let said = all(&mut JsonSource::new(input(text.as_bytes())).unwrap()).expect_err(line).to_string();
        assert!(said.starts_with("line 2: ") && said.contains(what), "{line}: {said}");
    }
    let twice = "{\"end\":{}}\n{\"op\":\"thread_end\"}\n";
    let said = all(&mut JsonSource::new(input(twice.as_bytes())).unwrap()).unwrap_err().to_string();
    assert!(said.contains("behind the end"), "{said}");
}

/// What happens to which block, without addresses: for each event its letter, its size, and the number of the block
/// that it is about, counted by birth.
fn shape(items: &[Item]) -> Vec<(char, u64, usize)> {
    let mut live = BTreeMap::new();
    let mut born = 0;
    let mut shape = Vec::new();
    for item in items {
        let Item::Event(event, _) = item else { continue };
        match event.what {
            What::Alloc { size, address, .. } => {
                assert!(live.insert(address, born).is_none());
                shape.push(('+', size, born));
                born += 1;
            }
            What::Free { api: FreeApi::Null, .. } => shape.push(('0', 0, 0)),
            What::Free { address, .. } => shape.push(('-', 0, live.remove(&address).unwrap())),
            What::Realloc { old, size, new, .. } => {
                let number = live.remove(&old).unwrap();
                assert!(live.insert(new, number).is_none());
                shape.push(('=', size, number));
            }
            _ => {}
        }
    }
    shape
}

#[test]
fn simulation_files_there_and_back() {
    for seed in 0..20 {
        let items = scene(seed, 3000, Kind::Plain);
        let text = to_ms(&items);
        let mut source = MsSource::new(input(&text), Options { wide: true });
        let again = all(&mut source).unwrap();
        assert_eq!(shape(&again), shape(&items), "seed {seed}");
        // What was read is written as it was.
        assert_eq!(to_ms(&again), text);
        assert_eq!(to_ms(&from_qtr(to_qtr(&again, true))), text);
    }
    let text = b"0=123 0 0 1=31 1=400 s\n2=9 2 e 5=5";
    let items = all(&mut MsSource::new(input(text), Options::default())).unwrap();
    assert_eq!(
        shape(&items),
        [('+', 123, 0), ('-', 0, 0), ('0', 0, 0), ('+', 31, 1), ('=', 400, 1), ('+', 9, 2), ('-', 0, 2)]
    );
    assert_eq!(to_ms(&items), b"0=123 0 0 0=31 0=400 s 1=9 1\n");
}

#[test]
fn what_a_simulation_file_cannot_hold_is_counted() {
    let items = scene(1, 5000, Kind::Rich);
    let mut sink = MsSink::new(Vec::new(), Options { wide: true });
    give(&mut sink, &items);
    for what in [
        "functions other than malloc, realloc and free",
        "alignments",
        "stacks",
        "calls that failed",
        "events of pools",
    ] {
        assert!(sink.losses().count(what) > 0, "{what}");
    }
    // A free of what was never there, and a block whose free is missing.
    let event = |time, what| Item::Event(Event { time, thread: 1, what }, time);
    let alloc = |address| What::Alloc { api: AllocApi::Malloc, size: 5, address, align: 0, stack: 0 };
    let free = |address| What::Free { api: FreeApi::Free, address, touched: None };
    let odd = [
        event(1, free(0x10)),
        event(2, alloc(0x20)),
        event(3, alloc(0x20)),
        event(4, What::Realloc { took: 0, old: 0x99, size: 7, new: 0x30, stack: 0 }),
        event(5, What::Realloc { took: 0, old: 0x30, size: 8, new: 0x20, stack: 0 }),
    ];
    assert_eq!(to_ms(&odd), b"0=5 0 0=5 1=7 0 1=8\n");
}

#[test]
fn a_simulation_file_has_so_many_slots() {
    let event = |time, what| Item::Event(Event { time, thread: 1, what }, time);
    let alloc =
        |n| event(n, What::Alloc { api: AllocApi::Malloc, size: 5, address: 16 * n, align: 0, stack: 0 });
    let mut sink = MsSink::new(Vec::new(), Options::default());
    (1..=4096).for_each(|n| sink.item(&alloc(n)).unwrap());
    let said = sink.item(&alloc(4097)).unwrap_err().to_string();
    assert!(said.contains("4096") && said.contains("--wide"), "{said}");
    let mut sink = MsSink::new(Vec::new(), Options { wide: true });
    (1..=5000).for_each(|n| sink.item(&alloc(n)).unwrap());
}

#[test]
fn mtrace_there_and_back() {
    for seed in 0..20 {
        let items = scene(seed, 3000, Kind::Plain);
        let text = to_mtrace(&items);
        let again = all(&mut MtraceSource::new(input(&text))).unwrap();
        assert_eq!(shape(&again), shape(&items), "seed {seed}");
        assert_eq!(callers(&again), callers(&items), "seed {seed}");
        assert_eq!(to_mtrace(&again), text);
    }
}

/// The innermost frame of each allocation.
fn callers(items: &[Item]) -> Vec<u64> {
    let mut pcs = BTreeMap::from([(0, 0)]);
    let mut callers = Vec::new();
    for item in items {
        match item {
            Item::Stack(_, node) => drop(pcs.insert(node.id, node.pc)),
            Item::Event(event, _) => {
                if let What::Alloc { stack, .. } | What::Realloc { stack, .. } = event.what {
                    callers.push(pcs[&stack]);
                }
            }
        }
    }
    callers
}

#[test]
fn mtrace_as_glibc_writes_it() {
    let text = "= Start\n@ ./a:(f+0x1c)[0x401142] + 0x1a2b6a0 0x64\n@ ./a:[0x401150] < 0x1a2b6a0\n@ ./a:[0x401150] > 0x1a2b710 0x3e8\n+ (nil) 0x7fffffffffff\n@ ./a:[0x401150] ! 0x1a2b710 0xffffffff\n@ /lib/libc.so.6:[0x7f00] - 0x1a2b710\n= End\n";
    let items = all(&mut MtraceSource::new(input(text.as_bytes()))).unwrap();
    assert_eq!(shape(&items), [('+', 100, 0), ('=', 1000, 0), ('-', 0, 0)]);
    // In places of their own, since nobody knows where the file was.
    let places = callers(&items);
    assert_eq!(places.iter().map(|pc| pc % (1 << 48)).collect::<Vec<_>>(), [0x401142, 0x401150]);
    let modules = items.iter().filter_map(|item| match item {
        Item::Event(Event { what: What::ModuleLoaded { about, .. }, .. }, _) => Some(about.as_str()),
        _ => None,
    });
    let modules: Vec<&str> = modules.collect();
    assert!(modules.len() == 3 && modules[0].contains(r#""name":"f""#), "{modules:?}");
    assert!(modules[1].contains("./a") && modules[2].contains("/lib/libc.so.6"), "{modules:?}");
    let failed =
        items.iter().filter(|item| matches!(item, Item::Event(Event { what: What::Failed { .. }, .. }, _)));
    assert_eq!(failed.count(), 2);
    let half = text.replace("@ ./a:[0x401150] < 0x1a2b6a0\n", "");
    let mut source = MtraceSource::new(input(half.as_bytes()));
    all(&mut source).unwrap();
    assert_eq!(source.remarks(), ["1 reallocations have only one of their two lines"]);
}

/// What heaptrack knows of a trace: sizes and stacks as they come and go, a reallocation being both.
fn heaptrack_shape(items: &[Item], minus: u64) -> Vec<(char, u64, Vec<u64>)> {
    let mut nodes: BTreeMap<u32, StackNode> = BTreeMap::new();
    let mut live: BTreeMap<u64, (u64, Vec<u64>)> = BTreeMap::new();
    let mut shape = Vec::new();
    for item in items {
        let Item::Event(event, _) = item else {
            if let Item::Stack(_, node) = item {
                nodes.insert(node.id, *node);
            }
            continue;
        };
        let frames = |mut id: u32| {
            let mut frames = Vec::new();
            while let Some(node) = nodes.get(&id) {
                frames.push(node.pc - if node.is_return { minus } else { 0 });
                id = node.parent;
            }
            frames
        };
        let (dies, born) = match event.what {
            What::Alloc { size, address, stack, .. } => (None, Some((address, size, stack))),
            What::Free { address, .. } => (Some(address), None),
            What::Realloc { old, size, new, stack, .. } => (Some(old), Some((new, size, stack))),
            _ => (None, None),
        };
        if let Some((size, frames)) = dies.and_then(|address| live.remove(&address)) {
            shape.push(('-', size, frames));
        }
        if let Some((address, size, stack)) = born {
            assert!(live.insert(address, (size, frames(stack))).is_none());
            shape.push(('+', size, frames(stack)));
        }
    }
    shape
}

#[test]
fn heaptrack_there_and_back() {
    for seed in 0..20 {
        let items = scene(seed, 3000, Kind::Rich);
        let text = to_heaptrack(&items);
        let mut source = HeaptrackSource::new(input(&text)).unwrap();
        assert_eq!((source.head().program.as_str(), source.is_raw()), ("/bin/a", false));
        let again = all(&mut source).unwrap();
        assert_eq!(heaptrack_shape(&again, 0), heaptrack_shape(&items, 1), "seed {seed}");
        // Of which file a frame is only heaptrack's own data knows.
        let mut source = HeaptrackSource::new(input(&to_heaptrack(&again))).unwrap();
        assert_eq!(heaptrack_shape(&all(&mut source).unwrap(), 0), heaptrack_shape(&again, 0), "seed {seed}");
    }
}

#[test]
fn heaptrack_as_it_writes_it() {
    let text = "v 10400 3\nX ./a b\nI 1000 5f1d9e\ns 6 /bin/a\ns 4 main\ni 401135 1 2\nt 1 0\na 64 1\n+ 0\nc a\n+ 0\n- 0\nR 3\n- 0\n- 0\n# strings: 2\n";
    let mut source = HeaptrackSource::new(input(text.as_bytes())).unwrap();
    assert_eq!(source.head().command, ["./a", "b"]);
    let items = all(&mut source).unwrap();
    assert_eq!(shape(&items), [('+', 100, 0), ('+', 100, 1), ('-', 0, 1), ('-', 0, 0)]);
    assert!(items.iter().any(|item| matches!(
        item,
        Item::Event(Event { what: What::Memory { anonymous: 12288, .. }, .. }, _)
    )));
    assert!(items.iter().any(|item| matches!(item, Item::Event(Event { time: 10_000_000, .. }, _))));
    assert!(source.remarks()[0].starts_with("1 frees of blocks"), "{:?}", source.remarks());

    let raw = "v 10400 3\nx 6 /bin/a\nX ./a\nI 1000 5f1d9e\nm 1 -\nm 1 x 55d0 0 1000 2000 500\nm 6 libc.5 7f00 0 99\nt 55d1 0\nt 55d9 1\n+ 64 2 7fee10\n+ 1 0 7fee90\n- 7fee10\n- 7fee90\nm 1 -\n";
    let mut source = HeaptrackSource::new(input(raw.as_bytes())).unwrap();
    assert!(source.is_raw());
    let items = all(&mut source).unwrap();
    assert_eq!(shape(&items), [('+', 100, 0), ('+', 1, 1), ('-', 0, 0), ('-', 0, 1)]);
    assert_eq!(heaptrack_shape(&items, 0)[0], ('+', 100, vec![0x55d9, 0x55d1]));
    let loaded: Vec<_> = items
        .iter()
        .filter_map(|item| match item {
            Item::Event(Event { what: What::ModuleLoaded { base, about }, .. }, _) => {
                Some((*base, about.as_str()))
            }
            _ => None,
        })
        .collect();
    let expected =
        serde_json::json!({"path": "/bin/a", "segments": [[0, 4096, 0], [8192, 1280, 0]], "nodes": 0});
    let about: serde_json::Value = serde_json::from_str(loaded[0].1).unwrap();
    assert_eq!((loaded[0].0, about), (0x55d0, expected));
    assert_eq!(loaded.len(), 2);
}

#[test]
fn heaptrack_that_makes_no_sense_is_refused() {
    for (lines, at, what) in [
        ("+ 0", 3, "lacks a number"),
        ("- 0", 3, "lacks a number"),
        ("t 1 0", 3, "not defined"),
        ("i 5 0\nt 1 7", 4, "there are only 0"),
        ("a 10 5", 3, "cannot be"),
        ("i xyz", 3, "lacks a number"),
        ("hello", 3, "no line of heaptrack"),
        ("a +5 0", 3, "lacks a number"),
    ] {
        let text = format!("v 10400 3\nX a\n{lines}\n");
        let read = HeaptrackSource::new(input(text.as_bytes())).and_then(|mut source| all(&mut source));
        let said = read.expect_err(lines).to_string();
        assert!(said.starts_with(&format!("line {at}: ")) && said.contains(what), "{lines}: {said}");
    }
    let newer = HeaptrackSource::new(input(b"v 20000 9\n")).err().unwrap().to_string();
    assert!(newer.contains("version 9"), "{newer}");
    assert!(HeaptrackSource::new(input(b"v 10000 0\n")).is_err());
}

#[test]
fn a_command_of_heaptrack_may_have_newlines() {
    let text = "v 10400 3\nX ./a b\nc  d\n- 0\n\nI 1000 5f1d9e\na 64 0\n+ 0\n";
    let mut source = HeaptrackSource::new(input(text.as_bytes())).unwrap();
    assert_eq!(source.head().command, ["./a", "b\nc", "", "d\n-", "0\n"]);
    assert_eq!(shape(&all(&mut source).unwrap()), [('+', 100, 0)]);
    assert!(!source.damaged());
    // Behind the head, and where heaptrack's own line is missing, such a line is none of the command.
    for (text, line) in [
        ("v 10400 3\nX ./a\nhello\na 64 0\n+ 0\n", 3),
        ("v 10400 3\nX ./a\nI 1000 5f1d9e\na 64 0\nhello\nI 1000 5f1d9e\n", 5),
    ] {
        let read = HeaptrackSource::new(input(text.as_bytes())).and_then(|mut source| all(&mut source));
        let said = read.expect_err(text).to_string();
        assert_eq!(said, format!("line {line}: 'hello' is no line of heaptrack"));
    }
}

/// Of `cat a b` the first is read: numbers of the second would mean what the first says.
#[test]
fn another_file_behind_the_first_is_told() {
    let heaptrack = "v 10400 3\nX ./a\nI 1000 5f1d9e\na 64 0\n+ 0\n";
    let mtrace = "= Start\n@ ./a:[0x10] + 0x1000 0x64\n= End\n";
    let json = "{\"head\":{}}\n{\"op\":\"alloc\",\"size\":5,\"address\":16}\n";
    let ended = format!("{json}{{\"end\":{{\"reason\":\"exit\"}}}}\n");
    let mut twice: [(Box<dyn Source>, usize); 4] = [
        (Box::new(HeaptrackSource::new(input(heaptrack.repeat(2).as_bytes())).unwrap()), 6),
        (Box::new(MtraceSource::new(input(mtrace.repeat(2).as_bytes()))), 4),
        (Box::new(JsonSource::new(input(json.repeat(2).as_bytes())).unwrap()), 3),
        (Box::new(JsonSource::new(input(ended.repeat(2).as_bytes())).unwrap()), 4),
    ];
    for (source, line) in &mut twice {
        let items = all(&mut **source).unwrap();
        let allocations = items
            .iter()
            .filter(|item| matches!(item, Item::Event(Event { what: What::Alloc { .. }, .. }, _)));
        assert_eq!(allocations.count(), 1);
        let remark = source.remarks().remove(0);
        assert!(
            source.damaged() && remark.starts_with(&format!("another file begins in line {line};")),
            "{remark}"
        );
    }
}

#[test]
fn lines_that_end_with_a_carriage_return_alone_are_refused() {
    use super::profile::Profile;
    let items = scene(3, 300, Kind::Plain);
    let returns =
        |text: &[u8]| text.iter().map(|&byte| if byte == b'\n' { b'\r' } else { byte }).collect::<Vec<u8>>();
    let profile = |format, text: &[u8]| Profile::read(format, input(text), |symbols| symbols).map(drop);
    let source =
        |source: Result<Box<dyn Source>, Error>| source.and_then(|mut source| all(&mut *source)).map(drop);
    let json = returns(&to_json(&items));
    let heaptrack = returns(&to_heaptrack(&items));
    for read in [
        source(JsonSource::new(input(&json)).map(|source| Box::new(source) as Box<dyn Source>)),
        source(HeaptrackSource::new(input(&heaptrack)).map(|source| Box::new(source) as Box<dyn Source>)),
        source(Ok(Box::new(MtraceSource::new(input(&returns(&to_mtrace(&items))))))),
        profile(Format::Massif, b"desc: (none)\rcmd: ./a\rtime_unit: i\r"),
        profile(Format::Jeprof, b"heap profile: 1: 2 [1: 2] @ heapprofile\r1: 2 [1: 2] @ 0x10\r"),
    ] {
        let said = read.unwrap_err().to_string();
        assert!(said.starts_with("line 1: its lines end with a carriage return alone; tr "), "{said}");
    }
    // Commands of simulations are parted by any white space.
    let ms = to_ms(&items);
    let read = |text: &[u8]| all(&mut MsSource::new(input(text), Options { wide: true })).unwrap();
    assert_eq!(read(&returns(&ms)), read(&ms));
}

/// Two call sites in a file without names, in a folder with a bracket.
#[test]
fn massif_there_and_back_keeps_places_apart() {
    use super::massif_write::MassifSink;
    use super::profile::Profile;
    let event = |what| Item::Event(Event { time: 1, thread: 1, what }, 1);
    let about = r##"{"path":"/x/od (2)/a#b","segments":[[0,4096,5]]}"##.into();
    let node = |id, pc| Item::Stack(1, StackNode { id, parent: 0, pc, is_return: false });
    let alloc =
        |address, size, stack| event(What::Alloc { api: AllocApi::Malloc, size, address, align: 0, stack });
    let loaded = event(What::ModuleLoaded { base: 0x40_0000, about });
    let items = [loaded, node(1, 0x40_0010), node(2, 0x40_0020), alloc(64, 30, 1), alloc(128, 20, 2)];
    let mut bytes = Vec::new();
    give(&mut MassifSink::new(&mut bytes, &head(), quarry_symbols::Folding::default()), &items);
    let profile = Profile::read(Format::Massif, input(&bytes), |symbols| symbols).unwrap();
    let frames: Vec<&str> = profile.stacks.iter().map(|stack| stack.frames[0].as_str()).collect();
    // ms_print takes a # for a comment.
    assert_eq!(frames, ["0x400010 in a.b", "0x400020 in a.b"]);
}

#[test]
fn stacks_of_any_depth_go_there_and_back() {
    const DEPTH: u32 = 10_000;
    let mut items: Vec<Item> = (1..=DEPTH)
        .map(|id| Item::Stack(1, StackNode { id, parent: id - 1, pc: id.into(), is_return: true }))
        .collect();
    let alloc = |time, stack| {
        let what = What::Alloc { api: AllocApi::Malloc, size: 5, address: time * 16, align: 0, stack };
        Item::Event(Event { time, thread: 1, what }, time)
    };
    items.extend([alloc(1, DEPTH), alloc(2, DEPTH / 2)]);
    assert_eq!(from_qtr(to_qtr(&items, true)), items);
    // Formats with fewer frames say so.
    let mut jeprof =
        super::jeprof_write::JeprofSink::new(Vec::new(), &head(), super::jeprof_write::Live::AtTheEnd, true);
    let mut massif =
        super::massif_write::MassifSink::new(Vec::new(), &head(), quarry_symbols::Folding::default());
    let sinks: [&mut dyn Sink; 2] = [&mut jeprof, &mut massif];
    for sink in sinks {
        give(sink, &items);
        assert_eq!(sink.losses().count("the outermost frames of deep stacks"), 2);
    }
}

#[test]
fn a_ring_of_stacks_is_cut_where_it_begins_again() {
    let node = |id, parent| Item::Stack(1, StackNode { id, parent, pc: id.into(), is_return: true });
    let what = What::Alloc { api: AllocApi::Malloc, size: 5, address: 16, align: 0, stack: 1 };
    let alloc = Item::Event(Event { time: 1, thread: 1, what }, 1);
    let read = from_qtr(to_qtr(&[node(1, 2), node(2, 3), node(3, 1), alloc.clone()], false));
    assert_eq!(read, [node(3, 0), node(2, 3), node(1, 2), alloc]);
}

#[test]
fn packed_text_is_read_and_written() {
    use super::output::{Output, Packing};
    use std::io::Write;
    let items = scene(3, 3000, Kind::Rich);
    let text = to_json(&items);
    for packing in [Packing::Plain, Packing::Gzip, Packing::Zstd] {
        let mut output = Output::new(Vec::new(), packing).unwrap();
        output.write_all(&text).unwrap();
        let (packed, bytes) = output.finish().unwrap();
        assert_eq!(bytes, packed.len() as u64);
        assert!(packing == Packing::Plain || packed.len() < text.len() / 3);
        let input = input(&packed);
        assert_eq!(input.packed(), ["", "gzip", "zstd"][packing as usize]);
        assert_eq!(Format::of_content(input.begin()), Some(Format::JsonLines));
        assert_eq!(all(&mut JsonSource::new(input).unwrap()).unwrap(), items);
    }
}
