//! The list of pods, with the containers of expanded pods.

use ratatui::widgets::{Cell, Row, Table};

use super::*;

const RECENT_EXIT: f64 = 600.0;
/// The maximum width of the columns between the name and the last column.
const MOST_WIDTH: u16 = 20;
const GAP: u16 = 2;
const LAST: &str = "PROBLEM OR LAST EXIT";
/// The columns after the name: title, least width (0: what other columns leave), least width of the list to show it.
const COLUMNS: [(&str, u16, u16); 6] = [
    ("STATE", 9, 0),
    ("RUN", 5, 40),
    ("RESTARTS", 8, 88),
    ("CHANGED", 7, 94),
    ("FRESH", 7, 110),
    (LAST, 0, 50),
];

fn of_pod(view: &View, row: &PodRow, title: &str) -> String {
    match title {
        "STATE" => {
            let lasts = row.problem_seconds.map(|lasts| format!(" {}", age(lasts)));
            // The question mark shows that the state may be old, because the runtime does not answer.
            let is_old = view.health.no_answer_seconds.is_some();
            let mark = if is_old { "?" } else { "" };
            format!("{:?}{}{mark}", row.state, lasts.unwrap_or_default())
        }
        "RUN" => format!("{}/{}", row.running, row.names),
        "RESTARTS" => row.restarts.to_string(),
        "CHANGED" => age_or(row.changed_seconds, "–"),
        "FRESH" => age_or(row.fresh_seconds, "events"),
        _ => problem_or(&row.problem, row.last_exit.as_ref().map(named_exit)),
    }
}

fn of_container(container: &ContainerRow, title: &str) -> String {
    match title {
        "STATE" => container.state.clone(),
        "RUN" | "FRESH" => String::new(),
        "RESTARTS" => container.restarts.to_string(),
        "CHANGED" => age_or(container.seconds, "–"),
        _ => problem_or(&container.problem, container.last_exit.as_ref().map(exited)),
    }
}

fn problem_or(problem: &Option<String>, exit: Option<String>) -> String {
    problem.clone().or(exit).unwrap_or_default()
}

fn age_or(seconds: Option<f64>, unknown: &str) -> String {
    seconds.map_or_else(|| unknown.to_owned(), age)
}

pub(super) fn exited(exit: &ExitRow) -> String {
    let reason = exit.reason.as_deref().unwrap_or_default();
    crate::text::exit(exit.exit_code, "?", reason)
}

fn named_exit(exit: &ExitRow) -> String {
    format!("{}: {}{}", exit.container, exited(exit), ago(exit.seconds))
}

/// The number of lines that all pods would need, with the headings.
pub(super) fn height(app: &App, view: &View) -> usize {
    let shown: usize = view.pods.rows.iter().map(|row| app.lines(row)).sum();
    let none = usize::from(view.pods.matching == 0);
    2 + none + shown + view.pods.matching.saturating_sub(view.pods.rows.len())
}

/// The columns that fit, and their widths. The first width belongs to the name.
struct Columns<'a> {
    view: &'a View,
    shown: Vec<(&'static str, u16, u16)>,
    widths: Vec<u16>,
}

impl<'a> Columns<'a> {
    fn new(view: &'a View, width: u16) -> Self {
        let longest = |text: &dyn Fn(&PodRow) -> String| {
            let rows = view.pods.rows.iter();
            let widths = rows.map(|row| crate::text::width(&text(row)));
            u16::try_from(widths.max().unwrap_or(0)).unwrap_or(u16::MAX)
        };
        let fits = COLUMNS.into_iter().filter(|(_, _, from)| *from <= width);
        let shown: Vec<_> = fits.collect();
        let widths = shown.iter().map(|(title, least, _)| match least {
            0 => 0,
            least => longest(&|row| of_pod(view, row, title)).clamp(*least, MOST_WIDTH),
        });
        let mut widths: Vec<_> = widths.collect();
        let fixed: u16 = widths.iter().map(|width| width + GAP).sum();
        let rest = width.saturating_sub(fixed);
        let name = 2 + longest(&|row| row.pod.shown());
        let mut name = name.clamp(22, 60).min(rest);
        // The last column gets the width that the names leave, but at least two fifths of `rest`.
        if let Some(last @ 0) = widths.last_mut() {
            name = name.min(rest * 3 / 5);
            *last = rest - name;
        }
        widths.insert(0, name);
        Self {
            view,
            shown,
            widths,
        }
    }

    /// A row of texts: the name, and what `cell` returns for each other column.
    fn row(&self, name: (String, Tone), cell: impl Fn(&str) -> (String, Tone)) -> Row<'static> {
        let styled = |(text, tone): (String, Tone), width: u16| {
            Text::styled(cut(&text, usize::from(width)), tone)
        };
        let columns = self.shown.iter().zip(&self.widths[1..]);
        let cells = columns.map(|((title, ..), width)| {
            let text = styled(cell(title), *width);
            Cell::from(match *title {
                "STATE" | LAST => text,
                _ => text.right_aligned(),
            })
        });
        Row::new(std::iter::once(Cell::from(styled(name, self.widths[0]))).chain(cells))
    }

    fn pod(&self, row: &PodRow, at_cursor: bool) -> Row<'static> {
        // Even without colours, `!` shows a problem and `x` a failed container.
        let (mark, tone) = match row.state {
            state if state.is_problem() => ('!', Tone::Bad),
            _ if row.failed => ('x', Tone::Bad),
            _ => (' ', Tone::Dim),
        };
        let exit = row.last_exit.as_ref().filter(|e| e.exit_code != Some(0));
        let ago = exit.and_then(|exit| exit.seconds);
        let is_recent = ago.is_some_and(|ago| ago < RECENT_EXIT);
        let (name_tone, note_tone) = match tone {
            Tone::Dim if is_recent => (Tone::Plain, Tone::Warning),
            Tone::Dim => (Tone::Plain, Tone::Dim),
            tone => (tone, tone),
        };
        let cursor = if at_cursor { '>' } else { ' ' };
        let name = format!("{cursor}{mark}{}", row.pod.shown());
        let line = self.row((name, name_tone), |title| {
            let tone = if title == LAST { note_tone } else { tone };
            (of_pod(self.view, row, title), tone)
        });
        if at_cursor { line.reversed() } else { line }
    }

    fn containers(&self, row: &PodRow) -> Vec<Row<'static>> {
        let mut lines = Vec::new();
        for (n, container) in row.containers.iter().enumerate() {
            let is_last = n + 1 == row.containers.len() && row.more_containers == 0;
            let branch = if is_last { '└' } else { '├' };
            let tone = tone_of(container);
            let name = (format!("  {branch} {}", container.name), tone);
            lines.push(self.row(name, |title| (of_container(container, title), tone)));
        }
        if row.more_containers > 0 {
            let text = format!("  └ {} more: Enter", row.more_containers);
            lines.push(self.row((text, Tone::Dim), |_| (String::new(), Tone::Dim)));
        }
        lines
    }
}

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, app: &mut App, view: &View) {
    let [top, body] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    let height = usize::from(body.height).saturating_sub(1).max(1);
    app.scroll_to_cursor(height);
    let columns = Columns::new(view, body.width);
    let first = app.top.saturating_sub(view.pods.offset);
    let (mut rows, mut last) = (Vec::new(), app.top);
    for (at, row) in (view.pods.offset..).zip(&view.pods.rows).skip(first) {
        if rows.len() >= height {
            break;
        }
        last = at + 1;
        rows.push(columns.pod(row, at == app.cursor));
        if app.is_expanded(row) {
            rows.extend(columns.containers(row));
        }
    }
    let mut lines = Lines::new(area.width);
    lines.heading(&filters(app, view, last));
    frame.render_widget(Paragraph::new(lines.all), top);
    let title = |title: &str| (title.to_owned(), Tone::Dim);
    let table = Table::new(rows, columns.widths.clone()).column_spacing(GAP);
    frame.render_widget(table.header(columns.row(title("  POD"), title)), body);
    if view.pods.matching == 0 {
        let text = match (view.pods.total, view.relist.last_seconds) {
            (_, None) => "  not known yet: no list of the pods has succeeded",
            (0, _) => "  no pods",
            _ => "  no pod matches; c clears the filters",
        };
        let [_, below] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(body);
        let mut lines = Lines::new(area.width);
        lines.line(text, Tone::Plain);
        frame.render_widget(Paragraph::new(lines.all), below);
    }
}

/// A line about the matching pods, their order, and which are visible. `last`: the place of the last visible pod.
fn filters(app: &App, view: &View, last: usize) -> String {
    let query = app.wanted();
    let all = view.pods.matching;
    let mut text = match all == view.pods.total {
        true => "pods".to_owned(),
        false => format!("{all} of {} pods", view.pods.total),
    };
    if !query.search.is_empty() {
        text.push_str(&format!(", search {:?}", query.search));
    }
    let labels = query.labels.iter();
    let labels = labels.map(|labels| format!(", labels {labels}"));
    text += &enclosed(", namespace ", &query.namespace, "");
    text.extend(labels);
    let order = if app.query.reverse { ", reversed" } else { "" };
    text.push_str(&format!(", by {}{order}", lower(app.query.sort)));
    if last < all || app.top > 0 {
        text.push_str(&format!(" ── {} to {last} of {all}", app.top + 1));
    }
    text
}

pub(super) fn tone_of(container: &ContainerRow) -> Tone {
    match container.failed || container.problem.is_some() {
        true => Tone::Bad,
        false => Tone::Dim,
    }
}
