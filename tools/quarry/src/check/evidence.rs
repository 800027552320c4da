// SPDX-License-Identifier: MIT
//! What a first run leaves for a second one: the call sites whose blocks were overwritten by an unknown instruction.

use std::fmt::Write;

use quarry_check::finding::{Finding, Findings};

/// Frames that tell a call site.
const FRAMES: usize = 8;

/// A line for each piece of evidence: the side, the number of the block at its site, its size, and the site.
pub fn lines(findings: &Findings) -> String {
    let mut text = String::new();
    for finding in findings.shown() {
        let _ = line(finding).map(|line| writeln!(text, "{line}"));
    }
    text
}

fn line(finding: &Finding) -> Option<String> {
    let fault = finding.fault().filter(|fault| fault.evidence)?;
    let block = fault.block.as_ref()?;
    let alloc = block.alloc.as_ref().filter(|alloc| !alloc.stack.is_empty())?;
    let side = match fault.offset {
        _ if block.freed => "freed",
        ..0 => "before",
        _ => "after",
    };
    let mut line = format!("{side} {} {}", block.ordinal, block.size);
    for place in alloc.stack.iter().take(FRAMES) {
        // A name with a space would be two fields.
        let name = place.frames[0].module_name().replace(' ', "?");
        let _ = write!(line, " {:#x}@{name}", place.key.1);
    }
    Some(line)
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
        assert_eq!(
            lines(&findings),
            "after 7 24 0x10@my?prog 0x234@my?prog\nbefore 7 24 0x20@my?prog 0x234@my?prog\nfreed 7 24 0x30@my?prog 0x234@my?prog\n"
        );
    }
}
