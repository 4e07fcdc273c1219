//! The model test: sequences of explicit operations, so that a broken law shrinks to a handful of
//! readable steps. A trivially correct truth runs beside the machine (`model/node.rs`), the laws
//! are the assertions (`model/laws.rs`), and at the end of every sequence all must be well
//! (`model/quiet.rs`).
//!
//! `PROPTEST_CASES=n` runs n sequences of each kind, `PLEG_MODEL_LAW=name` looks for those alone
//! that break this law. A sequence that fails is kept by its seed in
//! `proptest-regressions/model.txt` and is run first from then on.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

mod kept;
mod laws;
mod node;
mod ops;
mod quiet;
mod shorter;
mod stand;
mod told;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use proptest::prelude::*;
use proptest::test_runner::{
    Config, FailurePersistence, FileFailurePersistence, TestError, TestRunner,
};
use proptest_state_machine::ReferenceStateMachine;

use node::Node;
use ops::Op;
use stand::{Broken, Stand};

/// Where the seeds of failing sequences are kept.
const REGRESSIONS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/proptest-regressions/model.txt"
);

/// The longest sequence.
const STEPS: usize = 60;

/// The truth as the reference: it says what can happen next.
struct Honest;

/// The same, where events may tell what did not happen.
struct Lying;

macro_rules! reference {
    ($name:ident, $lies:literal) => {
        impl ReferenceStateMachine for $name {
            type State = Node;
            type Transition = Op;

            fn init_state() -> BoxedStrategy<Node> {
                ops::world($lies).prop_map(Node::new).boxed()
            }

            fn transitions(node: &Node) -> BoxedStrategy<Op> {
                ops::next(node)
            }

            fn preconditions(node: &Node, op: &Op) -> bool {
                node.allows(op)
            }

            fn apply(mut node: Node, op: &Op) -> Node {
                node.apply(op);
                node
            }
        }
    };
}

reference!(Honest, false);
reference!(Lying, true);

/// Runs one sequence to its end. `seen` counts the steps taken, for the shrinking.
fn live(
    first: &Node,
    ops: &[Op],
    seen: Option<&AtomicUsize>,
    keep_history: bool,
) -> Result<(), (Broken, String)> {
    let mut node = first.clone();
    let mut stand = Stand::new(&node, keep_history).map_err(|b| (b, String::new()))?;
    let mut all = || {
        for op in ops {
            if let Some(seen) = seen {
                seen.fetch_add(1, Ordering::SeqCst);
            }
            let before = node.clone();
            node.apply(op);
            stand.apply(&before, &node, op)?;
        }
        quiet::settle(&mut stand, &mut node)
    };
    // Nothing may panic, whatever comes in.
    let outcome = catch_unwind(AssertUnwindSafe(&mut all));
    outcome
        .unwrap_or_else(|_| Err("no-panic: the machine or its test panicked".to_owned()))
        .map_err(|broken| (broken, stand.laws.history()))
}

/// The name of a broken law.
fn name_of(broken: &str) -> &str {
    broken.split(':').next().unwrap_or(broken)
}

fn no_sequence_breaks_a_law<Reference>(cases: u32)
where
    Reference: ReferenceStateMachine<State = Node, Transition = Op>,
{
    let chosen = Config::default();
    let config = Config {
        cases: if std::env::var_os("PROPTEST_CASES").is_some() {
            chosen.cases
        } else {
            cases
        },
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(REGRESSIONS))),
        max_shrink_iters: 20_000,
        ..chosen
    };
    // The law that is broken first, or the one that is asked for. Shrinking keeps to it.
    let law: OnceLock<String> = std::env::var("PLEG_MODEL_LAW")
        .ok()
        .map_or_else(OnceLock::new, OnceLock::from);
    let (tried, caught) = (AtomicUsize::new(0), AtomicBool::new(false));
    let outcome = TestRunner::new(config).run(
        &Reference::sequential_strategy(1..STEPS),
        |(node, ops, seen)| {
            if !caught.load(Ordering::SeqCst) {
                tried.fetch_add(1, Ordering::SeqCst);
            }
            match live(&node, &ops, seen.as_deref(), false) {
                Err((broken, _))
                    if name_of(&broken) == law.get_or_init(|| name_of(&broken).to_owned()) =>
                {
                    caught.store(true, Ordering::SeqCst);
                    Err(TestCaseError::fail(broken))
                }
                _ => Ok(()),
            }
        },
    );
    let tried = tried.load(Ordering::SeqCst);
    match outcome {
        Ok(()) => println!("{tried} sequences"),
        Err(TestError::Fail(_, (node, ops, _))) => {
            let ops = shorter::shortest(&node, ops);
            let (law, history) = live(&node, &ops, None, true).expect_err("it failed before");
            let steps: Vec<String> = ops.iter().map(|op| format!("    {op:?}")).collect();
            panic!(
                "{history}\nsequence {tried} shrinks to {} steps in {:?}:\n{}\nand breaks {law}",
                ops.len(),
                node.world,
                steps.join("\n")
            );
        }
        Err(TestError::Abort(why)) => panic!("no sequences: {why}"),
    }
}

#[test]
fn no_honest_sequence_breaks_a_law() {
    no_sequence_breaks_a_law::<Honest>(3_000);
}

#[test]
fn no_lying_sequence_breaks_a_law() {
    no_sequence_breaks_a_law::<Lying>(3_000);
}

/// The seeds of sequences that once failed are found and understood: both tests above run them
/// first.
#[test]
fn regressions_are_read() {
    let kept = FileFailurePersistence::Direct(REGRESSIONS).load_persisted_failures2(None);
    assert!(!kept.is_empty(), "no seed in {REGRESSIONS}");
}
