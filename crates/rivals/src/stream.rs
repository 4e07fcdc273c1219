//! How upstream receives: one call, and every message into a queue, waiting where it is full.

use futures::StreamExt;
use pleg_core::{CallError, RuntimeEvent};
use pleg_runtime::Runtime;
use tokio::sync::mpsc;

/// How often the call is made in all (eventedPlegMaxStreamRetries).
pub(crate) const ATTEMPTS: u32 = 5;
/// How many received events wait for the one who handles them.
pub(crate) const RECEIVED: usize = 1000;

/// Receives until the stream is over. That it ended in good order is an error, too; `None` stands
/// for it.
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
            // While this waits, nobody drains the stream.
            Ok(event) => received.send(event).await.ok()?,
            Err(error) => return Some(error),
        }
    }
    None
}
