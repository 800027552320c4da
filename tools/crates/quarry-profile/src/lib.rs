// SPDX-License-Identifier: MIT
//! Where the memory of a traced program is and was: the model, its views, and what it is exported as.
//!
//! [`read`] makes a [`model::Profile`] of a trace in one pass. [`calls`] gives its call stacks names, [`query`] asks it something, and
//! [`report`] shows the answer as text and JSON. [`diff`] compares profiles, [`gate`] holds them against limits, [`waste`] charges
//! unused bytes of pages to sites. Nothing here prints.

#![deny(unsafe_code)]

pub mod calls;
pub mod closing;
pub mod diff;
mod estimate;
pub mod export;
pub mod gate;
mod graph;
mod groups;
mod growth;
mod json;
pub mod live;
pub mod model;
pub mod page;
pub mod query;
pub mod read;
pub mod report;
pub mod resident;
pub mod tree;
mod verdict;
pub mod waste;

pub use json::SCHEMA;
pub use verdict::Course;
