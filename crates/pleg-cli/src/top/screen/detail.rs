//! One pod in detail.

use ratatui::text::Line;

use super::feed;
use super::list::{exited, tone_of};
use super::text::{Theme, Tone, padded, seconds, wrapped};
use crate::text::short;
use crate::top::app::App;
use crate::view::{ContainerRow, Detail, ExitRow, View};

pub(super) fn lines(app: &App, view: &View, width: usize) -> Vec<Line<'static>> {
    let detail = view.detail.as_ref();
    let Some(detail) = detail.filter(|detail| detail.row.pod.uid == app.pod) else {
        let text = "── the pod does not exist any more, or the answer is not there yet";
        return vec![app.theme.line(text, Tone::Dim, width)];
    };
    let mut page = Lines {
        theme: app.theme,
        width,
        lines: Vec::new(),
    };
    page.about(detail);
    page.containers(detail);
    page.ends(detail);
    page.history(detail);
    page.labels(detail);
    page.lines
}

/// The lines of the page.
struct Lines {
    theme: Theme,
    width: usize,
    lines: Vec<Line<'static>>,
}

impl Lines {
    fn heading(&mut self, text: &str) {
        let text = format!("── {text} ");
        let text = padded(&text, self.width.min(crate::text::width(&text)));
        let rest = self.width.saturating_sub(crate::text::width(&text));
        let line = text + &"─".repeat(rest);
        self.lines
            .push(self.theme.line(&line, Tone::Dim, self.width));
    }

    /// A text, in as many lines as it needs.
    fn text(&mut self, text: &str, tone: Tone) {
        for line in wrapped(text, self.width.saturating_sub(2)) {
            let line = self.theme.line(&format!("  {line}"), tone, self.width);
            self.lines.push(line);
        }
    }

    fn about(&mut self, detail: &Detail) {
        let row = &detail.row;
        self.heading(&format!("pod {}", row.pod.shown()));
        if detail.gone {
            self.text("This pod does not exist any more.", Tone::Bad);
        } else {
            let (state, tone) = match (&row.problem, row.failed) {
                (None, false) => (row.state.as_str(), Tone::Plain),
                _ => (row.state.as_str(), Tone::Bad),
            };
            let text = format!(
                "{state}, {} of {} running, {} restarts",
                row.running, row.names, row.restarts
            );
            self.text(&text, tone);
            if let Some(problem) = &row.problem {
                let lasts = row.problem_seconds.map_or_else(String::new, seconds);
                self.text(&format!("! {problem}, for {lasts}"), Tone::Bad);
            }
            self.text(&freshness(detail), Tone::Plain);
        }
        self.text(&format!("uid {}", row.pod.uid), Tone::Plain);
        if !detail.ips.is_empty() {
            self.text(&format!("addresses {}", detail.ips.join(", ")), Tone::Plain);
        }
        if let Some(error) = &detail.error {
            self.text(&format!("last error: {error}"), Tone::Bad);
        }
        for sandbox in &detail.sandboxes {
            let age = sandbox
                .seconds
                .map(|age| format!(", created {} ago", seconds(age)));
            let problem = sandbox.problem.as_ref().map(|p| format!(": {p}"));
            let text = format!(
                "sandbox {} {}, attempt {}{}{}",
                short(&sandbox.id),
                sandbox.state,
                sandbox.attempt,
                age.unwrap_or_default(),
                problem.unwrap_or_default()
            );
            self.text(&text, Tone::Plain);
        }
    }

    fn containers(&mut self, detail: &Detail) {
        self.heading("containers, newest first");
        for container in &detail.containers {
            let tone = tone_of(container);
            let mark = if tone == Tone::Bad { 'x' } else { ' ' };
            let name = padded(&container.name, (self.width / 4).clamp(10, 32));
            let state = padded(&container.state, 9);
            let line = self.theme.texts(
                &[
                    (&*format!("{mark} {name} "), Tone::Plain),
                    (&*state, tone),
                    (&*format!(" {}", about(container)), Tone::Plain),
                ],
                self.width,
            );
            self.lines.push(line);
            if let Some(problem) = &container.problem {
                self.text(&format!("  ! {problem}"), Tone::Bad);
            }
        }
        if detail.more_containers > 0 {
            self.text(&format!("and {} more", detail.more_containers), Tone::Dim);
        }
    }

    fn ends(&mut self, detail: &Detail) {
        if detail.ends.is_empty() {
            return;
        }
        self.heading("how they ended, also removed ones");
        for end in &detail.ends {
            let name = match end.container.is_empty() {
                true => "sandbox",
                false => &end.container,
            };
            let name = padded(name, (self.width / 4).clamp(10, 32));
            let failed = end.exit_code != Some(0) && !end.container.is_empty();
            let line = self.theme.texts(
                &[
                    (&*format!("  {name} "), Tone::Plain),
                    (&*ended(end), if failed { Tone::Bad } else { Tone::Plain }),
                ],
                self.width,
            );
            self.lines.push(line);
        }
    }

    fn history(&mut self, detail: &Detail) {
        self.heading("history, newest first");
        if detail.history.is_empty() {
            self.text("no event since this process observes the node", Tone::Dim);
        }
        for record in detail.history.iter().rev() {
            let line = feed::record(self.theme, record, self.width, false);
            self.lines.push(line);
        }
    }

    fn labels(&mut self, detail: &Detail) {
        if detail.labels.is_empty() {
            return;
        }
        self.heading("labels");
        for (key, value) in &detail.labels {
            let line = self
                .theme
                .line(&format!("  {key}={value}"), Tone::Plain, self.width);
            self.lines.push(line);
        }
        if detail.more_labels > 0 {
            self.text(&format!("and {} more", detail.more_labels), Tone::Dim);
        }
    }
}

fn ended(end: &ExitRow) -> String {
    let ago = end.seconds.map(|ago| format!(", {} ago", seconds(ago)));
    exited(end) + &ago.unwrap_or_default()
}

fn freshness(detail: &Detail) -> String {
    let state = match detail.row.fresh_seconds {
        Some(age) => format!("states as of {} ago", seconds(age)),
        None => "states known from events, no read has confirmed them yet".to_owned(),
    };
    match detail.inspected_seconds {
        Some(age) => format!("{state}; details as of {} ago", seconds(age)),
        None => format!("{state}; details not read yet"),
    }
}

fn about(container: &ContainerRow) -> String {
    let code = container.exit_code.map(|code| format!("{code}"));
    let parts = [
        container.seconds.map(|age| format!("for {}", seconds(age))),
        code.or_else(|| (container.state == "Exited").then(|| "code not known".to_owned())),
        container.reason.clone(),
        Some(format!("attempt {}", container.restarts)),
        Some(short(&container.id)),
        Some(container.image.clone()),
    ];
    let parts = parts.into_iter().flatten();
    parts
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("  ")
}
