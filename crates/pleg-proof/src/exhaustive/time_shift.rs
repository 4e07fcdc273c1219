//! A hash that does not see when it is.
//!
//! Two states that differ only in that one happens later are one state to the checker. The clock
//! of a small world starts at [`EPOCH`], above every other number that a state holds, so the
//! hasher knows an instant when it sees one and writes how long ago it is instead. Wall time runs
//! along with it, nanosecond by nanosecond.
//!
//! That is sound because the core compares instants with each other and with sums of instants
//! and durations, and does nothing else with them: moved together, they behave the same. Request
//! numbers, counters and the drained time of a stream are left as they are: states that differ
//! in those stay apart, which costs states and loses none.

use std::hash::Hasher;

/// When a small world begins, on both of its clocks, in nanoseconds: a day in 2006.
pub const EPOCH: u64 = 1 << 60;

/// Hashes with every instant told as its distance from `now`.
#[derive(Debug)]
pub struct TimeShiftedHasher<'a, H> {
    pub inner: &'a mut H,
    pub now: u64,
}

impl<H: Hasher> Hasher for TimeShiftedHasher<'_, H> {
    fn finish(&self) -> u64 {
        self.inner.finish()
    }

    fn write(&mut self, bytes: &[u8]) {
        self.inner.write(bytes);
    }

    fn write_u8(&mut self, n: u8) {
        self.inner.write_u8(n);
    }

    fn write_u32(&mut self, n: u32) {
        self.inner.write_u32(n);
    }

    fn write_u64(&mut self, n: u64) {
        // The distance from now of anything near it is no number that can be mistaken for another:
        // the top bits tell it from what is small, and what is in the future from what is not.
        let at = if n >= EPOCH {
            n.wrapping_sub(self.now) ^ EPOCH
        } else {
            n
        };
        self.inner.write_u64(at);
    }

    fn write_usize(&mut self, n: usize) {
        self.inner.write_usize(n);
    }

    fn write_i64(&mut self, n: i64) {
        self.write_u64(n.cast_unsigned());
    }

    fn write_isize(&mut self, n: isize) {
        self.inner.write_isize(n);
    }
}
