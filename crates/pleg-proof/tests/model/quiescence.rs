//! Checks the end of every sequence, after the faults: the cache equals the model of the node after
//! one relist, every waiter is answered, every transition is announced, nothing is owed, a replay of
//! all events changes nothing, and a lost event is counted.

use std::collections::BTreeMap;

use pleg_core::{LifecycleType, PodUid};

use super::checks::{Checks, hold, seen};
use super::harness::{Harness, Violation};
use super::node::{Node, State};
use super::ops::{Began, EventForm, Name, Op, Outcome, Pod, Sees};
use super::reports::{MS, instant};

const SECOND: u64 = 1_000;

/// How many seconds workers need at most after the last fault: the longest relist period, and the
/// backoff of a pod.
const CONVERGED: u64 = 150;

/// All checks at the end of a sequence.
pub fn settle(harness: &mut Harness, node: &mut Node) -> Result<(), Violation> {
    harness
        .checks
        .note(harness.now(), || "the faults stop".to_owned());
    step(harness, node, Op::ShowStatuses)?;
    step(harness, node, Op::Drain)?;
    if node.stream.is_none() {
        step(harness, node, Op::Subscribe)?;
    }
    step(harness, node, Op::DeliverAll)?;
    answer(harness, node, usize::MAX)?;
    converge(harness, node)?;
    // Absence in the list is evidence only for what was known before it began.
    run_without_faults(harness, node, 1)?;
    step(harness, node, Op::RelistNow)?;
    run_without_faults(harness, node, 300)?;
    let misreported_at = !harness.checks.misreported_at.is_empty();
    if !misreported_at {
        cache_equals_oracle(harness, node, false)?;
    }
    // A removal that was falsely reported is overruled ten seconds later.
    run_without_faults(harness, node, 12 * SECOND)?;
    cache_equals_oracle(harness, node, false)?;
    // All backoffs have expired.
    run_without_faults(harness, node, 70 * SECOND)?;
    cache_equals_oracle(harness, node, true)?;
    all_announced(&harness.checks, node)?;
    harness.checks.lagging.catch_up()?;
    check_idle(harness, node)?;
    check_replay(harness, node)?;
    check_lost_event_is_missed(harness, node)
}

/// Applies an operation if it is possible.
fn step(harness: &mut Harness, node: &mut Node, op: Op) -> Result<(), Violation> {
    if !node.allows(&op) {
        return Ok(());
    }
    let before = node.clone();
    node.apply(&op);
    harness.apply_to_workers(node, &op)?;
    harness.apply(&before, node, &op)
}

/// The workers act until every pod is as it should be. Then they stop.
fn converge(harness: &mut Harness, node: &mut Node) -> Result<(), Violation> {
    for _ in 0..CONVERGED {
        while let Some(op) = harness.kubelet.next() {
            step(harness, node, op)?;
            step(harness, node, Op::DeliverAll)?;
            answer(harness, node, usize::MAX)?;
        }
        if harness.unconverged(node).is_none() {
            break;
        }
        run_without_faults(harness, node, SECOND)?;
    }
    let unconverged = harness.unconverged(node);
    hold!(
        unconverged.is_none(),
        "invariant-10-workers-converge",
        "{unconverged:?}"
    );
    harness.stop_workers();
    Ok(())
}

/// Completes that many reads, the oldest first.
fn answer(harness: &mut Harness, node: &Node, calls: usize) -> Result<(), Violation> {
    for _ in 0..calls.min(harness.calls.len()) {
        harness.finish(
            node,
            Some(0),
            Outcome::Whole,
            Began::WhenAsked,
            Sees::ItsEnd,
        )?;
    }
    Ok(())
}

/// Time passes; every read completes a millisecond after its request.
fn run_without_faults(harness: &mut Harness, node: &mut Node, ms: u64) -> Result<(), Violation> {
    let end = harness.now() + ms;
    while harness.now() < end {
        let timer = harness
            .reconciler
            .poll_timeout()
            .map(|t| t.as_nanos().div_ceil(MS));
        let next = match timer {
            _ if !harness.calls.is_empty() => harness.now() + 1,
            Some(timer) => timer.clamp(harness.now() + 1, end),
            None => end,
        };
        let waiting = harness.calls.len();
        node.now = next;
        harness.pass(node, next)?;
        answer(harness, node, waiting)?;
        harness.check_now(node)?;
    }
    Ok(())
}

/// The cache equals the model of the node.
fn cache_equals_oracle(harness: &Harness, node: &Node, in_detail: bool) -> Result<(), Violation> {
    let now = harness.now();
    let mut shown = BTreeMap::new();
    for (uid, view) in &harness.checks.cache {
        for (id, seen) in seen(&view.status) {
            let twice = shown.insert(id.clone(), (uid.clone(), seen)).is_some();
            hold!(
                !twice,
                "invariant-1-one-record",
                "{id} is shown in two pods"
            );
        }
        let error = view.status.error.as_ref();
        hold!(
            error.is_none() || !in_detail,
            "invariant-11-recovered",
            "{uid} still shows {error:?}"
        );
    }
    for object in &node.objects {
        let real = object.at(now).filter(|&s| s != State::Removed);
        let real: Option<(PodUid, Option<State>)> = real.map(|s| (object.pod.uid(), Some(s)));
        let held = shown.remove(&object.id);
        let states = held.as_ref().map(|(uid, seen)| {
            let state = seen.state.filter(|_| !seen.unknown);
            (uid.clone(), state)
        });
        hold!(
            states == real,
            "invariant-10-cache-equals-oracle",
            "{} is {real:?} and is shown as {states:?}",
            object.id
        );
        let Some((_, seen)) = held.filter(|_| in_detail) else {
            continue;
        };
        let code = object
            .exited
            .map(|_| object.code)
            .filter(|_| object.name.is_some());
        let truly = (
            code,
            object.sandbox.clone(),
            object.name.map_or("", Name::as_str),
        );
        let details = (seen.code, seen.sandbox.clone(), seen.name.as_str());
        hold!(
            details == truly,
            "invariant-10-details-equal-oracle",
            "{} is {truly:?}: {details:?}",
            object.id
        );
    }
    Ok(())
}

/// Everything is announced, and every waiter is answered.
fn all_announced(checks: &Checks, node: &Node) -> Result<(), Violation> {
    use LifecycleType::{ContainerDied, ContainerRemoved, ContainerStarted};
    for id in checks.ever_shown() {
        let last = checks.announced.iter().rfind(|((i, _), _)| i == id);
        let (incarnation, announced) = match last {
            Some(((_, n), announced)) => (*n, announced.clone()),
            None => (0, Default::default()),
        };
        let state = node.object(id).and_then(|l| l.at(node.now));
        let due = match state {
            Some(State::Running) => Some(ContainerStarted),
            // A new incarnation that is exited from the start is announced as changed.
            Some(State::Exited) if incarnation == 0 => Some(ContainerDied),
            Some(State::Removed) => Some(ContainerRemoved),
            _ => None,
        };
        if let Some(due) = due {
            hold!(
                announced.has(due),
                "invariant-9-all-announced",
                "{id} is {state:?}: no {due}, only {:?}",
                announced.0
            );
        }
        let died = announced.has(ContainerDied) || incarnation > 0;
        hold!(
            died || !announced.has(ContainerRemoved),
            "invariant-9-all-announced",
            "{id} was removed without having died"
        );
    }
    let kept = checks.waiting.values().find(|a| a.after < node.now);
    hold!(kept.is_none(), "invariant-4-all-answered", "{kept:?}");
    hold!(
        checks.waiting_for_list.is_empty(),
        "invariant-4-all-answered",
        "{:?}",
        checks.waiting_for_list
    );
    Ok(())
}

/// Only ever rarer lists are due.
fn check_idle(harness: &mut Harness, node: &mut Node) -> Result<(), Violation> {
    let health = harness.reconciler.health(instant(harness.now()));
    hold!(health.synced, "invariant-12-synced", "{health:?}");
    hold!(
        health.failing == 0 && health.overdue == 0,
        "invariant-11-recovered",
        "{health:?}"
    );
    // Two misses may make the stream lossy, and a lossy stream is polled for ten minutes.
    hold!(
        health.period.as_millis() > 1_000 || health.missed >= 2,
        "invariant-10-period-grows",
        "{health:?}"
    );
    let before = harness.reconciler.counters().inspections;
    run_without_faults(harness, node, 60 * SECOND)?;
    let after = harness.reconciler.counters().inspections;
    // The reconciler looks for the removal of ended pods if this stream may not report it.
    let ended = |pod: &Pod| node.ready_sandbox(*pod).is_none();
    let may = 6 * Pod::REAL.iter().filter(|p| ended(p)).count() as u64;
    hold!(
        after - before <= may,
        "invariant-10-idle-without-inspections",
        "{} inspections",
        after - before
    );
    Ok(())
}

/// All events are delivered once more.
fn check_replay(harness: &mut Harness, node: &mut Node) -> Result<(), Violation> {
    harness.checks.note(harness.now(), || {
        "all events are delivered again".to_owned()
    });
    for transition in node.emitted.clone() {
        harness.deliver(node, &transition, EventForm::Whole, false)?;
    }
    // A replayed event may bring a removed id back until the next relist.
    run_without_faults(harness, node, 15 * SECOND)?;
    step(harness, node, Op::RelistNow)?;
    run_without_faults(harness, node, 300)?;
    cache_equals_oracle(harness, node, true)?;
    all_announced(&harness.checks, node)
}

/// An exit without an event is a miss, and lists become frequent; one with an event is not.
fn check_lost_event_is_missed(harness: &mut Harness, node: &mut Node) -> Result<(), Violation> {
    let (pod, name) = (Pod::A, Name::App);
    let missed = |harness: &Harness| harness.reconciler.counters().missed.total();
    for op in [
        Op::Run(pod),
        Op::Create(pod, name),
        Op::Start(pod, name),
        Op::DeliverAll,
    ] {
        step(harness, node, op)?;
    }
    let before = missed(harness);
    step(harness, node, Op::RelistNow)?;
    run_without_faults(harness, node, 10 * SECOND)?;
    hold!(
        missed(harness) == before,
        "invariant-10-no-false-miss",
        "{:?}",
        harness.reconciler.counters()
    );
    let period = harness.reconciler.health(instant(harness.now())).period;
    hold!(
        period.as_millis() > 1_000 || before >= 2,
        "invariant-10-period-grows",
        "{period:?}"
    );
    step(harness, node, Op::Exit(pod, name, 3))?;
    step(harness, node, Op::Drop(0))?;
    step(harness, node, Op::RelistNow)?;
    // The read ends after a millisecond, and five seconds later the event counts as missed.
    run_without_faults(harness, node, 5_001)?;
    hold!(
        missed(harness) == before + 1,
        "invariant-10-miss-counted",
        "{:?}",
        harness.reconciler.counters()
    );
    let period = harness.reconciler.health(instant(harness.now())).period;
    hold!(
        period.as_millis() == 1_000,
        "invariant-10-period-shortened",
        "{period:?}"
    );
    cache_equals_oracle(harness, node, true)?;
    all_announced(&harness.checks, node)
}
