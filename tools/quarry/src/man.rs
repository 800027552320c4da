// SPDX-License-Identifier: MIT
//! The manual pages. They come from the definition of the command line, as the help does.

use std::fs;
use std::path::Path;

use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::cli::{self, Cli};
use crate::definition;
use crate::format::{Format, Product};
use crate::output::{Output, Place};

/// A manual page.
struct Page {
    /// The name of its file, `quarry-run.1`.
    file: String,
    /// Its text, in roff.
    text: String,
}

/// Write the page of the tool, or all pages into a directory, or the definition that they are made of.
pub fn main(directory: Option<&Path>, product: &Product<cli::Man>, output: &Output) -> anyhow::Result<i32> {
    let file = product.file();
    if product.format()? == Some(Format::Json) {
        output.report(&Place::of(file, Place::Stdout), &definition::text())?;
        return Ok(0);
    }
    let pages = pages(Cli::command())?;
    let Some(directory) = directory else {
        output.report(&Place::of(file, Place::Stdout), &pages[0].text)?;
        return Ok(0);
    };
    fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    for page in pages {
        let file = directory.join(page.file);
        fs::write(&file, page.text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(0)
}

/// The page of the tool, then one for each verb.
fn pages(command: Command) -> anyhow::Result<Vec<Page>> {
    let mut tool = command.disable_help_subcommand(true).subcommand_help_heading("VERBS");
    tool.build();
    let verbs: Vec<Command> = tool.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned().collect();
    let verbs = verbs.into_iter().map(|verb| page(verb, &["quarry(1)", "quarry(7)"]));
    std::iter::once(page(tool, &["quarry(7)", "libquarry(3)"])).chain(verbs).collect()
}

fn page(command: Command, see_also: &[&str]) -> anyhow::Result<Page> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let version = command.get_version().unwrap_or_default().to_owned();
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    let has_verbs = command.has_subcommands();
    let man = Man::new(command);

    let mut text = Roff::default().render().into_bytes();
    // That of clap_mangen leaves out a date that is empty, and all behind it move one place.
    text.extend(format!(".TH {name} 1 \"\" \"quarry {version}\" Quarry\n").into_bytes());
    man.render_name_section(&mut text)?;
    text.extend(synopsis(&usage).to_roff().into_bytes());
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if has_verbs {
        man.render_subcommands_section(&mut text)?;
    }
    text.extend(sections(&after).to_roff().into_bytes());
    text.extend(references(see_also).to_roff().into_bytes());
    Ok(Page { file: format!("{name}.1"), text: tidied(&String::from_utf8(text)?) })
}

/// The usage line of the help. That of clap_mangen names every option, but not what each takes.
fn synopsis(usage: &str) -> Roff {
    let mut roff = Roff::default();
    roff.control("SH", ["SYNOPSIS"]);
    roff.text([roman(usage.trim_start_matches("Usage:").trim())]);
    roff
}

/// What stands behind the options: a paragraph is a section, and the word before its first colon is the heading. Lines that are
/// indented stay as they are.
fn sections(after: &str) -> Roff {
    let mut roff = Roff::default();
    for paragraph in after.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
        let (heading, body) = paragraph.split_once(':').unwrap_or(("Notes", paragraph));
        let heading = if heading == "Exit code" { "Exit status" } else { heading };
        roff.control("SH", [heading.to_uppercase().as_str()]);
        let mut kept = false;
        for line in body.trim_start_matches('\n').lines() {
            if line.starts_with("  ") != kept {
                kept = !kept;
                roff.control(if kept { "nf" } else { "fi" }, []);
            }
            roff.text([roman(line.trim_start())]);
        }
        if kept {
            roff.control("fi", []);
        }
    }
    roff
}

fn references(pages: &[&str]) -> Roff {
    let mut roff = Roff::default();
    roff.control("SH", ["SEE ALSO"]);
    for (index, page) in pages.iter().enumerate() {
        let (name, section) = page.split_once('(').unwrap_or((page, ""));
        let comma = if index + 1 < pages.len() { "," } else { "" };
        roff.control("BR", [name, format!("({section}{comma}").as_str()]);
    }
    roff
}

/// Without what clap_mangen repeats for each section, and with one blank line before the values of an option.
fn tidied(text: &str) -> String {
    let repeated = Roff::default().render();
    let once = text.replacen(&repeated, "\u{0}", 1).replace(&repeated, "").replacen('\u{0}', &repeated, 1);
    once.replace("\n.br\n\n.br\n", "\n.sp\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_behind_the_options_becomes_sections() {
        let after = "Examples:\n  quarry x -- 'a'\n  .dots\n\nExit code: 0; 1 when it\nfailed.";
        let roff = sections(after).to_roff();
        assert_eq!(
            roff,
            ".SH EXAMPLES\n.nf\nquarry x \\-\\- 'a'\n\\&.dots\n.fi\n.SH \"EXIT STATUS\"\n0; 1 when it\nfailed.\n"
        );
    }

    #[test]
    fn there_is_a_page_for_each_verb_and_each_names_its_values() {
        let pages = pages(Cli::command()).unwrap();
        assert_eq!(pages.len(), 1 + Cli::command().get_subcommands().count());
        for page in &pages {
            assert!(page.file.starts_with("quarry") && page.file.ends_with(".1"), "{}", page.file);
            assert_eq!(page.text.matches(".TH ").count(), 1, "{}", page.file);
            assert_eq!(page.text.matches(".ie ").count(), 1, "{}", page.file);
            assert!(page.text.contains(".SH \"SEE ALSO\"\n.BR quarry ("), "{}", page.text);
        }
        let record = pages.iter().find(|page| page.file == "quarry-record.1").unwrap();
        assert!(record.text.contains("quarry record [OPTIONS] <CMD>"), "{}", record.text);
    }
}
