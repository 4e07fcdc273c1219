//! A kubelet for the pods that an API server assigns to this node.
//!
//! ```text
//! api_kubelet --node n1 --endpoint unix:///run/containerd/containerd.sock
//! ```
//!
//! The API server is that of the kubeconfig, or of `--server`.

use std::io::IsTerminal as _;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use api_kubelet::kubelet::Kubelet;
use api_kubelet::node::{register, report};
use api_kubelet::pods::{changes, follow};
use api_kubelet::status::Statuses;
use clap::Parser;
use kube::{Client, Config};
use pleg::Pleg;
use pleg_kubelet::backoff::BackOffSettings;
use pleg_kubelet::cri_config::NodeConfig;
use pleg_kubelet::worker::{PodWorkers, WorkerSettings};
use static_pods::admission::NodeFacts;
use static_pods::node_status::NodeStatus;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// How long runs in progress may take when it is stopped.
const DRAIN: Duration = Duration::from_secs(3);

/// Runs the pods of a node.
#[derive(Debug, Parser)]
struct Args {
    /// The name of the node.
    #[arg(long)]
    node: String,
    /// The address of the node.
    #[arg(long, default_value = "127.0.0.1")]
    node_ip: IpAddr,
    /// The API server, if it needs no credentials. The default is that of the kubeconfig.
    #[arg(long)]
    server: Option<String>,
    /// The socket of the container runtime.
    #[arg(long, default_value = "unix:///run/containerd/containerd.sock")]
    endpoint: String,
    /// The directory of logs and volumes.
    #[arg(long, default_value = "/var/lib/api-kubelet")]
    root: PathBuf,
    /// The cgroup below which the runtime puts the pods.
    #[arg(long, default_value = "")]
    cgroup_parent: String,
    /// The first delay of a restart and of a pull, in milliseconds.
    #[arg(long, default_value_t = 10_000)]
    back_off_initial: u64,
    /// The greatest delay, in milliseconds.
    #[arg(long, default_value_t = 300_000)]
    back_off_max: u64,
}

fn main() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    let result = runtime.block_on(run(Args::parse()));
    // Work on a file system that hangs cannot be cancelled, and is not waited for.
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

/// A client of the API server; without a URL, of that of the kubeconfig.
async fn connect(server: Option<&str>) -> anyhow::Result<Client> {
    let config = match server {
        Some(url) => Config::new(url.parse().context("--server is not a URL")?),
        None => Config::infer()
            .await
            .context("there is no kubeconfig: give --server")?,
    };
    Ok(Client::try_from(config)?)
}

async fn run(args: Args) -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into()))
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    let api = connect(args.server.as_deref()).await?;
    let (mut builder, client) = Pleg::connect(&args.endpoint)?;
    // Before it starts, so that no end is missed.
    let consumer = builder.register_consumer("api-kubelet");
    let pleg = builder.spawn()?;
    let node = Arc::new(NodeStatus::new(&args.node, pleg.clone(), client.clone()));
    let mut config = NodeConfig::of_host(&args.root, vec![args.node_ip]);
    config.cgroup_parent = args.cgroup_parent;
    let facts = NodeFacts::new(&args.node, &config);
    let mut back_off = BackOffSettings::default();
    back_off.initial = Duration::from_millis(args.back_off_initial);
    back_off.max = Duration::from_millis(args.back_off_max);
    let (status, statuses) = (node.clone(), Statuses::new(api.clone()));
    let kubelet = Kubelet::new(&pleg, client, status, consumer, config, statuses, back_off)?;
    let changes = Box::pin(changes(api.clone(), &args.node));
    let work = async {
        node.wait_for_runtime().await;
        pleg.wait_until_synced().await?;
        register(&api, &facts).await?;
        // It owns no pod whose object it has not seen: the list need not be complete yet.
        let workers = PodWorkers::spawn(pleg.clone(), kubelet, WorkerSettings::default(), [])?;
        tracing::info!(node = args.node, "running");
        tokio::select! {
            () = node.watch() => {}
            () = report(&api, &args.node, &node, pleg.clock()) => {}
            () = follow(changes, &workers) => {}
            () = workers.ended() => {}
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
        workers.shutdown(pleg.now().after(DRAIN)).await;
        anyhow::Ok(())
    };
    let result = work.await;
    pleg.shutdown().await;
    result
}
