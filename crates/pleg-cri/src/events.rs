//! The event stream of one subscription: decodes, converts, hands over. It makes no other call.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::Stream;
use futures::future::BoxFuture;
use pleg_runtime::clock::Clock;
use pleg_runtime::core::{CallError, RuntimeEvent};
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use crate::convert;
use crate::error::call_error;
use crate::metrics::{Measured, Operation};
use crate::v1::{self, runtime_service_client::RuntimeServiceClient};

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
    stream: Streaming<v1::ContainerEventResponse>,
    measured: Measured,
}

impl Events {
    pub(crate) fn new(mut client: RuntimeServiceClient<Channel>, clock: Clock) -> Self {
        Self(State::Opening(Box::pin(async move {
            let mut measured = Measured::begin(Operation::EVENTS, clock);
            // A stream that its reader drops has not failed.
            measured.failed = false;
            match client.get_container_events(v1::GetEventsRequest {}).await {
                Ok(response) => Ok(Open {
                    stream: response.into_inner(),
                    measured,
                }),
                Err(status) => Err(failed(&mut measured, &status)),
            }
        })))
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
                    Some(Ok(event)) => match convert::event(event) {
                        Some(event) => return Poll::Ready(Some(Ok(event))),
                        None => continue,
                    },
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
