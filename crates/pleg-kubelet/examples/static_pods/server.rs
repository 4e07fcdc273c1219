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

use crate::kubelet::Kubelet;
use crate::node::Node;

#[derive(Clone)]
pub(crate) struct Served {
    pub(crate) kubelet: Arc<Kubelet>,
    pub(crate) node: Arc<Node>,
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
    match served.node.pleg().health().ready() {
        Err(reason @ NotReady::Stalled { .. }) => failed(&reason.to_string()),
        _ => (StatusCode::OK, "ok\n".to_owned()),
    }
}

/// Whether the node is ready.
async fn ready(State(served): State<Served>) -> (StatusCode, String) {
    let conditions = served.node.conditions();
    match conditions.into_iter().find(|c| c.status != "True") {
        Some(condition) => failed(&condition.message.unwrap_or_default()),
        None => (StatusCode::OK, "ok\n".to_owned()),
    }
}

fn failed(reason: &str) -> (StatusCode, String) {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n"))
}

async fn metrics(State(served): State<Served>) -> impl IntoResponse {
    served.metrics.run_upkeep();
    let headers = [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (headers, served.metrics.render())
}

async fn pods(State(served): State<Served>) -> Json<Value> {
    let items = served.kubelet.pods();
    Json(json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": items}))
}

async fn node(State(served): State<Served>) -> Json<Value> {
    Json(json!({"conditions": served.node.conditions()}))
}
