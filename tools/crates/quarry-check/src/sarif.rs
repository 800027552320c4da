// SPDX-License-Identifier: MIT
//! Findings in the Static Analysis Results Interchange Format, version 2.1.0, which code hosts show beside the code.

use std::path::Path;

use quarry_symbols::Frame;
use serde_json::{Value, json};

use crate::finding::{Finding, Findings, Stack, frames};
use crate::kinds::{self, About};
use crate::says;
use crate::suppress::Suppressions;
use crate::text::Ending;

/// The whole log. Files below `folder` are named relative to it.
/// `hint`: what was found later is worth a second run.
pub fn report(
    findings: &Findings,
    suppressions: &Suppressions,
    ending: &Ending,
    folder: &Path,
    status: i32,
    hint: bool,
) -> Value {
    let rules: Vec<Value> = kinds::ALL
        .iter()
        .map(|kind| {
            json!({
                "id": kind.word,
                "shortDescription": {"text": kind.means},
                "help": {"text": kind.advice},
                "helpUri": format!("https://cwe.mitre.org/data/definitions/{}.html", kind.cwe),
                "defaultConfiguration": {"level": level(kind.word)},
                "properties": {"tags": ["memory", format!("external/cwe/cwe-{}", kind.cwe)]},
            })
        })
        .collect();
    let results: Vec<Value> = findings.all.iter().map(|it| result(it, suppressions, folder, hint)).collect();
    let texts = findings.notes.iter().map(|(_, text)| text).chain(&ending.notes);
    let notes: Vec<Value> = texts.map(|text| json!({"level": "note", "message": {"text": text}})).collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "quarry check",
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            }},
            "invocations": [{
                "executionSuccessful": !ending.failed,
                "exitCode": status,
                "toolExecutionNotifications": notes,
            }],
            "originalUriBaseIds": {"ROOT": {"uri": uri(folder, true)}},
            "results": results,
        }],
    })
}

fn level(word: &str) -> &'static str {
    match word {
        "leak-reachable" => "note",
        "leak-possible" | "leak-indirect" | "leak-growing" => "warning",
        _ => "error",
    }
}

fn uri(path: &Path, folder: bool) -> String {
    let mut all = String::from("file://");
    all += &percent(&path.to_string_lossy());
    if folder && !all.ends_with('/') {
        all.push('/');
    }
    all
}

/// What a URI cannot have is written as its bytes.
fn percent(path: &str) -> String {
    let mut all = String::new();
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' | b'+' => {
                all.push(char::from(byte))
            }
            other => all += &format!("%{other:02X}"),
        }
    }
    all
}

fn artifact(file: &str, folder: &Path) -> Value {
    match Path::new(file).strip_prefix(folder) {
        Ok(below) => json!({"uri": percent(&below.to_string_lossy()), "uriBaseId": "ROOT"}),
        Err(_) if file.starts_with('/') => json!({"uri": uri(Path::new(file), false)}),
        Err(_) => json!({"uri": percent(file)}),
    }
}

fn location(frame: &Frame, folder: &Path) -> Value {
    let mut value = json!({"message": {"text": frame.text()}});
    if let Some(function) = &frame.function {
        value["logicalLocations"] = json!([{"fullyQualifiedName": function, "kind": "function"}]);
    }
    if let Some(file) = &frame.file {
        value["physicalLocation"] = json!({"artifactLocation": artifact(file, folder)});
        // Lines begin at 1 there.
        if let Some(line) = frame.line.filter(|line| *line > 0) {
            value["physicalLocation"]["region"] = json!({"startLine": line});
        }
    }
    value
}

fn stack(stack: &Stack, about: &str, folder: &Path) -> Value {
    let frames: Vec<Value> = frames(stack)
        .map(|(place, frame)| {
            json!({
                "location": location(frame, folder),
                "module": frame.module,
                // An integer of JSON readers has 53 bits.
                "parameters": [format!("{:#x}", place.pc)],
            })
        })
        .collect();
    json!({"message": {"text": about}, "frames": frames})
}

/// Whose source it is: 0: it lies below `folder`; 1: elsewhere; 2: it is one of the system; 3: no line is known.
fn foreignness(frame: &Frame, folder: &Path) -> u32 {
    let Some(file) = frame.file.as_deref().filter(|_| frame.line.is_some()) else { return 3 };
    if Path::new(file).starts_with(folder) || (Path::new(file).is_relative() && folder.join(file).is_file()) {
        return 0;
    }
    // Libraries of a distribution name their sources relative to a folder that is not here, as `./stdlib/exit.c`.
    let is_of_system = ["/usr/", "/build/", "/rustc/", "./", "../"].iter().any(|it| file.starts_with(it));
    1 + u32::from(is_of_system)
}

/// The innermost of the places that are the least foreign.
fn main_place<'a>(stack: &'a Stack, folder: &Path) -> Option<&'a Frame> {
    frames(stack).map(|(_, frame)| frame).min_by_key(|frame| foreignness(frame, folder))
}

/// Where a code host shows the finding. One that was found at the end of the process is shown where its block was freed,
/// or made.
fn shown_at<'a>(finding: &'a Finding, folder: &Path) -> Option<&'a Frame> {
    let place = main_place(&finding.stack, folder);
    let block = finding.fault().filter(|fault| fault.evidence).and_then(|fault| fault.block.as_ref());
    let others = block.map(|block| [&block.free, &block.alloc]).into_iter().flatten().flatten();
    let places = place.into_iter().chain(others.filter_map(|at| main_place(&at.stack, folder)));
    places.min_by_key(|frame| foreignness(frame, folder))
}

fn result(finding: &Finding, suppressions: &Suppressions, folder: &Path, hint: bool) -> Value {
    let block = finding.fault().and_then(|fault| fault.block.as_ref());
    let mut stacks = vec![stack(&finding.stack, "the error", folder)];
    let mut related = Vec::new();
    let ats = block.map(|block| [("freed here", &block.free), ("allocated here", &block.alloc)]);
    for (what, at) in ats.into_iter().flatten() {
        if let Some(at) = at {
            stacks.push(stack(&at.stack, what, folder));
            if let Some(frame) = main_place(&at.stack, folder) {
                let mut place = location(frame, folder);
                place["message"] = json!({"text": what});
                related.push(place);
            }
        }
    }
    let rule = kinds::ALL.iter().position(|kind| kind.word == finding.kind.word).unwrap_or(0);
    let place = shown_at(finding, folder);
    let mut value = json!({
        "ruleId": finding.kind.word,
        "ruleIndex": rule,
        "level": level(finding.kind.word),
        "message": {"text": format!("{}. {}", says::sentence(finding), says::advice(finding, hint))},
        "locations": place.map(|frame| vec![location(frame, folder)]).unwrap_or_default(),
        "stacks": stacks,
        "relatedLocations": related,
        "occurrenceCount": finding.count,
        "partialFingerprints": {"quarryPlaces/1": fingerprint(finding)},
    });
    if finding.kind.about == About::Leak
        && let Some(leak) = finding.leak()
    {
        value["properties"] = json!({"bytes": leak.bytes, "blocks": leak.blocks});
    }
    if let Some(entry) = finding.suppressed.and_then(|index| suppressions.all.get(index)) {
        value["suppressions"] = json!([{"kind": "external", "justification": entry.name}]);
    }
    value
}

/// The same in the next version of the program, as long as the functions have the same names.
fn fingerprint(finding: &Finding) -> String {
    let names: Vec<&str> = frames(&finding.stack)
        .take(4)
        .map(|(_, frame)| frame.function.as_deref().unwrap_or(frame.module_name()))
        .collect();
    format!("{}:{}", finding.word, names.join("<"))
}
