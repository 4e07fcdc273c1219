//! Minimizes a failing sequence further than proptest, which removes single steps once. This removes
//! runs of steps repeatedly until none can be removed.

use super::node::Node;
use super::ops::Op;
use super::{assertion_of, run_sequence};

/// The shortest sequence found that violates the same assertion.
pub fn shortest(first: &Node, mut ops: Vec<Op>) -> Vec<Op> {
    let Some(assertion) = violated_assertion(first, &ops) else {
        return ops;
    };
    let breaks = |ops: &[Op]| violated_assertion(first, ops).as_ref() == Some(&assertion);
    loop {
        let before = ops.len();
        let mut run = before;
        while run > 0 {
            let mut at = 0;
            while at + run <= ops.len() {
                match without(first, &ops, at, run).filter(|shorter| breaks(shorter)) {
                    Some(shorter) => ops = shorter,
                    None => at += 1,
                }
            }
            run = run.min(ops.len()) / 2;
        }
        if ops.len() == before {
            return ops;
        }
    }
}

/// The assertion that a sequence violates.
fn violated_assertion(first: &Node, ops: &[Op]) -> Option<String> {
    let (violation, _) = run_sequence(first, ops, None, false).err()?;
    Some(assertion_of(&violation).to_owned())
}

/// The sequence without that run of steps and without those that become impossible; none if it is not
/// shorter.
fn without(first: &Node, ops: &[Op], at: usize, run: usize) -> Option<Vec<Op>> {
    let mut node = first.clone();
    let mut left = Vec::with_capacity(ops.len());
    for op in ops[..at].iter().chain(&ops[at + run..]) {
        let op = node.clamped(*op);
        if node.allows(&op) {
            node.apply(&op);
        }
        if node.may_allow(&op) {
            left.push(op);
        }
    }
    (left.len() < ops.len()).then_some(left)
}
