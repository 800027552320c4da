# SPDX-License-Identifier: MIT
"""What many runs come to: medians, ratios to the best peer of each run, their means, and the tables of them."""
import math
import pathlib
import random
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from measure import spread  # noqa: E402

# Title, divisor, digits, and how much worse than the best peer a run may be.
MEASURES = {
    "seconds": ("Time, seconds", 1, 3, 1.15), "peak_kib": ("Peak RSS, MiB", 1024, 1, 1.30),
    "cpu": ("User + system seconds", 1, 3, None), "faults": ("Page faults, thousands", 1000, 1, None),
}
OURS = "quarry"
NAMED = "the other rounds naming the best peer"


def is_peer(name):
    return not name.startswith(OURS)


def geometric_mean(values):
    return math.exp(statistics.fmean(math.log(v) for v in values))


def medians(visits, measure):
    """{run: {malloc: median}}, where `visits` has {run: [{malloc: sample}]}, and each malloc may be missing somewhere."""
    table = {}
    for run, rounds in visits.items():
        gathered = {}
        for samples in rounds:
            for malloc, sample in samples.items():
                gathered.setdefault(malloc, []).append(sample[measure])
        table[run] = {malloc: statistics.median(values) for malloc, values in gathered.items()}
    return table


def ratios(table):
    """{run: {malloc: its figure ÷ that of the best peer}}, of the runs that a peer could do."""
    result = {}
    for run, row in table.items():
        best = min((value for malloc, value in row.items() if is_peer(malloc)), default=0)
        if best > 0:
            result[run] = {malloc: value / best for malloc, value in row.items()}
    return result


def means(table, runs=None):
    """{malloc: (geometric mean of its ratios, how many runs it has)}."""
    gathered = {}
    for run, row in ratios(table).items():
        if runs is None or run in runs:
            for malloc, ratio in row.items():
                gathered.setdefault(malloc, []).append(ratio)
    return {malloc: (geometric_mean(values), len(values)) for malloc, values in gathered.items()}


def without_luck(visits, measure):
    """{run: [{malloc: what it is of the best peer}]}, a round each, where the other rounds say which peer that is: of nine noisy peers the best
    median is one that had luck, which a round that had no say knows nothing of."""
    result = {}
    for run, rounds in visits.items():
        result[run] = []
        for number, samples in enumerate(rounds):
            best = best_by_level(rounds[:number] + rounds[number + 1:], measure)
            if best in samples and samples[best][measure] > 0:
                result[run].append({malloc: sample[measure] / samples[best][measure] for malloc, sample in samples.items() if sample[measure] > 0})
    return result


def means_of_medians(within):
    """{malloc: geometric mean over the runs of the median over the rounds}, of what without_luck() gives."""
    gathered = {}
    for rounds in within.values():
        of_run = {}
        for samples in rounds:
            for malloc, ratio in samples.items():
                of_run.setdefault(malloc, []).append(ratio)
        for malloc, values in of_run.items():
            gathered.setdefault(malloc, []).append(statistics.median(values))
    return {malloc: geometric_mean(values) for malloc, values in gathered.items()}


def means_without_luck(visits, measure):
    return means_of_medians(without_luck(visits, measure))


def best_by_level(rounds, measure):
    """The peer that is lowest beside the level of each round, so that a machine whose speed drifts has no part in it. None: no peer."""
    levels = {}
    for samples in rounds:
        figures = {malloc: sample[measure] for malloc, sample in samples.items() if is_peer(malloc) and sample[measure] > 0}
        for malloc, figure in figures.items():
            levels.setdefault(malloc, []).append(figure / statistics.median(figures.values()))
    return min(levels, key=lambda malloc: statistics.median(levels[malloc]), default=None)


def ends(values):
    """Of what resampling gave, the 95 % in the middle."""
    return tuple(sorted(values)[round(q * (len(values) - 1))] for q in (0.025, 0.975))


def resampled(visits, mean, seed=1, times=500):
    """{malloc: (low, high)}: 95 % bootstrap interval of what mean(visits) says; the rounds of each run are resampled. Empty with too few."""
    if min(map(len, visits.values()), default=0) < 3:
        return {}
    draw, drawn = random.Random(seed), {}
    for _ in range(times):
        for malloc, value in mean({run: draw.choices(rounds, k=len(rounds)) for run, rounds in visits.items()}).items():
            drawn.setdefault(malloc, []).append(value)
    return {malloc: ends(values) for malloc, values in drawn.items()}


def intervals(visits, measure):
    return resampled(visits, lambda again: {malloc: mean for malloc, (mean, _) in means(medians(again, measure)).items()})


def intervals_without_luck(visits, measure):
    """Which peer a round is compared with stays as the whole says: of fewer rounds others would be named, and worse ones."""
    return resampled(without_luck(visits, measure), means_of_medians)


def against(visits, measure):
    """{peer: geometric mean over the runs of what we are of it}: the median over the rounds of the ratio within one round, so that a
    machine whose speed drifts falls out; and unlike the best of nine noisy peers, one peer has no luck."""
    gathered = {}
    for rounds in visits.values():
        within = {}
        for samples in rounds:
            for malloc, sample in samples.items():
                if is_peer(malloc) and OURS in samples and sample[measure] > 0 and samples[OURS][measure] > 0:
                    within.setdefault(malloc, []).append(samples[OURS][measure] / sample[measure])
        for malloc, values in within.items():
            gathered.setdefault(malloc, []).append(statistics.median(values))
    return {malloc: geometric_mean(values) for malloc, values in gathered.items()}


def against_intervals(visits, measure):
    return resampled(visits, lambda again: against(again, measure))


def beyond(visits, measure):
    """[(run, ratio, best peer)] of the runs at which we are worse than the limit, worst first."""
    table, limit = medians(visits, measure), MEASURES[measure][3]
    found = []
    for run, row in ratios(table).items():
        if row.get(OURS, 0) > limit:
            peers = {malloc: value for malloc, value in table[run].items() if is_peer(malloc)}
            found.append((run, row[OURS], min(peers, key=peers.get)))
    return sorted(found, key=lambda entry: -entry[1])


def chance(differences, draws=4096):
    """How likely is a sum so large, if each difference could as well have had the other sign? Exact for up to twelve."""
    seen = sum(differences) - 1e-12
    if len(differences) <= 12:
        sums = [0.0]
        for d in differences:
            sums = [total + way for total in sums for way in (d, -d)]
    else:
        draw = random.Random(1)
        sums = [seen + 1] + [sum(d * draw.choice((1, -1)) for d in differences) for _ in range(draws)]
    return sum(total >= seen for total in sums) / len(sums)


def ahead(rounds, measure, level=0.05):
    """[(peer, what we are of it)] of the peers that are ahead of us at one run beyond noise, farthest first: the ratios within each round
    by chance(), corrected for the number of peers (Holm). None: too few rounds to tell."""
    within = {}
    for samples in rounds:
        for malloc, sample in samples.items():
            if is_peer(malloc) and OURS in samples and sample[measure] > 0 and samples[OURS][measure] > 0:
                within.setdefault(malloc, []).append(math.log(samples[OURS][measure] / sample[measure]))
    if not within or 0.5 ** min(map(len, within.values())) * len(within) > level:
        return None
    found, left = [], len(within)
    for likely, malloc in sorted((chance(values), malloc) for malloc, values in within.items()):
        if likely * left > level:
            break
        found.append((malloc, math.exp(statistics.median(within[malloc]))))
        left -= 1
    return sorted(found, key=lambda entry: -entry[1])


# ---- tables -------------------------------------------------------------------------------------

def markdown(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def means_table(visits, mallocs, programs):
    """The issue's table: each set of runs by time and by memory."""
    rows = []
    for measure, title in (("seconds", "time"), ("peak_kib", "peak RSS")):
        table, interval = medians(visits, measure), intervals(visits, measure)
        sets = [("all", set(visits)), ("written to load a malloc", set(visits) - programs), ("programs", set(visits) & programs)]
        for name, runs in sets:
            if not runs:
                continue
            mean = means(table, runs)
            most = max((count for _, count in mean.values()), default=0)
            best = min((value for malloc, (value, _) in mean.items()), default=0)
            cells = []
            for malloc in mallocs:
                value, count = mean.get(malloc, (0, 0))
                text = f"{value:.3f}" if count else "–"
                text = f"**{text}**" if count and value == best else text
                cells.append(text + (f" ({count})" if 0 < count < most else ""))
            rows.append([f"{title}, {name} ({most})", *cells])
        if interval:
            rows.append([f"{title}, all: 95 %", *[f"{interval[m][0]:.3f}–{interval[m][1]:.3f}" if m in interval else "–" for m in mallocs]])
        fair = means_without_luck(visits, measure)
        if fair:
            rows.append([f"{title}, all, {NAMED}", *[f"{fair[m]:.3f}" if m in fair else "–" for m in mallocs]])
    return markdown(["÷ best peer", *mallocs], rows)


def against_table(visits, mallocs):
    """We against each peer alone."""
    rows, peers = [], [m for m in mallocs if is_peer(m)]
    for measure, title in (("seconds", "time"), ("cpu", "user + system"), ("peak_kib", "peak RSS")):
        mean, interval = against(visits, measure), against_intervals(visits, measure)
        if not mean:
            return ""
        rows.append([title, *figures(mean, interval, peers)])
    return markdown([f"{OURS} ÷ this peer", *peers], rows)


def ahead_table(visits):
    """Of each run who is ahead of us beyond noise; and at how many nobody is. Empty with too few rounds."""
    rows, first = [], {"seconds": set(), "peak_kib": set()}
    for run, rounds in visits.items():
        cells = []
        for measure, runs in first.items():
            found = ahead(rounds, measure)
            if found is None:
                return ""
            if not found:
                runs.add(run)
            cells.append(", ".join(f"{malloc} {ratio:.3f}" for malloc, ratio in found) or "nobody")
        rows.append([run, *cells])
    both = first["seconds"] & first["peak_kib"]
    rows.append(["nobody at", *(f"{len(runs)} of {len(visits)}" for runs in first.values())])
    return markdown([f"ahead of {OURS} beyond noise", "time", "peak RSS"], rows) + f"\n\nfirst or within noise of the first in both: {len(both)} of {len(visits)}"


def apart_table(apart, mallocs):
    """Of {file: visits}: the mean of all runs in each file alone, and its interval; and the same without luck."""
    rows = []
    for measure, title in (("seconds", "time"), ("peak_kib", "peak RSS")):
        for name, visits in apart.items():
            mean = {malloc: value for malloc, (value, _) in means(medians(visits, measure)).items()}
            rows.append([f"{title}, {name}: {min(map(len, visits.values()))} rounds", *figures(mean, intervals(visits, measure), mallocs)])
        for name, visits in apart.items():
            rows.append([f"{title}, {name}, {NAMED}", *figures(means_without_luck(visits, measure), intervals_without_luck(visits, measure), mallocs)])
    return markdown(["÷ best peer", *mallocs], rows)


def figures(mean, interval, mallocs):
    """Cells: each mean with its interval, as far as there is one."""
    return [f"{mean[m]:.3f}" + (f" ({interval[m][0]:.3f}–{interval[m][1]:.3f})" if m in interval else "") if m in mean else "–" for m in mallocs]


def disagreements(apart):
    """Lines: whose mean in one file lies outside of what another says, as far as the intervals go; or that there are none."""
    lines = []
    for of_file, how in ((intervals, ""), (intervals_without_luck, f", {NAMED}")):
        found = [line for measure, title in (("seconds", "time"), ("peak_kib", "peak RSS"))
                 for line in disagreeing({name: of_file(visits, measure) for name, visits in apart.items()}, f"{title}{how}")]
        lines += found or [f"the files agree{how}: all intervals of a mean have a common part"]
    return lines


def disagreeing(said, title):
    lines = []
    for malloc in dict.fromkeys(m for interval in said.values() for m in interval):
        found = [interval[malloc] for interval in said.values() if malloc in interval]
        if max(low for low, _ in found) > min(high for _, high in found):
            lines.append(f"the files differ: {malloc}: {title}: " + ", ".join(f"{low:.3f}–{high:.3f}" for low, high in found))
    return lines


def runs_table(visits, mallocs, measure):
    title, divisor, digits, limit = MEASURES[measure]
    table, rows = medians(visits, measure), []
    ratio = ratios(table)
    for run, row in table.items():
        best = min((value for malloc, value in row.items() if is_peer(malloc)), default=None)
        cells = []
        for malloc in mallocs:
            if malloc not in row:
                cells.append("–")
                continue
            text = f"{row[malloc] / divisor:.{digits}f}"
            text = f"**{text}**" if row[malloc] == best else text
            noise = spread([samples[malloc][measure] for samples in visits[run] if malloc in samples])
            cells.append(f"{text} ±{noise * 100:.0f}%" if measure == "seconds" else text)
        ours = ratio.get(run, {}).get(OURS)
        rows.append([run, f"{ours:.2f}{' !' if limit and ours > limit else ''}" if ours else "–", *cells])
    return markdown([title, f"{OURS} ÷ best peer", *mallocs], rows)
