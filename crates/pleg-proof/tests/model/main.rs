//! The model test: generated sequences of explicit operations, so that a violation shrinks to a few
//! readable steps. A simple model of the node (`model/node.rs`) runs beside the reconciler,
//! `model/checks.rs` checks the invariants, and `model/quiescence.rs` checks the end of every
//! sequence.
//!
//! `PROPTEST_CASES=n` runs n sequences of each kind, `PLEG_MODEL_INVARIANT=name` reports only
//! violations of that assertion. The seed of a failing sequence is saved in
//! `proptest-regressions/model.txt` and runs first from then on.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

mod checks;
mod harness;
mod kubelet;
mod minimize;
mod node;
mod ops;
mod quiescence;
mod regressions;
mod reports;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use proptest::prelude::*;
use proptest::test_runner::{
    Config, FailurePersistence, FileFailurePersistence, RngSeed, TestError, TestRunner,
};
use proptest_state_machine::ReferenceStateMachine;

use harness::{Harness, Violation};
use node::Node;
use ops::Op;

/// Where the seeds of failing sequences are kept.
const REGRESSIONS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/proptest-regressions/model.txt"
);

/// The longest sequence.
const STEPS: usize = 60;

/// The model of the node as the reference state machine.
struct TrueEvents;

/// The same with false events.
struct FalseEvents;

macro_rules! reference {
    ($name:ident, $false_events:literal) => {
        impl ReferenceStateMachine for $name {
            type State = Node;
            type Transition = Op;

            fn init_state() -> BoxedStrategy<Node> {
                ops::world($false_events).prop_map(Node::new).boxed()
            }

            fn transitions(node: &Node) -> BoxedStrategy<Op> {
                ops::next(node)
            }

            fn preconditions(node: &Node, op: &Op) -> bool {
                node.may_allow(op)
            }

            fn apply(mut node: Node, op: &Op) -> Node {
                // What workers do depends on the reconciler: this model does not follow them.
                if node.allows(op) {
                    node.apply(op);
                }
                node
            }
        }
    };
}

reference!(TrueEvents, false);
reference!(FalseEvents, true);

/// Runs one sequence to its end. `seen` counts the steps taken, for the shrinking.
fn run_sequence(
    first: &Node,
    ops: &[Op],
    seen: Option<&AtomicUsize>,
    keep_history: bool,
) -> Result<(), (Violation, String)> {
    let mut node = first.clone();
    let mut harness = Harness::new(&node, keep_history).map_err(|b| (b, String::new()))?;
    let mut all = || {
        for op in ops {
            if let Some(seen) = seen {
                seen.fetch_add(1, Ordering::SeqCst);
            }
            let op = node.clamped(*op);
            if !node.allows(&op) {
                continue;
            }
            let before = node.clone();
            node.apply(&op);
            harness.apply_to_workers(&mut node, &op)?;
            harness.apply(&before, &node, &op)?;
        }
        quiescence::settle(&mut harness, &mut node)
    };
    // No input may cause a panic.
    let outcome = catch_unwind(AssertUnwindSafe(&mut all));
    outcome
        .unwrap_or_else(|_| Err("no-panic: the reconciler or its test panicked".to_owned()))
        .map_err(|violation| (violation, harness.checks.trace()))
}

/// The assertion of a violation.
fn assertion_of(violation: &str) -> &str {
    violation.split(':').next().unwrap_or(violation)
}

fn check_sequences<Reference>(cases: u32)
where
    Reference: ReferenceStateMachine<State = Node, Transition = Op>,
{
    let chosen = Config::default();
    // Where a bug was planted the seed is fixed: the seeds that it breaks are not kept, or runs without
    // it would begin with them, and the count of sequences would mean nothing.
    let persists = matches!(chosen.rng_seed, RngSeed::Random);
    let config = Config {
        cases: if std::env::var_os("PROPTEST_CASES").is_some() {
            chosen.cases
        } else {
            cases
        },
        failure_persistence: persists
            .then(|| Box::new(FileFailurePersistence::Direct(REGRESSIONS)) as Box<_>),
        max_shrink_iters: 20_000,
        ..chosen
    };
    // The assertion that is violated first, or the requested one. Shrinking keeps to it.
    let assertion: OnceLock<String> = std::env::var("PLEG_MODEL_INVARIANT")
        .ok()
        .map_or_else(OnceLock::new, OnceLock::from);
    let (tried, caught) = (AtomicUsize::new(0), AtomicBool::new(false));
    let outcome = TestRunner::new(config).run(
        &Reference::sequential_strategy(1..STEPS),
        |(node, ops, seen)| {
            if !caught.load(Ordering::SeqCst) {
                tried.fetch_add(1, Ordering::SeqCst);
            }
            match run_sequence(&node, &ops, seen.as_deref(), false) {
                Err((violation, _))
                    if assertion_of(&violation)
                        == assertion.get_or_init(|| assertion_of(&violation).to_owned()) =>
                {
                    caught.store(true, Ordering::SeqCst);
                    Err(TestCaseError::fail(violation))
                }
                _ => Ok(()),
            }
        },
    );
    let tried = tried.load(Ordering::SeqCst);
    match outcome {
        Ok(()) => println!("{tried} sequences"),
        Err(TestError::Fail(_, (node, ops, _))) => {
            let ops = minimize::shortest(&node, ops);
            let (violation, trace) =
                run_sequence(&node, &ops, None, true).expect_err("it failed before");
            let steps: Vec<String> = ops.iter().map(|op| format!("    {op:?}")).collect();
            panic!(
                "{trace}\nsequence {tried} shrinks to {} steps in {:?}:\n{}\nand violates {violation}",
                ops.len(),
                node.world,
                steps.join("\n")
            );
        }
        Err(TestError::Abort(why)) => panic!("no sequences: {why}"),
    }
}

#[test]
fn sequences_with_true_events_violate_no_invariant() {
    check_sequences::<TrueEvents>(3_000);
}

#[test]
fn sequences_with_false_events_violate_no_invariant() {
    check_sequences::<FalseEvents>(3_000);
}

/// The persisted seeds can be loaded; both tests above run them first.
#[test]
fn persisted_regressions_are_loaded() {
    let kept = FileFailurePersistence::Direct(REGRESSIONS).load_persisted_failures2(None);
    assert!(!kept.is_empty(), "no seed in {REGRESSIONS}");
}
