//! The model test: sequences of explicit operations, so that a broken law shrinks to a handful of
//! readable steps. A trivially correct truth runs beside the machine (`model/node.rs`), the laws
//! are the assertions (`model/laws.rs`), and at the end of every sequence all must be well
//! (`model/quiet.rs`).
//!
//! `PROPTEST_CASES=n` runs n sequences of each kind. A sequence that fails is kept by its seed in
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

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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
    all().map_err(|broken| (broken, stand.laws.history()))
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
    let tried = Arc::new(AtomicUsize::new(0));
    let broken = Arc::new(AtomicUsize::new(0));
    let outcome = TestRunner::new(config).run(
        &Reference::sequential_strategy(1..STEPS),
        |(node, ops, seen)| {
            if broken.load(Ordering::SeqCst) == 0 {
                tried.fetch_add(1, Ordering::SeqCst);
            }
            live(&node, &ops, seen.as_deref(), false).map_err(|(law, _)| {
                broken.store(1, Ordering::SeqCst);
                TestCaseError::fail(law)
            })
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
