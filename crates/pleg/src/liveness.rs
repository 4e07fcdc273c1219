//! The liveness probe: asks the runtime for its version now and then, as a sign of life.

use std::sync::Arc;
use std::time::Duration;

use pleg_core::CallErrorKind;
use pleg_runtime::Runtime;
use pleg_runtime::clock::Clock;
use tokio_util::sync::CancellationToken;

use crate::callers::Command;
use crate::sync::mpsc;

/// How long an answer may take. With a probe a second, a runtime that stands still is told of
/// within three seconds.
const DEADLINE: Duration = Duration::from_millis(1500);

/// Asks `every` so often until it is told to stop, and tells the writer of each answer, and of each
/// that did not come: after an outage a list runs at once, and a silence is told of.
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
            if commands.send(Command::Probed).await.is_err() {
                return;
            }
            let answer = tokio::time::timeout(DEADLINE, runtime.version()).await;
            let told = match answer {
                Ok(Ok(_)) => Command::Alive,
                Ok(Err(error)) if !is_silence(error.kind) => continue,
                Ok(Err(_)) | Err(_) => Command::Silent,
            };
            if commands.send(told).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = probing => {}
    }
}

/// Whoever refuses lives.
const fn is_silence(kind: CallErrorKind) -> bool {
    matches!(
        kind,
        CallErrorKind::Unavailable | CallErrorKind::DeadlineExceeded
    )
}
