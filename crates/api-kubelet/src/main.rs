//! A kubelet for the pods that an API server assigns to this node: `api_kubelet --node n1`.

use std::io::IsTerminal as _;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use api_kubelet::run;
use clap::Parser;
use pleg_kubelet::backoff::BackOffSettings;
use pleg_kubelet::cri_config::NodeConfig;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

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
    let runtime = tokio::runtime::Runtime::new()?;
    let result = runtime.block_on(run_with(Args::parse()));
    // Hung file operations cannot be cancelled, so the process does not wait for them.
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

async fn run_with(args: Args) -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into()))
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    let stop = async {
        tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
    };
    let api = run::connect(args.server.as_deref()).await?;
    let mut config = NodeConfig::of_host(&args.root, vec![args.node_ip]);
    config.cgroup_parent = args.cgroup_parent;
    let mut back_off = BackOffSettings::default();
    back_off.initial = Duration::from_millis(args.back_off_initial);
    back_off.max = Duration::from_millis(args.back_off_max);
    run::run(api, &args.node, &args.endpoint, config, back_off, stop).await
}
