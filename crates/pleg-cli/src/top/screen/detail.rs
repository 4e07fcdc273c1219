//! One pod in detail.

use super::list::{exited, tone_of};
use super::*;

pub(super) fn lines(app: &App, view: &View, width: u16) -> Lines {
    let mut lines = Lines::new(width);
    let uid = app.detailed();
    let detail = view.detail.as_ref();
    match detail.filter(|detail| detail.row.pod.uid == uid) {
        Some(detail) => {
            about(&mut lines, detail);
            containers(&mut lines, detail);
            ends(&mut lines, detail);
            history(&mut lines, detail);
            labels(&mut lines, detail);
        }
        None if uid.is_empty() => lines.heading("no pod is selected"),
        None => lines.heading("the pod does not exist any more, or its details are not known yet"),
    }
    lines
}

fn about(lines: &mut Lines, detail: &Detail) {
    let row = &detail.row;
    lines.heading(&format!("pod {}", row.pod.shown()));
    if detail.gone {
        lines.text("This pod does not exist any more.", Tone::Bad);
    } else {
        let is_bad = row.problem.is_some() || row.failed;
        let text = format!(
            "{:?}, {} of {} running, restarted {} times",
            row.state, row.running, row.names, row.restarts
        );
        lines.text(&text, if is_bad { Tone::Bad } else { Tone::Plain });
        problem(lines, row.problem.as_ref(), row.problem_seconds);
        lines.text(&freshness(detail), Tone::Dim);
    }
    lines.text(&format!("uid {}", row.pod.uid), Tone::Dim);
    if !detail.ips.is_empty() {
        lines.text(&format!("addresses {}", detail.ips.join(", ")), Tone::Dim);
    }
    if let Some(error) = &detail.error {
        lines.text(&format!("last error: {error}"), Tone::Bad);
    }
    for sandbox in &detail.sandboxes {
        let (id, age) = (short(&sandbox.id), ago(sandbox.seconds));
        let (state, attempt) = (&sandbox.state, sandbox.attempt);
        let text = format!("sandbox {id} {state}, attempt {attempt}{age}");
        lines.text(&text, Tone::Dim);
        problem(lines, sandbox.problem.as_ref(), None);
    }
}

fn problem(lines: &mut Lines, problem: Option<&String>, lasts: Option<f64>) {
    if let Some(problem) = problem {
        lines.text(&format!("! {problem}{}", lasting(lasts)), Tone::Bad);
    }
}

fn freshness(detail: &Detail) -> String {
    let state = match detail.row.fresh_seconds {
        Some(read) => format!("states as of {} ago", age(read)),
        None => "states known from events; no read has confirmed them yet".to_owned(),
    };
    match detail.inspected_seconds {
        Some(read) => format!("{state}; details as of {} ago", age(read)),
        None => format!("{state}; details not read yet"),
    }
}

fn of_container(lines: &mut Lines, name: &str, text: &str, tone: Tone) {
    let mark = if tone == Tone::Bad { 'x' } else { ' ' };
    let name = padded(name, (lines.width / 4).clamp(10, 32));
    lines.line(&format!("{mark} {name} {text}"), tone);
}

fn containers(lines: &mut Lines, detail: &Detail) {
    lines.heading("containers, newest first");
    for container in &detail.containers {
        let is_newer = |other: &ContainerRow| {
            other.name == container.name && other.restarts > container.restarts
        };
        let tone = match detail.containers.iter().any(is_newer) {
            true => Tone::Dim,
            false => tone_of(container),
        };
        of_container(lines, &container.name, &about_container(container), tone);
        problem(lines, container.problem.as_ref(), None);
    }
    let rest = more(detail.more_containers);
    rest.iter().for_each(|rest| lines.text(rest, Tone::Dim));
}

fn about_container(container: &ContainerRow) -> String {
    let code = container.exit_code.map(|code| code.to_string());
    let unknown = (container.state == "Exited").then(|| "code not known".to_owned());
    let parts = [
        Some(padded(&container.state, 9)),
        container.seconds.map(|lasts| format!("for {}", age(lasts))),
        code.or(unknown),
        container.reason.clone(),
        Some(format!("attempt {}", container.restarts)),
        Some(short(&container.id)),
        Some(container.image.clone()),
    ];
    let shown = parts.into_iter().flatten().filter(|part| !part.is_empty());
    shown.collect::<Vec<_>>().join("  ")
}

fn ends(lines: &mut Lines, detail: &Detail) {
    if !detail.ends.is_empty() {
        lines.heading("how its containers ended, including removed containers");
    }
    for end in &detail.ends {
        let name = match end.container.is_empty() {
            true => "sandbox",
            false => &end.container,
        };
        of_container(lines, name, &(exited(end) + &ago(end.seconds)), Tone::Dim);
    }
}

fn history(lines: &mut Lines, detail: &Detail) {
    lines.heading("history, newest first");
    if detail.history.is_empty() {
        lines.text("no event since the start of this process", Tone::Dim);
    }
    for record in detail.history.iter().rev() {
        feed::add(lines, record, "");
    }
}

fn labels(lines: &mut Lines, detail: &Detail) {
    if !detail.labels.is_empty() {
        lines.heading("labels");
    }
    for (key, value) in &detail.labels {
        lines.text(&format!("{key}={value}"), Tone::Dim);
    }
    let rest = more(detail.more_labels);
    rest.iter().for_each(|rest| lines.text(rest, Tone::Dim));
}
