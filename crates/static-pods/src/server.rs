//! The HTTP server for health, metrics, pods and the node.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

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
use tokio::sync::Semaphore;

use static_pods::kubelet::Kubelet;

/// The maximum number of open connections.
const MAX_CONNECTIONS: usize = 64;
/// The time limit of a connection.
const DEADLINE: Duration = Duration::from_secs(30);
/// The longest wait for a new connection before the server compacts the metrics.
const UPKEEP: Duration = Duration::from_secs(5);
/// The pause after an attempt to accept a connection failed.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

struct Served {
    kubelet: Arc<Kubelet>,
    metrics: PrometheusHandle,
}

pub(crate) async fn serve(listener: TcpListener, kubelet: Arc<Kubelet>, metrics: PrometheusHandle) {
    let clock = kubelet.pleg.clock();
    let served = Arc::new(Served { kubelet, metrics });
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let permit = permits.clone().acquire_owned().await;
        let accepted = tokio::time::timeout(UPKEEP, listener.accept()).await;
        // The metrics need regular upkeep: until it runs, histograms keep every sample, even if no client reads them.
        served.metrics.run_upkeep();
        let stream = match accepted {
            Err(_) => continue,
            Ok(Ok((stream, _))) => stream,
            Ok(Err(error)) => {
                // The process may be out of file descriptors, or the client may have gone. In both cases, try again.
                tracing::warn!(%error, "a connection cannot be accepted");
                clock.sleep_until(clock.now().after(ACCEPT_AGAIN)).await;
                continue;
            }
        };
        let served = served.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let response = served.respond(&request);
                async move { Ok::<_, Infallible>(response) }
            });
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).keep_alive(false);
            // Errors are ignored: the client may have gone, or may have read too slowly.
            let connection = http.serve_connection(TokioIo::new(stream), service);
            let _ = tokio::time::timeout(DEADLINE, connection).await;
            drop(permit);
        });
    }
}

impl Served {
    fn respond<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let json = |body: &Value| (StatusCode::OK, "application/json", body.to_string());
        let plain = |error: Option<String>| match error {
            None => (StatusCode::OK, "text/plain", "ok\n".to_owned()),
            Some(error) => (StatusCode::SERVICE_UNAVAILABLE, "text/plain", error + "\n"),
        };
        let (status, kind, body) = match request.uri().path() {
            // The kubelet is healthy even if the runtime does not respond: restarting the kubelet would not help.
            "/healthz" => plain(match self.kubelet.pleg.health().ready() {
                Err(reason @ NotReady::Stalled { .. }) => Some(reason.to_string()),
                _ => None,
            }),
            "/readyz" => {
                let condition = self.kubelet.node.ready();
                let is_ready = condition.status == "True";
                plain(condition.message.filter(|_| !is_ready))
            }
            "/metrics" => {
                let runtime = tokio::runtime::Handle::current().metrics();
                let tasks = runtime.num_alive_tasks() as f64;
                metrics::gauge!("static_pods_alive_tasks").set(tasks);
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
            _ => (StatusCode::NOT_FOUND, "text/plain", "not found\n".into()),
        };
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = status;
        let kind = hyper::header::HeaderValue::from_static(kind);
        response.headers_mut().insert(CONTENT_TYPE, kind);
        response
    }
}
