//! Draws the screen. All text from the runtime, an agent or the user is escaped, and truncated by its width in columns.

mod detail;
mod feed;
mod header;
mod list;
mod node;
mod text;

use pleg::core::Instant;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize as _};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::Paragraph;

use super::app::{App, Page};
use super::keys;
use crate::record::{DEGRADED, LAGGED, NOT_READY, Pod, READY, RECOVERED, Record};
use crate::text::{
    age, counted, duration, enclosed, fit, lasting, lower, more, safe, seconds, short, span,
    time_of_day, width, wrapped,
};
use crate::view::{CallCosts, ContainerRow, Detail, ExitRow, Latency, PodRow, Point, Reason, View};
use text::{Lines, Tone, ago, cut, padded, sentence, tone_of, wrapped_within};

/// The list of pods has at least `LEAST_PODS` lines, and the events with their heading at least `LEAST_FEED`.
const LEAST_PODS: u16 = 6;
const LEAST_FEED: u16 = 4;
/// On a screen with at least this many columns, the selected pod is beside the list.
const TWO_HALVES: u16 = 160;

pub(super) fn draw(frame: &mut Frame<'_>, app: &mut App, now: Instant) {
    draw_coloured(frame, app, now);
    if !app.colour {
        for cell in &mut frame.buffer_mut().content {
            (cell.fg, cell.bg) = (Color::Reset, Color::Reset);
        }
    }
}

fn draw_coloured(frame: &mut Frame<'_>, app: &mut App, now: Instant) {
    let area = frame.area();
    app.has_halves = area.width >= TWO_HALVES;
    let mut footer = Lines::new(area.width);
    let Some(view) = app.view.clone() else {
        let error = app.error.as_ref().map(|error| format!(": {error}"));
        let text = "waiting for the first answer".to_owned() + &error.unwrap_or_default();
        footer.line(&text, Tone::Plain);
        return frame.render_widget(Paragraph::new(footer.all), area);
    };
    let header = header::lines(app, &view, now, area).all;
    use Constraint::{Length, Min};
    let height = u16::try_from(header.len()).unwrap_or(u16::MAX);
    let rows = Layout::vertical([Length(height), Min(1), Length(1)]);
    let [top, body, bottom] = rows.areas(area);
    frame.render_widget(Paragraph::new(header), top);
    keys_or_prompt(&mut footer, app);
    frame.render_widget(Paragraph::new(footer.all), bottom);
    let mut lines = match app.page {
        Page::Pods => return pods(frame, body, app, &view),
        Page::Pod => detail::lines(app, &view, area.width),
        Page::Node => node::lines(&view, area.width),
        Page::Help => help(area.width),
    }
    .all;
    app.height = usize::from(body.height);
    app.scroll = app.scroll.min(lines.len().saturating_sub(app.height));
    frame.render_widget(Paragraph::new(lines.split_off(app.scroll)), body);
}

/// The pods, below them the events, and on a wide screen the selected pod beside them.
fn pods(frame: &mut Frame<'_>, mut area: Rect, app: &mut App, view: &View) {
    if app.has_halves {
        let halves = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]);
        let [left, right] = halves.spacing(2).areas(area);
        let lines = detail::lines(app, view, right.width);
        frame.render_widget(Paragraph::new(lines.all), right);
        area = left;
    }
    let feed = if app.feed_only {
        area.height
    } else if area.height < LEAST_PODS + LEAST_FEED {
        0
    } else {
        let pods = u16::try_from(list::height(app, view)).unwrap_or(u16::MAX);
        let rest = area.height.saturating_sub(pods);
        // The events get the lines that a short list does not need.
        rest.max((area.height / 3).max(LEAST_FEED))
    };
    let [top, below] = Layout::vertical([Constraint::Min(0), Constraint::Length(feed)]).areas(area);
    if !app.feed_only {
        list::draw(frame, top, app, view);
    }
    frame.render_widget(Paragraph::new(feed::lines(view, below).all), below);
}

fn keys_or_prompt(line: &mut Lines, app: &App) {
    let keys = match app.page {
        Page::Pods => "? help  h node  Enter pod  / search  s sort  f events  p pause  q quit",
        _ => "? help  h node  Esc back  ↑↓ scroll  p pause  q quit",
    };
    match app.prompt.as_ref().map(|prompt| (prompt, &prompt.error)) {
        None => line.line(keys, Tone::Dim),
        Some((_, Some(error))) => line.line(error, Tone::Bad),
        Some((prompt, None)) => {
            let field = lower(prompt.field);
            let text = format!("{field}: {}▏ Enter: use  Esc: cancel", prompt.text);
            line.line(&text, Tone::Title);
        }
    }
}

fn help(width: u16) -> Lines {
    let mut lines = Lines::new(width);
    lines.heading("keys");
    for line in keys::HELP.lines() {
        let column = line.char_indices().nth(12).map_or(line.len(), |(at, _)| at);
        let (key, does) = line.split_at(column);
        lines.spans(&[(key, Tone::Title), (does, Tone::Plain)]);
    }
    lines
}

#[cfg(test)]
mod tests;
