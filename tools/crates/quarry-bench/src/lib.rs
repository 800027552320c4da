// SPDX-License-Identifier: MIT
//! Benchmarks: what there is to measure, running it, and what the figures amount to.
//!
//! [`catalog`] lists the scenarios, [`plan`] makes runs of them, [`session`] runs these round by round and reads what
//! programs say by [`sample`]; [`results`] is what is kept, [`judge`] compares contenders in it, [`baseline`] two
//! results. [`simulation`] makes the files that the replayer plays. [`suite`] runs whole programs. Nothing here prints.

#![deny(unsafe_code)]

pub mod baseline;
pub mod catalog;
pub mod judge;
pub mod plan;
pub mod results;
pub mod sample;
pub mod session;
pub mod simulation;
pub mod suite;
