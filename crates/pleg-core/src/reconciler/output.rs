//! What the reconciler requests of its driver.

use std::sync::Arc;
use std::time::Duration;

use crate::schedule::cause::Causes;
use crate::schedule::waiters::WaiterId;
use crate::state::terminal::TerminalRecord;
use crate::types::error::CallError;
use crate::types::ids::{Id, Kind, PodUid};
use crate::types::lifecycle::PodLifecycleEvent;
use crate::types::reads::{HeldId, KnownIds, Ticket};
use crate::types::status::PodView;
use crate::types::time::Instant;

/// What the reconciler requests of the driver.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Output {
    /// Write this into the cache.
    Publish {
        /// The pod.
        uid: PodUid,
        /// Its status and freshness.
        view: PodView,
    },
    /// Nothing of the pod exists any more. The cache keeps an empty status, as fresh as the pod
    /// was, until a list has confirmed it.
    Remove {
        /// The pod.
        uid: PodUid,
    },
    /// A complete list began: pods that are not in the cache did not exist at that instant.
    ListApplied {
        /// The begin of the list.
        as_of: Instant,
        /// Withdrawn pods whose end the list has confirmed: remove them from the cache.
        gone: Vec<PodUid>,
    },
    /// A list showed these pods unchanged: they are fresh as of its begin.
    Refresh {
        /// The begin of the list.
        as_of: Instant,
        /// The pods.
        pods: Confirmed,
    },
    /// The terminal records of this pod, oldest first. If there are none, remove those that are kept.
    Terminals {
        /// The pod.
        uid: PodUid,
        /// Its terminal records.
        records: Arc<[TerminalRecord]>,
    },
    /// Announce this to every subscriber. The cache shows it already.
    Announce(PodLifecycleEvent),
    /// Every pod of the first complete list was inspected or failed once, and was announced. Sent
    /// once.
    Synced,
    /// Answer a waiter.
    Answer {
        /// The waiter.
        waiter: WaiterId,
        /// Its answer.
        answer: Result<PodView, CallError>,
    },
    /// Answer a waiter for a full list.
    Listed {
        /// The waiter.
        waiter: WaiterId,
        /// The result of the list.
        outcome: Result<(), CallError>,
    },
    /// Read a full list.
    List {
        /// To be returned with the answer.
        ticket: Ticket,
        /// How long the whole list may take.
        deadline: Duration,
        /// The ids of which a row can only report a state. The [rows](crate::Rows) are built for
        /// them.
        known: KnownIds,
    },
    /// Inspect one pod.
    Inspect {
        /// To be returned with the answer.
        ticket: Ticket,
        /// The pod.
        uid: PodUid,
        /// The ids that are held for it.
        held: Vec<HeldId>,
        /// The causes.
        causes: Causes,
        /// How long the inspection may take as a whole.
        deadline: Duration,
    },
    /// Read one status.
    Read {
        /// To be returned with the answer.
        ticket: Ticket,
        /// The id.
        id: Id,
        /// Sandbox or container.
        kind: Kind,
        /// How long the call may take.
        deadline: Duration,
    },
    /// Call `Version`, to check whether the runtime answers.
    Version {
        /// To be returned with the answer.
        ticket: Ticket,
        /// How long the call may take.
        deadline: Duration,
    },
    /// End the stream and subscribe again: it reports no event while reads show changes.
    Resubscribe,
    /// Cancel this inspection.
    Cancel {
        /// The ticket of its request.
        ticket: Ticket,
    },
}

/// Pods that a list showed unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Confirmed {
    /// Every pod that the cache holds. None of them is withdrawn.
    All,
    /// These.
    These(Vec<PodUid>),
}

impl Confirmed {
    /// The names of these pods, if the cache holds the pods `cached`.
    pub fn among(&self, cached: impl IntoIterator<Item = PodUid>) -> Vec<PodUid> {
        match self {
            Self::All => cached.into_iter().collect(),
            Self::These(pods) => pods.clone(),
        }
    }
}
