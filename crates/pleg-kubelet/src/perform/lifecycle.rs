//! Hooks of containers: `postStart` and `preStop`.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Lifecycle, LifecycleHandler, Pod};
use pleg::Id;

use super::{PerformError, Performing, container_of};
use crate::actions::MIN_GRACE;
use crate::from_pod::{Hook, hook_of};
use crate::probe::CheckError;
use crate::spec::PodSpec;

/// How long a `postStart` hook may take. Upstream has no limit.
const POST_START_WITHIN: Duration = Duration::from_secs(24 * 3600);

impl<S> Performing<'_, S> {
    /// Runs the `postStart` hook of a container that was started. If it fails, the container is stopped, as upstream
    /// does. If the pod is deleted meanwhile, the hook is cancelled.
    pub(super) async fn post_start(&self, name: &str, id: &Id) -> Result<(), PerformError> {
        let Some((pod, hook)) = self.hook(name, |l| &l.post_start) else {
            return Ok(());
        };
        let run = self.run;
        let result = tokio::select! {
            result = self.perform_hook(pod, &hook, id, POST_START_WITHIN) => result,
            () = run.deleted() => Ok(()),
        };
        let Err(error) = result else { return Ok(()) };
        tracing::info!(pod = %run.uid, container = name, %id, %error, "stopping a container: its postStart hook failed");
        let grace = PodSpec::from_pod(pod).termination_grace_period;
        let client = &self.performer.client;
        let stopped = client.stop_container(id, grace.max(MIN_GRACE)).await;
        if let Err(error) = run.written(stopped) {
            tracing::warn!(pod = %run.uid, container = name, %id, %error, "not stopped after its postStart hook failed");
        }
        let what = format!("postStart hook of container {name}");
        Err(PerformError::of(what)(error))
    }

    /// Runs the `preStop` hook of a container before it is stopped, and returns the grace period that is left then:
    /// at least [`MIN_GRACE`]. A hook that fails has only used up its time.
    pub(super) async fn pre_stop(&self, name: &str, id: &Id, grace: Duration) -> Duration {
        let Some((pod, hook)) = self.hook(name, |l| &l.pre_stop) else {
            return grace;
        };
        let (clock, since) = (self.run.clock(), self.run.now());
        let result = tokio::select! {
            result = self.perform_hook(pod, &hook, id, grace) => result,
            () = clock.sleep_until(since.after(grace)) => Err(CheckError::TimedOut(grace)),
        };
        if let Err(error) = result {
            tracing::warn!(pod = %self.run.uid, container = name, %id, %error, "a preStop hook failed");
        }
        let used = self.run.now().since(since);
        grace.saturating_sub(used).max(MIN_GRACE)
    }

    /// The pod, and a hook of its container with that name.
    fn hook(
        &self,
        name: &str,
        of: fn(&Lifecycle) -> &Option<LifecycleHandler>,
    ) -> Option<(&Pod, Hook)> {
        let container = container_of(self.pod?, name)?;
        let handler = of(container.lifecycle.as_ref()?).as_ref()?;
        Some((self.pod?, hook_of(container, handler).ok()?))
    }

    async fn perform_hook(
        &self,
        pod: &Pod,
        hook: &Hook,
        id: &Id,
        within: Duration,
    ) -> Result<(), CheckError> {
        let run = self.run;
        let check = match hook {
            Hook::Check(check) => check,
            Hook::Sleep(time) => {
                run.clock().sleep_until(run.now().after(*time)).await;
                return Ok(());
            }
        };
        let ips = self.performer.pod_ips(run, pod);
        let address = ips.first().map(ToString::to_string).unwrap_or_default();
        // Boxed: few pods have hooks, and otherwise the future of every run would be as large as that of a hook.
        let check = check.perform(&self.performer.client, id, &address, within);
        match Box::pin(check).await {
            // As upstream, any response is a success.
            Err(CheckError::Status(_)) => Ok(()),
            result => result,
        }
    }
}
