//! The list of pods, with the containers of those that are expanded.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Text;
use ratatui::widgets::{Cell, Row, Table};

use super::text::{Tone, ago, cut, seconds};
use crate::top::app::App;
use crate::view::{ContainerRow, ExitRow, PodRow, PodState, View};

/// An exit is pointed out for this long.
const RECENT_EXIT: f64 = 600.0;
/// The most of a column between the name and the last one.
const MOST_WIDTH: u16 = 20;
/// Between two columns.
const GAP: u16 = 2;

/// A column after the name.
struct Column {
    title: &'static str,
    /// The least width; 0 is the width that other columns leave.
    width: u16,
    /// The least width of a list that has it.
    from: u16,
    is_number: bool,
    pod: fn(&PodRow) -> String,
    container: fn(&ContainerRow) -> String,
}

const COLUMNS: [Column; 6] = [
    Column {
        title: "STATE",
        width: 9,
        from: 0,
        is_number: false,
        pod: |row| match row.problem_seconds {
            Some(lasts) => format!("{} {}", row.state, seconds(lasts)),
            None => row.state.to_string(),
        },
        container: |container| container.state.clone(),
    },
    Column {
        title: "RUN",
        width: 5,
        from: 40,
        is_number: true,
        pod: |row| format!("{}/{}", row.running, row.names),
        container: |_| String::new(),
    },
    Column {
        title: "RESTARTS",
        width: 8,
        from: 88,
        is_number: true,
        pod: |row| row.restarts.to_string(),
        container: |container| container.restarts.to_string(),
    },
    Column {
        title: "CHANGED",
        width: 7,
        from: 94,
        is_number: true,
        pod: |row| age(row.changed_seconds),
        container: |container| age(container.seconds),
    },
    Column {
        title: "FRESH",
        width: 7,
        from: 110,
        is_number: true,
        pod: |row| {
            let fresh = row.fresh_seconds;
            fresh.map_or_else(|| "events".to_owned(), seconds)
        },
        container: |_| String::new(),
    },
    Column {
        title: "PROBLEM OR LAST EXIT",
        width: 0,
        from: 50,
        is_number: false,
        pod: |row| {
            let exit = row.last_exit.as_ref().map(named_exit);
            row.problem.clone().or(exit).unwrap_or_default()
        },
        container: |container| {
            let exit = container.last_exit.as_ref().map(exited);
            container.problem.clone().or(exit).unwrap_or_default()
        },
    },
];

fn age(lasts: Option<f64>) -> String {
    lasts.map_or_else(|| "–".to_owned(), seconds)
}

/// The end of a container, for example `1 Error`.
pub(super) fn exited(exit: &ExitRow) -> String {
    let code = exit
        .exit_code
        .map_or_else(|| "?".to_owned(), |code| code.to_string());
    let reason = exit.reason.as_deref().unwrap_or_default();
    format!("{code} {reason}").trim().to_owned()
}

fn named_exit(exit: &ExitRow) -> String {
    format!("{}: {}{}", exit.container, exited(exit), ago(exit.seconds))
}

/// The number of lines that all pods would need, with the headings.
pub(super) fn height(app: &App, view: &View) -> usize {
    let rows = view.pods.rows.iter();
    let shown: usize = rows.map(|row| app.lines(row)).sum();
    let none = usize::from(view.pods.matching == 0);
    2 + none + shown + view.pods.matching.saturating_sub(view.pods.rows.len())
}

/// The columns that fit, and their widths; the first one is that of the name.
struct Shown {
    columns: Vec<&'static Column>,
    widths: Vec<u16>,
    /// The states are those of the runtime's last answer.
    is_old: bool,
}

impl Shown {
    fn new(view: &View, width: u16) -> Self {
        let longest = |text: &dyn Fn(&PodRow) -> String| {
            let widths = view
                .pods
                .rows
                .iter()
                .map(|row| crate::text::width(&text(row)));
            u16::try_from(widths.max().unwrap_or(0)).unwrap_or(u16::MAX)
        };
        let fits = COLUMNS.iter().filter(|column| column.from <= width);
        let columns: Vec<_> = fits.collect();
        let mut widths: Vec<_> = columns
            .iter()
            .map(|column| match column.width {
                0 => 0,
                least => longest(&column.pod).clamp(least, MOST_WIDTH),
            })
            .collect();
        let fixed: u16 = widths.iter().map(|width| width + GAP).sum();
        let rest = width.saturating_sub(fixed);
        let name = (2 + longest(&|row| row.pod.shown())).clamp(22, 60);
        // The last column gets what the names leave, and at least two fifths.
        let name = match widths.last_mut() {
            Some(last @ 0) => {
                let name = name.min(rest * 3 / 5);
                *last = rest - name;
                name
            }
            _ => name.min(rest),
        };
        widths.insert(0, name);
        Self {
            columns,
            widths,
            is_old: view.health.no_answer_seconds.is_some(),
        }
    }

    fn row(&self, cells: impl Iterator<Item = (String, Style)>) -> Row<'static> {
        let cells = cells
            .zip(&self.widths)
            .enumerate()
            .map(|(n, ((text, style), width))| {
                let text = Text::styled(cut(&text, usize::from(*width)), style);
                let is_number = n.checked_sub(1).is_some_and(|n| self.columns[n].is_number);
                Cell::from(if is_number {
                    text.right_aligned()
                } else {
                    text
                })
            });
        Row::new(cells.collect::<Vec<_>>())
    }
}

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, app: &mut App, view: &View) {
    let [top, body] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    let height = usize::from(body.height).saturating_sub(1).max(1);
    app.scroll_to_cursor(height);
    let shown = Shown::new(view, body.width);
    let first = app.top.saturating_sub(view.pods.offset);
    let (mut rows, mut last) = (Vec::new(), app.top);
    for (n, row) in view.pods.rows.iter().enumerate().skip(first) {
        if rows.len() >= height {
            break;
        }
        last = view.pods.offset + n + 1;
        rows.push(pod(app, &shown, row, view.pods.offset + n == app.cursor));
        if app.is_expanded(row) {
            rows.extend(containers(app, &shown, row));
        }
    }
    let dim = app.theme.style(Tone::Dim);
    let titles = shown.columns.iter().map(|column| column.title);
    let titles = std::iter::once("  POD").chain(titles);
    let titles = shown.row(titles.map(|title| (title.to_owned(), dim)));
    let width = usize::from(area.width);
    frame.render_widget(app.theme.heading(&filters(app, view, last), width), top);
    let widths = shown.widths.iter().map(|width| Constraint::Length(*width));
    let table = Table::new(rows, widths).column_spacing(GAP).header(titles);
    frame.render_widget(table, body);
    if view.pods.matching == 0 {
        let text = match (view.pods.total, view.relist.last_seconds) {
            (_, None) => "  not known yet: no list of the pods has succeeded",
            (0, _) => "  no pods",
            _ => "  no pod matches; c clears the filters",
        };
        let [_, below] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(body);
        frame.render_widget(app.theme.line(text, Tone::Plain, width), below);
    }
}

/// Which pods match, in which order, and which of them are on the screen; `last` is the last one.
fn filters(app: &App, view: &View, last: usize) -> String {
    let query = app.asked();
    let all = view.pods.matching;
    let mut text = match all == view.pods.total {
        true => "pods".to_owned(),
        false => format!("{all} of {} pods", view.pods.total),
    };
    if !query.search.is_empty() {
        text.push_str(&format!(", search {:?}", query.search));
    }
    if !query.namespace.is_empty() {
        text.push_str(&format!(", namespace {}", query.namespace));
    }
    if let Some(labels) = &query.labels {
        text.push_str(&format!(", labels {}", labels));
    }
    let order = if app.query.reverse { ", reversed" } else { "" };
    text.push_str(&format!(", by {}{order}", app.query.sort.text()));
    if last < all || app.top > 0 {
        text.push_str(&format!(" ── {} to {last} of {all}", app.top + 1));
    }
    text
}

fn pod(app: &App, shown: &Shown, row: &PodRow, at_cursor: bool) -> Row<'static> {
    // The mark shows a problem without colours too.
    let (mark, tone) = match row.state {
        PodState::Hung | PodState::Failing | PodState::StatusMissing | PodState::Unknown => {
            ('!', Tone::Bad)
        }
        _ if row.failed => ('x', Tone::Bad),
        _ => (' ', Tone::Dim),
    };
    let exit = row.last_exit.as_ref().filter(|e| e.exit_code != Some(0));
    let ago = exit.and_then(|exit| exit.seconds);
    let (name_tone, note_tone) = match tone {
        Tone::Dim if ago.is_some_and(|ago| ago < RECENT_EXIT) => (Tone::Plain, Tone::Warning),
        Tone::Dim => (Tone::Plain, Tone::Dim),
        tone => (tone, tone),
    };
    let cursor = if at_cursor { '>' } else { ' ' };
    let name = (
        format!("{cursor}{mark}{}", row.pod.shown()),
        app.theme.style(name_tone),
    );
    let cells = shown.columns.iter().enumerate().map(|(n, column)| {
        let tone = if column.width == 0 { note_tone } else { tone };
        // The first column is the state.
        let mark = if n == 0 && shown.is_old { "?" } else { "" };
        ((column.pod)(row) + mark, app.theme.style(tone))
    });
    let line = shown.row(std::iter::once(name).chain(cells));
    match at_cursor {
        true => line.style(Modifier::REVERSED),
        false => line,
    }
}

fn containers(app: &App, shown: &Shown, row: &PodRow) -> Vec<Row<'static>> {
    let more = (row.more_containers > 0).then(|| {
        let text = format!("  └ {} more: Enter", row.more_containers);
        shown.row(std::iter::once((text, app.theme.style(Tone::Dim))))
    });
    let line = |(n, container): (usize, &ContainerRow)| {
        let is_last = n + 1 == row.containers.len() && more.is_none();
        let branch = if is_last { '└' } else { '├' };
        let style = app.theme.style(tone_of(container));
        let name = (format!("  {branch} {}", container.name), style);
        let cells = shown
            .columns
            .iter()
            .map(|column| ((column.container)(container), style));
        shown.row(std::iter::once(name).chain(cells))
    };
    let lines: Vec<_> = row.containers.iter().enumerate().map(line).collect();
    lines.into_iter().chain(more).collect()
}

/// The look of a container.
pub(super) fn tone_of(container: &ContainerRow) -> Tone {
    match container.failed || container.problem.is_some() {
        true => Tone::Bad,
        false => Tone::Dim,
    }
}
