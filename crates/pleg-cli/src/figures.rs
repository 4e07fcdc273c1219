//! Figures, as they are recorded and shown.

use std::time::Duration;

use itertools::Itertools as _;

/// In milliseconds, to the microsecond.
pub(crate) fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

/// The median: of two values in the middle, the lower one.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    quantile(values, 0.5)
}

/// The value below which about `share` of the values lie.
pub(crate) fn quantile(values: impl IntoIterator<Item = f64>, share: f64) -> Option<f64> {
    let values = values.into_iter().sorted_by(f64::total_cmp).collect_vec();
    let last = values.len().checked_sub(1)?;
    values.get((last as f64 * share) as usize).copied()
}

/// A duration in milliseconds, rounded and with a unit, for people.
pub(crate) fn span(millis: f64) -> String {
    match millis {
        ms if ms < 10.0 => format!("{ms:.1} ms"),
        ms if ms < 1000.0 => format!("{ms:.0} ms"),
        ms if ms < 10_000.0 => format!("{:.1} s", ms / 1000.0),
        ms if ms < 120_000.0 => format!("{:.0} s", ms / 1000.0),
        ms => format!("{:.0} min", ms / 60_000.0),
    }
}

pub(crate) fn bytes(size: u64) -> String {
    match size as f64 / 1024.0 {
        ..1.0 => format!("{size} bytes"),
        kib @ ..1024.0 => format!("{kib:.1} KiB"),
        kib => format!("{:.1} MiB", kib / 1024.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantile_is_one_of_the_given_values() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([1.0, 2.0]), Some(1.0));
        assert_eq!(quantile((1..=100).map(f64::from), 0.99), Some(99.0));
    }

    #[test]
    fn duration_is_shown_in_a_unit_that_fits_its_size() {
        let shown = [0.25, 12.3, 2500.0, 45_000.0, 180_000.0].map(span);
        assert_eq!(shown, ["0.2 ms", "12 ms", "2.5 s", "45 s", "3 min"]);
        let shown = [12, 2048, 17 << 20].map(bytes);
        assert_eq!(shown, ["12 bytes", "2.0 KiB", "17.0 MiB"]);
    }
}
