// SPDX-License-Identifier: MIT
//! Why a process has as much memory as it has.
//!
//! [`look()`] reads a process once. [`chain`] is the result: the kernel's figure, and parts that always add up to that figure.
//! [`heaps`] finds heaps and their parts. [`glibc`] and [`tcmalloc`] read heaps of these allocators from outside, through
//! [`peek`]. [`verdict`] says what the parts mean, and `runtime` which language maps memory
//! past every heap.
//!
//! The memory of another process is hostile input. Nothing in that memory is believed: no content leads to a panic, to a
//! loop without end, or to more memory here than a small part of what the process has.

#![deny(unsafe_code)]

pub mod chain;
pub mod glibc;
pub mod heaps;
pub mod look;
pub mod peek;
mod runtime;
pub mod tcmalloc;
pub mod verdict;

pub use look::{Look, look};
