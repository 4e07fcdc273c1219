//! The node as the API server sees it: its object, its Ready condition and its lease.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Client, Error};
use pleg::runtime::clock::Clock;
use serde_json::json;
use static_pods::node_status::NodeStatus;

/// How often the lease is renewed, as upstream: the control plane takes a node for lost 40 s after the last renewal.
const RENEWED_EVERY: Duration = Duration::from_secs(10);
/// For how long a lease is valid, in seconds, as upstream.
const LEASE_SECONDS: i32 = 40;
/// The namespace of the leases of nodes.
const LEASES: &str = "kube-node-lease";

/// What this node has.
#[derive(Clone, Debug)]
pub struct Capacity {
    /// Processors.
    pub cpus: usize,
    /// Bytes of memory.
    pub memory: u64,
    /// How many pods may run: 110 by upstream's default.
    pub pods: u32,
}

/// Registers the node: creates its object, or adopts the one that an earlier kubelet of this name has created.
///
/// # Errors
/// If the API server does not answer, or refuses the object.
pub async fn register(client: &Client, name: &str, capacity: &Capacity) -> Result<(), Error> {
    let labels = [
        ("kubernetes.io/hostname", name),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", architecture()),
    ];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let node = Node {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(BTreeMap::from(labels)),
            ..ObjectMeta::default()
        },
        ..Node::default()
    };
    let nodes: Api<Node> = Api::all(client.clone());
    match nodes.create(&PostParams::default(), &node).await {
        Ok(_) => tracing::info!(name, "registered the node"),
        Err(Error::Api(status)) if status.is_already_exists() => {}
        Err(error) => return Err(error),
    }
    let resources = json!({
        "cpu": capacity.cpus.to_string(), "memory": capacity.memory.to_string(), "pods": capacity.pods.to_string(),
    });
    let status = json!({"status": {"capacity": resources, "allocatable": resources}});
    let patch = Patch::Merge(&status);
    nodes
        .patch_status(name, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

/// The architecture in the words of the API.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Renews the lease and reports the Ready condition until it is dropped. What fails is tried again after 10 s.
///
/// # Cancel safety
/// Dropping the future ends the reports; nothing else is lost.
pub async fn report(client: &Client, name: &str, node: &NodeStatus, clock: Clock) {
    let mut failing = false;
    loop {
        let result = async {
            renew(client, name).await?;
            let status = json!({"status": {"conditions": [node.ready()]}});
            let nodes: Api<Node> = Api::all(client.clone());
            let patch = Patch::Merge(&status);
            nodes
                .patch_status(name, &PatchParams::default(), &patch)
                .await
        };
        match result.await {
            Err(error) if !failing => {
                tracing::warn!(%error, "the node cannot be reported: is the API server reachable?");
                failing = true;
            }
            Ok(_) if failing => {
                tracing::info!("the node is reported again");
                failing = false;
            }
            _ => {}
        }
        clock.sleep_until(clock.now().after(RENEWED_EVERY)).await;
    }
}

async fn renew(client: &Client, name: &str) -> Result<(), Error> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), LEASES);
    let spec = LeaseSpec {
        holder_identity: Some(name.to_owned()),
        lease_duration_seconds: Some(LEASE_SECONDS),
        renew_time: Some(MicroTime(Timestamp::now())),
        ..LeaseSpec::default()
    };
    match leases.get_opt(name).await? {
        // Its resource version makes an update by another kubelet of this name a conflict.
        Some(mut lease) => {
            lease.spec = Some(spec);
            leases.replace(name, &PostParams::default(), &lease).await?;
        }
        None => {
            let metadata = ObjectMeta {
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            };
            let lease = Lease {
                metadata,
                spec: Some(spec),
            };
            leases.create(&PostParams::default(), &lease).await?;
        }
    }
    Ok(())
}
