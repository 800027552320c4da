// SPDX-License-Identifier: MIT
//! The statistics as JSON, schema quarry-stats/1.

use quarry_stats::breakdown::heap_breakdown;
use quarry_stats::{Class, Found, Heap, Page, Pool, Pools, Range, Use};
use serde_json::{Map, Value, json};

/// All processes.
pub fn render(found: &[Found]) -> Value {
    let processes: Vec<Value> = found.iter().map(process).collect();
    json!({ "schema": "quarry-stats/1", "processes": processes })
}

/// Seconds that have passed since a time of the page.
fn age(now: u64, at: u64) -> f64 {
    now.saturating_sub(at) as f64 / 1e9
}

fn process(found: &Found) -> Value {
    let pages: Vec<Value> = found.pages.iter().map(|one| page(one, found.read_ns)).collect();
    let parts: Map<String, Value> = heap_breakdown(&found.pages, None)
        .parts()
        .into_iter()
        .map(|(key, bytes, _)| (format!("{key}_bytes"), Value::from(bytes)))
        .collect();
    json!({ "pid": found.pid, "program": found.program, "estimate": parts, "pages": pages })
}

fn page(page: &Page, now: u64) -> Value {
    json!({
        "library": page.library(),
        "version": page.version,
        "pid": page.pid,
        "age_s": age(now, page.born_ns),
        "heap": page.heap.as_ref().map(|heap| self::heap(heap, now)),
        "pools": page.pools.as_ref().map(|pools| self::pools(pools, now)),
    })
}

fn heap(heap: &Heap, now: u64) -> Value {
    let sums = heap.sums.map(|sums| {
        let mut fields: Map<String, Value> = sums
            .fields()
            .into_iter()
            .filter(|(name, _)| !name.ends_with("_ns"))
            .map(|(name, value)| (name.to_owned(), Value::from(value)))
            .collect();
        fields.insert(String::from("live_bytes"), Value::from(sums.live_bytes()));
        fields.insert(String::from("age_s"), Value::from(age(now, sums.at_ns)));
        Value::Object(fields)
    });
    let classes: Vec<Value> = heap.classes.iter().map(class).collect();
    let ranges: Vec<Value> = heap.ranges.iter().map(range).collect();
    let classes_age = (heap.classes_at_ns > 0).then(|| age(now, heap.classes_at_ns));
    json!({
        "sums": sums,
        "classes": classes,
        "ranges": ranges,
        "ranges_missing_bytes": heap.ranges_missing_bytes,
        "classes_age_s": classes_age,
        "skipped": heap.skipped,
    })
}

fn range(range: &Range) -> Value {
    let used = match range.used {
        Use::Blocks => "blocks",
        Use::Huge => "huge",
        Use::Metadata => "metadata",
        Use::Other => "other",
    };
    json!({ "base": format!("{:#x}", range.base), "bytes": range.bytes, "use": used })
}

fn class(class: &Class) -> Value {
    json!({
        "block_bytes": class.block_bytes,
        "slabs": class.slabs,
        "slabs_bytes": class.slabs_bytes,
        "out_blocks": class.out_blocks,
        "free_blocks": class.free_blocks,
        "purged_blocks": class.purged_blocks,
        "fresh_bytes": class.fresh_bytes,
    })
}

fn pools(pools: &Pools, now: u64) -> Value {
    let named: Vec<Value> = pools.pools.iter().map(|one| pool(one, now)).collect();
    json!({
        "pools": named,
        "others": pools.others,
        "others_held_bytes": pools.others_held_bytes,
        "unreadable": pools.busy,
    })
}

fn pool(pool: &Pool, now: u64) -> Value {
    json!({
        "kind": pool.kind,
        "name": pool.name,
        "age_s": age(now, pool.at_ns),
        "held_bytes": pool.held_bytes,
        "peak_held_bytes": pool.peak_held_bytes,
        "limit_bytes": (pool.limit_bytes > 0).then_some(pool.limit_bytes),
        "used_bytes": pool.used_bytes,
        "requested_bytes": pool.requested_bytes,
        "allocs": pool.calls.map(|calls| calls[0]),
        "frees": pool.calls.map(|calls| calls[1]),
        "resizes": pool.calls.map(|calls| calls[2]),
        "slow_calls": pool.slow_calls,
        "chunk_gets": pool.chunk_gets,
        "chunk_puts": pool.chunk_puts,
        "slow_ns": pool.slow_ns,
    })
}
