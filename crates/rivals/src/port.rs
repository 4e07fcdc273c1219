//! Upstream's generic PLEG (1.36) has the worker loop, the relist of the node and the relist of a pod. Upstream's
//! evented PLEG (1.37, here `hint`) has these as well, and requests a relist of the pod only for a STOPPED event.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use pleg_core::{CallError, EventType, Id, Instant, LifecycleType, PodUid, ReportedState};
use pleg_runtime::clock::Clock;
use pleg_runtime::{Runtime, Scope};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::cache::{Cache, PodStatus};
use crate::inspect::{inspect, list};
use crate::record::Records;
use crate::subject::{Event, Fifo, Receiver, Subject};

/// The time between the end of a relist and the start of the next (genericPlegRelistPeriod).
const PERIOD: Duration = Duration::from_secs(1);
/// The PLEG is unhealthy after this time without a successful list (genericPlegRelistThreshold).
const THRESHOLD: Duration = Duration::from_secs(180);
/// The capacity of the channel of lifecycle events (plegChannelCapacity). The PLEG drops events that do not fit.
const CAPACITY: usize = 1000;
/// The maximum number of pending requests to relist a pod. The PLEG drops requests that do not fit.
const MAX_REQUESTS: usize = 200;
/// The maximum number of times that the port of the PLEG of 1.37 subscribes (eventedPlegMaxStreamRetries), without
/// pauses between the attempts. Each attempt counts, even one whose stream was open for a long time.
const MAX_ATTEMPTS: u32 = 5;
/// The capacity of the queue of received CRI events. While this queue is full, the port does not read the stream.
const QUEUE_CAPACITY: usize = 1000;

/// A port of one of upstream's generators. Dropping it ends its tasks.
#[derive(Debug)]
pub struct Port<R> {
    name: &'static str,
    relister: Arc<Relister<R>>,
    _cancel_on_drop: DropGuard,
}

impl<R: Runtime> Port<R> {
    /// Starts the generic PLEG of 1.36. Must be called inside a tokio runtime.
    pub fn generic(runtime: R) -> (Self, Fifo) {
        let (port, requests, events) = Self::new("generic", runtime);
        let relister = port.relister.clone();
        port.spawn(async move { relister.run_worker(requests).await });
        (port, events)
    }

    /// Starts the evented PLEG of 1.37, which relists a pod for a STOPPED event. Must be called in a tokio runtime.
    pub fn hint(runtime: R) -> (Self, Fifo) {
        let (mut port, events) = Self::generic(runtime);
        port.name = "hint";
        let (send, mut received) = mpsc::channel(QUEUE_CAPACITY);
        let runtime = port.relister.runtime.clone();
        port.spawn(async move {
            for _ in 0..MAX_ATTEMPTS {
                let Ok(mut stream) = runtime.subscribe().await else {
                    continue;
                };
                while let Some(Ok(event)) = stream.next().await {
                    if send.send(event).await.is_err() {
                        return;
                    }
                }
            }
        });
        let requester = port.relister.clone();
        port.spawn(async move {
            while let Some(event) = received.recv().await {
                let pod = event.sandbox.and_then(|s| s.identity.pod);
                if let (EventType::Stopped, Some(uid)) = (event.event, pod) {
                    requester.request_relist(&uid);
                }
            }
        });
        (port, events)
    }

    /// Creates a generic PLEG that relists only when [`relist`](Self::relist) is called.
    pub fn without_timer(runtime: R) -> (Self, Fifo) {
        let (port, _, events) = Self::new("generic", runtime);
        (port, events)
    }

    /// Lists the node and handles all changes. Returns after the inspection of all changed pods.
    pub async fn relist(&self) {
        self.relister.relist().await;
    }

    fn new(name: &'static str, runtime: R) -> (Self, mpsc::Receiver<Request>, Fifo) {
        let (channel, events) = mpsc::channel(CAPACITY);
        let (requests, received) = mpsc::channel(MAX_REQUESTS);
        let cancel = CancellationToken::new();
        let relister = Relister {
            runtime: Arc::new(runtime),
            clock: Clock::start(),
            cache: Cache::default(),
            channel,
            cancel: cancel.clone(),
            tasks: TaskTracker::new(),
            records: tokio::sync::Mutex::default(),
            failed: Mutex::default(),
            last_list: Mutex::new(None),
            requests,
        };
        let port = Self {
            name,
            relister: Arc::new(relister),
            _cancel_on_drop: cancel.drop_guard(),
        };
        (port, received, Fifo(Receiver::Port(events)))
    }

    /// Runs a task until the task completes. A shutdown of the port drops the task.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let cancel = self.relister.cancel.clone();
        self.relister.tasks.spawn(async move {
            cancel.run_until_cancelled(task).await;
        });
    }
}

/// A request to relist a pod, and the time of the request.
type Request = (PodUid, Instant);

#[derive(Debug)]
struct Relister<R> {
    runtime: Arc<R>,
    clock: Clock,
    cache: Cache,
    channel: mpsc::Sender<Event>,
    /// The token that cancels every task.
    cancel: CancellationToken,
    tasks: TaskTracker,
    /// Upstream's relistLock, which a relist holds during all of its calls.
    records: tokio::sync::Mutex<Records>,
    /// The pods whose last inspection failed. The next relist inspects them again.
    failed: Mutex<BTreeSet<PodUid>>,
    /// The start of the last relist of the node whose list call succeeded.
    last_list: Mutex<Option<Instant>>,
    requests: mpsc::Sender<Request>,
}

impl<R: Runtime> Relister<R> {
    async fn run_worker(&self, mut requests: mpsc::Receiver<Request>) {
        let mut due = self.clock.now();
        loop {
            tokio::select! {
                biased;
                () = self.clock.sleep_until(due) => {
                    self.relist().await;
                    due = self.clock.now().after(PERIOD);
                }
                Some((uid, at)) = requests.recv() => {
                    // If a list of the node began after the request, this list has already shown the requested pod.
                    if Some(at) > *lock(&self.last_list) {
                        self.relist_pod(&uid).await;
                    }
                }
            }
        }
    }

    async fn relist(&self) {
        let mut records = self.records.lock().await;
        let began = self.clock.now();
        let Ok(pods) = list(&*self.runtime, &Scope::Node).await else {
            // A failed list changes nothing.
            return;
        };
        *lock(&self.last_list) = Some(began);
        records.set_all(pods);
        for uid in records.uids() {
            self.reconcile(&mut records, &uid, began).await;
        }
        // Upstream advances the cache's timestamp for all pods even if inspections failed.
        self.cache.update_time(began);
    }

    /// Lists a pod and handles its changes. The next relist of the node handles a pod that no longer exists.
    async fn relist_pod(&self, uid: &PodUid) {
        let mut records = self.records.lock().await;
        let began = self.clock.now();
        let listed = list(&*self.runtime, &Scope::Pod(uid.clone())).await;
        let found = listed
            .ok()
            .and_then(|pods| pods.into_iter().find(|p| p.uid == *uid));
        let Some(pod) = found else {
            return;
        };
        records.set(pod);
        self.reconcile(&mut records, uid, began).await;
        self.cache.set_observed(uid, began);
    }

    async fn reconcile(&self, records: &mut Records, uid: &PodUid, began: Instant) {
        let Some(record) = records.get(uid) else {
            return;
        };
        let mut events = record.events(uid);
        if !lock(&self.failed).remove(uid) && events.is_empty() {
            return;
        }
        let updated = self.update_cache(uid, record.current.as_ref(), began).await;
        if updated.is_err() {
            // A failed inspection does not advance the pod's `Record`, so the next relist finds the same change again.
            lock(&self.failed).insert(uid.clone());
            return;
        }
        if events.is_empty() {
            events.push(Event {
                uid: uid.clone(),
                event: LifecycleType::PodSync,
                data: None,
            });
        }
        records.advance(uid);
        for event in events {
            if event.event != LifecycleType::ContainerChanged {
                // If the channel is full, the event is dropped.
                let _ = self.channel.try_send(event);
            }
        }
    }

    async fn update_cache(
        &self,
        uid: &PodUid,
        pod: Option<&PodStatus>,
        began: Instant,
    ) -> Result<(), CallError> {
        let Some(pod) = pod else {
            self.cache.delete(uid);
            return Ok(());
        };
        let inspected = inspect(&*self.runtime, pod).await;
        let (status, result) = match inspected {
            Ok(status) => (Some(status), Ok(())),
            Err(error) => (None, Err(error)),
        };
        self.cache.set(uid, status, began);
        result
    }

    fn request_relist(&self, uid: &PodUid) {
        let _ = self.requests.try_send((uid.clone(), self.clock.now()));
    }
}

impl<R: Runtime> Subject for Port<R> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn clock(&self) -> Clock {
        self.relister.clock
    }

    fn visit_containers(&self, uid: &PodUid, each: &mut dyn FnMut(&Id, ReportedState)) {
        if let Some(status) = self.relister.cache.get(uid) {
            status.containers.iter().for_each(|r| each(&r.id, r.shown));
        }
    }

    async fn newer_than(&self, uid: &PodUid, after: Instant) {
        self.relister.cache.newer_than(uid, after).await;
    }

    fn request_relist(&self, uid: &PodUid) {
        self.relister.request_relist(uid);
    }

    fn is_healthy(&self) -> bool {
        let last_list = *lock(&self.relister.last_list);
        last_list.is_some_and(|at| self.relister.clock.now().since(at) <= THRESHOLD)
    }

    async fn shutdown(&self) {
        self.relister.cancel.cancel();
        self.relister.tasks.close();
        self.relister.tasks.wait().await;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
