//! The requests of consumers: fresh views, reads, and acknowledgements (invariants 3, 4 and 9).

use super::timers::Timer;
use super::{Output, Reconciler};
use crate::schedule::cause::Cause;
use crate::schedule::waiters::{Waiter, WaiterId};
use crate::state::terminal::ConsumerId;
use crate::types::ids::{Id, PodUid};
use crate::types::status::Text;
use crate::types::time::Instant;

impl Reconciler {
    /// Registers a waiter for a view of the pod that is newer than `after`: one that a read begun
    /// later has shown. Answered by [`Output::Answer`], unless it is [`cancelled`](Self::cancel).
    pub fn wait(&mut self, now: Instant, waiter: WaiterId, uid: &PodUid, after: Instant) {
        self.ask(now, waiter, uid, after, Cause::Waiter);
    }

    /// Registers a waiter for a view of the pod whose details, too, are newer than `after`: every
    /// status is read. Answered by [`Output::Answer`], with an error if a status cannot be read.
    pub fn wait_for_details(
        &mut self,
        now: Instant,
        waiter: WaiterId,
        uid: &PodUid,
        after: Instant,
    ) {
        self.ask(now, waiter, uid, after, Cause::Details);
    }

    /// Reads the pod now. Answered by [`Output::Answer`].
    pub fn relist(&mut self, now: Instant, waiter: WaiterId, uid: &PodUid) {
        self.ask(now, waiter, uid, now, Cause::Relist);
    }

    /// Reads the pod now and announces PodSync even if nothing changed: for changes of details,
    /// such as resources (upstream k#123940). If the read finds a change of state, that is
    /// announced instead. Answered by [`Output::Answer`].
    pub fn reinspect(&mut self, now: Instant, waiter: WaiterId, uid: &PodUid) {
        self.ask(now, waiter, uid, now, Cause::Reinspect);
    }

    pub(super) fn ask(
        &mut self,
        now: Instant,
        id: WaiterId,
        uid: &PodUid,
        after: Instant,
        cause: Cause,
    ) {
        let waiter = Waiter {
            id,
            after,
            number: self.number,
            details: cause == Cause::Details,
        };
        let known = self.view_newer_than(uid, after).filter(|view| match cause {
            Cause::Waiter => true,
            Cause::Details => view.inspected > Some(after),
            _ => false,
        });
        if let Some(view) = known {
            self.out.push_back(Output::Answer {
                waiter: id,
                answer: Ok(view),
            });
            return;
        }
        self.waiters.register(uid, waiter);
        if after > now {
            self.timers.set(after, Timer::Waiter(uid.clone()));
        } else if self.needs_complete_list(uid) {
            self.read_by_list(now, uid);
            if cause == Cause::Reinspect {
                self.request_inspection(now, uid, cause);
            }
        } else if cause != Cause::Waiter || !self.read_in_flight_serves(uid, after) {
            self.request_inspection(now, uid, cause);
        }
        self.pump(now);
    }

    /// Whether the inspection in flight was requested after `after`.
    pub(super) fn read_in_flight_serves(&self, uid: &PodUid, after: Instant) -> bool {
        self.scheduler
            .in_flight(uid)
            .is_some_and(|(_, issued)| issued > after)
    }

    /// Lists the node now. Answered by [`Output::Listed`].
    pub fn relist_now(&mut self, now: Instant, waiter: WaiterId) {
        self.waiters.register_list(waiter, self.number);
        self.relist.by(now);
        self.pump(now);
    }

    /// Removes a waiter.
    pub fn cancel(&mut self, waiter: WaiterId) {
        if let Some((uid, after)) = self.waiters.cancel(waiter)
            && !self.waiters.of(&uid).iter().any(|w| w.after == after)
        {
            self.timers.cancel(after, Timer::Waiter(uid));
        }
    }

    /// Registers a consumer: the terminal record of each end that is announced from now on is kept
    /// until it has acknowledged it, within the bounds that hold without consumers, too. Health names it when it has not
    /// acknowledged an end for [`Health::ACKNOWLEDGED_WITHIN`](crate::Health::ACKNOWLEDGED_WITHIN).
    pub fn register(&mut self, consumer: ConsumerId, name: &Text) {
        self.terminals.register(consumer, name);
    }

    /// Removes a consumer. What it did not acknowledge is kept as without consumers.
    pub fn unregister(&mut self, consumer: ConsumerId) {
        self.terminals.unregister(consumer);
    }

    /// The consumer acknowledges the terminal records of that id up to that incarnation. Without effect if there is a
    /// later one.
    pub fn acknowledge(&mut self, consumer: ConsumerId, id: &Id, incarnation: u32) {
        if let Some(uid) = self.terminals.acknowledge(consumer, id, incarnation) {
            let records = self.terminals.of(&uid);
            self.out.push_back(Output::Terminals { uid, records });
        }
    }
}
