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

    fn condition(kind: &str, status: bool, reason: &str, message: &str) -> RuntimeCondition {
        RuntimeCondition {
            r#type: kind.to_owned(),
            status,
            reason: reason.to_owned(),
            message: message.to_owned(),
        }
    }

    fn status(conditions: &[RuntimeCondition]) -> RuntimeStatus {
        RuntimeStatus {
            conditions: conditions.to_vec(),
        }
    }

    fn good() -> RuntimeStatus {
        status(&[
            condition("RuntimeReady", true, "", ""),
            condition("NetworkReady", true, "", ""),
        ])
    }

    fn after(answer: &RuntimeStatus) -> RuntimeState {
        let mut state = RuntimeState::new();
        state.status_answered(T, Some(answer));
        state
    }

    #[test]
    fn before_the_first_status_runtime_and_network_are_unknown() {
        let errors = RuntimeState::new().errors(T, &[]);
        assert_eq!(
            errors.iter().collect::<Vec<_>>(),
            [
                "container runtime status check may not have completed yet",
                "network state unknown"
            ]
        );
        assert_eq!(errors.runtime.len(), 1);
        assert_eq!(errors.network.len(), 1);
    }

    #[test]
    fn answer_without_status_says_nothing() {
        let mut state = RuntimeState::new();
        state.status_answered(T, None);
        assert_eq!(state, RuntimeState::new());
    }

    #[test]
    fn runtime_is_down_thirty_seconds_after_its_last_good_status() {
        let state = after(&good());
        let just_before = T.after(30 * SECOND - Duration::from_nanos(1));
        assert_eq!(state.errors(just_before, &[]), RuntimeErrors::default());
        let errors = state.errors(T.after(30 * SECOND), &[]);
        assert_eq!(errors.runtime, ["container runtime is down"]);
        assert!(errors.network.is_empty());
    }

    #[test]
    fn status_that_is_not_ready_is_not_good() {
        let mut state = after(&good());
        let not_ready = status(&[
            condition("RuntimeReady", false, "ContainerdNotReady", "shim is gone"),
            condition("NetworkReady", true, "", ""),
        ]);
        state.status_answered(T.after(29 * SECOND), Some(&not_ready));
        let not_ready = "container runtime not ready: \
                         RuntimeReady=false reason:ContainerdNotReady message:shim is gone";
        let errors = state.errors(T.after(29 * SECOND), &[]);
        assert_eq!(errors.runtime, [not_ready]);
        let errors = state.errors(T.after(30 * SECOND), &[]);
        assert_eq!(errors.runtime, ["container runtime is down", not_ready]);
        state.status_answered(T.after(31 * SECOND), Some(&good()));
        assert_eq!(
            state.errors(T.after(31 * SECOND), &[]),
            RuntimeErrors::default()
        );
    }

    #[test]
    fn missing_and_false_network_conditions_are_network_errors() {
        let runtime = condition("RuntimeReady", true, "", "");
        let cases = [
            (
                vec![
                    runtime.clone(),
                    condition(
                        "NetworkReady",
                        false,
                        "NetworkPluginNotReady",
                        "Network plugin returns error: cni plugin not initialized",
                    ),
                ],
                "container runtime network not ready: NetworkReady=false \
                 reason:NetworkPluginNotReady \
                 message:Network plugin returns error: cni plugin not initialized",
            ),
            (vec![runtime], "container runtime network not ready: <nil>"),
        ];
        for (conditions, message) in cases {
            let errors = after(&status(&conditions)).errors(T, &[]);
            assert!(errors.runtime.is_empty());
            assert_eq!(errors.network, [message]);
        }
    }

    #[test]
    fn failed_health_checks_are_named_in_their_order() {
        let stale = pleg::NotReady::Stale {
            elapsed: 185 * SECOND,
            threshold: 180 * SECOND,
        }
        .to_string();
        let check = |name, result| HealthCheck { name, result };
        let checks = [
            check("PLEG", Err(stale.as_str())),
            check("volumes", Ok(())),
            check("EventedPLEG", Err("pleg has yet to be successful")),
        ];
        assert_eq!(
            after(&good()).errors(T, &checks).runtime,
            [
                "PLEG is not healthy: pleg was last seen active 3m5s ago; threshold is 3m0s",
                "EventedPLEG is not healthy: pleg has yet to be successful",
            ]
        );
    }

    #[test]
    fn storage_errors_are_kept_apart() {
        let mut state = after(&good());
        state.set_storage_error(Some("csi driver is missing".to_owned()));
        let errors = state.errors(T, &[]);
        assert!(errors.runtime.is_empty() && errors.network.is_empty());
        assert_eq!(errors.storage, ["csi driver is missing"]);
        state.set_storage_error(None);
        assert_eq!(state.errors(T, &[]), RuntimeErrors::default());
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
