//! Answers the calls that the core makes (lists, statuses and `Version`), and lets some of them hang or fail.

use std::collections::BTreeMap;
use std::time::Duration;

use pleg_core::{
    CallError, CallErrorKind, Instant, Kind, KnownIds, List, Output, PodList, PodUid, Report, Rows,
    Statuses, Ticket, Version,
};
use pleg_node_model::{self as model, Id};

use super::{Act, MS, SECOND, Until, World, pod_uid};
use crate::checker::ReadOfRows;
use crate::choose::Dice;
use crate::convert;
use crate::faults::Fault;

/// The time after which a call of `Version` fails.
const VERSION_DEADLINE: u64 = 5 * SECOND;

/// The core's calls that are not answered yet, except `Version`.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Calls {
    in_flight: BTreeMap<u64, Call>,
}

/// A call of the core that is not answered yet.
#[derive(Clone, Debug, Hash)]
struct Call {
    began: u64,
    deadline: u64,
    what: What,
    /// The instants at which the runtime read the rows: first those of sandboxes, then those of containers.
    taken: Vec<u64>,
    rows: Vec<Report>,
    failed: Option<CallError>,
    answers: Vec<(pleg_core::Id, Result<Report, CallError>)>,
}

/// The kind of a call.
#[derive(Clone, Debug, Hash)]
enum What {
    List(KnownIds),
    ListPod(PodUid),
    Statuses(Vec<(pleg_core::Id, Kind)>),
}

/// Which calls hang or fail for a while. The numbers are the instants from which these calls work again.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Sick {
    /// Status calls about these ids hang or fail.
    pub(super) ids: Until,
    /// All calls about these pods hang or fail.
    pub(super) pods: BTreeMap<usize, u64>,
    /// All status calls hang or fail.
    statuses: u64,
    /// All calls hang, because the runtime is frozen.
    pub(super) frozen: u64,
    /// All lists of the node hang or fail.
    pub(super) lists: u64,
    /// True if all lists of the node fail because they exceed the message size.
    pub(super) too_large: bool,
}

/// The way in which a call goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    Hangs,
    Fails(CallErrorKind),
}

impl Calls {
    /// The earliest deadline of the calls that are not answered yet.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.in_flight.values().map(|call| call.deadline).min()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    fn pod_reads(&self) -> bool {
        let mut calls = self.in_flight.values();
        calls.any(|call| matches!(call.what, What::ListPod(_)))
    }
}

impl World {
    /// Takes all outputs from the core, and acts on each: starts a call, or passes the output to the checker.
    pub(super) fn outputs(&mut self, dice: &mut Dice<'_>) {
        while let Some(output) = self.core.poll_output() {
            self.output(dice, output);
        }
    }

    fn output(&mut self, dice: &mut Dice<'_>, output: Output) {
        match output {
            Output::List {
                ticket,
                deadline,
                known,
            } => {
                self.coverage.point("output List");
                if self.calls.pod_reads() {
                    self.coverage.point("relist during a pod read");
                }
                self.log(|| format!("relist {}", ticket.get()));
                self.begin_call(dice, ticket, deadline, What::List(known));
            }
            Output::ListPod {
                ticket,
                uid,
                deadline,
            } => {
                self.coverage.point("output ListPod");
                if self.pods.len() > 16 && self.now < self.sick.lists {
                    self.coverage.point("a crowd is read while relists fail");
                }
                self.log(|| format!("list pod {uid} {}", ticket.get()));
                self.checker.pod_read(self.now, &uid);
                self.begin_call(dice, ticket, deadline, What::ListPod(uid));
            }
            Output::ReadStatuses {
                ticket,
                ids,
                deadline,
            } => {
                self.coverage.point("output ReadStatuses");
                self.log(|| format!("statuses {ids:?} {}", ticket.get()));
                self.begin_call(dice, ticket, deadline, What::Statuses(ids));
            }
            Output::Version { ticket, .. } => {
                self.coverage.point("output Version");
                let after = self.pause(dice);
                let deadline = self.now + VERSION_DEADLINE;
                self.later(after, Act::Version(ticket.get(), deadline));
            }
            Output::Answer { waiter, answer } => self.answered(dice, waiter, answer),
            Output::Announce(event) => self.announced(dice, &event),
            Output::Publish { uid, view } => {
                self.log(|| format!("publish {uid} {}", super::workers::summary(&view)));
                self.checker.published(&uid, view);
            }
            Output::Refresh { as_of, pods } => {
                self.coverage.point("output Refresh");
                self.checker.refreshed(as_of, &pods);
            }
            Output::ListApplied { as_of, gone } => {
                self.coverage.point("output ListApplied");
                self.checker.relist_settled(as_of, &gone, &self.node);
            }
            Output::Resubscribe => {
                self.coverage.point("output Resubscribe");
                self.log(|| "RESUBSCRIBE".to_owned());
                self.cut(dice);
            }
            Output::Synced => {
                self.coverage.point("output Synced");
                self.checker.synced();
            }
            _ => {}
        }
    }

    fn begin_call(&mut self, dice: &mut Dice<'_>, ticket: Ticket, deadline: Duration, what: What) {
        self.tick();
        self.coverage.calls += 1;
        self.checker.call(self.now);
        let deadline = u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX);
        // Limit a relist's deadline (up to 2 min): 66 s after the faults end, `compare` requires a right cache.
        let deadline = self.now + deadline.min(30 * SECOND);
        let ticket = ticket.get();
        let statuses = match &what {
            What::Statuses(ids) => ids.len(),
            What::List(_) | What::ListPod(_) => 0,
        };
        let is_list = !matches!(what, What::Statuses(_));
        let call = Call {
            began: self.now,
            deadline,
            what,
            taken: Vec::new(),
            rows: Vec::new(),
            failed: None,
            answers: Vec::new(),
        };
        let hangs = is_list && self.trouble(dice, &call) == Some(Trouble::Hangs);
        self.calls.in_flight.insert(ticket, call);
        if hangs {
            self.hang(ticket);
        } else if is_list {
            let (one, two) = (self.pause(dice), self.pause(dice));
            self.later(one, Act::Rows(ticket));
            if !self.is_small || self.has_spans {
                self.later(one + two, Act::Rows(ticket));
            }
        }
        for n in 0..statuses {
            let after = self.pause(dice);
            self.later(after, Act::Status(ticket, n));
        }
    }

    /// Chooses the time that the runtime takes to read rows or a status for a call of the core, or to answer the call.
    pub(super) fn pause(&mut self, dice: &mut Dice<'_>) -> u64 {
        match self.fault(dice, Fault::Slow) {
            true => dice.ms(6, 700),
            false => dice.ms(0, 6),
        }
    }

    fn hang(&mut self, ticket: u64) {
        let Some(call) = self.calls.in_flight.get_mut(&ticket) else {
            return;
        };
        call.failed = Some(error(CallErrorKind::DeadlineExceeded));
        let at = call.deadline;
        let pod = match &call.what {
            What::ListPod(uid) => Some(uid.as_str()),
            What::List(_) | What::Statuses(_) => None,
        };
        // A hang counts as a failure, because reads that need the answer wait until the deadline of the call.
        self.checker.failed(self.now, pod);
        self.log(|| format!("{ticket} hangs"));
        self.queue.push(at, Act::Answer(ticket));
    }

    /// Chooses whether and how a list goes wrong.
    fn trouble(&mut self, dice: &mut Dice<'_>, call: &Call) -> Option<Trouble> {
        let fails = Trouble::Fails(CallErrorKind::Failed);
        let is_sick = match &call.what {
            What::List(_) if self.sick.too_large => {
                return Some(Trouble::Fails(CallErrorKind::Failed));
            }
            What::List(_) => self.now < self.sick.lists,
            What::ListPod(uid) => {
                let pod = self.pod_of_uid(uid);
                pod.is_some_and(|pod| self.sick.pods.get(&pod).is_some_and(|&t| self.now < t))
            }
            What::Statuses(_) => false,
        };
        if is_sick {
            return Some(if dice.chance(300) {
                fails
            } else {
                Trouble::Hangs
            });
        }
        if self.fault(dice, Fault::Hang) {
            return Some(Trouble::Hangs);
        }
        let fault = match call.what {
            What::List(_) => Fault::ListFails,
            _ => Fault::PodListFails,
        };
        self.fault(dice, fault).then_some(fails)
    }

    /// Reads sandbox rows at the first call, container rows at the second one: the two show different instants.
    pub(super) fn take_rows(&mut self, dice: &mut Dice<'_>, ticket: u64) {
        let now = self.now;
        let Some(mut call) = self.calls.in_flight.remove(&ticket) else {
            return;
        };
        let kind = match call.taken.is_empty() {
            true => model::Kind::Sandbox,
            false => model::Kind::Container,
        };
        call.taken.push(now);
        let label = match &call.what {
            What::ListPod(uid) => Some(uid.as_str()),
            _ => None,
        };
        let rows = self.node.rows(kind, label, now);
        call.rows.extend(rows.iter().map(convert::row));
        if self.is_down {
            call.failed = Some(error(CallErrorKind::Unavailable));
        } else if let Some(Trouble::Fails(kind)) = self.trouble(dice, &call) {
            call.failed = Some(error(kind));
        }
        if self.is_small && !self.has_spans && call.taken.len() == 1 {
            self.calls.in_flight.insert(ticket, call);
            return self.take_rows(dice, ticket);
        }
        let is_complete = call.taken.len() == 2;
        self.calls.in_flight.insert(ticket, call);
        if is_complete {
            let after = self.pause(dice);
            self.later(after, Act::Answer(ticket));
        }
    }

    /// Reads status number `n` of a call for several statuses.
    pub(super) fn take_status(&mut self, dice: &mut Dice<'_>, ticket: u64, n: usize) {
        let Some(call) = self.calls.in_flight.get(&ticket) else {
            return;
        };
        let What::Statuses(ids) = &call.what else {
            return;
        };
        let (ids, deadline) = (ids.len(), call.deadline);
        let Some((id, kind)) = self.calls.status_of(ticket, n) else {
            return;
        };
        let trouble = self.status_trouble(dice, id.as_str());
        let now = self.now;
        let answer = match trouble {
            Some(Trouble::Hangs) => Err(error(CallErrorKind::DeadlineExceeded)),
            Some(Trouble::Fails(kind)) => Err(error(kind)),
            None => {
                let status = self
                    .node
                    .status(id.as_str(), convert::model_kind(kind), now);
                let status = status.map(|status| convert::status(&status));
                status.ok_or_else(|| error(CallErrorKind::NotFound))
            }
        };
        let text = answer.as_ref().map(|s| s.shown).map_err(|e| e.kind);
        self.log(|| format!("status of {id}: {text:?}"));
        if answer.is_err() {
            let pod = self.node.object(id.as_str()).map(|o| o.pod.uid.clone());
            self.checker.failed(now, pod.as_deref());
        }
        let Some(call) = self.calls.in_flight.get_mut(&ticket) else {
            return;
        };
        call.answers.push((id, answer));
        if trouble == Some(Trouble::Hangs) {
            // The core gets all statuses of a call together, so if one hangs, the call ends only at its deadline.
            call.failed = Some(error(CallErrorKind::DeadlineExceeded));
        }
        let hangs = call.failed.is_some();
        if call.answers.len() == ids {
            match hangs {
                true => self.queue.push(deadline.max(now), Act::Answer(ticket)),
                false => {
                    let after = self.pause(dice);
                    self.later(after, Act::Answer(ticket));
                }
            }
        }
    }

    fn status_trouble(&mut self, dice: &mut Dice<'_>, id: &str) -> Option<Trouble> {
        let now = self.now;
        let pod = self
            .node
            .object(id)
            .and_then(|o| self.pod_of_uid(&(&*o.pod.uid).into()));
        let sick_pod = pod.and_then(|pod| self.sick.pods.get(&pod));
        let sick = sick_pod.into_iter().chain(self.sick.ids.get(id));
        let sick = sick.chain([&self.sick.statuses]);
        if now < self.sick.frozen {
            return Some(Trouble::Hangs);
        }
        if sick.into_iter().any(|&until| now < until) {
            let fails = Trouble::Fails(CallErrorKind::Failed);
            return Some(if dice.chance(300) {
                fails
            } else {
                Trouble::Hangs
            });
        }
        if self.is_down {
            return Some(Trouble::Fails(CallErrorKind::Unavailable));
        }
        if self.fault(dice, Fault::Hang) {
            return Some(Trouble::Hangs);
        }
        if self.fault(dice, Fault::StatusFails) {
            return Some(Trouble::Fails(CallErrorKind::Failed));
        }
        let denied = self.fault(dice, Fault::StatusDenied);
        denied.then_some(Trouble::Fails(CallErrorKind::NotFound))
    }

    /// Passes all waiting hints to the core, then the answer of a call. The real driver keeps this order.
    pub(super) fn answer(&mut self, dice: &mut Dice<'_>, ticket: u64) {
        self.drain();
        self.outputs(dice);
        let Some(call) = self.calls.in_flight.remove(&ticket) else {
            return;
        };
        let now = self.tick();
        let (began, number) = (Instant::from_nanos(call.began), Ticket::from(ticket));
        let failed = call.failed.as_ref().map(|e| e.kind);
        self.log(|| format!("answer of {ticket}, failed {failed:?}"));
        self.record(&call);
        let rows = match call.failed {
            Some(error) => Err(error),
            None => Ok(call.rows),
        };
        match call.what {
            What::Statuses(_) => {
                let answers = call.answers;
                let statuses = Statuses {
                    ticket: number,
                    began,
                    answers,
                };
                self.core.handle_statuses(now, statuses);
            }
            What::ListPod(_) => {
                let list = PodList {
                    ticket: number,
                    began,
                    rows,
                };
                self.core.handle_pod_list(now, list);
            }
            What::List(known) => {
                let rows = rows.map(|rows| Rows::of(known, rows));
                let list = List {
                    ticket: number,
                    began,
                    ended: now,
                    rows,
                };
                self.core.handle_list(now, list);
            }
        }
    }

    /// Passes the instants of a list, or its failure, to the checker.
    fn record(&mut self, call: &Call) {
        let pod = match &call.what {
            What::Statuses(_) => return,
            What::List(_) => None,
            What::ListPod(uid) => Some(uid.as_str()),
        };
        if call.failed.is_some() {
            return self.checker.failed(self.now, pod);
        }
        let read = ReadOfRows {
            began: call.began,
            taken: call.taken.iter().copied().min().unwrap_or(call.began),
            answered: self.now,
            pod,
        };
        self.checker.read_of_rows(&read, &self.node);
    }

    pub(super) fn version(&mut self, ticket: u64, deadline: u64) {
        let ended = self.at();
        let failed = (self.now >= deadline).then_some(CallErrorKind::DeadlineExceeded);
        let refused = self.is_down.then_some(CallErrorKind::Unavailable);
        let outcome = failed.or(refused).map_or(Ok(()), |kind| Err(error(kind)));
        let ticket = Ticket::from(ticket);
        self.core.handle_version(ended, Version { ticket, outcome });
    }

    /// While the runtime is frozen, postpones its action `act`. A call whose deadline is before the freeze ends hangs.
    pub(super) fn thaw(&mut self, act: Act) -> Option<Act> {
        let until = self.sick.frozen;
        if self.now >= until {
            return Some(act);
        }
        let calls = &self.calls.in_flight;
        let hangs = |ticket: &u64| calls.get(ticket).is_some_and(|call| call.deadline < until);
        match act {
            Act::Rows(ticket) if hangs(&ticket) => self.hang(ticket),
            Act::Status(ticket, _) if hangs(&ticket) => return Some(act),
            Act::Version(_, deadline) if self.now < deadline => {
                self.queue.push(until.min(deadline), act);
            }
            Act::Rows(_)
            | Act::Status(..)
            | Act::Generate(_)
            | Act::Deliver(..)
            | Act::Perform(..)
            | Act::Effect(..) => self.queue.push(until, act),
            _ => return Some(act),
        }
        None
    }

    pub(super) fn pod_of_uid(&self, uid: &PodUid) -> Option<usize> {
        (0..self.pods.len()).find(|&pod| *pod_uid(pod) == *uid.as_str())
    }

    /// Chooses calls that hang or fail for seconds from now on.
    pub(super) fn sicken(&mut self, dice: &mut Dice<'_>, pod: usize) {
        let until = self.now + 500 * MS;
        if self.fault(dice, Fault::SickId) {
            let ids: Vec<Id> = self.node.objects().map(|o| o.id.clone()).collect();
            if !ids.is_empty() {
                let id = ids[dice.below(ids.len())].clone();
                let until = until + dice.ms(0, 20_000);
                self.log(|| format!("SICK {id}"));
                self.sick.ids.insert(id, until);
            }
        }
        if self.fault(dice, Fault::SickPod) {
            let until = until + dice.ms(0, 15_000);
            self.log(|| format!("SICK p{pod}"));
            self.sick.pods.insert(pod, until);
        }
        if self.fault(dice, Fault::SickStatuses) {
            self.sick.statuses = until + dice.ms(0, 15_000);
            self.log(|| "SICK statuses".to_owned());
        }
        if self.fault(dice, Fault::Freeze) {
            self.sick.frozen = until + dice.ms(0, 12_000);
            self.log(|| "FROZEN".to_owned());
            self.checker.failed(self.now, None);
        }
        if self.fault(dice, Fault::SickLists) {
            self.sick.lists = until + dice.ms(0, 15_000);
            self.log(|| "SICK lists".to_owned());
        }
        if self.fault(dice, Fault::TooLarge) {
            self.sick.too_large = true;
            self.log(|| "lists are too large".to_owned());
        }
    }
}

impl Calls {
    fn status_of(&self, ticket: u64, n: usize) -> Option<(pleg_core::Id, Kind)> {
        match &self.in_flight.get(&ticket)?.what {
            What::Statuses(ids) => ids.get(n).cloned(),
            What::List(_) | What::ListPod(_) => None,
        }
    }
}

fn error(kind: CallErrorKind) -> CallError {
    CallError::new("call", kind, "fault")
}
