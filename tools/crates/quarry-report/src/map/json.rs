// SPDX-License-Identifier: MIT
//! The report as JSON, schema quarry-map/1.

use std::io::{self, Write};

use quarry_proc::cgroup::{Cgroup, Pressure, Version};
use quarry_proc::classify::{Kind, Quadrant};
use quarry_proc::counters::{Field, OtherValue};
use quarry_proc::sum::Sum;
use quarry_proc::{Origin, Space};
use serde_json::{Map, Value, json};

use super::remarks;
use super::view::{Column, View};

/// Write the whole report. Sizes are in bytes; what is not known is null or absent. Of very many mappings only one at a time is
/// made into a value.
pub fn write(view: &View, to: &mut dyn Write) -> io::Result<()> {
    let Value::Object(mut report) = without_mappings(view) else { unreachable!("it is made as an object") };
    report.insert("mappings".into(), Value::Null);
    for (number, (key, value)) in report.iter().enumerate() {
        write!(to, "{}\n  {}: ", if number == 0 { '{' } else { ',' }, Value::from(key.as_str()))?;
        match key.as_str() {
            "mappings" => mappings(view, to)?,
            _ => indented(to, value, "\n  ")?,
        }
    }
    writeln!(to, "\n}}")
}

fn mappings(view: &View, to: &mut dyn Write) -> io::Result<()> {
    let wanted = (0..view.space.mappings.len()).filter(|&index| view.wanted[index]);
    to.write_all(b"[")?;
    let mut many = false;
    for index in wanted {
        to.write_all(if many { b",\n    " } else { b"\n    " })?;
        indented(to, &mapping(view, index), "\n    ")?;
        many = true;
    }
    to.write_all(if many { b"\n  ]" } else { b"]" })
}

/// A value in lines, with this between them. In strings there is no end of a line.
fn indented(to: &mut dyn Write, value: &Value, between: &str) -> io::Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    to.write_all(text.replace('\n', between).as_bytes())
}

fn without_mappings(view: &View) -> Value {
    let space = view.space;
    json!({
        "schema": "quarry-map/1",
        "origin": match space.origin {
            Origin::Live => "live",
            Origin::Folder => "folder",
            Origin::Text => "smaps",
            Origin::Core => "core",
        },
        "pid": space.pid,
        "name": space.name,
        "command": space.command,
        "page_size": space.page,
        "steady": space.steady,
        "total": sum(&view.total),
        "chosen": sum(&view.chosen),
        "quadrants": Quadrant::ALL.map(|quadrant| {
            let mut object = sum(&view.quadrants[quadrant as usize]);
            object["quadrant"] = json!(quadrant.number());
            object["name"] = json!(quadrant.name());
            object["pages"] = json!(view.chosen.pages[quadrant as usize]);
            object
        }),
        "top": top(space),
        "groups": view.rows.iter().map(|row| {
            let mut object = sum(&row.sum);
            object["quadrant"] = json!(row.quadrant.map(Quadrant::number));
            object["kind"] = json!(row.kind.map(Kind::name));
            object["what"] = json!(row.what);
            object["modes"] = json!(row.modes);
            object
        }).collect::<Vec<_>>(),
        "threads": space.tasks.list.iter().map(|task| json!({
            "tid": task.tid,
            "name": task.name,
            "stack_pointer": task.stack_pointer.map(address),
            "ended": task.ended,
        })).collect::<Vec<_>>(),
        "checks": view.checks.iter().map(|line| json!({
            "what": line.what,
            "ours": line.ours,
            "source": line.source,
            "kernel": line.kernel,
            "agrees": line.agrees(),
        })).collect::<Vec<_>>(),
        "cgroup": space.cgroup.as_ref().map(group),
        "remarks": remarks::remarks(view),
        "gaps": remarks::gaps(space, view),
        "damage": space.damage.sentence(),
    })
}

fn address(address: u64) -> String {
    format!("{address:#x}")
}

fn sum(sum: &Sum) -> Value {
    let mut object = Map::new();
    object.insert("count".into(), json!(sum.count));
    for column in Column::ALL {
        object.insert(column.key().into(), json!(column.of(sum)));
    }
    let needs_swap = sum.needs_swap();
    object.insert("dirty_write_back".into(), json!(needs_swap.map(|_| sum.write_back)));
    object.insert("dirty_needs_swap".into(), json!(needs_swap));
    let known = sum.resident().is_some();
    object.insert("rss_anonymous".into(), json!(known.then(|| sum.anonymous())));
    object.insert("rss_file".into(), json!(known.then(|| sum.file())));
    object.insert("rss_shared_memory".into(), json!(known.then_some(sum.shmem)));
    Value::Object(object)
}

/// The columns of top, where their source is known.
fn top(space: &Space) -> Value {
    let pages = |count: u64| count.saturating_mul(space.page);
    let statm = space.statm;
    json!({
        "virt": statm.map(|statm| pages(statm.size)),
        "res": statm.map(|statm| pages(statm.resident)),
        "shr": statm.map(|statm| pages(statm.shared)),
        "code": statm.map(|statm| pages(statm.text)),
        "data": statm.map(|statm| pages(statm.data)),
        "swap": space.status.as_ref().and_then(|status| status.vm_swap),
    })
}

/// A mapping, with all that the kernel counts under the kernel's names.
fn mapping(view: &View, index: usize) -> Value {
    let (mapping, class) = (&view.space.mappings[index], &view.classes[index]);
    let known = Field::ALL.into_iter().filter_map(|field| Some((field, mapping.counters.get(field)?)));
    let others = mapping.others.iter().map(|other| {
        let value = match &other.value {
            OtherValue::Bytes(number) | OtherValue::Number(number) => json!(number),
            OtherValue::Text(text) => json!(**text),
        };
        (String::from(&*other.name), value)
    });
    let counters: Map<String, Value> =
        known.map(|(field, value)| (field.name().into(), json!(value))).chain(others).collect();
    let tasks = &view.space.tasks.list;
    let threads: Vec<u32> =
        class.threads.iter().filter_map(|&number| Some(tasks.get(number as usize)?.tid)).collect();
    let flags = mapping.flags.is_known().then(|| {
        let words = mapping.flags.text();
        words.split(' ').filter(|word| !word.is_empty()).map(String::from).collect::<Vec<_>>()
    });
    json!({
        "start": address(mapping.start),
        "end": address(mapping.end),
        "size": mapping.size(),
        "mode": mapping.perms.to_string(),
        "offset": mapping.offset,
        "device": format!("{:02x}:{:02x}", mapping.device.0, mapping.device.1),
        "inode": mapping.inode,
        "name": *mapping.name,
        "deleted": mapping.deleted,
        "quadrant": class.quadrant.number(),
        "kind": class.kind.name(),
        "object": *class.object,
        "certain": class.certain,
        "sections": class.sections.iter().map(|(name, bytes)| json!({"name": **name, "bytes": bytes})).collect::<Vec<_>>(),
        "threads": threads,
        "counters": counters,
        "flags": flags,
        "dumped": mapping.dumped,
    })
}

fn group(group: &Cgroup) -> Value {
    let pressure = |pressure: &Pressure| {
        json!({
            "some": pressure.some,
            "full": pressure.full,
            "some_total_us": pressure.some_total_us,
            "full_total_us": pressure.full_total_us,
        })
    };
    json!({
        "version": match group.version { Version::V1 => 1, Version::V2 => 2 },
        "path": group.path,
        "memory": group.memory.as_ref().map(|memory| json!({
            "folder": memory.folder,
            "max": memory.max,
            "high": memory.high,
            "tightest": memory.tightest.as_ref().map(|limit| limit.bytes),
            "tightest_used": memory.tightest.as_ref().map(|limit| limit.used),
            "tightest_of": memory.tightest.as_ref().map(|limit| &limit.folder),
            "current": memory.current,
            "peak": memory.peak,
            "swap": memory.swap,
            "stat": memory.stat,
            "events": memory.events,
            "pressure": memory.pressure.as_ref().map(pressure),
        })),
    })
}
