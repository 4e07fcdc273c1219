//! Performs the outputs of the reconciler: cache writes, announcements, answers to waiters.

use std::sync::Arc;

use pleg_core::{
    Counters, Health, Id, Instant, Kind, LifecycleType, Output, PodLifecycleEvent, Reconciler,
    Subject,
};

use crate::cache::Published;
use crate::exit_records::ExitRecords;
use crate::fifo::FifoSender;
use crate::log::HealthLog;
use crate::requests::{Command, Requests};
use crate::subscription::Announcer;
use crate::sync::{mpsc, watch};

#[derive(Debug)]
pub(crate) struct Outputs {
    pub(crate) published: Arc<Published>,
    pub(crate) subscribers: Announcer,
    pub(crate) fifo: Option<FifoSender>,
    pub(crate) health: watch::Sender<Health>,
    pub(crate) counters: watch::Sender<Counters>,
    pub(crate) requests: Requests,
    pub(crate) log: HealthLog,
    pub(crate) records: ExitRecords,
}

impl Outputs {
    /// Performs an output that is meant for consumers. Returns any other output: the driver must start a read.
    pub(crate) fn perform(&mut self, output: Output, now: Instant) -> Option<Output> {
        match output {
            Output::Publish { uid, view } => {
                match view.status.exists() {
                    true => self.records.pod_exists(&uid),
                    false => self.records.pod_is_gone(&uid, now),
                }
                self.published.put(uid, view);
            }
            Output::ListApplied { as_of, gone } => self.published.sweep(as_of, &gone),
            Output::Refresh { as_of, pods } => self.published.confirm(as_of, &pods),
            Output::Announce(event) => self.announce(&event, now),
            Output::Synced => self.subscribers.synced(),
            Output::Answer { waiter, answer } => self.requests.answer(waiter, answer),
            Output::Listed { waiter, outcome } => self.requests.listed(waiter, outcome),
            other => return Some(other),
        }
        None
    }

    /// Passes a request to the reconciler or the exit records. `is_idle` returns true if no other request waits.
    pub(crate) fn handle(
        &mut self,
        machine: &mut Reconciler,
        now: Instant,
        command: Command,
        is_idle: impl Fn() -> bool,
    ) {
        let requests = &mut self.requests;
        if let Some(uid) = requests.handle(machine, &mut self.records, now, command, is_idle) {
            self.published.set_ends(uid.clone(), self.records.of(&uid));
        }
    }

    /// Forgets exit records of pods that are gone. Cancels waiters whose caller is gone, and unregisters dropped
    /// consumers.
    pub(crate) fn clean_up(
        &mut self,
        machine: &mut Reconciler,
        now: Instant,
        is_idle: impl Fn() -> bool,
    ) {
        for uid in self.records.forget(now) {
            self.published.set_ends(uid, Arc::default());
        }
        if machine.poll_timeout().is_some_and(|due| due <= now) {
            // A read may be due. Cancels waiters whose caller is gone, so that the reconciler starts no read for them.
            let requests = &mut self.requests;
            requests.cancel_abandoned(machine, &mut self.records, is_idle);
        }
    }

    fn announce(&mut self, event: &PodLifecycleEvent, now: Instant) {
        // Exit records are published before the announcement, as the cache is.
        let status = self.published.get(&event.uid).status;
        let has = |id: &Id| {
            let mut sandboxes = status.sandboxes.iter().map(|sandbox| &sandbox.id);
            sandboxes.any(|of| of == id) || status.containers.iter().any(|c| c.id == *id)
        };
        if self.records.announced(event, has) {
            if !status.exists() {
                self.records.pod_is_gone(&event.uid, now);
            }
            let records = self.records.of(&event.uid);
            self.published.set_ends(event.uid.clone(), records);
        }
        if event.event == LifecycleType::ContainerDied
            && let Some(subject) = event.subject.as_ref().filter(|s| s.kind == Kind::Container)
        {
            log_death(event, subject);
        }
        self.subscribers.announce(event);
        if let Some(fifo) = &self.fifo {
            fifo.announce(event);
        }
    }

    /// Publishes health and counters. Wakes the watchers of the health only if the health has changed.
    pub(crate) fn show(&mut self, health: Health, counters: Counters, now: Instant) {
        self.counters.send_if_modified(|shown| {
            let changed = *shown != counters;
            if changed {
                *shown = counters;
            }
            changed
        });
        // Logs without the lock on the health, because a tracing subscriber may read the health.
        let last = self.health.borrow().clone();
        self.log.written(&last, &health, now);
        self.health.send_if_modified(|shown| {
            let changed = !shown.says_the_same(&health);
            *shown = health;
            changed
        });
    }

    /// Ends all waits and subscriptions.
    pub(crate) fn close(&mut self, commands: &mut mpsc::Receiver<Command>) {
        commands.close();
        while commands.try_recv().is_ok() {}
        self.requests.close();
        self.subscribers.close();
    }
}

/// Logs the exit of a container. Exits from before the generator's start are logged at debug level, so that an alert
/// on this line does not fire at each restart of the generator.
fn log_death(event: &PodLifecycleEvent, subject: &Subject) {
    macro_rules! log {
        ($level:ident) => {
            tracing::$level!(
                pod = %event.uid,
                namespace = %event.namespace,
                name = %event.pod_name,
                container = %subject.name,
                id = %subject.id,
                exit_code = subject.exit_code,
                reason = %subject.reason,
                source = %event.source,
                "container died"
            )
        };
    }
    match event.initial {
        true => log!(debug),
        false => log!(info),
    }
}
