// SPDX-License-Identifier: MIT
//! What the recorded program would hold and use under another allocator.
//!
//! A replay has the heap of the program and nothing else. What the program holds beside it is what the recorder saw at its
//! looks, less the recorder's own, less what the replay under the malloc of the recording has at the same places of
//! the plan. To that the replay under another allocator adds its own. What both replays have wrong, such as pages that the
//! program never wrote, cancels out as far as it is the same for both.
//!
//! Processor time in the same way: that of the recording, less a replay under the same malloc and the recorder, plus a
//! replay under the other one.

use quarry_measure::stats;
use quarry_trace::Usage;
use serde::Serialize;

use crate::handed::Handed;
use crate::result::{Looks, Report};

/// The part of an allocator's memory that moves from run to run and that a replay does not show: of the prediction, and bytes.
/// docs/replay.md has the runs that they are from.
const MEMORY_OFF: (f64, f64) = (0.02, 512.0 * 1024.0);
/// The part of the program's processor time that differs from run to run, and with the places of its blocks. The recording is
/// one run, and such runs differ by as much. docs/replay.md has the programs that they are from.
const CPU_OFF: f64 = 0.3;
/// What the recorder takes in a program more than in a replay, as a part of what it takes in a replay: so much, to either side of this.
/// It reads a clock that waits for all loads before it, and a program may have more of them under way, or do something else meanwhile.
const CPU_RECORDER: (f64, f64) = (0.75, 0.25);

/// A peak that is no higher than the memory of a look by more than this is that of the look: the kernel counts in steps.
const SAME: u64 = 256 << 10;

/// A heap has no more resident bytes than so many for a live one that waits: what it has beside blocks is there anyway.
const FOR_LIVE: f64 = 2.0;

/// A figure, and how far off it may be: to either side, in 19 of 20 cases.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Figure {
    /// What is predicted.
    pub value: f64,
    /// The interval's lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

impl Figure {
    fn around(value: f64, off: f64) -> Self {
        let value = value.max(0.0);
        Self { value, low: (value - off).max(0.0), high: value + off }
    }

    /// It may be so much less, or so much more, for another reason.
    fn or(self, less: f64, more: f64) -> Self {
        Self { low: (self.low - less).max(0.0), high: self.high + more, ..self }
    }

    /// Is a measured value within?
    pub fn holds(&self, measured: f64) -> bool {
        self.low <= measured && measured <= self.high
    }
}

/// Memory of the program under an allocator.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Memory {
    /// Most resident bytes, of all kinds.
    pub peak_rss_bytes: Figure,
    /// Resident bytes when it ends; not if the recording does not say how it ended.
    pub end_rss_bytes: Option<Figure>,
    /// How far off the peak is in this schedule alone.
    #[serde(skip)]
    pub schedule_off: f64,
}

impl Memory {
    /// Is another schedule what makes the peak most uncertain?
    pub fn is_of_one_schedule(&self) -> bool {
        let peak = self.peak_rss_bytes;
        (peak.value - peak.low).max(peak.high - peak.value) >= 2.0 * self.schedule_off
    }
}

/// The heap of one replay: anonymous memory at the looks, files of the allocator, the peaks of its runs and how far apart their
/// ends are. Some are played as fast as can be: what an allocator gives back as time goes by is in that.
#[derive(Debug, Clone, Default)]
pub struct Heap {
    rows: Vec<(u64, u64)>,
    after: Option<u64>,
    usable: u64,
    files: u64,
    peaks: Vec<f64>,
    ends: f64,
}

fn spread(values: impl Iterator<Item = f64>) -> f64 {
    let (low, high) =
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    (high - low).max(0.0)
}

impl Heap {
    /// `looks` of a run; of files those of the program count with the program. `runs` have peak and end of all runs.
    pub fn new(looks: &Looks, is_programs: &dyn Fn(&str) -> bool, runs: &[(f64, f64)]) -> Self {
        let files = looks.files.iter().filter(|(path, _)| !path.is_empty() && !is_programs(path));
        Self {
            rows: looks.rows.clone(),
            after: looks.after,
            usable: looks.usable_bytes,
            files: files.map(|(_, bytes)| bytes).sum(),
            peaks: runs.iter().map(|run| run.0).collect(),
            ends: spread(runs.iter().map(|run| run.1)),
        }
    }

    /// The program ended without calling destructors.
    pub fn without_destructors(self) -> Self {
        Self { after: None, ..self }
    }

    /// How much larger the blocks are than those of `base`, as both mallocs say: a part of their size.
    pub fn answers(&self, base: &Heap) -> Option<f64> {
        (base.usable > 0).then(|| self.usable as f64 / base.usable as f64 - 1.0)
    }

    /// How far apart the peaks are, as differences to those of `base` in the same run: the prediction is made of such a difference,
    /// and both have the threads that ran ahead of others. Where `base` has no such run, its last one stands for it.
    fn apart(&self, base: &Heap) -> f64 {
        let of = |peaks: &[f64], run: usize| peaks.get(run).or(peaks.last()).copied();
        let runs = 0..self.peaks.len().max(base.peaks.len());
        spread(runs.filter_map(|run| Some(of(&self.peaks, run)? - of(&base.peaks, run)?)))
    }

    /// The most of all looks.
    fn peak(&self) -> f64 {
        self.rows.iter().map(|row| row.1).max().unwrap_or(0) as f64
    }

    /// Resident bytes for a live one, where most are live.
    fn for_live(&self, peak_live: u64) -> f64 {
        (self.peak() / (peak_live as f64).max(1.0)).clamp(1.0, FOR_LIVE)
    }

    /// The part of the most that is there at the end.
    fn kept(&self) -> f64 {
        self.rows.last().map_or(0.0, |row| row.0 as f64 / self.peak().max(1.0)).min(1.0)
    }

    /// After all destructors: some mallocs give back in theirs what is free. The recorder's last look is before that.
    fn given_at_end(&self) -> f64 {
        self.after.zip(self.rows.last()).map_or(0.0, |(after, row)| row.0 as f64 - after as f64)
    }

    fn now(&self, look: usize) -> f64 {
        (self.rows[look].0 + self.files) as f64
    }

    fn most(&self, look: usize) -> f64 {
        (self.rows[look].1 + self.files) as f64
    }
}

/// Resident bytes without the recorder's.
fn net(usage: &Usage) -> f64 {
    (usage.anonymous + usage.file + usage.shared) as f64 - own(usage)
}

fn own(usage: &Usage) -> f64 {
    (usage.own_anonymous + usage.own_file) as f64
}

/// What the program would hold under `heap`, when it was recorded on `base`. None: the looks are not those of the trace.
///
/// At a look the recorder knows what there was. Between two looks it knows a new peak exactly, if it is gone by the second one. Else
/// it knows that nothing was above the peak. A heap that had more in between than at both looks had it near the one at which it has more:
/// so much is beside it then, and no more than leaves it below the peak.
///
/// `handed`: what threads hand to each other, where most of `peak_live` bytes are live. In another schedule less or more of that waits.
pub fn memory(
    usage: &[Usage],
    ended: bool,
    base: &Heap,
    heap: &Heap,
    (handed, peak_live): (&Handed, u64),
) -> Option<Memory> {
    let last = usage.len().checked_sub(1)?;
    if base.rows.len() != usage.len() || heap.rows.len() != usage.len() {
        return None;
    }
    let beside = |look: usize| net(&usage[look]) - base.now(look);
    let (mut peak, mut before) = (0f64, 0);
    for (look, seen) in usage.iter().enumerate() {
        let above = seen.peak.saturating_sub(seen.anonymous + seen.file + seen.shared);
        let is_new = seen.peak > before;
        let was_higher = is_new && above > SAME;
        before = before.max(seen.peak);
        let then = beside(look) + if is_new && !was_higher { above as f64 } else { 0.0 };
        peak = peak.max(then + heap.now(look));
        let nearer = match look.checked_sub(1) {
            Some(earlier) if heap.now(earlier) > heap.now(look) => earlier,
            _ => look,
        };
        if was_higher || heap.most(look) > heap.now(nearer) {
            let room = before as f64 - own(seen) - base.most(look);
            let then = if was_higher { room } else { beside(nearer).min(room) };
            peak = peak.max(then + heap.most(look));
        }
    }
    let off = |value: f64, spread: f64| value * MEMORY_OFF.0 + MEMORY_OFF.1 + spread;
    let end = net(&usage[last]) - base.now(last) + heap.now(last) - heap.given_at_end();
    let live = |bytes: u64| bytes as f64 * heap.for_live(peak_live);
    let [lower, higher, waited] = [handed.lower_bytes, handed.higher_bytes, handed.at_peak_bytes].map(live);
    let kept = heap.kept();
    let schedule_off = off(peak, heap.apart(base));
    Some(Memory {
        schedule_off,
        peak_rss_bytes: Figure::around(peak, schedule_off).or(lower, higher),
        // What waited may be given back by the end, or kept, whichever it was here: that depends on what was freed last.
        end_rss_bytes: ended.then(|| {
            let off = off(end, base.ends + heap.ends);
            Figure::around(end, off).or(waited * kept, waited * (1.0 - kept) + higher)
        }),
    })
}

/// What makes processor time most uncertain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// What the recorder takes in a program.
    Recorder,
    /// How far apart the replays are.
    Replays,
    /// The recording is one run.
    Recording,
}

/// Processor time that is not known well enough to be told.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Unsure {
    /// Seconds that it would be off, to either side.
    pub off_s: f64,
    /// Why so much.
    pub cause: Cause,
}

/// Processor seconds of the program: `recorded` with the recorder, of which replays of `under_recorder` take so much, `plain` ones of the same
/// allocator so much without it, and those of `replayed` under the other allocator so much. As much as replays of the same plan vary, the program
/// does, too. An interval that is wider than the figure itself is not one to decide by, and what is within it could as well be nothing.
pub fn cpu(
    recorded: f64,
    under_recorder: &[f64],
    plain: &[f64],
    replayed: &[f64],
) -> Option<Result<Figure, Unsure>> {
    let (recorder, replay) = (stats::median(under_recorder)?, stats::median(replayed)?);
    let cost = (recorder - stats::median(plain)?).max(0.0);
    let more = cost * CPU_RECORDER.1;
    let outside = (recorded - recorder - more).max(0.0);
    // By how much replays take more than the recorded program with all that the recorder took: as much is wrong at least.
    let too_much = (recorder - recorded).max(0.0);
    let deviation = |values: &[f64]| stats::deviation(values).unwrap_or(0.0);
    let noise = (deviation(under_recorder) / recorder.max(1e-9)).max(deviation(replayed) / replay.max(1e-9));
    let replays =
        outside * 2.0 * noise.min(1.0) + 2.0 * (deviation(under_recorder) + deviation(replayed)) + too_much;
    let parts = [
        (cost * CPU_RECORDER.0, Cause::Recorder),
        (replays, Cause::Replays),
        ((outside + replay) * CPU_OFF, Cause::Recording),
    ];
    let off = parts.iter().map(|(off, _)| off).sum();
    let figure = Figure::around(outside + replay, off);
    let (_, cause) = parts.into_iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(match 2.0 * off < figure.value {
        true => Ok(figure),
        false => Err(Unsure { off_s: off, cause }),
    })
}

/// Processor seconds of a run.
pub fn cpu_of(report: &Report) -> f64 {
    (report.user_ns + report.system_ns) as f64 * 1e-9
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    /// Nothing is handed over.
    const NONE: (&Handed, u64) =
        (&Handed { bytes: 0, most_bytes: 0, at_peak_bytes: 0, lower_bytes: 0, higher_bytes: 0 }, 0);

    /// A look at a process of so many MiB, of which 1 is the recorder's, and that had so many at most so far.
    fn look(now: u64, peak: u64) -> Usage {
        Usage {
            anonymous: (now - 3) * MIB,
            file: 2 * MIB,
            shared: MIB,
            peak: peak * MIB,
            own_anonymous: MIB / 2,
            own_file: MIB / 2,
            cpu_ns: 0,
            traits: 0,
        }
    }

    /// Anonymous memory at looks, and most since the look before, in MiB.
    fn heap(rows: &[(u64, u64)]) -> Heap {
        let rows = rows.iter().map(|&(now, most)| (now * MIB, most * MIB)).collect();
        Heap::new(&Looks { rows, ..Looks::default() }, &|_| false, &[])
    }

    fn mib(figure: Figure) -> f64 {
        figure.value / MIB as f64
    }

    fn peak(usage: &[Usage], base: &Heap, other: &Heap) -> f64 {
        mib(memory(usage, true, base, other, NONE).unwrap().peak_rss_bytes)
    }

    #[test]
    fn on_the_malloc_of_the_recording_it_is_the_recording() {
        let usage = [look(11, 12), look(41, 61), look(21, 61)];
        let base = heap(&[(5, 6), (30, 50), (10, 30)]);
        let same = memory(&usage, true, &base, &base, NONE).unwrap();
        assert_eq!((mib(same.peak_rss_bytes), mib(same.end_rss_bytes.unwrap())), (60.0, 20.0));
        assert!(
            same.peak_rss_bytes.holds(60.5 * MIB as f64) && !same.peak_rss_bytes.holds(63.0 * MIB as f64)
        );
        assert_eq!(memory(&usage, false, &base, &base, NONE).unwrap().end_rss_bytes, None);
    }

    #[test]
    fn another_malloc_adds_what_it_has_more_where_that_is() {
        // Beside its heap the program holds 5, then 10, then 50.
        let usage = [look(11, 11), look(61, 61), look(61, 62)];
        let base = heap(&[(5, 5), (50, 50), (10, 10)]);
        // It needs more while there is little else: 5 + 10 + 52 at most.
        assert_eq!(peak(&usage, &base, &heap(&[(5, 5), (52, 52), (10, 10)])), 62.0);
        assert_eq!(peak(&usage, &base, &heap(&[(5, 5), (57, 57), (10, 10)])), 67.0);
        // It does not give back what is free: then the end is its peak.
        let keeps = memory(&usage, true, &base, &heap(&[(5, 5), (50, 50), (50, 50)]), NONE).unwrap();
        assert_eq!((mib(keeps.peak_rss_bytes), mib(keeps.end_rss_bytes.unwrap())), (101.0, 100.0));
        // One that needs less has its peak elsewhere.
        assert_eq!(peak(&usage, &base, &heap(&[(5, 5), (20, 20), (9, 9)])), 60.0);
    }

    #[test]
    fn what_destructors_give_back_is_not_there_at_the_end() {
        let usage = [look(11, 11), look(61, 61), look(61, 62)];
        let base = heap(&[(5, 5), (50, 50), (10, 10)]);
        let gives = |after: u64| Heap { after: Some(after * MIB), ..heap(&[(5, 5), (50, 50), (50, 50)]) };
        let of = |base: &Heap, heap: &Heap| {
            let memory = memory(&usage, true, base, heap, NONE).unwrap();
            (mib(memory.peak_rss_bytes), mib(memory.end_rss_bytes.unwrap()))
        };
        assert_eq!(of(&base, &gives(12)), (101.0, 62.0));
        // What the malloc of the recording gives back was there when the recorder looked last.
        let base = Heap { after: Some(7 * MIB), ..base };
        assert_eq!(of(&base, &gives(12)), (101.0, 62.0));
        assert_eq!(of(&base, &base), (61.0, 57.0));
    }

    #[test]
    fn a_peak_between_looks_is_known_but_not_above_what_was_seen() {
        // Between the last looks the replay has 40, and the program never had more than 30.
        let usage = [look(11, 11), look(21, 31), look(21, 31)];
        let base = heap(&[(5, 5), (15, 25), (15, 40)]);
        assert_eq!(peak(&usage, &base, &base), 30.0);
        assert_eq!(peak(&usage, &base, &heap(&[(5, 5), (15, 25), (15, 43)])), 33.0);
    }

    #[test]
    fn what_grows_beside_the_heap_is_in_the_peak() {
        // The program's peak is at its end, where the heap is small: what it holds beside that grew from 20 to 48.
        let usage = [look(31, 31), look(51, 51)];
        let base = heap(&[(10, 10), (2, 10)]);
        assert_eq!(peak(&usage, &base, &base), 50.0);
        // One that does not give back has as much more at the end, and one that has more at first has no more there.
        assert_eq!(peak(&usage, &base, &heap(&[(10, 10), (10, 10)])), 58.0);
        assert_eq!(peak(&usage, &base, &heap(&[(14, 14), (1, 14)])), 49.0);
        // More in between than at both looks: beside what the heap had when the program was no higher than it ever was.
        assert_eq!(peak(&usage, &base, &heap(&[(10, 10), (11, 13)])), 59.0);
        // A peak that was gone at the look was in between.
        let usage = [look(31, 31), look(51, 61)];
        assert_eq!(peak(&usage, &base, &heap(&[(10, 10), (2, 14)])), 64.0);
        // Some pages higher than at the look is no other peak.
        let steps = Usage { peak: 51 * MIB + 8192, ..look(51, 51) };
        let close = peak(&[look(31, 31), steps], &base, &heap(&[(10, 10), (2, 10)]));
        assert!((50.0..50.1).contains(&close), "{close}");
    }

    #[test]
    fn files_count_unless_they_are_the_programs() {
        let looks = |files: &[(&str, u64)]| Looks {
            files: files.iter().map(|&(path, mib)| (path.to_owned(), mib * MIB)).collect(),
            rows: vec![(10 * MIB, 10 * MIB)],
            ..Looks::default()
        };
        let has = |path: &str| path == "/lib/libstdc++.so.6";
        let other =
            Heap::new(&looks(&[("/lib/libfast.so", 3), ("/lib/libstdc++.so.6", 2), ("", 0)]), &has, &[]);
        let (usage, base) = ([look(21, 21)], heap(&[(10, 10)]));
        assert_eq!(peak(&usage, &base, &other), 23.0);
        // Recorded on it, it is in what was seen.
        assert_eq!(peak(&usage, &other, &base), 17.0);
    }

    #[test]
    fn runs_that_differ_make_it_less_sure() {
        let rows = vec![(10 * MIB, 10 * MIB)];
        let looks = Looks { rows, ..Looks::default() };
        let one = Heap::new(&looks, &|_| false, &[(10e6, 10e6)]);
        let other = Heap::new(&looks, &|_| false, &[(9e6, 9e6), (14e6, 7e6), (12e6, 9e6)]);
        let usage = [look(21, 21)];
        let wide = |base, heap| {
            let memory = memory(&usage, true, base, heap, NONE).unwrap();
            [memory.peak_rss_bytes, memory.end_rss_bytes.unwrap()].map(|figure| figure.high - figure.low)
        };
        let (sure, unsure) = (wide(&one, &one), wide(&one, &other));
        assert_eq!([0, 1].map(|which| (unsure[which] - sure[which]).round()), [10e6, 4e6]);
        // What moves both peaks alike moves no difference.
        let moved = Heap::new(&looks, &|_| false, &[(19e6, 9e6), (24e6, 7e6), (22e6, 9e6)]);
        assert_eq!([0, 1].map(|which| (wide(&other, &moved)[which] - sure[which]).round()), [0.0, 8e6]);
    }

    #[test]
    fn what_waits_between_threads_makes_it_less_sure() {
        let usage = [look(11, 11), look(61, 61), look(41, 61)];
        let base = heap(&[(5, 5), (50, 50), (25, 50)]);
        let (lower_bytes, higher_bytes, at_peak_bytes) = (10 * MIB, 4 * MIB, 12 * MIB);
        let handed = Handed { lower_bytes, higher_bytes, at_peak_bytes, ..Handed::default() };
        let wide = |live: u64, end_kept: bool| {
            let sure = memory(&usage, true, &base, &base, NONE).unwrap();
            let unsure = memory(&usage, true, &base, &base, (&handed, live * MIB)).unwrap();
            let pick = |memory: Memory| match end_kept {
                true => memory.end_rss_bytes.unwrap(),
                false => memory.peak_rss_bytes,
            };
            let (sure, unsure) = (pick(sure), pick(unsure));
            assert_eq!(sure.value, unsure.value);
            [sure.low - unsure.low, unsure.high - sure.high].map(|bytes| (bytes / MIB as f64).round())
        };
        assert_eq!(wide(50, false), [10.0, 4.0]);
        // For each live byte the heap has so many, but what it has beside blocks does not wait.
        assert_eq!((wide(40, false), wide(1, false)), ([13.0, 5.0], [20.0, 8.0]));
        // Half of what waited is there at the end: that could go, and the other half stay.
        assert_eq!(wide(50, true), [6.0, 10.0]);
    }

    #[test]
    fn answers_are_compared_in_proportion() {
        let of = |usable_bytes| Heap::new(&Looks { usable_bytes, ..Looks::default() }, &|_| false, &[]);
        assert!((of(110).answers(&of(100)).unwrap() - 0.1).abs() < 1e-9);
        assert_eq!((of(3).answers(&of(0)), of(7).answers(&of(7))), (None, Some(0.0)));
    }

    #[test]
    fn looks_that_are_not_those_of_the_trace_predict_nothing() {
        let base = heap(&[(5, 5)]);
        assert_eq!(memory(&[], true, &heap(&[]), &heap(&[]), NONE), None);
        assert_eq!(memory(&[look(9, 9), look(9, 9)], true, &base, &base, NONE), None);
        assert_eq!(memory(&[look(9, 9)], true, &base, &heap(&[(5, 5), (5, 5)]), NONE), None);
    }

    #[test]
    fn processor_time_is_the_recordings_less_a_replay_of_it() {
        let known = |figure: Option<Result<Figure, Unsure>>| figure.unwrap().unwrap();
        let (recorder, plain) = ([4.0, 4.1, 3.9], [4.0, 4.0, 4.0]);
        let figure = known(cpu(10.0, &recorder, &plain, &[2.0, 2.0, 2.0]));
        assert!((figure.value - 8.0).abs() < 1e-9);
        assert!(figure.holds(9.0) && figure.holds(7.0) && !figure.holds(11.2), "{figure:?}");
        // Steady replays say nothing of the one run that was recorded.
        let steady = known(cpu(10.0, &[4.0, 4.0], &[4.0, 4.0], &[2.0, 2.0]));
        assert!(steady.holds(10.0) && !steady.holds(10.5), "{steady:?}");
        // Of 0.4 s in a replay the recorder may take a half to two times as much in the program.
        let costly = known(cpu(10.0, &[4.0, 4.0], &[3.6, 3.6], &[2.0, 2.0]));
        assert!((costly.value - 7.9).abs() < 1e-9);
        assert!((costly.high - costly.value - 0.3 - 7.9 * CPU_OFF).abs() < 1e-9, "{costly:?}");
        assert_eq!((cpu(3.0, &[], &[1.0], &[2.0]), cpu(3.0, &[1.0], &[1.0], &[])), (None, None));
        assert_eq!(cpu(3.0, &[1.0], &[], &[2.0]), None);
    }

    /// gawk with 1.35 million events, as it was measured: 0.27 s.
    #[test]
    fn a_recorder_that_is_quick_leaves_a_figure() {
        let awk = cpu(0.308, &[0.104, 0.104], &[0.059, 0.059], &[0.059, 0.059]).unwrap().unwrap();
        assert!(awk.holds(0.27) && awk.holds(0.29) && !awk.holds(0.37), "{awk:?}");
    }

    #[test]
    fn an_interval_that_is_wider_than_the_figure_is_not_told() {
        let unsure = |figure: Option<Result<Figure, Unsure>>| figure.unwrap().unwrap_err();
        // Most of the recorded time was the recorder's.
        let many = unsure(cpu(5.6, &[3.9, 3.9, 3.9], &[1.4, 1.4, 1.4], &[1.05, 1.05, 1.05]));
        assert_eq!(many.cause, Cause::Recorder);
        assert!((2.4..2.6).contains(&many.off_s), "{many:?}");
        // Replays that are far apart.
        assert_eq!(unsure(cpu(10.0, &[4.0, 8.0, 2.0], &[4.0], &[2.0, 2.0, 2.0])).cause, Cause::Replays);
        // A replay that takes longer than the recorded program leaves nothing outside, and is wrong by that much.
        assert!(cpu(3.2, &[3.5], &[3.5], &[2.0]).unwrap().unwrap().holds(1.6));
        assert_eq!(unsure(cpu(3.0, &[4.1], &[4.1], &[2.0])).cause, Cause::Replays);
    }
}
