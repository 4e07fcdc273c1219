//! Time in the core: instants as arguments, and wall-clock times of a runtime as data.
//!
//! Nothing here reads a clock. [`Instant`] comes from the driver and orders everything.
//! [`WallTime`] is reported by a runtime and never orders anything (upstream k#124297, k#126414).

use std::fmt;
use std::num::NonZeroU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A point on the driver's monotonic clock, in nanoseconds since the driver's own origin.
///
/// Only instants of one driver can be compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
// Stored plus one, so that `Option<Instant>` needs no extra space.
pub struct Instant(NonZeroU64);

impl Instant {
    /// The driver's origin.
    pub const ORIGIN: Self = Self(NonZeroU64::MIN);

    /// The instant `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(nanos))
    }

    /// The instant `since` after the origin; saturates after 584 years.
    pub fn from_origin(since: Duration) -> Self {
        Self::ORIGIN.after(since)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0.get() - 1
    }

    /// This instant, `by` later; saturates.
    #[must_use]
    pub fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(saturating_nanos(by)))
    }

    /// Nanoseconds from `other` to this; negative if `other` is the later one; saturates.
    pub fn nanos_since(self, other: Self) -> i64 {
        let nanos = |at: Self| i64::try_from(at.as_nanos()).unwrap_or(i64::MAX);
        nanos(self).saturating_sub(nanos(other))
    }

    /// How long after `earlier` this is; zero if it is not after it.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.get().saturating_sub(earlier.0.get()))
    }
}

impl Default for Instant {
    fn default() -> Self {
        Self::ORIGIN
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Instant").field(&self.as_nanos()).finish()
    }
}

fn saturating_nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// A wall-clock time that another process reports, in nanoseconds since the Unix epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
// Stored as an offset from the lowest value, in the same order, without that value, so that
// `Option<WallTime>` needs no extra space.
pub struct WallTime(NonZeroU64);

impl WallTime {
    /// The earliest and latest values that are accepted as a time in nanoseconds (1973 to 2100).
    ///
    /// Present times in seconds, milliseconds and microseconds are below, and Go's zero time is
    /// negative.
    const SANE: std::ops::Range<i64> = 100_000_000_000_000_000..4_102_444_800_000_000_000;

    /// The time `nanos` nanoseconds after the epoch, without validation.
    pub const fn from_nanos(nanos: i64) -> Self {
        match NonZeroU64::new(nanos as u64 ^ 1 << 63) {
            Some(counted) => Self(counted),
            None => Self(NonZeroU64::MIN),
        }
    }

    /// The time that a runtime reports, or `None` if it cannot be a time in nanoseconds: zero,
    /// negative (containerd ≥ 2 sends −6795364578871345152), or in another unit.
    pub fn claimed(nanos: i64) -> Option<Self> {
        Self::SANE.contains(&nanos).then(|| Self::from_nanos(nanos))
    }

    /// Nanoseconds since the epoch.
    pub const fn as_nanos(self) -> i64 {
        (self.0.get() ^ 1 << 63) as i64
    }

    /// This time, `by` later; saturates.
    #[must_use]
    pub fn after(self, by: Duration) -> Self {
        Self::from_nanos(self.as_nanos().saturating_add(signed_nanos(by)))
    }

    /// This time, `by` earlier; saturates.
    #[must_use]
    pub fn before(self, by: Duration) -> Self {
        Self::from_nanos(self.as_nanos().saturating_sub(signed_nanos(by)))
    }

    /// Nanoseconds from `earlier` to this; negative if this is the earlier one.
    pub const fn nanos_since(self, earlier: Self) -> i64 {
        self.as_nanos().saturating_sub(earlier.as_nanos())
    }
}

/// RFC 3339 in UTC, with as many decimals as needed: `2026-07-01T09:30:00.25Z`.
impl fmt::Display for WallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SECOND: i64 = 1_000_000_000;
        let (seconds, nanos) = (
            self.as_nanos().div_euclid(SECOND),
            self.as_nanos().rem_euclid(SECOND),
        );
        let (year, month, day) = civil(seconds.div_euclid(86_400));
        let of_day = seconds.rem_euclid(86_400);
        let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}"
        )?;
        if nanos > 0 {
            let decimals = format!("{nanos:09}");
            write!(f, ".{}", decimals.trim_end_matches('0'))?;
        }
        f.write_str("Z")
    }
}

/// The year, month and day of the day that is `days` after 1 January 1970, in the Gregorian
/// calendar. Years are counted from March, so that a leap day is the last day of its year.
const fn civil(days: i64) -> (i64, i64, i64) {
    const DAYS_OF_400_YEARS: i64 = 146_097;
    let since = days + 719_468; // since 1 March of the year 0
    let era = since.div_euclid(DAYS_OF_400_YEARS);
    let day = since.rem_euclid(DAYS_OF_400_YEARS);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (era * 400 + year + later, month, day)
}

/// Saturates: a `WallTime` reaches from 1677 to 2262.
impl From<SystemTime> for WallTime {
    fn from(time: SystemTime) -> Self {
        let epoch = Self::from_nanos(0);
        match time.duration_since(UNIX_EPOCH) {
            Ok(since) => epoch.after(since),
            Err(before) => epoch.before(before.duration()),
        }
    }
}

impl From<WallTime> for SystemTime {
    fn from(time: WallTime) -> Self {
        match u64::try_from(time.as_nanos()) {
            Ok(after) => UNIX_EPOCH + Duration::from_nanos(after),
            Err(_) => UNIX_EPOCH - Duration::from_nanos(time.as_nanos().unsigned_abs()),
        }
    }
}

impl fmt::Debug for WallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WallTime").field(&self.as_nanos()).finish()
    }
}

fn signed_nanos(d: Duration) -> i64 {
    i64::try_from(d.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_have_a_sign_and_saturate() {
        let (early, late) = (Instant::from_nanos(3), Instant::from_nanos(10));
        assert_eq!(late.nanos_since(early), 7);
        assert_eq!(early.nanos_since(late), -7);
        let (first, last) = (Instant::ORIGIN, Instant::from_nanos(u64::MAX));
        assert_eq!(last.nanos_since(first), i64::MAX);
        assert_eq!(first.nanos_since(last), -i64::MAX);
        assert_eq!(late.since(early), Duration::from_nanos(7));
        assert_eq!(early.since(late), Duration::ZERO);
    }

    #[test]
    fn wall_times_are_in_order() {
        let all = [i64::MIN + 1, -5, -1, 0, 1, 5, i64::MAX];
        let times = all.map(WallTime::from_nanos);
        assert_eq!(times.map(WallTime::as_nanos), all);
        assert!(times.is_sorted());
        assert_eq!(WallTime::from_nanos(i64::MIN), times[0]);
    }

    #[test]
    fn wall_times_move_both_ways() {
        let noon = WallTime::from_nanos(1_000);
        assert_eq!(noon.after(Duration::from_nanos(5)).as_nanos(), 1_005);
        assert_eq!(noon.before(Duration::from_nanos(5)).as_nanos(), 995);
        assert_eq!(noon.nanos_since(WallTime::from_nanos(400)), 600);
    }

    #[test]
    fn wall_times_are_displayed_in_rfc_3339() {
        for (nanos, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59.999999999Z"),
            (951_782_400_250_000_000, "2000-02-29T00:00:00.25Z"),
            (1_709_251_199_000_000_000, "2024-02-29T23:59:59Z"),
            (4_107_542_400_000_000_000, "2100-03-01T00:00:00Z"),
            (i64::MAX, "2262-04-11T23:47:16.854775807Z"),
            (i64::MIN + 1, "1677-09-21T00:12:43.145224193Z"),
        ] {
            assert_eq!(WallTime::from_nanos(nanos).to_string(), text);
        }
    }

    #[test]
    fn wall_times_convert_to_system_times_and_back() {
        for nanos in [i64::MIN + 1, -1_500_000_000, 0, 7, i64::MAX] {
            let time = WallTime::from_nanos(nanos);
            assert_eq!(WallTime::from(SystemTime::from(time)), time);
        }
        let late = UNIX_EPOCH + Duration::from_secs(1 << 40);
        assert_eq!(WallTime::from(late).as_nanos(), i64::MAX);
    }

    /// Runtimes send zero, Go's zero time and other units if they know no time.
    #[test]
    fn only_what_can_be_a_time_in_nanoseconds_is_believed() {
        const NOW: i64 = 1_700_000_000_000_000_000;
        for nanos in [0, -6_795_364_578_871_345_152, NOW / 1_000, i64::MAX] {
            assert_eq!(WallTime::claimed(nanos), None, "{nanos}");
        }
        assert_eq!(WallTime::claimed(NOW), Some(WallTime::from_nanos(NOW)));
    }
}
