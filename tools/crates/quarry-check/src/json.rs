// SPDX-License-Identifier: MIT
//! Findings as JSON, schema quarry-check/1: docs/check.schema.json.

use serde_json::{Value, json};

use crate::finding::{At, Block, Finding, Findings, Process, Stack, What, frames};
use crate::says;
use crate::source::Sources;
use crate::suppress::Suppressions;
use crate::text::Ending;

/// The schema.
pub const SCHEMA: &str = "quarry-check/1";

/// The whole report. `status`: the exit code of the tool. `hint`: what was found later is worth a second run.
pub fn report(
    findings: &Findings,
    suppressions: &Suppressions,
    ending: &Ending,
    status: i32,
    sources: &mut Sources,
    hint: bool,
) -> Value {
    let of = |wanted: bool| findings.all.iter().filter(move |finding| finding.fault().is_some() == wanted);
    json!({
        "schema": SCHEMA,
        "exit_code": status,
        "counted": ending.counted,
        "end": ending.end,
        "processes": findings.processes.iter().map(process).collect::<Vec<_>>(),
        "errors": of(true).map(|it| finding(it, suppressions, sources, hint)).collect::<Vec<_>>(),
        "leaks": of(false).map(|it| finding(it, suppressions, sources, hint)).collect::<Vec<_>>(),
        "suppressions": suppressions.all.iter().filter(|entry| entry.used > 0)
            .map(|entry| json!({"name": entry.name, "used": entry.used})).collect::<Vec<_>>(),
        "notes": findings.notes.iter().map(|(pid, text)| json!({"pid": pid, "text": text}))
            .chain(ending.notes.iter().map(|text| json!({"pid": null, "text": text}))).collect::<Vec<_>>(),
        "without_names": ending.missing,
        "dropped": findings.dropped,
        "damaged_lines": findings.damaged,
    })
}

fn address(address: u64) -> String {
    format!("{address:#x}")
}

fn process(process: &Process) -> Value {
    let begin = &process.begin;
    let scan = process.scan.as_ref().map(|scan| {
        json!({
            "number": scan.number,
            "at": scan.at,
            "pause_ns": scan.pause_ns,
            "total_ns": scan.total_ns,
            "roots_bytes": scan.roots_bytes,
            "heap_bytes": scan.heap_bytes,
            "reachable_bytes": scan.reachable.bytes,
            "reachable_blocks": scan.reachable.blocks,
            "incomplete": scan.incomplete,
        })
    });
    let end = process.end.as_ref().map(|end| {
        json!({
            "how": end.how,
            "status": end.status,
            "errors": end.errors,
            "suppressed_repeats": end.suppressed_repeats,
            "guards": end.guards,
            "quarantine": end.quarantine,
        })
    });
    json!({
        "pid": begin.pid,
        "ppid": begin.ppid,
        "exe": begin.exe,
        "command": begin.command,
        "forked_from": begin.forked_from,
        "second_run": process.second,
        "scan": scan,
        "end": end,
    })
}

fn finding(finding: &Finding, suppressions: &Suppressions, sources: &mut Sources, hint: bool) -> Value {
    let suppressed =
        finding.suppressed.and_then(|index| suppressions.all.get(index)).map(|entry| &entry.name);
    let mut value = json!({
        "number": finding.number,
        "kind": finding.word,
        "message": says::sentence(finding),
        "advice": says::advice(finding, hint),
        "cwe": finding.kind.cwe,
        "count": finding.count,
        "pid": finding.pid,
        "suppressed": suppressed,
        "stack": stack(&finding.stack, sources),
    });
    let more = match &finding.what {
        What::Fault(fault) => json!({
            "function": fault.function,
            "address": address(fault.address),
            "write": fault.write,
            "bytes": fault.bytes,
            "evidence": fault.evidence,
            "offset": fault.block.as_ref().map(|_| fault.offset),
            "detail": fault.detail,
            "thread": {"tid": fault.thread.tid, "name": fault.thread.name},
            "block": fault.block.as_ref().map(|it| block(it, sources)),
        }),
        What::Leak(leak) => json!({
            "bytes": leak.bytes,
            "blocks": leak.blocks,
            "indirect_bytes": leak.indirect_bytes,
            "indirect_blocks": leak.indirect_blocks,
            "scan": leak.scan,
            "example": address(leak.example),
            "family": leak.family,
            "pool": leak.pool,
            "pool_kind": leak.pool_kind,
        }),
    };
    if let (Value::Object(all), Value::Object(more)) = (&mut value, more) {
        all.extend(more);
    }
    value
}

fn block(block: &Block, sources: &mut Sources) -> Value {
    let mut at = |at: &At| json!({"tid": at.tid, "stack": stack(&at.stack, sources)});
    json!({
        "address": address(block.address),
        "size": block.size,
        "family": block.family,
        "pool": block.pool,
        "pool_kind": block.pool_kind,
        "state": if block.freed { "freed" } else { "live" },
        "ordinal": block.ordinal,
        "alloc": block.alloc.as_ref().map(&mut at),
        "free": block.free.as_ref().map(&mut at),
    })
}

fn stack(stack: &Stack, sources: &mut Sources) -> Vec<Value> {
    let mut all = Vec::new();
    for (place, frame) in frames(stack) {
        all.push(json!({
            "pc": address(place.pc),
            "function": frame.function,
            "file": frame.file,
            "line": frame.line,
            "module": frame.module,
            "offset": address(frame.offset),
            "source": sources.line(frame),
        }));
    }
    all
}
