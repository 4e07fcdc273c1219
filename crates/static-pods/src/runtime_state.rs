//! Whether the container runtime can be used: what upstream's `runtimeState` holds, with its words.
//!
//! The sync loop stands still while there are runtime errors. Runtime, network and storage errors
//! together make the node not ready.

use std::collections::BTreeSet;
use std::time::Duration;

use pleg::Instant;
use pleg_cri::v1::{RuntimeCondition, RuntimeStatus};

/// How often upstream asks the runtime for its `Status`.
pub const STATUS_PERIOD: Duration = Duration::from_secs(5);

/// How old the last good `Status` may be.
pub const STATUS_THRESHOLD: Duration = Duration::from_secs(30);

/// What is known of the container runtime, its network and its storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeState {
    last_good_status: Option<Instant>,
    threshold: Duration,
    runtime: Option<String>,
    network: Option<String>,
    storage: Option<String>,
}

/// A named health check and its present result. Upstream's node has one, `PLEG`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthCheck<'a> {
    /// Its name.
    pub name: &'a str,
    /// Why it fails.
    pub result: Result<(), &'a str>,
}

/// All errors, kept apart as upstream keeps them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuntimeErrors {
    /// Errors of the runtime and failed health checks. The sync loop stands still while there are
    /// any.
    pub runtime: Vec<String>,
    /// Errors of the network.
    pub network: Vec<String>,
    /// Errors of the storage.
    pub storage: Vec<String>,
}

impl RuntimeErrors {
    /// All of them, in upstream's order: runtime, network, storage.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let all = [&self.runtime, &self.network, &self.storage];
        all.into_iter().flatten().map(String::as_str)
    }
}

impl Default for RuntimeState {
    fn default() -> Self {
        Self::new()
    }
}

impl RuntimeState {
    /// The state before the first `Status`. The network is not known to be ready.
    #[must_use]
    pub fn new() -> Self {
        Self::with_threshold(STATUS_THRESHOLD)
    }

    /// As [`new`](Self::new), with another greatest age of the last good `Status`.
    #[must_use]
    pub fn with_threshold(threshold: Duration) -> Self {
        Self {
            last_good_status: None,
            threshold,
            runtime: None,
            network: Some("network state unknown".to_owned()),
            storage: None,
        }
    }

    /// A `Status` call returned this at `at`. A call that failed is not recorded: the last good
    /// status grows old.
    ///
    /// A status whose RuntimeReady is not true is not good, and its answer without any status says
    /// nothing.
    pub fn status_answered(&mut self, at: Instant, status: Option<&RuntimeStatus>) {
        let Some(status) = status else { return };
        let not_ready = |what, kind| {
            let found = status.conditions.iter().find(|c| c.r#type == kind);
            let ready = found.is_some_and(|c| c.status);
            (!ready).then(|| format!("container runtime {what}not ready: {}", shown(found)))
        };
        self.network = not_ready("network ", "NetworkReady");
        self.runtime = not_ready("", "RuntimeReady");
        if self.runtime.is_none() {
            self.last_good_status = Some(at);
        }
    }

    /// Sets or clears the error of the storage.
    pub fn set_storage_error(&mut self, error: Option<String>) {
        self.storage = error;
    }

    /// All present errors. The health checks' results are asked for now, because a stored one could
    /// be out of date.
    #[must_use]
    pub fn errors(&self, now: Instant, checks: &[HealthCheck<'_>]) -> RuntimeErrors {
        let mut runtime = Vec::new();
        match self.last_good_status {
            None => {
                runtime
                    .push("container runtime status check may not have completed yet".to_owned());
            }
            Some(at) if now.since(at) >= self.threshold => {
                runtime.push("container runtime is down".to_owned());
            }
            Some(_) => {}
        }
        for HealthCheck { name, result } in checks {
            if let Err(error) = result {
                runtime.push(format!("{name} is not healthy: {error}"));
            }
        }
        runtime.extend(self.runtime.clone());
        RuntimeErrors {
            runtime,
            network: self.network.iter().cloned().collect(),
            storage: self.storage.iter().cloned().collect(),
        }
    }
}

/// A condition as upstream's `RuntimeCondition.String`; Go's `<nil>` where there is none.
fn shown(condition: Option<&RuntimeCondition>) -> String {
    condition.map_or_else(
        || "<nil>".to_owned(),
        |c| {
            format!(
                "{}={} reason:{} message:{}",
                c.r#type, c.status, c.reason, c.message
            )
        },
    )
}

/// Several errors as one message, as upstream's aggregate: one is shown as it is, several different
/// ones as `[a, b]`. The same message is shown once.
#[must_use]
pub fn aggregate<'a>(errors: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let mut seen = BTreeSet::new();
    let different: Vec<_> = errors.into_iter().filter(|e| seen.insert(*e)).collect();
    match different.as_slice() {
        [] => None,
        [one] => Some((*one).to_owned()),
        several => Some(format!("[{}]", several.join(", "))),
    }
}

/// How long the sync loop stands still after so many iterations in a row that found runtime errors: 100 ms, doubling
/// to 5 s.
#[must_use]
pub fn sync_loop_pause(failures: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
    let pause = Duration::from_millis(100).saturating_mul(doubled);
    pause.min(Duration::from_secs(5))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const T: Instant = Instant::from_nanos(1_000_000_000);

    /// The runtime's condition, and that of its network if there is one.
    fn status(is_ready: bool, has_network: bool) -> RuntimeStatus {
        let condition = |kind: &str, status| RuntimeCondition {
            r#type: kind.to_owned(),
            status,
            reason: "Gone".to_owned(),
            message: "shim".to_owned(),
        };
        let network = has_network.then(|| condition("NetworkReady", true));
        let runtime = condition("RuntimeReady", is_ready);
        RuntimeStatus {
            conditions: [runtime].into_iter().chain(network).collect(),
        }
    }

    #[test]
    fn answer_without_status_says_nothing() {
        let mut state = RuntimeState::new();
        state.status_answered(T, None);
        assert_eq!(state, RuntimeState::new());
    }

    #[test]
    fn runtime_is_down_thirty_seconds_after_its_last_good_status() {
        let (good, bad) = (status(true, true), status(false, true));
        let mut state = RuntimeState::new();
        state.status_answered(T, Some(&good));
        let at = |seconds| T.after(SECOND * seconds);
        let just_before = at(30).before(Duration::from_nanos(1));
        assert_eq!(state.errors(just_before, &[]), RuntimeErrors::default());
        let down = "container runtime is down";
        assert_eq!(state.errors(at(30), &[]).runtime, [down]);
        state.status_answered(at(29), Some(&bad));
        let not_ready = "container runtime not ready: RuntimeReady=false reason:Gone message:shim";
        assert_eq!(state.errors(at(29), &[]).runtime, [not_ready]);
        assert_eq!(state.errors(at(30), &[]).runtime, [down, not_ready]);
        state.status_answered(at(31), Some(&good));
        assert_eq!(state.errors(at(31), &[]), RuntimeErrors::default());
    }

    #[test]
    fn errors_are_kept_apart_by_their_source() {
        let mut state = RuntimeState::new();
        state.status_answered(T, Some(&status(true, false)));
        state.set_storage_error(Some("csi driver is missing".to_owned()));
        let check = |name, result| HealthCheck { name, result };
        let (a, b, c) = (Err("a"), Ok(()), Err("c"));
        let checks = [check("A", a), check("B", b), check("C", c)];
        let errors = state.errors(T, &checks);
        let runtime = ["A is not healthy: a", "C is not healthy: c"];
        assert_eq!(errors.runtime, runtime);
        let network = "container runtime network not ready: <nil>";
        assert_eq!(errors.network, [network]);
        assert_eq!(errors.storage, ["csi driver is missing"]);
    }

    #[test]
    fn errors_are_joined_as_upstream_joins_them() {
        let cases: [(&[&str], Option<&str>); 5] = [
            (&[], None),
            (&["a"], Some("a")),
            (&["a", "b"], Some("[a, b]")),
            (&["a", "a"], Some("a")),
            (&["a", "b", "a"], Some("[a, b]")),
        ];
        for (errors, message) in cases {
            assert_eq!(aggregate(errors.iter().copied()).as_deref(), message);
        }
    }

    #[test]
    fn sync_loop_pause_doubles_up_to_five_seconds() {
        let pauses = [1, 2, 3, 4, 5, 6, 7, 99].map(|n| sync_loop_pause(n).as_millis());
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
    }
}
