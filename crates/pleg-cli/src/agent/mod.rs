//! `pleg agent`: serves metrics, liveness and readiness until it is stopped.

use std::convert::Infallible;
use std::fmt::Write;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Method, Request, Response, StatusCode};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use pleg::HealthWatch;
use pleg::core::{NotReady, Settings};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::args::AgentArgs;
use crate::connect::{Target, notice};
use crate::http::{self, Access, Handler, Listener, Reply};
use crate::limits;
use crate::signals::Signal;
use crate::stream::Reason;

/// The period of the metrics recorder's upkeep, which aggregates the histograms.
const UPKEEP_PERIOD: Duration = Duration::from_secs(5);
/// Prometheus' default buckets, as in the kubelet, and smaller ones: an event takes less than a
/// millisecond.
const BUCKETS: [f64; 17] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 60.0,
];

pub(crate) async fn run(
    args: AgentArgs,
    signal: impl Future<Output = Signal>,
) -> anyhow::Result<Signal> {
    let metrics = install_metrics()?;
    let descriptors = limits::raise_open_files();
    let access = Access::load(&args.access, &args.listen)?;
    let target = Target::choose_or_wait(&args.connection.runtime).await?;
    let (builder, no_stream) = target.builder(args.connection.events, settings(&args))?;
    let listener = args.listen.bind().await;
    let listener = listener.with_context(|| format!("cannot listen on {}", args.listen))?;
    let pleg = builder.spawn()?;
    announce(&target, &listener, &access)?;
    let (reload, access) = watch::channel(Arc::new(access));
    let pages = Pages {
        health: pleg.health(),
        metrics: metrics.clone(),
        no_stream,
    };
    let handler: Handler = Arc::new(move |request, allowed| pages.reply(request, allowed));
    let signal = tokio::select! {
        signal = signal => signal,
        never = http::serve(listener, access, handler, descriptors) => match never {},
        never = run_upkeep(&metrics) => match never {},
        failed = reload_on_hangup(&args, &reload) => match failed? {},
    };
    pleg.shutdown().await;
    target.close().await;
    Ok(signal)
}

fn settings(args: &AgentArgs) -> Settings {
    let mut settings = Settings::default();
    settings.relist_period = args.relist_period;
    settings.relist_period_max = args.relist_period_max;
    // Keep the default within the other two periods. If these are invalid, the validation of the
    // settings reports it.
    settings.relist_period_unproven = settings
        .relist_period_unproven
        .min(args.relist_period_max)
        .max(args.relist_period);
    settings.unready_after = args.unready_after;
    settings.probe_period = args.probe_period;
    settings
}

fn announce(target: &Target, listener: &Listener, access: &Access) -> io::Result<()> {
    let address = listener.address()?;
    let url = if matches!(address, http::Listen::Unix(_)) {
        address.to_string()
    } else {
        format!("{}://{address}", access.scheme())
    };
    notice(&format!(
        "watching {target}; {url} serves /metrics, /healthz and /readyz"
    ));
    Ok(())
}

/// Reads the token and the certificates again on SIGHUP. If that fails, the last ones stay in use.
async fn reload_on_hangup(
    args: &AgentArgs,
    access: &watch::Sender<Arc<Access>>,
) -> io::Result<Infallible> {
    let mut hangup = signal(SignalKind::hangup())?;
    while hangup.recv().await.is_some() {
        match Access::load(&args.access, &args.listen) {
            Ok(loaded) => {
                access.send_replace(Arc::new(loaded));
                tracing::info!("SIGHUP: read the token and the certificates again");
            }
            Err(error) => {
                tracing::error!("SIGHUP: {error:#}; the last token and certificates stay in use");
            }
        }
    }
    std::future::pending().await
}

pub(crate) fn install_metrics() -> anyhow::Result<PrometheusHandle> {
    let seconds = Matcher::Suffix("_seconds".to_owned());
    let metrics = PrometheusBuilder::new()
        .set_buckets_for_metric(seconds, &BUCKETS)?
        .install_recorder()
        .context("cannot install the metrics recorder")?;
    pleg_cri::describe_metrics();
    Ok(metrics)
}

async fn run_upkeep(metrics: &PrometheusHandle) -> Infallible {
    let mut interval = tokio::time::interval(UPKEEP_PERIOD);
    loop {
        interval.tick().await;
        metrics.run_upkeep();
    }
}

/// What the agent serves.
struct Pages {
    health: HealthWatch,
    metrics: PrometheusHandle,
    no_stream: Reason,
}

impl Pages {
    /// A client without the token gets the status of `/healthz` and `/readyz`, for the probes of a
    /// kubelet, and nothing else.
    fn reply(&self, request: &Request<Incoming>, allowed: bool) -> Reply {
        let (code, body) = match (request.uri().path(), allowed) {
            _ if !matches!(*request.method(), Method::GET | Method::HEAD) => {
                let mut reply = text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
                let methods = HeaderValue::from_static("GET, HEAD");
                reply.headers_mut().insert(ALLOW, methods);
                return reply;
            }
            ("/healthz", _) => self.alive(),
            ("/readyz", true) => self.ready(),
            ("/readyz", false) => match self.health.ready() {
                Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
                Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "not ready\n".to_owned()),
            },
            (_, false) => {
                let mut reply = text(StatusCode::UNAUTHORIZED, "unauthorized\n");
                let scheme = HeaderValue::from_static("Bearer");
                reply.headers_mut().insert(WWW_AUTHENTICATE, scheme);
                return reply;
            }
            ("/metrics", true) => {
                let mut reply = text(StatusCode::OK, self.metrics.render());
                let format = "text/plain; version=0.0.4; charset=utf-8";
                let format = HeaderValue::from_static(format);
                reply.headers_mut().insert(CONTENT_TYPE, format);
                return reply;
            }
            _ => (StatusCode::NOT_FOUND, "not found\n".to_owned()),
        };
        text(code, body)
    }

    /// Liveness: no work is overdue. A runtime that does not respond is no reason to restart the agent.
    fn alive(&self) -> (StatusCode, String) {
        match self.health.ready() {
            Err(reason @ NotReady::Stalled { .. }) => {
                let body = format!("not alive: {reason}\n");
                (StatusCode::SERVICE_UNAVAILABLE, body)
            }
            _ => (StatusCode::OK, "ok\n".to_owned()),
        }
    }

    /// Readiness: the pods of the node are known. The body lists degraded reasons, which do not change
    /// the result.
    fn ready(&self) -> (StatusCode, String) {
        let (code, mut body) = match self.health.ready() {
            Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
            Err(reason) => (
                StatusCode::SERVICE_UNAVAILABLE,
                format!("not ready ({}): {reason}\n", reason.as_str()),
            ),
        };
        // Writing to a string does not fail.
        for degraded in self.health.degraded() {
            let _ = writeln!(body, "degraded ({}): {degraded}", degraded.as_str());
        }
        if let Some(reason) = &*self.no_stream.borrow() {
            let _ = writeln!(body, "polling: {reason}");
        }
        (code, body)
    }
}

fn text(code: StatusCode, body: impl Into<String>) -> Reply {
    let mut reply = Response::new(body.into().into());
    *reply.status_mut() = code;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    reply.headers_mut().insert(CONTENT_TYPE, plain);
    reply
}
