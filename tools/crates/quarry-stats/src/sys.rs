// SPDX-License-Identifier: MIT
//! The user and the clocks. The only file of this crate with unsafe code.

/// The user that this process acts as.
pub fn user() -> u32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// Now, as pages date their numbers: nanoseconds of CLOCK_MONOTONIC.
pub fn now_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// How long the machine slept since it was started, or a little more: that clock stands still then.
pub fn asleep_ns() -> u64 {
    let awake = now_ns();
    clock_ns(libc::CLOCK_BOOTTIME).saturating_sub(awake)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable.
    if unsafe { libc::clock_gettime(clock, &mut time) } < 0 {
        return 0;
    }
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}
