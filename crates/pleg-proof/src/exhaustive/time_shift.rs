//! A hash that does not depend on the current time.
//!
//! Two states that differ only in when they happen are one state to the checker. The clock of a
//! small world starts at [`EPOCH`], above every other number in a state, so the hasher recognizes an
//! instant and hashes its distance from now instead. Wall time runs in step with it.
//!
//! That is sound because the core only compares instants with each other and with sums of instants
//! and durations: shifted together, they behave the same. Request numbers, counters and the drained
//! time of a stream are hashed unchanged: states that differ in those stay apart, which costs states
//! and loses none.

use std::hash::Hasher;

/// The start of a small world on both of its clocks, in nanoseconds: a day in 2006.
pub const EPOCH: u64 = 1 << 60;

/// Hashes every instant as its distance from `now`.
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
        // The top bits distinguish a distance from small numbers, and the past from the future.
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
