// SPDX-License-Identifier: MIT
//! System calls that the standard library does not offer. docs/dependencies.md lists all unsafe code of the tool.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Start `command` by fork and exec, not by vfork. The kernel counts what a process had before exec
/// towards its peak resident size: a vforked child would start with all that *we* have, a forked one
/// starts with our touched private memory, which is made small first.
pub fn spawn_forked(command: &mut Command) -> io::Result<Child> {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes an integer; gives free memory back to the kernel.
    unsafe {
        libc::malloc_trim(0);
    }
    // SAFETY: the closure does nothing, so it is safe between fork and exec.
    unsafe { command.pre_exec(|| Ok(())) };
    command.spawn()
}

/// Have `command` killed when the thread that starts it ends, and so when this process does, whatever ends it.
pub fn die_with_us(command: &mut Command) {
    let us = std::process::id();
    let tie = move || {
        // SAFETY: takes integers only.
        check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong) })?;
        // Of an end before that the kernel says nothing any more.
        match std::os::unix::process::parent_id() == us {
            true => Ok(()),
            false => Err(io::ErrorKind::BrokenPipe.into()),
        }
    };
    // SAFETY: the closure makes two system calls and allocates nothing, so it is safe between fork and exec.
    unsafe { command.pre_exec(tie) };
}

/// Have `command` run on these processors only; those that do not exist are left out by the kernel.
pub fn pin(command: &mut Command, processors: &[usize]) {
    // SAFETY: an array of integers, for which zero is a value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &processor in processors.iter().filter(|&&processor| processor < libc::CPU_SETSIZE as usize) {
        // SAFETY: the number is within the set.
        unsafe { libc::CPU_SET(processor, &mut set) };
    }
    let pin = move || {
        // SAFETY: a set of the size that is told; 0 is the calling process.
        check(unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) }).map(|_| ())
    };
    // SAFETY: the closure makes one system call and allocates nothing, so it is safe between fork and exec.
    unsafe { command.pre_exec(pin) };
}

/// The processors that this process may use.
pub fn processors() -> Vec<usize> {
    // SAFETY: an array of integers, for which zero is a value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: a writable set of the size that is told; 0 is the calling process.
    if unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) } < 0 {
        return vec![0];
    }
    // SAFETY: the numbers are within the set.
    (0..libc::CPU_SETSIZE as usize).filter(|&n| unsafe { libc::CPU_ISSET(n, &set) }).collect()
}

/// Block until process `pid`, our child, has ended; leave it to be reaped.
pub fn wait_ended(pid: i32) -> io::Result<()> {
    loop {
        let mut info = MaybeUninit::<libc::siginfo_t>::uninit();
        // SAFETY: `info` is writable and of the right type; WNOWAIT changes nothing.
        let result = unsafe {
            libc::waitid(libc::P_PID, pid as libc::id_t, info.as_mut_ptr(), libc::WEXITED | libc::WNOWAIT)
        };
        match check(result) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other.map(|_| ()),
        }
    }
}

/// Reap our ended child `pid`: its raw wait status, and what it and the descendants it waited for used.
pub fn reap(pid: i32) -> io::Result<(i32, libc::rusage)> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    loop {
        // SAFETY: both outputs are writable and of the right type.
        match check(unsafe { libc::wait4(pid, &mut status, 0, usage.as_mut_ptr()) }) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            // SAFETY: a plain C struct, zeroed at first and filled by the kernel.
            Ok(_) => return Ok((status, unsafe { usage.assume_init() })),
        }
    }
}

/// Have `command` stop for us when it ends, before its memory goes. Where tracing is not allowed it just runs.
pub fn stop_at_end(command: &mut Command) {
    let ask = || {
        // SAFETY: takes integers only; nothing is read or written for this request.
        unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
        Ok(())
    };
    // SAFETY: the closure makes one system call and allocates nothing, so it is safe between fork and exec.
    unsafe { command.pre_exec(ask) };
}

/// What our child does next, if it is one that stops for us: its raw wait status, and whether that is a stop at its end.
pub fn next_stop(pid: i32) -> io::Result<Stop> {
    /// So that it does not go on without us.
    const OPTIONS: i32 = libc::PTRACE_O_TRACEEXIT | libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_EXITKILL;
    loop {
        let mut info = MaybeUninit::<libc::siginfo_t>::uninit();
        let which = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT;
        // SAFETY: `info` is writable and of the right type; WNOWAIT changes nothing.
        match check(unsafe {
            libc::waitid(libc::P_PID, pid as libc::id_t, info.as_mut_ptr(), which | libc::__WALL)
        }) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        // SAFETY: filled by the kernel.
        let (code, status) = unsafe {
            let info = info.assume_init();
            (info.si_code, info.si_status())
        };
        if code != libc::CLD_TRAPPED && code != libc::CLD_STOPPED {
            return Ok(Stop::Ended);
        }
        let mut taken = MaybeUninit::<libc::siginfo_t>::uninit();
        let which = libc::WSTOPPED | libc::WNOHANG | libc::__WALL;
        // SAFETY: `taken` is writable and of the right type. Without WEXITED it takes the stop only, if that still is one.
        check(unsafe { libc::waitid(libc::P_PID, pid as libc::id_t, taken.as_mut_ptr(), which) })?;
        // SAFETY: takes integers only.
        unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, pid, 0, OPTIONS) };
        return Ok(match status >> 8 {
            libc::PTRACE_EVENT_EXIT => Stop::AtEnd,
            0 if status != libc::SIGTRAP => Stop::Signal(status),
            _ => Stop::Other,
        });
    }
}

/// Why a child that stops for us is not running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// It is about to end, and has its memory.
    AtEnd,
    /// A signal is about to be delivered.
    Signal(i32),
    /// Something else that it need not have stopped for.
    Other,
    /// It has ended, and is to be reaped.
    Ended,
}

/// Have a child that stopped go on, with this signal if it is not 0.
pub fn go_on(pid: i32, signal: i32) {
    // SAFETY: takes integers only. It fails if the child was killed meanwhile.
    unsafe { libc::ptrace(libc::PTRACE_CONT, pid, 0, signal) };
}

/// Processor time of all threads of a process.
pub fn cpu_time(pid: i32) -> Option<Duration> {
    /// Of a whole process, by the scheduler's account.
    const SCHEDULED: i32 = 2;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the output is writable and of the right type.
    check(unsafe { libc::clock_gettime(!pid << 3 | SCHEDULED, &mut time) }).ok()?;
    Some(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// A descriptor that becomes readable when process `pid` ends.
pub fn pidfd(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: takes integers only.
    let fd = check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as i32)?;
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// One more descriptor of what is open under this number.
pub fn duplicate(number: i32) -> io::Result<OwnedFd> {
    // SAFETY: takes integers only, and says so where nothing is open under the number.
    let fd = check(unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) })?;
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Wait until one of `fds` (negative ones are skipped) is readable or closed by its writer. The
/// answer has an entry per descriptor; none is set at a timeout or when a signal came.
pub fn poll_readable<const N: usize>(fds: [RawFd; N], timeout: Option<Duration>) -> io::Result<[bool; N]> {
    let mut polled = fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    // Rounded up, or the last fraction of a millisecond would be spun away.
    let millis = timeout.map_or(-1, |t| t.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i32);
    // SAFETY: an array of N initialised entries.
    match check(unsafe { libc::poll(polled.as_mut_ptr(), N as libc::nfds_t, millis) }) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok([false; N]),
        Err(error) => Err(error),
        Ok(_) => Ok(polled.map(|p| p.revents != 0)),
    }
}

/// Make reads of `fd` return at once.
pub fn set_nonblocking(fd: &impl AsRawFd) -> io::Result<()> {
    // SAFETY: F_GETFL and F_SETFL take and return integers.
    unsafe {
        let flags = check(libc::fcntl(fd.as_raw_fd(), libc::F_GETFL))?;
        check(libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK))?;
    }
    Ok(())
}

/// Ask for a pipe of `bytes`; how large it becomes is up to the system.
pub fn grow_pipe(fd: &impl AsRawFd, bytes: i32) {
    // SAFETY: takes integers only; a refusal leaves the pipe as it was.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETPIPE_SZ, bytes) };
}

/// Send `signal` to process `pid`, or to process group `-pid` when negative.
pub fn kill(pid: i32, signal: i32) {
    // SAFETY: takes integers only.
    unsafe { libc::kill(pid, signal) };
}

/// The ids the kernel compares with a set-user-ID file: our real user and group.
pub fn real_ids() -> (u32, u32) {
    // SAFETY: these calls cannot fail.
    unsafe { (libc::getuid(), libc::getgid()) }
}

/// May we execute this file?
pub fn is_executable(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: a NUL-terminated string that outlives the call.
    unsafe { libc::access(path.as_ptr(), libc::X_OK) == 0 }
}

/// Does the file carry capabilities?
pub fn has_file_capabilities(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: NUL-terminated strings; size 0 asks for the length only and writes nothing.
    unsafe { libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

/// The page size in bytes.
pub fn page_size() -> u64 {
    // SAFETY: takes and returns integers.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as u64 }
}

/// Ticks of a second, in which the kernel counts processor time in /proc.
pub fn ticks_per_second() -> f64 {
    // SAFETY: takes and returns integers.
    unsafe { libc::sysconf(libc::_SC_CLK_TCK) as f64 }
}

/// The release of the running kernel.
pub fn kernel_release() -> String {
    let mut name = MaybeUninit::<libc::utsname>::zeroed();
    // SAFETY: on success uname fills every member with a NUL-terminated string.
    unsafe {
        if libc::uname(name.as_mut_ptr()) != 0 {
            return String::from("unknown");
        }
        CStr::from_ptr(name.assume_init_ref().release.as_ptr()).to_string_lossy().into_owned()
    }
}

/// The version of the C library this tool runs on.
pub fn libc_version() -> String {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: returns a static NUL-terminated string.
        let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
        format!("glibc {}", version.to_string_lossy())
    }
    #[cfg(not(target_env = "gnu"))]
    String::from("unknown")
}

// What the signal handler may touch. TARGET is what kill() takes: the program, its group when
// negative, 0 when there is none.
static OWNER: AtomicI32 = AtomicI32::new(0);
static TARGET: AtomicI32 = AtomicI32::new(0);
static PENDING: AtomicI32 = AtomicI32::new(0);
static SEEN: AtomicI32 = AtomicI32::new(0);

extern "C" fn on_signal(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: only async-signal-safe calls; `info` is valid under SA_SIGINFO; errno is restored.
    unsafe {
        if libc::getpid() != OWNER.load(Ordering::Relaxed) {
            // Between fork and exec: the program must get what was meant for it.
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
            return;
        }
        let saved = *libc::__errno_location();
        SEEN.store(signal, Ordering::Relaxed);
        let target = TARGET.load(Ordering::SeqCst);
        // A key at the terminal reaches the whole foreground group, the program included.
        let from_terminal = (*info).si_code == libc::SI_KERNEL;
        if target == 0 {
            PENDING.store(signal, Ordering::SeqCst);
        } else if target < 0 || !from_terminal {
            libc::kill(target, signal);
        }
        *libc::__errno_location() = saved;
    }
}

/// Have `handler` called at `signal` from now on, unless what is done about it so far `stays`. Returns what was there before.
fn install(
    signal: i32,
    handler: usize,
    flags: i32,
    stays: fn(libc::sighandler_t) -> bool,
) -> Option<libc::sigaction> {
    let mut old = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: plain C structs; the handlers of this file keep to async-signal-safe calls.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), old.as_mut_ptr());
        let old = old.assume_init();
        if stays(old.sa_sigaction) {
            return None;
        }
        let mut new: libc::sigaction = std::mem::zeroed();
        new.sa_sigaction = handler;
        new.sa_flags = flags;
        libc::sigaction(signal, &new, std::ptr::null_mut());
        Some(old)
    }
}

/// Handle `signal` from now on by passing it to the target. Returns what was there before, or `None`
/// when the signal was ignored: then it stays so, for the program too (`nohup`).
pub fn handle_signal(signal: i32) -> Option<libc::sigaction> {
    OWNER.store(std::process::id() as i32, Ordering::Relaxed);
    // Not SA_RESTART, so that poll() returns and the caller notices.
    install(signal, on_signal as *const () as usize, libc::SA_SIGINFO, |old| old == libc::SIG_IGN)
}

/// Put back what [`handle_signal`] and the like returned.
pub fn restore_signal(signal: i32, old: &libc::sigaction) {
    // SAFETY: `old` was filled by the kernel.
    unsafe { libc::sigaction(signal, old, std::ptr::null_mut()) };
}

/// From now on signals go to `target`, also one that came while there was none.
pub fn set_signal_target(target: i32) {
    TARGET.store(target, Ordering::SeqCst);
    if target != 0 {
        let pending = PENDING.swap(0, Ordering::SeqCst);
        if pending != 0 {
            kill(target, pending);
        }
    }
}

// Whether the process is to stop, and how often it was stopped and went on.
static STOP_ASKED: AtomicBool = AtomicBool::new(false);
static CONTINUED: AtomicU32 = AtomicU32::new(0);

extern "C" fn on_job_signal(signal: i32) {
    if signal == libc::SIGCONT {
        CONTINUED.fetch_add(1, Ordering::SeqCst);
    } else {
        STOP_ASKED.store(true, Ordering::SeqCst);
    }
}

/// From now on SIGTSTP or SIGCONT is only noticed. Returns what was there before, or `None` when it was ignored: then it stays
/// so.
pub fn notice_job_signal(signal: i32) -> Option<libc::sigaction> {
    // SA_RESTART: nobody waits for it in a call.
    install(signal, on_job_signal as *const () as usize, libc::SA_RESTART, |old| old == libc::SIG_IGN)
}

/// Was SIGTSTP noticed since the last time this was asked?
pub fn take_stop_asked() -> bool {
    STOP_ASKED.swap(false, Ordering::SeqCst)
}

/// How often SIGCONT was noticed. Several may ask, and each sees whether the number is another one than before.
pub fn times_continued() -> u32 {
    CONTINUED.load(Ordering::SeqCst)
}

/// The last signal handled, 0 for none.
pub fn signal_seen() -> i32 {
    SEEN.load(Ordering::Relaxed)
}

/// As if none had been handled.
pub fn forget_signals() {
    SEEN.store(0, Ordering::Relaxed);
    PENDING.store(0, Ordering::SeqCst);
}

// The file that is to go with us. Never freed once it was here, since a handler may just be reading it.
static DOOMED: AtomicPtr<libc::c_char> = AtomicPtr::new(std::ptr::null_mut());

fn remove_doomed() {
    let path = DOOMED.swap(std::ptr::null_mut(), Ordering::SeqCst);
    if !path.is_null() {
        // SAFETY: a NUL-terminated string that is never freed; unlink is async-signal-safe.
        unsafe { libc::unlink(path) };
    }
}

extern "C" fn remove_and_die(signal: i32) {
    remove_doomed();
    // SAFETY: async-signal-safe calls that take integers; the signal comes again when this returns.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

/// From now on `path` is removed when the process is ended by [`remove_at_signal`] or [`out_of_memory`]. False: another file
/// is.
pub fn doom(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    let path = path.into_raw();
    let doomed =
        DOOMED.compare_exchange(std::ptr::null_mut(), path, Ordering::SeqCst, Ordering::SeqCst).is_ok();
    if !doomed {
        // SAFETY: made by into_raw above, and nobody else has it.
        drop(unsafe { CString::from_raw(path) });
    }
    doomed
}

/// The file is safe.
pub fn pardon() {
    DOOMED.store(std::ptr::null_mut(), Ordering::SeqCst);
}

/// Let `signal` remove the doomed file before it ends the process as it always does. Returns what was there before, or
/// `None` where something else is done about the signal: then it stays so.
pub fn remove_at_signal(signal: i32) -> Option<libc::sigaction> {
    install(signal, remove_and_die as *const () as usize, 0, |old| old != libc::SIG_DFL)
}

// The terminal that is to be given back, as it was before it was changed; and what makes it show what it showed then.
static TERMINAL: Mutex<Option<(libc::termios, &[u8])>> = Mutex::new(None);

/// From now on [`out_of_memory`] gives the terminal of the standard streams the modes that it has now, and writes `leave` to it.
pub fn keep_terminal(leave: &'static [u8]) -> io::Result<()> {
    let mut modes = MaybeUninit::<libc::termios>::zeroed();
    // SAFETY: writable and of the right type.
    check(unsafe { libc::tcgetattr(0, modes.as_mut_ptr()) })?;
    // SAFETY: a plain C struct, zeroed at first and filled by the call.
    let modes = unsafe { modes.assume_init() };
    *TERMINAL.lock().unwrap_or_else(PoisonError::into_inner) = Some((modes, leave));
    Ok(())
}

/// The terminal is as it was.
pub fn terminal_is_back() {
    *TERMINAL.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

fn give_terminal_back() {
    // Who holds the lock has not changed it yet, or no longer.
    let Ok(mut terminal) = TERMINAL.try_lock() else { return };
    if let Some((modes, leave)) = terminal.take() {
        // SAFETY: the bytes of a slice, and modes that the kernel filled. A terminal that is gone needs nothing.
        unsafe {
            libc::write(1, leave.as_ptr().cast(), leave.len());
            libc::tcsetattr(0, libc::TCSANOW, &modes);
        }
    }
}

/// Say that `bytes` were refused, and end the process with `code`. Allocates nothing, and nothing of ours runs any more.
pub fn out_of_memory(bytes: usize, code: i32) -> ! {
    give_terminal_back();
    let mut digits = [0u8; 20];
    let (mut at, mut rest) = (digits.len(), bytes);
    while at == digits.len() || rest > 0 {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let begin = "quarry: error: out of memory: the system refused ";
    let end = " bytes (ulimit -v, a container's limit?); give it more, or a smaller input\n";
    for part in [begin.as_bytes(), &digits[at..], end.as_bytes()] {
        // SAFETY: the bytes of a slice. What cannot be written is not.
        unsafe { libc::write(2, part.as_ptr().cast(), part.len()) };
    }
    remove_doomed();
    // SAFETY: takes an integer and does not return.
    unsafe { libc::_exit(code) }
}
