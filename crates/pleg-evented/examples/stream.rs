//! The stream side alone: it subscribes, hands over what it observes, and subscribes again after the stream
//! breaks.
//!
//! ```console
//! $ cargo run -p pleg-evented --example stream
//! ```

#![allow(clippy::print_stdout, reason = "an example")]

use std::sync::Arc;

use pleg_evented::{ReconnectPolicy, ReconnectSettings, handover, run};
use pleg_runtime::core::{EventType, StreamChange, StreamObservation};
use pleg_runtime::fake::FakeRuntime;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = FakeRuntime::new();
    runtime.run_pod("web");
    let (sender, mut observations) = handover(16);
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
    while let Some(observation) = observations.recv().await {
        match observation {
            StreamObservation::Change(StreamChange::Subscribed { .. }) => {
                subscribes += 1;
                println!("subscribed");
                runtime.emit(EventType::Started, "web-c");
            }
            StreamObservation::Change(StreamChange::Ended { why, .. }) => println!("ended: {why}"),
            StreamObservation::Event(arrival) => {
                println!("{:?} of {}", arrival.event.event, arrival.event.id);
                if subscribes == 2 {
                    break;
                }
                runtime.break_streams();
            }
        }
    }
    shutdown.cancel();
    reader.await?;
    Ok(())
}
