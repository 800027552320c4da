// SPDX-License-Identifier: MIT
//! The words for what mappings are.

/// Private or shared, anonymous or of a file: the four kinds of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Quadrant {
    /// 1: malloc, stacks, mmap(ANONYMOUS | PRIVATE).
    PrivateAnonymous,
    /// 2: mmap(ANONYMOUS | SHARED), System V and POSIX shared memory, memfd: no file on a disk is behind it.
    SharedAnonymous,
    /// 3: programs, libraries, mmap(fd, PRIVATE). Pages that are written become pages of the first kind.
    PrivateFile,
    /// 4: mmap(fd, SHARED).
    SharedFile,
}

impl Quadrant {
    /// By number.
    pub const ALL: [Quadrant; 4] =
        [Self::PrivateAnonymous, Self::SharedAnonymous, Self::PrivateFile, Self::SharedFile];

    /// 1 to 4.
    pub fn number(self) -> usize {
        self as usize + 1
    }

    /// In two words.
    pub fn name(self) -> &'static str {
        match self {
            Self::PrivateAnonymous => "private anonymous",
            Self::SharedAnonymous => "shared anonymous",
            Self::PrivateFile => "private file",
            Self::SharedFile => "shared file",
        }
    }
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal;)*) => {
        /// What a mapping is.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind { $($(#[$doc])* $kind,)* }

        impl Kind {
            /// All there are.
            pub const ALL: [Kind; [$($name,)*].len()] = [$(Kind::$kind,)*];

            /// Its name, one word that can be typed.
            pub fn name(self) -> &'static str {
                match self { $(Kind::$kind => $name,)* }
            }
        }
    };
}

kinds! {
    /// The kernel's heap, which brk moves the end of.
    Heap = "heap";
    /// Memory of Quarry's heap or pools, by the name they give it.
    Quarry = "quarry";
    /// Anonymous memory that the program named by prctl.
    Named = "named";
    /// Anonymous memory without any name.
    Anonymous = "anonymous";
    /// Variables that begin as zeros, behind those with a value.
    Bss = "bss";
    /// The stack of the first thread, which grows.
    MainStack = "stack";
    /// The stack of another thread.
    ThreadStack = "thread-stack";
    /// No access: it catches who runs over the end of what is beside it.
    Guard = "guard";
    /// No access: address space that is kept for later.
    Reserved = "reserved";
    /// Code of a program or library.
    Text = "text";
    /// Constants of a program or library, and what the dynamic linker reads.
    Rodata = "rodata";
    /// What the dynamic linker filled in and then protected.
    Relro = "relro";
    /// Variables with a value, of a program or library.
    Data = "data";
    /// Any other file.
    File = "file";
    /// A file on a file system in memory.
    MemoryFile = "tmpfs";
    /// mmap(ANONYMOUS | SHARED), which the kernel shows as a deleted /dev/zero.
    SharedAnonymous = "shared";
    /// memfd_create.
    Memfd = "memfd";
    /// shmget.
    SysV = "sysv";
    /// shm_open: a file in /dev/shm.
    PosixShm = "posix-shm";
    /// Huge pages without a file; not in the resident size.
    HugeAnonymous = "hugetlb";
    /// A file on hugetlbfs; not in the resident size.
    HugeFile = "hugetlb-file";
    /// A device, or a buffer shared with the kernel.
    Device = "device";
    /// The kernel's code in every process.
    Vdso = "vdso";
    /// What that code reads.
    Vvar = "vvar";
    /// Its predecessor, one page that is the same in all processes and counted for none.
    Vsyscall = "vsyscall";
    /// Anything else that the kernel maps.
    Kernels = "kernel";
}

impl Kind {
    /// Mapped by the kernel on its own account.
    pub fn is_kernels(self) -> bool {
        matches!(self, Self::Vdso | Self::Vvar | Self::Vsyscall | Self::Kernels)
    }

    /// A part of a program or library.
    pub fn is_program(self) -> bool {
        matches!(self, Self::Text | Self::Rodata | Self::Relro | Self::Data | Self::Bss)
    }
}
