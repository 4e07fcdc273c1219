//! Answers CRI calls. Reads get encoded messages of the node; the other calls, from pod workers, change the node.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use pleg_cri::v1;
use prost::Message;
use tokio::sync::mpsc;
use tonic::Code;

use super::encoded::{HEAD, framed};
use super::node::{Change, List, Node};
use super::{Shared, lock};
use crate::typical::{Container, Pod};

/// The capacity of a subscriber's queue of events. If the queue is full, the runtime waits, as in containerd 2.
const CHANNEL: usize = 100;

/// The label that kubelets filter by.
const POD_UID: &str = "io.kubernetes.pod.uid";

const METHODS: [&str; 13] = [
    "GetContainerEvents",
    "Version",
    "ListPodSandbox",
    "ListContainers",
    "PodSandboxStatus",
    "ContainerStatus",
    "RunPodSandbox",
    "StopPodSandbox",
    "RemovePodSandbox",
    "CreateContainer",
    "StartContainer",
    "StopContainer",
    "RemoveContainer",
];

/// Answers any request.
pub(super) async fn answer(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let path = request.uri().path().to_owned();
    let collected = request.into_body().collect().await;
    let message = collected.ok().map(http_body_util::Collected::to_bytes);
    let answered = match message.filter(|message| message.len() >= HEAD) {
        Some(message) => call(&shared, &path, message.slice(HEAD..)).await,
        None => Err(Code::InvalidArgument),
    };
    let (body, code) = match answered {
        Ok(body) => (body, None),
        Err(code) => (Body::Empty, Some(code as i32)),
    };
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert("content-type", HeaderValue::from_static("application/grpc"));
    if let Some(code) = code {
        headers.insert("grpc-status", code.into());
    }
    Ok(response)
}

async fn call(shared: &Shared, path: &str, message: Bytes) -> Result<Body, Code> {
    let name = path.strip_prefix("/runtime.v1.RuntimeService/");
    let method = METHODS.into_iter().find(|m| Some(*m) == name);
    let method = method.ok_or(Code::Unimplemented)?;
    *lock(&shared.calls).entry(method).or_default() += 1;
    if method == "GetContainerEvents" {
        let (send, events) = mpsc::channel(CHANNEL);
        lock(&shared.subscribers).push(send);
        return Ok(Body::Events(events));
    }
    let call_ms = shared.call_ms.load(Ordering::Relaxed);
    if call_ms > 0 {
        shared.delay(Duration::from_millis(call_ms)).await;
    }
    if let Some(answer) = read(&mut lock(&shared.node), method, &message)? {
        return Ok(Body::Message(answer));
    }
    let now = shared.clock.wall().as_nanos();
    let written = write(&mut lock(&shared.node), method, &message, now)?;
    // Like containerd, send the events of a change before the call returns.
    for event in written.events {
        shared.publish(event).await;
    }
    Ok(Body::Message(framed(&written.response)))
}

fn decode<M: Message + Default>(message: &[u8]) -> Result<M, Code> {
    M::decode(message).map_err(|_| Code::InvalidArgument)
}

/// The id in a request about one sandbox or container. In all these requests it is the first field.
fn id(message: &[u8]) -> Result<String, Code> {
    Ok(decode::<v1::StartContainerRequest>(message)?.container_id)
}

/// Answers a read call; `None` if the method is not a read.
fn read(node: &mut Node, method: &str, message: &[u8]) -> Result<Option<Bytes>, Code> {
    let version = v1::VersionResponse {
        version: "0.1.0".into(),
        runtime_name: "bench".into(),
        runtime_version: "v2.1.0".into(),
        runtime_api_version: "v1".into(),
    };
    let of_pod = |label: Option<&String>, id: &str| {
        let of = label.map_or(id, String::as_str);
        (!of.is_empty()).then(|| of.to_owned())
    };
    Ok(Some(match method {
        "Version" => framed(&version.encode_to_vec()),
        "ListPodSandbox" => {
            let request: v1::ListPodSandboxRequest = decode(message)?;
            let filter = request.filter.unwrap_or_default();
            match of_pod(filter.label_selector.get(POD_UID), &filter.id) {
                Some(of) => node.list_of(List::Sandboxes, &of),
                None => node.list(List::Sandboxes),
            }
        }
        "ListContainers" => {
            let request: v1::ListContainersRequest = decode(message)?;
            let filter = request.filter.unwrap_or_default();
            match of_pod(filter.label_selector.get(POD_UID), &filter.pod_sandbox_id) {
                Some(of) => node.list_of(List::Containers, &of),
                None => node.list(List::Containers),
            }
        }
        "PodSandboxStatus" => status(node, List::Sandboxes, message)?,
        "ContainerStatus" => status(node, List::Containers, message)?,
        _ => return Ok(None),
    }))
}

fn status(node: &Node, list: List, message: &[u8]) -> Result<Bytes, Code> {
    node.status(list, &id(message)?).ok_or(Code::NotFound)
}

struct Written {
    response: Vec<u8>,
    events: Vec<Bytes>,
}

/// Executes a call that changes the node.
fn write(node: &mut Node, method: &str, message: &[u8], now: i64) -> Result<Written, Code> {
    let new = node.random.id();
    let (number, response, changes) = match method {
        "RunPodSandbox" => {
            let request: v1::RunPodSandboxRequest = decode(message)?;
            let metadata = request.config.and_then(|config| config.metadata);
            let metadata = metadata.ok_or(Code::InvalidArgument)?;
            let number = node.pods().last().map_or(0, |(number, _)| number + 1);
            let pod = Box::new(Pod {
                uid: metadata.uid,
                name: metadata.name,
                ip: "10.128.255.1".to_owned(),
                sandbox: new.clone(),
                ready: true,
                created_at: now,
                containers: Vec::new(),
            });
            let pod_sandbox_id = new;
            let response = v1::RunPodSandboxResponse { pod_sandbox_id };
            let changes = vec![Change::AddPod(pod), Change::StartSandbox];
            (number, response.encode_to_vec(), changes)
        }
        "CreateContainer" => {
            let request: v1::CreateContainerRequest = decode(message)?;
            let number = node.pod_of(&request.pod_sandbox_id);
            let metadata = request.config.and_then(|config| config.metadata);
            let metadata = metadata.ok_or(Code::InvalidArgument)?;
            let container = Container {
                created_at: now,
                ..Container::created(new.clone(), &metadata.name, metadata.attempt)
            };
            let response = v1::CreateContainerResponse { container_id: new };
            let changes = vec![Change::AddContainer(container)];
            let number = number.ok_or(Code::NotFound)?;
            (number, response.encode_to_vec(), changes)
        }
        _ => {
            let id = id(message)?;
            let number = node.pod_of(&id).ok_or(Code::NotFound)?;
            let change = match method {
                "StartContainer" => Change::Start(id),
                "StopContainer" => Change::Stop(id, 0),
                "RemoveContainer" => Change::Remove(id),
                "StopPodSandbox" => Change::StopSandbox,
                _ => Change::RemovePod,
            };
            // The responses have no fields.
            (number, Vec::new(), vec![change])
        }
    };
    let changes = changes.into_iter();
    let events = changes.filter_map(|change| node.change(number, change, now));
    Ok(Written {
        events: events.collect(),
        response,
    })
}

/// The body of an answer.
pub(super) enum Body {
    /// A framed message, then trailers.
    Message(Bytes),
    /// Events, until the channel closes.
    Events(mpsc::Receiver<Bytes>),
    Trailers,
    Empty,
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = match &mut *self {
            Self::Message(message) => {
                let message = std::mem::take(message);
                *self = Self::Trailers;
                Some(message)
            }
            Self::Events(events) => ready!(events.poll_recv(cx)),
            Self::Trailers => None,
            Self::Empty => return Poll::Ready(None),
        };
        let trailers = || {
            *self = Self::Empty;
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", HeaderValue::from_static("0"));
            Frame::trailers(trailers)
        };
        Poll::Ready(Some(Ok(next.map_or_else(trailers, Frame::data))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Empty)
    }
}
