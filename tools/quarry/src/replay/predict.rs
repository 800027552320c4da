// SPDX-License-Identifier: MIT
//! What a replay needs to say what the program itself would hold and use, and the runs of the program that show whether that is so.

use std::path::Path;
use std::time::Duration;

use indicatif::ProgressBar;
use quarry_measure::locate;
use quarry_measure::preload;
use quarry_measure::rng::Rng;
use quarry_measure::signals::{Forwarding, Stops};
use quarry_measure::witness::{self, Witnessed};
use quarry_replay::session::{self, Contestant, Session};
use quarry_report::replay::prediction::Prediction;

use super::{Compiled, Ordering, Recording, ReplayOptions, Touch};
use crate::failure;
use crate::output::Output;
use crate::under;

/// Memory is looked at in recorded time, unless that is longer.
const PATIENCE_NS: u64 = 60_000_000_000;
/// A run of the program that takes longer is killed, if the user does not say.
const LONGEST: Duration = Duration::from_secs(600);
/// Rounds of the program, if the user does not say.
const ROUNDS: u32 = 3;

/// Have the session look at what a prediction needs, as far as there can be one. None: there is no program.
pub fn prepare(
    options: &ReplayOptions,
    compiled: &Compiled,
    session: &mut Session,
    output: &Output,
) -> Option<Prediction> {
    let recording = compiled.recording.as_ref()?;
    let is_made_up = recording.head.clock == "synthetic";
    (options.validate || !is_made_up).then(|| of_recording(options, recording, session, output))
}

fn of_recording(
    options: &ReplayOptions,
    recording: &Recording,
    session: &mut Session,
    output: &Output,
) -> Prediction {
    let base = match possible(options, recording)
        .and_then(|()| base_of(&recording.head.malloc, &session.contestants))
    {
        Ok(base) => base,
        Err(reason) => return Prediction { recorded_end: recording.end, ..Prediction::unknown(reason) },
    };
    let recorder = cpu_possible(options, recording)
        .and_then(|()| recorder(options, &session.contestants[base]).map_err(|error| failure::words(&error)));
    let (recorder, cpu_unknown) = match recorder {
        Ok(recorder) => (Some(recorder), None),
        Err(reason) => (None, Some(reason)),
    };
    output.detail(format_args!("recorded on {}", session.contestants[base].name));
    let real_time = Some(recording.duration_ns).filter(|ns| *ns <= PATIENCE_NS).map(Duration::from_nanos);
    session.prediction = Some(session::Prediction { base, recorder, real_time });
    let canonical = |module: &String| Path::new(module).canonicalize().ok()?.to_str().map(str::to_owned);
    Prediction {
        base,
        usage: recording.usage.clone(),
        ended: recording.ended,
        destructed: recording.destructed,
        recorded_end: recording.end,
        modules: recording.modules.iter().filter_map(canonical).collect(),
        handed: recording.handed,
        memory_unknown: None,
        cpu_unknown,
        ..Prediction::default()
    }
}

fn possible(options: &ReplayOptions, recording: &Recording) -> Result<(), String> {
    if recording.head.sample > 0 {
        return Err(String::from("a sample has a part of the blocks; record without --sample"));
    }
    if recording.usage.is_empty() {
        return Err(String::from(
            "the trace does not say what the process held. It is of an earlier version or of another tool; record again",
        ));
    }
    if options.threads > 1 || options.repeats > 1 {
        return Err(String::from("the program is one performance without repeats; leave out -t and -r"));
    }
    if options.touch != Touch::Recorded {
        return Err(String::from("the program wrote what --touch recorded writes; leave out --touch"));
    }
    Ok(())
}

fn cpu_possible(options: &ReplayOptions, recording: &Recording) -> Result<(), String> {
    if recording.head.stacks != "none" && !recording.head.stacks.is_empty() {
        return Err(String::from("what call stacks cost is not known; record without -g"));
    }
    if !recording.ended {
        return Err(String::from(
            "the recording does not have the end of the process, and what it used until then",
        ));
    }
    if options.order == Ordering::Strict {
        return Err(String::from(
            "threads that wait for each other at every operation are not the program's; leave out --order strict",
        ));
    }
    Ok(())
}

/// The number of the allocator that has the malloc of the recording.
fn base_of(malloc: &str, contestants: &[Contestant]) -> Result<usize, String> {
    let path = Path::new(malloc);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if ["libc.so", "libc-", "ld-musl", "libc.musl"].iter().any(|libc| name.starts_with(libc)) {
        return Ok(0);
    }
    let is_it = |contestant: &Contestant| {
        let library = contestant.library.as_ref().and_then(|library| library.canonicalize().ok());
        library.is_some() && library == path.canonicalize().ok()
    };
    let those = || contestants.iter().enumerate().filter(|(_, contestant)| is_it(contestant));
    let plain = those().find(|(_, contestant)| contestant.conf.is_empty());
    match plain.or_else(|| those().next()) {
        Some((base, _)) => Ok(base),
        None if malloc.is_empty() => {
            Err(String::from("the trace does not say which malloc it was recorded on"))
        }
        None => Err(format!("it was recorded on {malloc}, which does not take part; add --with {malloc}")),
    }
}

fn recorder(options: &ReplayOptions, base: &Contestant) -> anyhow::Result<session::Recorder> {
    let recorder = locate::companion(crate::record::RECORDER, options.heap.lib.as_deref())?.path;
    let behind = base.preload.clone().or_else(under::existing_preload);
    Ok(session::Recorder {
        preload: preload::ld_preload(&recorder, behind.as_deref())?,
        folder: tempfile::Builder::new().prefix("quarry-").tempdir()?,
    })
}

/// Run the program under each allocator, in rounds of random order.
pub fn validate(
    options: &ReplayOptions,
    session: &Session,
    prediction: &mut Prediction,
    signals: &Forwarding,
    bar: &ProgressBar,
) -> anyhow::Result<()> {
    let rounds = options.rounds.unwrap_or(ROUNDS);
    let who_plays: Vec<usize> = (0..session.contestants.len()).filter(|&who| session.is_in(who)).collect();
    prediction.command = under::words(&options.command);
    prediction.runs = vec![Vec::new(); session.contestants.len()];
    prediction.failures = vec![Default::default(); session.contestants.len()];
    bar.set_length(u64::from(rounds) * who_plays.len() as u64);
    bar.set_position(0);
    let mut rng = Rng::new(1);
    for round in 0..rounds {
        let mut order = who_plays.clone();
        // The system's malloc comes first of all: its end is the right one.
        if round > 0 {
            rng.shuffle(&mut order);
        }
        for who in order {
            let contestant = &session.contestants[who];
            bar.set_message(format!("{}, the program", contestant.name));
            let seen = loop {
                let mut stops = Stops::noticed_afterwards();
                let seen = once(options, contestant)?;
                if signals.seen().is_some() {
                    return Ok(());
                }
                // Its time may have been over while we were stopped.
                if !stops.continued() {
                    break seen;
                }
            };
            match *prediction.end.get_or_insert(seen.end) == seen.end {
                true => prediction.runs[who].push(seen),
                false => *prediction.failures[who].entry(seen.end.to_string()).or_default() += 1,
            }
            bar.inc(1);
        }
    }
    Ok(())
}

fn once(options: &ReplayOptions, contestant: &Contestant) -> anyhow::Result<Witnessed> {
    let mut command = under::command(&options.command);
    if let Some(preload) = &contestant.preload {
        command.env("LD_PRELOAD", preload);
    }
    command.env_remove(crate::record::VARIABLE);
    under::set_conf(&mut command, &contestant.conf);
    witness::run(&mut command, options.timeout.unwrap_or(LONGEST))
        .map_err(|error| failure::not_started(&options.command[0], &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use quarry_measure::preload::Conf;

    fn contestant(library: Option<&Path>, conf: &str) -> Contestant {
        let conf = Conf::parse(conf).unwrap();
        Contestant { name: String::new(), library: library.map(Path::to_owned), preload: None, conf }
    }

    #[test]
    fn the_base_is_who_has_the_malloc_of_the_recording() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("libfast.so.2"), dir.path().join("libfast.so"));
        std::fs::write(&real, "").unwrap();
        std::os::unix::fs::symlink("libfast.so.2", &link).unwrap();
        let all = [contestant(None, ""), contestant(Some(&link), "a:1"), contestant(Some(&link), "")];
        for libc in ["/lib/x86_64-linux-gnu/libc.so.6", "/lib/libc-2.31.so", "/lib/ld-musl-x86_64.so.1"] {
            assert_eq!(base_of(libc, &all), Ok(0));
        }
        assert_eq!(base_of(real.to_str().unwrap(), &all), Ok(2));
        assert_eq!(base_of(real.to_str().unwrap(), &all[..2]), Ok(1));
        assert!(base_of(real.to_str().unwrap(), &all[..1]).unwrap_err().contains("--with"));
        assert!(base_of("/usr/bin/program", &all).unwrap_err().contains("/usr/bin/program"));
        assert!(base_of("", &all).unwrap_err().contains("which malloc"));
    }
}
