// SPDX-License-Identifier: MIT
//! The definition of the command line as JSON: the documents' reference is made of it, as the help and the manual pages are of the same.

use clap::{Arg, Command, CommandFactory};
use quarry_profile::live;
use quarry_report::table::Described;
use quarry_report::view::{self, Binding, Heading};
use quarry_report::{compare, map, pools, replay, top};
use serde_json::{Value, json};

use crate::cli::Cli;
use crate::format::Format;

/// Of all verbs, pretty, with a newline at its end.
pub fn text() -> String {
    let mut tool = Cli::command().disable_help_subcommand(true);
    tool.build();
    let everywhere: Vec<Value> =
        tool.get_arguments().filter(|arg| arg.is_global_set()).map(argument).collect();
    let mut verbs = Vec::new();
    add(&tool, &mut verbs);
    let formats: Vec<Value> =
        Format::endings().map(|(name, endings)| json!({ "name": name, "endings": endings })).collect();
    let after = tool.get_after_help().map(ToString::to_string).unwrap_or_default();
    let all = json!({
        "after": after,
        "everywhere": everywhere,
        "formats": formats,
        "tables": tables(),
        "verbs": verbs,
    });
    format!("{all:#}\n")
}

/// Columns of reports and keys of views: rows of words.
fn tables() -> Value {
    json!({
        "keys of every view": keys(view::COMMON),
        "keys of top": keys(top::OWN),
        "keys of profile --live": keys(live::OWN),
        "columns of top": headings::<top::Column>(),
        "columns of profile --live": headings::<live::Column>(),
        "columns of map": map::Column::ALL.map(|column| [column.name(), column.help().0, column.help().1]),
        "columns of compare": heads(&compare::COLUMNS),
        "columns of replay": heads(&replay::COLUMNS),
        "columns of calls": heads(&replay::CALLS),
        "columns of pools": heads(&pools::COLUMNS),
    })
}

fn keys(bindings: &[Binding]) -> Value {
    bindings.iter().map(|one| json!([one.keys, one.does])).collect()
}

fn headings<C: Heading>() -> Value {
    C::ALL.iter().map(|column| json!([column.name(), column.help().0, column.help().1])).collect()
}

fn heads(columns: &[Described]) -> Value {
    columns.iter().map(|head| json!([head.name, head.help])).collect()
}

/// The verbs below this command, each followed by its own.
fn add(command: &Command, verbs: &mut Vec<Value>) {
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        verbs.push(of_verb(verb));
        add(verb, verbs);
    }
}

fn of_verb(verb: &Command) -> Value {
    let usage = verb.clone().render_usage().to_string();
    let about = verb.get_long_about().or(verb.get_about()).map(ToString::to_string).unwrap_or_default();
    let own = |arg: &&Arg| {
        !arg.is_hide_set() && !arg.is_global_set() && !matches!(arg.get_id().as_str(), "help" | "version")
    };
    json!({
        "name": verb.get_bin_name().unwrap_or(verb.get_name()),
        "usage": usage.trim_start_matches("Usage:").trim(),
        "about": about,
        "arguments": verb.get_arguments().filter(own).map(argument).collect::<Vec<_>>(),
        "after": verb.get_after_help().map(ToString::to_string).unwrap_or_default(),
    })
}

fn argument(arg: &Arg) -> Value {
    let text = |words: Option<&clap::builder::StyledStr>| words.map(ToString::to_string).unwrap_or_default();
    let help = text(arg.get_long_help().or(arg.get_help()));
    let takes = arg.get_action().takes_values();
    let least = arg.get_num_args().map_or(1, |range| range.min_values());
    let names: Vec<&str> =
        arg.get_value_names().unwrap_or_default().iter().map(|name| name.as_str()).collect();
    let values: Vec<Value> = arg
        .get_possible_values()
        .iter()
        .filter(|value| takes && !value.is_hide_set())
        .map(|value| json!({ "name": value.get_name(), "help": text(value.get_help()) }))
        .collect();
    let defaults: Vec<String> = arg
        .get_default_values()
        .iter()
        .filter(|_| takes)
        .map(|value| value.to_string_lossy().into_owned())
        .collect();
    json!({
        "short": arg.get_short().map(String::from),
        "long": arg.get_long(),
        "aliases": arg.get_visible_aliases().unwrap_or_default(),
        "takes": if takes { names } else { Vec::new() },
        "optional": takes && !arg.is_positional() && least == 0,
        "equals": arg.is_require_equals_set(),
        "values": values,
        "default": defaults.join(" "),
        "help": help,
        "heading": arg.get_help_heading(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reference is made without a built tool, so the definition is in the tree.
    #[test]
    fn the_committed_definition_is_this_one() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/verbs.json");
        let committed = std::fs::read_to_string(file).unwrap_or_default();
        assert!(
            committed == text(),
            "run scripts/generate_docs.py --tool with the built tool, and commit what it writes"
        );
    }

    #[test]
    fn it_has_what_the_help_has() {
        let all: Value = serde_json::from_str(&text()).unwrap();
        let verbs = all["verbs"].as_array().unwrap();
        let verb = |name: &str| {
            verbs.iter().find(|verb| verb["name"] == name).unwrap_or_else(|| panic!("no {name}"))
        };
        let option = |of: &Value, long: &str| {
            of.as_array().unwrap().iter().find(|option| option["long"] == long).unwrap().clone()
        };
        let window = option(&verb("quarry explain")["arguments"], "for");
        assert_eq!((window["takes"][0].as_str(), window["default"].as_str()), (Some("SECONDS"), Some("2")));
        assert!(verb("quarry bench suite")["after"].as_str().unwrap().contains("Examples:"));
        assert!(
            verb("quarry run")["arguments"]
                .as_array()
                .unwrap()
                .iter()
                .all(|option| option["long"] != "quiet")
        );
        let tree = option(&verb("quarry profile")["arguments"], "tree");
        assert_eq!((tree["optional"].as_bool(), tree["equals"].as_bool()), (Some(true), Some(true)));
        assert_eq!(option(&verb("quarry info")["arguments"], "symfs")["aliases"][0], "sysroot");
        assert!(all["formats"].as_array().unwrap().iter().any(|format| format["endings"][1] == "htm"));
        assert!(option(&all["everywhere"], "color")["values"].as_array().unwrap().len() == 3);
    }
}
