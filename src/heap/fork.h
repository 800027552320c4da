// SPDX-License-Identifier: MIT
// fork.h: fork in threaded programs. Before a fork every lock of the heap is taken, so that the
// child's copy is of a heap at rest; after it, the parent drops them and the child resets them.
// In the child the other threads are gone: their heaps become idle (a later thread takes them over);
// what lay in their caches, at most a few hundred KiB each, stays allocated there; so does what one of them was just
// handing over, and what is freed later, by another thread than the owner, in the slabs that these blocks are of (64 at
// most: they are marked as mailed, and in no mailbox); and a large object that was just being freed.
// Other libraries' handlers that run between ours on the forking thread may use the heap: that
// thread passes through the locks it holds (qy_lock_freeze).
//
// fork in a signal handler: what it interrupted goes on in the child when the handler returns, even if
// it is the heap. The handler itself may not allocate, there as anywhere. If there were other threads
// and one was at work in the heap, the child is sure only of exec and _exit, as POSIX has it.
#ifndef QY_HEAP_FORK_H
#define QY_HEAP_FORK_H

// The heap starts: its handlers are registered, or will be (atfork.h).
void qy_fork_begin(void);

// A call comes that the kernel refuses to a process with more than one thread: the heap's own ends.
void qy_heap_be_alone(void);

#endif
