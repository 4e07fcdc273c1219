//! Tests that all calls together buffer a bounded number of response bytes at once.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _, join_all};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use pleg_cri::{CriRuntime, v1};
use pleg_runtime::Runtime;
use pleg_runtime::core::Id;
use prost::Message as _;
use prost::bytes::{BufMut, Bytes, BytesMut};
use tokio::sync::Barrier;

use crate::common::TestServer;

const CALLS: usize = 8;
const RESPONSE: usize = 4 << 20;
const CHUNK: usize = 16 << 10;

/// The number of bytes sent by the server to calls that are not complete.
#[derive(Debug, Default)]
struct Outstanding {
    bytes: AtomicUsize,
    most: AtomicUsize,
}

/// A response of `RESPONSE` bytes and trailers. The server sends its first byte when all calls have arrived.
struct Response {
    all_arrived: Option<BoxFuture<'static, ()>>,
    chunks: VecDeque<Bytes>,
    outstanding: Arc<Outstanding>,
    ended: bool,
}

impl Body for Response {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(all_arrived) = &mut self.all_arrived {
            if all_arrived.poll_unpin(cx).is_pending() {
                return Poll::Pending;
            }
            self.all_arrived = None;
        }
        if let Some(chunk) = self.chunks.pop_front() {
            let outstanding = &self.outstanding;
            let now = outstanding.bytes.fetch_add(chunk.len(), Ordering::Relaxed) + chunk.len();
            outstanding.most.fetch_max(now, Ordering::Relaxed);
            return Poll::Ready(Some(Ok(Frame::data(chunk))));
        }
        if std::mem::replace(&mut self.ended, true) {
            return Poll::Ready(None);
        }
        let mut trailers = hyper::HeaderMap::new();
        trailers.insert("grpc-status", hyper::header::HeaderValue::from_static("0"));
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }
}

/// The status of a container with a long message, as gRPC sends it.
fn status() -> Bytes {
    let status = v1::ContainerStatus {
        id: "c".into(),
        message: "x".repeat(RESPONSE),
        ..Default::default()
    };
    let response = v1::ContainerStatusResponse {
        status: Some(status),
        ..Default::default()
    };
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(response.encoded_len()).unwrap());
    response.encode(&mut bytes).unwrap();
    bytes.freeze()
}

fn serve(outstanding: Arc<Outstanding>) -> TestServer {
    let barrier = Arc::new(Barrier::new(CALLS));
    let status = status();
    TestServer::start(move |listener| async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (barrier, status, outstanding) =
                (barrier.clone(), status.clone(), outstanding.clone());
            let service = hyper::service::service_fn(move |_: hyper::Request<Incoming>| {
                let barrier = barrier.clone();
                let all_arrived = async move {
                    barrier.wait().await;
                };
                let body = Response {
                    all_arrived: Some(all_arrived.boxed()),
                    chunks: (0..status.len())
                        .step_by(CHUNK)
                        .map(|at| status.slice(at..status.len().min(at + CHUNK)))
                        .collect(),
                    outstanding: outstanding.clone(),
                    ended: false,
                };
                let response = hyper::Response::builder()
                    .header("content-type", "application/grpc")
                    .body(body);
                async move { response }
            });
            let http2 = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .max_send_buf_size(CHUNK)
                .serve_connection(TokioIo::new(stream), service);
            tokio::spawn(http2);
        }
    })
}

/// Makes all calls at once. Returns the largest number of bytes that the server had sent to incomplete calls.
async fn most_outstanding(budget: usize) -> usize {
    let outstanding = Arc::new(Outstanding::default());
    let server = serve(outstanding.clone());
    let config = server
        .config()
        .with_receive_budget(budget)
        .with_call_deadline(Duration::from_secs(60));
    let runtime = CriRuntime::new(config).unwrap();
    let calls = (0..CALLS).map(|_| async {
        let id = Id::from("c");
        let status = runtime.container_status(&id).await;
        outstanding.bytes.fetch_sub(RESPONSE, Ordering::Relaxed);
        status
    });
    for status in join_all(calls).await {
        assert_eq!(status.expect("the call succeeds").id.as_str(), "c");
    }
    outstanding.most.load(Ordering::Relaxed)
}

#[tokio::test]
async fn responses_beyond_the_receive_budget_wait_for_other_responses() {
    let unlimited = most_outstanding(1 << 30).await;
    assert!(unlimited > 4 * RESPONSE, "{unlimited} bytes");
    // At most the budget, the one response that may exceed it, and per call a flow-control window and a send buffer.
    let limited = most_outstanding(2 << 20).await;
    assert!(
        limited < (2 << 20) + RESPONSE + CALLS * (256 << 10),
        "{limited} bytes"
    );
}
