// SPDX-License-Identifier: MIT
//! quarry doctor: what of this machine, this environment and a program keeps Quarry from working as it should.

mod environment;
mod finding;
mod kernel;
mod process;
mod program;
mod versions;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use quarry_measure::locate;
use quarry_proc::Root;

use crate::failure;
use crate::format::{Format, Makes, Reports};
use crate::output::{Output, Place};

use finding::{Diagnosis, Group};

/// Say what keeps Quarry from serving a program, and what to do about it
///
/// The report has four parts: versions, settings of the kernel, the environment, and the program or process, if one is named. Each
/// line is ok, a note or a problem. A note is a setting that costs something or hides something. With a problem Quarry does
/// not serve the program, or a tool cannot work. Each of both says what to do next. The program is looked at and not run.
/// Issues are to hold this report.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct DoctorOptions {
    /// The process with this number: its environment, its limits, and the malloc that it has
    #[arg(short, long, value_name = "PID", conflicts_with = "command")]
    pub pid: Option<u32>,
    /// The libquarry-malloc.so to use
    #[arg(long, value_name = "PATH")]
    pub lib: Option<PathBuf>,
    #[command(flatten)]
    pub reports: Reports<Self>,
    /// The program to look at; its arguments matter only behind a dynamic linker
    #[arg(value_name = "PROGRAM", trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

impl Makes for DoctorOptions {
    const VERB: &'static str = "doctor";
    const FORMATS: &'static [Format] = &[Format::Text, Format::Json];
    const SCHEMA: &'static str = "quarry-doctor/1";
}

const EXAMPLES: &str = "Examples:
  quarry doctor                the machine and the environment
  quarry doctor ./prog         and whether Quarry can serve ./prog
  quarry doctor -p 1234        and which malloc a process has
  quarry doctor --json         the same for scripts

Exit code: 0; 1 with a problem, or when there is no such process; 127 when there is no such program.";

/// The program is found before anything is printed.
pub fn main(options: &DoctorOptions, output: &Output) -> anyhow::Result<i32> {
    let reports = options.reports.all(Place::Stdout)?;
    output.expect_all(&reports)?;
    let library = locate::library(options.lib.as_deref());
    let path = library.as_ref().ok().map(|library| library.path.clone());
    let live = Root::live();
    let its = options.pid.map(|pid| live.process(pid)).transpose().map_err(failure::failed)?;
    if let Some(process) = &its {
        process.expect_memory().map_err(failure::failed)?;
    }
    let ours = live.process(std::process::id()).map_err(failure::failed)?;
    let subject = its.as_ref().unwrap_or(&ours);

    let mut groups = vec![
        Group { name: "Versions", findings: versions::findings(&library) },
        Group { name: "Kernel", findings: kernel::Seen::new(&live, subject).findings() },
    ];
    let environment = match &its {
        Some(process) => process::environment(process),
        None => Ok(std::env::vars_os().collect()),
    };
    let preload = environment::value(environment.as_deref().unwrap_or_default(), "LD_PRELOAD");
    groups.push(Group { name: "Environment", findings: environment::of(environment, its.as_ref()) });
    if let Some(process) = &its {
        groups
            .push(Group { name: "Process", findings: process::findings(process, &preload, path.as_deref()) });
    } else if !options.command.is_empty() {
        let findings = program::findings(&options.command, path.as_deref())
            .map_err(|error| failure::not_started(&options.command[0], &error))?;
        groups.push(Group { name: "Program", findings });
    }
    let diagnosis = Diagnosis { groups };
    output.reports(&reports, |wish| {
        Ok(match wish.format {
            Format::Json => format!("{:#}\n", diagnosis.json(DoctorOptions::SCHEMA)),
            _ => diagnosis.text(output.style(&wish.place)),
        })
    })?;
    Ok(i32::from(diagnosis.has_problem()))
}
