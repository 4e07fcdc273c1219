//! Lower bounds: the cost to receive and decode, and nothing else.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bytes::{Buf as _, BufMut as _, Bytes};
use hdrhistogram::Histogram;
use http::uri::PathAndQuery;
use pleg_cri::v1::{self, ContainerEventType as EventType};
use pleg_runtime::clock::{Clock, wall};
use pleg_runtime::{Runtime as _, Scope};
use prost::Message;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Endpoint;
use tonic::{Request, Status, Streaming};

use super::Settings;
use super::control::{measure_relists, reached, record, used, values};
use crate::AllocationCounter;
use crate::protocol::{Recorded, SubjectAnswer, SubjectOrder, orders, reply};

/// Most subjects here never run in the executable that counts allocations.
const NOT_COUNTED: AllocationCounter = || None;

/// Receives events, decodes them, records their latency, drops them.
pub(super) async fn drain(settings: &Settings) -> Result<()> {
    let mut client = settings.runtime()?.runtime_client();
    let mut drained = Drained::subscribe(&mut client).await?;
    let mut orders = orders::<SubjectOrder>();
    reply(&SubjectAnswer::Ready)?;
    loop {
        let order = tokio::select! {
            order = orders.recv() => match order {
                Some(order) => order?,
                None => return Ok(()),
            },
            taken = drained.take() => { taken?; continue }
        };
        reply(&match order {
            SubjectOrder::Sync { .. } => SubjectAnswer::Synced { synced: true },
            SubjectOrder::Use => used(NOT_COUNTED),
            SubjectOrder::Record | SubjectOrder::Discard => {
                drained.reset()?;
                used(NOT_COUNTED)
            }
            SubjectOrder::Recorded => SubjectAnswer::Recorded(Recorded {
                end_to_end: values(&drained.latencies),
                ..Recorded::default()
            }),
            SubjectOrder::Await { events, .. } => {
                reply(&used(NOT_COUNTED))?;
                while drained.count < events {
                    drained.take().await?;
                }
                reached(Some(wall().as_nanos()))
            }
            SubjectOrder::Compare { .. } => SubjectAnswer::Compared { lost: 0, ghosts: 0 },
            other => bail!("this subject does not support {other:?}"),
        })?;
    }
}

struct Drained {
    stream: Streaming<v1::ContainerEventResponse>,
    count: u64,
    latencies: Histogram<u64>,
}

impl Drained {
    async fn subscribe(
        client: &mut v1::runtime_service_client::RuntimeServiceClient<tonic::transport::Channel>,
    ) -> Result<Self> {
        let stream = client
            .get_container_events(v1::GetEventsRequest {})
            .await?
            .into_inner();
        let latencies = Histogram::new(3)?;
        Ok(Self {
            stream,
            count: 0,
            latencies,
        })
    }

    fn reset(&mut self) -> Result<()> {
        self.count = 0;
        self.latencies = Histogram::new(3)?;
        Ok(())
    }

    /// Receives one event. Cancel safe.
    async fn take(&mut self) -> Result<()> {
        let event = self
            .stream
            .message()
            .await?
            .context("the event stream ended")?;
        self.count += 1;
        // The same events whose latency is recorded for generators.
        let of_container = event
            .containers_statuses
            .iter()
            .any(|c| c.id == event.container_id);
        let kind = event.container_event_type();
        if of_container
            && matches!(
                kind,
                EventType::ContainerStartedEvent | EventType::ContainerStoppedEvent
            )
        {
            let ago = wall().as_nanos() - event.created_at;
            record(&mut self.latencies, u64::try_from(ago).unwrap_or(0).max(1));
        }
        Ok(())
    }
}

/// Decodes the bytes of both lists, as often as ordered.
pub(super) async fn decode(settings: &Settings) -> Result<()> {
    let mut orders = orders::<SubjectOrder>();
    let sandboxes = fetch(settings, "/runtime.v1.RuntimeService/ListPodSandbox").await?;
    let containers = fetch(settings, "/runtime.v1.RuntimeService/ListContainers").await?;
    let both = async || -> Result<()> {
        drop(v1::ListPodSandboxResponse::decode(sandboxes.clone())?);
        drop(v1::ListContainersResponse::decode(containers.clone())?);
        Ok(())
    };
    reply(&SubjectAnswer::Ready)?;
    while let Some(order) = orders.recv().await {
        reply(&match order? {
            SubjectOrder::Sync { .. } => SubjectAnswer::Synced { synced: true },
            SubjectOrder::Use => used(NOT_COUNTED),
            SubjectOrder::Relist { count } => measure_relists(count, NOT_COUNTED, &both).await?,
            other => bail!("this subject does not support {other:?}"),
        })?;
    }
    Ok(())
}

/// Keeps the decoded statuses of all pods, like a cache of plain messages.
pub(super) async fn statuses(settings: &Settings, allocated: AllocationCounter) -> Result<()> {
    let mut client = settings.runtime()?.runtime_client();
    let mut orders = orders::<SubjectOrder>();
    let (mut sandboxes, mut containers) = (Vec::new(), Vec::new());
    reply(&SubjectAnswer::Ready)?;
    while let Some(order) = orders.recv().await {
        reply(&match order? {
            SubjectOrder::Sync { .. } => {
                let list = client.list_pod_sandbox(v1::ListPodSandboxRequest { filter: None });
                for row in list.await?.into_inner().items {
                    let request = v1::PodSandboxStatusRequest {
                        pod_sandbox_id: row.id,
                        verbose: false,
                    };
                    sandboxes.push(client.pod_sandbox_status(request).await?.into_inner());
                }
                let list = client.list_containers(v1::ListContainersRequest { filter: None });
                for row in list.await?.into_inner().containers {
                    let request = v1::ContainerStatusRequest {
                        container_id: row.id,
                        verbose: false,
                    };
                    containers.push(client.container_status(request).await?.into_inner());
                }
                sandboxes.shrink_to_fit();
                containers.shrink_to_fit();
                SubjectAnswer::Synced { synced: true }
            }
            SubjectOrder::Use => used(allocated),
            other => bail!("this subject does not support {other:?}"),
        })?;
    }
    Ok(())
}

/// Makes the calls of an idle node: a status every 15 seconds, and both lists with every fourth status.
/// A generator that keeps this project's limits cannot use less.
pub(super) async fn call(settings: &Settings) -> Result<()> {
    let runtime = settings.runtime()?;
    let mut client = runtime.runtime_client();
    let list = client.list_containers(v1::ListContainersRequest { filter: None });
    let first = list.await?.into_inner().containers.into_iter().next();
    let id = first.context("the node has no container")?.id.into();
    let clock = Clock::start();
    let mut orders = orders::<SubjectOrder>();
    reply(&SubjectAnswer::Ready)?;
    let mut due = clock.now();
    for round in 0_u32.. {
        if round.is_multiple_of(4) {
            let mut drop_row = |_: Bytes| Ok(());
            let node = Scope::Node;
            runtime.encoded_sandboxes(&node, &mut drop_row).await?;
            runtime.encoded_containers(&node, &mut drop_row).await?;
        }
        drop(runtime.container_status(&id).await?);
        due = due.after(Duration::from_secs(15));
        loop {
            let order = tokio::select! {
                order = orders.recv() => order,
                () = clock.sleep_until(due) => break,
            };
            let Some(order) = order else {
                return Ok(());
            };
            reply(&match order? {
                SubjectOrder::Sync { .. } => SubjectAnswer::Synced { synced: true },
                SubjectOrder::Use => used(NOT_COUNTED),
                other => bail!("this subject does not support {other:?}"),
            })?;
        }
    }
    Ok(())
}

/// Returns the encoded answer to a call.
async fn fetch(settings: &Settings, path: &'static str) -> Result<Bytes> {
    let endpoint = Endpoint::try_from(format!("unix://{}", settings.socket.display()))?;
    let mut grpc =
        tonic::client::Grpc::new(endpoint.connect().await?).max_decoding_message_size(1 << 30);
    grpc.ready().await?;
    let path = PathAndQuery::from_static(path);
    Ok(grpc
        .unary(Request::new(Bytes::new()), path, Undecoded)
        .await?
        .into_inner())
}

/// Messages as bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Undecoded;

impl Codec for Undecoded {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Undecoded {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put(item);
        Ok(())
    }
}

impl Decoder for Undecoded {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(message.copy_to_bytes(message.remaining())))
    }
}
