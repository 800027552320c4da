// SPDX-License-Identifier: MIT
//! The first pass over a trace: what is known of a block only when it ends, and where the recorder looked at the process.

use quarry_trace::{AllocApi, Event, FreeApi, Trace, TraceError, Usage, What};

use crate::handed::{Handed, Hands, Life};
use crate::hash::{AddressMap, AddressSet};
use crate::lives::{Lives, Written};

/// Most looks of a plan.
const LOOKS: usize = 1000;

/// What the first pass found.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// Of blocks.
    pub(crate) written: Written,
    /// Every so many looks are kept, and the last.
    step: usize,
    looks: usize,
    pub(crate) usage: Vec<Usage>,
    /// What the process ended with, if it ended in order.
    pub(crate) status: Option<u32>,
    pub(crate) modules: Vec<String>,
    /// What one thread makes and another one frees.
    pub(crate) handed: Handed,
    pub(crate) bytes_read: u64,
}

impl Survey {
    pub(crate) fn new(trace: &Trace, progress: &mut dyn FnMut(u64) -> bool) -> Result<Self, TraceError> {
        const STEP: u64 = 1 << 16;
        let mut survey = Self::default();
        let mut lives = Lives::default();
        let (mut blocks, mut pool_blocks) = (AddressMap::<Life>::default(), AddressSet::default());
        let mut hands = Hands::default();
        let (mut events, mut count) = (trace.events(), 0u64);
        while let Some(event) =
            events.next_with(|address| blocks.contains_key(&address) || pool_blocks.contains(&address))
        {
            let event = event?;
            survey.note(&event);
            survey.written.note(&event, &lives);
            lives.begun_by(&event);
            follow(&event, &mut blocks, &mut pool_blocks, &mut hands);
            count += 1;
            if count.is_multiple_of(STEP) && !progress(events.bytes_read()) {
                break;
            }
        }
        survey.bytes_read = events.bytes_read();
        survey.handed = hands.sum();
        survey.written.finish(&lives);
        survey.thin_out();
        Ok(survey)
    }

    fn note(&mut self, event: &Event) {
        match &event.what {
            What::Usage(usage) => self.usage.push(**usage),
            What::Exit { status } => self.status = Some(*status),
            What::ModuleLoaded { about, .. } => {
                let about: serde_json::Value = serde_json::from_str(about).unwrap_or_default();
                self.modules.extend(about["path"].as_str().map(str::to_owned));
            }
            _ => {}
        }
    }

    fn thin_out(&mut self) {
        self.looks = self.usage.len();
        self.step = self.looks.div_ceil(LOOKS).max(1);
        let mut number = 0;
        let kept: Vec<bool> = (0..self.looks).map(|look| self.is_kept(look)).collect();
        self.usage.retain(|_| {
            number += 1;
            kept[number - 1]
        });
    }

    /// Is this look, by its number in the trace, one of the plan?
    pub(crate) fn is_kept(&self, look: usize) -> bool {
        look < self.looks && (look.is_multiple_of(self.step) || self.is_last(look))
    }

    /// Is it the last of the trace?
    pub(crate) fn is_last(&self, look: usize) -> bool {
        look + 1 == self.looks
    }
}

/// Which addresses are taken, with the blocks: the order of events depends on it.
fn follow(event: &Event, blocks: &mut AddressMap<Life>, pool_blocks: &mut AddressSet, hands: &mut Hands) {
    let make = |blocks: &mut AddressMap<Life>, hands: &mut Hands, address: u64, size: u64| {
        let life = hands.make(event.thread, size);
        if let Some(before) = blocks.insert(address, life) {
            hands.end(before, None);
        }
    };
    match event.what {
        What::Alloc { api: AllocApi::Pool, address, .. } => drop(pool_blocks.insert(address)),
        What::Alloc { size, address, .. } => {
            hands.next();
            make(blocks, hands, address, size);
        }
        What::Free { api: FreeApi::Other, address, .. } if pool_blocks.remove(&address) => {}
        What::Free { address, .. } => {
            hands.next();
            blocks.remove(&address).into_iter().for_each(|life| hands.end(life, Some(event.thread)));
        }
        What::Realloc { old, size, new, .. } => {
            hands.next();
            blocks.remove(&old).into_iter().for_each(|life| hands.end(life, Some(event.thread)));
            make(blocks, hands, new, size);
        }
        _ => {}
    }
}
