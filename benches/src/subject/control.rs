//! Executes the commands of the harness on a PLEG, and reads the PLEG's cache as a kubelet does.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use pleg_core::{Id, LifecycleType, PodUid, ReportedState};
use pleg_cri::CriClient;
use pleg_runtime::clock::wall;
use rivals::{Fifo, Subject};
use tokio::sync::Notify;

use super::Orders;
use super::workers::{Reads, churn, read_own, restart};
use crate::LiveBytes;
use crate::protocol::{Answer, ContainerChange, ExpectedPod, Order};

/// The interval of cache reads while no lifecycle event arrives.
const READ_INTERVAL: Duration = Duration::from_millis(1);

/// The changes that the subject saw since the command `Record`; `None` before this command.
type Seen = Arc<Mutex<Option<Vec<ContainerChange>>>>;

/// Runs until the harness closes stdin.
pub(super) async fn control<S: Subject>(
    (subject, events): (S, Fifo),
    client: CriClient,
    mut orders: Orders,
    live_bytes: LiveBytes,
) -> Result<()> {
    let subject = Arc::new(subject);
    let (seen, changed) = (Seen::default(), Arc::<Notify>::default());
    tokio::spawn(observe(
        subject.clone(),
        events,
        seen.clone(),
        changed.clone(),
    ));
    let reads = Reads::default();
    while let Some(order) = orders.next().await? {
        let mut answer = Answer::now(live_bytes);
        match order {
            Order::Use => {}
            Order::Record => *lock(&seen) = Some(Vec::new()),
            Order::Seen => {
                answer.seen = lock(&seen).as_mut().map(std::mem::take).unwrap_or_default();
            }
            Order::Await {
                expected, seconds, ..
            } => {
                let expected = expected.into_iter().map(ResolvedPod::new).collect();
                Orders::answer(&answer)?;
                let at = wait_until(&*subject, &changed, expected, seconds).await;
                answer = Answer::now(live_bytes);
                answer.at = at;
            }
            Order::Restart { workers, times } => {
                Box::pin(restart(&subject, &client, &reads, workers, times)).await?;
                answer = Answer::now(live_bytes);
                reads.take(&mut answer);
            }
            Order::Churn {
                pods_per_second,
                seconds,
            } => {
                let (subject, client, reads) = (subject.clone(), client.clone(), reads.clone());
                let during = Duration::from_secs_f64(seconds);
                tokio::spawn(churn(subject, client, reads, pods_per_second, during));
            }
            Order::Reads => reads.take(&mut answer),
            Order::ReadOwn { uid } => {
                answer.reads = vec![read_own(&*subject, &uid.into(), true).await];
            }
        }
        Orders::answer(&answer)?;
    }
    Ok(())
}

/// Reads lifecycle events, and records when the cache showed each death and each start.
async fn observe<S: Subject>(subject: Arc<S>, mut events: Fifo, seen: Seen, changed: Arc<Notify>) {
    while let Some(event) = events.next().await {
        changed.notify_one();
        let (Some(seen), Some(id)) = (&mut *lock(&seen), event.data) else {
            continue;
        };
        let died = match event.event {
            LifecycleType::ContainerDied => true,
            LifecycleType::ContainerStarted => false,
            _ => continue,
        };
        let shown = subject.state(&event.uid, &id);
        if !(died && shown == Some(ReportedState::Running)) {
            let at = wall().as_nanos();
            let id = id.as_str().to_owned();
            seen.push(ContainerChange { id, died, at });
        }
    }
}

/// Waits until the cache shows the expected pods. Checks the cache after every lifecycle event and every millisecond,
/// and returns the time of the check that succeeded.
async fn wait_until<S: Subject>(
    subject: &S,
    changed: &Notify,
    expected: Vec<ResolvedPod>,
    seconds: f64,
) -> Option<i64> {
    let clock = subject.clock();
    let end = clock.now().after(Duration::from_secs_f64(seconds));
    let mut left = expected.iter().peekable();
    loop {
        while left.next_if(|pod| pod.is_shown(subject)).is_some() {}
        if left.peek().is_none() {
            return Some(wall().as_nanos());
        }
        let now = clock.now();
        if now > end {
            return None;
        }
        tokio::select! {
            () = changed.notified() => {}
            () = clock.sleep_until(now.after(READ_INTERVAL)) => {}
        }
    }
}

/// An [`ExpectedPod`] whose ids have the types of the cache.
struct ResolvedPod {
    uid: PodUid,
    running: HashMap<Id, bool>,
}

impl ResolvedPod {
    fn new(pod: ExpectedPod) -> Self {
        let running = pod.running.into_iter();
        Self {
            uid: pod.uid.into(),
            running: running.map(|(id, runs)| (id.into(), runs)).collect(),
        }
    }

    fn is_shown<S: Subject>(&self, subject: &S) -> bool {
        let (mut right, mut wrong) = (0, 0);
        subject.visit_containers(&self.uid, &mut |id, shown| {
            let wanted = self.running.get(id).map(|runs| match runs {
                true => ReportedState::Running,
                false => ReportedState::Exited,
            });
            if wanted == Some(shown) {
                right += 1;
            } else {
                wrong += 1;
            }
        });
        wrong == 0 && right == self.running.len()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
