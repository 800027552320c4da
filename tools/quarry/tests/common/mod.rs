// SPDX-License-Identifier: MIT
//! Runs the tool as users do, on libraries made here. The real heap is not needed.

pub mod browser;
pub mod pty;
pub mod schema;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

pub use self::pty::{PATIENCE, state};

/// Where the libraries for programs are built. `None`, and a word about it, where one that is needed is not.
pub fn libraries(needed: &[&str]) -> Option<PathBuf> {
    let built = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../build/lib");
    let folder = std::env::var_os("QUARRY_TEST_LIB_DIR").map_or_else(built, PathBuf::from);
    if let Some(missing) = needed.iter().find(|name| !folder.join(name).is_file()) {
        eprintln!("skipped: needs {missing} in {}", folder.display());
        return None;
    }
    Some(folder)
}

/// The real heap, where it is built (build/lib of the checkout, or where QUARRY_TEST_LIB_DIR says); `None`, and a word about
/// it, elsewhere.
pub fn quarry_library() -> Option<PathBuf> {
    let name = "libquarry-malloc.so";
    libraries(&[name]).map(|folder| folder.join(name))
}

/// A directory with a stand-in for the heap, which leaves statistics and does nothing else.
pub struct Bench {
    dir: TempDir,
}

impl Bench {
    /// `None`, and a word about it, where there is no C compiler.
    pub fn new() -> Option<Self> {
        let bench = Self { dir: tempfile::tempdir().unwrap() };
        if Command::new("cc").arg("--version").stdout(Stdio::null()).status().is_err() {
            eprintln!("skipped: needs a C compiler (cc)");
            return None;
        }
        bench.library("libquarry-malloc", include_str!("fake_heap.c"));
        Some(bench)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Make a shared library from C code.
    pub fn library(&self, stem: &str, source: &str) -> PathBuf {
        self.compile(&format!("{stem}.so"), source, &["-shared", "-fPIC"]).expect("a shared library")
    }

    /// Compile C code; `None` when the compiler cannot (a static program without a static C library).
    pub fn compile(&self, name: &str, source: &str, options: &[&str]) -> Option<PathBuf> {
        let (file, out) = (self.path(&format!("{name}.c")), self.path(name));
        fs::write(&file, source).unwrap();
        let status =
            Command::new("cc").arg(&file).args(options).arg("-o").arg(&out).stderr(Stdio::null()).status();
        status.unwrap().success().then_some(out)
    }

    /// A script that can be run at once. It is written by another program: of a file that this process wrote, the child that
    /// another test is just starting may still have it open, and then it cannot be run ("text file busy").
    pub fn script(&self, name: &str, text: &str) -> PathBuf {
        let (draft, script) = (self.path(&format!("{name}.draft")), self.path(name));
        fs::write(&draft, text).unwrap();
        let status = Command::new("install").args(["-m", "755"]).args([&draft, &script]).status();
        assert!(status.unwrap().success());
        fs::remove_file(draft).unwrap();
        script
    }

    /// The tool, finding the stand-in, with nothing of the caller's environment that it reads.
    pub fn quarry<I: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = I>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quarry"));
        command.args(args).env("QUARRY_LIB_DIR", self.dir.path()).stdin(Stdio::null());
        for variable in ["QUARRY_CONF", "LD_PRELOAD", "NO_COLOR"] {
            command.env_remove(variable);
        }
        command
    }

    /// Run the tool to its end.
    pub fn run(&self, args: &[&str]) -> Ended {
        Ended::from(self.quarry(args).output().unwrap())
    }
}

/// The same command with no signal ignored: whoever starts the tests in the background has them ignore SIGINT and SIGQUIT.
pub fn nothing_ignored(tool: &Command) -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal").arg(tool.get_program()).args(tool.get_args()).stdin(Stdio::null());
    for (name, value) in tool.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    if let Some(directory) = tool.get_current_dir() {
        command.current_dir(directory);
    }
    command
}

/// What the tool left.
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

impl Ended {
    /// It must have ended with this code.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }

    /// Its standard output must be JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}{}", self.stdout, self.stderr))
    }

    /// This must stand in its standard error.
    #[track_caller]
    pub fn says(&self, text: &str) -> &Self {
        assert!(self.stderr.contains(text), "no '{text}' in: {}", self.stderr);
        self
    }
}

/// Wait until it is so.
#[track_caller]
pub fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Send a signal to a process.
pub fn kill(signal: &str, pid: u32) {
    let status = Command::new("sh").args(["-c", &format!("kill -{signal} {pid}")]).status();
    assert!(status.unwrap().success());
}

/// Wait until this process, which is no child of ours, has ended. That nobody has waited for it yet does not matter.
#[track_caller]
pub fn dies(pid: u32) {
    // Of a process that has ended it is empty.
    let words = || fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    wait_until(&format!("{pid} has ended"), || words().is_empty());
}

/// A path as a string.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The cells of a table of a page, row by row, as they stand in the file.
pub fn table_of(page: &std::path::Path, id: &str) -> Vec<Vec<String>> {
    let html = std::fs::read_to_string(page).unwrap();
    let Some((_, table)) = html.split_once(&format!("<table id=\"{id}\"")) else { return Vec::new() };
    let body = table.split_once("<tbody>").unwrap().1.split_once("</tbody>").unwrap().0;
    let text = |cell: &str| {
        let text = cell.split_once('>').unwrap().1.split_once("</t").unwrap().0;
        text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
    };
    let cells = |row: &str| row.split("<t").filter(|cell| cell.starts_with(['h', 'd'])).map(text).collect();
    body.split("<tr>").skip(1).map(cells).collect()
}
