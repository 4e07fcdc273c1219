//! Numbers as text.

use crate::stats::{Estimate, median};

/// Three significant digits, with separators of thousands.
fn digits(value: f64) -> String {
    let size = value.abs();
    if size >= 1000.0 {
        let scale = 10_f64.powf(size.log10().floor() - 2.0);
        let whole = ((value / scale).round() * scale) as i64;
        let text = whole.to_string();
        let mut out = String::new();
        for (n, digit) in text.chars().enumerate() {
            if n > 0 && (text.len() - n).is_multiple_of(3) && digit != '-' {
                out.push(',');
            }
            out.push(digit);
        }
        return out;
    }
    let places = match size {
        s if s == 0.0 || s >= 100.0 => 0,
        s if s >= 10.0 => 1,
        s if s >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.places$}");
    match text.split_once('.') {
        Some((whole, rest)) if rest.chars().all(|c| c == '0') => whole.to_owned(),
        _ => text,
    }
}

/// Formats a value with its unit.
pub(super) type Unit = fn(f64) -> String;

/// A number.
pub(super) fn count(value: f64) -> String {
    digits(value)
}

/// A ratio.
pub(super) fn times(value: f64) -> String {
    format!("{} ×", digits(value))
}

/// A size in bytes.
pub(super) fn bytes(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{} MB", digits(v / 1e6)),
        v if v >= 1e4 => format!("{} kB", digits(v / 1e3)),
        _ => format!("{} B", digits(value)),
    }
}

/// A duration in ns.
pub(super) fn nanos(value: f64) -> String {
    let (value, unit) = match value.abs() {
        v if v >= 1e9 => (value / 1e9, "s"),
        v if v >= 1e6 => (value / 1e6, "ms"),
        v if v >= 1e3 => (value / 1e3, "µs"),
        _ => (value, "ns"),
    };
    format!("{} {unit}", digits(value))
}

/// Load averages: the median and the maximum.
pub(super) fn loads(values: &[f64]) -> String {
    let most = values.iter().copied().fold(0.0, f64::max);
    let usual = median(values).unwrap_or(0.0);
    format!("{usual:.1} (median), {most:.1} (most)")
}

/// A median with its interval.
pub(super) fn interval(of: Estimate, unit: Unit) -> String {
    if of.count < 2 {
        return format!("{} (n = 1)", unit(of.median));
    }
    format!(
        "{} ({} – {}, n = {})",
        unit(of.median),
        unit(of.low),
        unit(of.high),
        of.count
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_a_unit() {
        assert_eq!(times(123_456.0), "123,000 ×");
        assert_eq!(times(1.1), "1.10 ×");
        assert_eq!(count(0.0), "0");
        assert_eq!(count(0.02), "0.020");
        assert_eq!(count(120.0), "120");
        assert_eq!(nanos(50e3), "50 µs");
        assert_eq!(nanos(1.234e9), "1.23 s");
        assert_eq!(nanos(12_345_678.0), "12.3 ms");
    }
}
