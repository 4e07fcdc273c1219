//! The values of knobs: rates, flags, numbers, sizes, durations and status codes. Pure.

use std::time::Duration;

use tonic::Code;

use super::Rate;

pub(super) const CODES: [(&str, Code); 12] = [
    ("cancelled", Code::Cancelled),
    ("unknown", Code::Unknown),
    ("invalid_argument", Code::InvalidArgument),
    ("deadline_exceeded", Code::DeadlineExceeded),
    ("not_found", Code::NotFound),
    ("permission_denied", Code::PermissionDenied),
    ("resource_exhausted", Code::ResourceExhausted),
    ("aborted", Code::Aborted),
    ("out_of_range", Code::OutOfRange),
    ("unimplemented", Code::Unimplemented),
    ("internal", Code::Internal),
    ("unavailable", Code::Unavailable),
];

pub(super) const RATE: &str = "a rate, such as 5%, 0.1%, on, off, or #3 for the third from now";
pub(super) const NUMBER: &str = "a whole number, or off";
pub(super) const BYTES: &str = "a size, such as 5000000, 512KiB, 16MiB or 20MB, or off";
pub(super) const DURATION: &str = "a duration, such as 50ms, 10s or 3m, or off";

pub(super) fn flag(text: &str) -> Option<bool> {
    match text {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

pub(super) fn rate(text: &str) -> Option<Rate> {
    if let Some(on) = flag(text) {
        return Some(if on { Rate::ALWAYS } else { Rate::Never });
    }
    if let Some(n) = text.strip_prefix('#') {
        return n.parse().ok().filter(|n| *n > 0).map(Rate::Nth);
    }
    let percent: f64 = text.strip_suffix('%')?.parse().ok()?;
    if !(0.0..=100.0).contains(&percent) {
        return None;
    }
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most a million, and not negative"
    )]
    let millionths = (percent * 10_000.0).round() as u32;
    Some(if millionths == 0 {
        Rate::Never
    } else {
        Rate::Millionths(millionths)
    })
}

/// A number, or `None` for `off`.
pub(super) fn count(text: &str) -> Option<Option<usize>> {
    if text == "off" {
        return Some(None);
    }
    text.parse().ok().map(Some)
}

pub(super) fn bytes(text: &str) -> Option<Option<usize>> {
    const UNITS: [(&str, usize); 5] = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("kB", 1000),
        ("KB", 1000),
        ("MB", 1_000_000),
    ];
    let unit = UNITS
        .iter()
        .find_map(|(u, n)| Some((text.strip_suffix(u)?, *n)));
    let (number, unit) = unit.unwrap_or((text, 1));
    match count(number)? {
        Some(number) => number.checked_mul(unit).map(Some),
        None => Some(None),
    }
}

pub(crate) fn duration(text: &str) -> Option<Duration> {
    if text == "off" {
        return Some(Duration::ZERO);
    }
    const UNITS: [(&str, f64); 4] = [("ms", 0.001), ("us", 0.000_001), ("s", 1.0), ("m", 60.0)];
    let (number, unit) = UNITS
        .iter()
        .find_map(|(u, n)| Some((text.strip_suffix(u)?, *n)))?;
    let number: f64 = number.parse().ok()?;
    Duration::try_from_secs_f64(number * unit).ok()
}

pub(super) fn code_name(code: Code) -> &'static str {
    let found = CODES.iter().find(|(_, c)| *c == code);
    found.map_or("unknown", |(name, _)| name)
}
