// SPDX-License-Identifier: MIT
//! Blocks that one thread hands to another, which frees them. How many of them wait at a time depends on how fast each thread runs, and a
//! trace has one schedule. Here is what it says of others.
//!
//! Time is cut into steps of as many events each. In each step so many bytes wait: those that end later, in another thread than
//! the one that made them. Two threads hand over if some blocks of the first have ended in the second before the first made its last
//! one. Else the second waited for the first, as one does that clears up what another has built, and no schedule changes that.
//!
//! A trace does not show that a block went to another thread and came back. It may have if its thread and another one hand to each other, as
//! their queues do whose own memory is made by one side and freed by the other. So of such threads all blocks count that are made and end
//! while they hand over.

use quarry_trace::ThreadId;
use serde::Serialize;

use crate::hash::{AddressMap, AddressSet};

/// Most steps: then two become one.
const STEPS: u64 = 2048;
/// Events of a step at first, as a power of two.
const STEP_LOG2: u32 = 6;
/// The part of the blocks that end while others are made.
const MEANWHILE: u64 = 20;
/// Steps of blocks that their own thread frees are larger, by a power of two.
const OWN_LOG2: u32 = 3;
/// Of so many moments, all but one have as many bytes waiting.
const MOMENTS: usize = 20;

/// What is handed over, or may be, in requested bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Handed {
    /// All that is.
    pub bytes: u64,
    /// The most that wait at once.
    pub most_bytes: u64,
    /// What waits when most is live.
    pub at_peak_bytes: u64,
    /// By how much less may be live at most: as little waits as in one of 20 moments.
    pub lower_bytes: u64,
    /// By how much more: as much more waits than ever as that is less than the most.
    pub higher_bytes: u64,
}

/// A block that is live.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Life {
    pub(crate) size: u64,
    maker: ThreadId,
    made: u32,
}

/// Bytes of blocks that are made in a step, and of those that end in one.
#[derive(Debug, Default, Clone, Copy)]
struct Step {
    made: u64,
    ended: u64,
}

/// From one thread to another.
#[derive(Debug, Default)]
struct Flow {
    /// By their numbers.
    steps: AddressMap<Step>,
}

impl Flow {
    fn is_while_made(&self) -> bool {
        let last = self.steps.iter().filter(|(_, step)| step.made > 0).map(|(&at, _)| at).max().unwrap_or(0);
        let (all, meanwhile) = self.steps.iter().fold((0, 0), |(all, meanwhile), (&at, step)| {
            (all + step.ended, meanwhile + if at < last { step.ended } else { 0 })
        });
        meanwhile >= all / MEANWHILE && meanwhile > 0
    }

    fn halve(&mut self) {
        let mut halved = AddressMap::<Step>::default();
        for (at, step) in &self.steps {
            let into = halved.entry(at / 2).or_default();
            into.made += step.made;
            into.ended += step.ended;
        }
        self.steps = halved;
    }
}

/// Follows blocks.
#[derive(Debug, Default)]
pub(crate) struct Hands {
    events: u64,
    /// Steps are larger by so many powers of two than at first.
    larger: u32,
    live: u64,
    /// The most live bytes in each step.
    most: Vec<u64>,
    /// By the two threads.
    flows: AddressMap<Flow>,
    /// Bytes of blocks that their own thread frees, by thread and the two steps.
    own: AddressMap<u64>,
}

/// One number of thread and two steps, which are below 2^16.
fn own_key(thread: u64, made: u64, ended: u64) -> u64 {
    thread << 32 | made << 16 | ended
}

fn own_steps(key: u64) -> (u64, u64) {
    (key >> 16 & 0xffff, key & 0xffff)
}

impl Hands {
    /// An event that makes or ends blocks.
    pub(crate) fn next(&mut self) {
        self.events += 1;
        if self.step() >= STEPS {
            self.larger += 1;
            self.most = self.most.chunks(2).map(|pair| pair.iter().copied().max().unwrap_or(0)).collect();
            self.flows.values_mut().for_each(Flow::halve);
            let mut own = AddressMap::<u64>::default();
            for (&key, bytes) in &self.own {
                let (made, ended) = own_steps(key);
                if made / 2 < ended / 2 {
                    *own.entry(own_key(key >> 32, made / 2, ended / 2)).or_default() += bytes;
                }
            }
            self.own = own;
        }
        let steps = self.step() as usize + 1;
        if steps > self.most.len() {
            self.most.resize(steps, self.live);
        }
    }

    fn step(&self) -> u64 {
        self.events >> STEP_LOG2 >> self.larger
    }

    /// A thread makes a block.
    pub(crate) fn make(&mut self, maker: ThreadId, size: u64) -> Life {
        self.live = self.live.saturating_add(size);
        let step = self.step() as usize;
        if let Some(most) = self.most.get_mut(step) {
            *most = self.live.max(*most);
        }
        Life { size, maker, made: u32::try_from(self.events >> STEP_LOG2).unwrap_or(u32::MAX) }
    }

    /// It ends, in this thread; `None`: its end is not in the trace. Thread 0 stands for all that have ended.
    pub(crate) fn end(&mut self, life: Life, ender: Option<ThreadId>) {
        self.live = self.live.saturating_sub(life.size);
        let Some(ender) = ender.filter(|&ender| ender != 0 && life.maker != 0) else { return };
        let (made, ended) = (u64::from(life.made >> self.larger), self.step());
        if ender == life.maker {
            // Before anything is handed over there is nobody to have it.
            if !self.flows.is_empty() && made >> OWN_LOG2 < ended >> OWN_LOG2 {
                let key = own_key(u64::from(ender), made >> OWN_LOG2, ended >> OWN_LOG2);
                let bytes = self.own.entry(key).or_default();
                *bytes = bytes.saturating_add(life.size);
            }
            return;
        }
        let steps = &mut self.flows.entry(u64::from(life.maker) << 32 | u64::from(ender)).or_default().steps;
        for (at, made, ended) in [(made, life.size, 0), (ended, 0, life.size)] {
            let step = steps.entry(at).or_default();
            step.made = step.made.saturating_add(made);
            step.ended = step.ended.saturating_add(ended);
        }
    }

    /// What is handed over, all threads together.
    pub(crate) fn sum(&self) -> Handed {
        let flows: AddressMap<&Flow> = self
            .flows
            .iter()
            .filter(|(_, flow)| flow.is_while_made())
            .map(|(&threads, flow)| (threads, flow))
            .collect();
        let mut steps = vec![Step::default(); self.most.len()];
        for (&at, step) in flows.values().flat_map(|flow| &flow.steps) {
            add(&mut steps, at, *step);
        }
        self.add_own(&mut steps, &flows);
        let last = |is: fn(&Step) -> bool| steps.iter().rposition(is);
        let first = steps.iter().position(|step| step.made > 0);
        let (Some(first), Some(made), Some(ended)) =
            (first, last(|step| step.made > 0), last(|step| step.ended > 0))
        else {
            return Handed::default();
        };
        // What was handed over by then, and what of it waits.
        let (mut bytes, mut waits) = (0u64, 0u64);
        let sums: Vec<(u64, u64)> = steps
            .iter()
            .map(|step| {
                bytes = bytes.saturating_add(step.made);
                waits = waits.saturating_add(step.made).saturating_sub(step.ended);
                (bytes, waits)
            })
            .collect();
        let mut moments: Vec<u64> = sums[first..=made].iter().map(|sum| sum.1).collect();
        moments.sort_unstable();
        let few = moments[moments.len() / MOMENTS];
        let most_bytes = moments.last().copied().unwrap_or(0);
        let many = most_bytes.saturating_add(most_bytes - few);
        let mut handed = Handed { bytes, most_bytes, ..Handed::default() };
        let (mut peak, mut low, mut high, mut before) = (0u64, 0u64, 0u64, 0u64);
        for (at, (&live, &(bytes, waits))) in self.most.iter().zip(&sums).enumerate() {
            // Within a step it may be what waited at either end.
            let waits = std::mem::replace(&mut before, waits).max(waits).min(live);
            let rest = live - waits;
            if live > peak {
                (peak, handed.at_peak_bytes) = (live, waits);
            }
            low = low.max(rest + waits.min(few));
            let could = if at > ended { 0 } else { bytes.min(many) };
            high = high.max(rest.saturating_add(could.max(waits)));
        }
        (handed.lower_bytes, handed.higher_bytes) = (peak - low, high - peak);
        handed
    }

    /// What threads that hand to each other made and freed meanwhile.
    fn add_own(&self, steps: &mut [Step], flows: &AddressMap<&Flow>) {
        let both = |threads: &&u64| flows.contains_key(&threads.rotate_left(32));
        let those: AddressSet = flows.keys().filter(both).map(|threads| threads >> 32).collect();
        let first = steps.iter().position(|step| step.made > 0).unwrap_or(0) as u64;
        let last = steps.iter().rposition(|step| step.made > 0).unwrap_or(0) as u64;
        for (&key, &bytes) in self.own.iter().filter(|(key, _)| those.contains(&(*key >> 32))) {
            let (made, ended) = own_steps(key);
            let (made, ended) = (made << OWN_LOG2, ended << OWN_LOG2);
            if made >= first && ended <= last {
                add(steps, made, Step { made: bytes, ended: 0 });
                add(steps, ended, Step { made: 0, ended: bytes });
            }
        }
    }
}

fn add(steps: &mut [Step], at: u64, step: Step) {
    let into = &mut steps[at as usize];
    into.made = into.made.saturating_add(step.made);
    into.ended = into.ended.saturating_add(step.ended);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each event does: which thread makes a block, or ends the oldest.
    enum Do {
        Make(ThreadId),
        End(ThreadId),
    }

    fn handed(events: impl IntoIterator<Item = Do>) -> Handed {
        let (mut hands, mut blocks) = (Hands::default(), std::collections::VecDeque::new());
        for event in events {
            hands.next();
            match event {
                Do::Make(thread) => blocks.push_back(hands.make(thread, 1000)),
                Do::End(thread) => {
                    let life = blocks.pop_front().unwrap();
                    hands.end(life, Some(thread));
                }
            }
        }
        hands.sum()
    }

    /// `times`: make so many, end so many, again and again.
    fn waves(times: usize, deep: usize, maker: ThreadId, ender: ThreadId) -> impl Iterator<Item = Do> {
        let wave = move |_| {
            let make = (0..deep).map(move |_| Do::Make(maker));
            make.chain((0..deep).map(move |_| Do::End(ender)))
        };
        (0..times).flat_map(wave)
    }

    #[test]
    fn what_a_thread_frees_of_its_own_does_not_wait() {
        assert_eq!(handed(waves(100, 1000, 1, 1)), Handed::default());
        assert_eq!(handed([]), Handed::default());
    }

    #[test]
    fn what_is_built_and_then_cleared_up_by_another_does_not_wait() {
        assert_eq!(handed(waves(1, 100_000, 1, 2)), Handed::default());
    }

    #[test]
    fn a_queue_that_fills_and_empties_could_be_empty_or_twice_as_deep() {
        let handed = handed(waves(50, 2000, 1, 2));
        assert_eq!(handed.bytes, 50 * 2_000_000);
        // Steps are of 128 events here.
        let near = |value: u64, expected: u64| value.abs_diff(expected) < 300_000;
        assert!(near(handed.most_bytes, 2_000_000) && near(handed.at_peak_bytes, 2_000_000), "{handed:?}");
        assert!(near(handed.lower_bytes, 2_000_000) && near(handed.higher_bytes, 2_000_000), "{handed:?}");
    }

    /// Two threads whose queues are made by one side and freed by the other.
    #[test]
    fn what_comes_back_to_its_thread_may_have_waited_elsewhere() {
        let (mut hands, mut blocks) = (Hands::default(), std::collections::VecDeque::new());
        let mut own = |hands: &mut Hands, makes: bool, both: bool| {
            hands.next();
            if makes {
                return blocks.push_back(hands.make(1, 1000));
            }
            hands.end(blocks.pop_front().unwrap(), Some(1));
            for (maker, ender) in [(1, 2), (2, 1)].into_iter().take(1 + usize::from(both)) {
                hands.next();
                let node = hands.make(maker, 8);
                hands.next();
                hands.end(node, Some(ender));
            }
        };
        let mut sum = |both: bool| {
            hands = Hands::default();
            // The queues are in use before anything waits.
            let begins = (0..2000).map(|at| at % 2 == 0);
            let waves = (0..20_000).map(|at| at % 4000 < 2000);
            begins.chain(waves).for_each(|makes| own(&mut hands, makes, both));
            hands.sum()
        };
        let (one_way, both) = (sum(false), sum(true));
        assert!(one_way.most_bytes < 100 && one_way.lower_bytes < 100, "{one_way:?}");
        assert!(both.most_bytes.abs_diff(2_000_000) < 400_000, "{both:?}");
        assert!(both.lower_bytes > 1_400_000 && both.higher_bytes > 1_400_000, "{both:?}");
    }

    #[test]
    fn a_queue_that_stays_full_is_as_deep_in_any_schedule() {
        let fills = (0..2000).map(|_| Do::Make(1));
        let goes_on = (0..100_000).flat_map(|_| [Do::End(2), Do::Make(1)]);
        let drains = (0..2000).map(|_| Do::End(2));
        let handed = handed(fills.chain(goes_on).chain(drains));
        assert!(handed.at_peak_bytes > 1_900_000, "{handed:?}");
        assert!(handed.lower_bytes < 100_000 && handed.higher_bytes < 100_000, "{handed:?}");
    }

    #[test]
    fn a_queue_that_grows_to_the_end_could_have_been_taken_at_once_or_not_at_all() {
        // Two are made for one that ends.
        let grows = (0..10_000).flat_map(|_| [Do::Make(1), Do::Make(1), Do::End(2)]);
        let handed = handed(grows.chain((0..10_000).map(|_| Do::End(2))));
        let near = |value: u64, expected: u64| value.abs_diff(expected) < 700_000;
        assert!(near(handed.at_peak_bytes, 10_000_000) && near(handed.lower_bytes, 9_500_000), "{handed:?}");
        assert!(near(handed.higher_bytes, 9_500_000), "{handed:?}");
    }

    #[test]
    fn long_traces_have_as_many_steps_as_short_ones() {
        let (short, long) = (handed(waves(40, 500, 1, 2)), handed(waves(400, 5000, 1, 2)));
        assert!(short.most_bytes.abs_diff(500_000) < 200_000, "{short:?}");
        assert!(long.most_bytes.abs_diff(5_000_000) < 5_000_000 / 2, "{long:?}");
    }
}
