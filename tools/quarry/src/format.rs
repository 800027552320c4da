// SPDX-License-Identifier: MIT
//! `-o FILE` and `--format`: where a verb writes, and as what. The rule is the same for every verb, and it is here.
//!
//! The ending of FILE says the format. `--format` says it for any ending. A verb names the formats that it makes, and
//! `main` refuses all others before the verb begins.

use std::ffi::OsStr;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use crate::failure;
use crate::output::Place;

/// What a file can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text,
    Json,
    Csv,
    Svg,
    Html,
    OpenMetrics,
    Jsonl,
    Qtr,
    Ms,
    Heaptrack,
    Mtrace,
    Parquet,
    Collapsed,
    Massif,
    Jeprof,
    Pprof,
    Dhat,
    Firefox,
    Chrome,
    Speedscope,
    Xml,
    Sarif,
}

use Format::*;

/// Each format with its name and the endings of its files.
const ALL: [(Format, &str, &[&str]); 22] = [
    (Text, "text", &["txt"]),
    (Json, "json", &["json"]),
    (Csv, "csv", &["csv"]),
    (Svg, "svg", &["svg"]),
    (Html, "html", &["html", "htm"]),
    (OpenMetrics, "openmetrics", &["prom"]),
    (Jsonl, "jsonl", &["jsonl", "ndjson"]),
    (Qtr, "qtr", &["qtr"]),
    (Ms, "ms", &["ms"]),
    (Heaptrack, "heaptrack", &["heaptrack"]),
    (Mtrace, "mtrace", &["mtrace"]),
    (Parquet, "parquet", &["parquet", "pq"]),
    (Collapsed, "collapsed", &["collapsed", "folded"]),
    (Massif, "massif", &["massif"]),
    (Jeprof, "jeprof", &["jeprof", "heap"]),
    (Pprof, "pprof", &["pprof", "pb"]),
    (Dhat, "dhat", &["dhat"]),
    (Firefox, "firefox", &["firefox"]),
    (Chrome, "chrome", &["chrome", "perfetto"]),
    (Speedscope, "speedscope", &["speedscope"]),
    (Xml, "xml", &["xml"]),
    (Sarif, "sarif", &["sarif"]),
];

impl Format {
    /// What users call it.
    pub fn name(self) -> &'static str {
        ALL.iter().find(|(format, ..)| *format == self).map_or("", |(_, name, _)| name)
    }

    fn named(name: &str) -> Option<Self> {
        ALL.iter().find(|(_, known, _)| *known == name).map(|(format, ..)| *format)
    }

    /// The name and the endings of each, also those of files that tools call prog.pb.gz and prog.speedscope.json.
    pub fn endings() -> impl Iterator<Item = (&'static str, Vec<String>)> {
        ALL.iter().map(|(format, name, endings)| {
            let plain = endings.iter().map(|ending| (*ending).to_owned());
            let wrapped = endings.iter().filter_map(|ending| Some(format!("{ending}.{}", format.wrapper()?)));
            (*name, plain.chain(wrapped).collect())
        })
    }

    /// What may stand behind its own ending.
    fn wrapper(self) -> Option<&'static str> {
        match self {
            Pprof => Some("gz"),
            Dhat | Firefox | Chrome | Speedscope => Some("json"),
            _ => None,
        }
    }

    /// What the ending of a file says; `None` where no format has this ending.
    fn of_ending(path: &Path) -> Option<Self> {
        let of = |path: &Path| {
            let ending = path.extension()?.to_str()?.to_ascii_lowercase();
            ALL.iter().find(|(.., endings)| endings.contains(&ending.as_str())).map(|(format, ..)| *format)
        };
        let inner = |path: &Path| of(Path::new(path.file_stem()?));
        let wrapped = |path: &Path| {
            inner(path).filter(|format| path.extension().and_then(OsStr::to_str) == format.wrapper())
        };
        wrapped(path).or_else(|| of(path))
    }
}

/// A verb, and what it makes.
pub trait Makes {
    /// Its name.
    const VERB: &'static str;
    /// What it makes. The first is for files whose ending says nothing, and for standard output.
    const FORMATS: &'static [Format];
    /// The schema of its JSON.
    const SCHEMA: &'static str = "";
    /// A format that it does not make with -o, and the option that makes it.
    const ELSEWHERE: Option<(Format, &'static str)> = None;
    /// Does it pack what goes to FILE.gz and FILE.zst?
    const PACKS: bool = false;

    /// The format of a file, if this verb makes it.
    fn format_of(path: &Path) -> anyhow::Result<Option<Format>> {
        let packed = Self::PACKS && path.extension().is_some_and(|ending| ending == "gz" || ending == "zst");
        let bare = if packed { path.with_extension("") } else { path.to_owned() };
        match Format::of_ending(&bare) {
            None => Ok(None),
            Some(wish) => match made::<Self>(wish) {
                Some(format) => Ok(Some(format)),
                None => {
                    let option = Self::ELSEWHERE.filter(|(format, _)| *format == wish);
                    let option = option.map_or_else(String::new, |(_, option)| format!("; {option}"));
                    Err(failure::usage(format!(
                        "{}: quarry {} makes no {}, but {}; --format says which, whatever the name ends in{option}",
                        path.display(),
                        Self::VERB,
                        wish.name(),
                        names::<Self>().join(", "),
                    )))
                }
            },
        }
    }
}

/// The format itself, or the lines of JSON of a verb that has no other JSON.
fn made<V: Makes + ?Sized>(wish: Format) -> Option<Format> {
    let other = if wish == Json { Jsonl } else { wish };
    [wish, other].into_iter().find(|format| V::FORMATS.contains(format))
}

fn names<V: Makes + ?Sized>() -> Vec<&'static str> {
    V::FORMATS.iter().map(|format| format.name()).collect()
}

fn parser<V: Makes>() -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(names::<V>()).map(|name| Format::named(&name).unwrap_or(V::FORMATS[0]))
}

fn json_help<V: Makes>() -> String {
    let json = made::<V>(Json).unwrap_or(Json).name();
    format!("The same as --format {json} (schema {})", V::SCHEMA)
}

/// A report, and where it goes.
pub struct Report<'a> {
    pub place: Place<'a>,
    pub format: Format,
}

/// Options of verbs that report.
#[derive(Args)]
pub struct Reports<V: Makes> {
    /// Write the report there; - is standard output. The ending says the format. May be repeated
    #[arg(short, long, value_name = "FILE")]
    output: Vec<PathBuf>,
    /// The format, whatever FILE ends in
    #[arg(long, value_name = "FORMAT", value_parser = parser::<V>())]
    format: Option<Format>,
    #[arg(long, conflicts_with = "format", help = json_help::<V>())]
    json: bool,
    #[arg(skip)]
    verb: PhantomData<V>,
}

#[cfg(test)]
impl<V: Makes> Default for Reports<V> {
    fn default() -> Self {
        Self { output: Vec::new(), format: None, json: false, verb: PhantomData }
    }
}

impl<V: Makes> Reports<V> {
    /// Was anything said of a report?
    pub fn wanted(&self) -> bool {
        !self.output.is_empty() || self.asked().is_some()
    }

    /// The format that an option names.
    pub fn asked(&self) -> Option<Format> {
        self.format.or(if self.json { made::<V>(Json) } else { None })
    }

    /// What is to be written, in the order of the command line; `default` where no FILE is named.
    pub fn all<'a>(&'a self, default: Place<'a>) -> anyhow::Result<Vec<Report<'a>>> {
        let asked = self.asked();
        if asked.is_some() && self.output.len() > 1 {
            return Err(failure::usage(
                "--format and --json are for one -o FILE; with several, the ending of each says its format",
            ));
        }
        if self.output.is_empty() {
            return Ok(vec![Report { place: default, format: asked.unwrap_or(V::FORMATS[0]) }]);
        }
        let report = |path: &'a PathBuf| {
            let format = match asked {
                Some(format) => format,
                None => V::format_of(path)?.unwrap_or(V::FORMATS[0]),
            };
            Ok(Report { place: Place::of(Some(path), Place::Stdout), format })
        };
        self.output.iter().map(report).collect()
    }

    /// The files that are named.
    pub fn files(&self) -> &[PathBuf] {
        &self.output
    }

    /// The files that are named, each with the format that its ending says, whatever the options say of standard output.
    pub fn by_ending(&self) -> anyhow::Result<Vec<Report<'_>>> {
        let report = |path| {
            let format = V::format_of(path)?.unwrap_or(V::FORMATS[0]);
            Ok(Report { place: Place::File(path), format })
        };
        self.output.iter().map(|path| report(path.as_path())).collect()
    }

    /// An error if a file cannot have the format that its ending says.
    pub fn check(&self) -> anyhow::Result<()> {
        self.all(Place::Stdout).map(drop)
    }
}

/// Options of verbs that make one thing, which is no report.
#[derive(Args)]
pub struct Product<V: Makes> {
    /// Write there; - is standard output. The ending says the format
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    // Beside --from it was called --to first, and scripts say so.
    /// The format, whatever FILE ends in
    #[arg(long, alias = "to", value_name = "FORMAT", value_parser = parser::<V>())]
    format: Option<Format>,
    #[arg(skip)]
    verb: PhantomData<V>,
}

impl<V: Makes> Product<V> {
    /// As if this file had been named.
    pub fn of(path: &Path) -> Self {
        Self { output: Some(path.to_owned()), format: None, verb: PhantomData }
    }

    /// The file that is named.
    pub fn file(&self) -> Option<&Path> {
        self.output.as_deref()
    }

    /// The format that is named, by the option or by the ending; `None`: by neither.
    pub fn format(&self) -> anyhow::Result<Option<Format>> {
        match (self.format, self.file()) {
            (Some(format), _) => Ok(Some(format)),
            (None, Some(path)) => V::format_of(path),
            (None, None) => Ok(None),
        }
    }

    /// An error if the file cannot have the format that its ending says.
    pub fn check(&self) -> anyhow::Result<()> {
        self.format().map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    struct Some3;

    impl Makes for Some3 {
        const VERB: &'static str = "some";
        const FORMATS: &'static [Format] = &[Text, Jsonl, Html];
        const SCHEMA: &'static str = "quarry-some/1";
    }

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        reports: Reports<Some3>,
    }

    fn formats(words: &[&str]) -> Result<Vec<Format>, String> {
        let cli = Cli::try_parse_from([&["some"], words].concat()).map_err(|error| error.to_string())?;
        let all = cli.reports.all(Place::Stderr).map_err(|error| error.to_string())?;
        Ok(all.iter().map(|report| report.format).collect())
    }

    #[test]
    fn each_name_and_each_ending_is_of_one_format() {
        let mut endings: Vec<&str> = ALL.iter().flat_map(|(.., endings)| endings.iter().copied()).collect();
        let count = endings.len();
        endings.sort_unstable();
        endings.dedup();
        assert_eq!(endings.len(), count);
        for (format, name, _) in ALL {
            assert_eq!((Format::named(name), format.name()), (Some(format), name));
        }
    }

    #[test]
    fn the_ending_says_the_format_and_the_option_overrides_it() {
        assert_eq!(formats(&[]), Ok(vec![Text]));
        assert_eq!(formats(&["-o", "x"]), Ok(vec![Text]));
        assert_eq!(formats(&["-o", "-"]), Ok(vec![Text]));
        assert_eq!(formats(&["-o", "a.b/x.HTML"]), Ok(vec![Html]));
        assert_eq!(formats(&["-o", "x.json", "-o", "x.txt", "-o", "x.htm"]), Ok(vec![Jsonl, Text, Html]));
        assert_eq!(formats(&["--json"]), Ok(vec![Jsonl]));
        assert_eq!(formats(&["--format", "html", "-o", "x.svg"]), Ok(vec![Html]));
        assert_eq!(formats(&["--json", "-o", "x.csv"]), Ok(vec![Jsonl]));
        let ending = |name: &str| Format::of_ending(Path::new(name));
        assert_eq!((ending("x.pb.gz"), ending("x.dhat.json")), (Some(Pprof), Some(Dhat)));
        for (name, endings) in Format::endings() {
            for known in endings {
                assert_eq!(ending(&format!("x.{known}")).map(Format::name), Some(name), "{known}");
            }
        }
        assert_eq!((ending("x.csv.gz"), ending("x.html.json"), ending(".json")), (None, Some(Json), None));
    }

    #[test]
    fn what_a_verb_does_not_make_is_refused_with_what_it_makes() {
        let refused = formats(&["-o", "x.svg"]).unwrap_err();
        assert!(refused.contains("x.svg: quarry some makes no svg, but text, jsonl, html"), "{refused}");
        assert!(formats(&["--format", "svg"]).unwrap_err().contains("text, jsonl, html"));
        assert!(formats(&["-o", "x", "-o", "y", "--json"]).unwrap_err().contains("for one -o FILE"));
        assert!(formats(&["--json", "--format", "text"]).is_err());
    }
}
