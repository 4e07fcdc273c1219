//! What one subscriber gets: all that it is told, with the response headers only as the first
//! event comes; or silence, or an early end, where chaos wants that.

use std::sync::Arc;

use futures::{Stream, StreamExt as _, stream};
use pleg_cri::v1::ContainerEventResponse;
use prost::Message as _;
use tokio::sync::mpsc;
use tonic::{Response, Status, codegen::BoxStream};

use crate::{delivery::Event, engine::Engine, error::Refusal, lists};

/// The client's end of a subscription. The runtime notices that it is dropped as it next sends
/// something.
struct Line {
    engine: Arc<Engine>,
    events: mpsc::Receiver<Event>,
    heard: usize,
    /// It was told to be silent, for good.
    mute: bool,
}

/// Subscribes, and returns with the first event.
pub(crate) async fn subscribe(
    engine: &Arc<Engine>,
) -> Result<Response<BoxStream<ContainerEventResponse>>, Status> {
    let (out, events) = mpsc::channel(1);
    let run = engine.run();
    // A task of its own: it must outlive the client, to go unnoticed as a dead subscriber.
    engine
        .tasks
        .spawn(async move { run.delivery.serve(out).await });
    let mut line = Line {
        engine: Arc::clone(engine),
        events,
        heard: 0,
        mute: false,
    };
    match line.next().await {
        Next::Event(first) => {
            let all = stream::iter([first]).chain(line.rest());
            let limit = engine.habits.message_limit;
            Ok(Response::new(
                all.map(move |event| send(&event, limit)).boxed(),
            ))
        }
        Next::End => Ok(ended()),
        Next::RunEnded if engine.habits.says_goodbye => Ok(ended()),
        Next::RunEnded => Err(Refusal::ShuttingDown.into()),
    }
}

/// A stream that ends at once, with OK.
pub(crate) fn ended<T: Send + 'static>() -> Response<BoxStream<T>> {
    Response::new(stream::empty().boxed())
}

enum Next {
    Event(Event),
    /// Chaos ends the stream.
    End,
    RunEnded,
}

impl Line {
    async fn next(&mut self) -> Next {
        loop {
            if self.engine.chaos.ends_after(self.heard) {
                return Next::End;
            }
            let Some(event) = self.events.recv().await else {
                return Next::RunEnded;
            };
            self.mute = self.mute || self.engine.chaos.mutes();
            if !self.mute {
                self.heard += 1;
                return Next::Event(event);
            }
        }
    }

    fn rest(self) -> impl Stream<Item = Event> {
        stream::unfold(self, |mut line| async move {
            match line.next().await {
                Next::Event(event) => Some((event, line)),
                Next::End | Next::RunEnded => None,
            }
        })
    }
}

/// As a server that has a limit for what it sends.
fn send(event: &Event, limit: usize) -> Result<ContainerEventResponse, Status> {
    let size = event.encoded_len();
    if size > limit {
        return Err(lists::too_large(size, limit));
    }
    Ok(ContainerEventResponse::clone(event))
}
