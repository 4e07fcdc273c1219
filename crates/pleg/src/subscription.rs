//! Subscriptions of any number of consumers. No consumer can block the driver, or lose the last Died or Removed of an
//! id without getting `Lagged`.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, Weak};
use std::task::{Context, Poll, Waker, ready};

use futures::Stream;
use pleg_core::{PodLifecycleEvent, PodUid};

use crate::inbox::Inbox;
use crate::sync::{Mutex, MutexGuard};

/// The number of announcements that wait for a subscriber before they are coalesced. Small under shuttle, so that its
/// schedules reach the coalescing.
const PLAIN: usize = if cfg!(shuttle) { 4 } else { 1024 };

/// An item of a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delivery {
    /// A lifecycle event. The cache already shows the change.
    Event(PodLifecycleEvent),
    /// Everything that existed at the start was announced, marked as [`initial`](PodLifecycleEvent::initial). A pod
    /// whose first read failed is announced later, also marked as initial. Each subscriber gets `Synced` once: when
    /// everything was announced or, if it subscribes later, as its first delivery.
    Synced,
    /// The subscriber lagged so far that the generator dropped announcements without replacement. It must take a
    /// [`snapshot`](crate::Pleg::snapshot) and continue from there.
    Lagged {
        /// The number of dropped announcements.
        missed: u64,
    },
}

/// One consumer's stream of announcements. It ends when the generator is gone, for any reason, and
/// everything was delivered.
///
/// A consumer that keeps up gets every announcement, in order. For a consumer that lags, undelivered announcements are
/// coalesced per id: it may miss an announcement that precedes a later one of the same id, but never the last Died or
/// Removed of an id without [`Delivery::Lagged`].
#[derive(Debug)]
#[must_use = "a subscription that is dropped delivers nothing"]
pub struct Subscription {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    slot: Mutex<Slot>,
}

#[derive(Debug)]
struct Slot {
    /// Announcements that precede [`Delivery::Synced`] and that the subscriber has not taken yet.
    before_synced: Option<Inbox>,
    inbox: Inbox,
    waker: Option<Waker>,
    closed: bool,
}

impl Shared {
    /// Locks the inboxes. The driver pushes or the subscriber pops one item per lock, so neither blocks the other long.
    fn lock(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subscription {
    /// The next delivery, or `None` once the generator is gone and everything was delivered.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Delivery> {
        std::future::poll_fn(|cx| self.poll_delivery(cx)).await
    }

    /// The next delivery if one is available now. Does not wait.
    pub fn try_next(&mut self) -> Option<Delivery> {
        self.shared.lock().take()
    }

    /// The lifecycle events alone.
    pub const fn events(self) -> Events {
        Events(self)
    }

    fn poll_delivery(&mut self, cx: &mut Context<'_>) -> Poll<Option<Delivery>> {
        let mut slot = self.shared.lock();
        if let Some(delivery) = slot.take() {
            return Poll::Ready(Some(delivery));
        }
        if slot.closed {
            return Poll::Ready(None);
        }
        slot.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Stream for Subscription {
    type Item = Delivery;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Delivery>> {
        self.poll_delivery(cx)
    }
}

/// The lifecycle events of a [`Subscription`], for a loop that ends only when the generator is gone. Made by
/// [`Subscription::events`].
///
/// `Events` hides [`Delivery::Synced`] (the field [`initial`](PodLifecycleEvent::initial) marks events from the start)
/// and [`Delivery::Lagged`]: a caller that lags by more than 100,000 ids does not learn that it must take a snapshot.
#[derive(Debug)]
#[must_use = "a subscription that is dropped delivers nothing"]
pub struct Events(Subscription);

impl Events {
    /// The next event, or `None` once the generator is gone and everything was delivered.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<PodLifecycleEvent> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }
}

impl Stream for Events {
    type Item = PodLifecycleEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match ready!(self.0.poll_delivery(cx)) {
                Some(Delivery::Event(event)) => return Poll::Ready(Some(event)),
                Some(Delivery::Synced | Delivery::Lagged { .. }) => {}
                None => return Poll::Ready(None),
            }
        }
    }
}

impl Slot {
    fn new(synced: bool, closed: bool) -> Self {
        Self {
            before_synced: synced.then(|| Inbox::new(0)),
            inbox: Inbox::new(PLAIN),
            waker: None,
            closed,
        }
    }

    fn synced(&mut self) {
        let before = std::mem::replace(&mut self.inbox, Inbox::new(PLAIN));
        self.before_synced = Some(before);
    }

    fn take(&mut self) -> Option<Delivery> {
        if let Some(before) = &mut self.before_synced {
            let delivery = take_from(before);
            if delivery.is_some() {
                return delivery;
            }
            self.before_synced = None;
            return Some(Delivery::Synced);
        }
        take_from(&mut self.inbox)
    }
}

fn take_from(inbox: &mut Inbox) -> Option<Delivery> {
    if let Some(missed) = inbox.take_missed() {
        return Some(Delivery::Lagged { missed });
    }
    inbox.pop().map(Delivery::Event)
}

/// The driver's handle to all subscribers. Dropping the handle ends all subscriptions, so they end even if a builder
/// never spawned a generator, the driver panicked, or the tokio runtime was dropped.
#[derive(Debug, Default)]
pub(crate) struct Announcer(Arc<Subscribers>);

impl Announcer {
    /// All subscribers, shared with the handles that add subscriptions.
    pub(crate) fn subscribers(&self) -> Arc<Subscribers> {
        self.0.clone()
    }
}

impl std::ops::Deref for Announcer {
    type Target = Subscribers;

    fn deref(&self) -> &Subscribers {
        &self.0
    }
}

impl Drop for Announcer {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// All subscribers.
#[derive(Debug, Default)]
pub(crate) struct Subscribers {
    all: Mutex<All>,
}

#[derive(Debug, Default)]
struct All {
    of_all_pods: Vec<Weak<Shared>>,
    of_one_pod: BTreeMap<PodUid, Vec<Weak<Shared>>>,
    /// The number of entries in `of_one_pod` at which entries of ended subscriptions are removed.
    prune_at: usize,
    synced: bool,
    closed: bool,
}

impl Subscribers {
    /// A subscription of all pods.
    pub(crate) fn subscribe(&self) -> Subscription {
        let mut all = self.lock();
        let shared = all.shared();
        add(&mut all.of_all_pods, &shared);
        Subscription { shared }
    }

    /// A subscription of one pod.
    pub(crate) fn subscribe_pod(&self, uid: &PodUid) -> Subscription {
        let mut all = self.lock();
        let shared = all.shared();
        if all.of_one_pod.len() >= all.prune_at {
            let is_used = |one: &Weak<Shared>| one.strong_count() > 0;
            all.of_one_pod
                .retain(|_, of_pod| of_pod.iter().any(is_used));
            // Keeps the cost per subscription constant.
            all.prune_at = 64.max(all.of_one_pod.len() * 2);
        }
        add(all.of_one_pod.entry(uid.clone()).or_default(), &shared);
        Subscription { shared }
    }

    /// Adds an announcement to the inboxes of its subscribers. Never waits for a consumer.
    pub(crate) fn announce(&self, event: &PodLifecycleEvent) {
        let all = self.lock();
        let of_pod = all.of_one_pod.get(&event.uid);
        let subscribers = all.of_all_pods.iter().chain(of_pod.into_iter().flatten());
        let wakers = each(subscribers, |slot| slot.inbox.push(event.clone()));
        drop(all);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Delivers `Synced`: everything that existed at the start was announced.
    pub(crate) fn synced(&self) {
        let mut all = self.lock();
        all.synced = true;
        let wakers = each(all.subscribers(), Slot::synced);
        drop(all);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Ends all subscriptions: the generator has ended, or was never spawned.
    pub(crate) fn close(&self) {
        let mut all = self.lock();
        all.closed = true;
        let wakers = each(all.subscribers(), |slot| slot.closed = true);
        drop(all);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl All {
    fn shared(&self) -> Arc<Shared> {
        Arc::new(Shared {
            slot: Mutex::new(Slot::new(self.synced && !self.closed, self.closed)),
        })
    }

    fn subscribers(&self) -> impl Iterator<Item = &Weak<Shared>> {
        self.of_all_pods
            .iter()
            .chain(self.of_one_pod.values().flatten())
    }
}

fn add(subscribers: &mut Vec<Weak<Shared>>, shared: &Arc<Shared>) {
    subscribers.retain(|s| s.strong_count() > 0);
    subscribers.push(Arc::downgrade(shared));
}

/// Applies `act` to the slot (inboxes and waker) of each subscriber. Returns the wakers of the subscribers' tasks. The
/// caller must unlock `all` before it wakes them: a waker may run its task at once, and the task may subscribe.
fn each<'a>(
    subscribers: impl Iterator<Item = &'a Weak<Shared>>,
    mut act: impl FnMut(&mut Slot),
) -> Vec<Waker> {
    let wakers = subscribers.filter_map(Weak::upgrade).map(|shared| {
        let mut slot = shared.lock();
        act(&mut slot);
        slot.waker.take()
    });
    wakers.flatten().collect()
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use pleg_core::{Instant, Kind, LifecycleType, Subject};

    use super::*;

    #[test]
    fn lagged_is_delivered_before_announcements_newer_than_dropped_ones() {
        let subscribers = Subscribers::default();
        let mut subscription = subscribers.subscribe();
        for n in 0..250_000 {
            let subject = Subject::new(n.to_string(), Kind::Container, "app");
            let (died, at) = (LifecycleType::ContainerDied, Instant::from_nanos(n));
            subscribers.announce(&PodLifecycleEvent::new(died, "p", Some(subject), at));
        }
        let Some(Delivery::Lagged { missed }) = subscription.try_next() else {
            panic!("there is no `Lagged`");
        };
        let left = std::iter::from_fn(|| subscription.try_next()).count() as u64;
        assert_eq!(missed + left, 250_000);
    }
}
