//! Text on the screen: escaped, truncated by its width in columns, and styled by what it means.

use super::*;

/// The meaning of a text. Without colours, all meanings but `Dim` still differ in style or in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Dim,
    Title,
    Good,
    Warning,
    Bad,
    Banner,
}

impl From<Tone> for Style {
    fn from(tone: Tone) -> Self {
        let style = Self::new();
        match tone {
            Tone::Plain => style,
            Tone::Dim => style.dim(),
            Tone::Title => style.bold(),
            Tone::Good => style.green(),
            Tone::Warning => style.yellow(),
            Tone::Bad => style.red().bold(),
            Tone::Banner => style.yellow().reversed().bold(),
        }
    }
}

pub(super) struct Lines {
    pub(super) width: usize,
    pub(super) all: Vec<Line<'static>>,
}

impl Lines {
    pub(super) fn new(width: u16) -> Self {
        Self {
            width: width.into(),
            all: Vec::new(),
        }
    }

    pub(super) fn heading(&mut self, text: &str) {
        let text = cut(&format!("── {text} "), self.width);
        let rule = "─".repeat(self.width - width(&text));
        self.line(&(text + &rule), Tone::Dim);
    }

    pub(super) fn line(&mut self, text: &str, tone: Tone) {
        self.spans(&[(text, tone)]);
    }

    pub(super) fn spans(&mut self, texts: &[(&str, Tone)]) {
        let mut left = self.width;
        let mut line = Line::default();
        for (text, tone) in texts {
            let text = cut(text, left);
            left -= width(&text);
            line.push_span(Span::styled(text, *tone));
        }
        self.all.push(line);
    }

    /// A text in as many lines as it needs, two columns from the left.
    pub(super) fn text(&mut self, text: &str, tone: Tone) {
        self.text_within(usize::MAX, text, tone);
    }

    /// Like [`text`](Self::text), but in at most `most` lines.
    pub(super) fn text_within(&mut self, most: usize, text: &str, tone: Tone) {
        for part in wrapped_within(most, text, self.width.saturating_sub(2)) {
            self.line(&format!("  {part}"), tone);
        }
    }
}

/// Wraps the text into at most `most` lines. An ellipsis at the end replaces further lines.
pub(super) fn wrapped_within(most: usize, text: &str, columns: usize) -> Vec<String> {
    let mut lines = wrapped(text, columns);
    if lines.len() > most {
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            last.pop();
            last.push('…');
        }
    }
    lines
}

pub(super) fn cut(text: &str, width: usize) -> String {
    fit(&safe(text), width).into_owned()
}

pub(super) fn padded(text: &str, columns: usize) -> String {
    let text = cut(text, columns);
    let rest = columns.saturating_sub(width(&text));
    text + &" ".repeat(rest)
}

/// Formats an age as `, 9s ago`, and `None` as an empty text.
pub(super) fn ago(lasts: Option<f64>) -> String {
    lasts.map_or_else(String::new, |lasts| format!(", {} ago", age(lasts)))
}

pub(super) fn sentence(reason: &Reason) -> String {
    let lasting = lasting(reason.seconds);
    format!("{}{lasting}: {}", reason.code, reason.message)
}

pub(super) fn tone_of(reason: &Reason) -> Tone {
    match &*reason.severity {
        "critical" => Tone::Bad,
        _ => Tone::Warning,
    }
}
