// SPDX-License-Identifier: MIT
//! What a synthetic trace is made of: phases, each of which says what its allocations are like. As JSON it is the
//! model file (`docs/generate.md`).

use std::collections::BTreeSet;

use quarry_trace::{AllocApi, ThreadId};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::dist::{Dist, MOST};
use crate::names;

/// The schema of model files.
pub const SCHEMA: &str = "quarry-model/1";

/// Threads a model may have.
pub const THREADS: u32 = 1 << 16;

/// What a trace is made of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// [`SCHEMA`]
    pub schema: String,
    /// Where it comes from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// Is what lives at the end freed then?
    #[serde(default)]
    pub free_all: bool,
    /// One after the other; what an earlier one allocated may be freed in a later one.
    pub phases: Vec<Phase>,
}

/// A part of a trace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// How many.
    pub allocations: u64,
    /// Allocations in a second of the trace's clock.
    #[serde(default = "default_rate")]
    pub rate: f64,
    /// They are drawn from distributions. Either this or `counted`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drawn: Option<Drawn>,
    /// They are counted from a trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<Counted>,
}

fn default_rate() -> f64 {
    5e6
}

/// Allocations that are drawn from distributions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Drawn {
    /// Bytes.
    pub sizes: Dist,
    /// How many further allocations, of any thread, a block outlives.
    pub lifetimes: Dist,
    /// The share of blocks that die in the opposite order of their birth.
    pub lifo: f64,
    /// The share that dies in the order of birth.
    pub fifo: f64,
    /// How many threads allocate.
    pub threads: u32,
    /// How much each of them allocates, in any unit; empty: all alike.
    pub rates: Vec<f64>,
    /// The share of blocks that another thread frees: 1 and 2 do it for each other, 3 and 4, ...
    pub handover: f64,
    /// Instead: who frees what whom, `[allocating thread, freeing thread, weight]`; threads that do not
    /// stand here free their own.
    pub handovers: Vec<(ThreadId, ThreadId, f64)>,
    /// Blocks that are reallocated.
    pub growth: Option<Growth>,
    /// Bytes that may live at a time. Blocks die early to keep to it.
    pub max_live: Option<u64>,
    /// The share that is asked for with calloc.
    pub calloc: f64,
}

impl Default for Drawn {
    fn default() -> Self {
        Self {
            sizes: Dist::LogNormal { median: 64.0, sigma: 1.2 },
            lifetimes: Dist::LogNormal { median: 100.0, sigma: 2.0 },
            lifo: 0.0,
            fifo: 0.0,
            threads: 1,
            rates: Vec::new(),
            handover: 0.0,
            handovers: Vec::new(),
            growth: None,
            max_live: None,
            calloc: 0.0,
        }
    }
}

/// Blocks that are reallocated, as growing arrays are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Growth {
    /// The share of blocks that are.
    pub share: f64,
    /// How often on average: from once to twice this number less one, all alike.
    #[serde(default = "default_steps")]
    pub steps: f64,
    /// By what the size is multiplied each time; below 1 it shrinks.
    #[serde(default = "default_factor")]
    pub factor: f64,
}

fn default_steps() -> f64 {
    3.0
}

fn default_factor() -> f64 {
    2.0
}

/// Allocations that are counted: they are all made, in random order.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counted {
    /// What there is of each sort.
    pub cells: Vec<Cell>,
    /// Who frees what whom: allocating thread, freeing thread, blocks. Threads that do not stand here, and what
    /// is left over, free their own.
    pub handovers: Vec<(ThreadId, ThreadId, u64)>,
}

/// Allocations of one sort.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// How many.
    #[serde(rename = "n")]
    pub count: u64,
    /// Which thread allocates.
    pub thread: ThreadId,
    /// Bytes, from and to.
    pub size: (u64, u64),
    /// By which function: malloc, calloc, ...
    #[serde(default, skip_serializing_if = "is_malloc", with = "api_name")]
    pub api: Api,
    /// log2 of the alignment asked for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub align: u8,
    /// When it is freed.
    pub life: Life,
    /// How it is reallocated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grows: Option<Grows>,
}

/// [`AllocApi`] with malloc as its default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Api(pub AllocApi);

impl Default for Api {
    fn default() -> Self {
        Api(AllocApi::Malloc)
    }
}

fn is_malloc(api: &Api) -> bool {
    api.0 == AllocApi::Malloc
}

fn is_zero(n: &u8) -> bool {
    *n == 0
}

mod api_name {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use super::Api;
    use crate::names;

    pub fn serialize<S: Serializer>(api: &Api, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(names::of_alloc(api.0))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Api, D::Error> {
        let name = String::deserialize(from)?;
        names::alloc(&name)
            .map(Api)
            .ok_or_else(|| D::Error::custom(format!("no function is called '{name}'")))
    }
}

/// When a block is freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Life {
    /// After so many further allocations, from and to.
    After(u64, u64),
    /// In the phase that many after its own.
    Phase(u32),
    /// After the last allocation of all.
    End,
    /// Not at all.
    Never,
}

/// How a block is reallocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grows {
    /// So often.
    pub steps: u32,
    /// Bytes in the end, from and to; those between are in geometric sequence.
    pub last: (u64, u64),
    /// Allocations from its birth to its last reallocation, from and to.
    pub span: (u64, u64),
}

/// Why a model cannot be used.
#[derive(Debug, Error)]
pub enum ModelError {
    /// It is not JSON, or not of this form.
    #[error("is no model: {0}")]
    Json(#[from] serde_json::Error),
    /// It is something else.
    #[error("has the schema '{0}', and not {SCHEMA}")]
    Schema(String),
    /// A phase says what cannot be.
    #[error("phase {phase}: {what}")]
    Phase {
        /// from 1
        phase: usize,
        /// what cannot be
        what: String,
    },
    /// There is nothing to do.
    #[error("has no phases")]
    Empty,
}

impl Model {
    /// A model of these phases.
    pub fn new(about: String, phases: Vec<Phase>) -> Self {
        Self { schema: SCHEMA.to_owned(), about, free_all: false, phases }
    }

    /// Read a model file.
    pub fn from_json(text: &[u8]) -> Result<Self, ModelError> {
        let model: Model = serde_json::from_slice(text)?;
        model.check()?;
        Ok(model)
    }

    /// The text of a model file: a line for each phase, and for each cell of one.
    pub fn to_json(&self) -> String {
        let mut text = format!("{{\"schema\":{},\n", json(&self.schema));
        if !self.about.is_empty() {
            text += &format!("\"about\":{},\n", json(&self.about));
        }
        text += &format!("\"free_all\":{},\n\"phases\":[", self.free_all);
        for (index, phase) in self.phases.iter().enumerate() {
            text += if index > 0 { ",\n" } else { "\n" };
            match &phase.counted {
                None => text += &json(phase),
                Some(counted) => {
                    text +=
                        &format!("{{\"allocations\":{},\"rate\":{},", phase.allocations, json(&phase.rate));
                    text += &format!("\"counted\":{{\"handovers\":{},\"cells\":[", json(&counted.handovers));
                    for (index, cell) in counted.cells.iter().enumerate() {
                        text += if index > 0 { ",\n " } else { "\n " };
                        text += &json(cell);
                    }
                    text += "]}}";
                }
            }
        }
        text + "\n]}\n"
    }

    /// Does it say what can be?
    pub fn check(&self) -> Result<(), ModelError> {
        if self.schema != SCHEMA {
            return Err(ModelError::Schema(self.schema.clone()));
        }
        if self.phases.is_empty() {
            return Err(ModelError::Empty);
        }
        let mut total = 0_u64;
        for (index, phase) in self.phases.iter().enumerate() {
            let wrong = |what: String| ModelError::Phase { phase: index + 1, what };
            total = total
                .checked_add(phase.allocations)
                .filter(|&total| total < MOST)
                .ok_or_else(|| wrong("more than 2^46 allocations".into()))?;
            phase.check().map_err(wrong)?;
        }
        Ok(())
    }

    /// Allocations in all.
    pub fn allocations(&self) -> u64 {
        self.phases.iter().map(|phase| phase.allocations).sum()
    }
}

/// JSON of what models are made of, which has no maps; writing to memory cannot fail.
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

impl Phase {
    fn check(&self) -> Result<(), String> {
        if !(self.rate > 0.0 && self.rate <= 1e9) {
            return Err(format!(
                "the rate {} is not above 0 and at most 1e9 allocations in a second",
                self.rate
            ));
        }
        match (&self.drawn, &self.counted) {
            (Some(drawn), None) => drawn.check(),
            (None, Some(counted)) => counted.check(self.allocations),
            _ => Err("needs 'drawn' or 'counted', and not both".into()),
        }
    }
}

fn share(name: &str, value: f64) -> Result<(), String> {
    if (0.0..=1.0).contains(&value) {
        Ok(())
    } else {
        Err(format!("{name} must be from 0 to 1, and is {value}"))
    }
}

impl Drawn {
    fn check(&self) -> Result<(), String> {
        if self.sizes == Dist::Never {
            return Err("'never' is no size".into());
        }
        for (name, value) in [("handover", self.handover), ("calloc", self.calloc), ("lifo", self.lifo)] {
            share(name, value)?;
        }
        share("fifo", self.fifo)?;
        share("the sum of lifo and fifo", self.lifo + self.fifo)?;
        if self.threads == 0 || self.threads > THREADS {
            return Err(format!("threads must be from 1 to {THREADS}, and are {}", self.threads));
        }
        let weight = |w: &f64| w.is_finite() && *w >= 0.0;
        if !self.rates.is_empty()
            && (self.rates.len() != self.threads as usize
                || !self.rates.iter().all(weight)
                || self.rates.iter().sum::<f64>() <= 0.0)
        {
            return Err(format!("rates must be {} numbers, not negative and not all 0", self.threads));
        }
        let mut from = BTreeSet::new();
        for (allocates, frees, w) in &self.handovers {
            if ![allocates, frees].iter().all(|t| (1..=THREADS).contains(*t)) || !weight(w) {
                return Err("handovers must be [thread, thread, weight]".into());
            }
            if *w > 0.0 {
                from.insert(allocates);
            }
        }
        if self.handovers.iter().any(|(allocates, ..)| !from.contains(allocates)) {
            return Err("handovers of a thread must not all have the weight 0".into());
        }
        if self.max_live == Some(0) {
            return Err("max_live must be above 0".into());
        }
        if let Some(growth) = &self.growth {
            share("the share of growth", growth.share)?;
            if !(1.0..=1000.0).contains(&growth.steps) {
                return Err("the steps of growth must be from 1 to 1000".into());
            }
            if !(0.001..=1000.0).contains(&growth.factor) {
                return Err("the factor of growth must be from 0.001 to 1000".into());
            }
        }
        Ok(())
    }
}

impl Counted {
    fn check(&self, allocations: u64) -> Result<(), String> {
        let mut total = 0_u64;
        for cell in &self.cells {
            let range = |(from, to): (u64, u64)| from <= to && to <= MOST;
            let grows = cell
                .grows
                .is_none_or(|grows| range(grows.last) && range(grows.span) && grows.steps <= 10_000);
            let life = if let Life::After(from, to) = cell.life { range((from, to)) } else { true };
            let align = cell.align <= 46 && (cell.align == 0 || names::has_align(cell.api.0));
            if !(range(cell.size) && grows && life && (1..=THREADS).contains(&cell.thread) && align) {
                return Err(format!("a cell that cannot be: {}", json(cell)));
            }
            total = total.saturating_add(cell.count);
        }
        if total != allocations || total > u64::from(u32::MAX) {
            return Err(format!(
                "the cells count {total} allocations, the phase {allocations} (of at most 2^32)"
            ));
        }
        let thread = |t: ThreadId| (1..=THREADS).contains(&t);
        let mut handed = 0_u64;
        for &(from, to, count) in &self.handovers {
            handed = handed.saturating_add(count);
            if !thread(from) || !thread(to) || handed > total {
                return Err(
                    "handovers that cannot be: more than there are allocations, or threads above 65536"
                        .into(),
                );
            }
        }
        Ok(())
    }
}
