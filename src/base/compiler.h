// SPDX-License-Identifier: MIT
// compiler.h: attributes for our own code.
#ifndef QY_BASE_COMPILER_H
#define QY_BASE_COMPILER_H

#define QY_LIKELY(x) __builtin_expect(!!(x), 1)
#define QY_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define QY_COLD __attribute__((cold, noinline))
#define QY_NOINLINE __attribute__((noinline))
#define QY_INLINE static inline __attribute__((always_inline))
// on data that fast paths read: no detour by the table of what others may replace
#define QY_HIDDEN __attribute__((visibility("hidden")))
#define QY_UNSANITIZED __attribute__((no_sanitize("thread")))  // reads on purpose what others may be writing
#define QY_CACHE_LINE 64
#define QY_ALIGNED(n) __attribute__((aligned(n)))

// The compiler knows nothing of a pointer any more. What was read through it is read again, which may be an operand of
// the next instruction: one less than to keep it.
#define QY_FORGET(p) __asm__("" \
                             : "+r"(p))

// Between an atomic operation that reads and writes, and loads that may not come before it. x86 has none that do.
#if defined(__x86_64__) || defined(__i386__)
#define QY_FENCE_AFTER_RMW() __atomic_signal_fence(__ATOMIC_SEQ_CST)
#else
#define QY_FENCE_AFTER_RMW() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#endif

// One turn of a loop that waits for another processor.
QY_INLINE void qy_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::
                         : "memory");  // yield is a no-op on most cores; isb takes a while
#endif
}

#if defined(__SANITIZE_THREAD__)
#define QY_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define QY_TSAN 1
#endif
#endif
#ifndef QY_TSAN
#define QY_TSAN 0
#endif

#if defined(__SANITIZE_ADDRESS__)
#define QY_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define QY_ASAN 1
#endif
#endif
#ifndef QY_ASAN
#define QY_ASAN 0
#endif

#endif
