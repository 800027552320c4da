// SPDX-License-Identifier: MIT
//! What can be typed behind quarry map.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use quarry_proc::classify::Kind;
use quarry_proc::sum::By;
use quarry_report::map::{Column, Sort as Order, Wanted};

use crate::format::{Format, Makes, Reports};

/// Say what the memory of a process is
///
/// Shows every mapping of the address space: private or shared, anonymous or of a file, which part of which program,
/// whose stack, which heap. It shows the kernel's own counters, and compares its sums with the kernel's. The process
/// may be running, or be started here (then it is looked at when it ends). It may also be saved: a copy of its folder
/// in /proc, of the files smaps or maps in it, or a core file. Files may be packed, and come from a pipe.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct MapOptions {
    /// The process with this number
    #[arg(short, long, value_name = "PID", conflicts_with_all = ["file", "command"])]
    pub pid: Option<u32>,
    /// With -p: read this copy of /proc instead
    #[arg(long, value_name = "DIR", requires = "pid")]
    pub proc: Option<PathBuf>,
    /// What mappings have in common that share a row
    #[arg(long, value_name = "WHAT", default_value = "object")]
    pub by: Grouping,
    /// The order of rows: the largest first, or by address or name
    #[arg(long, value_name = "BY", default_value = "rss")]
    pub sort: Sort,
    /// Rows of each table; 0: all
    #[arg(short = 'n', long, value_name = "N", default_value_t = 25)]
    pub top: usize,
    /// Only mappings that have TEXT in their name, object, kind or thread. May be repeated; one TEXT suffices
    #[arg(long, value_name = "TEXT")]
    pub filter: Vec<String>,
    /// Only mappings of these kinds
    #[arg(long, value_name = "KIND,...", value_delimiter = ',', value_parser = kind)]
    pub kind: Vec<Kind>,
    /// Only mappings of these quadrants: 1 private anonymous, 2 shared anonymous, 3 private file, 4 shared file
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..=4))]
    pub quadrant: Vec<u8>,
    /// As pmap -x prints it: each mapping with its size, resident and dirty memory in KiB
    #[arg(short = 'x', long, conflicts_with_all = ["all_fields", "picture", "by", "sort", "top", "check", "bytes"])]
    pub extended: bool,
    /// The same with all that the kernel counts, and VmFlags
    #[arg(short = 'X', long, conflicts_with_all = ["picture", "by", "sort", "top", "check", "bytes"])]
    pub all_fields: bool,
    /// A picture of the address space in characters.
    ///
    /// With -n 0 nothing is folded.
    #[arg(long, conflicts_with_all = ["by", "sort", "check", "bytes"])]
    pub picture: bool,
    /// Show each comparison with the kernel's own sums, not only those that differ
    #[arg(long)]
    pub check: bool,
    /// Sizes in bytes instead of KiB, MiB, ...
    #[arg(long)]
    pub bytes: bool,
    #[command(flatten)]
    pub reports: Reports<Self>,
    /// A saved smaps, maps or folder of /proc, or a core file; - is standard input
    #[arg(value_name = "FILE", conflicts_with = "command")]
    pub file: Option<PathBuf>,
    /// A command and its arguments; it is looked at when it ends
    #[arg(value_name = "CMD", last = true)]
    pub command: Vec<OsString>,
}

impl Makes for MapOptions {
    const VERB: &'static str = "map";
    const FORMATS: &'static [Format] = &[Format::Text, Format::Json, Format::Svg, Format::Html];
    const SCHEMA: &'static str = "quarry-map/1";
}

impl MapOptions {
    /// What a view is to have.
    pub fn wanted(&self) -> Wanted<'_> {
        Wanted {
            by: self.by.by(),
            sort: match self.sort {
                Sort::Size => Order::By(Column::Size),
                Sort::Rss => Order::By(Column::Rss),
                Sort::Pss => Order::By(Column::Pss),
                Sort::Uss => Order::By(Column::Uss),
                Sort::Dirty => Order::By(Column::Dirty),
                Sort::Swap => Order::By(Column::Swap),
                Sort::Address => Order::Address,
                Sort::Name => Order::Name,
            },
            filter: &self.filter,
            kinds: &self.kind,
            quadrants: &self.quadrant,
        }
    }

    /// The option that asks for another text than the tables.
    pub fn text(&self) -> Option<&'static str> {
        let given =
            [(self.extended, "--extended"), (self.all_fields, "--all-fields"), (self.picture, "--picture")];
        given.into_iter().find_map(|(given, name)| given.then_some(name))
    }
}

const EXAMPLES: &str = "Examples:
  quarry map -p 1234                      what its memory is, largest first
  quarry map -p 1234 --picture            the address space as a picture
  quarry map -p 1234 -o map.html          the tables and the picture as a page
  quarry map -p 1234 --quadrant 1 --by mapping
  quarry map -p 1234 --filter libc        one library
  quarry map -- ./prog input              ./prog, when it ends
  quarry map core                         a core file, also as systemd-coredump packs it
  ssh host cat /proc/1/smaps | quarry map -
  cp -r /proc/1234 saved; quarry map saved

Exit code: that of the command, 0 without one; 1 when there is no such process, it may not be read, or a copy is damaged.";

/// What mappings are put together by.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Grouping {
    /// Private or shared, anonymous or of a file
    Quadrant,
    /// That, and what they are
    Kind,
    /// That, and what they belong to
    Object,
    /// What they belong to, alone: all parts of a library in one row
    File,
    /// Not at all
    Mapping,
}

impl Grouping {
    /// As the sums know it.
    pub fn by(self) -> Option<By> {
        Some(match self {
            Self::Quadrant => By::Quadrant,
            Self::Kind => By::Kind,
            Self::Object => By::Object,
            Self::File => By::File,
            Self::Mapping => return None,
        })
    }
}

/// The order of rows.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    Size,
    Rss,
    Pss,
    Uss,
    Dirty,
    Swap,
    /// As they lie in memory
    Address,
    Name,
}

fn kind(text: &str) -> Result<Kind, String> {
    let known = Kind::ALL.into_iter().find(|kind| kind.name() == text);
    known.ok_or_else(|| {
        let names: Vec<&str> = Kind::ALL.into_iter().map(Kind::name).collect();
        format!("there are: {}", names.join(", "))
    })
}
