//! `pleg agent`: serves metrics, liveness and readiness until it is stopped.

use std::convert::Infallible;
use std::fmt::Write;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use pleg::HealthWatch;
use pleg::core::{NotReady, Settings};
use tokio::net::TcpListener;

use crate::args::AgentArgs;
use crate::connect::{IfNotFound, Target, notice};
use crate::signals::Signal;

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
    let target = Target::choose(&args.connection.runtime, IfNotFound::Wait).await?;
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
    let builder = target.builder(args.connection.mode, settings)?;
    let listener = TcpListener::bind(args.listen)
        .await
        .with_context(|| format!("cannot listen on {}", args.listen))?;
    let pleg = builder.spawn()?;
    notice(&format!(
        "watching {}; http://{} serves /metrics, /healthz and /readyz",
        target.endpoint,
        listener.local_addr()?
    ));
    let state = ServerState {
        health: pleg.health(),
        metrics: metrics.clone(),
    };
    let router = Router::new()
        .route("/metrics", get(show_metrics))
        .route("/healthz", get(alive))
        .route("/readyz", get(ready))
        .with_state(state);
    let signal = tokio::select! {
        signal = signal => signal,
        result = axum::serve(listener, router) => {
            result?;
            anyhow::bail!("the HTTP server has stopped");
        }
        never = run_upkeep(&metrics) => match never {},
    };
    pleg.shutdown().await;
    target.close().await;
    Ok(signal)
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

#[derive(Clone)]
struct ServerState {
    health: HealthWatch,
    metrics: PrometheusHandle,
}

async fn show_metrics(State(state): State<ServerState>) -> impl IntoResponse {
    let headers = [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (headers, state.metrics.render())
}

/// Liveness: no work is overdue. A runtime that does not respond is no reason to restart the agent.
async fn alive(State(state): State<ServerState>) -> (StatusCode, String) {
    match state.health.ready() {
        Err(reason @ NotReady::Stalled { .. }) => {
            let body = format!("not alive: {reason}\n");
            (StatusCode::SERVICE_UNAVAILABLE, body)
        }
        _ => (StatusCode::OK, "ok\n".to_owned()),
    }
}

/// Readiness: the pods of the node are known. The body lists degraded reasons, which do not change
/// the result.
async fn ready(State(state): State<ServerState>) -> (StatusCode, String) {
    let (code, mut body) = match state.health.ready() {
        Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
        Err(reason) => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("not ready: {reason}\n"),
        ),
    };
    for degraded in state.health.degraded() {
        // Writing to a string does not fail.
        let _ = writeln!(body, "degraded: {degraded}");
    }
    (code, body)
}
