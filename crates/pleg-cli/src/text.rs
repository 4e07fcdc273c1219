//! Escapes text from a runtime before it is printed: a container's name may contain escape sequences
//! for the terminal.

use std::borrow::Cow;
use std::io;
use std::time::Duration;

use serde_json::ser::Formatter;

/// Escapes control characters and characters that change the text direction.
pub(crate) fn safe(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let escape = |c: char| {
        if is_unsafe(c) {
            c.escape_unicode().to_string()
        } else {
            c.into()
        }
    };
    Cow::Owned(text.chars().map(escape).collect())
}

/// Whether this is a control character, or an invisible or direction-changing one.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Truncates the text to `width` characters, with an ellipsis at the end.
pub(crate) fn clip(text: &str, width: usize) -> Cow<'_, str> {
    match text.char_indices().nth(width) {
        None => Cow::Borrowed(text),
        Some(_) => {
            let kept: String = text.chars().take(width.saturating_sub(1)).collect();
            Cow::Owned(kept + "…")
        }
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

/// The first 12 characters of an id, as in crictl.
pub(crate) fn short(id: &str) -> String {
    id.chars().take(12).collect()
}

/// Formats JSON and escapes the same characters. serde_json escapes only those below U+0020.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SafeJson;

impl Formatter for SafeJson {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment;
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| is_unsafe(*c)) {
            writer.write_all(&rest.as_bytes()[..at])?;
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = &rest[at + c.len_utf8()..];
        }
        writer.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Serialize;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(safe("web-1"), "web-1");
        assert_eq!(
            safe("a\u{1b}[31mb\u{9b}\u{202e}"),
            "a\\u{1b}[31mb\\u{9b}\\u{202e}"
        );
    }

    #[test]
    fn escaped_json_parses_to_the_same_text() {
        let text = "a\u{1b}\u{7f}\u{9b}\u{202e}ü\"";
        let mut out = Vec::new();
        let mut json = serde_json::Serializer::with_formatter(&mut out, SafeJson);
        text.serialize(&mut json).unwrap();
        let out = String::from_utf8(out).unwrap();
        assert!(!out.chars().any(is_unsafe), "{out:?}");
        assert_eq!(serde_json::from_str::<String>(&out).unwrap(), text);
    }

    #[test]
    fn long_text_is_clipped_with_ellipsis() {
        assert_eq!(clip("abc", 3), "abc");
        assert_eq!(clip("abcd", 3), "ab…");
    }
}
