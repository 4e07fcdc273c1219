//! A [`Runtime`] that decodes every row of a list with prost and keeps the fields that upstream keeps.
//!
//! [`CriRuntime`] first decodes only id and state of every row, because this project's PLEG needs no more of most rows.
//! For a subject that needs every row in full, this first step would only cost time. [`FullDecode`] decodes rows one by
//! one, which is cheaper than upstream, which decodes the whole list first. For statuses and events it uses
//! [`CriRuntime`].

use pleg_core::{
    CallError, ContainerDetails, Id, Identity, Kind, Report, ReportedState, SandboxDetails,
    WallTime,
};
use pleg_cri::CriRuntime;
use pleg_cri::v1::{self, ContainerState as State, PodSandboxState};
use pleg_runtime::{Row, Runtime, RuntimeVersion, Scope};
use prost::Message as _;

type Rows<'a> = &'a mut (dyn FnMut(Row<'_>) + Send);

/// A [`Runtime`] that decodes every row with prost.
#[derive(Debug)]
pub(super) struct FullDecode(pub(super) CriRuntime);

/// Converts a row like upstream's `toRuntimeSandbox`.
fn sandbox(of: &v1::PodSandbox, row: Rows<'_>) {
    let shown = match of.state() {
        PodSandboxState::SandboxReady => ReportedState::Running,
        PodSandboxState::SandboxNotready => ReportedState::Exited,
    };
    let report = || {
        let metadata = of.metadata.as_ref()?;
        let mut identity = Identity::new(Kind::Sandbox);
        identity.pod = Some(metadata.uid.as_str().into());
        identity.namespace = Some(metadata.namespace.as_str().into());
        identity.pod_name = Some(metadata.name.as_str().into());
        identity.attempt = metadata.attempt;
        identity.created_at = WallTime::claimed(of.created_at);
        let details = SandboxDetails::default();
        Some(Report::new(of.id.as_str(), shown, identity, details))
    };
    row(Row::encoded(&of.id, Kind::Sandbox, shown, &report));
}

/// Converts a row like upstream's `toKubeContainer` and `getContainerInfoFromLabels`.
fn container(of: &v1::Container, row: Rows<'_>) {
    let shown = match of.state() {
        State::ContainerCreated => ReportedState::Created,
        State::ContainerRunning => ReportedState::Running,
        State::ContainerExited => ReportedState::Exited,
        State::ContainerUnknown => ReportedState::Unknown,
    };
    let label = |key| of.labels.get(key).map(String::as_str);
    let report = || {
        let metadata = of.metadata.as_ref()?;
        let image = of.image.as_ref()?;
        let mut identity = Identity::new(Kind::Container);
        identity.pod = label("io.kubernetes.pod.uid").map(Into::into);
        identity.namespace = label("io.kubernetes.pod.namespace").map(Into::into);
        identity.pod_name = label("io.kubernetes.pod.name").map(Into::into);
        identity.sandbox = Some(of.pod_sandbox_id.as_str().into());
        identity.name = Some(metadata.name.as_str().into());
        identity.attempt = metadata.attempt;
        identity.created_at = WallTime::claimed(of.created_at);
        let mut details = ContainerDetails::default();
        details.image = image.image.as_str().into();
        details.image_ref = of.image_ref.as_str().into();
        details.image_id = of.image_id.as_str().into();
        Some(Report::new(of.id.as_str(), shown, identity, details))
    };
    row(Row::encoded(&of.id, Kind::Container, shown, &report));
}

impl Runtime for FullDecode {
    type Events = <CriRuntime as Runtime>::Events;

    async fn list_sandboxes(&self, scope: &Scope, row: Rows<'_>) -> Result<(), CallError> {
        let mut read = |encoded: &[u8]| {
            sandbox(&v1::PodSandbox::decode(encoded)?, row);
            Ok(())
        };
        self.0.encoded_sandboxes(scope, &mut read).await
    }

    async fn list_containers(&self, scope: &Scope, row: Rows<'_>) -> Result<(), CallError> {
        let mut read = |encoded: &[u8]| {
            container(&v1::Container::decode(encoded)?, row);
            Ok(())
        };
        self.0.encoded_containers(scope, &mut read).await
    }

    async fn sandbox_status(&self, id: &Id) -> Result<Report, CallError> {
        self.0.sandbox_status(id).await
    }

    async fn container_status(&self, id: &Id) -> Result<Report, CallError> {
        self.0.container_status(id).await
    }

    async fn subscribe(&self) -> Result<Self::Events, CallError> {
        self.0.subscribe().await
    }

    async fn version(&self) -> Result<RuntimeVersion, CallError> {
        self.0.version().await
    }
}
