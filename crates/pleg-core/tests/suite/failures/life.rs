//! The lifecycle of a pod "p" with the sandbox "s" and one container "c" that exits with 3: what
//! the node shows after each step, and the event of each step.

use pleg_core::{ContainerState, EventType, LifecycleType, PodUid, Report, ReportedState};

use crate::script::{Script, exited, ready, sandbox, status};
use EventType::{Created, Deleted, Started, Stopped};
use LifecycleType::{ContainerDied, ContainerRemoved, ContainerStarted};

pub(crate) struct Step {
    pub(crate) event: EventType,
    pub(crate) id: &'static str,
    pub(crate) node: Vec<Report>,
}

/// The container status.
pub(crate) fn c(shown: ReportedState) -> Report {
    match shown {
        ReportedState::Exited => in_sandbox(exited("c", "p", 3, "Error")),
        shown => in_sandbox(status("c", "p", shown)),
    }
}

/// An inspection adds the sandbox from the list row.
pub(crate) fn in_sandbox(mut report: Report) -> Report {
    report.identity.sandbox = Some("s".into());
    report
}

pub(crate) fn life() -> Vec<Step> {
    let over = sandbox("s", "p", ReportedState::Exited);
    let step = |event, id, node| Step { event, id, node };
    vec![
        step(Created, "s", vec![ready()]),
        step(Started, "s", vec![ready()]),
        step(Created, "c", vec![ready(), c(ReportedState::Created)]),
        step(Started, "c", vec![ready(), c(ReportedState::Running)]),
        step(Stopped, "c", vec![ready(), c(ReportedState::Exited)]),
        step(Deleted, "c", vec![ready()]),
        step(Stopped, "s", vec![over]),
        step(Deleted, "s", vec![]),
    ]
}

impl Script {
    /// The event of a step, with the statuses of the node as it is now.
    pub(crate) fn tell(&mut self, event: EventType, id: &str) {
        let sandbox = self.node.iter().find(|r| r.id.as_str() == "s").cloned();
        let containers = self.node.iter().filter(|r| r.id.as_str() != "s");
        let containers: Vec<_> = containers.cloned().collect();
        self.event(event, id, sandbox, &containers);
    }

    /// A step happens, and its event arrives.
    pub(crate) fn live(&mut self, step: &Step) {
        self.node.clone_from(&step.node);
        self.tell(step.event, step.id);
    }

    /// The announcements except ContainerChanged and PodSync, sorted: a missed event may hide that
    /// a container was only created.
    pub(crate) fn transitions(&self) -> Vec<(LifecycleType, String, Option<i32>)> {
        let told = [ContainerStarted, ContainerDied, ContainerRemoved];
        let all = self
            .announced
            .iter()
            .filter(|(what, ..)| told.contains(what));
        let mut all: Vec<_> = all
            .map(|(what, id, _, code)| (*what, id.clone(), *code))
            .collect();
        all.sort();
        all
    }

    /// The state of the container "c" in the cache; `None` if it is not there.
    pub(crate) fn shows(&self, pod: &str) -> Option<ContainerState> {
        self.get(pod).status.container("c").map(|c| c.state)
    }

    /// Whether only an inspection of the pod is requested.
    pub(crate) fn wants_only(&self, pod: &str) -> bool {
        self.inspections_wanted() == 1 && self.inspection_wanted() == Some(&PodUid::from(pod))
    }
}

/// A confirmed stream that has reported the pod "p" with "s" and "c", both running; nothing is
/// owed.
pub(crate) fn running() -> Script {
    let mut t = Script::confirmed();
    life()[..4].iter().for_each(|step| t.live(step));
    assert_eq!(t.inspections_wanted(), 0);
    t
}

/// The pod "p" with "s" and "c", both running, as polling knows it.
pub(crate) fn polled() -> Script {
    Script::polled(vec![ready(), c(ReportedState::Running)])
}
