// SPDX-License-Identifier: MIT
//! What the views on a terminal share: a table of columns, a cursor in it, a line of keys, and a help.
//!
//! A view names its columns ([`Heading`]) and keeps what the user wants to see of it ([`Look`]). Each part writes on a screen by a
//! [`Pen`]. Nothing here reads a process, and nothing writes to a terminal.

mod cells;
mod heading;
mod help;
mod keys;
mod look;
mod page;
mod pen;
mod table;

pub use cells::{change, known, rate, size};
pub use heading::{Heading, fitting, line_of};
pub use help::help;
#[cfg(test)]
pub(crate) use help::help_lines;
pub use keys::{Binding, COMMON};
pub use look::{Look, Order};
pub use page::Page;
pub use pen::Pen;
pub use table::{AROUND, Line, is_too_small, last_line, table, title};
