// SPDX-License-Identifier: MIT
//! A terminal that a test holds: a pty with a program in it, and what a screen would show of it.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

/// open() must not make it ours.
const O_NOCTTY: i32 = 0o400;
/// What a test waits for has this time: the limit only ends a hang, and no test comes near it on a machine that is busy.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// The letter of a process's state, as in /proc; None when it is gone.
pub fn state(pid: u32) -> Option<char> {
    fs::read_to_string(format!("/proc/{pid}/stat")).ok()?.rsplit_once(") ")?.1.chars().next()
}

/// A program in a terminal.
pub struct Session {
    pub child: Child,
    keys: File,
    output: Receiver<Vec<u8>>,
    slave: File,
    before: Termios,
    pub parser: vt100::Parser,
    /// Bytes that the program has written.
    pub written: usize,
}

impl Session {
    /// Start a program in a terminal of this many columns and lines. setsid makes it the program's own, so that it hears of
    /// changes of the size.
    pub fn new<I: AsRef<OsStr>>(
        program: &OsStr,
        args: impl IntoIterator<Item = I>,
        environment: &[(&str, &str)],
        (columns, lines): (u16, u16),
    ) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = PathBuf::from(ptsname(&master, Vec::new()).unwrap().into_string().unwrap());
        let slave = File::options().read(true).write(true).custom_flags(O_NOCTTY).open(name).unwrap();
        tcsetwinsize(&slave, winsize(columns, lines)).unwrap();
        let before = tcgetattr(&slave).unwrap();
        let stdio = || Stdio::from(OwnedFd::from(slave.try_clone().unwrap()));
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(program).args(args).stdin(stdio()).stdout(stdio()).stderr(stdio());
        command
            .env("TERM", "xterm-256color")
            .env_remove("NO_COLOR")
            .env_remove("COLUMNS")
            .env_remove("LINES");
        command.envs(environment.iter().copied());
        let child = command.spawn().unwrap();
        let keys = File::from(master);
        let mut reader = keys.try_clone().unwrap();
        let (sender, output) = channel();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = reader.read(&mut buffer) {
                if sender.send(buffer[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        let shown = if lines == 0 { (24, 80) } else { (lines, columns) };
        let parser = vt100::Parser::new(shown.0, shown.1, 0);
        Self { child, keys, output, slave, before, parser, written: 0 }
    }

    /// Type these.
    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// The window has another size now.
    pub fn resize(&mut self, columns: u16, lines: u16) {
        self.parser.screen_mut().set_size(lines, columns);
        tcsetwinsize(&self.slave, winsize(columns, lines)).unwrap();
    }

    /// Read what is written within this time; false if that was nothing.
    pub fn read(&mut self, most: Duration) -> bool {
        match self.output.recv_timeout(most) {
            Ok(bytes) => {
                self.written += bytes.len();
                self.parser.process(&bytes);
                true
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => false,
        }
    }

    /// What is on the screen.
    pub fn text(&self) -> String {
        self.parser.screen().contents()
    }

    /// A line of the screen.
    pub fn line(&self, number: usize) -> String {
        self.text().lines().nth(number).unwrap_or_default().to_owned()
    }

    /// Wait until the screen is like that.
    #[track_caller]
    pub fn until(&mut self, what: &str, holds: impl Fn(&str) -> bool) {
        let start = Instant::now();
        while !holds(&self.text()) {
            assert!(start.elapsed() < PATIENCE, "never {what}:\n{}", self.text());
            if !self.read(Duration::from_millis(50)) && self.child.try_wait().unwrap().is_some() {
                // What it wrote last may be on its way.
                self.settle();
                assert!(holds(&self.text()), "ended before it {what}:\n{}", self.text());
            }
        }
    }

    /// Wait until this is on the screen.
    #[track_caller]
    pub fn shows(&mut self, text: &str) {
        self.until(&format!("shows '{text}'"), |screen| screen.contains(text));
    }

    /// Wait until nothing more is written for a while, in which the program does not wait for a processor either.
    pub fn settle(&mut self) {
        while self.read(Duration::from_millis(300)) || state(self.child.id()) == Some('R') {}
    }

    /// Wait for its end; the terminal must be as it was then.
    #[track_caller]
    pub fn ends(&mut self) -> ExitStatus {
        let start = Instant::now();
        let status = loop {
            self.read(Duration::from_millis(20));
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(start.elapsed() < PATIENCE, "does not end:\n{}", self.text());
        };
        while self.read(Duration::from_millis(100)) {}
        let now = tcgetattr(&self.slave).unwrap();
        let modes = |termios: &Termios| {
            (termios.input_modes, termios.output_modes, termios.control_modes, termios.local_modes)
        };
        assert_eq!(modes(&now), modes(&self.before), "the terminal has other modes than before");
        let screen = self.parser.screen();
        assert!(!screen.alternate_screen(), "the other screen was not left");
        assert!(!screen.hide_cursor(), "the cursor is hidden");
        assert!(!screen.bold() && !screen.inverse(), "letters are still bold or reversed");
        status
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn winsize(columns: u16, lines: u16) -> Winsize {
    Winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}
