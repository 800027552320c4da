// SPDX-License-Identifier: MIT
//! Reports for other programs: JSON by its schema, XML by valgrind's protocol 4, SARIF by its required properties.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::check::{noisy, raw};
use crate::common::{schema, text};

fn made(ending: &str) -> Option<String> {
    let (bench, file) = raw(&noisy())?;
    let to = bench.path(&format!("report.{ending}"));
    let known = bench.path("known");
    fs::write(&known, "double-free:*\n").unwrap();
    let options = [
        "check",
        "--leaks",
        "all",
        "--gen-suppressions",
        "--suppressions",
        text(&known),
        "-o",
        text(&to),
        text(&file),
    ];
    bench.run(&options).expect(23);
    Some(fs::read_to_string(to).unwrap())
}

#[test]
fn json_is_as_its_schema_says() {
    let Some(json) = made("json") else { return };
    let schema: Value = serde_json::from_str(include_str!("../../../docs/check.schema.json")).unwrap();
    let value: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(schema::faults(&schema, &value), Vec::<String>::new());
    assert_eq!((&value["exit_code"], &value["counted"]), (&23.into(), &2.into()));
    assert_eq!(value["errors"][0]["stack"][0]["offset"], "0x400");
    assert_eq!(value["errors"][1]["suppressed"], "double-free:*");
    assert_eq!((&value["leaks"][0]["bytes"], &value["errors"][0]["count"]), (&32.into(), &2.into()));
}

// ---- SARIF ------------------------------------------------------------------------------------------------------

/// What the standard requires of each object that is used, by where it stands.
const REQUIRED: [(&str, &[&str]); 11] = [
    ("/", &["version", "runs"]),
    ("/runs", &["tool"]),
    ("/runs/tool", &["driver"]),
    ("/runs/tool/driver", &["name"]),
    ("/runs/tool/driver/rules", &["id"]),
    ("/runs/results", &["message"]),
    ("/runs/results/message", &["text"]),
    ("/runs/results/stacks", &["frames"]),
    ("/runs/results/suppressions", &["kind"]),
    ("/runs/invocations", &["executionSuccessful"]),
    ("/runs/invocations/toolExecutionNotifications", &["message"]),
];

fn required(value: &Value, at: &str) {
    match value {
        Value::Array(all) => all.iter().for_each(|item| required(item, at)),
        Value::Object(all) => {
            let names = REQUIRED.iter().filter(|(place, _)| *place == if at.is_empty() { "/" } else { at });
            for name in names.flat_map(|(_, names)| *names) {
                assert!(all.contains_key(*name), "{at} has no {name}: {value}");
            }
            all.iter().for_each(|(name, item)| required(item, &format!("{at}/{name}")));
            if let Some(uri) = all.get("uri").and_then(Value::as_str) {
                let plain = |c: char| c.is_ascii_alphanumeric() || "/:.-_~%+".contains(c);
                assert!(uri.chars().all(plain), "{uri}");
            }
            if let Some(line) = all.get("startLine") {
                assert!(line.as_u64() > Some(0), "{at}: lines begin at 1");
            }
        }
        _ => {}
    }
}

#[test]
fn sarif_has_what_the_standard_requires() {
    let Some(json) = made("sarif") else { return };
    let value: Value = serde_json::from_str(&json).unwrap();
    required(&value, "");
    assert_eq!(value["version"], "2.1.0");
    let run = &value["runs"][0];
    let results = run["results"].as_array().unwrap();
    assert_eq!(results.len(), 4);
    for result in results {
        let index = result["ruleIndex"].as_u64().unwrap() as usize;
        assert_eq!(run["tool"]["driver"]["rules"][index]["id"], result["ruleId"]);
        assert!(["error", "warning", "note"].contains(&result["level"].as_str().unwrap()));
        assert!(!result["locations"].as_array().unwrap().is_empty());
    }
    assert_eq!(results[1]["suppressions"][0]["kind"], "external");
    assert_eq!(results[0]["occurrenceCount"], 2);
}

// ---- XML --------------------------------------------------------------------------------------------------------

/// An element: its name, the elements in it, and its text.
#[derive(Debug, Default)]
struct Element {
    name: String,
    inner: Vec<Element>,
    text: String,
}

impl Element {
    /// Read a document without attributes. What is not well-formed ends the test.
    fn parse(document: &str) -> Self {
        let (head, mut rest) = document.split_once("?>").expect("an XML declaration");
        assert!(head.starts_with("<?xml version=\"1.0\""));
        let mut open = vec![Self::default()];
        while let Some((before, behind)) = rest.split_once('<') {
            open.last_mut().unwrap().text += &plain(before);
            if let Some(data) = behind.strip_prefix("![CDATA[") {
                let (data, behind) = data.split_once("]]>").expect("the end of CDATA");
                open.last_mut().unwrap().text += data;
                rest = behind;
                continue;
            }
            let (tag, behind) = behind.split_once('>').expect("the end of a tag");
            rest = behind;
            match tag.strip_prefix('/') {
                Some(name) => {
                    let element = open.pop().unwrap();
                    assert_eq!(element.name, name, "elements cross");
                    open.last_mut().expect("an element").inner.push(element);
                }
                None => {
                    assert!(tag.chars().all(|c| c.is_ascii_alphanumeric()), "<{tag}>");
                    open.push(Self { name: tag.to_owned(), ..Self::default() });
                }
            }
        }
        assert!(open.len() == 1 && plain(rest).trim().is_empty(), "elements without end");
        open.pop().unwrap().inner.pop().unwrap()
    }

    fn names(&self) -> Vec<&str> {
        self.inner.iter().map(|element| element.name.as_str()).collect()
    }

    fn first(&self, name: &str) -> &Self {
        self.inner
            .iter()
            .find(|element| element.name == name)
            .unwrap_or_else(|| panic!("no {name} in {}", self.name))
    }

    fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Self> {
        self.inner.iter().filter(move |element| element.name == name)
    }
}

/// Text with its references replaced.
fn plain(text: &str) -> String {
    assert!(!text.contains(']') || !text.contains("]]>"));
    for reference in text.split('&').skip(1) {
        let name = reference.split(';').next().unwrap();
        assert!(["lt", "gt", "amp", "quot", "apos"].contains(&name) || name.starts_with('#'), "&{name};");
    }
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&apos;", "'")
        .replace("&amp;", "&")
}

/// The protocol's rules, as a regular language over the names of the elements in one: `?` may be missing, `*` any number, `+`
/// one at least; `a|b` is one of them. Valgrind 3.19 writes suppressions behind their errors, and its protocol has them inside.
/// Those of ours are inside.
const MODELS: [(&str, &str); 14] = [
    (
        "valgrindoutput",
        "protocolversion protocoltool preamble pid ppid tool usercomment* args status error|suppression* errorcounts? status error|suppression* errorcounts? suppcounts",
    ),
    ("preamble", "line+"),
    ("args", "vargv argv"),
    ("vargv", "exe arg*"),
    ("argv", "exe arg*"),
    ("status", "state time"),
    ("error", "unique tid threadname? kind what|xwhat stack auxwhat|stack|xauxwhat* suppression?"),
    ("xwhat", "text leakedbytes leakedblocks"),
    ("stack", "frame+"),
    ("frame", "ip obj? fn? dir? file? line?"),
    ("errorcounts", "pair*"),
    ("suppcounts", "pair*"),
    ("suppression", "sname skind skaux* sframe+ rawtext"),
    ("sframe", "obj|fun"),
];

fn fits(model: &[&str], names: &[&str]) -> bool {
    let Some((rule, rest)) = model.split_first() else { return names.is_empty() };
    let (words, many) = match rule.chars().last() {
        Some(many @ ('?' | '*' | '+')) => (&rule[..rule.len() - 1], many),
        _ => (*rule, '1'),
    };
    let is = |name: &&str| words.split('|').any(|word| word == *name);
    let most = names.iter().take_while(|name| is(name)).count();
    let (least, most) = match many {
        '?' => (0, most.min(1)),
        '*' => (0, most),
        '+' => (1, most),
        _ => (1, most.min(1)),
    };
    (least..=most).rev().any(|count| fits(rest, &names[count..]))
}

fn follows(element: &Element) {
    if let Some((_, model)) = MODELS.iter().find(|(name, _)| *name == element.name) {
        let model: Vec<&str> = model.split(' ').collect();
        assert!(fits(&model, &element.names()), "{}: {:?}", element.name, element.names());
    } else if element.name == "pair" {
        assert!([["count", "unique"], ["count", "name"]].iter().any(|pair| element.names() == pair));
    } else {
        assert!(element.inner.is_empty(), "{} has {:?}", element.name, element.names());
    }
    let text = element.text.trim();
    match element.name.as_str() {
        "protocolversion" => assert_eq!(text, "4"),
        "unique" | "ip" => {
            assert!(u64::from_str_radix(text.strip_prefix("0x").unwrap(), 16).is_ok(), "{text}")
        }
        "pid" | "ppid" | "tid" | "line"
            if !text.starts_with(|c: char| c.is_alphabetic()) && !text.is_empty() =>
        {
            assert!(text.parse::<u64>().is_ok(), "{text}")
        }
        "leakedbytes" | "leakedblocks" | "count" => assert!(text.parse::<u64>().is_ok(), "{text}"),
        "state" => assert!(["RUNNING", "FINISHED"].contains(&text)),
        "kind" => assert!(KINDS.contains(&text), "{text}"),
        _ => {}
    }
    element.inner.iter().for_each(follows);
}

/// Memcheck's kinds.
const KINDS: [&str; 18] = [
    "InvalidFree",
    "MismatchedFree",
    "InvalidRead",
    "InvalidWrite",
    "InvalidJump",
    "Overlap",
    "InvalidMemPool",
    "UninitCondition",
    "UninitValue",
    "SyscallParam",
    "ClientCheck",
    "FishyValue",
    "ReallocSizeZero",
    "Leak_DefinitelyLost",
    "Leak_IndirectlyLost",
    "Leak_PossiblyLost",
    "Leak_StillReachable",
    "CoreMemError",
];

#[test]
fn xml_follows_the_protocol_of_valgrind() {
    let Some(document) = made("xml") else { return };
    let root = Element::parse(&document);
    follows(&root);
    assert_eq!(root.first("args").first("argv").first("arg").text, "a b");
    let errors: Vec<&Element> = root.all("error").collect();
    let kinds: Vec<&str> = errors.iter().map(|error| error.first("kind").text.as_str()).collect();
    assert_eq!(kinds, ["InvalidWrite", "Leak_DefinitelyLost", "Leak_PossiblyLost"]);
    assert_eq!(errors[0].first("stack").first("frame").first("obj").text, "/no/such/<prog> & co");
    assert_eq!(errors[1].first("xwhat").first("leakedbytes").text, "48");
    assert_eq!(root.first("suppcounts").first("pair").first("name").text, "double-free:*");
    // What is counted was told.
    let uniques: Vec<&str> = errors.iter().map(|error| error.first("unique").text.as_str()).collect();
    let pairs = root.first("errorcounts").all("pair").map(|pair| pair.first("unique").text.as_str());
    assert_eq!(pairs.collect::<Vec<_>>(), uniques);
}

/// The rules above are those that valgrind itself follows.
#[test]
fn valgrind_follows_the_same_rules() {
    let Some((bench, _)) = raw("") else { return };
    let source = "#include <stdlib.h>\nint main(void) { volatile char *p = malloc(8); p[8] = 1; free((void *)p); free((void *)p); \
                  p = malloc(9); p = 0; return 0; }";
    let Some(program) = bench.compile("buggy", source, &["-g", "-w"]) else { return };
    let to = bench.path("valgrind.xml");
    let mut command = Command::new("valgrind");
    command
        .args(["--leak-check=full", "--gen-suppressions=all", "--xml=yes"])
        .arg(format!("--xml-file={}", text(&to)));
    if command.arg(&program).output().is_err() {
        eprintln!("skipped: needs valgrind");
        return;
    }
    let root = Element::parse(&fs::read_to_string(&to).unwrap());
    follows(&root);
    assert!(root.all("error").count() >= 3);
}
