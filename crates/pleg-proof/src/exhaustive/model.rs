//! What may happen next, in every order: the small worlds as stateright sees them.

use stateright::{Model, Property};

use super::cast::Cast;
use super::play::{Action, Phase, Play, State, What, is_due, may_jump};
use super::rest::may_rest;
use super::script::{Stage, Who};

/// Of every state of a small world.
pub const LAWS: &str = "the laws hold";
/// A run ends only at rest: no path is cut short.
pub const WHOLE: &str = "every run comes to rest";

impl Model for Cast {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![Play::begin(self, false).state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.broken.is_some() {
            return;
        }
        match state.phase {
            Phase::Playing => playing(self, state, actions),
            Phase::Resting => actions.push(Action::Settle),
            Phase::Settled => {}
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut play = Play {
            cast: self,
            state: state.clone(),
            tale: None,
            since: 0,
        };
        play.act(action);
        Some(play.state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let whole = |cast: &Self, state: &State| {
            let mut next = Vec::new();
            cast.actions(state, &mut next);
            !next.is_empty() || state.broken.is_some() || state.phase == Phase::Settled
        };
        vec![
            Property::always(LAWS, |_, state: &State| state.broken.is_none()),
            Property::always(WHOLE, whole),
        ]
    }
}

fn playing(cast: &Cast, state: &State, actions: &mut Vec<Action>) {
    if is_due(state) {
        // The machine's driver hands it what is due before anything else.
        actions.push(Action::Jump);
        return;
    }
    let left = &state.left;
    let fault = |kind: u8| kind > 0 && left.faults > 0;
    let room = state.queue.len() < usize::from(left.lag)
        && state
            .reads
            .iter()
            .all(|r| r.seen.len() <= usize::from(left.span));
    for (script, steps) in cast.world.tale.scripts.iter().enumerate() {
        if room && usize::from(state.done[script]) < steps.len() {
            actions.push(Action::Step { script });
        }
    }
    stream(cast, state, actions);
    for read in 0..state.reads.len() {
        reads(cast, state, read, actions);
    }
    if fault(left.lying_events) && state.streaming {
        for who in 0..cast.ids.len() {
            let lies = match state.truth[who] {
                Stage::Created | Stage::Running => &[Stage::Exited, Stage::Removed][..],
                Stage::Exited => &[Stage::Removed],
                Stage::Absent | Stage::Removed => &[],
            };
            actions.extend(lies.iter().map(|&to| Action::Lie { who, to }));
        }
    }
    if left.waits > 0 {
        actions.extend((0..cast.pods.len()).map(|pod| Action::Ask { pod }));
    }
    if left.jumps > 0 && may_jump(state) {
        actions.push(Action::Jump);
    }
    if may_rest(state, cast.world.tale.scripts) {
        actions.push(Action::Rest);
    }
}

fn stream(cast: &Cast, state: &State, actions: &mut Vec<Action>) {
    let left = &state.left;
    let fault = |kind: u8| kind > 0 && left.faults > 0;
    if !state.streaming {
        actions.push(Action::Subscribe);
        return;
    }
    if fault(left.cuts) {
        actions.push(Action::Cut);
    }
    for (nth, message) in state.queue.iter().take(2).enumerate() {
        let second = nth == 1;
        if second && !fault(left.swaps) {
            continue;
        }
        let deliver = |late, again| Action::Deliver {
            second,
            late,
            again,
        };
        actions.push(deliver(false, false));
        if second {
            continue;
        }
        if fault(left.doubles) {
            actions.push(deliver(false, true));
        }
        let differ = |w: Who| message.seen[w] != state.truth[w];
        if fault(left.stale) && cast.together(message.step.0).any(differ) {
            actions.push(deliver(true, false));
        }
    }
    if fault(left.drops) && !state.queue.is_empty() {
        actions.push(Action::Drop);
    }
}

fn reads(cast: &Cast, state: &State, read: usize, actions: &mut Vec<Action>) {
    let left = &state.left;
    let fault = |kind: u8| kind > 0 && left.faults > 0;
    let (what, moments) = (&state.reads[read].what, state.reads[read].seen.len());
    // One status is read at one moment; a list and an inspection are read in two halves.
    let halves = !matches!(what, What::One { .. });
    for first in 0..moments {
        for then in first..moments {
            if halves || then == first {
                actions.push(Action::Land { read, first, then });
            }
        }
    }
    if fault(left.failures) {
        actions.push(Action::Fail {
            read,
            partial: false,
        });
        if matches!(what, What::Pod { .. }) {
            actions.push(Action::Fail {
                read,
                partial: true,
            });
        }
    }
    if fault(left.lying_lists) && matches!(what, What::Node { .. }) {
        for who in 0..cast.ids.len() {
            let lies = match state.truth[who] {
                Stage::Created | Stage::Running => &[Stage::Absent, Stage::Exited][..],
                Stage::Exited => &[Stage::Absent, Stage::Running],
                // Still listed after its removal, as containerd ≥ 2 does.
                Stage::Removed => &[Stage::Exited],
                Stage::Absent => &[],
            };
            let lying = |&as_: &Stage| Action::LandLying { read, who, as_ };
            actions.extend(lies.iter().map(lying));
        }
    }
}
