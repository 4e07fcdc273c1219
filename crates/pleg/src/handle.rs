//! The handles through which consumers use a running generator.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use pleg_core::{
    CallError, CallErrorKind, Counters, Health, Id, Instant, NotReady, PodUid, PodView,
};
use pleg_evented::ReaderGauges;
use pleg_runtime::clock::Clock;
use tokio::runtime::Handle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::cache::Published;
use crate::consumer::Consumer;
use crate::error::{RelistError, WaitError};
use crate::exit_records::Exit;
use crate::problems::PodProblem;
use crate::recorder::Metrics;
use crate::requests::Command;
use crate::subscription::{Subscribers, Subscription};
use crate::sync::{mpsc, oneshot, timeout, watch};

/// A running pod lifecycle event generator.
///
/// Cheap to clone. The generator stops when [`shutdown`](Self::shutdown) is called or the last handle is dropped.
#[derive(Clone, Debug)]
#[must_use = "the generator stops when its last handle is dropped"]
pub struct Pleg {
    pub(crate) shared: Arc<Shared>,
    /// Stops the generator when the last handle drops its reference to this guard.
    pub(crate) _running: Option<Arc<DropGuard>>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    pub(crate) published: Arc<Published>,
    pub(crate) subscribers: Arc<Subscribers>,
    pub(crate) health: watch::Receiver<Health>,
    pub(crate) problems: watch::Receiver<Arc<[PodProblem]>>,
    pub(crate) gauges: Arc<ReaderGauges>,
    pub(crate) counters: watch::Receiver<Counters>,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) metrics: Metrics,
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: TaskTracker,
    /// The tokio runtime whose timers end waits at their deadlines. `None` in the shuttle tests, which have none.
    pub(crate) tokio: Option<Handle>,
}

impl Pleg {
    /// The present status of the pod in the cache. For a pod that does not exist, this returns
    /// not an error but a status for which [`exists`](pleg_core::PodStatus::exists) is false.
    ///
    /// Never blocks and makes no call. The status is as old as its `as_of`. After the generator has ended, this returns
    /// the last status, with [`error`](pleg_core::PodStatus::error) set.
    pub fn get(&self, uid: &PodUid) -> PodView {
        self.present(self.shared.published.get(uid))
    }

    /// Adds an error to the view if the generator has ended, because nothing updates the view any more.
    fn present(&self, mut view: PodView) -> PodView {
        if self.shared.commands.is_closed() {
            let kind = CallErrorKind::Unavailable;
            let over = CallError::new("pleg", kind, WaitError::Closed.to_string());
            Arc::make_mut(&mut view.status).error = Some(Arc::new(over));
        }
        view
    }

    /// A view at least as new as a read begun after `after`: for a caller that has changed something in the runtime and
    /// must not act on a status from before that change.
    ///
    /// Returns at once if the cache has such a view. Otherwise the generator reads this pod once for all waiters whose
    /// `after` is before that read. If the pod has not changed, the read only lists its sandboxes and containers (two
    /// calls). No event and no timer answers a waiter. If `after` is in the future, the generator reads the pod at that
    /// instant. For an unknown uid the answer is that the pod does not exist.
    ///
    /// The states in the view are newer than `after`. The details of an id that did not change may be older:
    /// [`details_as_of`](PodView::details_as_of) limits their age, and [`details_newer_than`](Self::details_newer_than)
    /// requests newer details. If the status call of an id failed, that id has the error; its state is the listed one.
    ///
    /// # Errors
    /// If the pod cannot be listed (the error contains the last good view), if there is no answer within `within`, or
    /// as soon as the generator shuts down.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the request. A read in flight continues.
    pub async fn newer_than(
        &self,
        uid: &PodUid,
        after: Instant,
        within: Duration,
    ) -> Result<PodView, WaitError> {
        let view = self.shared.published.get(uid);
        let is_over = self.shared.commands.is_closed();
        if !is_over && view.status.exists() && view.as_of > Some(after) {
            return Ok(view);
        }
        self.wait(uid, after, within, false).await
    }

    /// Like [`newer_than`](Self::newer_than), but every status in the view was read after `after`. For details that
    /// change without a change of state, such as resources and addresses.
    ///
    /// # Errors
    /// The errors of [`newer_than`](Self::newer_than), and if one of the statuses cannot be read.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the request. A read in flight continues.
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
        let lacks_details =
            |view: &PodView| details && view.status.exists() && view.details_as_of <= Some(after);
        let answered = {
            // `timeout` needs the timers of tokio, which the caller's executor may not have.
            let _entered = self.shared.tokio.as_ref().map(Handle::enter);
            timeout(within, async {
                match self.ask(ask).await {
                    // If a container ended during the read, its status may be from before its end: reads once more.
                    Some(Ok(view)) if lacks_details(&view) && view.status.error.is_none() => {
                        self.ask(ask).await
                    }
                    answer => answer,
                }
            })
        };
        let answer = match answered.await {
            Err(_) => return Err(WaitError::DeadlineExceeded { within }),
            Ok(answer) => self.answer(uid, answer)?,
        };
        // A status that was not read is an error for this caller, because it requested details.
        if lacks_details(&answer) {
            let message = "the runtime lists an id, but does not show a status that is new enough";
            let unread = || CallError::new("ContainerStatus", CallErrorKind::NotFound, message);
            let error = answer.status.error.as_deref().cloned();
            return Err(WaitError::Read {
                error: error.unwrap_or_else(unread),
                last_good: Box::new(answer),
            });
        }
        Ok(answer)
    }

    /// Reads the pod now. Requests that are made before a read begins share that read.
    ///
    /// # Errors
    /// If the read fails, or the generator shuts down.
    ///
    /// # Cancel safety
    /// Once the driver has taken the request, the read is made, even if the future is then dropped.
    pub async fn request_relist(&self, uid: &PodUid) -> Result<PodView, WaitError> {
        let ask = |reply| Command::Relist(uid.clone(), reply);
        let answer = self.ask(ask).await;
        self.answer(uid, answer)
    }

    /// Reads the pod now and announces PodSync even if nothing changed: for changes of details, such as resources. If
    /// the read finds a change of state, it also announces that change.
    ///
    /// # Errors
    /// If the read fails, or the generator shuts down.
    ///
    /// # Cancel safety
    /// Once the driver has taken the request, the read is made, even if the future is then dropped.
    pub async fn request_reinspect(&self, uid: &PodUid) -> Result<PodView, WaitError> {
        let ask = |reply| Command::Reinspect(uid.clone(), reply);
        let answer = self.ask(ask).await;
        self.answer(uid, answer)
    }

    /// Lists the whole node now.
    ///
    /// # Errors
    /// If the list fails, or the generator shuts down.
    ///
    /// # Cancel safety
    /// Once the driver has taken the request, the list is made, even if the future is then dropped.
    pub async fn relist_now(&self) -> Result<(), RelistError> {
        match self.ask(|reply| Command::RelistNow { reply }).await {
            None => Err(RelistError::Closed),
            Some(outcome) => outcome.map_err(RelistError::Failed),
        }
    }

    /// All pods that exist, in no particular order, as [`get`](Self::get) returns them.
    pub fn snapshot(&self) -> Vec<PodView> {
        let pods = self.shared.published.snapshot().into_iter();
        pods.map(|view| self.present(view)).collect()
    }

    /// The exit records of the pod's containers and sandboxes, oldest first, including removed ones.
    ///
    /// The generator stores the records of existing ids and of the last three removed ids per container name, at most
    /// 1,000 per pod, until the pod has been gone for ten minutes. With [consumers](Self::register_consumer), it
    /// removes a record once each consumer that was registered at the announcement has acknowledged it.
    pub fn exits(&self, uid: &PodUid) -> Arc<[Exit]> {
        self.shared.published.ends(uid)
    }

    /// Registers a consumer that acknowledges exit records. From the moment this method returns, the generator stores
    /// the records of all newly announced exits for the consumer.
    /// [`Builder::register_consumer`](crate::Builder::register_consumer) also covers exits from before the generator's
    /// start. Health and logs report the consumer under `name` if it does not acknowledge an exit within ten minutes.
    ///
    /// # Errors
    /// [`WaitError::Closed`] if the generator has shut down.
    ///
    /// # Cancel safety
    /// Dropping the future registers no consumer.
    pub async fn register_consumer(&self, name: &str) -> Result<Consumer, WaitError> {
        let name = name.into();
        let registered = self.ask(|reply| Command::Register { name, reply }).await;
        let registered = registered.ok_or(WaitError::Closed)?;
        Ok(Consumer::new(registered, self.shared.commands.clone()))
    }

    /// Returns true if the exit of this id was announced, and each consumer that was registered at the announcement,
    /// and still is, has acknowledged it. Without consumers, the announcement suffices. Garbage collection must not
    /// remove an exited container before this returns true.
    ///
    /// Returns false if the container or sandbox has not ended or is not known, or if the generator has shut down; true
    /// if the id exists, but its record was dropped because there were too many [records](Self::exits).
    ///
    /// # Cancel safety
    /// Dropping the future loses only the answer.
    pub async fn is_acknowledged(&self, id: &Id) -> bool {
        let ask = |reply| Command::IsAcknowledged {
            id: id.clone(),
            reply,
        };
        self.ask(ask).await.unwrap_or(false)
    }

    /// Subscribes to all announcements from now on. A [`snapshot`](Self::snapshot) taken afterwards shows the pods that
    /// exist already. If the generator is synced, the first delivery is [`Delivery::Synced`](crate::Delivery::Synced).
    pub fn subscribe(&self) -> Subscription {
        self.shared.subscribers.subscribe()
    }

    /// Subscribes to the announcements of one pod from now on: for the worker of that pod.
    ///
    /// The pod need not exist yet. The subscription continues if the pod is removed and created
    /// again with the same uid. [`get`](Self::get) shows the status at the time of the call.
    pub fn subscribe_pod(&self, uid: &PodUid) -> Subscription {
        self.shared.subscribers.subscribe_pod(uid)
    }

    /// The generator's health.
    pub fn health(&self) -> HealthWatch {
        let mut health = self.shared.health.clone();
        drop(health.borrow_and_update());
        HealthWatch {
            health,
            problems: self.shared.problems.clone(),
            gauges: self.shared.gauges.clone(),
            clock: self.shared.clock,
            metrics: self.shared.metrics.clone(),
        }
    }

    /// The counters since the start: events, lists, pod reads, missed events.
    pub fn counters(&self) -> Counters {
        self.shared.counters.borrow().clone()
    }

    /// Runs `work`, such as a call of a CRI client, and records its metrics with this generator's recorder and name. (A
    /// local recorder that the caller sets misses these metrics, because it is not in effect while a call waits.)
    pub fn record<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        self.shared.metrics.of(work)
    }

    /// Calls `work` in the tokio runtime on which the generator runs, so that `work` can spawn tasks.
    #[doc(hidden)]
    pub fn in_tokio<T>(&self, work: impl FnOnce() -> T) -> T {
        let _entered = self.shared.tokio.as_ref().map(Handle::enter);
        work()
    }

    /// Completes when the cache shows the whole node: a complete list was read, and each pod in it was read or its read
    /// failed once.
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

    /// The present instant on the generator's clock, which [`newer_than`](Self::newer_than) uses.
    pub fn now(&self) -> Instant {
        self.shared.clock.now()
    }

    /// The generator's clock.
    pub fn clock(&self) -> Clock {
        self.shared.clock
    }

    /// Stops the generator and waits until all its tasks have ended. Waiters get [`WaitError::Closed`].
    /// Subscriptions end after their last announcement. A Died that waits for its exit code is not announced.
    ///
    /// # Cancel safety
    /// Dropping the future does not revoke the shutdown.
    pub async fn shutdown(&self) {
        self.shared.stop.cancel();
        self.shared.tasks.wait().await;
    }

    /// Sends a request to the driver and waits for the reply; `None` if the driver has ended.
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

/// The generator's health, now and as it changes.
#[derive(Clone, Debug)]
#[must_use]
pub struct HealthWatch {
    health: watch::Receiver<Health>,
    problems: watch::Receiver<Arc<[PodProblem]>>,
    gauges: Arc<ReaderGauges>,
    clock: Clock,
    metrics: Metrics,
}

impl HealthWatch {
    /// The last published health. If an event waits for the driver, the driver's work counts as due since the event's
    /// arrival, so [`ready`](Self::ready) fails if the driver hangs.
    pub fn current(&self) -> Health {
        let mut health = self.health.borrow().clone();
        if let Some(since) = self.gauges.waiting_since() {
            health.due = health.due.min(since);
            health.behind_since = health.behind_since.or(Some(since));
        }
        health
    }

    /// Checks that the generator is ready now. A generator that no longer runs is not ready.
    ///
    /// # Errors
    /// The reason why the generator is not ready.
    pub fn ready(&self) -> Result<(), NotReady> {
        if self.health.has_changed().is_err() {
            return Err(NotReady::Closed);
        }
        self.current().ready(self.clock.now())
    }

    /// The degraded reasons: problems that do not make the node unready.
    pub fn degraded(&self) -> Vec<pleg_core::Degraded> {
        self.current().degraded(self.clock.now())
    }

    /// Writes the metrics of readiness and of reasons for degradation. The generator writes them whenever it works, but
    /// they also change as time passes: call this before these metrics are scraped.
    pub fn show_metrics(&self) {
        let (ready, degraded) = (self.ready(), self.degraded());
        let mut show = || crate::metrics::reasons(&ready, &degraded);
        self.metrics.record(&mut show);
    }

    /// Every pod for which calls hang or fail, the oldest problem first. Health names only the first five.
    pub fn pod_problems(&self) -> Arc<[PodProblem]> {
        self.problems.borrow().clone()
    }

    /// Completes when the health has changed. Returns false once the generator has shut down.
    ///
    /// Readiness and some degraded reasons also change as time passes, even if the generator publishes no new health: a
    /// caller that shows readiness or these reasons must also check periodically.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub fn changed(&mut self) -> impl Future<Output = bool> + Send + '_ {
        let health = &mut self.health;
        async move { health.changed().await.is_ok() }
    }
}
