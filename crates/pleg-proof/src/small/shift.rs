//! A hash for the exploration of small worlds: two states that differ only by a shift in time get the same hash.
//!
//! The clock of a world starts at [`EPOCH`], above every other number in a state, so a hasher recognises instants.
//! It sorts all instants of a state, and replaces each instant by the sum of the gaps between neighbours from there to
//! the present. Every gap below a millisecond counts as the same step. The wall clock runs in step with the clock.
//! The core only compares instants with each other and with sums of instants and durations, and these durations are
//! much longer than the steps of a small world. So states with the same hash continue in the same way.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::world::{EPOCH, MS, SECOND};

/// The highest bit of a number. The hasher would recognise an instant with this bit, but no clock of a world sets it.
const WALL: u64 = 1 << 63;

/// The age from which instants count as equal: nothing in a small world takes longer.
const OLD: u64 = 200 * SECOND;

/// The hash of a state, relative to the present instant `now`.
pub(crate) fn hash(state: &impl Hash, now: u64) -> u64 {
    let mut found = Instants(vec![now]);
    state.hash(&mut found);
    let mut instants = found.0;
    instants.sort_unstable();
    instants.dedup();
    let mut place = 0;
    let mut places = Vec::with_capacity(instants.len());
    for (n, &at) in instants.iter().enumerate() {
        let before = if n == 0 { at } else { instants[n - 1] };
        place += match at - before {
            0 => 0,
            gap if gap < MS => 1,
            gap => (gap / MS) << 16,
        };
        places.push((at, place));
    }
    let mut places = Places {
        inner: DefaultHasher::new(),
        places,
        now: 0,
    };
    places.now = places.of(now);
    state.hash(&mut places);
    places.inner.finish()
}

const fn is_instant(n: u64) -> bool {
    let at = n & !WALL;
    at >= EPOCH && at < EPOCH << 1
}

/// A hasher that collects the instants of a state, and computes no hash.
struct Instants(Vec<u64>);

impl Hasher for Instants {
    fn finish(&self) -> u64 {
        0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, n: u64) {
        if is_instant(n) {
            self.0.push(n & !WALL);
        }
    }

    fn write_i64(&mut self, n: i64) {
        self.write_u64(n.cast_unsigned());
    }
}

/// A hasher that replaces each instant by its distance from `now`: the sum of the rounded gaps between neighbours.
struct Places {
    inner: DefaultHasher,
    places: Vec<(u64, u64)>,
    now: u64,
}

impl Places {
    fn of(&self, at: u64) -> u64 {
        let found = self.places.binary_search_by_key(&at, |&(at, _)| at);
        found.map_or(0, |n| self.places[n].1)
    }
}

impl Hasher for Places {
    fn finish(&self) -> u64 {
        self.inner.finish()
    }

    fn write(&mut self, bytes: &[u8]) {
        self.inner.write(bytes);
    }

    fn write_u64(&mut self, n: u64) {
        if !is_instant(n) {
            return self.inner.write_u64(n);
        }
        let place = self.of(n & !WALL);
        let past = self.now.saturating_sub(place).min((OLD / MS) << 16);
        self.inner.write_u64(n & WALL | EPOCH | past);
        self.inner.write_u64(place.saturating_sub(self.now));
    }

    fn write_i64(&mut self, n: i64) {
        self.write_u64(n.cast_unsigned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_with_shifted_instants_have_the_same_hash() {
        let (one, two) = (EPOCH + 5, EPOCH + 900);
        assert_eq!(hash(&(one - 3), one), hash(&(two - 3), two));
        assert_eq!(hash(&(one + 3), one), hash(&(two + 3), two));
        assert_ne!(hash(&(one - 3), one), hash(&(one + 3), one));
        assert_ne!(hash(&7_u64, one), hash(&8_u64, one));
        let later = EPOCH + 1_000 * SECOND;
        assert_eq!(hash(&EPOCH, later), hash(&(EPOCH + SECOND), later));
    }

    #[test]
    fn gaps_below_a_millisecond_do_not_change_the_hash() {
        let now = EPOCH + 9;
        assert_eq!(
            hash(&(now - 3, now - 1), now),
            hash(&(now - 8, now - 4), now)
        );
        assert_ne!(
            hash(&(now - 3, now - 1), now),
            hash(&(now - 1, now - 3), now)
        );
        let long = |ms: u64| hash(&(now - ms * MS), now);
        assert_ne!(long(2), long(3));
    }
}
