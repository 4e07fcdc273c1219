//! The laws, as a consumer can check them: a shadow of the cache, and a book of what was told,
//! read, asked and announced.

mod announced;
mod by_pod;
mod cached;
mod duties;
mod health;
mod inboxes;
mod losses;
mod quiet;
mod waiting;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use pleg_core::{
    ContainerState, EventType, Id, Instant, Kind, Output, PodStatus, PodUid, PodView, Report,
    ReportedState, RuntimeEvent, SandboxState, Ticket, WaiterId,
};

use crate::faults::Fault;
use crate::history::History;
use crate::laws::Lawful;
use crate::tally::{Path, Tally};
use crate::truth::{State, Truth};
use crate::weather::Weather;
use by_pod::ByPod;

pub use duties::Duties;
pub use health::Signs;
pub use inboxes::Subscribers;
pub use losses::Losses;

/// What the machine was handed before it put something out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    Timer,
    Stream,
    Event,
    List,
    Inspection,
    StatusRead,
    Question,
    Cancel,
}

/// One who waits.
#[derive(Clone, Debug)]
struct Asked {
    pod: PodUid,
    after: Instant,
    asked: Instant,
    /// The last inspection that had been asked for by then.
    number: Ticket,
    /// The pod was well when it was asked about; an answer must come soon.
    urgent: bool,
}

/// What is known here of one id.
#[derive(Clone, Debug, Default)]
struct Book {
    /// Something has shown it running.
    ran: bool,
    /// Something has named it.
    named: bool,
    /// A removal was the first that was told of it.
    silent: bool,
    published: bool,
    /// When an event first reported its removal.
    deleted: Option<u64>,
    /// When somebody was last told that it ended or is removed.
    ended_told: Option<Instant>,
    /// When the last inspection began that showed it as unknown. Law 2 lets an event that
    /// advances the id clear that, whatever it was in truth by then.
    unsure: Option<Instant>,
    told: Option<Instant>,
    /// The state that the cache shows, and since when.
    shown: Option<(State, u64)>,
    /// The pod in which the cache showed it last.
    home: Option<PodUid>,
    /// When the cache showed it no longer, and in which pod it was; until it is announced as the next
    /// incarnation.
    vanished: Option<(u64, PodUid)>,
    /// When the newest read began that showed it.
    read: Option<Instant>,
    incarnation: u32,
    /// What was announced of this incarnation.
    started: bool,
    died: bool,
    removed: bool,
    changed: bool,
    /// The exit code was told, in this incarnation.
    code: bool,
}

/// Begins of reads that a view may still be as of.
#[derive(Clone, Debug, Default)]
struct Begins(VecDeque<Instant>);

impl Begins {
    const MOST: usize = 128;

    fn add(&mut self, began: Instant) {
        if self.0.len() == Self::MOST {
            self.0.pop_front();
        }
        self.0.push_back(began);
    }

    fn contain(&self, t: Instant) -> bool {
        self.0.iter().rev().any(|&b| b == t)
    }

    /// The first one after that instant.
    fn first_after(&self, t: Instant) -> Option<Instant> {
        self.0.iter().copied().find(|&began| began > t)
    }
}

#[derive(Debug, Default)]
pub struct Checks {
    pub history: History,
    pub tally: Tally,
    /// Events may have told of what did not happen.
    lies: bool,
    /// Ids may be known without a label: their pods are read by complete lists.
    pub nameless: bool,
    cache: ByPod<PodView>,
    books: Vec<Book>,
    /// Begins of the complete lists, and of the complete inspections per pod.
    lists: Begins,
    inspections: ByPod<Begins>,
    /// Reads that returned a status, inspections or not.
    status_reads: BTreeSet<Instant>,
    /// Failed inspections: the last one of each pod.
    failed: ByPod<Ticket>,
    /// Pods whose last inspection failed.
    failing: BTreeSet<PodUid>,
    /// Pods of which a status has failed.
    status_failed: BTreeSet<PodUid>,
    /// Pods of which the last complete inspection listed ids that had no status.
    unsettled: BTreeSet<PodUid>,
    /// The complete inspection that was handed over last, and what it found.
    last_found: Option<(Instant, Vec<Id>)>,
    last_inspection: Ticket,
    under_way: BTreeMap<Ticket, (PodUid, u64)>,
    waiting: BTreeMap<WaiterId, Asked>,
    /// When pods were inspected again for no other reason than that the last read had failed.
    retries: BTreeMap<PodUid, VecDeque<u64>>,
    /// Ids that were announced and not announced as removed.
    present: u64,
    input: Option<Input>,
}

impl Checks {
    pub fn new(history: History, weather: &Weather) -> Self {
        Self {
            history,
            lies: weather.lies(),
            nameless: weather.percent(Fault::Nameless) > 0,
            ..Self::default()
        }
    }

    pub fn note(&mut self, now: u64, line: impl FnOnce() -> String) {
        self.history.note(now, line);
    }

    fn book(&mut self, truth: &Truth, id: &Id) -> Option<&mut Book> {
        let n = truth.handle(id)?;
        if self.books.len() <= n {
            self.books.resize_with(n + 1, Book::default);
        }
        self.books.get_mut(n)
    }

    fn look(&self, truth: &Truth, id: &Id) -> Option<&Book> {
        self.books.get(truth.handle(id)?)
    }

    /// Whether reads have overruled what was recorded of the id.
    pub fn is_reborn(&self, truth: &Truth, id: &Id) -> bool {
        self.look(truth, id)
            .is_some_and(|book| book.incarnation > 0)
    }

    // --- what goes in ---

    /// The machine is handed something: what comes out next follows from it.
    pub const fn handed(&mut self, input: Input) {
        self.input = Some(input);
    }

    pub fn told(&mut self, truth: &Truth, now: Instant, event: &RuntimeEvent) {
        let shown = event.sandbox.iter().chain(&event.containers);
        let own = shown.clone().find(|r| r.id == event.id);
        let deleted = event.event == EventType::Deleted;
        let gone = own
            .is_none_or(|r| r.identity.kind == Kind::Sandbox && r.shown != ReportedState::Running);
        let sandbox = own.is_some_and(|r| r.identity.kind == Kind::Sandbox)
            || event.id.as_str().starts_with("sbx");
        let runs =
            event.event == EventType::Started || (event.event == EventType::Created && sandbox);
        if let Some(book) = self.book(truth, &event.id) {
            book.silent |= deleted && !book.named && gone;
            book.ran |= runs;
            if deleted && gone {
                book.deleted.get_or_insert(now.as_nanos());
            }
            if matches!(event.event, EventType::Stopped | EventType::Deleted) {
                book.ended_told = Some(now);
            }
            book.told = Some(now);
            book.named = true;
        }
        for report in shown {
            if let Some(book) = self.read_one(truth, report) {
                book.told = Some(now);
            }
        }
    }

    pub fn status_read(&mut self, truth: &Truth, began: Instant, report: &Report) {
        self.status_reads.insert(began);
        self.read_at(truth, began, report);
    }

    /// A read that began then shows the id.
    fn read_at(&mut self, truth: &Truth, began: Instant, report: &Report) -> Option<&mut Book> {
        let book = self.read_one(truth, report)?;
        book.read = book.read.max(Some(began));
        Some(book)
    }

    fn read_one(&mut self, truth: &Truth, report: &Report) -> Option<&mut Book> {
        let book = self.book(truth, &report.id)?;
        book.named = true;
        book.ran |= report.shown == ReportedState::Running;
        Some(book)
    }

    pub fn list_read(&mut self, truth: &Truth, began: Instant, rows: &[Report]) {
        self.lists.add(began);
        for row in rows {
            self.read_at(truth, began, row);
        }
    }

    pub fn inspected(
        &mut self,
        truth: &Truth,
        (uid, ticket): (&PodUid, Ticket),
        began: Instant,
        found: &[Report],
        failed: bool,
    ) {
        for report in found {
            let unknown = report.shown == ReportedState::Unknown;
            if let Some(book) = self.read_at(truth, began, report)
                && unknown
            {
                book.unsure = Some(began);
            }
        }
        self.status_reads.insert(began);
        self.last_found = None;
        if self.under_way.remove(&ticket).is_none() {
            return;
        }
        if failed {
            self.failed.insert(uid, ticket);
            self.failing.insert(uid.clone());
        } else {
            self.failing.remove(uid);
            self.retries.remove(uid);
            self.inspections.entry(uid).add(began);
            let ids = found.iter().map(|r| r.id.clone()).collect();
            self.last_found = Some((began, ids));
        }
    }

    // --- what comes out ---

    /// # Errors
    /// A law that is broken.
    pub fn output(&mut self, truth: &Truth, now: u64, output: &Output) -> Lawful {
        self.tally.checked += 1;
        match output {
            Output::Publish { uid, view } => {
                self.tally.path(Path::Published);
                self.publish(truth, now, uid, view)?;
            }
            Output::Remove { uid } => {
                self.tally.path(Path::Withdrawn);
                self.withdraw(truth, now, uid);
            }
            Output::ListApplied { as_of, gone } => self.swept(*as_of, gone)?,
            Output::Refresh { as_of, pods } => {
                self.tally.path(Path::Confirmed);
                self.confirmed(truth, now, *as_of, pods)?;
            }
            Output::Terminals { records, .. } => self.ends(truth, records)?,
            Output::Announce(event) => self.announce(truth, event)?,
            Output::Answer { waiter, answer } => self.answer(truth, now, *waiter, answer)?,
            Output::Listed { outcome, .. } => self.tally.path(match outcome {
                Ok(()) => Path::ListedOk,
                Err(_) => Path::ListedFailed,
            }),
            _ => {}
        }
        Ok(())
    }
}

/// What a status shows, by id; no state where it is unknown.
pub fn states(status: &PodStatus) -> impl Iterator<Item = (&Id, Option<State>)> {
    let sandboxes = status.sandboxes.iter().map(|s| {
        let state = match s.state {
            SandboxState::Ready => Some(State::Running),
            SandboxState::NotReady => Some(State::Exited),
            _ => None,
        };
        (&s.id, state)
    });
    let containers = status.containers.iter().map(|c| {
        let state = match c.state {
            ContainerState::Created => Some(State::Created),
            ContainerState::Running => Some(State::Running),
            ContainerState::Exited => Some(State::Exited),
            _ => None,
        };
        (&c.id, state)
    });
    sandboxes.chain(containers)
}
