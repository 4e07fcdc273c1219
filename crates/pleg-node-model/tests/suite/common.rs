//! Runs a node model through steps given as text, and returns its events as text.

use pleg_node_model::{Due, GO_ZERO_TIME, Id, NewContainer, Node, Pod, Profile, Shown, Status};

/// The time between two steps of a test.
const STEP: u64 = 1_000;

/// A node model, and the time of its last step.
pub(crate) struct Recorder {
    pub(crate) node: Node,
    now: u64,
}

pub(crate) fn id(name: &str) -> Id {
    name.into()
}

pub(crate) fn pod() -> Pod {
    Pod::new("uid-p", "default", "p")
}

impl Recorder {
    pub(crate) fn new(profile: Profile) -> Self {
        Self {
            node: Node::new(profile),
            now: 0,
        }
    }

    /// Does the steps, which are separated by commas, and returns their events. Container A' is the next attempt of A.
    pub(crate) fn play(&mut self, steps: &str) -> Vec<String> {
        let mut recorded = Vec::new();
        for step in steps.split(", ") {
            self.now += STEP;
            let events = self.step(step);
            recorded.extend(events.iter().filter_map(|due| self.text(due)));
        }
        recorded
    }

    fn step(&mut self, step: &str) -> Vec<Due> {
        let (node, now) = (&mut self.node, self.now);
        let attempt = |name: &str| u32::from(name.ends_with('\''));
        let words: Vec<_> = step.split(' ').collect();
        match words[..] {
            ["run", s] => node.run_sandbox(s, &pod(), attempt(s), now).unwrap(),
            ["share", s] => {
                node.object_mut(s).unwrap().shares_processes = true;
                Vec::new()
            }
            ["create", s, c] => {
                let name = c.trim_end_matches('\'').to_lowercase();
                let mut new = NewContainer::new(c, s, &name);
                new.attempt = attempt(c);
                node.create_container(new, now).unwrap()
            }
            ["start", c] => node.start(&id(c), now).unwrap(),
            ["fail-start", c] => {
                node.fail_start(&id(c), now).unwrap();
                Vec::new()
            }
            ["exit", c, code] => {
                let reason = if code == "0" { "Completed" } else { "Error" };
                node.exit(&id(c), code.parse().unwrap(), reason, now)
            }
            ["stop", c] => node.stop(&id(c), now),
            ["kill-sandbox", s] => node.kill_sandbox(&id(s), now),
            ["stop-sandbox", s] => node.stop_sandbox(&id(s), now),
            ["remove", c] => node.remove_container(&id(c), now),
            ["remove-sandbox", s] => node.remove_sandbox(&id(s), now),
            _ => panic!("unknown step {step}"),
        }
    }

    fn text(&self, due: &Due) -> Option<String> {
        let event = self.node.event(due, due.at)?;
        let sandbox = match event.sandbox.map(|s| (s.row.shown, s.row.created_at)) {
            None => "nil",
            Some((Shown::Running, _)) => "READY",
            Some((_, GO_ZERO_TIME)) => "NOTREADY since Go's zero time",
            Some(_) => "NOTREADY",
        };
        let containers = event.containers.iter().map(|c| container(c.as_ref()));
        let mut containers: Vec<_> = containers.collect();
        containers.sort();
        Some(format!("{due} {sandbox} [{}]", containers.join(", ")))
    }
}

fn container(status: Option<&Status>) -> String {
    let Some(status) = status else {
        return "empty".to_owned();
    };
    let state = format!("{:?}", status.row.shown).to_uppercase();
    let exit = status
        .exit_code
        .map(|code| format!("={code} {}", status.reason));
    format!("{}:{state}{}", status.row.id, exit.unwrap_or_default())
}
