//! This project's generator with the same trait, so that a test runs on both.

use std::sync::Arc;
use std::time::Duration;

use pleg::{ContainerState, Pleg, PodView, StartError, WaitError};
use pleg_core::{
    Details, Identity, Instant, Kind, PodUid, Report, ReportedState, SandboxState, WallTime,
};
use pleg_runtime::Runtime;
use pleg_runtime::clock::Clock;

use crate::channel::Fifo;
use crate::status::PodStatus;
use crate::subject::{Answer, Subject, Unhealthy};

/// The timeout of a waiter. Longer than any test or benchmark.
const NO_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// This project's generator, with upstream's channel of lifecycle events.
#[derive(Debug)]
pub struct Ours {
    pleg: Pleg,
}

impl Ours {
    /// Starts the generator. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// If a setting is not valid.
    pub fn start<R: Runtime>(mut builder: pleg::Builder<R>) -> Result<(Self, Fifo), StartError> {
        let fifo = Fifo::ours(builder.upstream_fifo());
        let pleg = builder.spawn()?;
        Ok((Self { pleg }, fifo))
    }
}

impl Subject for Ours {
    fn name(&self) -> &'static str {
        "ours"
    }

    fn clock(&self) -> Clock {
        self.pleg.clock()
    }

    fn wall(&self) -> WallTime {
        self.pleg.clock().wall()
    }

    fn get(&self, uid: &PodUid) -> Answer {
        answer(&self.pleg.get(uid))
    }

    async fn newer_than(&self, uid: &PodUid, after: Instant) -> Answer {
        match self.pleg.newer_than(uid, after, NO_TIMEOUT).await {
            Ok(view) => answer(&view),
            Err(WaitError::Read { error, last_good }) => Answer {
                error: Some(error),
                ..answer(&last_good)
            },
            // After a shutdown or a timeout, upstream keeps waiting.
            Err(_) => std::future::pending().await,
        }
    }

    fn request_relist(&self, uid: &PodUid) {
        let (pleg, uid) = (self.pleg.clone(), uid.clone());
        // The answer is not used.
        tokio::spawn(async move { _ = pleg.request_relist(&uid).await });
    }

    fn request_reinspect(&self, uid: &PodUid) {
        let (pleg, uid) = (self.pleg.clone(), uid.clone());
        tokio::spawn(async move { _ = pleg.request_reinspect(&uid).await });
    }

    fn healthy(&self) -> Result<(), Unhealthy> {
        let ready = self.pleg.health().ready();
        ready.map_err(|reason| Unhealthy(reason.to_string()))
    }

    async fn shutdown(&self) {
        self.pleg.shutdown().await;
    }
}

fn answer(view: &PodView) -> Answer {
    let pod = &*view.status;
    let mut status = PodStatus::empty(pod.uid.clone());
    status.namespace = pod.namespace.clone();
    status.name = pod.name.clone();
    status.ips = pod.ips.to_vec();
    for sandbox in &pod.sandboxes {
        let shown = match sandbox.state {
            SandboxState::Ready => ReportedState::Running,
            SandboxState::NotReady => ReportedState::Exited,
            _ => ReportedState::Unknown,
        };
        let mut identity = identity(Kind::Sandbox, pod);
        identity.attempt = sandbox.attempt;
        identity.created_at = sandbox.created_at;
        let details = Details::Sandbox(sandbox.details.clone());
        let report = Report::new(sandbox.id.clone(), shown, identity, details);
        status.sandboxes.push(report);
    }
    for container in &pod.containers {
        let mut identity = identity(Kind::Container, pod);
        identity.sandbox = container.sandbox.clone();
        identity.name = Some(container.name.clone());
        identity.attempt = container.attempt;
        identity.created_at = container.created_at;
        let shown = shown(container.state);
        let details = Details::Container(container.details.clone());
        let report = Report::new(container.id.clone(), shown, identity, details);
        status.containers.push(report);
        status
            .active
            .extend(container.active.then(|| container.id.clone()));
    }
    Answer {
        status: Arc::new(status),
        error: pod.error.as_deref().cloned(),
    }
}

fn identity(kind: Kind, pod: &pleg_core::PodStatus) -> Identity {
    let mut identity = Identity::new(kind);
    identity.pod = Some(pod.uid.clone());
    identity.namespace = Some(pod.namespace.clone());
    identity.pod_name = Some(pod.name.clone());
    identity
}

const fn shown(state: ContainerState) -> ReportedState {
    match state {
        ContainerState::Created => ReportedState::Created,
        ContainerState::Running => ReportedState::Running,
        ContainerState::Exited => ReportedState::Exited,
        _ => ReportedState::Unknown,
    }
}
