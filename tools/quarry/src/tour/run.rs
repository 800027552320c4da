// SPDX-License-Identifier: MIT
//! Running a chapter's program.

use std::env;
use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use quarry_report::tour::{Chapter, Run};

/// Chapters take seconds: this one is stuck.
const LONGEST: Duration = Duration::from_secs(60);

/// The exit code by which a program says that the experiment is impossible here.
const SKIPPED: i32 = 77;

/// Run the chapter's program, or take the recorded run where it cannot be done here.
pub fn run(chapter: &Chapter, system: bool) -> Run {
    let begun = Instant::now();
    let mut run = match execute(chapter, system) {
        Ok(text) => Run::parse(&text).unwrap_or_else(failed),
        Err(why) => failed(why),
    };
    run.seconds = begun.elapsed().as_secs_f64();
    let Some(why) = run.skipped.clone() else { return run };
    match chapter.record().map(|text| Run::parse(&text)) {
        Some(Ok(record)) => Run { recorded: Some(why), ..record },
        Some(Err(error)) => failed(format!("its recorded run cannot be read: {error}")),
        None => run,
    }
}

fn failed(why: String) -> Run {
    Run { failed: Some(why), ..Run::default() }
}

/// What the program writes. It runs as it is: no other malloc, and no settings of malloc from the environment.
fn execute(chapter: &Chapter, system: bool) -> Result<String, String> {
    let program = chapter.program();
    let mut command = Command::new(&program);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("MALLOC_")
            || matches!(&*text, "LD_PRELOAD" | "GLIBC_TUNABLES" | "QUARRY_TOUR_SYSTEM")
        {
            command.env_remove(&name);
        }
    }
    if system {
        command.env("QUARRY_TOUR_SYSTEM", "1");
    }
    let started = command.spawn();
    let mut child = started.map_err(|error| format!("{} cannot be run: {error}", program.display()))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let readers = [thread::spawn(move || read(stdout)), thread::spawn(move || read(stderr))];
    let begun = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Ok(status),
            Ok(None) if begun.elapsed() < LONGEST => thread::sleep(Duration::from_millis(5)),
            Ok(None) => {
                // Its children end with it, by their own wish.
                let _ = child.kill().and_then(|()| child.wait().map(drop));
                break Err(format!("it had not ended after {} seconds", LONGEST.as_secs()));
            }
            Err(error) => break Err(error.to_string()),
        }
    };
    let [text, errors] = readers.map(|reader| reader.join().unwrap_or_else(|_| Ok(String::new())));
    let errors = errors.unwrap_or_default();
    match status? {
        status if matches!(status.code(), Some(0 | 1 | SKIPPED)) => text.map_err(|error| error.to_string()),
        status => Err(ended(status, &errors)),
    }
}

fn read(from: Option<impl Read>) -> io::Result<String> {
    let mut text = String::new();
    from.map_or(Ok(0), |mut from| from.read_to_string(&mut text)).map(|_| text)
}

fn ended(status: ExitStatus, errors: &str) -> String {
    let how = match (status.code(), status.signal()) {
        (Some(code), _) => format!("it ended with code {code}"),
        (None, signal) => format!("signal {} ended it", signal.unwrap_or(0)),
    };
    errors.lines().last().map_or_else(|| how.clone(), |line| format!("{how}: {line}"))
}
