//! A runtime that decodes every row of a list with prost and keeps the fields that upstream keeps.
//!
//! [`CriRuntime`] reads lists for this project's generator: it computes a fingerprint of every row, so
//! that unchanged rows need no decoding, and shares strings that many rows contain. A subject that
//! decodes all rows would have the cost of that without a benefit. Rows are decoded one by one, which
//! is cheaper than to decode the whole list first, as upstream does. Statuses and events are read as by
//! [`CriRuntime`].

use pleg_core::{
    CallError, ContainerDetails, Id, Identity, Kind, Report, ReportedState, SandboxDetails,
    WallTime,
};
use pleg_cri::CriRuntime;
use pleg_cri::v1::{self, ContainerState as State, PodSandboxState};
use pleg_runtime::{Row, Runtime, RuntimeVersion, Scope};
use prost::bytes::Bytes;
use prost::encoding::{DecodeContext, decode_key, message, skip_field};
use prost::{DecodeError, Message};

type Rows<'a> = &'a mut (dyn FnMut(Row<'_>) + Send);

/// A runtime that decodes every row with prost.
#[derive(Debug)]
pub(super) struct FullDecode(pub(super) CriRuntime);

/// The field number of rows in the messages of both lists.
const ROWS: u32 = 1;

/// Decodes the rows of a list.
fn each<T: Message + Default>(mut list: &[u8], mut row: impl FnMut(&T)) -> Result<(), DecodeError> {
    while !list.is_empty() {
        let (field, wire) = decode_key(&mut list)?;
        if field == ROWS {
            let mut decoded = T::default();
            message::merge(wire, &mut decoded, &mut list, DecodeContext::default())?;
            row(&decoded);
        } else {
            skip_field(wire, field, &mut list, DecodeContext::default())?;
        }
    }
    Ok(())
}

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
        let mut read = |list: Bytes| each(&list, |of| sandbox(of, row));
        self.0.sandbox_messages(scope, &mut read).await
    }

    async fn list_containers(&self, scope: &Scope, row: Rows<'_>) -> Result<(), CallError> {
        let mut read = |list: Bytes| each(&list, |of| container(of, row));
        self.0.container_messages(scope, &mut read).await
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

#[cfg(test)]
mod tests {
    use super::*;

    fn reports(list: &[u8]) -> Result<Vec<Report>, DecodeError> {
        let mut reports = Vec::new();
        let mut row = |row: Row<'_>| reports.extend(row.report());
        each(list, |of| container(of, &mut row))?;
        Ok(reports)
    }

    fn listed(id: &str, state: State) -> v1::Container {
        v1::Container {
            id: id.to_owned(),
            pod_sandbox_id: "box".to_owned(),
            metadata: Some(v1::ContainerMetadata::default()),
            image: Some(v1::ImageSpec::default()),
            state: state.into(),
            labels: [("io.kubernetes.pod.uid".to_owned(), "pod".to_owned())].into(),
            ..v1::Container::default()
        }
    }

    #[test]
    fn every_row_is_decoded() {
        let containers = vec![
            listed("a", State::ContainerRunning),
            listed("b", State::ContainerExited),
        ];
        let list = v1::ListContainersResponse { containers }.encode_to_vec();
        let all = reports(&list).unwrap();
        let fields = |r: &Report| (r.id.to_string(), r.shown, r.identity.pod.clone());
        let pod = Some("pod".into());
        assert_eq!(
            all.iter().map(fields).collect::<Vec<_>>(),
            [
                ("a".to_owned(), ReportedState::Running, pod.clone()),
                ("b".to_owned(), ReportedState::Exited, pod),
            ]
        );
        let cut = list.get(..list.len() - 1).unwrap();
        assert!(reports(cut).is_err());
    }
}
