//! The inspection of one pod: which calls it makes, and what their answers add up to.
//!
//! All calls begin after the one stamp and need not wait for each other: what the caller holds is
//! read while the lists run, what a list shows in addition is read as soon as it is shown. So an
//! inspection of a pod that is well known takes as long as its slowest call.
//!
//! The state lives outside of the calls' futures: when the deadline passes, what was read so far
//! is still there (one container whose status hangs does not hide the others, law 11).

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use pleg_runtime::clock::Clock;
use pleg_runtime::core::{
    CallError, CallErrorKind, Id, Identity, Inspection, Kind, PodUid, Report, Ticket,
};
use pleg_runtime::{Row, Runtime, Scope};

use crate::{LIST_CONTAINERS, LIST_SANDBOXES, Limit, status, status_operation};

/// Calls of one inspection that may be under way at once.
const CALLS: usize = 8;

pub(crate) async fn inspect<R: Runtime>(
    runtime: &R,
    clock: &Clock,
    ticket: Ticket,
    uid: &PodUid,
    held: &[(Id, Kind)],
    deadline: Duration,
) -> Inspection {
    let began = clock.now();
    let limit = Limit::new(clock, deadline);
    let mut survey = Survey::new(uid, held);
    let mut calls = FuturesUnordered::new();
    loop {
        while calls.len() < CALLS
            && let Some(call) = survey.next_call()
        {
            calls.push(perform(runtime, call));
        }
        match tokio::time::timeout_at(limit.at, calls.next()).await {
            Ok(Some((call, answer))) => survey.answered(call, answer),
            Ok(None) => break,
            Err(_elapsed) => {
                survey.failed(limit.over(survey.oldest_under_way()));
                break;
            }
        }
    }
    let read = survey.result();
    Inspection {
        ticket,
        began,
        ended: clock.now(),
        ..read
    }
}

#[derive(Clone, PartialEq)]
enum Call {
    Sandboxes(PodUid),
    Containers(Scope),
    Status(Id, Kind),
}

impl Call {
    const fn operation(&self) -> &'static str {
        match self {
            Self::Sandboxes(_) => LIST_SANDBOXES,
            Self::Containers(_) => LIST_CONTAINERS,
            Self::Status(_, kind) => status_operation(*kind),
        }
    }
}

/// The rows of a list, or the one report of a status.
type Answer = Result<Vec<Report>, CallError>;

async fn perform<R: Runtime>(runtime: &R, call: Call) -> (Call, Answer) {
    let mut rows = Vec::new();
    let mut row = |row: Row<'_>| rows.extend(row.report());
    let done = match &call {
        Call::Sandboxes(uid) => {
            runtime
                .list_sandboxes(&Scope::Pod(uid.clone()), &mut row)
                .await
        }
        Call::Containers(scope) => runtime.list_containers(scope, &mut row).await,
        Call::Status(id, kind) => status(runtime, id, *kind)
            .await
            .map(|report| row(report.into())),
    };
    (call, done.map(|()| rows))
}

/// What is known of one id in the course of the inspection.
#[derive(Default)]
struct Entry {
    held: bool,
    /// What a list of this inspection said of it.
    row: Option<Report>,
    status: Option<Report>,
    not_found: bool,
}

struct Survey {
    waiting: VecDeque<Call>,
    under_way: Vec<Call>,
    ids: BTreeMap<Id, Entry>,
    error: Option<CallError>,
}

impl Survey {
    fn new(uid: &PodUid, held: &[(Id, Kind)]) -> Self {
        let lists = [
            Call::Sandboxes(uid.clone()),
            Call::Containers(Scope::Pod(uid.clone())),
        ];
        let mut survey = Self {
            waiting: lists.into(),
            under_way: Vec::new(),
            ids: BTreeMap::new(),
            error: None,
        };
        for (id, kind) in held {
            survey.entry(id, *kind).held = true;
        }
        survey
    }

    /// The entry of an id; one that is new here gets its calls.
    ///
    /// Every sandbox gets a list of its own. It is never provably redundant: the list by uid
    /// selects by a label, and nothing obliges whoever created a container to label it.
    fn entry(&mut self, id: &Id, kind: Kind) -> &mut Entry {
        if !self.ids.contains_key(id) {
            if kind == Kind::Sandbox {
                self.waiting
                    .push_back(Call::Containers(Scope::Sandbox(id.clone())));
            }
            self.waiting.push_back(Call::Status(id.clone(), kind));
        }
        self.ids.entry(id.clone()).or_default()
    }

    fn next_call(&mut self) -> Option<Call> {
        let call = self.waiting.pop_front()?;
        self.under_way.push(call.clone());
        Some(call)
    }

    fn answered(&mut self, call: Call, answer: Answer) {
        self.under_way.retain(|other| *other != call);
        match (call, answer) {
            (Call::Status(id, kind), Ok(reports)) => {
                self.entry(&id, kind).status = reports.into_iter().next();
            }
            (Call::Status(id, kind), Err(error)) if error.kind == CallErrorKind::NotFound => {
                self.entry(&id, kind).not_found = true;
            }
            (Call::Sandboxes(_) | Call::Containers(_), Ok(rows)) => {
                for row in rows {
                    match &mut self.entry(&row.id, row.identity.kind).row {
                        Some(known) => merge_identity(&mut known.identity, &row.identity),
                        unseen => *unseen = Some(row),
                    }
                }
            }
            (_, Err(error)) => self.failed(error),
        }
    }

    fn failed(&mut self, error: CallError) {
        self.error.get_or_insert(error);
    }

    fn oldest_under_way(&self) -> &'static str {
        self.under_way
            .first()
            .map_or(LIST_SANDBOXES, Call::operation)
    }

    /// What was read, without stamps. A partial inspection names nothing gone: no absence follows
    /// from it.
    fn result(self) -> Inspection {
        let complete = self.error.is_none();
        let mut read = Inspection::new(self.error);
        for (id, entry) in self.ids {
            match (entry.status, entry.row) {
                (Some(mut report), row) => {
                    if let Some(row) = &row {
                        merge_identity(&mut report.identity, &row.identity);
                    }
                    read.found.push(report);
                }
                (None, Some(row)) if complete && entry.not_found => read.denied.push(row),
                (None, None) if complete && entry.not_found && entry.held => read.gone.push(id),
                (None, _) => {}
            }
        }
        read
    }
}

/// Fills what `identity` leaves open. A container's status does not say which sandbox it is in
/// (CRI v1 has no such field); only its list row does.
fn merge_identity(identity: &mut Identity, row: &Identity) {
    fn fill<T: Clone>(field: &mut Option<T>, from: &Option<T>) {
        if field.is_none() {
            field.clone_from(from);
        }
    }
    fill(&mut identity.pod, &row.pod);
    fill(&mut identity.namespace, &row.namespace);
    fill(&mut identity.pod_name, &row.pod_name);
    fill(&mut identity.sandbox, &row.sandbox);
    fill(&mut identity.name, &row.name);
    fill(&mut identity.created_at, &row.created_at);
}
