//! The assertions, under the names that `docs/invariants.md` and the seeded bugs use.
//!
//! The worlds are single-threaded. Invariants 1 and 8 are also checked with real tasks and sockets in
//! the tests of `pleg` and `pleg-evented`.

use std::fmt;

/// A condition that must always hold.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Assertion {
    /// A stable name that starts with the invariant's number.
    pub name: &'static str,
    /// The number of the invariant in the design.
    pub invariant: u8,
    /// A one-line description.
    pub meaning: &'static str,
}

impl fmt::Debug for Assertion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl fmt::Display for Assertion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

macro_rules! assertions {
    ($($constant:ident = $invariant:literal $name:literal: $meaning:literal;)*) => {
        $(
            #[doc = $meaning]
            pub const $constant: Assertion = Assertion {
                name: $name,
                invariant: $invariant,
                meaning: $meaning,
            };
        )*

        /// All assertions, ordered by invariant.
        pub const ALL: &[Assertion] = &[$($constant),*];
    };
}

assertions! {
    ANSWER_EQUALS_CACHE = 1 "invariant-1-answer-equals-cache": "an answer shows what the cache shows, but for what its own read alone found or missed";

    FORWARD = 2 "invariant-2-forward": "the cache never shows an earlier state than before, unless an event was false";
    OVERRULE_DELAY = 2 "invariant-2-overrule-delay": "a state is overruled no sooner than 100 ms after it was published, a removal no sooner than 10 s";
    UNKNOWN = 2 "invariant-2-unknown": "UNKNOWN is published only if an inspection said so, or nothing else is known of the id";
    STATE_REACHED = 2 "invariant-2-state-reached": "no state is published that the id has not reached, unless an event was false";
    NO_CONTRADICTION = 2 "invariant-2-no-contradiction": "nothing is contradicted or overruled without false reports";
    CACHE_CONVERGES = 2 "invariant-2-cache-converges": "after the trouble the cache equals the oracle within one relist (12 s more after a false removal)";

    AS_OF_A_READ = 3 "invariant-3-as-of-a-read": "as-of is the start of a complete read";
    NEVER_OLDER = 3 "invariant-3-never-older": "the as-of of a pod does not go back while it exists";
    FRESH = 3 "invariant-3-fresh": "a pod as of t shows every id in the state that it had at t, or a later one";
    NEWER_THAN_ASKED = 3 "invariant-3-newer-than-asked": "the waiter gets a view whose read began after the instant that it asked for";
    DETAILS_AS_OF = 3 "invariant-3-details-as-of": "the details' as-of is the start of a complete inspection";
    DETAILS_FRESH = 3 "invariant-3-details-fresh": "details as of t are those that the id had at t, or later ones";
    DETAILS_CONVERGE = 3 "invariant-3-details-converge": "without events every id's details are read within (number of ids) times 15 s";

    ONLY_READS_ANSWER = 4 "invariant-4-only-reads-answer": "only a read answers the waiter";
    ANSWERED_ONCE = 4 "invariant-4-answered-once": "only waiters are answered, each once";
    ALL_ANSWERED = 4 "invariant-4-all-answered": "every waiter is answered in time";
    ANSWER_SHOWS_READ = 4 "invariant-4-answer-shows-read": "an answer shows all that existed when its read began";

    NO_UNPROVEN_ABSENCE = 5 "invariant-5-no-unproven-absence": "a pod as of t lacks nothing that existed at t and still exists";
    EXISTING_NOT_REMOVED = 5 "invariant-5-existing-not-removed": "no removal of an existing id is announced, unless an event was false";

    REMOVED_STAYS = 6 "invariant-6-removed-stays": "a removed id stays removed, unless an event was false";
    FIRST_SEEN_REMOVED = 6 "invariant-6-first-seen-removed-is-silent": "an id first learned as removed is not announced";
    NOTHING_INVENTED = 6 "invariant-6-nothing-invented": "only ids that existed are published or announced";
    TOMBSTONES_BOUNDED = 6 "invariant-6-tombstones-bounded": "there are no more tombstones than are allowed when no read is in flight";
    FORGOTTEN = 6 "invariant-6-forgotten": "all records of removed ids expire";

    TRUE_EXIT_CODE = 7 "invariant-7-true-exit-code": "an exit code is true, and only of an exited container";
    NOTHING_ERASED = 7 "invariant-7-nothing-erased": "a detail that was published is not lost because a later answer left it out";
    OWN_POD = 7 "invariant-7-own-pod": "an id is shown in its own pod, and in no other";
    DETAILS_COMPLETE = 7 "invariant-7-details-complete": "at quiescence exit codes, sandboxes, names and the active sandbox are complete";

    NOTHING_SKIPPED = 8 "invariant-8-nothing-skipped": "what waits between reader and writer is joined: nothing is lost within its bound";

    CACHE_FIRST = 9 "invariant-9-cache-first": "the cache shows a state before it is announced";
    ONCE = 9 "invariant-9-once": "each transition of an (id, incarnation) is announced at most once";
    IN_ORDER = 9 "invariant-9-in-order": "Started, Died, Removed come in this order";
    STARTED_WAS_SEEN = 9 "invariant-9-started-was-seen": "Started is announced only after an observation showed the id running";
    ALL_ANNOUNCED = 9 "invariant-9-all-announced": "at quiescence every Died and Removed of published ids was announced";
    INCARNATION = 9 "invariant-9-incarnation": "a new incarnation begins only after a false event";
    INBOX = 9 "invariant-9-inbox": "a subscriber that keeps up gets all; a lagging one gets every Died and Removed, or Lagged";
    INBOX_BOUNDED = 9 "invariant-9-inbox-bounded": "what waits for a lagging subscriber is bounded by what exists and the last ends";
    TERMINAL_RECORDS = 9 "invariant-9-terminal-records": "terminal records are true, and at most three per name beside those of existing ids";

    NO_FALSE_MISS = 10 "invariant-10-no-false-miss": "nothing counts as missed where every event arrives";
    MISS_COUNTED = 10 "invariant-10-miss-counted": "an event that never comes is counted as missed";
    LIST_IN_TIME = 10 "invariant-10-list-in-time": "a full list is never further away than the longest period";
    PERIOD_SHORTENED = 10 "invariant-10-period-shortened": "after a lost stream, a failed list or a miss the next list comes within a second";
    PERIOD_GROWS = 10 "invariant-10-period-grows": "while nothing is found, lists grow rare and inspections stop";
    LIST_RATE_LIMITED = 10 "invariant-10-list-rate-limited": "lists do not follow one another";

    SLOTS = 11 "invariant-11-slots": "no more inspections hold a slot than there are slots, and no more are overdue than may be";
    ONE_PER_POD = 11 "invariant-11-one-per-pod": "at most one inspection of a pod is in flight";
    BACKOFF = 11 "invariant-11-backoff": "a pod that fails is retried with a backoff";
    NO_INSPECTION_LOOP = 11 "invariant-11-no-inspection-loop": "inspections do not follow one another";
    OWN_ERROR = 11 "invariant-11-own-error": "an error is the answer only of a read that was asked for after the question";
    HEALTHY_SERVED = 11 "invariant-11-healthy-served": "hung pods delay no answer about another pod by more than 5 s";
    RECOVERED = 11 "invariant-11-recovered": "at quiescence nothing is in flight, overdue or failing";
    NO_LIVELOCK = 11 "invariant-11-no-livelock": "the reconciler always has something left to do, and never only that";

    READY = 12 "invariant-12-ready": "ready means: a complete list began recently enough";
    STALLED_IS_NOT_READY = 12 "invariant-12-stalled-is-not-ready": "a stalled writer is not ready";
    DEGRADED = 12 "invariant-12-degraded": "degraded reasons appear within 3 s of their first sign";
    NO_FALSE_DEGRADED = 12 "invariant-12-no-false-degraded": "no degraded reason is false";
}

/// Assertions for worlds with pod workers that act on answers.
pub mod workers {
    use super::Assertion;

    assertions! {
        DOUBLE_START = 3 "invariant-3-double-start": "no worker starts a container or sandbox beside one that runs, because of an answer";
        NOTHING_LEFT_BEHIND = 3 "invariant-3-nothing-left-behind": "the worker of a deleted pod ends only when nothing of the pod exists";

        WORKER_ANSWERED = 4 "invariant-4-worker-answered": "a worker's wait is answered or failed by its deadline";

        LOSSY_POLLED = 10 "invariant-10-lossy-polled": "a stream that keeps losing events is polled";
        DEATH_NOTICED = 10 "invariant-10-death-noticed": "no container or sandbox stays dead for long while its worker believes that it runs";
        WORKERS_CONVERGE = 10 "invariant-10-workers-converge": "at rest every container runs whose policy wants it to, and nothing of a deleted pod exists";
    }
}

/// The assertion with that name.
pub fn named(name: &str) -> Option<Assertion> {
    let all = ALL.iter().chain(workers::ALL);
    all.copied().find(|a| a.name == name)
}

/// A violated assertion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub assertion: Assertion,
    /// The actual state.
    pub what: String,
    /// The pod concerned, if it is one pod.
    pub pod: Option<usize>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.assertion, self.what)
    }
}

impl std::error::Error for Violation {}

/// The result of a check.
pub type CheckResult<T = ()> = Result<T, Violation>;

impl Assertion {
    /// A violation of this assertion.
    pub fn violated(self, what: impl Into<String>) -> Violation {
        let (assertion, what) = (self, what.into());
        Violation {
            assertion,
            what,
            pod: None,
        }
    }

    /// Checks a condition; `what` describes the violation.
    ///
    /// # Errors
    /// The condition is false.
    pub fn holds<S: Into<String>>(self, holds: bool, what: impl FnOnce() -> S) -> CheckResult {
        if holds {
            Ok(())
        } else {
            Err(self.violated(what()))
        }
    }
}

impl Violation {
    /// Sets the pod concerned.
    #[must_use]
    pub const fn in_pod(mut self, pod: Option<usize>) -> Self {
        self.pod = pod;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::ALL;

    #[test]
    fn names_are_unique_and_start_with_their_invariant() {
        let all: Vec<_> = ALL.iter().chain(super::workers::ALL).collect();
        for (n, a) in all.iter().enumerate() {
            assert!(
                a.name.starts_with(&format!("invariant-{}-", a.invariant)),
                "{a}"
            );
            assert!(all[..n].iter().all(|b| b.name != a.name), "{a} twice");
        }
        for invariant in 1..=12 {
            assert!(
                ALL.iter().any(|a| a.invariant == invariant),
                "invariant {invariant}"
            );
        }
    }
}
