// SPDX-License-Identifier: MIT
//! What a first run leaves for a second one: the call sites whose blocks were overwritten by an unknown instruction.

use std::fmt::Write;

use quarry_check::finding::{Finding, Findings};

/// Most lines that the library reads: `SITES` of `src/check/pinpoint.c`.
const SITES: usize = 256;

/// A line for each piece of evidence, as `src/check/pinpoint.h` says: the number of the call site, that of the block, where
/// the block was overwritten, and the side of it that the guard is on.
pub fn lines(findings: &Findings) -> String {
    let mut text = String::new();
    for line in findings.shown().filter_map(line).take(SITES) {
        let _ = writeln!(text, "{line}");
    }
    text
}

fn line(finding: &Finding) -> Option<String> {
    let fault = finding.fault().filter(|fault| fault.evidence)?;
    let block = fault.block.as_ref()?;
    block.alloc.as_ref().filter(|alloc| !alloc.stack.is_empty())?;
    // Of a freed block all pages lose access.
    let side = if fault.offset < 0 { "before" } else { "behind" };
    Some(format!("{:016x} {} {} {side}", block.site, block.ordinal, fault.offset))
}

#[cfg(test)]
mod tests {
    use super::*;
    use quarry_check::finding::Source;
    use quarry_check::names::Namer;
    use quarry_symbols::Places;

    #[test]
    fn only_evidence_is_written() {
        let (mut findings, mut source, mut namer) =
            (Findings::default(), Source::default(), Namer::new(Places::default(), 0));
        let module = r#"{"module":{"id":1,"path":"/x/my prog","build_id":"ab","begin":"0x1000","end":"0x2000","bias":"0x1000"}}"#;
        let error = |offset: i64, state: &str, evidence: bool, pc: &str| {
            format!(
                r#"{{"error":{{"kind":"overflow-write","address":"0x1","evidence":{evidence},"offset":{offset},"stack":[{{"pc":"{pc}"}}],
                   "block":{{"address":"0x1","size":24,"state":"{state}","ordinal":7,
                   "alloc":{{"tid":1,"stack":[{{"pc":"{pc}","module":1}},{{"pc":"0x1234","module":1}}]}}}}}}}}"#
            )
        };
        for line in [
            module.to_owned(),
            error(24, "live", true, "0x1010"),
            error(-4, "live", true, "0x1020"),
            error(4, "freed", true, "0x1030"),
            error(24, "live", false, "0x1040"),
        ] {
            findings.take(&mut source, line.as_bytes(), &mut namer);
        }
        let sites: Vec<u64> =
            (0..3).map(|n| findings.all[n].fault().unwrap().block.as_ref().unwrap().site).collect();
        assert_eq!(
            lines(&findings),
            format!(
                "{:016x} 7 24 behind\n{:016x} 7 -4 before\n{:016x} 7 4 behind\n",
                sites[0], sites[1], sites[2]
            )
        );
        assert!(sites[0] != sites[1] && sites[1] != sites[2] && sites[2] != 0);
    }
}
