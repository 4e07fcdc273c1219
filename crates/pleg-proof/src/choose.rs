//! Where a world's choices come from: a seeded generator, or a byte string, which `shrink` can shorten.

/// A source of choices. If it always chooses 0, nothing fails, and everything is fast.
pub trait Choose {
    /// Chooses a number below `n`. `n` must be at least 1.
    fn below(&mut self, n: u32) -> u32;
}

/// A seeded generator (splitmix64).
#[derive(Clone, Debug)]
pub struct Seeded(u64);

impl Seeded {
    /// The generator of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }
}

impl Choose for Seeded {
    fn below(&mut self, n: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        u32::try_from(z % u64::from(n.max(1))).unwrap_or(0)
    }
}

/// Choices from a byte string. After the last byte, every choice is 0.
#[derive(Clone, Debug)]
pub struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    /// Choices from the bytes `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn next(&mut self) -> u32 {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        u32::from(first)
    }
}

impl Choose for Bytes<'_> {
    fn below(&mut self, n: u32) -> u32 {
        let most = match n {
            0 | 1 => return 0,
            2..=256 => self.next(),
            _ => self.next() << 8 | self.next(),
        };
        most % n
    }
}

/// Chooses 0 always.
#[derive(Clone, Copy, Debug)]
pub struct Quiet;

impl Choose for Quiet {
    fn below(&mut self, _: u32) -> u32 {
        0
    }
}

/// Wraps a source of choices, with methods to choose an index, an element, a fault or a duration.
pub(crate) struct Dice<'a> {
    choose: &'a mut dyn Choose,
    /// True in a small world: each duration is the shortest possible, and `chance` only tells 0 from other values.
    is_small: bool,
}

impl<'a> Dice<'a> {
    pub(crate) fn new(choose: &'a mut dyn Choose, is_small: bool) -> Self {
        Self { choose, is_small }
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        match u32::try_from(n) {
            Ok(0 | 1) | Err(_) => 0,
            Ok(n) => self.choose.below(n) as usize,
        }
    }

    /// Returns true with a chance of `per_mille`/1000. In a small world, `explore` tries both results, unless it is 0.
    pub(crate) fn chance(&mut self, per_mille: u32) -> bool {
        match per_mille {
            0 => false,
            _ if self.is_small => self.choose.below(2) == 1,
            _ => self.choose.below(1000) >= 1000_u32.saturating_sub(per_mille),
        }
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Chooses a duration between `from` and `to` milliseconds, in nanoseconds. In a small world, it is always `from`.
    pub(crate) fn ms(&mut self, from: u64, to: u64) -> u64 {
        if self.is_small || to <= from {
            return from * 1_000_000;
        }
        let micros = u32::try_from((to - from) * 1000).unwrap_or(u32::MAX);
        (from * 1000 + u64::from(self.choose.below(micros))) * 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_fault_is_chosen_when_the_input_bytes_run_out() {
        let mut bytes = Bytes::new(&[7, 1, 2]);
        assert_eq!(bytes.below(10), 7);
        assert_eq!(bytes.below(1000), 258);
        assert_eq!(bytes.below(1000), 0);
        let mut dice = Dice::new(&mut bytes, false);
        assert!(!dice.chance(1000 - 1));
        assert_eq!(dice.ms(5, 10), 5_000_000);
    }

    #[test]
    fn chance_of_zero_consumes_no_input_byte() {
        let mut bytes = Bytes::new(&[255, 255]);
        assert!(!Dice::new(&mut bytes, false).chance(0));
        assert_eq!(bytes.below(256), 255);
    }
}
