//! A node that writes down its events.

use pleg_node_model::{Due, Id, NewContainer, Node, Pod, Profile, Shown, Status};

/// The time between two steps of a test.
const STEP: u64 = 1_000;

/// A node, and the text of the events that it has sent.
pub(crate) struct Recorder {
    pub(crate) node: Node,
    pub(crate) now: u64,
    pub(crate) recorded: Vec<String>,
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
            now: STEP,
            recorded: Vec::new(),
        }
    }

    /// Changes the node and writes down the events.
    pub(crate) fn call(&mut self, call: impl FnOnce(&mut Node, u64) -> Vec<Due>) {
        self.now += STEP;
        let events = call(&mut self.node, self.now);
        for due in events {
            self.recorded.extend(self.text(&due));
        }
    }

    pub(crate) fn run(&mut self, name: &str, attempt: u32) {
        self.call(|node, now| node.run_sandbox(name, &pod(), attempt, now).unwrap());
    }

    pub(crate) fn create(&mut self, sandbox: &str, name: &str, attempt: u32) {
        let mut new = NewContainer::new(name, sandbox, &name.to_lowercase().replace('\'', ""));
        new.attempt = attempt;
        self.call(|node, now| node.create_container(new, now).unwrap());
    }

    pub(crate) fn start(&mut self, sandbox: &str, name: &str, attempt: u32) {
        self.create(sandbox, name, attempt);
        self.call(|node, now| node.start(&id(name), now).unwrap());
    }

    /// Returns the events since the last call.
    pub(crate) fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.recorded)
    }

    fn text(&self, due: &Due) -> Option<String> {
        let event = self.node.event(due, due.at)?;
        let sandbox = match event.sandbox.as_ref().map(|s| s.row.shown) {
            None => "nil",
            Some(Shown::Running) => "READY",
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
    let state = match status.row.shown {
        Shown::Created => "CREATED".to_owned(),
        Shown::Running => "RUNNING".to_owned(),
        Shown::Exited => format!("EXITED={} {}", status.exit_code.unwrap(), status.reason),
        Shown::Unknown => "UNKNOWN".to_owned(),
    };
    format!("{}:{state}", status.row.id)
}
