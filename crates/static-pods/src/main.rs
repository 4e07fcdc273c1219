//! A standalone kubelet that runs static pods on a container runtime.
//!
//! It connects the parts of `pleg-kubelet`, and is an example of how to use them: `kubelet` is the worker of a pod,
//! `server` shows the pods and the node.
//!
//! ```text
//! static_pods --endpoint unix:///run/containerd/containerd.sock --manifests /etc/pods
//! ```
//!
//! `static_pods` removes pods whose manifest is gone. Pods that were not made from its manifests are left alone.
mod server;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Parser, ValueEnum};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use pleg::Pleg;
use pleg::core::Mode;
use pleg_kubelet::backoff::BackOffSettings;
use pleg_kubelet::cri_config::NodeConfig;
use pleg_kubelet::worker::PodWorkers;
use serde_json::json;
use static_pods::admission::NodeFacts;
use static_pods::credentials::DOCKER_CONFIG;
use static_pods::manifest::ManifestSource;
use static_pods::node_status::NodeStatus;
use static_pods::process::{block_on, init_log, stop_signal};
use tokio::net::TcpListener;

use static_pods::kubelet::{Kubelet, print};

/// The period at which the directory of manifests is read.
const MANIFEST_PERIOD: Duration = Duration::from_secs(1);
/// After SIGINT or SIGTERM, runs of pod workers that are in progress have this much time before they are aborted.
const DRAIN: Duration = Duration::from_secs(3);
/// Histogram buckets in seconds: Prometheus' defaults and smaller ones, as handling an event takes less than 1 ms.
const BUCKETS: [f64; 17] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 60.0,
];

/// Runs static pods on a container runtime.
#[derive(Debug, Parser)]
struct Args {
    /// The socket of the container runtime.
    #[arg(long, default_value = "unix:///run/containerd/containerd.sock")]
    endpoint: String,
    /// The directory of the manifests: v1.Pod as YAML or JSON.
    #[arg(long)]
    manifests: PathBuf,
    /// Refuse manifests with fields that the API does not have, instead of ignoring these fields with a warning.
    #[arg(long)]
    strict_fields: bool,
    /// The address at which to serve /healthz, /readyz, /metrics, /pods and /node.
    #[arg(long, default_value = "127.0.0.1:10255")]
    listen: SocketAddr,
    /// The way in which changes of containers are detected.
    #[arg(long, value_enum, default_value = "auto")]
    mode: ModeArg,
    /// The directory of logs and volumes.
    #[arg(long, default_value = "/var/lib/static-pods")]
    root: PathBuf,
    /// The docker config file with the credentials for image pulls.
    #[arg(long, default_value = DOCKER_CONFIG)]
    docker_config: PathBuf,
    /// The cgroup below which the runtime puts the pods. With SystemdCgroup, a slice such as system.slice.
    #[arg(long, default_value = "")]
    cgroup_parent: String,
    /// The name of the node, a suffix of the pods' names.
    #[arg(long, default_value = "node")]
    node: String,
    /// The address of the node.
    #[arg(long, default_value = "127.0.0.1")]
    node_ip: IpAddr,
    /// A label of the node, as KEY=VALUE, for node selectors.
    #[arg(long, value_parser = label)]
    node_label: Vec<(String, String)>,
    /// A sysctl that pods may set although it is not safe; a `*` at the end matches any text.
    #[arg(long)]
    allowed_unsafe_sysctl: Vec<String>,
    /// The first back-off delay of a restart, such as 10s.
    #[arg(long, value_parser = duration, default_value = "10s")]
    back_off_initial: Duration,
    /// The greatest back-off delay of a restart.
    #[arg(long, value_parser = duration, default_value = "300s")]
    back_off_max: Duration,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ModeArg {
    /// The runtime's events and rare lists; lists alone while a subscription may harm the runtime.
    Auto,
    /// Lists alone.
    Polling,
}

/// Parses a duration: a number with the unit `ms` or `s`.
fn duration(text: &str) -> Result<Duration, String> {
    let parsed = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(number), _) => number.parse().map(Duration::from_millis),
        (None, Some(number)) => number.parse().map(Duration::from_secs),
        (None, None) => return Err("add a unit: ms or s".to_owned()),
    };
    parsed.map_err(|error| error.to_string())
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

fn main() -> anyhow::Result<()> {
    block_on(run(Args::parse()))
}

/// The configuration of the node, the resources that the node offers to pods, and the back-off delays.
fn settings(args: &Args) -> (NodeConfig, NodeFacts, BackOffSettings) {
    let mut back_off = BackOffSettings::default();
    back_off.initial = args.back_off_initial;
    back_off.max = args.back_off_max;
    let mut config = NodeConfig::of_host(&args.root, vec![args.node_ip]);
    config.cgroup_parent.clone_from(&args.cgroup_parent);
    let mut facts = NodeFacts::new(&args.node, &config);
    facts.labels.extend(args.node_label.iter().cloned());
    facts.unsafe_sysctls.clone_from(&args.allowed_unsafe_sysctl);
    (config, facts, back_off)
}

async fn run(args: Args) -> anyhow::Result<()> {
    init_log()?;
    let mut stop = std::pin::pin!(stop_signal()?);
    let durations = Matcher::Suffix("_seconds".to_owned());
    let metrics = PrometheusBuilder::new()
        .set_buckets_for_metric(durations, &BUCKETS)?
        .install_recorder()?;
    pleg_cri::describe_metrics();
    let listener = TcpListener::bind(args.listen)
        .await
        .with_context(|| format!("cannot listen on {}", args.listen))?;
    let address = listener.local_addr()?.to_string();
    print(&json!({"event": "listening", "address": address}));
    let (builder, client) = Pleg::connect(&args.endpoint)?;
    let mut builder = builder.mode(match args.mode {
        ModeArg::Auto => Mode::Auto,
        ModeArg::Polling => Mode::Polling,
    });
    // The consumer is registered before the generator starts, so that the consumer misses no exit.
    let consumer = builder.register_consumer("static_pods");
    let pleg = builder.spawn()?;
    let node = NodeStatus::new(&args.node, pleg.clone(), client.clone());
    let (config, facts, back_off) = settings(&args);
    let of_pleg = pleg.clone();
    let kubelet = Kubelet::new(of_pleg, client, node, consumer, config, facts, back_off)?;
    let kubelet = Arc::new(kubelet.docker_config(args.docker_config));
    let (directory, period) = (args.manifests, MANIFEST_PERIOD);
    let mut source = ManifestSource::new(directory, &args.node, period, pleg.clock());
    source.strict_fields = args.strict_fields;
    let first = async {
        kubelet.node.wait_for_runtime().await;
        pleg.wait_until_synced().await?;
        source.set_running(kubelet.running());
        // The workers terminate pods without a manifest, so they are started only after the directory was read.
        let specs = source.wait().await;
        print(&json!({"event": "synced"}));
        tokio::task::block_in_place(|| kubelet.adopt(&specs));
        anyhow::Ok(specs)
    };
    tokio::spawn(server::serve(listener, kubelet.clone(), metrics));
    let specs = tokio::select! {
        specs = first => specs?,
        () = &mut stop => return Ok(()),
    };
    let workers = PodWorkers::spawn(pleg.clone(), kubelet.clone(), specs);
    tokio::select! {
        () = &mut stop => {}
        ((), ()) = async { tokio::join!(kubelet.node.watch(), source.watch(&workers, |uid| kubelet.will_delete(uid))) } => {}
        () = workers.ended() => anyhow::bail!("the pod workers have ended"),
    }
    workers.shutdown(pleg.now().after(DRAIN)).await;
    pleg.shutdown().await;
    Ok(())
}
