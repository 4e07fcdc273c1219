//! The node as the API server sees it: its object, its Ready condition and its lease.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use pleg::runtime::clock::Clock;
use serde_json::{Value, json};
use static_pods::admission::NodeFacts;
use static_pods::node_status::NodeStatus;

/// The period between renewals of the lease, as upstream. The lease expires 40 s after the last renewal.
const RENEWED_EVERY: Duration = Duration::from_secs(10);

/// Registers the node. Then, about every 10 s until the future is dropped, renews the node's lease and reports the
/// node's Ready condition. A call that failed is repeated after 10 s.
pub(crate) async fn report(client: &Client, facts: &NodeFacts, node: &NodeStatus, clock: Clock) {
    let (mut is_registered, mut failing) = (false, false);
    loop {
        let result = async {
            if !is_registered {
                register(client, facts).await?;
                is_registered = true;
            }
            renew(client, &facts.name).await?;
            patch_status(client, &facts.name, json!({"conditions": [node.ready()]})).await
        };
        let result = tokio::time::timeout(RENEWED_EVERY, result).await;
        let error = result.map_err(anyhow::Error::from).flatten().err();
        match (&error, std::mem::replace(&mut failing, error.is_some())) {
            (Some(error), false) => {
                tracing::warn!(%error, "the node is not reported: is the API server reachable?");
            }
            (None, true) => tracing::info!("the node is reported again"),
            _ => {}
        }
        clock.sleep_until(clock.now().after(RENEWED_EVERY)).await;
    }
}

/// Creates the node's API object, or adopts the object that an earlier kubelet with this node name created.
async fn register(client: &Client, facts: &NodeFacts) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let mut node = nodes.entry(&facts.name).await?.or_insert(Node::default);
    let labels = node.get_mut().metadata.labels.get_or_insert_default();
    labels.extend(facts.labels.clone());
    node.commit(&PostParams::default()).await?;
    tracing::info!(name = facts.name, "registered the node");
    let status = json!({"capacity": &facts.allocatable, "allocatable": &facts.allocatable});
    patch_status(client, &facts.name, status).await
}

async fn patch_status(client: &Client, node: &str, status: Value) -> anyhow::Result<()> {
    let (nodes, params): (Api<Node>, _) = (Api::all(client.clone()), PatchParams::default());
    // A strategic merge patch keeps the conditions that other programs set, such as the node problem detector.
    let patch = Patch::Strategic(json!({"status": status}));
    Ok(nodes.patch_status(node, &params, &patch).await.map(drop)?)
}

/// Renews the lease. Fails with a conflict if another kubelet with this node name updates the lease at the same time.
async fn renew(client: &Client, name: &str) -> anyhow::Result<()> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    let mut lease = leases.entry(name).await?.or_insert(Lease::default);
    lease.get_mut().spec = Some(LeaseSpec {
        holder_identity: Some(name.to_owned()),
        lease_duration_seconds: Some(40), // As upstream.
        renew_time: Some(MicroTime(Timestamp::now())),
        ..LeaseSpec::default()
    });
    Ok(lease.commit(&PostParams::default()).await?)
}
