//! Text on the screen: escaped, cut, padded, and styled with or without colours.

use std::time::Duration;

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

pub(super) use crate::text::wrapped;
use crate::text::{duration, fit, safe, width};
use crate::view::Reason;

/// How text looks. Without colours, all meanings but the dim one are still told apart or said in words.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::top) struct Theme {
    pub(in crate::top) colour: bool,
}

/// What a text means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    /// Less important.
    Dim,
    Title,
    Good,
    Warning,
    Bad,
    /// Must not be overlooked.
    Banner,
}

impl Theme {
    pub(super) fn style(self, tone: Tone) -> Style {
        let style = Style::new();
        let coloured = |colour: Color| match self.colour {
            true => style.fg(colour),
            false => style,
        };
        match tone {
            Tone::Plain => style,
            Tone::Dim => style.add_modifier(Modifier::DIM),
            Tone::Title => style.add_modifier(Modifier::BOLD),
            Tone::Good => coloured(Color::Green),
            Tone::Warning => coloured(Color::Yellow),
            Tone::Bad => coloured(Color::Red).add_modifier(Modifier::BOLD),
            Tone::Banner => {
                coloured(Color::Yellow).add_modifier(Modifier::REVERSED | Modifier::BOLD)
            }
        }
    }

    /// A heading, with a rule up to this width.
    pub(super) fn heading(self, text: &str, columns: usize) -> Line<'static> {
        let text = cut(&format!("── {text} "), columns);
        let rest = columns.saturating_sub(width(&text));
        self.line(&(text + &"─".repeat(rest)), Tone::Dim, columns)
    }

    /// One line, cut to this width.
    pub(super) fn line(self, text: &str, tone: Tone, width: usize) -> Line<'static> {
        Line::from(Span::styled(cut(text, width), self.style(tone)))
    }

    /// Several texts on one line, cut to this width.
    pub(super) fn texts(self, texts: &[(&str, Tone)], columns: usize) -> Line<'static> {
        let mut left = columns;
        let mut spans = Vec::new();
        for (text, tone) in texts {
            let text = cut(text, left);
            left -= width(&text);
            spans.push(Span::styled(text, self.style(*tone)));
        }
        Line::from(spans)
    }
}

/// Escaped, and cut to this width.
pub(super) fn cut(text: &str, width: usize) -> String {
    fit(&safe(text), width).into_owned()
}

/// Escaped, cut and filled up to this width.
pub(super) fn padded(text: &str, columns: usize) -> String {
    let text = cut(text, columns);
    let rest = columns.saturating_sub(width(&text));
    text + &" ".repeat(rest)
}

/// For how long something has been so: ` for 9s`, or nothing.
pub(super) fn lasting(lasts: Option<f64>) -> String {
    lasts.map_or_else(String::new, |lasts| format!(" for {}", seconds(lasts)))
}

/// The age of something: `, 9s ago`, or nothing.
pub(super) fn ago(lasts: Option<f64>) -> String {
    lasts.map_or_else(String::new, |lasts| format!(", {} ago", seconds(lasts)))
}

/// The look of a finding.
pub(super) fn tone_of(reason: &Reason) -> Tone {
    match &*reason.severity {
        "critical" => Tone::Bad,
        _ => Tone::Warning,
    }
}

/// A duration in seconds, with at most two units.
pub(super) fn seconds(seconds: f64) -> String {
    let time = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    match time.as_secs() {
        // Whole seconds: milliseconds would change all the time.
        0 => "0s".to_owned(),
        _ => duration(time),
    }
}
