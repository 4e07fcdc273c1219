//! The calls about single pods: how long they take, and which of them hang or fail.

use pleg::{PodProblem, PodProblemKind};

use super::*;

/// The time without an answer after which a call counts as hung.
const HANGS: Duration = Duration::from_secs(2);
/// A status call of at least this many milliseconds is slow. It usually takes 1 to 10.
const SLOW: f64 = 1000.0;
const MOST: usize = 100;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Statuses {
    pub(crate) ids: usize,
    /// The median duration of the status calls. If an id was read more than once, only its longest call counts.
    pub(crate) median_millis: Option<f64>,
    pub(crate) p99_millis: Option<f64>,
    pub(crate) total_millis: f64,
    /// The slowest calls, after those that hang.
    pub(crate) slowest: Vec<PodCall>,
    pub(crate) slowest_pods: Vec<SlowPod>,
    pub(crate) problems: Vec<Problem>,
}

/// The longest of the calls of one operation about the same id or the same pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodCall {
    pub(crate) operation: String,
    /// The pod's uid. Empty if it is not known.
    pub(crate) pod: String,
    /// The id of the status call; empty for a list of the pod.
    pub(crate) id: String,
    pub(crate) millis: f64,
    /// True if one of these calls was cancelled after at least [`HANGS`] without an answer.
    pub(crate) hangs: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SlowPod {
    pub(crate) pod: String,
    pub(crate) millis: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Problem {
    pub(crate) pod: String,
    /// The pod. Not recorded here, because `Pods` has the names of all pods.
    #[serde(skip)]
    pub(crate) of: record::Pod,
    /// The kind of problem, as `PodProblemKind::as_str` writes it.
    pub(crate) kind: String,
    pub(crate) operation: String,
    pub(crate) id: String,
    pub(crate) container: String,
    pub(crate) seconds: f64,
    pub(crate) failure: Option<Failure>,
    /// The generator's sentence about the problem.
    #[serde(skip)]
    pub(crate) text: String,
}

impl Problem {
    pub(crate) fn all(problems: &[PodProblem], now: Instant) -> Vec<Self> {
        let problem = |problem: &PodProblem| Self {
            pod: problem.pod.uid.to_string(),
            of: (&problem.pod).into(),
            kind: problem.kind.as_str().to_owned(),
            operation: problem.operation.to_owned(),
            id: problem.id.as_ref().map_or("", Id::as_str).to_owned(),
            container: problem.container.to_string(),
            seconds: now.since(problem.since).as_secs_f64(),
            failure: problem.error.as_deref().map(Failure::from),
            text: problem.to_string(),
        };
        problems.iter().map(problem).collect()
    }

    pub(crate) fn hangs(&self) -> bool {
        self.kind == PodProblemKind::Hung.as_str()
    }

    fn shown(&self) -> String {
        let call = call(&self.operation, &self.container, &self.id);
        match &self.failure {
            _ if self.hangs() => format!("{call}: no answer for {:.0} s", self.seconds),
            Some(failure) => format!("{call}: {failure}"),
            None => format!("{call}: listed, but its status is NotFound"),
        }
    }
}

impl PodCall {
    fn is_late(&self) -> bool {
        self.hangs || self.millis >= SLOW
    }

    fn shown(&self) -> String {
        let hangs = if self.hangs { "no answer for " } else { "" };
        let call = call(&self.operation, "", &self.id);
        format!("{call}: {hangs}{}", span(self.millis))
    }
}

/// A call such as `ContainerStatus of app (0123456789ab)`.
fn call(operation: &str, container: &str, id: &str) -> String {
    let of = enclosed(" of ", container, "");
    let id = enclosed(" (", &short(id), ")");
    format!("{operation}{of}{id}")
}

impl Statuses {
    pub(super) fn new(calls: &Timings, views: &[PodView], problems: Vec<Problem>) -> Self {
        let ids = |view| objects(view).map(move |(id, ..)| (id.as_str(), view.status.uid.as_str()));
        let pods: BTreeMap<&str, &str> = views.iter().flat_map(ids).collect();
        let call = |((operation, id), timing): (&Key, &Timing)| {
            let (pod, id) = match *operation {
                LIST_SANDBOXES | LIST_CONTAINERS => (id.as_str(), ""),
                _ => (*pods.get(id.as_str()).unwrap_or(&""), id.as_str()),
            };
            PodCall {
                operation: (*operation).to_owned(),
                pod: pod.to_owned(),
                id: id.to_owned(),
                millis: millis(timing.longest),
                hangs: timing.unanswered.is_some_and(|time| time >= HANGS),
            }
        };
        let mut slowest: Vec<PodCall> = calls.iter().map(call).collect();
        let mut times = Vec::new();
        let mut of_pods: BTreeMap<String, f64> = BTreeMap::new();
        for call in slowest.iter().filter(|call| !call.id.is_empty()) {
            times.push(call.millis);
            *of_pods.entry(call.pod.clone()).or_default() += call.millis;
        }
        let slow = of_pods.into_iter();
        let slow = slow.map(|(pod, millis)| SlowPod { pod, millis });
        let slow = slow.sorted_by(|a, b| b.millis.total_cmp(&a.millis));
        slowest.sort_by(|a, b| b.hangs.cmp(&a.hangs).then(b.millis.total_cmp(&a.millis)));
        slowest.truncate(MOST);
        Self {
            ids: times.len(),
            total_millis: times.iter().sum(),
            p99_millis: quantile(times.iter().copied(), 0.99),
            median_millis: median(times),
            slowest,
            slowest_pods: slow.take(MOST).collect(),
            problems,
        }
    }

    pub(crate) fn are_slow(&self) -> bool {
        self.slowest.iter().any(PodCall::is_late)
    }
}

/// Returns true if no call in `timing` was cancelled, and the longest one took at least [`SLOW`] milliseconds.
pub(super) fn is_slow(timing: &Timing) -> bool {
    timing.unanswered.is_none() && millis(timing.longest) >= SLOW
}

pub(super) fn check(statuses: &Statuses, pods: &Pods) -> impl Iterator<Item = Finding> {
    let late = statuses.slowest.iter().filter(|call| call.is_late());
    let (hanging, slow): (Vec<&PodCall>, Vec<_>) = late.partition(|call| call.hangs);
    let problems = statuses.problems.iter();
    let (hung, failing): (Vec<&Problem>, Vec<_>) = problems.partition(|problem| problem.hangs());
    let of_call = |call: &PodCall| (pods.name(&call.pod).to_owned(), call.shown());
    let of_problem = |problem: &Problem| {
        let name = match problem.of.name.is_empty() {
            // `problem.of` has no name in a recording, or if the generator could never read the pod.
            true => pods.name(&problem.pod).to_owned(),
            false => problem.of.shown(),
        };
        (name, problem.shown())
    };
    let oldest = |problems: &[&Problem]| problems.iter().map(|p| p.seconds).max_by(f64::total_cmp);
    let is_new = |problem: &&&Problem| hanging.iter().all(|call| call.pod != problem.pod);
    let new = hung.iter().filter(is_new).map(|new| of_problem(new));
    let slow_pods = Finding::about(
        "status_slow",
        slow.into_iter().map(of_call),
        "calls about {} take longer than a second",
        "See the findings about the host, shims and mounts.",
    );
    let hung_pods = Finding::about(
        "pods_hung",
        hanging.iter().map(|call| of_call(call)).chain(new),
        "calls about {} do not answer",
        "See the findings about shims and mounts. Otherwise read the runtime's log for the id, and kill the pod's shim.",
    ).map(|found| found.lasting(oldest(&hung)));
    let failing_pods = Finding::about(
        "pods_failing",
        failing.iter().map(|problem| of_problem(problem)),
        "{} cannot be read",
        "Read the runtime's log for the id; remove the pod (crictl rmp -f), which the kubelet creates again.",
    ).map(|found| found.lasting(oldest(&failing)));
    [hung_pods, failing_pods, slow_pods].into_iter().flatten()
}

pub(crate) fn check_problems(problems: &[Problem]) -> Vec<Finding> {
    let statuses = Statuses {
        problems: problems.to_vec(),
        ..Statuses::default()
    };
    check(&statuses, &Pods::default()).collect()
}
