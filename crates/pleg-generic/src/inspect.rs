//! Performs the calls of an inspection, several at a time, within one deadline.
//!
//! All calls begin after the same stamp and need not wait for each other. The results are kept
//! outside of the calls' futures, so at the deadline the answers so far are returned: a container
//! whose status hangs does not hide the others (invariant 11).

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use pleg_runtime::core::{CallError, HeldId, PodCall, PodRead, PodUid, Report};
use pleg_runtime::{Row, Runtime, Scope};

use crate::{Limit, Progress, status};

/// The maximum number of concurrent calls of one inspection.
const CALLS: usize = 8;

/// Makes the calls. They must begin after the caller's stamp.
pub(crate) async fn inspect<R: Runtime>(
    runtime: &R,
    limit: &Limit,
    uid: &PodUid,
    held: &[HeldId],
    progress: &Progress,
) -> PodRead {
    let mut read = PodRead::new(held);
    let scope = Scope::Pod(uid.clone());
    let mut calls = FuturesUnordered::new();
    loop {
        while calls.len() < CALLS
            && let Some(call) = read.next_call()
        {
            calls.push(perform(runtime, (&scope, uid, held), call));
        }
        progress.set(read.oldest_call().cloned());
        match tokio::time::timeout_at(limit.at, calls.next()).await {
            Ok(Some((call, answer))) => read.answered(&call, answer),
            Ok(None) => break,
            Err(_elapsed) => {
                read.give_up(|call| limit.over(call.operation()));
                break;
            }
        }
    }
    read
}

async fn perform<R: Runtime>(
    runtime: &R,
    (scope, uid, held): (&Scope, &PodUid, &[HeldId]),
    call: PodCall,
) -> (PodCall, Result<Vec<Report>, CallError>) {
    let mut rows = Vec::new();
    let mut row = |row: Row<'_>| {
        let report = row.report();
        rows.extend(report.filter(|report| PodRead::concerns(uid, held, report)));
    };
    let done = match &call {
        PodCall::Sandboxes => runtime.list_sandboxes(scope, &mut row).await,
        PodCall::Containers => runtime.list_containers(scope, &mut row).await,
        PodCall::Status(id, kind) => {
            let status = status(runtime, id, *kind).await;
            status.map(|report| rows.push(report))
        }
    };
    (call, done.map(|()| rows))
}
