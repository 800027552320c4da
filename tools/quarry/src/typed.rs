// SPDX-License-Identifier: MIT
//! What was typed, where it is wrong or may mean something else: what to type instead.

use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::num::{IntErrorKind, ParseIntError};
use std::path::Path;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};

use crate::cli::{Cli, Verb};

/// Read the command line, or say what is wrong with it and end.
pub fn parse() -> Cli {
    let words: Vec<OsString> = std::env::args_os().collect();
    Cli::try_parse_from(&words).unwrap_or_else(|error| with_tip(error, &words).exit())
}

/// The same error, and what to do about it where that is known.
fn with_tip(error: clap::Error, words: &[OsString]) -> clap::Error {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.as_str(),
        _ => "",
    };
    let (option, value) = (text(ContextKind::InvalidArg), text(ContextKind::InvalidValue));
    let is_no_number = error.source().and_then(|source| source.downcast_ref::<ParseIntError>());
    let is_no_number = is_no_number.is_some_and(|error| *error.kind() == IntErrorKind::InvalidDigit);
    let tip = match error.kind() {
        ErrorKind::ValueValidation if is_no_number => Some(number(option, value)),
        ErrorKind::InvalidValue if error.get(ContextKind::SuggestedValue).is_none() => {
            dashes(option, value, words)
        }
        ErrorKind::MissingRequiredArgument => words.get(1).and_then(|verb| subject(verb)).map(str::to_owned),
        _ => None,
    };
    let Some(tip) = tip else { return error };
    // A new one: the words of its source, "invalid digit found in string", help nobody.
    let mut better = clap::Error::new(error.kind()).with_cmd(&Cli::command());
    for (kind, value) in error.context() {
        better.insert(kind, value.clone());
    }
    better.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
    better
}

/// What is expected instead of this value.
fn number(option: &str, value: &str) -> String {
    let what =
        option.split_once('<').and_then(|(_, rest)| rest.split_once('>')).map_or("it", |(name, _)| name);
    if what != "PID" {
        return format!("'{value}' is not a number; {what} is a whole one, as 20");
    }
    let name = Path::new(value).file_name().and_then(OsStr::to_str).unwrap_or_default();
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-+".contains(c);
    match !name.is_empty() && !name.starts_with('-') && name.chars().all(plain) {
        true => format!("'{value}' is not a process number; pidof {name} finds it"),
        false => format!("'{value}' is not a process number; ps -e shows them"),
    }
}

/// Where a program was taken for the value of an option that needs none.
fn dashes(option: &str, value: &str, words: &[OsString]) -> Option<String> {
    let verb = words.get(1)?.to_str()?;
    let runs = Cli::command().find_subcommand(verb)?.get_arguments().any(|arg| arg.get_id() == "command");
    let place = words.iter().position(|word| word == value)?;
    if !runs || !option.contains(" [<") || words[..place].iter().any(|word| word == "--") {
        return None;
    }
    let join = |words: &[OsString]| {
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    };
    let (before, command) = (join(&words[1..place]), join(&words[place..]));
    Some(format!("put -- before the command: quarry {before} -- {command}"))
}

/// What a verb that was typed alone can be given.
fn subject(verb: &OsStr) -> Option<&'static str> {
    Some(match verb.to_str()? {
        "check" => {
            "quarry check -- CMD runs a program and checks it; -p PID asks one that quarry check has started"
        }
        "profile" => {
            "quarry profile -- CMD records a program first; -p PID samples one that runs on Quarry; FILE is a trace"
        }
        _ => return None,
    })
}

/// An option of the verb that is given to the command. `words`: the whole command line.
fn stray(verb: &Verb, words: &[OsString]) -> Option<String> {
    let (name, command) = match verb {
        Verb::Run(options) => ("run", &options.command),
        Verb::Record(options) => ("record", options.command()),
        Verb::Compare(options) => ("compare", &options.command),
        _ => return None,
    };
    let before = words.len().checked_sub(command.len() + 1)?;
    if words[before] == "--" {
        return None;
    }
    let word = command.get(1)?.to_str()?;
    let definition = Cli::command();
    let mut options = definition.find_subcommand(name)?.get_arguments();
    let is_own = match word.strip_prefix("--") {
        Some(long) => {
            let long = long.split('=').next();
            options.any(|option| option.get_long().is_some() && option.get_long() == long)
        }
        None => {
            let short = word.strip_prefix('-').and_then(|rest| rest.chars().next());
            options.any(|option| option.get_short().is_some() && option.get_short() == short)
        }
    };
    let program = Path::new(&command[0]).display();
    is_own.then(|| format!("{word} is given to {program}; options of {name} stand before the command"))
}

/// What the command line may not mean, though it can be read.
pub fn remark(cli: &Cli) -> Option<String> {
    stray(&cli.verb, &std::env::args_os().collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    /// What is said of a line that cannot be read.
    fn said(line: &str) -> String {
        let words = words(line);
        match Cli::try_parse_from(&words) {
            Ok(_) => panic!("{line} can be read"),
            Err(error) => with_tip(error, &words).to_string(),
        }
    }

    fn noted(line: &str) -> Option<String> {
        let words = words(line);
        stray(&Cli::try_parse_from(&words).unwrap().verb, &words)
    }

    #[test]
    fn who_types_a_name_is_told_how_to_find_the_number() {
        for verb in ["profile", "check", "stats"] {
            let text = said(&format!("quarry {verb} -p leaky"));
            assert!(text.contains("'leaky' is not a process number; pidof leaky finds it"), "{text}");
            assert!(text.contains("--pid <PID>") && !text.contains("invalid digit"), "{text}");
        }
        let text = said("quarry compare -n three -- prog");
        assert!(text.contains("'three' is not a number; N is a whole one"), "{text}");
        assert!(said("quarry check -p a;b").contains("ps -e"));
    }

    #[test]
    fn a_program_is_no_value_of_the_option_before_it() {
        let text = said("quarry record -g ./bugs leak");
        assert!(text.contains("tip: put -- before the command: quarry record -g -- ./bugs leak"), "{text}");
        assert!(said("quarry check --leaks ./bugs").contains("quarry check --leaks -- ./bugs"));
        // What is nearly a value is none.
        assert!(!said("quarry record -g cf prog").contains("put --"));
    }

    #[test]
    fn a_verb_alone_says_what_it_can_be_given() {
        for verb in ["profile", "check"] {
            let text = said(&format!("quarry {verb}"));
            assert!(text.contains(&format!("quarry {verb} -- CMD")) && text.contains("-p PID"), "{text}");
        }
    }

    #[test]
    fn options_behind_the_command_are_noted() {
        let text = "--with is given to ./work; options of compare stand before the command";
        assert_eq!(noted("quarry compare ./work --with nosuch").as_deref(), Some(text));
        assert!(noted("quarry record ./work -o x.qtr").is_some_and(|note| note.contains("-o is given")));
        assert!(noted("quarry run ./work --stats=1").is_some());
        for line in
            ["compare -- ./work --with x", "compare ./work --other", "run ./work x --stats", "run ./work"]
        {
            assert_eq!(noted(&format!("quarry {line}")), None);
        }
    }
}
