//! The first lines of the screen: the worst finding and what to do about it, old data, and the figures of the node.

use super::*;

/// A screen with fewer lines shows only the first finding, and only one line of its advice.
const LOW: u16 = 20;
/// The maximum number of lines for findings after the first: `FEW` on a screen of less than `TALL` lines, else `MANY`.
const FEW: usize = 2;
const MANY: usize = 8;
const TALL: u16 = 36;
const STORM: f64 = 100.0;
/// A screen with at least this many columns also shows latencies and the socket.
const WIDE: usize = 100;

pub(super) fn lines(app: &App, view: &View, now: Instant, area: Rect) -> Lines {
    let mut lines = Lines::new(area.width);
    let mut reasons = view.health.reasons.clone();
    if let (Some(error), Some(unanswered)) = (&app.error, app.unanswered_for(now)) {
        reasons.insert(0, Reason::silent_agent(error, unanswered.as_secs_f64()));
    }
    // The node's page shows the findings itself.
    let is_short = area.height < LOW || app.page == Page::Node;
    let most = if is_short { 1 } else { 3 };
    worst(&mut lines, app, view, &reasons, most);
    if app.page == Page::Pods {
        others(&mut lines, &reasons, area.height);
    }
    old(&mut lines, app, view, now);
    figures(&mut lines, view);
    sources(&mut lines, view);
    lines
}

/// The state of the node with the worst finding, and the next step, each in at most `most` lines.
fn worst(lines: &mut Lines, app: &App, view: &View, reasons: &[Reason], most: usize) {
    let (word, tone) = match (view.health.ready, reasons.first()) {
        (false, _) => ("NOT READY", Tone::Bad),
        (true, Some(_)) => ("DEGRADED", Tone::Warning),
        (true, None) => ("ready", Tone::Good),
    };
    let mut texts = Vec::new();
    let simulated = view.simulated.then_some(" SIMULATED NODE ");
    let paused = app.paused.then_some(" PAUSED: p goes on ");
    for banner in simulated.into_iter().chain(paused) {
        texts.extend([(banner, Tone::Banner), (" ", Tone::Plain)]);
    }
    texts.extend([(word, tone), ("  ", Tone::Plain)]);
    let Some(reason) = reasons.first() else {
        let mut text = "no problem is known".to_owned();
        if !view.health.not_examined.is_empty() {
            let things = counted(view.health.not_examined.len(), "thing");
            text.push_str(&format!("; {things} not examined, see h"));
        }
        texts.push((&text, Tone::Dim));
        return lines.spans(&texts);
    };
    let used: usize = texts.iter().map(|(text, _)| text.len()).sum();
    // Wraps the sentence behind a word of `x`, which is as long as the banners and the state before it.
    let text = format!("{} {}", "x".repeat(used - 1), sentence(reason));
    let parts = wrapped_within(most, &text, lines.width);
    let tone = tone_of(reason);
    texts.push((parts[0].get(used..).unwrap_or_default(), tone));
    lines.spans(&texts);
    parts[1..].iter().for_each(|part| lines.line(part, tone));
    if app.page != Page::Node {
        let see = enclosed(" See ", &reason.runbook, "");
        let action = format!("do: {}{see}", reason.action);
        lines.text_within(most, &action, Tone::Plain);
    }
}

/// The findings after the first one. An explained finding is dim, and below the finding that explains it.
fn others(lines: &mut Lines, reasons: &[Reason], height: u16) {
    let most = match height {
        TALL.. => MANY,
        LOW.. => FEW,
        _ => 0,
    };
    let rest = reasons.get(1..).unwrap_or_default();
    let shown = match rest.len() > most {
        true => most.saturating_sub(1),
        false => rest.len(),
    };
    for reason in &rest[..shown] {
        match &reason.cause {
            Some(_) => lines.line(&format!("  └ {}", sentence(reason)), Tone::Dim),
            None => lines.line(&format!("! {}", sentence(reason)), tone_of(reason)),
        }
    }
    if rest.len() > shown {
        let more = counted(rest.len() - shown, "more finding");
        lines.line(&format!("  and {more}: h"), Tone::Dim);
    }
}

fn old(lines: &mut Lines, app: &App, view: &View, now: Instant) {
    let (of, lasts) = match (app.unanswered_for(now), view.health.no_answer_seconds) {
        (Some(lasts), _) => ("agent", duration(lasts)),
        (None, Some(lasts)) => ("runtime", age(lasts)),
        (None, None) => return,
    };
    let text = format!(" NO ANSWER from the {of} for {lasts}: what is shown is old ");
    lines.line(&text, Tone::Banner);
}

fn figures(lines: &mut Lines, view: &View) {
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
    lines.spans(&[
        (&view.node, Tone::Title),
        ("  ", Tone::Plain),
        (&rate, tone),
        (&format!("  {counts}  "), Tone::Plain),
        (&time_of_day(&view.time, "%H:%M:%S UTC"), Tone::Dim),
    ]);
}

fn sources(lines: &mut Lines, view: &View) {
    let relist = &view.relist;
    let last = match (relist.in_flight_seconds, relist.last_seconds) {
        (Some(running), _) if running >= 1.0 => format!("in flight for {}", age(running)),
        (_, Some(last)) => format!("last {} ago", age(last)),
        (_, None) => "none yet".to_owned(),
    };
    let stream = view.stream.text();
    let tone = match &*view.stream.state {
        "losing" | "silent" | "down" => Tone::Bad,
        _ => Tone::Dim,
    };
    let mut text = format!("; list every {}, {last}", seconds(relist.period_seconds));
    if lines.width >= WIDE {
        let latency = &view.latency;
        let latencies = [&latency.lists, &latency.reads, &latency.events];
        // The mean of the newest interval in which something was measured.
        let [lists, reads, events] = latencies.map(|points| {
            let last = points.iter().rev().find_map(|point| point.mean_ms);
            last.map_or_else(|| "–".to_owned(), span)
        });
        text += &format!("; latency: lists {lists}, reads {reads}, events {events}; ");
        text += &view.runtime;
    }
    lines.spans(&[(&stream, tone), (&text, Tone::Dim)]);
}
