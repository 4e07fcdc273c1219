//! A small node, for tests of views, and of `pleg top` and other code that shows views.

use std::sync::Arc;
use std::time::Duration;

use pleg::core::{
    ContainerDetails, ContainerState, ContainerStatus, Counters, Health, Instant, PodStatus,
    PodView, Reconciler, SandboxDetails, SandboxState, SandboxStatus, Settings, StreamState,
    WallTime,
};

use crate::meter::{Calls, LIST_SANDBOXES};
use crate::picture::Picture;
use crate::picture::facts::Facts;
use crate::picture::generator::Generator;
use crate::picture::runtime::Problem;
use crate::record::{Pod, Record};
use crate::view::{Inputs, Model, Query, View};

/// A node, 100 s after the start.
pub(crate) struct Sample {
    pub(crate) now: Instant,
    pub(crate) wall: WallTime,
    pub(crate) health: Health,
    pub(crate) facts: Facts,
    pub(crate) problems: Vec<Problem>,
    pub(crate) pods: Vec<PodView>,
    pub(crate) model: Model,
    pub(crate) calls: Calls,
    pub(crate) simulated: bool,
}

/// The instant `seconds` after the start.
pub(crate) fn at(seconds: u64) -> Instant {
    Instant::from_origin(Duration::from_secs(seconds))
}

/// The same instant as [`at`] by the wall clock: the start is on 2023-11-14 at 22:13:20 UTC.
pub(crate) fn wall(seconds: u64) -> WallTime {
    WallTime::from_nanos(1_700_000_000_000_000_000).after(Duration::from_secs(seconds))
}

impl Sample {
    pub(crate) fn empty() -> Self {
        let (now, begin) = (at(100), at(0));
        let reconciler = Reconciler::new(Settings::default(), begin);
        let mut health = reconciler.expect("valid settings").health(now);
        (health.last_list, health.list_in_flight) = (Some(at(97)), None);
        health.due = at(1_000);
        health.stream = StreamState::Subscribed {
            since: at(10),
            confirmed: true,
            proven: true,
        };
        let mut calls = Calls::new(begin);
        let (list, took) = ((LIST_SANDBOXES, String::new()), Duration::from_millis(12));
        calls.ended(&list, now.after(took), took, Some(true));
        Self {
            now,
            wall: wall(100),
            health,
            facts: Facts::default(),
            problems: Vec::new(),
            pods: Vec::new(),
            model: Model::new(begin, wall(0)),
            calls,
            simulated: false,
        }
    }

    /// Three pods: one runs, one has a failed container that was started again, and one has a failed container.
    pub(crate) fn new() -> Self {
        let mut sample = Self::empty();
        sample.add("shop", "cart-7f9", &["app", "proxy"]);
        sample.add("shop", "web-1", &["app"]);
        sample.add("system", "dns", &["dns"]);
        sample.change("web-1", |status| {
            let mut containers = status.containers.to_vec();
            containers[0].attempt = 1;
            containers.push(exited("web-1-app-0", "app", 3, wall(60)));
            status.containers = containers.into();
        });
        sample.change("dns", |status| {
            status.containers = [exited("dns-dns-0", "dns", 137, wall(95))].into();
        });
        sample
    }

    pub(crate) fn add(&mut self, namespace: &str, name: &str, containers: &[&str]) {
        let mut status = PodStatus::nothing(format!("uid-{name}").into());
        (status.namespace, status.name) = (namespace.into(), name.into());
        let mut sandbox = SandboxStatus::new(format!("{name}-sandbox"), SandboxState::Ready);
        sandbox.created_at = Some(wall(40));
        let mut details = SandboxDetails::default();
        let app = name.split('-').next().unwrap_or(name);
        details.labels = [("app", app)].into();
        sandbox.details = Arc::new(details);
        status.sandboxes = [sandbox].into();
        let running = |container: &&str| {
            let id = format!("{name}-{container}-0");
            let mut running = ContainerStatus::new(id, *container, ContainerState::Running);
            let mut details = ContainerDetails::default();
            details.started_at = Some(wall(70));
            details.image = "example.com/image:1".into();
            running.details = Arc::new(details);
            running
        };
        status.containers = containers.iter().map(running).collect();
        let (read, inspected) = (Some(at(97)), Some(at(90)));
        let pod = PodView::new(Arc::new(status), read, inspected);
        self.pods.push(pod);
    }

    pub(crate) fn change(&mut self, name: &str, change: impl FnOnce(&mut PodStatus)) {
        let mut pods = self.pods.iter_mut();
        let pod = pods.find(|pod| &*pod.status.name == name);
        change(Arc::make_mut(&mut pod.expect("it exists").status));
    }

    /// Adds a problem: a status call about the pod has hung for 14 s.
    pub(crate) fn hang(&mut self, name: &str) {
        self.problems.push(Problem {
            pod: format!("uid-{name}"),
            of: pod("shop", name),
            kind: "hung".to_owned(),
            operation: "ContainerStatus".to_owned(),
            seconds: 14.0,
            text: "ContainerStatus does not answer (container app 0123456789ab)".to_owned(),
            ..Problem::default()
        });
    }

    pub(crate) fn died(&mut self, namespace: &str, name: &str, container: &str, code: i32) {
        let record = died(self.wall, namespace, name, container, code);
        self.model.record(self.now, self.wall, &record);
    }

    pub(crate) fn picture(&self) -> Picture {
        let health = &self.health;
        let mut counters = Counters::default();
        counters.events.started = 1;
        let mut generator = Generator::default();
        generator.look(health, &counters, self.now);
        let ready = health.ready(self.now);
        let (health, problems) = (health.clone(), self.problems.clone());
        let facts = self.facts.clone();
        Picture::of(self.now, health, ready, &generator, problems, facts)
    }

    pub(crate) fn view(&self, query: &Query) -> View {
        let picture = self.picture();
        let inputs = Inputs {
            picture: &picture,
            wall: self.wall,
            pods: &self.pods,
            ends: &[],
            calls: &self.calls,
        };
        View {
            node: "node-7".to_owned(),
            runtime: "unix:///run/containerd/containerd.sock".to_owned(),
            simulated: self.simulated,
            ..self.model.view(&inputs, query)
        }
    }
}

fn pod(namespace: &str, name: &str) -> Pod {
    Pod::new(&format!("uid-{name}").into(), namespace, name)
}

/// The record of a container that exited with the code `code`, from the event stream.
pub(crate) fn died(at: WallTime, namespace: &str, pod: &str, container: &str, code: i32) -> Record {
    Record {
        pod: Some(self::pod(namespace, pod)),
        id: Some(format!("{pod}-{container}-0")),
        kind: Some("container".to_owned()),
        name: Some(container.to_owned()),
        source: Some("stream".to_owned()),
        exit_code: Some(code),
        reason: Some("Error".to_owned()),
        latency_ms: Some(1.5),
        ..Record::new("ContainerDied", at)
    }
}

fn exited(id: &str, name: &str, code: i32, at: WallTime) -> ContainerStatus {
    let mut container = ContainerStatus::new(id, name, ContainerState::Exited);
    let mut details = ContainerDetails::default();
    (details.exit_code, details.finished_at) = (Some(code), Some(at));
    details.reason = "Error".into();
    container.details = Arc::new(details);
    container
}
