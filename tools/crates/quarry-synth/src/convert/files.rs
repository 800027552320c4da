// SPDX-License-Identifier: MIT
//! Programs and libraries that a log of another tool names. A log says no more of them than their names. A file is taken
//! for the one that ran if nothing of it was changed since the log was written.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use quarry_symbols::Mapped;
use serde_json::{Value, json};

/// A file, as far as it can be looked at.
pub(super) struct Proof {
    /// `None`: it is not there, or may be another one by now.
    pub mapped: Option<Mapped>,
    /// There is a file of this name that is not believed: why.
    pub refused: Option<&'static str>,
    /// As the log names it, or where the file is.
    pub path: String,
    bytes: u64,
    modified_ns: u64,
}

impl Proof {
    /// Of a file that a log names, which was written last at this time.
    pub fn of(name: &Path, written: Option<SystemTime>) -> Self {
        let found = std::path::absolute(name).ok().filter(|path| path.is_file());
        let about = found.as_deref().and_then(|path| path.metadata().ok());
        let refused = about.as_ref().and_then(|about| {
            let newest = about.modified().ok().max(changed(about));
            match written {
                None => Some("it is not known when the log was written"),
                Some(written) if newest.is_none_or(|newest| newest > written) => {
                    Some("was changed after the log was written")
                }
                _ => None,
            }
        });
        let mapped = found.as_deref().filter(|_| refused.is_none()).and_then(Mapped::of);
        let modified = about.as_ref().and_then(|about| about.modified().ok());
        let since = modified.and_then(|modified| modified.duration_since(SystemTime::UNIX_EPOCH).ok());
        // A name alone says nothing where the file is not there.
        let shown = found.as_deref().filter(|_| mapped.is_some()).unwrap_or(name);
        Self {
            path: shown.display().to_string(),
            mapped,
            refused,
            bytes: about.map_or(0, |about| about.len()),
            modified_ns: since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)),
        }
    }

    /// Add to the text of a module what proves later that a file is this one.
    pub fn tell(&self, about: &mut Value) {
        if let Some(mapped) = &self.mapped {
            about["build_id"] = json!(mapped.build_id);
            (about["bytes"], about["modified_ns"]) = (json!(self.bytes), json!(self.modified_ns));
        }
    }

    /// What is to be said of it.
    pub fn remark(&self) -> Option<String> {
        let why = self.refused?;
        Some(format!("{}: {why}, so nothing is looked up in it", self.path))
    }
}

/// When its contents, its name or its rights were changed last. A package may bring a file that was made long ago.
fn changed(about: &std::fs::Metadata) -> Option<SystemTime> {
    let (seconds, rest) = (u64::try_from(about.ctime()).ok()?, u32::try_from(about.ctime_nsec()).ok()?);
    SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, rest))
}
