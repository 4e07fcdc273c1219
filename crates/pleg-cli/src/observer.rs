//! Observes a node: takes the records and measurements of a generator, and computes views of the node.

use std::convert::Infallible;
use std::sync::Arc;

use parking_lot::Mutex;
use pleg::core::{PodUid, WallTime};
use pleg::{Delivery, Pleg, Subscription};
use tokio::sync::watch;

use crate::connect::{Chosen, Target};
use crate::health::{CHECK_PERIOD, HealthChanges};
use crate::meter::Meter;
use crate::picture::Picture;
use crate::picture::facts::{Collector, Facts};
use crate::picture::generator::Generator;
use crate::record::Record;
use crate::view::{Inputs, Lines, Model, Query, View};

pub(crate) struct Observer {
    pub(crate) pleg: Pleg,
    meter: Meter,
    node: String,
    runtime: Chosen,
    facts: watch::Sender<Facts>,
    generator: Mutex<Generator>,
    model: Mutex<Model>,
    changes: watch::Sender<u64>,
}

impl Observer {
    pub(crate) fn new(target: &Target, pleg: &Pleg) -> Arc<Self> {
        let clock = pleg.clock();
        // The host name as the kernel reports it: in a pod on the host's network, the name of the node.
        let node = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Arc::new(Self {
            pleg: pleg.clone(),
            meter: target.meter.clone(),
            node: node.trim().to_owned(),
            runtime: target.runtime.clone(),
            facts: watch::Sender::new(Facts::before_first_look()),
            generator: Mutex::default(),
            model: Mutex::new(Model::new(clock.now(), clock.wall())),
            changes: watch::Sender::new(0),
        })
    }

    /// Records what the generator delivers, and collects facts about runtime and host, until this future is dropped.
    pub(crate) async fn run(&self, events: Subscription, collector: Collector) -> Infallible {
        tokio::select! {
            never = self.record(events) => never,
            never = collector.run(&self.facts) => never,
        }
    }

    /// Records what the generator delivers, except what existed at the start. When the generator has ended, only waits.
    async fn record(&self, mut events: Subscription) -> Infallible {
        let pleg = &self.pleg;
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
                    let Some(delivery) = delivery else { return std::future::pending().await };
                    // Makes no record of what existed before the generator started: every view shows that anyway.
                    if !matches!(&delivery, Delivery::Event(event) if event.initial) {
                        let record = Record::delivery(&delivery, pleg, started);
                        record.iter().for_each(|record| self.add(record));
                    }
                    self.changes.send_modify(|n| *n += 1);
                    continue;
                }
                _ = interval.tick() => self.model.lock().tick(clock.now(), ids),
                true = health.changed() => {}
            }
            for record in changes.update(&self.picture(), clock) {
                self.add(&record);
            }
            self.changes.send_modify(|n| *n += 1);
        }
    }

    pub(crate) fn picture(&self) -> Picture {
        let facts = self.facts.borrow().clone();
        Picture::now(&self.pleg, facts, &mut self.generator.lock())
    }

    /// A receiver that is notified of each event, of each change of the generator's health, and every second.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub(crate) fn view(&self, query: &Query) -> View {
        self.view_and_picture(query).0
    }

    /// Computes the view for `query`. Also returns the picture: the node's health and findings, which the view shows.
    pub(crate) fn view_and_picture(&self, query: &Query) -> (View, Picture) {
        let (pleg, picture) = (&self.pleg, self.picture());
        let ends = match &*query.pod {
            "" => Arc::default(),
            uid => pleg.exits(&PodUid::from(uid)),
        };
        let inputs = Inputs {
            picture: &picture,
            wall: pleg.clock().wall_at(picture.now),
            pods: &pleg.snapshot(),
            ends: &ends,
            calls: &self.meter.calls(),
        };
        let view = View {
            node: self.node.clone(),
            runtime: self.runtime.to_string(),
            simulated: self.runtime.is_simulated(),
            ..self.model.lock().view(&inputs, query)
        };
        (view, picture)
    }

    pub(crate) fn lines(&self, since: Option<WallTime>, after: u64) -> Lines {
        let now = self.pleg.clock().wall();
        self.model.lock().feed.lines(now, since, after)
    }

    fn add(&self, record: &Record) {
        let clock = self.pleg.clock();
        let mut model = self.model.lock();
        model.record(clock.now(), clock.wall(), record);
    }
}
