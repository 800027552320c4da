// SPDX-License-Identifier: MIT
//! The report as JSON.

use quarry_trace::analysis::{Histogram, Zeroed};
use quarry_trace::live::Curve;
use serde_json::{Map, Value, json};

use super::{CallSite, Info};

/// The schema of the JSON report.
pub const SCHEMA: &str = "quarry-info/1";

/// Bars as objects; the last number of a bar is included.
fn bars(histogram: &Histogram, unit: impl Fn(u64) -> u64) -> Value {
    let bars = histogram.filled().map(|index| {
        let (low, high) = Histogram::range(index);
        let bar = histogram.bars[index];
        json!({ "from": unit(low), "to": unit(high), "count": bar.count, "bytes": bar.bytes })
    });
    bars.collect()
}

/// Points as [ns since the first event, highest value since then, value at its end].
fn curve(info: &Info, curve: &Curve) -> Value {
    let ns = |ticks: u64| info.trace.duration_ns(ticks.saturating_sub(info.summary.first));
    curve.points().iter().map(|point| json!([ns(point.time), point.most, point.last])).collect()
}

fn sizes(list: &[(u64, u64)]) -> Value {
    list.iter().map(|&(size, count)| json!({ "size": size, "count": count })).collect()
}

/// Large blocks of calloc.
fn calloc(sums: &Zeroed) -> Value {
    json!({
        "count": sums.count,
        "bytes": sums.bytes,
        "fresh_bytes": sums.fresh(),
        "cleared_bytes": sums.cleared,
        "ended_bytes": sums.ended_bytes,
        "touched_later_bytes": sums.touched,
    })
}

fn site(site: &CallSite) -> Value {
    json!({
        "frames": site.frames,
        "stacks": site.stacks,
        "allocations": site.count,
        "bytes": site.bytes,
        "peak_bytes": site.peak_bytes,
        "live_blocks": site.live,
        "live_bytes": site.live_bytes,
        "temporary": site.temporary,
        "calloc_looked_at": calloc(&site.zeroed),
    })
}

/// All sites that lead by anything.
fn sites(info: &Info) -> Value {
    let keys: [fn(&CallSite) -> u64; 6] = [
        |site| site.bytes,
        |site| site.count,
        |site| site.peak_bytes,
        |site| site.live_bytes,
        |site| site.temporary,
        |site| site.zeroed.bytes,
    ];
    let mut seen: Vec<*const CallSite> = Vec::new();
    let mut list = Vec::new();
    for found in keys.into_iter().flat_map(|key| info.leading(key)) {
        if !seen.contains(&std::ptr::from_ref(found)) {
            seen.push(found);
            list.push(site(found));
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
        "complete": end.is_some_and(|end| end.signal.is_none()) && info.damage.is_empty(),
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
    json!({
        "peak_bytes": summary.peak.bytes,
        "peak_blocks": summary.peak.objects,
        "peak_after_ns": ns(summary.peak.time),
        "peak_after_allocations": summary.peak.births,
        "most_blocks": summary.peak_objects,
        "end_bytes": summary.live_bytes,
        "end_blocks": summary.live,
        "resident_at_peak": summary.resident_at_peak.as_ref().map(resident),
        "resident_most": summary.resident_peak.as_ref().map(resident),
        "bytes_curve": curve(info, &summary.curve),
        "blocks_curve": curve(info, &summary.objects),
        "resident_curve": curve(info, &summary.resident),
    })
}

fn threads(info: &Info) -> Value {
    let ns = |ticks: u64| info.trace.duration_ns(ticks.saturating_sub(info.summary.first));
    let thread = |thread: &quarry_trace::analysis::ThreadSum| {
        json!({
            "thread": thread.thread,
            "tid": (thread.tid != 0).then_some(thread.tid),
            "name": thread.name,
            "end": super::end::of_thread(info, thread),
            "allocations": thread.allocs,
            "bytes": thread.bytes,
            "frees": thread.frees,
            "frees_of_others": thread.foreign_frees,
            "reallocs": thread.reallocs,
            "first_ns": ns(thread.first),
            "last_ns": ns(thread.last),
        })
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

/// The report as JSON.
pub fn json(info: &Info) -> Value {
    let summary = info.summary;
    let (frees, reallocs, impossible) = (&summary.frees, &summary.reallocs, &summary.impossible);
    let kinds: Map<String, Value> =
        summary.kinds.iter().map(|&(name, count)| (name.to_owned(), count.into())).collect();
    let [other, room, reentered, disk, table] = summary.lost;
    json!({
        "schema": SCHEMA,
        "trace": trace(info),
        "duration_ns": info.duration_ns(),
        "events": summary.events,
        "events_by_kind": kinds,
        "lost": { "events": info.lost(), "no_room": room, "reentered": reentered, "disk_full": disk, "table_full": table, "other": other },
        "damage": damage(info),
        "process": { "forks": summary.notes.forks, "execs": summary.notes.execs, "exit_status": summary.notes.exit },
        "allocations": {
            "count": summary.births,
            "requested_bytes": summary.requested,
            "zeroed": summary.zeroed,
            "aligned": summary.aligned,
            "failed_bytes": summary.failed_bytes,
            "distinct_sizes": summary.distinct_sizes,
            "uncounted_sizes": summary.uncounted_sizes,
            "sizes": bars(&summary.sizes, |n| n),
            "top_sizes": sizes(&summary.top_sizes),
            "top_sizes_by_bytes": sizes(&summary.top_sizes_by_bytes),
        },
        "lifetimes": {
            "blocks": summary.lifetimes_allocs.count,
            "allocations": bars(&summary.lifetimes_allocs, |n| n),
            "ns": bars(&summary.lifetimes_ticks, |ticks| info.trace.duration_ns(ticks)),
        },
        "frees": {
            "count": frees.count,
            "bytes": frees.bytes,
            "by_other_thread": frees.foreign,
            "by_other_thread_bytes": frees.foreign_bytes,
            "temporary": frees.temporary,
            "temporary_bytes": frees.temporary_bytes,
            "looked_at": frees.looked_at,
            "looked_at_bytes": frees.looked_at_bytes,
            "resident_bytes": frees.touched_bytes,
        },
        "reallocs": {
            "count": reallocs.count,
            "in_place": reallocs.in_place,
            "moved": reallocs.moved,
            "grew": reallocs.grew,
            "shrank": reallocs.shrank,
            "same_size": reallocs.same,
            "copied_bytes": reallocs.copied,
            "ns": info.trace.duration_ns(reallocs.ticks),
        },
        "calloc_looked_at": calloc(&summary.calloc),
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
