// SPDX-License-Identifier: MIT
//! Raw reports of quarry check, in pieces as they come, and everything that is made of them.

#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use quarry_check::finding::{Findings, Source};
use quarry_check::lines::Lines;
use quarry_check::names::Namer;
use quarry_check::source::Sources;
use quarry_check::suppress::{Suppressions, Syntax, suppression};
use quarry_check::text::{Ending, Text};
use quarry_check::{json, sarif, xml};
use quarry_symbols::Places;

fuzz_target!(|data: &[u8]| {
    let Some((&first, data)) = data.split_first() else { return };
    let (mut findings, mut source, mut lines) = (Findings::default(), Source::default(), Lines::default());
    // Files of the machine that fuzzes are none of the input's.
    let mut namer = Namer::new(Places::default(), 0);
    namer.without_names();
    for piece in data.chunks(usize::from(first).max(1)) {
        lines.take(piece, |line| {
            findings.take(&mut source, line, &mut namer);
        });
    }
    let mut text = Text::new(Default::default(), Sources::default(), Some(Syntax::Lsan), true);
    for finding in &findings.all {
        text.finding(finding);
        // What is made hides what it was made of, but for what no pattern can say.
        for syntax in [Syntax::Valgrind, Syntax::Lsan] {
            let made = suppression(finding, syntax);
            let _ = Suppressions::default().add(&made);
        }
    }
    let (none, ending) = (Suppressions::default(), Ending::default());
    text.summary(&findings, &none, &ending);
    json::report(&findings, &none, &ending, 0, &mut Sources::default(), true);
    sarif::report(&findings, &none, &ending, Path::new("/"), 0, true);
    let document = xml::report(&findings, &none, xml::Times { end_ms: 1, made: true });
    assert!(document.ends_with("</valgrindoutput>\n"));
});
