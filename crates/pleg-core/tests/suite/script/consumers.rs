//! What consumers ask for and are told.

use pleg_core::{
    CallError, ContainerState, Degraded, Health, Instant, Kind, LifecycleType, NotReady,
    PodLifecycleEvent, PodView, Reconciler, SandboxState, WaiterId,
};

use super::{Script, nothing};

impl Script {
    /// `relist_now`.
    pub(crate) fn relist(&mut self) {
        self.ask(Reconciler::relist_now);
    }

    pub(crate) fn wait(&mut self, pod: &str, after: Instant) -> WaiterId {
        self.ask(|machine, now, waiter| machine.wait(now, waiter, &pod.into(), after))
    }

    pub(crate) fn wait_for_details(&mut self, pod: &str, after: Instant) -> WaiterId {
        self.ask(|machine, now, waiter| {
            machine.wait_for_details(now, waiter, &pod.into(), after);
        })
    }

    /// `request_relist`.
    pub(crate) fn request_relist(&mut self, pod: &str) -> WaiterId {
        self.ask(|machine, now, waiter| machine.relist(now, waiter, &pod.into()))
    }

    /// `request_reinspect`.
    pub(crate) fn request_reinspect(&mut self, pod: &str) -> WaiterId {
        self.ask(|machine, now, waiter| machine.reinspect(now, waiter, &pod.into()))
    }

    fn ask(&mut self, ask: impl FnOnce(&mut Reconciler, Instant, WaiterId)) -> WaiterId {
        self.waiters += 1;
        let waiter = WaiterId::new(self.waiters);
        let now = self.now();
        ask(&mut self.machine, now, waiter);
        self.drain();
        waiter
    }

    /// The answer to that waiter, if there is one.
    pub(crate) fn answer_of(&self, waiter: WaiterId) -> Option<&Result<PodView, CallError>> {
        let answer = self.answers.iter().find(|(w, _)| *w == waiter);
        answer.map(|(_, answer)| answer)
    }

    /// The view in the answer to that waiter.
    pub(crate) fn view_for(&self, waiter: WaiterId) -> PodView {
        let answer = self.answer_of(waiter).expect("it is answered");
        answer.clone().expect("a view")
    }

    /// The view of the pod in the cache.
    pub(crate) fn get(&self, pod: &str) -> PodView {
        let nothing = || PodView::new(nothing(&pod.into()), self.swept_as_of, None);
        self.cache.get(pod).cloned().unwrap_or_else(nothing)
    }

    pub(crate) fn health(&self) -> Health {
        self.machine.health(self.now())
    }

    pub(crate) fn ready(&self) -> Result<(), NotReady> {
        self.health().ready(self.now())
    }

    pub(crate) fn degraded(&self) -> Vec<&'static str> {
        let reasons = self.health().degraded(self.now());
        reasons.iter().map(Degraded::as_str).collect()
    }

    /// Invariant 9: the cache shows an announcement already, and each incarnation starts, dies and
    /// is removed in this order and at most once.
    pub(super) fn check_announcement(&mut self, event: &PodLifecycleEvent) {
        use LifecycleType::{ContainerDied, ContainerRemoved, ContainerStarted};
        let Some(subject) = &event.subject else {
            return;
        };
        let status = self.get(event.uid.as_str()).status;
        let (mut sandboxes, mut containers) = (status.sandboxes.iter(), status.containers.iter());
        let runs = match subject.kind {
            Kind::Sandbox => sandboxes
                .find(|s| s.id == subject.id)
                .map(|s| s.state == SandboxState::Ready),
            Kind::Container => containers
                .find(|c| c.id == subject.id)
                .map(|c| c.state == ContainerState::Running),
        };
        match event.event {
            ContainerDied => assert_ne!(runs, Some(true), "{event:?} before the cache"),
            ContainerRemoved => assert_eq!(runs, None, "{event:?} before the cache"),
            ContainerStarted => {}
            _ => return,
        }
        let incarnation = (subject.id.clone(), subject.incarnation);
        let before = self.said_last.insert(incarnation, event.event);
        assert!(before < Some(event.event), "{event:?} after {before:?}");
    }

    /// The announcements since the last call, as `p1 Died c1` and `p1 PodSync`. They are sorted,
    /// because the order of pods is undefined.
    pub(crate) fn take_announced(&mut self) -> Vec<String> {
        let mut announced: Vec<_> = self.events.drain(..).map(|e| in_short(&e)).collect();
        announced.sort();
        announced
    }

    pub(crate) fn said(&self, what: LifecycleType, id: &str) -> usize {
        self.announced
            .iter()
            .filter(|(w, i, ..)| (*w, i.as_str()) == (what, id))
            .count()
    }

    pub(crate) fn missed(&self) -> u64 {
        self.machine.counters().missed.total()
    }

    /// The last published view.
    pub(crate) fn view(&self) -> &PodView {
        self.published.last().expect("something is published")
    }
}

/// `p1 Died c1`, `p1 PodSync`.
pub(crate) fn in_short(event: &PodLifecycleEvent) -> String {
    let what = event.event.as_str().trim_start_matches("Container");
    let uid = &event.uid;
    match &event.subject {
        Some(subject) => format!("{uid} {what} {}", subject.id),
        None => format!("{uid} {what}"),
    }
}
