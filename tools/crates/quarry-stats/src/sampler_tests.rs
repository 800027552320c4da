// SPDX-License-Identifier: MIT
//! Samplers that are made up, some of them by liars.

use std::cell::{Cell, RefCell};

use super::*;

const AT: u64 = 0x1000;
const EVENTS: u64 = 0x2000;
const NODES: u64 = 0x8000;

/// Memory from 0 on. What is done each time that it is read may change it.
struct Made {
    bytes: RefCell<Vec<u8>>,
    reads: Cell<u32>,
    meanwhile: fn(&Made),
}

impl Made {
    fn new(rows: u64) -> Self {
        let made = Self { bytes: RefCell::new(vec![0; 0x10000]), reads: Cell::new(0), meanwhile: |_| {} };
        let words = [0, 0, 3, EVENTS, rows, EVENT_BYTES, 0, 0, 0, NODES, 8, NODE_BYTES];
        words.iter().enumerate().for_each(|(i, &word)| made.put(AT + i as u64 * 8, word));
        made
    }

    fn put(&self, at: u64, word: u64) {
        let at = at as usize;
        self.bytes.borrow_mut()[at..at + 8].copy_from_slice(&word.to_ne_bytes());
    }

    fn word(&self, at: u64) -> u64 {
        word_at(&self.bytes.borrow(), at as usize)
    }

    /// One more event: of the block at 16 times its number.
    fn tell(&self, what: u32) {
        let (number, rows) = (self.word(AT + 8), self.word(AT + 32));
        let row = EVENTS + number % rows * EVENT_BYTES;
        let halves = |low: u32, high: u32| {
            u64::from_ne_bytes([low.to_ne_bytes(), high.to_ne_bytes()].concat().try_into().unwrap())
        };
        let words = [number + 1, number * 100, (number + 1) * 16, 64, halves(what, 7), halves(2, 19)];
        words.iter().enumerate().for_each(|(i, &word)| self.put(row + i as u64 * 8, word));
        self.put(AT + 8, number + 1);
    }
}

impl Source for Made {
    fn read_exact_at(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        self.reads.set(self.reads.get() + 1);
        let from = usize::try_from(at).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let end = from.checked_add(into.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        into.copy_from_slice(self.bytes.borrow().get(from..end).ok_or(io::ErrorKind::UnexpectedEof)?);
        (self.meanwhile)(self);
        Ok(())
    }
}

fn addresses(read: &Read) -> Vec<u64> {
    read.events.iter().map(|event| event.address / 16).collect()
}

#[test]
fn events_are_read_once_and_in_order() {
    let made = Made::new(8);
    made.tell(1);
    let mut reader = Reader::new(&made, AT).unwrap();
    assert_eq!(reader.read().unwrap(), Read::default());
    (0..3).for_each(|_| made.tell(1));
    made.tell(2);
    let read = reader.read().unwrap();
    assert_eq!((addresses(&read), read.missed), (vec![2, 3, 4, 5], 0));
    let last =
        Event { what: What::Death, time_ns: 400, address: 80, bytes: 64, thread: 7, stack: 2, rate: 19 };
    assert_eq!(read.events[3], last);
    // Round the end of the ring.
    (0..6).for_each(|_| made.tell(1));
    assert_eq!(addresses(&reader.read().unwrap()), [6, 7, 8, 9, 10, 11]);
    assert_eq!(reader.read().unwrap(), Read::default());
    assert_eq!((reader.lost().unwrap(), reader.rate().unwrap()), (3, None));
}

#[test]
fn what_was_overwritten_is_missed() {
    let made = Made::new(8);
    let mut reader = Reader::new(&made, AT).unwrap();
    (0..20).for_each(|_| made.tell(1));
    let read = reader.read().unwrap();
    // The oldest row may be written to just now.
    assert_eq!((addresses(&read), read.missed), ((14..=20).collect(), 13));
    // Also while it is read.
    let mut made = Made::new(8);
    made.meanwhile = |made| {
        if made.reads.get() == 3 {
            (0..3).for_each(|_| made.tell(1));
        }
    };
    let mut reader = Reader::new(&made, AT).unwrap();
    (0..7).for_each(|_| made.tell(1));
    let read = reader.read().unwrap();
    assert_eq!((addresses(&read), read.missed), (vec![4, 5, 6, 7], 3));
    let read = reader.read().unwrap();
    assert_eq!((addresses(&read), read.missed), (vec![8, 9, 10], 0));
}

#[test]
fn live_samples_come_by_age() {
    const LIVE: u64 = 0x9000;
    let made = Made::new(8);
    let halves = |low: u64, high: u64| low | high << 32;
    // The second one is unused, the fourth one cannot be.
    for (row, address, born) in [(1, 0x40, 30), (2, 0, 5), (3, 0x80, 20), (4, u64::MAX, 10)] {
        let words = [address, 100 + row, born, halves(row, 19), halves(7, 0)];
        words
            .iter()
            .enumerate()
            .for_each(|(i, &word)| made.put(LIVE + row * SAMPLE_BYTES + i as u64 * 8, word));
    }
    let reader = Reader::new(&made, AT).unwrap();
    assert_eq!(reader.live().unwrap(), []);
    [LIVE, 6, SAMPLE_BYTES].iter().enumerate().for_each(|(i, &word)| made.put(AT + 48 + i as u64 * 8, word));
    let live = reader.live().unwrap();
    let sample =
        |address, bytes, born_ns, stack| Sample { address, bytes, born_ns, thread: 7, stack, rate: 19 };
    assert_eq!(live, [sample(0x80, 103, 20, 3), sample(0x40, 101, 30, 1)]);
}

#[test]
fn who_was_sampled_from_the_start() {
    let made = Made::new(8);
    let reader = Reader::new(&made, AT).unwrap();
    for (control, whole) in
        [(0, false), (ON | 19, true), (1 << SERIAL | ON | 19, false), (19, false), (GUARDS | ON | 19, false)]
    {
        made.put(AT, control);
        assert_eq!(reader.is_whole().unwrap(), whole, "{control:x}");
    }
}

#[test]
fn guards_alone_are_off_to_readers() {
    let made = Made::new(8);
    let reader = Reader::new(&made, AT).unwrap();
    for (control, rate) in [(GUARDS | ON | 19, None), (ON | 19, Some(19)), (GUARDS, None)] {
        made.put(AT, control);
        assert_eq!(reader.rate().unwrap(), rate, "{control:x}");
    }
}

#[test]
fn frames_go_outwards() {
    let made = Made::new(8);
    for (id, pc, parent) in [(1, 0x100, 0), (2, 0x200 | EXACT, 1), (3, GONE, 2), (4, 0x400, 5), (5, 0x500, 4)]
    {
        made.put(NODES + id * NODE_BYTES, pc);
        made.put(NODES + id * NODE_BYTES + 8, parent | 1 << 31 | 77 << 32);
    }
    let reader = Reader::new(&made, AT).unwrap();
    let frames = |stack: u32| {
        let frames = reader.frames(stack).into_iter();
        frames.map(|frame| (frame.node, frame.pc, frame.is_return)).collect::<Vec<_>>()
    };
    assert_eq!(frames(3), [(3, 0, false), (2, 0x200, false), (1, 0x100, true)]);
    assert_eq!((frames(0), frames(8), frames(u32::MAX)), (vec![], vec![], vec![]));
    assert_eq!(frames(4).len(), DEPTH, "two that call each other");
    // One that was not there when its page was read.
    assert_eq!(frames(6), []);
    made.put(NODES + 6 * NODE_BYTES, 0x600);
    assert_eq!(frames(6), [(6, 0x600, true)]);
}

#[test]
fn a_liar_is_not_believed() {
    const HUGE: [u64; 6] = [u64::MAX, 1 << 63, 1 << 56, 1 << 40, 1 << 22, 7];
    for word in 0..WORDS as u64 {
        for value in HUGE {
            let made = Made::new(8);
            (0..5).for_each(|_| made.tell(1));
            let mut reader = Reader::new(&made, AT).unwrap();
            made.put(AT + word * 8, value);
            // Nothing, an error, or something that is sane.
            if let Ok(read) = reader.read() {
                assert!(read.events.len() <= 8);
            }
            let _ = (reader.frames(2), reader.rate(), reader.lost());
        }
    }
    for (at, value) in [(16, 0), (16, u64::MAX), (24, u64::MAX), (32, 3), (40, 41 << 32), (0, 9)] {
        let made = Made::new(8);
        let mut reader = Reader::new(&made, AT).unwrap();
        made.tell(1);
        made.put(EVENTS + at, value);
        assert_eq!(reader.read().unwrap(), Read { events: vec![], missed: 1 }, "{at} {value}");
    }
}

#[test]
fn a_process_on_something_else_has_none() {
    let own = i32::try_from(std::process::id()).unwrap();
    assert!(matches!(Sampler::of(own), Err(NoSampler::Page(NoPage::NotOnQuarry(_)))));
}
