//! One call: looks up the answer in the table and sends its encoded bytes.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use pleg_cri::v1;
use prost::Message;
use tokio::sync::mpsc;
use tonic::Code;

use super::{Shared, StreamReset, call_faults, lock, write};
use crate::node::table::{self, Frames, ListKind};
use crate::node::{Page, Table};
use crate::wire;

/// The number of events that are queued for one subscriber before the sender waits or drops events.
const CHANNEL: usize = 100;
const DROPPING_CHANNEL: usize = 1000;

/// Answers any request.
pub(super) async fn answer(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let path = request.uri().path().to_owned();
    let collected = request
        .into_body()
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes);
    let message = collected
        .ok()
        .and_then(|b| (b.len() >= wire::HEAD).then(|| b.slice(wire::HEAD..)));
    let answered = match message {
        Some(message) => call(&shared, &path, message).await,
        None => Err(Code::InvalidArgument),
    };
    Ok(response(answered))
}

async fn call(shared: &Arc<Shared>, path: &str, message: Bytes) -> Result<Body, Code> {
    let method = READS
        .into_iter()
        .chain(write::METHODS)
        .find(|m| path.strip_prefix("/runtime.v1.RuntimeService/") == Some(m))
        .ok_or(Code::Unimplemented)?;
    let streams = matches!(method, "StreamPodSandboxes" | "StreamContainers");
    if streams && shared.page.is_none() {
        return Err(Code::Unimplemented);
    }
    *lock(&shared.calls).entry(method).or_default() += 1;
    if method == EVENTS {
        let room = if shared.dropping {
            DROPPING_CHANNEL
        } else {
            CHANNEL
        };
        let (send, events) = mpsc::channel(room);
        lock(&shared.subscribers).push(send);
        return Ok(Body::Events(events));
    }
    if !shared.latency.is_zero() {
        let at = shared.clock.now().after(shared.latency);
        shared.clock.sleep_until(at).await;
    }
    call_faults::delay_call(shared, method, &message).await;
    if write::METHODS.contains(&method) {
        let frames = write::write(shared, method, message).await?;
        return Ok(Body::Frames(frames.into()));
    }
    let page = match shared.page {
        Some(rows) if streams => Page::Of(rows),
        _ => Page::Whole,
    };
    let frames = look_up(&mut lock(&shared.table), method, message, page)?;
    Ok(Body::Frames(frames.into()))
}

const EVENTS: &str = "GetContainerEvents";
const READS: [&str; 8] = [
    EVENTS,
    "Version",
    "ListPodSandbox",
    "ListContainers",
    "StreamPodSandboxes",
    "StreamContainers",
    "PodSandboxStatus",
    "ContainerStatus",
];

pub(super) fn decode<M: Message + Default>(message: Bytes) -> Result<M, Code> {
    M::decode(message).map_err(|_| Code::InvalidArgument)
}

/// The label that kubelets filter by.
const POD_UID: &str = "io.kubernetes.pod.uid";

fn look_up(table: &mut Table, method: &str, message: Bytes, page: Page) -> Result<Frames, Code> {
    Ok(match method {
        "Version" => table::version(),
        // The requests of a list and of its streaming variant have the same fields.
        "ListPodSandbox" | "StreamPodSandboxes" => {
            let filter = decode::<v1::ListPodSandboxRequest>(message)?
                .filter
                .unwrap_or_default();
            match filter
                .label_selector
                .get(POD_UID)
                .or_else(|| some(&filter.id))
            {
                Some(of) => table.list_of(ListKind::Sandboxes, of),
                None => table.list(ListKind::Sandboxes, page),
            }
        }
        "ListContainers" | "StreamContainers" => {
            let filter = decode::<v1::ListContainersRequest>(message)?
                .filter
                .unwrap_or_default();
            match filter
                .label_selector
                .get(POD_UID)
                .or_else(|| some(&filter.pod_sandbox_id))
            {
                Some(of) => table.list_of(ListKind::Containers, of),
                None => table.list(ListKind::Containers, page),
            }
        }
        "PodSandboxStatus" => {
            let id = decode::<v1::PodSandboxStatusRequest>(message)?.pod_sandbox_id;
            table.sandbox_status(&id).ok_or(Code::NotFound)?
        }
        "ContainerStatus" => {
            let id = decode::<v1::ContainerStatusRequest>(message)?.container_id;
            table.container_status(&id).ok_or(Code::NotFound)?
        }
        _ => return Err(Code::Unimplemented),
    })
}

fn some(id: &String) -> Option<&String> {
    (!id.is_empty()).then_some(id)
}

fn response(answered: Result<Body, Code>) -> Response<Body> {
    let (body, code) = match answered {
        Ok(body) => (body, None),
        Err(code) => (Body::Empty, Some(code)),
    };
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert("content-type", HeaderValue::from_static("application/grpc"));
    if let Some(code) = code {
        headers.insert("grpc-status", HeaderValue::from(code as i32));
    }
    response
}

/// The body of an answer.
#[derive(Debug)]
pub(super) enum Body {
    /// Framed messages, then trailers.
    Frames(VecDeque<Bytes>),
    /// Events, until the channel closes.
    Events(mpsc::Receiver<Result<Bytes, StreamReset>>),
    /// No more frames.
    Empty,
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = StreamReset;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StreamReset>>> {
        let next = match &mut *self {
            Self::Frames(frames) => frames.pop_front().map(Ok),
            Self::Events(events) => ready!(events.poll_recv(cx)),
            Self::Empty => return Poll::Ready(None),
        };
        let frame = match next {
            Some(Ok(message)) => Ok(Frame::data(message)),
            Some(Err(reset)) => Err(reset),
            None => {
                *self = Self::Empty;
                let mut trailers = HeaderMap::new();
                trailers.insert("grpc-status", HeaderValue::from_static("0"));
                Ok(Frame::trailers(trailers))
            }
        };
        Poll::Ready(Some(frame))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Empty)
    }
}
