// SPDX-License-Identifier: MIT
//! Functions that allocate for others: malloc and its kin, and what containers are made of. The place in the code that
//! a block comes from is the innermost frame that is none of them.

use regex_lite::Regex;

use crate::Frame;

/// Frames that are looked through for the first one that is no plumbing.
const DEEPEST: usize = 64;
/// An allocator of the program's own may need so many frames above the function that everybody calls.
const OWN: usize = 16;

/// What is asked of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// See [`Folding::enters`].
    Enters,
    /// See [`Folding::folds`].
    Folds,
}

/// Which frames are folded.
#[derive(Debug, Default)]
pub struct Folding {
    hidden: Vec<Regex>,
}

impl Folding {
    /// Frames with a name or text that one of the patterns fits are folded, too. The error names the pattern.
    pub fn hiding(patterns: &[String]) -> Result<Self, String> {
        let compile = |pattern: &String| Regex::new(pattern).map_err(|error| format!("'{pattern}': {error}"));
        Ok(Self { hidden: patterns.iter().map(compile).collect::<Result<_, _>>()? })
    }

    /// The index of the frame that a block comes from. It is 0 where all frames are plumbing, or there are none.
    pub fn site(&self, frames: &[Frame]) -> usize {
        Self::site_by(|at, question| {
            frames.get(at).map(|frame| match question {
                Question::Enters => self.enters(frame),
                Question::Folds => self.folds(frame),
            })
        })
    }

    /// The same of frames of which the answers are known; `None`: there are no more.
    pub fn site_by(mut ask: impl FnMut(usize, Question) -> Option<bool>) -> usize {
        let inner = (0..OWN).map_while(|at| ask(at, Question::Enters).map(|enters| (at, enters)));
        // What a replaced operator new or a global allocator calls is an allocator, whatever its name.
        let begin = inner.filter(|(_, enters)| *enters).last().map_or(0, |(at, _)| at + 1);
        let mut rest = (begin..DEEPEST).map_while(|at| ask(at, Question::Folds).map(|folds| (at, folds)));
        rest.find(|(_, folds)| !folds).map_or(0, |(at, _)| at)
    }

    /// Is everything that this frame calls an allocator?
    pub fn enters(&self, frame: &Frame) -> bool {
        frame.function.as_deref().is_some_and(is_entry)
    }

    /// Does this frame merely stand between a program and its allocator?
    pub fn folds(&self, frame: &Frame) -> bool {
        let hides = |text: &str| self.hidden.iter().any(|pattern| pattern.is_match(text));
        frame.function.as_deref().is_some_and(|name| is_plumbing(name) || hides(name))
            || frame.file.as_deref().is_some_and(is_library_source)
            || !self.hidden.is_empty() && hides(&frame.text())
    }
}

/// Functions of C that allocate for others, by their whole names.
const C: [&str; 70] = [
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "memalign",
    "posix_memalign",
    "aligned_alloc",
    "valloc",
    "pvalloc",
    "__libc_malloc",
    "__libc_calloc",
    "__libc_realloc",
    "__libc_memalign",
    "strdup",
    "__strdup",
    "strndup",
    "__strndup",
    "wcsdup",
    "__wcsdup",
    "asprintf",
    "__asprintf",
    "vasprintf",
    "__vasprintf",
    "__asprintf_chk",
    "__vasprintf_chk",
    "__vasprintf_internal",
    "getline",
    "__getline",
    "getdelim",
    "__getdelim",
    "_IO_getline",
    "_IO_getdelim",
    "__libc_reallocarray",
    "xmalloc",
    "xcalloc",
    "xzalloc",
    "xrealloc",
    "xreallocarray",
    "xnmalloc",
    "x2realloc",
    "x2nrealloc",
    "xmemdup",
    "xstrdup",
    "xstrndup",
    "g_malloc",
    "g_malloc0",
    "g_realloc",
    "g_strdup",
    "g_strndup",
    "g_slice_alloc",
    "g_slice_alloc0",
    "g_malloc_n",
    "g_malloc0_n",
    "g_realloc_n",
    "g_try_malloc",
    "g_memdup",
    "g_memdup2",
    "CRYPTO_malloc",
    "CRYPTO_zalloc",
    "exchange_malloc",
    "PyMem_Malloc",
    "PyMem_Realloc",
    "PyMem_Calloc",
    "PyMem_RawMalloc",
    "PyMem_RawRealloc",
    "PyMem_RawCalloc",
    "PyObject_Malloc",
    "PyObject_Realloc",
    "PyObject_Calloc",
    "Perl_safesysmalloc",
];

/// Heaps that programs and interpreters have on top of malloc, by the functions that all of the program calls. What these call in turn is
/// part of them, and has often no name in a program without symbols.
const HEAPS: [&str; 99] = [
    // PostgreSQL
    "palloc",
    "palloc0",
    "palloc_extended",
    "palloc_aligned",
    "repalloc",
    "repalloc0",
    "repalloc_extended",
    "repalloc_huge",
    "pstrdup",
    "pnstrdup",
    "MemoryContextAlloc",
    "MemoryContextAllocZero",
    "MemoryContextAllocZeroAligned",
    "MemoryContextAllocExtended",
    "MemoryContextAllocAligned",
    "MemoryContextAllocHuge",
    "MemoryContextStrdup",
    "AllocSetContextCreateInternal",
    "GenerationContextCreate",
    "SlabContextCreate",
    "pg_malloc",
    "pg_malloc0",
    "pg_malloc_extended",
    "pg_realloc",
    "pg_strdup",
    // Redis and what came of it
    "zmalloc",
    "zmalloc_usable",
    "zcalloc",
    "zcalloc_num",
    "zcalloc_usable",
    "zrealloc",
    "zrealloc_usable",
    "zstrdup",
    "ztrymalloc",
    "ztrymalloc_usable",
    "ztrycalloc",
    "ztrycalloc_usable",
    "ztryrealloc",
    "ztryrealloc_usable",
    // CPython: objects
    "_PyObject_New",
    "_PyObject_NewVar",
    "_PyObject_GC_New",
    "_PyObject_GC_NewVar",
    "_PyObject_GC_Malloc",
    "_PyObject_GC_Calloc",
    "_PyObject_GC_Resize",
    "PyType_GenericAlloc",
    "_PyType_AllocNoTrack",
    // SQLite
    "sqlite3_malloc",
    "sqlite3_malloc64",
    "sqlite3_realloc",
    "sqlite3_realloc64",
    "sqlite3Malloc",
    "sqlite3MallocZero",
    "sqlite3Realloc",
    "sqlite3DbMallocRaw",
    "sqlite3DbMallocRawNN",
    "sqlite3DbMallocZero",
    "sqlite3DbRealloc",
    "sqlite3DbReallocOrFree",
    "sqlite3DbStrDup",
    "sqlite3DbStrNDup",
    // nginx, and Apache's portable runtime
    "ngx_alloc",
    "ngx_calloc",
    "ngx_palloc",
    "ngx_pnalloc",
    "ngx_pcalloc",
    "ngx_pmemalign",
    "ngx_create_pool",
    "apr_allocator_alloc",
    "apr_palloc",
    "apr_palloc_debug",
    "apr_pcalloc",
    "apr_pstrdup",
    "apr_pstrmemdup",
    "apr_pmemdup",
    "apr_pool_create_ex",
    // PHP
    "_emalloc",
    "_ecalloc",
    "_erealloc",
    "_erealloc2",
    "_estrdup",
    "_estrndup",
    "_safe_emalloc",
    "_safe_erealloc",
    "__zend_malloc",
    "__zend_calloc",
    "__zend_realloc",
    // Ruby, Lua, Perl
    "ruby_xmalloc",
    "ruby_xmalloc2",
    "ruby_xcalloc",
    "ruby_xrealloc",
    "ruby_xrealloc2",
    "luaM_malloc_",
    "luaM_realloc_",
    "luaM_growaux_",
    "luaM_saferealloc_",
    "Perl_safesyscalloc",
    "Perl_safesysrealloc",
];

/// Where names of C++ and Rust begin that are parts of an allocator or a container.
const PATHS: [&str; 17] = [
    "operator new",
    "std::",
    "__gnu_cxx::",
    "alloc::",
    "core::",
    "hashbrown::",
    "bumpalo::",
    "smallvec::",
    "indexmap::",
    "allocator_api2::",
    "__rustc::",
    "__rustc[",
    "__rust_alloc",
    "__rust_realloc",
    "__rdl_",
    "__rg_",
    "__rustc_",
];

/// Traits of Rust whose functions allocate for who calls them, whatever they are implemented for.
const TRAITS: [&str; 8] = [
    "alloc::",
    "core::alloc::",
    "core::convert::Into<",
    "core::convert::TryInto<",
    "core::ops::function::Fn",
    "core::iter::traits::iterator::Iterator",
    "core::iter::traits::double_ended::DoubleEndedIterator",
    "allocator_api2::",
];

/// Folders whose code is that of such libraries. Where only lines were kept of debug information, names have no paths.
const SOURCES: [&str; 10] = [
    "/include/c++/",
    "/library/alloc/src/",
    "/library/core/src/",
    "/library/std/src/alloc.rs",
    "/library/std/src/collections/",
    "/library/std/src/sys/alloc/",
    "/hashbrown-",
    "/bumpalo-",
    "/smallvec-",
    "/indexmap-",
];

/// Functions of these traits that their types define themselves.
const OWN_METHODS: [&str; 4] = ["next", "next_back", "size_hint", "nth"];

/// Is everything that this function calls an allocator?
fn is_entry(function: &str) -> bool {
    let rust = ["__rust_alloc", "__rust_realloc", "__rustc::__r", "__rustc[", "__rg_", "__rdl_"];
    if rust.iter().any(|begin| function.starts_with(begin)) || is_operator_new(bare(function)) {
        return true;
    }
    if HEAPS.contains(&function) {
        return true;
    }
    // The toolkit's own heap and pools: what they call has names of its own in each kind of pool.
    if ["quarry_", "qy_"].iter().any(|begin| function.starts_with(begin)) {
        return true;
    }
    function.strip_prefix('<').and_then(halves).is_some_and(|(qualified, _)| {
        let of = as_trait(qualified).map_or("", |(_, of)| of);
        ["core::alloc::", "allocator_api2::"].iter().any(|begin| of.starts_with(begin))
    })
}

/// That of the program, or one of a class.
fn is_operator_new(path: &str) -> bool {
    let of_class = || path.split("::operator new").nth(1).is_some_and(|rest| rest.starts_with(['(', '[']));
    path.starts_with("operator new") || of_class()
}

/// Does this function merely stand between a program and its allocator?
pub(crate) fn is_plumbing(function: &str) -> bool {
    // As the C library calls its own.
    let known = function.strip_prefix("__GI_").unwrap_or(function);
    C.contains(&known)
        || HEAPS.contains(&known)
        || is_operator_new(bare(function))
        || is_library(bare(function))
}

fn is_library_source(file: &str) -> bool {
    SOURCES.iter().any(|folder| file.contains(folder))
}

/// Is this path of C++ or Rust one of a library of containers?
fn is_library(path: &str) -> bool {
    let Some((qualified, rest)) = path.strip_prefix('<').and_then(halves) else {
        return PATHS.iter().any(|begin| path.starts_with(begin));
    };
    // "<T>::function" or "<T as Trait>::function"
    match as_trait(qualified) {
        None => is_type(qualified),
        Some((of, is)) => {
            let method = rest.trim_start_matches(':').split(['<', ':']).next().unwrap_or("");
            is_type(of) && !is_primitive(of)
                || TRAITS.iter().any(|begin| is.starts_with(begin)) && !OWN_METHODS.contains(&method)
                // A slice or number knows no functions of the program but those of the program's own traits.
                || is_primitive(of) && is_library(is)
        }
    }
}

/// Is this type of Rust one of a library of containers, or one that has no crate?
fn is_type(of: &str) -> bool {
    let inner = of.trim_start_matches(['&', '*']);
    let inner = ["mut ", "const ", "dyn ", "impl "]
        .iter()
        .fold(inner, |of, word| of.strip_prefix(word).unwrap_or(of));
    is_primitive(inner) || inner != of && is_type(inner) || is_library(inner)
}

/// A type of Rust that is in no crate: slices, arrays, tuples, str, numbers.
fn is_primitive(of: &str) -> bool {
    const NAMES: [&str; 17] = [
        "str", "bool", "char", "u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128",
        "isize", "f32", "f64",
    ];
    of.starts_with(['[', '(']) && !of.starts_with("(anonymous") || NAMES.contains(&of)
}

/// "T as Trait".
fn as_trait(qualified: &str) -> Option<(&str, &str)> {
    let mut depth = 0;
    for (at, letter) in qualified.char_indices() {
        depth += nesting(qualified, at, letter);
        if depth == 0 && qualified[at..].starts_with(" as ") {
            return Some((&qualified[..at], &qualified[at + 4..]));
        }
    }
    None
}

/// What stands before the angle bracket that is still open, and behind it.
fn halves(inside: &str) -> Option<(&str, &str)> {
    let mut depth = 1;
    for (at, letter) in inside.char_indices() {
        depth += nesting(inside, at, letter);
        if depth == 0 {
            return Some((&inside[..at], &inside[at + 1..]));
        }
    }
    None
}

/// One deeper, one less deep, or neither. The arrow of a type is no bracket.
fn nesting(text: &str, at: usize, letter: char) -> i32 {
    match letter {
        '<' | '(' | '[' | '{' => 1,
        '>' if text[..at].ends_with('-') => 0,
        '>' | ')' | ']' | '}' => -1,
        _ => 0,
    }
}

/// A name of C++ without the type that it returns, which stands before functions that are made from templates.
fn bare(function: &str) -> &str {
    let (mut depth, mut begin) = (0, 0);
    for (at, letter) in function.char_indices() {
        if depth == 0 && is_word(function, at, "operator") {
            break;
        }
        // Parameters, if a name is before them: this is neither "(anonymous namespace)::f" nor "decltype(auto) f".
        if depth == 0 && letter == '(' && at > begin && !function[begin..at].ends_with("decltype") {
            break;
        }
        depth += nesting(function, at, letter);
        if depth == 0 && letter == ' ' {
            begin = at + 1;
        }
    }
    &function[begin..]
}

/// Does this word begin here?
fn is_word(text: &str, at: usize, word: &str) -> bool {
    let is_letter = |letter: char| letter.is_alphanumeric() || letter == '_';
    text[at..].strip_prefix(word).is_some_and(|rest| !rest.starts_with(is_letter))
        && !text[..at].ends_with(is_letter)
}

#[cfg(test)]
#[path = "plumbing_tests.rs"]
mod tests;
