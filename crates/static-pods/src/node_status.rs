//! The status of the runtime, and the node's Ready condition, which is derived from that status and the PLEG's health
//! with the rules and messages of upstream's `runtimeState` and `ReadyCondition`.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{NodeCondition, Pod};
use pleg::core::CallError;
use pleg::{Instant, Pleg, WallTime};
use pleg_cri::CriClient;
use pleg_cri::v1::{RuntimeCondition, RuntimeStatus};
use pleg_kubelet::api_time;

/// The period of the kubelet's `Status` calls to the runtime, as in upstream's kubelet.
pub const STATUS_PERIOD: Duration = Duration::from_secs(5);

/// The runtime counts as down once its last `Status` answer that reported it as ready is this old.
const STATUS_THRESHOLD: Duration = Duration::from_secs(30);

/// The status of a node's runtime, and the node's Ready condition.
#[derive(Debug)]
pub struct NodeStatus {
    name: String,
    pleg: Pleg,
    client: CriClient,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The runtime's name, such as `containerd`.
    name: String,
    /// True if the last `Status` call failed.
    failed: bool,
    /// The instant at which the runtime last reported that it was ready.
    last_good_status: Option<Instant>,
    /// The reason why the runtime is not ready, and the reason why the runtime's network is not ready.
    not_ready: [Option<String>; 2],
    condition: Option<NodeCondition>,
}

impl State {
    /// Records the runtime's answer to a `Status` call that ended at `at`. It is not called after a failed call, so
    /// the last good status gets older.
    fn answered(&mut self, at: Instant, status: &RuntimeStatus) {
        self.not_ready =
            [("", "RuntimeReady"), ("network ", "NetworkReady")].map(|(what, kind)| {
                let found = status.conditions.iter().find(|c| c.r#type == kind);
                let is_ready = found.is_some_and(|c| c.status);
                (!is_ready).then(|| format!("container runtime {what}not ready: {}", shown(found)))
            });
        if self.not_ready[0].is_none() {
            self.last_good_status = Some(at);
        }
    }

    /// Two lists: the errors of the runtime and the PLEG, which pause the sync loop, and the errors of the network.
    fn errors(&self, now: Instant, pleg: Option<String>) -> [Vec<String>; 2] {
        let age = match self.last_good_status {
            None => Some("container runtime status check may not have completed yet"),
            Some(at) if now.since(at) >= STATUS_THRESHOLD => Some("container runtime is down"),
            Some(_) => None,
        };
        let pleg = pleg.map(|error| format!("PLEG is not healthy: {error}"));
        let [runtime, network] = self.not_ready.clone();
        let is_unknown = self.last_good_status.is_none() && runtime.is_none();
        let network = network.or(is_unknown.then(|| "network state unknown".to_owned()));
        let runtime = [age.map(str::to_owned), pleg, runtime].into_iter();
        [runtime.flatten().collect(), network.into_iter().collect()]
    }

    /// The Ready condition, and true if its status changed. Only a change of the status changes the transition time.
    fn ready(&mut self, errors: Option<String>, now: WallTime) -> (NodeCondition, bool) {
        let (status, reason) = match errors {
            None => ("True", "KubeletReady"),
            Some(_) => ("False", "KubeletNotReady"),
        };
        let message = errors.unwrap_or_else(|| "kubelet is posting ready status".to_owned());
        let now = Some(api_time(now));
        let before = self.condition.as_ref();
        let unchanged = before.filter(|before| before.status == status);
        let has_changed = self.condition.is_some() && unchanged.is_none();
        let condition = NodeCondition {
            type_: "Ready".to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message),
            last_heartbeat_time: now.clone(),
            last_transition_time: unchanged
                .map_or(now, |unchanged| unchanged.last_transition_time.clone()),
        };
        self.condition = Some(condition.clone());
        (condition, has_changed)
    }
}

/// Formats a condition as upstream's `RuntimeCondition.String` does; a missing condition is Go's `<nil>`.
fn shown(condition: Option<&RuntimeCondition>) -> String {
    let shown = |c: &RuntimeCondition| {
        let (kind, reason) = (&c.r#type, &c.reason);
        format!("{kind}={} reason:{reason} message:{}", c.status, c.message)
    };
    condition.map_or_else(|| "<nil>".to_owned(), shown)
}

/// Joins errors to one message, as upstream's `Aggregate`: `a`, or `[a, b]` without repeated messages.
fn aggregate(errors: impl IntoIterator<Item = String>) -> Option<String> {
    let mut seen = BTreeSet::new();
    let mut different: Vec<_> = errors.into_iter().collect();
    different.retain(|error| seen.insert(error.clone()));
    match different.len() {
        0 | 1 => different.pop(),
        _ => Some(format!("[{}]", different.join(", "))),
    }
}

/// The pause of the sync loop after `failures` iterations in a row with errors of the runtime: 100 ms, doubling to 5 s.
#[must_use]
pub fn sync_loop_pause(failures: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
    let pause = Duration::from_millis(100).saturating_mul(doubled);
    pause.min(Duration::from_secs(5))
}

impl NodeStatus {
    /// The status of the node `name`, before the runtime has answered a `Status` call.
    pub fn new(name: impl Into<String>, pleg: Pleg, client: CriClient) -> Self {
        Self {
            name: name.into(),
            pleg,
            client,
            state: Mutex::default(),
        }
    }

    /// The name of the node.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The runtime's name, such as `containerd`. Empty before the runtime has answered for the first time.
    pub fn runtime(&self) -> String {
        self.state().name.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the runtime has answered a `Status` call for the first time.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call in progress: call `wait_for_runtime` again.
    pub async fn wait_for_runtime(&self) {
        let (clock, mut failures) = (self.pleg.clock(), 0);
        while !self.update().await {
            failures += 1;
            let pause = sync_loop_pause(failures);
            clock.sleep_until(clock.now().after(pause)).await;
        }
    }

    /// Asks the runtime for its status every [`STATUS_PERIOD`]. Never returns.
    ///
    /// # Cancel safety
    /// Dropping the future ends the calls. The last status stays.
    pub async fn watch(&self) {
        let clock = self.pleg.clock();
        loop {
            clock.sleep_until(clock.now().after(STATUS_PERIOD)).await;
            self.update().await;
            self.ready();
        }
    }

    /// Asks the runtime for its status. Returns true if the runtime has answered. Logs the first failed call, and the
    /// first answer after failed calls.
    async fn update(&self) -> bool {
        let result = self.ask().await;
        let failed = result.is_err();
        let before = std::mem::replace(&mut self.state().failed, failed);
        match result {
            Err(error) if !before => {
                tracing::warn!(%error, "the runtime does not report its status: is it running?");
            }
            Ok(()) if before => tracing::info!("the runtime reports its status again"),
            _ => {}
        }
        !failed
    }

    async fn ask(&self) -> Result<(), CallError> {
        if self.runtime().is_empty() {
            let version = self.client.version().await?;
            self.state().name = version.name;
        }
        // Ignores an answer without a status.
        if let Some(status) = self.client.status().await?.status {
            self.state().answered(self.pleg.now(), &status);
        }
        Ok(())
    }

    fn errors(&self) -> [Vec<String>; 2] {
        let pleg = self.pleg.health().ready().err();
        let pleg = pleg.map(|reason| reason.to_string());
        self.state().errors(self.pleg.now(), pleg)
    }

    /// Checks that the node can run this pod now or, if `pod` is `None`, that the node can terminate a pod now. As in
    /// upstream's kubelet, a node whose network is not ready runs only pods on the host network.
    ///
    /// # Errors
    /// The reason why the node cannot run or terminate the pod.
    pub fn usable(&self, pod: Option<&Pod>) -> Result<(), String> {
        let on_host = |pod: &Pod| pod.spec.as_ref()?.host_network.filter(|on_host| *on_host);
        let needs_network = pod.is_some_and(|pod| on_host(pod).is_none());
        let [runtime, network] = self.errors();
        let network = network.into_iter().filter(|_| needs_network);
        aggregate(runtime.into_iter().chain(network)).map_or(Ok(()), Err)
    }

    /// The Ready condition of the node as of now. Logs a change of the condition's status.
    pub fn ready(&self) -> NodeCondition {
        let errors = aggregate(self.errors().into_iter().flatten());
        let event = match errors {
            None => "NodeReady",
            Some(_) => "NodeNotReady",
        };
        let now = self.pleg.clock().wall();
        let (condition, has_changed) = self.state().ready(errors, now);
        if has_changed {
            let (node, message) = (&self.name, condition.message.as_deref());
            tracing::warn!(event, message, "Node {node} status is now: {event}");
        }
        condition
    }
}

#[cfg(test)]
mod tests {
    use pleg::core::NotReady;

    use super::*;

    const BEGIN: Instant = Instant::from_nanos(1_000_000_000);
    /// 2026-07-01T10:00:00Z
    const WALL: WallTime = WallTime::from_nanos(1_782_900_000_000_000_000);

    /// The node's errors for the faults in `wrong`, 29 s after the last good `Status` answer; if `silent`, 30 s (down).
    fn errors(state: &mut State, wrong: &str) -> Option<String> {
        let is = |word: &str| wrong.split(' ').any(|w| w == word);
        let condition = |kind: &str, status| RuntimeCondition {
            r#type: kind.to_owned(),
            status,
            reason: "Gone".to_owned(),
            message: "shim".to_owned(),
        };
        for (runtime, network) in [(true, true), (!is("runtime"), !is("network"))] {
            let mut conditions = vec![condition("RuntimeReady", runtime)];
            conditions.extend((!is("bare")).then(|| condition("NetworkReady", network)));
            if !is("unasked") {
                state.answered(BEGIN, &RuntimeStatus { conditions });
            }
        }
        let stale = |nanos| NotReady::Stale {
            elapsed: Duration::from_nanos(nanos),
            threshold: Duration::from_secs(180),
        };
        let pleg = is("stale").then(|| stale(185_000_000_000));
        let pleg = pleg.or(is("precise").then(|| stale(185_123_456_789)));
        let pleg = pleg.or(is("unlisted").then_some(NotReady::NeverListed));
        let now = BEGIN.after(Duration::from_secs(29 + u64::from(is("silent"))));
        let errors = state.errors(now, pleg.map(|error| error.to_string()));
        aggregate(errors.into_iter().flatten())
    }

    /// A row of the table: what is wrong, and the whole message of the condition.
    #[test]
    fn ready_condition_messages_match_upstream() {
        let table = "
            unasked | [container runtime status check may not have completed yet, network state unknown]
            silent | container runtime is down
            stale | PLEG is not healthy: pleg was last seen active 3m5s ago; threshold is 3m0s
            precise | PLEG is not healthy: pleg was last seen active 3m5.123456789s ago; threshold is 3m0s
            unlisted | PLEG is not healthy: pleg has yet to be successful
            runtime | container runtime not ready: RuntimeReady=false reason:Gone message:shim
            network | container runtime network not ready: NetworkReady=false reason:Gone message:shim
            bare | container runtime network not ready: <nil>
            silent runtime bare | [container runtime is down, container runtime not ready: RuntimeReady=false reason:Gone message:shim, container runtime network not ready: <nil>]
        ";
        for row in table.trim().lines() {
            let (wrong, message) = row.trim().split_once(" | ").unwrap();
            let mut state = State::default();
            let errors = errors(&mut state, wrong);
            let (condition, _) = state.ready(errors, WALL);
            assert_eq!(condition.message.as_deref(), Some(message));
            assert_eq!(condition.reason.as_deref(), Some("KubeletNotReady"));
        }
    }

    #[test]
    fn transition_time_changes_with_status_but_heartbeat_with_each_report() {
        let mut state = State::default();
        // Rows, 10 s apart: the fault, if any; the status, transition time and heartbeat time; if the status changed.
        for (step, (wrong, expected, changes)) in (0..).zip([
            ("", "True 10:00:00 10:00:00", false),
            ("", "True 10:00:00 10:00:10", false),
            ("silent", "False 10:00:20 10:00:20", true),
            ("network", "False 10:00:20 10:00:30", false),
            ("", "True 10:00:40 10:00:40", true),
        ]) {
            let errors = errors(&mut state, wrong);
            let now = WALL.after(Duration::from_secs(10 * step));
            let (condition, has_changed) = state.ready(errors, now);
            if wrong.is_empty() {
                let words = [condition.reason, condition.message].map(Option::unwrap);
                assert_eq!(words, ["KubeletReady", "kubelet is posting ready status"]);
            }
            let times = [
                condition.last_transition_time,
                condition.last_heartbeat_time,
            ];
            let times = times.map(|time| time.unwrap().0.to_string());
            let [transition, heartbeat] =
                times.each_ref().map(|time| &time["2026-07-01T".len()..19]);
            let shown = format!("{} {transition} {heartbeat}", condition.status);
            assert_eq!((&*shown, has_changed), (expected, changes), "step {step}");
        }
    }

    #[test]
    fn aggregate_of_errors_has_repeated_message_once() {
        let errors = ["a", "b", "a"].map(str::to_owned);
        assert_eq!(aggregate(errors).as_deref(), Some("[a, b]"));
    }

    #[test]
    fn sync_loop_pause_doubles_per_failure_up_to_five_seconds() {
        let pauses = [1, 2, 3, 4, 5, 6, 7, 99].map(|n| sync_loop_pause(n).as_millis());
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
    }
}
