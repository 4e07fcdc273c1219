//! Which calls support a recorded state, and when reads overrule it (invariant 2).
//!
//! Runtimes and events can be wrong. A state is overruled only when every kind of call that has
//! shown it shows an earlier state twice, far enough apart; a state known only from events, by
//! either kind of call.

use std::time::Duration;

use crate::state::order::Position;
use crate::types::time::Instant;

/// The two kinds of calls that show states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Call {
    List,
    Inspection,
}

impl Call {
    const BOTH: [Self; 2] = [Self::List, Self::Inspection];
}

/// The result of a contradiction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The read began before the state was recorded, so it is no contradiction.
    Stale,
    /// The later state stands. This kind of call is to be repeated at that instant, unless it has
    /// already shown an earlier state twice.
    Stands { ask_again: Option<Instant> },
    /// The recorded state is overruled by the state that the reads show.
    Overruled,
}

/// The evidence for the recorded position of one id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Evidence {
    since: Instant,
    /// Which kinds of calls have shown it.
    shown: [bool; 2],
    /// What each kind of call has shown against it. For nearly every id, nothing.
    contradictions: Option<Box<[Option<Contradiction>; 2]>>,
}

/// A kind of call has shown an earlier position, and has not shown the recorded one since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Contradiction {
    /// The begin of the first such read.
    first: Instant,
    /// It has shown an earlier position twice, far enough apart.
    twice: bool,
    /// The begin of the newest such read, and the position that it showed.
    newest: (Instant, Position),
}

impl Evidence {
    /// Recorded at `now`; from an event if `call` is `None`.
    pub(crate) fn new(now: Instant, from: Option<Call>) -> Self {
        Self {
            since: now,
            shown: Call::BOTH.map(|call| from == Some(call)),
            contradictions: None,
        }
    }

    /// Since when the position is recorded.
    pub(crate) const fn since(&self) -> Instant {
        self.since
    }

    /// A read shows the recorded position.
    pub(crate) fn confirm(&mut self, call: Call) {
        self.shown[call as usize] = true;
        if let Some(contradictions) = &mut self.contradictions {
            contradictions[call as usize] = None;
            if contradictions.iter().all(Option::is_none) {
                self.contradictions = None;
            }
        }
    }

    /// Whether the last read of some kind of call showed an earlier position.
    pub(crate) fn is_contradicted(&self) -> bool {
        self.contradictions.is_some()
    }

    /// A read that began at `began` shows `to`, a position before `recorded`.
    pub(crate) fn contradict(
        &mut self,
        call: Call,
        began: Instant,
        to: Position,
        recorded: Position,
    ) -> Verdict {
        if began <= self.since {
            return Verdict::Stale;
        }
        let gap = Self::gap(recorded);
        let contradiction = &mut self.contradictions.get_or_insert_default()[call as usize];
        let contradiction = contradiction.get_or_insert(Contradiction {
            first: began,
            twice: false,
            newest: (began, to),
        });
        contradiction.newest = contradiction.newest.max((began, to));
        let first = contradiction.first;
        // The second read is scheduled at first + gap. A waiter's read counts as well, if it began
        // no earlier.
        if began >= first.after(gap) {
            contradiction.twice = true;
        }
        let ask_again = (!contradiction.twice).then(|| first.after(gap));
        if self.is_overruled() && !self.is_outdated(to) {
            Verdict::Overruled
        } else {
            Verdict::Stands { ask_again }
        }
    }

    /// Whether the newest read that contradicts the record shows another position. Then the next read
    /// decides.
    fn is_outdated(&self, to: Position) -> bool {
        let contradictions = self.contradictions.as_deref().into_iter().flatten();
        let newest = contradictions.flatten().map(|c| c.newest).max();
        newest.is_some_and(|(_, shown)| shown != to)
    }

    fn is_overruled(&self) -> bool {
        let twice = |call: Call| {
            let contradictions = self.contradictions.as_ref();
            contradictions.is_some_and(|contradictions| {
                contradictions[call as usize].is_some_and(|d| d.twice)
            })
        };
        let known_from_reads = self.shown.contains(&true);
        if known_from_reads {
            let upholds = |call: Call| self.shown[call as usize] && !twice(call);
            !Call::BOTH.into_iter().any(upholds)
        } else {
            Call::BOTH.into_iter().any(twice)
        }
    }

    /// The minimum time between two contradictions. containerd ≥ 2 still lists a sandbox for a
    /// while after its DELETED.
    const fn gap(recorded: Position) -> Duration {
        match recorded {
            Position::Removed => Duration::from_secs(10),
            _ => Duration::from_millis(100),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNNING: Position = Position::Running;

    fn at(ms: u64) -> Instant {
        Instant::from_origin(Duration::from_millis(ms))
    }

    #[test]
    fn a_state_from_an_event_is_overruled_by_either_call_twice() {
        let mut evidence = Evidence::new(at(1000), None);
        assert_eq!(
            evidence.contradict(Call::List, at(1000), RUNNING, Position::Exited),
            Verdict::Stale
        );
        assert_eq!(
            evidence.contradict(Call::List, at(1001), RUNNING, Position::Exited),
            Verdict::Stands {
                ask_again: Some(at(1101))
            }
        );
        // One contradiction of each kind of call is not two of one kind.
        assert!(matches!(
            evidence.contradict(Call::Inspection, at(1200), RUNNING, Position::Exited),
            Verdict::Stands { .. }
        ));
        assert_eq!(
            evidence.contradict(Call::List, at(1101), RUNNING, Position::Exited),
            Verdict::Overruled
        );
    }

    #[test]
    fn every_call_that_has_shown_it_must_deny_it() {
        let mut evidence = Evidence::new(at(0), Some(Call::List));
        evidence.confirm(Call::Inspection);
        evidence.contradict(Call::List, at(1), RUNNING, Position::Exited);
        assert!(matches!(
            evidence.contradict(Call::List, at(200), RUNNING, Position::Exited),
            Verdict::Stands { .. }
        ));
        evidence.contradict(Call::Inspection, at(201), RUNNING, Position::Exited);
        assert_eq!(
            evidence.contradict(Call::Inspection, at(301), RUNNING, Position::Exited),
            Verdict::Overruled
        );
    }

    #[test]
    fn a_confirmation_in_between_starts_over() {
        let mut evidence = Evidence::new(at(0), None);
        evidence.contradict(Call::List, at(1), RUNNING, Position::Exited);
        evidence.confirm(Call::List);
        assert!(!evidence.is_contradicted());
        assert!(matches!(
            evidence.contradict(Call::List, at(500), RUNNING, Position::Exited),
            Verdict::Stands { ask_again } if ask_again == Some(at(600))
        ));
    }

    #[test]
    fn a_removal_takes_ten_seconds_to_overrule() {
        let mut evidence = Evidence::new(at(0), None);
        evidence.contradict(Call::List, at(1), RUNNING, Position::Removed);
        assert!(matches!(
            evidence.contradict(Call::List, at(10_000), RUNNING, Position::Removed),
            Verdict::Stands { .. }
        ));
        assert_eq!(
            evidence.contradict(Call::List, at(10_001), RUNNING, Position::Removed),
            Verdict::Overruled
        );
    }

    #[test]
    fn a_read_does_not_overrule_what_a_later_one_showed_otherwise() {
        let mut evidence = Evidence::new(at(0), None);
        let mut contradict =
            |call, began, to| evidence.contradict(call, at(began), to, Position::Exited);
        let stands = |verdict| matches!(verdict, Verdict::Stands { .. });
        assert!(stands(contradict(Call::List, 1, Position::Created)));
        assert!(stands(contradict(Call::Inspection, 300, Position::Running)));
        assert!(
            stands(contradict(Call::List, 200, Position::Created)),
            "it began before"
        );
        assert_eq!(
            contradict(Call::Inspection, 350, RUNNING),
            Verdict::Overruled
        );
    }

    #[test]
    fn an_earlier_read_overrules_if_the_later_one_showed_the_same() {
        let mut evidence = Evidence::new(at(0), None);
        let mut contradict =
            |call, began| evidence.contradict(call, at(began), RUNNING, Position::Exited);
        contradict(Call::List, 1);
        contradict(Call::Inspection, 300);
        assert_eq!(contradict(Call::List, 200), Verdict::Overruled);
    }
}
