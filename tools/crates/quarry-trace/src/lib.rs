// SPDX-License-Identifier: MIT
//! Traces of memory allocations: reading, writing, merging, analysing. The format is
//! `docs/trace-format.md`.
//!
//! [`Trace`] is a file that is never trusted: [`Trace::events`] merges its threads into one order
//! ([`Merged`]), and what could not be read is [`Damage`]. [`TraceWriter`] makes a file. [`live::Tracker`]
//! follows the blocks that are alive, [`analysis`] sums up what `quarry info` shows. Nothing here prints.

#![deny(unsafe_code)]

pub mod analysis;
mod block;
pub mod classes;
mod cursor;
mod damage;
mod decode;
mod encode;
mod ending;
mod error;
pub mod event;
pub mod hash;
mod head;
pub mod live;
mod merge;
mod module;
mod pool_blocks;
mod reading;
pub mod sample;
mod scan;
mod source;
mod stacks;
mod texts;
mod trace;
mod wire;
mod writer;

pub use cursor::Counts;
pub use damage::{Damage, Place, Why};
pub use ending::end_cut_off;
pub use error::TraceError;
pub use event::{AllocApi, Event, FreeApi, HiddenChild, PoolWhat, StackId, StackNode, ThreadId, Usage, What};
pub use head::{Counted, End, Head};
pub use merge::{Merged, ThreadEvents};
pub use module::{Function, Module, Segment};
pub use stacks::StackTree;
pub use trace::{ThreadInfo, Trace};
pub use writer::{TraceWriter, WriteOptions};
