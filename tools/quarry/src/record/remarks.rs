// SPDX-License-Identifier: MIT
//! What is not as the user may think, and what to do about it.

use std::path::{Path, PathBuf};

use quarry_measure::elf::{self, Obstacle};
use quarry_measure::program::Program;
use quarry_measure::signals;
use quarry_measure::spawn::{End, Ran};
use quarry_report::record::Recorded;
use quarry_report::units;

use super::count::Counted;

/// Processes whose traces have fewer allocations than this may be what starts the real program.
const FEW: u64 = 1;
/// From this part of the processor time on the others are worth a word even if they are few.
const MUCH: f64 = 0.1;

/// What stands between a program and the recorder, known before it runs.
pub struct Obstacles {
    binary: PathBuf,
    found: Vec<Obstacle>,
}

impl Obstacles {
    /// Read the program's file.
    pub fn find(program: &Program, recorder: &Path) -> Self {
        // Unreadable, yet perhaps executable: then nothing is known.
        let found = elf::obstacles(&program.binary, Some(recorder)).unwrap_or_default();
        Self { binary: program.binary.clone(), found }
    }

    /// Why nothing at all can be recorded of the program itself, if that is so.
    pub fn total(&self) -> Option<String> {
        self.found.iter().find(|obstacle| obstacle.is_total()).map(|&obstacle| self.sentence(obstacle))
    }

    /// All of them, in words.
    pub fn sentences(&self) -> impl Iterator<Item = String> {
        self.found.iter().map(|&obstacle| self.sentence(obstacle))
    }

    fn sentence(&self, obstacle: Obstacle) -> String {
        format!("{} {}", self.binary.display(), explained(obstacle))
    }
}

/// The rest of a sentence that begins with the program: what is in the way, and the way round.
fn explained(obstacle: Obstacle) -> String {
    let text = match obstacle {
        Obstacle::NotElf => {
            "is neither an ELF file nor a script: it cannot be told whether the recorder will be loaded"
        }
        Obstacle::Static => {
            "is statically linked, so that no recorder can be loaded into it; link it dynamically for the recording"
        }
        Obstacle::OtherMachine => {
            "is built for another processor or word size than the recorder; build Quarry for that, and name the \
             directory of its libraries with QUARRY_LIB_DIR"
        }
        Obstacle::OtherLibc => {
            "is made for another C library than the recorder; build Quarry with that, and name the directory of its \
             libraries with QUARRY_LIB_DIR"
        }
        Obstacle::SetId => {
            "runs as another user or group (set-ID), so that the dynamic linker ignores LD_PRELOAD; record a copy \
             without the bit, as that user"
        }
        Obstacle::Capabilities => {
            "has file capabilities, so that the dynamic linker ignores LD_PRELOAD; record a copy, which has none, as a \
             user who has the capabilities"
        }
        Obstacle::OwnMalloc => {
            "has a malloc of its own, which is called and not the recorder's; build it without, and record it with \
             --with that allocator's library"
        }
        Obstacle::InnerAllocator(name) => {
            return format!(
                "has {name} linked in under other names: what it allocates there is not seen, only calls of malloc \
                 are; build it without for a whole recording"
            );
        }
        Obstacle::Sanitizer => {
            "is built with a sanitizer, which has a malloc of its own and wants to be loaded first; record a build \
             without it"
        }
        Obstacle::Go => {
            "is a Go program: only its C parts use malloc; its own profiler (pprof) shows the rest"
        }
    };
    text.to_owned()
}

/// What is to be said when the command has run.
pub fn after(
    follow: bool,
    program: &Program,
    ran: &Ran,
    counted: &[Counted],
    obstacles: &Obstacles,
) -> Vec<String> {
    let mut notes = Vec::new();
    notes.extend(nothing(follow, ran, counted, obstacles));
    notes.extend(became_unrecorded(ran, counted));
    for Counted { recorded, damage, .. } in counted {
        let file = &recorded.file;
        if recorded.was_stopped() {
            let reason = recorded.end.as_deref().unwrap_or_default();
            notes.push(format!(
                "{file}: recording stopped before the program did: {reason}; what came before is there"
            ));
        }
        if recorded.running {
            notes.push(format!("{file}: process {} still runs, and its trace grows", recorded.process));
        }
        if recorded.lost > 0 {
            let lost = units::of(recorded.lost, "event");
            notes.push(format!("{file}: {lost} lost; quarry info says why"));
        }
        if !recorded.counted {
            notes.push(format!("{file}: long, so its events were not counted one by one; quarry info does"));
        }
        notes.extend(damage.iter().cloned());
    }
    if let (End::Signal(signal), true) = (ran.end, counted.iter().any(|c| is_cut_off(&c.recorded))) {
        let name = signals::name(signal);
        // With the sandbox that the program puts on itself: docs/record.md has the calls.
        let filter = match name.as_str() == "SIGSYS" {
            true => {
                ". A filter of system calls does not allow what the recorder needs: record it without its sandbox"
            }
            false => "",
        };
        notes.push(format!("{name} ended the command; all that it did before is in the trace{filter}"));
    }
    let forks = counted.iter().map(|c| c.forks).sum();
    notes.extend(others(follow, ran, forks));
    notes.extend(own_pools(program));
    notes
}

/// Did its process end before it could write an end?
fn is_cut_off(recorded: &Recorded) -> bool {
    !recorded.running && recorded.end.as_deref().is_none_or(|end| ["crash", "killed"].contains(&end))
}

/// Why there is nothing, if there is nothing.
fn nothing(follow: bool, ran: &Ran, counted: &[Counted], obstacles: &Obstacles) -> Option<String> {
    if counted.is_empty() {
        let why = obstacles.total().unwrap_or_else(|| match ran.end {
            End::Signal(signal) => {
                format!("{} may have come before the first allocation", signals::name(signal))
            }
            _ => String::from(
                "either the recorder could not write it and has said so above, or the program has not loaded the \
                 recorder: with LD_DEBUG=libs in its environment the dynamic linker says what it loads",
            ),
        });
        return Some(format!("no trace was written: {why}"));
    }
    let of_command = counted.iter().filter(|c| follow || i64::from(c.recorded.process) == i64::from(ran.pid));
    let allocations = of_command.map(|c| c.recorded.allocations.unwrap_or(FEW)).fold(0, u64::saturating_add);
    if allocations >= FEW {
        return None;
    }
    let why = obstacles.sentences().next().unwrap_or_else(|| {
        String::from(
            "the program asked malloc for nothing, or has an allocator of its own; on what the kernel gives it see \
             quarry run --stats",
        )
    });
    Some(format!("no allocation was recorded: {why}"))
}

/// The command became a program that has no trace.
fn became_unrecorded(ran: &Ran, counted: &[Counted]) -> Option<String> {
    let of_command = counted.iter().filter(|c| i64::from(c.recorded.process) == i64::from(ran.pid));
    let last = &of_command.max_by_key(|c| c.start_monotonic_ns)?.recorded;
    (last.end.as_deref() == Some("exec")).then(|| {
        format!(
            "{}: the process became another program by exec, of which nothing was recorded: its environment was cleared \
             (env -i), it is statically linked, or it runs as another user (set-ID, file capabilities)",
            last.file
        )
    })
}

/// Other processes that did a part of the work, and are not recorded.
/// The kernel accounts for those that were waited for; of the others the trace knows that they were made.
fn others(follow: bool, ran: &Ran, forks: u64) -> Option<String> {
    if follow {
        return None;
    }
    let Some(descendants) = ran.descendants.filter(|descendants| descendants.faults > 0) else {
        let made = if forks == 1 { "a process" } else { "processes" };
        let note = || {
            format!(
                "it started {made} and waited for none; these are not recorded; --follow records them, too"
            )
        };
        return (forks > 0).then(note);
    };
    let all = ran.usage.user_s + ran.usage.system_s;
    let part = if all > 0.0 { descendants.cpu_s / all } else { 0.0 };
    let share = match part >= MUCH {
        true => format!(", with {} of the processor time,", units::percent(part.min(1.0))),
        false => String::new(),
    };
    Some(format!("other processes that it started{share} are not recorded; --follow records them, too"))
}

/// Interpreters that keep most objects from malloc.
fn own_pools(program: &Program) -> Option<String> {
    let name = program.binary.file_name()?.to_str()?;
    let is_python = name.starts_with("python") && std::env::var_os("PYTHONMALLOC").is_none();
    is_python.then(|| {
        String::from(
            "Python has pools of its own for objects up to 512 bytes, of which only the large pieces are seen; with \
             PYTHONMALLOC=malloc in its environment all are",
        )
    })
}
