//! The result of one probe of one container, from the outcomes of its checks. All functions take the time as input.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use pleg::{Id, Instant};

use super::{Check, ProbeKind, check_of};
use crate::spec::{containers_in, spec_of};

/// A probe of a container: when it is checked, and how many equal outcomes in a row make its result. The period and the
/// thresholds are not zero.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Probe {
    pub(super) container: String,
    pub(super) kind: ProbeKind,
    pub(super) initial_delay: Duration,
    pub(super) period: Duration,
    pub(super) timeout: Duration,
    pub(super) success_threshold: u32,
    pub(super) failure_threshold: u32,
    pub(super) check: Check,
}

/// The probes of a pod's containers. Fields that are not set have the API's defaults. Probes that [`Check`] cannot
/// perform are left out; [`unsupported`](fn@crate::unsupported) finds them.
pub(super) fn probes_of(pod: &Pod) -> Vec<Arc<Probe>> {
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
            Some(Arc::new(Probe {
                container: container.name.clone(),
                kind,
                initial_delay: seconds(probe.initial_delay_seconds, 0),
                period: seconds(probe.period_seconds, 10),
                timeout: seconds(probe.timeout_seconds, 1),
                success_threshold: given(probe.success_threshold, 1),
                failure_threshold: given(probe.failure_threshold, 3),
                check: check_of(container, probe).ok()?,
            }))
        })
    });
    probes.collect()
}

/// The state of a probe: its present container, the result, and the outcomes that count towards the next result.
#[derive(Clone, Debug)]
pub(super) struct ProbeState {
    pub(super) probe: Arc<Probe>,
    container: Option<Observed>,
}

#[derive(Clone, Debug)]
struct Observed {
    id: Id,
    first_check: Instant,
    /// The result, once there were enough equal outcomes.
    result: Option<bool>,
    /// The last outcome, which occurred `in_a_row` times. A check that could not be performed has no outcome.
    last: bool,
    in_a_row: u32,
}

impl ProbeState {
    pub(super) const fn new(probe: Arc<Probe>) -> Self {
        let container = None;
        Self { probe, container }
    }

    /// Records which container runs and for how long it has run, or that none runs. Resets the probe and returns true if
    /// that is another container than before.
    pub(super) fn observe(&mut self, running: Option<(&Id, Duration)>, now: Instant) -> bool {
        let before = self.container.as_ref().map(|container| &container.id);
        if before == running.map(|(id, _)| id) {
            return false;
        }
        self.container = running.map(|(id, age)| Observed {
            id: id.clone(),
            first_check: now.after(self.probe.initial_delay.saturating_sub(age)),
            result: None,
            last: false,
            in_a_row: 0,
        });
        true
    }

    /// The container to check now. `None` in the initial delay, after a startup probe succeeded, and if it must stop.
    pub(super) fn due(&self, now: Instant) -> Option<&Id> {
        let container = self.container.as_ref()?;
        let is_over = match self.probe.kind {
            ProbeKind::Startup => container.result.is_some(),
            // As upstream, makes no more checks until a new container runs, because this container will be stopped.
            ProbeKind::Liveness => container.result == Some(false),
            ProbeKind::Readiness => false,
        };
        (now >= container.first_check && !is_over).then_some(&container.id)
    }

    /// Records the outcome of a check of the container `id`. Returns true if the outcome changed the probe's result.
    pub(super) fn checked(&mut self, id: &Id, succeeds: bool) -> bool {
        let Some(container) = self.container.as_mut().filter(|c| c.id == *id) else {
            return false;
        };
        if container.last != succeeds {
            (container.last, container.in_a_row) = (succeeds, 0);
        }
        container.in_a_row = container.in_a_row.saturating_add(1);
        let enough = match succeeds {
            true => self.probe.success_threshold,
            false => self.probe.failure_threshold,
        };
        if container.in_a_row < enough {
            return false;
        }
        let before = container.result.replace(succeeds);
        match self.probe.kind {
            ProbeKind::Startup => true,
            // A container is alive, and not ready, until a result shows otherwise.
            kind => before.unwrap_or(kind == ProbeKind::Liveness) != succeeds,
        }
    }

    /// The result for the container `id`. `None` if it has none yet.
    pub(super) fn result(&self, id: &Id) -> Option<bool> {
        let container = self.container.as_ref();
        container.filter(|c| c.id == *id)?.result
    }
}

#[cfg(test)]
mod tests {
    use ProbeKind::{Liveness, Readiness, Startup};

    use super::*;
    use crate::notation::at;

    /// A probe of a running container, with its success and failure thresholds; the default ones are 1 and 3.
    fn running(kind: ProbeKind, (success, failure): (u32, u32)) -> (ProbeState, Id) {
        let mut state = ProbeState::new(Arc::new(Probe {
            container: "c".to_owned(),
            kind,
            success_threshold: success,
            failure_threshold: failure,
            initial_delay: Duration::from_secs(5),
            period: Duration::from_secs(10),
            timeout: Duration::from_secs(1),
            check: Check::Exec(Vec::new()),
        }));
        let id = Id::from("a");
        state.observe(Some((&id, Duration::ZERO)), at(0));
        (state, id)
    }

    /// A row: the kind, its thresholds, the outcomes of checks (s: success, f: failure, upper case: `checked` returns
    /// true), the probe's last result, and true if no further check is due.
    #[test]
    fn probe_result_changes_at_its_thresholds() {
        for (kind, thresholds, outcomes, result, ends) in [
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
            let (mut state, id) = running(kind, thresholds);
            for outcome in outcomes.chars() {
                let changed = state.checked(&id, outcome.eq_ignore_ascii_case(&'s'));
                assert_eq!(changed, outcome.is_uppercase(), "{outcome} of {outcomes}");
            }
            assert_eq!(state.result(&id), result, "{outcomes}");
            assert_eq!(state.due(at(100)).is_none(), ends, "{outcomes}");
        }
    }

    #[test]
    fn late_outcome_of_an_earlier_container_does_not_count() {
        let (mut state, id) = running(Liveness, (1, 1));
        assert!(state.checked(&id, false));
        let next = Id::from("b");
        assert!(state.observe(Some((&next, Duration::ZERO)), at(10)));
        assert!(!state.checked(&id, false) && state.result(&next).is_none());
        assert_eq!(state.due(at(14)), None, "the initial delay");
    }
}
