//! What exists on the node, and what of it is in the way: dead containers, sandboxes without an address.

use std::collections::{BTreeMap, BTreeSet};

use pleg::core::{ContainerState, Id, PodUid, PodView, SandboxState, SandboxStatus, WallTime};
use serde::{Deserialize, Serialize};

use super::oddities::{self, Oddity};
use crate::picture::finding::{Finding, Layer, Severity};
use crate::picture::host::Calls;

/// So many dead containers make lists large and slow.
const MANY_DEAD: usize = 1000;
/// A kubelet keeps one dead container of each name and one dead sandbox of each pod. So many more in all are unusual.
const MANY_SUPERFLUOUS: usize = 200;

/// The pods of the node, in two looks: before and after the host was examined.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Pods {
    pub(crate) pods: Vec<Pod>,
    pub(crate) running: usize,
    pub(crate) created: usize,
    /// Containers that have ended and still exist.
    pub(crate) dead: usize,
    /// Dead containers beyond the newest one of each name.
    pub(crate) superfluous: usize,
    pub(crate) dead_sandboxes: usize,
    /// Dead sandboxes beyond the newest one of each pod.
    pub(crate) superfluous_sandboxes: usize,
    pub(crate) oddities: Vec<Oddity>,
    /// Containers that were restarted in the last minute.
    pub(crate) restarted: usize,
    /// Ready sandboxes that have no address and are not on the host network, by the uid of their pod.
    pub(crate) without_address: Vec<String>,
    /// All sandboxes and containers of both looks, and whether one of them shows it as not ended.
    pub(crate) listed: BTreeMap<String, bool>,
}

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Pod {
    pub(crate) uid: String,
    /// `namespace/name`.
    pub(crate) name: String,
    pub(crate) sandboxes: Vec<String>,
    /// Those that were Ready in both looks.
    pub(crate) ready: Vec<String>,
    /// The containers that were Running in both looks, and their names.
    pub(crate) running: BTreeMap<String, String>,
}

impl Pods {
    /// Both snapshots of the cache, the second as of `now`.
    pub(crate) fn new(before: &[PodView], after: &[PodView], now: WallTime) -> Self {
        let ready: BTreeSet<&Id> = before.iter().flat_map(ready).collect();
        let running: BTreeSet<&Id> = before
            .iter()
            .flat_map(|view| running(view).map(|(id, _)| id))
            .collect();
        let (oddities, restarted) = oddities::find(before, after, now);
        let mut pods = Self {
            oddities,
            restarted,
            ..Self::default()
        };
        for view in before.iter().chain(after) {
            let sandboxes = view.status.sandboxes.iter();
            let sandboxes = sandboxes.map(|s| (&s.id, s.state != SandboxState::NotReady));
            let containers = view.status.containers.iter();
            let containers = containers.map(|c| (&c.id, c.state != ContainerState::Exited));
            for (id, lives) in sandboxes.chain(containers) {
                *pods.listed.entry(id.to_string()).or_default() |= lives;
            }
        }
        for view in after {
            pods.count(view);
            let status = &view.status;
            let name = pod_name(&status.namespace, &status.name, &status.uid);
            let sandboxes = status.sandboxes.iter().map(|s| s.id.to_string());
            let still_ready = self::ready(view).filter(|id| ready.contains(id));
            let still_running = self::running(view).filter(|(id, _)| running.contains(id));
            pods.pods.push(Pod {
                uid: status.uid.to_string(),
                name,
                sandboxes: sandboxes.collect(),
                ready: still_ready.map(ToString::to_string).collect(),
                running: still_running
                    .map(|(id, name)| (id.to_string(), name.to_owned()))
                    .collect(),
            });
        }
        pods
    }

    fn count(&mut self, view: &PodView) {
        let mut names = BTreeSet::new();
        for container in &view.status.containers {
            // The newest one of a name comes first.
            let is_newest = names.insert(&container.name);
            match container.state {
                ContainerState::Running => self.running += 1,
                ContainerState::Exited => {
                    self.dead += 1;
                    self.superfluous += usize::from(!is_newest);
                }
                ContainerState::Created => self.created += 1,
                _ => {}
            }
        }
        let dead = |sandbox: &&SandboxStatus| sandbox.state == SandboxState::NotReady;
        let sandboxes = view.status.sandboxes.iter();
        self.dead_sandboxes += sandboxes.clone().filter(dead).count();
        // The newest one comes first.
        self.superfluous_sandboxes += sandboxes.skip(1).filter(dead).count();
    }

    pub(crate) const fn total(&self) -> usize {
        self.pods.len()
    }

    /// The name of a pod, or its uid.
    pub(crate) fn name<'a>(&'a self, uid: &'a str) -> &'a str {
        let mut pods = self.pods.iter();
        pods.find(|pod| pod.uid == uid).map_or(uid, |pod| &pod.name)
    }

    /// The names by which findings about the host name pods.
    pub(crate) fn name_in(&self, calls: &mut Calls) {
        for pod in &self.pods {
            let name = || pod.name.clone();
            calls.pods.insert(pod.uid.clone(), name());
            let ids = pod.sandboxes.iter().chain(pod.running.keys());
            calls.sandboxes.extend(ids.map(|id| (id.clone(), name())));
            calls
                .ready
                .extend(pod.ready.iter().map(|id| (id.clone(), name())));
            let running = pod.running.iter();
            let running =
                running.map(|(id, container)| (id.clone(), format!("{} {container}", pod.name)));
            calls.running.extend(running);
        }
    }
}

/// `namespace/name`, or the uid of a pod whose name is not known.
pub(super) fn pod_name(namespace: &str, name: &str, uid: &PodUid) -> String {
    match name {
        "" => uid.to_string(),
        _ => format!("{namespace}/{name}"),
    }
}

fn ready(view: &PodView) -> impl Iterator<Item = &Id> {
    let sandboxes = view.status.sandboxes.iter();
    let ready = sandboxes.filter(|sandbox| sandbox.state == SandboxState::Ready);
    ready.map(|sandbox| &sandbox.id)
}

fn running(view: &PodView) -> impl Iterator<Item = (&Id, &str)> {
    let containers = view.status.containers.iter();
    let running = containers.filter(|container| container.state == ContainerState::Running);
    running.map(|container| (&container.id, &*container.name))
}

pub(crate) fn check(pods: &Pods) -> Vec<Finding> {
    let mut findings = oddities::check(pods);
    findings.extend(dead(pods));
    findings.extend(dead_sandboxes(pods));
    findings.extend(without_address(pods));
    findings
}

fn dead(pods: &Pods) -> Option<Finding> {
    if pods.dead < MANY_DEAD && pods.superfluous < MANY_SUPERFLUOUS {
        return None;
    }
    let finding = Finding::new(
        "dead_containers",
        Layer::Calls,
        Severity::Warning,
        format!(
            "{} dead containers make every list slower and larger",
            pods.dead
        ),
        "Find out why the kubelet does not remove them (its garbage collection, a pod that crashes all the time); \
         remove them (crictl rm).",
    )
    .destroys();
    let finding = finding.because(format!(
        "{} running, {} dead; {} of them beyond the newest of their name; {} dead sandboxes",
        pods.running, pods.dead, pods.superfluous, pods.dead_sandboxes
    ));
    Some(finding.explains(&["list_slow", "list_large"]))
}

fn dead_sandboxes(pods: &Pods) -> Option<Finding> {
    if pods.superfluous_sandboxes < MANY_SUPERFLUOUS {
        return None;
    }
    let finding = Finding::new(
        "dead_sandboxes",
        Layer::Calls,
        Severity::Warning,
        format!("{} dead sandboxes make every list slower and larger", pods.dead_sandboxes),
        "Find out why the kubelet does not remove them: its log, a removal that fails; remove them (crictl rmp).",
    )
    .destroys();
    let finding = finding.because(format!(
        "{} of them are not the newest of their pod",
        pods.superfluous_sandboxes
    ));
    Some(finding.explains(&["list_slow", "list_large"]))
}

fn without_address(pods: &Pods) -> Option<Finding> {
    let names: Vec<&str> = pods
        .without_address
        .iter()
        .map(|uid| pods.name(uid))
        .collect();
    let summary = match names.as_slice() {
        [] => return None,
        [name] => format!("the sandbox of {name} is ready, but has no address"),
        [first, rest @ ..] => format!(
            "the sandboxes of {first} and {} more are ready, but have no address",
            rest.len()
        ),
    };
    let finding = Finding::new(
        "sandbox_without_address",
        Layer::Network,
        Severity::Warning,
        summary,
        "Read the log of the network plugin; see whether it has addresses left; delete the pods.",
    );
    let shown = names.iter().take(10);
    Some(shown.fold(finding, |finding, name| {
        finding.because(format!(
            "{name}: PodSandboxStatus has no address, and not the host's network"
        ))
    }))
}
