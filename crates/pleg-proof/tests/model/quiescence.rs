//! What must be true at the end of every sequence, when the faults have stopped: the cache equals
//! the truth after one audit, everybody is answered, every end has been told, nothing is owed,
//! and neither a replay of all that was ever told nor a last lost event does any harm.

use std::collections::BTreeMap;

use pleg_core::{LifecycleType, PodUid};

use super::laws::{Laws, hold, seen};
use super::node::{Node, State};
use super::ops::{Began, How, Name, Op, Outcome, Pod, Sees};
use super::stand::{Broken, Stand};
use super::told::{MS, instant};

const SECOND: u64 = 1_000;

/// Everything at the end of a sequence.
pub fn settle(stand: &mut Stand, node: &mut Node) -> Result<(), Broken> {
    stand
        .laws
        .note(stand.now(), || "the faults stop".to_owned());
    step(stand, node, Op::Turn)?;
    if node.stream.is_none() {
        step(stand, node, Op::Subscribe)?;
    }
    step(stand, node, Op::DeliverAll)?;
    answer_all(stand, node)?;
    // Absence in the list is evidence only for what was known before it began.
    fair(stand, node, 1)?;
    step(stand, node, Op::RelistNow)?;
    fair(stand, node, 300)?;
    let lied = !stand.laws.lied.is_empty();
    if !lied {
        equal(stand, node, false)?;
    }
    // A removal that was wrongly believed is overruled ten seconds later.
    fair(stand, node, 12 * SECOND)?;
    equal(stand, node, false)?;
    // Backoffs run out.
    fair(stand, node, 70 * SECOND)?;
    equal(stand, node, true)?;
    complete(&stand.laws, node)?;
    stand.laws.lagging.catch_up()?;
    owes_nothing(stand, node)?;
    a_replay_does_no_harm(stand, node)?;
    a_lost_event_is_a_miss(stand, node)
}

/// One more operation, if it can be.
fn step(stand: &mut Stand, node: &mut Node, op: Op) -> Result<(), Broken> {
    if !node.allows(&op) {
        return Ok(());
    }
    let before = node.clone();
    node.apply(&op);
    stand.apply(&before, node, &op)
}

fn answer_all(stand: &mut Stand, node: &Node) -> Result<(), Broken> {
    for _ in 0..stand.calls.len() {
        stand.finish(
            node,
            Some(0),
            Outcome::Whole,
            Began::WhenAsked,
            Sees::ItsEnd,
        )?;
    }
    Ok(())
}

/// Time passes; every read is answered, whole, a millisecond after it was asked for.
fn fair(stand: &mut Stand, node: &mut Node, ms: u64) -> Result<(), Broken> {
    let end = stand.now() + ms;
    while stand.now() < end {
        let timer = stand
            .machine
            .poll_timeout()
            .map(|t| t.as_nanos().div_ceil(MS));
        let next = match timer {
            _ if !stand.calls.is_empty() => stand.now() + 1,
            Some(timer) => timer.clamp(stand.now() + 1, end),
            None => end,
        };
        let waiting = stand.calls.len();
        node.now = next;
        stand.pass(node, next)?;
        for _ in 0..waiting.min(stand.calls.len()) {
            stand.finish(
                node,
                Some(0),
                Outcome::Whole,
                Began::WhenAsked,
                Sees::ItsEnd,
            )?;
        }
        stand.look(node)?;
    }
    Ok(())
}

/// The cache equals the truth.
fn equal(stand: &Stand, node: &Node, in_detail: bool) -> Result<(), Broken> {
    let now = stand.now();
    let mut shown = BTreeMap::new();
    for (uid, view) in &stand.laws.cache {
        for (id, seen) in seen(&view.status) {
            let twice = shown.insert(id.clone(), (uid.clone(), seen)).is_some();
            hold!(!twice, "law1-one-record", "{id} is shown in two pods");
        }
        let error = view.status.error.as_ref();
        hold!(
            error.is_none() || !in_detail,
            "law11-good-again",
            "{uid} still shows {error:?}"
        );
    }
    for life in &node.lives {
        let real = life.at(now).filter(|&s| s != State::Gone);
        let real: Option<(PodUid, Option<State>)> = real.map(|s| (life.pod.uid(), Some(s)));
        let held = shown.remove(&life.id);
        let states = held.as_ref().map(|(uid, seen)| {
            let state = seen.state.filter(|_| !seen.unknown);
            (uid.clone(), state)
        });
        hold!(
            states == real,
            "law10-cache-equals-truth",
            "{} is {real:?} and is shown as {states:?}",
            life.id
        );
        let Some((_, seen)) = held.filter(|_| in_detail) else {
            continue;
        };
        let code = life
            .exited
            .map(|_| life.code)
            .filter(|_| life.name.is_some());
        let truly = (
            code,
            life.sandbox.clone(),
            life.name.map_or("", Name::as_str),
        );
        let details = (seen.code, seen.sandbox.clone(), seen.name.as_str());
        hold!(
            details == truly,
            "law10-details-equal-truth",
            "{} is {truly:?}: {details:?}",
            life.id
        );
    }
    Ok(())
}

/// Everything that was to be announced has been, and everybody is answered.
fn complete(laws: &Laws, node: &Node) -> Result<(), Broken> {
    use LifecycleType::{ContainerDied, ContainerRemoved, ContainerStarted};
    for id in laws.ever_shown() {
        let last = laws.said.iter().rfind(|((i, _), _)| i == id);
        let (incarnation, said) = match last {
            Some(((_, n), said)) => (*n, said.clone()),
            None => (0, Default::default()),
        };
        let state = node.life(id).and_then(|l| l.at(node.now));
        let due = match state {
            Some(State::Running) => Some(ContainerStarted),
            // A new incarnation that starts as ended is announced as changed.
            Some(State::Exited) if incarnation == 0 => Some(ContainerDied),
            Some(State::Gone) => Some(ContainerRemoved),
            _ => None,
        };
        if let Some(due) = due {
            hold!(
                said.has(due),
                "law9-told",
                "{id} is {state:?}: no {due}, only {:?}",
                said.0
            );
        }
        let died = said.has(ContainerDied) || incarnation > 0;
        hold!(
            died || !said.has(ContainerRemoved),
            "law9-told",
            "{id} was removed without having died"
        );
    }
    let kept = laws.waiting.values().find(|a| a.after < node.now);
    hold!(kept.is_none(), "law4-all-answered", "{kept:?}");
    hold!(
        laws.waiting_for_list.is_empty(),
        "law4-all-answered",
        "{:?}",
        laws.waiting_for_list
    );
    Ok(())
}

/// Only lists are to come, ever rarer.
fn owes_nothing(stand: &mut Stand, node: &mut Node) -> Result<(), Broken> {
    let health = stand.machine.health(instant(stand.now()));
    hold!(health.synced, "law12-synced", "{health:?}");
    hold!(
        health.failing == 0 && health.overdue == 0,
        "law11-good-again",
        "{health:?}"
    );
    // Two misses may be a stream that keeps losing; that is polled for ten minutes.
    hold!(
        health.period.as_millis() > 1_000 || health.missed >= 2,
        "law10-period-grows",
        "{health:?}"
    );
    let before = stand.machine.counters().inspections;
    fair(stand, node, 60 * SECOND)?;
    let after = stand.machine.counters().inspections;
    // A pod that has ended is looked for, where this stream may not tell of its removal.
    let ended = |pod: &Pod| node.ready_sandbox(*pod).is_none();
    let may = 6 * Pod::REAL.iter().filter(|p| ended(p)).count() as u64;
    hold!(
        after - before <= may,
        "law10-quiet-costs-nothing",
        "{} inspections",
        after - before
    );
    Ok(())
}

/// All that was ever told comes once more, as it was told then.
fn a_replay_does_no_harm(stand: &mut Stand, node: &mut Node) -> Result<(), Broken> {
    stand
        .laws
        .note(stand.now(), || "everything is told again".to_owned());
    for happening in node.history.clone() {
        stand.deliver(node, &happening, How::Whole, false)?;
    }
    // What was never heard of and is gone by now is believed in until the next audit.
    fair(stand, node, 15 * SECOND)?;
    step(stand, node, Op::RelistNow)?;
    fair(stand, node, 300)?;
    equal(stand, node, true)?;
    complete(&stand.laws, node)
}

/// An end of which no event tells is a miss, and the lists come often again; one of which an
/// event tells is none.
fn a_lost_event_is_a_miss(stand: &mut Stand, node: &mut Node) -> Result<(), Broken> {
    let (pod, name) = (Pod::A, Name::App);
    let missed = |stand: &Stand| stand.machine.counters().missed.iter().sum::<u64>();
    for op in [
        Op::Run(pod),
        Op::Create(pod, name),
        Op::Start(pod, name),
        Op::DeliverAll,
    ] {
        step(stand, node, op)?;
    }
    let before = missed(stand);
    step(stand, node, Op::RelistNow)?;
    fair(stand, node, 10 * SECOND)?;
    hold!(
        missed(stand) == before,
        "law10-told-is-no-miss",
        "{:?}",
        stand.machine.counters()
    );
    let period = stand.machine.health(instant(stand.now())).period;
    hold!(
        period.as_millis() > 1_000 || before >= 2,
        "law10-period-grows",
        "{period:?}"
    );
    step(stand, node, Op::Exit(pod, name, 3))?;
    step(stand, node, Op::Drop(0))?;
    step(stand, node, Op::RelistNow)?;
    // The read ends after a millisecond; five seconds later it is judged.
    fair(stand, node, 5_001)?;
    hold!(
        missed(stand) == before + 1,
        "law10-miss-counted",
        "{:?}",
        stand.machine.counters()
    );
    let period = stand.machine.health(instant(stand.now())).period;
    hold!(
        period.as_millis() == 1_000,
        "law10-miss-shortens",
        "{period:?}"
    );
    equal(stand, node, true)?;
    complete(&stand.laws, node)
}
