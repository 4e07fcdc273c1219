//! The reports of the simulated runtime: list rows, statuses, inspections and events.

use pleg_core::{
    ContainerDetails, Details, EventType, HeldId, Identity, Instant, Kind, PodRead, PodUid, Report,
    ReportedState, RuntimeEvent, SandboxDetails, WallTime,
};

use pleg_proof::runtime::{WALL_ORIGIN, mark_unknown, pod_read};

use super::node::{Node, Object, RuntimeKind, Transition};
use super::ops::{EventForm, Stamp};

pub const MS: u64 = 1_000_000;
pub fn instant(ms: u64) -> Instant {
    Instant::from_nanos(ms * MS)
}

/// The wall clock, in nanoseconds.
pub fn wall(ms: u64, offset_ms: i64) -> i64 {
    WALL_ORIGIN + (ms as i64 + offset_ms) * MS as i64
}

/// A list row.
pub fn row(object: &Object, t: u64) -> Option<Report> {
    let shown = object.at(t)?.reported()?;
    let mut identity = Identity::new(object.kind);
    identity.pod = Some(object.pod.uid());
    identity.namespace = Some("ns".into());
    identity.pod_name = Some("name".into());
    identity.sandbox.clone_from(&object.sandbox);
    identity.name = object.name.map(|n| n.as_str().into());
    identity.attempt = object.attempt;
    identity.created_at = WallTime::claimed(wall(object.created, 0));
    let details = Details::none(object.kind);
    Some(Report::new(object.id.clone(), shown, identity, details))
}

/// A status. A container's status does not name its sandbox.
pub fn status(object: &Object, t: u64) -> Option<Report> {
    let mut report = row(object, t)?;
    report.identity.sandbox = None;
    report.details = match object.kind {
        Kind::Sandbox => {
            let mut details = SandboxDetails::default();
            details.ips = [format!("10.0.0.{}", object.attempt).into()].into();
            details.into()
        }
        Kind::Container => {
            let mut details = ContainerDetails::default();
            if report.shown == ReportedState::Exited {
                details.exit_code = Some(object.code);
                let failed_to_start = object.failed_to_start;
                details.reason = if failed_to_start {
                    "StartError"
                } else {
                    "Error"
                }
                .into();
            }
            details.into()
        }
    };
    Some(report)
}

/// The instants that a read shows: of sandboxes (and of its lists), and of containers.
#[derive(Clone, Copy, Debug)]
pub struct Moments {
    pub first: u64,
    pub second: u64,
}

impl Moments {
    fn of(self, kind: Kind) -> u64 {
        match kind {
            Kind::Sandbox => self.first,
            Kind::Container => self.second,
        }
    }
}

/// Both lists of the node, each as of its own instant.
pub fn list(node: &Node, moments: Moments) -> Vec<Report> {
    let of = |kind, t| {
        let objects = node.objects.iter().filter(move |l| l.kind == kind);
        objects.filter_map(move |l| row(l, t))
    };
    of(Kind::Sandbox, moments.first)
        .chain(of(Kind::Container, moments.second))
        .collect()
}

/// The answers to the calls of an inspection.
pub fn inspect(node: &Node, uid: &PodUid, held: &[HeldId], moments: Moments) -> PodRead {
    let rows = |kind: Kind| -> Vec<Report> {
        let of_pod = |object: &&Object| object.kind == kind && object.pod.uid() == *uid;
        let of_pod = node.objects.iter().filter(of_pod);
        of_pod
            .filter_map(|object| row(object, moments.first))
            .collect()
    };
    pod_read(held, rows, |id, kind| {
        let object = node.object(id).filter(|l| !node.is_hidden(l));
        object.and_then(|object| status(object, moments.of(kind)))
    })
}

/// The event of a transition as it arrives now.
pub fn event(node: &Node, transition: &Transition, how: EventForm, late: bool) -> RuntimeEvent {
    let object = &node.objects[transition.object];
    // A held event was created when it happened.
    let sent_earlier = node.stream.is_none_or(|since| transition.at <= since);
    let (seen, offset) = if late && !sent_earlier {
        (node.now, node.wall_offset)
    } else {
        (transition.at, transition.wall_offset)
    };
    let sandbox_id = object.sandbox.as_ref().unwrap_or(&object.id);
    let is_deletion = object.kind == Kind::Sandbox && transition.event == EventType::Deleted;
    let mut sandbox = node.object(sandbox_id).and_then(|s| {
        // containerd 2 reads a sandbox's status before it deletes the entry.
        let earlier = is_deletion && node.world.runtime == RuntimeKind::Containerd2;
        let at = match s.removed {
            Some(gone) if earlier => seen.min(gone - 1),
            _ => seen,
        };
        status(s, at)
    });
    let in_same_event = |l: &&Object| match node.world.runtime {
        RuntimeKind::Crio => l.kind == Kind::Container && l.pod == object.pod,
        _ => l.sandbox.as_ref() == Some(sandbox_id),
    };
    let objects = node.objects.iter().filter(in_same_event);
    let mut containers: Vec<Report> = objects.filter_map(|l| status(l, seen)).collect();
    if matches!(how, EventForm::NoSandbox | EventForm::Bare) {
        sandbox = None;
    }
    if matches!(how, EventForm::NoContainers | EventForm::Bare) {
        containers.clear();
    }
    for report in sandbox.iter_mut().chain(&mut containers) {
        match how {
            EventForm::MissingMetadata => {
                report.identity = Identity::new(report.identity.kind);
                report.identity.unlabelled = true;
            }
            EventForm::Unknown => mark_unknown(report),
            _ => {}
        }
    }
    let truly = wall(seen, offset);
    let hour = 3_600_000 * MS as i64;
    let created_at = match how {
        EventForm::Stamped(Stamp::Zero) => 0,
        EventForm::Stamped(Stamp::Negative) => -6_795_364_578_871_345_152,
        EventForm::Stamped(Stamp::HourAgo) => truly - hour,
        EventForm::Stamped(Stamp::NextHour) => truly + hour,
        _ => truly,
    };
    let mut event = RuntimeEvent::new(object.id.clone(), transition.event);
    event.created_at = created_at;
    event.sandbox = sandbox;
    event.containers = containers;
    event
}
