// SPDX-License-Identifier: MIT
//! An allocator that ends the tool in order when there is no memory left.

use std::alloc::{GlobalAlloc, Layout, System};

use crate::sys;

pub use sys::{keep_terminal, terminal_is_back};

/// The exit code then: the tool's own failure.
const OURS: i32 = 125;

/// The system's allocator. What it refuses ends the tool with a line that says so, without the file that was being written,
/// and with the terminal as it was ([`keep_terminal`]), where the standard library would abort. What a size from a file may ask for is bounded by the readers; this
/// is for what really is that large.
pub struct OrExit;

fn or_exit(block: *mut u8, bytes: usize) -> *mut u8 {
    if block.is_null() { sys::out_of_memory(bytes, OURS) } else { block }
}

// SAFETY: the system's allocator keeps the contract; a block that is not there is never returned.
unsafe impl GlobalAlloc for OrExit {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract.
        or_exit(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract.
        or_exit(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the caller keeps the contract.
        or_exit(unsafe { System.realloc(block, layout, bytes) }, bytes)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(block, layout) }
    }
}
