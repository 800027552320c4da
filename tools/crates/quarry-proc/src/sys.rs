// SPDX-License-Identifier: MIT
//! The unsafe code of this crate: tracing our own child, and two questions to the system.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A stop for which the kernel waits for the tracer, in what waitpid says: the event that led to it.
pub(crate) const EVENT_EXIT: i32 = libc::PTRACE_EVENT_EXIT;
/// It has made a thread, or a process that the kernel shows like one.
pub(crate) const EVENT_CLONE: i32 = libc::PTRACE_EVENT_CLONE;
/// Stopped by a signal that stops, or just attached.
pub(crate) const EVENT_STOP: i32 = 128;

fn check(result: i64) -> io::Result<i64> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The page size of this machine.
pub fn page_size() -> u64 {
    // SAFETY: takes and returns integers.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Ticks of a second, in which stat has its times.
pub fn ticks_per_second() -> u64 {
    // SAFETY: takes and returns integers.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).unwrap_or(100).max(1)
}

/// Is there a process of this number, whoever's?
pub(crate) fn exists(pid: u32) -> bool {
    let Ok(pid) = i32::try_from(pid) else { return false };
    // SAFETY: takes integers; signal 0 is none. Numbers below 1 mean something else.
    let asked = pid > 0 && unsafe { libc::kill(pid, 0) } == 0;
    asked || (pid > 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EPERM))
}

/// Send a signal to a process.
pub(crate) fn kill(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: takes integers.
    check(i64::from(unsafe { libc::kill(pid, signal) })).map(|_| ())
}

/// Have the child ask to be traced by us, so that it stops when it has become the command.
pub(crate) fn trace_me(command: &mut Command) {
    let ask = || {
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: this request looks at none of its arguments.
        check(unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, none, none) }).map(|_| ())
    };
    // SAFETY: the closure makes one system call and allocates nothing, so it is safe between fork and exec.
    unsafe { command.pre_exec(ask) };
}

fn request(request: libc::c_uint, pid: i32, data: usize) -> io::Result<()> {
    let (none, data) = (std::ptr::null_mut::<libc::c_void>(), data as *mut libc::c_void);
    // SAFETY: requests that take an integer as data and look at no address; `pid` may be any number.
    check(unsafe { libc::ptrace(request, pid, none, data) }).map(|_| ())
}

/// Stop tracing, and stop the child as by a signal.
pub(crate) fn detach_stopped(pid: i32) -> io::Result<()> {
    request(libc::PTRACE_DETACH, pid, libc::SIGSTOP as usize)
}

/// Trace a process with all threads that it will make, to their ends. All that is traced is killed when we end.
pub(crate) fn seize(pid: i32) -> io::Result<()> {
    let options = libc::PTRACE_O_TRACEEXIT | libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_EXITKILL;
    request(libc::PTRACE_SEIZE, pid, options as usize)
}

/// Let a stopped thread go on, with a signal if that is not 0. One that was killed meanwhile is no error.
pub(crate) fn go_on(tid: i32, signal: i32) {
    let _ = request(libc::PTRACE_CONT, tid, signal as usize);
}

/// Trace a stopped one no more.
pub(crate) fn let_go(tid: i32) {
    let_go_with(tid, 0);
}

/// The same, with a signal that it was about to get if that is not 0.
pub(crate) fn let_go_with(tid: i32, signal: i32) {
    let _ = request(libc::PTRACE_DETACH, tid, signal as usize);
}

/// Trace a thread and have it stop. When we end it goes on.
pub(crate) fn interrupt(tid: i32) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, tid, 0)?;
    request(libc::PTRACE_INTERRUPT, tid, 0)
}

/// The number that belongs to the event for which it is stopped.
pub(crate) fn event_message(tid: i32) -> io::Result<i32> {
    let (none, mut message) = (std::ptr::null_mut::<libc::c_void>(), 0 as libc::c_ulong);
    // SAFETY: the kernel writes an unsigned long.
    check(unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, tid, none, &raw mut message) })?;
    i32::try_from(message).map_err(io::Error::other)
}

/// Leave a thread stopped as the signal wants it, and hear of what else happens to it.
pub(crate) fn stay(tid: i32) {
    let _ = request(libc::PTRACE_LISTEN, tid, 0);
}

/// What happened to the process or thread with this number, or to any of this thread's children if it is -1.
pub(crate) fn wait(pid: i32) -> io::Result<(i32, i32)> {
    let mut status = 0;
    // SAFETY: `status` is a writable integer.
    let found =
        unsafe { libc::waitpid(pid, &mut status, libc::__WALL | libc::__WNOTHREAD | libc::WUNTRACED) };
    check(i64::from(found)).map(|_| (found, status))
}

/// What happened to a thread that is traced, if something has that nobody asked for yet.
pub(crate) fn look(tid: i32) -> io::Result<Option<i32>> {
    let mut status = 0;
    // SAFETY: `status` is a writable integer.
    let found = unsafe { libc::waitpid(tid, &mut status, libc::__WALL | libc::WNOHANG) };
    check(i64::from(found)).map(|found| (found != 0).then_some(status))
}
