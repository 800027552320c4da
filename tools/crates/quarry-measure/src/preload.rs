// SPDX-License-Identifier: MIT
//! The two environment variables that put an allocator under a program and configure it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use thiserror::Error;

/// Why a library or an option string cannot be handed to the dynamic linker or to the heap.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Error {
    /// LD_PRELOAD separates its entries by colons and spaces and has no way to quote them.
    #[error("{0}: LD_PRELOAD cannot hold a path with a space or colon in it; make a link to it elsewhere")]
    Path(String),
    /// Not of the form key:value.
    #[error("'{0}' is not of the form key:value")]
    Conf(String),
}

/// The value of LD_PRELOAD that loads `library` before what is `existing` there.
pub fn ld_preload(library: &Path, existing: Option<&OsStr>) -> Result<OsString, Error> {
    let bytes = library.as_os_str().as_bytes();
    if bytes.iter().any(|b| b": \t\n".contains(b)) {
        return Err(Error::Path(library.display().to_string()));
    }
    let mut value = library.as_os_str().to_owned();
    if let Some(existing) = existing.filter(|e| !e.is_empty()) {
        value.push(":");
        value.push(existing);
    }
    Ok(value)
}

/// QUARRY_CONF: items key:value, separated by commas, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conf {
    items: Vec<(String, Option<String>)>,
}

impl Conf {
    /// Take over what the environment says. Items without a value are kept: the heap itself says
    /// what is wrong with them.
    pub fn from_environment(text: &str) -> Self {
        let items = text.split(',').filter(|item| !item.trim().is_empty());
        Self {
            items: items
                .map(|item| split(item).map_or((item.to_owned(), None), |(k, v)| (k, Some(v))))
                .collect(),
        }
    }

    /// Parse what the user typed for this run, where a slip is an error.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let items = text.split(',').filter(|item| !item.trim().is_empty());
        let items = items.map(|item| match split(item) {
            Some((key, value)) if !key.is_empty() => Ok((key, Some(value))),
            _ => Err(Error::Conf(item.trim().to_owned())),
        });
        Ok(Self { items: items.collect::<Result<_, _>>()? })
    }

    /// Add `other`, whose keys win.
    pub fn merge(mut self, other: &Conf) -> Self {
        self.items.retain(|(key, _)| other.get(key).is_none());
        self.items.extend(other.items.iter().cloned());
        self
    }

    /// Set one key.
    pub fn set(&mut self, key: &str, value: &str) {
        self.items.retain(|(k, _)| k != key);
        self.items.push((key.to_owned(), Some(value.to_owned())));
    }

    /// The value of a key; the last one counts.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.items.iter().rev().find(|(k, _)| k == key)?.1.as_deref()
    }

    /// Is there nothing to say?
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

impl std::fmt::Display for Conf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, (key, value)) in self.items.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match value {
                Some(value) => write!(f, "{comma}{key}:{value}")?,
                None => write!(f, "{comma}{key}")?,
            }
        }
        Ok(())
    }
}

fn split(item: &str) -> Option<(String, String)> {
    let (key, value) = item.split_once(':')?;
    Some((key.trim().to_owned(), value.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_preloaded_already_stays_behind_us() {
        let ours = Path::new("/lib/q.so");
        assert_eq!(ld_preload(ours, None).unwrap(), "/lib/q.so");
        assert_eq!(ld_preload(ours, Some(OsStr::new(""))).unwrap(), "/lib/q.so");
        assert_eq!(ld_preload(ours, Some(OsStr::new("a.so b.so:c.so"))).unwrap(), "/lib/q.so:a.so b.so:c.so");
    }

    #[test]
    fn paths_that_cannot_be_written_there_are_refused() {
        for path in ["/my libs/q.so", "/a:b/q.so"] {
            assert_eq!(ld_preload(Path::new(path), None), Err(Error::Path(path.to_owned())));
        }
    }

    #[test]
    fn the_option_wins_key_by_key() {
        let environment = Conf::from_environment("arenas:4,purge:off,stats_file:/a:b");
        let option = Conf::parse("purge:on, tcache:off").unwrap();
        let merged = environment.merge(&option);
        assert_eq!(merged.to_string(), "arenas:4,stats_file:/a:b,purge:on,tcache:off");
        assert_eq!(merged.get("stats_file"), Some("/a:b"));
        assert_eq!(merged.get("nothing"), None);
    }

    #[test]
    fn within_one_source_the_last_counts() {
        let mut conf = Conf::parse("arenas:1,arenas:2").unwrap();
        assert_eq!(conf.get("arenas"), Some("2"));
        conf.set("arenas", "3");
        assert_eq!(conf.to_string(), "arenas:3");
    }

    #[test]
    fn slips_are_found_in_the_option_and_passed_on_from_the_environment() {
        assert_eq!(Conf::parse("arenas=4"), Err(Error::Conf("arenas=4".into())));
        assert_eq!(Conf::parse(":4"), Err(Error::Conf(":4".into())));
        assert_eq!(Conf::from_environment("arenas=4,,x:1").to_string(), "arenas=4,x:1");
        assert!(Conf::parse("").unwrap().is_empty());
        assert!(Conf::from_environment("").is_empty());
    }
}
