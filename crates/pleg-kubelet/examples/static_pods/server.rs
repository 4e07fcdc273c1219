//! What it serves over HTTP.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use metrics_exporter_prometheus::PrometheusHandle;
use pleg::core::NotReady;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::kubelet::Kubelet;

/// How many connections are open at once.
const MAX_CONNECTIONS: usize = 64;

pub(crate) struct Served {
    pub(crate) kubelet: Arc<Kubelet>,
    pub(crate) metrics: PrometheusHandle,
}

pub(crate) async fn serve(listener: TcpListener, served: Served) -> io::Result<()> {
    let served = Arc::new(served);
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let permit = permits.clone().acquire_owned().await;
        let (stream, _) = listener.accept().await?;
        let served = served.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let response = served.respond(&request);
                async move { Ok::<_, Infallible>(response) }
            });
            let mut http = http1::Builder::new();
            // With it, a client that sends no header is cut off after 30 s.
            http.timer(TokioTimer::new()).keep_alive(false);
            // The client may have gone.
            let _ = http.serve_connection(TokioIo::new(stream), service).await;
            drop(permit);
        });
    }
}

impl Served {
    fn respond<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let json = |body: &Value| (StatusCode::OK, "application/json", body.to_string());
        let plain = |result: Result<(), String>| match result {
            Ok(()) => (StatusCode::OK, "text/plain", "ok\n".to_owned()),
            Err(error) => (StatusCode::SERVICE_UNAVAILABLE, "text/plain", error + "\n"),
        };
        let (status, kind, body) = match request.uri().path() {
            "/healthz" => plain(self.alive()),
            "/readyz" => plain(self.ready()),
            "/metrics" => {
                self.metrics.run_upkeep();
                let tasks = Handle::current().metrics().num_alive_tasks();
                metrics::gauge!("static_pods_alive_tasks").set(tasks as f64);
                let kind = "text/plain; version=0.0.4; charset=utf-8";
                (StatusCode::OK, kind, self.metrics.render())
            }
            "/pods" => {
                let items: Vec<_> = self.kubelet.pods().values().cloned().collect();
                json(&json!({
                    "apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": items,
                }))
            }
            "/node" => json(&json!({"conditions": [self.kubelet.node.ready()]})),
            _ => (
                StatusCode::NOT_FOUND,
                "text/plain",
                "not found\n".to_owned(),
            ),
        };
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = status;
        let kind = hyper::header::HeaderValue::from_static(kind);
        response.headers_mut().insert(CONTENT_TYPE, kind);
        response
    }

    /// Whether the generator works. A runtime that does not respond is no reason to restart this.
    fn alive(&self) -> Result<(), String> {
        match self.kubelet.pleg.health().ready() {
            Err(reason @ NotReady::Stalled { .. }) => Err(reason.to_string()),
            _ => Ok(()),
        }
    }

    /// Whether the node is ready.
    fn ready(&self) -> Result<(), String> {
        let condition = self.kubelet.node.ready();
        match condition.status.as_str() {
            "True" => Ok(()),
            _ => Err(condition.message.unwrap_or_default()),
        }
    }
}
