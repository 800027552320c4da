// SPDX-License-Identifier: MIT
//! System V segments: the memory of a page. The only file of this crate with unsafe code.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory that somebody else may be writing to.
pub trait Memory {
    /// How many words there are.
    fn words(&self) -> usize;
    /// One of them. Those that are loaded later are not older.
    fn load(&self, index: usize) -> u64;
}

impl Memory for [u64] {
    fn words(&self) -> usize {
        self.len()
    }

    fn load(&self, index: usize) -> u64 {
        self[index]
    }
}

/// A segment, attached for reading.
pub struct Segment {
    base: NonNull<AtomicU64>,
    words: usize,
}

impl Segment {
    /// Attach the segment with this number. It stays as long as it is attached, whatever becomes of its owner.
    pub fn attach(id: i32) -> io::Result<Self> {
        // SAFETY: the kernel chooses the place.
        let base = unsafe { libc::shmat(id, std::ptr::null(), libc::SHM_RDONLY) };
        if base as isize == -1 {
            return Err(io::Error::last_os_error());
        }
        let Some(base) = NonNull::new(base.cast::<AtomicU64>()) else {
            return Err(io::Error::other("the kernel attached a segment at address 0"));
        };
        let mut segment = Self { base, words: 0 };
        // SAFETY: a structure of integers, for which zero is a value.
        let mut status: libc::shmid_ds = unsafe { std::mem::zeroed() };
        // SAFETY: `status` is writable and of the type that IPC_STAT fills.
        if unsafe { libc::shmctl(id, libc::IPC_STAT, &mut status) } < 0 {
            return Err(io::Error::last_os_error());
        }
        segment.words = status.shm_segsz / size_of::<u64>();
        Ok(segment)
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: `base` is where shmat attached it, and nothing refers to its memory any more.
        unsafe { libc::shmdt(self.base.as_ptr().cast()) };
    }
}

impl Memory for Segment {
    fn words(&self) -> usize {
        self.words
    }

    fn load(&self, index: usize) -> u64 {
        assert!(index < self.words, "a word outside of the segment");
        // SAFETY: within the segment, whose size never changes, and at a multiple of the word's size from a page's start.
        // Other processes write it by atomic stores, and could not do more than change its value if they did not.
        unsafe { self.base.add(index).as_ref() }.load(Ordering::Acquire)
    }
}

/// Run `work` with the System V segments of another namespace in view: that of this file below /proc/PID/ns. Takes the
/// right to change namespaces.
pub fn in_namespace<T: Send>(namespace: &Path, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let file = File::open(namespace)?;
    // A thread of its own: a namespace belongs to a thread, and this one ends with it.
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: takes integers; changes what this thread sees.
            if unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWIPC) } < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(work())
        });
        thread.join().unwrap_or_else(|_| Err(io::Error::other("reading in another namespace failed")))
    })
}

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
