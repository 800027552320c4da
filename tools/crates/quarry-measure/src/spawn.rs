// SPDX-License-Identifier: MIT
//! One run of a program, measured.
//!
//! Wall time is monotonic, from before fork until the kernel says that the program ended. All else
//! is the kernel's account (`wait4`) of the program and the descendants it waited for.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::live::Watch;
use crate::output::{Digest, Tail};
use crate::{signals, sys};

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// By itself, with this exit code.
    Exit(i32),
    /// By this signal.
    Signal(i32),
    /// It took longer than allowed and was killed.
    Timeout,
}

impl End {
    /// As wait(2) has it.
    pub fn from_status(status: i32) -> Self {
        if libc::WIFSIGNALED(status) {
            End::Signal(libc::WTERMSIG(status))
        } else {
            End::Exit(libc::WEXITSTATUS(status))
        }
    }

    /// The code a shell would give: the program's own, or 128 + the signal's number.
    pub fn code(self) -> i32 {
        match self {
            End::Exit(code) => code,
            End::Signal(signal) => 128 + signal,
            End::Timeout => 124,
        }
    }
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            End::Exit(code) => write!(f, "exit {code}"),
            End::Signal(signal) => f.write_str(&signals::name(*signal)),
            End::Timeout => f.write_str("timeout"),
        }
    }
}

/// What a run cost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Usage {
    /// Elapsed time in seconds.
    pub wall_s: f64,
    /// Processor time in the program, in seconds.
    pub user_s: f64,
    /// Processor time in the kernel on its behalf, in seconds.
    pub system_s: f64,
    /// Highest resident size of the largest process, in bytes.
    pub peak_rss_bytes: u64,
    /// Page faults served without a disk.
    pub minor_faults: u64,
    /// Page faults that waited for a disk.
    pub major_faults: u64,
    /// Times it waited and let others run.
    pub voluntary_switches: u64,
    /// Times it was interrupted to let others run.
    pub involuntary_switches: u64,
}

impl Usage {
    pub(crate) fn new(wall: Duration, raw: &libc::rusage) -> Self {
        let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 * 1e-6;
        Self {
            wall_s: wall.as_secs_f64(),
            user_s: seconds(raw.ru_utime),
            system_s: seconds(raw.ru_stime),
            peak_rss_bytes: raw.ru_maxrss as u64 * 1024,
            minor_faults: raw.ru_minflt as u64,
            major_faults: raw.ru_majflt as u64,
            voluntary_switches: raw.ru_nvcsw as u64,
            involuntary_switches: raw.ru_nivcsw as u64,
        }
    }
}

/// A run in the foreground.
#[derive(Debug)]
pub struct Ran {
    /// The process.
    pub pid: i32,
    /// How it ended.
    pub end: End,
    /// What it cost.
    pub usage: Usage,
    /// What of that was its descendants', as far as they ended and were waited for.
    pub descendants: Option<Descendants>,
}

/// What the descendants of a process cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Descendants {
    /// Processor time in seconds, in steps of a tick of the kernel's clock.
    pub cpu_s: f64,
    /// Page faults. Every process has some, so there were none where this is 0.
    pub faults: u64,
}

impl Descendants {
    /// Of a process that has ended and is not reaped yet, when the kernel keeps both accounts still apart.
    fn of(pid: i32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Self::parse(&stat)
    }

    /// The name of the program, in parentheses, may have spaces and parentheses of its own.
    fn parse(stat: &str) -> Option<Self> {
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<u64> =
            rest.split_ascii_whitespace().skip(1).map(|f| f.parse().unwrap_or(0)).collect();
        // The field behind the name, the state, is number 3 in the kernel's counting.
        let field = |number: usize| fields.get(number - 4).copied();
        let ticks = field(16)? + field(17)?;
        Some(Self { cpu_s: ticks as f64 / sys::ticks_per_second(), faults: field(11)? + field(13)? })
    }
}

/// A program in the foreground that has been started.
#[must_use = "nobody else waits for it"]
pub struct Started {
    pid: i32,
    start: Instant,
}

/// Start `command` with our own standard streams, in our own process group.
pub fn start(command: &mut Command) -> io::Result<Started> {
    let start = Instant::now();
    let pid = sys::spawn_forked(command)?.id() as i32;
    sys::set_signal_target(pid);
    Ok(Started { pid, start })
}

impl Started {
    /// The process.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Wait until it has ended.
    pub fn wait(self) -> io::Result<Ran> {
        let Self { pid, start } = self;
        let ended = sys::wait_ended(pid);
        let wall = start.elapsed();
        // Before the process is reaped, or a late signal could hit a stranger with its number.
        sys::set_signal_target(0);
        ended?;
        let descendants = Descendants::of(pid);
        let (status, raw) = sys::reap(pid)?;
        Ok(Ran { pid, end: End::from_status(status), usage: Usage::new(wall, &raw), descendants })
    }
}

/// Run `command` with our own standard streams, in our own process group, and wait for it.
pub fn run(command: &mut Command) -> io::Result<Ran> {
    start(command)?.wait()
}

/// How [`measure`] treats a run.
#[derive(Debug, Default, Clone, Copy)]
pub struct Options<'a> {
    /// Kill it after this time.
    pub timeout: Option<Duration>,
    /// Pass on what it writes to our standard error.
    pub echo: bool,
    /// Look whether this library gets mapped.
    pub library: Option<&'a Path>,
}

/// A run whose output was taken away.
#[derive(Debug)]
pub struct Measured {
    /// How it ended.
    pub end: End,
    /// What it cost.
    pub usage: Usage,
    /// Were we stopped meanwhile (Ctrl-Z), and so do not know when it ended? Then it is to be done again.
    pub paused: bool,
    /// What it wrote to standard output.
    pub stdout: Digest,
    /// The end of what it wrote to standard error.
    pub stderr: String,
    /// Was the library of the options seen in its memory? `None`: it ended too soon to tell.
    pub library_seen: Option<bool>,
}

/// Run `command` in a process group of its own, take its output away, measure it. It does not outlive us: nobody would know
/// of it.
pub fn measure(command: &mut Command, options: &Options) -> io::Result<Measured> {
    measure_keeping(command, options, 0).map(|(measured, _)| measured)
}

/// The same, with the first `keep` bytes of what it writes to standard output.
pub fn measure_keeping(
    command: &mut Command,
    options: &Options,
    keep: usize,
) -> io::Result<(Measured, Vec<u8>)> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Background::start(command)?.follow(options, keep)
}

/// The same of a command whose output the caller has sent elsewhere.
pub fn measure_silent(command: &mut Command, timeout: Duration) -> io::Result<Measured> {
    Background::start(command)?.ends_within(timeout)
}

/// A program that runs while we do something else, in a process group of its own. It is killed when this is dropped.
#[must_use = "it is killed when nobody has it"]
pub struct Background {
    child: Child,
    pid: i32,
    start: Instant,
    stops: signals::Stops,
    reaped: bool,
}

impl Background {
    /// Start it. It does not outlive this thread.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        use std::os::unix::process::CommandExt;
        command.process_group(0);
        sys::die_with_us(command);
        let stops = signals::Stops::noticed_afterwards();
        let start = Instant::now();
        let child = sys::spawn_forked(command)?;
        let pid = child.id() as i32;
        Ok(Self { child, pid, start, stops, reaped: false })
    }

    /// Has it ended by itself?
    pub fn has_ended(&self) -> bool {
        let ended =
            sys::pidfd(self.pid).and_then(|fd| sys::poll_readable([fd.as_raw_fd()], Some(Duration::ZERO)));
        ended.is_ok_and(|[ended]| ended)
    }

    /// Wait for its end, and kill it where that does not come in time.
    pub fn ends_within(self, timeout: Duration) -> io::Result<Measured> {
        // What is allowed counts from here, and not from the start.
        let timeout = self.start.elapsed() + timeout;
        self.follow(&Options { timeout: Some(timeout), ..Options::default() }, 0)
            .map(|(measured, _)| measured)
    }

    fn follow(mut self, options: &Options, keep: usize) -> io::Result<(Measured, Vec<u8>)> {
        let (pid, start) = (self.pid, self.start);
        sys::set_signal_target(-pid);
        let followed = sys::pidfd(pid).and_then(|pidfd| {
            let (stdout, stderr) = (self.child.stdout.take(), self.child.stderr.take());
            let mut streams = Streams::new(stdout, stderr, options.echo, keep)?;
            let mut watch = options.library.map(|library| Watch::new(pid, library));
            let timed_out = follow(pid, &pidfd, &mut streams, watch.as_mut(), start, options.timeout)?;
            let wall = start.elapsed();
            streams.drain();
            Ok((timed_out, wall, streams, watch.and_then(|w| w.seen())))
        });
        if followed.is_err() {
            sys::kill(-pid, libc::SIGKILL);
            sys::wait_ended(pid)?;
        }
        sys::set_signal_target(0);
        self.reaped = true;
        let (status, raw) = sys::reap(pid)?;
        let watching =
            |error| io::Error::other(format!("cannot follow the program (this needs Linux 5.3): {error}"));
        let (timed_out, wall, streams, library_seen) = followed.map_err(watching)?;
        let measured = Measured {
            end: if timed_out { End::Timeout } else { End::from_status(status) },
            usage: Usage::new(wall, &raw),
            paused: self.stops.continued(),
            stdout: streams.digest,
            stderr: streams.tail.text(),
            library_seen,
        };
        Ok((measured, streams.kept))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if !self.reaped {
            sys::kill(-self.pid, libc::SIGKILL);
            // It is our child, so that its end comes.
            let _ = sys::wait_ended(self.pid).and_then(|()| sys::reap(self.pid));
        }
    }
}

/// Have `command` run on these processors only, which the kernel counts from 0.
pub fn pin(command: &mut Command, processors: &[usize]) {
    sys::pin(command, processors);
}

/// Read what the program writes until it ends. True when it had to be killed for taking too long.
fn follow(
    pid: i32,
    pidfd: &OwnedFd,
    streams: &mut Streams,
    mut watch: Option<&mut Watch>,
    start: Instant,
    timeout: Option<Duration>,
) -> io::Result<bool> {
    let mut timed_out = false;
    loop {
        let deadline = timeout.filter(|_| !timed_out).map(|t| t.saturating_sub(start.elapsed()));
        let look = watch.as_ref().map(|w| w.next_look(start.elapsed()));
        let [ended, stdout, stderr] = sys::poll_readable(
            [pidfd.as_raw_fd(), streams.stdout.fd(), streams.stderr.fd()],
            [deadline, look.flatten()].into_iter().flatten().min(),
        )?;
        if ended {
            return Ok(timed_out);
        }
        if stdout {
            streams.read_stdout();
        }
        if stderr {
            streams.read_stderr();
        }
        if let Some(watch) = watch.as_mut() {
            watch.look(start.elapsed());
        }
        if !timed_out && timeout.is_some_and(|t| start.elapsed() >= t) {
            timed_out = true;
            sys::kill(-pid, libc::SIGKILL);
        }
    }
}

/// A pipe from the program, `None` once it is closed.
struct Stream(Option<Box<dyn ReadFd>>);

trait ReadFd: Read + AsRawFd {}
impl<T: Read + AsRawFd> ReadFd for T {}

impl Stream {
    fn fd(&self) -> i32 {
        self.0.as_ref().map_or(-1, |s| s.as_raw_fd())
    }

    /// Read once; empty when there is nothing at the moment.
    fn read<'a>(&mut self, buffer: &'a mut [u8]) -> &'a [u8] {
        let Some(stream) = &mut self.0 else { return &[] };
        match stream.read(buffer) {
            Ok(0) => self.0 = None,
            Ok(bytes) => return &buffer[..bytes],
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => self.0 = None,
        }
        &[]
    }
}

struct Streams {
    stdout: Stream,
    stderr: Stream,
    digest: Digest,
    tail: Tail,
    echo: bool,
    keep: usize,
    kept: Vec<u8>,
    buffer: Box<[u8]>,
}

impl Streams {
    // A large pipe lets the program run on; a small buffer keeps us near the pidfd.
    const PIPE_BYTES: i32 = 1 << 20;
    const BUFFER_BYTES: usize = 64 << 10;

    fn new(
        stdout: Option<impl ReadFd + 'static>,
        stderr: Option<impl ReadFd + 'static>,
        echo: bool,
        keep: usize,
    ) -> io::Result<Self> {
        fn stream(pipe: Option<impl ReadFd + 'static>) -> io::Result<Stream> {
            if let Some(pipe) = &pipe {
                sys::set_nonblocking(pipe)?;
                sys::grow_pipe(pipe, Streams::PIPE_BYTES);
            }
            Ok(Stream(pipe.map(|p| Box::new(p) as Box<dyn ReadFd>)))
        }
        Ok(Self {
            stdout: stream(stdout)?,
            stderr: stream(stderr)?,
            digest: Digest::default(),
            tail: Tail::default(),
            echo,
            keep,
            kept: Vec::new(),
            buffer: vec![0; Self::BUFFER_BYTES].into(),
        })
    }

    fn read_stdout(&mut self) -> usize {
        let data = self.stdout.read(&mut self.buffer);
        self.digest.update(data);
        let room = self.keep - self.kept.len();
        self.kept.extend_from_slice(&data[..data.len().min(room)]);
        echo(self.echo, data);
        data.len()
    }

    fn read_stderr(&mut self) -> usize {
        let data = self.stderr.read(&mut self.buffer);
        self.tail.update(data);
        echo(self.echo, data);
        data.len()
    }

    /// Take what the ended program left in the pipes. Bounded, since a descendant that lives on may
    /// still be writing.
    fn drain(&mut self) {
        let mut left = 2 * Self::PIPE_BYTES as usize;
        while left > 0 {
            let bytes = self.read_stdout() + self.read_stderr();
            if bytes == 0 {
                return;
            }
            left = left.saturating_sub(bytes);
        }
    }
}

fn echo(wanted: bool, data: &[u8]) {
    if wanted && !data.is_empty() {
        // Nobody listening is no reason to stop measuring.
        let _ = io::stderr().write_all(data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    fn measured(script: &str) -> Measured {
        measure(&mut shell(script), &Options::default()).unwrap()
    }

    #[test]
    fn tells_how_it_ended() {
        assert_eq!(measured("exit 7").end, End::Exit(7));
        assert_eq!(measured("kill -SEGV $$").end, End::Signal(libc::SIGSEGV));
        assert_eq!(run(&mut shell("exit 3")).unwrap().end.code(), 3);
        assert_eq!(run(&mut shell("kill -TERM $$")).unwrap().end.code(), 143);
    }

    #[test]
    fn takes_the_output_away() {
        let run = measured("echo hello; echo broken >&2; head -c 3000000 /dev/zero");
        assert_eq!(run.stdout.bytes(), 6 + 3_000_000);
        assert_eq!(run.stderr, "broken");
        assert_eq!(run.stdout, measured("echo hello; head -c 3000000 /dev/zero").stdout);
        assert_ne!(run.stdout, measured("echo hallo; head -c 3000000 /dev/zero").stdout);
    }

    #[test]
    fn keeps_the_first_of_the_output_where_asked() {
        let keep = |bytes| {
            let script = "echo hello; head -c 3000000 /dev/zero";
            measure_keeping(&mut shell(script), &Options::default(), bytes).unwrap()
        };
        let (run, kept) = keep(7);
        assert_eq!(kept, b"hello\n\0");
        assert_eq!(run.stdout.bytes(), 6 + 3_000_000);
        assert_eq!(keep(4 << 20).1.len(), 6 + 3_000_000);
        assert!(keep(0).1.is_empty());
    }

    #[test]
    fn stays_on_its_processors() {
        let ours = crate::machine::processors();
        let last = *ours.last().unwrap();
        let mut command = shell("grep Cpus_allowed_list /proc/self/status");
        pin(&mut command, &[last]);
        let (_, kept) = measure_keeping(&mut command, &Options::default(), 100).unwrap();
        assert_eq!(
            String::from_utf8(kept).unwrap().split_whitespace().last(),
            Some(last.to_string().as_str())
        );
        assert_eq!(crate::machine::processors(), ours, "our own are as before");
    }

    #[test]
    fn does_not_wait_for_descendants_that_hold_the_pipes() {
        let run = measured("sleep 100 & echo done");
        assert_eq!(run.stdout.bytes(), 5);
        assert!(run.usage.wall_s < 90.0, "{}", run.usage.wall_s);
    }

    #[test]
    fn kills_what_takes_too_long() {
        let options = Options { timeout: Some(Duration::from_millis(100)), ..Options::default() };
        let run = measure(&mut shell("sleep 1000; true"), &options).unwrap();
        assert_eq!(run.end, End::Timeout);
        assert!((0.1..300.0).contains(&run.usage.wall_s), "{}", run.usage.wall_s);
    }

    #[test]
    fn output_may_go_elsewhere() {
        let mut file = tempfile::tempfile().unwrap();
        let mut command = shell("echo hello; echo broken >&2; exit 4");
        command.stdout(file.try_clone().unwrap()).stderr(file.try_clone().unwrap());
        let run = measure_silent(&mut command, Duration::from_secs(100)).unwrap();
        assert_eq!((run.end, run.stdout.bytes()), (End::Exit(4), 0));
        let mut text = String::new();
        io::Seek::rewind(&mut file).unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello\nbroken\n");
        let late = measure_silent(&mut shell("sleep 1000; true"), Duration::from_millis(50)).unwrap();
        assert_eq!(late.end, End::Timeout);
    }

    #[test]
    fn what_runs_in_the_background_ends_with_its_owner() {
        let server = Background::start(&mut shell("exec sleep 600")).unwrap();
        assert!(!server.has_ended());
        let pid = server.pid;
        drop(server);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
        let short = Background::start(&mut shell("exit 5")).unwrap();
        while !short.has_ended() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(short.ends_within(Duration::from_secs(100)).unwrap().end, End::Exit(5));
    }

    #[test]
    fn counts_the_program_and_not_ourselves() {
        // Touch far more than /bin/true needs; the child must not inherit it as its own peak.
        let ballast = vec![1u8; 64 << 20];
        let peak = measured("exit 0").usage.peak_rss_bytes;
        assert!(ballast[ballast.len() / 2] == 1);
        drop(ballast);
        let after = measured("exit 0").usage.peak_rss_bytes;
        assert!(after < 16 << 20, "{after}");
        assert!(peak >= after, "a forked child starts with a copy: {peak} {after}");
        let held = measured("x=$(head -c 40000000 /dev/zero | tr '\\0' a); exit 0").usage.peak_rss_bytes;
        assert!(held > 38 << 20, "{held}");
    }

    #[test]
    fn descendants_are_told_from_the_program() {
        let alone = run(&mut shell("exit 0")).unwrap().descendants.unwrap();
        assert_eq!(alone, Descendants { cpu_s: 0.0, faults: 0 });
        let others = run(&mut shell("/bin/true; /bin/true; exit 0")).unwrap().descendants.unwrap();
        assert!(others.faults > 0, "{others:?}");
        let stat = "7 (a) b (c) Z 1 7 7 0 -1 4 10 20 0 30 5 6 700 800 20 0 1";
        let parsed = Descendants::parse(stat).unwrap();
        assert_eq!((parsed.faults, parsed.cpu_s * sys::ticks_per_second()), (50, 1500.0));
        assert_eq!(Descendants::parse("7 (x) Z 1"), None);
    }

    #[test]
    fn says_what_could_not_be_started() {
        let error = measure(&mut Command::new("/nonexistent/program"), &Options::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
