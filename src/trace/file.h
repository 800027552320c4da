// SPDX-License-Identifier: MIT
// file.h: the file that a recorder writes: made of blocks that are filled in place, while they are mapped.
//
//   [ head ][ end ][ block ][ block ] ...
//
// The place of the end block is kept from the start, mapped and with disk space behind it: to say why a recording ended
// needs nothing more, not even the descriptor. Space is got in steps (`windows`), each allocated on the disk before it
// is mapped, so that a store into it cannot fail for lack of space (but on file systems that copy on write, which may
// need room for what exists: docs/record.md); blocks are cut from the window and unmapped one by one.
// Threads: the caller serialises all calls of a file.
#ifndef QY_TRACE_FILE_H
#define QY_TRACE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/format.h"

#define QY_TRACE_PATH_BYTES 4096

typedef struct qy_trace_file {
    int fd;
    uint64_t device, inode;
    uint32_t grain;  // all blocks begin at multiples of it; a multiple of the page size
    uint64_t bytes;  // of the file, as far as it has disk space; where the next window begins
    char *window;    // what is left of the current one: mapped, unused
    size_t left;
    uint64_t offset;        // of `window` in the file
    qy_trace_block_t *end;  // the kept block; NULL once it is written
    uint32_t process;
    char path[QY_TRACE_PATH_BYTES];
} qy_trace_file_t;

// Make the file, which must not exist yet (-EEXIST), with `text` in its head block. 0 or -errno: then there is no file.
// Whenever the process is killed meanwhile, there is none or one that can be read.
int qy_trace_file_create(qy_trace_file_t *f, const char *path, int process, const char *text, size_t bytes);

// Space for a block: `want` bytes, or fewer but `least` (multiples of the grain), zeroed. NULL and *ret_error (-errno):
// -ENOMEM may pass, others are the disk's.
qy_trace_block_t *qy_trace_file_take(qy_trace_file_t *f, size_t want, size_t least, size_t *ret_bytes, int *ret_error);
// A block that was taken: its memory goes, its place in the file stays.
void qy_trace_block_unmap(qy_trace_block_t *block);

// Write the end block. Once; later calls do nothing.
void qy_trace_file_end(qy_trace_file_t *f, const char *text, size_t bytes);
// The same, and the file is cut to size, before something that may yet fail, and taken back if it has. 0 or -errno: the
// file is ended, but cannot go on.
void qy_trace_file_try_end(qy_trace_file_t *f, const char *text, size_t bytes);
int qy_trace_file_go_on(qy_trace_file_t *f);
// Cut off what was not used (if nothing else may take blocks any more), and close.
void qy_trace_file_close(qy_trace_file_t *f);
// In the child of a fork: forget the file; it is the parent's.
void qy_trace_file_forget(qy_trace_file_t *f);

// Blocks, wherever they lie.
void qy_trace_block_begin(qy_trace_block_t *b, qy_trace_kind_t kind, size_t span, uint32_t process);
// All in it is final.
void qy_trace_block_seal(qy_trace_block_t *b);

#endif
