//! Requests of consumers: views newer than an instant, relists, and reads of every status.

use crate::output::Output;
use crate::reconciler::Reconciler;
use crate::types::{Instant, PodUid, PodView};
use crate::waiters::{Need, WaiterId};

impl Reconciler {
    /// Waits for a view of the pod whose rows were requested later than `after`.
    pub fn wait(&mut self, now: Instant, waiter: WaiterId, uid: &PodUid, after: Instant) {
        self.ask(now, waiter, uid, after, Need::State);
    }

    /// Waits for a view whose rows and details were requested later than `after`.
    pub fn wait_for_details(
        &mut self,
        now: Instant,
        waiter: WaiterId,
        uid: &PodUid,
        after: Instant,
    ) {
        self.ask(now, waiter, uid, after, Need::Details);
    }

    /// Reads the pod now.
    pub fn read_pod(&mut self, now: Instant, waiter: WaiterId, uid: &PodUid) {
        self.enter(now, waiter, uid, now, Need::State);
    }

    /// Reads the pod and all its statuses now, and announces PodSync even if nothing has changed.
    pub fn reinspect(&mut self, now: Instant, waiter: WaiterId, uid: &PodUid) {
        self.enter(now, waiter, uid, now, Need::Reinspection);
    }

    /// Lists the node now.
    pub fn relist_now(&mut self, now: Instant, waiter: WaiterId) {
        self.waiters.wait_for_relist(waiter, now);
        self.relist.by(now);
        self.pump(now);
    }

    /// Forgets a waiter: nobody waits for its answer any more.
    pub fn cancel(&mut self, waiter: WaiterId) {
        if let Some(uid) = self.waiters.cancel(waiter) {
            self.schedule.touch(&uid);
        }
    }

    /// Answers with the published view if it was requested later than `after`; otherwise waits for such a view.
    fn ask(&mut self, now: Instant, waiter: WaiterId, uid: &PodUid, after: Instant, need: Need) {
        let view = self.newer_view(uid, after);
        let serves = |view: &PodView| need == Need::State || view.details_as_of > Some(after);
        match view.filter(serves).map(Ok) {
            Some(answer) => self.out.push(Output::Answer { waiter, answer }),
            None => self.enter(now, waiter, uid, after, need),
        }
    }

    fn enter(&mut self, now: Instant, waiter: WaiterId, uid: &PodUid, after: Instant, need: Need) {
        self.waiters.wait(uid, waiter, after, need);
        self.schedule.touch(uid);
        self.pump(now);
    }

    /// The published view, if its rows were requested later than `after`.
    fn newer_view(&mut self, uid: &PodUid, after: Instant) -> Option<PodView> {
        if self.pods.get(uid).is_some() {
            let view = self.pods.view(uid);
            return view.filter(|view| view.as_of > Some(after));
        }
        let settled = self.progress.settled_as_of();
        let as_of = settled.filter(|&as_of| as_of > after)?;
        Some(PodView::nothing(uid, Some(as_of)))
    }
}
