//! The one writer (invariant 1): a task that owns the reconciler, feeds it with the observations of
//! the sources and performs its outputs. It makes no call itself and waits for no consumer.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use pleg_core::{Counters, Output, Reconciler, StreamChange, StreamObservation, StreamState};
use pleg_evented::{Observations, ReaderGauges};
use pleg_generic::{Progress, Reader};
use pleg_runtime::Runtime;
use pleg_runtime::clock::Clock;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::debug_span;

use crate::log::ListLog;
use crate::metrics;
use crate::outputs::Outputs;
use crate::problems::{PodProblem, PodProblems};
use crate::reads::{Asked, Read, Reads};
use crate::requests::Command;
use crate::sync::{mpsc, watch};

/// The longest sleep of the writer.
const LONGEST_SLEEP: Duration = Duration::from_secs(15);

/// The deadline of the call that determines the runtime's event profile.
const PROFILE_DEADLINE: Duration = Duration::from_secs(5);

/// How many observations are handled before the other branches run.
const AT_ONCE: usize = 16;

/// The writer.
pub(crate) struct Driver<R> {
    machine: Reconciler,
    reader: Arc<Reader<R>>,
    clock: Clock,
    to: Outputs,
    gauges: Arc<ReaderGauges>,
    /// Ends the present stream, so that it is subscribed again.
    renew: Arc<Notify>,
    profile: Profile,
    reads: Reads,
    problems: PodProblems,
    metrics: metrics::MetricsWriter,
    log: ListLog,
}

impl<R: Runtime> Driver<R> {
    pub(crate) fn new(
        machine: Reconciler,
        reader: Reader<R>,
        reads: Reads,
        clock: Clock,
        to: Outputs,
        gauges: Arc<ReaderGauges>,
        renew: Arc<Notify>,
    ) -> Self {
        Self {
            machine,
            reader: Arc::new(reader),
            clock,
            to,
            gauges,
            renew,
            profile: Profile::Unknown,
            reads,
            problems: PodProblems::new(clock),
            metrics: metrics::MetricsWriter::default(),
            log: ListLog::default(),
        }
    }

    /// The pods whose calls hang or fail.
    pub(crate) fn problems(&self) -> watch::Receiver<Arc<[PodProblem]>> {
        self.problems.subscribe()
    }

    /// Runs until it is stopped. Then waiters get an error, subscriptions end, and all reads are
    /// dropped.
    pub(crate) async fn run(
        mut self,
        mut observations: Observations,
        mut commands: mpsc::Receiver<Command>,
        stop: CancellationToken,
    ) {
        self.perform_all();
        self.show();
        let mut stopped = pin!(stop.cancelled());
        loop {
            let due = [
                self.machine.poll_timeout(),
                self.metrics.due(),
                self.problems.due(),
            ];
            let due = due.into_iter().flatten().min();
            let due = due.unwrap_or_else(|| self.clock.now().after(LONGEST_SLEEP));
            tokio::select! {
                () = &mut stopped => break,
                Some(observation) = observations.recv() => {
                    self.observe(observation);
                    self.perform_all();
                    // Observations that arrived meanwhile are handled in the same turn.
                    for _ in 1..AT_ONCE {
                        let Some(observation) = observations.try_recv() else { break };
                        self.observe(observation);
                        self.perform_all();
                    }
                    // The stream's reader may share this thread and must not be blocked
                    // (invariant 8).
                    if observations.more_wait() {
                        tokio::task::yield_now().await;
                    }
                }
                Some(read) = self.reads.next() => self.read_ended(read),
                Some(command) = commands.recv() => {
                    let now = self.clock.now();
                    self.to.requests.handle(&mut self.machine, now, command);
                }
                () = self.clock.sleep_until(due) => {}
            }
            let now = self.clock.now();
            self.machine.handle_backlog(now, observations.more_wait());
            if self.machine.poll_timeout().is_some_and(|due| due <= now) {
                // Nothing is read for waiters that were dropped.
                self.to.requests.cancel_abandoned(&mut self.machine);
            }
            self.machine.handle_timeout(now);
            self.perform_all();
            self.show();
        }
        // Waiters first: dropping a call may take a while.
        self.to.close(&mut commands);
        self.reads.shutdown().await;
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
                if let StreamChange::Subscribed { wall, .. } = change {
                    self.metrics.subscribed(wall);
                    // The runtime may have been replaced by another version.
                    self.profile = Profile::Unknown;
                    self.ask_profile();
                }
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
                if list.rows.is_ok() {
                    self.ask_profile();
                }
                self.machine.handle_list(now, list);
            }
            Read::Inspection(inspection) => {
                metrics::inspected(&inspection);
                self.machine.handle_inspection(now, *inspection);
            }
            Read::Status(reading) => self.machine.handle_status_read(now, *reading),
            Read::Version(version) => self.machine.handle_version(now, version),
            Read::Profile(Ok(profile)) => {
                self.profile = Profile::Known;
                self.machine.handle_profile(now, profile);
            }
            Read::Profile(Err(error)) => {
                tracing::debug!(%error, "cannot determine the runtime's version; asking again after the next list");
                self.profile = Profile::Unknown;
            }
        }
    }

    /// Requests the event profile, unless it is known. If that fails, it is requested again after
    /// the next list.
    fn ask_profile(&mut self) {
        if self.profile == Profile::Unknown
            && self.machine.health(self.clock.now()).stream != StreamState::Off
        {
            self.profile = Profile::Asked;
            let reader = self.reader.clone();
            let ask = async move { Read::Profile(reader.event_profile(PROFILE_DEADLINE).await) };
            let span = debug_span!("version");
            self.reads
                .start(Asked::Profile, self.clock.now(), span, ask);
        }
    }

    /// Performs the outputs of the reconciler, in their order.
    fn perform_all(&mut self) {
        while let Some(output) = self.machine.poll_output() {
            if let Some(wanted) = self.to.tell(output) {
                self.start(wanted);
            }
        }
    }

    /// Publishes health, counters and metrics once per turn.
    fn show(&mut self) {
        let now = self.clock.now();
        let health = self.machine.health(now);
        let counters: Counters = self.machine.counters();
        self.metrics.show(
            &health,
            &counters,
            self.machine.state_counts(),
            &self.gauges,
            now,
        );
        self.to.show(health, counters, now);
        self.problems
            .update(&self.machine, &self.reads, &self.to.published);
    }

    fn start(&mut self, wanted: Output) {
        match wanted {
            Output::List {
                ticket,
                deadline,
                known,
            } => {
                let reader = self.reader.clone();
                let list = async move { Read::List(reader.list(ticket, deadline, known).await) };
                let span = debug_span!("list", ticket = ticket.get());
                self.reads
                    .start(Asked::List(ticket), self.clock.now(), span, list);
            }
            Output::Inspect {
                ticket,
                uid,
                held,
                deadline,
                ..
            } => {
                let reader = self.reader.clone();
                let span = debug_span!("inspect", ticket = ticket.get(), pod = %uid);
                let progress = Progress::default();
                let asked = Asked::Inspection(ticket, progress.clone());
                let inspect = async move {
                    let inspect = reader.inspect(ticket, &uid, &held, deadline, &progress);
                    Read::Inspection(Box::new(inspect.await))
                };
                self.reads.start(asked, self.clock.now(), span, inspect);
            }
            Output::Read {
                ticket,
                id,
                kind,
                deadline,
            } => {
                let reader = self.reader.clone();
                let span = debug_span!("status", ticket = ticket.get(), %id);
                let read = async move {
                    Read::Status(Box::new(reader.read(ticket, &id, kind, deadline).await))
                };
                self.reads
                    .start(Asked::Status(ticket), self.clock.now(), span, read);
            }
            Output::Version { ticket, deadline } => {
                let reader = self.reader.clone();
                let call = async move { Read::Version(reader.version(ticket, deadline).await) };
                let span = debug_span!("version", ticket = ticket.get());
                self.reads
                    .start(Asked::Version(ticket), self.clock.now(), span, call);
            }
            Output::Cancel { ticket } => self.reads.cancel(ticket),
            Output::Resubscribe => self.renew.notify_one(),
            other => tracing::error!(
                ?other,
                "the driver does not support this output of the core"
            ),
        }
    }
}

/// Whether the event profile of the runtime is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Profile {
    Unknown,
    Asked,
    Known,
}
