//! The text of `/readyz`. `?verbose` marks each check: `[+]` passed, `[-]` failed, `[!]` degraded, `[ ]` not examined.

use super::*;
use crate::check::sentence;

const MOST_PODS: usize = 100;

/// The name of each check of `/readyz`, and its layer: the check shows the findings whose cause is in this layer.
const CHECKS: [(&str, Layer); 7] = [
    ("host", Layer::Host),
    ("runtime", Layer::Runtime),
    ("pods", Layer::Pod),
    ("list", Layer::Calls),
    ("event_stream", Layer::Stream),
    ("network", Layer::Network),
    ("kubelet", Layer::Kubelet),
];

pub(super) fn brief(view: &View, problems: &[Problem]) -> String {
    let reasons = &view.health.reasons;
    let (not_ready, degraded): (Vec<_>, Vec<_>) = reasons.iter().partition(|r| r.not_ready);
    let mut lines = vec![match not_ready.first() {
        None => "ok".to_owned(),
        Some(reason) => format!("not ready ({}): {}", reason.code, reason.message),
    }];
    let degraded = degraded.into_iter().map(sentence);
    lines.extend(degraded.map(|reason| format!("degraded {reason}")));
    let named = problems.iter().take(Health::NAMED);
    lines.extend(named.map(|problem| format!("pod {}", pod(problem))));
    lines.extend(polling(view));
    safe_lines(&lines)
}

/// Writes a line for each passed check. For other checks, writes each finding, its evidence and what to do.
pub(super) fn verbose(view: &View, problems: &[Problem]) -> String {
    let mut lines = Vec::new();
    for (name, layer) in CHECKS {
        check(name, layer, view, &mut lines);
    }
    let named = problems.iter().take(MOST_PODS);
    lines.extend(named.map(|problem| format!("[!]pod {}", pod(problem))));
    let more = more(problems.len().saturating_sub(MOST_PODS));
    lines.extend(more.map(|more| format!("[!]pod {more}; see /debug/pods")));
    let health = &view.health;
    let not_examined = health.not_examined.iter();
    lines.extend(not_examined.map(|what| format!("[ ]not examined: {what}")));
    let result = if health.ready { "passed" } else { "failed" };
    lines.push(format!("readyz check {result}"));
    safe_lines(&lines)
}

fn check(name: &str, layer: Layer, view: &View, lines: &mut Vec<String>) {
    let reasons = view.health.reasons.iter();
    let mut reasons = reasons.filter(|r| r.layer == lower(layer)).peekable();
    if reasons.peek().is_none() {
        let stream = polling(view).unwrap_or_else(|| view.stream.state.clone());
        lines.push(match layer {
            Layer::Host if is_host_unknown(view) => format!("[ ]{name} not examined"),
            Layer::Calls => format!("[+]{name} ok{}", list(view)),
            Layer::Stream => format!("[+]{name} ok: {stream}"),
            _ => format!("[+]{name} ok"),
        });
    }
    for reason in reasons {
        let result = match reason.not_ready {
            true => format!("[-]{name} failed"),
            false => format!("[!]{name} degraded"),
        };
        lines.push(format!("{result} {}", sentence(reason)));
        lines.extend(reason.evidence.iter().map(|line| format!("    {line}")));
        lines.push(match &reason.cause {
            Some(cause) => format!("    explained by {cause}"),
            None => format!("    do: {}", reason.action),
        });
    }
}

/// Returns true if nothing of the host was examined, as after a failed read of its processes.
fn is_host_unknown(view: &View) -> bool {
    let is_host = |what: &String| what.starts_with("the host: ") || what.starts_with("processes: ");
    view.health.not_examined.iter().any(is_host)
}

fn list(view: &View) -> String {
    let period = seconds(view.relist.period_seconds);
    let shown = |last| format!(": began {} ago; period {period}", seconds(last));
    view.relist.last_seconds.map(shown).unwrap_or_default()
}

fn polling(view: &View) -> Option<String> {
    let stream = &view.stream;
    let reason = stream.reason.as_ref().filter(|_| stream.state == "polling");
    reason.map(|reason| format!("polling: {reason}"))
}

fn pod(problem: &Problem) -> String {
    let (pod, lasts) = (problem.of.shown(), lasting(Some(problem.seconds)));
    format!("{pod} {}{lasts}: {}", problem.kind, problem.text)
}
