//! One pod in detail.

use ratatui::text::Line;

use super::feed;
use super::header::indented;
use super::list::{exited, tone_of};
use super::text::{Theme, Tone, ago, lasting, padded, seconds};
use crate::text::short;
use crate::top::app::App;
use crate::view::{ContainerRow, Detail, View};

pub(super) fn lines(app: &App, view: &View, width: usize) -> Vec<Line<'static>> {
    let (detail, uid) = (view.detail.as_ref(), app.detailed());
    let Some(detail) = detail.filter(|detail| detail.row.pod.uid == uid) else {
        let text = match &*uid {
            "" => "no pod is selected",
            _ => "the pod does not exist any more, or the answer is not there yet",
        };
        return vec![app.theme.heading(text, width)];
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
        self.lines.push(self.theme.heading(text, self.width));
    }

    /// A text, in as many lines as it needs.
    fn text(&mut self, text: &str, tone: Tone) {
        let lines = indented(self.theme, text, tone, self.width, usize::MAX);
        self.lines.extend(lines);
    }

    /// A line about a container of this name.
    fn of(&mut self, name: &str, text: &str, tone: Tone) {
        let mark = if tone == Tone::Bad { 'x' } else { ' ' };
        let name = padded(name, (self.width / 4).clamp(10, 32));
        let text = format!("{mark} {name} {text}");
        self.lines.push(self.theme.line(&text, tone, self.width));
    }

    fn about(&mut self, detail: &Detail) {
        let row = &detail.row;
        self.heading(&format!("pod {}", row.pod.shown()));
        if detail.gone {
            self.text("This pod does not exist any more.", Tone::Bad);
        } else {
            let is_bad = row.problem.is_some() || row.failed;
            let text = format!(
                "{}, {} of {} running, restarted {} times",
                row.state, row.running, row.names, row.restarts
            );
            self.text(&text, if is_bad { Tone::Bad } else { Tone::Plain });
            if let Some(problem) = &row.problem {
                let text = format!("! {problem}{}", lasting(row.problem_seconds));
                self.text(&text, Tone::Bad);
            }
            self.text(&freshness(detail), Tone::Dim);
        }
        self.text(&format!("uid {}", row.pod.uid), Tone::Dim);
        if !detail.ips.is_empty() {
            self.text(&format!("addresses {}", detail.ips.join(", ")), Tone::Dim);
        }
        if let Some(error) = &detail.error {
            self.text(&format!("last error: {error}"), Tone::Bad);
        }
        for sandbox in &detail.sandboxes {
            let (id, age) = (short(&sandbox.id), ago(sandbox.seconds));
            let text = format!(
                "sandbox {id} {}, attempt {}{age}",
                sandbox.state, sandbox.attempt
            );
            self.text(&text, Tone::Dim);
            if let Some(problem) = &sandbox.problem {
                self.text(&format!("! {problem}"), Tone::Bad);
            }
        }
    }

    fn containers(&mut self, detail: &Detail) {
        self.heading("containers, newest first");
        for container in &detail.containers {
            let is_newer = |other: &ContainerRow| {
                other.name == container.name && other.restarts > container.restarts
            };
            let tone = match detail.containers.iter().any(is_newer) {
                true => Tone::Dim,
                false => tone_of(container),
            };
            self.of(&container.name, &about(container), tone);
            if let Some(problem) = &container.problem {
                self.text(&format!("! {problem}"), Tone::Bad);
            }
        }
        self.more(detail.more_containers);
    }

    fn ends(&mut self, detail: &Detail) {
        if detail.ends.is_empty() {
            return;
        }
        self.heading("how its containers ended, with removed ones");
        for end in &detail.ends {
            let name = match end.container.is_empty() {
                true => "sandbox",
                false => &end.container,
            };
            let text = exited(end) + &ago(end.seconds);
            self.of(name, &text, Tone::Dim);
        }
    }

    fn history(&mut self, detail: &Detail) {
        self.heading("history, newest first");
        if detail.history.is_empty() {
            self.text("no event since the start of this process", Tone::Dim);
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
            self.text(&format!("{key}={value}"), Tone::Dim);
        }
        self.more(detail.more_labels);
    }

    fn more(&mut self, more: usize) {
        if more > 0 {
            self.text(&format!("and {more} more"), Tone::Dim);
        }
    }
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
    let code = container.exit_code.map(|code| code.to_string());
    let unknown = (container.state == "Exited").then(|| "code not known".to_owned());
    let parts = [
        Some(padded(&container.state, 9)),
        container.seconds.map(|age| format!("for {}", seconds(age))),
        code.or(unknown),
        container.reason.clone(),
        Some(format!("attempt {}", container.restarts)),
        Some(short(&container.id)),
        Some(container.image.clone()),
    ];
    let shown = parts.into_iter().flatten().filter(|part| !part.is_empty());
    shown.collect::<Vec<_>>().join("  ")
}
