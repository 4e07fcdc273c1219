//! The runtime as the machine meets it: what it answers and what it tells, out of the truth.

use std::sync::LazyLock;

use pleg_core::{
    Details, EventType, Id, Identity, Kind, PodUid, Report, RuntimeEvent, SandboxDetails, Shown,
    Text, WallTime,
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
fn listed(life: &Life, t: u64) -> Option<Report> {
    let gone = life
        .removed
        .filter(|&gone| gone <= t && t < gone + life.lingers);
    row(life, gone.map_or(t, |gone| gone - 1))
}

fn shown(life: &Life, t: u64) -> Option<Shown> {
    match life.at(t)? {
        State::Created => Some(Shown::Created),
        State::Running => Some(Shown::Running),
        State::Exited => Some(Shown::Exited),
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
            if shown == Shown::Exited {
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

/// An inspection between `began` and `ended`: lists of the pod and of its sandboxes, then every
/// status at a moment of its own. Returns what was found, what is gone, and what was listed and had
/// no status. `hides`: the status call of this id says NotFound; it is asked about ids that a list
/// of this inspection shows.
pub fn inspect(
    truth: &Truth,
    dice: &mut Dice,
    hides: &mut dyn FnMut(&Id) -> bool,
    pod: &PodUid,
    held: &[(Id, Kind)],
    (began, ended): (u64, u64),
) -> (Vec<Report>, Vec<Id>, Vec<Report>) {
    let lists_at = dice.between(began, ended);
    let named = pod_of(pod);
    // Where another name stands in for the pod's, what is held leads to it.
    let places = held.iter().filter_map(|(id, _)| truth.life(id));
    let mut pods: Vec<usize> = named.into_iter().chain(places.map(|l| l.pod)).collect();
    pods.sort_unstable();
    pods.dedup();
    let is_held = |id: &Id| held.iter().any(|(other, _)| other == id);
    let (mut found, mut gone, mut denied) = (Vec::new(), Vec::new(), Vec::new());
    for life in pods.into_iter().flat_map(|pod| truth.recent(pod)) {
        let of_held = life.sandbox.as_ref().is_some_and(is_held);
        let row = (Some(life.pod) == named || of_held)
            .then(|| listed(life, dice.between(began, lists_at)))
            .flatten();
        let is_held = is_held(&life.id);
        if row.is_none() && !is_held {
            continue;
        }
        let from = if is_held { began } else { lists_at };
        let at = dice.between(from, ended);
        let status = if row.is_some() && hides(&life.id) {
            None
        } else {
            status(life, at)
        };
        match (status, row) {
            (Some(mut report), row) => {
                report.identity.sandbox = row.and_then(|r| r.identity.sandbox);
                found.push(report);
            }
            (None, None) => gone.push(life.id.clone()),
            (None, Some(row)) => denied.push(row),
        }
    }
    // What was removed long ago is gone as well.
    for (id, _) in held {
        let removed = truth.life(id).and_then(|l| l.removed);
        let read = || found.iter().chain(&denied);
        let met = || gone.contains(id) || read().any(|r| r.id == *id);
        if removed.is_some_and(|t| t <= began) && !met() {
            gone.push(id.clone());
        }
    }
    (found, gone, denied)
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
            report.identity = Identity::unknown(report.identity.kind);
        }
        if comes(Fault::UnknownInEvent) {
            report.shown = Shown::Unknown;
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
