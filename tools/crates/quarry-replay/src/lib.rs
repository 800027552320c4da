// SPDX-License-Identifier: MIT
//! Plays traces of memory allocations on any allocator.
//!
//! [`compile`] and [`simulation`] turn a trace or a `.ms` file into a plan by means of a [`builder`]; [`plan`] is
//! the file that comes out. [`session`] has a C program play it under one allocator after the other, round by
//! round, and [`result`] is what this program says. Nothing here prints.

#![deny(unsafe_code)]

pub mod builder;
pub mod compile;
pub mod handed;
mod hash;
mod lives;
pub mod plan;
pub mod predict;
pub mod result;
pub mod session;
pub mod simulation;
mod slots;
mod survey;

#[cfg(test)]
mod check;
