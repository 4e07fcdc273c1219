//! The first lines: which node this is, whether the picture is old, and what is wrong.

use pleg::core::Instant;
use ratatui::text::Line;

use super::text::{Theme, Tone, seconds, wrapped};
use crate::text::{duration, latency, time_of_day};
use crate::top::app::{App, Page};
use crate::view::{Point, Reason, View};

/// How many reasons are shown, unless the screen is low.
const MOST_REASONS: usize = 3;
/// A screen with fewer lines is low.
const LOW: u16 = 20;
/// As many events per second are pointed out.
const STORM: f64 = 100.0;
/// A screen with as many lines has room for all that is to be done.
const TALL: u16 = 28;
/// A screen with as many columns is wide.
const WIDE: usize = 100;

pub(super) fn lines(
    app: &App,
    view: &View,
    now: Instant,
    width: u16,
    height: u16,
) -> Vec<Line<'static>> {
    let (theme, width) = (app.theme, usize::from(width));
    let mut lines = vec![title(app, view, width)];
    lines.extend(old(app, view, now, width));
    lines.push(summary(theme, view, width));
    lines.push(sources(theme, view, width));
    let mut reasons = view.health.reasons.clone();
    if let (Some(error), Some(silence)) = (&app.error, app.silence(now)) {
        reasons.insert(0, Reason::silent_agent(error, silence.as_secs_f64()));
    }
    match app.page {
        // It has them all.
        Page::Node => {}
        Page::Pods => lines.extend(of_reasons(theme, &reasons, width, height)),
        Page::Pod | Page::Help => lines.extend(of_reasons(theme, &reasons, width, 0)),
    }
    lines
}

/// What is wrong and what to do, as far as there is room. The page of the node has everything.
fn of_reasons(theme: Theme, reasons: &[Reason], width: usize, height: u16) -> Vec<Line<'static>> {
    let most = if height < LOW { 1 } else { MOST_REASONS };
    // The first one is probably the cause of the others. Alone it has room for all its text.
    let whole = reasons.len() == 1 && height >= LOW;
    let mut lines = Vec::new();
    for (n, reason) in reasons.iter().take(most).enumerate() {
        let what = sentence(reason);
        let room = if whole { 3 } else { 1 };
        let texts = wrapped(&what, width);
        if texts.len() <= room {
            lines.extend(texts.iter().map(|text| theme.line(text, Tone::Bad, width)));
        } else {
            lines.push(theme.line(&what, Tone::Bad, width));
        }
        if (n == 0 && height >= LOW) || height >= TALL {
            lines.extend(action(theme, reason, width, whole || height >= TALL));
        }
    }
    if let Some(more @ 1..) = reasons.len().checked_sub(most) {
        let text = format!("! and {}; press h", counted(more, "more reason"));
        lines.push(theme.line(&text, Tone::Bad, width));
    }
    lines
}

fn sentence(reason: &Reason) -> String {
    let lasts = reason
        .seconds
        .map(|lasts| format!(" for {}", seconds(lasts)));
    let lasts = lasts.unwrap_or_default();
    format!("! {}{lasts}: {}", reason.code, reason.message)
}

fn action(theme: Theme, reason: &Reason, width: usize, whole: bool) -> Vec<Line<'static>> {
    let mut text = format!("do: {}", reason.action);
    if !reason.runbook.is_empty() {
        text.push_str(&format!("; see {}", reason.runbook));
    }
    if !whole {
        return vec![theme.line(&format!("  {text}"), Tone::Plain, width)];
    }
    let texts = wrapped(&text, width.saturating_sub(2));
    let line = |text: &String| theme.line(&format!("  {text}"), Tone::Plain, width);
    texts.iter().map(line).collect()
}

fn title(app: &App, view: &View, width: usize) -> Line<'static> {
    let time = time_of_day(&view.time, "%H:%M:%S UTC");
    let mut texts = Vec::new();
    if view.simulated {
        texts.extend([(" SIMULATED NODE ", Tone::Banner), (" ", Tone::Plain)]);
    }
    if app.paused {
        texts.extend([(" PAUSED: p goes on ", Tone::Banner), (" ", Tone::Plain)]);
    }
    texts.extend([
        ("pleg top  ", Tone::Title),
        (&*time, Tone::Plain),
        ("  ", Tone::Plain),
        (&*view.node, Tone::Title),
        ("  ", Tone::Plain),
        (&*view.runtime, Tone::Dim),
    ]);
    app.theme.texts(&texts, width)
}

/// A banner if what is shown is old.
fn old(app: &App, view: &View, now: Instant, width: usize) -> Option<Line<'static>> {
    let silence = app.silence(now);
    let text = match (silence, view.health.no_answer_seconds) {
        (Some(silence), _) => format!(
            " NO ANSWER of the agent for {}: what is shown is old ",
            duration(silence)
        ),
        (None, Some(lasts)) => format!(
            " NO ANSWER of the runtime for {}: what is shown is old ",
            seconds(lasts)
        ),
        (None, None) => return None,
    };
    Some(app.theme.line(&text, Tone::Banner, width))
}

fn summary(theme: Theme, view: &View, width: usize) -> Line<'static> {
    let state = match (view.health.ready, view.health.reasons.is_empty()) {
        (false, _) => ("NOT READY", Tone::Bad),
        (true, false) => ("DEGRADED", Tone::Bad),
        (true, true) => ("ready", Tone::Good),
    };
    let pods = &view.pods;
    let counts = match view.relist.last_seconds {
        None => "pods are not known yet  ".to_owned(),
        Some(_) => format!(
            "{}, {} ({} running)  ",
            counted(pods.total, "pod"),
            counted(pods.containers, "container"),
            pods.running
        ),
    };
    let problems = match view.health.pods {
        0 => String::new(),
        n => format!("{} with calls that hang or fail  ", counted(n, "pod")),
    };
    let (rate, tone) = rate(view.feed.events_per_second);
    let mut texts = vec![
        state,
        ("  ", Tone::Plain),
        (&*counts, Tone::Plain),
        (&*problems, Tone::Bad),
    ];
    // A narrow screen may cut what comes last.
    let place = if tone == Tone::Bad { 2 } else { texts.len() };
    texts.insert(place, (&rate, tone));
    theme.texts(&texts, width)
}

fn rate(rate: f64) -> (String, Tone) {
    match rate {
        STORM.. => (format!("! many events: {rate:.0}/s  "), Tone::Bad),
        10.0.. => (format!("{rate:.0} events/s"), Tone::Plain),
        _ => (format!("{rate:.1} events/s"), Tone::Plain),
    }
}

fn counted(n: usize, what: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {what}{plural}")
}

/// The list, the stream and the last latencies.
fn sources(theme: Theme, view: &View, width: usize) -> Line<'static> {
    let relist = &view.relist;
    let last = match (relist.in_flight_seconds, relist.last_seconds) {
        (Some(running), _) if running >= 1.0 => format!("in flight for {}", seconds(running)),
        (_, Some(last)) => format!("last {} ago", seconds(last)),
        (_, None) => "none yet".to_owned(),
    };
    let list = format!("list every {}, {last}; ", seconds(relist.period_seconds));
    let (stream, tone) = stream(view);
    let missed = match view.stream.missed {
        0 => String::new(),
        n => format!(", {n} missed"),
    };
    let latency = format!(
        "; latency: lists {}, reads {}, events {}",
        last_latency(&view.latency.lists),
        last_latency(&view.latency.reads),
        last_latency(&view.latency.events)
    );
    let missed_tone = match view.stream.recently_missed {
        0 => Tone::Plain,
        _ => Tone::Warning,
    };
    let mut texts = vec![
        (&*list, Tone::Plain),
        (&*stream, tone),
        (&*missed, missed_tone),
    ];
    if width >= WIDE {
        texts.push((&*latency, Tone::Plain));
    }
    theme.texts(&texts, width)
}

fn stream(view: &View) -> (String, Tone) {
    match &*view.stream.state {
        "losing" => ("stream loses events".to_owned(), Tone::Bad),
        "silent" => ("stream unknown".to_owned(), Tone::Bad),
        "confirmed" => ("stream confirmed".to_owned(), Tone::Good),
        "down" => {
            let lasts = view.stream.seconds.map_or_else(String::new, seconds);
            (format!("stream down for {lasts}"), Tone::Bad)
        }
        "polling" => ("polling, no stream".to_owned(), Tone::Plain),
        state => (format!("stream {state}"), Tone::Plain),
    }
}

/// The mean of the newest interval that has any.
fn last_latency(points: &[Point]) -> String {
    let last = points.iter().rev().find_map(|point| point.mean_ms);
    last.map_or_else(|| "–".to_owned(), latency)
}
