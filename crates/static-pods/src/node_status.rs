//! Asks the runtime for its status, for the Ready condition of the node.

use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::{NodeCondition, Pod};
use pleg::Pleg;
use pleg::core::NotReady;
use pleg_cri::CriClient;

use crate::node_condition::{NodeErrors, node_ready};
use crate::runtime_state::{
    HealthCheck, RuntimeErrors, RuntimeState, STATUS_PERIOD, aggregate, sync_loop_pause,
};

/// The status of a node's runtime, and what follows from it.
#[derive(Debug)]
pub struct NodeStatus {
    name: String,
    pleg: Pleg,
    client: CriClient,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    runtime: RuntimeState,
    /// The runtime's name, such as `containerd`.
    name: String,
    condition: Option<NodeCondition>,
    /// The last question was not answered.
    failed: bool,
}

impl NodeStatus {
    /// The status of the node with that name, before the first answer of the runtime.
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

    /// The runtime's name, such as `containerd`; empty before its first answer.
    pub fn runtime(&self) -> String {
        self.state().name.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the first status of the runtime.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call in flight; call it again.
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
    /// Dropping the future ends the watch; the last status is kept.
    pub async fn watch(&self) {
        let clock = self.pleg.clock();
        loop {
            clock.sleep_until(clock.now().after(STATUS_PERIOD)).await;
            self.update().await;
            self.ready();
        }
    }

    /// Asks for the status. Returns whether the runtime has answered. Logs when it fails to, and when it
    /// answers again.
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

    async fn ask(&self) -> Result<(), pleg::core::CallError> {
        if self.runtime().is_empty() {
            let version = self.client.version().await?;
            self.state().name = version.name;
        }
        let answer = self.client.status().await?;
        let now = self.pleg.now();
        let mut state = self.state();
        state.runtime.status_answered(now, answer.status.as_ref());
        Ok(())
    }

    fn errors(&self) -> RuntimeErrors {
        let result = self.pleg.health().ready();
        let reason = result.as_ref().map_err(NotReady::to_string);
        let check = HealthCheck {
            name: "PLEG",
            result: reason.as_ref().map(|_| ()).map_err(String::as_str),
        };
        self.state().runtime.errors(self.pleg.now(), &[check])
    }

    /// Whether the node can run this pod now, or with `None`, whether it can terminate one. Without a
    /// network, only pods on the host network are run, as upstream.
    ///
    /// # Errors
    /// Why not.
    pub fn usable(&self, pod: Option<&Pod>) -> Result<(), String> {
        let is_on_host = |pod: &Pod| {
            pod.spec
                .as_ref()
                .is_some_and(|s| s.host_network == Some(true))
        };
        let needs_network = pod.is_some_and(|pod| !is_on_host(pod));
        let errors = self.errors();
        let network = errors.network.iter().filter(|_| needs_network);
        let all = errors.runtime.iter().chain(network).map(String::as_str);
        aggregate(all).map_or(Ok(()), Err)
    }

    /// The Ready condition of the node, as of now. A change of its status is logged.
    pub fn ready(&self) -> NodeCondition {
        let errors = NodeErrors {
            runtime: self.errors(),
            ..NodeErrors::default()
        };
        let mut state = self.state();
        let now = self.pleg.clock().wall();
        let (condition, event) = node_ready(&errors, state.condition.as_ref(), now);
        if let Some(event) = event {
            let message = condition.message.as_deref().unwrap_or_default();
            tracing::warn!(event = %event, message, "{}", event.message(&self.name));
        }
        state.condition = Some(condition.clone());
        condition
    }

    /// For `/readyz`: whether the node is ready.
    ///
    /// # Errors
    /// Why not.
    pub fn check_ready(&self) -> Result<(), String> {
        let condition = self.ready();
        match condition.status.as_str() {
            "True" => Ok(()),
            _ => Err(condition.message.unwrap_or_default()),
        }
    }

    /// For `/healthz`: whether the generator works. A runtime that does not respond is no reason to
    /// restart the kubelet.
    ///
    /// # Errors
    /// Why not.
    pub fn check_alive(&self) -> Result<(), String> {
        match self.pleg.health().ready() {
            Err(reason @ NotReady::Stalled { .. }) => Err(reason.to_string()),
            _ => Ok(()),
        }
    }
}
