//! Sequences that once broke a law, in plain words: seeds lose their meaning when the generator
//! changes, these do not.

use super::live;
use super::node::{Flavor, Node, World};
use super::ops::Name::{App, Log};
use super::ops::Op::{
    Advance, Create, Deliver, DeliverAll, FinishInspection, FinishList, KillSandbox, Relist,
    RemoveSandbox, Run, Start, Subscribe, Tell, Wait,
};
use super::ops::Pod::{A, B, Nobody};
use super::ops::{After, Began, How, Lie, Op, Outcome, Sees};

const LYING: World = World {
    flavor: Flavor::Containerd2,
    tight: false,
    lies: true,
};

const fn deliver(n: usize, how: How, late: bool) -> Op {
    Deliver {
        n,
        how,
        late,
        again: false,
    }
}

fn holds(world: World, ops: &[Op]) {
    if let Err((law, history)) = live(&Node::new(world), ops, None, true) {
        panic!("{history}\n{law}");
    }
}

/// The list that showed the sandbox vouched for the end of its pod.
#[test]
fn law3_fresh_while_a_wrong_end_is_undecided() {
    holds(
        LYING,
        &[
            Subscribe,
            Run(A),
            KillSandbox(A),
            Tell(A, None, Lie::Deleted),
        ],
    );
}

/// The inspection that named the pod moved the sandbox there and left the container behind.
#[test]
fn law3_fresh_when_a_container_without_a_name_finds_its_pod() {
    holds(
        World {
            lies: false,
            ..LYING
        },
        &[
            Run(B),
            Subscribe,
            Create(B, App),
            Create(B, Log),
            Relist(B),
            deliver(0, How::Nameless, true),
            FinishInspection {
                n: 0,
                outcome: Outcome::Whole,
                began: Began::WhenAsked,
                sees: Sees::ItsEnd,
            },
        ],
    );
}

/// The list for the first wrong removal answered after the time of the second.
#[test]
fn law10_cache_equals_truth_after_two_wrong_removals() {
    holds(
        LYING,
        &[
            Subscribe,
            Run(B),
            Create(B, Log),
            DeliverAll,
            Tell(B, Some(Log), Lie::Deleted),
            deliver(0, How::NoContainers, false),
            Run(A),
            Tell(A, None, Lie::Deleted),
            deliver(2, How::Bare, false),
        ],
    );
}

/// The sandbox was removed while the read was under way; the container's end was in dispute.
#[test]
fn law1_one_truth_of_what_is_removed_during_a_read() {
    let finish = |sees| FinishInspection {
        n: 0,
        outcome: Outcome::Whole,
        began: Began::WhenAsked,
        sees,
    };
    holds(
        LYING,
        &[
            Subscribe,
            Run(B),
            Create(B, App),
            Tell(B, Some(App), Lie::Stopped),
            KillSandbox(B),
            DeliverAll,
            Wait(B, After::Now),
            Tell(B, None, Lie::Deleted),
            finish(Sees::ItsEnd),
            RemoveSandbox(B),
            deliver(0, How::Whole, false),
            finish(Sees::ItsBegin),
        ],
    );
}

/// What an event had told of an id before reads overruled it came to count after that.
#[test]
fn law2_event_kept_aside_is_overruled_with_what_was_recorded() {
    let whole = |began| FinishInspection {
        n: 0,
        outcome: Outcome::Whole,
        began,
        sees: Sees::ItsEnd,
    };
    let no_list = FinishList {
        outcome: Outcome::Failed,
        began: Began::WhenAsked,
        sees: Sees::ItsEnd,
    };
    holds(
        LYING,
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
            Tell(A, Some(App), Lie::Stopped),
            deliver(0, How::Whole, false),
            whole(Began::WhenAsked),
            no_list,
            Wait(Nobody, After::Now),
            Create(B, App),
            Tell(B, Some(App), Lie::Stopped),
            Wait(B, After::Now),
            whole(Began::WhenAsked),
            deliver(1, How::Bare, false),
            Wait(B, After::Now),
            no_list,
            Tell(B, Some(App), Lie::Stopped),
            whole(Began::WhenAsked),
            DeliverAll,
            Tell(B, Some(App), Lie::Stopped),
            whole(Began::Now),
            Advance(99),
        ],
    );
}
