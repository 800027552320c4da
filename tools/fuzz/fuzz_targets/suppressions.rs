// SPDX-License-Identifier: MIT
//! Files of suppressions, held against a finding.

#![no_main]

use libfuzzer_sys::fuzz_target;
use quarry_check::finding::{Findings, Source};
use quarry_check::names::Namer;
use quarry_check::suppress::Suppressions;
use quarry_symbols::Places;

const ERROR: &[u8] = br#"{"error":{"kind":"double-free","function":"free","address":"0x10","stack":[{"pc":"0x1"},{"pc":"0x2"},{"pc":"0x3"}]}}"#;
const LEAK: &[u8] = br#"{"leak":{"kind":"leak-definite","bytes":1,"blocks":1,"example":"0x1","family":"malloc","stack":[{"pc":"0x1"}]}}"#;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let mut all = Suppressions::default();
    let read = all.add(&text);
    if let Err(fault) = &read {
        assert!(fault.line >= 1 && fault.line <= text.lines().count() + 1, "{fault}");
    }
    let (mut findings, mut source, mut namer) = (Findings::default(), Source::default(), Namer::new(Places::default(), 0));
    for line in [ERROR, LEAK] {
        findings.take(&mut source, line, &mut namer);
    }
    for finding in &findings.all {
        let hidden = all.hides(finding);
        assert!(hidden.is_none_or(|index| index < all.all.len()));
    }
});
