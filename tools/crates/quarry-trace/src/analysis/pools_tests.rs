// SPDX-License-Identifier: MIT
//! Blocks of pools, and how they end.

use super::*;

fn made(address: u64, size: u64) -> PoolWhat {
    PoolWhat::Alloc { size, address, align: 4, stack: 0 }
}

fn freed(address: u64) -> PoolWhat {
    PoolWhat::Free { address }
}

fn resized(old: u64, size: u64, new: u64) -> PoolWhat {
    PoolWhat::Resized { old, size, new, stack: 0 }
}

fn after(events: impl IntoIterator<Item = PoolWhat>) -> Pool {
    let mut pools: Pools = Pools::default();
    pools.add(
        7,
        &PoolWhat::Created { parent: 3, kind: "stack".into(), name: "x".repeat(200) },
        (),
        &mut |_| {},
    );
    events.into_iter().for_each(|what| _ = pools.add(7, &what, (), &mut |_| {}));
    let mut pools = pools.finish();
    assert_eq!(pools.len(), 1);
    pools.remove(0)
}

#[test]
fn blocks_that_are_freed() {
    let pool = after([made(16, 100), made(32, 50), freed(16), resized(32, 70, 32), resized(32, 80, 16)]);
    assert_eq!((pool.number, pool.parent, pool.kind.as_str(), pool.name.len()), (7, 3, "stack", NAME));
    assert_eq!((pool.allocs, pool.frees, pool.resizes, pool.bytes), (2, 1, 2, 300));
    assert_eq!((pool.live, pool.live_bytes, pool.peak_bytes, pool.peak_blocks), (1, 80, 150, 2));
    assert_eq!((pool.ended, pool.dropped, pool.unknown, pool.doubled), (0, 0, 0, 0));
}

#[test]
fn frames_end_what_was_made_in_them() {
    use PoolWhat::{Popped, Pushed};
    let pool = after([
        made(1, 1),
        Pushed,
        made(2, 2),
        Pushed,
        made(3, 4),
        resized(3, 8, 4),
        Popped,
        made(3, 16),
        resized(3, 32, 3),
        Popped,
    ]);
    assert_eq!((pool.pushed, pool.popped, pool.ended, pool.live, pool.live_bytes), (2, 2, 3, 1, 1));
    assert_eq!((pool.peak_bytes, pool.peak_blocks), (35, 3));
}

#[test]
fn frames_that_are_sealed_end_in_any_order() {
    use PoolWhat::{Pushed, Released, Sealed};
    let pool = after([
        Pushed,
        made(1, 1),
        made(2, 2),
        freed(2), // a rewind
        Sealed { cookie: 10 },
        Pushed,
        made(2, 4),
        Sealed { cookie: 11 },
        Pushed,
        made(3, 8),
        Released { cookie: 11 },
        Released { cookie: 12 },
    ]);
    assert_eq!((pool.ended, pool.frees, pool.live, pool.live_bytes, pool.unknown), (1, 1, 2, 9, 1));
}

#[test]
fn a_long_frame_needs_memory_for_live_blocks_only() {
    let mut state = State::<()>::of(7);
    state.add(&PoolWhat::Pushed, (), &mut |_| {});
    for i in 0..100_000 {
        state.add(&made(i % 1000 * 16, 1), (), &mut |_| {});
        state.add(&freed(i % 1000 * 16), (), &mut |_| {});
    }
    state.add(&made(16, 5), (), &mut |_| {});
    assert!(state.open[0].addresses.capacity() <= 4 * FEW);
    state.add(&PoolWhat::Popped, (), &mut |_| {});
    assert_eq!((state.pool.ended, state.pool.live_bytes, state.blocks.len()), (1, 0, 0));
}

#[test]
fn the_end_of_a_pool_is_that_of_its_blocks() {
    use PoolWhat::{Destroyed, Emptied, Popped, Pushed};
    let pool = after([made(1, 1), Pushed, made(2, 2), Emptied, made(2, 4), Popped, made(5, 5), Destroyed]);
    assert_eq!((pool.dropped, pool.ended, pool.live, pool.live_bytes), (3, 1, 0, 0));
    assert!(pool.destroyed);
}

#[test]
fn what_cannot_be_is_counted() {
    let pool = after([freed(1), resized(2, 9, 3), PoolWhat::Popped, PoolWhat::Sealed { cookie: 1 }]);
    assert_eq!((pool.unknown, pool.doubled, pool.live_bytes), (4, 0, 9));
    let pool = after([made(1, 5), made(1, 7)]);
    assert_eq!((pool.unknown, pool.doubled, pool.live_bytes, pool.live), (0, 1, 7, 1));
}
