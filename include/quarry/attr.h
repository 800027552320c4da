// SPDX-License-Identifier: MIT
// attr.h: the one place with compiler attributes (GCC and Clang, C and C++).
#ifndef QUARRY_ATTR_H
#define QUARRY_ATTR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define QUARRY_BEGIN extern "C" {
#define QUARRY_END }
#define QUARRY_NOEXCEPT noexcept
#else
#define QUARRY_BEGIN
#define QUARRY_END
#define QUARRY_NOEXCEPT
#endif

// Exported from the shared library; everything else is hidden.
#define QUARRY_API __attribute__((visibility("default")))
// What threads have of their own is an offset from the thread pointer: glibc keeps room for it, also for a library that
// is opened late.
#if defined(__GLIBC__)
#define QUARRY_THREAD_LOCAL __thread __attribute__((tls_model("initial-exec")))
#else
#define QUARRY_THREAD_LOCAL __thread
#endif
// The result is fresh memory (aliases nothing), its size is argument s (or the product of a and b).
#define QUARRY_MALLOC __attribute__((malloc, warn_unused_result))
#define QUARRY_SIZE(s) __attribute__((alloc_size(s)))
#define QUARRY_SIZE2(a, b) __attribute__((alloc_size(a, b)))
#define QUARRY_ALIGN(a) __attribute__((alloc_align(a)))

#endif
