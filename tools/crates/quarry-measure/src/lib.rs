// SPDX-License-Identifier: MIT
//! Runs a program under an allocator and measures it.
//!
//! One module, one idea: [`preload`] puts an allocator under a program, [`elf`] says beforehand why
//! that may not work, [`peers`], [`built`] and [`locate`] find the libraries, [`wish`] those that users name, [`spawn`] runs and measures,
//! [`scratch`] is for what they leave, [`signals`] leaves signals to the program, [`stats`] condenses numbers, [`machine`] says where
//! they were taken, [`units`] writes them for people, [`quantity`] reads those that users write, [`memory`] is for when there is none,
//! [`descriptor`] takes up what was handed to us by number. Nothing here prints.

pub mod built;
pub mod descriptor;
pub mod elf;
pub mod live;
pub mod locate;
pub mod machine;
pub mod memory;
pub mod output;
pub mod packages;
pub mod peers;
pub mod preload;
pub mod program;
pub mod quantity;
pub mod rng;
pub mod scratch;
pub mod signals;
pub mod spawn;
pub mod stats;
mod sys;
pub mod units;
pub mod wish;
pub mod witness;
