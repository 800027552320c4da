// SPDX-License-Identifier: MIT
//! The command in gdb, which stops at the first error.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::NamedTempFile;

/// Commands for gdb. The file is removed at the end.
pub struct Script {
    file: NamedTempFile,
}

/// What gdb does: the environment is the program's and not gdb's own.
fn text(preload: &str, variable: &str, extension: Option<&Path>) -> String {
    let mut text = String::from("set breakpoint pending on\nset startup-with-shell off\n");
    if let Some(path) = extension {
        text += &format!("source {}\n", path.display());
    }
    text += &format!(
        "set environment LD_PRELOAD {preload}\nset environment {} {variable}\n",
        super::running::VARIABLE
    );
    // Guard pages are found by these signals, and the library handles them.
    text += "handle SIGSEGV SIGBUS nostop noprint pass\nbreak qy_check_report\ncommands\n  \
             printf \"quarry check: %s\\n\", f->kind\n  backtrace\n";
    if extension.is_some() {
        text += "  if f->has_block\n    quarry block f->block.address\n  end\n";
    }
    text + "end\nrun\n"
}

impl Script {
    pub fn new(library: &Path, preload: &OsStr, variable: &str) -> anyhow::Result<Self> {
        let mut file = tempfile::Builder::new().prefix("quarry-check-").suffix(".gdb").tempfile()?;
        let text = text(&preload.to_string_lossy(), variable, extension(library).as_deref());
        file.write_all(text.as_bytes())?;
        Ok(Self { file })
    }

    /// gdb with the command.
    pub fn command(&self, line: &[OsString]) -> Command {
        let mut command = Command::new("gdb");
        command.args(["-q", "-x"]).arg(self.file.path()).arg("--args").args(line);
        command
    }
}

/// quarry-gdb.py, installed or in the checkout: around this executable, or around the library.
fn extension(library: &Path) -> Option<PathBuf> {
    let exe = std::env::current_exe().unwrap_or_default();
    let places = || exe.ancestors().chain(library.ancestors());
    let installed = places().map(|prefix| prefix.join("share/quarry/quarry-gdb.py"));
    let checkout = places().map(|folder| folder.join("tools/gdb/quarry-gdb.py"));
    installed.chain(checkout).find(|path| path.is_file())
}
