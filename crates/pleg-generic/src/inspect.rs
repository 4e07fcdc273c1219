//! Performs the calls of an inspection, several at a time, within one deadline.
//!
//! All calls begin after the same stamp and need not wait for each other. The results are kept
//! outside of the calls' futures, so at the deadline the answers so far are returned: a container
//! whose status hangs does not hide the others (invariant 11).

use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use pleg_runtime::clock::Clock;
use pleg_runtime::core::{CallError, HeldId, Inspection, PodCall, PodRead, PodUid, Report, Ticket};
use pleg_runtime::{Row, Runtime, Scope};

use crate::{LIST_CONTAINERS, LIST_SANDBOXES, Limit, status, status_operation};

/// The maximum number of concurrent calls of one inspection.
const CALLS: usize = 8;

pub(crate) async fn inspect<R: Runtime>(
    runtime: &R,
    clock: &Clock,
    ticket: Ticket,
    uid: &PodUid,
    held: &[HeldId],
    deadline: Duration,
) -> Inspection {
    let began = clock.now();
    let limit = Limit::new(clock, deadline);
    let mut read = PodRead::new(held);
    let scope = Scope::Pod(uid.clone());
    let mut calls = FuturesUnordered::new();
    loop {
        while calls.len() < CALLS
            && let Some(call) = read.next_call()
        {
            calls.push(perform(runtime, (&scope, uid, held), call));
        }
        match tokio::time::timeout_at(limit.at, calls.next()).await {
            Ok(Some((call, answer))) => read.answered(&call, answer),
            Ok(None) => break,
            Err(_elapsed) => {
                read.give_up(|call| limit.over(operation(call)));
                break;
            }
        }
    }
    read.finish(ticket, began, clock.now())
}

const fn operation(call: &PodCall) -> &'static str {
    match call {
        PodCall::Sandboxes => LIST_SANDBOXES,
        PodCall::Containers => LIST_CONTAINERS,
        PodCall::Status(_, kind) => status_operation(*kind),
    }
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
