//! Lists the node once, then reads a pod with a status call that fails.
//!
//! ```console
//! $ cargo run -p pleg-generic --example list
//! ```

#![allow(clippy::print_stdout, reason = "an example")]

use std::sync::Arc;
use std::time::Duration;

use pleg_generic::{Progress, Reader};
use pleg_runtime::clock::Clock;
use pleg_runtime::core::{CallErrorKind, KnownIds, Ticket};
use pleg_runtime::fake::{FakeRuntime, Op};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = FakeRuntime::new();
    runtime.run_pod("web");
    runtime.fail(Op::status("web-c"), CallErrorKind::Unavailable);
    let reader = Reader::new(Arc::new(runtime), Clock::start());
    let deadline = Duration::from_secs(5);

    let list = reader
        .list(Ticket::from(1), deadline, KnownIds::default())
        .await;
    let took = list.ended.since(list.began);
    println!("a list took {took:?}; complete: {}", list.rows.is_ok());

    // Lists one pod, then reads the statuses of its ids. If one status call fails, the others are still returned.
    let progress = Progress::default();
    let pod = "web".into();
    let rows = reader
        .list_pod(Ticket::from(2), &pod, deadline, &progress)
        .await
        .rows?;
    let ids = rows.into_iter().map(|row| (row.id, row.identity.kind));
    let statuses = reader
        .statuses(Ticket::from(3), ids.collect(), deadline, &progress)
        .await;
    println!("{statuses:#?}");
    Ok(())
}
