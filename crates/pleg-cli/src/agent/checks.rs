//! The text of `/readyz`. With `?verbose` it has one line for each check, as in the kube-apiserver:
//! `[+]` passed, `[-]` failed, and `[!]` degraded, which does not make the node unready.

use super::*;
use crate::check::sentence;

const MOST_PODS: usize = 100;

/// The checks. Each has the layer whose findings make the check fail.
const CHECKS: [(&str, Layer); 7] = [
    ("host", Layer::Host),
    ("runtime", Layer::Runtime),
    ("pods", Layer::Pod),
    ("list", Layer::Calls),
    ("event_stream", Layer::Stream),
    ("network", Layer::Network),
    ("writer", Layer::Kubelet),
];

pub(super) struct State {
    /// Without its pods.
    pub(super) view: View,
    pub(super) picture: Picture,
}

impl State {
    pub(super) fn brief(&self) -> String {
        let reasons = &self.view.health.reasons;
        let (not_ready, degraded): (Vec<_>, Vec<_>) = reasons.iter().partition(|r| r.not_ready);
        let mut lines = vec![match not_ready.first() {
            None => "ok".to_owned(),
            Some(reason) => format!("not ready ({}): {}", reason.code, reason.message),
        }];
        let degraded = degraded.into_iter().map(sentence);
        lines.extend(degraded.map(|reason| format!("degraded {reason}")));
        let named = self.picture.problems.iter().take(Health::NAMED);
        lines.extend(named.map(|problem| format!("pod {}", Self::pod(problem))));
        lines.extend(self.polling());
        safe_lines(&lines)
    }

    /// One line for each check. Below a failed check: the evidence, and what to do.
    pub(super) fn verbose(&self) -> String {
        let mut lines = Vec::new();
        for (name, layer) in CHECKS {
            self.check(name, layer, &mut lines);
        }
        let named = self.picture.problems.iter().take(MOST_PODS);
        lines.extend(named.map(|problem| format!("[!]pod {}", Self::pod(problem))));
        let more = more(self.picture.problems.len().saturating_sub(MOST_PODS));
        lines.extend(more.map(|more| format!("[!]pod {more}; see /debug/pods")));
        let health = &self.view.health;
        let not_examined = health.not_examined.iter();
        lines.extend(not_examined.map(|what| format!("[ ]not examined: {what}")));
        let result = if health.ready { "passed" } else { "failed" };
        lines.push(format!("readyz check {result}"));
        safe_lines(&lines)
    }

    fn check(&self, name: &str, layer: Layer, lines: &mut Vec<String>) {
        let reasons = self.view.health.reasons.iter();
        let mut reasons = reasons.filter(|r| r.layer == lower(layer)).peekable();
        let state = &self.view.stream.state;
        if reasons.peek().is_none() {
            let detail = match layer {
                Layer::Calls => self.list(),
                Layer::Stream => format!(": {}", self.polling().as_ref().unwrap_or(state)),
                _ => String::new(),
            };
            lines.push(format!("[+]{name} ok{detail}"));
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

    fn list(&self) -> String {
        let relist = &self.view.relist;
        let (last, period) = (relist.last_seconds, seconds(relist.period_seconds));
        let shown = last.map(|last| format!(": began {} ago; period {period}", seconds(last)));
        shown.unwrap_or_default()
    }

    fn polling(&self) -> Option<String> {
        let stream = &self.view.stream;
        let reason = stream.reason.as_ref().filter(|_| stream.state == "polling");
        reason.map(|reason| format!("polling: {reason}"))
    }

    fn pod(problem: &Problem) -> String {
        let (pod, lasts) = (problem.of.shown(), lasting(Some(problem.seconds)));
        format!("{pod} {}{lasts}: {}", problem.kind, problem.text)
    }
}
