// SPDX-License-Identifier: MIT
//! What the targets for text formats have in common: read, write in every format, read again.

#![deny(unsafe_code)]

use std::io::{self, Cursor, Write};

use quarry_synth::convert::csv::CsvTable;
use quarry_synth::convert::heaptrack::{HeaptrackSink, HeaptrackSource};
use quarry_synth::convert::input::Input;
use quarry_synth::convert::jeprof_write::{JeprofSink, Live};
use quarry_synth::convert::json_lines::{JsonSink, JsonSource};
use quarry_synth::convert::massif_write::MassifSink;
use quarry_synth::convert::mtrace::{MtraceSink, MtraceSource};
use quarry_synth::convert::profile::Profile;
use quarry_synth::convert::qtr::{QtrSink, QtrSource};
use quarry_synth::convert::rows::{RowSink, Rows};
use quarry_synth::convert::simulation::{MsSink, MsSource};
use quarry_synth::convert::{Error, Format, Item, Sink, Source};
use quarry_synth::ms::Options;
use quarry_trace::{End, Event, Head, Trace, WriteOptions};

/// More is not read of one input.
const MOST: usize = 20_000;

/// Files without limits on slots, if wanted.
pub const WIDE: Options = Options { wide: true };

/// Begin to read a text.
fn open(format: Format, bytes: Vec<u8>) -> Result<Box<dyn Source>, Error> {
    let length = bytes.len() as u64;
    let input = Input::new(Cursor::new(bytes), length).map_err(Error::Read)?;
    Ok(match format {
        Format::Ms => Box::new(MsSource::new(input, WIDE)),
        Format::JsonLines => Box::new(JsonSource::new(input)?),
        Format::Heaptrack => Box::new(HeaptrackSource::new(input)?),
        Format::Mtrace => Box::new(MtraceSource::new(input)),
        other => panic!("{} is no text", other.name()),
    })
}

/// What came out of a source before its end, or its error.
struct Content {
    head: Head,
    items: Vec<Item>,
    error: Option<Error>,
    whole: bool,
}

fn read(format: Format, bytes: Vec<u8>) -> Content {
    let mut content = Content { head: Head::default(), items: Vec::new(), error: None, whole: false };
    let mut source = match open(format, bytes) {
        Ok(source) => source,
        Err(error) => {
            content.error = Some(error);
            return content;
        }
    };
    content.head = source.head().clone();
    while content.items.len() < MOST {
        match source.next_item() {
            Some(Ok(item)) => content.items.push(item),
            Some(Err(error)) => {
                content.error = Some(error);
                assert!(source.next_item().is_none(), "an error is the end");
                break;
            }
            None => {
                content.whole = true;
                break;
            }
        }
    }
    let _ = (source.end(), source.remarks(), source.damaged());
    assert!(source.done() <= source.length() || format == Format::Ms);
    content
}

/// A sink that can be asked for what it wrote.
#[derive(Default)]
struct Shared(std::rc::Rc<std::cell::RefCell<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Write items in a format; `None`: it cannot hold them, and said so.
fn write(format: Format, rows: Rows, head: &Head, items: &[Item]) -> Option<Vec<u8>> {
    let to = Shared::default();
    let bytes = to.0.clone();
    let sink: Result<Box<dyn Sink>, Error> = match format {
        Format::Qtr => QtrSink::new(to, head, WriteOptions { packed: false }).map(|sink| Box::new(sink) as _),
        Format::Ms => Ok(Box::new(MsSink::new(to, WIDE))),
        Format::JsonLines => JsonSink::new(to, head).map(|sink| Box::new(sink) as _),
        Format::Heaptrack => HeaptrackSink::new(to, head, Default::default()).map(|sink| Box::new(sink) as _),
        Format::Mtrace => MtraceSink::new(to, head).map(|sink| Box::new(sink) as _),
        Format::Csv => CsvTable::new(to, rows).map(|table| Box::new(RowSink::new(table, rows, head)) as _),
        Format::Massif => Ok(Box::new(MassifSink::new(to, head, Default::default())) as _),
        Format::Jeprof => Ok(Box::new(JeprofSink::new(to, head, Live::AtThePeak, true)) as _),
        Format::Parquet | Format::Collapsed => panic!("not made here"),
    };
    let mut sink = match sink {
        Ok(sink) => sink,
        // A head that does not fit into a block.
        Err(Error::Write(_)) => return None,
        Err(error) => panic!("{}: {error}", format.name()),
    };
    let done = items.iter().try_for_each(|item| sink.item(item)).and_then(|()| sink.finish(&End::default()));
    drop(sink);
    match done {
        Ok(()) => Some(bytes.take()),
        // Addresses that are far apart, texts of a MiB, and more blocks than slots are refused.
        Err(Error::Write(_) | Error::Slots(_)) => None,
        Err(error) => panic!("{}: {error}", format.name()),
    }
}

/// The events of items, with time and thread.
fn events(items: &[Item]) -> impl Iterator<Item = &Event> {
    items.iter().filter_map(|item| match item {
        Item::Event(event, _) => Some(event),
        Item::Stack(..) => None,
    })
}

/// Read `data` as a profile: neither a panic nor a line that is not there comes out.
pub fn check_profile(data: &[u8]) {
    let lines = data.split(|&byte| byte == b'\n').count() as u64;
    for format in [Format::Massif, Format::Jeprof] {
        let input = Input::new(Cursor::new(data.to_vec()), data.len() as u64).expect("bytes in memory");
        match Profile::read(format, input, |symbols| symbols) {
            Ok(profile) => {
                let _ = (profile.live(), profile.allocated());
            }
            Err(Error::Line { line, .. }) => assert!((1..=lines).contains(&line), "line {line} of {lines}"),
            Err(Error::Read(_)) => {}
            Err(error) => panic!("{}: {error}", format.name()),
        }
    }
}

/// Read `data` as a text of this format: neither a panic nor nonsense comes out; every other format takes it or refuses it;
/// what is written in this format, as lines of JSON, or as a trace can be read again, of the last two as what it was.
pub fn check(format: Format, data: &[u8]) {
    // Packed text is unpacked by libraries that others fuzz.
    if data.starts_with(&[0x1f, 0x8b]) || data.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        return;
    }
    let lines = data.split(|&byte| byte == b'\n').count() as u64;
    let content = read(format, data.to_vec());
    match &content.error {
        Some(Error::Line { line, .. }) => assert!((1..=lines).contains(line), "{:?}", content.error),
        Some(Error::Ms(error)) => assert!((1..=lines).contains(&error.line), "{error}"),
        Some(error) => panic!("{error}"),
        None => {}
    }
    let (head, items) = (&content.head, &content.items);
    assert!(events(items).is_sorted_by_key(|event| event.time), "times go back");
    for rows in [Rows::Events, Rows::Objects] {
        assert!(write(Format::Csv, rows, head, items).is_some(), "a table takes everything");
    }
    for to in [Format::Massif, Format::Jeprof] {
        let text = write(to, Rows::Events, head, items).expect("a profile takes everything");
        let input = Input::new(Cursor::new(text.clone()), text.len() as u64).expect("bytes in memory");
        let again = Profile::read(to, input, |symbols| symbols);
        assert!(again.is_ok_and(|profile| !profile.damaged), "{} that we wrote", to.name());
    }
    for to in [Format::Ms, Format::Heaptrack, Format::Mtrace] {
        let Some(text) = write(to, Rows::Events, head, items) else { continue };
        let again = read(to, text);
        assert!(again.error.is_none(), "{} that we wrote: {:?}", to.name(), again.error);
    }
    let json = write(Format::JsonLines, Rows::Events, head, items).expect("JSON takes everything");
    let again = read(Format::JsonLines, json);
    assert!(again.error.is_none(), "JSON that we wrote: {:?}", again.error);
    assert!(items.is_empty() || again.head == *head, "another head");
    assert!(again.items == *items, "other items");
    if let Some(bytes) = write(Format::Qtr, Rows::Events, head, items) {
        let trace = Trace::of_bytes(bytes).expect("a trace");
        let mut source = QtrSource::new(&trace);
        let mut count = 0;
        while let Some(item) = source.next_item() {
            count += usize::from(matches!(item.expect("an item"), Item::Event(..)));
        }
        assert_eq!(count, events(items).count(), "events of a trace: {:?}", source.remarks());
    }
}
