//! Full lists as the kubelet's generic PLEG makes them: how long they take, how large they are, at which
//! number of pods they would be too slow, and whether the runtime applies filters.

use std::time::Duration;

use pleg::core::{CallErrorKind, Instant, Kind, PodUid};
use pleg::runtime::clock::Clock;
use pleg::runtime::{Runtime as _, Scope};
use pleg_cri::CriRuntime;
use serde::{Deserialize, Serialize};

use super::failure::Failure;
use super::pods::Pods;
use crate::figures::{bytes, median, millis, span};
use crate::picture::finding::{Finding, Layer, Severity};
use crate::picture::generator::{EXPLAINED_BY_LISTS, LIST_FAILED, LIST_SLOW};

/// How long one list may take.
pub(super) const DEADLINE: Duration = Duration::from_secs(10);
/// How often the lists are made.
const ROUNDS: u32 = 3;
/// The largest answer that is received: CRI-O's limit.
pub(super) const RECEIVED: usize = 80 << 20;
/// The largest answer that a kubelet receives.
const LIMIT: u64 = 16 << 20;
/// A relist that takes longer makes the kubelet late, in milliseconds. It relists every second.
const LATE: f64 = 1000.0;
/// From this on the kubelet is nearly blind.
const VERY_LATE: f64 = 30_000.0;
/// The share of the limit that is a warning.
const LARGE: f64 = 0.8;
/// Fewer pods say nothing about the time per pod.
const ENOUGH: usize = 5;
/// The times of a relist for which the number of pods is estimated.
const MARKS: [u64; 3] = [1, 10, 180];

const SMALLER: &str = "Remove dead containers and sandboxes; find pods with large annotations.";

/// The full lists.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Lists {
    pub(crate) rounds: Vec<Round>,
    /// Of the largest answer.
    pub(crate) sandbox_bytes: u64,
    pub(crate) container_bytes: u64,
    /// The answer for a pod that does not exist has rows of others, and so many bytes.
    pub(crate) unfiltered_bytes: u64,
}

/// A call without work, and both lists, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Round {
    pub(crate) version_millis: Option<f64>,
    pub(crate) sandboxes: ListCall,
    pub(crate) containers: ListCall,
}

/// A list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ListCall {
    pub(crate) millis: f64,
    pub(crate) failure: Option<Failure>,
}

impl ListCall {
    /// How long it took, with the name of the call.
    pub(crate) fn shown(&self, name: &str) -> String {
        let time = span(self.millis);
        match self.timed_out() {
            true => format!("{name}: no answer for {time}"),
            false => format!("{name} {time}"),
        }
    }

    /// Whether it took longer than the deadline.
    fn timed_out(&self) -> bool {
        let timed_out = CallErrorKind::DeadlineExceeded.as_str();
        self.failure.as_ref().is_some_and(|f| f.kind == timed_out)
    }
}

impl Round {
    fn millis(&self) -> f64 {
        self.sandboxes.millis + self.containers.millis
    }

    /// Those that were made.
    pub(crate) fn calls(&self) -> Vec<(&'static str, &ListCall)> {
        let both = [
            ("ListPodSandbox", &self.sandboxes),
            ("ListContainers", &self.containers),
        ];
        let made = both.into_iter().filter(|(_, call)| call.millis > 0.0);
        made.collect()
    }

    /// The first call that failed, and was not just too slow.
    fn failure(&self) -> Option<(&'static str, &Failure)> {
        let calls = self.calls().into_iter();
        let mut failed = calls.filter(|(_, call)| !call.timed_out());
        failed.find_map(|(name, call)| Some((name, call.failure.as_ref()?)))
    }

    fn timed_out(&self) -> bool {
        self.calls().iter().any(|(_, call)| call.timed_out())
    }

    fn is_complete(&self) -> bool {
        self.calls().iter().all(|(_, call)| call.failure.is_none())
    }
}

/// Lists at the begin, in the middle and before the end.
pub(super) async fn collect(runtime: &CriRuntime, clock: Clock, until: Instant) -> Lists {
    let mut lists = Lists::default();
    let begin = clock.now();
    for round in 0..ROUNDS {
        let due = begin.after(until.since(begin) * round / ROUNDS);
        clock.sleep_until(due).await;
        if round > 0 && clock.now() >= until {
            break;
        }
        let round = lists.round(runtime, clock).await;
        let timed_out = round.timed_out();
        lists.rounds.push(round);
        if timed_out && clock.now() >= until {
            return lists;
        }
    }
    let nobody = Scope::Pod(PodUid::from("pleg-doctor-no-such-pod"));
    let (call, size) = list(runtime, clock, Kind::Container, &nobody).await;
    if call.failure.is_none() {
        lists.unfiltered_bytes = size;
    }
    lists
}

impl Lists {
    /// Whether the last lists were answered.
    pub(super) fn succeeded(&self) -> bool {
        let last = self.rounds.last();
        last.is_some_and(|round| round.calls().len() == 2 && round.is_complete())
    }

    async fn round(&mut self, runtime: &CriRuntime, clock: Clock) -> Round {
        let began = clock.now();
        let version = tokio::time::timeout(DEADLINE, runtime.version());
        let answered = matches!(version.await, Ok(Ok(_)));
        let version_millis = answered.then(|| millis(clock.now().since(began)));
        let (sandboxes, size) = list(runtime, clock, Kind::Sandbox, &Scope::Node).await;
        self.sandbox_bytes = self.sandbox_bytes.max(size);
        let (containers, size) = match sandboxes.timed_out() {
            true => (ListCall::default(), 0),
            false => list(runtime, clock, Kind::Container, &Scope::Node).await,
        };
        self.container_bytes = self.container_bytes.max(size);
        Round {
            version_millis,
            sandboxes,
            containers,
        }
    }

    /// How long a relist takes, in milliseconds: both lists, if nothing has changed.
    pub(crate) fn relist(&self) -> Option<f64> {
        let complete = self.rounds.iter().filter(|round| round.is_complete());
        median(complete.map(Round::millis))
    }

    /// At how many pods like these a relist would take so many milliseconds. What does not depend on the
    /// pods is estimated by the time of `Version`.
    fn pods_at(&self, limit: f64, pods: usize) -> Option<f64> {
        let relist = self.relist().filter(|_| pods >= ENOUGH)?;
        let version = median(self.rounds.iter().filter_map(|round| round.version_millis));
        let fixed = 2.0 * version.unwrap_or(0.0);
        let pods = f64::from(u32::try_from(pods).ok()?);
        let each = (relist - fixed).max(0.001 * relist) / pods;
        Some(((limit - fixed) / each).max(0.0))
    }

    /// The times of [`MARKS`], and at how many pods a relist would take them.
    pub(crate) fn marks(&self, pods: usize) -> Vec<(Duration, f64)> {
        let marks = MARKS.map(Duration::from_secs);
        let marks = marks.into_iter();
        marks
            .filter_map(|mark| Some((mark, self.pods_at(millis(mark), pods)?)))
            .collect()
    }

    pub(crate) fn largest(&self) -> u64 {
        self.sandbox_bytes.max(self.container_bytes)
    }

    pub(crate) fn are_slow(&self) -> bool {
        self.rounds.iter().any(|round| round.millis() >= LATE)
    }
}

/// Makes a list, and counts the bytes of its rows.
async fn list(runtime: &CriRuntime, clock: Clock, kind: Kind, scope: &Scope) -> (ListCall, u64) {
    let mut size = 0;
    let began = clock.now();
    let call = async {
        match kind {
            Kind::Sandbox => {
                runtime
                    .encoded_sandboxes(scope, &mut |row| {
                        size += row.len();
                        Ok(())
                    })
                    .await
            }
            Kind::Container => {
                runtime
                    .encoded_containers(scope, &mut |row| {
                        size += row.len();
                        Ok(())
                    })
                    .await
            }
        }
    };
    let failure = match tokio::time::timeout(DEADLINE, call).await {
        Ok(result) => result.err().map(|error| Failure::from(&error)),
        Err(_) => Some(Failure {
            kind: CallErrorKind::DeadlineExceeded.as_str().to_owned(),
            message: format!("no answer within {} s", DEADLINE.as_secs()),
        }),
    };
    let millis = millis(clock.now().since(began));
    let size = u64::try_from(size).unwrap_or(u64::MAX);
    (ListCall { millis, failure }, size)
}

pub(super) fn check(lists: &Lists, pods: &Pods) -> Vec<Finding> {
    let findings = [
        failed(lists),
        slow(lists),
        large(lists),
        unfiltered(lists, pods),
    ];
    findings.into_iter().flatten().collect()
}

/// As bad as the last round.
fn failed(lists: &Lists) -> Option<Finding> {
    let last = lists.rounds.last()?.failure();
    let (name, failure) = last.or_else(|| lists.rounds.iter().find_map(Round::failure))?;
    let severity = match last {
        Some(_) => Severity::Critical,
        None => Severity::Warning,
    };
    let times = lists
        .rounds
        .iter()
        .filter(|round| round.failure().is_some());
    let finding = Finding::new(
        "list_failed",
        Layer::Calls,
        severity,
        format!("{name} fails: the kubelet cannot list its pods"),
        LIST_FAILED,
    )
    .explains(EXPLAINED_BY_LISTS)
    .destroys();
    let finding = finding.because(failure.to_string());
    Some(finding.because(format!(
        "{} of {} attempts failed",
        times.count(),
        lists.rounds.len()
    )))
}

fn slow(lists: &Lists) -> Option<Finding> {
    let relist = lists.relist();
    let all = lists.rounds.iter().map(Round::millis);
    let worst = all.fold(0.0, f64::max);
    let usual = relist.unwrap_or(worst);
    // One slow list of three is no trend.
    if usual < LATE && worst < 3.0 * LATE {
        return None;
    }
    let hangs = lists.rounds.last().is_some_and(Round::timed_out);
    let severity = match usual {
        _ if hangs => Severity::Critical,
        millis if millis >= VERY_LATE => Severity::Critical,
        _ => Severity::Warning,
    };
    let summary = match hangs {
        true => "a full list does not answer: the kubelet's PLEG becomes unhealthy after 3 minutes"
            .to_owned(),
        false => format!(
            "a relist takes {}: the kubelet learns of every change that late",
            span(usual)
        ),
    };
    let mut finding = Finding::new("list_slow", Layer::Calls, severity, summary, LIST_SLOW)
        .explains(EXPLAINED_BY_LISTS)
        .destroys();
    for (n, round) in lists.rounds.iter().enumerate() {
        let calls = round.calls().into_iter();
        let shown: Vec<String> = calls.map(|(name, call)| call.shown(name)).collect();
        finding = finding.because(format!("attempt {}: {}", n + 1, shown.join(", ")));
    }
    Some(finding)
}

fn large(lists: &Lists) -> Option<Finding> {
    let failures = lists.rounds.iter().filter_map(Round::failure);
    let too_large = CallErrorKind::TooLarge.as_str();
    let mut refused = failures.filter(|(_, failure)| failure.kind == too_large);
    if let Some((name, failure)) = refused.next() {
        let summary = format!("the answer of {name} is larger than the runtime may send");
        let finding = Finding::new(
            "list_large",
            Layer::Calls,
            Severity::Critical,
            summary,
            SMALLER,
        )
        .destroys();
        let finding = finding.because(failure.to_string());
        return Some(finding.explains(&["list_failed", "list_slow"]));
    }
    let size = lists.largest();
    #[allow(clippy::cast_precision_loss, reason = "it is shown")]
    let used = size as f64 / LIMIT as f64;
    if used < LARGE {
        return None;
    }
    let severity = match used {
        used if used >= 1.0 => Severity::Critical,
        _ => Severity::Warning,
    };
    let finding = Finding::new(
        "list_large",
        Layer::Calls,
        severity,
        format!(
            "a list has {:.0} % of the size that a kubelet receives",
            used * 100.0
        ),
        SMALLER,
    )
    .destroys();
    let finding = finding.because(format!(
        "ListPodSandbox {}, ListContainers {}, limit {}",
        bytes(lists.sandbox_bytes),
        bytes(lists.container_bytes),
        bytes(LIMIT)
    ));
    Some(finding.explains(&["list_failed", "list_slow"]))
}

fn unfiltered(lists: &Lists, pods: &Pods) -> Option<Finding> {
    if lists.unfiltered_bytes == 0 {
        return None;
    }
    let finding = Finding::new(
        "filters_ignored",
        Layer::Calls,
        Severity::Warning,
        "the runtime ignores the filters of lists: to read one pod, a kubelet reads all",
        "Report it to the runtime's developers; update the runtime.",
    );
    let size = bytes(lists.unfiltered_bytes);
    let all = pods.total();
    Some(
        finding
            .because(format!(
                "the list of a pod that does not exist has {size} ({all} pods exist)"
            ))
            .explains(&["list_slow"]),
    )
}
