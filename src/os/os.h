// SPDX-License-Identifier: MIT
// os.h: the contract with the kernel. src/os is the only folder that makes system calls.
//
// Rules for all functions:
//  - No function allocates, none touches errno (raw system calls on x86-64 and aarch64), none
//    needs libc to be initialised: they work before constructors and after destructors.
//  - Addresses and lengths are multiples of qy_os_page_size() unless said otherwise (test builds look).
//  - Those that can fail return NULL or false; the caller decides. None prints.
//  - Each call that can fail asks qy_os_fake first in test builds (see fake.h).
// Threads: all functions are thread-safe.
#ifndef QY_OS_OS_H
#define QY_OS_OS_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// ---- memory (memory.c) ---------------------------------------------------------------------

// Bytes per page, read from the kernel on the first call. 4096, 16384 or 65536.
size_t qy_os_page_size(void);

// Can so much address space be had now? Two system calls.
bool qy_os_has_space(size_t bytes);

// Address space without memory: PROT_NONE, not charged, not in core dumps. `align` is a power of
// two >= the page size. `hint` may be NULL; it is a wish. NULL on failure.
void *qy_os_reserve(size_t bytes, size_t align, void *hint);

// As reserve but readable at once: untouched pages read as zero and cost no memory until
// qy_os_commit makes them writable. For sparse tables.
void *qy_os_reserve_readable(size_t bytes, size_t align);

// Reserve and commit in one mapping, zeroed, aligned.
void *qy_os_map(size_t bytes, size_t align, void *hint);

// Make a reserved range readable and writable. False: nothing has changed (or only the beginning
// is writable already, which is harmless), the range may be committed again later.
bool qy_os_commit(void *addr, size_t bytes);

// Take access away again and give the memory back: the range is as freshly reserved.
bool qy_os_decommit(void *addr, size_t bytes);

// Give the memory of a writable range back; it stays mapped and reads as zero. False (denied,
// locked pages): contents are undefined but still there, the memory was not given back.
bool qy_os_purge(void *addr, size_t bytes);

// Give memory back that is the library's own: no program has seen it, so nobody is told. It stays mapped, and reads as
// it was or as zero. False: nothing was given back.
bool qy_os_empty(void *addr, size_t bytes);

// A fresh mapping in place of what is there, whatever a program did to it: writable, and zero. False: nothing has
// changed.
bool qy_os_renew(void *addr, size_t bytes);

// Are these pages one mapping to the kernel? It splits one where access, locks, advice or files of two parts differ.
// One system call. True where that may not be asked.
bool qy_os_is_one_mapping(void *from, size_t bytes);

// Can the four bytes at this aligned address be read now? One system call, of those that every sandbox has to allow.
// False also where it does not.
bool qy_os_can_be_read(const void *word);

// Return address space. False: nothing was unmapped (the table of mappings is full); the range is
// still usable and the call may be repeated.
bool qy_os_unmap(void *addr, size_t bytes);

// Move the pages of a mapping to `to`, a range of `new_bytes` reserved by the caller, replacing it;
// `from` is unmapped. False: `from` is as it was, and `to` is given up: it is unmapped as far as the
// kernel allows, and no longer the caller's.
bool qy_os_move(void *from, size_t old_bytes, void *to, size_t new_bytes);

// Move the pages of [from, from + bytes) to `to`, a range of the same size reserved by the caller; `from` stays mapped,
// as freshly as at first. Linux 5.7 and later, and only where qy_os_may_move_out. False: `from` is as it was, and `to`
// is given up as by qy_os_move.
bool qy_os_move_out(void *from, size_t bytes, void *to);

// Not out of locked memory, which would be locked no more, nor out of several mappings (a program may have given advice
// on a part): Linux 6.17 and later move one after the other, and may stop in the middle.
bool qy_os_may_move_out(void *from, size_t bytes);

// Resize a mapping where it lies. False: nothing has changed.
bool qy_os_resize_in_place(void *addr, size_t old_bytes, size_t new_bytes);

// Take all access from a range (guard), and give it back.
bool qy_os_protect_none(void *addr, size_t bytes);
bool qy_os_protect_rw(void *addr, size_t bytes);

// Advice, best effort: huge pages wanted or unwanted, keep out of core dumps, populate now, a name
// for /proc/PID/maps (needs a kernel with PR_SET_VMA).
void qy_os_advise_huge(void *addr, size_t bytes, bool want);
void qy_os_advise_nodump(void *addr, size_t bytes);
bool qy_os_populate(void *addr, size_t bytes);
void qy_os_name(void *addr, size_t bytes, const char *name);
// May mappings be named? Off from the end of the constructor on: a sandbox may end who makes this call, for what is a
// decoration.
void qy_os_names(bool on);

// Is transparent huge paging set to "always"? (read once from /sys; false if unknown)
bool qy_os_thp_always(void);

// ---- memory that may not be there (peek.c) -----------------------------------------------------

// Copy from memory of this process; false (and any part copied) unless all of it can be read. It makes no
// call that a filter forbids. It faults if another thread unmaps the page at this moment. 0.1 us a page.
bool qy_os_peek(const void *from, void *buf, size_t bytes);
// Can the aligned word that holds addr be read now? It says so of the rest of its page too. 0.1 us.
bool qy_os_readable(const void *addr);
// Can this page be written to? It is zero, and stays so; it has memory then.
bool qy_os_writable_new(void *page);
// The upper end of the main thread's stack: all its frames lie below. It stays mapped for ever.
uintptr_t qy_os_main_stack_top(void);

// ---- processors (cpus.c) ------------------------------------------------------------------------

// CPUs this process may use: the smaller of the affinity mask and the cgroup v2/v1 CPU quota
// (rounded up), at least 1. Read once; costs a few system calls the first time.
unsigned qy_os_cpu_count(void);
// CPUs in the affinity mask of the calling thread; one system call, no files. For use before
// start-up is complete.
unsigned qy_os_cpu_affinity(void);
// CPUs on which the calling thread or the process's first one may run; 0: the kernel does not say. Two system calls.
unsigned qy_os_cpus_together(void);
// Let a thread run on all of these, as they were when they were first asked for.
void qy_os_use_all_cpus(int thread);

// ---- threads and waiting (thread.c, spawn.c, thread_exit.c) -------------------------------------

int qy_os_thread_id(void);  // kernel thread id
int qy_os_process_id(void);
// The calling thread's id as libc knows it, without a call. In the child of a fork it is the process id. 0: unknown. In
// a child of a raw clone or vfork it is the parent's.
int qy_os_thread_id_known(void);
// The same, and the kernel is asked only if it is unknown.
static inline int qy_os_thread_id_quietly(void) {
    int id = qy_os_thread_id_known();
    return id ? id : qy_os_thread_id();
}
// Is this the process's first thread? The kernel is asked once, for the number of the process. Where a process is made
// without fork handlers, its first one is taken for another, or another for it. The third is to be called in a fork's
// child.
bool qy_os_is_first_thread(void);
void qy_os_first_thread_begin(void);  // from a constructor: no later thread asks the kernel
void qy_os_first_thread_in_child(void);
// The kernel is asked again: the process may be the child of a fork without handlers.
void qy_os_first_thread_unknown(void);
// An address that is the calling thread's alone (its thread pointer). Costs one instruction, and is
// the same in the child of a fork, where the thread id is another.
static inline uintptr_t qy_os_thread_token(void) {
    uintptr_t token;
#if defined(__x86_64__)
    __asm__("mov %%fs:0, %0"
            : "=r"(token));  // by the ABI, the word there holds its own address
#elif defined(__aarch64__)
    __asm__("mrs %0, tpidr_el0"
            : "=r"(token));
#else
    token = (uintptr_t)&errno;
#endif
    return token;
}

// Sleep while *word == expect, at most timeout_ns (0: for ever). Spurious wake-ups happen.
void qy_os_wait(_Atomic uint32_t *word, uint32_t expect, uint64_t timeout_ns);
void qy_os_wake(_Atomic uint32_t *word, unsigned count);

// Start a bare kernel thread running fn(arg) on `stack` (lowest address, bytes): normal scheduling at low priority
// on all processors, whatever the starter has; all signals blocked, no thread-local storage (fn must use none, nor what
// needs it in libc), invisible to pthreads. Takes 2.5 KiB of the stack. The thread ends when fn returns; *alive is 1
// until the kernel has let go of the stack, then 0 and woken. False where that cannot be done (sanitizers, valgrind,
// other processors, denied): the caller must do without; *alive is 0.
//
// To know: fn must not return into freed code or memory. A fork's child has no such thread, but a
// copy of *alive. While one lives, what the kernel allows to single-threaded processes only (new
// user namespaces, for one) fails; a setuid() by the program does not reach it.
bool qy_os_spawn(void (*fn)(void *arg), void *arg, void *stack, size_t bytes, _Atomic uint32_t *alive);
// Was it started so, and is one of the last four? The number of a thread that has ended may be another's by now.
bool qy_os_is_bare_thread(int thread);
// No signal handler of the program runs on this thread until they are let in again, with what this returned. (What the
// thread itself does wrong kills it all the same.)
uint64_t qy_os_signals_keep_out(void);
void qy_os_signals_let_in(uint64_t before);
// Those that the calling thread keeps out now.
uint64_t qy_os_signals_kept_out(void);
// Wait until *alive is 0, at most timeout_ns (0: for ever). False: it is not. (The kernel wakes `alive` in another way
// than qy_os_wake.)
bool qy_os_join(_Atomic uint32_t *alive, uint64_t timeout_ns);
// Wait until no such thread counts as one of the process, at most timeout_ns: it does for a moment longer than *alive
// says. They must have been ended.
void qy_os_bare_threads_gone(uint64_t timeout_ns);

// Does somebody watch what libc's munmap, madvise, mremap and mmap do (giveback.c)? Memory that a bare thread gives
// back is not seen there, so then it must give none back. Some loads; to be asked before each round of work, since
// libraries come at any time. True also as long as it is not known. qy_os_watch_begin is called from the constructor,
// without locks: some libcs have to be asked then.
bool qy_os_is_watched(void);
void qy_os_watch_begin(void);

// For the calling bare thread: from now on it may only wait, give memory back, and report a fault
// (sandbox.c says why). False: this kernel has no filters; it should end instead.
bool qy_os_sandbox_thread(void);

// What a system call, or a prctl, takes from the program that makes it: nothing; files by their path, at this call or
// one that mostly follows; or system calls, by a filter.
typedef enum qy_os_confines { QY_CONFINES_NOTHING,
    QY_CONFINES_PATHS,
    QY_CONFINES_CALLS } qy_os_confines_t;
qy_os_confines_t qy_os_prctl_confines(int what);
qy_os_confines_t qy_os_call_confines(long number, long first);

// Call fn(arg) once when the calling thread ends: in the first round of thread-specific destructors to
// come (thread_exit.c). A later call replaces arg. All calls in a process name the same fn; arg is not
// NULL. False: it could not be registered now. May call malloc, and with it errno is safe: libc
// allocates a table for each thread's keys from the 33rd on. After fn the thread may still call malloc
// and free.
bool qy_os_at_thread_exit(void (*fn)(void *arg), void *arg);
// Choose when within a round: after the destructors of all keys there are at the first call and of
// those to come, up to 31 in all. Without it, after those of older keys only. Call before the first
// use, and before the program has taken all keys: one is kept from then on. Some 7,500 instructions at the first use.
// (Beside glibc there is no such choice: the key is made at once.)
void qy_os_thread_exit_late(void);

// ---- time, environment, output (clock.c, env.c, file.c) -----------------------------------------

uint64_t qy_os_now_ns(void);         // monotonic
uint64_t qy_os_now_coarse_ns(void);  // monotonic, cheap (~10 ns), a tick (1 to 4 ms) of error
uint64_t qy_os_random(void);         // for secrets; falls back to time and addresses

// From a constructor, where libc tells it the arguments.
void qy_os_started(int argc, char **argv, char **environment);
// The first of them, without folders; NULL: unknown.
const char *qy_os_started_as(void);
// A value of the vector that the kernel gave the program (AT_...); 0: it has none.
unsigned long qy_os_auxv(unsigned long type);

// Value of an environment variable, or NULL; NULL always under AT_SECURE (setuid).
const char *qy_os_getenv(const char *name);

// The name of the running program (without folders), cut to fit.
void qy_os_program_name(char *buf, size_t bytes);

// write(2) until done or failed (file.c); for diagnostics.
bool qy_os_write(int fd, const void *buf, size_t bytes);
// Open for appending (created 0600, close-on-exec); -1 on failure.
int qy_os_open_append(const char *path);
void qy_os_close(int fd);

// Restore SIGABRT's default action, unblock it and abort (env.c). For the end of a diagnosis.
_Noreturn void qy_os_abort(void);
#define QY_OS_ABORT_SIGNAL 6  // which that is

#endif
