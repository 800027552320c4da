// SPDX-License-Identifier: MIT
//! What can be typed behind `quarry gen`, and the model that it means.

use std::path::{Path, PathBuf};

use clap::Args;
use quarry_synth::dist::{self, Dist};
use quarry_synth::synth::model::{Drawn, Growth, Model, Phase};

use super::histogram::{self, Of};
use crate::format::{Format, Makes, Product};
use crate::quantity::bytes;
use crate::{failure, opened};

/// Generate a trace: from distributions, from a model, or like a recorded one
///
/// The same options and seed give the same bytes, on every machine. Without -o the trace goes to standard output;
/// with --fit and without -o only the comparison is made.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct GenOptions {
    #[command(flatten)]
    pub product: Product<Self>,
    /// The seed of the random numbers: another N makes another trace of the same kind
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    #[command(flatten)]
    pub simulation: Simulation,
    #[command(flatten)]
    pub shape: Shape,
    /// A phase, with the options below: 'allocations=1m size=constant:64 threads=4'. May be repeated. An option that a
    /// phase leaves out is as outside of phases
    #[arg(long, value_name = "OPTIONS")]
    pub phase: Vec<String>,
    /// Free the blocks that still live at the end
    #[arg(long)]
    pub free_all: bool,
    /// Read the model from this file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["phase", "fit"])]
    pub model: Option<PathBuf>,
    /// Imitate this trace, of any format that quarry convert reads, and say how well
    #[arg(long, value_name = "TRACE", conflicts_with = "phase")]
    pub fit: Option<PathBuf>,
    /// With --fit: cut the trace into N phases [default: one for 500 allocations, at most 200]
    #[arg(long, value_name = "N", requires = "fit", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub phases: Option<u64>,
    /// Write the model to this file
    #[arg(long, value_name = "FILE", conflicts_with = "ms")]
    pub save_model: Option<PathBuf>,
    /// Write the trace without compression
    #[arg(long)]
    pub unpacked: bool,
    /// The summary as JSON (schema quarry-gen/1)
    #[arg(long)]
    pub json: bool,
}

impl Makes for GenOptions {
    const VERB: &'static str = "gen";
    const FORMATS: &'static [Format] = &[Format::Qtr, Format::Ms];
    const PACKS: bool = true;
}

const EXAMPLES: &str =
    "Distributions: constant:N, uniform:A..B, lognormal:MEDIAN,SIGMA, histogram:FILE, and never for
lifetimes. Numbers may end in k, m, g, or kb, mb, gb (units of 1024).

Examples:
  quarry gen -o a.qtr --allocations 10m --size lognormal:64,1.2 --lifetime lognormal:100,2
  quarry gen -o b.qtr --threads 8 --handover 0.3 --max-live 256m --realloc 0.1
  quarry gen -o c.qtr --phase 'allocations=1m lifetime=never' --phase 'allocations=5m lifetime=constant:50'
  quarry gen --fit prog.qtr -o imitation.qtr --save-model prog.json
  quarry gen --model prog.json --seed 2 -o another.qtr
  quarry gen --ms -c 32000 -p 64 -M 100kb -o test.ms   a file for the allocation simulator

Exit code: 0; 1 when a part of TRACE could not be read (the model is of the rest); 125 when nothing was made.";

const OF_MS: &str = "Simulation files (.ms)";

/// Options of simulation files, with the letters and defaults of the original.
#[derive(Args)]
pub struct Simulation {
    /// Make a simulation file: uniform sizes, slot and command drawn independently
    #[arg(long, help_heading = OF_MS, conflicts_with_all = ["model", "fit", "phase"])]
    pub ms: bool,
    /// Least size
    #[arg(short = 'm', long, value_name = "SIZE", default_value = "32", value_parser = bytes,
          requires = "ms", help_heading = OF_MS)]
    pub min: u64,
    /// Largest size
    #[arg(short = 'M', long, value_name = "SIZE", default_value = "16mb", value_parser = bytes,
          requires = "ms", help_heading = OF_MS)]
    pub max: u64,
    /// Commands, not counting the frees at the end
    #[arg(short = 'c', long, value_name = "N", default_value = "128", value_parser = bytes,
          requires = "ms", help_heading = OF_MS)]
    pub commands: u64,
    /// Slots; above 4096 only with --wide
    #[arg(short = 'p', long, value_name = "N", default_value = "16", value_parser = bytes,
          requires = "ms", help_heading = OF_MS)]
    pub pointers: u64,
    /// Allow more than 4096 slots
    #[arg(long, requires = "ms", help_heading = OF_MS)]
    pub wide: bool,
}

const OF_TRACES: &str = "Traces";

/// What allocations are like.
#[derive(Args, Clone)]
pub struct Shape {
    /// Number of allocations [default: 1m]
    #[arg(long, value_name = "N", value_parser = bytes, help_heading = OF_TRACES)]
    pub allocations: Option<u64>,
    /// Sizes of blocks [default: lognormal:64,1.2].
    ///
    /// The FILE of histogram:FILE has lines of SIZE COUNT or FROM TO COUNT, or is what quarry info --json wrote.
    #[arg(long, value_name = "DIST", value_parser = sizes, help_heading = OF_TRACES)]
    pub size: Option<Dist>,
    /// Lifetime of a block: the number of further allocations that it outlives [default: lognormal:100,2]
    #[arg(long, value_name = "DIST", value_parser = lifetimes, help_heading = OF_TRACES)]
    pub lifetime: Option<Dist>,
    /// The share of blocks that die in the opposite order of birth, thread by thread
    #[arg(long, value_name = "SHARE", help_heading = OF_TRACES)]
    pub lifo: Option<f64>,
    /// The share of blocks that die in the order of birth, thread by thread
    #[arg(long, value_name = "SHARE", help_heading = OF_TRACES)]
    pub fifo: Option<f64>,
    /// Number of threads that allocate
    #[arg(long, value_name = "N", help_heading = OF_TRACES)]
    pub threads: Option<u32>,
    /// How much each thread allocates, in any unit [default: all alike]
    #[arg(long, value_name = "WEIGHT,...", value_delimiter = ',', help_heading = OF_TRACES)]
    pub rates: Option<Vec<f64>>,
    /// The share of blocks that another thread frees: threads 1 and 2 free each other's, 3 and 4, ...
    #[arg(long, value_name = "SHARE", help_heading = OF_TRACES)]
    pub handover: Option<f64>,
    /// The share of blocks that are reallocated, how often on average (3), and by what the size is multiplied each time
    /// (2)
    #[arg(long, value_name = "SHARE[,STEPS[,FACTOR]]", value_parser = growth, help_heading = OF_TRACES)]
    pub realloc: Option<Growth>,
    /// Bytes that may live at a time. Blocks die early to keep to it
    #[arg(long, value_name = "SIZE", value_parser = bytes, help_heading = OF_TRACES)]
    pub max_live: Option<u64>,
    /// The share of blocks that calloc allocates
    #[arg(long, value_name = "SHARE", help_heading = OF_TRACES)]
    pub calloc: Option<f64>,
    /// Allocations in a second of the trace's clock [default: 5000000]
    #[arg(long, value_name = "N", help_heading = OF_TRACES)]
    pub rate: Option<f64>,
}

/// Allocations where none are named.
const ALLOCATIONS: u64 = 1 << 20;

fn distribution(text: &str, of: Of) -> Result<Dist, String> {
    match text.strip_prefix("histogram:") {
        Some(path) => histogram::read(Path::new(path), of),
        None => text.parse().map_err(|error: dist::DistError| error.to_string()),
    }
}

fn sizes(text: &str) -> Result<Dist, String> {
    distribution(text, Of::Sizes)
}

fn lifetimes(text: &str) -> Result<Dist, String> {
    distribution(text, Of::Lifetimes)
}

fn growth(text: &str) -> Result<Growth, String> {
    let mut words = text.split(',').map(|word| word.trim().parse::<f64>());
    let mut next = |default: f64| match words.next() {
        None => Ok(default),
        Some(word) => word.map_err(|_| format!("'{text}' is not SHARE[,STEPS[,FACTOR]]")),
    };
    let growth = Growth { share: next(0.0)?, steps: next(3.0)?, factor: next(2.0)? };
    if words.next().is_some() { Err(format!("'{text}' has more than three numbers")) } else { Ok(growth) }
}

impl Shape {
    /// Options of a phase: those said here, else those outside of phases.
    fn phase(&self, text: &str) -> Result<Self, String> {
        let mut shape = self.clone();
        for word in text.split_whitespace() {
            let (key, value) = word.split_once('=').ok_or_else(|| format!("'{word}' is not KEY=VALUE"))?;
            let share = || value.parse::<f64>().map_err(|_| format!("'{word}': '{value}' is no number"));
            match key {
                "allocations" => shape.allocations = Some(bytes(value)?),
                "size" => shape.size = Some(sizes(value)?),
                "lifetime" => shape.lifetime = Some(lifetimes(value)?),
                "lifo" => shape.lifo = Some(share()?),
                "fifo" => shape.fifo = Some(share()?),
                "threads" => {
                    let threads = value.parse().map_err(|_| format!("'{word}': '{value}' is no number"))?;
                    (shape.threads, shape.rates) = (Some(threads), None);
                }
                "rates" => {
                    let rates: Result<Vec<f64>, _> = value.split(',').map(str::parse).collect();
                    shape.rates = Some(rates.map_err(|_| format!("'{word}': say rates=3,1,1"))?);
                }
                "handover" => shape.handover = Some(share()?),
                "realloc" => shape.realloc = Some(growth(value)?),
                "max-live" => shape.max_live = Some(bytes(value)?),
                "calloc" => shape.calloc = Some(share()?),
                "rate" => shape.rate = Some(share()?),
                _ => {
                    let known = "allocations, size, lifetime, lifo, fifo, threads, rates, handover, realloc, max-live, calloc, rate";
                    return Err(format!("a phase has no '{key}'; there are {known}"));
                }
            }
        }
        Ok(shape)
    }

    fn model(&self) -> Phase {
        let default = Drawn::default();
        let threads = self.threads.or(self.rates.as_ref().map(|rates| rates.len() as u32));
        Phase {
            allocations: self.allocations.unwrap_or(ALLOCATIONS),
            rate: self.rate.unwrap_or(5e6),
            drawn: Some(Drawn {
                sizes: self.size.clone().unwrap_or(default.sizes),
                lifetimes: self.lifetime.clone().unwrap_or(default.lifetimes),
                lifo: self.lifo.unwrap_or(0.0),
                fifo: self.fifo.unwrap_or(0.0),
                threads: threads.unwrap_or(1),
                rates: self.rates.clone().unwrap_or_default(),
                handover: self.handover.unwrap_or(0.0),
                handovers: Vec::new(),
                growth: self.realloc.clone(),
                max_live: self.max_live,
                calloc: self.calloc.unwrap_or(0.0),
            }),
            counted: None,
        }
    }

    /// The first option that was given, for those who have no use for any.
    fn given(&self) -> Option<&'static str> {
        let Self {
            allocations,
            size,
            lifetime,
            lifo,
            fifo,
            threads,
            rates,
            handover,
            realloc,
            max_live,
            calloc,
            rate,
        } = self;
        let all = [
            ("--allocations", allocations.is_some()),
            ("--size", size.is_some()),
            ("--lifetime", lifetime.is_some()),
            ("--lifo", lifo.is_some()),
            ("--fifo", fifo.is_some()),
            ("--threads", threads.is_some()),
            ("--rates", rates.is_some()),
            ("--handover", handover.is_some()),
            ("--realloc", realloc.is_some()),
            ("--max-live", max_live.is_some()),
            ("--calloc", calloc.is_some()),
            ("--rate", rate.is_some()),
        ];
        all.iter().find(|(_, given)| *given).map(|(name, _)| *name)
    }
}

impl GenOptions {
    /// Options that would do nothing are errors.
    pub fn check(&self) -> anyhow::Result<()> {
        let without_shape = if self.simulation.ms {
            Some("--ms")
        } else if self.model.is_some() {
            Some("--model")
        } else if self.fit.is_some() {
            Some("--fit")
        } else {
            None
        };
        if let Some((by, option)) = without_shape.zip(self.shape.given()) {
            return Err(failure::usage(format!(
                "{option} says nothing together with {by}; leave one of them out"
            )));
        }
        match self.product.format()? {
            Some(Format::Ms) if !self.simulation.ms => {
                return Err(failure::usage(
                    "a simulation file (ms) is made with --ms; say --ms, or --format qtr",
                ));
            }
            Some(Format::Qtr) if self.simulation.ms => {
                return Err(failure::usage(
                    "--ms makes a simulation file, no qtr; leave --ms out, or say --format ms",
                ));
            }
            _ => {}
        }
        if self.simulation.ms && (self.free_all || self.unpacked) {
            return Err(failure::usage(
                "--free-all and --unpacked are about traces; a simulation file (--ms) frees all anyway",
            ));
        }
        Ok(())
    }

    /// The model of the options, or of the file they name.
    pub fn model(&self) -> anyhow::Result<Model> {
        let mut model = match &self.model {
            Some(path) => {
                let name = path.display();
                let text = opened::text(path)?;
                Model::from_json(text.as_bytes()).map_err(|error| anyhow::anyhow!("{name}: {error}"))?
            }
            None => {
                let phases = if self.phase.is_empty() {
                    vec![self.shape.model()]
                } else {
                    let phases: Result<Vec<Phase>, String> =
                        self.phase.iter().map(|text| Ok(self.shape.phase(text)?.model())).collect();
                    phases.map_err(failure::usage)?
                };
                let model = Model::new(String::new(), phases);
                model.check().map_err(failure::usage)?;
                model
            }
        };
        model.free_all |= self.free_all;
        Ok(model)
    }
}
