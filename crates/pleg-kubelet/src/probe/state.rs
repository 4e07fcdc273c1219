//! The result of one probe of one container, from the outcomes of its checks. All functions take the time as input.

use std::sync::Arc;
use std::time::Duration;

use pleg::{Id, Instant};

use super::{Check, ProbeKind};

/// A probe of a container: when it is checked, and how many equal outcomes in a row make its result. The period and the
/// thresholds are not zero.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Probe {
    pub(super) container: String,
    pub(super) kind: ProbeKind,
    /// The time from the start of the container to the first check.
    pub(super) initial_delay: Duration,
    pub(super) period: Duration,
    pub(super) timeout: Duration,
    pub(super) success_threshold: u32,
    pub(super) failure_threshold: u32,
    pub(super) check: Check,
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
    succeeds: bool,
    /// The last outcome, which occurred `in_a_row` times. A check that could not be performed has no outcome.
    last: Option<bool>,
    in_a_row: u32,
    /// True if the probe has failed and the container will be stopped. No further checks are made.
    on_hold: bool,
}

impl ProbeState {
    /// The state of a probe before its container runs.
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
            succeeds: self.probe.kind == ProbeKind::Liveness,
            last: None,
            in_a_row: 0,
            on_hold: false,
        });
        true
    }

    /// The container to check now. `None` in the initial delay, after a startup probe succeeded, and if it must stop.
    pub(super) fn due(&self, now: Instant) -> Option<&Id> {
        let container = self.container.as_ref()?;
        let done = self.probe.kind == ProbeKind::Startup && container.succeeds;
        let began = now >= container.first_check;
        (began && !done && !container.on_hold).then_some(&container.id)
    }

    /// Records the outcome of a check of the container `id`. Returns true if the outcome changed the probe's result.
    pub(super) fn checked(&mut self, id: &Id, succeeds: bool) -> bool {
        let Some(container) = self.container.as_mut().filter(|c| c.id == *id) else {
            return false;
        };
        if container.last.replace(succeeds) != Some(succeeds) {
            container.in_a_row = 0;
        }
        container.in_a_row = container.in_a_row.saturating_add(1);
        let enough = match succeeds {
            true => self.probe.success_threshold,
            false => self.probe.failure_threshold,
        };
        if container.in_a_row < enough {
            return false;
        }
        if !succeeds && self.probe.kind != ProbeKind::Readiness {
            // As upstream, makes no more checks until a new container runs, because this container will be stopped.
            container.on_hold = true;
        }
        let changed = container.succeeds != succeeds
            // A startup probe has `succeeds == false` from the start: the failure that stops its container is a change.
            || container.on_hold && self.probe.kind == ProbeKind::Startup;
        container.succeeds = succeeds;
        changed
    }

    /// The container for which the probe succeeds now. A liveness probe succeeds until it has failed. Probes of the other
    /// kinds fail until they have succeeded.
    pub(super) fn succeeds_for(&self) -> Option<&Id> {
        let container = self.container.as_ref()?;
        container.succeeds.then_some(&container.id)
    }

    /// The container that must be stopped because its startup or liveness probe failed.
    pub(super) fn failed_container(&self) -> Option<&Id> {
        let container = self.container.as_ref()?;
        container.on_hold.then_some(&container.id)
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
    /// true), the probe's last result, and true if the container must be stopped.
    #[test]
    fn probe_result_changes_at_its_thresholds() {
        for (kind, thresholds, outcomes, succeeds, has_failed) in [
            (Liveness, (1, 3), "", true, false),
            (Liveness, (1, 3), "fsff", true, false),
            (Liveness, (1, 3), "fsffF", false, true),
            (Readiness, (2, 1), "", false, false),
            (Readiness, (2, 1), "sS", true, false),
            (Readiness, (2, 1), "sSF", false, false),
            (Startup, (1, 3), "S", true, false),
            (Startup, (1, 3), "ffF", false, true),
        ] {
            let (mut state, id) = running(kind, thresholds);
            for outcome in outcomes.chars() {
                let changed = state.checked(&id, outcome.eq_ignore_ascii_case(&'s'));
                assert_eq!(changed, outcome.is_uppercase(), "{outcome} of {outcomes}");
            }
            let expected = succeeds.then_some(&id);
            assert_eq!(state.succeeds_for(), expected, "{outcomes}");
            let failed = state.failed_container();
            assert_eq!(failed, has_failed.then_some(&id), "{outcomes}");
            // No check is due for a container that must be stopped, nor after the first success of a startup probe.
            let ends = has_failed || (kind == Startup && succeeds);
            assert_eq!(state.due(at(100)).is_none(), ends, "{outcomes}");
        }
    }

    #[test]
    fn late_outcome_of_an_earlier_container_does_not_count() {
        let (mut state, id) = running(Liveness, (1, 1));
        assert!(state.checked(&id, false));
        let next = Id::from("b");
        assert!(state.observe(Some((&next, Duration::ZERO)), at(10)));
        assert!(!state.checked(&id, false) && state.succeeds_for() == Some(&next));
        assert_eq!(state.due(at(14)), None, "the initial delay");
    }
}
