//! Runs the stream reader alone: it subscribes, hands over what it receives, and reconnects after the stream breaks.
//!
//! ```console
//! $ cargo run -p pleg-evented --example stream
//! ```

#![allow(clippy::print_stdout, reason = "an example")]

use std::sync::Arc;

use pleg_evented::{ReconnectPolicy, ReconnectSettings, handover, run};
use pleg_runtime::core::{EventType, StreamChange};
use pleg_runtime::fake::FakeRuntime;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = FakeRuntime::new();
    runtime.run_pod("web");
    let (sender, hints) = handover();
    let shutdown = CancellationToken::new();
    let reader = tokio::spawn(run(
        Arc::new(runtime.clone()),
        runtime.clock(),
        ReconnectPolicy::new(ReconnectSettings::default())?,
        sender,
        Arc::new(Notify::new()),
        shutdown.clone(),
    ));

    let mut subscribes = 0;
    let mut delivered = 0;
    while delivered < 2 {
        hints.wait().await;
        let batch = hints.take();
        for change in batch.changes {
            match change {
                StreamChange::Subscribed { .. } => {
                    subscribes += 1;
                    println!("subscribed");
                    runtime.emit(EventType::Started, "web-c");
                }
                StreamChange::Ended { why, .. } => println!("ended: {why}"),
            }
        }
        for id in batch.hints.into_keys() {
            println!("hint of {id}");
            delivered += 1;
            if subscribes == 1 {
                runtime.break_streams();
            }
        }
    }
    shutdown.cancel();
    reader.await?;
    Ok(())
}
