//! The implementation of upstream's generic PLEG: the worker loop, the relist of the node and the
//! relist of a pod. All three ports use it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pleg_core::{CallError, LifecycleType, PodUid};
use pleg_runtime::{Runtime, Scope};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cache::Cache;
use crate::channel::{Channel, Event, Fifo, channel};
use crate::inspect::{InspectMode, inspect, list};
use crate::record::{Pod, Records};
use crate::subject::Unhealthy;
use crate::time::{KubeletClock, Time};

/// The maximum number of pending requests to relist a pod.
const MAX_REQUESTS: usize = 200;

/// The timestamp of a status (in PodSandboxStatus), with the feature gate EventedPLEG.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatusTimestamps {
    /// None, as in containerd. The cache compares [`Time::ZERO`] (A4).
    #[default]
    Absent,
    /// The time before the read, as in CRI-O.
    AtRead,
}

/// The state of the feature gate EventedPLEG.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) enabled: bool,
    pub(crate) in_use: AtomicBool,
    pub(crate) timestamps: StatusTimestamps,
}

impl Gate {
    pub(crate) const fn off() -> Self {
        Self {
            enabled: false,
            in_use: AtomicBool::new(false),
            timestamps: StatusTimestamps::Absent,
        }
    }

    pub(crate) const fn on(timestamps: StatusTimestamps) -> Self {
        Self {
            enabled: true,
            in_use: AtomicBool::new(true),
            timestamps,
        }
    }

    fn in_use(&self) -> bool {
        self.enabled && self.in_use.load(Ordering::Acquire)
    }
}

/// The period of relists, and the threshold of the health check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The time between the end of a relist and the start of the next.
    pub(crate) period: Duration,
    /// The generator is unhealthy after that time without a successful list.
    pub(crate) threshold: Duration,
}

impl Limits {
    /// Those of the generic PLEG (genericPlegRelistPeriod, genericPlegRelistThreshold).
    pub(crate) const GENERIC: Self = Self {
        period: Duration::from_secs(1),
        threshold: Duration::from_secs(180),
    };
}

/// The configuration of a relister.
#[derive(Debug)]
pub(crate) struct RelisterConfig {
    pub(crate) limits: Limits,
    pub(crate) gate: Gate,
    /// Whether `request_relist` has an effect (feature gate PLEGOnDemandRelist, 1.36).
    pub(crate) on_demand: bool,
    pub(crate) capacity: usize,
}

#[derive(Debug)]
struct Request {
    uid: PodUid,
    at: Time,
}

#[derive(Debug)]
pub(crate) struct Relister<R> {
    pub(crate) runtime: Arc<R>,
    pub(crate) clock: KubeletClock,
    pub(crate) cache: Cache,
    pub(crate) channel: Channel,
    pub(crate) gate: Gate,
    /// Cancels every task.
    pub(crate) cancel: CancellationToken,
    pub(crate) tasks: TaskTracker,
    limits: Mutex<Limits>,
    on_demand: bool,
    /// Upstream's relistLock, which is held during all calls of a relist.
    records: tokio::sync::Mutex<Records>,
    reinspect: Mutex<BTreeSet<PodUid>>,
    /// The start of the last relist of the node whose list succeeded.
    last_list: Mutex<Option<Time>>,
    request_sender: mpsc::Sender<Request>,
    requests: tokio::sync::Mutex<mpsc::Receiver<Request>>,
    /// Stops the running worker, if there is one.
    worker: Mutex<Option<CancellationToken>>,
}

impl<R: Runtime> Relister<R> {
    pub(crate) fn new(runtime: R, config: RelisterConfig) -> (Arc<Self>, Fifo) {
        let (channel, fifo) = channel(config.capacity);
        let (request_sender, requests) = mpsc::channel(MAX_REQUESTS);
        let relister = Self {
            runtime: Arc::new(runtime),
            clock: KubeletClock::start(),
            cache: Cache::new(config.gate.enabled),
            channel,
            gate: config.gate,
            cancel: CancellationToken::new(),
            tasks: TaskTracker::new(),
            limits: Mutex::new(config.limits),
            on_demand: config.on_demand,
            records: tokio::sync::Mutex::default(),
            reinspect: Mutex::default(),
            last_list: Mutex::new(None),
            request_sender,
            requests: tokio::sync::Mutex::new(requests),
            worker: Mutex::new(None),
        };
        (Arc::new(relister), fifo)
    }

    /// Runs a task until it completes or the relister shuts down, which drops the task.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let cancel = self.cancel.clone();
        self.tasks.spawn(async move {
            cancel.run_until_cancelled(task).await;
        });
    }

    /// Starts the worker, unless it runs already. The worker relists at once.
    pub(crate) fn start(self: &Arc<Self>) {
        let mut worker = lock(&self.worker);
        if worker.is_none() {
            let stop = CancellationToken::new();
            *worker = Some(stop.clone());
            let relister = self.clone();
            self.spawn(async move { relister.run_worker(&stop).await });
        }
    }

    /// Stops the worker after the relist in progress.
    pub(crate) fn stop(&self) {
        if let Some(stop) = lock(&self.worker).take() {
            stop.cancel();
        }
    }

    pub(crate) fn set_limits(&self, limits: Limits) {
        *lock(&self.limits) = limits;
    }

    async fn run_worker(&self, stop: &CancellationToken) {
        let mut requests = self.requests.lock().await;
        let clock = self.clock.clock();
        let mut due = clock.now();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = clock.sleep_until(due) => {
                    self.relist().await;
                    let period = lock(&self.limits).period;
                    due = clock.now().after(period);
                }
                Some(request) = requests.recv() => {
                    // A list that began after the request has served it.
                    if Some(request.at) > self.last_list() {
                        self.relist_pod(&request.uid).await;
                    }
                }
            }
        }
    }

    /// Lists the node and handles all changes.
    pub(crate) async fn relist(&self) {
        let mut records = self.records.lock().await;
        let began = self.clock.now();
        let Ok(pods) = list(&*self.runtime, &Scope::Node, began).await else {
            // A failed list changes nothing.
            return;
        };
        *lock(&self.last_list) = Some(began);
        records.set_all(pods);
        for uid in records.uids() {
            self.reconcile(&mut records, &uid).await;
        }
        // Even if inspections failed.
        self.cache.update_time(began);
    }

    /// Lists a pod and handles its changes. A pod that no longer exists is left to the next relist
    /// of the node (C16).
    async fn relist_pod(&self, uid: &PodUid) {
        let mut records = self.records.lock().await;
        let began = self.clock.now();
        let listed = list(&*self.runtime, &Scope::Pod(uid.clone()), began).await;
        let found = listed
            .ok()
            .and_then(|pods| pods.into_iter().find(|p| p.uid == *uid));
        let Some(pod) = found else {
            return;
        };
        records.set(pod);
        self.reconcile(&mut records, uid).await;
        self.cache.set_observed(uid, began);
    }

    async fn reconcile(&self, records: &mut Records, uid: &PodUid) {
        let Some(record) = records.get(uid) else {
            return;
        };
        let mut events = record.events(uid);
        let reinspect_requested = lock(&self.reinspect).remove(uid);
        if events.is_empty() && !reinspect_requested {
            return;
        }
        match self.update_cache(uid, record.current.as_ref()).await {
            Err(_) => {
                // The record does not advance, so the next relist finds the change again.
                lock(&self.reinspect).insert(uid.clone());
                return;
            }
            // The cache has a newer entry. No event is sent, and the request to reinspect is
            // dropped (B8).
            Ok(false) if self.gate.enabled => return,
            Ok(_) => {}
        }
        if events.is_empty() {
            events.push(Event {
                uid: uid.clone(),
                event: LifecycleType::PodSync,
                data: None,
            });
        }
        // The record advances before events are sent: an event that does not fit is lost (C3).
        records.advance(uid);
        for event in events {
            if event.event != LifecycleType::ContainerChanged {
                self.channel.send(event);
            }
        }
    }

    /// Returns false if the cache rejected the status as older.
    async fn update_cache(&self, uid: &PodUid, pod: Option<&Pod>) -> Result<bool, CallError> {
        let Some(pod) = pod else {
            self.cache.delete(uid);
            return Ok(true);
        };
        let mode = if self.gate.enabled {
            InspectMode::Evented
        } else {
            InspectMode::Generic
        };
        let read_at = self.clock.now();
        match inspect(&*self.runtime, pod, mode).await {
            Ok(mut status) => {
                let before = self.cache.get(uid);
                if before.error.is_none() {
                    status.keep_addresses(&before.status.ips);
                }
                if self.gate.enabled && self.gate.timestamps == StatusTimestamps::AtRead {
                    status.timestamp = read_at;
                }
                let at = if self.gate.in_use() {
                    status.timestamp
                } else {
                    pod.timestamp
                };
                Ok(self.cache.set(uid, Arc::new(status), None, at))
            }
            Err(error) => {
                // The last good status is overwritten (C6).
                let empty = Arc::new(crate::PodStatus::empty(uid.clone()));
                self.cache
                    .set(uid, empty, Some(error.clone()), pod.timestamp);
                Err(error)
            }
        }
    }

    pub(crate) fn request_relist(&self, uid: &PodUid) {
        if self.on_demand {
            let request = Request {
                uid: uid.clone(),
                at: self.clock.now(),
            };
            // A request that does not fit is dropped.
            let _ = self.request_sender.try_send(request);
        }
    }

    pub(crate) fn request_reinspect(&self, uid: &PodUid) {
        lock(&self.reinspect).insert(uid.clone());
    }

    pub(crate) fn healthy(&self) -> Result<(), Unhealthy> {
        let Some(last_list) = self.last_list() else {
            return Err(Unhealthy("pleg has yet to be successful".to_owned()));
        };
        let ago = self.clock.now().as_nanos() - last_list.as_nanos();
        let ago = Duration::from_nanos(ago.try_into().unwrap_or(0));
        let threshold = lock(&self.limits).threshold;
        if ago > threshold {
            return Err(Unhealthy(format!(
                "pleg was last seen active {ago:?} ago; threshold is {threshold:?}"
            )));
        }
        Ok(())
    }

    pub(crate) async fn shutdown(&self) {
        self.cancel.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn last_list(&self) -> Option<Time> {
        *lock(&self.last_list)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
