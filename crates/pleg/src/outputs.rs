//! Performs the outputs of the reconciler: cache writes, announcements, answers to waiters.

use std::sync::Arc;

use pleg_core::{
    Counters, Health, Instant, Kind, LifecycleType, Output, PodLifecycleEvent, Subject,
};

use crate::cache::Published;
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
}

impl Outputs {
    /// Performs an output that is for consumers. Returns any other output: a request to the read
    /// side.
    pub(crate) fn tell(&mut self, output: Output) -> Option<Output> {
        match output {
            Output::Publish { uid, view } => self.published.put(uid, view),
            Output::Remove { uid } => self.published.withdraw(&uid),
            Output::ListApplied { as_of, gone } => self.published.sweep(as_of, &gone),
            Output::Refresh { as_of, pods } => self.published.confirm(as_of, &pods),
            Output::Terminals { uid, records } => self.published.set_ends(uid, records),
            Output::Announce(event) => self.announce(&event),
            Output::Synced => self.subscribers.synced(),
            Output::Answer { waiter, answer } => self.requests.answer(waiter, answer),
            Output::Listed { waiter, outcome } => self.requests.listed(waiter, outcome),
            other => return Some(other),
        }
        None
    }

    fn announce(&self, event: &PodLifecycleEvent) {
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

    /// Publishes health and counters. Watchers of the health are notified only of a change.
    pub(crate) fn show(&mut self, health: Health, counters: Counters, now: Instant) {
        self.counters.send_if_modified(|shown| {
            let changed = *shown != counters;
            if changed {
                *shown = counters;
            }
            changed
        });
        let log = &mut self.log;
        self.health.send_if_modified(|shown| {
            let news = !shown.says_the_same(&health);
            log.written(shown, &health, now);
            *shown = health;
            news
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

/// Logs the death of a container. Containers that had ended before the start are logged at debug
/// level, so that an alert on this line does not fire at each restart of the generator.
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
