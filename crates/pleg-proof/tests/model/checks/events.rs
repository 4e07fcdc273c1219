//! Laws 2, 6 and 8, as events show them: which of them are plausible, and what of them must be
//! seen at once.

use std::collections::BTreeSet;

use pleg_core::{Arrival, EventType, Id, Kind, Report, ReportedState, RuntimeEvent, WallTime};

use super::cached::seen;
use super::{Laws, Pushed, hold, told};
use crate::node::{Node, State};
use crate::stand::Broken;
use crate::told::MS;

/// Whether events are plausible news (law 6), by our own two clocks.
#[derive(Debug, Default)]
pub(super) struct Plausible {
    /// Our clocks at the last reading: milliseconds, nanoseconds.
    reading: Option<(u64, i64)>,
    /// Stamps before this are old.
    from: Option<i64>,
    /// A complete list begun after this ends the doubt about our wall clock.
    stepped: Option<u64>,
}

impl Plausible {
    pub(super) const fn subscribed(&mut self, now: u64, wall: i64) {
        self.reading = Some((now, wall));
        self.from = Some(wall);
        self.stepped = None;
    }

    pub(super) fn listed(&mut self, began: u64) {
        if let (Some(stepped), Some((ms, nanos))) = (self.stepped, self.reading)
            && began > stepped
        {
            self.from = Some(nanos + (began as i64 - ms as i64) * MS as i64);
            self.stepped = None;
        }
    }

    fn arrived(&mut self, arrival: &Arrival) -> bool {
        let now = arrival.arrived.as_nanos() / MS;
        let nanos = arrival.wall.as_nanos();
        if let Some((ms, before)) = self.reading.replace((now, nanos)) {
            let drift = (nanos - before) - (now as i64 - ms as i64) * MS as i64;
            if drift.abs() > 1_000_000_000 {
                (self.from, self.stepped) = (None, Some(now));
            }
        }
        let stamp = arrival.event.created_at;
        self.from.is_some_and(|from| {
            stamp >= from && stamp >= nanos - 300_000_000_000 && stamp <= nanos + 1_000_000_000
        })
    }
}

/// What must be seen when an event was applied.
#[derive(Debug)]
pub struct News {
    plausible: bool,
    id: Id,
    told: Option<State>,
    /// Its own statuses still show what it says is deleted.
    contradicts: bool,
    /// The cache showed the subject before, and not as one that is recorded as removed.
    was_shown: bool,
    /// It was recorded as removed before.
    was_gone: bool,
    /// Nothing had ever named the subject, and the event names its pod.
    is_new: bool,
    /// Ids that it names and that nothing had named before.
    strangers: BTreeSet<Id>,
}

impl Laws {
    pub fn subscribed(&mut self, now: u64, wall: WallTime) {
        self.plausible.subscribed(now, wall.as_nanos());
        self.watch.subscribed(now);
    }

    pub fn cut(&mut self, now: u64) {
        self.watch.cut(now);
    }

    /// An event goes into the backlog.
    pub fn pushed(&mut self, event: &RuntimeEvent) {
        let reports = event.sandbox.iter().chain(&event.containers);
        self.unlabelled |= reports.into_iter().any(|r| r.identity.unlabelled);
        for what in kept(event) {
            self.on_the_way.insert(what);
        }
    }

    /// An event is handed to the machine.
    pub fn arriving(&mut self, node: &Node, now: u64, arrival: &Arrival) -> News {
        let event = &arrival.event;
        self.watch.event();
        for what in kept(event) {
            self.on_the_way.remove(&what);
        }
        let life = node.life(&event.id);
        let kind = life.map_or(Kind::Container, |l| l.kind);
        let reports = || event.sandbox.iter().chain(&event.containers);
        let own = reports().find(|r| r.id == event.id);
        let contradicts = event.event == EventType::Deleted
            && own.is_some_and(|r| kind == Kind::Container || r.shown == ReportedState::Running);
        let told = told(kind, event.event);
        if !contradicts && told > life.and_then(|l| l.at(now)) {
            self.lied.insert(event.id.clone(), now);
        }
        let is_stranger = |id: &&Id| !self.named.contains(*id);
        let strangers: BTreeSet<Id> = reports()
            .map(|r| &r.id)
            .chain([&event.id])
            .filter(is_stranger)
            .cloned()
            .collect();
        let new = strangers.contains(&event.id);
        let was_gone = self.is_gone(&event.id);
        if told == Some(State::Gone) && !contradicts {
            if new {
                self.silent.insert(event.id.clone());
            }
            let believed = self
                .believed
                .entry(event.id.clone())
                .or_insert((State::Gone, now));
            if believed.0 < State::Gone {
                *believed = (State::Gone, now);
            }
        }
        let names_its_pod = event
            .sandbox
            .as_ref()
            .is_some_and(|s| s.identity.pod.is_some());
        let news = News {
            plausible: self.plausible.arrived(arrival),
            id: event.id.clone(),
            told,
            contradicts,
            was_shown: self.shown(&event.id).is_some() && !was_gone,
            was_gone,
            is_new: new && names_its_pod,
            strangers,
        };
        if told == Some(State::Running) {
            self.ran.insert(event.id.clone());
        }
        let named: Vec<Report> = reports().cloned().collect();
        for report in &named {
            self.name(report);
        }
        self.named.insert(event.id.clone());
        news
    }

    /// What the cache shows of an id: its state, and whether it is UNKNOWN.
    fn shown(&self, id: &Id) -> Option<(Option<State>, bool)> {
        let mut views = self.cache.values();
        views.find_map(|v| seen(&v.status).get(id).map(|s| (s.state, s.unknown)))
    }

    /// Whether it is recorded as removed, though the newest read may show it.
    fn is_gone(&self, id: &Id) -> bool {
        let believed = self.believed.get(id);
        believed.is_some_and(|(state, _)| *state == State::Gone)
    }

    /// The machine has applied it.
    pub fn arrived(&mut self, _node: &Node, news: &News) -> Result<(), Broken> {
        let now_shown = self.shown(&news.id);
        if !news.plausible {
            for id in &news.strangers {
                hold!(
                    self.shown(id).is_none(),
                    "law6-implausible-is-a-hint",
                    "{id} is believed in because of {news:?}"
                );
            }
        }
        if news.contradicts && news.was_shown {
            hold!(
                now_shown.is_some(),
                "law6-shown-is-not-deleted",
                "gone after {news:?}"
            );
        }
        let Some(told) = news.told.filter(|_| !news.contradicts) else {
            return Ok(());
        };
        if told == State::Gone {
            hold!(
                now_shown.is_none() || news.was_gone,
                "law2-joined-at-once",
                "{now_shown:?} after {news:?}"
            );
        } else if news.was_shown {
            // It may be further, even gone, but not behind.
            let behind = now_shown.is_some_and(|(s, _)| s < Some(told));
            hold!(
                !behind,
                "law2-joined-at-once",
                "{now_shown:?} after {news:?}"
            );
        } else if news.is_new && news.plausible {
            hold!(
                now_shown.is_some(),
                "law6-plausible-is-believed",
                "nothing after {news:?}"
            );
        }
        Ok(())
    }

    /// Nothing of what the busy writer was to be handed is left behind (law 8).
    pub fn drained(&mut self) -> Result<(), Broken> {
        let left = std::mem::take(&mut self.on_the_way);
        hold!(
            left.is_empty(),
            "law8-nothing-skipped",
            "{left:?} went in and did not come out"
        );
        Ok(())
    }
}

/// What of an event must outlive any joining: what it tells, and every state that it shows.
fn kept(event: &RuntimeEvent) -> Vec<(Id, Pushed)> {
    let told = (event.id.clone(), Pushed::Told(event.event));
    let reports = event.sandbox.iter().chain(&event.containers);
    let shown = reports.map(|r| (r.id.clone(), Pushed::ReportedState(r.shown)));
    shown.chain([told]).collect()
}
