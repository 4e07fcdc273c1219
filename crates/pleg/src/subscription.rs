//! Subscriptions: any number of consumers, none of which can hold up the writer or lose what
//! matters (invariant 9).

use std::pin::Pin;
use std::sync::{Arc, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use futures::Stream;
use pleg_core::{Inbox, PodLifecycleEvent};

use crate::sync::{Mutex, MutexGuard};

/// How many announcements wait for a subscriber before they are coalesced; few where shuttle
/// explores what happens then.
const PLAIN: usize = if cfg!(shuttle) { 4 } else { 1024 };

/// What a subscription delivers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delivery {
    /// An announced change. The cache shows it already.
    Event(PodLifecycleEvent),
    /// The subscriber lagged so far behind that ends were lost to it: it must take a
    /// [`snapshot`](crate::Pleg::snapshot) and go on from there.
    Lagged {
        /// Of how many ids the end was lost.
        missed: u64,
    },
}

/// A consumer's own view of the announcements: a stream that ends when the generator is gone, for
/// whatever reason, and everything was delivered.
///
/// Whoever keeps up gets every announcement, in order. For whoever lags, what it has not taken is
/// coalesced per id: it may miss a Started or Changed that a later state has overtaken, never a
/// Died, never a Removed, unless it is told [`Delivery::Lagged`].
#[derive(Debug)]
pub struct Subscription {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    slot: Mutex<Slot>,
}

#[derive(Debug)]
struct Slot {
    inbox: Inbox,
    waker: Option<Waker>,
    closed: bool,
}

impl Shared {
    /// Held for one push or pop only; neither side does anything else meanwhile.
    fn lock(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subscription {
    /// The next delivery, or `None` once the generator is gone and all is delivered.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Delivery> {
        std::future::poll_fn(|cx| self.poll_delivery(cx)).await
    }

    /// What is there now, without waiting.
    pub fn try_next(&mut self) -> Option<Delivery> {
        self.shared.lock().take()
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

impl Slot {
    fn take(&mut self) -> Option<Delivery> {
        if let Some(missed) = self.inbox.take_missed() {
            return Some(Delivery::Lagged { missed });
        }
        self.inbox.pop().map(Delivery::Event)
    }
}

/// All subscribers, as whoever announces sees them. When that one is gone, for whatever reason, the
/// subscriptions end: a builder that never spawned, a writer that panicked, a tokio runtime that was
/// dropped.
#[derive(Debug, Default)]
pub(crate) struct Announcer(Arc<Subscribers>);

impl Announcer {
    /// The same subscribers, for those who subscribe.
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
    subscribers: Vec<Weak<Shared>>,
    closed: bool,
}

impl Subscribers {
    pub(crate) fn subscribe(&self) -> Subscription {
        let mut all = self.lock();
        let slot = Slot {
            inbox: Inbox::new(PLAIN),
            waker: None,
            closed: all.closed,
        };
        let shared = Arc::new(Shared {
            slot: Mutex::new(slot),
        });
        all.subscribers.retain(|s| s.strong_count() > 0);
        all.subscribers.push(Arc::downgrade(&shared));
        Subscription { shared }
    }

    /// Hands an announcement to everyone. Never waits for anyone.
    pub(crate) fn announce(&self, event: &PodLifecycleEvent) {
        self.each(|slot| slot.inbox.push(event.clone()));
    }

    /// The generator has shut down.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.each(|slot| slot.closed = true);
    }

    fn each(&self, mut act: impl FnMut(&mut Slot)) {
        for shared in self.lock().subscribers.iter().filter_map(Weak::upgrade) {
            let waker = {
                let mut slot = shared.lock();
                act(&mut slot);
                slot.waker.take()
            };
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
