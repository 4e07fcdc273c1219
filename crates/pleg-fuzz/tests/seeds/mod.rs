//! The seeds of the byte targets: messages that runtimes send during a pod's lifecycle, with quirks.

use pleg_cri::v1;
use prost::Message;

use v1::ContainerEventType::{
    ContainerCreatedEvent as Created, ContainerDeletedEvent as Deleted,
    ContainerStartedEvent as Started, ContainerStoppedEvent as Stopped,
};
use v1::ContainerState::{
    ContainerCreated as IsCreated, ContainerExited as Exited, ContainerRunning as Running,
    ContainerUnknown as Unknown,
};
use v1::PodSandboxState::{SandboxNotready as NotReady, SandboxReady as Ready};

/// Half a second after the reconciler's wall clock started.
const NOW: i64 = 1_700_000_001_500_000_000;
/// What containerd ≥ 2 sends as `created_at` of a sandbox's last status.
const ABSURD: i64 = -6_795_364_578_871_345_152;

pub(crate) fn events() -> Vec<(&'static str, Vec<u8>)> {
    let sandbox = |state, created_at| Some(sandbox_status("s2", state, created_at));
    let app = |state, code| container_status("c2", state, code);
    let containerd_1 = [
        event("s2", Created, sandbox(Ready, NOW), vec![]),
        event("s2", Started, sandbox(Ready, NOW), vec![]),
        event("c2", Created, sandbox(Ready, NOW), vec![app(IsCreated, 0)]),
        event("c2", Started, sandbox(Ready, NOW), vec![app(Running, 0)]),
        event("c2", Stopped, sandbox(Ready, NOW), vec![app(Exited, 137)]),
        event(
            "s2",
            Stopped,
            sandbox(NotReady, NOW),
            vec![app(Exited, 137)],
        ),
        event("c2", Deleted, sandbox(NotReady, NOW), vec![]),
        event("s2", Deleted, None, vec![]),
    ];
    let containerd_2 = [
        event("c1", Stopped, None, vec![container_status("c1", Exited, 1)]),
        event("c1", Deleted, None, vec![]),
        event(
            "s1",
            Stopped,
            Some(sandbox_status("s1", NotReady, NOW)),
            vec![],
        ),
        event(
            "s1",
            Deleted,
            Some(sandbox_status("s1", NotReady, ABSURD)),
            vec![],
        ),
    ];
    // The whole pod in every event, a container without an id, and no STOPPED of the sandbox.
    let nameless = v1::ContainerStatus::default();
    let crio = [
        event(
            "c2",
            Created,
            sandbox(Ready, NOW),
            vec![app(IsCreated, 0), nameless.clone()],
        ),
        event(
            "c2",
            Started,
            sandbox(Ready, NOW),
            vec![app(Running, 0), nameless],
        ),
        event("c2", Stopped, sandbox(Ready, NOW), vec![app(Exited, 0)]),
    ];
    // Old, with an unknown type, without a pod, contradictory, and without an id.
    let mut odd = vec![
        event("c9", Stopped, None, vec![]),
        event(
            "c1",
            Deleted,
            None,
            vec![container_status("c1", Running, 0)],
        ),
        event(
            "c1",
            Started,
            None,
            vec![container_status("c1", Unknown, 0)],
        ),
        event("", Created, None, vec![]),
    ];
    odd[0].created_at = NOW - 60_000_000_000;
    odd[1].container_event_type = 9;
    let mut broken = row(&containerd_1[..2]);
    broken.extend([3, 0, 0x0a, 0xff, 0xff]);
    broken.extend(row(&containerd_1[2..]));
    vec![
        ("containerd-1.7", row(&containerd_1)),
        ("containerd-2", row(&containerd_2)),
        ("crio", row(&crio)),
        ("cut", broken),
        ("odd", row(&odd)),
    ]
}

pub(crate) fn lists() -> Vec<(&'static str, Vec<u8>)> {
    let sandboxes = |rows: &[(&str, v1::PodSandboxState)]| v1::ListPodSandboxResponse {
        items: rows
            .iter()
            .map(|&(id, state)| sandbox_row(id, state))
            .collect(),
    };
    let containers = |rows: &[(&str, v1::ContainerState)]| v1::ListContainersResponse {
        containers: rows
            .iter()
            .map(|&(id, state)| container_row(id, state))
            .collect(),
    };
    let list = |s: v1::ListPodSandboxResponse, c: v1::ListContainersResponse| {
        let mut bytes = framed(&s.encode_to_vec());
        bytes.extend(framed(&c.encode_to_vec()));
        bytes
    };
    let life = [
        list(
            sandboxes(&[("s1", Ready)]),
            containers(&[("c1", IsCreated)]),
        ),
        list(sandboxes(&[("s1", Ready)]), containers(&[("c1", Running)])),
        list(
            sandboxes(&[("s1", Ready)]),
            containers(&[("c1", Exited), ("c2", Running)]),
        ),
        list(
            sandboxes(&[("s1", NotReady), ("s2", Ready)]),
            containers(&[("c2", Exited)]),
        ),
        list(sandboxes(&[]), containers(&[])),
    ];
    // An empty list between two full ones, an id twice, an unknown state, and an empty id.
    let odd = [
        list(sandboxes(&[("s1", Ready)]), containers(&[("c1", Running)])),
        list(sandboxes(&[]), containers(&[])),
        list(
            sandboxes(&[("s1", Ready), ("s1", NotReady)]),
            containers(&[("s1", Running)]),
        ),
        list(
            sandboxes(&[("", Ready)]),
            containers(&[("c1", Unknown), ("", Exited)]),
        ),
    ];
    let broken = [framed(&[0x0a, 0xff, 0xff]), framed(&[])].concat();
    vec![
        (
            "broken",
            [life[1].clone(), broken, life[2].clone()].concat(),
        ),
        ("life", life.concat()),
        ("odd", odd.concat()),
    ]
}

/// A message after its length, as the byte targets read it.
fn framed(message: &[u8]) -> Vec<u8> {
    let length = u16::try_from(message.len()).expect("a small message");
    [&length.to_le_bytes(), message].concat()
}

fn row(events: &[v1::ContainerEventResponse]) -> Vec<u8> {
    events
        .iter()
        .flat_map(|event| framed(&event.encode_to_vec()))
        .collect()
}

fn event(
    id: &str,
    what: v1::ContainerEventType,
    pod_sandbox_status: Option<v1::PodSandboxStatus>,
    containers_statuses: Vec<v1::ContainerStatus>,
) -> v1::ContainerEventResponse {
    v1::ContainerEventResponse {
        container_id: id.to_owned(),
        container_event_type: what.into(),
        created_at: NOW,
        pod_sandbox_status,
        containers_statuses,
    }
}

fn sandbox_metadata() -> Option<v1::PodSandboxMetadata> {
    Some(v1::PodSandboxMetadata {
        name: "web".to_owned(),
        uid: "u1".to_owned(),
        namespace: "ns".to_owned(),
        attempt: 1,
    })
}

fn container_metadata() -> Option<v1::ContainerMetadata> {
    Some(v1::ContainerMetadata {
        name: "app".to_owned(),
        attempt: 0,
    })
}

fn labels() -> std::collections::BTreeMap<String, String> {
    let label = |key: &str, value: &str| (format!("io.kubernetes.{key}"), value.to_owned());
    [label("pod.uid", "u1"), label("container.name", "app")].into()
}

fn sandbox_status(id: &str, state: v1::PodSandboxState, created_at: i64) -> v1::PodSandboxStatus {
    v1::PodSandboxStatus {
        id: id.to_owned(),
        metadata: sandbox_metadata(),
        state: state.into(),
        created_at,
        network: Some(v1::PodSandboxNetworkStatus {
            ip: "10.0.0.2".to_owned(),
            ..v1::PodSandboxNetworkStatus::default()
        }),
        ..v1::PodSandboxStatus::default()
    }
}

fn container_status(id: &str, state: v1::ContainerState, exit_code: i32) -> v1::ContainerStatus {
    v1::ContainerStatus {
        id: id.to_owned(),
        metadata: container_metadata(),
        state: state.into(),
        created_at: NOW,
        exit_code,
        reason: if exit_code == 0 { "" } else { "Error" }.to_owned(),
        labels: labels(),
        ..v1::ContainerStatus::default()
    }
}

fn sandbox_row(id: &str, state: v1::PodSandboxState) -> v1::PodSandbox {
    v1::PodSandbox {
        id: id.to_owned(),
        metadata: sandbox_metadata(),
        state: state.into(),
        created_at: NOW,
        ..v1::PodSandbox::default()
    }
}

fn container_row(id: &str, state: v1::ContainerState) -> v1::Container {
    v1::Container {
        id: id.to_owned(),
        pod_sandbox_id: "s1".to_owned(),
        metadata: container_metadata(),
        state: state.into(),
        created_at: NOW,
        labels: labels(),
        ..v1::Container::default()
    }
}
