//! Pods in states that a kubelet does not leave them in: a container that runs twice, two ready sandboxes, a sandbox
//! without containers, a created container that was not started, containers that restart again and again.

use super::*;
use crate::view::ago;

const MINUTE: f64 = 60_000.0;
/// A created container should run before this age: a kubelet starts it within seconds.
const UNSTARTED: f64 = 2.0 * MINUTE;
/// A sandbox should have a container before this age. Until then, images may still be pulled.
const EMPTY: f64 = 10.0 * MINUTE;
/// A container with this many restarts, the last within `RECENT` (a kubelet restarts within 5 min), crashes in a loop.
const MANY_ATTEMPTS: u32 = 3;
const RECENT: f64 = 10.0 * MINUTE;
/// If at least this many containers restart in a minute, they load the node.
const MANY_RESTARTS: usize = 30;
/// The maximum number of pods that are recorded for each kind of oddity.
const MOST: usize = 100;

type Object<'a> = (&'a Id, Option<WallTime>);

/// For each kind of oddity, the finding's code, summary and next step. `{}`: the names of the pods; `{pod}`: the first
/// of them; `{id}`: its sandbox or container, the older one of two; `{newer}`: the newer one.
pub(super) const KINDS: [[&str; 3]; 5] = [
    [
        "container_runs_twice",
        "a container of {} runs twice: both write to the same volumes",
        "See which one the kubelet knows (kubectl describe pod); stop the other: crictl stop {id} (the older) or {newer}",
    ],
    [
        "sandbox_twice",
        "two sandboxes of {} are ready: containers of the older one may still run",
        "See what runs in the older one (crictl ps --pod {id}); stop it: crictl stopp {id}",
    ],
    [
        "sandbox_empty",
        "the sandbox of {} is ready and has no container",
        "See what the kubelet waits for (kubectl describe pod; its log for {pod}): an image, a volume, the runtime",
    ],
    [
        "container_not_started",
        "a container of {} was created but not started",
        "Look for a runc or crun that hangs; read the runtime's log for {id}",
    ],
    [
        "containers_restart",
        "containers of {} restart again and again; the node had {restarts} restarts in the last minute",
        "Read why they end: crictl logs {id}",
    ],
];

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Oddity {
    pub(crate) code: String,
    pub(crate) pod: String,
    /// The container's name; empty if the oddity is about a sandbox.
    pub(crate) container: String,
    /// The ids of the sandboxes or containers, the newest first.
    pub(crate) ids: Vec<String>,
    /// The age of the newest sandbox or container.
    pub(crate) millis: f64,
    pub(crate) restarts: u32,
}

/// The oddities that both looks show: a single look may have read only one of two related changes.
pub(super) fn find(before: &[PodView], after: &[PodView], now: WallTime) -> Vec<Oddity> {
    let before = before.iter().map(|view| (&view.status.uid, view));
    let before: BTreeMap<&PodUid, &PodView> = before.collect();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut found = Vec::new();
    for view in after {
        let earlier = before.get(&view.status.uid);
        let earlier = earlier.map_or_else(Vec::new, |view| of_pod(view, now));
        for odd in of_pod(view, now) {
            let count = counts.entry(odd.code.clone()).or_default();
            let is_same = |other: &Oddity| other.code == odd.code && other.ids == odd.ids;
            if *count < MOST && earlier.iter().any(is_same) {
                *count += 1;
                found.push(odd);
            }
        }
    }
    found
}

fn of_pod(view: &PodView, now: WallTime) -> Vec<Oddity> {
    let mut found = Vec::new();
    let mut add = |code: &str, container: &str, objects: &[Object<'_>], restarts| {
        let odd = Oddity {
            code: code.to_owned(),
            pod: view.status.uid.to_string(),
            container: container.to_owned(),
            ids: objects.iter().map(|(id, _)| id.to_string()).collect(),
            millis: age(objects.first().and_then(|(_, created)| *created), now),
            restarts,
        };
        found.extend(Some(odd).filter(Oddity::is_odd));
    };
    let ready: Vec<_> = ready(view).map(|s| (&s.id, s.created_at)).collect();
    add("sandbox_twice", "", &ready, 0);
    if view.status.containers.is_empty() {
        add("sandbox_empty", "", &ready, 0);
    }
    let of_name = running(view).map(|c| (&*c.name, (&c.id, c.created_at)));
    for (name, running) in of_name.into_group_map().into_iter().sorted() {
        add("container_runs_twice", name, &running, 0);
    }
    // Of the containers with the same name, the newest comes first.
    for newest in view.status.containers.iter().unique_by(|c| &c.name) {
        let code = match newest.state {
            ContainerState::Created => "container_not_started",
            _ => "containers_restart",
        };
        let alone = [(&newest.id, newest.created_at)];
        add(code, &newest.name, &alone, newest.attempt);
    }
    found
}

pub(super) fn restarted(views: &[PodView], now: WallTime) -> usize {
    let containers = views.iter().flat_map(|view| &view.status.containers);
    let restarted = |c: &&ContainerStatus| {
        c.attempt > 0 && c.created_at.is_some() && age(c.created_at, now) < MINUTE
    };
    containers.filter(restarted).count()
}

/// The age in milliseconds; 0 if it is not known.
fn age(created: Option<WallTime>, now: WallTime) -> f64 {
    created.map_or(0.0, |created| 1e3 * ago(now, created))
}

impl Oddity {
    fn is_odd(&self) -> bool {
        match &*self.code {
            "sandbox_empty" => self.ids.len() == 1 && self.millis >= EMPTY,
            "container_not_started" => self.millis >= UNSTARTED,
            "containers_restart" => self.restarts >= MANY_ATTEMPTS && self.millis < RECENT,
            _ => self.ids.len() > 1,
        }
    }

    fn shown(&self) -> String {
        let ids = self.ids.iter().map(|id| short(id)).join(" and ");
        let what = match &*self.container {
            "" => "sandbox",
            container => container,
        };
        let (age, n) = (span(self.millis), self.restarts);
        match self.code == "containers_restart" {
            true => format!("{what} {ids}: {n} restarts, the last {age} ago"),
            false => format!("{what} {ids}, for {age}"),
        }
    }
}

pub(super) fn check(pods: &Pods) -> impl Iterator<Item = Finding> {
    KINDS.into_iter().filter_map(|[code, summary, next]| {
        let odd = pods.oddities.iter().filter(|odd| odd.code == code);
        let first = odd.clone().next()?;
        let id = |id: Option<&String>| id.map(|id| short(id)).unwrap_or_default();
        let next = next.replace("{id}", &id(first.ids.last()));
        let next = next.replace("{newer}", &id(first.ids.first()));
        let next = next.replace("{pod}", pods.name(&first.pod));
        let summary = summary.replace("{restarts}", &pods.restarted.to_string());
        let lines = odd.map(|odd| (pods.name(&odd.pod).to_owned(), odd.shown()));
        let mut found = Finding::about(code, lines, &summary, next)?;
        if code == "containers_restart" && pods.restarted >= MANY_RESTARTS {
            found.severity = Severity::Warning;
        }
        Some(found)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use pleg::core::{PodStatus, SandboxStatus};
    use serde_json::Value;

    use super::*;
    use crate::picture::finding::arrange;
    use crate::picture::runtime::pods;
    use crate::text::lower;
    use crate::view::tests::wall;

    /// A pod from the states of its sandboxes, with their ages in seconds, and of its containers, with attempt and age.
    fn pod(text: &str) -> [PodView; 1] {
        let mut status = PodStatus::nothing("u1".into());
        (status.namespace, status.name) = ("shop".into(), "cart".into());
        let (mut sandboxes, mut containers) = (Vec::new(), Vec::new());
        for (n, part) in text.split(", ").enumerate() {
            let words = Vec::from_iter(part.split(' '));
            let (age, state) = (words[words.len() - 1], Value::from(words[0]));
            let created_at = Some(wall(0).before(Duration::from_secs(age.parse().unwrap())));
            if words.len() == 2 {
                let state = serde_json::from_value(state).unwrap();
                let mut sandbox = SandboxStatus::new(format!("s{n}"), state);
                sandbox.created_at = created_at;
                sandboxes.push(sandbox);
            } else {
                let state = serde_json::from_value(state).unwrap();
                let mut container = ContainerStatus::new(format!("c{n}"), "app", state);
                container.attempt = words[1].parse().unwrap();
                container.created_at = created_at;
                containers.push(container);
            }
        }
        (status.sandboxes, status.containers) = (sandboxes.into(), containers.into());
        [PodView::new(Arc::new(status), None, None)]
    }

    fn found(before: &[PodView], after: &[PodView]) -> Vec<String> {
        let found = Vec::from_iter(check(&Pods::new(before, after, wall(0))));
        assert!(found.iter().all(|f| f.summary.contains("shop/cart")));
        let is_filled = |f: &Finding| !f.next.contains('{') && !f.next.contains("ID");
        assert!(found.iter().all(is_filled), "{found:?}");
        let shown = |f: &Finding| format!("{} {}", f.code, lower(f.severity));
        found.iter().map(shown).collect()
    }

    const PODS: &str = "
Ready 700, Running 0 600 =>
Ready 700, Running 1 9, Running 0 600 => container_runs_twice critical
Ready 700, Running 1 9, Exited 0 600 =>
Ready 1, Ready 700, Running 0 1 => sandbox_twice warning
Ready 1, NotReady 700, Running 0 1 =>
Ready 700 => sandbox_empty info
Ready 500 =>
Ready 700, Created 0 130 => container_not_started warning
Ready 700, Created 0 110 =>
Ready 700, Exited 7 20 => containers_restart info
Ready 700, Running 7 900 =>";

    #[test]
    fn odd_states_of_pods_are_found_and_named() {
        let calm = pod("Ready 700, Running 0 600");
        for row in PODS.trim().lines() {
            let (states, expected) = row.split_once(" =>").unwrap();
            let pod = pod(states);
            assert_eq!(found(&pod, &pod).join(" "), expected.trim(), "{states}");
            assert_eq!(found(&calm, &pod).len(), 0, "in one look: {states}");
        }
    }

    #[test]
    fn many_dead_containers_are_reported_with_restarts_as_the_cause() {
        let pod = pod(&format!("Ready 700{}", ", Exited 7 20".repeat(201)));
        let pods = Pods::new(&pod, &pod, wall(0));
        let found = arrange(pods::check(&pods).collect());
        assert!(found[1].summary.starts_with("201 dead containers"));
        assert!(found[1].evidence[1].ends_with(": shop/cart (201)"));
        let codes = (found[0].code, found[1].code, found[1].cause);
        let restart = "containers_restart";
        assert_eq!(codes, (restart, "dead_containers", Some(restart)));
    }
}
