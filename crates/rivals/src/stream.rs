//! Upstream's event receiver: it puts every event into a queue, and waits while the queue is full.

use futures::StreamExt;
use pleg_core::{CallError, RuntimeEvent};
use pleg_runtime::Runtime;
use tokio::sync::mpsc;

/// How often the generator subscribes in total (eventedPlegMaxStreamRetries).
pub(crate) const MAX_ATTEMPTS: u32 = 5;
/// The capacity of the queue of received events.
pub(crate) const QUEUE_CAPACITY: usize = 1000;

/// Receives events until the stream ends. Returns the error, or `None` if the stream ended with OK,
/// which upstream treats as an error, too.
pub(crate) async fn receive<R: Runtime>(
    runtime: &R,
    received: &mpsc::Sender<RuntimeEvent>,
) -> Option<CallError> {
    let mut stream = match runtime.subscribe().await {
        Ok(stream) => stream,
        Err(error) => return Some(error),
    };
    while let Some(item) = stream.next().await {
        match item {
            // While this waits, the stream is not drained.
            Ok(event) => received.send(event).await.ok()?,
            Err(error) => return Some(error),
        }
    }
    None
}
