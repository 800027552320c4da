// SPDX-License-Identifier: MIT
//! Traces that no program made: simulation files, models, imitations; and the way from one format of traces to
//! another.
//!
//! [`ms`] is the file of the allocation simulator, and [`random_ms`] makes such files. [`synth`] makes traces from
//! models, and models from traces; [`dist`] are the distributions it draws from, [`space`] the addresses it
//! gives. [`convert`] reads and writes traces in other formats. Nothing here prints.

#![deny(unsafe_code)]

pub mod convert;
pub mod dist;
mod hash;
pub mod ms;
pub mod names;
pub mod random_ms;
pub mod space;
pub mod synth;
