//! What consumers ask for and are told.

use pleg_core::{CallError, Instant, LifecycleType, PodView, Reconciler, WaiterId};

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
