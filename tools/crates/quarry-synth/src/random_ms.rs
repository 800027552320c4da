// SPDX-License-Identifier: MIT
//! Random simulation files, as the simulator's own generator makes them, but with the slot, what happens to it and
//! the size drawn independently of each other.
//!
//! The original takes all three from one random number, so that of an even number of slots the even ones are
//! only ever reallocated and the odd ones only allocated and freed.

use quarry_measure::rng::Rng;

use crate::dist;
use crate::ms::Command;

/// What to make. The defaults are those of the original.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// least size
    pub min: u64,
    /// largest size
    pub max: u64,
    /// commands, not counting the frees at the end
    pub count: u64,
    /// slots
    pub slots: u32,
    /// repeats the file
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { min: 32, max: 16 << 20, count: 128, slots: 16, seed: 1 }
    }
}

/// The commands one after the other; in the end all live slots are freed.
#[derive(Debug, Clone)]
pub struct Commands {
    options: Options,
    rng: Rng,
    live: Vec<bool>,
    left: u64,
    /// The next slot to look at in the end.
    slot: usize,
}

/// `min` must not be above `max`, and there must be a slot.
pub fn commands(options: Options) -> Commands {
    assert!(options.min <= options.max && options.slots > 0, "the caller checks what was typed");
    Commands {
        options,
        rng: Rng::new(options.seed),
        live: vec![false; options.slots as usize],
        left: options.count,
        slot: 0,
    }
}

impl Iterator for Commands {
    type Item = Command;

    fn next(&mut self) -> Option<Command> {
        if self.left == 0 {
            let rest = self.live.get(self.slot..)?;
            let slot = self.slot + rest.iter().position(|&live| live)?;
            self.slot = slot + 1;
            return Some(Command::Free { slot: slot as u32 });
        }
        self.left -= 1;
        let slot = self.rng.below(self.live.len());
        let again = self.rng.below(2) == 0;
        let size = dist::between(&mut self.rng, self.options.min, self.options.max);
        let command = if !self.live[slot] || again {
            Command::Alloc { slot: slot as u32, size }
        } else {
            Command::Free { slot: slot as u32 }
        };
        self.live[slot] = matches!(command, Command::Alloc { .. });
        Some(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_live_in_the_end() {
        for seed in 0..20 {
            let options = Options { seed, ..Options::default() };
            let mut live = [false; 16];
            let mut count = 0;
            for command in commands(options) {
                match command {
                    Command::Alloc { slot, size } => {
                        assert!((options.min..=options.max).contains(&size));
                        live[slot as usize] = true;
                    }
                    Command::Free { slot } => assert!(std::mem::take(&mut live[slot as usize])),
                    other => panic!("{other:?}"),
                }
                count += 1;
            }
            assert_eq!(live, [false; 16]);
            assert!((128..=144).contains(&count));
        }
    }

    /// What the original has wrong: there, each of these tables has empty cells.
    #[test]
    fn slot_choice_and_size_are_independent() {
        let options = Options { min: 0, max: 999, count: 200_000, slots: 8, seed: 3 };
        let mut live = [false; 8];
        // Commands by slot: malloc, realloc, free; and sizes by slot and tenth of the range.
        let (mut kinds, mut sizes) = ([[0_u32; 3]; 8], [[0_u32; 10]; 8]);
        for command in commands(options).take(200_000) {
            match command {
                Command::Alloc { slot, size } => {
                    let slot = slot as usize;
                    kinds[slot][usize::from(live[slot])] += 1;
                    sizes[slot][size as usize / 100] += 1;
                    live[slot] = true;
                }
                Command::Free { slot } => {
                    kinds[slot as usize][2] += 1;
                    live[slot as usize] = false;
                }
                other => panic!("{other:?}"),
            }
        }
        // A slot is empty for one command and then live for two on average: thirds.
        assert!(kinds.as_flattened().iter().all(|n| (7900..8800).contains(n)), "{kinds:?}");
        assert!(sizes.as_flattened().iter().all(|n| (1500..1840).contains(n)), "{sizes:?}");
    }

    #[test]
    fn a_seed_repeats_the_file() {
        let [a, b, c] =
            [1, 1, 2].map(|seed| commands(Options { seed, ..Options::default() }).collect::<Vec<_>>());
        assert_eq!(a, b);
        assert_ne!(a, c);
    }
}
