// SPDX-License-Identifier: MIT
//! Names that are in the trace itself: looked up where the files were, and read anywhere.

use std::collections::HashMap;
use std::sync::Arc;

use quarry_trace::{StackId, Trace};
use serde::{Deserialize, Serialize};

use crate::Frame;

/// The schema of their texts.
pub const SCHEMA: &str = "quarry-names/1";
/// About so many bytes are put into one text.
const LONG: usize = 512 << 10;

/// A text with names. Numbers are places in the lists, from 1; 0 is none.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Text {
    /// The schema.
    text: String,
    /// Functions and files.
    strings: Vec<String>,
    /// Function, file, line.
    frames: Vec<[u32; 3]>,
    /// The number of a node, and its frames: what was inlined first.
    nodes: Vec<Vec<u32>>,
    /// The number of a node, and its file, where the trace does not know what was mapped there.
    modules: Vec<[u32; 2]>,
}

/// A frame without the place of its code.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Name {
    /// Its function.
    pub function: Option<Arc<str>>,
    /// The file of its code.
    pub file: Option<Arc<str>>,
    /// The line in it.
    pub line: Option<u32>,
}

/// The names of nodes of stacks.
#[derive(Debug, Default, Clone)]
pub struct Names {
    nodes: HashMap<StackId, Arc<[Name]>>,
    modules: HashMap<StackId, Arc<str>>,
}

impl Names {
    /// Those in a trace. What is damaged is left out.
    pub fn of_trace(trace: &Trace) -> Self {
        Self::of_texts(trace.texts())
    }

    /// Those in the texts of a trace.
    pub fn of_texts(texts: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let mut names = Self::default();
        texts.into_iter().for_each(|text| names.add_text(&text));
        names
    }

    /// Add those of a text, if it is one with names.
    pub fn add_text(&mut self, text: &[u8]) {
        if let Ok(text) = serde_json::from_slice::<Text>(text)
            && text.text == SCHEMA
        {
            self.take(&text);
        }
    }

    fn take(&mut self, text: &Text) {
        let strings: Vec<Arc<str>> = text.strings.iter().map(|string| string.as_str().into()).collect();
        let string = |place: u32| strings.get((place as usize).checked_sub(1)?).cloned();
        let name = |place: &u32| {
            let &[function, file, line] = text.frames.get((*place as usize).checked_sub(1)?)?;
            Some(Name { function: string(function), file: string(file), line: (line > 0).then_some(line) })
        };
        for node in &text.nodes {
            let Some((&id, frames)) = node.split_first() else { continue };
            self.nodes.insert(id, frames.iter().filter_map(name).collect());
        }
        self.modules.extend(text.modules.iter().filter_map(|&[id, place]| Some((id, string(place)?))));
    }

    /// How many nodes have names.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Is a text of a trace one with names?
    pub fn is_text(text: &[u8]) -> bool {
        #[derive(Deserialize)]
        struct Schema {
            text: String,
        }
        serde_json::from_slice::<Schema>(text).is_ok_and(|text| text.text == SCHEMA)
    }

    /// A node is called this, if this is anything.
    pub fn insert_all(&mut self, node: StackId, frame: Option<&Frame>) {
        if let Some(frame) = frame {
            self.insert(node, std::slice::from_ref(frame));
        }
    }

    /// A node is called this.
    pub fn insert(&mut self, node: StackId, frames: &[Frame]) {
        let shared = |text: &Option<String>| text.as_deref().map(Arc::from);
        let name = |frame: &Frame| Name {
            function: shared(&frame.function),
            file: shared(&frame.file),
            line: frame.line,
        };
        self.nodes.insert(node, frames.iter().map(name).collect());
    }

    /// A node is called this and lies in this file. The trace does not say where the file was mapped.
    pub fn insert_shared(&mut self, node: StackId, names: Arc<[Name]>, module: Option<Arc<str>>) {
        if !names.is_empty() {
            self.nodes.insert(node, names);
        }
        self.modules.extend(module.map(|module| (node, module)));
    }

    /// Does this node have a name?
    pub fn has(&self, node: StackId) -> bool {
        self.nodes.contains_key(&node)
    }

    /// The file of a node whose place in it is not known.
    pub(crate) fn module(&self, node: StackId) -> Option<&str> {
        self.modules.get(&node).map(|module| &**module)
    }

    /// The frames of a node, with what `bare` says of its place; none if it has no name.
    pub(crate) fn frames(&self, node: StackId, bare: &Frame) -> Vec<Frame> {
        let frame = |name: &Name| Frame {
            function: name.function.as_deref().map(String::from),
            file: name.file.as_deref().map(String::from),
            line: name.line,
            ..bare.clone()
        };
        self.nodes.get(&node).map_or_else(Vec::new, |names| names.iter().map(frame).collect())
    }

    /// As texts for a trace, each complete in itself.
    pub fn texts(&self) -> Vec<Vec<u8>> {
        let mut ids: Vec<StackId> = self.nodes.keys().chain(self.modules.keys()).copied().collect();
        ids.sort_unstable();
        ids.dedup();
        let mut texts = Vec::new();
        let mut maker = Maker::default();
        for id in ids {
            if let Some(names) = self.nodes.get(&id) {
                maker.add(id, names);
            }
            if let Some(module) = self.modules.get(&id) {
                let place = maker.string(Some(module));
                maker.text.modules.push([id, place]);
                maker.bytes += 16;
            }
            if maker.bytes > LONG {
                texts.extend(maker.take());
            }
        }
        texts.extend(maker.take());
        texts
    }
}

/// Makes a text.
#[derive(Default)]
struct Maker {
    text: Text,
    strings: HashMap<Arc<str>, u32>,
    frames: HashMap<[u32; 3], u32>,
    /// About so many.
    bytes: usize,
}

impl Maker {
    fn string(&mut self, string: Option<&Arc<str>>) -> u32 {
        let Some(string) = string else { return 0 };
        if let Some(&place) = self.strings.get(string) {
            return place;
        }
        self.bytes += string.len() + 4;
        self.text.strings.push(string.to_string());
        let place = self.text.strings.len() as u32;
        self.strings.insert(string.clone(), place);
        place
    }

    fn add(&mut self, id: StackId, names: &[Name]) {
        let mut node = vec![id];
        for name in names {
            let (function, file) = (self.string(name.function.as_ref()), self.string(name.file.as_ref()));
            let frame = [function, file, name.line.unwrap_or(0)];
            let frames = &mut self.text.frames;
            let place = *self.frames.entry(frame).or_insert_with(|| {
                frames.push(frame);
                frames.len() as u32
            });
            self.bytes += 24;
            node.push(place);
        }
        self.bytes += 12;
        self.text.nodes.push(node);
    }

    fn take(&mut self) -> Option<Vec<u8>> {
        let Maker { mut text, .. } = std::mem::take(self);
        text.text = SCHEMA.to_owned();
        // Strings and numbers always have a JSON.
        (!text.nodes.is_empty() || !text.modules.is_empty())
            .then(|| serde_json::to_vec(&text).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut names = Names::default();
        let frame = |function: String, line| Frame {
            function: Some(function),
            file: Some("/src/a.c".into()),
            line,
            ..Frame::default()
        };
        for id in 1..20_000 {
            let frames = [frame(format!("f{}<\"ä\">", id % 9000), Some(id)), frame("main".into(), None)];
            names.insert(id, &frames);
        }
        names.insert(7, &[Frame { function: Some("only".into()), ..Frame::default() }]);
        names.insert_shared(30_000, Arc::from([]), Some("/lib/far".into()));
        let texts = names.texts();
        assert!(texts.len() > 1 && texts.iter().all(|text| text.len() < 1 << 20));
        let mut read = Names::default();
        for text in &texts {
            read.take(&serde_json::from_slice(text).unwrap());
        }
        assert_eq!((&read.nodes, &read.modules), (&names.nodes, &names.modules));
        assert_eq!(read.module(30_000), Some("/lib/far"));
        let bare = Frame { module: "/lib/x".into(), offset: 5, ..Frame::default() };
        let only = Frame { function: Some("only".into()), ..bare.clone() };
        assert_eq!(read.frames(7, &bare), [only]);
        assert_eq!(read.frames(0, &bare), []);
    }

    #[test]
    fn what_is_damaged_is_left_out() {
        let mut names = Names::default();
        let text = r#"{"text":"quarry-names/1","strings":["f"],"frames":[[1,9,0],[7,0,3]],"nodes":[[],[3],[4,1,2,8]],"x":1}"#;
        names.take(&serde_json::from_str(text).unwrap());
        assert_eq!(names.len(), 2);
        assert_eq!(names.nodes[&4][0], Name { function: Some("f".into()), ..Name::default() });
        assert_eq!(names.nodes[&4][1], Name { line: Some(3), ..Name::default() });
    }
}
