// SPDX-License-Identifier: MIT
//! Why something of a process cannot be read.

use std::io;
use std::path::PathBuf;

/// Why something of a process cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ProcError {
    /// There is no such process, or it ended while it was read.
    #[error("there is no process {0} (any more)")]
    Gone(u32),
    /// It is there, but this /proc hides the processes of others.
    #[error(
        "process {0} is hidden: /proc is mounted with hidepid, so that only its user, root and a group of the \
         administrator's choice see it"
    )]
    Hidden(u32),
    /// The kernel lets others read it.
    #[error("{}: not permitted; {needs}", file.display())]
    Denied {
        /// What was read.
        file: PathBuf,
        /// Which right is missing.
        needs: &'static str,
    },
    /// A kernel thread, or a process that has ended and waits for its parent: there is no memory to look at.
    #[error("process {0} has no memory of its own: it is a kernel thread, or it has ended (a zombie)")]
    NoMemory(u32),
    /// This kernel does not have that file, or the copy does not.
    #[error("{}: not there", .0.display())]
    Missing(PathBuf),
    /// Not what it should be.
    #[error("{}: {what}", file.display())]
    Damaged {
        /// What was read.
        file: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// Anything else.
    #[error("{}: {source}", file.display())]
    Io {
        /// What was read.
        file: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// For files that any process of the same user may read.
pub(crate) const READ: &str = "it needs a process of your own user that may be dumped (no set-ID program), or root \
                               (CAP_SYS_PTRACE)";
/// For files that the kernel guards like tracing.
pub(crate) const TRACE: &str = "it needs the right to trace the process: your own user and kernel.yama.ptrace_scope 0, or root (CAP_SYS_PTRACE)";

impl ProcError {
    /// Is it only that the process ended, or never was?
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Gone(_))
    }

    /// Would more rights help?
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Denied { .. } | Self::Hidden(_))
    }
}

/// `None` where the kernel or the copy does not have it or does not show it to us; what remains is an error.
pub(crate) fn optional<T>(result: Result<T, ProcError>) -> Result<Option<T>, ProcError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error @ (ProcError::Gone(_) | ProcError::Hidden(_))) => Err(error),
        Err(_) => Ok(None),
    }
}
