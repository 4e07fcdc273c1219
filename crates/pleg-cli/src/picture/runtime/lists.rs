//! Full lists like those of a generic PLEG: time and size, how many pods would make lists too slow, ignored filters.

use super::*;

pub(super) const DEADLINE: Duration = Duration::from_secs(10);
const ROUNDS: u32 = 3;
/// The largest answer that `pleg doctor` accepts: the largest that CRI-O sends.
pub(super) const RECEIVED: usize = 80 << 20;
/// The largest answer that a kubelet accepts.
const LIMIT: u64 = 16 << 20;
/// A kubelet relists every second. If a relist takes at least this many milliseconds, it learns of changes late.
const LATE: f64 = 1000.0;
/// A relist of at least this duration makes a kubelet learn of most changes much too late.
const VERY_LATE: f64 = 30_000.0;
const LARGE: f64 = 0.8;
/// With fewer pods than this, the time per pod cannot be estimated.
const ENOUGH: usize = 5;
/// Durations of a relist in seconds. For each, the report estimates how many pods make a relist that slow.
const MARKS: [u64; 3] = [1, 10, 180];

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Lists {
    pub(crate) rounds: Vec<Round>,
    /// The sizes of the largest answers.
    pub(crate) sandbox_bytes: u64,
    pub(crate) container_bytes: u64,
    /// The size of other pods' rows in the list of a pod that does not exist. Not 0 if the runtime ignores the filter.
    pub(crate) unfiltered_bytes: u64,
}

/// One round: `Version`, which needs no work in the runtime, and then both lists, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Round {
    pub(crate) version_millis: Option<f64>,
    pub(crate) sandboxes: ListCall,
    pub(crate) containers: ListCall,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Constructor)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ListCall {
    pub(crate) millis: f64,
    pub(crate) failure: Option<Failure>,
}

impl ListCall {
    pub(crate) fn shown(&self, name: &str) -> String {
        let time = span(self.millis);
        match self.timed_out() {
            true => format!("{name}: no answer for {time}"),
            false => format!("{name} {time}"),
        }
    }

    fn timed_out(&self) -> bool {
        let timed_out = CallErrorKind::DeadlineExceeded.as_str();
        self.failure.as_ref().is_some_and(|f| f.kind == timed_out)
    }
}

impl Round {
    fn millis(&self) -> f64 {
        self.sandboxes.millis + self.containers.millis
    }

    /// The calls that were made.
    pub(crate) fn calls(&self) -> impl Iterator<Item = (&'static str, &ListCall)> {
        let names = ["ListPodSandbox", "ListContainers"].into_iter();
        let both = names.zip([&self.sandboxes, &self.containers]);
        both.filter(|(_, call)| call.millis > 0.0)
    }

    /// The first call that failed with an error other than a timeout.
    fn failure(&self) -> Option<(&'static str, &Failure)> {
        let mut failed = self.calls().filter(|(_, call)| !call.timed_out());
        failed.find_map(|(name, call)| Some((name, call.failure.as_ref()?)))
    }

    fn timed_out(&self) -> bool {
        self.calls().any(|(_, call)| call.timed_out())
    }

    fn is_complete(&self) -> bool {
        self.calls().all(|(_, call)| call.failure.is_none())
    }
}

/// Lists the node at the start, and after one third and two thirds of the time. Then lists a pod that does not exist.
pub(super) async fn collect(runtime: &CriRuntime, until: Instant) -> Lists {
    let (mut lists, clock) = (Lists::default(), runtime.clock());
    let begin = clock.now();
    for round in 0..ROUNDS {
        let due = begin.after(until.since(begin) * round / ROUNDS);
        clock.sleep_until(due).await;
        if round > 0 && clock.now() >= until {
            break;
        }
        if lists.round(runtime).await && clock.now() >= until {
            return lists;
        }
    }
    let nobody = Scope::Pod(PodUid::from("pleg-doctor-no-such-pod"));
    let (call, size) = list(runtime, Kind::Container, &nobody).await;
    if call.failure.is_none() {
        lists.unfiltered_bytes = size;
    }
    lists
}

/// Makes a list call. Returns its duration, its error if it failed, and the size of its rows.
async fn list(runtime: &CriRuntime, kind: Kind, scope: &Scope) -> (ListCall, u64) {
    let (clock, mut size) = (runtime.clock(), 0);
    let began = clock.now();
    let mut count = |row: &[u8]| {
        size += row.len() as u64;
        Ok(())
    };
    let result = match kind {
        Kind::Sandbox => runtime.encoded_sandboxes(scope, &mut count).await,
        Kind::Container => runtime.encoded_containers(scope, &mut count).await,
    };
    let millis = millis(clock.now().since(began));
    let failure = result.err().as_ref().map(Failure::from);
    (ListCall::new(millis, failure), size)
}

impl Lists {
    /// Makes the calls of one round. Returns true if a list timed out.
    async fn round(&mut self, runtime: &CriRuntime) -> bool {
        let mut round = Round::default();
        let began = runtime.clock().now();
        if runtime.version().await.is_ok() {
            round.version_millis = Some(millis(runtime.clock().now().since(began)));
        }
        let (call, size) = list(runtime, Kind::Sandbox, &Scope::Node).await;
        self.sandbox_bytes = self.sandbox_bytes.max(size);
        round.sandboxes = call;
        if !round.sandboxes.timed_out() {
            let (call, size) = list(runtime, Kind::Container, &Scope::Node).await;
            self.container_bytes = self.container_bytes.max(size);
            round.containers = call;
        }
        let timed_out = round.timed_out();
        self.rounds.push(round);
        timed_out
    }

    pub(super) fn succeeded(&self) -> bool {
        let last = self.rounds.last();
        last.is_some_and(|round| round.calls().count() == 2 && round.is_complete())
    }

    /// The median, over the complete rounds, of the time of both lists together, in milliseconds.
    pub(crate) fn relist(&self) -> Option<f64> {
        let complete = self.rounds.iter().filter(|round| round.is_complete());
        median(complete.map(Round::millis))
    }

    /// For each of [`MARKS`], the pods with which a relist takes that long (without pods: like two `Version` calls).
    pub(crate) fn marks(&self, pods: usize) -> Vec<(Duration, f64)> {
        let Some(relist) = self.relist().filter(|_| pods >= ENOUGH) else {
            return Vec::new();
        };
        let version = median(self.rounds.iter().filter_map(|round| round.version_millis));
        let fixed = 2.0 * version.unwrap_or(0.0);
        let each = (relist - fixed).max(0.001 * relist) / pods as f64;
        let pods_at = |mark| ((millis(mark) - fixed) / each).max(0.0);
        let marks = MARKS.map(Duration::from_secs);
        marks.map(|mark| (mark, pods_at(mark))).into()
    }

    pub(crate) fn are_slow(&self) -> bool {
        self.rounds.iter().any(|round| round.millis() >= LATE)
    }
}

pub(super) fn check(lists: &Lists, pods: &Pods) -> impl Iterator<Item = Finding> {
    let unfiltered = (lists.unfiltered_bytes > 0).then(|| {
        let summary =
            "the runtime ignores the filters of lists: to read one pod, a kubelet reads all pods";
        let next = "Report it to the runtime's developers; update the runtime.";
        let (size, all) = (bytes(lists.unfiltered_bytes), pods.pods.len());
        let why = format!("the list of a pod that does not exist has {size} ({all} pods exist)");
        Finding::new("filters_ignored", summary, next).because(why)
    });
    let all = [failed(lists), slow(lists), large(lists), unfiltered];
    all.into_iter().flatten()
}

/// The finding about list calls that failed, except by a timeout. Critical if the last round had such a failure.
fn failed(lists: &Lists) -> Option<Finding> {
    let last = lists.rounds.last()?.failure();
    let mut failures = lists.rounds.iter().filter_map(Round::failure);
    let (times, all) = (failures.clone().count(), lists.rounds.len());
    let (name, failure) = last.or_else(|| failures.next())?;
    let summary = format!("{name} fails: the kubelet cannot list its pods");
    let found = Finding::new("list_failed", summary, next_step("list_failed"));
    let found = found.because(failure.to_string());
    let found = found.because(format!("{times} of {all} attempts failed"));
    Some(match last {
        Some(_) => found,
        None => found.severity(Severity::Warning),
    })
}

fn slow(lists: &Lists) -> Option<Finding> {
    let worst = lists.rounds.iter().map(Round::millis).fold(0.0, f64::max);
    let usual = lists.relist().unwrap_or(worst);
    // Ignore one slow round of three, as the median stays short, unless it takes at least three times `LATE`.
    if usual < LATE && worst < 3.0 * LATE {
        return None;
    }
    let hangs = lists.rounds.last().is_some_and(Round::timed_out);
    let hung = "a full list gets no answer: the kubelet's PLEG becomes unhealthy after 3 minutes";
    let time = span(usual);
    let summary = match hangs {
        true => hung.to_owned(),
        false => format!("a relist takes {time}: the kubelet learns of every change that late"),
    };
    let mut found = Finding::new("list_slow", summary, next_step("list_slow"));
    if hangs || usual >= VERY_LATE {
        found.severity = Severity::Critical;
    }
    for (n, round) in (1..).zip(&lists.rounds) {
        let mut calls = round.calls().map(|(name, call)| call.shown(name));
        found = found.because(format!("attempt {n}: {}", calls.join(", ")));
    }
    Some(found)
}

fn large(lists: &Lists) -> Option<Finding> {
    let next = "Remove dead containers and sandboxes; find pods with large annotations.";
    let found = |summary: String| Finding::new("list_large", summary, next);
    let too_large = CallErrorKind::TooLarge.as_str();
    let mut failures = lists.rounds.iter().filter_map(Round::failure);
    if let Some((name, failure)) = failures.find(|(_, failure)| failure.kind == too_large) {
        let summary = format!("the answer of {name} is larger than the runtime may send");
        return Some(found(summary).because(failure.to_string()));
    }
    let (sandboxes, containers) = (lists.sandbox_bytes, lists.container_bytes);
    let used = sandboxes.max(containers) as f64 / LIMIT as f64;
    (used >= LARGE).then_some(())?;
    let percent = used * 100.0;
    let [s, c, limit] = [sandboxes, containers, LIMIT].map(bytes);
    let summary = format!("a list has {percent:.0} % of the size that a kubelet accepts");
    let sizes = format!("ListPodSandbox {s}, ListContainers {c}, limit {limit}");
    let found = found(summary).because(sizes);
    Some(match used {
        1.0.. => found,
        _ => found.severity(Severity::Warning),
    })
}
