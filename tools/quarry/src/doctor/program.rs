// SPDX-License-Identifier: MIT
//! Whether the library can serve a program, by what the program's file says and the dynamic linker answers.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use quarry_measure::elf::{self, Obstacle};
use quarry_measure::live::{self, DryRun};
use quarry_measure::program::Program;

use super::finding::Finding;
use crate::under;

/// Errors are those of finding the program.
pub fn findings(line: &[OsString], library: Option<&Path>) -> io::Result<Vec<Finding>> {
    let program = under::resolve(line)?;
    let mut all = vec![Finding::ok("file", told(&program))];
    let obstacles = of_file(&program.binary, library);
    let is_reached = obstacles.is_empty();
    all.extend(obstacles);
    if is_reached && let Some(library) = library {
        all.push(of_linker(&program.binary, library));
    }
    Ok(all)
}

fn told(program: &Program) -> String {
    let command = program.command.display();
    if program.binary == program.command {
        command.to_string()
    } else {
        format!("{command}, run by {}", program.binary.display())
    }
}

/// What stands between this file and the library.
pub fn of_file(binary: &Path, library: Option<&Path>) -> Vec<Finding> {
    match elf::obstacles(binary, library) {
        Ok(found) => found.into_iter().map(of_obstacle).collect(),
        Err(error) => vec![Finding::note(
            "preload",
            format!("{} cannot be read: {error}", binary.display()),
            "Run this as a user that may read it.",
        )],
    }
}

fn of_obstacle(obstacle: Obstacle) -> Finding {
    let next = match obstacle {
        Obstacle::NotElf => "Name the program itself, not a file that it reads.",
        Obstacle::Static => "Link it with libquarry-malloc.a, or dynamically.",
        Obstacle::OtherMachine => "Build the library for that processor, and name it with --lib PATH.",
        Obstacle::OtherLibc => {
            "Build the library for that C library. For musl, where there is musl-gcc: cmake --preset musl, then cmake \
             --build build-musl --target quarry_malloc."
        }
        Obstacle::SetId | Obstacle::Capabilities => {
            "Link it with -lquarry-malloc, or name the library in /etc/ld.so.preload, which is for all programs."
        }
        Obstacle::OwnMalloc => {
            "Build the program without its malloc. Options of the program's build often say which one it has."
        }
        Obstacle::InnerAllocator(_) => {
            "Build the program with its malloc off if Quarry is to serve all of it."
        }
        Obstacle::Sanitizer => {
            "Build it without the sanitizer, or use quarry check without Quarry in LD_PRELOAD."
        }
        Obstacle::Go => "Nothing need be done. quarry map and quarry explain show the memory of the Go part.",
    };
    let value = format!("it {obstacle}");
    // A sanitizer refuses, or crashes.
    if obstacle.is_total() || obstacle == Obstacle::Sanitizer {
        Finding::problem("preload", value, next)
    } else {
        Finding::note("preload", value, next)
    }
}

/// Nothing of the program is run.
fn of_linker(binary: &Path, library: &Path) -> Finding {
    let interpreter = elf::read(binary).ok().flatten().and_then(|facts| facts.interpreter);
    let answer =
        interpreter.and_then(|linker| live::dry_run(&linker, binary, library.as_os_str(), library).ok());
    match answer {
        Some(DryRun::Refuses(reason)) => Finding::problem(
            "preload",
            format!("its dynamic linker says: {reason}"),
            "Build the library on this system with make, or name one that fits with --lib PATH.",
        ),
        Some(DryRun::Loads) => Finding::ok("preload", "the dynamic linker loads the library"),
        None => Finding::note(
            "preload",
            "not known: its dynamic linker could not be asked",
            "Start it on Quarry, and ask again: quarry run -- CMD & quarry doctor -p $!",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn a_linker_that_was_not_asked_says_nothing() {
        let finding = of_linker(Path::new("/no/such/program"), Path::new("/l/libquarry-malloc.so"));
        assert_eq!(finding.level, Level::Note);
        assert!(finding.value.starts_with("not known"), "{finding:?}");
    }

    #[test]
    fn what_keeps_the_library_away_is_a_problem() {
        for (obstacle, expected) in [
            (Obstacle::Static, Level::Problem),
            (Obstacle::OtherMachine, Level::Problem),
            (Obstacle::OtherLibc, Level::Problem),
            (Obstacle::SetId, Level::Problem),
            (Obstacle::Capabilities, Level::Problem),
            (Obstacle::OwnMalloc, Level::Problem),
            (Obstacle::Sanitizer, Level::Problem),
            (Obstacle::InnerAllocator("jemalloc"), Level::Note),
            (Obstacle::Go, Level::Note),
            (Obstacle::NotElf, Level::Note),
        ] {
            let finding = of_obstacle(obstacle);
            assert_eq!(finding.level, expected, "{obstacle:?}");
            assert!(!finding.next.is_empty());
        }
    }
}
