//! The list of pods, with the containers of those that are expanded.

use ratatui::widgets::{Cell, Row, Table};

use super::*;

const RECENT_EXIT: f64 = 600.0;
/// The most of a column between the name and the last one.
const MOST_WIDTH: u16 = 20;
const GAP: u16 = 2;

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

const STATE: &str = "STATE";

const COLUMNS: [Column; 6] = [
    Column {
        title: STATE,
        width: 9,
        from: 0,
        is_number: false,
        pod: |row| match row.problem_seconds {
            Some(lasts) => format!("{} {}", row.state, age(lasts)),
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
        pod: |row| age_or(row.changed_seconds, "–"),
        container: |container| age_or(container.seconds, "–"),
    },
    Column {
        title: "FRESH",
        width: 7,
        from: 110,
        is_number: true,
        pod: |row| age_or(row.fresh_seconds, "events"),
        container: |_| String::new(),
    },
    Column {
        title: "PROBLEM OR LAST EXIT",
        width: 0,
        from: 50,
        is_number: false,
        pod: |row| problem_or(&row.problem, row.last_exit.as_ref().map(named_exit)),
        container: |c| problem_or(&c.problem, c.last_exit.as_ref().map(exited)),
    },
];

fn problem_or(problem: &Option<String>, exit: Option<String>) -> String {
    problem.clone().or(exit).unwrap_or_default()
}

fn age_or(seconds: Option<f64>, unknown: &str) -> String {
    seconds.map_or_else(|| unknown.to_owned(), age)
}

/// The end of a container, for example `1 Error`.
pub(super) fn exited(exit: &ExitRow) -> String {
    let code = exit.exit_code.map(|code| code.to_string());
    let code = code.as_deref().unwrap_or("?");
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

/// The columns that fit, and their widths; the first width is that of the name.
struct Columns<'a> {
    view: &'a View,
    shown: Vec<&'static Column>,
    widths: Vec<u16>,
}

impl<'a> Columns<'a> {
    fn new(view: &'a View, width: u16) -> Self {
        let longest = |text: &dyn Fn(&PodRow) -> String| {
            let rows = view.pods.rows.iter();
            let widths = rows.map(|row| crate::text::width(&text(row)));
            u16::try_from(widths.max().unwrap_or(0)).unwrap_or(u16::MAX)
        };
        let fits = COLUMNS.iter().filter(|column| column.from <= width);
        let shown: Vec<_> = fits.collect();
        let widths = shown.iter().map(|column| match column.width {
            0 => 0,
            least => longest(&column.pod).clamp(least, MOST_WIDTH),
        });
        let mut widths: Vec<_> = widths.collect();
        let fixed: u16 = widths.iter().map(|width| width + GAP).sum();
        let rest = width.saturating_sub(fixed);
        let name = 2 + longest(&|row| row.pod.shown());
        let mut name = name.clamp(22, 60).min(rest);
        // The last column gets what the names leave, and at least two fifths.
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
    fn row(
        &self,
        (name, tone): (String, Tone),
        mut cell: impl FnMut(&Column) -> (String, Tone),
    ) -> Row<'static> {
        let name = Text::styled(cut(&name, usize::from(self.widths[0])), tone);
        let cells = self.shown.iter().zip(&self.widths[1..]);
        let cells = cells.map(|(column, width)| {
            let (text, tone) = cell(column);
            let text = Text::styled(cut(&text, usize::from(*width)), tone);
            Cell::from(match column.is_number {
                true => text.right_aligned(),
                false => text,
            })
        });
        Row::new(std::iter::once(Cell::from(name)).chain(cells))
    }

    fn pod(&self, row: &PodRow, at_cursor: bool) -> Row<'static> {
        // The mark shows a problem without colours too.
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
        // The states are those of the runtime's last answer.
        let is_old = self.view.health.no_answer_seconds.is_some();
        let line = self.row((name, name_tone), |column| {
            let mut text = (column.pod)(row);
            if is_old && column.title == STATE {
                text.push('?');
            }
            (text, if column.width == 0 { note_tone } else { tone })
        });
        if at_cursor { line.reversed() } else { line }
    }

    fn containers(&self, row: &PodRow) -> Vec<Row<'static>> {
        let mut lines = Vec::new();
        for (n, container) in row.containers.iter().enumerate() {
            let is_last = n + 1 == row.containers.len() && row.more_containers == 0;
            let branch = if is_last { '└' } else { '├' };
            let (name, tone) = (&container.name, tone_of(container));
            let name = (format!("  {branch} {name}"), tone);
            lines.push(self.row(name, |column| ((column.container)(container), tone)));
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
    let titles = columns.row(("  POD".to_owned(), Tone::Dim), |column| {
        (column.title.to_owned(), Tone::Dim)
    });
    let table = Table::new(rows, columns.widths.clone()).column_spacing(GAP);
    frame.render_widget(table.header(titles), body);
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

/// Which pods match, in which order, and which of them are on the screen; `last` is the last one.
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
    if !query.namespace.is_empty() {
        text.push_str(&format!(", namespace {}", query.namespace));
    }
    if let Some(labels) = &query.labels {
        text.push_str(&format!(", labels {labels}"));
    }
    let order = if app.query.reverse { ", reversed" } else { "" };
    text.push_str(&format!(", by {}{order}", app.query.sort.text()));
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
