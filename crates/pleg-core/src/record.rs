//! One id: how far it came, on what grounds, what is known of it and what was said of it.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use crate::belief::{Belief, Call, Verdict};
use crate::details::{self, Weight};
use crate::ids::{Id, Kind, PodUid};
use crate::lifecycle::{LifecycleType, Said, Source};
use crate::observed::{Details, Fingerprint, Identity, Report, Shown, Ticket, Unchanged};
use crate::order::Position;
use crate::status::{
    ContainerDetails, ContainerState, ContainerStatus, KnownState, SandboxState, SandboxStatus,
    Text,
};
use crate::time::{Instant, WallTime};

/// All records. A tree has room to spare in its nodes: what is large is kept outside of them.
pub(crate) type Records = BTreeMap<Id, Box<Record>>;

/// Everything that is held of one id. A removed one stays as its own tombstone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Record {
    pub(crate) identity: Identity,
    pub(crate) details: Details,
    /// How far it came; nothing if it was only ever seen as UNKNOWN.
    position: Option<Position>,
    belief: Belief,
    /// When it was first learned of: absence in a list is evidence only for what was learned
    /// before the list began (law 5).
    pub(crate) learned: Instant,
    /// How often reads have overruled what was believed of it.
    incarnation: u32,
    /// Who first showed each position of this incarnation.
    seen: [Option<Source>; 4],
    said: Said,
    /// A state learned from a list row: it is announced after the pod's first inspection that
    /// was asked for after this request number.
    pub(crate) held_since: Option<u64>,
    /// Believed from an event and not settled yet (law 6).
    pub(crate) provisional: bool,
    pub(crate) unknown: Overlay,
    /// When the last event that spoke of details arrived.
    event_details: Option<Instant>,
    /// When the last inspection that spoke of details began.
    read_details: Option<Instant>,
    /// When the runtime stamped the event that told of the removal.
    removed_at: Option<WallTime>,
    /// A tombstone: the begin of the last complete list that showed it.
    pub(crate) listed: Option<Instant>,
    /// When its tombstone was laid, in drained time.
    pub(crate) buried: Duration,
    /// The fingerprint of the last list row that was taken over. To take the same row over again
    /// would change nothing: details are let go of only by a removal, and a removed id takes over
    /// none before it is reborn.
    pub(crate) row: Option<Fingerprint>,
    /// The last list that showed it.
    pub(crate) mark: Mark,
}

/// Who was met in going through one list. It is compared with the list under way only, and every
/// list has a ticket of its own: what it holds between lists is no part of any state.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mark(Ticket);

impl Mark {
    /// Whether the list has met it already; it has now.
    pub(crate) fn set(&mut self, list: Ticket) -> bool {
        std::mem::replace(&mut self.0, list) == list
    }

    /// Whether the list has met it.
    pub(crate) fn is_of(self, list: Ticket) -> bool {
        self.0 == list
    }
}

impl PartialEq for Mark {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Mark {}

impl Hash for Mark {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// UNKNOWN lies over the position and never moves it (law 2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Overlay {
    /// An event or a list row said UNKNOWN, and the pod was made dirty for it once.
    pub(crate) hinted: bool,
    /// An inspection said UNKNOWN: it is published so.
    pub(crate) published: bool,
    /// When the last inspection began that said so.
    began: Option<Instant>,
}

/// What an observation did to a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effect {
    /// It came further.
    pub(crate) advanced: Option<Position>,
    /// A detail really changed, or an overlay was laid or cleared.
    pub(crate) details: bool,
    /// UNKNOWN was published for the first time in this incarnation.
    pub(crate) became_unknown: bool,
    /// Its name, its sandbox or the like became known.
    pub(crate) identity: bool,
    /// A read showed an earlier position.
    pub(crate) denied: Option<Verdict>,
    /// The exit code became known after Died was announced.
    pub(crate) late_exit: bool,
}

impl Record {
    /// An id that is heard of for the first time.
    pub(crate) fn new(identity: Identity, now: Instant) -> Self {
        let details = Details::none(identity.kind);
        Self {
            identity,
            details,
            position: None,
            belief: Belief::new(now, None),
            learned: now,
            incarnation: 0,
            seen: [None; 4],
            said: Said::default(),
            held_since: None,
            provisional: false,
            unknown: Overlay::default(),
            event_details: None,
            read_details: None,
            removed_at: None,
            listed: None,
            buried: Duration::ZERO,
            row: None,
            mark: Mark::default(),
        }
    }

    /// A tombstone for an id that was first learned as removed: nothing is ever said of it.
    pub(crate) fn tombstone(identity: Identity, now: Instant) -> Self {
        let mut record = Self::new(identity, now);
        record.position = Some(Position::Removed);
        record.said = Said::SILENT;
        record
    }

    /// How far it came.
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

    /// Whether some read contradicts what is believed, and it is not decided.
    pub(crate) fn is_denied(&self) -> bool {
        self.belief.is_denied()
    }

    /// Who first showed that position.
    pub(crate) fn source(&self, position: Position) -> Option<Source> {
        self.seen[position as usize]
    }

    /// When its present position was believed.
    pub(crate) const fn believed_since(&self) -> Instant {
        self.belief.since()
    }

    /// The join: the later position stands. `evidence` is when the read began or the event arrived
    /// that shows it.
    pub(crate) fn join(
        &mut self,
        to: Position,
        source: Source,
        evidence: Instant,
        now: Instant,
    ) -> Effect {
        self.seen[to as usize].get_or_insert(source);
        let mut effect = Effect::default();
        if self.position < Some(to) {
            self.position = Some(to);
            self.belief = Belief::new(now, call_of(source));
            effect.advanced = Some(to);
            effect.details = self.clear_unknown(evidence);
            if to == Position::Removed {
                self.unknown = Overlay::default();
                self.bury();
            }
        }
        effect
    }

    /// What a read showed: a join if it is later, support if it is the same, and evidence
    /// against what is believed if it is earlier.
    pub(crate) fn read(
        &mut self,
        to: Position,
        call: Call,
        began: Instant,
        now: Instant,
    ) -> Effect {
        if self.position <= Some(to) {
            let same = self.position == Some(to);
            let mut effect = self.join(to, source_of(call), began, now);
            if same {
                self.belief.confirm(call);
                effect.details |= self.clear_unknown(began);
            }
            return effect;
        }
        let Some(believed) = self.position else {
            return Effect::default();
        };
        let verdict = self.belief.deny(call, began, believed);
        let details = match verdict {
            Verdict::Stale => false,
            _ => self.clear_unknown(began),
        };
        Effect {
            denied: Some(verdict),
            details,
            ..Effect::default()
        }
    }

    /// Whether a list shows what is believed, undisputed and of a pod whose name is known: it
    /// supports that, and nothing else about the state follows from it.
    pub(crate) fn is_as_shown(&self, id: &Id, kind: Kind, shown: Shown) -> bool {
        let shown = Position::shown(kind, shown);
        shown.is_some()
            && shown == self.position
            && kind == self.kind()
            && self.unknown == Overlay::default()
            && !self.is_denied()
            && self.named_pod(id).is_some()
    }

    /// Its pod, unless its sandbox's id stands in for that.
    fn named_pod(&self, id: &Id) -> Option<&PodUid> {
        let own = self.identity.sandbox.as_ref().unwrap_or(id);
        let pod = self.identity.pod.as_ref();
        pod.filter(|pod| pod.as_str() != own.as_str())
    }

    /// Whether a status in an event says what is held, and nothing else: joining it would change
    /// nothing.
    pub(crate) fn is_as_told(&self, report: &Report) -> bool {
        self.is_as_shown(&report.id, report.identity.kind, report.shown)
            && self.identity.pod == report.identity.pod
            && !self.provisional
            && self.details == report.details
            && self.identity.knows(&report.identity)
    }

    /// An event told what is held.
    pub(crate) fn told_again(&mut self, arrived: Instant) {
        self.event_details = self.event_details.max(Some(arrived));
    }

    /// A list shows what is believed.
    pub(crate) fn supported(&mut self) {
        self.provisional = false;
        self.belief.confirm(Call::List);
    }

    /// Whether all is known that a row says which is unchanged, as far as it matters.
    pub(crate) fn resolves(&self, row: &Unchanged, began: Instant) -> bool {
        let same = self.row == Some(row.fingerprint);
        if !self.is_removed() {
            return same;
        }
        // What it said was let go. That matters only if this row brings the id back.
        let late = began <= self.believed_since();
        late || (same
            && !self
                .belief
                .would_be_overruled(Call::List, began, Position::Removed))
    }

    /// What a row says that is unchanged: taken over again, the rest of it would change nothing.
    pub(crate) fn said_again(&self, row: &Unchanged) -> Report {
        Report {
            id: row.id.clone(),
            shown: row.shown,
            identity: Identity {
                kind: row.kind,
                pod: self.named_pod(&row.id).cloned(),
                ..self.identity.clone()
            },
            details: Details::none(row.kind),
        }
    }

    /// A complete list that began after the removal was believed does not show it.
    pub(crate) fn confirm_absence(&mut self, call: Call) {
        if self.is_removed() {
            self.belief.confirm(call);
        }
    }

    /// The reads were right: a new incarnation starts where they show it. They also know what it
    /// is: of a DELETED that came alone, sandbox or container was a guess.
    pub(crate) fn overrule(&mut self, kind: Kind, to: Position, call: Call, now: Instant) {
        if call != Call::List {
            // What the last row said was let go of with the removal, or may have been.
            self.row = None;
        }
        if self.identity.kind != kind {
            self.identity.kind = kind;
            self.details = Details::none(kind);
        }
        self.incarnation = self.incarnation.saturating_add(1);
        self.position = Some(to);
        self.belief = Belief::new(now, Some(call));
        self.seen = [None; 4];
        self.seen[to as usize] = Some(source_of(call));
        self.said = Said::reborn(to);
        self.learned = now;
        self.provisional = false;
        self.removed_at = None;
        if to < Position::Exited
            && let Details::Container(c) = &mut self.details
        {
            let c = Arc::make_mut(c);
            // The end that did not happen.
            c.exit_code = None;
            c.finished_at = None;
            c.reason = Text::default();
            c.message = Text::default();
        }
    }

    /// Something shows a position. What is older than the inspection that said UNKNOWN does not
    /// clear it: the pod would be as of that inspection and show a state from before it. Returns
    /// whether a published UNKNOWN was cleared.
    fn clear_unknown(&mut self, evidence: Instant) -> bool {
        let newer = self.unknown.began.is_none_or(|b| evidence > b);
        newer && std::mem::take(&mut self.unknown).published
    }

    /// UNKNOWN from an inspection.
    pub(crate) fn lay_unknown(&mut self, began: Instant) -> Effect {
        self.unknown.hinted = true;
        self.unknown.began = self.unknown.began.max(Some(began));
        let first = !std::mem::replace(&mut self.unknown.published, true);
        Effect {
            details: first,
            became_unknown: first,
            ..Effect::default()
        }
    }

    /// Takes over what an event said besides the state.
    pub(crate) fn details_from_event(&mut self, report: &Report, arrived: Instant) -> Effect {
        let identity = self.identify(&report.identity);
        let newest = self.event_details.is_none_or(|e| arrived >= e)
            && self.read_details.is_none_or(|r| arrived > r);
        self.event_details = self.event_details.max(Some(arrived));
        // An event's snapshot was taken before it was stamped, nobody knows how long before: an
        // older inspection loses to it, a younger one wins.
        self.take_details(
            report,
            if newest {
                Weight::NewestEvent
            } else {
                Weight::Fills
            },
            identity,
        )
    }

    /// Takes over what a status call said besides the state.
    pub(crate) fn details_from_read(&mut self, report: &Report, began: Instant) -> Effect {
        let identity = self.identify(&report.identity);
        let newest = self.event_details.is_none_or(|e| began > e)
            && self.read_details.is_none_or(|r| began >= r);
        self.read_details = self.read_details.max(Some(began));
        self.take_details(
            report,
            if newest {
                Weight::NewestRead
            } else {
                Weight::Fills
            },
            identity,
        )
    }

    /// Takes over what a list row said besides the state. Rows say little: they only fill.
    pub(crate) fn details_from_row(&mut self, report: &Report) -> Effect {
        let identity = self.identify(&report.identity);
        self.take_details(report, Weight::Fills, identity)
    }

    fn take_details(&mut self, report: &Report, weight: Weight, identity: bool) -> Effect {
        let had_exit = self.exit_code().is_some();
        if self.is_removed() && self.said.is_silent() {
            return Effect::default();
        }
        if self.is_removed() {
            // Exit details count even now; nothing else of a removed id is kept.
            let (Details::Container(known), Details::Container(said)) =
                (&mut self.details, &report.details)
            else {
                return Effect::default();
            };
            let end = exit_of(said);
            let mut kept = Details::from(exit_of(known));
            let changed = details::merge(&mut kept, &Details::from(end), Weight::Fills);
            if let Details::Container(kept) = kept {
                *known = kept;
            }
            let late_exit = !had_exit && self.exit_code().is_some() && self.has_died();
            return Effect {
                details: changed,
                late_exit,
                ..Effect::default()
            };
        }
        let details = details::merge(&mut self.details, &report.details, weight);
        let late_exit = !had_exit && self.exit_code().is_some() && self.has_died();
        Effect {
            details,
            late_exit,
            identity,
            ..Effect::default()
        }
    }

    /// Identity is written once, field by field, by the first sane value. Returns whether
    /// something became known.
    fn identify(&mut self, said: &Identity) -> bool {
        let known = &mut self.identity;
        let mut changed = fill(&mut known.namespace, said.namespace.as_ref());
        changed |= fill(&mut known.pod_name, said.pod_name.as_ref());
        changed |= fill(&mut known.sandbox, said.sandbox.as_ref());
        changed |= fill(&mut known.name, said.name.as_ref());
        changed |= fill(&mut known.created_at, said.created_at.as_ref());
        changed |= fill(&mut known.pod, said.pod.as_ref());
        if known.attempt == 0 && said.attempt != 0 {
            known.attempt = said.attempt;
            changed = true;
        }
        changed
    }

    /// What is to be announced now, in legal order; marks it as said.
    pub(crate) fn announce(&mut self) -> Vec<LifecycleType> {
        if self.held_since.is_some() {
            return Vec::new();
        }
        let seen_running = self.seen[Position::Running as usize].is_some();
        self.said.next(self.position, seen_running)
    }

    /// Whether its end was announced.
    pub(crate) const fn has_died(&self) -> bool {
        self.said.has_died()
    }

    /// When the runtime says that this happened.
    pub(crate) fn happened_at(&self, event: LifecycleType) -> Option<WallTime> {
        match (event, &self.details) {
            (LifecycleType::ContainerStarted, Details::Container(c)) => c.started_at,
            (LifecycleType::ContainerStarted, Details::Sandbox(_)) => self.identity.created_at,
            (LifecycleType::ContainerDied, Details::Container(c)) => c.finished_at,
            (LifecycleType::ContainerChanged, _) if self.position == Some(Position::Created) => {
                self.identity.created_at
            }
            (LifecycleType::ContainerRemoved, _) => self.removed_at,
            _ => None,
        }
    }

    /// The runtime's stamp on the event that told of the removal.
    pub(crate) fn removed_at(&mut self, stamp: Option<WallTime>) {
        self.removed_at = self.removed_at.or(stamp);
    }

    pub(crate) fn exit_code(&self) -> Option<i32> {
        match &self.details {
            Details::Container(c) => c.exit_code,
            Details::Sandbox(_) => None,
        }
    }

    pub(crate) fn finished_at(&self) -> Option<WallTime> {
        match &self.details {
            Details::Container(c) => c.finished_at,
            Details::Sandbox(_) => None,
        }
    }

    pub(crate) fn reason(&self) -> Text {
        match &self.details {
            Details::Container(c) => c.reason.clone(),
            Details::Sandbox(_) => Text::default(),
        }
    }

    /// A container that the runtime could not start: it never ran and no event is sent for it.
    pub(crate) fn failed_to_start(&self) -> bool {
        matches!(&self.details, Details::Container(c)
            if c.exit_code == Some(128) && &*c.reason == "StartError")
    }

    /// Its status; the one that was published before, if that says the same.
    pub(crate) fn sandbox_status(
        &self,
        id: &Id,
        before: Option<&Arc<SandboxStatus>>,
    ) -> Option<Arc<SandboxStatus>> {
        let Details::Sandbox(details) = &self.details else {
            return None;
        };
        let ready = self.position.map(|p| p == Position::Running);
        let state = match ready {
            _ if self.unknown.published || ready.is_none() => {
                SandboxState::Unknown { last_ready: ready }
            }
            Some(true) => SandboxState::Ready,
            _ => SandboxState::NotReady,
        };
        let (attempt, created_at) = (self.identity.attempt, self.identity.created_at);
        let same = |s: &&Arc<SandboxStatus>| {
            (s.state, s.attempt, s.created_at) == (state, attempt, created_at)
                && s.details == *details
        };
        if let Some(before) = before.filter(same) {
            return Some(before.clone());
        }
        Some(Arc::new(SandboxStatus {
            id: id.clone(),
            state,
            attempt,
            created_at,
            details: details.clone(),
        }))
    }

    /// Its status; the one that was published before, if that says the same.
    pub(crate) fn container_status(
        &self,
        id: &Id,
        active: bool,
        before: Option<&Arc<ContainerStatus>>,
    ) -> Option<Arc<ContainerStatus>> {
        let Details::Container(details) = &self.details else {
            return None;
        };
        let known = self.position.map(|p| match p {
            Position::Created => KnownState::Created,
            Position::Running => KnownState::Running,
            Position::Exited | Position::Removed => KnownState::Exited,
        });
        let state = match known {
            Some(KnownState::Created) if !self.unknown.published => ContainerState::Created,
            Some(KnownState::Running) if !self.unknown.published => ContainerState::Running,
            Some(KnownState::Exited) if !self.unknown.published => ContainerState::Exited,
            last => ContainerState::Unknown { last },
        };
        let (attempt, created_at) = (self.identity.attempt, self.identity.created_at);
        let (name, sandbox) = (&self.identity.name, &self.identity.sandbox);
        let same = |c: &&Arc<ContainerStatus>| {
            (c.state, c.active, c.attempt, c.created_at) == (state, active, attempt, created_at)
                && *c.name == *name.as_deref().unwrap_or_default()
                && c.sandbox == *sandbox
                && c.details == *details
        };
        if let Some(before) = before.filter(same) {
            return Some(before.clone());
        }
        Some(Arc::new(ContainerStatus {
            id: id.clone(),
            name: name.clone().unwrap_or_default(),
            state,
            active,
            sandbox: sandbox.clone(),
            attempt,
            created_at,
            details: details.clone(),
        }))
    }

    /// Of a removed id only the end is kept.
    fn bury(&mut self) {
        self.details = match &self.details {
            Details::Container(c) => Details::from(exit_of(c)),
            Details::Sandbox(_) => Details::none(Kind::Sandbox),
        };
        self.provisional = false;
        self.held_since = None;
    }
}

fn exit_of(c: &ContainerDetails) -> ContainerDetails {
    ContainerDetails {
        started_at: c.started_at,
        finished_at: c.finished_at,
        exit_code: c.exit_code,
        reason: c.reason.clone(),
        message: c.message.clone(),
        ..ContainerDetails::default()
    }
}

/// Whether it became known.
fn fill<T: Clone>(known: &mut Option<T>, said: Option<&T>) -> bool {
    let fills = known.is_none() && said.is_some();
    if fills {
        *known = said.cloned();
    }
    fills
}

const fn source_of(call: Call) -> Source {
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
mod tests {
    use super::*;
    use crate::observed::Shown;

    const T0: WallTime = WallTime::from_nanos(1_700_000_000_000_000_000);

    fn at(ms: u64) -> Instant {
        Instant::from_origin(Duration::from_millis(ms))
    }

    fn later(seconds: u64) -> Option<WallTime> {
        Some(T0.after(Duration::from_secs(seconds)))
    }

    /// A container's record, first heard of at 0.
    fn record() -> Record {
        Record::new(Identity::unknown(Kind::Container), at(0))
    }

    fn said(details: ContainerDetails) -> Report {
        Report {
            id: "c".into(),
            shown: Shown::Exited,
            identity: Identity::unknown(Kind::Container),
            details: Details::from(details),
        }
    }

    fn message(text: &str) -> Report {
        said(ContainerDetails {
            message: text.into(),
            ..ContainerDetails::default()
        })
    }

    fn end() -> ContainerDetails {
        ContainerDetails {
            started_at: later(1),
            finished_at: later(2),
            exit_code: Some(3),
            reason: "Error".into(),
            message: "it broke".into(),
            image: "img".into(),
            ..ContainerDetails::default()
        }
    }

    fn known(record: &Record) -> &str {
        match &record.details {
            Details::Container(c) => &c.message,
            Details::Sandbox(_) => "",
        }
    }

    /// Of events and inspections the one that is newer wins; at the same instant the event does
    /// not beat the read, nor the read the event, and each beats its own kind.
    #[test]
    fn the_newest_details_win() {
        // (event arrived, read began, what stands if the event is applied first)
        for (event, read, stands) in [(10, 20, "read"), (20, 10, "event"), (10, 10, "event")] {
            let mut r = record();
            r.details_from_event(&message("event"), at(event));
            r.details_from_read(&message("read"), at(read));
            assert_eq!(known(&r), stands, "event {event}, then read {read}");
        }
        for (event, read, stands) in [(10, 20, "read"), (20, 10, "event"), (10, 10, "read")] {
            let mut r = record();
            r.details_from_read(&message("read"), at(read));
            r.details_from_event(&message("event"), at(event));
            assert_eq!(known(&r), stands, "read {read}, then event {event}");
        }
        for (second, stands) in [(9, "first"), (10, "second"), (11, "second")] {
            let mut r = record();
            r.details_from_event(&message("first"), at(10));
            r.details_from_event(&message("second"), at(second));
            assert_eq!(known(&r), stands, "two events, the second at {second}");
            let mut r = record();
            r.details_from_read(&message("first"), at(10));
            r.details_from_read(&message("second"), at(second));
            assert_eq!(known(&r), stands, "two reads, the second at {second}");
        }
        // The newest of each is remembered, not the last.
        let mut r = record();
        r.details_from_event(&message("event"), at(20));
        r.details_from_event(&message("older"), at(5));
        r.details_from_read(&message("read"), at(10));
        assert_eq!(known(&r), "event");
    }

    #[test]
    fn identity_is_the_first_that_was_said() {
        let mut r = record();
        let mut first = message("");
        (first.identity.attempt, first.identity.name) = (2, Some("app".into()));
        assert!(r.details_from_row(&first).identity);
        let mut second = message("");
        (second.identity.attempt, second.identity.name) = (5, Some("other".into()));
        assert!(!r.details_from_row(&second).identity);
        assert_eq!(
            (r.identity.attempt, r.identity.name.as_deref()),
            (2, Some("app"))
        );
    }

    #[test]
    fn each_event_has_the_runtimes_own_time() {
        use LifecycleType::{ContainerChanged, ContainerDied, ContainerRemoved, ContainerStarted};
        let mut r = record();
        r.identity.created_at = later(0);
        r.join(Position::Created, Source::Stream, at(1), at(1));
        assert_eq!(r.happened_at(ContainerChanged), later(0));
        r.join(Position::Exited, Source::Stream, at(2), at(2));
        r.details_from_read(&said(end()), at(3));
        r.removed_at(None);
        r.removed_at(later(3));
        r.removed_at(later(9));
        let times = [
            ContainerChanged,
            ContainerStarted,
            ContainerDied,
            ContainerRemoved,
        ];
        let times = times.map(|what| r.happened_at(what));
        assert_eq!(times, [None, later(1), later(2), later(3)]);
        assert_eq!(r.finished_at(), later(2));
        let mut sandbox = Record::new(Identity::unknown(Kind::Sandbox), at(0));
        sandbox.identity.created_at = later(7);
        assert_eq!(sandbox.happened_at(ContainerStarted), later(7));
        assert_eq!(sandbox.happened_at(ContainerDied), None);
    }

    /// Of what is removed the end stays, and an end that is told late is taken; nothing else.
    #[test]
    fn the_end_outlives_the_removal() {
        let mut r = record();
        r.join(Position::Running, Source::Stream, at(1), at(1));
        r.details_from_read(&said(end()), at(2));
        r.join(Position::Removed, Source::Stream, at(3), at(3));
        let kept = ContainerDetails {
            image: "".into(),
            ..end()
        };
        assert_eq!(r.details, Details::from(kept.clone()));

        let mut r = record();
        r.join(Position::Running, Source::Stream, at(1), at(1));
        r.join(Position::Removed, Source::Stream, at(3), at(3));
        r.announce();
        let effect = r.details_from_read(&said(end()), at(4));
        assert!(effect.details && effect.late_exit);
        assert_eq!(r.details, Details::from(kept));
        assert_eq!((r.exit_code(), &*r.reason()), (Some(3), "Error"));
        let again = r.details_from_read(&said(end()), at(5));
        assert!(!again.details && !again.late_exit);

        let mut silent = Record::tombstone(Identity::unknown(Kind::Container), at(0));
        assert_eq!(
            silent.details_from_read(&said(end()), at(4)),
            Effect::default()
        );
        assert_eq!(silent.exit_code(), None);
    }

    /// An exit code is late if Died was announced without it.
    #[test]
    fn an_exit_code_is_late_once_died_was_announced() {
        let mut r = record();
        r.join(Position::Exited, Source::Stream, at(1), at(1));
        assert!(!r.details_from_read(&said(end()), at(2)).late_exit);
        assert!(!r.details_from_read(&said(end()), at(3)).late_exit);
        let mut r = record();
        r.join(Position::Exited, Source::Stream, at(1), at(1));
        assert_eq!(r.announce(), [LifecycleType::ContainerDied]);
        assert!(!r.details_from_read(&message("x"), at(2)).late_exit);
        assert!(r.details_from_read(&said(end()), at(3)).late_exit);
    }

    /// UNKNOWN lies over the position until evidence that is newer than it clears it.
    #[test]
    fn unknown_is_shown_until_something_newer_is() {
        let id = Id::from("c");
        let state = |r: &Record| r.container_status(&id, false, None).map(|s| s.state);
        let mut r = record();
        assert_eq!(state(&r), Some(ContainerState::Unknown { last: None }));
        r.join(Position::Running, Source::Stream, at(1), at(1));
        assert_eq!(state(&r), Some(ContainerState::Running));
        let laid = r.lay_unknown(at(10));
        assert!(laid.details && laid.became_unknown);
        assert!(!r.lay_unknown(at(9)).became_unknown, "once");
        let last = Some(KnownState::Running);
        for began in [9, 10] {
            let effect = r.read(Position::Running, Call::Inspection, at(began), at(11));
            assert!(!effect.details);
            assert_eq!(state(&r), Some(ContainerState::Unknown { last }));
        }
        let effect = r.read(Position::Running, Call::Inspection, at(11), at(12));
        assert!(effect.details);
        assert_eq!(state(&r), Some(ContainerState::Running));
        for (position, shown) in [
            (Position::Exited, ContainerState::Exited),
            (Position::Created, ContainerState::Exited),
        ] {
            r.join(position, Source::Stream, at(13), at(13));
            assert_eq!(state(&r), Some(shown), "it only moves forward");
        }
        // A read that shows an earlier state clears it, too, unless it is old news.
        r.lay_unknown(at(20));
        let stale = r.read(Position::Running, Call::Inspection, at(12), at(21));
        assert_eq!((stale.denied, stale.details), (Some(Verdict::Stale), false));
        let denied = r.read(Position::Running, Call::Inspection, at(21), at(22));
        assert!(denied.details && r.is_denied());
        assert_eq!(state(&r), Some(ContainerState::Exited));
        // Old news is also what is newer than the UNKNOWN, but began before the state was believed.
        let mut r = record();
        r.lay_unknown(at(10));
        r.join(Position::Exited, Source::Stream, at(5), at(20));
        let stale = r.read(Position::Running, Call::Inspection, at(15), at(21));
        assert_eq!((stale.denied, stale.details), (Some(Verdict::Stale), false));
        let last = Some(KnownState::Exited);
        assert_eq!(state(&r), Some(ContainerState::Unknown { last }));
    }

    /// The other call alone cannot overrule what a read has shown, however often it denies it; of
    /// what only an event told, it can.
    #[test]
    fn what_a_call_has_shown_stands_until_that_call_denies_it() {
        for (source, stands) in [
            (Source::Stream, false),
            (Source::Inspection, false),
            (Source::Relist, true),
        ] {
            let mut r = record();
            r.join(Position::Exited, source, at(1), at(1));
            let denies = |r: &mut Record, call, ms| {
                let effect = r.read(Position::Running, call, at(ms), at(ms + 1));
                effect.denied == Some(Verdict::Overruled)
            };
            assert!(!denies(&mut r, Call::Inspection, 1_000));
            let overruled = denies(&mut r, Call::Inspection, 2_000);
            assert_eq!(overruled, !stands, "shown by {source}");
            if stands {
                assert!(!denies(&mut r, Call::List, 3_000));
                assert!(denies(&mut r, Call::List, 4_000), "both have denied it");
            }
        }
    }

    /// What reads revive has not ended; what they show ended keeps its end.
    #[test]
    fn an_overruling_forgets_an_end_that_did_not_happen() {
        for (to, code) in [(Position::Running, None), (Position::Exited, Some(3))] {
            let mut r = record();
            r.join(Position::Exited, Source::Stream, at(1), at(1));
            r.details_from_read(&said(end()), at(2));
            r.join(Position::Removed, Source::Stream, at(3), at(3));
            r.overrule(Kind::Container, to, Call::Inspection, at(20));
            assert_eq!((r.exit_code(), r.incarnation()), (code, 1));
            assert_eq!(r.position(), Some(to));
        }
        let mut guess = Record::tombstone(Identity::unknown(Kind::Container), at(0));
        guess.overrule(Kind::Sandbox, Position::Running, Call::List, at(20));
        assert_eq!(guess.kind(), Kind::Sandbox);
        assert!(guess.sandbox_status(&"c".into(), None).is_some());
    }
}
