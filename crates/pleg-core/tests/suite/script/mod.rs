//! A scripted reconciler for minimal tests: nothing happens by itself, every read waits until it is
//! answered, and time is in milliseconds. Reads are answered by hand (`reads`), or from a model of
//! the node (`node`).

mod consumers;
mod node;
mod reads;
mod reports;
mod stream;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use pleg_core::{
    CallError, Cause, EventType, HeldId, Id, Instant, KnownIds, LifecycleType, Mode, Output,
    PodLifecycleEvent, PodStatus, PodUid, PodView, Reconciler, Report, ReportedState, Settings,
    TerminalRecord, Ticket, WaiterId, WallTime,
};

pub(crate) use consumers::in_short;
pub(crate) use reports::{
    container, exited, failure, nameless, ready, rows, s, sandbox, status, statuses, with_ips,
    with_memory_limit,
};

const WALL: i64 = 1_700_000_000_000_000_000;

#[derive(Clone)]
pub(crate) struct Script {
    pub(crate) machine: Reconciler,
    polls: bool,
    now: u64,
    /// The model of the node, for the reads that `settle` answers. A list row has no details, a
    /// status has all.
    pub(crate) node: Vec<Report>,
    /// Pods of `node` whose inspections fail.
    pub(crate) failing: BTreeMap<PodUid, CallError>,
    /// How long after its request a list or an inspection begins, in nanoseconds.
    pub(crate) begins_after: u64,
    /// How far the local wall clock has stepped, in milliseconds.
    pub(crate) stepped: i64,
    lists: VecDeque<(Ticket, u64, KnownIds)>,
    inspections: VecDeque<Asked>,
    readings: VecDeque<(Ticket, Id)>,
    /// All requested calls, as `list`, `p1 (changed)` (an inspection), `c1 (status)` and `version`.
    requested: Vec<String>,
    /// The ids that the inspection requests named.
    pub(crate) held: Vec<Vec<HeldId>>,
    versions: VecDeque<Ticket>,
    /// What was announced: type, id (or pod), incarnation, exit code.
    pub(crate) announced: Vec<(LifecycleType, String, u32, Option<i32>)>,
    pub(crate) events: Vec<PodLifecycleEvent>,
    /// The last transition that was announced of each incarnation.
    said_last: BTreeMap<(Id, u32), LifecycleType>,
    pub(crate) answers: Vec<(WaiterId, Result<PodView, CallError>)>,
    pub(crate) published: Vec<PodView>,
    pub(crate) withdrawn: Vec<PodUid>,
    /// How many events had been announced before `Synced`.
    pub(crate) synced_after: Option<usize>,
    /// Pods whose end a list has confirmed.
    pub(crate) swept: Vec<PodUid>,
    pub(crate) cancelled: Vec<Ticket>,
    /// The terminal records last published, of any pod.
    pub(crate) ends: Vec<TerminalRecord>,
    /// The terminal records of each pod.
    pub(crate) ends_of: BTreeMap<PodUid, Vec<TerminalRecord>>,
    cache: BTreeMap<PodUid, PodView>,
    pub(crate) swept_as_of: Option<Instant>,
    /// Ids that `node` shows and whose status call returns NotFound.
    pub(crate) hidden: Vec<Id>,
    /// Lists are answered with all rows fully decoded, whatever the request named.
    pub(crate) decodes_all_rows: bool,
    /// How often the stream was to be ended and subscribed again.
    pub(crate) resubscribes: u64,
    waiters: u64,
}

/// A requested inspection.
#[derive(Clone)]
struct Asked {
    ticket: Ticket,
    uid: PodUid,
    at: u64,
    held: Vec<Id>,
}

impl Script {
    /// A pod "p" with the sandbox "s" and the container "c", both running, reported by events.
    pub(crate) fn running() -> Self {
        let mut t = Self::confirmed();
        let c = |shown| [status("c", "p", shown)];
        t.event(EventType::Created, "s", s(), &[]);
        t.event(EventType::Created, "c", s(), &c(ReportedState::Created));
        t.event(EventType::Started, "c", s(), &c(ReportedState::Running));
        t
    }

    pub(crate) fn new() -> Self {
        Self::with(Settings::default())
    }

    /// Lists alone, as upstream's generic PLEG.
    pub(crate) fn polling(change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings::default();
        settings.mode = Mode::Polling;
        change(&mut settings);
        Self::with(settings)
    }

    /// Polling; this node was listed and inspected, and what was announced was taken.
    pub(crate) fn polled(node: Vec<Report>) -> Self {
        let mut t = Self::polling(|_| ());
        t.node = node;
        t.settle();
        t.take_announced();
        t.take_requested();
        t
    }

    pub(crate) fn with(settings: Settings) -> Self {
        let now = 1_000_000_000;
        let mut settings = settings;
        if settings.probe_period == Settings::default().probe_period {
            // Only what a test asks for happens.
            settings.probe_period = Duration::from_secs(24 * 3600);
        }
        let polls = settings.mode == Mode::Polling;
        let machine = Reconciler::new(settings, Instant::from_nanos(now)).expect("valid settings");
        let mut script = Self {
            machine,
            polls,
            now,
            node: Vec::new(),
            failing: BTreeMap::new(),
            begins_after: 1_000,
            stepped: 0,
            lists: VecDeque::new(),
            inspections: VecDeque::new(),
            readings: VecDeque::new(),
            requested: Vec::new(),
            held: Vec::new(),
            versions: VecDeque::new(),
            announced: Vec::new(),
            events: Vec::new(),
            said_last: BTreeMap::new(),
            answers: Vec::new(),
            published: Vec::new(),
            withdrawn: Vec::new(),
            synced_after: None,
            swept: Vec::new(),
            cancelled: Vec::new(),
            ends: Vec::new(),
            ends_of: BTreeMap::new(),
            cache: BTreeMap::new(),
            swept_as_of: None,
            hidden: Vec::new(),
            decodes_all_rows: false,
            resubscribes: 0,
            waiters: 0,
        };
        script.drain();
        script
    }

    /// A reconciler whose stream is confirmed, on an empty node.
    pub(crate) fn confirmed() -> Self {
        Self::confirmed_with(Settings::default())
    }

    pub(crate) fn confirmed_with(settings: Settings) -> Self {
        let mut script = Self::with(settings);
        script.list(&[]);
        script.subscribe();
        script.list(&[]);
        script.pass(1_100);
        while script.lists_wanted() > 0 {
            script.list(&[]);
        }
        script
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    fn wall(&self) -> WallTime {
        WallTime::from_nanos(WALL + self.now as i64 + self.stepped * 1_000_000)
    }

    /// Time passes and timers run; no read is answered.
    pub(crate) fn pass(&mut self, ms: u64) {
        let end = self.now + ms * 1_000_000;
        while let Some(due) = self
            .machine
            .poll_timeout()
            .map(Instant::as_nanos)
            .filter(|&d| d <= end)
        {
            self.now = self.now.max(due);
            self.machine.handle_timeout(self.now());
            self.drain();
        }
        self.now = end;
    }

    /// Time passes; every list returns these rows, every inspection returns `found`.
    pub(crate) fn pass_reading(&mut self, ms: u64, rows: &[Report], found: &[Report]) {
        for _ in 0..ms {
            self.pass(1);
            while self.lists_wanted() > 0 {
                self.list(rows);
            }
            while self.inspection_wanted().is_some() {
                self.inspect(found, &[]);
            }
        }
    }

    pub(crate) fn drain(&mut self) {
        while let Some(output) = self.machine.poll_output() {
            match output {
                Output::List { ticket, known, .. } => {
                    self.requested.push("list".to_owned());
                    self.lists.push_back((ticket, self.now, known));
                }
                Output::Inspect {
                    ticket,
                    uid,
                    held,
                    causes,
                    ..
                } => {
                    let causes: Vec<_> = causes.iter().map(Cause::as_str).collect();
                    self.requested.push(format!("{uid} ({})", causes.join(" ")));
                    self.held.push(held.clone());
                    let (at, held) = (self.now, held.into_iter().map(|held| held.id).collect());
                    self.inspections.push_back(Asked {
                        ticket,
                        uid,
                        at,
                        held,
                    });
                }
                Output::Read { ticket, id, .. } => {
                    self.requested.push(format!("{id} (status)"));
                    self.readings.push_back((ticket, id));
                }
                Output::Version { ticket, .. } => {
                    self.requested.push("version".to_owned());
                    self.versions.push_back(ticket);
                }
                Output::Cancel { ticket } => {
                    self.inspections.retain(|asked| asked.ticket != ticket);
                    self.cancelled.push(ticket);
                }
                Output::Announce(e) => {
                    let (id, n, code) = match &e.subject {
                        Some(s) => (s.id.to_string(), s.incarnation, s.exit_code),
                        None => (e.uid.to_string(), 0, None),
                    };
                    self.check_announcement(&e);
                    self.announced.push((e.event, id, n, code));
                    self.events.push(e);
                }
                Output::Synced => {
                    assert_eq!(self.synced_after, None, "synced once");
                    self.synced_after = Some(self.events.len());
                }
                Output::Publish { uid, view } => {
                    self.published.push(view.clone());
                    self.cache.insert(uid, view);
                }
                Output::ListApplied { as_of, gone } => {
                    self.swept_as_of = Some(as_of);
                    self.swept.extend(gone.iter().cloned());
                    self.cache
                        .retain(|uid, view| !(gone.contains(uid) && view.status.is_nothing()));
                }
                Output::Refresh { as_of, pods } => {
                    for uid in pods.among(self.cache.keys().cloned()) {
                        let view = self.cache.get_mut(&uid).expect("it was published");
                        view.as_of = view.as_of.max(Some(as_of));
                    }
                }
                Output::Terminals { uid, records } => {
                    self.ends = records.to_vec();
                    self.ends_of.insert(uid, records.to_vec());
                }
                Output::Remove { uid } => {
                    let view = self.cache.get_mut(&uid).expect("it was published");
                    *view = PodView::new(nothing(&uid), view.as_of, view.inspected);
                    self.withdrawn.push(uid);
                }
                Output::Answer { waiter, answer } => {
                    assert!(
                        self.answer_of(waiter).is_none(),
                        "{waiter:?} answered twice"
                    );
                    self.answers.push((waiter, answer));
                }
                Output::Resubscribe => {
                    assert!(!self.polls, "while polling there is no stream");
                    self.resubscribes += 1;
                }
                _ => {}
            }
        }
    }
}

fn nothing(uid: &PodUid) -> Arc<PodStatus> {
    Arc::new(PodStatus::nothing(uid.clone()))
}

/// The deadline of the list that the reconciler requests.
pub(crate) fn list_deadline(machine: &mut Reconciler) -> Option<Duration> {
    while let Some(output) = machine.poll_output() {
        if let Output::List { deadline, .. } = output {
            return Some(deadline);
        }
    }
    None
}
