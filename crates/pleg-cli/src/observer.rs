//! Observes a node: takes the records and measurements of a generator, and computes views of it.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pleg::core::PodUid;
use pleg::{Delivery, Pleg, Subscription};
use tokio::sync::watch;

use crate::connect::Target;
use crate::health::{CHECK_PERIOD, HealthChanges};
use crate::meter::Meter;
use crate::picture::Picture;
use crate::picture::facts::{Collector, Facts};
use crate::record::Record;
use crate::view::{Inputs, Model, Problem, Query, View};

/// The observer of one node. Clones share what is remembered.
#[derive(Clone)]
pub(crate) struct Observer(Arc<Shared>);

struct Shared {
    pleg: Pleg,
    meter: Meter,
    /// The name of the host.
    node: String,
    /// The socket of the runtime.
    runtime: Box<dyn Fn() -> String + Send + Sync>,
    is_simulated: Box<dyn Fn() -> bool + Send + Sync>,
    facts: watch::Sender<Facts>,
    model: Mutex<Model>,
    /// The number of changes so far.
    changes: watch::Sender<u64>,
}

impl Observer {
    pub(crate) fn new(target: &Target, pleg: &Pleg) -> Self {
        let clock = pleg.clock();
        Self(Arc::new(Shared {
            pleg: pleg.clone(),
            meter: target.meter(),
            node: host_name(),
            runtime: Box::new(target.describe()),
            is_simulated: Box::new(target.simulated()),
            facts: watch::Sender::default(),
            model: Mutex::new(Model::new(clock.now(), clock.wall())),
            changes: watch::Sender::new(0),
        }))
    }

    /// Observes until the generator ends. `keep` gets every record but those of what existed at the
    /// start.
    pub(crate) async fn run(&self, mut events: Subscription, keep: impl Fn(&Record)) {
        let Shared { pleg, .. } = &*self.0;
        let (clock, started) = (pleg.clock(), pleg.clock().wall());
        let mut health = pleg.health();
        let mut changes = HealthChanges::default();
        let mut interval = tokio::time::interval(CHECK_PERIOD);
        loop {
            tokio::select! {
                delivery = events.next() => {
                    let Some(delivery) = delivery else { return };
                    // A view shows what existed at the start anyway.
                    if !matches!(&delivery, Delivery::Event(event) if event.initial) {
                        let pods = || pleg.snapshot().len();
                        let record = Record::delivery(&delivery, clock, started, pods);
                        record.iter().for_each(|record| self.add(record, &keep));
                    }
                    self.0.changes.send_modify(|n| *n += 1);
                    continue;
                }
                _ = interval.tick() => self.tick(),
                true = health.changed() => {}
            }
            let (picture, problems) = (self.picture(), health.pod_problems());
            for record in changes.update(&picture, &problems, clock) {
                self.add(&record, &keep);
            }
            self.0.changes.send_modify(|n| *n += 1);
        }
    }

    /// Collects the facts that the generator does not know, until it is dropped.
    pub(crate) async fn collect(&self, collector: Collector) -> Infallible {
        collector.run(&self.0.facts).await
    }

    /// The last facts.
    pub(crate) fn facts(&self) -> Facts {
        self.0.facts.borrow().clone()
    }

    /// What is wrong now.
    pub(crate) fn picture(&self) -> Picture {
        Picture::now(&self.0.pleg, &self.0.facts.borrow())
    }

    /// Is notified when a view has changed, apart from what changes with time.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// What is shown now.
    pub(crate) fn view(&self, query: &Query) -> View {
        let Shared { pleg, meter, .. } = &*self.0;
        let health = pleg.health();
        let ends = match &*query.pod {
            "" => Arc::default(),
            uid => pleg.exits(&PodUid::from(uid)),
        };
        let calls = meter.calls();
        let problems: Vec<_> = health.pod_problems().iter().map(Problem::from).collect();
        let inputs = Inputs {
            now: meter.clock().now(),
            wall: meter.clock().wall(),
            picture: &self.picture(),
            facts: &self.facts(),
            health: &health.current(),
            problems: &problems,
            pods: &pleg.snapshot(),
            ends: &ends,
            calls: &calls,
            node: &self.0.node,
            runtime: &(self.0.runtime)(),
            simulated: (self.0.is_simulated)(),
        };
        self.model().view(&inputs, query)
    }

    fn add(&self, record: &Record, keep: &impl Fn(&Record)) {
        self.model().record(self.0.meter.clock().now(), record);
        keep(record);
    }

    fn tick(&self) {
        let Shared { pleg, meter, .. } = &*self.0;
        let ids = |uid: &PodUid| {
            let status = pleg.get(uid).status;
            status.sandboxes.len() + status.containers.len()
        };
        self.model().tick(meter.clock().now(), ids);
    }

    fn model(&self) -> MutexGuard<'_, Model> {
        let model = self.0.model.lock();
        model.unwrap_or_else(PoisonError::into_inner)
    }
}

/// As the kernel has it: in a pod on the host's network, that of the node.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}
