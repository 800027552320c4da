// SPDX-License-Identifier: MIT
//! The report of `quarry explain`: text, schema and page.

mod json;
mod page;
mod text;

pub use json::json;
pub use page::page;
pub use text::report as text;
