// SPDX-License-Identifier: MIT
//! A sum and what it consists of, down to parts with a cause. The parts of each whole add up to it, always: what nobody knows
//! the purpose of is a part, too.

/// What memory is there for, as far as it makes a difference to what can be done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The program holds it.
    Live,
    /// A heap's whose inside is known, and neither told to be live nor to be free.
    Untold,
    /// Free blocks that threads keep for themselves.
    Caches,
    /// Free memory between live blocks.
    Fragmentation,
    /// Free pages that the heap keeps to use them again.
    FreePages,
    /// Given back in a way that lets the kernel wait.
    Lazy,
    /// Records of the heap.
    Metadata,
    /// Memory pools.
    Pools,
    /// Stacks.
    Stacks,
    /// Variables of programs and libraries.
    Variables,
    /// Programs and libraries, as their files have them.
    Programs,
    /// Pages of other files.
    Files,
    /// Memory that processes share.
    Shared,
    /// Memory of a heap of which nothing else can be seen.
    OpaqueHeap,
    /// Private memory that belongs to nobody known.
    Unknown,
}

impl Cause {
    /// All.
    pub const ALL: [Cause; 15] = [
        Cause::Live,
        Cause::Untold,
        Cause::Caches,
        Cause::Fragmentation,
        Cause::FreePages,
        Cause::Lazy,
        Cause::Metadata,
        Cause::Pools,
        Cause::Stacks,
        Cause::Variables,
        Cause::Programs,
        Cause::Files,
        Cause::Shared,
        Cause::OpaqueHeap,
        Cause::Unknown,
    ];

    /// One word, for JSON and styles.
    pub fn key(self) -> &'static str {
        match self {
            Cause::Live => "live",
            Cause::Untold => "untold",
            Cause::Caches => "thread_caches",
            Cause::Fragmentation => "fragmentation",
            Cause::FreePages => "free_pages",
            Cause::Lazy => "lazily_freed",
            Cause::Metadata => "metadata",
            Cause::Pools => "pools",
            Cause::Stacks => "stacks",
            Cause::Variables => "variables",
            Cause::Programs => "programs",
            Cause::Files => "files",
            Cause::Shared => "shared",
            Cause::OpaqueHeap => "opaque_heap",
            Cause::Unknown => "unknown",
        }
    }

    /// Memory of a heap that the program does not hold.
    pub fn is_free(self) -> bool {
        matches!(self, Cause::Caches | Cause::Fragmentation | Cause::FreePages | Cause::Lazy)
    }
}

/// A part, and its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its name for machines; unique among its siblings.
    pub key: String,
    /// Its name for people.
    pub name: String,
    /// Resident bytes.
    pub bytes: u64,
    /// Who says so.
    pub source: &'static str,
    /// What it is there for; that of a whole is that of what is missing in its parts.
    pub cause: Cause,
    /// What it consists of; nothing: no more is known.
    pub parts: Vec<Part>,
}

impl Part {
    /// A part without parts.
    pub fn leaf(key: &str, name: impl Into<String>, bytes: u64, cause: Cause, source: &'static str) -> Self {
        Self { key: key.to_owned(), name: name.into(), bytes, source, cause, parts: Vec::new() }
    }

    /// This part with those parts of it that are not empty. They are made to add up: what is missing becomes a part `rest`,
    /// and what is too much is taken away from the first parts, as far as each goes, so those come first that are
    /// known least.
    pub fn with(mut self, parts: Vec<Part>, rest: &str) -> Self {
        let mut parts: Vec<Part> = parts.into_iter().filter(|part| part.bytes > 0).collect();
        let sum = parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.bytes));
        let mut lack = sum.saturating_sub(self.bytes);
        for part in &mut parts {
            let taken = lack.min(part.bytes);
            part.shrink(part.bytes - taken);
            lack -= taken;
        }
        parts.retain(|part| part.bytes > 0);
        if self.bytes > sum {
            parts.push(Part::leaf("rest", rest, self.bytes - sum, self.cause, "what is left"));
        }
        self.parts = parts;
        self
    }

    /// Make it smaller, and its parts with it.
    fn shrink(&mut self, bytes: u64) {
        let mut lack = self.bytes.saturating_sub(bytes);
        self.bytes = bytes;
        for part in &mut self.parts {
            let taken = lack.min(part.bytes);
            part.shrink(part.bytes - taken);
            lack -= taken;
        }
        self.parts.retain(|part| part.bytes > 0);
    }

    /// The parts that have no parts, with their keys from here on, joined by slashes.
    pub fn leaves(&self) -> Vec<(String, &Part)> {
        let mut leaves = Vec::new();
        self.collect("", &mut leaves);
        leaves
    }

    fn collect<'a>(&'a self, path: &str, leaves: &mut Vec<(String, &'a Part)>) {
        let path = if path.is_empty() { self.key.clone() } else { format!("{path}/{}", self.key) };
        if self.parts.is_empty() {
            leaves.push((path, self));
        } else {
            self.parts.iter().for_each(|part| part.collect(&path, leaves));
        }
    }

    /// How much there is of a cause.
    pub fn of(&self, cause: Cause) -> u64 {
        if !self.parts.is_empty() {
            return self.parts.iter().map(|part| part.of(cause)).sum();
        }
        if self.cause == cause { self.bytes } else { 0 }
    }

    /// The part with this key, at any depth.
    #[cfg(test)]
    pub fn find(&self, key: &str) -> Option<&Part> {
        if self.key == key {
            return Some(self);
        }
        self.parts.iter().find_map(|part| part.find(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(key: &str, bytes: u64) -> Part {
        Part::leaf(key, key, bytes, Cause::Live, "test")
    }

    /// Do the parts of every whole add up?
    fn sound(part: &Part) -> bool {
        part.parts.is_empty()
            || part.parts.iter().map(|part| part.bytes).sum::<u64>() == part.bytes
                && part.parts.iter().all(sound)
    }

    #[test]
    fn parts_add_up_whatever_is_said_of_them() {
        for bytes in 0..40 {
            let inner = leaf("a", 20).with(vec![leaf("b", 7), leaf("c", 9)], "rest");
            let all = leaf("all", bytes).with(vec![leaf("none", 0), inner, leaf("d", 5)], "rest");
            assert!(sound(&all), "{all:?}");
            let sum: u64 = all.leaves().iter().map(|leaf| leaf.1.bytes).sum();
            assert_eq!(sum, bytes);
            assert!(all.find("none").is_none());
        }
    }

    #[test]
    fn what_is_missing_has_the_cause_of_the_whole() {
        let all = Part::leaf("all", "all", 10, Cause::Unknown, "test").with(vec![leaf("a", 4)], "the rest");
        assert_eq!((all.of(Cause::Live), all.of(Cause::Unknown)), (4, 6));
        assert_eq!(all.leaves()[1].0, "all/rest");
        assert_eq!(all.find("rest").unwrap().name, "the rest");
    }
}
