//! The node as the API server sees it: its object, its Ready condition and its lease.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Client, Error};
use pleg::runtime::clock::Clock;
use serde_json::{Value, json};
use static_pods::admission::NodeFacts;
use static_pods::node_status::NodeStatus;

/// How often the lease is renewed, as upstream: the control plane takes a node for lost 40 s after the last renewal.
const RENEWED_EVERY: Duration = Duration::from_secs(10);
/// For how long a lease is valid, in seconds, as upstream.
const LEASE_SECONDS: i32 = 40;
/// The namespace of the leases of nodes.
const LEASES: &str = "kube-node-lease";

/// Registers the node: creates its object, or adopts the one that an earlier kubelet of this name has created.
///
/// # Errors
/// If the API server does not answer, or refuses the object.
pub async fn register(client: &Client, facts: &NodeFacts) -> Result<(), Error> {
    let name = &facts.name;
    let node = Node {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            labels: Some(facts.labels.clone()),
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
    let resources = &facts.allocatable;
    let status = json!({"status": {"capacity": resources, "allocatable": resources}});
    patch_status(client, name, &status).await
}

async fn patch_status(client: &Client, node: &str, status: &Value) -> Result<(), Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let (params, patch) = (PatchParams::default(), Patch::Merge(status));
    nodes.patch_status(node, &params, &patch).await.map(drop)
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
            patch_status(client, name, &status).await
        };
        match result.await {
            Err(error) if !failing => {
                tracing::warn!(%error, "the node cannot be reported: is the API server reachable?");
                failing = true;
            }
            Ok(()) if failing => {
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
