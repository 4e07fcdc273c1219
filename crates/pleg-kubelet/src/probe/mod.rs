//! Startup, liveness and readiness probes of containers.
//!
//! The rules are those of upstream (`Probe` in the API reference; the page "Liveness, Readiness, and Startup Probes").

mod check;
mod prober;
mod tls;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use pleg::{Id, Instant};

use crate::spec::{containers_in, spec_of};

pub use check::Exec;
pub(crate) use check::{Check, CheckError, check_of, hook_of, within};
pub use prober::Prober;

/// The purpose of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ProbeKind {
    /// Checks if the container has started. The container's other probes run only after it has started.
    Startup,
    /// Checks if the container must be restarted.
    Liveness,
    /// Checks if the container accepts requests.
    Readiness,
}

/// The results of a pod's probes for its running containers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProbeResults {
    /// The names of running containers that have started: their startup probe has succeeded or does not exist.
    pub started: BTreeSet<String>,
    /// The names of started containers that are ready: their readiness probe succeeds or does not exist.
    pub ready: BTreeSet<String>,
    /// The running containers that must be stopped, because their startup or liveness probe has failed.
    pub failed: BTreeMap<Id, ProbeKind>,
}

/// A probe of a container: when the container is checked, and how many equal outcomes in a row make the probe's result.
/// The period and the thresholds are not zero.
#[derive(Clone, Debug, PartialEq)]
struct Probe {
    container: String,
    kind: ProbeKind,
    initial_delay: Duration,
    period: Duration,
    timeout: Duration,
    success_threshold: u32,
    failure_threshold: u32,
    check: Check,
}

/// The probes of a pod's containers. Fields that are not set have the API's defaults. Probes that [`Check`] cannot
/// perform are left out; [`unsupported`](fn@crate::unsupported) finds them.
fn probes_of(pod: &Pod) -> Vec<Probe> {
    let given = |value: Option<i32>, default| {
        let value = value.and_then(|value| u32::try_from(value).ok());
        value.filter(|value| *value > 0).unwrap_or(default)
    };
    let seconds = move |value, default| Duration::from_secs(given(value, default).into());
    let probes = containers_in(spec_of(pod)).flat_map(|container| {
        let kinds = [
            (ProbeKind::Startup, &container.startup_probe),
            (ProbeKind::Liveness, &container.liveness_probe),
            (ProbeKind::Readiness, &container.readiness_probe),
        ];
        kinds.into_iter().filter_map(move |(kind, probe)| {
            let probe = probe.as_ref()?;
            Some(Probe {
                container: container.name.clone(),
                kind,
                initial_delay: seconds(probe.initial_delay_seconds, 0),
                period: seconds(probe.period_seconds, 10),
                timeout: seconds(probe.timeout_seconds, 1),
                success_threshold: given(probe.success_threshold, 1),
                failure_threshold: given(probe.failure_threshold, 3),
                check: check_of(container, probe).ok()?,
            })
        })
    });
    probes.collect()
}

/// The state of a probe for one container: the result, and the outcomes that count towards the next result.
struct ProbeState {
    id: Id,
    first_check: Instant,
    /// The result, once there were enough equal outcomes.
    result: Option<bool>,
    /// The last outcome, which occurred `in_a_row` times. A check that could not be performed has no outcome.
    last: bool,
    in_a_row: u32,
}

impl ProbeState {
    /// The state for a container that has run for the time `age`.
    fn new(probe: &Probe, id: &Id, age: Duration, now: Instant) -> Self {
        Self {
            id: id.clone(),
            first_check: now.after(probe.initial_delay.saturating_sub(age)),
            result: None,
            last: false,
            in_a_row: 0,
        }
    }

    /// Returns false during the initial delay, after a startup probe has succeeded, and if the container must stop.
    fn is_due(&self, probe: &Probe, now: Instant) -> bool {
        let is_over = match probe.kind {
            ProbeKind::Startup => self.result.is_some(),
            // As upstream, makes no more checks until a new container runs, because this container will be stopped.
            ProbeKind::Liveness => self.result == Some(false),
            ProbeKind::Readiness => false,
        };
        now >= self.first_check && !is_over
    }

    /// Records the outcome of a check. Returns true if the outcome changed the probe's result.
    fn checked(&mut self, probe: &Probe, succeeds: bool) -> bool {
        if self.last != succeeds {
            (self.last, self.in_a_row) = (succeeds, 0);
        }
        self.in_a_row = self.in_a_row.saturating_add(1);
        let enough = match succeeds {
            true => probe.success_threshold,
            false => probe.failure_threshold,
        };
        if self.in_a_row < enough {
            return false;
        }
        let before = self.result.replace(succeeds);
        match probe.kind {
            ProbeKind::Startup => true,
            // A container is alive, and not ready, until a result shows otherwise.
            kind => before.unwrap_or(kind == ProbeKind::Liveness) != succeeds,
        }
    }
}

#[cfg(test)]
mod tests {
    use ProbeKind::{Liveness, Readiness, Startup};

    use super::*;
    use crate::notation::at;

    /// A row: the kind, its success and failure thresholds, the outcomes of checks (s: success, f: failure, upper case:
    /// `checked` returns true), the probe's last result, and true if no further check is due.
    #[test]
    fn probe_result_changes_at_its_thresholds() {
        for (kind, (success_threshold, failure_threshold), outcomes, result, ends) in [
            (Liveness, (1, 3), "", None, false),
            (Liveness, (1, 3), "fsff", Some(true), false),
            (Liveness, (1, 3), "fsffF", Some(false), true),
            (Readiness, (2, 1), "", None, false),
            (Readiness, (2, 1), "f", Some(false), false),
            (Readiness, (2, 1), "sS", Some(true), false),
            (Readiness, (2, 1), "sSF", Some(false), false),
            (Startup, (1, 3), "ff", None, false),
            (Startup, (1, 3), "S", Some(true), true),
            (Startup, (1, 3), "ffF", Some(false), true),
        ] {
            let probe = Probe {
                container: "c".to_owned(),
                kind,
                success_threshold,
                failure_threshold,
                initial_delay: Duration::from_secs(5),
                period: Duration::from_secs(10),
                timeout: Duration::from_secs(1),
                check: Check::Exec(Vec::new()),
            };
            let mut state = ProbeState::new(&probe, &"a".into(), Duration::from_secs(2), at(0));
            for outcome in outcomes.chars() {
                let changed = state.checked(&probe, outcome.eq_ignore_ascii_case(&'s'));
                assert_eq!(changed, outcome.is_uppercase(), "{outcome} of {outcomes}");
            }
            assert_eq!(state.result, result, "{outcomes}");
            let due = [2, 3].map(|seconds| state.is_due(&probe, at(seconds)));
            assert_eq!(due, [false, !ends], "{outcomes}: after the initial delay");
        }
    }
}
