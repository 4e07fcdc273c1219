//! The pods of a view: one page of those that match, in order, and the state of each in one word.

use super::*;

/// The maximum number of containers on one page of pods. The detail of a pod shows more.
const MOST_CONTAINERS: usize = 800;
pub(super) const MOST_OF_POD: usize = 20;

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodsPage {
    pub(crate) total: usize,
    /// The number of containers that exist. `running`: how many of these are running.
    pub(crate) containers: usize,
    pub(crate) running: usize,
    pub(crate) matching: usize,
    /// The number of matching pods before the page.
    pub(crate) offset: usize,
    pub(crate) rows: Vec<PodRow>,
    /// The place of the selected pod among those that match.
    pub(crate) selected: Option<usize>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodRow {
    pub(crate) pod: Pod,
    pub(crate) state: PodState,
    /// A container has failed, and was not started again.
    pub(crate) failed: bool,
    /// The number of container names in the pod. `running`: how many of these names have a running container.
    pub(crate) names: usize,
    pub(crate) running: usize,
    pub(crate) restarts: u64,
    pub(crate) last_exit: Option<ExitRow>,
    /// The time since a container last changed its state, or since a sandbox was created if that was later.
    pub(crate) changed_seconds: Option<f64>,
    /// The time since the start of the read that showed this state. Absent if only events have shown the state.
    pub(crate) fresh_seconds: Option<f64>,
    /// The problem with calls about the pod. `problem_seconds`: how long the problem has lasted.
    pub(crate) problem: Option<String>,
    pub(crate) problem_seconds: Option<f64>,
    /// The newest container of each name, by name.
    pub(crate) containers: Vec<ContainerRow>,
    pub(crate) more_containers: usize,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerRow {
    pub(crate) name: String,
    pub(crate) id: String,
    pub(crate) state: String,
    pub(crate) failed: bool,
    /// The time for which the container has been in its state.
    pub(crate) seconds: Option<f64>,
    pub(crate) restarts: u32,
    pub(crate) exit_code: Option<i32>,
    pub(crate) reason: Option<String>,
    /// The last exit of the existing containers with this name.
    pub(crate) last_exit: Option<ExitRow>,
    pub(crate) image: String,
    /// Set if the status call of the container failed, or returned NotFound although the runtime lists the container.
    pub(crate) problem: Option<String>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ExitRow {
    pub(crate) container: String,
    pub(crate) exit_code: Option<i32>,
    pub(crate) reason: Option<String>,
    pub(crate) seconds: Option<f64>,
}

impl PodsPage {
    pub(super) fn new(inputs: &Inputs<'_>, query: &Query) -> Self {
        let problems = inputs.picture.problems.iter();
        let problems: HashMap<&str, &Problem> = problems.map(|p| (&*p.pod, p)).collect();
        let row = |pod: &PodView| {
            let problem = problems.get(pod.status.uid.as_str()).copied();
            PodRow::new(pod, inputs, problem)
        };
        let pods = inputs.pods.iter().filter(|pod| query.matches(&pod.status));
        let mut matching: Vec<_> = pods.map(|pod| (row(pod), pod)).collect();
        matching.sort_unstable_by(|(a, _), (b, _)| a.order(b, query.sort));
        if query.reverse {
            matching.reverse();
        }
        let mut uids = matching.iter().map(|(row, _)| &row.pod.uid);
        let statuses = inputs.pods.iter().flat_map(|pod| &pod.status.containers);
        let running = statuses.filter(|c| c.state == ContainerState::Running);
        let mut page = Self {
            total: inputs.pods.len(),
            containers: inputs.pods.iter().map(|p| p.status.containers.len()).sum(),
            running: running.count(),
            matching: matching.len(),
            offset: query.offset,
            rows: Vec::new(),
            selected: uids.position(|uid| !uid.is_empty() && *uid == query.selected),
        };
        let mut containers = MOST_CONTAINERS;
        let shown = matching.into_iter().skip(query.offset);
        for (row, pod) in shown.take(query.limit.min(MOST_ROWS)) {
            let row = row.with_containers(&pod.status, containers.min(MOST_OF_POD), inputs.wall);
            containers -= row.containers.len();
            page.rows.push(row);
        }
        page
    }
}

impl PodRow {
    /// The row without its containers.
    pub(super) fn new(view: &PodView, inputs: &Inputs<'_>, problem: Option<&Problem>) -> Self {
        let (status, newest) = (&*view.status, newest(&view.status));
        let running = newest.iter().filter(|c| c.state == ContainerState::Running);
        Self {
            pod: Pod {
                uid: name(status.uid.as_str()),
                namespace: name(&status.namespace),
                name: name(&status.name),
            },
            state: match problem.map(|problem| &*problem.kind) {
                None => state(status, &newest),
                Some("hung") => PodState::Hung,
                Some("status_missing") => PodState::StatusMissing,
                Some(_) => PodState::Failing,
            },
            failed: newest.iter().any(|c| has_failed(c)),
            names: newest.len(),
            running: running.count(),
            restarts: newest.iter().map(|c| u64::from(c.attempt)).sum(),
            last_exit: ExitRow::last(status.containers.iter(), inputs.wall),
            changed_seconds: changed(status).map(|at| ago(inputs.wall, at)),
            fresh_seconds: view.as_of.map(|at| inputs.picture.age(at)),
            problem: problem.and_then(|problem| long(&problem.text)),
            problem_seconds: problem.map(|problem| problem.seconds),
            ..Self::default()
        }
    }

    /// Adds the newest container of each name, but no more than `most` containers.
    pub(super) fn with_containers(mut self, of: &PodStatus, most: usize, wall: WallTime) -> Self {
        let (newest, all) = (newest(of), &of.containers);
        let shown = newest.iter().take(most);
        self.containers = shown.map(|c| ContainerRow::new(c, all, wall)).collect();
        self.more_containers = newest.len() - self.containers.len();
        self
    }

    fn order(&self, other: &Self, sort: Sort) -> Ordering {
        let age = |seconds: Option<f64>| seconds.unwrap_or(f64::INFINITY);
        let first = match sort {
            Sort::State => self.badness().cmp(&other.badness()),
            Sort::Name => Ordering::Equal,
            Sort::Restarts => other.restarts.cmp(&self.restarts),
            Sort::Change => age(self.changed_seconds).total_cmp(&age(other.changed_seconds)),
            Sort::Freshness => age(other.fresh_seconds).total_cmp(&age(self.fresh_seconds)),
        };
        first.then_with(|| self.pod.cmp(&other.pod))
    }

    /// The key of the order by state: problems first, then failed containers.
    fn badness(&self) -> impl Ord + use<> {
        (!self.state.is_problem(), !self.failed, self.state)
    }
}

impl ContainerRow {
    /// The row of the container `c`. `all`: the containers of its pod.
    pub(super) fn new(c: &ContainerStatus, all: &[ContainerStatus], wall: WallTime) -> Self {
        let details = &c.details;
        Self {
            name: name(&c.name),
            id: name(c.id.as_str()),
            state: c.state.as_str().to_owned(),
            failed: has_failed(c),
            seconds: state_since(c).map(|at| ago(wall, at)),
            restarts: c.attempt,
            exit_code: details.exit_code,
            reason: long(&details.reason),
            last_exit: ExitRow::last(all.iter().filter(|other| other.name == c.name), wall),
            image: name(&details.image),
            problem: problem_of(c.error.as_ref(), c.status_missing),
        }
    }
}

impl ExitRow {
    fn last<'a>(all: impl Iterator<Item = &'a ContainerStatus>, wall: WallTime) -> Option<Self> {
        let exited = all.filter(|c| c.state == ContainerState::Exited);
        let last = exited.max_by_key(|c| c.details.finished_at)?;
        let details = &last.details;
        Some(Self {
            container: name(&last.name),
            exit_code: details.exit_code,
            reason: long(&details.reason),
            seconds: details.finished_at.map(|at| ago(wall, at)),
        })
    }
}

/// The state of a pod. Problems come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum PodState {
    /// The runtime does not answer a call about the pod.
    Hung,
    Failing,
    /// The runtime lists a sandbox or container, but its status call returns NotFound.
    StatusMissing,
    #[default]
    Unknown,
    NotReady,
    Exited,
    /// A container exists and was not started.
    Created,
    /// The pod has a ready sandbox and no container.
    Ready,
    Running,
}

impl PodState {
    /// Returns true if calls about the pod hang, fail or return NotFound, or the runtime reports a state as unknown.
    pub(crate) fn is_problem(self) -> bool {
        self <= Self::Unknown
    }
}

/// The newest container of each name, ordered by name. In `status`, newer containers come first.
fn newest(status: &PodStatus) -> Vec<&ContainerStatus> {
    let newest = status.containers.iter().unique_by(|c| &*c.name);
    newest.sorted_by_key(|c| &*c.name).collect()
}

fn has_failed(container: &ContainerStatus) -> bool {
    container.state == ContainerState::Exited && container.details.exit_code != Some(0)
}

/// The state of a pod without a problem, by its newest containers.
fn state(status: &PodStatus, newest: &[&ContainerStatus]) -> PodState {
    let states = newest.iter().map(|c| match c.state {
        ContainerState::Created => PodState::Created,
        ContainerState::Running => PodState::Running,
        ContainerState::Exited => PodState::Exited,
        _ => PodState::Unknown,
    });
    let is_unknown = states.clone().min() == Some(PodState::Unknown);
    match status.sandboxes.first().map(|s| s.state) {
        Some(SandboxState::Unknown { .. }) => PodState::Unknown,
        _ if is_unknown => PodState::Unknown,
        Some(SandboxState::Ready) => states.max().unwrap_or(PodState::Ready),
        _ => PodState::NotReady,
    }
}

/// The time of a container's last change of state, or of a sandbox's creation if later, by the runtime's clock.
fn changed(status: &PodStatus) -> Option<WallTime> {
    let containers = status.containers.iter().map(state_since);
    let sandboxes = status.sandboxes.iter().map(|s| s.created_at);
    containers.chain(sandboxes).flatten().max()
}

/// The time at which the container entered its state, by the runtime's clock.
fn state_since(container: &ContainerStatus) -> Option<WallTime> {
    let details = &container.details;
    match container.state {
        ContainerState::Created => container.created_at,
        ContainerState::Running => details.started_at,
        ContainerState::Exited => details.finished_at,
        _ => None,
    }
}
