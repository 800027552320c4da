// SPDX-License-Identifier: MIT
//! From instructions to functions and lines. Modules are known by their file, so that all processes share one table.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

use quarry_symbols::{Frame, Mapped, Places, Symbols};
use quarry_trace::{Module, Segment, StackNode};

use crate::raw::{self, Pc};

/// Most modules that are known.
const MODULES: usize = 1 << 12;
/// Most places whose frames are kept.
const KEPT: usize = 1 << 16;

/// Frames that tell a call site: `QY_PINPOINT_FRAMES` of `src/check/pinpoint.h`.
const SITE_FRAMES: usize = 16;

/// A place in the code.
#[derive(Debug, Clone)]
pub struct Place {
    /// The instruction as it was.
    pub pc: u64,
    /// Its file and the address in that, which are the same in all processes.
    pub key: (Option<u32>, u64),
    /// The function, after what was inlined into it there. Never empty.
    pub frames: Rc<[Frame]>,
}

/// What tells modules apart.
type Key = (String, String, String, u64, u64);

/// Finds the names.
pub struct Namer {
    symbols: Symbols,
    modules: Vec<Module>,
    indexes: HashMap<Key, u32>,
    known: HashMap<(Option<u32>, u64, bool), Rc<[Frame]>>,
    /// Modules that `symbols` knows.
    told: usize,
}

/// The modules of one process: where each lies, and which file it is.
#[derive(Debug, Default)]
pub struct Mappings {
    of: HashMap<u32, (u64, u32)>,
}

impl Namer {
    /// Files are looked for there. `begun_ns`: when the programs began, in nanoseconds since 1970, if they ran on this machine;
    /// else 0. Files without a build id are believed only if they are older.
    pub fn new(places: Places, begun_ns: u64) -> Self {
        let symbols = Symbols::new(Vec::new()).in_places(places).recorded_at(begun_ns);
        Self { symbols, modules: Vec::new(), indexes: HashMap::new(), known: HashMap::new(), told: 0 }
    }

    /// Open no files: places keep the name of their file and the offset in it.
    pub fn without_names(&mut self) {
        self.symbols.without_names();
    }

    /// A module of a process.
    pub fn module(&mut self, mappings: &mut Mappings, raw: &raw::Module) {
        let first = raw.begin.wrapping_sub(raw.bias);
        let length = raw.end.saturating_sub(raw.begin);
        let build_id = raw.build_id.clone().unwrap_or_default();
        let key: Key = (raw.path.clone(), raw.path_hex.clone(), build_id, first, length);
        let next = self.modules.len() as u32;
        if next as usize >= MODULES && !self.indexes.contains_key(&key) || mappings.of.len() >= MODULES {
            return;
        }
        let index = *self.indexes.entry(key.clone()).or_insert(next);
        if index == next {
            self.modules.push(described(key, next));
        }
        mappings.of.insert(raw.id, (raw.bias, index));
    }

    /// The place of an instruction.
    pub fn place(&mut self, mappings: &Mappings, pc: &Pc) -> Place {
        let module = pc.module.and_then(|id| mappings.of.get(&id));
        let key = module.map_or((None, pc.pc), |&(bias, index)| (Some(index), pc.pc.wrapping_sub(bias)));
        let known = (key.0, key.1, pc.exact);
        if let Some(frames) = self.known.get(&known) {
            return Place { pc: pc.pc, key, frames: frames.clone() };
        }
        if self.told < self.modules.len() {
            let symbols = std::mem::replace(&mut self.symbols, Symbols::new(Vec::new()));
            self.symbols = symbols.with_modules(self.modules.clone());
            self.told = self.modules.len();
        }
        // Nodes of this number lie in this module, and in no other.
        let node =
            StackNode { id: key.0.map_or(0, |index| index + 1), parent: 0, pc: key.1, is_return: !pc.exact };
        let code = self.symbols.code(&node);
        let frames: Rc<[Frame]> = self.symbols.find(&node, &code).into();
        if self.known.len() < KEPT {
            self.known.insert(known, frames.clone());
        }
        Place { pc: pc.pc, key, frames }
    }

    /// The number by which the library knows a call site again: see `src/check/pinpoint.h`.
    pub fn site(&self, stack: &[Place]) -> u64 {
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        let mut add = |bytes: &[u8]| {
            for byte in bytes {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
            }
        };
        for place in stack.iter().take(SITE_FRAMES) {
            let Some(module) = place.key.0.and_then(|index| self.modules.get(index as usize)) else {
                add(&[0; 8]);
                continue;
            };
            match bytes_of(&module.build_id) {
                Some(id) => add(&id),
                None => add(module.file().as_os_str().as_bytes()),
            }
            add(&place.key.1.to_le_bytes());
        }
        hash
    }

    /// Files that could not be used, and why.
    pub fn missing(&self) -> &[String] {
        self.symbols.missing()
    }
}

/// What hexadecimal digits say. `None`: there are none.
fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    let bytes: Option<Vec<u8>> =
        pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect();
    bytes.filter(|bytes| !bytes.is_empty())
}

fn described((path, path_hex, build_id, first, length): Key, index: u32) -> Module {
    let mut module = Module {
        base: 0,
        path,
        build_id,
        segments: vec![Segment(first, length, 5)],
        bytes: 0,
        modified_ns: 0,
        path_hex,
        first_node: index,
        last_node: index + 1,
        function: None,
        loaded: 0,
        unloaded: None,
    };
    // Without a build id the file's own segments are compared, and its age is the proof.
    if let Some(own) = module.build_id.is_empty().then(|| Mapped::of(&module.file())).flatten() {
        module.segments = own.segments;
    }
    module
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(id: u32, bias: u64) -> raw::Module {
        raw::Module {
            id,
            path: "/p/lib.so".into(),
            path_hex: String::new(),
            build_id: Some("c0ffee".into()),
            begin: bias + 0x1000,
            end: bias + 0x3000,
            bias,
        }
    }

    #[test]
    fn processes_share_their_files() {
        let mut namer = Namer::new(Places::default(), 0);
        let (mut one, mut two) = (Mappings::default(), Mappings::default());
        namer.module(&mut one, &module(3, 0x7000_0000));
        namer.module(&mut two, &module(9, 0x5000_0000));
        let a = namer.place(&one, &Pc { pc: 0x7000_1010, exact: true, module: Some(3) });
        let b = namer.place(&two, &Pc { pc: 0x5000_1010, exact: true, module: Some(9) });
        assert_eq!((a.key, b.key, namer.modules.len()), ((Some(0), 0x1010), (Some(0), 0x1010), 1));
        assert_eq!(a.frames[0].text(), "lib.so+0x1010");
        let nowhere = namer.place(&one, &Pc { pc: 0x10, exact: true, module: Some(4) });
        assert_eq!((nowhere.key, nowhere.frames[0].text()), ((None, 0x10), "0x10".into()));
    }

    #[test]
    fn a_site_has_the_number_that_the_library_computes() {
        let mut namer = Namer::new(Places::default(), 0);
        let mut mappings = Mappings::default();
        namer.module(&mut mappings, &module(3, 0x7000_0000));
        let unnamed = raw::Module { id: 4, path: "/p/x".into(), build_id: None, ..module(4, 0x5000_0000) };
        namer.module(&mut mappings, &unnamed);
        let mut place = |pc: u64, id: u32| {
            namer.place(&mappings, &Pc { pc, exact: false, module: (id > 0).then_some(id) })
        };
        let stack = [place(0x7000_1010, 3), place(0x5000_1020, 4), place(0x10, 0)];
        // The bytes by hand: the build id or the path, and the address in the file; 0 where there is no file.
        let mut bytes = vec![0xc0, 0xff, 0xee, 0x10, 0x10, 0, 0, 0, 0, 0, 0];
        bytes.extend(b"/p/x\x20\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
        let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        });
        assert_eq!(namer.site(&stack), hash);
        // Frames behind the sixteenth make no difference.
        let long = vec![stack[0].clone(); SITE_FRAMES + 4];
        assert_eq!(namer.site(&long), namer.site(&long[..SITE_FRAMES]));
        assert_ne!(namer.site(&long), namer.site(&long[..SITE_FRAMES - 1]));
    }

    #[test]
    fn the_number_of_modules_has_a_bound() {
        let mut namer = Namer::new(Places::default(), 0);
        let mut mappings = Mappings::default();
        let hostile = |n: u32| raw::Module { id: n, bias: u64::MAX, end: 0, ..module(n, u64::from(n) << 16) };
        namer.module(&mut mappings, &hostile(1));
        namer.place(&mappings, &Pc { pc: u64::MAX, exact: false, module: Some(1) });
        assert!(namer.modules.len() <= MODULES);
    }
}
