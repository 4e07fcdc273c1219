//! The text of `/readyz`. With `?verbose` it has one line for each check, as in the kube-apiserver:
//! `[+]` passed, `[-]` failed, and `[!]` degraded, which does not make the node unready.

use std::fmt::Write as _;
use std::time::Duration;

use pleg::PodProblem;
use pleg::core::{Health, Instant};

use crate::picture::facts::Facts;
use crate::picture::finding::Layer;
use crate::record::Pod;
use crate::text::{duration, safe};
use crate::view::{Reason, View};

/// How many pods are named.
const MOST_PODS: usize = 100;

/// The checks, and the layer whose findings belong to each.
const CHECKS: [(&str, Layer); 7] = [
    ("host", Layer::Host),
    ("runtime", Layer::Runtime),
    ("pods", Layer::Pod),
    ("list", Layer::Calls),
    ("event_stream", Layer::Stream),
    ("network", Layer::Network),
    ("writer", Layer::Kubelet),
];

/// What the checks are made of.
pub(super) struct State<'a> {
    pub(super) now: Instant,
    /// Without its pods.
    pub(super) view: &'a View,
    pub(super) problems: &'a [PodProblem],
    pub(super) facts: &'a Facts,
}

impl State<'_> {
    /// The result, the findings and the pods that they concern.
    pub(super) fn brief(&self) -> String {
        let mut text = Lines::default();
        let reasons = &self.view.health.reasons;
        match reasons.iter().find(|reason| reason.not_ready) {
            None => text.line("ok"),
            Some(reason) => text.line(&format!("not ready ({}): {}", reason.code, reason.message)),
        }
        for reason in reasons.iter().filter(|reason| !reason.not_ready) {
            text.line(&format!("degraded {}", said(reason)));
        }
        for problem in self.problems.iter().take(Health::NAMED) {
            text.line(&format!("pod {}", self.pod(problem)));
        }
        if let Some(reason) = self.polling() {
            text.line(&reason);
        }
        text.0
    }

    /// One line for each check, and below it what shows that it failed, and what to do.
    pub(super) fn verbose(&self) -> String {
        let mut text = Lines::default();
        let health = &self.view.health;
        for (name, layer) in CHECKS {
            let layer = layer.to_string();
            let reasons = health.reasons.iter().filter(|r| r.layer == layer);
            let mut passed = true;
            for reason in reasons {
                passed = false;
                let (sign, result) = match reason.not_ready {
                    true => ('-', "failed"),
                    false => ('!', "degraded"),
                };
                text.line(&format!("[{sign}]{name} {result} {}", said(reason)));
                for evidence in &reason.evidence {
                    text.line(&format!("    {evidence}"));
                }
                match &reason.cause {
                    Some(cause) => text.line(&format!("    explained by {cause}")),
                    None => text.line(&format!("    do: {}", reason.action)),
                }
            }
            if passed {
                let detail = match layer.as_str() {
                    "calls" => self.list(),
                    "stream" => self.stream(),
                    _ => String::new(),
                };
                text.line(&format!("[+]{name} ok{detail}"));
            }
        }
        for problem in self.problems.iter().take(MOST_PODS) {
            text.line(&format!("[!]pod {}", self.pod(problem)));
        }
        if let Some(more) = self.problems.len().checked_sub(MOST_PODS + 1) {
            text.line(&format!("[!]pod and {} more; see /debug/pods", more + 1));
        }
        self.runtime_conditions(&mut text);
        for what in &health.not_examined {
            text.line(&format!("[ ]not examined: {what}"));
        }
        let result = if health.ready { "passed" } else { "failed" };
        text.line(&format!("readyz check {result}"));
        text.0
    }

    fn lasts(&self, since: Instant) -> String {
        format!(" for {}", duration(self.now.since(since)))
    }

    fn list(&self) -> String {
        let relist = &self.view.relist;
        let Some(last) = relist.last_seconds else {
            return String::new();
        };
        let (ago, period) = (seconds(last), seconds(relist.period_seconds));
        format!(": began {ago} ago; period {period}")
    }

    fn polling(&self) -> Option<String> {
        let stream = &self.view.stream;
        let reason = stream.reason.as_ref().filter(|_| stream.state == "polling");
        reason.map(|reason| format!("polling: {reason}"))
    }

    fn stream(&self) -> String {
        let text = match &*self.view.stream.state {
            "polling" => self
                .polling()
                .unwrap_or("polling: --events never".to_owned()),
            "confirmed" => "confirmed".to_owned(),
            _ => "not confirmed yet".to_owned(),
        };
        format!(": {text}")
    }

    fn pod(&self, problem: &PodProblem) -> String {
        let (pod, kind) = (Pod::from(&problem.pod).shown(), problem.kind.as_str());
        format!("{pod} {kind}{}: {problem}", self.lasts(problem.since))
    }

    fn runtime_conditions(&self, text: &mut Lines) {
        let facts = self.facts;
        if let Some((error, since)) = &facts.error {
            let lasts = self.lasts(*since);
            text.line(&format!("[!]runtime_status failing{lasts}: {error}"));
        }
        let old = match facts.answered {
            Some(at) if facts.error.is_some() => {
                format!(", answered {} ago", duration(self.now.since(at)))
            }
            _ => String::new(),
        };
        let conditions = &facts.conditions.conditions;
        for condition in conditions {
            let is_bad = condition.is_needed() && !condition.status;
            let sign = if is_bad { '!' } else { '+' };
            let since = condition.since.filter(|_| !condition.status);
            let lasts = since.map(|since| self.lasts(since)).unwrap_or_default();
            text.line(&format!(
                "[{sign}]{}{lasts} is {condition}{old}",
                condition.name
            ));
        }
        if facts.error.is_none() && conditions.is_empty() {
            text.line("[+]runtime_status not known yet");
        }
    }
}

/// `(code) for 4s: message`.
fn said(reason: &Reason) -> String {
    let lasted = reason
        .seconds
        .map(|lasted| format!(" for {}", seconds(lasted)));
    let lasted = lasted.unwrap_or_default();
    format!("({}){lasted}: {}", reason.code, reason.message)
}

fn seconds(seconds: f64) -> String {
    duration(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

/// Lines of text, some of which comes from a runtime.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn line(&mut self, text: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "{}", safe(text));
    }
}
