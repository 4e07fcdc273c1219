//! A kubelet for the pods that an API server assigns to this node: `api_kubelet --node n1`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use api_kubelet::run;
use clap::Parser;
use pleg_kubelet::backoff::BackOffSettings;
use pleg_kubelet::cri_config::NodeConfig;
use static_pods::process::{block_on, init_log, stop_signal};

/// Runs the pods of a node.
#[derive(Debug, Parser)]
struct Args {
    /// The name of the node.
    #[arg(long)]
    node: String,
    /// The address of the node.
    #[arg(long, default_value = "127.0.0.1")]
    node_ip: IpAddr,
    /// The URL of an API server that needs no credentials. By default, the kubeconfig names the server.
    #[arg(long)]
    server: Option<String>,
    /// The socket of the container runtime.
    #[arg(long, default_value = "unix:///run/containerd/containerd.sock")]
    endpoint: String,
    /// The directory of logs and volumes.
    #[arg(long, default_value = "/var/lib/api-kubelet")]
    root: PathBuf,
    /// The cgroup below which the runtime puts the pods. With SystemdCgroup, it must be a slice: system.slice.
    #[arg(long, default_value = "")]
    cgroup_parent: String,
    /// The first back-off delay of restarts and of pulls, in milliseconds.
    #[arg(long, default_value_t = 10_000)]
    back_off_initial: u64,
    /// The greatest back-off delay, in milliseconds.
    #[arg(long, default_value_t = 300_000)]
    back_off_max: u64,
}

fn main() -> anyhow::Result<()> {
    block_on(run_with(Args::parse()))
}

async fn run_with(args: Args) -> anyhow::Result<()> {
    init_log()?;
    let stop = stop_signal()?;
    let api = run::connect(args.server.as_deref()).await?;
    let mut config = NodeConfig::of_host(&args.root, vec![args.node_ip]);
    config.cgroup_parent = args.cgroup_parent;
    let mut back_off = BackOffSettings::default();
    back_off.initial = Duration::from_millis(args.back_off_initial);
    back_off.max = Duration::from_millis(args.back_off_max);
    run::run(api, &args.node, &args.endpoint, config, back_off, stop).await
}
