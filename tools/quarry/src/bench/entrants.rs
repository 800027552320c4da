// SPDX-License-Identifier: MIT
//! Who takes part in a benchmark: the mallocs at hand, and whether they serve at all.

use std::collections::BTreeMap;
use std::path::Path;

use quarry_bench::plan::Entrant;
use quarry_bench::results::{Contender, Role};
use quarry_measure::built::{self, Built};
use quarry_measure::live::{self, DryRun};
use quarry_measure::machine::Machine;
use quarry_measure::peers::{Installed, Library};
use quarry_measure::preload::Conf;
use quarry_measure::wish::{self, Candidate, OURS};
use quarry_measure::{elf, locate};

use crate::output::Output;
use crate::{compare, failure, under};

/// The malloc that takes part only where a scenario names it.
const POW2: &str = "quarry-pow2";

/// Those that take part in all scenarios, and those that do only where they are named.
pub fn find(
    wishes: &[String],
    lib: Option<&Path>,
    output: &Output,
) -> anyhow::Result<(Vec<Entrant>, Vec<Entrant>)> {
    let built = built::scan()?;
    let wishes: Vec<&str> = wishes.iter().map(|wish| wish.trim()).filter(|wish| !wish.is_empty()).collect();
    let (of_built, others): (Vec<&str>, Vec<&str>) =
        wishes.iter().partition(|wish| built.iter().any(|built| built.name == **wish));
    let mut found = vec![Candidate::system()];
    if wishes.is_empty() || wishes.contains(&OURS) {
        found.push(Candidate {
            name: OURS.to_owned(),
            library: Some(locate::library(lib)?),
            conf: Conf::default(),
        });
    }
    if wishes.is_empty() || !others.is_empty() {
        let others: Vec<String> = others.iter().map(ToString::to_string).collect();
        found.extend(compare::asked_for(&others, lib, output)?);
    }
    let mut entrants: Vec<Entrant> =
        compare::distinct(found)?.into_iter().map(entrant).collect::<anyhow::Result<_>>()?;
    for built in built.iter().filter(|built| wishes.is_empty() || of_built.contains(&built.name.as_str())) {
        entrants.push(of(built, &entrants)?);
    }
    if let Some(base) = entrants.first_mut() {
        base.about.version = Some(Machine::read().libc);
    }
    let mut extras = Vec::new();
    if !entrants.iter().any(|entrant| entrant.about.name == POW2)
        && let Ok(candidate) = wish::grant(POW2, &Installed::scan(), lib)
    {
        extras.push(entrant(candidate)?);
    }
    Ok((entrants, extras))
}

fn entrant(candidate: Candidate) -> anyhow::Result<Entrant> {
    let Candidate { name, library, conf } = candidate;
    let path = library.as_ref().map(|library| library.path.clone());
    let mut env = BTreeMap::new();
    if !conf.is_empty() {
        env.insert(String::from("QUARRY_CONF"), conf.to_string());
    }
    Ok(Entrant {
        about: Contender {
            library: path.as_ref().map(|path| path.display().to_string()),
            version: library.and_then(|library| library.version),
            env,
            ..Contender::new(&name, Role::Malloc)
        },
        preload: path.as_deref().map(under::preload_value).transpose()?,
        library: path,
        usable: true,
    })
}

/// One that `make peers` has built; the distribution's of the same name keeps the plain name.
fn of(built: &Built, others: &[Entrant]) -> anyhow::Result<Entrant> {
    let taken = others.iter().any(|other| other.about.name == built.name);
    let name = if taken { format!("{}-{}", built.name, built.version) } else { built.name.clone() };
    if others.iter().any(|other| other.about.name == name) {
        return Err(failure::usage(format!("two allocators are called {name}; say --with LABEL=PATH")));
    }
    let library = Library { path: built.path.clone(), version: Some(built.version.clone()) };
    let mut entrant = entrant(Candidate { name, library: Some(library), conf: Conf::default() })?;
    entrant.about.flags = Some(built.flags.clone()).filter(|flags| !flags.is_empty());
    Ok(entrant)
}

/// See whether the dynamic linker would really have `program` served by this one.
pub fn vet(entrant: &mut Entrant, program: &Path) {
    let (Some(library), Some(preload)) = (&entrant.library, &entrant.preload) else { return };
    let Ok(Some(elf::Facts { interpreter: Some(interpreter), .. })) = elf::read(program) else { return };
    let refusal = match live::dry_run(&interpreter, program, preload, library) {
        Ok(DryRun::Refuses(reason)) => Some(reason),
        _ => match live::serves(program, preload, library) {
            Ok(Some(false)) => Some(String::from("the dynamic linker takes malloc from another library")),
            _ => None,
        },
    };
    if let Some(reason) = refusal {
        entrant.usable = false;
        entrant.about.notes.push(reason);
    }
}
