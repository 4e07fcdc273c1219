//! What the runtime says of the truth: list rows, statuses, inspections and events.

use pleg_core::{
    CallError, CallErrorKind, ContainerDetails, Details, EventType, HeldId, Identity, Instant,
    Kind, PodCall, PodRead, PodUid, Report, ReportedState, RuntimeEvent, SandboxDetails, WallTime,
};

use super::node::{Flavor, Happening, Life, Node, State};
use super::ops::{How, Stamp};

pub const MS: u64 = 1_000_000;
/// The wall clock at the origin of the monotonic one.
const WALL: i64 = 1_700_000_000_000_000_000;

pub fn instant(ms: u64) -> Instant {
    Instant::from_nanos(ms * MS)
}

/// The wall clock, in nanoseconds.
pub fn wall(ms: u64, offset_ms: i64) -> i64 {
    WALL + (ms as i64 + offset_ms) * MS as i64
}

/// What a list row says.
pub fn row(life: &Life, t: u64) -> Option<Report> {
    let shown = match life.at(t)? {
        State::Created => ReportedState::Created,
        State::Running => ReportedState::Running,
        State::Exited => ReportedState::Exited,
        State::Gone => return None,
    };
    Some(Report {
        id: life.id.clone(),
        shown,
        identity: Identity {
            pod: Some(life.pod.uid()),
            namespace: Some("ns".into()),
            pod_name: Some("name".into()),
            sandbox: life.sandbox.clone(),
            name: life.name.map(|n| n.as_str().into()),
            attempt: life.attempt,
            created_at: WallTime::claimed(wall(life.created, 0)),
            ..Identity::unknown(life.kind)
        },
        details: Details::none(life.kind),
    })
}

/// What a status says. A container's does not say which sandbox it is in.
pub fn status(life: &Life, t: u64) -> Option<Report> {
    let mut report = row(life, t)?;
    report.identity.sandbox = None;
    report.details = match life.kind {
        Kind::Sandbox => Details::from(SandboxDetails {
            ips: [format!("10.0.0.{}", life.attempt).into()].into(),
            ..SandboxDetails::default()
        }),
        Kind::Container => Details::from(ContainerDetails {
            exit_code: (report.shown == ReportedState::Exited).then_some(life.code),
            reason: match report.shown {
                ReportedState::Exited if life.failed_to_start => "StartError".into(),
                ReportedState::Exited => "Error".into(),
                _ => "".into(),
            },
            ..ContainerDetails::default()
        }),
    };
    Some(report)
}

/// The moments that a read shows: of sandboxes (and of its lists), of containers.
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

/// Both lists of the node, each true for its own moment.
pub fn list(node: &Node, moments: Moments) -> Vec<Report> {
    let of = |kind, t| {
        let lives = node.lives.iter().filter(move |l| l.kind == kind);
        lives.filter_map(move |l| row(l, t))
    };
    of(Kind::Sandbox, moments.first)
        .chain(of(Kind::Container, moments.second))
        .collect()
}

/// The answers to the calls of an inspection.
pub fn inspect(node: &Node, uid: &PodUid, held: &[HeldId], moments: Moments) -> PodRead {
    let rows = |kind: Kind| -> Vec<Report> {
        let of_pod = |life: &&Life| life.kind == kind && life.pod.uid() == *uid;
        let of_pod = node.lives.iter().filter(of_pod);
        of_pod.filter_map(|life| row(life, moments.first)).collect()
    };
    let mut read = PodRead::new(held);
    while let Some(call) = read.next_call() {
        let answer = match &call {
            PodCall::Sandboxes => Ok(rows(Kind::Sandbox)),
            PodCall::Containers => Ok(rows(Kind::Container)),
            PodCall::Status(id, kind) => {
                let life = node.life(id);
                let found = life.and_then(|life| status(life, moments.of(*kind)));
                let found = found.map(|report| vec![report]);
                found.ok_or_else(|| CallError::new("Test", CallErrorKind::NotFound, ""))
            }
        };
        read.answered(&call, answer);
    }
    read
}

/// The event of a happening as it arrives now.
pub fn event(node: &Node, happening: &Happening, how: How, late: bool) -> RuntimeEvent {
    let life = &node.lives[happening.life];
    // What was kept for the next stream was made then.
    let made_then = node.stream.is_none_or(|since| happening.at <= since);
    let (seen, offset) = if late && !made_then {
        (node.now, node.wall_offset)
    } else {
        (happening.at, happening.wall_offset)
    };
    let sandbox_id = life.sandbox.as_ref().unwrap_or(&life.id);
    let is_deletion = life.kind == Kind::Sandbox && happening.event == EventType::Deleted;
    let mut sandbox = node.life(sandbox_id).and_then(|s| {
        // containerd 2 reads a sandbox's status before it deletes the entry.
        let earlier = is_deletion && node.world.flavor == Flavor::Containerd2;
        let at = match s.removed {
            Some(gone) if earlier => seen.min(gone - 1),
            _ => seen,
        };
        status(s, at)
    });
    let comes_along = |l: &&Life| match node.world.flavor {
        Flavor::Crio => l.kind == Kind::Container && l.pod == life.pod,
        _ => l.sandbox.as_ref() == Some(sandbox_id),
    };
    let lives = node.lives.iter().filter(comes_along);
    let mut containers: Vec<Report> = lives.filter_map(|l| status(l, seen)).collect();
    if matches!(how, How::NoSandbox | How::Bare) {
        sandbox = None;
    }
    if matches!(how, How::NoContainers | How::Bare) {
        containers.clear();
    }
    for report in sandbox.iter_mut().chain(&mut containers) {
        match how {
            How::Nameless => {
                report.identity = Identity {
                    unlabelled: true,
                    ..Identity::unknown(report.identity.kind)
                };
            }
            How::Unknown => blur(report),
            _ => {}
        }
    }
    let truly = wall(seen, offset);
    let hour = 3_600_000 * MS as i64;
    let created_at = match how {
        How::Stamped(Stamp::Zero) => 0,
        How::Stamped(Stamp::Negative) => -6_795_364_578_871_345_152,
        How::Stamped(Stamp::HourAgo) => truly - hour,
        How::Stamped(Stamp::NextHour) => truly + hour,
        _ => truly,
    };
    RuntimeEvent {
        id: life.id.clone(),
        event: happening.event,
        created_at,
        sandbox,
        containers,
    }
}

/// The runtime does not know its state.
pub fn blur(report: &mut Report) {
    report.shown = ReportedState::Unknown;
    report.details = Details::none(report.identity.kind);
}
