//! The small worlds as a stateright model: the possible actions of each state.

use stateright::{Model, Property};

use super::execution::{Execution, is_due, may_advance};
use super::kubelet;
use super::quiesce::{may_stop, next_step};
use super::scenario::{ObjectIndex, Stage};
use super::state::{Action, Phase, State, What};
use super::world_model::WorldModel;

/// The property that holds in every state.
pub const INVARIANTS: &str = "the invariants hold";
/// The property that every run ends quiescent: no path is truncated.
pub const TERMINATES: &str = "every run comes to rest";

impl Model for WorldModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![Execution::begin(self, false).state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.violation.is_some() {
            return;
        }
        match state.phase {
            Phase::Running => running_actions(self, state, actions),
            Phase::Stopped => actions.push(Action::Quiesce),
            Phase::Quiescent => {}
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut execution = Execution {
            model: self,
            state: state.clone(),
            trace: None,
            since: 0,
        };
        execution.act(action);
        Some(execution.state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let terminates = |model: &Self, state: &State| {
            let mut next = Vec::new();
            model.actions(state, &mut next);
            !next.is_empty() || state.violation.is_some() || state.phase == Phase::Quiescent
        };
        vec![
            Property::always(INVARIANTS, |_, state: &State| state.violation.is_none()),
            Property::always(TERMINATES, terminates),
        ]
    }
}

fn running_actions(model: &WorldModel, state: &State, actions: &mut Vec<Action>) {
    if is_due(state) {
        // The driver handles due timers before anything else.
        actions.push(Action::AdvanceTime);
        return;
    }
    let left = &state.left;
    let fault = |kind: u8| kind > 0 && left.faults > 0;
    let may_step = state.queue.len() < usize::from(left.lag)
        && state
            .reads
            .iter()
            .all(|r| r.seen.len() <= usize::from(left.span));
    for (script, steps) in model.world.scenario.scripts.iter().enumerate() {
        if may_step && next_step(state, script, steps).is_some() {
            actions.push(Action::Step { script });
        }
    }
    kubelet::actions(state, may_step, actions);
    stream_actions(model, state, actions);
    for read in 0..state.reads.len() {
        read_actions(model, state, read, actions);
    }
    if fault(left.false_events) && state.streaming {
        for object in 0..model.ids.len() {
            let false_stages = match state.oracle[object] {
                Stage::Created | Stage::Running => &[Stage::Exited, Stage::Removed][..],
                Stage::Exited => &[Stage::Removed],
                Stage::Absent | Stage::Removed => &[],
            };
            actions.extend(
                false_stages
                    .iter()
                    .map(|&to| Action::FalseEvent { object, to }),
            );
        }
    }
    if left.waits > 0 {
        actions.extend((0..model.pods.len()).map(|pod| Action::Wait { pod }));
    }
    if left.time_jumps > 0 && may_advance(state) {
        actions.push(Action::AdvanceTime);
    }
    if may_stop(state, model.world.scenario.scripts) {
        actions.push(Action::StopFaults);
    }
}

fn stream_actions(model: &WorldModel, state: &State, actions: &mut Vec<Action>) {
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
        if second && !fault(left.reorderings) {
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
        if fault(left.duplicates) {
            actions.push(deliver(false, true));
        }
        let differ = |w: ObjectIndex| message.seen[w] != state.oracle[w];
        if fault(left.stale) && model.in_same_event(message.step.0).any(differ) {
            actions.push(deliver(true, false));
        }
    }
    if fault(left.drops) && !state.queue.is_empty() {
        actions.push(Action::Drop);
    }
}

fn read_actions(model: &WorldModel, state: &State, read: usize, actions: &mut Vec<Action>) {
    let left = &state.left;
    let fault = |kind: u8| kind > 0 && left.faults > 0;
    let (what, moments) = (&state.reads[read].what, state.reads[read].seen.len());
    // A status is read at one instant, a list and an inspection at two.
    let two_moments = !matches!(what, What::One { .. });
    for first in 0..moments {
        for then in first..moments {
            if two_moments || then == first {
                actions.push(Action::Complete { read, first, then });
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
    if fault(left.not_found) && matches!(what, What::Pod { .. }) {
        let seen = &state.reads[read].seen[moments - 1];
        let is_of =
            |o: &ObjectIndex| matches!(what, What::Pod { pod, .. } if model.pod_of(*o) == *pod);
        let listed = (0..model.ids.len()).filter(|&o| is_of(&o) && seen[o].exists());
        actions.extend(listed.map(|object| Action::CompleteWithout { read, object }));
    }
    if fault(left.false_lists) && matches!(what, What::Node { .. }) {
        for object in 0..model.ids.len() {
            let false_stages = match state.oracle[object] {
                Stage::Created | Stage::Running => &[Stage::Absent, Stage::Exited][..],
                Stage::Exited => &[Stage::Absent, Stage::Running],
                // Still listed after its removal, as containerd ≥ 2 does.
                Stage::Removed => &[Stage::Exited],
                Stage::Absent => &[],
            };
            let complete_falsely = |&stage: &Stage| Action::CompleteFalsely {
                read,
                object,
                stage,
            };
            actions.extend(false_stages.iter().map(complete_falsely));
        }
    }
}
