//! The one writer (law 1): a task that owns the machine, feeds it with what the sources observe
//! and does what it wants done. It makes no call itself and waits for no consumer.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use pleg_core::{
    CallError, CallErrorKind, Counters, Health, Id, Inspection, Instant, Kind, LifecycleType, List,
    Output, PodLifecycleEvent, PodUid, PodView, Reading, Reconciler, Ticket, WaiterId,
};
use pleg_evented::{ReaderGauges, StreamObservation};
use pleg_generic::Reader;
use pleg_runtime::Runtime;
use pleg_runtime::clock::Clock;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::cache::Published;
use crate::fifo::FifoSender;
use crate::log::ListLog;
use crate::metrics;
use crate::subscription::Subscribers;

/// How often the writer shows that it lives.
const BEAT: Duration = Duration::from_secs(2);

/// What consumers ask of the writer.
#[derive(Debug)]
pub(crate) enum Command {
    Wait {
        uid: PodUid,
        after: Instant,
        reply: Reply,
    },
    Relist {
        uid: PodUid,
        reply: Reply,
    },
    Reinspect {
        uid: PodUid,
        reply: Reply,
    },
    RelistNow {
        reply: oneshot::Sender<Result<(), CallError>>,
    },
    Acknowledge {
        id: Id,
    },
    /// The runtime gave a sign of life.
    Alive,
}

type Reply = oneshot::Sender<Result<PodView, CallError>>;

/// The writer.
pub(crate) struct Driver<R> {
    machine: Reconciler,
    reader: Arc<Reader<R>>,
    clock: Clock,
    to: Outlets,
    gauges: Arc<ReaderGauges>,
    reads: Reads,
    waiting: HashMap<WaiterId, Waiting>,
    last_waiter: u64,
    metrics: metrics::Shown,
    log: ListLog,
}

/// Where what comes out goes to.
pub(crate) struct Outlets {
    pub(crate) published: Arc<Published>,
    pub(crate) subscribers: Arc<Subscribers>,
    pub(crate) fifo: Option<FifoSender>,
    pub(crate) health: watch::Sender<Health>,
    pub(crate) counters: watch::Sender<Counters>,
}

enum Waiting {
    Pod(Reply),
    List(oneshot::Sender<Result<(), CallError>>),
}

impl<R: Runtime> Driver<R> {
    pub(crate) fn new(
        machine: Reconciler,
        reader: Reader<R>,
        clock: Clock,
        to: Outlets,
        gauges: Arc<ReaderGauges>,
    ) -> Self {
        Self {
            machine,
            reader: Arc::new(reader),
            clock,
            to,
            gauges,
            reads: Reads::default(),
            waiting: HashMap::new(),
            last_waiter: 0,
            metrics: metrics::Shown::default(),
            log: ListLog::default(),
        }
    }

    /// Turns until it is told to stop. Then all reads are dropped, whoever waits is told, and
    /// subscriptions end.
    pub(crate) async fn run(
        mut self,
        mut observations: mpsc::Receiver<StreamObservation>,
        mut commands: mpsc::Receiver<Command>,
        stop: CancellationToken,
    ) {
        loop {
            self.perform_all();
            let next_beat = self.to.health.borrow().beat.after(BEAT);
            let wake = self
                .machine
                .poll_timeout()
                .map_or(next_beat, |t| t.min(next_beat));
            tokio::select! {
                () = stop.cancelled() => break,
                Some(observation) = observations.recv() => {
                    self.observe(observation);
                    // What has queued meanwhile is taken in one turn.
                    for _ in 0..64 {
                        let Ok(observation) = observations.try_recv() else { break };
                        self.observe(observation);
                        self.perform_all();
                    }
                }
                Some(read) = self.reads.next() => self.read_ended(read),
                Some(command) = commands.recv() => self.obey(command),
                () = self.clock.sleep_until(wake) => {}
            }
            let now = self.clock.now();
            let behind = self.gauges.waiting() > 0 || !observations.is_empty();
            self.machine.handle_backlog(now, behind);
            self.machine.handle_timeout(now);
            if now >= next_beat {
                self.forget_the_gone();
            }
        }
        // Whoever waits is told first: a call may take its time to be dropped.
        commands.close();
        while commands.try_recv().is_ok() {}
        self.waiting.clear();
        self.to.subscribers.close();
        self.reads.tasks.shutdown().await;
    }

    fn observe(&mut self, observation: StreamObservation) {
        let now = self.clock.now();
        match observation {
            StreamObservation::Event(arrival) => {
                self.metrics.arrived(&arrival);
                self.machine.handle_event(now, arrival);
            }
            StreamObservation::Change(change) => {
                metrics::stream_changed(&change);
                self.machine.handle_stream(now, change);
            }
        }
    }

    fn read_ended(&mut self, read: Read) {
        let now = self.clock.now();
        match read {
            Read::List(list) => {
                self.metrics.listed(&list);
                self.log.listed(&list);
                self.machine.handle_list(now, list);
            }
            Read::Inspection(inspection) => {
                metrics::inspected(&inspection);
                self.machine.handle_inspection(now, *inspection);
            }
            Read::Reading(reading) => self.machine.handle_reading(now, *reading),
        }
    }

    fn obey(&mut self, command: Command) {
        let now = self.clock.now();
        match command {
            Command::Wait { uid, after, reply } => {
                let waiter = self.waiter(Waiting::Pod(reply));
                self.machine.wait(now, waiter, &uid, after);
            }
            Command::Relist { uid, reply } => {
                let waiter = self.waiter(Waiting::Pod(reply));
                self.machine.relist(now, waiter, &uid);
            }
            Command::Reinspect { uid, reply } => {
                let waiter = self.waiter(Waiting::Pod(reply));
                self.machine.reinspect(now, waiter, &uid);
            }
            Command::RelistNow { reply } => {
                let waiter = self.waiter(Waiting::List(reply));
                self.machine.relist_now(now, waiter);
            }
            Command::Acknowledge { id } => self.machine.acknowledge(&id),
            Command::Alive => self.machine.handle_alive(now),
        }
    }

    fn waiter(&mut self, waiting: Waiting) -> WaiterId {
        self.last_waiter += 1;
        let waiter = WaiterId::new(self.last_waiter);
        self.waiting.insert(waiter, waiting);
        waiter
    }

    /// Those who gave up waiting are waited for no longer.
    fn forget_the_gone(&mut self) {
        let machine = &mut self.machine;
        self.waiting.retain(|&waiter, waiting| {
            let gone = match waiting {
                Waiting::Pod(reply) => reply.is_closed(),
                Waiting::List(reply) => reply.is_closed(),
            };
            if gone {
                machine.cancel(waiter);
            }
            !gone
        });
    }

    /// Does what the machine wants done, in its order, and shows what came of it.
    fn perform_all(&mut self) {
        while let Some(output) = self.machine.poll_output() {
            self.perform(output);
        }
        let now = self.clock.now();
        let health = self.machine.health(now);
        let counters: Counters = self.machine.counters();
        self.metrics
            .show(&health, &counters, self.machine.census(), &self.gauges, now);
        self.to.counters.send_if_modified(|shown| {
            let changed = *shown != counters;
            if changed {
                *shown = counters;
            }
            changed
        });
        self.to.health.send_if_modified(|shown| {
            let same = shown.says_the_same(&health);
            if same && now.since(shown.beat) < BEAT {
                return false;
            }
            crate::log::health_changed(shown, &health, now);
            *shown = health;
            true
        });
    }

    fn perform(&mut self, output: Output) {
        match output {
            Output::Publish { uid, view } => self.to.published.put(uid, view),
            Output::Withdraw { uid } => self.to.published.withdraw(&uid),
            Output::Swept { as_of, gone } => self.to.published.sweep(as_of, &gone),
            Output::Confirm { as_of, pods } => self.to.published.confirm(as_of, &pods),
            Output::Terminals { uid, records } => self.to.published.set_ends(uid, records),
            Output::Announce(event) => self.announce(&event),
            Output::Answer { waiter, answer } => {
                if let Some(Waiting::Pod(reply)) = self.waiting.remove(&waiter) {
                    // Whoever gave up waiting does not mind.
                    let _ = reply.send(answer);
                }
            }
            Output::Listed { waiter, outcome } => {
                if let Some(Waiting::List(reply)) = self.waiting.remove(&waiter) {
                    let _ = reply.send(outcome);
                }
            }
            Output::List { ticket, deadline } => {
                let reader = self.reader.clone();
                let list = async move { Read::List(reader.list(ticket, deadline).await) };
                self.reads
                    .start(Asked::List(ticket), self.clock.now(), list);
            }
            Output::Inspect {
                ticket,
                uid,
                held,
                deadline,
                ..
            } => {
                let reader = self.reader.clone();
                let inspect = async move {
                    Read::Inspection(Box::new(
                        reader.inspect(ticket, &uid, &held, deadline).await,
                    ))
                };
                self.reads
                    .start(Asked::Inspection(ticket), self.clock.now(), inspect);
            }
            Output::Read {
                ticket,
                id,
                kind,
                deadline,
            } => {
                let reader = self.reader.clone();
                let read = async move {
                    Read::Reading(Box::new(reader.read(ticket, &id, kind, deadline).await))
                };
                self.reads
                    .start(Asked::Reading(ticket), self.clock.now(), read);
            }
            Output::Cancel { ticket } => self.reads.cancel(ticket),
            other => tracing::error!(
                ?other,
                "the core wants something that this driver cannot do"
            ),
        }
    }

    fn announce(&self, event: &PodLifecycleEvent) {
        if event.event == LifecycleType::ContainerDied
            && let Some(subject) = event.subject.as_ref().filter(|s| s.kind == Kind::Container)
        {
            tracing::info!(
                pod = %event.uid,
                namespace = %event.namespace,
                name = %event.pod_name,
                container = %subject.name,
                id = %subject.id,
                exit_code = subject.exit_code,
                reason = %subject.reason,
                source = %event.source,
                "container died"
            );
        }
        self.to.subscribers.announce(event);
        if let Some(fifo) = &self.to.fifo {
            fifo.announce(event);
        }
    }
}

/// What the read side has ended with.
enum Read {
    List(List),
    Inspection(Box<Inspection>),
    Reading(Box<Reading>),
}

/// The reads under way. Each is answered once, whatever becomes of its task.
#[derive(Default)]
struct Reads {
    tasks: JoinSet<Read>,
    asked: HashMap<tokio::task::Id, (Asked, Instant, AbortHandle)>,
}

#[derive(Clone, Copy)]
enum Asked {
    List(Ticket),
    Inspection(Ticket),
    Reading(Ticket),
}

impl Reads {
    fn start(
        &mut self,
        asked: Asked,
        now: Instant,
        read: impl Future<Output = Read> + Send + 'static,
    ) {
        let handle = self.tasks.spawn(read);
        self.asked.insert(handle.id(), (asked, now, handle));
    }

    /// Drops an inspection. Its answer, if one comes, is ignored by the machine.
    fn cancel(&self, ticket: Ticket) {
        for (asked, _, handle) in self.asked.values() {
            if matches!(asked, Asked::Inspection(t) if *t == ticket) {
                handle.abort();
            }
        }
    }

    /// The next read that has ended; `None` if none is under way. Cancel safe.
    async fn next(&mut self) -> Option<Read> {
        let ended = self.tasks.join_next_with_id().await?;
        Some(match ended {
            Ok((id, read)) => {
                self.asked.remove(&id);
                read
            }
            Err(error) => self.answer_for(&error)?,
        })
    }

    /// A read that was dropped or has panicked failed.
    fn answer_for(&mut self, error: &JoinError) -> Option<Read> {
        let (asked, began, _) = self.asked.remove(&error.id())?;
        let kind = if error.is_cancelled() {
            CallErrorKind::Cancelled
        } else {
            CallErrorKind::Failed
        };
        let failed = |operation| CallError::new(operation, kind, error.to_string());
        if error.is_panic() {
            tracing::error!(%error, "a read panicked; it counts as failed");
        }
        Some(match asked {
            Asked::List(ticket) => Read::List(List {
                ticket,
                began,
                ended: began,
                rows: Err(failed("List")),
            }),
            Asked::Inspection(ticket) => Read::Inspection(Box::new(Inspection {
                ticket,
                began,
                ended: began,
                found: Vec::new(),
                gone: Vec::new(),
                error: Some(failed("Inspect")),
            })),
            Asked::Reading(ticket) => Read::Reading(Box::new(Reading {
                ticket,
                began,
                ended: began,
                report: Err(failed("Read")),
            })),
        })
    }
}
