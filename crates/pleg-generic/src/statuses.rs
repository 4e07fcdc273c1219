//! Reads the statuses of several ids concurrently, within one deadline.

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use pleg_runtime::Runtime;
use pleg_runtime::core::{CallError, Id, Kind, Report};

use crate::{Limit, PodCall, Progress, status};

/// The maximum number of concurrent status calls of one read.
const CALLS: usize = 8;

/// Makes a status call for each of `ids`. Returns the answers, in any order.
pub(crate) async fn read<R: Runtime>(
    runtime: &R,
    limit: &Limit,
    ids: Vec<(Id, Kind)>,
    progress: &Progress,
) -> Vec<(Id, Result<Report, CallError>)> {
    let mut waiting = ids.into_iter();
    let mut in_flight: Vec<(Id, Kind)> = Vec::new();
    let mut calls = FuturesUnordered::new();
    let mut answers = Vec::new();
    loop {
        while calls.len() < CALLS
            && let Some((id, kind)) = waiting.next()
        {
            in_flight.push((id.clone(), kind));
            calls.push(async move {
                let answer = status(runtime, &id, kind).await;
                (id, answer)
            });
        }
        let oldest = in_flight.first().cloned();
        progress.set(oldest.map(|(id, kind)| PodCall::Status(id, kind)));
        match tokio::time::timeout_at(limit.at, calls.next()).await {
            Ok(Some((id, answer))) => {
                in_flight.retain(|(other, _)| *other != id);
                answers.push((id, answer));
            }
            Ok(None) => return answers,
            Err(_elapsed) => break,
        }
    }
    let unanswered = in_flight.into_iter().chain(waiting);
    answers.extend(unanswered.map(|(id, kind)| (id, Err(limit.over(kind.status_operation())))));
    answers
}
