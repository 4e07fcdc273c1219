//! Measured durations of the last quarter of an hour, in intervals.

use super::*;

/// The length of an interval. A series has the last `INTERVALS` intervals, which are a quarter of an hour.
pub(super) const INTERVAL: Duration = Duration::from_secs(10);
const INTERVALS: usize = 90;
/// `total` leaves out this time after the start of the series: the generator then reads all pods, with many calls.
const START: Duration = Duration::from_secs(60);

/// Measured durations, summed up for each interval. A series has a bounded size.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    /// For each interval, by its number, the sum of its durations. An interval without durations has no entry.
    sums: BTreeMap<u64, Sum>,
    began: Instant,
}

#[derive(Clone, Debug, Default)]
struct Sum {
    count: u64,
    total: Duration,
    longest: Duration,
}

#[skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Point {
    pub(crate) count: u64,
    pub(crate) mean_ms: Option<f64>,
    pub(crate) longest_ms: Option<f64>,
}

pub(super) const fn interval(at: Instant) -> u64 {
    at.as_nanos() / (INTERVAL.as_secs() * 1_000_000_000)
}

impl Series {
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            sums: BTreeMap::new(),
            began: now,
        }
    }

    pub(crate) fn add(&mut self, at: Instant, duration: Duration) {
        let sum = self.sums.entry(interval(at)).or_default();
        sum.count += 1;
        sum.total += duration;
        sum.longest = sum.longest.max(duration);
        if self.sums.len() > INTERVALS {
            self.sums.pop_first();
        }
    }

    /// A point for each interval from the start of the series, or the oldest interval, up to now; oldest first.
    pub(crate) fn points(&self, now: Instant) -> Vec<Point> {
        let numbers = self.oldest(now)..=interval(now);
        let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
        let point = |sum: &Sum| Point {
            count: sum.count,
            mean_ms: Some(ms(sum.total) / sum.count as f64),
            longest_ms: Some(ms(sum.longest)),
        };
        let points = numbers.map(|number| self.sums.get(&number).map(point));
        points.map(Option::unwrap_or_default).collect()
    }

    /// The number of durations, and their sum. Leaves out durations in the time [`START`] after the start.
    pub(crate) fn total(&self, now: Instant) -> (u64, Duration) {
        let sums = self.sums.range(self.settled(now)..).map(|(_, sum)| sum);
        sums.fold((0, Duration::ZERO), |(count, total), sum| {
            (count + sum.count, total + sum.total)
        })
    }

    pub(crate) fn span(&self, now: Instant) -> Duration {
        let from = Duration::from_secs(self.settled(now) * INTERVAL.as_secs());
        now.since(Instant::from_origin(from))
    }

    fn settled(&self, now: Instant) -> u64 {
        self.oldest(now).max(interval(self.began.after(START)) + 1)
    }

    fn oldest(&self, now: Instant) -> u64 {
        interval(self.began).max(interval(now).saturating_sub(INTERVALS as u64 - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::tests::at;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn durations_of_15_minutes_are_summed_up_by_interval() {
        let mut series = Series::new(at(30));
        series.add(at(31), 7 * MS);
        let empty = (0, Duration::ZERO);
        assert_eq!((series.total(at(39)).0, series.span(at(39))), empty);
        series.add(at(101), 2 * MS);
        series.add(at(109), 4 * MS);
        series.add(at(125), 9 * MS);
        let shown = serde_json::to_string(&series.points(at(126))[7..]).unwrap();
        let expected = r#"[{"count":2,"meanMs":3.0,"longestMs":4.0},{"count":0},{"count":1,"meanMs":9.0,"longestMs":9.0}]"#;
        assert_eq!(shown, expected);
        assert_eq!(series.total(at(126)), (3, 15 * MS), "without the start");
        assert_eq!(series.span(at(126)), Duration::from_secs(26));
        let mut series = Series::new(at(0));
        for second in 0..3_000 {
            series.add(at(second), MS);
        }
        assert_eq!(series.points(at(2_999)).len(), INTERVALS);
        assert_eq!(series.total(at(2_999)).0, 900);
        assert_eq!(series.total(at(3_100)).0, 790, "without additions");
        assert_eq!(series.total(at(9_999)).0, 0);
    }
}
