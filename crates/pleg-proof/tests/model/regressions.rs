//! Sequences that once violated an invariant, written out: seeds become useless when the generator
//! changes, these do not.

use super::node::{Node, RuntimeKind, World};
use super::ops::Name::{App, Log};
use super::ops::Op::{
    Advance, Create, Deliver, DeliverAll, Exit, FalseEvent, FinishInspection, FinishList,
    HideStatus, KillSandbox, Relist, RemoveSandbox, Run, Start, Subscribe, Wait,
};
use super::ops::Pod::{A, B, Unknown};
use super::ops::{After, Began, EventForm, FalseEventType, Op, Outcome, Sees};
use super::run_sequence;

const FALSE_EVENTS: World = World {
    runtime: RuntimeKind::Containerd2,
    tight: false,
    false_events: true,
    kubelet: false,
};

const fn deliver(n: usize, how: EventForm, late: bool) -> Op {
    Deliver {
        n,
        how,
        late,
        again: false,
    }
}

const fn inspection(outcome: Outcome, sees: Sees) -> Op {
    FinishInspection {
        n: 0,
        outcome,
        began: Began::WhenAsked,
        sees,
    }
}

const fn list(outcome: Outcome, sees: Sees) -> Op {
    FinishList {
        outcome,
        began: Began::WhenAsked,
        sees,
    }
}

fn assert_no_violation(world: World, ops: &[Op]) {
    if let Err((violation, trace)) = run_sequence(&Node::new(world), ops, None, true) {
        panic!("{trace}\n{violation}");
    }
}

/// The list that showed the sandbox confirmed the end of its pod.
#[test]
fn invariant_3_fresh_while_a_wrong_end_is_undecided() {
    assert_no_violation(
        FALSE_EVENTS,
        &[
            Subscribe,
            Run(A),
            KillSandbox(A),
            FalseEvent(A, None, FalseEventType::Deleted),
        ],
    );
}

/// The inspection that named the pod moved the sandbox there and left the container behind.
#[test]
fn invariant_3_fresh_when_a_container_without_a_name_finds_its_pod() {
    assert_no_violation(
        World {
            false_events: false,
            ..FALSE_EVENTS
        },
        &[
            Run(B),
            Subscribe,
            Create(B, App),
            Create(B, Log),
            Relist(B),
            deliver(0, EventForm::MissingMetadata, true),
            inspection(Outcome::Whole, Sees::ItsEnd),
        ],
    );
}

/// The list for the first false removal answered after the time of the second.
#[test]
fn invariant_10_cache_equals_truth_after_two_wrong_removals() {
    assert_no_violation(
        FALSE_EVENTS,
        &[
            Subscribe,
            Run(B),
            Create(B, Log),
            DeliverAll,
            FalseEvent(B, Some(Log), FalseEventType::Deleted),
            deliver(0, EventForm::NoContainers, false),
            Run(A),
            FalseEvent(A, None, FalseEventType::Deleted),
            deliver(2, EventForm::Bare, false),
        ],
    );
}

/// The sandbox was removed during the read, while the container's exit was contradicted.
#[test]
fn invariant_1_one_truth_of_what_is_removed_during_a_read() {
    let finish = |sees| inspection(Outcome::Whole, sees);
    assert_no_violation(
        FALSE_EVENTS,
        &[
            Subscribe,
            Run(B),
            Create(B, App),
            FalseEvent(B, Some(App), FalseEventType::Stopped),
            KillSandbox(B),
            DeliverAll,
            Wait(B, After::Now),
            FalseEvent(B, None, FalseEventType::Deleted),
            finish(Sees::ItsEnd),
            RemoveSandbox(B),
            deliver(0, EventForm::Whole, false),
            finish(Sees::ItsBegin),
        ],
    );
}

/// An event from before reads overruled the state was applied after that.
#[test]
fn invariant_2_event_kept_aside_is_overruled_with_what_was_recorded() {
    let whole = |began| FinishInspection {
        n: 0,
        outcome: Outcome::Whole,
        began,
        sees: Sees::ItsEnd,
    };
    let no_list = list(Outcome::Failed, Sees::ItsEnd);
    assert_no_violation(
        FALSE_EVENTS,
        &[
            Subscribe,
            Run(A),
            Create(A, Log),
            Advance(9992),
            Create(A, App),
            Run(B),
            Create(B, Log),
            Start(B, Log),
            DeliverAll,
            FalseEvent(A, Some(App), FalseEventType::Stopped),
            deliver(0, EventForm::Whole, false),
            whole(Began::WhenAsked),
            no_list,
            Wait(Unknown, After::Now),
            Create(B, App),
            FalseEvent(B, Some(App), FalseEventType::Stopped),
            Wait(B, After::Now),
            whole(Began::WhenAsked),
            deliver(1, EventForm::Bare, false),
            Wait(B, After::Now),
            no_list,
            FalseEvent(B, Some(App), FalseEventType::Stopped),
            whole(Began::WhenAsked),
            DeliverAll,
            FalseEvent(B, Some(App), FalseEventType::Stopped),
            whole(Began::Now),
            Advance(99),
        ],
    );
}

/// The pod had no name yet, so its lists showed nothing, and NotFound of one status removed a container.
#[test]
fn invariant_5_existing_not_removed_in_a_pod_without_a_name() {
    assert_no_violation(
        World {
            false_events: false,
            ..FALSE_EVENTS
        },
        &[
            Run(A),
            Create(A, App),
            Start(A, App),
            Create(A, Log),
            Start(A, Log),
            Subscribe,
            HideStatus(A, App),
            Exit(A, Log, 0),
            deliver(0, EventForm::MissingMetadata, false),
            Advance(1_000),
            inspection(Outcome::Whole, Sees::ItsEnd),
        ],
    );
}

/// A list that began before an inspection overruled the record with an older state than the inspection
/// had shown.
#[test]
fn invariant_3_fresh_when_an_earlier_list_overrules() {
    let whole_list = list(Outcome::Whole, Sees::ItsEnd);
    let whole = inspection(Outcome::Whole, Sees::ItsEnd);
    assert_no_violation(
        FALSE_EVENTS,
        &[
            Subscribe,
            Run(B),
            Create(B, Log),
            FalseEvent(B, Some(Log), FalseEventType::Stopped),
            DeliverAll,
            whole_list,
            whole,
            whole_list,
            Advance(1_200),
            whole,
            list(Outcome::Unknown, Sees::ItsEnd),
            inspection(Outcome::Failed, Sees::ItsEnd),
            whole,
            Start(B, Log),
            Advance(999),
            whole,
            list(Outcome::Whole, Sees::ItsBegin),
        ],
    );
}
