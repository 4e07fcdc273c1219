//! The event stream of one subscription. It only decodes events and makes no other call.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::Stream;
use futures::future::BoxFuture;
use pleg_runtime::clock::Clock;
use pleg_runtime::core::{CallError, RuntimeEvent};
use prost::bytes::Buf as _;
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstEncoder;
use tower::BoxError;
use tracing::Instrument as _;

use crate::decode::EventDecoder;
use crate::error::call_error;
use crate::metrics::{Measurement, Operation};
use crate::v1;

/// The event stream of a runtime, on a separate connection. The call starts with the first poll.
///
/// Returns `None` after the runtime has ended the stream with OK, and after an error. Dropping the
/// stream cancels the call.
pub struct Events(State);

enum State {
    /// The call. It starts with the first poll and stays pending until the first event, which may
    /// take hours (quirk `headers with the first event`).
    Opening(BoxFuture<'static, Result<Open, CallError>>),
    Open(Box<Open>),
    Ended,
}

struct Open {
    /// An event without an id is `None`.
    stream: Streaming<Option<RuntimeEvent>>,
    measurement: Measurement,
}

impl Events {
    pub(crate) fn new<S>(service: S, message_limit: usize, clock: Clock) -> Self
    where
        S: GrpcService<Body, ResponseBody = Body, Future: Send> + Send + 'static,
    {
        let span = tracing::debug_span!("cri", operation = Operation::EVENTS.name);
        let opening = async move {
            let mut measurement = Measurement::begin(Operation::EVENTS, clock);
            // A stream that its reader drops has not failed.
            measurement.failed = false;
            match call(service, message_limit).await {
                Ok(response) => Ok(Open {
                    stream: response.into_inner(),
                    measurement,
                }),
                Err(status) => Err(failed(&mut measurement, &status)),
            }
        };
        Self(State::Opening(Box::pin(opening.instrument(span))))
    }
}

/// Makes the same call as the generated client, but with [`EventCodec`].
async fn call<S: GrpcService<Body, ResponseBody = Body>>(
    service: S,
    message_limit: usize,
) -> Result<tonic::Response<Streaming<Option<RuntimeEvent>>>, Status> {
    let mut client = Grpc::new(service).max_decoding_message_size(message_limit);
    let ready = client.ready().await;
    ready.map_err(|error| {
        let error: BoxError = error.into();
        Status::unknown(format!("Service was not ready: {error}"))
    })?;
    let method = PathAndQuery::from_static("/runtime.v1.RuntimeService/GetContainerEvents");
    let request = Request::new(v1::GetEventsRequest {});
    client.server_streaming(request, method, EventCodec).await
}

/// Decodes events in the transport's buffer, without copying the message.
struct EventCodec;

impl Codec for EventCodec {
    type Encode = v1::GetEventsRequest;
    type Decode = Option<RuntimeEvent>;
    type Encoder = ProstEncoder<v1::GetEventsRequest>;
    type Decoder = EventDecoder;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::new(BufferSettings::default())
    }

    fn decoder(&mut self) -> Self::Decoder {
        EventDecoder::new()
    }
}

impl Decoder for EventDecoder {
    type Item = Option<RuntimeEvent>;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Self::Item>, Status> {
        let length = message.remaining();
        let chunk = message.chunk();
        let event = if chunk.len() == length {
            let event = self.read(chunk);
            message.advance(length);
            event
        } else {
            self.read(&message.copy_to_bytes(length))
        };
        // The same status as from tonic's own decoder.
        event
            .map(Some)
            .map_err(|error| Status::internal(error.to_string()))
    }
}

fn failed(measurement: &mut Measurement, status: &Status) -> CallError {
    measurement.failed = true;
    call_error(Operation::EVENTS, status)
}

impl Stream for Events {
    type Item = Result<RuntimeEvent, CallError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let end = match &mut self.0 {
                State::Opening(call) => match ready!(call.as_mut().poll(cx)) {
                    Ok(open) => {
                        self.0 = State::Open(Box::new(open));
                        continue;
                    }
                    Err(error) => Some(Err(error)),
                },
                State::Open(open) => match ready!(Pin::new(&mut open.stream).poll_next(cx)) {
                    Some(Ok(Some(event))) => return Poll::Ready(Some(Ok(event))),
                    Some(Ok(None)) => continue,
                    Some(Err(status)) => Some(Err(failed(&mut open.measurement, &status))),
                    None => None,
                },
                State::Ended => None,
            };
            self.0 = State::Ended;
            return Poll::Ready(end);
        }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}
