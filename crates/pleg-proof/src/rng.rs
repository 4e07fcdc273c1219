//! Seeded random numbers: equal seeds give equal worlds.

use oorandom::Rand64;

/// A random number generator.
#[derive(Clone, Debug)]
pub struct Rng(Rand64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(Rand64::new(seed.into()))
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0.rand_range(0..n)
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        self.0.rand_range(low..high + 1)
    }

    /// True with a probability of `percent` in 100.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}
