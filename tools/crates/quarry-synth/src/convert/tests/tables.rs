// SPDX-License-Identifier: MIT
//! Tests of tables.

use super::*;
use crate::convert::csv::{CsvTable, FIRST};
use crate::convert::rows::{Column, Kind as Type, RowSink, Rows};

fn csv(items: &[Item], rows: Rows) -> (String, Losses) {
    let mut bytes = Vec::new();
    let mut sink = RowSink::new(CsvTable::new(&mut bytes, rows).unwrap(), rows, &head());
    give(&mut sink, items);
    let losses = sink.losses().clone();
    drop(sink);
    (String::from_utf8(bytes).unwrap(), losses)
}

fn event(time: u64, thread: u32, what: What) -> Item {
    Item::Event(Event { time, thread, what }, time)
}

fn story() -> Vec<Item> {
    let alloc = |api, size, address, align, stack| What::Alloc { api, size, address, align, stack };
    vec![
        Item::Stack(1, StackNode { id: 7, parent: 0, pc: 0x40, is_return: true }),
        event(10, 1, alloc(AllocApi::Malloc, 100, 0x1000, 0, 7)),
        event(20, 1, alloc(AllocApi::Memalign, 64, 0x2000, 12, 0)),
        event(30, 2, What::Realloc { took: 5, old: 0x1000, size: 500, new: 0x3000, stack: 0 }),
        event(40, 2, alloc(AllocApi::New, 1, 0x1000, 0, 0)),
        event(50, 2, What::Free { api: FreeApi::Free, address: 0x3000, touched: None }),
        event(60, 1, What::Free { api: FreeApi::Free, address: 0x9000, touched: None }),
        event(70, 1, What::Mark("a, \"b\"\nc".into())),
        event(80, 2, alloc(AllocApi::Malloc, 2, 0x1000, 0, 0)),
        event(90, 1, What::Failed { api: AllocApi::Calloc, size: 9 }),
    ]
}

#[test]
fn a_row_for_each_block() {
    let (text, losses) = csv(&story(), Rows::Objects);
    let expected = "\
object,part,size,align,api,address,thread,birth,birth_ns,death,death_ns,lifetime,lifetime_ns,freed_by,ended,stack,sample_mean
0,0,100,,malloc,4096,1,0,10,2,30,1,20,2,realloc,7,
0,1,500,,realloc,12288,2,2,30,3,50,1,20,2,free,,
2,0,1,,new,4096,2,2,40,,,,,,lost,,
1,0,64,4096,memalign,8192,1,1,20,,,,,,live,,
3,0,2,,malloc,4096,2,3,80,,,,,,live,,
";
    assert_eq!(text, expected);
    assert_eq!(losses.count("frees of unknown blocks"), 1);
    assert_eq!(losses.count("events that are about no block"), 2);
}

/// The rate of a sample may adapt, in each thread by itself: a row has that of its block.
#[test]
fn a_row_of_a_sample_says_at_which_rate_it_was_drawn() {
    let alloc = |address| What::Alloc { api: AllocApi::Malloc, size: 5, address, align: 0, stack: 0 };
    let story = [
        event(10, 1, alloc(0x1000)),
        event(20, 2, What::Sampled { mean: (1 << 16) + 1 }),
        event(30, 2, alloc(0x2000)),
        event(40, 1, alloc(0x3000)),
        event(50, 2, What::Sampled { mean: 0 }),
        event(60, 2, alloc(0x4000)),
    ];
    let mut bytes = Vec::new();
    let head = Head { sample: 1 << 19, ..head() };
    let mut sink = RowSink::new(CsvTable::new(&mut bytes, Rows::Objects).unwrap(), Rows::Objects, &head);
    give(&mut sink, &story);
    drop(sink);
    let text = String::from_utf8(bytes).unwrap();
    let means: Vec<&str> = text.lines().skip(1).filter_map(|row| row.rsplit(',').next()).collect();
    assert_eq!(means, ["524288", "65536", "524288", "524288"], "{text}");
}

/// realloc(p, 0) of some C libraries frees the block and answers NULL.
#[test]
fn a_reallocation_to_nothing_is_a_free() {
    let alloc = What::Alloc { api: AllocApi::Malloc, size: 10, address: 0x1000, align: 0, stack: 0 };
    let nothing = What::realloc(0, 0x1000, 0, 0, 0);
    let story: Vec<Item> = (1..)
        .zip([alloc.clone(), nothing.clone(), alloc, nothing])
        .map(|(at, what)| event(at, 1, what))
        .collect();
    let written = |make: fn(&mut Vec<u8>) -> Box<dyn Sink + '_>| {
        let mut bytes = Vec::new();
        let mut sink = make(&mut bytes);
        give(&mut *sink, &story);
        assert_eq!(sink.losses().iter().count(), 0);
        drop(sink);
        String::from_utf8(bytes).unwrap()
    };
    assert_eq!(written(|to| Box::new(MsSink::new(to, Options::default()))), "0=10 0 0=10 0\n");
    let lines = written(|to| Box::new(MtraceSink::new(to, &head()).unwrap()));
    assert!(lines.starts_with("= Start\n+ 0x1000 0xa\n- 0x1000\n+ 0x1000 0xa\n- 0x1000\n"), "{lines}");
    let lines = written(|to| Box::new(HeaptrackSink::new(to, &head(), Names::default()).unwrap()));
    assert!(lines.ends_with("a a 0\n+ 0\n- 0\n+ 0\n- 0\n"), "{lines}");
    let rows = csv(&story, Rows::Objects).0;
    assert_eq!(rows.lines().skip(1).filter(|row| row.contains(",free,")).count(), 2, "{rows}");
    assert_eq!(rows.lines().count(), 3, "{rows}");
    let mut objects = crate::synth::objects::Objects::default();
    for item in &story {
        let Item::Event(event, _) = item else { continue };
        objects.see(event);
    }
    assert_eq!((objects.survivors().count(), objects.bytes(), objects.impossible), (0, 0, 0));
}

/// The same in what is read: no source says that there is a block at 0.
#[test]
fn a_reallocation_to_nothing_is_read_as_a_free() {
    let free = What::Free { api: FreeApi::Other, address: 0x5000, touched: None };
    let json = concat!(
        r#"{"schema":"quarry-trace-lines/1"}"#,
        "\n",
        r#"{"time":1,"thread":1,"op":"alloc","size":10,"address":"0x5000"}"#,
        "\n",
        r#"{"time":2,"thread":1,"op":"realloc","old":"0x5000","size":0,"address":"0x0"}"#,
        "\n",
    );
    let mtrace = "= Start\n@ ./a:[0x10] + 0x5000 0xa\n@ ./a:[0x11] < 0x5000\n@ ./a:[0x11] > (nil) 0\n";
    let sources: [Box<dyn Source>; 2] = [
        Box::new(JsonSource::new(input(json.as_bytes())).unwrap()),
        Box::new(MtraceSource::new(input(mtrace.as_bytes()))),
    ];
    for mut source in sources {
        let items = all(&mut *source).unwrap();
        let is_free = |item: &&Item| matches!(item, Item::Event(event, _) if event.what == free);
        let is_realloc =
            |item: &Item| matches!(item, Item::Event(Event { what: What::Realloc { .. }, .. }, _));
        assert_eq!(items.iter().filter(is_free).count(), 1, "{items:?}");
        assert!(!items.iter().any(is_realloc), "{items:?}");
    }
}

#[test]
fn a_row_for_each_event() {
    let (text, _) = csv(&story(), Rows::Events);
    let expected = "\
time_ns,thread,op,api,size,address,align,old_address,took_ns,stack,pool,text
10,1,alloc,malloc,100,4096,,,,7,,
20,1,alloc,memalign,64,8192,4096,,,,,
30,2,realloc,,500,12288,,4096,5,,,
40,2,alloc,new,1,4096,,,,,,
50,2,free,free,,12288,,,,,,
60,1,free,free,,36864,,,,,,
70,1,mark,,,,,,,,,\"a, \"\"b\"\"
c\"
80,2,alloc,malloc,2,4096,,,,,,
90,1,failed,calloc,9,,,,,,,
";
    assert_eq!(text, expected);
    assert!(text.starts_with(FIRST[0]) && csv(&story(), Rows::Objects).0.starts_with(FIRST[1]));
}

/// Objects of a table add up to the trace.
#[test]
fn rows_add_up() {
    for seed in 0..10 {
        let items = scene(seed, 3000, Kind::Rich);
        let (text, losses) = csv(&items, Rows::Objects);
        let count = |wanted: fn(&What) -> bool| {
            items.iter().filter(|item| matches!(item, Item::Event(event, _) if wanted(&event.what))).count()
        };
        let births = count(|what| matches!(what, What::Alloc { .. } | What::Realloc { .. }));
        let rows: Vec<Vec<&str>> = text.lines().skip(1).map(|line| line.split(',').collect()).collect();
        assert_eq!(rows.len(), births);
        let ended = |how| rows.iter().filter(|row| row[14] == how).count();
        assert_eq!(ended("realloc"), count(|what| matches!(what, What::Realloc { .. })));
        assert_eq!(ended("free"), count(|what| matches!(what, What::Free { api: FreeApi::Free, .. })));
        assert_eq!((ended("lost"), losses.count("frees of unknown blocks")), (0, 0));
        let (events, _) = csv(&items, Rows::Events);
        assert!(events.lines().count() > items.iter().filter(|item| matches!(item, Item::Event(..))).count());
    }
}

#[cfg(feature = "parquet")]
mod parquet_tables {
    use super::*;
    use crate::convert::parquet::ParquetTable;
    use ::parquet::column::reader::ColumnReader;
    use ::parquet::file::reader::{FileReader, SerializedFileReader};
    use std::io::Write;

    /// A Parquet file as the lines of the CSV would be, for columns that are no texts; texts as they are.
    fn lines(bytes: &[u8], columns: &[Column]) -> Vec<Vec<String>> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        let mut lines: Vec<Vec<String>> = Vec::new();
        for group in 0..reader.num_row_groups() {
            let group = reader.get_row_group(group).unwrap();
            let rows = usize::try_from(group.metadata().num_rows()).unwrap();
            let first = lines.len();
            lines.resize(first + rows, Vec::new());
            for (index, (name, kind)) in columns.iter().enumerate() {
                assert_eq!(group.metadata().column(index).column_path().string(), *name);
                let cells = match group.get_column_reader(index).unwrap() {
                    ColumnReader::Int64ColumnReader(mut from) => {
                        let (mut values, mut levels) = (Vec::new(), Vec::new());
                        let levels_of = if *kind == Type::Maybe { Some(&mut levels) } else { None };
                        from.read_records(rows, levels_of, None, &mut values).unwrap();
                        spread(values.iter().map(i64::to_string), &levels, rows)
                    }
                    ColumnReader::ByteArrayColumnReader(mut from) => {
                        let (mut values, mut levels) = (Vec::new(), Vec::new());
                        from.read_records(rows, Some(&mut levels), None, &mut values).unwrap();
                        let texts = values.iter().map(|value| value.as_utf8().unwrap().to_owned());
                        spread(texts, &levels, rows)
                    }
                    _ => panic!("a column of another type"),
                };
                for (row, cell) in cells.into_iter().enumerate() {
                    lines[first + row].push(cell);
                }
            }
        }
        lines
    }

    fn spread(mut values: impl Iterator<Item = String>, levels: &[i16], rows: usize) -> Vec<String> {
        let present = |row: usize| levels.get(row).is_none_or(|&level| level == 1);
        (0..rows).map(|row| if present(row) { values.next().unwrap() } else { String::new() }).collect()
    }

    #[test]
    fn parquet_holds_what_csv_holds() {
        for (seed, length, rows) in [
            (1, 2000, Rows::Objects),
            (2, 2000, Rows::Events),
            (3, 0, Rows::Events),
            (4, 8000, Rows::Objects),
        ] {
            // Texts of the scene have commas in them, which csv puts in quotes; so they are left out.
            let mut items = scene(seed, length, Kind::Rich);
            items.retain(|item| {
                !matches!(
                    item,
                    Item::Event(
                        Event {
                            what: What::Mark(_)
                                | What::Exec(_)
                                | What::ThreadName(_)
                                | What::ModuleLoaded { .. }
                                | What::ModuleUnloaded { .. }
                                | What::Pool { what: PoolWhat::Created { .. }, .. },
                            ..
                        },
                        _
                    )
                )
            });
            let mut bytes = Vec::new();
            let mut sink = RowSink::new(ParquetTable::new(&mut bytes, rows).unwrap(), rows, &head());
            give(&mut sink, &items);
            drop(sink);
            let (text, _) = csv(&items, rows);
            let expected: Vec<Vec<String>> =
                text.lines().skip(1).map(|line| line.split(',').map(str::to_owned).collect()).collect();
            let found = lines(&bytes, rows.columns());
            assert_eq!(found.len(), expected.len(), "{rows:?}");
            // The largest number of a failed request is beyond what a column with a sign holds.
            let bound = |cell: &String| {
                if *cell == u64::MAX.to_string() { i64::MAX.to_string() } else { cell.clone() }
            };
            for (found, expected) in found.iter().zip(&expected) {
                assert_eq!(*found, expected.iter().map(bound).collect::<Vec<_>>(), "{rows:?}");
            }
        }
    }
}
