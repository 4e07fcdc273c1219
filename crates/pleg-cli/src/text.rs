//! Formats figures and text, and escapes text: the name of a container may contain escape sequences for the terminal.

use std::borrow::Cow;
use std::fmt::Debug;
use std::time::Duration;

use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

/// Escapes control characters and characters that change the text direction.
pub(crate) fn safe(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c.escape_unicode().to_string())
}

/// Escapes in JSON text the same characters as [`safe`]. serde_json escapes only those below U+0020.
pub(crate) fn safe_json(json: &str) -> Cow<'_, str> {
    let unit = |unit: &mut u16| format!("\\u{unit:04x}");
    escaped(json, |c| {
        c.encode_utf16(&mut [0; 2]).iter_mut().map(unit).collect()
    })
}

fn escaped(text: &str, escape: impl Fn(char) -> String) -> Cow<'_, str> {
    match text.chars().any(is_unsafe) {
        false => Cow::Borrowed(text),
        true => {
            let shown = |c: char| if is_unsafe(c) { escape(c) } else { c.into() };
            Cow::Owned(text.chars().map(shown).collect())
        }
    }
}

pub(crate) fn safe_lines(lines: &[String]) -> String {
    lines.iter().map(|line| safe(line) + "\n").collect()
}

/// Returns true for control characters, and for invisible and direction-changing ones.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// The maximum number of bytes for one character on the terminal: a name may stack combining marks without end.
const MOST_CLUSTER: usize = 32;

pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// Truncates the text to `width` columns of a terminal, with an ellipsis at the end.
pub(crate) fn fit(text: &str, width: usize) -> Cow<'_, str> {
    let small = text.len() <= MOST_CLUSTER || text.graphemes(true).all(|g| g.len() <= MOST_CLUSTER);
    if small && text.width() <= width {
        return Cow::Borrowed(text);
    }
    let mut fitted = String::new();
    let mut left = width;
    for cluster in text.graphemes(true) {
        let is_small = cluster.len() <= MOST_CLUSTER;
        let cluster = if is_small { cluster } else { "\u{fffd}" };
        if cluster.width() + 1 > left {
            fitted.push_str(if left > 0 { "…" } else { "" });
            break;
        }
        left -= cluster.width();
        fitted.push_str(cluster);
    }
    Cow::Owned(fitted)
}

/// The escaped text in lines of at most `columns` columns, broken between words.
pub(crate) fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in safe(text).split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if width(line) + 1 + width(word) <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Truncates the text to `most` characters, with an ellipsis at the end.
pub(crate) fn clip(text: &str, most: usize) -> Cow<'_, str> {
    let shown = most.saturating_sub(1);
    match text.char_indices().nth(most) {
        None => Cow::Borrowed(text),
        Some(_) => text.chars().take(shown).chain(['…']).collect(),
    }
}

/// Formats a duration with at most two units.
pub(crate) fn duration(d: Duration) -> String {
    match d.as_secs() {
        0 => format!("{}ms", d.as_millis()),
        s @ 1..60 => format!("{s}s"),
        s @ 60..3600 => format!("{}m{}s", s / 60, s % 60),
        s @ 3600..86_400 => format!("{}h{}m", s / 3600, s / 60 % 60),
        s => format!("{}d{}h", s / 86_400, s / 3600 % 24),
    }
}

pub(crate) fn seconds(seconds: f64) -> String {
    duration(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

/// Formats an age or duration in whole seconds. With milliseconds, the display would change all the time.
pub(crate) fn age(seconds: f64) -> String {
    match Duration::try_from_secs_f64(seconds).unwrap_or_default() {
        time if time.as_secs() == 0 => "0s".to_owned(),
        time => duration(time),
    }
}

/// Formats a duration as ` for 9s`, and `None` as an empty text.
pub(crate) fn lasting(seconds: Option<f64>) -> String {
    seconds.map_or_else(String::new, |seconds| format!(" for {}", age(seconds)))
}

/// An exit code and a reason, for example `1 Error`.
pub(crate) fn exit(code: Option<i32>, unknown: &str, reason: &str) -> String {
    let code = code.map_or_else(|| unknown.to_owned(), |code| code.to_string());
    format!("{code} {reason}").trim().to_owned()
}

/// The text between `before` and `after`, or nothing if the text is empty.
pub(crate) fn enclosed(before: &str, text: &str, after: &str) -> String {
    match text {
        "" => String::new(),
        text => [before, text, after].concat(),
    }
}

pub(crate) fn lower(variant: impl Debug) -> String {
    format!("{variant:?}").to_lowercase()
}

/// A number of things, such as `2 pods`.
pub(crate) fn counted(n: usize, what: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {what}{plural}")
}

/// A text such as `and 5 more`; `None` if `n` is 0.
pub(crate) fn more(n: usize) -> Option<String> {
    (n > 0).then(|| format!("and {n} more"))
}

/// The time of day of a time in RFC 3339; `format` is as in `strftime`.
pub(crate) fn time_of_day(time: &str, format: &str) -> String {
    match time.parse::<jiff::Timestamp>() {
        Ok(time) => time.strftime(format).to_string(),
        Err(_) => time.to_owned(),
    }
}

/// The first 12 characters of an id, as in crictl.
pub(crate) fn short(id: &str) -> String {
    id.chars().take(12).collect()
}

/// The duration in milliseconds, rounded to the microsecond.
pub(crate) fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
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
    fn text_is_truncated_by_width_and_figures_get_a_unit() {
        for (text, columns, shown) in [
            ("abc", 3, "abc"),
            ("abcd", 3, "ab…"),
            ("日本語", 6, "日本語"),
            ("日本語", 5, "日本…"),
            ("日本語", 4, "日…"),
            ("e\u{301}e\u{301}e", 3, "e\u{301}e\u{301}e"),
            ("abc", 0, ""),
            ("", 0, ""),
        ] {
            assert_eq!(fit(text, columns), shown, "{text} {columns}");
            assert!(width(shown) <= columns);
        }
        assert_eq!(fit(&format!("a{}b", "\u{301}".repeat(500)), 9), "\u{fffd}b");
        assert_eq!([clip("abc", 3), clip("abcd", 3)], ["abc", "ab…"]);
        let shown = [0.25, 12.3, 2500.0, 45_000.0, 180_000.0].map(span);
        assert_eq!(shown, ["0.2 ms", "12 ms", "2.5 s", "45 s", "3 min"]);
        let shown = [12, 2048, 17 << 20].map(bytes);
        assert_eq!(shown, ["12 bytes", "2.0 KiB", "17.0 MiB"]);
    }
}
