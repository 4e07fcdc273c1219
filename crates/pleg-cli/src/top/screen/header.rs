//! The first lines: the worst finding and what to do about it, old data, and the figures of the node.

use pleg::core::Instant;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::text::{Theme, Tone, lasting, seconds, tone_of, wrapped};
use crate::text::{duration, latency, time_of_day};
use crate::top::app::{App, Page};
use crate::view::{Point, Reason, View};

/// A screen with fewer lines shows the first finding and one line of what to do.
const LOW: u16 = 20;
/// The most lines for what comes after the first finding: up to `TALL` lines of the screen, and beyond.
const FEW: usize = 2;
const MANY: usize = 8;
const TALL: u16 = 36;
/// As many events per second are pointed out.
const STORM: f64 = 100.0;
/// A screen with as many columns shows latencies and the socket.
const WIDE: usize = 100;

pub(super) fn lines(app: &App, view: &View, now: Instant, area: Rect) -> Vec<Line<'static>> {
    let width = usize::from(area.width);
    // The node's page has everything.
    let is_low = area.height < LOW || app.page == Page::Node;
    let mut reasons = view.health.reasons.clone();
    if let (Some(error), Some(silence)) = (&app.error, app.silence(now)) {
        reasons.insert(0, Reason::silent_agent(error, silence.as_secs_f64()));
    }
    let mut lines = worst(app, view, &reasons, width, is_low);
    if app.page == Page::Pods {
        lines.extend(others(app.theme, &reasons, width, area.height));
    }
    lines.extend(old(app, view, now, width));
    lines.push(figures(app.theme, view, width));
    lines.push(sources(app.theme, view, width));
    lines
}

/// The state of the node, the worst finding and its next step.
fn worst(
    app: &App,
    view: &View,
    reasons: &[Reason],
    width: usize,
    is_low: bool,
) -> Vec<Line<'static>> {
    let (word, tone) = match (view.health.ready, reasons.first()) {
        (false, _) => ("NOT READY", Tone::Bad),
        (true, Some(_)) => ("DEGRADED", Tone::Warning),
        (true, None) => ("ready", Tone::Good),
    };
    let mut texts = Vec::new();
    for (is_shown, text) in [
        (view.simulated, " SIMULATED NODE "),
        (app.paused, " PAUSED: p goes on "),
    ] {
        if is_shown {
            texts.extend([(text, Tone::Banner), (" ", Tone::Plain)]);
        }
    }
    texts.extend([(word, tone), ("  ", Tone::Plain)]);
    let Some(reason) = reasons.first() else {
        let unknown = match view.health.not_examined.len() {
            0 => String::new(),
            n => format!("; {} not examined, see h", counted(n, "thing")),
        };
        let text = format!("no problem is known{unknown}");
        texts.push((&text, Tone::Dim));
        return vec![app.theme.texts(&texts, width)];
    };
    let used: usize = texts.iter().map(|(text, _)| text.len()).sum();
    let (most, tone) = (if is_low { 1 } else { 3 }, tone_of(reason));
    // A word of this width stands for what the first line has already.
    let text = format!("{} {}", "x".repeat(used - 1), sentence(reason));
    let parts = cut_after(wrapped(&text, width), most);
    texts.push((parts[0].get(used..).unwrap_or_default(), tone));
    let mut lines = vec![app.theme.texts(&texts, width)];
    let rest = parts[1..].iter();
    lines.extend(rest.map(|part| app.theme.line(part, tone, width)));
    if app.page == Page::Node {
        return lines;
    }
    let mut action = format!("do: {}", reason.action);
    if !reason.runbook.is_empty() {
        action.push_str(&format!(" See {}", reason.runbook));
    }
    lines.extend(indented(app.theme, &action, Tone::Plain, width, most));
    lines
}

/// The findings after the first one: those that another one explains are below it and dim.
fn others(theme: Theme, reasons: &[Reason], width: usize, height: u16) -> Vec<Line<'static>> {
    let most = match height {
        TALL.. => MANY,
        LOW.. => FEW,
        _ => 0,
    };
    let line = |reason: &Reason| match &reason.cause {
        Some(_) => theme.line(&format!("  └ {}", sentence(reason)), Tone::Dim, width),
        None => theme.line(&format!("! {}", sentence(reason)), tone_of(reason), width),
    };
    let rest = reasons.get(1..).unwrap_or_default();
    let mut lines: Vec<_> = rest.iter().take(most).map(line).collect();
    if rest.len() > most {
        lines.truncate(most.saturating_sub(1));
        let more = counted(rest.len() - lines.len(), "more finding");
        lines.push(theme.line(&format!("  and {more}: h"), Tone::Dim, width));
    }
    lines
}

pub(super) fn sentence(reason: &Reason) -> String {
    format!(
        "{}{}: {}",
        reason.code,
        lasting(reason.seconds),
        reason.message
    )
}

/// At most this many lines; an ellipsis says that there are more.
fn cut_after(mut lines: Vec<String>, most: usize) -> Vec<String> {
    if lines.len() > most {
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            last.pop();
            last.push('…');
        }
    }
    lines
}

/// A text in at most this many lines, two columns from the left.
pub(super) fn indented(
    theme: Theme,
    text: &str,
    tone: Tone,
    width: usize,
    most: usize,
) -> Vec<Line<'static>> {
    let lines = cut_after(wrapped(text, width.saturating_sub(2)), most);
    let line = |text: &String| theme.line(&format!("  {text}"), tone, width);
    lines.iter().map(line).collect()
}

/// A banner if what is shown is old.
fn old(app: &App, view: &View, now: Instant, width: usize) -> Option<Line<'static>> {
    let (of, lasts) = match (app.silence(now), view.health.no_answer_seconds) {
        (Some(silence), _) => ("agent", duration(silence)),
        (None, Some(lasts)) => ("runtime", seconds(lasts)),
        (None, None) => return None,
    };
    let text = format!(" NO ANSWER of the {of} for {lasts}: what is shown is old ");
    Some(app.theme.line(&text, Tone::Banner, width))
}

fn figures(theme: Theme, view: &View, width: usize) -> Line<'static> {
    let pods = &view.pods;
    let counts = match view.relist.last_seconds {
        None => "pods are not known yet".to_owned(),
        Some(_) => format!(
            "{}, {} ({} running)",
            counted(pods.total, "pod"),
            counted(pods.containers, "container"),
            pods.running
        ),
    };
    let (rate, tone) = match view.feed.events_per_second {
        rate @ STORM.. => (format!("! many events: {rate:.0}/s"), Tone::Bad),
        rate => (format!("{rate:.1} events/s"), Tone::Plain),
    };
    let time = time_of_day(&view.time, "%H:%M:%S UTC");
    let texts = [
        (&*view.node, Tone::Title),
        ("  ", Tone::Plain),
        (&*rate, tone),
        ("  ", Tone::Plain),
        (&*counts, Tone::Plain),
        ("  ", Tone::Plain),
        (&*time, Tone::Dim),
    ];
    theme.texts(&texts, width)
}

fn counted(n: usize, what: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {what}{plural}")
}

/// The stream, the lists and the last latencies.
fn sources(theme: Theme, view: &View, width: usize) -> Line<'static> {
    let relist = &view.relist;
    let last = match (relist.in_flight_seconds, relist.last_seconds) {
        (Some(running), _) if running >= 1.0 => format!("in flight for {}", seconds(running)),
        (_, Some(last)) => format!("last {} ago", seconds(last)),
        (_, None) => "none yet".to_owned(),
    };
    let (stream, tone) = stream(view);
    let mut text = format!("; list every {}, {last}", seconds(relist.period_seconds));
    if width >= WIDE {
        let latencies = [
            &view.latency.lists,
            &view.latency.reads,
            &view.latency.events,
        ];
        let [lists, reads, events] = latencies.map(|points| last_latency(points));
        text.push_str(&format!(
            "; latency: lists {lists}, reads {reads}, events {events}; {}",
            view.runtime
        ));
    }
    theme.texts(&[(&stream, tone), (&text, Tone::Dim)], width)
}

fn stream(view: &View) -> (String, Tone) {
    let missed = match view.stream.recently_missed {
        0 => String::new(),
        n => format!(", {n} of {} lost in 10m", view.stream.recently_expected),
    };
    match &*view.stream.state {
        "losing" => (format!("stream loses events{missed}"), Tone::Bad),
        "silent" => ("stream unknown".to_owned(), Tone::Bad),
        "down" => (
            format!("stream down{}", lasting(view.stream.seconds)),
            Tone::Bad,
        ),
        "polling" => ("polling, no stream".to_owned(), Tone::Dim),
        state => (format!("stream {state}{missed}"), Tone::Dim),
    }
}

/// The mean of the newest interval that has any.
fn last_latency(points: &[Point]) -> String {
    let last = points.iter().rev().find_map(|point| point.mean_ms);
    last.map_or_else(|| "–".to_owned(), latency)
}
