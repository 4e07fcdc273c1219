//! Hooks of containers: `postStart` and `preStop`.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Lifecycle, LifecycleHandler, Pod};
use pleg::Id;

use super::{PerformError, Performer, container_of};
use crate::actions::MIN_GRACE;
use crate::from_pod::{Hook, hook_of};
use crate::probe::CheckError;
use crate::spec::PodSpec;
use crate::worker::Run;

/// How long a `postStart` hook may take. Upstream has no limit.
const POST_START_WITHIN: Duration = Duration::from_secs(24 * 3600);

/// How often a pod whose hook runs looks whether it has been deleted.
const DELETED_PERIOD: Duration = Duration::from_secs(1);

impl Performer {
    /// Runs the `postStart` hook of a container that was started. If it fails, the container is stopped, as upstream
    /// does. If the pod is deleted meanwhile, the hook is cancelled.
    pub(super) async fn post_start<S>(
        &self,
        run: &Run<S>,
        pod: Option<&Pod>,
        name: &str,
        id: &Id,
    ) -> Result<(), PerformError> {
        let Some((pod, hook)) =
            pod.and_then(|pod| Some((pod, hook(pod, name, |l| &l.post_start)?)))
        else {
            return Ok(());
        };
        let deleted = async {
            while !run.is_outdated() {
                run.clock()
                    .sleep_until(run.now().after(DELETED_PERIOD))
                    .await;
            }
        };
        let result = tokio::select! {
            result = self.hook(run, pod, &hook, id, POST_START_WITHIN) => result,
            () = deleted => Ok(()),
        };
        let Err(error) = result else { return Ok(()) };
        tracing::info!(pod = %run.uid, container = name, %id, %error, "stopping a container: its postStart hook failed");
        let grace = PodSpec::from_pod(pod)
            .termination_grace_period
            .max(MIN_GRACE);
        let stopped = self.client.stop_container(id, grace).await;
        if let Err(error) = run.written(stopped) {
            tracing::warn!(pod = %run.uid, container = name, %id, %error, "not stopped after its postStart hook failed");
        }
        let (container, hook) = (name.to_owned(), "postStart");
        Err(PerformError::Hook {
            container,
            hook,
            error,
        })
    }

    /// Runs the `preStop` hook of a container before it is stopped, and returns the grace period that is left then:
    /// at least [`MIN_GRACE`]. A hook that fails has only used up its time.
    pub(super) async fn pre_stop<S>(
        &self,
        run: &Run<S>,
        pod: Option<&Pod>,
        name: &str,
        id: &Id,
        grace: Duration,
    ) -> Duration {
        let Some((pod, hook)) = pod.and_then(|pod| Some((pod, hook(pod, name, |l| &l.pre_stop)?)))
        else {
            return grace;
        };
        let (clock, since) = (run.clock(), run.now());
        let result = tokio::select! {
            result = self.hook(run, pod, &hook, id, grace) => result,
            () = clock.sleep_until(since.after(grace)) => Err(CheckError::TimedOut(grace)),
        };
        if let Err(error) = result {
            tracing::warn!(pod = %run.uid, container = name, %id, %error, "a preStop hook failed");
        }
        grace.saturating_sub(run.now().since(since)).max(MIN_GRACE)
    }

    async fn hook<S>(
        &self,
        run: &Run<S>,
        pod: &Pod,
        hook: &Hook,
        id: &Id,
        within: Duration,
    ) -> Result<(), CheckError> {
        let check = match hook {
            Hook::Check(check) => check,
            Hook::Sleep(time) => {
                run.clock().sleep_until(run.now().after(*time)).await;
                return Ok(());
            }
        };
        let address = self.pod_ips(run, pod).first().map(ToString::to_string);
        let address = address.unwrap_or_default();
        // Few pods have hooks, and every run of a pod would be as large as one.
        match Box::pin(check.perform(&self.client, id, &address, within)).await {
            // Upstream takes any response for a success.
            Err(CheckError::Status(_)) => Ok(()),
            result => result,
        }
    }
}

fn hook(pod: &Pod, name: &str, of: fn(&Lifecycle) -> &Option<LifecycleHandler>) -> Option<Hook> {
    let container = container_of(pod, name)?;
    let handler = of(container.lifecycle.as_ref()?).as_ref()?;
    hook_of(container, handler).ok()
}
