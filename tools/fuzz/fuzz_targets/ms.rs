// SPDX-License-Identifier: MIT
//! A simulation file, or something that is not: see `check`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use quarry_synth::convert::Format;

fuzz_target!(|data: &[u8]| quarry_fuzz::check(Format::Ms, data));
