//! The event stream of one subscriber: response headers arrive with the first event, and faults may
//! mute or end the stream.

use std::sync::Arc;

use futures::{Stream, StreamExt as _, stream};
use pleg_cri::v1::ContainerEventResponse;
use prost::Message as _;
use tokio::sync::mpsc;
use tonic::{Response, Status, codegen::BoxStream};

use crate::{delivery::Event, engine::Engine, error::CallError, fault_profile::Value, lists};

/// One subscription. The runtime notices that it was dropped when it sends the next event.
struct Subscription {
    engine: Arc<Engine>,
    events: mpsc::Receiver<Event>,
    delivered: usize,
    /// It delivers nothing from now on.
    mute: bool,
}

/// Subscribes, and returns with the first event.
pub(crate) async fn subscribe(
    engine: &Arc<Engine>,
) -> Result<Response<BoxStream<ContainerEventResponse>>, Status> {
    let (out, events) = mpsc::channel(1);
    let process = engine.process();
    // A separate task, which outlives the client: a disconnect must not be noticed at once.
    engine
        .tasks
        .spawn(async move { process.delivery.serve(out).await });
    let mut subscription = Subscription {
        engine: Arc::clone(engine),
        events,
        delivered: 0,
        mute: false,
    };
    match subscription.next().await {
        Next::Event(first) => {
            let all = stream::iter([first]).chain(subscription.rest());
            let limit = engine.profile.message_limit;
            Ok(Response::new(
                all.map(move |event| send(&event, limit)).boxed(),
            ))
        }
        Next::End => Ok(empty_stream()),
        Next::ProcessEnded if engine.profile.is_crio => Ok(empty_stream()),
        Next::ProcessEnded => Err(CallError::ShuttingDown.into()),
    }
}

/// A stream that ends immediately with OK.
pub(crate) fn empty_stream<T: Send + 'static>() -> Response<BoxStream<T>> {
    Response::new(stream::empty().boxed())
}

enum Next {
    Event(Event),
    /// A fault ends the stream.
    End,
    ProcessEnded,
}

impl Subscription {
    async fn next(&mut self) -> Next {
        loop {
            let ends = |value: Value| value.number().filter(|n| self.delivered >= *n);
            if self
                .engine
                .injector
                .value("stream.end_after", ends)
                .is_some()
            {
                return Next::End;
            }
            let Some(event) = self.events.recv().await else {
                return Next::ProcessEnded;
            };
            self.mute = self.mute || self.engine.injector.is_on("stream.mute");
            if !self.mute {
                self.delivered += 1;
                return Next::Event(event);
            }
        }
    }

    fn rest(self) -> impl Stream<Item = Event> {
        stream::unfold(self, |mut subscription| async move {
            match subscription.next().await {
                Next::Event(event) => Some((event, subscription)),
                Next::End | Next::ProcessEnded => None,
            }
        })
    }
}

/// Enforces the runtime's message limit.
fn send(event: &Event, limit: usize) -> Result<ContainerEventResponse, Status> {
    let size = event.encoded_len();
    if size > limit {
        return Err(lists::too_large(size, limit));
    }
    Ok(ContainerEventResponse::clone(event))
}
