//! The event stream of one subscriber: response headers arrive with the first event, and faults may
//! mute or end the stream.

use std::sync::Arc;

use futures::{StreamExt as _, stream};
use pleg_cri::v1::ContainerEventResponse;
use tokio::sync::mpsc;
use tonic::{Response, Status, codegen::BoxStream};

use crate::{
    delivery::Event, engine::Engine, error::shutting_down, knobs::Value, lists::check_size,
};

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
    let Some(first) = subscription.next().await? else {
        return Ok(empty_stream());
    };
    let rest = stream::unfold(subscription, |mut subscription| async move {
        let next = subscription.next().await.ok()??;
        Some((next, subscription))
    });
    let limit = engine.profile.message_limit;
    let all = stream::iter([first]).chain(rest).map(move |event| {
        check_size(&*event, limit)?;
        Ok(ContainerEventResponse::clone(&event))
    });
    Ok(Response::new(all.boxed()))
}

/// A stream that ends immediately with OK.
pub(crate) fn empty_stream<T: Send + 'static>() -> Response<BoxStream<T>> {
    Response::new(stream::empty().boxed())
}

impl Subscription {
    /// The next event. `None` if the stream ends with OK: with CRI-O's process, or due to a fault.
    async fn next(&mut self) -> Result<Option<Event>, Status> {
        let injector = &self.engine.injector;
        loop {
            let ends = |value: Value| value.number().filter(|n| self.delivered >= *n);
            if injector.value("stream.end_after", ends).is_some() {
                return Ok(None);
            }
            let event = self.events.recv().await;
            if event.is_none() && !self.engine.profile.is_crio {
                return Err(shutting_down());
            }
            self.mute = self.mute || (event.is_some() && injector.is_on("stream.mute"));
            if event.is_none() || !self.mute {
                self.delivered += 1;
                return Ok(event);
            }
        }
    }
}
