// SPDX-License-Identifier: MIT
//! The log of pools, which a program writes under `QUARRY_CONF=pool_log:FILE`; `docs/pool-log.md`
//! describes the file.
//!
//! [`record`] is one record of 64 bytes, [`reader`] a stream of them that is never trusted,
//! [`series`] a pool's course in bounded memory, [`summary`] what a log says about each pool.
//! Nothing here prints.

#![deny(unsafe_code)]

pub mod reader;
pub mod record;
pub mod series;
pub mod summary;
