//! The consumers in a test's [`Script`]: callers that wait, readers of the cache, subscribers.

use std::sync::Arc;

use pleg_core::{
    CallErrorKind, ContainerState, ContainerStatus, Degraded, Health, Instant, PodLifecycleEvent,
    PodStatus, PodUid, PodView, WaiterId,
};

use crate::script::Script;

impl Script {
    /// A worker waits for a view of the pod "p" that is newer than now.
    pub(crate) fn read(&mut self) -> WaiterId {
        self.read_since("p", self.now())
    }

    pub(crate) fn read_since(&mut self, pod: &str, after: Instant) -> WaiterId {
        let waiter = self.new_waiter();
        self.core.wait(self.now(), waiter, &pod.into(), after);
        self.settle();
        waiter
    }

    /// A worker waits for details of the pod "p" that are newer than now.
    pub(crate) fn read_details(&mut self) -> WaiterId {
        self.read_details_since(self.now())
    }

    pub(crate) fn read_details_since(&mut self, after: Instant) -> WaiterId {
        let (waiter, now) = (self.new_waiter(), self.now());
        self.core.wait_for_details(now, waiter, &"p".into(), after);
        self.settle();
        waiter
    }

    /// A caller requests a read of the pod.
    pub(crate) fn request_read(&mut self, pod: &str) -> WaiterId {
        let (waiter, now) = (self.new_waiter(), self.now());
        self.core.read_pod(now, waiter, &pod.into());
        self.settle();
        waiter
    }

    /// A caller requests a read of the pod with all its statuses.
    pub(crate) fn request_reinspect(&mut self, pod: &str) -> WaiterId {
        let (waiter, now) = (self.new_waiter(), self.now());
        self.core.reinspect(now, waiter, &pod.into());
        self.settle();
        waiter
    }

    pub(crate) fn cancel(&mut self, waiter: WaiterId) {
        self.core.cancel(waiter);
        self.core.handle_timeout(self.now());
        self.settle();
    }

    /// A caller requests a relist.
    pub(crate) fn relist(&mut self) {
        let waiter = self.new_waiter();
        self.core.relist_now(self.now(), waiter);
        self.settle();
    }

    pub(crate) fn is_answered(&self, waiter: WaiterId) -> bool {
        self.answers.contains_key(&waiter)
    }

    /// The view that answered the waiter.
    pub(crate) fn view(&self, waiter: WaiterId) -> &PodView {
        let answer = self.answers.get(&waiter).expect("no answer");
        answer.as_ref().expect("an error")
    }

    /// The error that answered the waiter.
    pub(crate) fn error(&self, waiter: WaiterId) -> Option<CallErrorKind> {
        let answer = self.answers.get(&waiter).expect("no answer");
        answer.as_ref().err().map(|error| error.kind)
    }

    /// The state of the id in the answer to the waiter, written as in [`cached`](Self::cached).
    pub(crate) fn answered(&self, waiter: WaiterId, id: &str) -> String {
        find(&self.view(waiter).status, id).unwrap_or_else(|| "none".to_owned())
    }

    /// The state of the id in the cache: "Exited 3", "Running missing" (status_missing), "Running error" or "none".
    pub(crate) fn cached(&self, id: &str) -> String {
        let views = self.cache.values();
        let mut found = views.filter_map(|view| find(&view.status, id));
        found.next().unwrap_or_else(|| "none".to_owned())
    }

    /// The status in the cache; an empty one if the pod is not there.
    pub(crate) fn status(&self, pod: &str) -> Arc<PodStatus> {
        let view = self.cache.get(&PodUid::from(pod));
        let nothing = || Arc::new(PodStatus::nothing(pod.into()));
        view.map_or_else(nothing, |view| view.status.clone())
    }

    pub(crate) fn as_of(&self, pod: &str) -> Option<Instant> {
        self.cache[pod].as_of
    }

    // ------------------------------------------------------------------- announcements and calls

    /// Takes the announcements so far, such as "Died web 3", "Changed web 137 OOMKilled" or "PodSync p".
    pub(crate) fn announced_all(&mut self) -> Vec<String> {
        let all = std::mem::take(&mut self.announced);
        all.iter().map(describe_event).collect()
    }

    /// Takes the announcements so far, without PodSync.
    pub(crate) fn announced(&mut self) -> Vec<String> {
        self.announced.retain(|event| event.subject.is_some());
        self.announced_all()
    }

    /// Takes the announcements so far, which must be exactly `expected`.
    #[track_caller]
    pub(crate) fn expect(&mut self, expected: &[&str]) {
        assert_eq!(self.announced(), expected);
    }

    #[track_caller]
    pub(crate) fn expect_nothing(&mut self) {
        self.expect(&[]);
    }

    /// Takes the calls so far, such as "relist", "list p", "status web job" or "version".
    pub(crate) fn calls(&mut self) -> Vec<String> {
        std::mem::take(&mut self.calls)
    }

    #[track_caller]
    pub(crate) fn expect_calls(&mut self, expected: &[&str]) {
        assert_eq!(self.calls(), expected);
    }

    /// Takes the calls so far. Returns the number of those equal to `call`.
    pub(crate) fn count(&mut self, call: &str) -> usize {
        let calls = self.calls();
        calls.iter().filter(|made| *made == call).count()
    }

    /// The number of calls so far that begin with these words. Does not take them.
    pub(crate) fn calls_of(&self, words: &str) -> usize {
        let calls = self.calls.iter();
        calls.filter(|call| call.starts_with(words)).count()
    }

    /// Lets time pass until this call is made.
    pub(crate) fn await_call(&mut self, call: &str) {
        self.calls.clear();
        for _ in 0..100 {
            if self.count(call) > 0 {
                return;
            }
            self.pass(1_000);
        }
        panic!("{call} is never called");
    }

    // ------------------------------------------------------------------------------------ health

    pub(crate) fn health(&self) -> Health {
        self.core.health(self.now())
    }

    /// The relist period in seconds.
    pub(crate) fn period(&self) -> u64 {
        self.health().period.as_secs()
    }

    /// The codes of the degraded reasons.
    pub(crate) fn degraded(&self) -> Vec<&'static str> {
        let degraded = self.health().degraded(self.now());
        degraded.iter().map(Degraded::as_str).collect()
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.health().ready(self.now()).is_ok()
    }

    /// The numbers of STARTED and of STOPPED events that had not arrived 10 s after a read showed the change.
    pub(crate) fn missed(&self) -> (u64, u64) {
        let missed = self.core.counters().missed;
        (missed.container_started, missed.container_stopped)
    }
}

fn describe_event(event: &PodLifecycleEvent) -> String {
    let Some(subject) = &event.subject else {
        return format!("{} {}", event.event.as_str(), event.uid);
    };
    let what = event.event.as_str().trim_start_matches("Container");
    let mut text = format!("{what} {}", subject.id);
    text.extend(subject.exit_code.map(|code| format!(" {code}")));
    if !subject.reason.is_empty() {
        text = text + " " + &subject.reason;
    }
    text + if event.initial { " initial" } else { "" }
}

/// The state of the id in the status of its pod, written as in [`Script::cached`].
pub(crate) fn find(status: &PodStatus, id: &str) -> Option<String> {
    let mut containers = status.containers.iter();
    let mut sandboxes = status.sandboxes.iter();
    if let Some(container) = containers.find(|container| container.id.as_str() == id) {
        return Some(describe_container(container));
    }
    let sandbox = sandboxes.find(|sandbox| sandbox.id.as_str() == id)?;
    let fails = sandbox.error.is_some();
    let state = sandbox.state.as_str();
    Some(describe(state, sandbox.status_missing, fails))
}

fn describe_container(container: &ContainerStatus) -> String {
    let mut text = container.state.as_str().to_owned();
    if container.state == ContainerState::Exited {
        text.extend(container.details.exit_code.map(|code| format!(" {code}")));
    }
    describe(&text, container.status_missing, container.error.is_some())
}

fn describe(state: &str, is_missing: bool, fails: bool) -> String {
    let missing = if is_missing { " missing" } else { "" };
    let error = if fails { " error" } else { "" };
    format!("{state}{missing}{error}")
}
