//! The driver: the task that owns the reconciler, passes events and results of reads to it, and performs its outputs.
//! Only the driver writes the cache. It calls the runtime only in other tasks, and never waits for a consumer.

use std::collections::{BTreeMap, HashMap};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use pleg_core::{Instant, Output, Reconciler, StreamChange, StreamState, Ticket};
use pleg_evented::{Batch, Hints, ReaderGauges};
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
use crate::reads::{Read, Reads, Request};
use crate::requests::Command;
use crate::sync::{mpsc, watch};

/// The time for which the driver sleeps if it knows no time at which work is due.
const LONGEST_SLEEP: Duration = Duration::from_secs(15);

/// The deadline of the call that finds out how the runtime's event stream behaves (its event profile).
const PROFILE_DEADLINE: Duration = Duration::from_secs(5);

/// The number of hints (merged events) that the driver handles before it yields, so as not to block the reader of the
/// event stream, which may share the driver's thread.
const HINTS_AT_ONCE: usize = 1000;

/// The task that owns the reconciler.
pub(crate) struct Driver<R> {
    machine: Reconciler,
    reader: Arc<Reader<R>>,
    clock: Clock,
    to: Outputs,
    gauges: Arc<ReaderGauges>,
    /// Makes the reader of the event stream end the stream and subscribe again.
    renew: Arc<Notify>,
    profile: Profile,
    reads: Reads,
    /// The start of each pod read in progress that began with a list of the pod, by ticket (the number of the read).
    pod_reads: HashMap<Ticket, Instant>,
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
            pod_reads: HashMap::new(),
            problems: PodProblems::new(clock),
            metrics: metrics::MetricsWriter::default(),
            log: ListLog::default(),
        }
    }

    /// The pods for which calls to the runtime hang or fail.
    pub(crate) fn problems(&self) -> watch::Receiver<Arc<[PodProblem]>> {
        self.problems.subscribe()
    }

    /// Runs until `stop` is cancelled. Then it ends subscriptions, answers callers that wait with an error, and drops
    /// all reads.
    pub(crate) async fn run(
        mut self,
        hints: Hints,
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
                self.to.records.due(),
            ];
            let due = due.into_iter().flatten().min();
            let due = due.unwrap_or_else(|| self.clock.now().after(LONGEST_SLEEP));
            tokio::select! {
                () = &mut stopped => break,
                () = hints.wait() => self.handle_hints(hints.take()).await,
                Some(read) = self.reads.next() => {
                    // Handles queued hints first: Died then has an exit code that a hint shows and `read` does not.
                    self.handle_hints(hints.take()).await;
                    self.handle_read(read);
                }
                Some(command) = commands.recv() => {
                    let now = self.clock.now();
                    let is_idle = || commands.is_empty();
                    self.to.handle(&mut self.machine, now, command, is_idle);
                }
                () = self.clock.sleep_until(due) => {}
            }
            let now = self.clock.now();
            self.to
                .clean_up(&mut self.machine, now, || commands.is_empty());
            self.machine.handle_timeout(now);
            self.perform_all();
            self.show();
        }
        // Answers callers that wait before it drops reads, because dropping a call may take a while.
        self.to.close(&mut commands);
        self.reads.shutdown().await;
    }

    async fn handle_hints(&mut self, batch: Batch) {
        for change in batch.changes {
            metrics::stream_changed(&change);
            if let StreamChange::Subscribed { .. } = change {
                // The runtime may have been upgraded since the last stream: requests the event profile again.
                self.profile = Profile::Unknown;
                self.ask_profile();
            }
            self.machine.handle_stream(self.clock.now(), change);
        }
        metrics::arrived(&batch.latencies);
        let (mut hints, mut lost) = (batch.hints.into_iter().peekable(), batch.lost);
        while hints.peek().is_some() || lost > 0 {
            let part: BTreeMap<_, _> = hints.by_ref().take(HINTS_AT_ONCE).collect();
            let lost = std::mem::take(&mut lost);
            self.machine.handle_hints(self.clock.now(), part, lost);
            self.perform_all();
            if hints.peek().is_some() {
                tokio::task::yield_now().await;
            }
        }
        self.perform_all();
    }

    fn handle_read(&mut self, read: Read) {
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
            Read::PodList(list) => {
                let ticket = list.ticket;
                self.machine.handle_pod_list(now, *list);
                self.handle_step(ticket);
            }
            Read::Statuses(statuses) => {
                let ticket = statuses.ticket;
                self.machine.handle_statuses(now, *statuses);
                self.handle_step(ticket);
            }
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

    /// Handles the end of one step of a pod read: the list of the pod, or its status calls. After the last step,
    /// records the duration of the whole read.
    fn handle_step(&mut self, ticket: Ticket) {
        self.perform_all();
        if !self.reads.is_reading(ticket)
            && let Some(began) = self.pod_reads.remove(&ticket)
        {
            metrics::pod_read(self.clock.now().since(began));
        }
    }

    /// Requests the event profile of the runtime, unless it is known or no stream is used. If the request fails, the
    /// driver repeats it after the next successful list.
    fn ask_profile(&mut self) {
        if self.profile == Profile::Unknown
            && self.machine.health(self.clock.now()).stream != StreamState::Off
        {
            self.profile = Profile::Requested;
            let reader = self.reader.clone();
            let ask = async move { Read::Profile(reader.event_profile(PROFILE_DEADLINE).await) };
            let span = debug_span!("version");
            self.reads
                .start(Request::Profile, self.clock.now(), span, ask);
        }
    }

    /// Performs all outputs that the reconciler has produced, in order.
    fn perform_all(&mut self) {
        while let Some(output) = self.machine.poll_output() {
            if let Some(request) = self.to.perform(output, self.clock.now()) {
                self.start(request);
            }
        }
    }

    /// Publishes health, counters and metrics once per turn of the loop.
    fn show(&mut self) {
        let now = self.clock.now();
        let mut health = self.machine.health(now);
        health.unacknowledged = self.to.records.unacknowledged();
        let mut counters = self.machine.counters();
        // The stream reader merges events, so the reconciler sees fewer than arrived: show the reader's count.
        counters.events = self.gauges.events();
        let published = &self.to.published;
        self.metrics
            .show(&health, &counters, published, &self.gauges, now);
        self.to.show(health, counters, now);
        self.problems
            .update(&self.machine, &self.reads, &self.to.published);
    }

    /// Starts the read that the reconciler requested, or ends the event stream to subscribe again.
    fn start(&mut self, request: Output) {
        let now = self.clock.now();
        match request {
            Output::List {
                ticket,
                deadline,
                known,
            } => {
                let reader = self.reader.clone();
                let list = async move { Read::List(reader.list(ticket, deadline, known).await) };
                let span = debug_span!("list", ticket = ticket.get());
                self.reads.start(Request::List(ticket), now, span, list);
            }
            Output::ListPod {
                ticket,
                uid,
                deadline,
            } => {
                let reader = self.reader.clone();
                let span = debug_span!("list_pod", ticket = ticket.get(), pod = %uid);
                let progress = Progress::default();
                let request = Request::PodList(ticket, progress.clone());
                let list = async move {
                    let list = reader.list_pod(ticket, &uid, deadline, &progress);
                    Read::PodList(Box::new(list.await))
                };
                self.pod_reads.insert(ticket, now);
                self.reads.start(request, now, span, list);
            }
            Output::ReadStatuses {
                ticket,
                ids,
                deadline,
            } => {
                let reader = self.reader.clone();
                let span = debug_span!("statuses", ticket = ticket.get());
                let progress = Progress::default();
                let request = Request::Statuses(ticket, ids.clone(), progress.clone());
                let read = async move {
                    let statuses = reader.statuses(ticket, ids, deadline, &progress);
                    Read::Statuses(Box::new(statuses.await))
                };
                self.reads.start(request, now, span, read);
            }
            Output::Version { ticket, deadline } => {
                let reader = self.reader.clone();
                let call = async move { Read::Version(reader.version(ticket, deadline).await) };
                let span = debug_span!("version", ticket = ticket.get());
                self.reads.start(Request::Version(ticket), now, span, call);
            }
            Output::Resubscribe => self.renew.notify_one(),
            other => tracing::error!(
                ?other,
                "the driver does not support this output of the core"
            ),
        }
    }
}

/// The state of the request for the runtime's event profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Profile {
    Unknown,
    Requested,
    Known,
}
