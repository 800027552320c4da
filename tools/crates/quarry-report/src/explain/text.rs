// SPDX-License-Identifier: MIT
//! The explanation as text.

use crate::style::Style;
use crate::units;
use quarry_proc::cgroup::{Memory, Pressure, Version};

use quarry_explain::Look;
use quarry_explain::chain::Part;
use quarry_explain::verdict::Verdict;
use quarry_proc::shown;

use crate::fit::fitted;
use crate::fit::wrapped;

/// Columns of bars, of names, and of a screen without an end.
const BAR: usize = 20;
const NAME: usize = 24;
const WIDE: usize = 100;
/// Parts of a character cell.
const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// All of it.
pub fn report(
    look: &Look,
    verdict: &Verdict,
    machine: Option<Pressure>,
    exact: bool,
    style: Style,
) -> String {
    let width = style.width.map_or(WIDE, usize::from);
    let mut text = format!("{}\n", style.bold(&title(look)));
    text += &format!("{}\n\n", sources(look, exact));
    lines(&look.chain, 0, look.chain.bytes, exact, width, &mut text);
    for line in beside(look, machine, exact) {
        text += &format!("{}\n", wrapped(&line, width, "", "  "));
    }
    text += "\n";
    for (index, sentence) in verdict.sentences.iter().enumerate() {
        let first = if index == 0 { "Verdict: " } else { "" };
        let lines = wrapped(sentence, width, first, "");
        text += &lines.replacen(first, &style.bold(first), usize::from(!first.is_empty()));
        text.push('\n');
    }
    if !verdict.remedies.is_empty() {
        text += &format!("\n{}\n", style.bold("What to try"));
        for remedy in &verdict.remedies {
            text += &format!("{}\n", wrapped(&remedy.what, width, "  - ", "    "));
            let effect = format!("expected: {}", remedy.effect);
            text += &format!("{}\n", wrapped(&effect, width, "    ", "    "));
        }
    }
    text
}

/// Whose.
pub fn title(look: &Look) -> String {
    let name = look.space.name.as_deref().map(shown).unwrap_or_default();
    let pid = look.space.pid.map_or_else(String::new, |pid| format!("process {pid}"));
    if name.is_empty() { pid } else { format!("{name} ({pid})") }
}

/// For people, or each digit.
pub fn number(bytes: u64, exact: bool) -> String {
    if exact { bytes.to_string() } else { units::bytes(bytes as f64) }
}

/// What the kernel says, each account of it.
pub fn sources(look: &Look, exact: bool) -> String {
    let statm = look.space.statm.map(|statm| statm.resident.saturating_mul(look.space.page));
    let status = look.space.status.as_ref();
    let accounts = [
        ("smaps", Some(look.chain.bytes)),
        ("statm", statm),
        ("VmRSS", status.and_then(|status| status.vm_rss)),
        ("peak (VmHWM)", status.and_then(|status| status.vm_hwm)),
        ("swap", status.and_then(|status| status.vm_swap)),
        // Hardly any process has some.
        ("huge pages beside these (hugetlbfs)", status.and_then(|status| status.hugetlb).filter(|&n| n > 0)),
    ];
    let parts: Vec<String> = accounts
        .into_iter()
        .filter_map(|(name, bytes)| Some(format!("{name} {}", number(bytes?, exact))))
        .collect();
    format!("the kernel's figures: {}", parts.join(", "))
}

fn bar(share: f64) -> String {
    let eighths = (share.clamp(0.0, 1.0) * (BAR * 8) as f64).round() as usize;
    let mut bar = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        bar.push(EIGHTHS[eighths % 8]);
    } else if eighths == 0 && share > 0.0 {
        bar.push('▏');
    }
    let missing = BAR - bar.chars().count().min(BAR);
    bar + &" ".repeat(missing)
}

fn lines(part: &Part, depth: usize, all: u64, exact: bool, width: usize, text: &mut String) {
    let share = part.bytes as f64 / all.max(1) as f64;
    let head = format!("{:>11} {:>6}  ", number(part.bytes, exact), units::percent(share));
    let indent = "  ".repeat(depth);
    let used = head.chars().count() + indent.len();
    // A narrow screen has names rather than bars.
    let bars = width >= used + BAR + 2 + NAME;
    *text += &head;
    if bars {
        *text += &format!("{}  ", bar(share));
    }
    let room = width.saturating_sub(used + if bars { BAR + 2 } else { 0 }).max(8);
    let next = " ".repeat(width.saturating_sub(room));
    *text += &format!("{indent}{}\n", named(&part.name, room, &next));
    by_size(part).into_iter().for_each(|part| lines(part, depth + 1, all, exact, width, text));
}

/// A name in lines of `room` columns, which end between words; `next` stands before all but the first. A word that has no room at all
/// loses what says least.
fn named(name: &str, room: usize, next: &str) -> String {
    let words: Vec<String> = name.split_whitespace().map(|word| fitted(word, Some(room))).collect();
    let lines = wrapped(&words.join(" "), room, "", "");
    lines.replace('\n', &format!("\n{next}"))
}

/// Its parts, the largest first; what is left comes last.
pub fn by_size(part: &Part) -> Vec<&Part> {
    let mut parts: Vec<&Part> = part.parts.iter().collect();
    parts.sort_by_key(|part| (matches!(&*part.key, "rest" | "others"), std::cmp::Reverse(part.bytes)));
    parts
}

/// What is not in the sum.
pub fn beside(look: &Look, machine: Option<Pressure>, exact: bool) -> Vec<String> {
    let mut lines: Vec<String> = as_top_has_it(look, exact).into_iter().collect();
    if let Some(time) = look.stopped {
        lines.push(format!("the process was stopped for {}", units::seconds(time.as_secs_f64())));
    }
    for heap in &look.heaps {
        if heap.untouched > 0 {
            lines.push(format!(
                "beside: {} held by the program and not in memory: never touched, or in swap",
                number(heap.untouched, exact)
            ));
        }
        if heap.again > 0 {
            lines.push(read_again(heap.allocator.name(), heap.again, heap.unread, exact));
        }
        if let Some(age) = heap.age {
            lines.push(format!("{}'s own numbers are {} old", heap.allocator.name(), units::seconds(age)));
        }
    }
    if let Some((version, memory)) =
        look.space.cgroup.as_ref().and_then(|group| Some((group.version, group.memory.as_ref()?)))
    {
        lines.push(group(version, memory, exact));
        if let Some(pressure) = memory.pressure {
            lines.push(format!("its control group waited for memory: {}", waits(pressure)));
        }
    }
    if let Some(pressure) = machine {
        lines.push(format!("the machine waited for memory: {}", waits(pressure)));
    }
    lines
}

/// That a heap could not be read at once. A page in swap is not read at all, and looks the same.
fn read_again(allocator: &str, again: u64, unread: u64, exact: bool) -> String {
    format!(
        "{allocator}'s heap changed while it was read, or is in swap in part: {} were read again, and {} stayed \
         unknown",
        number(again, exact),
        number(unread, exact)
    )
}

/// The columns of top, and what they are: by their names most people expect something else.
fn as_top_has_it(look: &Look, exact: bool) -> Option<String> {
    let statm = look.space.statm?;
    let number = |pages: u64| number(pages.saturating_mul(look.space.page), exact);
    let shared = look.space.status.as_ref().and_then(|status| status.rss_shmem).filter(|bytes| *bytes > 0);
    let shared = shared.map_or_else(String::new, |bytes| {
        let bytes = self::number(bytes, exact);
        format!(
            " ({bytes} of it is no file's: the kernel keeps shared memory like a file, so it counts here)"
        )
    });
    let swap = look.space.status.as_ref().and_then(|status| status.vm_swap);
    let swap = swap.map_or_else(String::new, |bytes| {
        format!("; SWAP {} is what was moved there", self::number(bytes, exact))
    });
    Some(format!(
        "in the columns of top: VIRT {} is addresses, not memory; RES {} is the sum above; SHR {} is its pages of files and of shared \
         memory, used by others or not{shared}; DATA {} is private addresses that may be written, touched or not{swap}",
        number(statm.size),
        number(statm.resident),
        number(statm.shared),
        number(statm.data)
    ))
}

fn group(version: Version, memory: &Memory, exact: bool) -> String {
    let mut parts = Vec::new();
    if let Some(current) = memory.current {
        parts.push(format!("uses {}", number(current, exact)));
    }
    if let Some(peak) = memory.peak {
        parts.push(format!("used {} at its peak", number(peak, exact)));
    }
    parts.push(match &memory.tightest {
        Some(limit) => {
            // What groups beside it use counts towards the limit of one around it.
            let used = limit.used.filter(|_| limit.folder != memory.folder);
            let used =
                used.map_or_else(String::new, |used| format!(", of which {} are used", number(used, exact)));
            let folder = shown(&limit.folder.display().to_string());
            format!("may have {}{used} ({folder})", number(limit.bytes, exact))
        }
        None => String::from("has no limit"),
    });
    if let Some(high) = memory.high {
        let high = number(high, exact);
        parts.push(match version {
            Version::V1 => format!("has a soft limit of {high}"),
            Version::V2 => format!("is slowed down from {high} on"),
        });
    }
    for (event, words) in
        [("oom_kill", "processes killed"), ("high", "times slowed down"), ("max", "times at the limit")]
    {
        if let Some(count) = memory.events.get(event).filter(|count| **count > 0) {
            parts.push(format!("{count} {words}"));
        }
    }
    format!("its control group: {}", parts.join(", "))
}

fn waits(pressure: Pressure) -> String {
    format!(
        "some task {} of the last 10 s, {} of the last minute; all at once {} and {}",
        units::percent(pressure.some[0] / 100.0),
        units::percent(pressure.some[1] / 100.0),
        units::percent(pressure.full[0] / 100.0),
        units::percent(pressure.full[1] / 100.0)
    )
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use quarry_explain::chain::Cause;
    use quarry_proc::cgroup::Limit;
    use quarry_proc::status::Status;
    use quarry_proc::{Space, smaps};

    use super::*;

    #[test]
    fn huge_pages_are_in_no_sum_and_told() {
        let maps = b"10000-20000 rw-p 00000000 00:00 0 [heap]\n";
        let (mappings, damage) = smaps::read_all(&maps[..]).unwrap();
        let mut space = Space::of_mappings(mappings, damage);
        let mut said = |bytes: u64| {
            space.status = Some(Status { hugetlb: Some(bytes), ..Status::default() });
            let chain = Part::leaf("resident", "in memory", 0, Cause::Files, "smaps");
            let (heaps, gaps) = (Vec::new(), Vec::new());
            let look = Look { at: Instant::now(), space: space.clone(), chain, heaps, gaps, stopped: None };
            sources(&look, false)
        };
        assert!(said(10 << 30).ends_with(", huge pages beside these (hugetlbfs) 10.0 GiB"));
        assert!(!said(0).contains("huge pages"));
    }

    #[test]
    fn the_peak_of_a_control_group_is_no_limit() {
        let memory = Memory { current: Some(40 << 20), peak: Some(60 << 20), ..Memory::default() };
        let line = group(Version::V2, &memory, false);
        assert_eq!(line, "its control group: uses 40.0 MiB, used 60.0 MiB at its peak, has no limit");
    }

    /// A user may have named it.
    #[test]
    fn the_name_of_a_control_group_moves_no_cursor() {
        let tightest = Some(Limit { bytes: 1 << 20, used: None, folder: "/g\x1b[2J".into() });
        let line = group(Version::V2, &Memory { tightest, ..Memory::default() }, false);
        assert_eq!(line, "its control group: may have 1.00 MiB (/g\\u{1b}[2J)");
    }

    #[test]
    fn a_soft_limit_slows_nobody_down() {
        let memory = Memory { high: Some(50 << 20), ..Memory::default() };
        let line = |version| group(version, &memory, false);
        assert_eq!(line(Version::V2), "its control group: has no limit, is slowed down from 50.0 MiB on");
        assert_eq!(line(Version::V1), "its control group: has no limit, has a soft limit of 50.0 MiB");
    }

    #[test]
    fn what_was_read_again_may_be_in_swap() {
        let line = read_again("glibc", 3 << 20, 4096, false);
        assert!(
            line.contains("or is in swap in part: 3.00 MiB were read again, and 4.00 KiB stayed unknown"),
            "{line}"
        );
    }

    #[test]
    fn names_are_broken_between_words() {
        let name = "mapped by the program, of /usr/lib/x86_64-linux-gnu/libsomething.so.6";
        for room in [8, 12, 24, 40] {
            let lines = named(name, room, "  ");
            assert!(lines.lines().all(|line| line.trim_start().chars().count() <= room), "{room}: {lines}");
            // Each word is whole, or is the path, of which the end is kept.
            let words: Vec<&str> = lines.split_whitespace().collect();
            let whole = |word: &&str| name.split(' ').any(|known| known == *word);
            assert_eq!(words.iter().filter(|&word| !whole(word)).count(), 1, "{lines}");
            assert!(
                room < 12 || lines.contains("something.so.6") || lines.contains("...hing.so.6"),
                "{lines}"
            );
        }
        assert_eq!(named("live: held by the program", 40, "  "), "live: held by the program");
    }

    #[test]
    fn bars_are_of_one_width() {
        for share in [0.0, 0.001, 0.3, 0.77, 1.0, 2.0] {
            assert_eq!(bar(share).chars().count(), BAR, "{share}");
        }
        assert_eq!(bar(0.001).chars().next(), Some('▏'));
    }
}
