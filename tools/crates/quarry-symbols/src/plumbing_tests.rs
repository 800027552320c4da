// SPDX-License-Identifier: MIT
//! Names as compilers make them, and stacks of them.

use super::*;

#[test]
fn names_of_cxx() {
    for name in [
        "operator new(unsigned long)",
        "operator new[](unsigned long, std::align_val_t)",
        "Own::operator new(unsigned long)",
        "app::Pool<int>::operator new[](unsigned long)",
        "__GI___strdup",
        "__GI___libc_malloc",
        "__vasprintf_internal",
        "std::vector<int, std::allocator<int> >::_M_realloc_insert<int const&>(int const&)",
        "void std::vector<int, std::allocator<int> >::_M_realloc_insert<int>(int&&)",
        "std::__new_allocator<int>::allocate(unsigned long, void const*)",
        "__gnu_cxx::new_allocator<std::_Rb_tree_node<int> >::allocate(unsigned long, void const*)",
        "std::_Rb_tree<int, int, std::_Identity<int>, std::less<int>, std::allocator<int> >::_M_get_node()",
        "std::_Rb_tree_node<int>* std::_Rb_tree<int, int>::_M_create_node<int const&>(int const&)",
        "std::__allocated_ptr<std::allocator<int> > std::__allocate_guarded<std::allocator<int> >(std::allocator<int>&)",
        "std::__detail::_Hash_node<int, false>* std::__detail::_Hashtable_alloc<int>::_M_allocate_node<int>(int&&)",
        "std::map<std::__cxx11::basic_string<char, std::char_traits<char> >, int>::operator[](int const&)",
        "std::__1::vector<int, std::__1::allocator<int>>::push_back[abi:ne180100](int const&)",
        "std::__1::pair<std::__1::__tree_iterator<int>, bool> std::__1::__tree<int>::__emplace_unique_key_args<int>(int)",
        "void* std::__1::__libcpp_operator_new[abi:v160006]<unsigned long>(unsigned long)",
        "std::__ndk1::basic_string<char>::__grow_by(unsigned long)",
        "std::shared_ptr<Thing> std::make_shared<Thing, int (*)(int)>(int (*&&)(int))",
        "decltype(auto) std::operator+<char>(char const*, std::string const&)",
        "std::function<void (int)>::function(std::function<void (int)> const&)",
    ] {
        assert!(is_plumbing(name), "{name}");
    }
    for name in [
        "main",
        "newer",
        "mallocate",
        "operator<<(std::ostream&, Thing const&)",
        "Thing::operator new_thing(int)",
        "__GI__IO_file_doallocate",
        "std_like::vector<int>::push_back(int)",
        "app::load(std::vector<int, std::allocator<int> > const&)",
        "std::vector<int, std::allocator<int> > app::make<int>(int)",
        "void app::each<std::vector<int> >(std::vector<int>&)",
        "(anonymous namespace)::helper(std::string)",
        "std::string (anonymous namespace)::name<int>(int)",
        "Thing::operator()(int) const",
        "bool operator< <Thing>(Thing const&, std::less<Thing> const&)",
        "main::{lambda(std::vector<int>&)#1}::operator()(std::vector<int>&) const",
        "corellia::fly()",
        "allocate_things(int)",
    ] {
        assert!(!is_plumbing(name), "{name}");
    }
}

#[test]
fn names_of_rust() {
    for name in [
        // v0
        "<alloc::raw_vec::RawVecInner>::try_allocate_in",
        "<alloc::raw_vec::RawVecInner<alloc::alloc::Global>>::finish_grow",
        "<alloc::vec::Vec<u8>>::with_capacity",
        "<u8 as alloc::vec::spec_from_elem::SpecFromElem>::from_elem::<alloc::alloc::Global>",
        "<alloc::string::String as core::clone::Clone>::clone",
        "<alloc::string::String as core::iter::traits::collect::FromIterator<char>>::from_iter::<core::str::iter::Chars>",
        "<r::Thing as alloc::string::ToString>::to_string",
        "<str>::repeat",
        "<[u8]>::to_vec",
        "<[alloc::string::String] as alloc::slice::Join<&str>>::join",
        "<&str as core::convert::Into<alloc::string::String>>::into",
        "<hashbrown::raw::RawTable<(u32, u32)>>::reserve_rehash::<r::main::{closure#0}>",
        "<std::collections::hash::map::HashMap<u32, u32>>::insert",
        "<bumpalo::Bump>::new_chunk",
        "<core::iter::adapters::map::Map<r::Things, r::main::{closure#0}> as core::iter::traits::iterator::Iterator>::fold",
        "<r::Things as core::iter::traits::iterator::Iterator>::collect::<alloc::vec::Vec<u8>>",
        "<g::G as core::alloc::global::GlobalAlloc>::alloc",
        "<alloc::alloc::Global as core::alloc::Allocator>::allocate",
        "<alloc::boxed::Box<dyn core::ops::function::Fn(u8) -> u8>>::new",
        "__rustc::__rust_alloc",
        "__rustc[4f0b]::__rdl_alloc",
        // legacy
        "alloc::raw_vec::RawVec<T,A>::allocate_in",
        "alloc::vec::Vec<T,A>::with_capacity_in",
        "<alloc::vec::Vec<T> as alloc::vec::spec_from_iter::SpecFromIter<T,I>>::from_iter",
        "<T as alloc::vec::spec_from_elem::SpecFromElem>::from_elem",
        "alloc::slice::<impl [T]>::repeat",
        "alloc::str::<impl alloc::borrow::ToOwned for str>::to_owned",
        "hashbrown::raw::RawTable<T,A>::reserve_rehash",
        "<std::alloc::System as core::alloc::global::GlobalAlloc>::alloc",
        "__rust_alloc_zeroed",
        "alloc::alloc::exchange_malloc",
    ] {
        assert!(is_plumbing(name), "{name}");
    }
    for name in [
        "r::first",
        "<r::Thing>::new",
        "<r::Thing as core::clone::Clone>::clone",
        "<r::Things as core::iter::traits::iterator::Iterator>::next",
        "<r::Thing as core::fmt::Display>::fmt",
        "<alloc_counter::Thing>::new",
        "r::main::{closure#0}",
        "<u8 as r::Make>::make",
        "<alloc_like::Vec<alloc::vec::Vec<u8>>>::push",
        "allocation::plan",
        "<fn(u8) -> alloc::vec::Vec<u8> as r::Make>::make",
        "<r::Handler<alloc::string::String> as core::default::Default>::default",
    ] {
        assert!(!is_plumbing(name), "{name}");
    }
}

#[test]
fn names_of_c() {
    for name in ["malloc", "xmalloc", "strdup", "g_malloc0_n", "PyObject_Malloc", "__libc_malloc"] {
        assert!(is_plumbing(name), "{name}");
    }
    for name in ["", "mallocs", "my_malloc", "<", "<<", "a <", "(", "std", "operator", "<T as", "é::malloc"]
    {
        assert!(!is_plumbing(name), "{name}");
    }
}

fn stack(names: &[&str]) -> Vec<Frame> {
    let frame = |name: &&str| Frame {
        function: (!name.is_empty()).then(|| (*name).to_owned()),
        module: "/lib/libx.so".into(),
        offset: 0x10,
        ..Frame::default()
    };
    names.iter().map(frame).collect()
}

#[test]
fn the_site_is_behind_the_plumbing() {
    let folding = Folding::default();
    for (names, site) in [
        (&["malloc", "xmalloc", "work", "main"][..], 2),
        (&["work", "main"], 0),
        (&["<alloc::raw_vec::RawVecInner>::try_allocate_in", "<alloc::vec::Vec<u8>>::push", "r::work"], 2),
        // A replaced operator new, and what it calls.
        (
            &[
                "pool_take",
                "my_alloc(unsigned long)",
                "operator new(unsigned long)",
                "std::string::string()",
                "work()",
            ],
            4,
        ),
        (
            &[
                "g::take",
                "<g::G as core::alloc::global::GlobalAlloc>::alloc",
                "__rust_alloc",
                "<alloc::vec::Vec<u8>>::push",
                "g::first",
            ],
            4,
        ),
        // A function of the program below a container is where the block comes from.
        (&["malloc", "Thing::Thing()", "std::vector<Thing>::resize(unsigned long)", "work()"], 1),
        // What a program's own heap calls, without a name here.
        (&["", "palloc", "expression_tree_mutator", "standard_planner"], 2),
        (&["malloc", "", "", "MemoryContextAlloc", "pstrdup", "makeString", "raw_parser"], 5),
        (&["zmalloc_usable", "_sdsnewlen", "createStringObject"], 1),
        (&["", "_PyObject_GC_New", "PyList_New", "main"], 2),
        (&["malloc", "", "sqlite3Malloc", "sqlite3DbMallocRawNN", "sqlite3VdbeCreate"], 4),
        // It has such a name, and is nobody's: a part of one, or no C.
        (&["palloc_of_mine", "work"], 0),
        (&["Thing::palloc(unsigned long)", "work()"], 0),
        // Nothing else: the innermost one.
        (&["operator new(unsigned long)", "std::locale::classic()"], 0),
        (&["", "malloc"], 0),
        (&[], 0),
    ] {
        assert_eq!(folding.site(&stack(names)), site, "{names:?}");
    }
    // Containers of containers.
    let mut deep = vec!["std::_Rb_tree<int>::_M_get_node()"; 40];
    deep.push("work()");
    assert_eq!(folding.site(&stack(&deep)), 40);
}

#[test]
fn more_is_hidden_on_request() {
    let names = ["malloc", "arena_take", "my_vector_push", "", "work", "main"];
    let site = |patterns: &[&str]| {
        let patterns: Vec<String> = patterns.iter().map(|&pattern| pattern.to_owned()).collect();
        Folding::hiding(&patterns).unwrap().site(&stack(&names))
    };
    assert_eq!(site(&[]), 1);
    assert_eq!(site(&["^arena_"]), 2);
    assert_eq!(site(&["^arena_take$", "vector"]), 3);
    assert_eq!(site(&["arena|vector", r"libx\.so\+0x10"]), 4);
    assert_eq!(site(&["^main$"]), 1, "an outer frame is nobody's allocator");
    assert_eq!(site(&["."]), 0, "all of them: the innermost one");
    assert!(Folding::hiding(&["a(".into()]).unwrap_err().starts_with("'a(':"));
}

/// Debug information of lines only has names without paths, and the paths of files.
#[test]
fn files_tell_where_names_do_not() {
    let frame = |function: &str, file: &str| Frame {
        function: Some(function.into()),
        file: Some(file.into()),
        line: Some(1),
        ..Frame::default()
    };
    let frames = [
        frame("alloc", "/rustc/59807616/library/alloc/src/alloc.rs"),
        frame("allocate_in", "/home/u/.cargo/registry/src/x/hashbrown-0.17.1/src/raw.rs"),
        frame("push_back", "/usr/include/c++/12/bits/stl_vector.h"),
        frame("push_back", "/usr/lib/llvm-14/bin/../include/c++/v1/vector"),
        frame("insert", "/rustc/59807616/library/std/src/collections/hash/map.rs"),
        frame("alloc", "/home/u/app/src/alloc.rs"),
        frame("main", "/home/u/app/src/main.rs"),
    ];
    assert_eq!(Folding::default().site(&frames), 5);
}

#[test]
fn a_block_of_a_pool_comes_from_who_asks_the_pool() {
    let names = ["qy_pool_trace_alloc", "fifo_counted_alloc", "quarry_fifo_alloc_slow", "enqueue", "main"];
    let frame = |name: &&str| Frame { function: Some((*name).to_owned()), ..Frame::default() };
    let frames: Vec<Frame> = names.iter().map(frame).collect();
    assert_eq!(Folding::default().site(&frames), 3);
    assert_eq!(Folding::default().site(&frames[3..]), 0);
}
