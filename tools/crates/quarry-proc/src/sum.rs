// SPDX-License-Identifier: MIT
//! Adding up mappings: what they have, and what their pages are.

use std::collections::HashMap;
use std::sync::Arc;

use crate::classify::{Class, Kind, Quadrant};
use crate::counters::{Counters, Field};
use crate::mapping::Mapping;

/// What several mappings have together. Bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sum {
    /// How many they are.
    pub count: u64,
    /// Address space, as the kernel counts it.
    pub size: u64,
    /// The sums of what smaps counts.
    pub counters: Counters,
    /// Resident pages by what they are, not by the mapping they are in: anonymous pages in private mappings of files are
    /// of the first quadrant.
    pub pages: [u64; 4],
    /// Resident pages of shared memory (RssShmem).
    pub shmem: u64,
    /// Dirty pages that can be written to their file. The other dirty pages can only go to swap.
    pub write_back: u64,
    /// What a core file has of them.
    pub dumped: Option<u64>,
    /// Address space where no swap space is reserved.
    pub no_reserve: u64,
}

impl Sum {
    /// Add a mapping.
    pub fn add(&mut self, mapping: &Mapping, class: &Class) {
        self.count += 1;
        if class.kind != Kind::Vsyscall {
            self.size = self.size.saturating_add(mapping.size());
            if mapping.flags.has(b"nr") {
                self.no_reserve = self.no_reserve.saturating_add(mapping.size());
            }
        }
        self.counters.add(&mapping.counters);
        if let Some(bytes) = mapping.dumped {
            self.dumped = Some(self.dumped.unwrap_or(0).saturating_add(bytes));
        }
        let resident = mapping.counters.value(Field::Rss);
        let anonymous = mapping.counters.value(Field::Anonymous).min(resident);
        let mut page = |quadrant: Quadrant, bytes: u64| {
            let sum = &mut self.pages[quadrant as usize];
            *sum = sum.saturating_add(bytes);
        };
        page(Quadrant::PrivateAnonymous, anonymous);
        page(class.quadrant, resident - anonymous);
        self.write_back = self.write_back.saturating_add(write_back(mapping, class));
        if class.in_memory || class.quadrant == Quadrant::SharedAnonymous {
            self.shmem = self.shmem.saturating_add(resident - anonymous);
        }
    }

    /// The sum of no mappings, where these are known to have something: 0 of each, rather than unknown.
    pub fn nothing(&self) -> Self {
        let mut nothing = Self::default();
        for field in
            Field::ALL.into_iter().filter(|field| field.is_sum() && self.counters.get(*field).is_some())
        {
            nothing.counters.set(field, 0);
        }
        nothing
    }

    /// Resident bytes.
    pub fn resident(&self) -> Option<u64> {
        self.counters.get(Field::Rss)
    }

    /// Dirty pages that need swap.
    pub fn needs_swap(&self) -> Option<u64> {
        Some(self.counters.dirty()?.saturating_sub(self.write_back))
    }

    /// Resident anonymous pages (RssAnon).
    pub fn anonymous(&self) -> u64 {
        self.pages[0]
    }

    /// Resident pages of files (RssFile).
    pub fn file(&self) -> u64 {
        let all = self.pages.iter().fold(0u64, |sum, pages| sum.saturating_add(*pages));
        all.saturating_sub(self.pages[0]).saturating_sub(self.shmem)
    }
}

/// Dirty bytes of a mapping that have a file on a disk to go to. In a private mapping these are pages that somebody else
/// wrote: what the process itself wrote there is anonymous.
fn write_back(mapping: &Mapping, class: &Class) -> u64 {
    let dirty = mapping.counters.dirty().unwrap_or(0);
    if class.in_memory || class.kind == Kind::Device {
        return 0;
    }
    match class.quadrant {
        Quadrant::SharedFile => dirty,
        Quadrant::PrivateFile => dirty.saturating_sub(mapping.counters.value(Field::Anonymous)),
        Quadrant::PrivateAnonymous | Quadrant::SharedAnonymous => 0,
    }
}

/// What mappings are put together by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The quadrant.
    Quadrant,
    /// Quadrant and kind.
    Kind,
    /// Quadrant, kind and what they belong to.
    Object,
    /// What they belong to, whatever the kind.
    File,
}

/// Mappings of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Their quadrant; `None` where several are in it.
    pub quadrant: Option<Quadrant>,
    /// Their kind; `None` where several are in it.
    pub kind: Option<Kind>,
    /// What they belong to.
    pub object: Option<Arc<str>>,
    /// What they have.
    pub sum: Sum,
    /// The mappings, as indices.
    pub members: Vec<usize>,
}

/// What mappings of a group have in common.
type Key = (Option<Quadrant>, Option<Kind>, Option<Arc<str>>);

/// Put the mappings together that `wanted` says yes to. Groups come in the order of their first mapping.
pub fn groups(mappings: &[Mapping], classes: &[Class], by: By, wanted: impl Fn(usize) -> bool) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut places: HashMap<Key, usize> = HashMap::new();
    for (index, (mapping, class)) in mappings.iter().zip(classes).enumerate() {
        if !wanted(index) {
            continue;
        }
        let (quadrant, kind, object) = (class.quadrant, class.kind, class.object.clone());
        let key = match by {
            By::Quadrant => (Some(quadrant), None, None),
            By::Kind => (Some(quadrant), Some(kind), None),
            By::Object => (Some(quadrant), Some(kind), Some(object)),
            // What has no name belongs to its kind.
            By::File if object.is_empty() => (None, Some(kind), Some(object)),
            By::File => (None, None, Some(object)),
        };
        let place = *places.entry(key.clone()).or_insert_with(|| {
            let (quadrant, kind, object) = key;
            groups.push(Group { quadrant, kind, object, sum: Sum::default(), members: Vec::new() });
            groups.len() - 1
        });
        groups[place].sum.add(mapping, class);
        groups[place].members.push(index);
    }
    groups
}

/// The sum of all mappings.
pub fn total(mappings: &[Mapping], classes: &[Class]) -> Sum {
    let mut sum = Sum::default();
    for (mapping, class) in mappings.iter().zip(classes) {
        sum.add(mapping, class);
    }
    sum
}

#[cfg(test)]
#[path = "sum_tests.rs"]
mod tests;
