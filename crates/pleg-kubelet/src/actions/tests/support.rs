//! The worker of one pod. Each row of a table is one run of the worker.

use std::sync::Arc;
use std::time::Duration;

use crate::actions::{Actions, Decision, WaitReason};
use crate::history::PodHistory;
use crate::probe::ProbeResults;
use k8s_openapi::api::core::v1::{PodSpec, ResourceRequirements};
use pleg::{ContainerStatus, Exit, PodView};
use serde_json::json;

use crate::notation::{at, pod, rows, spec};

/// A view, read at the second `seconds`. It has no `details_as_of` if a status call failed or the pod does not exist.
pub(super) fn view(seconds: u32, words: &str) -> PodView {
    let status = pod("p", words);
    let failed = |c: &ContainerStatus| c.error.is_some() || c.status_missing;
    let is_read = status.exists() && !status.containers.iter().any(failed);
    let inspected = Some(at(seconds)).filter(|_| is_read);
    PodView::new(Arc::new(status), Some(at(seconds)), inspected)
}

#[derive(Default)]
pub(super) struct Worker {
    pub(super) spec: PodSpec,
    pub(super) history: PodHistory,
    /// True if the pod's specification is not known.
    pub(super) is_unknown: bool,
    pub(super) terminating: bool,
    pub(super) probes: Option<ProbeResults>,
    pub(super) last: Actions,
}

impl Worker {
    /// A worker of a pod with this specification. If `words` begin with `terminating `, the pod is being terminated.
    pub(super) fn new(words: &str) -> Self {
        let terminating = words.strip_prefix("terminating ");
        Self {
            spec: spec(terminating.unwrap_or(words)),
            terminating: terminating.is_some(),
            ..Self::default()
        }
    }

    /// Observes the view, decides, and records the decision.
    pub(super) fn run(&mut self, seconds: u32, view: &PodView) {
        let (history, now) = (&mut self.history, at(seconds));
        history.observe(&view.status, &[], now);
        let decision = Decision {
            spec: (!self.is_unknown).then_some(&self.spec),
            terminating: self.terminating,
            grace: (!self.is_unknown).then_some(Duration::from_secs(30)),
            probes: self.probes.as_ref(),
            view,
            history,
            now,
            actions: Actions::default(),
        };
        self.last = decision.decide();
        history.record(&self.last, now);
    }

    /// Makes one run per row. A row has the second of the run, and `read N` if the pod was read at another second; the
    /// pod; the expected actions; the second of the next run.
    pub(super) fn runs(&mut self, table: &str) {
        for row in rows(table) {
            let (now, read) = row[0].split_once(" read ").unwrap_or((row[0], row[0]));
            let [now, read] = [now, read].map(|second| second.parse().unwrap());
            self.run(now, &view(read, row[1]));
            assert_eq!(words(&self.last), row[2], "{row:?} of {table}");
            if let Some(due) = row.get(3) {
                assert_eq!(self.last.due, Some(at(due.parse().unwrap())), "{row:?}");
            }
        }
    }

    pub(super) fn observe_exit(&mut self, attempt: u32, code: Option<i32>, detected: u32) {
        let mut exit = Exit::new(format!("a-{attempt}"), "a", at(detected));
        (exit.attempt, exit.exit_code) = (attempt, code);
        self.history.observe(&pod("p", ""), &[exit], at(detected));
    }
}

/// Checks one worker per block. The first line of a block has a rule and the specification; each other line is a run.
pub(super) fn timelines(blocks: &str) {
    for block in blocks.trim().split("\n\n") {
        let (rule, runs) = block.split_once('\n').unwrap();
        Worker::new(rule.rsplit_once(": ").unwrap().1).runs(runs);
    }
}

/// For each row (specification, pod, expected actions), checks the first run of a worker.
pub(super) fn check(table: &str) {
    for row in rows(table) {
        Worker::new(row[0]).runs(&format!("20 read 9 | {} | {}", row[1], row[2]));
    }
}

pub(super) fn memory(bytes: i64) -> Option<ResourceRequirements> {
    serde_json::from_value(json!({"limits": {"memory": bytes.to_string()}})).unwrap()
}

/// The actions in words, in the order of their fields.
pub(super) fn words(actions: &Actions) -> String {
    let mut words = Vec::new();
    words.extend(actions.stop.iter().map(|stop| match stop.grace.as_secs() {
        30 => format!("stop {}", stop.id),
        grace => format!("stop {} within {grace}", stop.id),
    }));
    let sandboxes = actions.stop_sandboxes.iter();
    words.extend(sandboxes.map(|id| format!("stop {id}")));
    words.extend(actions.remove.iter().map(|id| format!("remove {id}")));
    let sandbox = actions.create_sandbox;
    words.extend(sandbox.map(|attempt| format!("create sandbox-{attempt}")));
    words.extend(actions.start.iter().map(|s| match &s.existing {
        Some(id) => format!("start existing {id}"),
        None => format!("start {}-{}", s.name, s.attempt),
    }));
    words.extend(actions.resize.iter().map(|r| format!("resize {}", r.id)));
    words.extend(actions.inspect_after.map(|_| "inspect".to_owned()));
    words.extend(actions.waiting.iter().map(|(name, reason)| match reason {
        WaitReason::BackOff { delay } => format!("{name} backs off {delay:?}"),
        WaitReason::StatusMissing => format!("{name} status missing"),
        WaitReason::ExitCode => format!("{name} exit code"),
    }));
    words.extend(actions.terminating.then(|| "terminating".to_owned()));
    words.extend(actions.terminated.then(|| "terminated".to_owned()));
    words.extend(actions.phase.map(|phase| format!("{phase:?}")));
    words.join(", ").trim().to_owned()
}
