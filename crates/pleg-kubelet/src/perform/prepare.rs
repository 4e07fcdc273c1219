//! Prepares directories, volumes, images and configurations for the calls of a plan.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};
use pleg::core::GoDuration;
use pleg_cri::v1::{ContainerConfig, PodSandboxConfig};

use super::{PerformError, Performed, Performer, Performing, Result};
use crate::actions::{StartContainer, WaitReason};
use crate::cri_config::{ContainerInput, FieldError, sandbox_config};
use crate::downward::Fields;
use crate::plan::Plan;
use crate::pod_status::waiting;
use crate::spec::{PodName, container_of};
use crate::unsupported::{DEADLINE, OF_POD, PROBES, PULL_SECRETS, of_pod};

/// The period at which the worker of a waiting pod checks if an earlier pod of the same name has ended.
const PREDECESSOR_PERIOD: Duration = Duration::from_millis(200);

/// The configurations of the sandbox and containers that a plan creates.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    pub(super) sandbox: Option<PodSandboxConfig>,
    pub(super) containers: BTreeMap<String, ContainerConfig>,
}

impl<S> Performing<'_, S> {
    /// Prepares the calls of the plan. Postpones calls that cannot be prepared.
    pub(super) async fn prepare(&self, plan: &mut Plan<'_, S>, done: &mut Performed) -> Prepared {
        let Some(pod) = self.pod else {
            plan.postpone_all();
            return Prepared::default();
        };
        let of = PodName::of(pod);
        for (container, reason) in &plan.observed.waiting {
            if let WaitReason::BackOff { delay } = reason {
                let delay = GoDuration(*delay);
                let message = format!(
                    "back-off {delay} restarting failed container={container} pod={}_{}({})",
                    of.name, of.namespace, of.uid
                );
                done.waiting
                    .insert(container.clone(), waiting("CrashLoopBackOff", message));
            }
        }
        self.refresh_volumes(pod, &plan.actions).await;
        if plan.creates().next().is_none() && !plan.creates_sandbox() {
            return Prepared::default();
        }
        let (run, names) = (self.run, &self.performer.names);
        if plan.creates_sandbox()
            && let Err(other) = names.take(&run.pleg, of, &run.uid)
        {
            plan.postpone_sandbox(Some(run.now().after(PREDECESSOR_PERIOD)));
            let message = format!("pod {other}, which has the same name, has not ended yet");
            done.containers_wait(pod, &message);
            return Prepared::default();
        }
        match self.prepare_pod(pod, plan).await {
            Ok((pod, sandbox)) => Prepared {
                sandbox: Some(sandbox),
                containers: self.prepare_containers(&pod, plan, done).await,
            },
            Err(error) => {
                plan.postpone_all();
                done.pod_failed(pod, error);
                Prepared::default()
            }
        }
    }

    /// Makes directories, volumes and a sandbox configuration. Returns the pod with volumes of `Sources` as `hostPath`.
    async fn prepare_pod(&self, pod: &Pod, plan: &Plan<'_, S>) -> Result<(Pod, PodSandboxConfig)> {
        let (sources, node) = (&self.performer.sources, &self.performer.node);
        let pod = sources.with_volumes(pod, node).await?;
        // `of_pod` skips environment variables: `config` checks them once `Sources` has provided their values.
        let probes = plan.observed.probes.is_none().then_some(PROBES);
        let deadline = (!plan.has_deadline).then_some(DEADLINE);
        let secrets = (!sources.reads_pull_secrets()).then_some(PULL_SECRETS);
        let tables = [Some(OF_POD), probes, deadline, secrets].into_iter();
        if let Some(error) = of_pod(&pod, tables.flatten()).into_iter().next() {
            return Err(PerformError::Pod(error.into()));
        }
        self.make_directories(&pod, &plan.actions).await?;
        let used = plan.actions.sandbox.as_ref();
        let attempt = plan.actions.create_sandbox.or_else(|| {
            let mut sandboxes = plan.observed.view.status.sandboxes.iter();
            Some(sandboxes.find(|s| Some(&s.id) == used)?.attempt)
        });
        let mut config = sandbox_config(&pod, node, attempt.unwrap_or(0))?;
        self.performer.last_changes.sandbox(&pod, &mut config)?;
        Ok((pod, config))
    }

    /// Finds the images of the new containers, and makes their configurations. Postpones each container that cannot be
    /// created now: to an instant or, without one, to the end of its image's pull or the next change of the pod.
    async fn prepare_containers(
        &self,
        pod: &Pod,
        plan: &mut Plan<'_, S>,
        done: &mut Performed,
    ) -> BTreeMap<String, ContainerConfig> {
        let mut containers = BTreeMap::new();
        let starts = plan.actions.start.clone().into_iter();
        for start in starts.filter(|start| start.existing.is_none()) {
            let Some(container) = container_of(pod, &start.name) else {
                plan.postpone(&start.name, None);
                continue;
            };
            match self.image(pod, container).await {
                Err((reason, due)) => {
                    plan.postpone(&start.name, due);
                    done.waiting.insert(start.name, reason);
                }
                Ok(image) => match self.config(pod, container, &start, &image).await {
                    Ok(config) => drop(containers.insert(start.name, config)),
                    Err(error) => {
                        plan.postpone(&start.name, None);
                        done.failed(&start.name, "CreateContainerConfigError", error);
                    }
                },
            }
        }
        containers
    }

    /// Makes the configuration of a new container, and mounts the container's volume sub-paths.
    async fn config(
        &self,
        pod: &Pod,
        container: &Container,
        start: &StartContainer,
        image: &str,
    ) -> Result<ContainerConfig> {
        let Performer { node, sources, .. } = self.performer;
        let container = &sources.with_env(pod, container).await?;
        let pod_ips = &self.performer.pod_ips(self.run, pod);
        let input = ContainerInput {
            of: Fields { pod, node, pod_ips },
            container,
            start,
            image_ref: image,
        };
        let what = || format!("container {}", start.name);
        let failed = |error: FieldError| PerformError::of(what(), error);
        let (mut config, sub_paths) = input.config().map_err(failed)?;
        let mounted = self.mount_sub_paths(sub_paths).await;
        mounted.map_err(|error| failed(FieldError::new("volumeMounts", error.to_string())))?;
        self.performer.last_changes.container(pod, &mut config)?;
        Ok(config)
    }
}
