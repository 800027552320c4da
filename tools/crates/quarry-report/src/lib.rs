// SPDX-License-Identifier: MIT
//! What the quarry tool prints. Nothing here measures, and nothing writes: reports become text or
//! JSON, and the caller decides where that goes.

#![deny(unsafe_code)]

pub mod bars;
pub mod bench;
pub mod chart;
pub mod compare;
mod contest;
pub mod explain;
pub mod fit;
pub mod heap;
pub mod info;
pub mod map;
pub mod page;
pub mod pools;
pub mod record;
pub mod replay;
pub mod run;
pub mod stats;
pub mod style;
pub mod suite;
pub mod svg;
pub mod table;
pub mod top;
pub mod tour;
pub mod view;
pub use quarry_measure::units;
