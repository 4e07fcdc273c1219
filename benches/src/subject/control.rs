//! Executes the harness's orders for a generator with a cache, and reads that cache as a consumer does.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use hdrhistogram::Histogram;
use pleg_core::{EventType, Id, PodUid};
use pleg_cri::CriClient;
use pleg_cri::v1::ContainerState as State;
use pleg_runtime::clock::{Clock, wall};
use tokio::sync::Notify;

use super::generators::{Announcement, Announcements, Row, Subject};
use super::receipts::Receipts;
use super::staleness::CacheHistory;
use super::watch::watch;
use super::workers::{Reads, Workers, churn, restart};
use crate::AllocationCounter;
use crate::node::ExpectedPod;
use crate::protocol::{
    PodChange, Reached, Recorded, Spent, Stale, SubjectAnswer, SubjectOrder, orders, reply,
};
use crate::usage::Usage;

/// The time limit for the initial sync; long, for a loaded machine and 10,000 pods.
const SYNC: Duration = Duration::from_secs(400);

/// The interval at which the cache is read without an announcement.
const READ_INTERVAL: Duration = Duration::from_millis(1);

/// How a subject is observed.
pub(super) struct Options {
    /// The time at which the reader received each event, if it is recorded.
    pub(super) receipts: Option<Receipts>,
    /// Whether the consumer does not read announcements.
    pub(super) stalled: bool,
    /// Returns the allocations of this process.
    pub(super) allocated: AllocationCounter,
    /// Whether announcements cause runs of pod workers.
    pub(super) workers: bool,
    /// The client of pod workers that change the runtime.
    pub(super) client: CriClient,
}

/// Runs until the harness closes stdin.
pub(super) async fn control<P: Subject>(
    subject: P,
    announcements: impl Announcements,
    options: Options,
) -> Result<()> {
    let subject = Arc::new(subject);
    let mut consumer = Consumer {
        clock: Clock::start(),
        changed: Arc::default(),
        recording: Arc::default(),
        known: BTreeSet::new(),
        unread: None,
        client: options.client,
        reads: Reads::new()?,
        subject,
    };
    if options.stalled {
        consumer.unread = Some(announcements);
    } else {
        tokio::spawn(observe(
            consumer.subject.clone(),
            announcements,
            consumer.changed.clone(),
            consumer.recording.clone(),
            options.receipts,
            options
                .workers
                .then(|| Workers::new(consumer.subject.clone())),
        ));
    }
    consumer.run_orders(options.allocated).await
}

/// The records since recording began, if it has begun.
type Recording = Arc<Mutex<Option<Records>>>;

struct Records {
    /// Earlier changes are not recorded.
    from: i64,
    seen: BTreeSet<(Id, i32)>,
    end_to_end: Histogram<u64>,
    in_process: Histogram<u64>,
    history: CacheHistory,
}

impl Records {
    fn new() -> Result<Self> {
        Ok(Self {
            from: wall().as_nanos(),
            seen: BTreeSet::new(),
            end_to_end: Histogram::new(3)?,
            in_process: Histogram::new(3)?,
            history: CacheHistory::default(),
        })
    }
}

/// Reads announcements, and records the latency of each change.
async fn observe<P: Subject>(
    subject: Arc<P>,
    mut announcements: impl Announcements,
    changed: Arc<Notify>,
    recording: Recording,
    receipts: Option<Receipts>,
    workers: Option<Arc<Workers<P>>>,
) {
    while let Some(Announcement {
        uid,
        id,
        wake_reason,
    }) = announcements.next().await
    {
        if let Some((workers, wake)) = workers.as_ref().zip(wake_reason) {
            workers.wake(&uid, wake);
        }
        if let Some(records) = &mut *lock(&recording) {
            let mut shown = None;
            let now = records
                .history
                .read_pod(&*subject, &uid, &mut |row: &Row<'_>| {
                    if Some(row.id) == id.as_ref() {
                        shown = Some((row.state, row.since));
                    }
                });
            let (Some(id), Some((state, Some(since)))) = (id, shown) else {
                continue;
            };
            let event = match State::try_from(state) {
                Ok(State::ContainerRunning) => EventType::Started,
                Ok(State::ContainerExited) => EventType::Stopped,
                _ => continue,
            };
            if since.as_nanos() < records.from || !records.seen.insert((id.clone(), state)) {
                continue;
            }
            let nanos = |since: i64| u64::try_from(now - since).unwrap_or(0).max(1);
            record(&mut records.end_to_end, nanos(since.as_nanos()));
            if let Some(at) = receipts.as_ref().and_then(|r| r.take(&id, event)) {
                record(&mut records.in_process, nanos(at));
            }
        }
        changed.notify_one();
    }
}

fn lock(recording: &Recording) -> std::sync::MutexGuard<'_, Option<Records>> {
    recording.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Consumer<P, T> {
    subject: Arc<P>,
    clock: Clock,
    changed: Arc<Notify>,
    recording: Recording,
    /// The uids of all pods that the harness named. Containers of a pod that no longer exists are ghosts.
    known: BTreeSet<String>,
    /// The announcements that a stalled consumer reads only when it returns what was recorded.
    unread: Option<T>,
    client: CriClient,
    /// The reads of the pod workers of `Churn`.
    reads: Reads,
}

impl<P: Subject, T: Announcements> Consumer<P, T> {
    async fn run_orders(mut self, allocated: AllocationCounter) -> Result<()> {
        let mut orders = orders::<SubjectOrder>();
        reply(&SubjectAnswer::Ready)?;
        while let Some(order) = orders.recv().await {
            let answer = match order? {
                SubjectOrder::Sync { expected } => {
                    let expected = self.resolve(expected);
                    let at = self
                        .wait_until(SYNC, |p| p.synced() && shows_all(p, &expected))
                        .await;
                    SubjectAnswer::Synced {
                        synced: at.is_some(),
                    }
                }
                SubjectOrder::Use => {
                    if allocated().is_some() {
                        // The consumer's own memory must not count as memory of the subject.
                        self.known = BTreeSet::new();
                    }
                    used(allocated)
                }
                SubjectOrder::Relist { count } => {
                    let relist = async || {
                        self.subject.relist().await;
                        Ok(())
                    };
                    measure_relists(count, allocated, relist).await?
                }
                SubjectOrder::Record => {
                    let mut records = Records::new()?;
                    for uid in &self.known {
                        let uid = uid.as_str().into();
                        records.history.read_pod(&*self.subject, &uid, &mut |_| {});
                    }
                    *lock(&self.recording) = Some(records);
                    used(allocated)
                }
                SubjectOrder::Discard => {
                    self.unread.as_mut().map(Announcements::count_exits);
                    used(allocated)
                }
                SubjectOrder::Recorded => SubjectAnswer::Recorded(self.recorded()),
                SubjectOrder::Await {
                    expected, within, ..
                } => {
                    let expected = self.resolve(expected);
                    reply(&used(allocated))?;
                    let (mut next, within) = (0, Duration::from_millis(within));
                    let at = self
                        .wait_until(within, |subject| {
                            while expected.get(next).is_some_and(|of| agrees(subject, of)) {
                                next += 1;
                            }
                            next == expected.len()
                        })
                        .await;
                    reached(at)
                }
                SubjectOrder::Verify {
                    after,
                    uids,
                    within,
                } => {
                    let uids: Vec<PodUid> = uids.into_iter().map(PodUid::from).collect();
                    reply(&used(allocated))?;
                    let ahead = u64::try_from(after - wall().as_nanos()).unwrap_or(0);
                    let within = Duration::from_millis(within) + Duration::from_nanos(ahead);
                    let mut next = 0;
                    let at = self
                        .wait_until(within, |subject| {
                            while uids
                                .get(next)
                                .is_some_and(|uid| subject.verified(uid, after))
                            {
                                next += 1;
                            }
                            next == uids.len()
                        })
                        .await;
                    reached(at)
                }
                SubjectOrder::Read { pods, millis } => {
                    let of = Duration::from_millis(millis);
                    let in_process = read(self.subject.clone(), pods, of).await?;
                    SubjectAnswer::Recorded(Recorded {
                        in_process,
                        ..Recorded::default()
                    })
                }
                SubjectOrder::Restart { parallel, times } => {
                    let read = Box::pin(restart(&self.subject, &self.client, parallel, times));
                    SubjectAnswer::Recorded(read.await?)
                }
                SubjectOrder::Churn {
                    pods_per_second,
                    millis,
                } => {
                    let during = Duration::from_millis(millis);
                    let (subject, client) = (self.subject.clone(), self.client.clone());
                    let reads = self.reads.clone();
                    tokio::spawn(churn(subject, client, reads, pods_per_second, during));
                    used(allocated)
                }
                SubjectOrder::TakeReads => SubjectAnswer::Recorded(self.reads.take()),
                SubjectOrder::Compare { expected } => self.compare(expected),
                SubjectOrder::Stale { before, changes } => {
                    SubjectAnswer::Stale(self.stale(&before, &changes)?)
                }
                SubjectOrder::Watch { millis, first } => {
                    SubjectAnswer::Watched(watch(&*self.subject, self.clock, millis, first).await)
                }
            };
            reply(&answer)?;
        }
        Ok(())
    }

    /// Converts uids and ids, and remembers the uids.
    fn resolve(&mut self, expected: Vec<ExpectedPod>) -> Vec<ResolvedPod> {
        self.known
            .extend(expected.iter().map(|pod| pod.uid.clone()));
        let resolved = |pod: ExpectedPod| ResolvedPod {
            uid: pod.uid.into(),
            containers: pod
                .containers
                .into_iter()
                .map(|(id, state)| (id.into(), state))
                .collect(),
        };
        expected.into_iter().map(resolved).collect()
    }

    /// Checks the condition after every announcement and every millisecond. Returns the time at which it
    /// held.
    async fn wait_until(
        &self,
        within: Duration,
        mut condition: impl FnMut(&P) -> bool,
    ) -> Option<i64> {
        let end = self.clock.now().after(within);
        loop {
            if condition(&self.subject) {
                return Some(wall().as_nanos());
            }
            let now = self.clock.now();
            if now > end {
                return None;
            }
            tokio::select! {
                () = self.changed.notified() => {}
                () = self.clock.sleep_until(now.after(READ_INTERVAL)) => {}
            }
        }
    }

    fn recorded(&mut self) -> Recorded {
        let exits = self.unread.as_mut().map(Announcements::count_exits);
        let records = lock(&self.recording).take();
        let taken = |of: fn(&Records) -> &Histogram<u64>| {
            let of = records.as_ref().map(of);
            of.map(values).unwrap_or_default()
        };
        Recorded {
            end_to_end: taken(|records| &records.end_to_end),
            in_process: taken(|records| &records.in_process),
            exits: exits.unwrap_or(0),
            wrong_reads: 0,
        }
    }

    fn stale(&self, before: &[ExpectedPod], changes: &[PodChange]) -> Result<Stale> {
        let Some(records) = &mut *lock(&self.recording) else {
            return Ok(Stale::default());
        };
        // The cache may contain changes that were not announced.
        let uids: BTreeSet<&str> = changes.iter().map(|c| c.pod.uid.as_str()).collect();
        for uid in uids {
            records
                .history
                .read_pod(&*self.subject, &uid.into(), &mut |_| {});
        }
        records.history.stale(before, changes, wall().as_nanos())
    }

    fn compare(&mut self, expected: Vec<ExpectedPod>) -> SubjectAnswer {
        let expected = self.resolve(expected);
        let (mut lost, mut ghosts) = (0, 0);
        let mut gone: BTreeSet<&str> = self.known.iter().map(String::as_str).collect();
        for pod in &expected {
            gone.remove(pod.uid.as_str());
            let shown = shown(&*self.subject, &pod.uid);
            let right = |(id, state): (&Id, &i32)| shown.get(id) == Some(state);
            lost += pod.containers.iter().filter(|of| !right(*of)).count() as u64;
            let real = |id: &&Id| pod.containers.contains_key(*id);
            ghosts += shown.keys().filter(|id| !real(id)).count() as u64;
        }
        for uid in gone {
            ghosts += shown(&*self.subject, &uid.into()).len() as u64;
        }
        SubjectAnswer::Compared { lost, ghosts }
    }
}

/// Reads one pod after the other from the cache, in a separate thread.
async fn read<P: Subject>(
    subject: Arc<P>,
    pods: Vec<String>,
    during: Duration,
) -> Result<crate::protocol::Histogram> {
    let (send, done) = tokio::sync::oneshot::channel();
    let mut histogram = Histogram::new(3)?;
    std::thread::spawn(move || {
        let clock = Clock::start();
        let end = clock.now().after(during);
        let uids: Vec<PodUid> = pods.into_iter().map(PodUid::from).collect();
        for uid in uids.iter().cycle() {
            let before = clock.now();
            subject.visit_containers(uid, &mut |row| {
                std::hint::black_box(row.state);
            });
            let after = clock.now();
            record(
                &mut histogram,
                u64::try_from(after.nanos_since(before)).unwrap_or(0).max(1),
            );
            if after > end {
                break;
            }
        }
        // The receiver is dropped if the harness ended.
        let _ = send.send(values(&histogram));
    });
    Ok(done.await?)
}

/// An expected pod with the id types of the cache.
struct ResolvedPod {
    uid: PodUid,
    containers: HashMap<Id, i32>,
}

fn shown<P: Subject>(subject: &P, uid: &PodUid) -> HashMap<Id, i32> {
    let mut shown = HashMap::new();
    subject.visit_containers(uid, &mut |row| {
        shown.insert(row.id.clone(), row.state);
    });
    shown
}

fn agrees<P: Subject>(subject: &P, expected: &ResolvedPod) -> bool {
    let (mut right, mut wrong) = (0, 0);
    subject.visit_containers(&expected.uid, &mut |row| {
        if expected.containers.get(row.id) == Some(&row.state) {
            right += 1;
        } else {
            wrong += 1;
        }
    });
    wrong == 0 && right == expected.containers.len()
}

fn shows_all<P: Subject>(subject: &P, expected: &[ResolvedPod]) -> bool {
    expected.iter().all(|of| agrees(subject, of))
}

/// Makes relists one after the other. The first one prepares state that later ones reuse, so it is not
/// measured.
pub(super) async fn measure_relists(
    count: u32,
    allocated: AllocationCounter,
    mut relist: impl AsyncFnMut() -> Result<()>,
) -> Result<SubjectAnswer> {
    let clock = Clock::start();
    relist().await?;
    let mut took = Vec::with_capacity(count as usize);
    let (before, memory) = (Usage::of_self(), allocated());
    for _ in 0..count {
        let began = clock.now();
        relist().await?;
        let nanos = clock.now().nanos_since(began);
        took.push(u64::try_from(nanos).unwrap_or(0));
    }
    let usage = Usage::of_self().since(&before);
    let allocated = allocated()
        .zip(memory)
        .map(|(after, before)| after.since(&before));
    Ok(SubjectAnswer::Spent(Spent {
        usage,
        took,
        allocations: allocated.map(|a| a.count),
        bytes: allocated.map(|a| a.bytes),
    }))
}

pub(super) fn reached(at: Option<i64>) -> SubjectAnswer {
    let usage = Usage::of_self();
    SubjectAnswer::Reached(Reached { at, usage })
}

pub(super) fn used(allocated: AllocationCounter) -> SubjectAnswer {
    SubjectAnswer::Used {
        usage: Usage::of_self(),
        live_bytes: allocated().map(|a| a.live_bytes),
    }
}

/// Records a value. The histogram grows as needed.
pub(super) fn record(histogram: &mut Histogram<u64>, value: u64) {
    // This fails only for values above 500 years.
    let _ = histogram.record(value);
}

pub(super) fn values(histogram: &Histogram<u64>) -> crate::protocol::Histogram {
    let each = histogram.iter_recorded();
    each.map(|v| (v.value_iterated_to(), v.count_at_value()))
        .collect()
}
