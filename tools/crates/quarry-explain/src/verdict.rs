// SPDX-License-Identifier: MIT
//! What the chain means, in words: what most of the memory is, whether it grows, and what can be done.

use quarry_measure::units;

use crate::chain::{Cause, Part};
use crate::heaps::{Allocator, Heap};
use crate::look::{Look, OTHERS};
use crate::runtime::Runtime;

/// A change that is smaller than this part of all, or this many bytes, is none.
const NOISE_PART: u64 = 200;
const NOISE: u64 = 256 << 10;
/// Causes with a smaller part are not worth a word.
const WORTH: f64 = 0.05;
/// Free memory of a heap counts before what is live from this part on.
const FREE_COUNTS: f64 = 0.2;

/// What most of it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Main {
    /// What the program holds grows and grows.
    Leak,
    /// Private memory grows that no known heap has, so nobody can say who holds it.
    UnknownGrows,
    /// Anything else.
    Cause(Cause),
}

impl Main {
    /// For machines.
    pub fn key(self) -> &'static str {
        match self {
            Main::Leak => "leak_like",
            Main::UnknownGrows => "unknown_grows",
            Main::Cause(cause) => cause.key(),
        }
    }
}

/// Between two looks.
#[derive(Debug, Clone, PartialEq)]
pub struct Growth {
    /// From the first to the second.
    pub seconds: f64,
    /// Resident bytes.
    pub bytes: i64,
    /// Parts that changed, the largest change first: name, cause, bytes.
    pub parts: Vec<(String, Cause, i64)>,
}

impl Growth {
    /// Between these.
    pub fn between(first: &Look, second: &Look) -> Self {
        let seconds = second.at.duration_since(first.at).as_secs_f64();
        let mut parts = Vec::new();
        changes(Some(&first.chain), Some(&second.chain), &mut parts);
        parts.retain(|part| part.2 != 0);
        parts.sort_by_key(|part| std::cmp::Reverse(part.2.unsigned_abs()));
        Self { seconds, bytes: difference(first.chain.bytes, second.chain.bytes), parts }
    }

    /// By how much these causes changed.
    fn of(&self, wanted: impl Fn(Cause) -> bool) -> i64 {
        self.parts.iter().filter(|part| wanted(part.1)).map(|part| part.2).sum()
    }

    /// More than chance, of a process of this size.
    pub fn is_growing(&self, resident: u64) -> bool {
        self.bytes > i64::try_from((resident / NOISE_PART).max(NOISE)).unwrap_or(i64::MAX)
    }
}

/// What changed of a part, as finely as both looks divide it.
fn changes(before: Option<&Part>, after: Option<&Part>, into: &mut Vec<(String, Cause, i64)>) {
    fn find<'a>(parts: &'a [Part], key: &str) -> Option<&'a Part> {
        parts.iter().find(|part| part.key == key)
    }
    let Some(part) = after.or(before) else { return };
    if [before, after].into_iter().flatten().any(|part| part.parts.is_empty()) {
        let bytes = |part: Option<&Part>| part.map_or(0, |part| part.bytes);
        into.push((part.name.clone(), part.cause, difference(bytes(before), bytes(after))));
        return;
    }
    let [before, after] =
        [before, after].map(|part| part.map(|part| part.parts.as_slice()).unwrap_or_default());
    // A part that only one look has by its name may be one of the others in the other look.
    let others = find(after, OTHERS).or(find(before, OTHERS));
    let is_other = |one: &&Part| {
        let once = || find(before, &one.key).is_none() || find(after, &one.key).is_none();
        others.is_some_and(|others| {
            one.key == OTHERS || one.parts.is_empty() && one.cause == others.cause && once()
        })
    };
    for one in after.iter().filter(|one| !is_other(one)) {
        changes(find(before, &one.key), Some(one), into);
    }
    for one in before.iter().filter(|one| !is_other(one) && find(after, &one.key).is_none()) {
        changes(Some(one), None, into);
    }
    if let Some(others) = others {
        let sum = |parts: &[Part]| parts.iter().filter(is_other).map(|part| part.bytes).sum::<u64>();
        into.push((others.name.clone(), others.cause, difference(sum(before), sum(after))));
    }
}

fn difference(before: u64, after: u64) -> i64 {
    let size = i64::try_from(after.abs_diff(before)).unwrap_or(i64::MAX);
    if after >= before { size } else { -size }
}

/// What can be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remedy {
    /// In a sentence.
    pub what: String,
    /// What is to be expected of it.
    pub effect: String,
    /// By how much the resident memory would be less; `None`: it cannot be said.
    pub bytes: Option<u64>,
}

/// All of it.
pub struct Verdict {
    /// What most of the memory is.
    pub main: Main,
    /// How it changed, if it was looked at twice.
    pub growth: Option<Growth>,
    /// Sentences; the first is about the main cause.
    pub sentences: Vec<String>,
    /// What can be done, the best first.
    pub remedies: Vec<Remedy>,
}

fn size(bytes: u64) -> String {
    units::bytes(bytes as f64)
}

/// Judge.
pub fn judge(look: &Look, growth: Option<Growth>) -> Verdict {
    let all = look.chain.bytes;
    let mut causes: Vec<(Cause, u64)> =
        Cause::ALL.into_iter().map(|cause| (cause, look.chain.of(cause))).collect();
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.1));
    let main = main_cause(&causes, all, growth.as_ref());
    let mut sentences = vec![sentence(main, &causes, all, growth.as_ref())];
    let runtime = Runtime::of(&look.space);
    if let (Main::UnknownGrows, Some(runtime)) = (main, runtime) {
        sentences.push(format!("It may be objects of a language: {}.", runtime.maps()));
    }
    if main == Main::Cause(Cause::Fragmentation) {
        sentences.extend(look.heaps.iter().find_map(whole_pages));
    }
    sentences.extend(growth_sentence(look, main, growth.as_ref()));
    let share = |bytes: u64| bytes as f64 / all.max(1) as f64;
    let others: Vec<String> = causes
        .iter()
        .filter(|(cause, bytes)| Main::Cause(*cause) != main && share(*bytes) >= WORTH)
        .filter(|(cause, _)| main != Main::UnknownGrows || *cause != Cause::Unknown)
        .map(|(cause, bytes)| {
            format!("{} {} ({})", units::percent(share(*bytes)), words(*cause), size(*bytes))
        })
        .collect();
    if !others.is_empty() {
        sentences.push(format!("Beside it: {}.", others.join(", ")));
    }
    sentences.extend(peak(look));
    let mut remedies = Vec::new();
    if main == Main::Leak {
        remedies.push(leak_remedy(look, growth.as_ref()));
    }
    let first = match main {
        Main::Cause(cause) => Some(cause),
        Main::Leak => None,
        Main::UnknownGrows => Some(Cause::Unknown),
    };
    let order = causes.iter().filter(|(cause, _)| Some(*cause) == first);
    let order = order.chain(causes.iter().filter(|(cause, _)| Some(*cause) != first));
    // Against a leak that has been said. Where other memory grows, a record of what is live does not show it.
    let is_said = |cause: Cause| matches!(main, Main::Leak | Main::UnknownGrows) && cause == Cause::Live;
    for (cause, _) in order.filter(|(cause, bytes)| share(*bytes) >= WORTH && !is_said(*cause)) {
        remedies.extend(remedies_for(*cause, look));
    }
    // What is to be typed next is about this process.
    if let Some(pid) = look.space.pid {
        for remedy in &mut remedies {
            remedy.what = remedy
                .what
                .replace("-p PID", &format!("-p {pid}"))
                .replace("jcmd PID", &format!("jcmd {pid}"));
        }
    }
    Verdict { main, growth, sentences, remedies }
}

/// `causes`: the largest first.
fn main_cause(causes: &[(Cause, u64)], all: u64, growth: Option<&Growth>) -> Main {
    if let Some(growth) = growth.filter(|growth| growth.is_growing(all)) {
        let held = growth.of(|cause| {
            matches!(cause, Cause::Live | Cause::Untold | Cause::OpaqueHeap | Cause::Unknown | Cause::Pools)
        });
        if held >= growth.bytes / 2 {
            let unknown = growth.of(|cause| cause == Cause::Unknown);
            return if unknown > held / 2 { Main::UnknownGrows } else { Main::Leak };
        }
    }
    let largest = causes.first().map_or(Cause::Unknown, |cause| cause.0);
    let free = causes.iter().find(|(cause, _)| cause.is_free());
    match (largest, free) {
        (Cause::Live, Some(&(cause, bytes))) if bytes as f64 >= FREE_COUNTS * all as f64 => {
            Main::Cause(cause)
        }
        _ => Main::Cause(largest),
    }
}

/// Memory that ...
fn words(cause: Cause) -> &'static str {
    match cause {
        Cause::Live => "is live: the program holds it",
        Cause::Untold => "is a heap's, and not told to be live or free",
        Cause::Caches => "is free, in the caches of threads",
        Cause::Fragmentation => "is free between live blocks: fragmentation",
        Cause::FreePages => "is free at the ends of heaps or in whole pages, kept for the next use",
        Cause::Lazy => "was given back lazily, and waits for the kernel to take it",
        Cause::Metadata => "is what heaps need to know their blocks",
        Cause::Pools => "is held by memory pools",
        Cause::Stacks => "is stacks",
        Cause::Variables => "is variables of programs and libraries",
        Cause::Programs => "is the code and constants of programs and libraries",
        Cause::Files => "is pages of files",
        Cause::Shared => "is shared memory",
        Cause::OpaqueHeap => "is a heap's whose inside is unknown",
        Cause::Unknown => "is private memory that no heap known here has",
    }
}

fn sentence(main: Main, causes: &[(Cause, u64)], all: u64, growth: Option<&Growth>) -> String {
    match main {
        Main::Leak => {
            let rate = growth.map_or(0.0, |growth| growth.bytes as f64 / growth.seconds.max(0.001));
            format!(
                "It grows by {} each second, and what grows is what the program holds: that is like a leak.",
                units::bytes(rate)
            )
        }
        Main::UnknownGrows => {
            let rate = growth.map_or(0.0, |growth| growth.bytes as f64 / growth.seconds.max(0.001));
            let now = causes.iter().find(|one| one.0 == Cause::Unknown).map_or(0, |one| one.1);
            format!(
                "It grows by {} each second, and what grows is private memory that no heap known here has, now {}. Whether \
                 the program holds it cannot be seen.",
                units::bytes(rate),
                size(now)
            )
        }
        Main::Cause(cause) => {
            let bytes = causes.iter().find(|one| one.0 == cause).map_or(0, |one| one.1);
            let share = units::percent(bytes as f64 / all.max(1) as f64);
            format!("{} of {}, {share}, {}.", size(bytes), size(all), words(cause))
        }
    }
}

/// How much of what is free between live blocks is whole pages. The rest lies on pages with live blocks.
fn whole_pages(heap: &Heap) -> Option<String> {
    let pages = heap.free_pages?;
    let rest = heap.part.of(Cause::Fragmentation).checked_sub(pages)?;
    Some(format!(
        "Of that {} are whole free pages, which malloc_trim(0) gives back, and {} lie on pages with live blocks (quarry profile \
         --waste says whose).",
        size(pages),
        size(rest)
    ))
}

/// Whether it grows, and how long that can go on.
fn growth_sentence(look: &Look, main: Main, growth: Option<&Growth>) -> Option<String> {
    let growth = growth?;
    let seconds = units::seconds(growth.seconds);
    if !growth.is_growing(look.chain.bytes) {
        let change = match growth.bytes {
            0 => String::from("did not change"),
            less if less < 0 => format!("became {} less", size(less.unsigned_abs())),
            more => format!("changed by no more than {}", size(more.unsigned_abs())),
        };
        return Some(format!("It is not growing: in {seconds} it {change}."));
    }
    let mut text = format!("In {seconds} it became {} more", size(growth.bytes.unsigned_abs()));
    if let Some((name, _, bytes)) = growth.parts.first().filter(|part| main != Main::Leak && part.2 > 0) {
        text += &format!(", most of all '{name}' ({})", size(bytes.unsigned_abs()));
    }
    let group = look.space.cgroup.as_ref().and_then(|group| group.memory.as_ref());
    if let Some(room) = group.and_then(|memory| memory.room) {
        let rate = growth.bytes as f64 / growth.seconds.max(0.001);
        text += &format!(
            "; so the limit of its control group would be met in {}",
            units::seconds(room as f64 / rate)
        );
    }
    Some(text + ".")
}

/// That there was much more once.
fn peak(look: &Look) -> Option<String> {
    let status = look.space.status.as_ref()?;
    given_back(status.vm_hwm?, look.chain.bytes, status.vm_swap.unwrap_or(0))
}

/// What is in swap is the process's still.
fn given_back(peak: u64, resident: u64, swapped: u64) -> Option<String> {
    (peak > resident.saturating_add(swapped).saturating_mul(2))
        .then(|| format!("At its peak it was {} (VmHWM): most of that has been given back.", size(peak)))
}

fn remedy(what: impl Into<String>, effect: impl Into<String>, bytes: Option<u64>) -> Remedy {
    Remedy { what: what.into(), effect: effect.into(), bytes }
}

fn leak_remedy(look: &Look, growth: Option<&Growth>) -> Remedy {
    let rate = growth.map_or(0.0, |growth| growth.bytes as f64 / growth.seconds.max(0.001));
    remedy(
        who_holds_it(look),
        format!(
            "nothing shrinks by that; the sites that hold most are those to look at, which should explain {} each second",
            units::bytes(rate)
        ),
        None,
    )
}

/// How to find out. What runs on Quarry says so itself.
fn who_holds_it(look: &Look) -> String {
    let main = look.heaps.first().map(|heap| heap.allocator);
    let pid = look.space.pid.map_or_else(|| String::from("PID"), |pid| pid.to_string());
    if main == Some(Allocator::Quarry) {
        return format!(
            "ask it who holds it, without a restart: quarry profile -p {pid} --for 10; for all since its start, start it anew: \
             quarry record -g -- CMD, then quarry profile FILE"
        );
    }
    String::from(
        "find out who holds it, with a new start: quarry record -g -- CMD, then quarry profile FILE, which shows its peak. Or start \
         it on Quarry, and ask it at any time: quarry run -- CMD & quarry profile -p $!",
    )
}

/// What helps against a cause.
fn remedies_for(cause: Cause, look: &Look) -> Vec<Remedy> {
    let heaps = look.heaps.iter();
    let with = heaps.map(|heap| (heap, heap.part.of(cause))).filter(|(_, bytes)| *bytes > 0);
    match cause {
        Cause::Caches | Cause::Fragmentation | Cause::FreePages => {
            with.flat_map(|(heap, bytes)| free_in_heap(cause, heap, bytes)).collect()
        }
        Cause::Lazy => vec![remedy(
            "nothing: the kernel takes it when it needs memory",
            "RSS shows it until then; PSS and the control group count it, too, but it is no reason to be killed",
            Some(0),
        )],
        Cause::Files => vec![remedy(
            "nothing, unless it slows others down: pages of files that are clean go when memory is needed; \
             madvise(MADV_DONTNEED) or munmap by the program makes them go now",
            "RSS becomes less by them; free memory of the machine does not, as they stay in its page cache",
            Some(look.chain.of(Cause::Files)),
        )],
        Cause::Live => vec![remedy(
            who_holds_it(look),
            "the allocator cannot help; another one would need about the same",
            None,
        )],
        Cause::Stacks => vec![remedy(
            "fewer threads, or less deep recursion; RLIMIT_STACK limits what is reserved, not what is touched",
            "at most what the stacks have",
            Some(look.chain.of(Cause::Stacks)),
        )],
        Cause::Shared => vec![remedy(
            "look who shares it (quarry map -p PID: PSS), and unmap or remove what nobody needs (ipcs -m, /dev/shm)",
            "each process counts it in its RSS; together they have it once",
            None,
        )],
        Cause::Pools => vec![remedy(
            "see which pool it is: quarry stats -p PID",
            "pools give back what they have when they are reset, trimmed or destroyed",
            Some(look.chain.of(Cause::Pools)),
        )],
        Cause::OpaqueHeap if look.stopped.is_none() && look.heaps.iter().any(|heap| heap.unread > 0) => {
            vec![remedy(
                "look again, or hold the process for the look: quarry explain -p PID --stop",
                "its heap changed while it was read, or is in swap in part; one that stands still and is in memory can be \
                 read",
                None,
            )]
        }
        Cause::OpaqueHeap => vec![remedy(
            "run it on Quarry: quarry run -- CMD & quarry explain -p $! says what it is, and quarry profile -p $! who holds it",
            "the same load, with numbers for live, caches and fragmentation",
            None,
        )],
        Cause::Unknown => {
            let runtime = Runtime::of(&look.space).map(|runtime| {
                remedy(runtime.advice(), format!("what it holds has names then: {}", runtime.maps()), None)
            });
            let mappings = remedy(
                "look at the private mappings, of no file and of files: quarry map -p PID --quadrant 1,3 --by mapping",
                "it says what is where, by addresses and names",
                None,
            );
            runtime.into_iter().chain([mappings]).collect()
        }
        Cause::Untold | Cause::Metadata | Cause::Variables | Cause::Programs => Vec::new(),
    }
}

/// Against free memory that a heap keeps.
fn free_in_heap(cause: Cause, heap: &Heap, bytes: u64) -> Vec<Remedy> {
    let quarry = || {
        remedy(
            "try it on Quarry, which gives free pages back after a second: quarry run -- CMD",
            "what it gains depends on the load: quarry compare -- CMD measures it",
            None,
        )
    };
    let up_to = |bytes: u64| format!("up to {} less", size(bytes));
    match (heap.allocator, cause) {
        (Allocator::Glibc, Cause::Caches) => vec![remedy(
            "GLIBC_TUNABLES=glibc.malloc.tcache_count=N with a small N, or fewer idle threads",
            up_to(bytes),
            Some(bytes),
        )],
        (Allocator::Glibc, _) => {
            let trim = heap.trimmable.unwrap_or(0);
            let mut remedies = Vec::new();
            if trim > 0 {
                remedies.push(remedy(
                    "malloc_trim(0), called by the program after it has freed much",
                    format!(
                        "{} less. These are whole free pages. They come back when they are used again",
                        size(trim)
                    ),
                    Some(trim),
                ));
            }
            if heap.arenas > 2 {
                remedies.push(remedy(
                    "MALLOC_ARENA_MAX=2, if threads free what others have allocated",
                    format!(
                        "a part of {}, which is spread over {} arenas; more waiting for locks",
                        size(bytes),
                        heap.arenas
                    ),
                    None,
                ));
            }
            remedies.push(quarry());
            remedies
        }
        (Allocator::Quarry, Cause::Caches) => vec![remedy(
            "end threads that are idle, or QUARRY_CONF=tcache:off",
            format!("{}; without caches each call takes a lock", up_to(bytes)),
            Some(bytes),
        )],
        (Allocator::Quarry, Cause::FreePages) => vec![remedy(
            "wait, if the program works on: it goes back after purge_delay; QUARRY_CONF=purge_delay:100 for sooner, \
             malloc_trim(0) for now",
            up_to(bytes),
            Some(bytes),
        )],
        (Allocator::Quarry, _) => vec![remedy(
            "let what lives long and what lives short not share sizes: a pool for what goes together (docs/pools.md), or \
             allocate what stays before what goes",
            format!(
                "{}; pages of it that are free as a whole go back by themselves after purge_delay, so malloc_trim gains little",
                up_to(bytes)
            ),
            None,
        )],
        (Allocator::Tcmalloc, Cause::Caches) => vec![remedy(
            "TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES with a smaller number, or fewer idle threads",
            up_to(bytes),
            Some(bytes),
        )],
        (Allocator::Tcmalloc, Cause::FreePages) => vec![remedy(
            "MallocExtension::ReleaseFreeMemory(), or TCMALLOC_RELEASE_RATE above 1",
            up_to(bytes),
            Some(bytes),
        )],
        (Allocator::Tcmalloc | Allocator::Other(_), _) => vec![quarry()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn growth(bytes: i64, parts: &[(Cause, i64)]) -> Growth {
        let parts = parts.iter().map(|part| (String::from("x"), part.0, part.1)).collect();
        Growth { seconds: 2.0, bytes, parts }
    }

    const MIB: i64 = 1 << 20;

    #[test]
    fn growth_of_what_is_held_is_like_a_leak() {
        let causes = [(Cause::Fragmentation, 60 << 20), (Cause::Live, 40 << 20)];
        let grows = growth(10 * MIB, &[(Cause::Live, 9 * MIB), (Cause::Caches, MIB)]);
        assert_eq!(main_cause(&causes, 100 << 20, Some(&grows)), Main::Leak);
        let cached = growth(10 * MIB, &[(Cause::Live, MIB), (Cause::Caches, 9 * MIB)]);
        assert_eq!(main_cause(&causes, 100 << 20, Some(&cached)), Main::Cause(Cause::Fragmentation));
        let unknown = growth(10 * MIB, &[(Cause::Live, -MIB), (Cause::Unknown, 11 * MIB)]);
        assert_eq!(main_cause(&causes, 100 << 20, Some(&unknown)), Main::UnknownGrows);
        let noise = growth(MIB / 10, &[(Cause::Live, MIB / 10)]);
        assert_eq!(main_cause(&causes, 100 << 20, Some(&noise)), Main::Cause(Cause::Fragmentation));
    }

    #[test]
    fn what_is_in_swap_was_not_given_back() {
        assert!(given_back(11 << 30, 1 << 30, 0).is_some());
        assert_eq!(given_back(11 << 30, 1 << 30, 10 << 30), None);
    }

    fn changed(before: &Part, after: &Part) -> Vec<(String, Cause, i64)> {
        let mut parts = Vec::new();
        changes(Some(before), Some(after), &mut parts);
        parts.retain(|part| part.2 != 0);
        parts
    }

    fn whole(parts: Vec<Part>) -> Part {
        let bytes = parts.iter().map(|part| part.bytes).sum();
        Part::leaf("whole", "whole", bytes, Cause::Unknown, "test").with(parts, "rest")
    }

    #[test]
    fn what_is_divided_otherwise_is_compared_as_a_whole() {
        let live = |key: &str, bytes| Part::leaf(key, key, bytes, Cause::Live, "test");
        let one = live("live", 100);
        let two = live("live", 101).with(vec![live("blocks", 100), live("mapped", 1)], "rest");
        let name = || String::from("live");
        assert_eq!(changed(&whole(vec![one.clone()]), &whole(vec![two.clone()])), [(name(), Cause::Live, 1)]);
        assert_eq!(changed(&whole(vec![two.clone()]), &whole(vec![one])), [(name(), Cause::Live, -1)]);
        // What only one of them has is told by its parts.
        let stacks = Part::leaf("stacks", "stacks", 5, Cause::Stacks, "test");
        let grown = changed(&whole(vec![stacks.clone()]), &whole(vec![stacks, two]));
        assert_eq!(
            grown.iter().map(|part| (&*part.0, part.2)).collect::<Vec<_>>(),
            [("blocks", 100), ("mapped", 1)]
        );
    }

    #[test]
    fn a_file_that_gets_a_name_is_none_that_grows_by_all_of_it() {
        let file = |key: &str, bytes| Part::leaf(key, key, bytes, Cause::Files, "test");
        let before = whole(vec![file("a", 100), file("b", 50), file(OTHERS, 49)]);
        let after = whole(vec![file("a", 100), file("c", 51), file(OTHERS, 50)]);
        assert_eq!(changed(&before, &after), [(String::from(OTHERS), Cause::Files, 2)]);
        // Where all have names, one that is new is new.
        let after = whole(vec![file("a", 100), file("c", 51)]);
        let grown = changed(&whole(vec![file("a", 100)]), &after);
        assert_eq!(grown, [(String::from("c"), Cause::Files, 51)]);
    }

    #[test]
    fn free_memory_counts_before_what_is_live() {
        let main =
            |live: u64, free: u64| main_cause(&[(Cause::Live, live), (Cause::Caches, free)], 100, None);
        assert_eq!(main(70, 30), Main::Cause(Cause::Caches));
        assert_eq!(main(90, 10), Main::Cause(Cause::Live));
        let files = [(Cause::Files, 60), (Cause::Fragmentation, 40)];
        assert_eq!(main_cause(&files, 100, None), Main::Cause(Cause::Files));
    }
}
