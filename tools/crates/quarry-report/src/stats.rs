// SPDX-License-Identifier: MIT
//! The report of `quarry stats`: tables and schema.

mod json;
mod text;

pub use json::render as json;
pub use text::{list, process};
