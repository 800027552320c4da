// SPDX-License-Identifier: MIT
//! The words for functions that models and text formats use.

use quarry_trace::{AllocApi, FreeApi};

const ALLOC: [(AllocApi, &str); 8] = [
    (AllocApi::Malloc, "malloc"),
    (AllocApi::Calloc, "calloc"),
    (AllocApi::Memalign, "memalign"),
    (AllocApi::New, "new"),
    (AllocApi::AlignedNew, "aligned_new"),
    (AllocApi::Realloc, "realloc"),
    (AllocApi::Pool, "pool"),
    (AllocApi::Other, "other"),
];

const FREE: [(FreeApi, &str); 5] = [
    (FreeApi::Free, "free"),
    (FreeApi::Delete, "delete"),
    (FreeApi::Sized, "sized"),
    (FreeApi::Null, "null"),
    (FreeApi::Other, "other"),
];

/// The word of a function that allocates.
pub fn of_alloc(api: AllocApi) -> &'static str {
    ALLOC.iter().find(|(one, _)| *one == api).map_or("other", |(_, word)| word)
}

/// The function of a word.
pub fn alloc(word: &str) -> Option<AllocApi> {
    ALLOC.iter().find(|(_, one)| *one == word).map(|(api, _)| *api)
}

/// Can an alignment be asked for?
pub fn has_align(api: AllocApi) -> bool {
    matches!(api, AllocApi::Memalign | AllocApi::AlignedNew)
}

/// The word of a function that frees.
pub fn of_free(api: FreeApi) -> &'static str {
    FREE.iter().find(|(one, _)| *one == api).map_or("other", |(_, word)| word)
}

/// The function of a word.
pub fn free(word: &str) -> Option<FreeApi> {
    FREE.iter().find(|(_, one)| *one == word).map(|(api, _)| *api)
}
