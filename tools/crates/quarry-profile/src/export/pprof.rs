// SPDX-License-Identifier: MIT
//! pprof's format: a message of protocol buffers (profile.proto of github.com/google/pprof), packed with gzip.

use std::collections::HashMap;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::report::Report;

/// A message that is being written.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(&mut self, field: u32, value: u64) {
        if value != 0 {
            self.varint(u64::from(field) << 3);
            self.varint(value);
        }
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn packed(&mut self, field: u32, values: &[u64]) {
        let mut inner = Message::default();
        values.iter().for_each(|&value| inner.varint(value));
        self.bytes(field, &inner.0);
    }
}

/// The table of strings; the first one is empty.
struct Strings<'t> {
    all: Vec<&'t str>,
    known: HashMap<&'t str, u64>,
}

impl<'t> Strings<'t> {
    fn new() -> Self {
        Self { all: vec![""], known: HashMap::from([("", 0)]) }
    }

    fn number(&mut self, text: &'t str) -> u64 {
        let all = &mut self.all;
        *self.known.entry(text).or_insert_with(|| {
            all.push(text);
            all.len() as u64 - 1
        })
    }
}

/// The types of values, as heap profiles of other tools name them.
const TYPES: [(&str, &str); 4] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
];

/// What `go tool pprof` reads. In use is what is live at the moment of the query.
pub fn pprof(report: &Report) -> Vec<u8> {
    let (calls, mut strings, mut profile) = (report.calls, Strings::new(), Message::default());
    let value_type = |strings: &mut Strings<'_>, (name, unit): (&'static str, &'static str)| {
        let mut message = Message::default();
        message.number(1, strings.number(name));
        message.number(2, strings.number(unit));
        message.0
    };
    for one in TYPES {
        let message = value_type(&mut strings, one);
        profile.bytes(1, &message);
    }
    for stack in super::stacks(report) {
        let values = [stack.allocations, stack.bytes, stack.live, stack.live_bytes];
        if values == [0; 4] {
            continue;
        }
        // A location for each label: 0 is not allowed.
        let path: Vec<u64> =
            calls.up(stack.leaf).map(|call| u64::from(calls.calls()[call as usize].label) + 1).collect();
        let mut sample = Message::default();
        sample.packed(1, &path);
        sample.packed(2, &values);
        profile.bytes(2, &sample.0);
    }
    for (number, label) in calls.labels().enumerate().skip(1) {
        let id = number as u64 + 1;
        let (mut line, mut location, mut function) =
            (Message::default(), Message::default(), Message::default());
        line.number(1, id);
        line.number(2, label.line.into());
        location.number(1, id);
        location.bytes(4, &line.0);
        profile.bytes(4, &location.0);
        function.number(1, id);
        function.number(2, strings.number(label.function));
        function.number(3, strings.number(label.function));
        function.number(4, strings.number(if label.file.is_empty() { label.module } else { label.file }));
        profile.bytes(5, &function.0);
    }
    let period = value_type(&mut strings, ("space", "bytes"));
    let default = strings.number("inuse_space");
    for text in &strings.all {
        profile.bytes(6, text.as_bytes());
    }
    profile.number(9, report.trace.head().start_unix_ns);
    profile.number(10, report.after(report.profile.last));
    profile.bytes(11, &period);
    profile.number(12, report.profile.sampling.rate().max(1));
    profile.number(14, default);
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    // Memory takes all that is written to it.
    let written = packed.write_all(&profile.0).and_then(|()| packed.finish());
    written.unwrap_or_default()
}
