// SPDX-License-Identifier: MIT
//! Where the files of a traced program are looked for.

use std::path::PathBuf;

use clap::Args;
use quarry_symbols::Places;

/// Options of verbs that name functions.
#[derive(Args, Clone, Default)]
pub struct Where {
    /// Look for the files of the program in DIR first, under their paths or by their names alone. For a trace from
    /// another machine. May be repeated
    #[arg(long, visible_alias = "sysroot", value_name = "DIR")]
    symfs: Vec<PathBuf>,
    /// Look for files of debug information in DIR as in /usr/lib/debug. May be repeated
    #[arg(long, value_name = "DIR")]
    debug_dir: Vec<PathBuf>,
}

impl Where {
    /// The folders.
    pub fn places(&self) -> Places {
        let mut places = Places::of_this_machine();
        places.roots.clone_from(&self.symfs);
        places.debug.clone_from(&self.debug_dir);
        places
    }
}
