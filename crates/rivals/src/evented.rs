//! Upstream's evented PLEG of 1.26 to 1.36 ("classic"): events write to the cache and to the
//! channel, and so does a generic PLEG with a long period.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pleg_core::{EventType, Instant, LifecycleType, PodUid, ReportedState, RuntimeEvent};
use pleg_runtime::Runtime;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::cache::Cache;
use crate::channel::{CAPACITY, Channel, Event, Fifo};
use crate::inspect::addresses;
use crate::relister::{Gate, Limits, Relister, RelisterConfig, StatusTimestamps};
use crate::status::{PodStatus, newest_first};
use crate::stream::{MAX_ATTEMPTS, QUEUE_CAPACITY, receive};
use crate::subject::{Port, Unhealthy};
use crate::time::Time;

/// The period in which a timer releases waiters without a read (globalCacheUpdatePeriod).
const CACHE_UPDATE_PERIOD: Duration = Duration::from_secs(5);
/// The limits of the generic PLEG while there is a stream.
const SLOW: Limits = Limits {
    period: Duration::from_secs(300),
    threshold: Duration::from_secs(600),
};

/// The differences between releases of the classic design. The default is 1.36 on containerd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventedSettings {
    /// Whether pod workers ask for a status newer than their last sync (k#120942, 1.29).
    pub newer_than_last_sync: bool,
    /// The feature gate PLEGOnDemandRelist (1.36).
    pub on_demand: bool,
    /// The timestamps of the runtime's statuses.
    pub timestamps: StatusTimestamps,
}

impl Default for EventedSettings {
    fn default() -> Self {
        Self {
            newer_than_last_sync: true,
            on_demand: true,
            timestamps: StatusTimestamps::Absent,
        }
    }
}

/// Upstream's classic evented PLEG, with the generic PLEG that it owns. Dropping it ends its tasks.
#[derive(Debug)]
pub struct Evented<R> {
    inner: Arc<Inner<R>>,
    newer_than_last_sync: bool,
    _cancel_on_drop: DropGuard,
}

#[derive(Debug)]
struct Inner<R> {
    relister: Arc<Relister<R>>,
    /// Stops the task that runs only while events are in use.
    stop: CancellationToken,
    subscribes: AtomicU64,
}

impl<R: Runtime> Evented<R> {
    /// Starts the generator: first the list, then the stream (B11). Must be called inside a tokio
    /// runtime.
    pub fn start(runtime: R, settings: &EventedSettings) -> (Self, Fifo) {
        let config = RelisterConfig {
            limits: SLOW,
            gate: Gate::on(settings.timestamps),
            on_demand: settings.on_demand,
            capacity: CAPACITY,
        };
        let (relister, fifo) = Relister::new(runtime, config);
        let inner = Arc::new(Inner {
            stop: relister.cancel.child_token(),
            relister,
            subscribes: AtomicU64::new(0),
        });
        let relister = &inner.relister;
        relister.start();
        let (send, mut received) = mpsc::channel(QUEUE_CAPACITY);
        let watcher = inner.clone();
        relister.spawn(async move { watcher.watch(send).await });
        let handler = relister.clone();
        relister.spawn(async move {
            while let Some(event) = received.recv().await {
                handle(&handler.cache, &handler.channel, &event);
            }
        });
        let updater = inner.clone();
        relister.spawn(async move { updater.update_cache_time().await });
        let cancel_on_drop = relister.cancel.clone().drop_guard();
        let evented = Self {
            inner,
            newer_than_last_sync: settings.newer_than_last_sync,
            _cancel_on_drop: cancel_on_drop,
        };
        (evented, fifo)
    }

    /// How often the generator has subscribed.
    #[must_use]
    pub fn subscribes(&self) -> u64 {
        self.inner.subscribes.load(Ordering::Relaxed)
    }

    /// Whether events are still in use. After they were given up, they are never used again (A7).
    #[must_use]
    pub fn in_use(&self) -> bool {
        self.inner.relister.gate.in_use.load(Ordering::Acquire)
    }

    /// The cache, which the events and the generic PLEG write.
    #[must_use]
    pub fn cache(&self) -> &Cache {
        &self.inner.relister.cache
    }
}

impl<R: Runtime> Inner<R> {
    /// Subscribes, five times in total and without pauses. Relists after each end of the stream,
    /// before it subscribes again and not after (B11).
    async fn watch(&self, received: mpsc::Sender<RuntimeEvent>) {
        for _ in 0..MAX_ATTEMPTS {
            self.subscribes.fetch_add(1, Ordering::Relaxed);
            // A stream counts as an attempt even if it was established for a long time.
            receive(&*self.relister.runtime, &received).await;
            self.relister.relist().await;
        }
        self.fall_back();
    }

    /// Gives up the stream until the kubelet restarts.
    fn fall_back(&self) {
        self.relister.gate.in_use.store(false, Ordering::Release);
        self.stop.cancel();
        self.relister.stop();
        self.relister.set_limits(Limits::GENERIC);
        self.relister.start();
    }

    /// Marks the whole cache as current every five seconds, without a read (A2, B3).
    async fn update_cache_time(&self) {
        let clock = self.relister.clock.clock();
        let forever = async {
            loop {
                self.relister.cache.update_time(self.relister.clock.now());
                clock
                    .sleep_until(clock.now().after(CACHE_UPDATE_PERIOD))
                    .await;
            }
        };
        self.stop.run_until_cancelled(forever).await;
    }
}

/// Handles an event: writes its statuses to the cache and sends its type to the channel.
fn handle(cache: &Cache, channel: &Channel, event: &RuntimeEvent) {
    let Some((uid, status)) = status_from_event(event) else {
        // An event without sandbox metadata is ignored (A11).
        return;
    };
    let mut status = status;
    let before = cache.get(&uid);
    if before.error.is_none() {
        status.keep_addresses(&before.status.ips);
    }
    let accepted = if event.event == EventType::Deleted {
        // The deletion of any sandbox deletes the pod's entry (B6). The deletion of a container does
        // not change the entry (B5).
        if status.sandboxes.iter().any(|s| s.id == event.id) {
            cache.delete(&uid);
        }
        true
    } else {
        // The runtime's timestamp decides, and it is later than the read of the statuses (B4).
        let at = Time::from_nanos(event.created_at);
        cache.set(&uid, Arc::new(status), None, at)
    };
    if accepted {
        for lifecycle_type in lifecycle_types(event.event) {
            channel.send(Event {
                uid: uid.clone(),
                event: *lifecycle_type,
                data: Some(event.id.clone()),
            });
        }
    }
}

const fn lifecycle_types(event: EventType) -> &'static [LifecycleType] {
    use LifecycleType::{ContainerDied, ContainerRemoved, ContainerStarted};
    match event {
        EventType::Started => &[ContainerStarted],
        EventType::Stopped => &[ContainerDied],
        EventType::Deleted => &[ContainerDied, ContainerRemoved],
        // Created only writes the cache. Unknown types are ignored.
        _ => &[],
    }
}

/// Makes a pod's status from an event. It contains only the event's sandbox and the containers of
/// that sandbox, and no active containers (B7).
fn status_from_event(event: &RuntimeEvent) -> Option<(PodUid, PodStatus)> {
    let sandbox = event.sandbox.clone()?;
    let uid = sandbox.identity.pod.clone()?;
    let mut status = PodStatus::empty(uid.clone());
    status.namespace = sandbox.identity.namespace.clone().unwrap_or_default();
    status.name = sandbox.identity.pod_name.clone().unwrap_or_default();
    if sandbox.shown == ReportedState::Running {
        status.ips = addresses(&sandbox);
    }
    status.sandboxes.push(sandbox);
    status.containers.clone_from(&event.containers);
    newest_first(&mut status.containers);
    Some((uid, status))
}

impl<R: Runtime> Port for Evented<R> {
    type Runtime = R;
    const NAME: &'static str = "evented";

    fn relister(&self) -> &Relister<R> {
        &self.inner.relister
    }

    /// The kubelet always uses both checks: that of the generic PLEG, and whether the channel is
    /// full (B1).
    fn healthy(&self) -> Result<(), Unhealthy> {
        self.inner.relister.healthy()?;
        if self.inner.relister.channel.is_full() {
            let text = "EventedPLEG: the channel of lifecycle events is full";
            return Err(Unhealthy(text.to_owned()));
        }
        Ok(())
    }

    fn last_sync_time(&self, ended: Instant) -> Instant {
        if self.newer_than_last_sync {
            ended
        } else {
            Instant::ORIGIN
        }
    }
}
