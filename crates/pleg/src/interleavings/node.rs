//! A simulated node behind a mutex, and a small driver that writes the cache of the node's generator.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pleg_core::{
    CallError, CallErrorKind, ContainerDetails, Counters, Id, Identity, Instant, Kind, List,
    Output, PodList, Reconciler, Report, ReportedState, Settings, Statuses,
};
use pleg_evented::handover;
use pleg_runtime::clock::Clock;
use shuttle::rand::Rng;
use shuttle_tokio::task::spawn;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cache::Published;
use crate::exit_records::ExitRecords;
use crate::handle::{Pleg, Shared};
use crate::log::HealthLog;
use crate::outputs::Outputs;
use crate::recorder::Metrics;
use crate::requests::{Command, Requests};
use crate::subscription::Announcer;
use crate::sync::{mpsc, watch};

/// The containers of the node, and a clock that advances whenever it is read.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    exists: Arc<Mutex<Vec<Report>>>,
    time: Arc<AtomicU64>,
}

impl Node {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.time.fetch_add(1_000_000, Ordering::Relaxed) + 1_000_000_000)
    }

    pub(super) fn exists(&self) -> Vec<Report> {
        let exists = self.exists.lock();
        exists.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Starts a container and returns the instant of the start.
    pub(super) fn start(&self, pod: &str, id: &str) -> Instant {
        let mut identity = Identity::new(Kind::Container);
        identity.pod = Some(pod.into());
        identity.name = Some(id.into());
        let details = ContainerDetails::default();
        let report = Report::new(id, ReportedState::Running, identity, details);
        let mut exists = self.exists.lock().unwrap_or_else(PoisonError::into_inner);
        exists.push(report);
        drop(exists);
        self.now()
    }
}

/// Writes the cache as the real driver does, except that shuttle's schedule decides how long a read takes.
pub(super) struct Writer {
    node: Node,
    machine: Reconciler,
    to: Outputs,
    commands: mpsc::Receiver<Command>,
    stop: CancellationToken,
    reads: VecDeque<(Output, Instant)>,
}

/// A generator of `node`, and the writer of its cache. Must be called inside a shuttle execution.
pub(super) fn generator(node: &Node) -> (Pleg, Writer) {
    let now = node.now();
    let machine = Reconciler::new(Settings::default(), now).expect("valid settings");
    let (commands, requests) = mpsc::channel(4);
    let (health, watched) = watch::channel(machine.health(now));
    let (counted, counters) = watch::channel(Counters::default());
    let (published, announcer) = <(Arc<Published>, Announcer)>::default();
    let subscribers = announcer.subscribers();
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let to = Outputs {
        published: published.clone(),
        subscribers: announcer,
        fifo: None,
        health,
        counters: counted,
        requests: Requests::default(),
        log: HealthLog::default(),
        records: ExitRecords::default(),
    };
    let shared = Shared {
        clock: Clock::start(),
        published,
        subscribers,
        health: watched,
        problems: watch::channel(Arc::default()).1,
        gauges: handover().1.gauges(),
        counters,
        commands,
        metrics: Metrics::default(),
        stop: stop.clone(),
        tasks,
        tokio: None,
    };
    let running = stop.clone().drop_guard();
    let writer = Writer {
        node: node.clone(),
        machine,
        to,
        commands: requests,
        stop,
        reads: VecDeque::new(),
    };
    let pleg = Pleg {
        shared: Arc::new(shared),
        _running: Some(Arc::new(running)),
    };
    (pleg, writer)
}

impl Writer {
    pub(super) fn spawn(self, pleg: &Pleg) {
        let tasks = pleg.shared.tasks.clone();
        spawn(tasks.track_future(self.run()));
        tasks.close();
    }

    async fn run(mut self) {
        loop {
            self.turn();
            if self.stop.is_cancelled() {
                break;
            }
            let reads_first = !self.reads.is_empty() && shuttle::rand::thread_rng().gen_bool(0.5);
            if reads_first || (self.commands.is_empty() && !self.reads.is_empty()) {
                self.answer_a_read();
                shuttle::future::yield_now().await;
                continue;
            }
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                Some(command) = self.commands.recv() => {
                    let now = self.node.now();
                    let is_idle = || self.commands.is_empty();
                    self.to.handle(&mut self.machine, now, command, is_idle);
                }
            }
            let now = self.node.now();
            let is_idle = || self.commands.is_empty();
            self.to.clean_up(&mut self.machine, now, is_idle);
        }
        self.to.close(&mut self.commands);
    }

    fn turn(&mut self) {
        while let Some(output) = self.machine.poll_output() {
            if let Some(request) = self.to.perform(output, self.node.now()) {
                self.reads.push_back((request, self.node.now()));
            }
        }
        let now = self.node.now();
        let (health, counters) = (self.machine.health(now), self.machine.counters());
        self.to.show(health, counters, now);
    }

    fn answer_a_read(&mut self) {
        let Some((read, began)) = self.reads.pop_front() else {
            return;
        };
        let exists = self.node.exists();
        let now = self.node.now();
        match read {
            Output::List { ticket, .. } => {
                let list = List {
                    ticket,
                    began,
                    ended: now,
                    rows: Ok(exists.into_iter().collect()),
                };
                self.machine.handle_list(now, list);
            }
            Output::ListPod { ticket, uid, .. } => {
                let of_pod = |r: &Report| r.identity.pod.as_ref() == Some(&uid);
                let list = PodList {
                    ticket,
                    began,
                    rows: Ok(exists.into_iter().filter(of_pod).collect()),
                };
                self.machine.handle_pod_list(now, list);
            }
            Output::ReadStatuses { ticket, ids, .. } => {
                let status = |id: &Id| {
                    let known = exists.iter().find(|report| report.id == *id);
                    let error = |()| CallError::new("status", CallErrorKind::NotFound, "gone");
                    known.cloned().ok_or(()).map_err(error)
                };
                let answers = ids.into_iter().map(|(id, _)| {
                    let answer = status(&id);
                    (id, answer)
                });
                let statuses = Statuses {
                    ticket,
                    began,
                    answers: answers.collect(),
                };
                self.machine.handle_statuses(now, statuses);
            }
            _ => {}
        }
    }
}
