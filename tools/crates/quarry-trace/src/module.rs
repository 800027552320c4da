// SPDX-License-Identifier: MIT
//! The files a process had mapped: what addresses of code refer to.

use serde::{Deserialize, Serialize};

use crate::event::{Event, What};

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
}

impl Module {
    /// Does this address lie in it?
    pub fn contains(&self, pc: u64) -> bool {
        let vaddr = pc.wrapping_sub(self.base);
        self.segments.iter().any(|&Segment(from, bytes, _)| vaddr.wrapping_sub(from) < bytes)
    }

    /// The text of its record.
    pub fn about(&self) -> String {
        let about = About {
            path: self.path.clone(),
            build_id: self.build_id.clone(),
            segments: self.segments.clone(),
        };
        // Strings and numbers always have a JSON.
        serde_json::to_string(&about).unwrap_or_default()
    }
}

/// Take note of what an event says about modules.
pub(crate) fn note(modules: &mut Vec<Module>, event: &Event) {
    match &event.what {
        What::ModuleLoaded { base, about } if modules.len() < MOST => {
            let About { path, build_id, segments } = serde_json::from_str(about).unwrap_or_default();
            // A recorder may say the same again after a fork.
            let known = modules
                .iter()
                .any(|module| module.base == *base && module.path == path && module.unloaded.is_none());
            if !known {
                let (base, loaded) = (*base, event.time);
                modules.push(Module { base, path, build_id, segments, loaded, unloaded: None });
            }
        }
        What::ModuleUnloaded { base } => {
            let mapped = modules.iter_mut().rev().find(|module| module.base == *base);
            if let Some(module) = mapped.filter(|module| module.unloaded.is_none()) {
                module.unloaded = Some(event.time);
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
        note(&mut modules, &Event { time: 9, thread: 1, what: What::ModuleUnloaded { base: 0x1000 } });
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
}
