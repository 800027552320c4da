// SPDX-License-Identifier: MIT
//! What smaps counts of a mapping.

use std::sync::Arc;

use crate::mapping::Mapping;

macro_rules! fields {
    ($($(#[$doc:meta])* $field:ident = $name:literal;)*) => {
        /// A line of smaps. Sizes are in bytes here.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Field { $($(#[$doc])* $field,)* }

        impl Field {
            /// In the kernel's order.
            pub const ALL: [Field; [$($name,)*].len()] = [$(Field::$field,)*];

            /// As the kernel calls it.
            pub fn name(self) -> &'static str {
                match self { $(Field::$field => $name,)* }
            }

            /// The field of this name.
            pub fn of(name: &[u8]) -> Option<Field> {
                $(const $field: &[u8] = $name.as_bytes();)*
                match name { $($field => Some(Field::$field),)* _ => None }
            }
        }
    };
}

#[allow(non_upper_case_globals, reason = "constants that are named like the variants they stand for")]
mod table {
    fields! {
        /// Address space of the mapping.
        Size = "Size";
        /// The page size the kernel manages it with.
        KernelPageSize = "KernelPageSize";
        /// The page size the processor maps it with.
        MmuPageSize = "MMUPageSize";
        /// Resident pages.
        Rss = "Rss";
        /// Resident pages, each divided by the number of mappings it is in.
        Pss = "Pss";
        /// The dirty part of that.
        PssDirty = "Pss_Dirty";
        /// The anonymous part; in a rollup only, like the next two.
        PssAnon = "Pss_Anon";
        /// The part of files.
        PssFile = "Pss_File";
        /// The part of shared memory.
        PssShmem = "Pss_Shmem";
        /// Resident in several mappings, as the file has it.
        SharedClean = "Shared_Clean";
        /// Resident in several mappings, written.
        SharedDirty = "Shared_Dirty";
        /// Resident in this mapping alone, as the file has it.
        PrivateClean = "Private_Clean";
        /// Resident in this mapping alone, written.
        PrivateDirty = "Private_Dirty";
        /// Touched since somebody last asked the kernel to forget that.
        Referenced = "Referenced";
        /// Resident pages that belong to no file.
        Anonymous = "Anonymous";
        /// Merged with identical pages.
        Ksm = "KSM";
        /// Given back by MADV_FREE, resident until the kernel wants them.
        LazyFree = "LazyFree";
        /// Anonymous memory in huge pages.
        AnonHugePages = "AnonHugePages";
        /// Shared memory in huge pages.
        ShmemPmdMapped = "ShmemPmdMapped";
        /// Files in huge pages.
        FilePmdMapped = "FilePmdMapped";
        /// Pages of hugetlbfs that others map too; not in Rss.
        SharedHugetlb = "Shared_Hugetlb";
        /// Pages of hugetlbfs of this mapping alone; not in Rss.
        PrivateHugetlb = "Private_Hugetlb";
        /// In swap.
        Swap = "Swap";
        /// The same, each divided by those who share it.
        SwapPss = "SwapPss";
        /// The proportional part that mlock keeps in memory.
        Locked = "Locked";
        /// May the kernel use transparent huge pages here? 1 or 0.
        ThpEligible = "THPeligible";
        /// The number of the protection key.
        ProtectionKey = "ProtectionKey";
    }
}
pub use table::Field;

impl Field {
    /// Does it make sense to add it up over mappings?
    pub fn is_sum(self) -> bool {
        self.is_size() && !matches!(self, Field::KernelPageSize | Field::MmuPageSize)
    }

    /// Is it a size, which the kernel gives in kB, rather than a plain number?
    pub fn is_size(self) -> bool {
        !matches!(self, Field::ThpEligible | Field::ProtectionKey)
    }

    /// Does the kernel round it down, so that a sum is a little less than the whole?
    pub fn is_rounded(self) -> bool {
        matches!(
            self,
            Field::Pss
                | Field::PssDirty
                | Field::PssAnon
                | Field::PssFile
                | Field::PssShmem
                | Field::SwapPss
                | Field::Locked
        )
    }
}

/// A line of smaps that is not known here: later kernels have more of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Other {
    /// As the kernel calls it.
    pub name: Arc<str>,
    /// What it says.
    pub value: OtherValue,
}

/// What a line says that is not known here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OtherValue {
    /// "12 kB", in bytes.
    Bytes(u64),
    /// A number without a unit.
    Number(u64),
    /// Anything else.
    Text(Arc<str>),
}

const COUNT: usize = Field::ALL.len();

/// The counters of a mapping, or of several. Which there are depends on the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    values: [u64; COUNT],
    present: u32,
}

impl Counters {
    /// The value, if the kernel told it.
    pub fn get(&self, field: Field) -> Option<u64> {
        (self.present & 1 << field as u32 != 0).then(|| self.values[field as usize])
    }

    /// The value, 0 where there is none.
    pub fn value(&self, field: Field) -> u64 {
        self.values[field as usize]
    }

    /// It has this value.
    pub fn set(&mut self, field: Field, value: u64) {
        self.values[field as usize] = value;
        self.present |= 1 << field as u32;
    }

    /// Add all that can be added.
    pub fn add(&mut self, other: &Counters) {
        for field in Field::ALL.into_iter().filter(|field| field.is_sum()) {
            if let Some(value) = other.get(field) {
                self.set(field, self.value(field).saturating_add(value));
            }
        }
    }

    /// Are these the sums over the mappings, but for what the kernel rounds in each of them?
    pub(crate) fn is_sum_of(&self, mappings: &[Mapping]) -> bool {
        let mut sum = Counters::default();
        mappings.iter().for_each(|mapping| sum.add(&mapping.counters));
        let slack = (mappings.len() as u64).saturating_mul(1024);
        Field::ALL.into_iter().filter(|field| field.is_sum()).all(|field| {
            let (Some(whole), Some(parts)) = (self.get(field), sum.get(field)) else { return true };
            let slack = if field.is_rounded() { slack } else { 0 };
            (parts..=parts.saturating_add(slack)).contains(&whole)
        })
    }

    /// Are there any?
    pub fn is_empty(&self) -> bool {
        self.present == 0
    }

    /// Which there are, as a set that can be compared.
    pub fn set_of_fields(&self) -> u32 {
        self.present
    }

    /// What would be free if the process ended: pages that nobody else has (USS).
    pub fn uss(&self) -> Option<u64> {
        Some(self.get(Field::PrivateClean)?.saturating_add(self.get(Field::PrivateDirty)?))
    }

    /// Pages that were written and not yet written back.
    pub fn dirty(&self) -> Option<u64> {
        Some(self.get(Field::SharedDirty)?.saturating_add(self.get(Field::PrivateDirty)?))
    }

    /// What is mapped by huge pages, of any kind, hugetlbfs apart.
    pub fn huge(&self) -> Option<u64> {
        let parts = [Field::AnonHugePages, Field::ShmemPmdMapped, Field::FilePmdMapped];
        self.get(parts[0])?;
        Some(parts.into_iter().fold(0, |sum, part| sum.saturating_add(self.value(part))))
    }

    /// Pages of hugetlbfs, which are not in the resident size.
    pub fn hugetlb(&self) -> Option<u64> {
        Some(self.get(Field::SharedHugetlb)?.saturating_add(self.get(Field::PrivateHugetlb)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        for field in Field::ALL {
            assert_eq!(Field::of(field.name().as_bytes()), Some(field));
        }
        assert_eq!(Field::of(b"rss"), None);
    }

    #[test]
    fn sums_know_what_is_missing() {
        let mut one = Counters::default();
        assert!(one.is_empty() && one.uss().is_none() && one.get(Field::Rss).is_none());
        one.set(Field::PrivateClean, 4096);
        one.set(Field::KernelPageSize, 4096);
        assert_eq!(one.uss(), None);
        one.set(Field::PrivateDirty, u64::MAX);
        let mut sum = Counters::default();
        sum.add(&one);
        sum.add(&one);
        assert_eq!(sum.get(Field::PrivateClean), Some(8192));
        assert_eq!(sum.uss(), Some(u64::MAX));
        assert_eq!(sum.get(Field::KernelPageSize), None);
    }
}
