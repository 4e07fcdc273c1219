//! Makes planned changes at a fixed rate (open loop): a slow subject does not reduce the rate, except when its channel
//! is full.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use pleg_core::Instant;
use pleg_cri::v1::ContainerState;

use super::node::{Change, Node};
use super::{Shared, lock};
use crate::protocol::ContainerChange;
use crate::typical::Container;

/// The resolution of the timer. If a change comes more than this time after its due time, a slow subscriber delayed it,
/// and the due time is recorded as the time of the change, to avoid coordinated omission.
const TIMER_RESOLUTION: Duration = Duration::from_millis(2);

/// The changes to make.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Changes {
    /// This many restarts. Each stops a container, starts its successor, and removes the pod's older containers.
    Restarts(u32),
    /// The containers and sandboxes of all pods stop, in random order.
    Deaths,
}

/// The changes that were made.
#[derive(Debug, Default)]
pub(crate) struct Played {
    /// The number of events that were sent.
    pub(crate) sent: usize,
    /// The time of the first change.
    pub(crate) first: i64,
    pub(crate) made: Vec<ContainerChange>,
}

pub(super) async fn play(shared: Arc<Shared>, changes: Changes, rate: f64) -> Played {
    let planned = plan(&mut lock(&shared.node), changes);
    let mut played = Played::default();
    let start = shared.clock.now();
    let mut last = 0;
    for (number, change) in planned {
        // For a late change, `due` may return a time before the previous change: `max` keeps recorded times in order.
        last = due(&shared, start, played.sent, rate).await.max(last);
        if played.sent == 0 {
            played.first = last;
        }
        if let Change::Start(id) | Change::Stop(id, _) = &change {
            played.made.push(ContainerChange {
                id: id.clone(),
                died: matches!(change, Change::Stop(..)),
                at: last,
            });
        }
        let event = lock(&shared.node).change(number, change, last);
        if let Some(event) = event {
            shared.publish(event).await;
        }
        played.sent += 1;
    }
    played
}

/// Waits until the change `n` is due. Returns the time to record for the change.
async fn due(shared: &Shared, start: Instant, n: usize, rate: f64) -> i64 {
    let clock = shared.clock;
    if rate > 0.0 {
        let due = start.after(Duration::from_secs_f64(n as f64 / rate));
        clock.sleep_until(due).await;
        let late = clock.now().since(due);
        if late > TIMER_RESOLUTION {
            return clock.wall().before(late).as_nanos();
        }
    }
    clock.wall().as_nanos()
}

fn plan(node: &mut Node, changes: Changes) -> Vec<(u64, Change)> {
    let mut random = node.random.clone();
    let mut pods: Vec<_> = node
        .pods()
        .map(|(number, pod)| (number, pod.clone()))
        .collect();
    random.shuffle(&mut pods);
    let mut planned = Vec::new();
    match changes {
        Changes::Deaths => {
            for (number, pod) in pods {
                let running = pod.containers.into_iter();
                let running = running.filter(|c| c.state == ContainerState::ContainerRunning);
                let stops = running.map(|container| Change::Stop(container.id, 0));
                planned.extend(stops.chain([Change::StopSandbox]).map(|c| (number, c)));
            }
        }
        Changes::Restarts(count) => {
            // The containers of each pod, newest first.
            let mut of_pods: HashMap<u64, Vec<Container>> = HashMap::new();
            for n in 0..count as usize {
                let (number, pod) = &pods[n % pods.len()];
                let all = of_pods
                    .entry(*number)
                    .or_insert_with(|| pod.containers.clone());
                let (old, attempt) = (all[0].id.clone(), all[0].attempt + 1);
                let next = Container::created(random.id(), &all[0].name, attempt);
                // Every eighth container exits with an error.
                let mut steps = vec![
                    Change::Stop(old, i32::from(n % 8 == 0)),
                    Change::AddContainer(next.clone()),
                    Change::Start(next.id.clone()),
                ];
                all.insert(0, next);
                steps.extend(all.drain(2..).map(|older| Change::Remove(older.id)));
                planned.extend(steps.into_iter().map(|change| (*number, change)));
            }
        }
    }
    node.random = random;
    planned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn restarted_pods_have_one_running_and_one_exited_container() {
        let shared = Arc::new(Shared::new(2));
        let played = play(shared.clone(), Changes::Restarts(5), 0.0).await;
        // The first restart of each pod removes no container.
        assert_eq!((played.sent, played.made.len()), (5 * 4 - 2, 10));
        for pod in lock(&shared.node).expected(false) {
            assert_eq!(pod.running.values().filter(|runs| **runs).count(), 1);
            assert_eq!(pod.running.len(), 2);
        }
        let played = play(shared, Changes::Deaths, 0.0).await;
        assert_eq!((played.sent, played.made.len()), (4, 2));
        assert!(played.made.iter().all(|change| change.died));
    }
}
