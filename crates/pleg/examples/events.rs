//! Prints the lifecycle events of a node, each with the number of containers of its pod.
//!
//! ```console
//! $ cargo run -p pleg --example events -- unix:///run/containerd/containerd.sock
//! ```
//!
//! An optional second argument is the number of events after which the example exits.

#![allow(clippy::print_stdout, reason = "an example")]

use pleg::{Delivery, Pleg};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let endpoint = args.next().ok_or("the endpoint is missing")?;
    let mut left: u64 = args.next().map_or(Ok(u64::MAX), |count| count.parse())?;

    let (mut builder, _client) = Pleg::connect(&endpoint)?;
    let mut events = builder.subscribe();
    let pleg = builder.spawn()?;
    while left > 0 {
        match events.next().await {
            Some(Delivery::Event(event)) => {
                // The cache shows it already.
                let status = pleg.get(&event.uid).status;
                let containers = status.containers.len();
                println!(
                    "{} {}: {containers} containers",
                    event.event, event.pod_name
                );
                left -= 1;
            }
            Some(Delivery::Synced) => println!("what existed at the start was announced"),
            Some(Delivery::Lagged { .. }) => println!("{} pods exist", pleg.snapshot().len()),
            Some(_) => {}
            None => break,
        }
    }
    if let Err(reason) = pleg.health().ready() {
        println!("not ready: {reason}");
    }
    pleg.shutdown().await;
    Ok(())
}
