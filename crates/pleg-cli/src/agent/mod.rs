//! `pleg agent`: serves metrics, liveness and readiness until it is stopped.

mod checks;
mod live;
mod metrics;
mod pages;
mod service;

use std::convert::Infallible;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use futures::future::OptionFuture;
use hyper::body::{Bytes, Frame};
use parking_lot::Mutex;
use pleg::core::{Health, Instant, NotReady, Settings, WallTime};
use pleg::runtime::clock::Clock;
use pleg::{HealthWatch, PodProblem};
use serde_json::{Value, json};
use tokio::signal::unix::{self, Signal, SignalKind};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::Outcome;
use crate::args::AgentArgs;
use crate::connect::Target;
use crate::http::{self, Access, Handler, Listen, Reply};
use crate::log::notice;
use crate::observer::Observer;
use crate::picture::Picture;
use crate::picture::facts::Collector;
use crate::picture::finding::{Layer, Severity};
use crate::picture::runtime::Problem;
use crate::record::Pod;
use crate::text::{clip, lasting, lower, more, safe, safe_lines, seconds};
use crate::view::{Query, View, difference, with_moments};
use metrics::Metrics;
use pages::{Pages, Rendered, alive};
use service::Manager;

pub(crate) async fn run(args: AgentArgs, signal: impl Future<Output = ExitCode>) -> Outcome {
    let metrics = Metrics::install(args.kubelet_names)?;
    let access = Access::load(&args.access, &args.listen)?;
    let target = Target::choose_or_wait(&args.connection.runtime)?;
    let settings = settings(&args)?;
    let listener = args.listen.bind().await?;
    let probes = OptionFuture::from(args.health_listen.as_ref().map(Listen::bind));
    let probes = probes.await.transpose()?;
    let (pleg, subscription) = target.spawn(args.connection.events, settings)?;
    let url = listener.url(access.tls.as_ref().map_or("http", |_| "https"))?;
    let pages = "/metrics, /healthz, /readyz and /debug/events, and a page at /";
    let runtime = &target.runtime;
    notice(&format!("watching {runtime}; {url} serves {pages}"));
    if let Some(probes) = &probes {
        let url = probes.url("http")?;
        notice(&format!("{url} serves /healthz and /readyz"));
    }
    // Handle SIGHUP before READY is sent: unhandled, it would end the process.
    let hangup = unix::signal(SignalKind::hangup())?;
    let manager = Manager::from_environment();
    manager.send("READY=1");
    let is_open_to_host = matches!(args.listen, Listen::Tcp(_)) && !access.is_restricted();
    let (reloaded, access) = watch::channel(Arc::new(access));
    let observer = Observer::new(&target, &pleg);
    let collector = Collector::new(&target, &pleg)?;
    let pages = Arc::new(Pages {
        metrics: metrics.clone(),
        rendered: Rendered::default(),
        observer: observer.clone(),
        live_clients: Arc::new(Semaphore::new(live::CLIENTS)),
        is_open_to_host,
    });
    let probed = pages.clone();
    let handler: Handler = Arc::new(move |request, allowed| pages.reply(request, allowed));
    let probed: Handler = Arc::new(move |request, _| probed.probe(request));
    let without_tokens = watch::channel(Arc::default()).1;
    let probes = probes.map(|probes| http::serve(probes, without_tokens, probed));
    let code = tokio::select! {
        code = signal => code,
        never = http::serve(listener, access, handler) => match never {},
        Some(never) = OptionFuture::from(probes) => match never {},
        never = metrics.run_upkeep() => match never {},
        never = observer.run(subscription, collector) => match never {},
        never = manager.run(&observer) => match never {},
        never = reload(&args, &reloaded, hangup) => match never {},
    };
    manager.send("STOPPING=1\nSTATUS=stopping");
    pleg.shutdown().await;
    target.close().await;
    Ok(code)
}

/// The settings of the generator. An error names the key of the configuration file.
pub(crate) fn settings(args: &AgentArgs) -> anyhow::Result<Settings> {
    let mut settings = Settings::default();
    settings.relist_period = args.relist_period;
    settings.relist_period_max = args.relist_period_max;
    // No flag sets `relist_period_unproven`: limit its default to the range `relist_period` to `relist_period_max`.
    let unproven = settings.relist_period_unproven.min(args.relist_period_max);
    settings.relist_period_unproven = unproven.max(args.relist_period);
    settings.unready_after = args.unready_after;
    settings.probe_period = args.probe_period;
    settings.validate().map_err(|invalid| {
        let [key, rule] = [invalid.setting, invalid.rule].map(|text| text.replace('_', "-"));
        anyhow!("{key} is {}: {rule}", invalid.given)
    })?;
    Ok(settings)
}

/// Reads tokens and certificates again on SIGHUP. If that fails, the previous tokens and certificates stay in use.
async fn reload(
    args: &AgentArgs,
    access: &watch::Sender<Arc<Access>>,
    mut hangup: Signal,
) -> Infallible {
    while hangup.recv().await.is_some() {
        match Access::load(&args.access, &args.listen) {
            Ok(loaded) => {
                access.send_replace(Arc::new(loaded));
                tracing::info!("SIGHUP: read the token and the certificates again");
            }
            Err(error) => {
                tracing::error!("SIGHUP: {error:#}; the old token and certificates stay in use");
            }
        }
    }
    std::future::pending().await
}

const TUNABLES: &str = "GLIBC_TUNABLES";
/// Keeps glibc's mmap threshold constant: otherwise, glibc raises it to the size of each larger block that is freed.
const MMAP_THRESHOLD: &str = "glibc.malloc.mmap_threshold=131072";
/// Set when this program starts itself again, to do that only once: glibc may remove [`TUNABLES`] from the environment.
const STARTED_AGAIN: &str = "PLEG_STARTED_AGAIN";

/// Executes this program again in the same process with [`MMAP_THRESHOLD`], which glibc reads only at the start, so
/// that glibc returns the memory of large responses. Does nothing without glibc, or if the user has set [`TUNABLES`].
pub(crate) fn return_freed_memory() {
    let is_configured = [TUNABLES, STARTED_AGAIN].map(|name| std::env::var_os(name).is_some());
    if !cfg!(target_env = "gnu") || is_configured != [false; 2] {
        return;
    }
    let mut args = std::env::args_os();
    if let (Ok(program), Some(name)) = (std::env::current_exe(), args.next()) {
        let mut command = std::process::Command::new(program);
        command.arg0(name).args(args).env(STARTED_AGAIN, "1");
        let error = command.env(TUNABLES, MMAP_THRESHOLD).exec();
        tracing::debug!("cannot configure the allocator: {error}");
    }
}
