//! The runtime as the machine meets it: what it answers and what it tells, out of the truth.

use std::collections::BTreeMap;

use pleg_core::{
    ContainerDetails, Details, EventType, Id, Identity, Kind, PodUid, Report, RuntimeEvent,
    SandboxDetails, Shown, WallTime,
};

use crate::dice::Dice;
use crate::truth::{Happening, Life, State, Truth};
use crate::weather::{Flavor, MS, SECOND, Weather};

/// The wall clock at the origin of the monotonic one.
pub const WALL: i64 = 1_700_000_000_000_000_000;

pub fn uid(pod: usize) -> PodUid {
    format!("uid-of-{pod}").into()
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

fn row(life: &Life, t: u64) -> Option<Report> {
    let shown = match life.at(t)? {
        State::Created => Shown::Created,
        State::Running => Shown::Running,
        State::Exited => Shown::Exited,
        State::Gone => return None,
    };
    let container = life.kind == Kind::Container;
    let identity = Identity {
        pod: Some(uid(life.pod)),
        namespace: Some("ns".into()),
        pod_name: Some(format!("pod-{}", life.pod).into()),
        sandbox: life.sandbox.clone(),
        name: container.then(|| life.name.as_str().into()),
        attempt: life.attempt,
        created_at: WallTime::claimed(WALL + life.created as i64),
        ..Identity::unknown(life.kind)
    };
    let (id, details) = (life.id.clone(), Details::none(life.kind));
    Some(Report {
        id,
        shown,
        identity,
        details,
    })
}

/// What a status says. A container's does not say which sandbox it is in.
pub fn status(life: &Life, t: u64) -> Option<Report> {
    let mut report = row(life, t)?;
    report.identity.sandbox = None;
    report.details = match life.kind {
        Kind::Sandbox => Details::Sandbox(SandboxDetails {
            ips: vec![address(life)],
            ..SandboxDetails::default()
        }),
        Kind::Container => {
            let mut details = ContainerDetails::default();
            if report.shown == Shown::Exited {
                details.exit_code = Some(life.code);
                details.reason = reason(life, t).into();
            }
            Details::Container(details)
        }
    };
    Some(report)
}

pub fn address(life: &Life) -> pleg_core::Text {
    format!("10.0.{}.{}", life.pod, life.attempt).into()
}

/// The reason of an exit as the runtime gives it at `t`.
pub fn reason(life: &Life, t: u64) -> &'static str {
    match life.exited {
        Some(at) if life.code == 137 && t >= at + OOM => "OOMKilled",
        _ => life.reason,
    }
}

/// Both lists of the node, each true for its own moment.
pub fn list(truth: &Truth, sandboxes_at: u64, containers_at: u64) -> Vec<Report> {
    let of = |kind, t| {
        truth
            .lives
            .iter()
            .filter(move |l| l.kind == kind)
            .filter_map(move |l| listed(l, t))
    };
    of(Kind::Sandbox, sandboxes_at)
        .chain(of(Kind::Container, containers_at))
        .collect()
}

/// An inspection between `began` and `ended`: lists of the pod and of its sandboxes, then every
/// status at a moment of its own. Returns what was found and what is gone.
pub fn inspect(
    truth: &Truth,
    dice: &mut Dice,
    pod: &PodUid,
    held: &[(Id, Kind)],
    (began, ended): (u64, u64),
) -> (Vec<Report>, Vec<Id>) {
    let lists_at = dice.between(began, ended);
    let mut rows: BTreeMap<Id, Report> = BTreeMap::new();
    for life in &truth.lives {
        let of_held = |s: &Id| held.iter().any(|(id, _)| id == s);
        if (uid(life.pod) == *pod || life.sandbox.as_ref().is_some_and(of_held))
            && let Some(row) = listed(life, dice.between(began, lists_at))
        {
            rows.insert(row.id.clone(), row);
        }
    }
    let (mut found, mut gone) = (Vec::new(), Vec::new());
    for life in &truth.lives {
        let row = rows.get(&life.id);
        let is_held = held.iter().any(|(id, _)| *id == life.id);
        if row.is_none() && !is_held {
            continue;
        }
        let from = if is_held { began } else { lists_at };
        match (status(life, dice.between(from, ended)), row) {
            (Some(mut report), row) => {
                report.identity.sandbox = row.and_then(|r| r.identity.sandbox.clone());
                found.push(report);
            }
            (None, None) => gone.push(life.id.clone()),
            (None, Some(_)) => {}
        }
    }
    (found, gone)
}

/// Whether this runtime tells of that at all.
pub fn tells(flavor: Flavor, truth: &Truth, happening: &Happening) -> bool {
    let sandbox = truth.lives[happening.life].kind == Kind::Sandbox;
    match (flavor, happening.event) {
        (Flavor::Crio, EventType::Created) => !sandbox,
        (Flavor::Crio, EventType::Deleted) => !(sandbox || happening.inside_removal),
        _ => true,
    }
}

/// The event of a happening with statuses as they were at `snapshot`, stamped at `stamped`.
pub fn event(
    truth: &Truth,
    dice: &mut Dice,
    weather: &Weather,
    flavor: Flavor,
    (subject, what): (&Life, EventType),
    snapshot: u64,
    stamped: i64,
) -> RuntimeEvent {
    let sandbox_id = subject.sandbox.as_ref().unwrap_or(&subject.id);
    let mut sandbox = truth.life(sandbox_id).and_then(|s| {
        let at = match s.removed {
            // containerd 2 reads the status before it deletes the entry.
            Some(gone) if what == EventType::Deleted && flavor == Flavor::Containerd2 => {
                snapshot.min(gone - 1)
            }
            _ => snapshot,
        };
        status(s, at)
    });
    let mut containers: Vec<Report> = truth
        .lives
        .iter()
        .filter(|l| match flavor {
            Flavor::Crio => l.kind == Kind::Container && l.pod == subject.pod,
            _ => l.sandbox.as_ref() == Some(sandbox_id),
        })
        .filter_map(|l| status(l, snapshot))
        .collect();
    if dice.percent(weather.truncated) {
        let how = dice.between(1, 3);
        if how & 1 != 0 {
            sandbox = None;
        }
        if how & 2 != 0 {
            containers.clear();
        }
    }
    for report in sandbox.iter_mut().chain(&mut containers) {
        if dice.percent(weather.nameless) {
            report.identity = Identity::unknown(report.identity.kind);
        }
        if dice.percent(weather.unknown) {
            report.shown = Shown::Unknown;
            report.details = Details::none(report.identity.kind);
        }
    }
    let created_at = if dice.percent(weather.absurd) {
        let seconds = stamped / SECOND as i64;
        let future = stamped + 3600 * SECOND as i64;
        dice.pick(&[
            0,
            -6_795_364_578_871_345_152,
            seconds,
            future,
            i64::MAX,
            i64::MIN,
        ])
    } else {
        stamped
    };
    let id = subject.id.clone();
    RuntimeEvent {
        id,
        event: what,
        created_at,
        sandbox,
        containers,
    }
}

/// How long a call takes.
pub fn duration(dice: &mut Dice, weather: &Weather, longest: u64) -> u64 {
    if dice.percent(weather.slow) {
        dice.between(100 * MS, longest)
    } else {
        dice.between(0, 20 * MS)
    }
}
