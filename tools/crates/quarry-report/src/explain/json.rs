// SPDX-License-Identifier: MIT
//! The explanation as JSON, schema quarry-explain/1.

use quarry_proc::cgroup::{Memory, Pressure};
use serde_json::{Value, json};

use quarry_explain::Look;
use quarry_explain::chain::{Cause, Part};
use quarry_explain::verdict::Verdict;

/// All of it.
pub fn json(look: &Look, verdict: &Verdict, machine: Option<Pressure>) -> Value {
    let status = look.space.status.as_ref();
    let causes: serde_json::Map<String, Value> = Cause::ALL
        .into_iter()
        .map(|cause| (cause.key().to_owned(), Value::from(look.chain.of(cause))))
        .collect();
    let heaps: Vec<Value> = look
        .heaps
        .iter()
        .map(|heap| {
            json!({
                "allocator": heap.allocator.name(),
                "resident_bytes": heap.part.bytes,
                "not_resident_bytes": heap.untouched,
                "arenas": (heap.arenas > 0).then_some(heap.arenas),
                "trimmable_bytes": heap.trimmable,
                "age_s": heap.age,
                "read_again_bytes": heap.again,
                "unread_bytes": heap.unread,
            })
        })
        .collect();
    let memory = look.space.cgroup.as_ref().and_then(|group| group.memory.as_ref());
    json!({
        "schema": "quarry-explain/1",
        "pid": look.space.pid,
        "name": look.space.name,
        "command": look.space.command,
        "resident_bytes": look.chain.bytes,
        "kernel": {
            "statm_resident_bytes": look.space.statm.map(|statm| statm.resident.saturating_mul(look.space.page)),
            "vm_rss_bytes": status.and_then(|status| status.vm_rss),
            "vm_hwm_bytes": status.and_then(|status| status.vm_hwm),
            "vm_swap_bytes": status.and_then(|status| status.vm_swap),
            "hugetlb_bytes": status.and_then(|status| status.hugetlb),
        },
        "chain": part(&look.chain),
        "causes": causes,
        "heaps": heaps,
        "growth": verdict.growth.as_ref().map(|growth| json!({
            "seconds": growth.seconds,
            "bytes": growth.bytes,
            "growing": growth.is_growing(look.chain.bytes),
            "parts": growth.parts.iter().map(|(name, cause, bytes)| {
                json!({ "name": name, "cause": cause.key(), "bytes": bytes })
            }).collect::<Vec<_>>(),
        })),
        "verdict": {
            "main": verdict.main.key(),
            "sentences": verdict.sentences,
            "try": verdict.remedies.iter().map(|remedy| {
                json!({ "what": remedy.what, "effect": remedy.effect, "bytes": remedy.bytes })
            }).collect::<Vec<_>>(),
        },
        "cgroup": memory.map(group),
        "pressure": machine.map(pressure),
        "gaps": look.gaps,
        "stopped_s": look.stopped.map(|time| time.as_secs_f64()),
    })
}

fn part(one: &Part) -> Value {
    json!({
        "key": one.key,
        "name": one.name,
        "bytes": one.bytes,
        "cause": one.cause.key(),
        "source": one.source,
        "parts": one.parts.iter().map(part).collect::<Vec<_>>(),
    })
}

fn group(memory: &Memory) -> Value {
    json!({
        "folder": memory.folder.display().to_string(),
        "current_bytes": memory.current,
        "peak_bytes": memory.peak,
        "max_bytes": memory.max,
        "high_bytes": memory.high,
        "tightest": memory.tightest.as_ref().map(|limit| json!({
            "bytes": limit.bytes,
            "used_bytes": limit.used,
            "folder": limit.folder.display().to_string(),
        })),
        "events": memory.events,
        "pressure": memory.pressure.map(pressure),
    })
}

fn pressure(of: Pressure) -> Value {
    json!({
        "some_percent": of.some,
        "full_percent": of.full,
        "some_total_us": of.some_total_us,
        "full_total_us": of.full_total_us,
    })
}
