//! Single calls to the runtime. Each records the end of its write in the run, and its error says what it was
//! to do.

use k8s_openapi::api::core::v1::Pod;
use pleg::Id;
use pleg::core::{CallError, CallErrorKind};
use pleg_cri::v1;

use super::{PerformError, Performer, Prepared, Started, container_of};
use crate::actions::{Actions, ResizeContainer, StartContainer, StopContainer};
use crate::cri_config::linux_resources;
use crate::worker::Run;

impl Performer {
    pub(super) async fn create_sandbox<S>(
        &self,
        run: &Run<S>,
        pod: &Pod,
        attempt: u32,
        config: v1::PodSandboxConfig,
    ) -> Result<(), PerformError> {
        let spec = pod.spec.as_ref();
        let handler = spec.and_then(|s| s.runtime_class_name.as_deref());
        let created = self
            .client
            .run_pod_sandbox(config, handler.unwrap_or_default())
            .await;
        let ended = created.ended;
        let id = run
            .written(created)
            .map_err(failed(|| format!("start of sandbox {attempt}")))?;
        self.names.created(&run.uid, ended);
        tracing::info!(pod = %run.uid, %id, attempt, "started a sandbox");
        Ok(())
    }

    /// Creates and starts a container. The error comes with upstream's reason for its waiting.
    pub(super) async fn create_and_start<S>(
        &self,
        run: &Run<S>,
        pod: Option<&Pod>,
        actions: &Actions,
        start: &StartContainer,
        prepared: &mut Prepared,
    ) -> Result<Option<Started>, (PerformError, &'static str)> {
        let (Some(sandbox), Some(config), Some(sandbox_config)) = (
            &actions.sandbox,
            prepared.containers.remove(&start.name),
            &prepared.sandbox,
        ) else {
            return Ok(None);
        };
        let create = self
            .client
            .create_container(sandbox, config, sandbox_config.clone());
        let id = run.written(create.await).map_err(|error| {
            let container = pod.and_then(|pod| container_of(pod, &start.name));
            if let Some(image) = container.and_then(|c| c.image.as_deref()) {
                self.images.forget_image(image);
            }
            let what = || {
                let StartContainer { name, attempt, .. } = start;
                format!("create of container {name}, attempt {attempt}")
            };
            (failed(what)(error), "CreateContainerError")
        })?;
        self.start(run, pod, start, &id).await
    }

    pub(super) async fn start<S>(
        &self,
        run: &Run<S>,
        pod: Option<&Pod>,
        start: &StartContainer,
        id: &Id,
    ) -> Result<Option<Started>, (PerformError, &'static str)> {
        let StartContainer { name, attempt, .. } = start;
        let started = self.client.start_container(id).await;
        run.written(started).map_err(|error| {
            let what = || format!("start of container {name} ({id})");
            (failed(what)(error), "RunContainerError")
        })?;
        tracing::info!(pod = %run.uid, container = name, %id, attempt, "started a container");
        let hook = self.post_start(run, pod, name, id).await;
        hook.map_err(|error| (error, "PostStartHookError"))?;
        Ok(Some(Started {
            name: name.clone(),
            id: id.clone(),
            attempt: *attempt,
        }))
    }

    pub(super) async fn stop<S>(
        &self,
        run: &Run<S>,
        pod: Option<&Pod>,
        stop: &StopContainer,
    ) -> Result<(), PerformError> {
        let StopContainer {
            id,
            name,
            reason,
            grace,
        } = stop;
        tracing::info!(pod = %run.uid, container = name, %id, reason = reason.as_str(),
            "stopping a container");
        let grace = self.pre_stop(run, pod, name, id, *grace).await;
        let stopped = self.client.stop_container(id, grace).await;
        unless_gone(run.written(stopped))
            .map_err(failed(|| format!("stop of container {name} ({id})")))
    }

    pub(super) async fn resize<S>(
        &self,
        run: &Run<S>,
        pod: Option<&Pod>,
        resize: &ResizeContainer,
    ) -> Result<(), PerformError> {
        let ResizeContainer { id, name, to, .. } = resize;
        let spec = pod.and_then(|pod| Some((pod.spec.as_ref()?, container_of(pod, name)?)));
        let Some((spec, container)) = spec else {
            return Ok(());
        };
        tracing::info!(pod = %run.uid, container = name, %id, cpu_shares = to.cpu_shares,
            cpu_quota = to.cpu_quota, memory_limit = to.memory_limit, "changing the resources");
        let resources = container.resources.as_ref();
        let request = v1::UpdateContainerResourcesRequest {
            container_id: id.to_string(),
            linux: Some(linux_resources(spec, resources, self.node.memory)),
            ..v1::UpdateContainerResourcesRequest::default()
        };
        let updated = self.client.update_container_resources(request).await;
        run.written(updated).map_err(failed(|| {
            format!("change of the resources of {name} ({id})")
        }))
    }

    pub(super) async fn stop_sandbox<S>(&self, run: &Run<S>, id: &Id) -> Result<(), PerformError> {
        let stopped = self.client.stop_pod_sandbox(id).await;
        unless_gone(run.written(stopped)).map_err(failed(|| format!("stop of sandbox {id}")))
    }

    pub(super) async fn remove_container<S>(
        &self,
        run: &Run<S>,
        id: &Id,
    ) -> Result<(), PerformError> {
        let removed = self.client.remove_container(id).await;
        unless_gone(run.written(removed))
            .map_err(failed(|| format!("removal of container {id}")))?;
        tracing::info!(pod = %run.uid, %id, "removed a container");
        Ok(self.remove_log(run, id).await?)
    }
}

/// What is gone is stopped, and removed. Some versions of CRI-O and of containerd answer NotFound, others succeed.
pub(super) fn unless_gone(result: Result<(), CallError>) -> Result<(), CallError> {
    result.or_else(|error| match error.kind {
        CallErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })
}

pub(super) fn failed(what: impl FnOnce() -> String) -> impl FnOnce(CallError) -> PerformError {
    move |error| PerformError::Call {
        what: what(),
        error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_not_found_counts_as_gone() {
        let error = |kind| Err(CallError::new("RemoveContainer", kind, ""));
        assert!(unless_gone(error(CallErrorKind::NotFound)).is_ok());
        assert!(unless_gone(error(CallErrorKind::Failed)).is_err());
        assert!(unless_gone(Ok(())).is_ok());
    }
}
