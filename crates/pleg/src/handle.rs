//! What consumers hold: cheap handles to the running generator.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use pleg_core::{
    CallError, Counters, Health, Id, Instant, NotReady, PodUid, PodView, TerminalRecord,
};
use pleg_evented::ReaderGauges;
use pleg_runtime::clock::Clock;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cache::Published;
use crate::error::{RelistError, WaitError};
use crate::requests::Command;
use crate::subscription::{Subscribers, Subscription};
use crate::sync::{mpsc, oneshot, timeout, watch};

/// A running pod lifecycle event generator. Cheap to clone; when [`shutdown`](Self::shutdown) is
/// called, or the last handle is dropped, it ends.
#[derive(Clone, Debug)]
pub struct Pleg {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    pub(crate) published: Arc<Published>,
    pub(crate) subscribers: Arc<Subscribers>,
    pub(crate) health: watch::Receiver<Health>,
    pub(crate) gauges: Arc<ReaderGauges>,
    pub(crate) counters: watch::Receiver<Counters>,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: TaskTracker,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Pleg {
    /// What is known of the pod now. A pod of which nothing exists is an answer, not an error:
    /// its status [`is_nothing`](pleg_core::PodStatus::is_nothing), as of the last complete list.
    ///
    /// Never blocks, makes no call; may be stale by as much as its `as_of` says.
    pub fn get(&self, uid: &PodUid) -> PodView {
        self.shared.published.get(uid)
    }

    /// A view that shows all that a read begun after `after` would have shown: for whoever has
    /// just changed something in the runtime and must not act on a status from before it.
    ///
    /// Answered at once if such a read was made already; else one read of this pod is made, and
    /// shared by all who wait for it and asked before it began. Of a pod in which nothing changed it
    /// makes two calls. An event never answers it, and no timer does. An `after` in the future is
    /// read for when it comes. Works for a uid that was never heard of: "as of then, nothing".
    ///
    /// The states are as new as that. The details of an id that did not change may be older:
    /// [`inspected`](PodView::inspected) says as of when they are, and
    /// [`details_newer_than`](Self::details_newer_than) asks for newer ones. A status that failed
    /// is beside its id, with its error; its state is the later of what was recorded and listed.
    ///
    /// # Errors
    /// If the pod cannot be listed (with the last good view beside the error), if there is no answer
    /// within `within`, or if the generator shuts down; then it returns at once.
    ///
    /// # Cancel safety
    /// Dropping the future only gives up the answer.
    pub async fn newer_than(
        &self,
        uid: &PodUid,
        after: Instant,
        within: Duration,
    ) -> Result<PodView, WaitError> {
        let view = self.get(uid);
        if !view.status.is_nothing() && view.as_of > Some(after) {
            return Ok(view);
        }
        self.wait(uid, after, within, false).await
    }

    /// The same, and every status is read after `after`: for whoever needs details that change
    /// without a change of state, such as resources and addresses.
    ///
    /// # Errors
    /// As of [`newer_than`](Self::newer_than), and if one of the statuses cannot be read.
    ///
    /// # Cancel safety
    /// Dropping the future only gives up the answer.
    pub async fn details_newer_than(
        &self,
        uid: &PodUid,
        after: Instant,
        within: Duration,
    ) -> Result<PodView, WaitError> {
        self.wait(uid, after, within, true).await
    }

    async fn wait(
        &self,
        uid: &PodUid,
        after: Instant,
        within: Duration,
        details: bool,
    ) -> Result<PodView, WaitError> {
        let ask = |reply| Command::Wait {
            uid: uid.clone(),
            after,
            details,
            reply,
        };
        match timeout(within, self.ask(ask)).await {
            Err(_) => Err(WaitError::DeadlineExceeded { within }),
            Ok(answer) => self.answer(uid, answer),
        }
    }

    /// Reads the pod now. Requests of the same moment share one read.
    ///
    /// # Errors
    /// If the read fails, or the generator shuts down.
    ///
    /// # Cancel safety
    /// Once the future was polled, the read is made, whether its answer is awaited or not.
    pub async fn request_relist(&self, uid: &PodUid) -> Result<PodView, WaitError> {
        let answer = self
            .ask(|reply| Command::Relist {
                uid: uid.clone(),
                reply,
            })
            .await;
        self.answer(uid, answer)
    }

    /// Reads the pod now and announces PodSync even if nothing changed: for changes that are no
    /// change of state, such as resources. A change of state that the read finds is announced
    /// instead.
    ///
    /// # Errors
    /// If the read fails, or the generator shuts down.
    ///
    /// # Cancel safety
    /// Once the future was polled, the read is made, whether its answer is awaited or not.
    pub async fn request_reinspect(&self, uid: &PodUid) -> Result<PodView, WaitError> {
        let answer = self
            .ask(|reply| Command::Reinspect {
                uid: uid.clone(),
                reply,
            })
            .await;
        self.answer(uid, answer)
    }

    /// Lists the whole node now.
    ///
    /// # Errors
    /// If the list fails, or the generator shuts down.
    ///
    /// # Cancel safety
    /// Once the future was polled, the list is made, whether its end is awaited or not.
    pub async fn relist_now(&self) -> Result<(), RelistError> {
        match self.ask(|reply| Command::RelistNow { reply }).await {
            None => Err(RelistError::Closed),
            Some(outcome) => outcome.map_err(RelistError::Failed),
        }
    }

    /// Every pod of which something exists, in no order.
    pub fn snapshot(&self) -> Vec<PodView> {
        self.shared.published.snapshot()
    }

    /// How the pod's containers and sandboxes ended, oldest first, the removed ones too: the last
    /// three of each name, until they are acknowledged or the pod is gone for ten minutes.
    pub fn terminal_records(&self, uid: &PodUid) -> Arc<[TerminalRecord]> {
        self.shared.published.ends(uid)
    }

    /// The terminal record of this id has been used and may go.
    ///
    /// # Cancel safety
    /// Dropping the future may leave the record in place.
    pub async fn acknowledge(&self, id: &Id) {
        // A generator that has shut down keeps no records.
        let _ = self
            .shared
            .commands
            .send(Command::Acknowledge { id: id.clone() })
            .await;
    }

    /// A subscription to what is announced from now on. What exists already is in the
    /// [`snapshot`](Self::snapshot) taken after this.
    pub fn subscribe(&self) -> Subscription {
        self.shared.subscribers.subscribe()
    }

    /// What is announced of one pod from now on: for the worker of that pod. It may subscribe before
    /// the pod exists, and sees it come again after its end. [`get`](Self::get) shows what is known
    /// when it subscribes.
    pub fn subscribe_pod(&self, uid: &PodUid) -> Subscription {
        self.shared.subscribers.subscribe_pod(uid)
    }

    /// The generator's health.
    pub fn health(&self) -> HealthWatch {
        let mut health = self.shared.health.clone();
        drop(health.borrow_and_update());
        HealthWatch {
            health,
            gauges: self.shared.gauges.clone(),
            clock: self.shared.clock,
        }
    }

    /// What the generator has counted since its start: calls by cause, events, misses.
    pub fn counters(&self) -> Counters {
        self.shared.counters.borrow().clone()
    }

    /// Completes when the cache holds what exists: a complete list was read and everything that
    /// it showed was inspected once.
    ///
    /// # Errors
    /// [`WaitError::Closed`] if the generator shuts down first.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn wait_until_synced(&self) -> Result<(), WaitError> {
        let mut health = self.shared.health.clone();
        health
            .wait_for(|h| h.synced)
            .await
            .map(|_| ())
            .map_err(|_| WaitError::Closed)
    }

    /// Now, on the generator's clock: the instants of [`newer_than`](Self::newer_than) are its.
    pub fn now(&self) -> Instant {
        self.shared.clock.now()
    }

    /// The generator's clock.
    pub fn clock(&self) -> Clock {
        self.shared.clock
    }

    /// Ends the generator and waits until none of its tasks is left. Whoever waits for an answer
    /// is told [`WaitError::Closed`], subscriptions end after what was announced.
    pub async fn shutdown(&self) {
        self.shared.stop.cancel();
        self.shared.tasks.wait().await;
    }

    /// Asks the writer; `None` if it has ended.
    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.shared.commands.send(command(reply)).await.ok()?;
        answer.await.ok()
    }

    fn answer(
        &self,
        uid: &PodUid,
        answer: Option<Result<PodView, CallError>>,
    ) -> Result<PodView, WaitError> {
        match answer {
            None => Err(WaitError::Closed),
            Some(Ok(view)) => Ok(view),
            Some(Err(error)) => Err(WaitError::Read {
                error,
                last_good: Box::new(self.get(uid)),
            }),
        }
    }
}

/// The generator's health, as it is now and as it changes.
#[derive(Clone, Debug)]
pub struct HealthWatch {
    health: watch::Receiver<Health>,
    gauges: Arc<ReaderGauges>,
    clock: Clock,
}

impl HealthWatch {
    /// What the writer last wrote. Its instants say when things last were so. An observation of the
    /// event stream that it has not handled is due since it was made.
    pub fn current(&self) -> Health {
        let mut health = self.health.borrow().clone();
        if let Some(since) = self.gauges.waiting_since() {
            health.due = health.due.min(since);
        }
        health
    }

    /// Whether the generator can be relied on, by this caller's look at the clock: a dead writer
    /// does not look ready.
    ///
    /// # Errors
    /// Why not.
    pub fn ready(&self) -> Result<(), NotReady> {
        if self.health.has_changed().is_err() {
            return Err(NotReady::Closed);
        }
        self.current().ready(self.clock.now())
    }

    /// What is wrong without making the node unready.
    pub fn degraded(&self) -> Vec<pleg_core::Degraded> {
        self.current().degraded(self.clock.now())
    }

    /// Completes when the writer has written something new. Returns false once it has shut down.
    ///
    /// Readiness and some of the degraded reasons come with time alone: whoever shows them looks
    /// again now and then.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub fn changed(&mut self) -> impl Future<Output = bool> + Send + '_ {
        let health = &mut self.health;
        async move { health.changed().await.is_ok() }
    }
}
