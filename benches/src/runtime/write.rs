//! The calls that change the node, for pod workers. Each call changes the table and sends its events.

use bytes::Bytes;
use pleg_cri::v1::{self, ContainerEventType as EventType, ContainerState};
use prost::Message as _;
use tonic::Code;

use super::call::decode;
use super::{Shared, drive, lock};
use crate::node::{Change, Container, Pod, Table, table::Frames};
use crate::wire;

pub(super) const METHODS: [&str; 7] = [
    "RunPodSandbox",
    "StopPodSandbox",
    "RemovePodSandbox",
    "CreateContainer",
    "StartContainer",
    "StopContainer",
    "RemoveContainer",
];

/// Changes the node. Returns after the events were sent, as containerd does.
pub(super) async fn write(shared: &Shared, method: &str, message: Bytes) -> Result<Frames, Code> {
    let (response, events) = change(&mut lock(&shared.table), method, message, shared.now())?;
    for event in events {
        drive::publish(shared, event).await;
    }
    Ok(vec![wire::framed(&response)])
}

/// The encoded response, and the events to send.
type Changed = (Vec<u8>, Vec<Bytes>);

fn change(table: &mut Table, method: &str, message: Bytes, now: i64) -> Result<Changed, Code> {
    let (id, kind) = match method {
        "RunPodSandbox" => return run_sandbox(table, decode(message)?, now),
        "CreateContainer" => return create_container(table, decode(message)?, now),
        // The first field of each of these requests is the id.
        _ => (
            decode::<v1::StartContainerRequest>(message)?.container_id,
            match method {
                "StartContainer" => EventType::ContainerStartedEvent,
                "StopContainer" | "StopPodSandbox" => EventType::ContainerStoppedEvent,
                _ => EventType::ContainerDeletedEvent,
            },
        ),
    };
    let change = match method {
        "StartContainer" => Change::Start(id.clone()),
        "StopContainer" => Change::Stop(id.clone(), 0),
        "StopPodSandbox" => Change::StopSandbox,
        "RemoveContainer" => Change::Remove(id.clone()),
        _ => Change::RemovePod,
    };
    let number = table.pod_of(&id).ok_or(Code::NotFound)?;
    let event = table.write(number, kind, &id, &change, now);
    // The responses have no fields.
    Ok((Vec::new(), vec![event.ok_or(Code::NotFound)?]))
}

fn run_sandbox(
    table: &mut Table,
    request: v1::RunPodSandboxRequest,
    now: i64,
) -> Result<Changed, Code> {
    let metadata = request.config.and_then(|config| config.metadata);
    let metadata = metadata.ok_or(Code::InvalidArgument)?;
    let number = table.pods().last_key_value().map_or(0, |(n, _)| n + 1);
    let id = table.new_id();
    let pod = Pod {
        number,
        uid: metadata.uid,
        name: metadata.name,
        namespace: metadata.namespace,
        ip: "10.128.255.1".to_owned(),
        sandbox: id.clone(),
        ready: true,
        created_at: now,
        containers: Vec::new(),
    };
    let created = Change::AddPod(Box::new(pod));
    let events = [
        table.write(number, EventType::ContainerCreatedEvent, &id, &created, now),
        table.write(
            number,
            EventType::ContainerStartedEvent,
            &id,
            &Change::SandboxStarted,
            now,
        ),
    ];
    let response = v1::RunPodSandboxResponse { pod_sandbox_id: id };
    let events = events.into_iter().flatten().collect();
    Ok((response.encode_to_vec(), events))
}

fn create_container(
    table: &mut Table,
    request: v1::CreateContainerRequest,
    now: i64,
) -> Result<Changed, Code> {
    let number = table
        .pod_of(&request.pod_sandbox_id)
        .ok_or(Code::NotFound)?;
    let metadata = request.config.and_then(|config| config.metadata);
    let metadata = metadata.ok_or(Code::InvalidArgument)?;
    let id = table.new_id();
    let container = Container {
        id: id.clone(),
        name: metadata.name,
        attempt: metadata.attempt,
        state: ContainerState::ContainerCreated,
        created_at: now,
        started_at: 0,
        finished_at: 0,
        exit_code: 0,
    };
    let added = Change::AddContainer(Box::new(container));
    let event = table.write(number, EventType::ContainerCreatedEvent, &id, &added, now);
    let response = v1::CreateContainerResponse { container_id: id };
    Ok((response.encode_to_vec(), event.into_iter().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::pods;

    fn call(table: &mut Table, method: &str, request: &impl prost::Message) -> Changed {
        change(table, method, request.encode_to_vec().into(), 5).unwrap()
    }

    fn event(frame: &Bytes) -> v1::ContainerEventResponse {
        v1::ContainerEventResponse::decode(&frame[wire::HEAD..]).unwrap()
    }

    #[test]
    fn writes_change_the_node_and_send_their_events() {
        let mut table = Table::new(pods(1, 2, 1), 1);
        let sandbox = v1::RunPodSandboxRequest {
            config: Some(v1::PodSandboxConfig {
                metadata: Some(v1::PodSandboxMetadata {
                    uid: "u".into(),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        };
        let (response, events) = call(&mut table, "RunPodSandbox", &sandbox);
        let sandbox = v1::RunPodSandboxResponse::decode(&response[..]).unwrap();
        assert_eq!(events.len(), 2);
        let create = v1::CreateContainerRequest {
            pod_sandbox_id: sandbox.pod_sandbox_id.clone(),
            config: Some(v1::ContainerConfig {
                metadata: Some(v1::ContainerMetadata::default()),
                ..Default::default()
            }),
            ..Default::default()
        };
        let (response, _) = call(&mut table, "CreateContainer", &create);
        let id = v1::CreateContainerResponse::decode(&response[..]).unwrap();
        let id = id.container_id;
        for (method, state) in [("StartContainer", 1), ("StopContainer", 2)] {
            let request = v1::StartContainerRequest {
                container_id: id.clone(),
            };
            let (_, events) = call(&mut table, method, &request);
            let event = event(&events[0]);
            assert_eq!(event.container_id, id);
            assert_eq!(event.containers_statuses[0].state, state);
        }
        let stop = v1::StopPodSandboxRequest {
            pod_sandbox_id: sandbox.pod_sandbox_id,
        };
        for method in ["StopPodSandbox", "RemovePodSandbox"] {
            let (_, events) = call(&mut table, method, &stop);
            let status = event(&events[0]).pod_sandbox_status.unwrap();
            assert_eq!(status.state, 1, "not ready");
        }
        assert_eq!(table.pods().len(), 2);
        let gone = change(&mut table, "StopPodSandbox", stop.encode_to_vec().into(), 6);
        assert_eq!(gone, Err(Code::NotFound));
    }
}
