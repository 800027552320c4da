// SPDX-License-Identifier: MIT
//! What the kernel says of a process's memory, as values.
//!
//! [`Root`] is a /proc, the machine's own or a copy of one; [`Process`] a process in it, or a saved folder. What they
//! read is parsed without trusting a byte: [`smaps`] the mappings with their [`counters`], [`stat`] and [`status`] what
//! tools like top show, [`scan`] these two of all processes, [`task`] the threads, [`cgroup`], [`limits`] and [`mounts`] what surrounds them. [`core_file`] reads
//! the same from a core file.
//!
//! [`Space`] is the address space of one process from any of these; [`classify`] says what each mapping is, with the
//! help of [`elf`]; [`sum`] adds up, and [`check`] compares the sums with the kernel's own. [`last`] runs a command and
//! stops it at its end, when its memory is still there. [`Held`] holds a process for a moment.
//!
//! A process may vanish at any time: that is [`ProcError::Gone`], and no other error. Sizes are in bytes.

pub mod cgroup;
pub mod check;
pub mod classify;
pub mod core_file;
pub mod counters;
pub mod elf;
mod error;
mod hold;
pub mod last;
pub mod limits;
pub mod mallocs;
pub mod mapping;
pub mod mounts;
mod process;
mod root;
pub mod scan;
mod shown;
pub mod smaps;
mod space;
pub mod stat;
pub mod status;
pub mod sum;
mod sys;
pub mod task;
mod text;

pub use error::ProcError;
pub use hold::Held;
pub use process::Process;
pub use root::{MemInfo, Overcommit, Root};
pub use shown::shown;
pub use space::{Known, Origin, Space};
pub use sys::{page_size, ticks_per_second};
