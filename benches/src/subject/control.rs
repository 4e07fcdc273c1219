//! Obeys the harness for a generator with a cache, and looks at that cache as a consumer does.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use hdrhistogram::Histogram;
use pleg_core::{EventType, Id, PodUid};
use pleg_cri::CriClient;
use pleg_cri::v1::ContainerState as State;
use pleg_runtime::clock::{Clock, wall};
use tokio::sync::Notify;

use super::generators::{Announced, Announcements, Row, Subject};
use super::receipts::Receipts;
use super::staleness::Looks;
use super::watch::watch;
use super::workers::{Reads, Workers, churn, restart};
use crate::Allocated;
use crate::node::Truth;
use crate::protocol::{
    ENDS_TAKEN, Happened, Recorded, Stale, SubjectAnswer, SubjectOrder, orders, reply,
};
use crate::usage::Usage;

/// How long a subject may take to know what exists; long, for a loaded machine and 10,000 pods.
const SYNC: Duration = Duration::from_secs(400);

/// How often a cache is looked at when nobody tells of a change.
const LOOK: Duration = Duration::from_millis(1);

/// How a subject is observed.
pub(super) struct Options {
    /// When its reader has received each event, where that is stamped.
    pub(super) receipts: Option<Receipts>,
    /// Nobody takes what it announces.
    pub(super) stalled: bool,
    /// Counts what it allocates.
    pub(super) allocated: Allocated,
    /// Announcements cause runs of pod workers.
    pub(super) workers: bool,
    /// The runtime, for pod workers that change it.
    pub(super) client: CriClient,
}

/// Until the harness closes its end.
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
        counts: BTreeMap::new(),
        untaken: None,
        client: options.client,
        reads: Reads::new()?,
        subject,
    };
    if options.stalled {
        consumer.untaken = Some(announcements);
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

/// What is recorded, while something is.
type Recording = Arc<Mutex<Option<Records>>>;

struct Records {
    /// What happened before this is no news.
    from: i64,
    seen: BTreeSet<(Id, i32)>,
    end_to_end: Histogram<u64>,
    in_process: Histogram<u64>,
    looks: Looks,
}

impl Records {
    fn new() -> Result<Self> {
        Ok(Self {
            from: wall().as_nanos(),
            seen: BTreeSet::new(),
            end_to_end: Histogram::new(3)?,
            in_process: Histogram::new(3)?,
            looks: Looks::default(),
        })
    }
}

/// Takes announcements, and records how long ago each change happened.
async fn observe<P: Subject>(
    subject: Arc<P>,
    mut announcements: impl Announcements,
    changed: Arc<Notify>,
    recording: Recording,
    receipts: Option<Receipts>,
    workers: Option<Arc<Workers<P>>>,
) {
    while let Some(Announced { uid, id, wakes }) = announcements.next().await {
        if let Some((workers, wake)) = workers.as_ref().zip(wakes) {
            workers.wake(&uid, wake);
        }
        if let Some(records) = &mut *lock(&recording) {
            let mut shown = None;
            let now = records.looks.at(&*subject, &uid, &mut |row: &Row<'_>| {
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
    /// Every pod that the harness ever named: what is shown of one that is gone is a ghost.
    known: BTreeSet<String>,
    /// What it had counted when recording began.
    counts: BTreeMap<String, u64>,
    /// One who stalls holds on to its end, and takes nothing until it is asked what was recorded.
    untaken: Option<T>,
    client: CriClient,
    /// The reads of the churn's pod workers.
    reads: Reads,
}

impl<P: Subject, T: Announcements> Consumer<P, T> {
    async fn run_orders(mut self, allocated: Allocated) -> Result<()> {
        let mut orders = orders::<SubjectOrder>();
        reply(&SubjectAnswer::Ready)?;
        while let Some(order) = orders.recv().await {
            let answer = match order? {
                SubjectOrder::Sync { truth } => {
                    let truth = self.resolve(truth);
                    let at = self
                        .until(SYNC, |p| p.synced() && shows_all(p, &truth))
                        .await;
                    SubjectAnswer::Synced {
                        synced: at.is_some(),
                    }
                }
                SubjectOrder::Use => {
                    if allocated().is_some() {
                        // What is known here beside the subject is none of what it holds.
                        self.known = BTreeSet::new();
                    }
                    used(allocated)
                }
                SubjectOrder::Relist { count } => self.relist(count, allocated).await,
                SubjectOrder::Record => {
                    let mut records = Records::new()?;
                    for uid in &self.known {
                        let uid = uid.as_str().into();
                        records.looks.at(&*self.subject, &uid, &mut |_| {});
                    }
                    *lock(&self.recording) = Some(records);
                    self.counts = self.subject.counts();
                    used(allocated)
                }
                SubjectOrder::Count => {
                    // Until now everything was taken.
                    self.untaken.as_mut().map(Announcements::take_ends);
                    self.counts = self.subject.counts();
                    used(allocated)
                }
                SubjectOrder::Recorded => SubjectAnswer::Recorded(self.recorded()),
                SubjectOrder::Await { truth, within, .. } => {
                    let truth = self.resolve(truth);
                    reply(&used(allocated))?;
                    let (mut next, within) = (0, Duration::from_millis(within));
                    let at = self
                        .until(within, |subject| {
                            while truth.get(next).is_some_and(|of| agrees(subject, of)) {
                                next += 1;
                            }
                            next == truth.len()
                        })
                        .await;
                    SubjectAnswer::Reached {
                        at,
                        usage: Usage::of_self(),
                    }
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
                        .until(within, |subject| {
                            while uids
                                .get(next)
                                .is_some_and(|uid| subject.verified(uid, after))
                            {
                                next += 1;
                            }
                            next == uids.len()
                        })
                        .await;
                    SubjectAnswer::Reached {
                        at,
                        usage: Usage::of_self(),
                    }
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
                SubjectOrder::Compare { truth } => self.compare(truth),
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

    fn resolve(&mut self, truth: Vec<Truth>) -> Vec<Expected> {
        self.known.extend(truth.iter().map(|t| t.uid.clone()));
        let expected = |of: Truth| Expected {
            uid: of.uid.into(),
            containers: of
                .containers
                .into_iter()
                .map(|(id, state)| (id.into(), state))
                .collect(),
        };
        truth.into_iter().map(expected).collect()
    }

    /// Looks at every change and every millisecond; when it was so.
    async fn until(&self, within: Duration, mut so: impl FnMut(&P) -> bool) -> Option<i64> {
        let end = self.clock.now().after(within);
        loop {
            if so(&self.subject) {
                return Some(wall().as_nanos());
            }
            let now = self.clock.now();
            if now > end {
                return None;
            }
            tokio::select! {
                () = self.changed.notified() => {}
                () = self.clock.sleep_until(now.after(LOOK)) => {}
            }
        }
    }

    async fn relist(&self, count: u32, allocated: Allocated) -> SubjectAnswer {
        // What one of them makes ready for all is no part of any.
        self.subject.relist().await;
        let mut took = Vec::with_capacity(count as usize);
        let (before, memory) = (Usage::of_self(), allocated());
        for _ in 0..count {
            let began = self.clock.now();
            self.subject.relist().await;
            let nanos = self.clock.now().nanos_since(began);
            took.push(u64::try_from(nanos).unwrap_or(0));
        }
        let usage = Usage::of_self().since(&before);
        let allocated = allocated()
            .zip(memory)
            .map(|(after, before)| after.since(&before));
        SubjectAnswer::Spent {
            usage,
            took,
            allocations: allocated.map(|a| a.times),
            bytes: allocated.map(|a| a.bytes),
        }
    }

    fn recorded(&mut self) -> Recorded {
        let mut counts = self.subject.counts();
        for (name, count) in &mut counts {
            *count -= self.counts.get(name).copied().unwrap_or(0);
        }
        if let Some(announcements) = &mut self.untaken {
            counts.insert(ENDS_TAKEN.to_owned(), announcements.take_ends());
        }
        let records = lock(&self.recording).take();
        let taken = |of: fn(&Records) -> &Histogram<u64>| {
            let of = records.as_ref().map(of);
            of.map(values).unwrap_or_default()
        };
        Recorded {
            end_to_end: taken(|records| &records.end_to_end),
            in_process: taken(|records| &records.in_process),
            counts,
        }
    }

    fn stale(&self, before: &[Truth], changes: &[Happened]) -> Result<Stale> {
        let Some(records) = &mut *lock(&self.recording) else {
            return Ok(Stale::default());
        };
        // The cache may show changes that were not announced.
        let uids: BTreeSet<&str> = changes.iter().map(|c| c.pod.uid.as_str()).collect();
        for uid in uids {
            records.looks.at(&*self.subject, &uid.into(), &mut |_| {});
        }
        records.looks.stale(before, changes, wall().as_nanos())
    }

    fn compare(&mut self, truth: Vec<Truth>) -> SubjectAnswer {
        let truth = self.resolve(truth);
        let (mut lost, mut ghosts) = (0, 0);
        let mut gone: BTreeSet<&str> = self.known.iter().map(String::as_str).collect();
        for expected in &truth {
            gone.remove(expected.uid.as_str());
            let shown = shown(&*self.subject, &expected.uid);
            let right = |(id, state): (&Id, &i32)| shown.get(id) == Some(state);
            lost += expected.containers.iter().filter(|of| !right(*of)).count() as u64;
            let real = |id: &&Id| expected.containers.contains_key(*id);
            ghosts += shown.keys().filter(|id| !real(id)).count() as u64;
        }
        for uid in gone {
            ghosts += shown(&*self.subject, &uid.into()).len() as u64;
        }
        SubjectAnswer::Compared { lost, ghosts }
    }
}

/// Reads the cache from a thread of its own, of one pod after the other.
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
            subject.shows(uid, &mut |row| {
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
        // Nobody waits any more if the harness is gone.
        let _ = send.send(values(&histogram));
    });
    Ok(done.await?)
}

struct Expected {
    uid: PodUid,
    containers: HashMap<Id, i32>,
}

fn shown<P: Subject>(subject: &P, uid: &PodUid) -> HashMap<Id, i32> {
    let mut shown = HashMap::new();
    subject.shows(uid, &mut |row| {
        shown.insert(row.id.clone(), row.state);
    });
    shown
}

fn agrees<P: Subject>(subject: &P, expected: &Expected) -> bool {
    let (mut right, mut wrong) = (0, 0);
    subject.shows(&expected.uid, &mut |row| {
        if expected.containers.get(row.id) == Some(&row.state) {
            right += 1;
        } else {
            wrong += 1;
        }
    });
    wrong == 0 && right == expected.containers.len()
}

fn shows_all<P: Subject>(subject: &P, truth: &[Expected]) -> bool {
    truth.iter().all(|of| agrees(subject, of))
}

fn used(allocated: Allocated) -> SubjectAnswer {
    SubjectAnswer::Used {
        usage: Usage::of_self(),
        held: allocated().map(|a| a.held),
    }
}

/// The histogram grows as it must.
pub(super) fn record(histogram: &mut Histogram<u64>, value: u64) {
    // That fails only where it cannot grow any more, after 500 years.
    let _ = histogram.record(value);
}

pub(super) fn values(histogram: &Histogram<u64>) -> crate::protocol::Histogram {
    let each = histogram.iter_recorded();
    each.map(|v| (v.value_iterated_to(), v.count_at_value()))
        .collect()
}
