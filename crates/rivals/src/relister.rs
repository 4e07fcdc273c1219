//! Upstream's generic PLEG as a machine: the worker loop, the relist of the node and of one pod
//! (reference, 1.3 to 1.9). [`Generic`](crate::Generic) is it alone; the other two own one.

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
use crate::inspect::{Style, inspect, list};
use crate::record::{Pod, Records};
use crate::subject::Unhealthy;
use crate::time::{KubeletClock, Time};

/// How many requests to relist a pod may wait.
const REQUESTS: usize = 200;

/// What stands in a status for the time at which the runtime read it (PodSandboxStatus's
/// timestamp), where the feature gate EventedPLEG is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stamps {
    /// Nothing, as in containerd: [`Time::ZERO`] is what the cache compares (A4).
    #[default]
    Absent,
    /// The moment before the read, as in CRI-O.
    AtRead,
}

/// What the kubelet knows of the feature gate EventedPLEG.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) enabled: bool,
    pub(crate) in_use: AtomicBool,
    pub(crate) stamps: Stamps,
}

impl Gate {
    pub(crate) const fn off() -> Self {
        Self {
            enabled: false,
            in_use: AtomicBool::new(false),
            stamps: Stamps::Absent,
        }
    }

    pub(crate) const fn on(stamps: Stamps) -> Self {
        Self {
            enabled: true,
            in_use: AtomicBool::new(true),
            stamps,
        }
    }

    fn in_use(&self) -> bool {
        self.enabled && self.in_use.load(Ordering::Acquire)
    }
}

/// How often, and when that is too rare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// From the end of one relist to the begin of the next.
    pub(crate) period: Duration,
    /// Without a successful list for longer, unhealthy.
    pub(crate) threshold: Duration,
}

/// What a relister is made of.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) limits: Limits,
    pub(crate) gate: Gate,
    /// Whether `request_relist` does anything (gate PLEGOnDemandRelist, 1.36).
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
    /// Ends every task.
    pub(crate) end: CancellationToken,
    pub(crate) tasks: TaskTracker,
    limits: Mutex<Limits>,
    on_demand: bool,
    /// Upstream's relistLock: held through every call of a relist.
    records: tokio::sync::Mutex<Records>,
    reinspect: Mutex<BTreeSet<PodUid>>,
    /// When the last relist began whose list succeeded.
    listed: Mutex<Option<Time>>,
    ask: mpsc::Sender<Request>,
    requests: tokio::sync::Mutex<mpsc::Receiver<Request>>,
    /// Stops the worker that runs, if one does.
    worker: Mutex<Option<CancellationToken>>,
}

impl<R: Runtime> Relister<R> {
    pub(crate) fn new(runtime: R, setup: Setup) -> (Arc<Self>, Fifo) {
        let (channel, fifo) = channel(setup.capacity);
        let (ask, requests) = mpsc::channel(REQUESTS);
        let relister = Self {
            runtime: Arc::new(runtime),
            clock: KubeletClock::start(),
            cache: Cache::new(setup.gate.enabled),
            channel,
            gate: setup.gate,
            end: CancellationToken::new(),
            tasks: TaskTracker::new(),
            limits: Mutex::new(setup.limits),
            on_demand: setup.on_demand,
            records: tokio::sync::Mutex::default(),
            reinspect: Mutex::default(),
            listed: Mutex::new(None),
            ask,
            requests: tokio::sync::Mutex::new(requests),
            worker: Mutex::new(None),
        };
        (Arc::new(relister), fifo)
    }

    /// Runs a task until it is over or everything ends; a call that it awaits is dropped then.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let end = self.end.clone();
        self.tasks.spawn(async move {
            end.run_until_cancelled(task).await;
        });
    }

    /// Starts the worker, unless it runs. Its first relist comes at once.
    pub(crate) fn start(self: &Arc<Self>) {
        let mut worker = lock(&self.worker);
        if worker.is_none() {
            let stop = CancellationToken::new();
            *worker = Some(stop.clone());
            let relister = self.clone();
            self.spawn(async move { relister.work(&stop).await });
        }
    }

    /// Stops the worker; a relist under way still ends.
    pub(crate) fn stop(&self) {
        if let Some(stop) = lock(&self.worker).take() {
            stop.cancel();
        }
    }

    pub(crate) fn update(&self, limits: Limits) {
        *lock(&self.limits) = limits;
    }

    async fn work(&self, stop: &CancellationToken) {
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
                    // One made before the last list began was served by it.
                    if Some(request.at) > self.listed() {
                        self.relist_pod(&request.uid).await;
                    }
                }
            }
        }
    }

    /// Lists the node and acts on what has changed.
    pub(crate) async fn relist(&self) {
        let mut records = self.records.lock().await;
        let began = self.clock.now();
        let Ok(pods) = list(&*self.runtime, &Scope::Node, began).await else {
            // Nothing is known, nothing moves; the next one will tell.
            return;
        };
        *lock(&self.listed) = Some(began);
        records.set_all(pods);
        for uid in records.uids() {
            self.reconcile(&mut records, &uid).await;
        }
        // Whether the inspections succeeded or not.
        self.cache.update_time(began);
    }

    /// Lists one pod and acts on what has changed. One that is not there any more is left to the
    /// next relist of the node (C16).
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
        let asked = lock(&self.reinspect).remove(uid);
        if events.is_empty() && !asked {
            return;
        }
        match self.update_cache(uid, record.current.as_ref()).await {
            Err(_) => {
                // The change is found again by the next relist: the record does not advance.
                lock(&self.reinspect).insert(uid.clone());
                return;
            }
            // The cache has something newer. The change is not told, and the wish to reinspect
            // is forgotten (B8).
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
        // Before anything is sent: what does not fit is never found again (C3).
        records.advance(uid);
        for event in events {
            if event.event != LifecycleType::ContainerChanged {
                self.channel.send(event);
            }
        }
    }

    /// Whether the cache took it.
    async fn update_cache(&self, uid: &PodUid, pod: Option<&Pod>) -> Result<bool, CallError> {
        let Some(pod) = pod else {
            self.cache.delete(uid);
            return Ok(true);
        };
        let style = if self.gate.enabled {
            Style::Evented
        } else {
            Style::Plain
        };
        let read_at = self.clock.now();
        match inspect(&*self.runtime, pod, style).await {
            Ok(mut status) => {
                let before = self.cache.get(uid);
                if before.error.is_none() {
                    status.keep_addresses(&before.status.ips);
                }
                if self.gate.enabled && self.gate.stamps == Stamps::AtRead {
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
                let nothing = Arc::new(crate::PodStatus::nothing(uid.clone()));
                let said = Some(error.clone());
                self.cache.set(uid, nothing, said, pod.timestamp);
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
            // One that does not fit is gone.
            let _ = self.ask.try_send(request);
        }
    }

    pub(crate) fn request_reinspect(&self, uid: &PodUid) {
        lock(&self.reinspect).insert(uid.clone());
    }

    pub(crate) fn healthy(&self) -> Result<(), Unhealthy> {
        let Some(listed) = self.listed() else {
            return Err(Unhealthy("pleg has yet to be successful".to_owned()));
        };
        let ago = self.clock.now().as_nanos() - listed.as_nanos();
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
        self.end.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn listed(&self) -> Option<Time> {
        *lock(&self.listed)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
