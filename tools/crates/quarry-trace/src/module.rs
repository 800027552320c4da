// SPDX-License-Identifier: MIT
//! The files a process had mapped: what addresses of code refer to.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::event::{Event, StackNode, What};

/// Most modules that are kept.
const MOST: usize = 1 << 16;

/// A part of a file that is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment(
    /// where, in the file's own addresses
    pub u64,
    /// how many bytes
    pub u64,
    /// as in the file's program header: 1 executable, 2 writable, 4 readable
    pub u32,
);

/// A function that whoever wrote a trace knew the name of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    /// As it stands in the file, not demangled.
    pub name: String,
    /// Where it begins, in the file's own addresses.
    pub start: u64,
    /// Are distances from there written with 0x before them? glibc before 2.34 does so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub marked: bool,
}

/// A file that was mapped for some time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// Its load address: what is to be added to the addresses of its segments.
    pub base: u64,
    /// The file.
    pub path: String,
    /// Its build id, in hex; empty if it has none.
    pub build_id: String,
    /// What is mapped of it.
    pub segments: Vec<Segment>,
    /// Bytes of the file; 0: not known. [`Module::NO_FILE`]: no file can be proved to be it.
    pub bytes: u64,
    /// When its contents were changed last, in nanoseconds since 1970; 0: not known.
    pub modified_ns: u64,
    /// The path as it is, in hex, where it is no UTF-8; else empty.
    pub path_hex: String,
    /// Nodes of stacks that may lie in it: those behind this number,
    pub first_node: u32,
    /// up to this one.
    pub last_node: u32,
    /// The function in it that this record is about, where it is about one alone: logs of other tools name functions, and
    /// neither files nor their addresses.
    pub function: Option<Function>,
    /// When it was mapped, in ticks.
    pub loaded: u64,
    /// When it was unmapped, if it was.
    pub unloaded: Option<u64>,
}

/// The text of a module record.
#[derive(Deserialize, Serialize, Default)]
#[serde(default)]
struct About {
    path: String,
    build_id: String,
    segments: Vec<Segment>,
    #[serde(skip_serializing_if = "is_zero")]
    bytes: u64,
    #[serde(skip_serializing_if = "is_zero")]
    modified_ns: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    path_hex: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<Function>,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// The text of the record that says that it was unmapped.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Gone {
    nodes: Option<u32>,
}

impl Module {
    /// As the length of a file that has no build id, and of which nothing else is known.
    pub const NO_FILE: u64 = u64::MAX;

    /// Does this address lie in it?
    pub fn contains(&self, pc: u64) -> bool {
        let vaddr = pc.wrapping_sub(self.base);
        self.segments.iter().any(|&Segment(from, bytes, _)| vaddr.wrapping_sub(from) < bytes)
    }

    /// May this node of a stack lie in it?
    pub fn holds(&self, node: &StackNode) -> bool {
        // A call stands before the address that it returns to.
        let pc = node.pc.wrapping_sub(u64::from(node.is_return));
        self.first_node < node.id && node.id <= self.last_node && self.contains(pc)
    }

    /// Is it the same file, mapped again?
    pub fn is_same(&self, other: &Module) -> bool {
        let of = |module: &Module| (module.base, module.bytes, module.modified_ns);
        of(self) == of(other)
            && (&self.path, &self.build_id, &self.segments, &self.path_hex)
                == (&other.path, &other.build_id, &other.segments, &other.path_hex)
    }

    /// Where the file is.
    pub fn file(&self) -> PathBuf {
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let bytes: Option<Vec<u8>> = self.path_hex.as_bytes().chunks(2).map(byte).collect();
        match bytes {
            Some(bytes) if !bytes.is_empty() => OsString::from_vec(bytes).into(),
            _ => PathBuf::from(&self.path),
        }
    }

    /// The text of its record.
    pub fn about(&self) -> String {
        let about = About {
            path: self.path.clone(),
            build_id: self.build_id.clone(),
            segments: self.segments.clone(),
            bytes: self.bytes,
            modified_ns: self.modified_ns,
            path_hex: self.path_hex.clone(),
            nodes: Some(self.first_node),
            function: self.function.clone(),
        };
        // Strings and numbers always have a JSON.
        serde_json::to_string(&about).unwrap_or_default()
    }
}

/// Take note of what an event says about modules.
pub(crate) fn note(modules: &mut Vec<Module>, event: &Event) {
    match &event.what {
        What::ModuleLoaded { base, about } if modules.len() < MOST => {
            let about: About = serde_json::from_str(about).unwrap_or_default();
            let new = Module {
                base: *base,
                path: about.path,
                build_id: about.build_id,
                segments: about.segments,
                bytes: about.bytes,
                modified_ns: about.modified_ns,
                path_hex: about.path_hex,
                function: about.function,
                first_node: about.nodes.unwrap_or(0),
                last_node: u32::MAX,
                loaded: event.time,
                unloaded: None,
            };
            // A recorder may say the same again after a fork.
            let known = modules.iter().any(|module| module.unloaded.is_none() && module.is_same(&new));
            if !known {
                modules.push(new);
            }
        }
        What::ModuleUnloaded { base, about } => {
            let mapped = modules.iter_mut().rev().find(|module| module.base == *base);
            if let Some(module) = mapped.filter(|module| module.unloaded.is_none()) {
                let gone: Gone = serde_json::from_str(about).unwrap_or_default();
                module.unloaded = Some(event.time);
                module.last_node = gone.nodes.unwrap_or(u32::MAX);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(time: u64, base: u64, about: &str) -> Event {
        Event { time, thread: 1, what: What::ModuleLoaded { base, about: about.into() } }
    }

    #[test]
    fn modules_come_and_go() {
        let mut modules = Vec::new();
        let about =
            r#"{"path":"/lib/a.so","build_id":"c0ffee","segments":[[0,4096,4],[8192,100,5]],"more":1}"#;
        note(&mut modules, &loaded(5, 0x1000, about));
        note(&mut modules, &loaded(6, 0x1000, about));
        note(
            &mut modules,
            &Event {
                time: 9,
                thread: 1,
                what: What::ModuleUnloaded { base: 0x1000, about: r#"{"nodes":7}"#.into() },
            },
        );
        note(&mut modules, &loaded(10, 0x1000, "{nonsense"));
        assert_eq!(modules.len(), 2);
        let module = modules[0].clone();
        assert_eq!((module.path.as_str(), module.loaded, module.unloaded), ("/lib/a.so", 5, Some(9)));
        assert!(module.contains(0x1000) && module.contains(0x1fff) && !module.contains(0x2000));
        assert!(module.contains(0x3063) && !module.contains(0x3064) && !module.contains(0));
        assert_eq!((modules[1].path.as_str(), modules[1].unloaded), ("", None));
        note(&mut modules, &loaded(11, 0x9000, &module.about()));
        assert_eq!(modules[2].segments, modules[0].segments);
    }

    #[test]
    fn one_address_and_two_modules() {
        let mut modules = Vec::new();
        let about = |path: &str, nodes: u32| {
            format!(
                r#"{{"path":"{path}","segments":[[0,4096,5]],"bytes":9,"modified_ns":3,"nodes":{nodes}}}"#
            )
        };
        let gone = |time, nodes: u32| {
            let about = format!(r#"{{"nodes":{nodes}}}"#);
            Event { time, thread: 1, what: What::ModuleUnloaded { base: 0x1000, about } }
        };
        note(&mut modules, &loaded(5, 0x1000, &about("/a", 0)));
        note(&mut modules, &gone(6, 10));
        note(&mut modules, &loaded(7, 0x1000, &about("/b", 10)));
        note(&mut modules, &gone(8, 20));
        note(&mut modules, &loaded(9, 0x1000, &about("/a", 20)));
        let at = |id, pc, is_return| {
            let node = StackNode { id, parent: 0, pc, is_return };
            let found: Vec<_> = modules.iter().filter(|module| module.holds(&node)).collect();
            found.iter().map(|module| module.path.as_str()).collect::<String>()
        };
        assert_eq!([at(10, 0x1010, true), at(11, 0x1010, true), at(20, 0x1fff, false)], ["/a", "/b", "/b"]);
        // Behind the last instruction, where a call that never returns stands.
        assert_eq!([at(21, 0x2000, true), at(21, 0x2000, false)], ["/a", ""]);
        assert!(modules[0].is_same(&modules[2]) && !modules[0].is_same(&modules[1]));
        let again: About = serde_json::from_str(&modules[1].about()).unwrap();
        assert_eq!((again.bytes, again.modified_ns, again.nodes), (9, 3, Some(10)));
    }

    #[test]
    fn paths_that_are_no_text() {
        let mut modules = Vec::new();
        note(&mut modules, &loaded(5, 0, r#"{"path":"/�","path_hex":"2fff"}"#));
        note(&mut modules, &loaded(5, 1, r#"{"path":"/a","path_hex":"2"}"#));
        assert_eq!(modules[0].file(), PathBuf::from(OsString::from_vec(b"/\xff".to_vec())));
        note(&mut modules, &loaded(5, 2, r#"{"path":"/a","path_hex":"zz"}"#));
        assert_eq!(modules[2].file(), PathBuf::from("/a"));
    }
}
