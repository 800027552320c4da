// SPDX-License-Identifier: MIT
//! The files that the lines of mtrace name. Each has a place of its own among addresses, so that equal numbers in two files are two
//! callers, and file and function are kept.
//!
//! glibc since 2.34 writes where in its file a caller is, counted from where the file is loaded. Before, it wrote addresses
//! of the process. A number that lies in the file is the first, and any other is kept as it is.

use std::collections::HashMap;
use std::path::Path;
use std::time::SystemTime;

use quarry_measure::units;
use quarry_symbols::Mapped;
use quarry_trace::{Function, Segment, What};
use serde_json::json;

use super::files::Proof;
use super::text::Queue;

/// So far from each other are files: farther than any address goes.
const ROOM: u64 = 1 << 48;
/// As many as the recorder tells of a file.
const SEGMENTS: usize = 16;
/// Parts of files begin at multiples of this.
const PAGE: u64 = 4096;
/// How many files have room.
const MOST: u64 = 1 << 16;

/// A caller as a line names it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Caller<'a> {
    file: &'a str,
    function: &'a str,
    /// From the beginning of the function.
    distance: i128,
    /// Was the distance written with 0x?
    marked: bool,
    number: u64,
}

/// "FILE:(FUNCTION+0x12)[0x401136]"; file and function may be missing.
fn parse(caller: &str) -> Option<Caller<'_>> {
    let number = |text: &str| u64::from_str_radix(text, 16).ok().filter(|_| !text.starts_with('+'));
    let (rest, at) = caller.strip_suffix(']')?.rsplit_once('[')?;
    let mut parsed = Caller { number: number(at.strip_prefix("0x")?)?, ..Caller::default() };
    let rest = rest.trim_end();
    let inside = rest.strip_suffix(')').and_then(part);
    if let Some((before, inside)) = inside
        && let Some(sign) = inside.rfind(['+', '-'])
    {
        let digits = &inside[sign + 1..];
        let bare = digits.strip_prefix("0x");
        if let Some(distance) = number(bare.unwrap_or(digits)) {
            parsed.function = &inside[..sign];
            parsed.marked = bare.is_some();
            parsed.distance =
                if inside[sign..].starts_with('-') { -i128::from(distance) } else { distance.into() };
            parsed.file = before;
            return Some(parsed);
        }
    }
    parsed.file = rest.strip_suffix(':').unwrap_or(rest);
    Some(parsed)
}

/// "FILE:(FUNCTION" in its parts. After c++filt the function may have brackets, and `::(anonymous namespace)`, too.
fn part(text: &str) -> Option<(&str, &str)> {
    let parts = text.rmatch_indices(":(").map(|(at, mark)| (&text[..at], &text[at + mark.len()..]));
    let mut parts = parts.filter(|(file, _)| !file.ends_with(':'));
    parts.next().or_else(|| text.strip_prefix('(').map(|function| ("", function)))
}

/// What is known of the files so far.
pub(super) struct Files {
    /// When the log was written last.
    written: Option<SystemTime>,
    files: HashMap<String, Proof>,
    /// Where a file, a function in it, and numbers that are addresses of it or are not, lie.
    bases: HashMap<(String, String, bool), u64>,
    remarks: Vec<String>,
    /// Callers in files for which there is no room.
    without_room: u64,
}

impl Files {
    pub(super) fn new(written: Option<SystemTime>) -> Self {
        Self { written, files: HashMap::new(), bases: HashMap::new(), remarks: Vec::new(), without_room: 0 }
    }

    /// The address of a caller; the file that it is in comes before, if it is new. `None`: the line names no address.
    pub(super) fn place(&mut self, caller: &str, queue: &mut Queue) -> Option<u64> {
        let caller = parse(caller)?;
        if caller.file.is_empty() {
            return Some(caller.number);
        }
        self.look_at(caller.file);
        let file = &self.files[caller.file];
        let address = file.mapped.as_ref().and_then(|mapped| own_address(mapped, caller.number));
        let key = (caller.file.to_owned(), caller.function.to_owned(), address.is_some());
        let at = address.unwrap_or(caller.number);
        if let Some(base) = self.bases.get(&key) {
            return Some(base.wrapping_add(at));
        }
        let index = self.bases.len() as u64 + 1;
        if index >= MOST {
            self.without_room += 1;
        }
        if index >= MOST || at >= ROOM {
            return Some(caller.number);
        }
        let base = index * ROOM;
        let (path, mapped) = (file.path.clone(), file.mapped.as_ref().filter(|_| address.is_some()));
        let anywhere = || vec![Segment(0, ROOM, 5)];
        let segments =
            mapped.map_or_else(anywhere, |mapped| mapped.segments.iter().take(SEGMENTS).copied().collect());
        let mut about = json!({"path": path, "segments": segments});
        if mapped.is_some() {
            file.tell(&mut about);
        }
        let start = u64::try_from(i128::from(at) - caller.distance).ok();
        if let Some(start) = start.filter(|_| !caller.function.is_empty()) {
            let function = Function { name: caller.function.to_owned(), start, marked: caller.marked };
            about["function"] = json!(function);
        }
        queue.event(What::ModuleLoaded { base, about: about.to_string() });
        self.bases.insert(key, base);
        Some(base.wrapping_add(at))
    }

    fn look_at(&mut self, name: &str) {
        if !self.files.contains_key(name) {
            let file = Proof::of(Path::new(name), self.written);
            self.remarks.extend(file.remark());
            self.files.insert(name.to_owned(), file);
        }
    }

    /// What is to be said of them.
    pub(super) fn remarks(&self) -> impl Iterator<Item = String> + '_ {
        let without_room = (self.without_room > 0).then(|| {
            format!(
                "{} behind the first {} pairs of file and function: they are numbers alone, and equal numbers are one call site",
                units::of(self.without_room, "caller"),
                MOST - 1
            )
        });
        self.remarks.iter().cloned().chain(without_room)
    }
}

/// The address in the file's own addresses; `None`: it cannot be one of it.
fn own_address(mapped: &Mapped, number: u64) -> Option<u64> {
    // The call stands before the address that it returns to.
    let is_in = |address: &u64| mapped.contains(address.wrapping_sub(1));
    // A program at a fixed place, or a library that was linked for one, has addresses of its own. glibc counts from the page of
    // the first of them.
    let counted =
        Some(number.wrapping_add(mapped.lowest() / PAGE * PAGE)).filter(|_| mapped.lowest() >= PAGE);
    Some(number).filter(is_in).or(counted.filter(is_in))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_as_all_versions_of_glibc_write_them() {
        let caller = |file, function, distance, marked, number| {
            Some(Caller { file, function, distance, marked, number })
        };
        for (text, parsed) in [
            ("./prog:[0x1182]", caller("./prog", "", 0, false, 0x1182)),
            (
                "/lib/libfoo.so.1:(foo_new+0x12)[0x1182]",
                caller("/lib/libfoo.so.1", "foo_new", 0x12, true, 0x1182),
            ),
            ("/lib/libfoo.so.1:(foo_new+9)[0x1112]", caller("/lib/libfoo.so.1", "foo_new", 9, false, 0x1112)),
            ("/a b/c:d(e:(_ZN1aEv-0x2)[0x10]", caller("/a b/c:d(e", "_ZN1aEv", -2, true, 0x10)),
            ("/a(1):[0x10]", caller("/a(1)", "", 0, false, 0x10)),
            ("[0x7f0000001234]", caller("", "", 0, false, 0x7f00_0000_1234)),
            ("a:(f+g)[0x1]", caller("a:(f+g)", "", 0, false, 1)),
            ("(f+0x2)[0x10]", caller("", "f", 2, true, 0x10)),
            ("./a:(foo::bar()+0x12)[0x1182]", caller("./a", "foo::bar()", 0x12, true, 0x1182)),
            (
                "/a:(b/c:(n::(anonymous namespace)::f(int (*)(char), long)+0x2)[0x10]",
                caller("/a:(b/c", "n::(anonymous namespace)::f(int (*)(char), long)", 2, true, 0x10),
            ),
            ("./a:(operator+(n::x, n::x)+0x3)[0x22]", caller("./a", "operator+(n::x, n::x)", 3, true, 0x22)),
        ] {
            assert_eq!(parse(text), parsed, "{text}");
        }
        for text in ["", "prog", "prog:", "prog:[12]", "prog:[0x+1]", "[0x]", "prog:[0x1"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn equal_numbers_in_two_files_are_two_places() {
        let (mut files, mut queue) = (Files::new(None), Queue::default());
        let mut place = |caller: &str| files.place(caller, &mut queue).unwrap();
        let all = ["/no/a:[0x10]", "/no/b:[0x10]", "/no/b:(f+0x1)[0x10]", "/no/b:[0x7fff12345678]", "[0x10]"];
        let first: Vec<u64> = all.iter().map(|caller| place(caller)).collect();
        let mut different = first.clone();
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), all.len());
        assert_eq!(all.iter().map(|caller| place(caller)).collect::<Vec<u64>>(), first);
        assert_eq!((first[3] % ROOM, first[4]), (0x7fff_1234_5678, 0x10));
        assert_eq!(queue.events(), 3);
    }
}
