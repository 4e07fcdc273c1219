//! What it serves over HTTP.

use std::io;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use metrics_exporter_prometheus::PrometheusHandle;
use pleg::core::NotReady;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Handle;

use crate::kubelet::Kubelet;

#[derive(Clone)]
pub(crate) struct Served {
    pub(crate) kubelet: Arc<Kubelet>,
    pub(crate) metrics: PrometheusHandle,
}

pub(crate) async fn serve(listener: TcpListener, served: Served) -> io::Result<()> {
    let router = Router::new()
        .route("/healthz", get(alive))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/pods", get(pods))
        .route("/node", get(node))
        .with_state(served);
    axum::serve(listener, router).await
}

/// Whether the generator works. A runtime that does not respond is no reason to restart this.
async fn alive(State(served): State<Served>) -> (StatusCode, String) {
    match served.kubelet.pleg.health().ready() {
        Err(reason @ NotReady::Stalled { .. }) => failed(&reason.to_string()),
        _ => (StatusCode::OK, "ok\n".to_owned()),
    }
}

/// Whether the node is ready.
async fn ready(State(served): State<Served>) -> (StatusCode, String) {
    let condition = served.kubelet.node.ready();
    match condition.status.as_str() {
        "True" => (StatusCode::OK, "ok\n".to_owned()),
        _ => failed(&condition.message.unwrap_or_default()),
    }
}

fn failed(reason: &str) -> (StatusCode, String) {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n"))
}

async fn metrics(State(served): State<Served>) -> impl IntoResponse {
    served.metrics.run_upkeep();
    let tasks = Handle::current().metrics().num_alive_tasks();
    metrics::gauge!("static_pods_alive_tasks").set(tasks as f64);
    let headers = [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (headers, served.metrics.render())
}

async fn pods(State(served): State<Served>) -> Json<Value> {
    let items: Vec<_> = served.kubelet.pods().values().cloned().collect();
    Json(json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": items}))
}

async fn node(State(served): State<Served>) -> Json<Value> {
    Json(json!({"conditions": [served.kubelet.node.ready()]}))
}
