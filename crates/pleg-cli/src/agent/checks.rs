//! The text of `/readyz`. With `?verbose` it has one line for each check, as in the kube-apiserver:
//! `[+]` passed, `[-]` failed, and `[!]` degraded, which does not make the node unready.

use std::fmt::Write as _;

use pleg::core::{Degraded, Health, Instant, NotReady, StreamState};
use pleg::{HealthWatch, PodProblem};

use super::runtime_status::RuntimeStatus;
use crate::health::sentence;
use crate::record::Pod;
use crate::text::{duration, safe};

/// How many pods are named.
const MOST_PODS: usize = 100;

/// What the checks are made of.
pub(super) struct State<'a> {
    pub(super) now: Instant,
    pub(super) ready: Result<(), NotReady>,
    pub(super) health: Health,
    pub(super) problems: &'a [PodProblem],
    pub(super) runtime: &'a RuntimeStatus,
}

impl<'a> State<'a> {
    pub(super) fn new(
        now: Instant,
        health: &HealthWatch,
        problems: &'a [PodProblem],
        runtime: &'a RuntimeStatus,
    ) -> Self {
        Self {
            now,
            ready: health.ready(),
            health: health.current(),
            problems,
            runtime,
        }
    }

    /// The result, the degraded reasons and the pods that they concern.
    pub(super) fn brief(&self) -> String {
        let mut text = Lines::default();
        match &self.ready {
            Ok(()) => text.line("ok"),
            Err(reason) => text.line(&format!("not ready ({}): {reason}", reason.as_str())),
        }
        for degraded in self.health.degraded(self.now) {
            let lasts = self.lasts(degraded.since());
            text.line(&format!(
                "degraded ({}){lasts}: {}",
                degraded.as_str(),
                sentence(&degraded, &self.health)
            ));
        }
        for problem in self.problems.iter().take(Health::NAMED) {
            text.line(&format!("pod {}", self.pod(problem)));
        }
        if let Some(reason) = self.health.stream.declined() {
            text.line(&format!("polling: {reason}"));
        }
        text.0
    }

    /// One line for each check.
    pub(super) fn verbose(&self) -> String {
        let mut text = Lines::default();
        let degraded = self.health.degraded(self.now);
        let mut rest: Vec<&Degraded> = degraded.iter().collect();
        let failed = self.ready.as_ref().err();
        let stalled = failed.filter(|r| matches!(r, NotReady::Stalled { .. } | NotReady::Closed));
        let unlisted = failed.filter(|_| stalled.is_none());
        text.check("writer", stalled, &self.take(&mut rest, &["backlog"]), "");
        let reasons = self.take(&mut rest, &["list_slow", "list_failed"]);
        text.check("list", unlisted, &reasons, &self.list());
        let reasons = self.take(&mut rest, &["stream_down", "stream_lossy"]);
        text.check("event_stream", None, &reasons, &self.stream());
        let reasons = self.take(&mut rest, &["runtime_silent"]);
        text.check("runtime", None, &reasons, "");
        let all = self.take(&mut rest, &Degraded::CODES);
        text.check("pods", None, &all, "");
        for problem in self.problems.iter().take(MOST_PODS) {
            text.line(&format!("[!]pod {}", self.pod(problem)));
        }
        if let Some(more) = self.problems.len().checked_sub(MOST_PODS + 1) {
            text.line(&format!("[!]pod and {} more; see /debug/pods", more + 1));
        }
        self.runtime_conditions(&mut text);
        let result = if failed.is_some() { "failed" } else { "passed" };
        text.line(&format!("readyz check {result}"));
        text.0
    }

    /// Takes the reasons with these codes out of the list.
    fn take(&self, rest: &mut Vec<&Degraded>, codes: &[&str]) -> Vec<String> {
        let (taken, kept) = rest.iter().partition(|d| codes.contains(&d.as_str()));
        *rest = kept;
        let taken: Vec<&Degraded> = taken;
        let text = |d: &&Degraded| {
            let (lasts, sentence) = (self.lasts(d.since()), sentence(d, &self.health));
            format!("({}){lasts}: {sentence}", d.as_str())
        };
        taken.iter().map(text).collect()
    }

    fn lasts(&self, since: Option<Instant>) -> String {
        let lasted = |since| format!(" for {}", duration(self.now.since(since)));
        since.map_or_else(String::new, lasted)
    }

    fn list(&self) -> String {
        let Some(last) = self.health.last_list else {
            return String::new();
        };
        let ago = duration(self.now.since(last));
        format!("began {ago} ago; period {}", duration(self.health.period))
    }

    fn stream(&self) -> String {
        match (&self.health.stream, self.health.stream.declined()) {
            (_, Some(reason)) => format!("polling: {reason}"),
            (StreamState::Off, None) => "polling: --events never".to_owned(),
            (
                StreamState::Subscribed {
                    confirmed: true, ..
                },
                None,
            ) => "confirmed".to_owned(),
            _ => "not confirmed yet".to_owned(),
        }
    }

    fn pod(&self, problem: &PodProblem) -> String {
        let (pod, kind) = (Pod::from(&problem.pod).shown(), problem.kind.as_str());
        format!("{pod} {kind}{}: {problem}", self.lasts(Some(problem.since)))
    }

    fn runtime_conditions(&self, text: &mut Lines) {
        let status = self.runtime;
        if let Some((error, since)) = &status.error {
            let lasts = self.lasts(Some(*since));
            text.line(&format!("[!]runtime_status failing{lasts}: {error}"));
        }
        let old = match status.answered {
            Some(at) if status.error.is_some() => {
                format!(", answered {} ago", duration(self.now.since(at)))
            }
            _ => String::new(),
        };
        for condition in &status.conditions {
            let sign = if condition.is_needed() && !condition.status {
                '!'
            } else {
                '+'
            };
            let lasts = match condition.status {
                true => String::new(),
                false => self.lasts(Some(condition.since)),
            };
            text.line(&format!(
                "[{sign}]{}{lasts} is {condition}{old}",
                condition.name
            ));
        }
        if status.error.is_none() && status.conditions.is_empty() {
            text.line("[+]runtime_status not known yet");
        }
    }
}

/// Lines of text, some of which comes from a runtime.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn line(&mut self, text: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "{}", safe(text));
    }

    /// A check: failed, or degraded for these reasons, or passed.
    fn check(&mut self, name: &str, failed: Option<&NotReady>, reasons: &[String], detail: &str) {
        if let Some(reason) = failed {
            self.line(&format!("[-]{name} failed ({}): {reason}", reason.as_str()));
        }
        for reason in reasons {
            self.line(&format!("[!]{name} degraded {reason}"));
        }
        if failed.is_none() && reasons.is_empty() {
            let detail = match detail.is_empty() {
                true => String::new(),
                false => format!(": {detail}"),
            };
            self.line(&format!("[+]{name} ok{detail}"));
        }
    }
}
