// SPDX-License-Identifier: MIT
//! Is a file the one that was recorded? Names from any other are wrong, and look as good as right ones.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use object::{Object, ObjectSegment, ReadCache, SegmentFlags};
use quarry_trace::{Module, Segment};

/// What the recorder tells of a file's segments at most.
const MOST_SEGMENTS: usize = 16;
const SECOND: u64 = 1_000_000_000;

/// What is known of a file without trusting it.
pub(crate) struct About {
    build_id: String,
    segments: Vec<Segment>,
    bytes: u64,
    modified_ns: u64,
    /// When its contents, its name or its rights were changed last.
    changed_ns: u64,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Nanoseconds since 1970; before that there are no files.
fn nanoseconds(seconds: i64, rest: i64) -> u64 {
    u64::try_from(seconds)
        .unwrap_or(0)
        .saturating_mul(SECOND)
        .saturating_add(u64::try_from(rest).unwrap_or(0))
}

fn flags(flags: &SegmentFlags) -> u32 {
    match flags {
        SegmentFlags::Elf { p_flags, .. } => p_flags.0 & 7,
        _ => 0,
    }
}

impl About {
    /// Only headers and notes are read.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        // Not a pipe, which would be waited for, and not the name of something that is no file, like [vdso].
        let about = match fs::metadata(path) {
            Ok(about) if about.is_file() => about,
            Ok(_) => return Err("not a regular file".into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err("not found".into()),
            Err(error) => return Err(error.to_string()),
        };
        let file = fs::File::open(path).map_err(|error| error.to_string())?;
        let cache = ReadCache::new(file);
        let parsed = object::File::parse(&cache).map_err(|_| OTHER.to_owned() + "it is no ELF file")?;
        Ok(Self {
            build_id: parsed.build_id().ok().flatten().map(hex).unwrap_or_default(),
            segments: parsed.segments().map(|s| Segment(s.address(), s.size(), flags(&s.flags()))).collect(),
            bytes: about.len(),
            modified_ns: nanoseconds(about.mtime(), about.mtime_nsec()),
            changed_ns: nanoseconds(about.ctime(), about.ctime_nsec()),
        })
    }

    /// Its build id in hex; empty if it has none.
    pub(crate) fn build_id(&self) -> &str {
        &self.build_id
    }

    /// Nothing, or why it cannot be trusted. `recorded_ns`: when the recording began, or 0.
    pub(crate) fn prove(&self, module: &Module, recorded_ns: u64) -> Result<(), String> {
        let other = |why: String| Err(OTHER.to_owned() + &why);
        let recorded = module.build_id.to_ascii_lowercase();
        if self.build_id != recorded {
            let or_none = |id: &str| if id.is_empty() { "none".to_owned() } else { id.to_owned() };
            return other(format!("build id {}, recorded {}", or_none(&self.build_id), or_none(&recorded)));
        }
        if !recorded.is_empty() {
            return Ok(());
        }
        // How much of a segment is in the file is the recorder's to know, and how much memory it takes is told.
        let shown = self.segments.iter().take(MOST_SEGMENTS);
        if module.segments.is_empty() || !shown.eq(&module.segments) {
            return other("its segments are not those that were mapped".into());
        }
        if module.bytes > 0 {
            return match () {
                () if module.bytes == Module::NO_FILE => {
                    other("nothing tells whether it is the one that was mapped".into())
                }
                () if self.bytes != module.bytes => {
                    other(format!("{} bytes, recorded {}", self.bytes, module.bytes))
                }
                () if !self.has_time(module.modified_ns) => {
                    other("it was changed at another time than the recorded one".into())
                }
                () => Ok(()),
            };
        }
        // A trace that says no more of its files.
        if recorded_ns > 0 && self.modified_ns <= recorded_ns && self.changed_ns <= recorded_ns {
            return Ok(());
        }
        other("without a build id, and changed since the recording, or it cannot be told".into())
    }

    /// Copies and archives may keep whole seconds only.
    fn has_time(&self, modified_ns: u64) -> bool {
        let whole = self.modified_ns.is_multiple_of(SECOND);
        self.modified_ns == modified_ns || whole && self.modified_ns / SECOND == modified_ns / SECOND
    }
}

/// What the reason begins with where a file is not the recorded one.
const OTHER: &str = "other file: ";

#[cfg(test)]
mod tests {
    use super::*;

    fn module() -> Module {
        Module {
            base: 0,
            path: "/p".into(),
            build_id: String::new(),
            segments: vec![Segment(0, 4096, 4), Segment(4096, 357, 5)],
            bytes: 16_000,
            modified_ns: 5 * SECOND + 7,
            path_hex: String::new(),
            first_node: 0,
            last_node: u32::MAX,
            function: None,
            loaded: 0,
            unloaded: None,
        }
    }

    fn about() -> About {
        let Module { segments, bytes, modified_ns, .. } = module();
        About { build_id: String::new(), segments, bytes, modified_ns, changed_ns: 9 * SECOND }
    }

    #[test]
    fn without_a_build_id_all_must_agree() {
        assert_eq!(about().prove(&module(), 0), Ok(()));
        let fails = |about: About, module: Module, word: &str| {
            let why = about.prove(&module, 8 * SECOND).unwrap_err();
            assert!(why.starts_with(OTHER) && why.contains(word), "{why}");
        };
        fails(About { bytes: 16_001, ..about() }, module(), "bytes");
        fails(About { modified_ns: 5 * SECOND + 8, ..about() }, module(), "another time");
        fails(About { modified_ns: 6 * SECOND, ..about() }, module(), "another time");
        fails(About { segments: vec![Segment(0, 4096, 4)], ..about() }, module(), "segments");
        fails(about(), Module { segments: vec![], ..module() }, "segments");
        fails(about(), Module { bytes: Module::NO_FILE, ..module() }, "nothing tells");
        fails(About { build_id: "ab".into(), ..about() }, module(), "build id ab, recorded none");
        // A copy that kept whole seconds.
        assert_eq!(About { modified_ns: 5 * SECOND, ..about() }.prove(&module(), 0), Ok(()));
    }

    #[test]
    fn a_build_id_is_enough_and_must_agree() {
        let named = |id: &str| Module { build_id: id.into(), bytes: 1, ..module() };
        let id = || About { build_id: "c0ffee".into(), ..about() };
        assert_eq!(id().prove(&named("C0FFEE"), 0), Ok(()));
        assert!(id().prove(&named("c0ffef"), 0).unwrap_err().contains("recorded c0ffef"));
        assert!(about().prove(&named("c0ffee"), 0).unwrap_err().contains("build id none"));
    }

    #[test]
    fn older_traces_are_believed_if_nothing_was_changed() {
        let old = || Module { bytes: 0, modified_ns: 0, ..module() };
        assert_eq!(about().prove(&old(), 9 * SECOND), Ok(()));
        assert!(about().prove(&old(), 8 * SECOND).is_err());
        assert!(about().prove(&old(), 0).is_err());
    }
}
