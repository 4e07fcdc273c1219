//! Starts, runs and stops the kubelet.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context as _;
use kube::{Client, Config};
use pleg::Pleg;
use pleg_kubelet::backoff::BackOffSettings;
use pleg_kubelet::cri_config::NodeConfig;
use pleg_kubelet::perform::Performer;
use pleg_kubelet::plan::Planner;
use pleg_kubelet::probe::Prober;
use pleg_kubelet::worker::PodWorkers;
use static_pods::admission::NodeFacts;
use static_pods::credentials::DockerConfig;
use static_pods::node_status::NodeStatus;

use crate::kubelet::{Kubelet, Mark};
use crate::node::report;
use crate::pods::{changes, follow, list, replace};
use crate::status::Statuses;

/// When the kubelet is stopped, runs of pod workers that are in progress have this much time before they are aborted.
const DRAIN: Duration = Duration::from_secs(3);

/// A client of the API server at the URL `server`. Without a URL, the kubeconfig names the API server.
///
/// # Errors
/// If the URL or the kubeconfig cannot be used.
pub async fn connect(server: Option<&str>) -> anyhow::Result<Client> {
    let config = match server {
        Some(url) => Ok(Config::new(url.parse().context("--server is not a URL")?)),
        None => Config::infer().await,
    };
    let mut config = config.context("there is no kubeconfig: give --server")?;
    // The client must not retry: a pod's containers would wait, and its worker's next run reports the status anyway.
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// Runs the node's pods until `stop` completes, or the pod watch or the event generator ends. Containers keep running.
///
/// # Errors
/// If the kubelet cannot start.
///
/// # Cancel safety
/// Dropping the future ends the kubelet at once.
pub async fn run(
    api: Client,
    name: &str,
    endpoint: &str,
    config: NodeConfig,
    back_off: BackOffSettings,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let (mut builder, client) = Pleg::connect(endpoint)?;
    // Registered before the generator starts: it then stores every exit until the pod workers acknowledge the exit.
    let consumer = builder.register_consumer("api-kubelet");
    let pleg = builder.spawn()?;
    let node = Arc::new(NodeStatus::new(name, pleg.clone(), client.clone()));
    let facts = NodeFacts::new(name, &config);
    let address = config.host_ips.first().map(ToString::to_string);
    let kubelet = Arc::new(Kubelet {
        node: node.clone(),
        statuses: Statuses {
            client: api.clone(),
            last: Mutex::default(),
        },
        planner: Planner::new(back_off)?.consumer(consumer),
        prober: Prober::new(&pleg, client.clone(), &address.unwrap_or_default()),
        performer: Performer::new(client, config)
            .image_back_off(back_off)?
            .sources(DockerConfig::default())
            .last_changes(Mark(name.to_owned())),
    });
    let (mut changes, mut workers) = (changes(api.clone(), name), None);
    let pods = async {
        pleg.wait_until_synced().await?;
        // The workers terminate pods that this kubelet started earlier and that the API server no longer lists.
        let listed = list(&mut changes).await.context("the watch has ended")?;
        let (of, from) = (kubelet.clone(), pleg.clone());
        let uids = listed.keys().cloned().collect();
        let removed =
            tokio::task::spawn_blocking(move || of.performer.remove_orphans(&from, &uids)).await?;
        removed.unwrap_or_else(|error| tracing::error!(%error, "files of deleted pods are left"));
        let spawned = PodWorkers::spawn(pleg.clone(), kubelet, listed.clone());
        let workers = workers.insert(spawned);
        replace(workers, listed);
        tracing::info!(node = name, "running");
        tokio::select! { () = follow(changes, workers) => {}, () = workers.ended() => {} }
        anyhow::Ok(())
    };
    let work = async {
        node.wait_for_runtime().await;
        tokio::select! {
            result = Box::pin(pods) => result,
            () = node.watch() => Ok(()),
            () = Box::pin(report(&api, &facts, &node, pleg.clock())) => Ok(()),
        }
    };
    let result = tokio::select! { result = work => result, () = stop => Ok(()) };
    if let Some(workers) = workers {
        workers.shutdown(pleg.now().after(DRAIN)).await;
    }
    pleg.shutdown().await;
    result
}
