//! Checks: what was announced and cached, against what was done and what the runtime lists.

use std::collections::BTreeMap;

use pleg::core::{
    ContainerState, Id, Instant, Kind, LifecycleType, PodLifecycleEvent, PodView, Report,
    ReportedState, SandboxState,
};
use pleg::runtime::{Runtime, Scope};
use pleg::{Delivery, Pleg, Subscription};

use crate::kubelet::{Deed, Deeds};
use crate::tap::{Heard, Log};

/// What was announced, by id, in order.
#[derive(Debug, Default)]
pub struct Announced {
    by_id: BTreeMap<(Id, u32), Vec<PodLifecycleEvent>>,
    wrong: Vec<String>,
}

impl Announced {
    /// Takes in all that is there now.
    pub fn drain(&mut self, subscription: &mut Subscription) {
        while let Some(delivery) = subscription.try_next() {
            match delivery {
                Delivery::Event(event) => self.take(event),
                Delivery::Synced => {}
                other => self.wrong.push(format!("{other:?}")),
            }
        }
    }

    fn take(&mut self, event: PodLifecycleEvent) {
        if let Some(subject) = event.subject.clone() {
            self.by_id
                .entry((subject.id, subject.incarnation))
                .or_default()
                .push(event);
        }
    }

    /// The types announced of an id's first incarnation.
    pub fn types(&self, id: &Id) -> Vec<LifecycleType> {
        let events = self.by_id.get(&(id.clone(), 0));
        events.into_iter().flatten().map(|e| e.event).collect()
    }

    /// Whether that was announced of the id.
    pub fn has(&self, id: &Id, what: LifecycleType) -> bool {
        self.types(id).contains(&what)
    }

    /// When the end of the id's first incarnation was detected, and its exit code.
    pub fn died(&self, id: &Id) -> Option<(Instant, Option<i32>)> {
        let mut events = self.by_id.get(&(id.clone(), 0))?.iter();
        let died = events.find(|e| e.event == LifecycleType::ContainerDied)?;
        Some((died.detected, died.subject.as_ref()?.exit_code))
    }

    /// How many beliefs were overruled.
    pub fn reborn(&self) -> usize {
        self.by_id
            .keys()
            .filter(|(_, incarnation)| *incarnation > 0)
            .count()
    }

    /// The sources of what was announced, counted.
    pub fn sources(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for event in self.by_id.values().flatten() {
            *counts.entry(event.source.as_str()).or_default() += 1;
        }
        counts
    }

    /// What no circumstance excuses: something announced twice, out of order, or with a wrong
    /// exit code; a lagging subscriber.
    pub fn never_wrong(&self, deeds: &Deeds) -> Vec<String> {
        let mut wrong = self.wrong.clone();
        for ((id, incarnation), events) in &self.by_id {
            let types: Vec<_> = events.iter().map(|e| e.event).collect();
            for what in [
                LifecycleType::ContainerStarted,
                LifecycleType::ContainerDied,
                LifecycleType::ContainerRemoved,
            ] {
                if types.iter().filter(|t| **t == what).count() > 1 {
                    wrong.push(format!("{id}#{incarnation}: {what} twice: {types:?}"));
                }
            }
            let place = |what| types.iter().position(|t| *t == what);
            let (started, died, removed) = (
                place(LifecycleType::ContainerStarted),
                place(LifecycleType::ContainerDied),
                place(LifecycleType::ContainerRemoved),
            );
            let out_of_order = (started > died && died.is_some())
                || (died > removed && removed.is_some())
                || (started > removed && removed.is_some());
            if out_of_order {
                wrong.push(format!("{id}#{incarnation}: out of order: {types:?}"));
            }
            let Some(deed) = deeds.get(id).filter(|d| d.kind == Kind::Container) else {
                continue;
            };
            let died = events
                .iter()
                .filter(|e| e.event == LifecycleType::ContainerDied);
            for code in died
                .filter_map(|e| e.subject.as_ref())
                .filter_map(|s| s.exit_code)
            {
                if code != deed.exit_code {
                    wrong.push(format!(
                        "{} ({id}): exit code {code}, not {}",
                        deed.name, deed.exit_code
                    ));
                }
            }
        }
        wrong
    }

    /// What is missing of what was done, if every transition can be heard of: Started unless the
    /// end was reported first, Died, Removed.
    pub fn missing(&self, deeds: &Deeds, heard: Option<&Log>) -> Vec<String> {
        let mut missing = Vec::new();
        for (id, deed) in deeds {
            let types = self.types(id);
            let mut need = |what: LifecycleType| {
                if !types.contains(&what) {
                    missing.push(format!("{} ({id}): no {what}: {types:?}", deed.name));
                }
            };
            let told_late = heard.is_some_and(|log| end_before_start(log, id));
            if deed.started && !told_late {
                need(LifecycleType::ContainerStarted);
            }
            if deed.removed {
                need(LifecycleType::ContainerDied);
                need(LifecycleType::ContainerRemoved);
            }
        }
        missing
    }

    /// Ends that were announced without an exit code although something showed them.
    pub fn without_code(&self, deeds: &Deeds, heard: Option<&Log>) -> Vec<String> {
        let shown = |id: &Id| heard.is_none_or(|log| end_told(log, id));
        deeds
            .iter()
            .filter(|(id, deed)| deed.started && shown(id) && self.died_without_code(id, deed))
            .map(|(id, deed)| {
                let heard = heard.into_iter().flat_map(|log| &log.events);
                let of_it: Vec<_> = heard.filter(|h| h.id == *id).collect();
                format!("{} ({id}): no exit code; heard {of_it:?}", deed.name)
            })
            .collect()
    }

    fn died_without_code(&self, id: &Id, deed: &Deed) -> bool {
        deed.kind == Kind::Container && matches!(self.died(id), Some((_, None)))
    }
}

/// Whether anything showed an id as ended before its removal was told. A container that is removed
/// as soon as it has stopped may be gone before containerd reads what its STOPPED is to show, and its
/// DELETED may come first: then Died comes with that, and nobody can know the code.
fn end_told(log: &Log, id: &Id) -> bool {
    use pleg::core::EventType::Deleted;
    let is_removal = |heard: &&Heard| heard.id == *id && heard.event == Deleted;
    let until_removed = log.events.iter().take_while(|heard| !is_removal(heard));
    let read = matches!(log.read_first.get(id), Some((ReportedState::Exited, _)));
    read || until_removed
        .into_iter()
        .any(|h| h.shows(id, ReportedState::Exited))
}

/// Whether the stream or a read told of the end of an id before anything in the stream showed the
/// id running (containerd starts to watch for the end before it sends STARTED, and reads what its
/// events show before it sends them): then Died comes alone.
fn end_before_start(log: &Log, id: &Id) -> bool {
    use pleg::core::EventType::{Started, Stopped};
    let read_ended = match log.read_first.get(id) {
        Some((ReportedState::Exited, heard)) => Some(*heard),
        _ => None,
    };
    for (before, heard) in log.events.iter().enumerate() {
        if read_ended.is_some_and(|heard| heard <= before) {
            return true;
        }
        if heard.shows(id, ReportedState::Running) || (heard.id == *id && heard.event == Started) {
            return false;
        }
        if heard.id == *id && heard.event == Stopped {
            return true;
        }
    }
    false
}

/// What a listing shows and was not announced as such, and what was announced, is not listed any
/// more, and was not announced as removed.
pub fn unannounced(
    listed: &BTreeMap<Id, ReportedState>,
    deeds: &Deeds,
    announced: &Announced,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for (id, deed) in deeds {
        let said = announced.types(id);
        let due = match listed.get(id) {
            Some(ReportedState::Running) => LifecycleType::ContainerStarted,
            Some(ReportedState::Exited) => LifecycleType::ContainerDied,
            // Of what came and went unseen nothing is said.
            None if !said.is_empty() => LifecycleType::ContainerRemoved,
            _ => continue,
        };
        let gone = said.contains(&LifecycleType::ContainerRemoved);
        if !said.contains(&due) || (gone && listed.contains_key(id)) {
            let shown = listed.get(id);
            wrong.push(format!(
                "{} ({id}) is listed {shown:?}, said: {said:?}",
                deed.name
            ));
        }
    }
    wrong
}

/// What the runtime lists: the state of every id.
///
/// # Errors
/// If it cannot be listed.
pub async fn listing<R: Runtime>(runtime: &R) -> anyhow::Result<BTreeMap<Id, ReportedState>> {
    let mut rows: Vec<Report> = Vec::new();
    runtime
        .list_sandboxes(&Scope::Node, &mut |row| rows.extend(row.report()))
        .await?;
    runtime
        .list_containers(&Scope::Node, &mut |row| rows.extend(row.report()))
        .await?;
    Ok(rows.into_iter().map(|r| (r.id, r.shown)).collect())
}

/// What the cache holds: the state of every id.
pub fn cached(pleg: &Pleg) -> BTreeMap<Id, ReportedState> {
    pleg.snapshot().iter().flat_map(states).collect()
}

/// The state of every id in a view.
pub fn states(view: &PodView) -> Vec<(Id, ReportedState)> {
    let sandboxes = view.status.sandboxes.iter().map(|s| {
        let shown = match s.state {
            SandboxState::Ready => ReportedState::Running,
            SandboxState::NotReady => ReportedState::Exited,
            _ => ReportedState::Unknown,
        };
        (s.id.clone(), shown)
    });
    let containers = view.status.containers.iter().map(|c| {
        let shown = match c.state {
            ContainerState::Created => ReportedState::Created,
            ContainerState::Running => ReportedState::Running,
            ContainerState::Exited => ReportedState::Exited,
            _ => ReportedState::Unknown,
        };
        (c.id.clone(), shown)
    });
    sandboxes.chain(containers).collect()
}

/// How the cache differs from what the runtime lists.
///
/// # Errors
/// The differences, or that the runtime cannot be listed.
pub async fn cache_is_right<R: Runtime>(pleg: &Pleg, runtime: &R) -> Result<(), Vec<String>> {
    let listed = listing(runtime).await.map_err(|e| vec![format!("{e:#}")])?;
    let cached = cached(pleg);
    let mut wrong = Vec::new();
    for (id, shown) in &listed {
        match cached.get(id) {
            None => wrong.push(format!("{id} is listed {shown:?} and not cached")),
            Some(c) if c != shown => wrong.push(format!("{id} is listed {shown:?}, cached {c:?}")),
            Some(_) => {}
        }
    }
    for (id, shown) in cached.iter().filter(|(id, _)| !listed.contains_key(*id)) {
        wrong.push(format!("{id} is cached {shown:?} and not listed"));
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}
