// SPDX-License-Identifier: MIT
//! The threads of a process, and where their stacks are.

use crate::text;

/// A thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Its number; that of the first thread is the process's.
    pub tid: u32,
    /// Its name, up to 15 bytes.
    pub name: String,
    /// Where its stack pointer was. Unknown while it runs, and without the right to trace it.
    pub stack_pointer: Option<u64>,
    /// It has ended since the stack pointer was read.
    pub ended: bool,
}

/// The threads of a process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tasks {
    /// By number.
    pub list: Vec<Task>,
    /// The kernel does not let us see stack pointers.
    pub denied: bool,
}

/// The stack pointer in the file syscall: "NUMBER ARGUMENT... SP PC", "-1 SP PC" outside of a system call, "running".
pub fn stack_pointer(syscall: &[u8]) -> Option<u64> {
    let words: Vec<&[u8]> = text::words(syscall).collect();
    match words.as_slice() {
        [_, .., pointer, _] => text::pointer(pointer).filter(|pointer| *pointer != 0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_stack_pointer_is() {
        assert_eq!(stack_pointer(b"-1 0x7ffe10 0x7f11\n"), Some(0x7f_fe10));
        assert_eq!(
            stack_pointer(b"230 0x1 0x1 0x2 0x0 0x0 0x3 0x7f843a7f8a70 0x7f84\n"),
            Some(0x7f84_3a7f_8a70)
        );
        for text in [&b"running\n"[..], b"", b"0x1 0x2", b"-1 0x0 0x0", b"1 2 3"] {
            assert_eq!(stack_pointer(text), None, "{text:?}");
        }
    }
}
