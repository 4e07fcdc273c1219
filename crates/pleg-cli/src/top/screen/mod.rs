//! Draws the screen. All text from outside is escaped and cut by the columns that it needs.

mod detail;
mod feed;
mod header;
mod list;
mod node;
mod text;

use pleg::core::Instant;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use super::app::{App, Field, Page};
use super::keys;
use crate::view::View;
pub(super) use text::Theme;
use text::{Tone, padded, wrapped};

/// The least lines of the pods, and those of the feed with its heading.
const LEAST_PODS: u16 = 6;
const LEAST_FEED: u16 = 4;

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, app: &mut App, now: Instant) {
    let area = frame.area();
    let width = usize::from(area.width);
    let Some(view) = app.view.clone() else {
        let text = match &app.error {
            Some(error) => format!("waiting for the first answer: {error}"),
            None => "waiting for the first answer".to_owned(),
        };
        paint(frame, area, &[app.theme.line(&text, Tone::Plain, width)]);
        return;
    };
    let header = header::lines(app, &view, now, area.width, area.height);
    let footer = footer(app, width);
    let [top, body, bottom] = Layout::vertical([
        Constraint::Length(u16::try_from(header.len()).unwrap_or(u16::MAX)),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(area);
    paint(frame, top, &header);
    paint(frame, bottom, &[footer]);
    match app.page {
        Page::Pods => pods(frame, body, app, &view),
        Page::Pod => scrolled(frame, body, app, &detail::lines(app, &view, width)),
        Page::Node => scrolled(frame, body, app, &node::lines(app.theme, &view, width)),
        Page::Help => scrolled(frame, body, app, &help(app.theme, width)),
    }
}

/// The list of pods, and below it the events.
fn pods(frame: &mut Frame<'_>, area: Rect, app: &mut App, view: &View) {
    let feed = if app.feed_only {
        area.height
    } else if area.height < LEAST_PODS + LEAST_FEED {
        0
    } else {
        let pods = u16::try_from(list::height(app, view)).unwrap_or(u16::MAX);
        let rest = area.height.saturating_sub(pods);
        let most = (area.height / 3).max(LEAST_FEED);
        // A short list leaves its lines to the events.
        rest.max(most)
    };
    let [top, bottom] =
        Layout::vertical([Constraint::Min(0), Constraint::Length(feed)]).areas(area);
    paint_with(frame, top, |lines, width| {
        list::lines(app, view, width, lines)
    });
    paint_with(frame, bottom, |lines, width| {
        feed::lines(app.theme, view, width, lines)
    });
}

/// A page, from the line to which it is scrolled.
fn scrolled(frame: &mut Frame<'_>, area: Rect, app: &mut App, lines: &[Line<'static>]) {
    app.height = usize::from(area.height);
    app.scroll = app.scroll.min(lines.len().saturating_sub(app.height));
    paint(frame, area, &lines[app.scroll..]);
}

fn paint_with(
    frame: &mut Frame<'_>,
    area: Rect,
    lines: impl FnOnce(usize, usize) -> Vec<Line<'static>>,
) {
    if area.height > 0 {
        let lines = lines(usize::from(area.height), usize::from(area.width));
        paint(frame, area, &lines);
    }
}

fn paint(frame: &mut Frame<'_>, area: Rect, lines: &[Line<'static>]) {
    let shown = lines.iter().take(usize::from(area.height)).cloned();
    frame.render_widget(Paragraph::new(shown.collect::<Vec<_>>()), area);
}

/// What is being typed, or the most important keys.
fn footer(app: &App, width: usize) -> Line<'static> {
    let Some(prompt) = &app.prompt else {
        let keys = match app.page {
            Page::Pods => {
                "? help  q quit  Enter pod  Space containers  / search  n namespace  l labels  s sort  \
                 h health  f events  p pause"
            }
            _ => "? help  q quit  Esc back  ↑↓ scroll",
        };
        return app.theme.line(keys, Tone::Dim, width);
    };
    let field = match prompt.field {
        Field::Search => "search",
        Field::Namespace => "namespace",
        Field::Labels => "labels",
    };
    match &prompt.error {
        Some(error) => app.theme.line(error, Tone::Bad, width),
        None => {
            let text = format!("{field}: {}▏ Enter: use  Esc: cancel", prompt.text);
            app.theme.line(&text, Tone::Title, width)
        }
    }
}

fn help(theme: Theme, width: usize) -> Vec<Line<'static>> {
    let mut lines = vec![theme.line("KEYS", Tone::Dim, width)];
    for (key, does) in keys::HELP {
        let rest = wrapped(does, width.saturating_sub(14));
        for (n, text) in rest.iter().enumerate() {
            let key = padded(if n == 0 { key } else { "" }, 12);
            lines.push(Line::from(vec![
                theme.span(&key, Tone::Title),
                theme.span("  ", Tone::Plain),
                theme.span(text, Tone::Plain),
            ]));
        }
    }
    lines
}

#[cfg(test)]
mod tests;
