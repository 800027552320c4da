// SPDX-License-Identifier: MIT
//! The explanation as a page: one file that needs nothing beside itself, for screens of all sizes, light and dark.

use crate::page::{self, Page};
use crate::svg::escape;
use crate::units;
use quarry_proc::cgroup::Pressure;

use super::text;
use quarry_explain::Look;
use quarry_explain::chain::{Cause, Part};
use quarry_explain::verdict::Verdict;
use quarry_proc::shown;

/// Colours on white and on black. What is alike has like colours: live blue, free warm, files green, the rest grey.
fn color(cause: Cause) -> (&'static str, &'static str) {
    match cause {
        Cause::Live => ("#0072b2", "#4aa8e8"),
        Cause::Untold => ("#7fa8c9", "#b5d3ea"),
        Cause::Pools => ("#5c8aa8", "#9cc3dc"),
        Cause::Caches => ("#e08a00", "#ffb347"),
        Cause::Fragmentation => ("#c8102e", "#ff6b6b"),
        Cause::FreePages => ("#b85c00", "#e8975a"),
        Cause::Lazy => ("#c7a500", "#e6cf4a"),
        Cause::Metadata => ("#7a7a7a", "#a0a0a0"),
        Cause::Stacks => ("#6a6a00", "#c8c83c"),
        Cause::Variables => ("#a04590", "#d88bd0"),
        Cause::Programs => ("#008a63", "#2ecc9b"),
        Cause::Files => ("#2f9e44", "#69db7c"),
        Cause::Shared => ("#0b7285", "#3bc9db"),
        Cause::OpaqueHeap => ("#5f3dc4", "#9775fa"),
        Cause::Unknown => ("#868e96", "#adb5bd"),
    }
}

/// The whole page.
pub fn page(look: &Look, verdict: &Verdict, machine: Option<Pressure>, exact: bool) -> String {
    let list =
        |items: Vec<String>| items.into_iter().map(|item| format!("<li>{item}</li>\n")).collect::<String>();
    let notes = text::beside(look, machine, exact).into_iter().chain(look.gaps.iter().cloned());
    let remedies = verdict.remedies.iter().map(|remedy| {
        format!(
            "{}<br><span class=\"soft\">expected: {}</span>",
            escape(&remedy.what),
            escape(&remedy.effect)
        )
    });
    let sentences = verdict.sentences.iter().map(|sentence| format!("<p>{}</p>", escape(sentence)));
    let mut parts = String::new();
    rows(&look.chain, 0, look.chain.bytes, exact, &mut parts);
    let body = format!(
        include_str!("page.html"),
        command = escape(&shown(&look.space.command.join(" "))),
        sources = escape(&text::sources(look, exact)),
        verdict = sentences.collect::<String>(),
        stack = stack(&look.chain),
        parts = parts,
        remedies = list(remedies.collect()),
        notes = list(notes.map(|note| escape(&note)).collect()),
    );
    let style = page::colors(&Cause::ALL.map(|cause| (cause.key(), color(cause)))) + include_str!("page.css");
    Page { title: &format!("Memory of {}", text::title(look)), style: &style, body: &body }.html()
}

/// One bar of all that has no parts.
fn stack(chain: &Part) -> String {
    let all = chain.bytes.max(1) as f64;
    let leaf = |(_, part): (String, &Part)| {
        let share = part.bytes as f64 / all;
        format!(
            "<i style=\"width:{:.3}%;background:var(--{})\" title=\"{}: {} ({})\"></i>",
            share * 100.0,
            part.cause.key(),
            escape(&part.name),
            units::bytes(part.bytes as f64),
            units::percent(share)
        )
    };
    let leaves: String = chain.leaves().into_iter().map(leaf).collect();
    format!(
        "<div class=\"stack\" role=\"img\" aria-label=\"what is in memory, by what it is for\">{leaves}</div>"
    )
}

fn rows(part: &Part, depth: usize, all: u64, exact: bool, html: &mut String) {
    let share = part.bytes as f64 / all.max(1) as f64;
    // A whole has the colour of nothing; its parts have theirs.
    let color = if part.parts.is_empty() {
        format!("var(--{})", part.cause.key())
    } else {
        String::from("var(--soft)")
    };
    *html += &format!(
        "<div class=\"part\"><span>{}</span><span>{}</span><div class=\"bar\"><b style=\"width:{:.2}%;background:{color}\"></b></div>\
         <div class=\"label\" style=\"padding-left:{}px\" title=\"{}\">{}</div></div>\n",
        text::number(part.bytes, exact),
        units::percent(share),
        share * 100.0,
        depth * 14,
        escape(part.source),
        escape(&part.name)
    );
    text::by_size(part).into_iter().for_each(|part| rows(part, depth + 1, all, exact, html));
}
