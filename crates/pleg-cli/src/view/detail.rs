//! One pod in detail: its sandboxes, containers and labels, how its containers ended, and its history.

use super::*;

const MOST_SANDBOXES: usize = 20;
const MOST_CONTAINERS: usize = 200;
const MOST_LABELS: usize = 100;
pub(super) const MOST_HISTORY: usize = 100;
const MOST_ENDS: usize = 100;

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Detail {
    pub(crate) row: PodRow,
    /// The pod does not exist any more. Only its records and the exits of its containers are known.
    pub(crate) gone: bool,
    pub(crate) ips: Vec<String>,
    /// The age of the oldest details of the pod: the time since the read that returned these details began.
    pub(crate) inspected_seconds: Option<f64>,
    pub(crate) error: Option<String>,
    pub(crate) sandboxes: Vec<SandboxRow>,
    /// All containers, newest first. Earlier containers of the same name have rows of their own.
    pub(crate) containers: Vec<ContainerRow>,
    pub(crate) more_containers: usize,
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) more_labels: usize,
    /// The exits of the pod's containers, including removed containers, oldest first.
    pub(crate) ends: Vec<ExitRow>,
    pub(crate) history: Vec<Record>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SandboxRow {
    pub(crate) id: String,
    pub(crate) state: String,
    pub(crate) attempt: u32,
    pub(crate) seconds: Option<f64>,
    /// Set if the status call of the sandbox failed, or returned NotFound although the runtime lists the sandbox.
    pub(crate) problem: Option<String>,
}

impl Detail {
    pub(super) fn new(view: &PodView, inputs: &Inputs<'_>, history: Vec<Record>) -> Self {
        let status = &view.status;
        let mut problems = inputs.picture.problems.iter();
        let problem = problems.find(|problem| problem.pod == status.uid.as_str());
        let row = PodRow::new(view, inputs, problem);
        let containers = status.containers.iter().take(MOST_CONTAINERS);
        let containers = containers.map(|c| ContainerRow::new(c, &[], inputs.wall));
        let labels = status.sandboxes.first().map(|s| &s.details.labels);
        let pairs = labels.iter().flat_map(|labels| labels.iter());
        let pairs = pairs.take(MOST_LABELS);
        Self {
            row: row.with_containers(status, MOST_OF_POD, inputs.wall),
            gone: false,
            ips: status.ips.iter().take(8).map(|ip| name(ip)).collect(),
            inspected_seconds: view.details_as_of.map(|at| inputs.picture.age(at)),
            error: status.error.as_ref().and_then(|e| long(&e.to_string())),
            sandboxes: sandboxes(view, inputs),
            containers: containers.collect(),
            more_containers: status.containers.len().saturating_sub(MOST_CONTAINERS),
            more_labels: labels.map_or(0, |l| l.len().saturating_sub(MOST_LABELS)),
            labels: pairs.map(|(key, value)| (name(key), name(value))).collect(),
            ends: ends(inputs),
            history,
        }
    }

    /// A pod that does not exist any more, if there are records of it.
    pub(super) fn gone(inputs: &Inputs<'_>, history: Vec<Record>) -> Option<Self> {
        Some(Self {
            row: PodRow {
                pod: history.iter().rev().find_map(|record| record.pod.clone())?,
                ..PodRow::default()
            },
            gone: true,
            ends: ends(inputs),
            history,
            ..Self::default()
        })
    }
}

fn sandboxes(view: &PodView, inputs: &Inputs<'_>) -> Vec<SandboxRow> {
    let sandboxes = view.status.sandboxes.iter().take(MOST_SANDBOXES);
    let row = |s: &SandboxStatus| SandboxRow {
        id: name(s.id.as_str()),
        state: s.state.as_str().to_owned(),
        attempt: s.attempt,
        seconds: s.created_at.map(|at| ago(inputs.wall, at)),
        problem: problem_of(s.error.as_ref(), s.status_missing),
    };
    sandboxes.map(row).collect()
}

/// The newest exits in the pod. The exit of a sandbox has an empty name.
fn ends(inputs: &Inputs<'_>) -> Vec<ExitRow> {
    let older = inputs.ends.len().saturating_sub(MOST_ENDS);
    let row = |end: &Exit| ExitRow {
        container: name(&end.name),
        exit_code: end.exit_code,
        reason: long(&end.reason),
        seconds: Some(match end.finished_at {
            Some(at) => ago(inputs.wall, at),
            None => inputs.picture.age(end.detected),
        }),
    };
    inputs.ends.iter().skip(older).map(row).collect()
}
