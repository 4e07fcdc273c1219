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
use text::{Tone, padded};

/// The least lines of the pods, and those of the feed with its heading.
const LEAST_PODS: u16 = 6;
const LEAST_FEED: u16 = 4;
/// With as many columns, the selected pod is beside the list.
const TWO_HALVES: u16 = 160;

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, app: &mut App, now: Instant) {
    let area = frame.area();
    let width = usize::from(area.width);
    app.has_halves = area.width >= TWO_HALVES;
    let Some(view) = app.view.clone() else {
        let text = match &app.error {
            Some(error) => format!("waiting for the first answer: {error}"),
            None => "waiting for the first answer".to_owned(),
        };
        frame.render_widget(app.theme.line(&text, Tone::Plain, width), area);
        return;
    };
    let header = header::lines(app, &view, now, area);
    let [top, body, bottom] = Layout::vertical([
        Constraint::Length(u16::try_from(header.len()).unwrap_or(u16::MAX)),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(header), top);
    frame.render_widget(footer(app, width), bottom);
    let lines = match app.page {
        Page::Pods => return pods(frame, body, app, &view),
        Page::Pod => detail::lines(app, &view, width),
        Page::Node => node::lines(app.theme, &view, width),
        Page::Help => help(app.theme, width),
    };
    app.height = usize::from(body.height);
    app.scroll = app.scroll.min(lines.len().saturating_sub(app.height));
    frame.render_widget(Paragraph::new(lines[app.scroll..].to_vec()), body);
}

/// The pods, below them the events, and on a wide screen the selected pod beside them.
fn pods(frame: &mut Frame<'_>, mut area: Rect, app: &mut App, view: &View) {
    if app.has_halves {
        let halves = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]);
        let [left, right] = halves.spacing(2).areas(area);
        let lines = detail::lines(app, view, usize::from(right.width));
        frame.render_widget(Paragraph::new(lines), right);
        area = left;
    }
    let feed = if app.feed_only {
        area.height
    } else if area.height < LEAST_PODS + LEAST_FEED {
        0
    } else {
        let pods = u16::try_from(list::height(app, view)).unwrap_or(u16::MAX);
        let rest = area.height.saturating_sub(pods);
        // A short list leaves its lines to the events.
        rest.max((area.height / 3).max(LEAST_FEED))
    };
    let [top, bottom] =
        Layout::vertical([Constraint::Min(0), Constraint::Length(feed)]).areas(area);
    if !app.feed_only {
        list::draw(frame, top, app, view);
    }
    frame.render_widget(Paragraph::new(feed::lines(app.theme, view, bottom)), bottom);
}

/// The text that is being typed, or the most important keys.
fn footer(app: &App, width: usize) -> Line<'static> {
    let Some(prompt) = &app.prompt else {
        let keys = match app.page {
            Page::Pods => "? help  h node  Enter pod  / search  s sort  f events  p pause  q quit",
            _ => "? help  h node  Esc back  ↑↓ scroll  p pause  q quit",
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
    let mut lines = vec![theme.heading("keys", width)];
    lines.extend(keys::HELP.map(|(key, does)| {
        let key = padded(key, 12);
        theme.texts(&[(&key, Tone::Title), (does, Tone::Plain)], width)
    }));
    lines
}

#[cfg(test)]
mod tests;
