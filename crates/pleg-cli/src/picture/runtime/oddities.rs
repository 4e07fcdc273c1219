//! Pods in states that a kubelet does not leave them in: a container that runs twice, two ready sandboxes, a sandbox without
//! containers, a container that is not started, containers that restart again and again.

use std::collections::BTreeMap;

use pleg::core::{ContainerState, ContainerStatus, Id, PodView, SandboxState, WallTime};
use serde::{Deserialize, Serialize};

use super::pods::Pods;
use crate::figures::span;
use crate::picture::finding::{Finding, Layer, Severity};
use crate::text::short;

/// A kubelet starts a container within seconds after it was created. In milliseconds.
const UNSTARTED: f64 = 120_000.0;
/// A sandbox has no container while images are pulled. In milliseconds.
const EMPTY: f64 = 600_000.0;
/// After so many restarts within [`RECENT`], a container crashes again and again.
const RESTARTS: u32 = 3;
/// In milliseconds: a kubelet waits for five minutes at most before a restart.
const RECENT: f64 = 600_000.0;
/// So many restarts in a minute load the node.
const MANY_RESTARTS: usize = 30;
/// In milliseconds.
const MINUTE: f64 = 60_000.0;
/// How many are recorded of each kind, and how many lines of evidence a finding has.
const MOST: usize = 100;
const SHOWN: usize = 10;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Kind {
    RunsTwice,
    TwoReadySandboxes,
    #[default]
    EmptySandbox,
    Unstarted,
    Restarts,
}

/// A pod in an odd state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Oddity {
    pub(crate) kind: Kind,
    /// Its uid.
    pub(crate) pod: String,
    /// Empty if it is about a sandbox.
    pub(crate) container: String,
    /// The newest first.
    pub(crate) ids: Vec<String>,
    /// How long ago the newest was created.
    pub(crate) millis: f64,
    /// How many earlier containers the newest says that it had.
    pub(crate) restarts: u32,
}

/// What is odd in both looks, and how many containers were restarted in the last minute.
pub(super) fn find(before: &[PodView], after: &[PodView], now: WallTime) -> (Vec<Oddity>, usize) {
    let before: BTreeMap<&str, &PodView> = before
        .iter()
        .map(|view| (view.status.uid.as_str(), view))
        .collect();
    let mut found: BTreeMap<Kind, Vec<Oddity>> = BTreeMap::new();
    let mut restarted = 0;
    for view in after {
        let mut of_pod = of_pod(view, now);
        restarted += restarts_in_last_minute(view, now);
        let earlier = before.get(view.status.uid.as_str());
        let earlier = earlier
            .map(|view| self::of_pod(view, now))
            .unwrap_or_default();
        // A look may fall between two reads.
        of_pod.retain(|odd| {
            earlier
                .iter()
                .any(|e| e.kind == odd.kind && e.ids == odd.ids)
        });
        for odd in of_pod {
            let of_kind = found.entry(odd.kind).or_default();
            if of_kind.len() < MOST {
                of_kind.push(odd);
            }
        }
    }
    (found.into_values().flatten().collect(), restarted)
}

fn of_pod(view: &PodView, now: WallTime) -> Vec<Oddity> {
    let status = &*view.status;
    let odd = |kind, container: &str, ids: Vec<&Id>, created: Option<WallTime>| Oddity {
        kind,
        pod: status.uid.to_string(),
        container: container.to_owned(),
        ids: ids.into_iter().map(ToString::to_string).collect(),
        millis: created.map_or(0.0, |created| age(created, now)),
        restarts: 0,
    };
    let mut found = Vec::new();
    let ready = status
        .sandboxes
        .iter()
        .filter(|s| s.state == SandboxState::Ready);
    let ready: Vec<_> = ready.collect();
    if let [newest, _, ..] = &ready[..] {
        let ids = ready.iter().map(|sandbox| &sandbox.id).collect();
        found.push(odd(Kind::TwoReadySandboxes, "", ids, newest.created_at));
    }
    if let ([sandbox], true) = (&ready[..], status.containers.is_empty()) {
        found.push(odd(
            Kind::EmptySandbox,
            "",
            vec![&sandbox.id],
            sandbox.created_at,
        ));
    }
    for (name, containers) in by_name(view) {
        let is = |state: ContainerState| move |c: &&&ContainerStatus| c.state == state;
        let running: Vec<_> = containers
            .iter()
            .filter(is(ContainerState::Running))
            .collect();
        if let [newest, _, ..] = &running[..] {
            let ids = running.iter().map(|container| &container.id).collect();
            found.push(odd(Kind::RunsTwice, name, ids, newest.created_at));
        }
        let Some(newest) = containers.first() else {
            continue;
        };
        let ids = vec![&newest.id];
        match newest.state {
            ContainerState::Created => {
                found.push(odd(Kind::Unstarted, name, ids, newest.created_at));
            }
            _ if newest.attempt >= RESTARTS => {
                let restarts = newest.attempt;
                let odd = odd(Kind::Restarts, name, ids, newest.created_at);
                found.push(Oddity { restarts, ..odd });
            }
            _ => {}
        }
    }
    found.retain(|odd| match odd.kind {
        Kind::RunsTwice | Kind::TwoReadySandboxes => true,
        Kind::EmptySandbox => odd.millis >= EMPTY,
        Kind::Unstarted => odd.millis >= UNSTARTED,
        Kind::Restarts => odd.millis < RECENT,
    });
    found
}

/// The containers of a pod by their name, the newest first.
fn by_name(view: &PodView) -> BTreeMap<&str, Vec<&ContainerStatus>> {
    let mut names: BTreeMap<&str, Vec<&ContainerStatus>> = BTreeMap::new();
    for container in &view.status.containers {
        names.entry(&container.name).or_default().push(container);
    }
    names
}

fn restarts_in_last_minute(view: &PodView, now: WallTime) -> usize {
    let restarted = |container: &&ContainerStatus| {
        let created = container.created_at.map(|created| age(created, now));
        container.attempt > 0 && created.is_some_and(|age| age < MINUTE)
    };
    view.status.containers.iter().filter(restarted).count()
}

/// In milliseconds.
#[allow(clippy::cast_precision_loss, reason = "it is compared with minutes")]
fn age(created: WallTime, now: WallTime) -> f64 {
    now.as_nanos().saturating_sub(created.as_nanos()) as f64 / 1e6
}

impl Oddity {
    fn shown(&self, pods: &Pods) -> String {
        let ids: Vec<String> = self.ids.iter().map(|id| short(id)).collect();
        let name = pods.name(&self.pod);
        let what = match self.container.as_str() {
            "" => format!("{name}: sandbox {}", ids.join(" and ")),
            container => format!("{name}: {container} {}", ids.join(" and ")),
        };
        let age = span(self.millis);
        match self.kind {
            Kind::Restarts => format!("{what}: {} restarts, the last {age} ago", self.restarts),
            _ => format!("{what}, since {age}"),
        }
    }
}

pub(super) fn check(pods: &Pods) -> Vec<Finding> {
    let kinds = [
        Kind::RunsTwice,
        Kind::TwoReadySandboxes,
        Kind::EmptySandbox,
        Kind::Unstarted,
        Kind::Restarts,
    ];
    kinds
        .into_iter()
        .filter_map(|kind| of_kind(kind, pods))
        .collect()
}

fn of_kind(kind: Kind, pods: &Pods) -> Option<Finding> {
    let odd: Vec<&Oddity> = pods
        .oddities
        .iter()
        .filter(|odd| odd.kind == kind)
        .collect();
    let first = odd.first()?;
    let id = first.ids.last().map(|id| short(id)).unwrap_or_default();
    let name = pods.name(&first.pod);
    let names = match odd.len() {
        1 => name.to_owned(),
        all => format!("{name} and {} more", all - 1),
    };
    let (code, severity, summary, next) = match kind {
        Kind::RunsTwice => (
            "container_runs_twice",
            Severity::Critical,
            format!("a container of {names} runs twice: both write to the same volumes"),
            format!(
                "Find out which one the kubelet knows (kubectl describe pod), and stop the other (crictl stop ID); the \
                 older is {id}"
            ),
        ),
        Kind::TwoReadySandboxes => (
            "sandbox_twice",
            Severity::Warning,
            format!("two sandboxes of {names} are ready: containers of an earlier one may run on"),
            format!(
                "See what runs in the older one (crictl ps --pod {id}); stop it: crictl stopp {id}"
            ),
        ),
        Kind::EmptySandbox => (
            "sandbox_empty",
            Severity::Warning,
            format!("the sandbox of {names} is ready and has no container"),
            format!(
                "See what the kubelet waits for (kubectl describe pod; its log for {name}): an image, a volume, the runtime"
            ),
        ),
        Kind::Unstarted => (
            "container_not_started",
            Severity::Warning,
            format!("a container of {names} was created and is not started"),
            format!("Look for a runc or crun that hangs; read the runtime's log for {id}"),
        ),
        Kind::Restarts => {
            let severity = match pods.restarted {
                MANY_RESTARTS.. => Severity::Warning,
                _ => Severity::Info,
            };
            (
                "containers_restart",
                severity,
                format!(
                    "containers of {names} restart again and again; {} restarts in the last minute",
                    pods.restarted
                ),
                format!("Read why they end: crictl logs {id}"),
            )
        }
    };
    let mut finding = Finding::new(code, Layer::Pod, severity, summary, next);
    if matches!(kind, Kind::RunsTwice | Kind::TwoReadySandboxes) {
        finding = finding.destroys();
    }
    if kind == Kind::Restarts {
        finding = finding.explains(&["dead_containers"]);
    }
    let lines = odd.iter().take(SHOWN).map(|odd| odd.shown(pods));
    finding.evidence.extend(lines);
    match odd.len().checked_sub(SHOWN) {
        Some(more @ 1..) => Some(finding.because(format!("and {more} more"))),
        _ => Some(finding),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use pleg::core::{PodStatus, SandboxStatus};

    use super::*;

    const NOW: WallTime = WallTime::from_nanos(1_700_000_000_000_000_000);

    /// A pod with these sandboxes and containers: state, attempt, and how many seconds ago it was created.
    fn pod(
        sandboxes: &[(SandboxState, u64)],
        containers: &[(ContainerState, u32, u64)],
    ) -> PodView {
        let ago = |seconds| Some(NOW.before(Duration::from_secs(seconds)));
        let mut status = PodStatus::nothing("u1".into());
        (status.namespace, status.name) = ("shop".into(), "cart".into());
        let sandbox = |(n, (state, seconds)): (usize, &(SandboxState, u64))| {
            let mut sandbox = SandboxStatus::new(format!("s{n}"), *state);
            sandbox.created_at = ago(*seconds);
            sandbox
        };
        status.sandboxes = sandboxes.iter().enumerate().map(sandbox).collect();
        let container = |(n, (state, attempt, seconds)): (usize, &(ContainerState, u32, u64))| {
            let mut container = ContainerStatus::new(format!("c{n}"), "app", *state);
            (container.attempt, container.created_at) = (*attempt, ago(*seconds));
            container
        };
        status.containers = containers.iter().enumerate().map(container).collect();
        PodView::new(Arc::new(status), None, None)
    }

    fn found(before: &PodView, after: &PodView) -> Vec<Finding> {
        let views = |view: &PodView| vec![view.clone()];
        check(&Pods::new(&views(before), &views(after), NOW))
    }

    #[test]
    fn odd_states_of_pods_are_found_and_named() {
        use ContainerState::{Created, Exited, Running};
        use SandboxState::{NotReady, Ready};
        let ready = [(Ready, 700)];
        for (sandboxes, containers, expected) in [
            (&ready[..], &[(Running, 0, 600)][..], None),
            (
                &ready,
                &[(Running, 1, 9), (Running, 0, 600)],
                Some("container_runs_twice"),
            ),
            (&ready, &[(Running, 1, 9), (Exited, 0, 600)], None),
            (
                &[(Ready, 1), (Ready, 700)],
                &[(Running, 0, 1)],
                Some("sandbox_twice"),
            ),
            (&[(Ready, 1), (NotReady, 700)], &[(Running, 0, 1)], None),
            (&ready, &[], Some("sandbox_empty")),
            (&[(Ready, 500)], &[], None),
            (&ready, &[(Created, 0, 130)], Some("container_not_started")),
            (&ready, &[(Created, 0, 110)], None),
            (&ready, &[(Exited, 7, 20)], Some("containers_restart")),
            (&ready, &[(Running, 7, 900)], None),
        ] {
            let pod = pod(sandboxes, containers);
            let all = found(&pod, &pod);
            let codes: Vec<&str> = all.iter().map(|finding| finding.code).collect();
            assert_eq!(
                codes,
                Vec::from_iter(expected),
                "{sandboxes:?} {containers:?}"
            );
            assert!(
                all.iter()
                    .all(|finding| finding.summary.contains("shop/cart"))
            );
            let calm = self::pod(&ready, &[(Running, 0, 600)]);
            assert!(
                found(&calm, &pod).is_empty(),
                "in one look only: {expected:?}"
            );
        }
    }
}
