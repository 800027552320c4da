// SPDX-License-Identifier: MIT
//! Memory errors that `libquarry-check.so` has found: lines of its files ([`raw`], [`lines`]) become findings with names
//! ([`finding`], [`names`]), some of which are not wanted ([`suppress`]), and the others are shown ([`text`], [`json`], [`xml`],
//! [`sarif`]). The files are written by programs whose memory is damaged: all that is kept of them has a bound.

#![deny(unsafe_code)]

pub mod finding;
pub mod json;
pub mod kinds;
pub mod lines;
pub mod names;
pub mod raw;
pub mod sarif;
pub mod says;
pub mod source;
pub mod suppress;
pub mod text;
pub mod xml;
