//! `pleg agent`: runs until it is stopped, and serves metrics, liveness and readiness.

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
use crate::connect::{Otherwise, Target, say};
use crate::signals::Signal;

/// How often the histograms are folded.
const UPKEEP: Duration = Duration::from_secs(5);
/// Prometheus' default buckets, as the kubelet has them, and finer ones below: an event takes
/// well under a millisecond.
const BUCKETS: [f64; 17] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 60.0,
];

pub(crate) async fn run(
    args: AgentArgs,
    signal: impl Future<Output = Signal>,
) -> anyhow::Result<Signal> {
    let metrics = install_metrics()?;
    let target = Target::choose(&args.connection.runtime, Otherwise::Wait).await?;
    let mut settings = Settings::default();
    settings.relist_period = args.relist_period;
    settings.relist_period_max = args.relist_period_max;
    // Between the two, as they may be given in any order: their own check tells of a wrong one.
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
    say(&format!(
        "watching {}; http://{} serves /metrics, /healthz and /readyz",
        target.endpoint,
        listener.local_addr()?
    ));
    let served = Served {
        health: pleg.health(),
        metrics: metrics.clone(),
    };
    let router = Router::new()
        .route("/metrics", get(show_metrics))
        .route("/healthz", get(alive))
        .route("/readyz", get(ready))
        .with_state(served);
    let signal = tokio::select! {
        signal = signal => signal,
        outcome = axum::serve(listener, router) => {
            outcome?;
            anyhow::bail!("the server has ended");
        }
        never = keep_up(&metrics) => match never {},
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

async fn keep_up(metrics: &PrometheusHandle) -> Infallible {
    let mut again = tokio::time::interval(UPKEEP);
    loop {
        again.tick().await;
        metrics.run_upkeep();
    }
}

#[derive(Clone)]
struct Served {
    health: HealthWatch,
    metrics: PrometheusHandle,
}

async fn show_metrics(State(served): State<Served>) -> impl IntoResponse {
    let kind = [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (kind, served.metrics.render())
}

/// Alive: no work is overdue. A runtime that does not answer is no reason to restart the agent.
async fn alive(State(served): State<Served>) -> (StatusCode, String) {
    match served.health.ready() {
        Err(why @ NotReady::Stalled { .. }) => {
            let why = format!("not alive: {why}\n");
            (StatusCode::SERVICE_UNAVAILABLE, why)
        }
        _ => (StatusCode::OK, "ok\n".to_owned()),
    }
}

/// Ready: the node's pods are known. What is degraded is told, and changes nothing.
async fn ready(State(served): State<Served>) -> (StatusCode, String) {
    let (code, mut body) = match served.health.ready() {
        Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
        Err(why) => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("not ready: {why}\n"),
        ),
    };
    for degraded in served.health.degraded() {
        // Writing to a string does not fail.
        let _ = writeln!(body, "degraded: {degraded}");
    }
    (code, body)
}
