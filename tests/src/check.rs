//! Compares a generator's announcements and cache with the kubelet's calls and with the runtime's lists.

use std::collections::BTreeMap;

use pleg::core::{
    ContainerState, Id, Instant, Kind, LifecycleType, PodLifecycleEvent, PodView, Report,
    ReportedState, SandboxState,
};
use pleg::runtime::{Runtime, Scope};
use pleg::{Delivery, Pleg, Subscription};

use crate::kubelet::{Object, Objects};
use crate::recording::{Log, ReceivedEvent};

/// The events that a generator has announced, by the id of their sandbox or container.
#[derive(Debug, Default)]
pub struct Announcements {
    by_id: BTreeMap<Id, Vec<PodLifecycleEvent>>,
    wrong: Vec<String>,
}

impl Announcements {
    /// Takes everything that the subscription can deliver now.
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
            self.by_id.entry(subject.id).or_default().push(event);
        }
    }

    /// The types of the events announced about an id, in order.
    pub fn types(&self, id: &Id) -> Vec<LifecycleType> {
        let events = self.by_id.get(id);
        events.into_iter().flatten().map(|e| e.event).collect()
    }

    /// Returns true if an event of the type `what` was announced about the id.
    pub fn has(&self, id: &Id, what: LifecycleType) -> bool {
        self.types(id).contains(&what)
    }

    /// The instant at which the generator detected the exit of the id, and the exit code.
    pub fn died(&self, id: &Id) -> Option<(Instant, Option<i32>)> {
        let mut events = self.by_id.get(id)?.iter();
        let died = events.find(|e| e.event == LifecycleType::ContainerDied)?;
        Some((died.detected, died.subject.as_ref()?.exit_code))
    }

    /// The number of announcements from each source.
    pub fn sources(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for event in self.by_id.values().flatten() {
            *counts.entry(event.source.as_str()).or_default() += 1;
        }
        counts
    }

    /// Announcements that are repeated, out of order or have a wrong exit code, and notices that the subscription lags.
    pub fn wrong(&self, objects: &Objects) -> Vec<String> {
        let mut wrong = self.wrong.clone();
        for (id, events) in &self.by_id {
            let types: Vec<_> = events.iter().map(|e| e.event).collect();
            let steps: Vec<_> = types.iter().filter_map(|t| step(*t)).collect();
            if !steps.is_sorted_by(|a, b| a < b) {
                wrong.push(format!("{id}: {types:?}"));
            }
            let Some(object) = objects.get(id).filter(|d| d.kind == Kind::Container) else {
                continue;
            };
            let subjects = events.iter().filter_map(|e| e.subject.as_ref());
            for code in subjects.filter_map(|s| s.exit_code) {
                if code != object.exit_code {
                    let (name, expected) = (&object.name, object.exit_code);
                    wrong.push(format!("{name} ({id}): exit code {code}, not {expected}"));
                }
            }
        }
        wrong
    }

    /// Missing announcements. Started need not be announced if the `received` events showed the exit first.
    pub fn missing(&self, objects: &Objects, received: Option<&Log>) -> Vec<String> {
        let mut missing = Vec::new();
        for (id, object) in objects {
            let types = self.types(id);
            let mut need = |what: LifecycleType| {
                if !types.contains(&what) {
                    missing.push(format!("{} ({id}): no {what}: {types:?}", object.name));
                }
            };
            let ended_first = received.is_some_and(|log| end_shown_before_start(log, id));
            if object.started && !ended_first {
                need(LifecycleType::ContainerStarted);
            }
            if object.removed {
                need(LifecycleType::ContainerDied);
                need(LifecycleType::ContainerRemoved);
            }
        }
        missing
    }

    /// Exits that were announced without an exit code although an event or a read had shown the code.
    pub fn without_code(&self, objects: &Objects, received: Option<&Log>) -> Vec<String> {
        let shown = |id: &Id| received.is_none_or(|log| end_was_shown(log, id));
        objects
            .iter()
            .filter(|(id, object)| {
                object.started && shown(id) && self.died_without_code(id, object)
            })
            .map(|(id, object)| {
                let received = received.into_iter().flat_map(|log| &log.events);
                let of_it: Vec<_> = received.filter(|event| event.id == *id).collect();
                format!("{} ({id}): no exit code; received {of_it:?}", object.name)
            })
            .collect()
    }

    /// Returns true if Died was announced, but no event about the id has the exit code. (If the generator finds the
    /// code only after the removal, it announces the code with ContainerChanged.)
    fn died_without_code(&self, id: &Id, object: &Object) -> bool {
        let mut subjects = self.by_id.get(id).into_iter().flatten().map(|e| &e.subject);
        let is_unknown = subjects.all(|s| s.as_ref().is_none_or(|s| s.exit_code.is_none()));
        object.kind == Kind::Container && self.died(id).is_some() && is_unknown
    }
}

/// The position of an announcement in the lifecycle of an id. `None`: the type has no fixed position.
const fn step(event: LifecycleType) -> Option<u8> {
    match event {
        LifecycleType::ContainerStarted => Some(0),
        LifecycleType::ContainerDied => Some(1),
        LifecycleType::ContainerRemoved => Some(2),
        _ => None,
    }
}

/// Returns true if an event or a read showed the exit of an id before DELETED arrived. If a container is removed as
/// soon as it has stopped, containerd may send STOPPED without the container's status, or DELETED before STOPPED. Then
/// the generator cannot know the exit code.
fn end_was_shown(log: &Log, id: &Id) -> bool {
    use pleg::core::EventType::Deleted;
    let is_removal = |event: &&ReceivedEvent| event.id == *id && event.event == Deleted;
    let until_removed = log.events.iter().take_while(|event| !is_removal(event));
    let read = matches!(log.read_first.get(id), Some((ReportedState::Exited, _)));
    read || until_removed
        .into_iter()
        .any(|h| h.shows(id, ReportedState::Exited))
}

/// Returns true if an event or a read showed an id as exited before any event showed it as running. The generator then
/// announces Died without Started. (containerd can cause this order: it begins to watch for the exit before it sends
/// STARTED, and it reads the statuses for an event before it sends the event.)
fn end_shown_before_start(log: &Log, id: &Id) -> bool {
    use pleg::core::EventType::{Started, Stopped};
    let read_ended = match log.read_first.get(id) {
        Some((ReportedState::Exited, received)) => Some(*received),
        _ => None,
    };
    for (before, event) in log.events.iter().enumerate() {
        if read_ended.is_some_and(|received| received <= before) {
            return true;
        }
        if event.shows(id, ReportedState::Running) || (event.id == *id && event.event == Started) {
            return false;
        }
        if event.id == *id && event.event == Stopped {
            return true;
        }
    }
    false
}

/// Ids whose listed state or whose removal was not announced, and listed ids that were announced as removed.
pub fn unannounced(
    listed: &BTreeMap<Id, ReportedState>,
    objects: &Objects,
    announced: &Announcements,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for (id, object) in objects {
        let types = announced.types(id);
        let due = match listed.get(id) {
            Some(ReportedState::Running) => LifecycleType::ContainerStarted,
            Some(ReportedState::Exited) => LifecycleType::ContainerDied,
            // The generator does not announce the removal of an id that it never saw.
            None if !types.is_empty() => LifecycleType::ContainerRemoved,
            _ => continue,
        };
        let gone = types.contains(&LifecycleType::ContainerRemoved);
        if !types.contains(&due) || (gone && listed.contains_key(id)) {
            let shown = listed.get(id);
            wrong.push(format!(
                "{} ({id}) is listed {shown:?}, announced: {types:?}",
                object.name
            ));
        }
    }
    wrong
}

/// The state of every id that the runtime lists.
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

/// The state of every id in the cache.
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

/// Compares the cache with the runtime's lists.
pub async fn compare_cache<R: Runtime>(pleg: &Pleg, runtime: &R) -> Result<(), Vec<String>> {
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
