// SPDX-License-Identifier: MIT
//! Which tool, library, kernel and C library these are.

use quarry_measure::locate::Error;
use quarry_measure::machine::Machine;
use quarry_measure::peers::Library;
use quarry_measure::units;

use super::finding::Finding;

const TOOL: &str = env!("CARGO_PKG_VERSION");

pub fn findings(library: &Result<Library, Error>) -> Vec<Finding> {
    let machine = Machine::read();
    let memory =
        machine.memory_bytes.map_or_else(String::new, |bytes| format!(", {}", units::bytes(bytes as f64)));
    vec![
        Finding::ok("tool", format!("quarry {TOOL}")),
        of_library(library),
        Finding::ok(
            "kernel",
            format!("Linux {}, pages of {}", machine.kernel, units::bytes(machine.page_size as f64)),
        ),
        Finding::ok("C library", machine.libc),
        Finding::ok(
            "machine",
            format!("{}, {}{memory}", machine.cpu, units::of(machine.cores as u64, "processor")),
        ),
    ]
}

fn of_library(library: &Result<Library, Error>) -> Finding {
    let library = match library {
        Ok(library) => library,
        Err(error) => {
            let text = error.to_string();
            let (what, next) = text.split_once('\n').or_else(|| text.split_once("; ")).unwrap_or((&text, ""));
            return Finding::problem("library", what, next);
        }
    };
    let path = library.path.display().to_string();
    match &library.version {
        Some(version) if version.contains('.') && version != TOOL => Finding::note(
            "library",
            format!("{path}, version {version}"),
            format!(
                "The tool is of version {TOOL}. Install both of one version, or name the library with --lib PATH."
            ),
        ),
        Some(version) => Finding::ok("library", format!("{path}, version {version}")),
        None => Finding::ok("library", path),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn a_library_of_another_version_is_a_note_and_none_a_problem() {
        let of = |version: &str| {
            let version = Some(version.to_owned());
            of_library(&Ok(Library { path: "/l/libquarry-malloc.so".into(), version })).level
        };
        assert_eq!((of(TOOL), of("0"), of("99.1.0")), (Level::Ok, Level::Ok, Level::Note));
        let nowhere = of_library(&Err(Error::Nowhere(vec![String::from("/l")])));
        assert_eq!(nowhere.level, Level::Problem);
        assert!(nowhere.value.contains("/l") && nowhere.next.contains("make"), "{nowhere:?}");
        let named = of_library(&Err(Error::Named { path: String::from("/x"), origin: "--lib" }));
        assert!(named.value.contains("does not exist") && named.next.contains("correct"), "{named:?}");
    }
}
