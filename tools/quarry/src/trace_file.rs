// SPDX-License-Identifier: MIT
//! Files that verbs write: complete or not at all, or to standard output.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use quarry_measure::signals::Removing;
use tempfile::{NamedTempFile, PathPersistError, TempPath};

use crate::failure;

/// Where a file's bytes go.
pub struct Target {
    file: To,
    name: String,
}

enum To {
    Stdout(io::Stdout),
    /// What cannot be replaced: a pipe, a device, what somebody has open.
    Special(File),
    /// Beside the real one, until it is complete.
    Beside(File, Beside),
}

/// A file with a name of its own, and the name it is to have.
struct Beside {
    path: TempPath,
    real: PathBuf,
    /// Goes last.
    _removing: Removing,
}

/// A new file of a name of its own, which no signal leaves behind.
fn removable(folder: &Path) -> io::Result<(NamedTempFile, Removing)> {
    let mut removing = None;
    let file = tempfile::Builder::new().prefix(".quarry-").make_in(folder, |path| {
        // Of a name that is taken nothing may be left: the next one is another's.
        removing = None;
        let make =
            |path: &Path| File::options().read(true).write(true).create_new(true).mode(0o666).open(path);
        let (file, its) = Removing::making(path, make)?;
        removing = Some(its);
        Ok(file)
    })?;
    let removing = removing.ok_or_else(|| io::Error::other("no file was made"))?;
    Ok((file, removing))
}

/// Where a link leads, be there a file or not. None: to what a process has open (/dev/stdout), whatever its name is now.
fn behind_links(path: &Path) -> Option<PathBuf> {
    /// As the kernel has it.
    const MOST: usize = 40;
    let mut real = path.to_owned();
    for _ in 0..MOST {
        let Ok(next) = fs::read_link(&real) else { break };
        let folder = folder_of(&real);
        if folder.canonicalize().is_ok_and(|folder| folder.starts_with("/proc")) {
            return None;
        }
        real = folder.join(next);
    }
    Some(real)
}

/// Is it replaced by what is written to it? A pipe, a device or what somebody has open gets that behind what was
/// written before.
pub fn is_replaced(path: &Path) -> bool {
    fs::metadata(path).ok().is_none_or(|about| about.is_file()) && behind_links(path).is_some()
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."))
}

impl Target {
    /// `None` and `-` are standard output, which must not be a terminal if it gets no text.
    pub fn open(path: Option<&Path>, text: bool) -> anyhow::Result<Self> {
        let Some(path) = path.filter(|path| *path != Path::new("-")) else {
            if !text && io::stdout().is_terminal() {
                return Err(failure::usage("this is no text for a terminal; say -o FILE"));
            }
            let (file, name) = (To::Stdout(io::stdout()), "standard output".into());
            return Ok(Self { file, name });
        };
        let name = path.display().to_string();
        let cannot = || format!("cannot write {name}");
        let before = fs::metadata(path).ok();
        let is_other = before.as_ref().is_some_and(|about| !about.is_file());
        let file = match behind_links(path).filter(|_| !is_other) {
            None => {
                // A file that is open may have got something from others already.
                let how = File::options().write(true).append(!is_other).clone();
                To::Special(how.open(path).with_context(cannot)?)
            }
            Some(real) => {
                let (file, _removing) = removable(folder_of(&real)).with_context(cannot)?;
                let (file, path) = file.into_parts();
                if let Some(about) = &before {
                    // The set-user-ID and set-group-ID bits are left out: the contents of the new file are different.
                    let permissions = fs::Permissions::from_mode(about.permissions().mode() & 0o777);
                    file.set_permissions(permissions).with_context(cannot)?;
                }
                To::Beside(file, Beside { path, real, _removing })
            }
        };
        Ok(Self { file, name })
    }

    /// The same for a report, which is written in place where its folder takes no other file.
    /// A report that its owner protected against writing is not replaced.
    pub fn of_report(path: &Path) -> anyhow::Result<Self> {
        let name = path.display().to_string();
        let cannot = || format!("cannot write {name}");
        let is_file = fs::metadata(path).is_ok_and(|about| about.is_file());
        let before = match is_file {
            true => Some(File::options().append(true).open(path).with_context(cannot)?),
            false => None,
        };
        Self::open(Some(path), true).or_else(|error| {
            let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
            match (kind, before) {
                (Some(io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem), Some(file)) => {
                    file.set_len(0).with_context(cannot)?;
                    Ok(Self { file: To::Special(file), name: name.clone() })
                }
                _ => Err(error),
            }
        })
    }

    /// What messages call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Is it standard output?
    pub fn is_stdout(&self) -> bool {
        matches!(self.file, To::Stdout(_))
    }

    /// It is complete.
    pub fn keep(self) -> anyhow::Result<()> {
        match self.file {
            To::Stdout(mut stdout) => stdout.flush().context("cannot write standard output"),
            To::Special(_) => Ok(()),
            To::Beside(_, Beside { path, real, _removing }) => path
                .persist(&real)
                .or_else(|PathPersistError { error, path }| match error.kind() {
                    // Mounted by itself, or another's in a folder for all: it stays, and gets what there is.
                    io::ErrorKind::ResourceBusy | io::ErrorKind::PermissionDenied => {
                        let mut file = File::options().write(true).truncate(true).open(&real)?;
                        io::copy(&mut File::open(&path)?, &mut file).map(drop)
                    }
                    _ => Err(error),
                })
                .with_context(|| format!("cannot write {}", self.name)),
        }
    }
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.file {
            To::Stdout(stdout) => stdout.write(bytes),
            To::Special(file) | To::Beside(file, _) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.file {
            To::Stdout(stdout) => stdout.flush(),
            To::Special(file) | To::Beside(file, _) => file.flush(),
        }
    }
}

/// Did the reader of our output go away? It has seen what it wanted.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let mut causes = error.chain();
    causes.any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    })
}
