// SPDX-License-Identifier: MIT
//! quarry: see what memory allocation does to a program, and change it.
//!
//! `cli` says what can be typed; each verb has a module; `output` knows where text goes.

#![deny(unsafe_code)]

mod bench;
mod check;
mod cli;
mod command_of;
mod compare;
mod convert;
mod definition;
mod doctor;
mod explain;
mod failure;
mod format;
mod generate;
mod info;
mod inputs;
mod kind;
mod later;
mod man;
mod map;
mod opened;
mod output;
mod places;
mod pools;
mod profile;
mod quantity;
mod record;
mod replay;
mod run;
mod stats;
mod symbolize;
mod top;
mod tour;
mod trace_file;
mod typed;
mod under;
mod view;

use std::process::ExitCode;

use quarry_measure::memory::OrExit;

use cli::Verb;
use output::Output;

#[global_allocator]
static ALLOCATOR: OrExit = OrExit;

fn main() -> ExitCode {
    let mut cli = typed::parse();
    let output = Output::new(&cli.common);
    if let Some(remark) = typed::remark(&cli) {
        output.note(remark);
    }
    command_of::follow(&mut cli.verb, &output);
    let result = cli.verb.check().and_then(|()| run_verb(&cli.verb, &output));
    let code = result.unwrap_or_else(|error| {
        output.error(&error);
        failure::code_of(&error)
    });
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}

fn run_verb(verb: &Verb, output: &Output) -> anyhow::Result<i32> {
    match verb {
        Verb::Run(options) => run::main(options, output),
        Verb::Record(options) => record::main(options, output),
        Verb::Check(options) => check::main(options, output),
        Verb::Compare(options) => compare::main(options, output),
        Verb::Pools(options) => pools::main(options, output),
        Verb::Replay(options) => replay::main(options, output),
        Verb::Bench(options) => bench::main(options, output),
        Verb::Gen(options) => generate::main(options, output),
        Verb::Convert(options) => convert::main(options, output),
        Verb::Info(options) => info::main(options, output),
        Verb::Profile(options) => profile::main(options, output),
        Verb::Symbolize(options) => symbolize::main(options, output),
        Verb::Stats(options) => stats::main(options, output),
        Verb::Tour(options) => tour::main(options, output),
        Verb::Map(options) => map::main(options, output),
        Verb::Top(options) => top::main(options, output),
        Verb::Explain(options) => explain::main(options, output),
        Verb::Doctor(options) => doctor::main(options, output),
        Verb::Completions { shell, product } => cli::completions(*shell, product.file(), output),
        Verb::Man { directory, product } => man::main(directory.as_deref(), product, output),
    }
}
