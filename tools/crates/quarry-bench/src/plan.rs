// SPDX-License-Identifier: MIT
//! What is to be run: groups of jobs. A group is a point of a scenario, a job one contender at it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::catalog::{Forecast, Kind, NOTHING, OTHERS, Options, Scalar, Scenario, Size};
use crate::results::{About, Contender, Point, Role};

/// A contender with what it takes to run under it.
#[derive(Debug, Clone)]
pub struct Entrant {
    /// What reports say of it.
    pub about: Contender,
    /// The library, to look for in the process.
    pub library: Option<PathBuf>,
    /// LD_PRELOAD.
    pub preload: Option<OsString>,
    /// False: it is known not to serve malloc, and is not run.
    pub usable: bool,
}

/// How a scenario is started.
#[derive(Debug, Clone)]
pub struct Start {
    /// The program.
    pub program: PathBuf,
    /// What it prints.
    pub kind: Kind,
    /// The plan of a simulation.
    pub plan: Option<PathBuf>,
}

/// One contender at one point.
#[derive(Debug, Clone)]
pub struct Job {
    /// Index of the entrant.
    pub entrant: usize,
    /// The options.
    pub args: Vec<String>,
    /// The same with quick sizes, to see how long it will take.
    pub probe: Vec<String>,
    /// Variables.
    pub env: BTreeMap<String, String>,
}

/// A point of a scenario.
#[derive(Debug, Clone)]
pub struct Group {
    /// Index of the scenario, in [`Plan::abouts`].
    pub scenario: usize,
    /// The values of its axes.
    pub point: Point,
    /// How it is started.
    pub start: Start,
    /// The number of processors; none: all.
    pub processors: Option<usize>,
    /// From the time of a probe to that of a run.
    pub forecast: Forecast,
    /// In the quick set, so many rounds are enough; none: as many as there are.
    pub rounds: Option<usize>,
    /// The contenders; where there are mallocs, the system's is the first.
    pub jobs: Vec<Job>,
}

/// All that is to be run.
#[derive(Debug)]
pub struct Plan {
    /// Which set.
    pub size: Size,
    /// Everybody: first the mallocs as given, then variants and pools as the scenarios name them.
    pub entrants: Vec<Entrant>,
    /// The scenarios.
    pub abouts: Vec<About>,
    /// The groups.
    pub groups: Vec<Group>,
}

/// Options as words of a command line.
pub fn words(options: &Options) -> Vec<String> {
    let mut words = Vec::new();
    for (name, value) in options {
        match value {
            Scalar::Switch(false) => {}
            Scalar::Switch(true) => words.push(format!("--{name}")),
            value => words.extend([format!("--{name}"), value.to_string()]),
        }
    }
    words
}

/// All combinations of the values of the axes; the last axis changes fastest.
fn points(scenario: &Scenario, size: Size, processors: usize) -> Vec<Point> {
    let mut points = vec![Point::new()];
    for axis in &scenario.axes {
        let values = axis.values(size, processors);
        points = points
            .iter()
            .flat_map(|point| {
                values.iter().map(|value| {
                    let mut point = point.clone();
                    point.insert(axis.name.clone(), value.clone());
                    point
                })
            })
            .collect();
    }
    points
}

impl Plan {
    /// Plan these scenarios on these mallocs; `extras` take part only where a scenario names them. `start` finds a scenario's program, or says why there is none: then it is
    /// reported as missing.
    pub fn new(
        scenarios: &[&Scenario],
        size: Size,
        mallocs: Vec<Entrant>,
        extras: &[Entrant],
        processors: usize,
        mut start: impl FnMut(&Scenario) -> Result<Start, String>,
    ) -> Self {
        let given = mallocs.len();
        let mut plan = Plan { size, entrants: mallocs, abouts: Vec::new(), groups: Vec::new() };
        for scenario in scenarios {
            let mut about = About::of(scenario, size);
            match start(scenario) {
                Ok(start) => {
                    let who = plan.contenders(scenario, given, extras);
                    plan.scenario(scenario, start, &who, processors);
                }
                Err(why) => about.missing = Some(why),
            }
            plan.abouts.push(about);
        }
        plan
    }

    fn scenario(&mut self, scenario: &Scenario, start: Start, who: &[usize], processors: usize) {
        if who.is_empty() {
            return;
        }
        for point in points(scenario, self.size, processors) {
            let jobs = who.iter().map(|&entrant| self.job(scenario, &point, entrant)).collect();
            self.groups.push(Group {
                scenario: self.abouts.len(),
                point,
                start: start.clone(),
                processors: scenario.processors,
                forecast: scenario.forecast(self.size),
                rounds: scenario.quick_rounds.filter(|_| self.size == Size::Quick),
                jobs,
            });
        }
    }

    /// Who takes part in a scenario.
    fn contenders(&mut self, scenario: &Scenario, given: usize, extras: &[Entrant]) -> Vec<usize> {
        let mut who: Vec<usize> = Vec::new();
        if scenario.has_mallocs() {
            who.extend(0..given);
        }
        for variant in &scenario.variants {
            let of = self.entrants[..given].iter().find(|entrant| entrant.about.name == variant.of);
            let Some(of) = of else { continue };
            let mut entrant = of.clone();
            entrant.about.name.clone_from(&variant.name);
            entrant.about.role = Role::Variant;
            entrant.about.of = Some(variant.of.clone());
            entrant.about.env.extend(variant.env.clone());
            who.push(self.enter(entrant));
        }
        for name in scenario.pools() {
            if let Some(extra) = extras.iter().find(|extra| extra.about.name == name) {
                let index = self.enter(extra.clone());
                if !who.contains(&index) {
                    who.push(index);
                }
                continue;
            }
            if scenario.kind != Kind::Json {
                continue; // a malloc that is not at hand: only our programs can be told to use a pool
            }
            let role = match name {
                NOTHING => Role::Nothing,
                name if OTHERS.contains(&name) => Role::Other,
                _ => Role::Pool,
            };
            who.push(self.enter(Entrant {
                about: Contender::new(name, role),
                library: None,
                preload: None,
                usable: true,
            }));
        }
        who
    }

    /// The index of this entrant, who may be known from another scenario.
    fn enter(&mut self, entrant: Entrant) -> usize {
        let same = |other: &Entrant| {
            other.about.name == entrant.about.name && other.about.role == entrant.about.role
        };
        match self.entrants.iter().position(same) {
            Some(index) => index,
            None => {
                self.entrants.push(entrant);
                self.entrants.len() - 1
            }
        }
    }

    fn job(&self, scenario: &Scenario, point: &Point, entrant: usize) -> Job {
        let about = &self.entrants[entrant].about;
        let passed = |name: &String| scenario.axes.iter().any(|axis| axis.name == *name && axis.pass);
        let args = |size| {
            let mut options = scenario.fixed(size);
            options
                .extend(point.iter().filter(|(name, _)| passed(name)).map(|(n, v)| (n.clone(), v.clone())));
            let mut args = words(&options);
            if scenario.takes_with && scenario.kind == Kind::Json {
                let with = match about.role {
                    Role::Malloc | Role::Variant => "malloc",
                    Role::Pool | Role::Other | Role::Nothing => about.name.as_str(),
                };
                args.extend([String::from("--with"), with.to_owned()]);
            }
            args
        };
        let fill = |text: &String| {
            let replace = |text: String, (name, value): (&String, &Scalar)| {
                text.replace(&format!("{{{name}}}"), &value.to_string())
            };
            point.iter().fold(text.clone(), replace)
        };
        let env = about.env.iter().map(|(name, value)| (name.clone(), fill(value))).collect();
        Job { entrant, args: args(self.size), probe: args(Size::Quick), env }
    }

    /// Runs of a round.
    pub fn jobs(&self) -> usize {
        self.groups.iter().map(|group| group.jobs.len()).sum()
    }
}

impl Group {
    /// The command of a job. `report` is where a simulation's results go.
    pub fn command(
        &self,
        job: &Job,
        entrant: &Entrant,
        args: &[String],
        report: &std::path::Path,
    ) -> Command {
        let mut command = Command::new(&self.start.program);
        command.args(args).envs(&job.env).stdin(Stdio::null());
        if let Some(plan) = &self.start.plan {
            command.arg("--no-samples").arg("--report").arg(report).arg(plan);
        }
        if let Some(preload) = &entrant.preload {
            command.env("LD_PRELOAD", preload);
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;

    const CATALOG: &str = r#"
[[scenario]]
name = "arenas"
title = "Arenas"
program = "p"
shows = "a"
not_shown = "b"
quick_rounds = 4
with = ["mallocs", "fifo", "nothing"]
options = { fast = true, slow = false }
quick = { count = 5 }
full = { count = 50 }
x = "threads"
charts = ["time"]
[[scenario.axes]]
name = "threads"
quick = [1, 2]
full = [1, 2]
smoke = [1]
[[scenario.axes]]
name = "arenas"
pass = false
quick = [1, 4]
full = [1]
smoke = [1]
[[scenario.variants]]
name = "quarry arenas"
of = "quarry"
env = { QUARRY_CONF = "arenas:{arenas},x:{threads}" }
[[scenario.variants]]
name = "absent arenas"
of = "absent"
[[scenario]]
name = "gone"
title = "Gone"
program = "g"
shows = "a"
not_shown = "b"
with = ["fifo"]
charts = ["bars"]
"#;

    fn malloc(name: &str) -> Entrant {
        Entrant {
            about: Contender::new(name, Role::Malloc),
            library: None,
            preload: Some(OsString::from(format!("/lib/{name}.so"))),
            usable: true,
        }
    }

    fn plan(size: Size) -> Plan {
        let catalog = Catalog::parse(CATALOG).unwrap();
        let all: Vec<&Scenario> = catalog.scenarios.iter().collect();
        let start = |scenario: &Scenario| match scenario.name.as_str() {
            "gone" => Err(String::from("not built")),
            _ => Ok(Start { program: "/bin/p".into(), kind: Kind::Json, plan: None }),
        };
        Plan::new(&all, size, vec![malloc("system"), malloc("quarry")], &[malloc("fifo2")], 2, start)
    }

    #[test]
    fn all_points_and_contenders() {
        let plan = plan(Size::Quick);
        assert_eq!((plan.groups.len(), plan.jobs()), (4, 20));
        let names: Vec<&str> = plan.entrants.iter().map(|e| e.about.name.as_str()).collect();
        assert_eq!(names, ["system", "quarry", "quarry arenas", "fifo", "nothing"]);
        assert_eq!(plan.entrants[4].about.role, Role::Nothing);
        let last = &plan.groups[3];
        assert_eq!(last.rounds, Some(4));
        assert_eq!(last.point["threads"].to_string() + &last.point["arenas"].to_string(), "24");
        assert_eq!(last.jobs[2].args.join(" "), "--count 5 --fast --threads 2 --with malloc");
        assert_eq!(last.jobs[2].env["QUARRY_CONF"], "arenas:4,x:2");
        assert_eq!(last.jobs[3].args.last().unwrap(), "fifo");
        assert!(last.jobs[0].env.is_empty());
        let command = last.command(&last.jobs[2], &plan.entrants[2], &last.jobs[2].args, "/tmp/r".as_ref());
        let variables: Vec<String> = command
            .get_envs()
            .map(|(name, value)| format!("{}={}", name.display(), value.unwrap_or_default().display()))
            .collect();
        assert_eq!(variables, ["LD_PRELOAD=/lib/quarry.so", "QUARRY_CONF=arenas:4,x:2"]);
    }

    #[test]
    fn what_is_not_there_is_said() {
        let plan = plan(Size::Quick);
        assert_eq!(plan.abouts[1].missing.as_deref(), Some("not built"));
        assert!(plan.groups.iter().all(|group| group.scenario == 0));
        assert_eq!(plan.abouts[0].options, "--count 5 --fast");
    }

    #[test]
    fn probes_have_quick_sizes_at_the_points_of_the_full_set() {
        let plan = plan(Size::Full);
        assert_eq!(plan.groups.len(), 2);
        let group = &plan.groups[1];
        assert!((group.forecast.seconds(0.2) - 2.0).abs() < 1e-9 && group.rounds.is_none());
        assert_eq!(group.jobs[0].args.join(" "), "--count 50 --fast --threads 2 --with malloc");
        assert_eq!(group.jobs[0].probe.join(" "), "--count 5 --fast --threads 2 --with malloc");
    }
}
