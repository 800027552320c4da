// SPDX-License-Identifier: MIT
//! Errors that know their exit code.

use std::io;
use std::path::Path;

use quarry_measure::program;

/// Our own failure, as `env` and `timeout` have it.
pub const OURS: i32 = 125;
/// The command cannot be executed.
const NOT_EXECUTABLE: i32 = 126;
/// There is no such command.
const NOT_FOUND: i32 = 127;
/// A file is not what it should be.
const FAILED: i32 = 1;
/// What was typed makes no sense.
const USAGE: i32 = 2;

/// A message and the code to end with.
#[derive(Debug)]
struct Failure {
    code: i32,
    message: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// An error with its causes. Some errors have their cause's text in their own, and it is said once.
pub fn words(error: &anyhow::Error) -> String {
    error.chain().skip(1).map(ToString::to_string).fold(error.to_string(), |text, cause| {
        if text.ends_with(&cause) { text } else { format!("{text}: {cause}") }
    })
}

/// The code to end with after this error.
pub fn code_of(error: &anyhow::Error) -> i32 {
    error.downcast_ref::<Failure>().map_or(OURS, |failure| failure.code)
}

/// What was typed makes no sense.
pub fn usage(message: impl std::fmt::Display) -> anyhow::Error {
    Failure { code: USAGE, message: message.to_string() }.into()
}

/// What was asked for is not there, or is not what it should be.
pub fn failed(message: impl std::fmt::Display) -> anyhow::Error {
    Failure { code: FAILED, message: message.to_string() }.into()
}

/// The error that ended a measurement after `rounds` complete rounds.
pub fn after(error: anyhow::Error, what: &str, rounds: usize) -> anyhow::Error {
    let is_gone = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
    };
    let hint = match code_of(&error) == NOT_FOUND || error.chain().any(is_gone) {
        true => format!(" (leave what it needs where it is until the {what} has ended)"),
        false => String::new(),
    };
    error.context(format!("the {what} ended after {rounds} complete rounds{hint}"))
}

/// The command could not be started.
pub fn not_started(command: &std::ffi::OsStr, error: &io::Error) -> anyhow::Error {
    let name = Path::new(command).display();
    let found = program::find(command);
    let (code, message) = match (error.kind(), &found) {
        (io::ErrorKind::NotFound, None) if command.as_encoded_bytes().contains(&b'/') => {
            (NOT_FOUND, format!("{name}: no such file"))
        }
        (io::ErrorKind::NotFound, None) => {
            (NOT_FOUND, format!("{name}: no such command in PATH; for a file in this directory say ./{name}"))
        }
        (io::ErrorKind::NotFound, Some(_)) if error.raw_os_error().is_none() => {
            (NOT_FOUND, error.to_string())
        }
        (io::ErrorKind::NotFound, Some(file)) => (
            NOT_FOUND,
            format!("{}: the interpreter or dynamic linker it names does not exist", file.display()),
        ),
        (io::ErrorKind::PermissionDenied, Some(file)) if file.is_dir() => {
            (NOT_EXECUTABLE, format!("{}: is a directory; name a program in it", file.display()))
        }
        (io::ErrorKind::PermissionDenied, _) => {
            (NOT_EXECUTABLE, format!("{name}: permission denied; is it executable (chmod +x)?"))
        }
        _ if error.raw_os_error().is_some() => {
            (NOT_EXECUTABLE, format!("{name}: cannot be executed: {error}"))
        }
        _ => (OURS, format!("{name}: {error}")),
    };
    Failure { code, message }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_said_once() {
        let reason = || io::Error::other("no room");
        let with = anyhow::Error::from(quarry_trace::TraceError::Open(reason()));
        assert_eq!(words(&with), "cannot be opened: no room");
        assert_eq!(words(&with.context("a.qtr")), "a.qtr: cannot be opened: no room");
        let without = anyhow::Error::from(reason()).context("cannot write");
        assert_eq!(words(&without), "cannot write: no room");
    }
}
