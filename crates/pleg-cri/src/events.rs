//! The event stream of one subscription. Decodes events, and makes no call except `GetContainerEvents`.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::Stream;
use futures::future::BoxFuture;
use pleg_runtime::clock::Clock;
use pleg_runtime::core::{CallError, RuntimeEvent};
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;
use tower::BoxError;
use tracing::Instrument as _;

use crate::config::CriConfig;
use crate::convert::{self, EncodedEvent};
use crate::error::call_error;
use crate::metrics::{Measurement, Operation};
use crate::v1;

const METHOD: &str = "/runtime.v1.RuntimeService/GetContainerEvents";

/// The event stream of a runtime, on a separate connection. The call `GetContainerEvents` starts with the first poll.
///
/// Returns `None` after the runtime has ended the stream with OK, and after an error. Dropping the
/// stream cancels the call.
pub struct Events(State);

enum State {
    /// The call `GetContainerEvents`. It starts with the first poll and stays pending until the first event, which may
    /// take hours (quirk `headers with the first event`).
    Opening(BoxFuture<'static, Result<Open, CallError>>),
    Open(Box<Open>),
    Ended,
}

struct Open {
    stream: Streaming<EncodedEvent>,
    whole: bool,
    measurement: Measurement,
}

impl Events {
    pub(crate) fn new<S>(service: S, config: &CriConfig, clock: Clock) -> Self
    where
        S: GrpcService<Body, ResponseBody = Body, Error: Into<BoxError>, Future: Send>,
        S: Send + 'static,
    {
        let (limit, whole) = (config.message_limit, config.whole_events);
        let mut client = Grpc::new(service).max_decoding_message_size(limit);
        let span = tracing::debug_span!("cri", operation = Operation::EVENTS.name);
        let opening = async move {
            let mut measurement = Measurement::begin(Operation::EVENTS, clock);
            // A stream that its reader drops does not count as failed in the metrics.
            measurement.failed = false;
            let call = async {
                let not_ready = |error: S::Error| {
                    Status::unknown(format!("Service was not ready: {}", error.into()))
                };
                client.ready().await.map_err(not_ready)?;
                let request = Request::new(v1::GetEventsRequest {});
                let codec = ProstCodec::<_, EncodedEvent>::default();
                client
                    .server_streaming(request, PathAndQuery::from_static(METHOD), codec)
                    .await
            };
            match call.await {
                Ok(response) => Ok(Open {
                    stream: response.into_inner(),
                    whole,
                    measurement,
                }),
                Err(status) => Err(failed(&mut measurement, &status)),
            }
        };
        Self(State::Opening(Box::pin(opening.instrument(span))))
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
                    Some(Ok(event)) => match convert::event(event, open.whole) {
                        Ok(Some(event)) => return Poll::Ready(Some(Ok(event))),
                        // Skips an event without an id.
                        Ok(None) => continue,
                        Err(error) => {
                            let status = Status::internal(error.to_string());
                            Some(Err(failed(&mut open.measurement, &status)))
                        }
                    },
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
