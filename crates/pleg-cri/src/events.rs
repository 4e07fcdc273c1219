//! The event stream of one subscription: decodes and hands over. It makes no other call.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::Stream;
use futures::future::BoxFuture;
use pleg_runtime::clock::Clock;
use pleg_runtime::core::{CallError, RuntimeEvent};
use prost::bytes::Buf as _;
use tonic::client::Grpc;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstEncoder;

use crate::decode::EventDecoder;
use crate::error::call_error;
use crate::metrics::{Measured, Operation};
use crate::v1;

/// The events of a runtime, from when this is first polled, on a connection of its own.
///
/// Ends with `None` when the runtime ends it in good order, and after an error. Dropping it ends
/// the call.
pub struct Events(State);

enum State {
    /// The call, issued when it is polled for the first time. It stays pending until the first
    /// event, for hours if need be (quirk `headers come with the first event`).
    Opening(BoxFuture<'static, Result<Open, CallError>>),
    Open(Box<Open>),
    Over,
}

struct Open {
    /// Events that name nothing come as `None`.
    stream: Streaming<Option<RuntimeEvent>>,
    measured: Measured,
}

impl Events {
    pub(crate) fn new(channel: Channel, message_limit: usize, clock: Clock) -> Self {
        Self(State::Opening(Box::pin(async move {
            let mut measured = Measured::begin(Operation::EVENTS, clock);
            // A stream that its reader drops has not failed.
            measured.failed = false;
            match call(channel, message_limit).await {
                Ok(response) => Ok(Open {
                    stream: response.into_inner(),
                    measured,
                }),
                Err(status) => Err(failed(&mut measured, &status)),
            }
        })))
    }
}

/// The generated client's call, with a codec of our own.
async fn call(
    channel: Channel,
    message_limit: usize,
) -> Result<tonic::Response<Streaming<Option<RuntimeEvent>>>, Status> {
    let mut client = Grpc::new(channel).max_decoding_message_size(message_limit);
    let ready = client.ready().await;
    ready.map_err(|error| Status::unknown(format!("Service was not ready: {error}")))?;
    let method = PathAndQuery::from_static("/runtime.v1.RuntimeService/GetContainerEvents");
    let request = Request::new(v1::GetEventsRequest {});
    client.server_streaming(request, method, EventCodec).await
}

/// Takes events to pieces where they lie in the transport's buffer.
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
        let whole = message.chunk();
        let event = if whole.len() == length {
            let event = self.read(whole);
            message.advance(length);
            event
        } else {
            self.read(&message.copy_to_bytes(length))
        };
        // As tonic's own decoder says it.
        event
            .map(Some)
            .map_err(|error| Status::internal(error.to_string()))
    }
}

fn failed(measured: &mut Measured, status: &Status) -> CallError {
    measured.failed = true;
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
                    Some(Err(status)) => Some(Err(failed(&mut open.measured, &status))),
                    None => None,
                },
                State::Over => None,
            };
            self.0 = State::Over;
            return Poll::Ready(end);
        }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}
