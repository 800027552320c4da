// SPDX-License-Identifier: MIT
//! The report of `quarry top`: screens, tables and schema (quarry-top/1).
//!
//! [`Row`] is a process, [`Opened`] one that is looked into, [`Column`] what is shown of them. A [`Frame`] becomes text or JSON; [`draw`] fills a
//! screen with a [`Picture`] as [`Look`](crate::view::Look) wants it. Nothing here reads a process, and nothing writes to a terminal.

mod column;
mod draw;
mod frame;
mod inside;
mod opened;
mod row;

pub use column::{Column, Key, Needs};
pub use draw::{OWN, Picture, draw};
pub use frame::Frame;
pub use opened::{Fact, Opened, Part, facts};
pub use row::{OfRollup, OfStatus, Row};

/// A frame with so many rows reads no more dear files than that to find the largest.
pub fn most(rows: usize) -> usize {
    rows.max(512)
}
