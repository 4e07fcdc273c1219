//! The record of one id: its position, the evidence for it, its details, and what was announced.

mod merged_details;
mod published;
mod repeated;

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use crate::state::announced::Announced;
use crate::state::effect::Effect;
use crate::state::effect::Transition;
use crate::state::evidence::{Call, Evidence, Verdict};
use crate::state::order::Position;
use crate::state::reports::Reports;
use crate::types::error::CallError;
use crate::types::ids::Kind;
use crate::types::lifecycle::{LifecycleType, Source};
use crate::types::report::{Details, Identity, ReportedState};
use crate::types::status::Text;
use crate::types::time::{Instant, WallTime};

/// Everything that is held for one id. The record of a removed id is its tombstone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Record {
    pub(crate) identity: Identity,
    pub(crate) details: Details,
    /// Its position; `None` if it was only ever seen as UNKNOWN.
    position: Option<Position>,
    evidence: Evidence,
    /// When it was first learned of: absence from a list is evidence only for ids learned before
    /// the list began (invariant 5).
    pub(crate) learned: Instant,
    /// Whether it may have existed when the generator started: the first complete list showed it, or before that an
    /// event about another id did.
    pub(crate) at_start: bool,
    /// Its position at the start, if known.
    initial: Option<Position>,
    /// The incarnation: how often reads have overruled the record.
    incarnation: u32,
    /// Which source showed each position of this incarnation first.
    first_source: [Option<Source>; 4],
    announced: Announced,
    /// Which events about it have arrived.
    pub(crate) reports: Reports,
    /// Whether announcements wait until its own status was read or has failed.
    held: bool,
    /// Whether it was recorded from an event and not confirmed yet (invariant 6).
    pub(crate) provisional: bool,
    /// Whether two reads listed it while its status call returned NotFound.
    pub(crate) unsettled: bool,
    /// When its status was last requested.
    pub(crate) attempted: Option<Instant>,
    /// The begin of the last read that returned its status, unless the details are disputed.
    pub(crate) inspected: Option<Instant>,
    /// Whether an inspection and an event have different details, or an inspection returned UNKNOWN
    /// and something else a state since: its status is owed.
    pub(crate) disputed: bool,
    /// The error of its last status call, if it failed.
    pub(crate) error: Option<Arc<CallError>>,
    /// Whether its label names another pod than its sandbox's.
    pub(crate) mislabelled: bool,
    /// Whether no answer about it was received yet, so whether it has a label is not known.
    pub(crate) label_unknown: bool,
    unknown: Option<Box<UnknownState>>,
    /// When the last event with details arrived.
    event_details: Option<Instant>,
    /// The begin of the last inspection that returned details.
    read_details: Option<Instant>,
    /// Data of removed ids, or of ids that were removed once.
    removal: Option<Box<Removal>>,
}

/// Data of a removal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Removal {
    /// The runtime's timestamp of the event that reported it.
    removed_at: Option<WallTime>,
    /// The begin of the last complete list that still showed the id.
    pub(crate) listed: Option<Instant>,
    /// When the tombstone was inserted, in drained time.
    pub(crate) inserted: Duration,
}

/// UNKNOWN is stored beside the position and never moves it (invariant 2).
///
/// It is set by the first report of UNKNOWN. If that is an event or a list row, the pod is marked
/// dirty for it once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct UnknownState {
    /// The begin of the last inspection that returned UNKNOWN. From the first one on, it is
    /// published.
    began: Option<Instant>,
}

impl Record {
    /// A record of an id that is new.
    pub(crate) fn new(identity: Identity, now: Instant) -> Self {
        let details = Details::none(identity.kind);
        Self {
            identity,
            details,
            position: None,
            evidence: Evidence::new(now, None),
            learned: now,
            at_start: false,
            initial: None,
            incarnation: 0,
            first_source: [None; 4],
            announced: Announced::default(),
            reports: Reports::default(),
            held: false,
            provisional: false,
            unsettled: false,
            attempted: None,
            inspected: None,
            disputed: false,
            error: None,
            mislabelled: false,
            label_unknown: false,
            unknown: None,
            event_details: None,
            read_details: None,
            removal: None,
        }
    }

    /// The tombstone of an id that was first learned as removed: nothing is ever announced.
    pub(crate) fn tombstone(identity: Identity, now: Instant) -> Self {
        let mut record = Self::new(identity, now);
        record.position = Some(Position::Removed);
        record.announced = Announced::SILENT;
        record
    }

    /// The position.
    pub(crate) const fn position(&self) -> Option<Position> {
        self.position
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.position == Some(Position::Removed)
    }

    pub(crate) const fn kind(&self) -> Kind {
        self.identity.kind
    }

    pub(crate) const fn incarnation(&self) -> u32 {
        self.incarnation
    }

    /// Whether a read contradicts the record, and that is not decided yet.
    pub(crate) fn is_contradicted(&self) -> bool {
        self.evidence.is_contradicted()
    }

    /// The position is that at the start.
    pub(crate) const fn set_initial(&mut self) {
        self.initial = self.position;
    }

    /// Whether it had already exited at the start.
    pub(crate) fn had_ended_at_start(&self) -> bool {
        self.initial == Some(Position::Exited)
    }

    /// Whether the announced state was so at the start.
    pub(crate) fn is_initial(&self, what: LifecycleType) -> bool {
        match what {
            LifecycleType::ContainerStarted => self.initial == Some(Position::Running),
            LifecycleType::ContainerDied => self.had_ended_at_start(),
            LifecycleType::ContainerChanged => {
                self.initial.is_some() && self.initial == self.position
            }
            LifecycleType::ContainerRemoved | LifecycleType::PodSync => false,
        }
    }

    /// The source that showed that position first.
    pub(crate) fn source(&self, position: Position) -> Option<Source> {
        self.first_source[position as usize]
    }

    /// Since when the present position is recorded.
    pub(crate) const fn recorded_since(&self) -> Instant {
        self.evidence.since()
    }

    /// The join: the later position stands. `evidence` is the begin of the read, or the arrival of
    /// the event, that shows it.
    pub(crate) fn join(
        &mut self,
        to: Position,
        source: Source,
        evidence: Instant,
        now: Instant,
    ) -> Effect {
        self.first_source[to as usize].get_or_insert(source);
        let mut effect = Effect::default();
        match self.position.cmp(&Some(to)) {
            Ordering::Less => {
                self.position = Some(to);
                self.evidence = Evidence::new(now, call_of(source));
                effect.transition = Transition::Advanced(to);
                effect.details = self.clear_unknown(evidence, call_of(source)).into();
                if to == Position::Removed {
                    self.unknown = None;
                    self.drop_details();
                }
            }
            Ordering::Equal => effect.transition = Transition::Same,
            Ordering::Greater => {}
        }
        effect
    }

    /// Applies a read: a join if its position is later, support if it is equal, a contradiction if
    /// it is earlier.
    pub(crate) fn read(
        &mut self,
        to: Position,
        call: Call,
        began: Instant,
        now: Instant,
    ) -> Effect {
        let Some(recorded) = self.position.filter(|&recorded| recorded > to) else {
            let mut effect = self.join(to, source_of(call), began, now);
            if effect.transition == Transition::Same {
                self.reports.shown(self.position);
                self.evidence.confirm(call);
                effect.details = self.clear_unknown(began, Some(call)).into();
            }
            return effect;
        };
        let transition = match self.evidence.contradict(call, began, to, recorded) {
            Verdict::Stale => return Effect::default(),
            Verdict::Stands { ask_again } => Transition::Contradicted { ask_again },
            Verdict::Overruled => Transition::Overruled,
        };
        Effect {
            transition,
            details: self.clear_unknown(began, Some(call)).into(),
            ..Effect::default()
        }
    }

    /// A read that began after the removal was recorded does not show the id.
    pub(crate) fn confirm_absence(&mut self, call: Call) {
        if self.is_removed() {
            self.unsettled = false;
            self.evidence.confirm(call);
        }
    }

    /// The record is overruled: a new incarnation starts at the position that the reads show. The
    /// reads also determine the kind: for a DELETED without a status it was a guess.
    pub(crate) fn overrule(&mut self, kind: Kind, to: Position, call: Call, now: Instant) {
        if self.identity.kind != kind {
            self.identity.kind = kind;
            self.details = Details::none(kind);
        }
        self.incarnation = self.incarnation.saturating_add(1);
        self.initial = None;
        self.position = Some(to);
        self.evidence = Evidence::new(now, Some(call));
        self.first_source = [None; 4];
        self.first_source[to as usize] = Some(source_of(call));
        self.announced = Announced::reborn(to);
        self.reports.overruled();
        self.learned = now;
        self.provisional = false;
        self.unsettled = false;
        if let Some(removal) = &mut self.removal {
            removal.removed_at = None;
        }
        self.drop_end();
    }

    /// What is known of an end does not belong to a container that has not ended.
    pub(crate) fn drop_end(&mut self) {
        if self.position.is_some_and(|at| at < Position::Exited)
            && let Details::Container(c) = &mut self.details
        {
            let c = Arc::make_mut(c);
            c.exit_code = None;
            c.finished_at = None;
            c.reason = Text::default();
            c.message = Text::default();
        }
    }

    /// An observation shows a position. One that is older than the inspection that returned UNKNOWN
    /// does not clear UNKNOWN: otherwise the pod would be as of that inspection with a state from
    /// before it. An event may be older, whenever it arrives, so only an end that it reports clears
    /// UNKNOWN. Unless a status call shows the position, the status is still owed: the one that
    /// returned UNKNOWN may have had no details. Returns whether a published UNKNOWN was cleared.
    fn clear_unknown(&mut self, evidence: Instant, call: Option<Call>) -> bool {
        let proves = call.is_some() || self.position >= Some(Position::Exited);
        let newer = |overlay: &mut Box<UnknownState>| {
            overlay.began.is_none_or(|began| proves && evidence > began)
        };
        let cleared = self.unknown.take_if(newer);
        let was_published = cleared.is_some_and(|overlay| overlay.began.is_some());
        self.disputed |= was_published && call != Some(Call::Inspection);
        was_published
    }

    /// UNKNOWN from an event or a list row. Returns whether it is the first since it was last
    /// cleared.
    pub(crate) fn report_unknown(&mut self) -> bool {
        let first = self.unknown.is_none();
        self.unknown.get_or_insert_default();
        first
    }

    /// Whether it is published as UNKNOWN.
    pub(crate) fn is_unknown(&self) -> bool {
        let overlay = self.unknown.as_ref();
        overlay.is_some_and(|overlay| overlay.began.is_some())
    }

    /// UNKNOWN from an inspection.
    pub(crate) fn set_unknown(&mut self, began: Instant) -> Effect {
        let overlay = self.unknown.get_or_insert_default();
        let first = overlay.began.is_none();
        overlay.began = overlay.began.max(Some(began));
        let transition = if first {
            Transition::BecameUnknown
        } else {
            Transition::None
        };
        Effect {
            transition,
            ..Effect::default()
        }
    }

    /// Returns what is to be announced now, in legal order, and marks it as announced.
    pub(crate) fn announce(&mut self) -> impl Iterator<Item = LifecycleType> + use<> {
        let position = self.position.filter(|_| !self.is_held());
        self.announced.next(position, self.was_seen_running())
    }

    /// Its announcements, if any are due, wait until its own status was read.
    pub(crate) fn hold(&mut self) {
        let mut announced = self.announced;
        let mut due = announced.next(self.position, self.was_seen_running());
        self.held |= due.next().is_some();
    }

    /// Whether some observation showed it running.
    fn was_seen_running(&self) -> bool {
        self.first_source[Position::Running as usize].is_some()
    }

    /// Whether its announcements wait.
    pub(crate) const fn is_held(&self) -> bool {
        self.held
    }

    /// Releases its announcements. Returns whether they were waiting.
    pub(crate) const fn release(&mut self) -> bool {
        std::mem::replace(&mut self.held, false)
    }

    /// Whether a status, read then and showing that position, is the one that an announcement waits
    /// for: it shows the position to be announced, or was read after that position was known.
    pub(crate) fn is_awaited(&self, began: Instant, shown: Option<Position>) -> bool {
        self.held && (shown == self.position || began > self.recorded_since())
    }

    /// Whether its status must be read even by a read that finds it unchanged (invariant 3).
    pub(crate) fn owes_status(&self) -> bool {
        let read_since = self.read_details > Some(self.recorded_since());
        let code_unknown = self.kind() == Kind::Container
            && self.position == Some(Position::Exited)
            && self.exit_code().is_none()
            && !read_since;
        let never_told = self.read_details.is_none() && self.event_details.is_none();
        self.position.is_none()
            || never_told
            || self.is_unidentified()
            || self.unknown.is_some()
            || self.held
            || self.provisional
            || self.disputed
            || code_unknown
    }

    /// Whether no answer has told which container of its pod it is. A container without a name does not block the
    /// start of another one.
    pub(crate) const fn is_unidentified(&self) -> bool {
        self.read_details.is_none() && !self.identity.tells_apart()
    }

    /// Notes the label in an answer. Returns whether a list of its pod may not show it.
    pub(crate) fn note_label(&mut self, said: &Identity) -> bool {
        let is_first = std::mem::take(&mut self.label_unknown);
        self.identity.unlabelled |= is_first && said.unlabelled;
        let is_of_another = said.pod.is_some() && said.pod != self.identity.pod;
        self.mislabelled |= said.kind == Kind::Container && is_of_another;
        self.is_unlabelled()
    }

    /// Whether a list of its pod, which selects by label, may not show it.
    pub(crate) const fn is_unlabelled(&self) -> bool {
        self.identity.unlabelled || self.mislabelled
    }

    /// The recorded state, as an answer would show it.
    pub(crate) fn shown(&self) -> ReportedState {
        match self.position {
            _ if self.unknown.is_some() => ReportedState::Unknown,
            None => ReportedState::Unknown,
            Some(Position::Created) => ReportedState::Created,
            Some(Position::Running) => ReportedState::Running,
            Some(Position::Exited | Position::Removed) => ReportedState::Exited,
        }
    }

    /// Whether its Died was announced.
    pub(crate) const fn has_died(&self) -> bool {
        self.announced.has_died()
    }

    /// The runtime's timestamp of the event that reported the removal.
    pub(crate) fn removed_at(&mut self, stamp: Option<WallTime>) {
        if stamp.is_some() {
            let removal = self.removal_mut();
            removal.removed_at = removal.removed_at.or(stamp);
        }
    }

    /// The data of its removal.
    pub(crate) fn removal(&self) -> Removal {
        self.removal.as_deref().copied().unwrap_or_default()
    }

    pub(crate) fn removal_mut(&mut self) -> &mut Removal {
        self.removal.get_or_insert_default()
    }
}

pub(crate) const fn source_of(call: Call) -> Source {
    match call {
        Call::List => Source::Relist,
        Call::Inspection => Source::Inspection,
    }
}

const fn call_of(source: Source) -> Option<Call> {
    match source {
        Source::Stream => None,
        Source::Relist => Some(Call::List),
        Source::Inspection => Some(Call::Inspection),
    }
}

#[cfg(test)]
mod tests;
