//! Observes a node: takes the records and measurements of a generator, and computes views of it.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pleg::core::{PodUid, WallTime};
use pleg::{Delivery, Pleg, PodProblem, Subscription};
use tokio::sync::watch;

use crate::connect::{Chosen, Target};
use crate::health::{CHECK_PERIOD, HealthChanges};
use crate::meter::Meter;
use crate::picture::Picture;
use crate::picture::facts::{Collector, Facts};
use crate::picture::generator::Generator;
use crate::picture::runtime::Problem;
use crate::record::Record;
use crate::view::{Inputs, Lines, Model, Query, View};

/// The observer of one node. Clones share what is remembered.
#[derive(Clone)]
pub(crate) struct Observer(Arc<Shared>);

struct Shared {
    pleg: Pleg,
    meter: Meter,
    node: String,
    runtime: Chosen,
    facts: watch::Sender<Facts>,
    generator: Mutex<Generator>,
    model: Mutex<Model>,
    changes: watch::Sender<u64>,
}

impl Observer {
    pub(crate) fn new(target: &Target, pleg: &Pleg) -> Self {
        let clock = pleg.clock();
        // The host name as the kernel reports it: in a pod on the host's network, the name of the node.
        let node = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self(Arc::new(Shared {
            pleg: pleg.clone(),
            meter: target.meter.clone(),
            node: node.trim().to_owned(),
            runtime: target.runtime.clone(),
            facts: watch::Sender::default(),
            generator: Mutex::default(),
            model: Mutex::new(Model::new(clock.now(), clock.wall())),
            changes: watch::Sender::new(0),
        }))
    }

    /// Observes until the generator ends. What existed at the start is not recorded.
    pub(crate) async fn run(&self, mut events: Subscription) {
        let Shared { pleg, .. } = &*self.0;
        let (clock, started) = (pleg.clock(), pleg.clock().wall());
        let mut health = pleg.health();
        let mut changes = HealthChanges::default();
        let mut interval = tokio::time::interval(CHECK_PERIOD);
        let ids = |uid: &PodUid| {
            let status = pleg.get(uid).status;
            status.sandboxes.len() + status.containers.len()
        };
        loop {
            tokio::select! {
                delivery = events.next() => {
                    let Some(delivery) = delivery else { return };
                    // No records of what existed at the start, because a view shows it anyway.
                    if !matches!(&delivery, Delivery::Event(event) if event.initial) {
                        let pods = || pleg.snapshot().len();
                        let record = Record::delivery(&delivery, clock, started, pods);
                        record.iter().for_each(|record| self.add(record));
                    }
                    self.0.changes.send_modify(|n| *n += 1);
                    continue;
                }
                _ = interval.tick() => self.model().tick(clock.now(), ids),
                true = health.changed() => {}
            }
            for record in changes.update(&self.picture(), clock) {
                self.add(&record);
            }
            self.0.changes.send_modify(|n| *n += 1);
        }
    }

    /// Collects the facts that the generator does not know, until it is dropped.
    pub(crate) async fn collect(&self, collector: Collector) -> Infallible {
        collector.run(&self.0.facts).await
    }

    pub(crate) fn facts(&self) -> Facts {
        self.0.facts.borrow().clone()
    }

    pub(crate) fn picture(&self) -> Picture {
        Picture::now(&self.0.pleg, &self.facts(), &mut lock(&self.0.generator))
    }

    /// Is notified when something in the view has changed other than ages and durations.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    pub(crate) fn view(&self, query: &Query) -> View {
        self.view_and_problems(query).0
    }

    /// The view, and the pods about which calls hang or fail, at the same moment.
    pub(crate) fn view_and_problems(&self, query: &Query) -> (View, Arc<[PodProblem]>) {
        let Shared { pleg, meter, .. } = &*self.0;
        let (facts, now) = (self.facts(), meter.clock().now());
        let picture = Picture::now(pleg, &facts, &mut lock(&self.0.generator));
        let problems = Problem::all(&picture.problems, now);
        let ends = match &*query.pod {
            "" => Arc::default(),
            uid => pleg.exits(&PodUid::from(uid)),
        };
        let inputs = Inputs {
            now,
            wall: meter.clock().wall(),
            picture: &picture,
            facts: &facts,
            health: &pleg.health().current(),
            problems: problems.iter().map(|p| (&*p.pod, p)).collect(),
            pods: &pleg.snapshot(),
            ends: &ends,
            calls: &meter.calls(),
            node: &self.0.node,
            runtime: &self.0.runtime.to_string(),
            simulated: self.0.runtime.is_simulated(),
        };
        (self.model().view(&inputs, query), picture.problems.clone())
    }

    pub(crate) fn lines(&self, since: Option<WallTime>, after: u64) -> Lines {
        let now = self.0.meter.clock().wall();
        self.model().feed.lines(now, since, after)
    }

    fn add(&self, record: &Record) {
        let clock = self.0.meter.clock();
        self.model().record(clock.now(), clock.wall(), record);
    }

    fn model(&self) -> MutexGuard<'_, Model> {
        lock(&self.0.model)
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
