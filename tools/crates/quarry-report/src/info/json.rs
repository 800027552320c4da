// SPDX-License-Identifier: MIT
//! The report as JSON.

use std::rc::Rc;

use quarry_trace::analysis::{Histogram, Zeroed};
use quarry_trace::live::Curve;
use quarry_trace::sample::Estimate;
use serde_json::{Map, Value, json};

use super::{CallSite, Info, Sums, end};

/// The schema of the JSON report.
pub const SCHEMA: &str = "quarry-info/1";

/// An object with sums. Those of a sample have the bounds of their 95 % interval beside them, in the next key.
fn with_sums(info: &Info, mut object: Value, sums: &[(&str, &Estimate)]) -> Value {
    for (name, sum) in sums {
        object[*name] = sum.value().into();
        if info.summary.sampling.is_sample() {
            let (low, high) = sum.interval();
            object[format!("{name}_interval")] = json!([low, high]);
        }
    }
    object
}

/// What a sample cannot tell is null.
fn unless_sampled(info: &Info, value: impl Into<Value>) -> Value {
    if info.summary.sampling.is_sample() { Value::Null } else { value.into() }
}

/// Bars as objects; the last number of a bar is included.
fn bars(histogram: &Histogram, unit: impl Fn(u64) -> u64) -> Value {
    let bars = histogram.filled().map(|index| {
        let (low, high) = Histogram::range(index);
        let bar = histogram.bars[index];
        json!({ "from": unit(low), "to": unit(high), "count": bar.count.value(), "bytes": bar.bytes.value() })
    });
    bars.collect()
}

/// Points as [ns since the first event, highest value since then, value at its end].
fn curve(info: &Info, curve: &Curve) -> Value {
    let ns = |ticks: u64| info.trace.duration_ns(ticks.saturating_sub(info.summary.first));
    curve.points().iter().map(|point| json!([ns(point.time), point.most, point.last])).collect()
}

fn sizes(info: &Info, list: &[(u64, Estimate)]) -> Value {
    list.iter().map(|(size, count)| with_sums(info, json!({ "size": size }), &[("count", count)])).collect()
}

/// Large blocks of calloc.
fn calloc(info: &Info, sums: &Zeroed) -> Value {
    let all = [
        ("count", &sums.count),
        ("bytes", &sums.bytes),
        ("cleared_bytes", &sums.cleared),
        ("ended_bytes", &sums.ended_bytes),
        ("touched_later_bytes", &sums.touched),
    ];
    with_sums(info, json!({ "fresh_bytes": sums.fresh() }), &all)
}

fn sums(info: &Info, object: Value, sums: &Sums) -> Value {
    let Sums { count, bytes, live, live_bytes, peak_bytes, temporary } = sums;
    let all = [
        ("allocations", count),
        ("bytes", bytes),
        ("peak_bytes", peak_bytes),
        ("live_blocks", live),
        ("live_bytes", live_bytes),
    ];
    let mut object = with_sums(info, object, &all);
    object["temporary"] = unless_sampled(info, temporary.value());
    object
}

fn names(frames: &[Rc<str>]) -> Value {
    frames.iter().map(|frame| &**frame).collect()
}

fn site(info: &Info, site: &CallSite) -> Value {
    let mut object = json!({ "frames": names(site.frames()), "stacks": site.stacks.len() });
    if info.all_stacks {
        let stacks = site.stacks.iter();
        object["all_stacks"] =
            stacks.map(|stack| sums(info, json!({ "frames": names(&stack.frames) }), &stack.sums)).collect();
    }
    object["calloc_looked_at"] = calloc(info, &site.zeroed);
    sums(info, object, &site.sums)
}

/// All sites that lead by anything.
fn sites(info: &Info) -> Value {
    let keys: [fn(&CallSite) -> Estimate; 6] = [
        |site| site.sums.bytes,
        |site| site.sums.count,
        |site| site.sums.peak_bytes,
        |site| site.sums.live_bytes,
        |site| site.sums.temporary,
        |site| site.zeroed.bytes,
    ];
    let mut seen: Vec<*const CallSite> = Vec::new();
    let mut list = Vec::new();
    for found in keys.into_iter().flat_map(|key| info.leading(move |site| key(site).value())) {
        if !seen.contains(&std::ptr::from_ref(found)) {
            seen.push(found);
            list.push(site(info, found));
        }
    }
    list.into()
}

fn trace(info: &Info) -> Value {
    let (head, end, summary) = (info.trace.head(), info.trace.end(), info.summary);
    json!({
        "file": info.file,
        "bytes": info.trace.bytes(),
        "bytes_per_event": (summary.events > 0).then(|| info.trace.bytes() as f64 / summary.events as f64),
        "complete": end.is_some_and(|end| end.signal.is_none()) && info.damage.is_empty() && !info.source_damaged,
        "head": head,
        "end": end,
        "process_now": info.now.map(super::Now::word),
    })
}

fn damage(info: &Info) -> Value {
    let place = |place: &quarry_trace::Place| json!({ "offset": place.offset, "bytes": place.bytes, "why": place.why.to_string() });
    json!({
        "places": info.damage.count,
        "bytes": info.damage.bytes,
        "missing_blocks": info.damage.missing,
        "first": info.damage.places.iter().map(place).collect::<Vec<_>>(),
    })
}

fn live(info: &Info) -> Value {
    let summary = info.summary;
    let ns = |ticks: u64| info.trace.duration_ns(ticks.saturating_sub(summary.first));
    let resident = |now: &quarry_trace::analysis::Resident| json!({ "after_ns": ns(now.time), "anonymous_bytes": now.anonymous, "file_bytes": now.file });
    let object = json!({
        "peak_after_ns": ns(summary.peak.time),
        "resident_at_peak": summary.resident_at_peak.as_ref().map(resident),
        "resident_most": summary.resident_peak.as_ref().map(resident),
        "bytes_curve": curve(info, &summary.curve),
        "blocks_curve": curve(info, &summary.objects),
        "resident_curve": curve(info, &summary.resident),
    });
    let sums = [
        ("peak_bytes", &summary.peak.bytes),
        ("peak_blocks", &summary.peak.objects),
        ("peak_after_allocations", &summary.peak.births),
        ("most_blocks", &summary.peak_objects),
        ("end_bytes", &summary.live_bytes),
        ("end_blocks", &summary.live),
    ];
    with_sums(info, object, &sums)
}

fn threads(info: &Info) -> Value {
    let ns = |ticks: u64| info.trace.duration_ns(ticks.saturating_sub(info.summary.first));
    let thread = |thread: &quarry_trace::analysis::ThreadSum| {
        let object = json!({
            "thread": thread.thread,
            "tid": (thread.tid != 0).then_some(thread.tid),
            "name": thread.name,
            "end": super::end::of_thread(info, thread),
            "first_ns": ns(thread.first),
            "last_ns": ns(thread.last),
        });
        let sums = [
            ("allocations", &thread.allocs),
            ("bytes", &thread.bytes),
            ("frees", &thread.frees),
            ("frees_of_others", &thread.foreign_frees),
            ("reallocs", &thread.reallocs),
        ];
        with_sums(info, object, &sums)
    };
    info.summary.threads.iter().map(thread).collect()
}

fn pools(info: &Info) -> Value {
    let pool = |pool: &quarry_trace::analysis::Pool| {
        json!({
            "pool": pool.number,
            "parent": (pool.parent != 0).then_some(pool.parent),
            "kind": pool.kind,
            "name": pool.name,
            "allocations": pool.allocs,
            "bytes": pool.bytes,
            "frees": pool.frees,
            "resizes": pool.resizes,
            "frames_pushed": pool.pushed,
            "frames_popped": pool.popped,
            "frames_sealed": pool.sealed,
            "frames_released": pool.released,
            "emptied": pool.emptied,
            "ended_with_frame": pool.ended,
            "ended_with_pool": pool.dropped,
            "peak_bytes": pool.peak_bytes,
            "peak_blocks": pool.peak_blocks,
            "live_bytes": pool.live_bytes,
            "live_blocks": pool.live,
            "unknown": pool.unknown,
            "allocations_of_live": pool.doubled,
            "most_held_bytes": pool.held,
            "most_used_bytes": pool.used,
            "destroyed": pool.destroyed,
        })
    };
    info.summary.pools.iter().map(pool).collect()
}

/// How blocks were chosen, and what that means for the rest; null if all are in the trace.
fn sample(info: &Info) -> Value {
    let sampling = info.summary.sampling;
    if !sampling.is_sample() {
        return Value::Null;
    }
    let means = info.summary.means;
    json!({
        "mean_bytes": sampling.rate(),
        "mean_bytes_from_to": [means.least, means.most],
        "estimated": true,
        "note": "sums are estimates of the whole: each block counts for 1/(1-exp(-size/mean)), with the mean of its thread at \
                 that time, at first mean_bytes; NAME_interval has the bounds of the 95 % interval of NAME; null is not known \
                 from a sample",
    })
}

fn allocations(info: &Info) -> Value {
    let summary = info.summary;
    let object = json!({
        "distinct_sizes": summary.distinct_sizes,
        "uncounted_sizes": summary.uncounted_sizes,
        "sizes": bars(&summary.sizes, |n| n),
        "top_sizes": sizes(info, &summary.top_sizes),
        "top_sizes_by_bytes": sizes(info, &summary.top_sizes_by_bytes),
    });
    let sums = [
        ("count", &summary.births),
        ("requested_bytes", &summary.requested),
        ("zeroed", &summary.zeroed),
        ("aligned", &summary.aligned),
        ("failed_bytes", &summary.failed_bytes),
    ];
    with_sums(info, object, &sums)
}

fn frees(info: &Info) -> Value {
    let frees = &info.summary.frees;
    let object = json!({
        "temporary": unless_sampled(info, frees.temporary.value()),
        "temporary_bytes": unless_sampled(info, frees.temporary_bytes.value()),
    });
    let sums = [
        ("count", &frees.count),
        ("bytes", &frees.bytes),
        ("by_other_thread", &frees.foreign),
        ("by_other_thread_bytes", &frees.foreign_bytes),
        ("looked_at", &frees.looked_at),
        ("looked_at_bytes", &frees.looked_at_bytes),
        ("resident_bytes", &frees.touched_bytes),
    ];
    with_sums(info, object, &sums)
}

fn reallocs(info: &Info) -> Value {
    let reallocs = &info.summary.reallocs;
    let object = json!({
        "grew": unless_sampled(info, reallocs.grew),
        "shrank": unless_sampled(info, reallocs.shrank),
        "same_size": unless_sampled(info, reallocs.same),
        "copied_bytes": unless_sampled(info, reallocs.copied),
        "ns": info.trace.duration_ns(reallocs.ticks.value()),
    });
    let sums = [("count", &reallocs.count), ("in_place", &reallocs.in_place), ("moved", &reallocs.moved)];
    with_sums(info, object, &sums)
}

/// The report as JSON.
pub fn json(info: &Info) -> Value {
    let summary = info.summary;
    let impossible = &summary.impossible;
    let kinds: Map<String, Value> =
        summary.kinds.iter().map(|(name, count)| ((*name).to_owned(), count.value().into())).collect();
    let (became, tried) = end::execs(info);
    let [other, room, reentered, disk, table] = summary.lost;
    json!({
        "schema": SCHEMA,
        "trace": trace(info),
        "duration_ns": info.duration_ns(),
        "events": summary.events,
        "events_by_kind": kinds,
        "lost": { "events": info.lost(), "no_room": room, "reentered": reentered, "disk_full": disk, "table_full": table, "other": other },
        "damage": damage(info),
        "process": { "forks": summary.notes.forks, "tried": tried, "became": became, "exit_status": summary.notes.exit },
        "sample": sample(info),
        "allocations": allocations(info),
        "lifetimes": {
            "blocks": summary.lifetimes_allocs.count.value(),
            "allocations": bars(&summary.lifetimes_allocs, |n| n),
            "ns": bars(&summary.lifetimes_ticks, |ticks| info.trace.duration_ns(ticks)),
        },
        "frees": frees(info),
        "reallocs": reallocs(info),
        "calloc_looked_at": calloc(info, &summary.calloc),
        "live": live(info),
        "call_sites": sites(info),
        "without_symbols": info.missing,
        "threads": threads(info),
        "pools": pools(info),
        "pool_events": summary.pool_events,
        "marks": summary.notes.marks.iter().map(|(ticks, note)| json!({ "after_ns": info.trace.duration_ns(ticks.saturating_sub(summary.first)), "text": note })).collect::<Vec<_>>(),
        "impossible": {
            "free_of_unknown": impossible.free_of_unknown,
            "realloc_of_unknown": impossible.realloc_of_unknown,
            "alloc_of_live": impossible.alloc_of_live,
            "realloc_to_live": impossible.realloc_to_live,
            "too_many": impossible.full,
        },
    })
}
