// SPDX-License-Identifier: MIT
//! Names that are in the trace itself: looked up where the files were, and read anywhere.

use std::collections::HashMap;
use std::sync::Arc;

use quarry_trace::{StackId, Trace};
use serde::{Deserialize, Serialize};

use crate::Frame;
use crate::once::{Numbers, Texts};

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

/// Strings and frames, each kept once. Numbers are from 1; 0 is none.
#[derive(Debug, Default, Clone)]
struct Table {
    strings: Texts,
    /// Function, file, line.
    frames: Vec<[u32; 3]>,
    frame_numbers: Numbers,
}

impl Table {
    fn string(&mut self, string: &str) -> u32 {
        self.strings.number(string) + 1
    }

    fn frame(&mut self, frame: [u32; 3]) -> u32 {
        let frames = &mut self.frames;
        let number = self.frame_numbers.of(&frame, frames.len(), |number| &frames[number as usize]);
        if number as usize == frames.len() {
            frames.push(frame);
        }
        number + 1
    }

    fn text(&self, number: u32) -> Option<&str> {
        (number > 0).then(|| self.strings.get(number - 1))
    }

    fn name(&mut self, name: &Name) -> u32 {
        let [function, file] =
            [&name.function, &name.file].map(|text| text.as_deref().map_or(0, |text| self.string(text)));
        self.frame([function, file, name.line.unwrap_or(0)])
    }
}

/// From this number on, lists of frames are not one frame.
const LISTS: u32 = 1 << 31;

/// The names of nodes of stacks. Of a node only the number of its frames is kept: there may be millions of nodes.
#[derive(Debug, Default, Clone)]
pub struct Names {
    table: Table,
    /// A frame, or with [`LISTS`] the place in `lists`.
    nodes: HashMap<StackId, u32>,
    lists: Vec<Arc<[u32]>>,
    known_lists: HashMap<Arc<[u32]>, u32>,
    /// The number of the path.
    modules: HashMap<StackId, u32>,
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
        let strings: Vec<u32> = text.strings.iter().map(|string| self.table.string(string)).collect();
        let string = |place: u32| strings.get((place as usize).checked_sub(1)?).copied();
        let frame = |&[function, file, line]: &[u32; 3]| {
            self.table.frame([string(function).unwrap_or(0), string(file).unwrap_or(0), line])
        };
        let frames: Vec<u32> = text.frames.iter().map(frame).collect();
        for node in &text.nodes {
            let Some((&id, places)) = node.split_first() else { continue };
            let frame = |place: &u32| frames.get((*place as usize).checked_sub(1)?).copied();
            let list: Vec<u32> = places.iter().filter_map(frame).collect();
            self.insert_list(id, &list);
        }
        self.modules.extend(text.modules.iter().filter_map(|&[id, place]| Some((id, string(place)?))));
    }

    fn insert_list(&mut self, node: StackId, frames: &[u32]) {
        let list = match frames {
            &[frame] => frame,
            frames => match self.known_lists.get(frames) {
                Some(&list) => list,
                None => {
                    let (list, shared) = (LISTS | self.lists.len() as u32, Arc::<[u32]>::from(frames));
                    self.lists.push(shared.clone());
                    self.known_lists.insert(shared, list);
                    list
                }
            },
        };
        self.nodes.insert(node, list);
    }

    /// The frames of a node.
    fn frames_of(&self, node: StackId) -> &[u32] {
        match self.nodes.get(&node) {
            None => &[],
            Some(list) if list & LISTS == 0 => std::slice::from_ref(list),
            Some(list) => self.lists.get((list & !LISTS) as usize).map_or(&[], |frames| frames),
        }
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
        let table = &mut self.table;
        let mut number = |text: &Option<String>| text.as_deref().map_or(0, |text| table.string(text));
        let parts: Vec<[u32; 3]> = frames
            .iter()
            .map(|frame| [number(&frame.function), number(&frame.file), frame.line.unwrap_or(0)])
            .collect();
        let list: Vec<u32> = parts.into_iter().map(|frame| self.table.frame(frame)).collect();
        self.insert_list(node, &list);
    }

    /// A node is called this and lies in this file. The trace does not say where the file was mapped.
    pub fn insert_placed(&mut self, node: StackId, names: &[Name], module: Option<&str>) {
        if !names.is_empty() {
            let list: Vec<u32> = names.iter().map(|name| self.table.name(name)).collect();
            self.insert_list(node, &list);
        }
        if let Some(module) = module {
            let number = self.table.string(module);
            self.modules.insert(node, number);
        }
    }

    /// Does this node have a name?
    pub fn has(&self, node: StackId) -> bool {
        self.nodes.contains_key(&node)
    }

    /// The file of a node whose place in it is not known.
    pub(crate) fn module(&self, node: StackId) -> Option<&str> {
        self.modules.get(&node).and_then(|&path| self.table.text(path))
    }

    /// Two nodes with equal numbers are called the same; 0: it has neither a name nor a file that is told apart from its place.
    pub(crate) fn number(&self, node: StackId) -> (u32, u32) {
        let of = |map: &HashMap<StackId, u32>| map.get(&node).copied().unwrap_or(0);
        (of(&self.nodes), of(&self.modules))
    }

    /// The frames of a node, with what `bare` says of its place; none if it has no name.
    pub(crate) fn frames(&self, node: StackId, bare: &Frame) -> Vec<Frame> {
        let text = |number: u32| self.table.text(number).map(String::from);
        let frame = |&number: &u32| {
            let &[function, file, line] = self.table.frames.get((number as usize).checked_sub(1)?)?;
            let line = (line > 0).then_some(line);
            Some(Frame { function: text(function), file: text(file), line, ..bare.clone() })
        };
        self.frames_of(node).iter().filter_map(frame).collect()
    }

    /// As texts for a trace, each complete in itself.
    pub fn texts(&self) -> Vec<Vec<u8>> {
        let mut ids: Vec<StackId> = self.nodes.keys().chain(self.modules.keys()).copied().collect();
        ids.sort_unstable();
        ids.dedup();
        let mut texts = Vec::new();
        let mut maker = Maker::default();
        for id in ids {
            if self.nodes.contains_key(&id) {
                maker.add(&self.table, id, self.frames_of(id));
            }
            if let Some(&path) = self.modules.get(&id) {
                let place = maker.string(self.table.text(path));
                maker.modules.push([id, place]);
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
    table: Table,
    nodes: Vec<Vec<u32>>,
    modules: Vec<[u32; 2]>,
    /// About so many.
    bytes: usize,
}

impl Maker {
    fn string(&mut self, string: Option<&str>) -> u32 {
        let Some(string) = string else { return 0 };
        let before = self.table.strings.len();
        let place = self.table.string(string);
        if self.table.strings.len() > before {
            self.bytes += string.len() + 4;
        }
        place
    }

    fn add(&mut self, from: &Table, id: StackId, frames: &[u32]) {
        let mut node = vec![id];
        for &number in frames {
            let [function, file, line] = from.frames[number as usize - 1];
            let (function, file) = (self.string(from.text(function)), self.string(from.text(file)));
            node.push(self.table.frame([function, file, line]));
            self.bytes += 24;
        }
        self.bytes += 12;
        self.nodes.push(node);
    }

    fn take(&mut self) -> Option<Vec<u8>> {
        let Maker { table, nodes, modules, .. } = std::mem::take(self);
        let strings = table.strings.iter().map(String::from).collect();
        let text = Text { text: SCHEMA.to_owned(), strings, frames: table.frames, nodes, modules };
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
        names.insert_placed(30_000, &[], Some("/lib/far"));
        let texts = names.texts();
        assert!(texts.len() > 1 && texts.iter().all(|text| text.len() < 1 << 20));
        let mut read = Names::default();
        for text in &texts {
            read.take(&serde_json::from_slice(text).unwrap());
        }
        let bare = Frame { module: "/lib/x".into(), offset: 5, ..Frame::default() };
        assert_eq!((read.len(), read.modules.len()), (names.len(), names.modules.len()));
        for id in 1..20_000 {
            assert_eq!(read.frames(id, &bare), names.frames(id, &bare));
        }
        assert_eq!(read.module(30_000), Some("/lib/far"));
        // What several texts have is kept once.
        assert_eq!(read.table.strings.len(), 9000 + 4);
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
        let bare = Frame::default();
        let frames = names.frames(4, &bare);
        assert_eq!(frames[0], Frame { function: Some("f".into()), ..bare.clone() });
        assert_eq!(frames[1], Frame { line: Some(3), ..bare });
    }
}
