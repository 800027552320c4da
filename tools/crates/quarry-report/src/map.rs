// SPDX-License-Identifier: MIT
//! The report of `quarry map`: tables, pictures, schema, page, and the lines of pmap.

mod json;
mod page;
mod picture;
mod pmap;
mod regions;
mod remarks;
mod table;
mod text;
mod view;

pub use json::write as json;
pub use page::page;
pub use picture::{svg, text as picture};
pub use pmap::{all_fields, extended};
pub use remarks::gaps;
pub use text::{Numbers, report as text};
pub use view::{Column, Sort, View, Wanted, what};
