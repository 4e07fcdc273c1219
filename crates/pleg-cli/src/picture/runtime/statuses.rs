//! How long the calls about single pods take, and which of them hang or fail.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pleg::PodProblem;
use pleg::core::{Instant, PodView};
use serde::{Deserialize, Serialize};

use super::failure::Failure;
use super::pods::{Pod, Pods, pod_name};
use crate::figures::{median, millis, quantile, span};
use crate::meter::{Key, Subject, Timing};
use crate::picture::finding::{Finding, Layer, Severity};
use crate::text::short;

/// A call that is not answered for longer hangs.
const HANGS: Duration = Duration::from_secs(2);
/// A status that takes longer is slow, in milliseconds. It usually takes 1 to 10.
const SLOW: f64 = 1000.0;
/// How many calls and pods are recorded by name.
const MOST: usize = 100;
/// How many lines of evidence a finding has.
const SHOWN: usize = 10;

/// The calls about single pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Statuses {
    /// How many ids were read.
    pub(crate) ids: usize,
    /// Of the longest status call of each id.
    pub(crate) median_millis: Option<f64>,
    pub(crate) p99_millis: Option<f64>,
    /// All statuses, one after the other.
    pub(crate) total_millis: f64,
    /// The slowest calls, those first that hang.
    pub(crate) slowest: Vec<PodCall>,
    /// The pods whose statuses take longest in all.
    pub(crate) slowest_pods: Vec<SlowPod>,
    /// Pods that cannot be read.
    pub(crate) problems: Vec<Problem>,
}

/// The longest call of one kind about an id or a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodCall {
    pub(crate) operation: String,
    /// The pod's uid, if it is known.
    pub(crate) pod: String,
    /// Empty for a list of the pod.
    pub(crate) id: String,
    pub(crate) millis: f64,
    /// It was not answered in this time.
    pub(crate) hangs: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SlowPod {
    pub(crate) pod: String,
    pub(crate) millis: f64,
}

/// A pod whose calls fail or hang at the end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Problem {
    pub(crate) pod: String,
    /// As `PodProblemKind::as_str`.
    pub(crate) kind: String,
    pub(crate) operation: String,
    pub(crate) id: String,
    pub(crate) container: String,
    pub(crate) seconds: f64,
    pub(crate) failure: Option<Failure>,
}

impl Problem {
    pub(super) fn new(problem: &PodProblem, now: Instant) -> Self {
        let id = problem.id.as_ref();
        Self {
            pod: problem.pod.uid.to_string(),
            kind: problem.kind.as_str().to_owned(),
            operation: problem.operation.to_owned(),
            id: id.map(ToString::to_string).unwrap_or_default(),
            container: problem.container.to_string(),
            seconds: now.since(problem.since).as_secs_f64().round(),
            failure: problem.error.as_deref().map(Failure::from),
        }
    }

    fn hangs(&self) -> bool {
        self.kind == pleg::PodProblemKind::Hung.as_str()
    }

    fn shown(&self, pods: &Pods) -> String {
        let mut text = format!("{}: {}", pods.name(&self.pod), self.operation);
        if !self.container.is_empty() {
            text = format!("{text} of {}", self.container);
        }
        if !self.id.is_empty() {
            text = format!("{text} ({})", short(&self.id));
        }
        match &self.failure {
            _ if self.hangs() => format!("{text}: no answer for {} s", self.seconds),
            Some(failure) => format!("{text}: {failure}"),
            None => format!("{text}: listed, but its status is NotFound"),
        }
    }
}

/// The problems of pods that a generator names, with their names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Problems {
    statuses: Statuses,
    pods: Pods,
}

impl Problems {
    pub(crate) fn new(problems: &[PodProblem], now: Instant) -> Self {
        let mut all = Self::default();
        for problem in problems {
            let name = &problem.pod;
            all.add(
                Problem::new(problem, now),
                pod_name(&name.namespace, &name.name, &name.uid),
            );
        }
        all
    }

    pub(crate) fn add(&mut self, problem: Problem, name: String) {
        self.pods.pods.push(Pod {
            uid: problem.pod.clone(),
            name,
            ..Pod::default()
        });
        self.statuses.problems.push(problem);
    }

    pub(crate) fn check(&self) -> Vec<Finding> {
        check(&self.statuses, &self.pods)
    }
}

impl Statuses {
    pub(super) fn new(
        calls: &BTreeMap<Key, Timing>,
        views: &[PodView],
        problems: Vec<Problem>,
    ) -> Self {
        let pods = pods_by_id(views);
        let mut all: Vec<PodCall> = Vec::new();
        let mut of_pods: BTreeMap<&str, f64> = BTreeMap::new();
        for ((operation, subject), timing) in calls {
            let (pod, id) = match subject {
                Subject::Node | Subject::Runtime => continue,
                Subject::Pod(uid) => (uid.as_str(), ""),
                Subject::Id(id) => (
                    pods.get(id.as_str()).copied().unwrap_or_default(),
                    id.as_str(),
                ),
            };
            let longest = millis(timing.longest);
            if !id.is_empty() {
                *of_pods.entry(pod).or_default() += longest;
            }
            all.push(PodCall {
                operation: (*operation).to_owned(),
                pod: pod.to_owned(),
                id: id.to_owned(),
                millis: longest,
                hangs: timing.unanswered.is_some_and(|time| time >= HANGS),
            });
        }
        let statuses = || {
            all.iter()
                .filter(|call| !call.id.is_empty())
                .map(|call| call.millis)
        };
        let mut slowest_pods: Vec<SlowPod> = of_pods
            .into_iter()
            .map(|(pod, millis)| SlowPod {
                pod: pod.to_owned(),
                millis,
            })
            .collect();
        slowest_pods.sort_by(|a, b| b.millis.total_cmp(&a.millis));
        slowest_pods.truncate(MOST);
        let (ids, total) = (statuses().count(), statuses().sum());
        let (middle, p99) = (median(statuses()), quantile(statuses(), 0.99));
        all.sort_by(|a, b| b.hangs.cmp(&a.hangs).then(b.millis.total_cmp(&a.millis)));
        all.truncate(MOST);
        Self {
            ids,
            median_millis: middle,
            p99_millis: p99,
            total_millis: total,
            slowest: all,
            slowest_pods,
            problems,
        }
    }

    fn hanging(&self) -> impl Iterator<Item = &PodCall> {
        self.slowest.iter().filter(|call| call.hangs)
    }

    fn slow(&self) -> impl Iterator<Item = &PodCall> {
        let slow = self.slowest.iter().filter(|call| !call.hangs);
        slow.filter(|call| call.millis >= SLOW)
    }

    pub(crate) fn are_slow(&self) -> bool {
        self.hanging().chain(self.slow()).next().is_some()
    }
}

/// Whether a call was answered, but late.
pub(super) fn is_slow(timing: &Timing) -> bool {
    timing.unanswered.is_none() && millis(timing.longest) >= SLOW
}

/// The uid of the pod of each id.
fn pods_by_id(views: &[PodView]) -> BTreeMap<&str, &str> {
    let ids = views.iter().flat_map(|view| {
        let sandboxes = view.status.sandboxes.iter().map(|s| &s.id);
        let containers = view.status.containers.iter().map(|c| &c.id);
        let uid = view.status.uid.as_str();
        sandboxes
            .chain(containers)
            .map(move |id| (id.as_str(), uid))
    });
    ids.collect()
}

impl PodCall {
    fn shown(&self, pods: &Pods) -> String {
        let pod = name_of(&self.pod, pods);
        let of = match self.id.as_str() {
            "" => String::new(),
            id => format!(" ({})", short(id)),
        };
        let time = span(self.millis);
        match self.hangs {
            true => format!("{pod}: {}{of}: no answer for {time}", self.operation),
            false => format!("{pod}: {}{of}: {time}", self.operation),
        }
    }
}

/// The name of a pod of which perhaps nothing exists any more.
fn name_of<'a>(uid: &'a str, pods: &'a Pods) -> &'a str {
    match uid {
        "" => "a pod that is gone",
        uid => pods.name(uid),
    }
}

pub(super) fn check(statuses: &Statuses, pods: &Pods) -> Vec<Finding> {
    let findings = [
        hung(statuses, pods),
        failing(statuses, pods),
        slow(statuses, pods),
    ];
    findings.into_iter().flatten().collect()
}

fn hung(statuses: &Statuses, pods: &Pods) -> Option<Finding> {
    let mut lines: Vec<Line<'_>> = statuses.hanging().map(Line::Call).collect();
    let known: BTreeSet<&str> = lines.iter().map(Line::pod).collect();
    let problems = statuses.problems.iter().filter(|problem| problem.hangs());
    let problems = problems.filter(|problem| !known.contains(&*problem.pod));
    lines.extend(problems.map(Line::Problem));
    about_pods(&lines, pods, |names| {
        Finding::new(
            "pods_hung",
            Layer::Pod,
            Severity::Critical,
            format!("calls about {names} do not answer"),
            "See the findings about shims and mounts. Otherwise read the runtime's log for the id, and kill the pod's \
             shim.",
        )
        .lasting(longest(statuses, true))
        .destroys()
    })
}

fn failing(statuses: &Statuses, pods: &Pods) -> Option<Finding> {
    let failing = statuses.problems.iter().filter(|problem| !problem.hangs());
    let lines: Vec<Line<'_>> = failing.map(Line::Problem).collect();
    about_pods(&lines, pods, |names| {
        Finding::new(
            "pods_failing",
            Layer::Pod,
            Severity::Warning,
            format!("{names} cannot be read"),
            "Read the runtime's log for the id; remove the pod (crictl rmp -f), which the kubelet creates again.",
        )
        .lasting(longest(statuses, false))
        .destroys()
    })
}

fn slow(statuses: &Statuses, pods: &Pods) -> Option<Finding> {
    let lines: Vec<Line<'_>> = statuses.slow().map(Line::Call).collect();
    about_pods(&lines, pods, |names| {
        Finding::new(
            "status_slow",
            Layer::Pod,
            Severity::Warning,
            format!("calls about {names} take longer than a second"),
            "See the findings about the host, shims and mounts.",
        )
    })
}

/// How long the oldest of the problems has lasted.
fn longest(statuses: &Statuses, hangs: bool) -> Option<f64> {
    let problems = statuses.problems.iter().filter(|p| p.hangs() == hangs);
    problems.map(|p| p.seconds).max_by(f64::total_cmp)
}

/// A line of evidence about a pod.
enum Line<'a> {
    Call(&'a PodCall),
    Problem(&'a Problem),
}

impl<'a> Line<'a> {
    fn pod(&self) -> &'a str {
        match self {
            Self::Call(call) => &call.pod,
            Self::Problem(problem) => &problem.pod,
        }
    }

    fn shown(&self, pods: &Pods) -> String {
        match self {
            Self::Call(call) => call.shown(pods),
            Self::Problem(problem) => problem.shown(pods),
        }
    }
}

/// A finding about pods, with a line for each of the first calls. It names the first pod, and counts the others.
fn about_pods(
    lines: &[Line<'_>],
    pods: &Pods,
    finding: impl FnOnce(String) -> Finding,
) -> Option<Finding> {
    let first = name_of(lines.first()?.pod(), pods);
    let all: BTreeSet<&str> = lines.iter().map(Line::pod).collect();
    let names = match all.len() {
        1 => first.to_owned(),
        pods => format!("{first} and {} more", pods - 1),
    };
    let mut finding = finding(names);
    let shown = lines.iter().take(SHOWN);
    finding.evidence.extend(shown.map(|line| line.shown(pods)));
    match lines.len().checked_sub(SHOWN) {
        Some(more @ 1..) => Some(finding.because(format!("and {more} more"))),
        _ => Some(finding),
    }
}
