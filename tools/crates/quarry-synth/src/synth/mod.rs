// SPDX-License-Identifier: MIT
//! Synthetic traces: [`model`] says what they are made of, [`engine`] makes them, [`fit`] finds the model that
//! imitates a trace, and [`profile`] says how well it does.

mod birth;
mod calendar;
pub mod engine;
pub mod fit;
pub mod model;
pub mod objects;
pub mod profile;

pub use engine::Engine;
pub use fit::{Fit, fit};
pub use model::Model;
pub use profile::{Distance, Profile};

#[cfg(test)]
mod tests;
