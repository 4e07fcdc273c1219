//! Upstream's event receiver: it puts every event into a queue, and waits while the queue is full.

use futures::StreamExt;
use pleg_core::RuntimeEvent;
use pleg_runtime::Runtime;
use tokio::sync::mpsc;

/// How often the generator subscribes in total (eventedPlegMaxStreamRetries).
pub(crate) const MAX_ATTEMPTS: u32 = 5;
/// The capacity of the queue of received events.
pub(crate) const QUEUE_CAPACITY: usize = 1000;

/// Receives events until the stream ends. Upstream treats an end with OK like an error.
pub(crate) async fn receive<R: Runtime>(runtime: &R, received: &mpsc::Sender<RuntimeEvent>) {
    let Ok(mut stream) = runtime.subscribe().await else {
        return;
    };
    while let Some(Ok(event)) = stream.next().await {
        // While this waits, the stream is not read.
        if received.send(event).await.is_err() {
            return;
        }
    }
}
