//! Explores small worlds: tries every order of a few actions, with and without each fault.

mod shift;
mod worlds;

use std::collections::HashSet;

use crate::choose::Choose;
use crate::world::World;

pub use worlds::{LARGE_WORLDS, SmallWorld, WORLDS};

/// The result of an exploration.
#[derive(Clone, Debug, Default)]
pub struct Explored {
    /// The number of different states that were found.
    pub states: usize,
    /// The number of steps that were taken.
    pub steps: usize,
    /// The number of states in which nothing is left to choose. From each of them, the world ran to its end.
    pub ends: usize,
    /// True if the exploration did not stop at the limit of states.
    pub is_complete: bool,
    /// The first violation that the checker found, and every action that led to it.
    pub failure: Option<(String, Vec<String>)>,
}

/// Enumerates every combination of the choices that a world makes in one step.
#[derive(Debug, Default)]
struct Enumerated {
    /// For each choice of the step: the chosen number, and the number of alternatives.
    choices: Vec<(u32, u32)>,
    at: usize,
}

impl Choose for Enumerated {
    fn below(&mut self, n: u32) -> u32 {
        if self.at == self.choices.len() {
            self.choices.push((0, n));
        }
        let (chosen, _) = self.choices[self.at];
        self.at += 1;
        chosen
    }
}

impl Enumerated {
    /// Goes to the next combination. Returns false after the last one.
    fn advance(&mut self) -> bool {
        self.at = 0;
        while let Some((chosen, n)) = self.choices.pop() {
            if chosen + 1 < n {
                self.choices.push((chosen + 1, n));
                return true;
            }
        }
        false
    }

    fn chosen(&self) -> Vec<u32> {
        self.choices.iter().map(|&(chosen, _)| chosen).collect()
    }
}

/// Repeats recorded choices. After the last recorded one, every choice is 0.
#[derive(Debug)]
struct Replayed<'a>(&'a [u32]);

impl Choose for Replayed<'_> {
    fn below(&mut self, n: u32) -> u32 {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        first.min(n.saturating_sub(1))
    }
}

/// Tries every order of the actions of a world, with and without each fault, until it has found `most` states.
pub fn explore(start: &World, most: usize) -> Explored {
    let mut explored = Explored {
        is_complete: true,
        ..Explored::default()
    };
    let mut visited = HashSet::new();
    let mut stack = vec![(start.clone(), Vec::<u32>::new())];
    while let Some((world, path)) = stack.pop() {
        if world.is_over() {
            explored.ends += 1;
            if let Err(violation) = world.clone().finish() {
                explored.failure = Some((violation, replay(start, &path)));
                return explored;
            }
            continue;
        }
        if explored.states >= most {
            explored.is_complete = false;
            continue;
        }
        let mut choices = Enumerated::default();
        loop {
            let mut next = world.clone();
            explored.steps += 1;
            let outcome = next.step(&mut choices);
            let path: Vec<u32> = path.iter().copied().chain(choices.chosen()).collect();
            match outcome {
                Err(violation) => {
                    explored.failure = Some((violation, replay(start, &path)));
                    return explored;
                }
                Ok(_) if visited.insert(shift::hash(&next, next.now())) => {
                    explored.states += 1;
                    stack.push((next, path));
                }
                Ok(_) => {}
            }
            if !choices.advance() {
                break;
            }
        }
    }
    explored
}

/// Runs a world that makes the choices in `path` to its end, and returns the trace.
fn replay(start: &World, path: &[u32]) -> Vec<String> {
    let mut world = start.clone();
    world.with_trace();
    let mut choices = Replayed(path);
    while !choices.0.is_empty() || !world.is_over() {
        if world.step(&mut choices) != Ok(true) {
            break;
        }
    }
    if world.is_over() {
        _ = world.finish();
    }
    world.trace().to_vec()
}
