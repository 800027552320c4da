// SPDX-License-Identifier: MIT
//! Frames as text and as lines of JSON, for scripts and where there is no terminal.

use std::thread;
use std::time::{Duration, Instant};

use quarry_proc::shown;
use quarry_proc::sum::Sum;
use quarry_report::style::Style;
use serde_json::{Map, Value, json};

use super::column::Column;
use super::draw::{fitting, line_of, machine};
use super::inside::{COUNTERS, fact_line, outside, part_heads, part_line};
use super::opened::{Opened, Part};
use super::rank::MOST;
use super::sample::Row;
use super::{App, SHARE, Seen, TopOptions};
use crate::failure;
use crate::format::Format;
use crate::output::{Output, Place, Series};
use quarry_report::map::Column as Counter;

/// A page without a terminal is as wide as its longest line.
const WIDE: usize = 200;

/// Write as many frames as were asked for, one if nothing was said.
pub fn write(mut app: App, options: &TopOptions, output: &Output) -> anyhow::Result<i32> {
    let reports = options.reports.all(Place::Stdout)?;
    let mut opened = None;
    // Nobody waits for a key: what is written is whole.
    app.patience = Duration::MAX;
    app.state.page = if options.rows == 0 { usize::MAX } else { options.rows };
    let frames = options.frames.unwrap_or(1);
    for frame in 1..=frames {
        let start = Instant::now();
        app.read().map_err(failure::failed)?;
        if let Some(why) = app.refused.as_ref().filter(|_| app.state.opened.is_none()) {
            // To outlive it is what was asked for, but there must have been something to look at.
            return if frame == 1 { Err(failure::failed(why)) } else { Ok(0) };
        }
        // Not before there is something to write: what cannot be looked at costs no old report.
        let series = match &mut opened {
            Some(series) => series,
            None => opened.insert(
                reports.iter().map(|wish| Series::open(&wish.place)).collect::<anyhow::Result<Vec<_>>>()?,
            ),
        };
        for (wish, series) in reports.iter().zip(series) {
            let text = match wish.format {
                Format::Jsonl => format!("{}\n", render(&app, frame)),
                _ => text(&app, frame > 1, output.style(&wish.place)),
            };
            if !series.report(&text)? {
                return Ok(0);
            }
        }
        if frame < frames {
            // Signals end us as they end anybody: there is nothing to put in order, and whoever reads may never do so again.
            thread::sleep(options.delay.max(app.cost * SHARE).saturating_sub(start.elapsed()));
        }
    }
    Ok(0)
}

/// Rows of this frame that are written.
fn written(app: &App) -> &[Row] {
    &app.shown()[..app.ranked.matching.min(app.state.page)]
}

/// A frame as text.
fn text(app: &App, again: bool, style: Style) -> String {
    let width = style.width.map_or(WIDE, usize::from);
    let memory = app.watch.memory();
    let mut lines = Vec::new();
    if again {
        lines.push(String::new());
    }
    if app.state.opened.is_some() {
        lines.push(machine(&memory));
        lines.extend(opened_lines(app, style, width));
        return lines.join("\n") + "\n";
    }
    lines.push(format!("{} processes  {}", app.rows.len(), machine(&memory)));
    let columns = fitting(width, app.state.order.sort);
    lines.push(style.bold(&line_of(&columns, |column| column.name().to_owned())));
    for row in written(app) {
        lines.push(cut(&line_of(&columns, |column| column.cell(row, memory.total)), width).to_owned());
    }
    let more = app.ranked.matching - written(app).len();
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    if !app.ranked.exact {
        lines.push(format!("the order by {} is that of the likeliest {MOST}", app.state.order.sort.name()));
    }
    lines.join("\n") + "\n"
}

/// At most so many characters.
fn cut(text: &str, width: usize) -> &str {
    text.char_indices().nth(width).map_or(text, |(end, _)| &text[..end])
}

fn opened_lines(app: &App, style: Style, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let Some(Seen { opened, .. }) = &app.opened else {
        for row in app.shown() {
            lines.push(style.bold(&format!("{} {}", row.pid, row.label())));
            lines.extend(outside(row));
        }
        lines.extend(app.refused.clone());
        return lines;
    };
    lines.push(style.bold(&format!("{} {}, threads {}", opened.pid, shown(&opened.name), opened.threads)));
    lines.extend(opened.facts.iter().map(fact_line));
    lines.extend(opened.remark.clone());
    lines.push(style.bold(&part_heads()));
    let parts = opened.parts.iter().take(app.state.page);
    lines.extend(parts.map(|part| cut(&part_line(part, width), width).to_owned()));
    let more = opened.parts.len().saturating_sub(app.state.page);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines
}

/// A frame as JSON. Bytes; what is not known is null.
fn render(app: &App, frame: u64) -> Value {
    let memory = app.watch.memory();
    json!({
        "schema": "quarry-top/1",
        "frame": frame,
        "seconds": app.began.elapsed().as_secs_f64(),
        "cost_seconds": app.cost.as_secs_f64(),
        "files_of_visible_rows": app.watch.asked(),
        "machine": {
            "total": memory.total,
            "available": memory.available,
            "swap_total": memory.swap_total,
            "swap_free": memory.swap_free,
        },
        "count": app.rows.len(),
        "matching": app.ranked.matching,
        "sort": app.state.order.sort.key(),
        "exact": app.ranked.exact,
        "processes": written(app).iter().map(|row| process(row, memory.total)).collect::<Vec<_>>(),
        "opened": app.opened.as_ref().map(|seen| opened(&seen.opened)),
        "refused": app.refused,
    })
}

fn process(row: &Row, total: Option<u64>) -> Value {
    let mut object = json!({
        "pid": row.pid,
        "name": row.name,
        "state": row.state.to_string(),
        "started": row.started,
        "mem_percent": row.percent(total),
        "faults_per_s": row.faults,
        "major_faults_per_s": row.major,
        "growth_per_s": row.growth,
        "grown": row.grown.map(|bytes| bytes as i64),
        "missing": row.missing,
    });
    for column in Column::of_bytes() {
        object[column.key()] = json!(column.bytes(row));
    }
    object
}

fn opened(opened: &Opened) -> Value {
    json!({
        "pid": opened.pid,
        "name": opened.name,
        "command": opened.command,
        "threads": opened.threads,
        "facts": opened.facts.iter().map(|fact| json!({
            "name": fact.name,
            "bytes": fact.bytes,
            "what": fact.what,
        })).collect::<Vec<_>>(),
        "total": sum(&opened.total),
        "parts": opened.parts.iter().map(part).collect::<Vec<_>>(),
        "remark": opened.remark,
    })
}

fn part(part: &Part) -> Value {
    let mut object = sum(&part.sum);
    object["quadrant"] = json!(part.quadrant);
    object["kind"] = json!(part.kind);
    object["what"] = json!(part.what);
    object["growth_per_s"] = json!(part.growth);
    object
}

fn sum(sum: &Sum) -> Value {
    let counter = |counter: Counter| (counter.key().to_owned(), json!(counter.of(sum)));
    let mut object: Map<String, Value> = COUNTERS.map(counter).into_iter().collect();
    object.insert("mappings".into(), json!(sum.count));
    object.insert("pages".into(), json!(sum.pages));
    Value::Object(object)
}
