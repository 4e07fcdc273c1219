//! Requests of consumers to the driver, and the table of their reply channels.

use std::collections::HashMap;

use pleg_core::{CallError, Id, Instant, PodUid, PodView, Reconciler, Text, WaiterId};

use crate::consumer::{Consumers, Registered};
use crate::exit_records::{ConsumerId, ExitRecords};
use crate::sync::oneshot;

/// A request of a consumer to the driver.
#[derive(Debug)]
pub(crate) enum Command {
    Wait {
        uid: PodUid,
        after: Instant,
        /// The caller also requires details that are newer than `after`.
        details: bool,
        reply: Reply,
    },
    Relist(PodUid, Reply),
    Reinspect(PodUid, Reply),
    RelistNow {
        reply: oneshot::Sender<Result<(), CallError>>,
    },
    Register {
        name: Text,
        reply: oneshot::Sender<Registered>,
    },
    Acknowledge {
        consumer: ConsumerId,
        id: Id,
        /// The instant at which the exit was detected.
        detected: Instant,
    },
    IsAcknowledged {
        id: Id,
        reply: oneshot::Sender<bool>,
    },
}

type Reply = oneshot::Sender<Result<PodView, CallError>>;

/// All callers that wait for a reply, and the registered consumers. Each caller gets one answer; if its channel is
/// closed instead, no answer will come.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    pub(crate) consumers: Consumers,
    waiting: HashMap<WaiterId, Waiting>,
    last: u64,
}

#[derive(Debug)]
enum Waiting {
    Pod(Reply),
    /// A pod read that a caller requested. It is made even if the caller drops its future.
    Promised(Reply),
    List(oneshot::Sender<Result<(), CallError>>),
}

impl Requests {
    /// Passes a request to the reconciler or to the exit records. Returns the pod whose exit records
    /// have changed.
    pub(crate) fn handle(
        &mut self,
        machine: &mut Reconciler,
        records: &mut ExitRecords,
        now: Instant,
        command: Command,
        is_idle: impl Fn() -> bool,
    ) -> Option<PodUid> {
        if !matches!(command, Command::Acknowledge { .. }) {
            self.consumers.update(records, is_idle);
        }
        match command {
            Command::Wait {
                uid,
                after,
                details,
                reply,
            } => {
                let waiter = self.enter(Waiting::Pod(reply));
                if details {
                    machine.wait_for_details(now, waiter, &uid, after);
                } else {
                    machine.wait(now, waiter, &uid, after);
                }
            }
            Command::Relist(uid, reply) => {
                let waiter = self.enter(Waiting::Promised(reply));
                machine.read_pod(now, waiter, &uid);
            }
            Command::Reinspect(uid, reply) => {
                let waiter = self.enter(Waiting::Promised(reply));
                machine.reinspect(now, waiter, &uid);
            }
            Command::RelistNow { reply } => {
                let waiter = self.enter(Waiting::List(reply));
                machine.relist_now(now, waiter);
            }
            Command::Register { name, reply } => {
                // If the caller is gone, the failed `send` drops the consumer, and a later `update` unregisters it.
                let _ = reply.send(self.consumers.add(name));
                self.consumers.update(records, || false);
            }
            Command::Acknowledge {
                consumer,
                id,
                detected,
            } => return records.acknowledge(consumer, &id, detected),
            Command::IsAcknowledged { id, reply } => {
                let _ = reply.send(machine.has_died(&id) && !records.is_awaited(&id));
            }
        }
        None
    }

    fn enter(&mut self, waiting: Waiting) -> WaiterId {
        self.last += 1;
        let waiter = WaiterId::new(self.last);
        self.waiting.insert(waiter, waiting);
        waiter
    }

    /// Sends the answer, if the waiter still waits.
    pub(crate) fn answer(&mut self, waiter: WaiterId, answer: Result<PodView, CallError>) {
        let waiting = self.waiting.remove(&waiter);
        if let Some(Waiting::Pod(reply) | Waiting::Promised(reply)) = waiting {
            let _ = reply.send(answer);
        }
    }

    pub(crate) fn listed(&mut self, waiter: WaiterId, outcome: Result<(), CallError>) {
        if let Some(Waiting::List(reply)) = self.waiting.remove(&waiter) {
            let _ = reply.send(outcome);
        }
    }

    /// Cancels waiters whose caller has dropped its future, and unregisters dropped consumers.
    pub(crate) fn cancel_abandoned(
        &mut self,
        machine: &mut Reconciler,
        records: &mut ExitRecords,
        is_idle: impl Fn() -> bool,
    ) {
        self.consumers.update(records, is_idle);
        self.waiting.retain(|&waiter, waiting| {
            let gone = match waiting {
                Waiting::Pod(reply) => reply.is_closed(),
                Waiting::Promised(_) => false,
                Waiting::List(reply) => reply.is_closed(),
            };
            if gone {
                machine.cancel(waiter);
            }
            !gone
        });
    }

    /// Ends all waits without an answer.
    pub(crate) fn close(&mut self) {
        self.waiting.clear();
    }
}
