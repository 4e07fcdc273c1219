//! Single calls to the runtime, and the hooks of containers (`postStart`, `preStop`). The instant at which a call ends
//! is recorded in the [`Run`], so that the worker's next run waits for a newer view. An error names the failed action.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Lifecycle, LifecycleHandler};
use pleg::Id;
use pleg::core::{CallError, CallErrorKind};
use pleg_cri::Written;
use pleg_cri::v1::{PodSandboxConfig, UpdateContainerResourcesRequest};

use super::prepare::Prepared;
use super::{PerformError, Performing, Result};
use crate::actions::{MIN_GRACE, ResizeContainer, StartContainer, StopContainer, StopReason};
use crate::gc::Removal;
use crate::probe::{Check, CheckError, hook_of, within};
use crate::resources::linux_resources;
use crate::spec::{container_of, grace_period, spec_of};

/// The time limit of a `postStart` hook. Upstream has none.
const POST_START_WITHIN: Duration = Duration::from_secs(24 * 3600);

impl<S> Performing<'_, S> {
    pub(super) async fn create_sandbox(&self, attempt: u32, config: PodSandboxConfig) -> Result {
        // The runtime handler is empty, because pods with a runtime class are refused.
        let created = self.performer.client.run_pod_sandbox(config, "").await;
        let (uid, ended) = (&self.run.uid, created.ended);
        let id = self.written(created, format!("start of sandbox {attempt}"))?;
        self.performer.names.created(uid, ended);
        tracing::info!(pod = %uid, %id, attempt, "started a sandbox");
        Ok(())
    }

    /// Starts a container, and creates it first if it does not exist. Returns `None` if the configuration of a new
    /// container could not be prepared. An error comes with the waiting reason that upstream shows.
    pub(super) async fn start(
        &self,
        start: &StartContainer,
        sandbox: Option<&Id>,
        prepared: &mut Prepared,
    ) -> Result<Option<StartContainer>, (&'static str, PerformError)> {
        let StartContainer { name, attempt, .. } = start;
        let client = &self.performer.client;
        let config = prepared.containers.remove(name).zip(sandbox);
        let id = match (&start.existing, config.zip(prepared.sandbox.clone())) {
            (Some(id), _) => id.clone(),
            (None, Some(((config, sandbox), of_sandbox))) => {
                let created = client.create_container(sandbox, config, of_sandbox).await;
                let what = format!("create of container {name}, attempt {attempt}");
                let created = self.written(created, what);
                created.map_err(|error| ("CreateContainerError", error))?
            }
            (None, None) => return Ok(None),
        };
        let started = client.start_container(&id).await;
        let started = self.written(started, format!("start of container {name} ({id})"));
        started.map_err(|error| ("RunContainerError", error))?;
        tracing::info!(pod = %self.run.uid, container = name, %id, attempt, "started a container");
        let hook = self.post_start(name, &id).await;
        hook.map_err(|error| ("PostStartHookError", error))?;
        let mut started = start.clone();
        started.existing = Some(id);
        Ok(Some(started))
    }

    pub(super) async fn stop(&self, stop: &StopContainer) -> Result {
        let (id, name, reason) = (&stop.id, &stop.name, stop.reason.as_str());
        tracing::info!(pod = %self.run.uid, container = name, %id, reason, "stopping a container");
        let grace = self.pre_stop(name, id, stop.grace).await;
        let stopped = self.performer.client.stop_container(id, grace).await;
        self.gone(stopped, format!("stop of container {name} ({id})"))
    }

    pub(super) async fn resize(&self, resize: &ResizeContainer) -> Result {
        let ResizeContainer { id, name, to, .. } = resize;
        let container = self.pod.and_then(|pod| container_of(pod, name));
        let (Some(pod), Some(container)) = (self.pod, container) else {
            return Ok(());
        };
        tracing::info!(pod = %self.run.uid, container = name, %id, cpu_shares = to.cpu_shares,
            cpu_quota = to.cpu_quota, memory_limit = to.memory_limit, "changing the resources");
        let memory = self.performer.node.memory;
        let request = UpdateContainerResourcesRequest {
            container_id: id.to_string(),
            linux: Some(linux_resources(spec_of(pod), container, memory)),
            ..UpdateContainerResourcesRequest::default()
        };
        let client = &self.performer.client;
        let updated = client.update_container_resources(request).await;
        self.written(updated, format!("change of the resources of {name} ({id})"))
    }

    pub(super) async fn stop_sandbox(&self, id: &Id) -> Result {
        let stopped = self.performer.client.stop_pod_sandbox(id).await;
        self.gone(stopped, format!("stop of sandbox {id}"))
    }

    pub(super) async fn remove_container(&self, id: &Id) -> Result {
        let removed = self.performer.client.remove_container(id).await;
        self.gone(removed, format!("removal of container {id}"))?;
        tracing::info!(pod = %self.run.uid, %id, "removed a container");
        Ok(self.remove_log(id).await?)
    }

    /// Removes garbage: an ended container, or an ended sandbox, which is stopped first.
    pub(super) async fn remove(&self, removal: &Removal) -> Result {
        let id = match removal {
            Removal::Container(id) => return self.remove_container(id).await,
            Removal::Sandbox(id) => id,
        };
        self.stop_sandbox(id).await?;
        let removed = self.performer.client.remove_pod_sandbox(id).await;
        self.gone(removed, format!("removal of sandbox {id}"))?;
        tracing::info!(pod = %self.run.uid, %id, "removed a sandbox");
        Ok(())
    }

    /// Records the end of a call, and returns its result. `what` names the action in an error.
    fn written<T>(&self, written: Written<T>, what: String) -> Result<T> {
        let result = self.run.written(written);
        result.map_err(|error| PerformError::of(what, error))
    }

    fn gone(&self, mut written: Written<()>, what: String) -> Result {
        written.result = unless_gone(written.result);
        self.written(written, what)
    }

    /// Runs the `postStart` hook of a container that was started. If the hook fails, stops the container, as upstream
    /// does. If the pod is deleted while the hook runs, cancels the hook.
    async fn post_start(&self, name: &str, id: &Id) -> Result {
        let (Some(pod), Some(hook)) = (self.pod, self.hook(name, |l| &l.post_start)) else {
            return Ok(());
        };
        let result = tokio::select! {
            result = self.run_hook(&hook, id, POST_START_WITHIN) => result,
            () = self.run.deleted() => Ok(()),
        };
        let Err(error) = result else { return Ok(()) };
        let stop = StopContainer {
            id: id.clone(),
            name: name.to_owned(),
            grace: grace_period(pod).max(MIN_GRACE),
            reason: StopReason::HookFailed,
        };
        if let Err(error) = self.stop(&stop).await {
            let uid = &self.run.uid;
            tracing::warn!(pod = %uid, container = name, %error, "not stopped after its postStart hook failed");
        }
        let what = format!("postStart hook of container {name}");
        Err(PerformError::of(what, error))
    }

    /// Runs the `preStop` hook of a container before it is stopped, and returns the grace period that is left after the
    /// hook: at least [`MIN_GRACE`]. A failed hook is logged, and the time that it took is used up as well.
    async fn pre_stop(&self, name: &str, id: &Id, grace: Duration) -> Duration {
        let Some(hook) = self.hook(name, |l| &l.pre_stop) else {
            return grace;
        };
        let since = self.run.now();
        let result = within(grace, self.run_hook(&hook, id, grace)).await;
        if let Err(error) = result {
            tracing::warn!(pod = %self.run.uid, container = name, %id, %error, "a preStop hook failed");
        }
        let used = self.run.now().since(since);
        grace.saturating_sub(used).max(MIN_GRACE)
    }

    /// Returns the hook that `of` selects in the lifecycle of the container `name`.
    fn hook(&self, name: &str, of: fn(&Lifecycle) -> &Option<LifecycleHandler>) -> Option<Check> {
        let container = container_of(self.pod?, name)?;
        let handler = of(container.lifecycle.as_ref()?).as_ref()?;
        hook_of(container, handler).ok()
    }

    async fn run_hook(&self, hook: &Check, id: &Id, within: Duration) -> Result<(), CheckError> {
        let ips = self.pod.map(|pod| self.performer.pod_ips(self.run, pod));
        let address = ips.iter().flatten().next();
        let address = address.map(ToString::to_string).unwrap_or_default();
        // The hook's future is boxed because few pods have hooks: unboxed, it would enlarge the future of every run.
        let check = hook.perform(&self.performer.client, id, &address, within);
        match Box::pin(check).await {
            // As in upstream's kubelet, a hook succeeds with any HTTP status.
            Err(CheckError::Status(_)) => Ok(()),
            result => result,
        }
    }
}

/// Ignores NotFound: a missing container or sandbox counts as stopped and removed. Some runtimes return success then.
fn unless_gone(result: Result<(), CallError>) -> Result<(), CallError> {
    result.or_else(|error| match error.kind {
        CallErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_not_found_is_ignored_when_stopping_or_removing() {
        let error = |kind| Err(CallError::new("RemoveContainer", kind, ""));
        assert!(unless_gone(error(CallErrorKind::NotFound)).is_ok());
        assert!(unless_gone(error(CallErrorKind::Failed)).is_err());
        assert!(unless_gone(Ok(())).is_ok());
    }
}
