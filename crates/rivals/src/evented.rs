//! Upstream's evented PLEG of 1.26 to 1.36 ("classic"): events write the cache and the channel
//! beside a generic PLEG that is slowed down (reference, 2.1).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pleg_core::{EventType, Instant, LifecycleType, PodUid, RuntimeEvent, Shown, WallTime};
use pleg_runtime::Runtime;
use pleg_runtime::clock::Clock;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::cache::Cache;
use crate::channel::{CAPACITY, Channel, Event, Fifo};
use crate::inspect::addresses;
use crate::relister::{Gate, Limits, Relister, Setup, Stamps};
use crate::status::{PodStatus, newest_first};
use crate::stream::{ATTEMPTS, RECEIVED, receive};
use crate::subject::{Answer, Subject, Unhealthy};
use crate::time::Time;

/// After this long whoever waits is released, evidence or not (globalCacheUpdatePeriod).
const RELEASE: Duration = Duration::from_secs(5);
/// The generic PLEG beside a stream.
const SLOW: Limits = Limits {
    period: Duration::from_secs(300),
    threshold: Duration::from_secs(600),
};
/// The generic PLEG once the stream was given up.
const FAST: Limits = Limits {
    period: Duration::from_secs(1),
    threshold: Duration::from_secs(180),
};

/// What the releases of the classic design differ in. The default is 1.36 on containerd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventedSettings {
    /// Whether pod workers ask for a status newer than their last sync (k#120942, 1.29).
    pub barrier: bool,
    /// Gate PLEGOnDemandRelist (1.36).
    pub on_demand: bool,
    /// What the runtime's statuses are stamped with.
    pub stamps: Stamps,
}

impl Default for EventedSettings {
    fn default() -> Self {
        Self {
            barrier: true,
            on_demand: true,
            stamps: Stamps::Absent,
        }
    }
}

/// Upstream's classic evented PLEG with the generic one that it owns. When it is dropped, its
/// tasks end.
#[derive(Debug)]
pub struct Evented<R> {
    inner: Arc<Inner<R>>,
    barrier: bool,
    _ends: DropGuard,
}

#[derive(Debug)]
struct Inner<R> {
    relister: Arc<Relister<R>>,
    /// Ends what runs only while events are in use.
    stop: CancellationToken,
    calls: AtomicU64,
}

impl<R: Runtime> Evented<R> {
    /// Starts it: the list first, then the stream (B11). Call it within a tokio runtime.
    pub fn start(runtime: R, settings: &EventedSettings) -> (Self, Fifo) {
        let setup = Setup {
            limits: SLOW,
            gate: Gate::on(settings.stamps),
            on_demand: settings.on_demand,
            capacity: CAPACITY,
        };
        let (relister, fifo) = Relister::new(runtime, setup);
        let inner = Arc::new(Inner {
            stop: relister.end.child_token(),
            relister,
            calls: AtomicU64::new(0),
        });
        let relister = &inner.relister;
        relister.start();
        let (send, mut received) = mpsc::channel(RECEIVED);
        let watches = inner.clone();
        relister.spawn(async move { watches.watch(send).await });
        let handles = relister.clone();
        relister.spawn(async move {
            while let Some(event) = received.recv().await {
                handle(&handles.cache, &handles.channel, &event);
            }
        });
        let releases = inner.clone();
        relister.spawn(async move { releases.release().await });
        let ends = relister.end.clone().drop_guard();
        let evented = Self {
            inner,
            barrier: settings.barrier,
            _ends: ends,
        };
        (evented, fifo)
    }

    /// How often the stream was asked for.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.inner.calls.load(Ordering::Relaxed)
    }

    /// Whether events are still in use: once they are not, they never are again (A7).
    #[must_use]
    pub fn in_use(&self) -> bool {
        self.inner.relister.gate.in_use.load(Ordering::Acquire)
    }

    /// The cache that both write.
    #[must_use]
    pub fn cache(&self) -> &Cache {
        &self.inner.relister.cache
    }
}

impl<R: Runtime> Inner<R> {
    /// Asks for the stream, five times in all and each time at once, with a relist after each
    /// end: before the stream is asked for again, not after (B11).
    async fn watch(&self, received: mpsc::Sender<RuntimeEvent>) {
        for _ in 0..ATTEMPTS {
            self.calls.fetch_add(1, Ordering::Relaxed);
            // However long it lived, it counts.
            receive(&*self.relister.runtime, &received).await;
            self.relister.relist().await;
        }
        self.fall_back();
    }

    /// The stream is given up, until the kubelet is restarted.
    fn fall_back(&self) {
        self.relister.gate.in_use.store(false, Ordering::Release);
        self.stop.cancel();
        self.relister.stop();
        self.relister.update(FAST);
        self.relister.start();
    }

    /// Says every five seconds that everything is as fresh as now, having asked nobody (A2, B3).
    async fn release(&self) {
        let clock = self.relister.clock.clock();
        let forever = async {
            loop {
                self.relister.cache.update_time(self.relister.clock.now());
                clock.sleep_until(clock.now().after(RELEASE)).await;
            }
        };
        self.stop.run_until_cancelled(forever).await;
    }
}

/// One event: its statuses into the cache, its type into the channel.
fn handle(cache: &Cache, channel: &Channel, event: &RuntimeEvent) {
    let Some((uid, status)) = status_of(event) else {
        // Without a sandbox's metadata an event is passed over (A11).
        return;
    };
    let mut status = status;
    let before = cache.get(&uid);
    if before.error.is_none() {
        status.keep_addresses(&before.status.ips);
    }
    let told = if event.event == EventType::Deleted {
        // The pod's entry goes with whichever sandbox is deleted (B6); a deleted container leaves
        // the entry as it is (B5).
        if status.sandboxes.iter().any(|s| s.id == event.id) {
            cache.delete(&uid);
        }
        true
    } else {
        // The runtime's stamp decides, and it is later than what was read (B4).
        let at = Time::from_nanos(event.created_at);
        cache.set(&uid, Arc::new(status), None, at)
    };
    if told {
        for what in lifecycle(event.event) {
            channel.send(Event {
                uid: uid.clone(),
                event: *what,
                data: Some(event.id.clone()),
            });
        }
    }
}

const fn lifecycle(event: EventType) -> &'static [LifecycleType] {
    use LifecycleType::{ContainerDied, ContainerRemoved, ContainerStarted};
    match event {
        EventType::Started => &[ContainerStarted],
        EventType::Stopped => &[ContainerDied],
        EventType::Deleted => &[ContainerDied, ContainerRemoved],
        // Created writes the cache only; other numbers say nothing.
        _ => &[],
    }
}

/// A pod's status out of an event: its one sandbox and that one's containers are all that there
/// is, and none of them is marked active (B7).
fn status_of(event: &RuntimeEvent) -> Option<(PodUid, PodStatus)> {
    let sandbox = event.sandbox.clone()?;
    let uid = sandbox.identity.pod.clone()?;
    let mut status = PodStatus::nothing(uid.clone());
    status.namespace = sandbox.identity.namespace.clone().unwrap_or_default();
    status.name = sandbox.identity.pod_name.clone().unwrap_or_default();
    if sandbox.shown == Shown::Running {
        status.ips = addresses(&sandbox);
    }
    status.sandboxes.push(sandbox);
    status.containers.clone_from(&event.containers);
    newest_first(&mut status.containers);
    Some((uid, status))
}

impl<R: Runtime> Subject for Evented<R> {
    fn name(&self) -> &'static str {
        "evented"
    }

    fn clock(&self) -> Clock {
        self.inner.relister.clock.clock()
    }

    fn wall(&self) -> WallTime {
        self.inner.relister.clock.wall()
    }

    fn get(&self, uid: &PodUid) -> Answer {
        self.inner.relister.cache.get(uid)
    }

    async fn newer_than(&self, uid: &PodUid, after: Instant) -> Answer {
        let after = self.inner.relister.clock.time(after);
        self.inner.relister.cache.newer_than(uid, after).await
    }

    fn request_relist(&self, uid: &PodUid) {
        self.inner.relister.request_relist(uid);
    }

    fn request_reinspect(&self, uid: &PodUid) {
        self.inner.relister.request_reinspect(uid);
    }

    /// Both checks are registered with the kubelet, for ever: the generic one's, and whether the
    /// channel is full (B1).
    fn healthy(&self) -> Result<(), Unhealthy> {
        self.inner.relister.healthy()?;
        if self.inner.relister.channel.is_full() {
            let text = "EventedPLEG: the channel of lifecycle events is full";
            return Err(Unhealthy(text.to_owned()));
        }
        Ok(())
    }

    fn discarded(&self) -> Option<u64> {
        Some(self.inner.relister.channel.discarded())
    }

    fn last_sync_time(&self, ended: Instant) -> Instant {
        if self.barrier { ended } else { Instant::ORIGIN }
    }

    async fn shutdown(&self) {
        self.inner.relister.shutdown().await;
    }
}
