//! The runtime as the machine meets it: what it answers and what it tells, out of the truth.

use std::sync::LazyLock;

use pleg_core::{
    CallError, CallErrorKind, Details, EventType, HeldId, Id, Identity, Kind, PodCall, PodRead,
    PodUid, Report, ReportedState, RuntimeEvent, SandboxDetails, Text, WallTime,
};

use crate::dice::Dice;
use crate::faults::Fault;
use crate::tally::Tally;
use crate::truth::{Happening, Life, State, Truth};
use crate::weather::{Flavor, MS, SECOND, Weather};

/// The wall clock at the origin of the monotonic one.
pub const WALL: i64 = 1_700_000_000_000_000_000;

/// The uid of a pod.
pub fn uid(pod: usize) -> PodUid {
    format!("pod-{pod}").into()
}

/// The pod of that uid, unless some other name had to stand in for it.
pub fn pod_of(uid: &PodUid) -> Option<usize> {
    uid.as_str().strip_prefix("pod-")?.parse().ok()
}

/// When the kernel's OOM notice has reached the runtime.
const OOM: u64 = SECOND;

/// What a list row says, also of what lists still show after its removal.
pub fn listed(life: &Life, t: u64) -> Option<Report> {
    let gone = life
        .removed
        .filter(|&gone| gone <= t && t < gone + life.lingers);
    row(life, gone.map_or(t, |gone| gone - 1))
}

fn shown(life: &Life, t: u64) -> Option<ReportedState> {
    match life.at(t)? {
        State::Created => Some(ReportedState::Created),
        State::Running => Some(ReportedState::Running),
        State::Exited => Some(ReportedState::Exited),
        State::Gone => None,
    }
}

fn row(life: &Life, t: u64) -> Option<Report> {
    Some(Report {
        id: life.id.clone(),
        shown: shown(life, t)?,
        identity: life.said.identity.clone(),
        details: life.said.details.clone(),
    })
}

/// What a status says. A container's does not say which sandbox it is in.
pub fn status(life: &Life, t: u64) -> Option<Report> {
    let shown = shown(life, t)?;
    let details = match &life.said.details {
        Details::Sandbox(none) => Details::from(SandboxDetails {
            ips: [address(life)].into(),
            ..(**none).clone()
        }),
        Details::Container(none) => {
            let mut details = (**none).clone();
            let at = |moment: Option<u64>| WallTime::claimed(WALL + moment? as i64);
            details.started_at = at(life.started.filter(|&m| m <= t));
            if shown == ReportedState::Exited {
                details.finished_at = at(life.exited);
                details.exit_code = Some(life.code);
                details.reason = text(reason(life, t));
            }
            Details::from(details)
        }
    };
    Some(Report {
        id: life.id.clone(),
        shown,
        identity: Identity {
            sandbox: None,
            ..life.said.identity.clone()
        },
        details,
    })
}

pub fn address(life: &Life) -> Text {
    life.said.address.clone()
}

/// The reason of an exit as the runtime gives it at `t`.
pub fn reason(life: &Life, t: u64) -> &'static str {
    match life.exited {
        Some(at) if life.code == 137 && t >= at + OOM => OOM_KILLED,
        _ => life.reason,
    }
}

const OOM_KILLED: &str = "OOMKilled";

/// The few reasons there are, shared.
fn text(reason: &str) -> Text {
    static KNOWN: LazyLock<[Text; 4]> =
        LazyLock::new(|| ["Completed", "Error", "StartError", OOM_KILLED].map(Text::from));
    let known = KNOWN.iter().find(|t| ***t == *reason);
    known.cloned().unwrap_or_else(|| reason.into())
}

/// Both lists of the node, each true for its own moment.
pub fn list(truth: &Truth, sandboxes_at: u64, containers_at: u64) -> Vec<Report> {
    let at = |life: &Life| match life.kind {
        Kind::Sandbox => sandboxes_at,
        Kind::Container => containers_at,
    };
    let mut rows = Vec::with_capacity(truth.all_recent().count());
    rows.extend(truth.all_recent().filter_map(|life| listed(life, at(life))));
    rows
}

/// The answers to the calls of an inspection between `began` and `ended`. `fails`: the status call
/// of this id fails so; it is asked about each, and told whether a list of this inspection shows
/// the id.
pub fn inspect(
    truth: &Truth,
    dice: &mut Dice,
    fails: &mut dyn FnMut(&Id, bool) -> Option<CallError>,
    pod: &PodUid,
    held: &[HeldId],
    (began, ended): (u64, u64),
) -> PodRead {
    let lists_at = dice.between(began, ended);
    let mut read = PodRead::new(held);
    let rows_of = |kind: Kind, dice: &mut Dice| {
        let at = dice.between(began, lists_at);
        let place = pod_of(pod);
        let lives = place.into_iter().flat_map(|place| truth.recent(place));
        let of_kind = lives.filter(|life| life.kind == kind);
        of_kind
            .filter_map(|life| listed(life, at))
            .collect::<Vec<Report>>()
    };
    let mut rows: Vec<Report> = Vec::new();
    while let Some(call) = read.next_call() {
        let answer = match &call {
            PodCall::Sandboxes | PodCall::Containers => {
                let sandboxes = call == PodCall::Sandboxes;
                let kind = [Kind::Container, Kind::Sandbox][usize::from(sandboxes)];
                let of_kind = rows_of(kind, dice);
                rows.extend(of_kind.iter().cloned());
                Ok(of_kind)
            }
            PodCall::Status(id, _) => {
                let is_owed = held.iter().any(|held| held.id == *id && held.owed);
                let from = if is_owed { began } else { lists_at };
                let at = dice.between(from, ended);
                let found = truth.life(id).and_then(|life| status(life, at));
                let listed = rows.iter().any(|row| row.id == *id);
                match (fails(id, listed), found) {
                    (Some(error), _) => Err(error),
                    (None, Some(report)) => Ok(vec![report]),
                    (None, None) => Err(error_of(CallErrorKind::NotFound)),
                }
            }
        };
        read.answered(&call, answer);
    }
    read
}

fn error_of(kind: CallErrorKind) -> CallError {
    CallError::new("Test", kind, "the runtime says so")
}

/// Whether this runtime tells of that at all.
pub fn tells(flavor: Flavor, truth: &Truth, happening: &Happening) -> bool {
    let sandbox = truth.lives[happening.life].kind == Kind::Sandbox;
    match (flavor, happening.event) {
        (Flavor::Crio, EventType::Created) => !sandbox,
        (Flavor::Crio, EventType::Deleted) => !(sandbox || happening.inside_removal),
        _ => flavor.streams(),
    }
}

/// The event of a happening with statuses as they were at `snapshot`, stamped at `stamped`.
pub fn event(
    truth: &Truth,
    flavor: Flavor,
    (subject, what): (&Life, EventType),
    snapshot: u64,
    stamped: i64,
) -> RuntimeEvent {
    let sandbox_id = subject.sandbox.as_ref().unwrap_or(&subject.id);
    let sandbox = truth.life(sandbox_id).and_then(|s| {
        let at = match s.removed {
            // containerd 2 reads the status before it deletes the entry.
            Some(gone) if what == EventType::Deleted && flavor == Flavor::Containerd2 => {
                snapshot.min(gone - 1)
            }
            _ => snapshot,
        };
        status(s, at)
    });
    // containerd tells of the sandbox, CRI-O of the pod.
    let told = |l: &&Life| flavor.is_crio() || l.sandbox.as_ref() == Some(sandbox_id);
    let containers = truth
        .recent(subject.pod)
        .filter(|l| l.kind == Kind::Container)
        .filter(told)
        .filter_map(|l| status(l, snapshot))
        .collect();
    // containerd 2 has lost the sandbox's creation time by then.
    let mut sandbox = sandbox;
    if let Some(report) = &mut sandbox
        && what == EventType::Deleted
        && report.id == subject.id
    {
        report.identity.created_at = None;
    }
    RuntimeEvent {
        id: subject.id.clone(),
        event: what,
        created_at: stamped,
        sandbox,
        containers,
    }
}

/// What the weather makes of an event before it leaves the runtime.
pub fn spoil(event: &mut RuntimeEvent, dice: &mut Dice, weather: &Weather, tally: &mut Tally) {
    let mut comes = |fault| {
        let percent = weather.percent(fault);
        let comes = percent > 0 && dice.percent(percent);
        if comes {
            tally.fault(fault);
        }
        comes
    };
    if comes(Fault::NilSandbox) {
        event.sandbox = None;
    }
    if comes(Fault::NilStatuses) {
        event.containers.clear();
    }
    if comes(Fault::EmptyElement) {
        // It is dropped where the wire is read.
        event.containers.pop();
    }
    if comes(Fault::StrangeType) {
        event.event = EventType::Other(7);
    }
    for report in event.sandbox.iter_mut().chain(&mut event.containers) {
        if comes(Fault::Nameless) {
            report.identity = Identity {
                unlabelled: true,
                ..Identity::unknown(report.identity.kind)
            };
        }
        if comes(Fault::UnknownInEvent) {
            report.shown = ReportedState::Unknown;
            report.details = Details::none(report.identity.kind);
        }
    }
    if comes(Fault::AbsurdStamp) {
        let stamped = event.created_at;
        let seconds = stamped / SECOND as i64;
        let future = stamped + 3600 * SECOND as i64;
        let zero = -6_795_364_578_871_345_152;
        event.created_at = dice.pick(&[0, zero, seconds, future, i64::MAX, i64::MIN]);
    }
}

/// How long a call takes.
pub fn duration(dice: &mut Dice, slow: bool, longest: u64) -> u64 {
    if slow {
        dice.between(100 * MS, longest)
    } else {
        dice.between(0, 20 * MS)
    }
}
