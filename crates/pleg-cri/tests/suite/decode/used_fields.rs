//! The event messages, reduced to the fields that are used.

use std::collections::BTreeMap;

use pleg_cri::v1;

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Event {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(int32, tag = "2")]
    kind: i32,
    #[prost(int64, tag = "3")]
    created_at: i64,
    #[prost(message, optional, tag = "4")]
    sandbox: Option<Sandbox>,
    #[prost(message, repeated, tag = "5")]
    containers: Vec<Container>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Sandbox {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(message, optional, tag = "2")]
    metadata: Option<v1::PodSandboxMetadata>,
    #[prost(int32, tag = "3")]
    state: i32,
    #[prost(int64, tag = "4")]
    created_at: i64,
    #[prost(message, optional, tag = "5")]
    network: Option<v1::PodSandboxNetworkStatus>,
    #[prost(btree_map = "string, string", tag = "7")]
    labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "8")]
    annotations: BTreeMap<String, String>,
    #[prost(string, tag = "9")]
    handler: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Container {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(message, optional, tag = "2")]
    metadata: Option<v1::ContainerMetadata>,
    #[prost(int32, tag = "3")]
    state: i32,
    #[prost(int64, tag = "4")]
    created_at: i64,
    #[prost(int64, tag = "5")]
    started_at: i64,
    #[prost(int64, tag = "6")]
    finished_at: i64,
    #[prost(int32, tag = "7")]
    exit_code: i32,
    #[prost(message, optional, tag = "8")]
    image: Option<Image>,
    #[prost(string, tag = "9")]
    image_ref: String,
    #[prost(string, tag = "10")]
    reason: String,
    #[prost(string, tag = "11")]
    message: String,
    #[prost(btree_map = "string, string", tag = "12")]
    labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "13")]
    annotations: BTreeMap<String, String>,
    #[prost(string, tag = "15")]
    log_path: String,
    #[prost(message, optional, tag = "16")]
    resources: Option<Resources>,
    #[prost(string, tag = "17")]
    image_id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Image {
    #[prost(string, tag = "1")]
    image: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Resources {
    #[prost(message, optional, tag = "1")]
    linux: Option<Linux>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Linux {
    #[prost(int64, tag = "1")]
    cpu_period: i64,
    #[prost(int64, tag = "2")]
    cpu_quota: i64,
    #[prost(int64, tag = "3")]
    cpu_shares: i64,
    #[prost(int64, tag = "4")]
    memory_limit: i64,
    #[prost(string, tag = "6")]
    cpuset_cpus: String,
    #[prost(string, tag = "7")]
    cpuset_mems: String,
    #[prost(btree_map = "string, string", tag = "9")]
    unified: BTreeMap<String, String>,
    #[prost(int64, tag = "10")]
    memory_swap_limit: i64,
}

impl Event {
    pub(super) fn into_message(self) -> v1::ContainerEventResponse {
        v1::ContainerEventResponse {
            container_id: self.id,
            container_event_type: self.kind,
            created_at: self.created_at,
            pod_sandbox_status: self.sandbox.map(|s| v1::PodSandboxStatus {
                id: s.id,
                metadata: s.metadata,
                state: s.state,
                created_at: s.created_at,
                network: s.network,
                linux: None,
                labels: s.labels,
                annotations: s.annotations,
                runtime_handler: s.handler,
            }),
            containers_statuses: self
                .containers
                .into_iter()
                .map(Container::into_message)
                .collect(),
        }
    }
}

impl Container {
    fn into_message(self) -> v1::ContainerStatus {
        let linux = |l: Linux| v1::LinuxContainerResources {
            cpu_period: l.cpu_period,
            cpu_quota: l.cpu_quota,
            cpu_shares: l.cpu_shares,
            memory_limit_in_bytes: l.memory_limit,
            memory_swap_limit_in_bytes: l.memory_swap_limit,
            cpuset_cpus: l.cpuset_cpus,
            cpuset_mems: l.cpuset_mems,
            unified: l.unified,
            ..v1::LinuxContainerResources::default()
        };
        v1::ContainerStatus {
            id: self.id,
            metadata: self.metadata,
            state: self.state,
            created_at: self.created_at,
            started_at: self.started_at,
            finished_at: self.finished_at,
            exit_code: self.exit_code,
            image: self.image.map(|i| v1::ImageSpec {
                image: i.image,
                ..v1::ImageSpec::default()
            }),
            image_ref: self.image_ref,
            reason: self.reason,
            message: self.message,
            labels: self.labels,
            annotations: self.annotations,
            log_path: self.log_path,
            resources: self.resources.map(|r| v1::ContainerResources {
                linux: r.linux.map(linux),
            }),
            image_id: self.image_id,
            ..v1::ContainerStatus::default()
        }
    }
}
