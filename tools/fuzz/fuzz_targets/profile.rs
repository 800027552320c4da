// SPDX-License-Identifier: MIT
//! A profile of massif, gperftools or jemalloc, or something that is none: see `check_profile`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| quarry_fuzz::check_profile(data));
