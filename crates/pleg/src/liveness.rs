//! The liveness probe: asks the runtime for its version now and then, as a sign of life.

use std::sync::Arc;
use std::time::Duration;

use pleg_runtime::Runtime;
use pleg_runtime::clock::Clock;
use tokio_util::sync::CancellationToken;

use crate::callers::Command;
use crate::sync::mpsc;

/// How long an answer may take.
const DEADLINE: Duration = Duration::from_secs(2);

/// Asks `every` so often until it is told to stop, and tells the writer of each answer: after an
/// outage a list runs at once.
pub(crate) async fn probe<R: Runtime>(
    runtime: Arc<R>,
    clock: Clock,
    every: Duration,
    commands: mpsc::Sender<Command>,
    stop: CancellationToken,
) {
    let probing = async {
        loop {
            clock.sleep_until(clock.now().after(every)).await;
            let answer = tokio::time::timeout(DEADLINE, runtime.version()).await;
            if matches!(answer, Ok(Ok(_))) && commands.send(Command::Alive).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = probing => {}
    }
}
