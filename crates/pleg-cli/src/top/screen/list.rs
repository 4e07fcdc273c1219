//! The list of pods, with the containers of those that are expanded.

use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::text::{Theme, Tone, cut, padded, padded_left, seconds};
use crate::table::{Width, fit};
use crate::top::app::App;
use crate::view::{ContainerRow, ExitRow, PodRow, PodState, View};

const HEADINGS: [&str; 7] = [
    "POD",
    "STATE",
    "RUN",
    "RESTARTS",
    "LAST EXIT",
    "CHANGE",
    "FRESH",
];
/// The columns whose texts are at the right end.
const NUMBERS: [bool; 7] = [false, false, true, true, false, true, true];
/// Before each pod: the cursor and a mark.
const MARGIN: usize = 2;
/// Between two columns.
const GAP: usize = 2;

type Widths = [usize; 7];

/// How many lines it would need to show all pods, with the headings.
pub(super) fn height(app: &App, view: &View) -> usize {
    let rows = view.pods.rows.iter();
    let shown: usize = rows.map(|row| app.lines(row)).sum();
    let none = usize::from(view.pods.matching == 0);
    2 + none + shown + view.pods.matching.saturating_sub(view.pods.rows.len())
}

pub(super) fn lines(app: &mut App, view: &View, width: usize, height: usize) -> Vec<Line<'static>> {
    let widths = widths(view, width);
    let mut lines = vec![Line::default(), headings(app.theme, &widths)];
    app.scroll_to_cursor(height.saturating_sub(lines.len()).max(1));
    let first = app.top.saturating_sub(view.pods.offset);
    let mut last = app.top;
    for (n, row) in view.pods.rows.iter().enumerate().skip(first) {
        if lines.len() >= height {
            break;
        }
        last = view.pods.offset + n + 1;
        let at_cursor = view.pods.offset + n == app.cursor;
        lines.push(pod(app.theme, row, &widths, at_cursor));
        if app.is_expanded(row) {
            lines.extend(containers(app.theme, row, &widths));
        }
    }
    if view.pods.matching == 0 {
        let text = match (view.pods.total, view.relist.last_seconds) {
            (_, None) => "  not known yet: no list of the pods has succeeded",
            (0, _) => "  no pods",
            _ => "  no pod matches; c clears the filters",
        };
        lines.push(app.theme.line(text, Tone::Plain, width));
    }
    lines[0] = filters(app, view, last, width);
    lines
}

/// Which pods match, in which order, and which of them are on the screen; `last` is the last one.
fn filters(app: &App, view: &View, last: usize, width: usize) -> Line<'static> {
    let query = app.query();
    let mut text = match view.pods.matching == view.pods.total {
        true => "── pods".to_owned(),
        false => format!("── {} of {} pods", view.pods.matching, view.pods.total),
    };
    if !query.search.is_empty() {
        text.push_str(&format!(", search {:?}", query.search));
    }
    if !query.namespace.is_empty() {
        text.push_str(&format!(", namespace {}", query.namespace));
    }
    if let Some(labels) = &query.labels {
        text.push_str(&format!(", labels {}", labels.as_str()));
    }
    let order = if app.reverse { ", reversed" } else { "" };
    text.push_str(&format!(", by {}{order} ", app.sort.as_str()));
    if last < view.pods.matching || app.top > 0 {
        let (first, all) = (app.top + 1, view.pods.matching);
        text.push_str(&format!("── {first} to {last} of {all} "));
    }
    let text = cut(&text, width);
    let rest = width.saturating_sub(crate::text::width(&text));
    app.theme
        .line(&(text + &"─".repeat(rest)), Tone::Dim, width)
}

/// Columns that do not fit are left out, the least important first.
fn widths(view: &View, width: usize) -> Widths {
    let longest = |text: fn(&PodRow) -> usize| view.pods.rows.iter().map(text).max().unwrap_or(0);
    let pod = longest(|row| crate::text::width(&crate::text::safe(&row.pod.shown()))).clamp(20, 60);
    let exit = longest(|row| {
        row.last_exit
            .as_ref()
            .map_or(0, |exit| exited(exit).chars().count())
    });
    let mut widths = [
        Width::new(pod).at_least(16),
        Width::new(9),
        Width::new(5),
        Width::new(8).omitted(1),
        Width::new(exit.clamp(9, 20)).at_least(9).omitted(3),
        Width::new(7).omitted(4),
        Width::new(7).omitted(2),
    ];
    fit(widths.iter_mut().collect(), width.saturating_sub(MARGIN));
    widths.map(|width| width.now)
}

fn headings(theme: Theme, widths: &Widths) -> Line<'static> {
    let cells = HEADINGS.map(|heading| (heading.to_owned(), Style::new()));
    columns("  ", &cells, widths, theme.style(Tone::Dim))
}

fn pod(theme: Theme, row: &PodRow, widths: &Widths, at_cursor: bool) -> Line<'static> {
    let (mark, tone) = look(row);
    let exit = row.last_exit.as_ref();
    let exit_tone = match exit {
        Some(exit) if exit.exit_code != Some(0) => Tone::Warning,
        _ => Tone::Plain,
    };
    let age = |lasts: Option<f64>| lasts.map_or_else(|| "–".to_owned(), seconds);
    let state = match row.problem_seconds {
        Some(lasts) => format!("{} {}", row.state.as_str(), seconds(lasts)),
        None => row.state.as_str().to_owned(),
    };
    let plain = theme.style(Tone::Plain);
    let cells = [
        (
            row.pod.shown(),
            theme.style(if tone == Tone::Bad { tone } else { Tone::Plain }),
        ),
        (state, theme.style(tone)),
        (format!("{}/{}", row.running, row.names), plain),
        (row.restarts.to_string(), plain),
        (
            exit.map_or_else(String::new, exited),
            theme.style(exit_tone),
        ),
        (age(row.changed_seconds), plain),
        (
            row.fresh_seconds
                .map_or_else(|| "events".to_owned(), seconds),
            plain,
        ),
    ];
    let cursor = if at_cursor { '>' } else { ' ' };
    let base = match at_cursor {
        true => Style::new().add_modifier(Modifier::REVERSED),
        false => Style::new(),
    };
    columns(&format!("{cursor}{mark}"), &cells, widths, base)
}

/// A mark and a tone, so that a problem is seen without colours, too.
const fn look(row: &PodRow) -> (char, Tone) {
    match row.state {
        PodState::Hung | PodState::Failing | PodState::StatusMissing | PodState::Unknown => {
            ('!', Tone::Bad)
        }
        _ if row.failed => ('x', Tone::Bad),
        PodState::Running | PodState::Ready => (' ', Tone::Good),
        _ => (' ', Tone::Warning),
    }
}

/// How a container ended, for example `1 Error`.
pub(super) fn exited(exit: &ExitRow) -> String {
    let code = exit
        .exit_code
        .map_or_else(|| "?".to_owned(), |code| code.to_string());
    let reason = exit.reason.as_deref().unwrap_or_default();
    format!("{code} {reason}").trim().to_owned()
}

fn containers(theme: Theme, row: &PodRow, widths: &Widths) -> Vec<Line<'static>> {
    let mut lines: Vec<_> = row
        .containers
        .iter()
        .enumerate()
        .map(|(n, container)| {
            let last = n + 1 == row.containers.len() && row.more_containers == 0;
            one_container(theme, container, if last { "└ " } else { "├ " }, widths)
        })
        .collect();
    if row.more_containers > 0 {
        let text = format!("  └ {} more: Enter", row.more_containers);
        lines.push(theme.line(&text, Tone::Dim, widths[0] + MARGIN));
    }
    lines
}

/// How a container is doing.
pub(super) fn tone_of(container: &ContainerRow) -> Tone {
    match (
        container.failed || container.problem.is_some(),
        &*container.state,
    ) {
        (true, _) => Tone::Bad,
        (false, "Running") => Tone::Good,
        (false, _) => Tone::Warning,
    }
}

fn one_container(
    theme: Theme,
    container: &ContainerRow,
    branch: &str,
    widths: &Widths,
) -> Line<'static> {
    let plain = theme.style(Tone::Plain);
    let tone = tone_of(container);
    let exit = container.last_exit.as_ref();
    let cells = [
        (format!("{branch}{}", container.name), plain),
        (container.state.clone(), theme.style(tone)),
        (String::new(), plain),
        (container.restarts.to_string(), plain),
        (exit.map_or_else(String::new, exited), plain),
        (
            container.seconds.map_or_else(|| "–".to_owned(), seconds),
            plain,
        ),
        (String::new(), plain),
    ];
    columns("  ", &cells, widths, Style::new())
}

/// The cells of a row, in those columns that are shown.
fn columns(
    margin: &str,
    cells: &[(String, Style); 7],
    widths: &Widths,
    base: Style,
) -> Line<'static> {
    let mut spans = vec![Span::styled(margin.to_owned(), base)];
    for (n, ((text, style), width)) in cells.iter().zip(widths).enumerate() {
        if *width == 0 {
            continue;
        }
        if n > 0 {
            spans.push(Span::styled(" ".repeat(GAP), base));
        }
        let text = match NUMBERS[n] {
            true => padded_left(text, *width),
            false => padded(text, *width),
        };
        spans.push(Span::styled(text, base.patch(*style)));
    }
    Line::from(spans)
}
