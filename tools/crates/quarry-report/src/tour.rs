// SPDX-License-Identifier: MIT
//! The report of `quarry tour`: chapters and their runs as text, schema and page.

mod chapter;
mod figure;
mod page;
mod run;
mod text;

pub use chapter::{Chapter, read_all};
pub use page::page;
pub use run::{Claim, Event, Run, Step};
use serde_json::{Value, json};
pub use text::{chapter, list};

/// What there is.
pub fn list_json(chapters: &[&Chapter]) -> Value {
    json!(chapters.iter().map(|chapter| chapter.json()).collect::<Vec<_>>())
}

/// Chapters and their runs.
pub fn json(chapters: &[&Chapter], runs: &[Run]) -> Value {
    let both = chapters.iter().zip(runs).map(|(chapter, run)| {
        let mut value = chapter.json();
        value["run"] = run.json();
        value
    });
    json!({
        "schema": "quarry-tour/2",
        "quarry_version": env!("CARGO_PKG_VERSION"),
        "chapters": both.collect::<Vec<_>>(),
    })
}
