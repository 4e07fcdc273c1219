//! The assertions, each under the name that `docs/invariants.md` and the planted defects know it by.
//!
//! Laws 1 and 8 are also asserted where there are tasks and sockets, in the tests of `pleg` and
//! `pleg-evented`: the worlds have one thread.

use std::fmt;

/// One thing that must never be otherwise.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Assertion {
    /// Stable; it begins with the law.
    pub name: &'static str,
    /// The law of the design.
    pub law: u8,
    /// In one line.
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
    ($($constant:ident = $law:literal $name:literal: $meaning:literal;)*) => {
        $(
            #[doc = $meaning]
            pub const $constant: Assertion = Assertion {
                name: $name,
                law: $law,
                meaning: $meaning,
            };
        )*

        /// All of them, by law.
        pub const ALL: &[Assertion] = &[$($constant),*];
    };
}

assertions! {
    ONE_TRUTH = 1 "law1-one-truth": "an answer shows what the cache shows, but for what its own read alone found or missed";

    FORWARD = 2 "law2-forward": "the cache never shows an id in an earlier state than before, unless an event lied";
    PATIENCE = 2 "law2-patience": "a state is overruled no sooner than 100 ms after it was published, a removal no sooner than 10 s";
    UNKNOWN = 2 "law2-unknown": "UNKNOWN is published only if an inspection said so, or nothing else is known of the id";
    TRUE = 2 "law2-true": "no state is published that the id has not reached, unless an event lied";
    NO_QUARREL = 2 "law2-no-quarrel": "nothing is contradicted or overruled where nobody lied";
    SETTLED = 2 "law2-settled": "after the trouble the cache equals the truth within one audit (12 s more where a removal was wrongly believed)";

    EVIDENCE = 3 "law3-evidence": "as-of is the begin of a complete read";
    NEVER_OLDER = 3 "law3-never-older": "the as-of of a pod does not go back while it exists";
    FRESH = 3 "law3-fresh": "a pod as of t shows every id in the state that it had at t, or a later one";
    ANSWER_FRESH = 3 "law3-answer": "whoever waits gets a view whose read began after the instant that it asked for";
    DETAILS_AS_OF = 3 "law3-details-as-of": "the details' as-of is the begin of a complete inspection";

    ANSWERED_BY_READ = 4 "law4-by-a-read": "only a read answers whoever waits";
    ANSWERED_ONCE = 4 "law4-once": "nobody is answered who does not wait";
    ANSWERED = 4 "law4-answered": "nobody is kept waiting";
    EFFECT_SHOWN = 4 "law4-shows": "an answer shows all that existed when its read began";

    LACKS = 5 "law5-lacks": "a pod as of t lacks nothing that existed at t and still exists";
    ALIVE = 5 "law5-removed-alive": "no removal is announced of what exists, unless an event lied";

    GRAVE = 6 "law6-grave": "what is removed does not come back, unless an event lied";
    SILENT = 6 "law6-silent": "of an id that was first learned as removed nothing is said";
    INVENTED = 6 "law6-invented": "nothing is published or announced that never existed";
    TOMBSTONES = 6 "law6-bounded": "there are no more tombstones than are allowed when no read is under way";
    FORGOTTEN = 6 "law6-forgotten": "of what was removed long ago nothing is kept";

    EXIT_CODE = 7 "law7-exit-code": "an exit code is the true one, and only of what has ended";
    KEPT_DETAILS = 7 "law7-kept": "a detail that was published is not lost because a later answer left it out";
    HOME = 7 "law7-home": "an id is shown in its own pod, and in no other";
    COMPLETE_DETAILS = 7 "law7-details": "when it is quiet, exit codes, sandboxes, names and the active sandbox are all there";

    DRAINED = 8 "law8-drained": "what waits between reader and writer is joined: nothing is lost within its bound";

    CACHE_FIRST = 9 "law9-cache-first": "when it is announced, the cache shows it";
    ONCE = 9 "law9-once": "each transition of an (id, incarnation) is announced at most once";
    ORDER = 9 "law9-order": "Started, Died, Removed come in this order";
    RAN = 9 "law9-ran": "Started is announced only of what some observation showed running";
    ALL_SAID = 9 "law9-all-said": "when it is quiet, every Died and Removed of what was published was announced";
    REBORN = 9 "law9-reborn": "a new incarnation begins only where an event lied";
    INBOX = 9 "law9-inbox": "one who keeps up gets all; one who lags gets every Died and Removed, or is told";
    INBOX_BOUNDED = 9 "law9-inbox-bounded": "what waits for one who lags is bounded by what exists and the last ends";
    ENDS = 9 "law9-ends": "terminal records are true, and at most three per name";

    NO_FALSE_MISS = 10 "law10-no-false-miss": "nothing counts as missed where every event arrives";
    MISS_COUNTED = 10 "law10-miss-counted": "an event that never comes is counted as missed";
    LISTED = 10 "law10-listed": "a full list is never further away than the longest period";
    SHORTENED = 10 "law10-shortened": "after a lost stream, a failed list or a miss the next list comes within a second";
    GROWS = 10 "law10-grows": "while nothing is found, lists grow rare and inspections stop";
    NOT_TOO_MANY_LISTS = 10 "law10-no-list-storm": "lists do not follow one another";

    SLOTS = 11 "law11-slots": "no more inspections hold a slot than there are slots, and no more are overdue than may be";
    ONE_PER_POD = 11 "law11-one-per-pod": "at most one inspection of a pod is in flight";
    BACKOFF = 11 "law11-backoff": "a pod that fails is retried with a backoff";
    NO_CHAIN = 11 "law11-no-chain": "inspections do not follow one another";
    OWN_ERROR = 11 "law11-own-error": "an error is the answer only of a read that was asked for after the question";
    HEALTHY_SERVED = 11 "law11-healthy-served": "hung pods keep nobody from an answer about another pod for more than 5 s";
    ALIVE_AND_WELL = 11 "law11-well-again": "when it is quiet nothing is under way, overdue or failing";
    LIVE = 11 "law11-live": "the machine always has something left to do, and never only that";

    READY = 12 "law12-ready": "ready means: a complete list began recently enough";
    DUE = 12 "law12-due": "a writer that does nothing does not look ready";
    DEGRADED = 12 "law12-degraded": "what is wrong is told within 3 s of its first sign";
    WELL = 12 "law12-well": "nothing is told to be wrong that is not";
}

/// What must hold in worlds with a kubelet that acts on what it is told.
pub mod acting {
    use super::Assertion;

    assertions! {
        DOUBLE_START = 3 "law3-double-start": "no worker starts a container or sandbox beside one that runs, because of an answer";
        LEFT_BEHIND = 3 "law3-left-behind": "the worker of a deleted pod ends only when nothing of the pod exists";

        WORKER_ANSWERED = 4 "law4-worker-answered": "a worker's wait is answered or failed by its deadline";

        LOSSY_POLLED = 10 "law10-lossy-polled": "a stream that keeps losing events is polled";
        NOTICED = 10 "law10-noticed": "no container or sandbox stays dead for long while its worker believes that it runs";
        CONVERGES = 10 "law10-converges": "at rest every container runs whose policy wants it to, and nothing of a deleted pod exists";
    }
}

/// The assertion of that name.
pub fn named(name: &str) -> Option<Assertion> {
    let all = ALL.iter().chain(acting::ALL);
    all.copied().find(|a| a.name == name)
}

/// An assertion that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    pub assertion: Assertion,
    /// What is so instead.
    pub what: String,
    /// The pod that it is about, if it is about one.
    pub pod: Option<usize>,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.assertion, self.what)
    }
}

impl std::error::Error for Broken {}

/// Whether everything is as it must be.
pub type Lawful<T = ()> = Result<T, Broken>;

impl Assertion {
    /// It does not hold.
    pub fn broken(self, what: impl Into<String>) -> Broken {
        let (assertion, what) = (self, what.into());
        Broken {
            assertion,
            what,
            pod: None,
        }
    }

    /// It must hold; `what` says what is so otherwise.
    ///
    /// # Errors
    /// It does not.
    pub fn holds<S: Into<String>>(self, holds: bool, what: impl FnOnce() -> S) -> Lawful {
        if holds {
            Ok(())
        } else {
            Err(self.broken(what()))
        }
    }
}

impl Broken {
    /// It is about that pod.
    #[must_use]
    pub const fn of(mut self, pod: Option<usize>) -> Self {
        self.pod = pod;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::ALL;

    #[test]
    fn names_are_unique_and_begin_with_their_law() {
        let all: Vec<_> = ALL.iter().chain(super::acting::ALL).collect();
        for (n, a) in all.iter().enumerate() {
            assert!(a.name.starts_with(&format!("law{}-", a.law)), "{a}");
            assert!(all[..n].iter().all(|b| b.name != a.name), "{a} twice");
        }
        for law in 1..=12 {
            assert!(ALL.iter().any(|a| a.law == law), "law {law}");
        }
    }
}
