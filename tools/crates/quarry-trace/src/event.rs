// SPDX-License-Identifier: MIT
//! The events of a trace, decoded. `docs/trace-format.md` says what each means.

/// Number of a thread within its process, from 1.
pub type ThreadId = u32;
/// Number of a call stack within its process; 0: none.
pub type StackId = u32;

/// One event of one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Ticks of the trace's clock.
    pub time: u64,
    /// Whose.
    pub thread: ThreadId,
    /// What happened.
    pub what: What,
}

/// By which function a block was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum AllocApi {
    /// malloc
    Malloc = 0,
    /// calloc: the block is zero
    Calloc = 1,
    /// memalign, posix_memalign, aligned_alloc, valloc, pvalloc
    Memalign = 2,
    /// operator new
    New = 3,
    /// operator new with an alignment
    AlignedNew = 4,
    /// realloc of NULL; as the `api` of [`What::Failed`]: any realloc
    Realloc = 5,
    /// a pool that is none of Quarry's
    Pool = 6,
    /// anything else
    Other = 7,
}

/// By which function a block was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum FreeApi {
    /// free
    Free = 0,
    /// operator delete
    Delete = 1,
    /// with a size: free_sized, sized delete
    Sized = 2,
    /// free(NULL): the address is 0
    Null = 3,
    /// it ended with something else
    Other = 4,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A block was handed out; the time is after the call.
    Alloc {
        /// by this function
        api: AllocApi,
        /// bytes requested
        size: u64,
        /// of the block
        address: u64,
        /// log2 of the alignment asked for, 0 if none was
        align: u8,
        /// from where, 0 if not recorded
        stack: StackId,
    },
    /// A block is given back; the time is before the call.
    Free {
        /// by this function
        api: FreeApi,
        /// of the block; 0 for free(NULL)
        address: u64,
        /// bytes of it that were resident, where the recorder looked
        touched: Option<u64>,
    },
    /// What calloc has just handed out was looked at.
    Zeroed {
        /// the block, that of an [`What::Alloc`] before
        address: u64,
        /// its bytes
        size: u64,
        /// bytes of it that are resident: cleared, where the rest is fresh from the kernel
        resident: u64,
    },
    /// A block changed its size; the time is before the call.
    Realloc {
        /// ticks until after the call
        took: u64,
        /// of the block before
        old: u64,
        /// bytes requested
        size: u64,
        /// of the block after; equal to `old` if it stayed; not 0, see [`What::realloc`]
        new: u64,
        /// from where, 0 if not recorded
        stack: StackId,
    },
    /// NULL was returned.
    Failed {
        /// by this function
        api: AllocApi,
        /// bytes requested
        size: u64,
    },
    /// The thread begins.
    ThreadBegin {
        /// the kernel's thread id
        tid: u32,
        /// who created it, 0 if not known
        creator: ThreadId,
    },
    /// The thread ends.
    ThreadEnd,
    /// The thread is gone without having ended: seen later than it happened, at the time of its last event.
    ThreadGone,
    /// The thread has a name.
    ThreadName(String),
    /// The process forked.
    Fork {
        /// the child's process id
        child: u32,
    },
    /// The process runs another program from here on.
    Exec(String),
    /// The process ends.
    Exit {
        /// its status
        status: u32,
    },
    /// A child that was waited for has ended.
    ChildEnded {
        /// its process id
        child: u32,
        /// as wait(2) gives it
        status: u32,
    },
    /// A child has ended whose process id nobody learned.
    HiddenChildEnded(HiddenChild),
    /// Resident bytes of the process.
    Memory {
        /// of anonymous memory
        anonymous: u64,
        /// of files and shared memory
        file: u64,
    },
    /// What the process holds and has used, and what of it is the recorder's.
    Usage(Box<Usage>),
    /// Of a large block that is still live at the end of the process.
    Resident {
        /// of the block
        address: u64,
        /// bytes of it that are resident
        bytes: u64,
    },
    /// Of a block below 128 KiB that the recorder watched: one that the next event of this thread frees, or that is
    /// still live at the end of the process.
    Written {
        /// of the block
        address: u64,
        /// bytes of it that the program wrote, mostly in whole pages
        bytes: u64,
    },
    /// The monotonic clock.
    Clock {
        /// its nanoseconds
        ns: u64,
    },
    /// A file is mapped.
    ModuleLoaded {
        /// load address
        base: u64,
        /// JSON, see the format
        about: String,
    },
    /// A file is no longer mapped.
    ModuleUnloaded {
        /// load address
        base: u64,
        /// JSON, see the format; may be empty
        about: String,
    },
    /// Something happened in a pool of Quarry.
    Pool {
        /// number of the pool in the process, from 1
        pool: u32,
        /// what
        what: PoolWhat,
    },
    /// Events that are not in the trace.
    Lost {
        /// so many
        count: u64,
        /// 1 no room, 2 re-entered, 3 disk full, 4 table full
        reason: u8,
    },
    /// A note of the program, or of the recorder.
    Mark(String),
    /// Of a sample: what this thread allocates from here on is drawn at another rate than the head says.
    Sampled {
        /// mean bytes between two samples, a power of two
        mean: u64,
    },
}

impl What {
    /// What a call of realloc did with the block at `old`, as whoever reads events is to say it: where it answered NULL and
    /// the block is gone (realloc(p, 0) of some C libraries), that is a free. So no event has a block at address 0.
    pub fn realloc(took: u64, old: u64, size: u64, new: u64, stack: StackId) -> Self {
        match new {
            0 => What::Free { api: FreeApi::Other, address: old, touched: None },
            _ => What::Realloc { took, old, size, new, stack },
        }
    }
}

/// What a process holds and has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// resident bytes of anonymous memory
    pub anonymous: u64,
    /// of files
    pub file: u64,
    /// of shared memory
    pub shared: u64,
    /// the most resident bytes of all three together so far
    pub peak: u64,
    /// of `anonymous`, what is the recorder's
    pub own_anonymous: u64,
    /// of `file` and `shared`, what is the recorder's
    pub own_file: u64,
    /// processor time of all threads so far
    pub cpu_ns: u64,
    /// what the program does that mallocs answer differently: `Usage::ASKS` and others
    pub traits: u64,
}

impl Usage {
    /// It has asked for the size of a block (malloc_usable_size).
    pub const ASKS: u64 = 1;
    /// The kernel gives it no huge pages.
    pub const NO_HUGE_PAGES: u64 = 2;
    /// It allocated before the constructors of preloaded libraries ran.
    pub const EARLY: u64 = 4;

    /// Has it this trait?
    pub fn has(&self, traits: u64) -> bool {
        self.traits & traits != 0
    }

    /// Its numbers in the order of the format.
    pub fn numbers(&self) -> [u64; 8] {
        let Self { anonymous, file, shared, peak, own_anonymous, own_file, cpu_ns, traits } = *self;
        [anonymous, file, shared, peak, own_anonymous, own_file, cpu_ns, traits]
    }

    /// Of its numbers.
    pub fn of_numbers(numbers: [u64; 8]) -> Self {
        let [anonymous, file, shared, peak, own_anonymous, own_file, cpu_ns, traits] = numbers;
        Self { anonymous, file, shared, peak, own_anonymous, own_file, cpu_ns, traits }
    }
}

/// A child that a call made and waited for, without telling anyone its process id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HiddenChild {
    /// As wait(2) gives it.
    pub status: u32,
    /// When the call began, by the monotonic clock.
    pub began_ns: u64,
    /// When it had returned.
    pub ended_ns: u64,
}

/// What happened in a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolWhat {
    /// It was made.
    Created {
        /// number of the pool it takes memory from, or 0
        parent: u32,
        /// fifo, ring, ...
        kind: String,
        /// its name
        name: String,
    },
    /// It is gone, with all that is in it.
    Destroyed,
    /// A frame begins.
    Pushed,
    /// The innermost frame ends.
    Popped,
    /// The open frame of a ring is sealed.
    Sealed {
        /// names the frame
        cookie: u64,
    },
    /// A sealed frame is released.
    Released {
        /// names the frame
        cookie: u64,
    },
    /// An allocation.
    Alloc {
        /// bytes requested
        size: u64,
        /// of the block
        address: u64,
        /// log2 of the alignment
        align: u8,
        /// from where, 0 if not recorded
        stack: StackId,
    },
    /// A free.
    Free {
        /// of the block
        address: u64,
    },
    /// A resize.
    Resized {
        /// of the block before
        old: u64,
        /// bytes requested
        size: u64,
        /// of the block after
        new: u64,
        /// from where, 0 if not recorded
        stack: StackId,
    },
    /// All its blocks are gone at once.
    Emptied,
    /// What it holds.
    Held {
        /// bytes held from its parent
        held: u64,
        /// bytes used
        used: u64,
    },
}

/// A node of the tree of call stacks: `id` was called at `pc` from `parent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackNode {
    /// its number
    pub id: StackId,
    /// the caller's number, 0 for the root
    pub parent: StackId,
    /// the instruction
    pub pc: u64,
    /// whether `pc` is a return address, one behind the call
    pub is_return: bool,
}
