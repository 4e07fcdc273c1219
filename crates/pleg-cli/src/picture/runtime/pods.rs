//! The pods on the node: their number, dead containers, sandboxes without an address, creation times in the future.

use super::*;

/// With at least this many dead containers, lists become large and slow.
const MANY_DEAD: usize = 1000;
/// A kubelet keeps one dead container of each name and one dead sandbox of each pod. This many more are unusual.
const MANY_SUPERFLUOUS: usize = 200;
/// The smallest difference between wall and monotonic clock that counts as a step, in milliseconds.
const STEP: f64 = 1000.0;
/// The tolerance for creation times in the future: they and the wall clock are not read at the same time.
const FUTURE: Duration = Duration::from_secs(2);

/// The pods of the node, in two looks: before and after the host was examined.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Pods {
    pub(crate) pods: Vec<Pod>,
    pub(crate) running: usize,
    pub(crate) created: usize,
    /// Containers that have ended and still exist.
    pub(crate) dead: usize,
    /// Dead containers, except the newest dead one of each name in a pod.
    pub(crate) superfluous: usize,
    pub(crate) dead_sandboxes: usize,
    /// Dead sandboxes, except one of each pod.
    pub(crate) superfluous_sandboxes: usize,
    pub(crate) oddities: Vec<Oddity>,
    /// Containers that were restarted in the last minute.
    pub(crate) restarted: usize,
    /// Ready sandboxes that have no address and are not on the host network, by the uid of their pod.
    pub(crate) without_address: Vec<String>,
    /// The ids of all sandboxes and containers of both looks. True if at least one look shows the id as not ended.
    pub(crate) listed: BTreeMap<String, bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Pod {
    pub(crate) uid: String,
    /// The pod as `namespace/name`.
    pub(crate) name: String,
    pub(crate) sandboxes: Vec<String>,
    /// The sandboxes that were Ready in both looks.
    pub(crate) ready: Vec<String>,
    /// The containers that were Running in both looks, and their names.
    pub(crate) running: BTreeMap<String, String>,
    pub(crate) dead: usize,
    pub(crate) dead_sandboxes: usize,
}

impl Pods {
    /// The pods in both snapshots of the cache, the second as of `now`.
    pub(crate) fn new(before: &[PodView], after: &[PodView], now: WallTime) -> Self {
        let mut pods = Self {
            oddities: oddities::find(before, after, now),
            restarted: oddities::restarted(after, now),
            ..Self::default()
        };
        for (id, lives, _) in before.iter().chain(after).flat_map(objects) {
            *pods.listed.entry(id.to_string()).or_default() |= lives;
        }
        let ready_before = before.iter().flat_map(ready).map(|s| &s.id);
        let running_before = before.iter().flat_map(running).map(|c| &c.id);
        let before: BTreeSet<&Id> = ready_before.chain(running_before).collect();
        for view in after {
            let [dead, dead_sandboxes] = pods.count(view);
            let status = &view.status;
            let ready = ready(view).filter(|s| before.contains(&s.id));
            let running = running(view).filter(|c| before.contains(&c.id));
            let running = running.map(|c| (c.id.to_string(), c.name.to_string()));
            pods.pods.push(Pod {
                uid: status.uid.to_string(),
                name: record::Pod::from(&**status).shown(),
                sandboxes: status.sandboxes.iter().map(|s| s.id.to_string()).collect(),
                ready: ready.map(|s| s.id.to_string()).collect(),
                running: running.collect(),
                dead,
                dead_sandboxes,
            });
        }
        pods
    }

    /// Counts the containers and sandboxes of a pod. Returns the numbers of dead ones.
    fn count(&mut self, view: &PodView) -> [usize; 2] {
        let containers = view.status.containers.iter();
        let with = |state| containers.clone().filter(move |c| c.state == state);
        self.running += with(ContainerState::Running).count();
        self.created += with(ContainerState::Created).count();
        let dead = with(ContainerState::Exited).count();
        self.dead += dead;
        // Even if a container is running, a kubelet keeps the newest dead one of the same name for its logs.
        let of_name = with(ContainerState::Exited).unique_by(|c| &c.name);
        self.superfluous += dead - of_name.count();
        let sandboxes = view.status.sandboxes.iter();
        let sandboxes = sandboxes.filter(|s| s.state == SandboxState::NotReady);
        let sandboxes = sandboxes.count();
        self.dead_sandboxes += sandboxes;
        self.superfluous_sandboxes += sandboxes.saturating_sub(1);
        [dead, sandboxes]
    }

    /// A line with the three pods for which `dead` (the number of dead containers or sandboxes) is highest.
    fn most(&self, dead: impl Fn(&Pod) -> usize) -> Option<String> {
        let pods = self.pods.iter().map(|pod| (dead(pod), &pod.name));
        let most = pods.filter(|(n, _)| *n > 1).sorted().rev().take(3);
        let most = most.map(|(n, name)| format!("{name} ({n})")).join(", ");
        (!most.is_empty()).then(|| format!("pods with the most: {most}"))
    }

    pub(crate) fn name<'a>(&'a self, uid: &'a str) -> &'a str {
        match self.pods.iter().find(|pod| pod.uid == uid) {
            Some(pod) => &pod.name,
            None if uid.is_empty() => "a pod that is gone",
            None => uid,
        }
    }
}

/// The sandboxes and containers of a pod: id, true if it has not ended, and time of creation.
pub(super) fn objects(view: &PodView) -> impl Iterator<Item = (&Id, bool, Option<WallTime>)> {
    let sandboxes = view.status.sandboxes.iter();
    let sandboxes = sandboxes.map(|s| (&s.id, s.state != SandboxState::NotReady, s.created_at));
    let containers = view.status.containers.iter();
    let containers = containers.map(|c| (&c.id, c.state != ContainerState::Exited, c.created_at));
    sandboxes.chain(containers)
}

pub(super) fn ready(view: &PodView) -> impl Iterator<Item = &SandboxStatus> {
    let sandboxes = view.status.sandboxes.iter();
    sandboxes.filter(|sandbox| sandbox.state == SandboxState::Ready)
}

pub(super) fn running(view: &PodView) -> impl Iterator<Item = &ContainerStatus> {
    let containers = view.status.containers.iter();
    containers.filter(|container| container.state == ContainerState::Running)
}

/// Signs that the wall clock was set: a step during the examination, or creation times later than this clock's time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WallClock {
    /// By how much the wall clock was set forward; negative if it was set back.
    pub(crate) step_millis: f64,
    /// Sandboxes and containers that were created in the future, by the wall clock.
    pub(crate) from_future: usize,
}

impl WallClock {
    /// `step`: the nanoseconds by which the wall clock was set. `now`: the time that it shows.
    pub(super) fn new(step: i64, now: WallTime, views: &[PodView]) -> Self {
        let created = views.iter().flat_map(objects).filter_map(|(_, _, at)| at);
        Self {
            step_millis: (step as f64 / 1e6).round(),
            from_future: created.filter(|at| *at > now.after(FUTURE)).count(),
        }
    }

    pub(super) fn check(&self) -> Option<Finding> {
        let (step, future) = (self.step_millis, self.from_future);
        let direction = if step < 0.0 { "back" } else { "forward" };
        let by = span(step.abs());
        let step = (step.abs() >= STEP).then(|| {
            format!("the wall clock went {direction} by {by} against the monotonic clock")
        });
        let future = (future > 0).then(|| {
            format!("{future} sandboxes and containers have a creation time in the future")
        });
        let summary = match (&step, &future) {
            (None, None) => return None,
            (Some(_), _) => "the wall clock was set during the examination",
            (None, Some(_)) => "pods were created in the future: the wall clock was set back",
        };
        let next = "Let one time service slew the clock (chronyd, systemd-timesyncd). Events with wrong timestamps are not \
                    trusted until the next list.";
        Some(Finding::new("clock_step", summary, next).because_of(step.into_iter().chain(future)))
    }
}

pub(crate) fn check(pods: &Pods) -> impl Iterator<Item = Finding> {
    let others = [dead(pods), dead_sandboxes(pods), without_address(pods)];
    oddities::check(pods).chain(others.into_iter().flatten())
}

fn dead(pods: &Pods) -> Option<Finding> {
    let (dead, superfluous, sandboxes) = (pods.dead, pods.superfluous, pods.dead_sandboxes);
    let summary = format!("{dead} dead containers make every list slower and larger");
    let next = "Find out why the kubelet does not remove them (its garbage collection, a pod that crashes all the time); \
                remove them (crictl rm).";
    let evidence = format!(
        "{} running, {dead} dead; {superfluous} of them beyond one of each name; {sandboxes} dead sandboxes",
        pods.running
    );
    let are_many = dead >= MANY_DEAD || superfluous >= MANY_SUPERFLUOUS;
    let evidence = [evidence].into_iter().chain(pods.most(|pod| pod.dead));
    are_many.then(|| Finding::new("dead_containers", summary, next).because_of(evidence))
}

fn dead_sandboxes(pods: &Pods) -> Option<Finding> {
    let (dead, superfluous) = (pods.dead_sandboxes, pods.superfluous_sandboxes);
    let summary = format!("{dead} dead sandboxes make every list slower and larger");
    let next = "Find out why the kubelet does not remove them: its log, a removal that fails; remove them (crictl rmp).";
    let why = format!("{superfluous} of them beyond one of each pod");
    let are_many = superfluous >= MANY_SUPERFLUOUS;
    let evidence = [why].into_iter().chain(pods.most(|p| p.dead_sandboxes));
    are_many.then(|| Finding::new("dead_sandboxes", summary, next).because_of(evidence))
}

fn without_address(pods: &Pods) -> Option<Finding> {
    let line = "PodSandboxStatus has no address, and not the host's network";
    let line = |uid: &String| (pods.name(uid).to_owned(), line.to_owned());
    Finding::about(
        "sandbox_without_address",
        pods.without_address.iter().map(line),
        "{}: the sandbox is ready, but has no address",
        "Read the log of the network plugin; see whether it has addresses left; delete the pods.",
    )
}
