// SPDX-License-Identifier: MIT
//! The statistics page: what a process on Quarry says of its memory, read from outside while it runs.
//!
//! [`find`] looks for the pages of a process and says why there is none; [`maker`] tells whether they are its own; [`memory`] is where they are, [`page`] reads one without
//! trusting it; [`sampler`] switches and reads the sampler of a heap; [`refusal`] says what to do where the kernel lets nobody look; [`breakdown`] tells what the resident memory of a heap consists of; [`openmetrics`] writes pages for a scraper.
//! `include/quarry/stats_page.h` is the layout.

pub mod breakdown;
pub mod find;
pub mod maker;
pub mod memory;
pub mod openmetrics;
pub mod page;
pub mod refusal;
pub mod sampler;
pub mod sys;

pub use find::{All, Found, NoPage, all, of_process};
pub use page::{Class, Heap, Page, PageError, Pool, Pools, Range, Sums, Use};
