//! The scripted node: its runtime's rows and statuses, and the calls that fail.

use std::collections::BTreeMap;
use std::sync::Arc;

use pleg_core::{
    CallError, CallErrorKind, ContainerDetails, Details, Id, Identity, Kind, PodUid, Report,
    ReportedState, SandboxDetails, WallTime,
};

/// The wall clock at the start, in nanoseconds.
pub(crate) const WALL: i64 = 1_700_000_000_000_000_000;

/// The status of an id. "web" belongs to the pod "p" and its sandbox "s", "q/web" to the pod "q" and its sandbox "q/s".
/// "web2" is attempt 2 of the container "web".
pub(crate) fn report(id: &str, shown: ReportedState) -> Report {
    let (pod, sandbox, local) = match id.split_once('/') {
        Some((pod, local)) => (pod, format!("{pod}/s"), local),
        None => ("p", "s".to_owned(), id),
    };
    let name = local.trim_end_matches(char::is_numeric);
    let is_sandbox = name == "s";
    let mut identity = Identity::new(match is_sandbox {
        true => Kind::Sandbox,
        false => Kind::Container,
    });
    identity.pod = Some(pod.into());
    identity.attempt = local[name.len()..].parse().unwrap_or_default();
    identity.created_at = Some(WallTime::from_nanos(WALL));
    if is_sandbox {
        return Report::new(id, shown, identity, SandboxDetails::default());
    }
    identity.name = Some(name.into());
    identity.sandbox = Some(sandbox.into());
    let mut details = ContainerDetails::default();
    let has_started = shown != ReportedState::Created;
    details.started_at = has_started.then(|| WallTime::from_nanos(WALL));
    Report::new(id, shown, identity, details)
}

pub(crate) fn created(id: &str) -> Report {
    report(id, ReportedState::Created)
}

pub(crate) fn running(id: &str) -> Report {
    report(id, ReportedState::Running)
}

pub(crate) fn exited(id: &str, code: impl Into<Option<i32>>) -> Report {
    let code = code.into();
    with(report(id, ReportedState::Exited), |details| {
        details.exit_code = code;
    })
}

/// The status of a container whose process could not be started. containerd sends no STOPPED for it.
pub(crate) fn start_failed(id: &str) -> Report {
    with(exited(id, 128), |details| {
        details.started_at = None;
        details.reason = "StartError".into();
    })
}

/// Removes the pod-uid label, so lists of single pods omit the id of this report.
pub(crate) fn unlabelled(mut report: Report) -> Report {
    (report.identity.unlabelled, report.identity.pod) = (true, None);
    report
}

/// Changes the details in a container's status or row; leaves those of a sandbox unchanged.
pub(crate) fn with(mut report: Report, change: impl FnOnce(&mut ContainerDetails)) -> Report {
    if let Details::Container(details) = &mut report.details {
        change(Arc::make_mut(details));
    }
    report
}

/// The rows and the statuses that the runtime returns.
#[derive(Clone, Default)]
struct Objects {
    rows: BTreeMap<String, Report>,
    statuses: BTreeMap<String, Report>,
}

/// The node, its runtime, and the calls that fail. A call whose error is `DeadlineExceeded` hangs until its deadline.
#[derive(Default)]
pub(crate) struct Node {
    objects: Objects,
    /// The objects of an earlier instant, which calls show while the runtime lags.
    stale: Option<Objects>,
    status_faults: BTreeMap<String, CallErrorKind>,
    pub(crate) relists_fail: Option<CallErrorKind>,
    pub(crate) pod_lists_fail: Option<CallErrorKind>,
    pub(crate) versions_fail: Option<CallErrorKind>,
    /// If true, the runtime ignores the filter: a list of one pod shows every pod.
    pub(crate) ignores_filters: bool,
    /// Additional rows.
    pub(crate) extra_rows: Vec<Report>,
}

impl Node {
    pub(crate) fn set(&mut self, report: Report) {
        self.set_row(report.clone());
        self.set_status(report);
    }

    /// Changes the row, but not the status.
    pub(crate) fn set_row(&mut self, mut report: Report) {
        report.details = Details::none(report.identity.kind);
        self.objects.rows.insert(report.id.to_string(), report);
    }

    pub(crate) fn set_status(&mut self, report: Report) {
        self.objects.statuses.insert(report.id.to_string(), report);
    }

    pub(crate) fn hide_row(&mut self, id: &str) {
        self.objects.rows.remove(id);
    }

    pub(crate) fn create(&mut self, id: &str) {
        self.set(created(id));
    }

    /// Makes the container run, or the sandbox ready.
    pub(crate) fn start(&mut self, id: &str) {
        self.set(running(id));
    }

    /// Makes the container exit, or the sandbox not ready. If `code` is `None`, the runtime does not know the code.
    pub(crate) fn exit(&mut self, id: &str, code: impl Into<Option<i32>>) {
        self.set(exited(id, code));
    }

    pub(crate) fn become_unknown(&mut self, id: &str) {
        self.set(report(id, ReportedState::Unknown));
    }

    pub(crate) fn remove(&mut self, id: &str) {
        self.objects.rows.remove(id);
        self.objects.statuses.remove(id);
    }

    /// A pod with a ready sandbox and a running container "web".
    pub(crate) fn add_pod(&mut self, pod: &str) {
        self.start(&format!("{pod}/s"));
        self.start(&format!("{pod}/web"));
    }

    /// From now on, calls show the objects of this instant and no later change, until [`catch_up`](Self::catch_up).
    pub(crate) fn lag(&mut self) {
        self.stale = Some(self.objects.clone());
    }

    pub(crate) fn catch_up(&mut self) {
        self.stale = None;
    }

    /// The status call of the id fails.
    pub(crate) fn fail_status(&mut self, id: &str, kind: CallErrorKind) {
        self.status_faults.insert(id.to_owned(), kind);
    }

    pub(crate) fn heal_status(&mut self, id: &str) {
        self.status_faults.remove(id);
    }

    /// The runtime is down: every call fails.
    pub(crate) fn stop_runtime(&mut self) {
        self.fail_all(Some(CallErrorKind::Unavailable));
    }

    pub(crate) fn start_runtime(&mut self) {
        self.fail_all(None);
    }

    pub(crate) fn fail_all(&mut self, kind: Option<CallErrorKind>) {
        (self.relists_fail, self.pod_lists_fail, self.versions_fail) = (kind, kind, kind);
        let ids = self.objects.statuses.keys().cloned();
        self.status_faults =
            kind.map_or_else(BTreeMap::new, |kind| ids.map(|id| (id, kind)).collect());
    }

    // ---------------------------------------------------------------------------- answers to calls

    fn shown(&self) -> &Objects {
        self.stale.as_ref().unwrap_or(&self.objects)
    }

    /// The present status of an id, which events contain even while the answers to calls lag.
    pub(crate) fn status_now(&self, id: &str) -> Option<Report> {
        self.objects.statuses.get(id).cloned()
    }

    /// The rows of the node.
    pub(crate) fn rows(&self) -> Vec<Report> {
        let rows = self.shown().rows.values();
        rows.chain(&self.extra_rows).cloned().collect()
    }

    /// The rows with the label of one pod, or all rows if the runtime ignores filters.
    pub(crate) fn rows_of(&self, uid: &PodUid) -> Vec<Report> {
        let mut rows = self.rows();
        rows.retain(|row| {
            let has_label = !row.identity.unlabelled && row.identity.pod.as_ref() == Some(uid);
            self.ignores_filters || has_label
        });
        rows
    }

    pub(crate) fn status_fault(&self, id: &Id) -> Option<CallErrorKind> {
        self.status_faults.get(id.as_str()).copied()
    }

    pub(crate) fn status(&self, id: &Id) -> Result<Report, CallError> {
        let error = |kind| CallError::new("Status", kind, "");
        let shown = self.shown().statuses.get(id.as_str());
        match (self.status_fault(id), shown) {
            (Some(kind), _) => Err(error(kind)),
            (None, Some(status)) => Ok(status.clone()),
            (None, None) => Err(error(CallErrorKind::NotFound)),
        }
    }
}
