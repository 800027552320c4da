// SPDX-License-Identifier: MIT
//! quarry check: memory errors of a command, or of raw reports.

mod demand;
mod evidence;
mod folder;
mod gdb;
mod living;
mod options;
mod running;
mod show;

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use quarry_check::finding::Process;
use quarry_check::text::Ending;
use quarry_measure::preload::Conf;
use quarry_measure::signals;
use quarry_measure::spawn::{End, Ran};

pub use options::CheckOptions;

use crate::failure;
use crate::output::{Output, Place};
use folder::{Folder, Growing};
use running::{CHECKER, Plan, Reports, now_ns};
use show::Show;

/// The folder of the second run's reports, in that of the first.
const SECOND: &str = "second";

/// Check the command or read the files.
pub fn main(options: &CheckOptions, output: &Output) -> anyhow::Result<i32> {
    if let Some(why) = options.counts_nothing() {
        return Err(failure::usage(why));
    }
    crate::inputs::spare(options.files.iter().chain(&options.suppressions), options.reports.files())?;
    match options.pid {
        Some(pid) => demand(options, pid, output),
        None if options.command.is_empty() => read(options, output),
        None => run(options, output),
    }
}

fn demand(options: &CheckOptions, pid: i32, output: &Output) -> anyhow::Result<i32> {
    let mut show = Show::new(options, Place::Stdout, now_ns(), output)?;
    show.at_the_end();
    demand::ask(pid, &mut show)?;
    let code = status(options, show.counted(), 0);
    show.end(Ending::default(), code, Duration::ZERO, output)?;
    Ok(code)
}

/// The exit code of the tool.
fn status(options: &CheckOptions, counted: usize, own: i32) -> i32 {
    if counted > 0 && options.error_exitcode > 0 { i32::from(options.error_exitcode) } else { own }
}

/// Read a file or a folder of raw reports. Returns how many bytes of lines have no end.
fn read_raw(path: &Path, show: &mut Show) -> anyhow::Result<usize> {
    let name = path.display();
    let mut result = Ok(());
    let mut each = |source: &mut _, line: &[u8]| {
        if result.is_ok() {
            result = show.take(source, line);
        }
    };
    let failed = |error: std::io::Error| failure::failed(format_args!("{name}: {error}"));
    let mut beyond = 0;
    let (unfinished, too_long) = if path.is_dir() {
        let mut folder = Folder::new(path);
        folder.read(&mut each).map_err(failed)?;
        folder.whole().map_err(|why| failure::failed(format_args!("{name}: {why}")))?;
        beyond = folder.beyond();
        folder.left()
    } else {
        let mut file = Growing::open(path).map_err(failed)?;
        if !show::is_raw(path) {
            return Err(failure::failed(format_args!(
                "{name} is no raw report of quarry check; behind -- a command is checked"
            )));
        }
        file.read(&mut each).map_err(failed)?;
        (file.lines.unfinished(), file.lines.too_long())
    };
    result?;
    show.findings.damaged += too_long;
    show.findings.dropped += beyond;
    Ok(unfinished)
}

fn read(options: &CheckOptions, output: &Output) -> anyhow::Result<i32> {
    let mut show = Show::new(options, Place::Stdout, 0, output)?;
    let mut ending = Ending::default();
    for path in &options.files {
        let mut unfinished = read_raw(path, &mut show)?;
        let second = path.join(SECOND);
        if second.is_dir() {
            show.findings.second_run(true);
            unfinished += read_raw(&second, &mut show)?;
            show.findings.second_run(false);
        }
        if unfinished > 0 {
            ending.notes.push(format!(
                "{}: the last line has no end: the process was killed, or still writes",
                path.display()
            ));
        }
    }
    ending.notes.extend(outdated(&mut show));
    let code = status(options, show.counted(), 0);
    show.end(ending, code, Duration::ZERO, output)?;
    Ok(code)
}

/// What text has shown of earlier scans is not so any more.
fn outdated(show: &mut Show) -> Option<String> {
    let count = show.findings.forget_older_scans();
    (count > 0)
        .then(|| format!("leaks that the last scan did not find again, and that do not count: {count}"))
}

fn run(options: &CheckOptions, output: &Output) -> anyhow::Result<i32> {
    let plan = Plan::new(options, output)?;
    let mut reports = Reports::new(options)?;
    let mut show = Show::new(options, Place::Stderr, now_ns(), output)?;
    living::adopt();
    let ran = plan.run(reports.path(), &Conf::default(), &mut show, output)?;
    let mut ending = ending(&ran);
    if options.pinpoint {
        pinpoint(&plan, &reports, &mut show, &mut ending, options, output)?;
    }
    ending.living = living::find(&show.findings, options.children).into_iter().collect();
    if !ending.living.is_empty() {
        reports.stay();
        ending.notes.push(outlived(options, &reports, &ending.living));
    }
    let nothing = (show.findings.processes.is_empty() && !options.gdb)
        .then(|| format!("nothing was checked: {CHECKER} was not loaded, or could not write its reports"));
    let unchecked = became_unchecked(options, &show, &ran);
    ending.notes.extend(nothing.clone());
    ending.notes.extend(unchecked.then(|| String::from(UNCHECKED)));
    ending.failed = nothing.is_some() || unchecked;
    ending.notes.extend(outdated(&mut show));
    let code = status(options, show.counted(), if ending.failed { failure::OURS } else { ran.end.code() });
    // The command has run and its exit code counts, report or no report.
    if let Err(error) = show.end(ending, code, Duration::from_secs_f64(ran.usage.wall_s), output) {
        output.error(&error);
    }
    if let Some(nothing) = nothing {
        anyhow::bail!("{nothing} to {}. The command ended with {}", reports.path().display(), ran.end);
    }
    Ok(code)
}

fn ending(ran: &Ran) -> Ending {
    let mut notes = Vec::new();
    if matches!(ran.end, End::Signal(signal) if signals::name(signal) == "SIGSYS") {
        notes.push(
            "SIGSYS ended the command: a filter of system calls does not allow one that the program or the checker made; \
             docs/check.md says which it makes"
                .into(),
        );
    }
    Ending { end: ran.end.to_string(), pid: ran.pid as u32, notes, ..Ending::default() }
}

/// Of processes that still run.
fn outlived(options: &CheckOptions, reports: &Reports, living: &[u32]) -> String {
    let (noun, verb) = if living.len() == 1 { ("process", "runs") } else { ("processes", "run") };
    let list: Vec<String> = living.iter().map(u32::to_string).collect();
    let folder = reports.path().display();
    let stays = if options.keep.is_some() { "" } else { ", which stays (--keep DIR names another)" };
    format!(
        "{noun} {} still {verb}, and what is found from here on is not shown. It goes to {folder}{stays}: quarry check {folder} \
         shows it, and quarry check -p {} what is lost by now",
        list.join(", "),
        list[0]
    )
}

const UNCHECKED: &str = "the command became a program by exec that was not checked: its environment was cleared (env -i), it is \
    statically linked, or it runs as another user (set-ID, file capabilities)";

/// Did the command become a program without the library, so that nothing of what it did then was checked?
fn became_unchecked(options: &CheckOptions, show: &Show, ran: &Ran) -> bool {
    let is_own = |process: &&Process| process.begin.pid == ran.pid as u32 && !process.second;
    let (own, others): (Vec<_>, Vec<_>) = show.findings.processes.iter().partition(is_own);
    let became = |process: &&Process| process.end.as_ref().is_some_and(|end| end.how == "exec");
    let only = !options.children || others.is_empty();
    !options.gdb && only && !own.is_empty() && own.iter().all(became)
}

const OUT_OF_GUARDS: &str = "the second run did not meet the error again: there were not guards for all blocks of \
    its place. Live guarded blocks have 64 MiB together, unless QUARRY_CHECK has guard_mb: guard_mb:1024 gives them \
    1 GiB. A kernel before 6.13 needs more mappings for that, too: sysctl -w vm.max_map_count=1048576";

/// The second run, where only the sites of the evidence are guarded. Where nothing was found, guards change sides.
fn pinpoint(
    plan: &Plan,
    reports: &Reports,
    show: &mut Show,
    ending: &mut Ending,
    options: &CheckOptions,
    output: &Output,
) -> anyhow::Result<()> {
    let lines = evidence::lines(&show.findings);
    let mut conf = Conf::default();
    // The first run may have had none.
    conf.set("guards", "budget");
    // It has searched, and the second loses the same.
    conf.set("leaks", "off");
    let missed = if !lines.is_empty() {
        let sites = reports.path().join("sites");
        std::fs::write(&sites, &lines).with_context(|| format!("cannot write {}", sites.display()))?;
        conf.set("sites", &sites.display().to_string());
        output.note("the command runs a second time, for the instruction");
        "the second run did not meet the error again: the program may do other things each time it runs"
    } else if show.findings.errors().next().is_none() {
        conf.set("guard_side", options.other_side());
        output.note("the command runs a second time, with the guard of each block on its other side");
        "nothing was found, nor by a second run with the guard of each block on its other side"
    } else {
        ending
            .notes
            .push("there was no second run: no block was overwritten by an unknown instruction".into());
        return Ok(());
    };
    let second = reports.path().join(SECOND);
    std::fs::create_dir(&second).with_context(|| format!("cannot make the folder {}", second.display()))?;
    let before = show.findings.all.len();
    show.findings.second_run(true);
    plan.run(&second, &conf, show, output)?;
    let is_found =
        |finding: &quarry_check::finding::Finding| finding.fault().is_some_and(|fault| !fault.evidence);
    if show.findings.answered == 0 && !show.findings.all[before..].iter().any(is_found) {
        let refused = show
            .findings
            .processes
            .iter()
            .filter(|process| process.second)
            .any(|process| process.refused() > 0);
        ending.notes.push(if refused { OUT_OF_GUARDS } else { missed }.into());
    }
    Ok(())
}
