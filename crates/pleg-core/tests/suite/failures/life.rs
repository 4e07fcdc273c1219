//! The life of a pod "q" with the sandbox "q/s" and the container "q/web", which exits with 3; and what more these
//! tests do with a script.

use std::sync::Arc;

use pleg_core::{
    EventType, Health, Mode, PodStatus, PodUid, Report, Resources, Settings, WaiterId,
};

use crate::node::{created, exited, running, with};
use crate::script::{Event, Script};
use EventType::{Created, Deleted, Started, Stopped};

/// One change of the node, and its event.
pub(crate) struct Step {
    pub(crate) event: EventType,
    pub(crate) id: &'static str,
    /// The status of the id after the change. `None`: it was removed.
    pub(crate) status: Option<Report>,
}

pub(crate) fn life() -> [Step; 8] {
    let (s, web) = ("q/s", "q/web");
    let step = |event, id, status| Step { event, id, status };
    [
        step(Created, s, Some(running(s))),
        step(Started, s, Some(running(s))),
        step(Created, web, Some(created(web))),
        step(Started, web, Some(running(web))),
        step(Stopped, web, Some(exited(web, 3))),
        step(Deleted, web, None),
        step(Stopped, s, Some(exited(s, None))),
        step(Deleted, s, None),
    ]
}

impl Step {
    /// The node changes.
    pub(crate) fn happen(&self, t: &mut Script) {
        match &self.status {
            Some(status) => t.node.set(status.clone()),
            None => t.node.remove(self.id),
        }
    }

    /// The event arrives, with the status that the id had after this step.
    pub(crate) fn report(&self, t: &mut Script) {
        t.send(match &self.status {
            Some(status) => Event::of(self.event, status.clone()),
            None => Event::nil(self.event, self.id),
        });
    }
}

/// The second attempt of the pod "p": the sandbox "s1" and its container "web1".
pub(crate) fn second() -> [Report; 2] {
    let mut web = running("web1");
    web.identity.sandbox = Some("s1".into());
    [running("s1"), web]
}

/// The running container "web" with a memory limit.
pub(crate) fn limited(limit: i64) -> Report {
    let mut resources = Resources::default();
    resources.memory_limit = limit;
    with(running("web"), |details| {
        details.resources = Some(Arc::new(resources));
    })
}

impl Script {
    /// A generator without events, which has not listed its node yet.
    pub(crate) fn polling(change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings::default();
        settings.mode = Mode::Polling;
        change(&mut settings);
        Self::with_settings(settings)
    }

    /// A generator without events that has just listed the pod "p" with these running containers.
    pub(crate) fn polled(containers: &[&str]) -> Self {
        let mut t = Self::polling(|_| ());
        t.node.start("s");
        containers.iter().for_each(|id| t.node.start(id));
        t.settle();
        t.forget();
        t
    }

    /// A container or sandbox starts, and an event reports it.
    pub(crate) fn starts(&mut self, id: &str) {
        self.node.start(id);
        self.event(Started, id);
    }

    /// A container or sandbox ends, and an event reports it.
    pub(crate) fn exits(&mut self, id: &str, code: impl Into<Option<i32>>) {
        self.node.exit(id, code);
        self.event(Stopped, id);
    }

    /// The status in the cache; an empty one if the pod is not there.
    pub(crate) fn status(&self, pod: &str) -> Arc<PodStatus> {
        let view = self.cache.get(&PodUid::from(pod));
        let nothing = || Arc::new(PodStatus::nothing(pod.into()));
        view.map_or_else(nothing, |view| view.status.clone())
    }

    /// The ids of all containers of the pod "p" in the cache.
    pub(crate) fn containers(&self) -> Vec<String> {
        let status = self.status("p");
        let ids = status.containers.iter().map(|c| c.id.to_string());
        ids.collect()
    }

    pub(crate) fn health(&self) -> Health {
        self.core.health(self.now())
    }

    pub(crate) fn request_read(&mut self, pod: &str) -> WaiterId {
        let (waiter, now) = (self.new_waiter(), self.now());
        self.core.relist(now, waiter, &pod.into());
        self.settle();
        waiter
    }

    pub(crate) fn request_reinspect(&mut self, pod: &str) -> WaiterId {
        let (waiter, now) = (self.new_waiter(), self.now());
        self.core.reinspect(now, waiter, &pod.into());
        self.settle();
        waiter
    }

    /// What was announced since the last look, with "PodSync p".
    pub(crate) fn announced_all(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        for event in std::mem::take(&mut self.announced) {
            if event.subject.is_none() {
                all.push(format!("PodSync {}", event.uid));
            }
            self.announced.push(event);
            all.extend(self.announced());
        }
        all
    }

    /// What was announced since the last look, without Changed: whether a container is seen as created depends on the
    /// moment of a read.
    pub(crate) fn transitions(&mut self) -> Vec<String> {
        let mut all = self.announced();
        all.retain(|event| !event.starts_with("Changed"));
        all
    }
}
