// SPDX-License-Identifier: MIT
//! What many runs come to: medians, ratios to the best peer of each run, the means of these, and who is ahead.
//!
//! A malloc may be missing in a round or in a run. Each result has a place for each malloc, and `None` where it has none.

use quarry_measure::rng::Rng;
use quarry_measure::stats::{self, geometric_mean, median};

use super::samples::Visits;

/// The heap that is compared. A name that begins with it is another build of it, and no peer.
pub const OURS: &str = "quarry";
/// The system's malloc.
pub const SYSTEM: &str = "sys";

/// How often rounds are drawn again for an interval.
const RESAMPLES: usize = 500;
/// A result with fewer rounds has no interval.
const FEWEST: usize = 3;
/// What has a larger probability by chance is noise.
const LEVEL: f64 = 0.05;

/// Is this a malloc that ours is compared with?
pub fn is_peer(name: &str) -> bool {
    !name.starts_with(OURS)
}

/// The figure of each malloc in one round.
pub type Round = Vec<Option<f64>>;
/// A figure for each malloc.
pub type Row = Vec<Option<f64>>;
/// The ends of an interval for each malloc.
pub type Intervals = Vec<Option<(f64, f64)>>;

/// One measure of all samples.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    mallocs: Vec<String>,
    runs: Vec<(String, Vec<Round>)>,
}

impl Figures {
    /// Of these samples. Runs without any are left out.
    pub fn of(visits: &Visits, mallocs: &[String], measure: &str) -> Self {
        let figure = |sample: Option<&super::samples::Sample>| sample?.figures.get(measure).copied();
        let runs = visits.iter().filter(|(_, rounds)| !rounds.is_empty()).map(|(run, rounds)| {
            let round =
                |round: &super::samples::Round| mallocs.iter().map(|name| figure(round.get(name))).collect();
            (run.clone(), rounds.iter().map(round).collect())
        });
        Self { mallocs: mallocs.to_vec(), runs: runs.collect() }
    }

    /// All of it.
    pub fn view(&self) -> View<'_> {
        self.only(|_| true)
    }

    /// The runs that `wanted` says.
    pub fn only(&self, wanted: impl Fn(&str) -> bool) -> View<'_> {
        let runs = self.runs.iter().filter(|(run, _)| wanted(run));
        View {
            mallocs: &self.mallocs,
            runs: runs.map(|(run, rounds)| (run.as_str(), rounds.iter().collect())).collect(),
        }
    }
}

/// Some of the rounds of some runs, or the same drawn anew.
#[derive(Debug, Clone)]
pub struct View<'a> {
    /// Whose figures they are.
    pub mallocs: &'a [String],
    /// The rounds of each run.
    pub runs: Vec<(&'a str, Vec<&'a Round>)>,
}

/// A run, and a figure of each malloc at it.
pub type Table<'a> = Vec<(&'a str, Row)>;

impl<'a> View<'a> {
    /// The place of a malloc.
    pub fn place(&self, name: &str) -> Option<usize> {
        self.mallocs.iter().position(|malloc| malloc == name)
    }

    fn is_peer(&self, place: usize) -> bool {
        is_peer(&self.mallocs[place])
    }

    fn row(&self, of: impl Fn(usize) -> Option<f64>) -> Row {
        (0..self.mallocs.len()).map(of).collect()
    }

    /// The medians over the rounds.
    pub fn medians(&self) -> Table<'a> {
        let of_run = |rounds: &Vec<&Round>| self.row(|place| median(&column(rounds, place)));
        self.runs.iter().map(|(run, rounds)| (*run, of_run(rounds))).collect()
    }

    /// What each is of the best peer, at the runs that a peer could do.
    pub fn ratios(&self) -> Table<'a> {
        let ratio = |(run, row): (&'a str, Row)| {
            let best = self.best(&row)?.1;
            (best > 0.0).then(|| (run, row.iter().map(|figure| figure.map(|f| f / best)).collect()))
        };
        self.medians().into_iter().filter_map(ratio).collect()
    }

    /// The peer with the least figure, and that figure.
    pub fn best(&self, row: &Row) -> Option<(usize, f64)> {
        let peers = row.iter().enumerate().filter(|(place, _)| self.is_peer(*place));
        peers.filter_map(|(place, figure)| Some((place, (*figure)?))).min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// The geometric mean of a malloc's ratios, and of how many runs it is.
    pub fn means(&self) -> Vec<Option<(f64, usize)>> {
        let ratios = self.ratios();
        let of = |place: usize| {
            let values: Vec<f64> = ratios.iter().filter_map(|(_, row)| row[place]).collect();
            Some((geometric_mean(&values)?, values.len()))
        };
        (0..self.mallocs.len()).map(of).collect()
    }

    /// The same without the number of runs.
    pub fn mean_row(&self) -> Row {
        self.means().into_iter().map(|mean| mean.map(|(mean, _)| mean)).collect()
    }

    /// What each is of the best peer within each round, where the other rounds say which peer that is: of nine noisy peers
    /// the best median is one that had luck, and a round without a say knows nothing of that luck.
    pub fn without_luck(&self) -> Figures {
        let of_run = |rounds: &Vec<&Round>| {
            let of_round = |(number, round): (usize, &&Round)| {
                let others = rounds.iter().enumerate().filter(|(other, _)| *other != number);
                let best = self.best_by_level(&others.map(|(_, round)| *round).collect::<Vec<_>>())?;
                let base = round[best].filter(|figure| *figure > 0.0)?;
                Some(round.iter().map(|figure| figure.filter(|f| *f > 0.0).map(|f| f / base)).collect())
            };
            rounds.iter().enumerate().filter_map(of_round).collect()
        };
        let runs = self.runs.iter().map(|(run, rounds)| ((*run).to_owned(), of_run(rounds)));
        Figures { mallocs: self.mallocs.to_vec(), runs: runs.collect() }
    }

    /// The peer that is lowest beside the level of each round, so that a machine whose speed drifts has no part in it.
    fn best_by_level(&self, rounds: &[&Round]) -> Option<usize> {
        let mut levels: Vec<Vec<f64>> = vec![Vec::new(); self.mallocs.len()];
        for round in rounds {
            let peers = || round.iter().enumerate().filter(|(place, _)| self.is_peer(*place));
            let figures: Vec<(usize, f64)> = peers()
                .filter_map(|(place, figure)| Some((place, (*figure).filter(|f| *f > 0.0)?)))
                .collect();
            let Some(level) = median(&figures.iter().map(|(_, figure)| *figure).collect::<Vec<_>>()) else {
                continue;
            };
            figures.iter().for_each(|(place, figure)| levels[*place].push(figure / level));
        }
        let of_all = levels.iter().enumerate().filter_map(|(place, levels)| Some((place, median(levels)?)));
        of_all.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(place, _)| place)
    }

    /// The geometric mean over the runs of the median over the rounds.
    pub fn means_of_medians(&self) -> Row {
        let medians = self.medians();
        self.row(|place| {
            geometric_mean(&medians.iter().filter_map(|(_, row)| row[place]).collect::<Vec<_>>())
        })
    }

    /// What we are of each peer: the median over the rounds of the ratio within one round, and the geometric mean of this
    /// over the runs. What changes the machine's speed falls out, and a single peer has no luck.
    pub fn against(&self) -> Row {
        let Some(ours) = self.place(OURS) else { return self.row(|_| None) };
        self.row(|place| {
            let of_run = |(_, rounds): &(&str, Vec<&Round>)| {
                median(&self.within(rounds, ours, place).collect::<Vec<_>>())
            };
            geometric_mean(&self.runs.iter().filter_map(of_run).collect::<Vec<_>>())
        })
    }

    /// What `ours` is of a peer in each round that has both.
    fn within(&self, rounds: &'a [&Round], ours: usize, place: usize) -> impl Iterator<Item = f64> {
        let positive = |figure: Option<f64>| figure.filter(|f| *f > 0.0);
        let rounds = rounds.iter().filter(move |_| self.is_peer(place));
        rounds.filter_map(move |round| Some(positive(round[ours])? / positive(round[place])?))
    }

    /// The peers that are ahead of us at one run beyond noise, and what we are of them, farthest first. Each round's ratio
    /// would be as likely above 1 as below without a difference. A peer is named where so clear a result has less than 5 %
    /// probability, corrected for the number of peers (Holm). `None`: too few rounds to tell.
    pub fn ahead(&self, run: usize) -> Option<Vec<(&'a str, f64)>> {
        let ours = self.place(OURS)?;
        let rounds = &self.runs[run].1;
        let of = |place: usize| (place, self.within(rounds, ours, place).map(f64::ln).collect::<Vec<f64>>());
        let mut peers: Vec<(usize, Vec<f64>)> =
            (0..self.mallocs.len()).map(of).filter(|(_, values)| !values.is_empty()).collect();
        let fewest = peers.iter().map(|(_, values)| values.len()).min()?;
        if 0.5f64.powi(fewest as i32) * peers.len() as f64 > LEVEL {
            return None;
        }
        peers.sort_by(|a, b| stats::sign_flips(&a.1).total_cmp(&stats::sign_flips(&b.1)));
        let count = peers.len();
        let clear = |(at, (_, values)): &(usize, (usize, Vec<f64>))| {
            stats::sign_flips(values) * (count - at) as f64 <= LEVEL
        };
        let named = peers.into_iter().enumerate().take_while(clear);
        let mut found: Vec<(&str, f64)> = named
            .filter_map(|(_, (place, values))| Some((self.mallocs[place].as_str(), median(&values)?.exp())))
            .collect();
        found.sort_by(|a, b| b.1.total_cmp(&a.1));
        Some(found)
    }

    /// The runs at which we are more than `limit` times the best peer: the run, how many times, which peer; worst first.
    pub fn beyond(&self, limit: f64) -> Vec<(&'a str, f64, &'a str)> {
        let Some(ours) = self.place(OURS) else { return Vec::new() };
        let far = |(run, row): (&'a str, Row)| {
            let (best, least) = self.best(&row)?;
            let ratio = row[ours]? / least;
            (least > 0.0 && ratio > limit).then(|| (run, ratio, self.mallocs[best].as_str()))
        };
        let mut found: Vec<_> = self.medians().into_iter().filter_map(far).collect();
        found.sort_by(|a, b| b.1.total_cmp(&a.1));
        found
    }

    /// The 95 % bootstrap interval of what `of` says: the rounds of each run are drawn again. Without enough rounds nobody
    /// has one.
    pub fn intervals(&self, of: impl Fn(&View<'a>) -> Row) -> Intervals {
        let fewest = self.runs.iter().map(|(_, rounds)| rounds.len()).min().unwrap_or(0);
        if fewest < FEWEST {
            return vec![None; self.mallocs.len()];
        }
        let mut rng = Rng::new(1);
        let mut drawn: Vec<Vec<f64>> = vec![Vec::new(); self.mallocs.len()];
        for _ in 0..RESAMPLES {
            let row = of(&self.drawn(&mut rng));
            row.iter().zip(&mut drawn).for_each(|(figure, drawn)| drawn.extend(figure));
        }
        drawn.iter_mut().map(|values| stats::middle_95(values)).collect()
    }

    fn drawn(&self, rng: &mut Rng) -> View<'a> {
        let mut again = |rounds: &Vec<&'a Round>| -> Vec<&'a Round> {
            (0..rounds.len()).map(|_| rounds[rng.below(rounds.len())]).collect()
        };
        let runs = self.runs.iter().map(|(run, rounds)| (*run, again(rounds))).collect();
        View { mallocs: self.mallocs, runs }
    }
}

/// The figures that a malloc has.
pub fn column(rounds: &[&Round], place: usize) -> Vec<f64> {
    rounds.iter().filter_map(|round| round[place]).collect()
}
