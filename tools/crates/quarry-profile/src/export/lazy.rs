// SPDX-License-Identifier: MIT
//! JSON whose parts are made while they are written. A file of a million call stacks is never in memory as a whole.

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

/// A value, or how its parts are made.
pub enum Lazy<'a> {
    /// It is small.
    Value(Value),
    /// So many entries, and how each is made.
    Array(usize, Box<dyn Fn(usize) -> Value + 'a>),
    /// A few.
    List(Vec<Lazy<'a>>),
    /// In this order.
    Object(Vec<(&'static str, Lazy<'a>)>),
}

impl<'a> Lazy<'a> {
    /// So many entries, each made when its turn comes.
    pub fn array<V: Into<Value>>(length: usize, make: impl Fn(usize) -> V + 'a) -> Self {
        Self::Array(length, Box::new(move |at| make(at).into()))
    }

    /// Columns of so many rows, as a table of the Firefox profiler.
    pub fn table(length: usize, mut columns: Vec<(&'static str, Lazy<'a>)>) -> Self {
        columns.push(("length", length.into()));
        Self::Object(columns)
    }
}

impl<V: Into<Value>> From<V> for Lazy<'_> {
    fn from(value: V) -> Self {
        Self::Value(value.into())
    }
}

impl Serialize for Lazy<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Value(value) => value.serialize(to),
            Self::Array(length, make) => to.collect_seq((0..*length).map(make)),
            Self::List(entries) => to.collect_seq(entries),
            Self::Object(entries) => {
                let mut map = to.serialize_map(Some(entries.len()))?;
                entries.iter().try_for_each(|(name, value)| map.serialize_entry(name, value))?;
                map.end()
            }
        }
    }
}
