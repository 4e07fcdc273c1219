//! The simulated runtime: its answers and events, derived from the oracle.

use std::sync::{Arc, LazyLock};

use pleg_core::{
    CallError, CallErrorKind, ContainerDetails, Details, EventType, HeldId, Id, Identity, Kind,
    Output, PodCall, PodRead, PodUid, PodView, Report, ReportedState, Resources, RuntimeEvent,
    Text, WallTime,
};

use crate::coverage::Coverage;
use crate::fault_profile::{FaultProfile, MS, RuntimeKind, SECOND};
use crate::faults::Fault;
use crate::oracle::{Object, Oracle, Transition};
use crate::rng::Rng;

/// The wall clock at the origin of the monotonic clock.
pub const WALL_ORIGIN: i64 = 1_700_000_000_000_000_000;

/// The uid of a pod.
pub fn uid(pod: usize) -> PodUid {
    format!("pod-{pod}").into()
}

/// The number of the pod with that uid; none for a uid that replaces an unknown one.
pub fn pod_of(uid: &PodUid) -> Option<usize> {
    uid.as_str().strip_prefix("pod-")?.parse().ok()
}

/// When the runtime has received the kernel's OOM notification.
const OOM: u64 = SECOND;

/// A list row, also for an object that is still listed after its removal.
pub fn list_row(object: &Object, t: u64) -> Option<Report> {
    let gone = object
        .removed
        .filter(|&gone| gone <= t && t < gone + object.listed_after_removal);
    row(object, gone.map_or(t, |gone| gone - 1))
}

fn shown(object: &Object, t: u64) -> Option<ReportedState> {
    object.at(t)?.reported()
}

fn row(object: &Object, t: u64) -> Option<Report> {
    let reported = &object.reported;
    let (identity, details) = (reported.identity.clone(), reported.details.clone());
    Some(Report::new(
        object.id.clone(),
        shown(object, t)?,
        identity,
        details,
    ))
}

/// A status. A container's status does not name its sandbox.
pub fn status(object: &Object, t: u64) -> Option<Report> {
    let shown = shown(object, t)?;
    let details = match &object.reported.details {
        Details::Sandbox(none) => {
            let mut details = (**none).clone();
            details.ips = [address(object)].into();
            Details::from(details)
        }
        Details::Container(none) => {
            let mut details = (**none).clone();
            let at = |moment: Option<u64>| WallTime::claimed(WALL_ORIGIN + moment? as i64);
            details.resources = object.memory_limit(t).map(|memory_limit| {
                let mut resources = Resources::default();
                resources.memory_limit = memory_limit;
                Arc::new(resources)
            });
            details.started_at = at(object.started.filter(|&m| m <= t));
            if shown == ReportedState::Exited {
                details.finished_at = at(object.exited);
                details.exit_code = Some(object.code);
                details.reason = text(reason(object, t));
            }
            Details::from(details)
        }
    };
    let mut identity = object.reported.identity.clone();
    identity.sandbox = None;
    Some(Report::new(object.id.clone(), shown, identity, details))
}

pub fn address(object: &Object) -> Text {
    object.reported.address.clone()
}

/// The reason of an exit as reported at `t`.
pub fn reason(object: &Object, t: u64) -> &'static str {
    match object.exited {
        Some(at) if object.code == 137 && t >= at + OOM => OOM_KILLED,
        _ => object.reason,
    }
}

const OOM_KILLED: &str = "OOMKilled";

/// The known reasons, shared.
fn text(reason: &str) -> Text {
    static KNOWN: LazyLock<[Text; 4]> =
        LazyLock::new(|| ["Completed", "Error", "StartError", OOM_KILLED].map(Text::from));
    let known = KNOWN.iter().find(|t| ***t == *reason);
    known.cloned().unwrap_or_else(|| reason.into())
}

/// Both lists of the node, each as of its own instant.
pub fn list(oracle: &Oracle, sandboxes_at: u64, containers_at: u64) -> Vec<Report> {
    let at = |object: &Object| match object.kind {
        Kind::Sandbox => sandboxes_at,
        Kind::Container => containers_at,
    };
    let mut rows = Vec::with_capacity(oracle.all_recent().count());
    rows.extend(
        oracle
            .all_recent()
            .filter_map(|object| list_row(object, at(object))),
    );
    rows
}

/// The answers to the calls of an inspection between `began` and `ended`. `fails` returns the error
/// of an id's status call, if any; its second argument is whether a list of this inspection shows
/// the id.
pub fn inspect(
    oracle: &Oracle,
    rng: &mut Rng,
    fails: &mut dyn FnMut(&Id, bool) -> Option<CallError>,
    pod: &PodUid,
    held: &[HeldId],
    (began, ended): (u64, u64),
) -> PodRead {
    let lists_at = rng.between(began, ended);
    let mut read = PodRead::new(held);
    let rows_of = |kind: Kind, rng: &mut Rng| {
        let at = rng.between(began, lists_at);
        let place = pod_of(pod);
        let objects = place.into_iter().flat_map(|place| oracle.labelled(place));
        let of_kind = objects.filter(|object| object.kind == kind);
        of_kind
            .filter_map(|object| list_row(object, at))
            .collect::<Vec<Report>>()
    };
    let mut rows: Vec<Report> = Vec::new();
    while let Some(call) = read.next_call() {
        let answer = match &call {
            PodCall::Sandboxes | PodCall::Containers => {
                let sandboxes = call == PodCall::Sandboxes;
                let kind = [Kind::Container, Kind::Sandbox][usize::from(sandboxes)];
                let of_kind = rows_of(kind, rng);
                rows.extend(of_kind.iter().cloned());
                Ok(of_kind)
            }
            PodCall::Status(id, _) => {
                let is_owed = held.iter().any(|held| held.id == *id && held.owed);
                let from = if is_owed { began } else { lists_at };
                let at = rng.between(from, ended);
                let found = oracle.object(id).and_then(|object| status(object, at));
                let listed = rows.iter().any(|row| row.id == *id);
                match (fails(id, listed), found) {
                    (Some(error), _) => Err(error),
                    (None, Some(report)) => Ok(vec![report]),
                    (None, None) => Err(error(CallErrorKind::NotFound)),
                }
            }
        };
        read.answered(&call, answer);
    }
    read
}

/// A failed call.
pub fn error(kind: CallErrorKind) -> CallError {
    CallError::new("Test", kind, "injected")
}

/// Whether this runtime sends an event for the transition.
pub fn emits_event(runtime: RuntimeKind, oracle: &Oracle, transition: &Transition) -> bool {
    let sandbox = oracle.objects[transition.object].kind == Kind::Sandbox;
    match (runtime, transition.event) {
        (RuntimeKind::Crio, EventType::Created) => !sandbox,
        (RuntimeKind::Crio, EventType::Deleted) => !(sandbox || transition.inside_removal),
        _ => runtime.streams(),
    }
}

/// The event of a transition, with statuses as of `snapshot` and timestamp `stamped`.
pub fn event(
    oracle: &Oracle,
    runtime: RuntimeKind,
    (subject, what): (&Object, EventType),
    snapshot: u64,
    stamped: i64,
) -> RuntimeEvent {
    let sandbox_id = subject.sandbox.as_ref().unwrap_or(&subject.id);
    let sandbox = oracle.object(sandbox_id).and_then(|s| {
        let at = match s.removed {
            // containerd 2 reads the status before it deletes the entry.
            Some(gone) if what == EventType::Deleted && runtime == RuntimeKind::Containerd2 => {
                snapshot.min(gone - 1)
            }
            _ => snapshot,
        };
        status(s, at)
    });
    // containerd sends the statuses of the sandbox, CRI-O those of the pod.
    let in_event = |l: &&Object| runtime.is_crio() || l.sandbox.as_ref() == Some(sandbox_id);
    let containers = oracle
        .recent(subject.pod)
        .filter(|l| l.kind == Kind::Container)
        .filter(in_event)
        .filter_map(|l| status(l, snapshot))
        .collect();
    // containerd 2 no longer has the sandbox's creation time.
    let mut sandbox = sandbox;
    if let Some(report) = &mut sandbox
        && what == EventType::Deleted
        && report.id == subject.id
    {
        report.identity.created_at = None;
    }
    let mut event = RuntimeEvent::new(subject.id.clone(), what);
    event.created_at = stamped;
    event.sandbox = sandbox;
    event.containers = containers;
    event
}

/// Applies the fault profile to an event.
pub fn apply_event_faults(
    event: &mut RuntimeEvent,
    rng: &mut Rng,
    fault_profile: &FaultProfile,
    coverage: &mut Coverage,
) {
    let mut inject = |fault| {
        let percent = fault_profile.percent(fault);
        let inject = percent > 0 && rng.percent(percent);
        if inject {
            coverage.fault(fault);
        }
        inject
    };
    if inject(Fault::NilSandbox) {
        event.sandbox = None;
    }
    if inject(Fault::NilStatuses) {
        event.containers.clear();
    }
    if inject(Fault::EmptyElement) {
        // The decoder drops the empty element.
        event.containers.pop();
    }
    if inject(Fault::UnknownEventType) {
        event.event = EventType::Other(7);
    }
    for report in event.sandbox.iter_mut().chain(&mut event.containers) {
        if inject(Fault::MissingMetadata) {
            report.identity = Identity::new(report.identity.kind);
            report.identity.unlabelled = true;
        }
        if inject(Fault::UnknownInEvent) {
            mark_unknown(report);
        }
    }
    if inject(Fault::InvalidTimestamp) {
        let stamped = event.created_at;
        let seconds = stamped / SECOND as i64;
        let future = stamped + 3600 * SECOND as i64;
        let zero = -6_795_364_578_871_345_152;
        event.created_at = rng.pick(&[0, zero, seconds, future, i64::MAX, i64::MIN]);
    }
}

/// Makes the state of a report UNKNOWN. The runtime still knows the resources.
pub fn mark_unknown(report: &mut Report) {
    report.shown = ReportedState::Unknown;
    report.details = match &report.details {
        Details::Container(known) => {
            let mut details = ContainerDetails::default();
            details.resources.clone_from(&known.resources);
            Details::from(details)
        }
        Details::Sandbox(_) => Details::none(report.identity.kind),
    };
}

/// The answers to the calls of an inspection, from list rows and single statuses.
pub fn pod_read(
    held: &[HeldId],
    mut rows: impl FnMut(Kind) -> Vec<Report>,
    mut status: impl FnMut(&Id, Kind) -> Option<Report>,
) -> PodRead {
    let mut read = PodRead::new(held);
    while let Some(call) = read.next_call() {
        let answer = match &call {
            PodCall::Sandboxes => Ok(rows(Kind::Sandbox)),
            PodCall::Containers => Ok(rows(Kind::Container)),
            PodCall::Status(id, kind) => status(id, *kind)
                .map(|report| vec![report])
                .ok_or_else(|| error(CallErrorKind::NotFound)),
        };
        read.answered(&call, answer);
    }
    read
}

/// Formats the ids and states of some reports.
pub fn format_reports<'a>(reports: impl IntoIterator<Item = &'a Report>) -> String {
    let row = |r: &Report| format!("{}:{:?}", r.id, r.shown);
    let rows: Vec<String> = reports.into_iter().map(row).collect();
    format!("[{}]", rows.join(" "))
}

/// An output of the reconciler as text.
pub fn format_output(output: &Output) -> String {
    match output {
        Output::Publish { uid, view } => {
            let s = &view.status;
            let sandboxes = s.sandboxes.iter();
            let sandboxes = sandboxes.map(|x| format!("{}:{:?}", x.id, x.state));
            let containers = s.containers.iter();
            let containers = containers.map(|x| format!("{}:{:?}", x.id, x.state));
            let all: Vec<String> = sandboxes.chain(containers).collect();
            format!("publish {uid} as of {:?}: {}", view.as_of, all.join(" "))
        }
        Output::Announce(e) => {
            let subject = e.subject.as_ref();
            let what = subject.map(|s| (&s.id, s.incarnation, s.exit_code));
            format!("announce {} {} {what:?}", e.event, e.uid)
        }
        Output::Answer { waiter, answer } => {
            let count =
                |v: &PodView| (v.as_of, v.status.sandboxes.len(), v.status.containers.len());
            format!("answer {waiter:?} {:?}", answer.as_ref().map(count))
        }
        Output::Terminals { uid, records } => format!("{} ends of {uid}", records.len()),
        other => format!("{other:?}"),
    }
}

/// How long a call takes.
pub fn duration(rng: &mut Rng, slow: bool, longest: u64) -> u64 {
    if slow {
        rng.between(100 * MS, longest)
    } else {
        rng.between(0, 20 * MS)
    }
}
