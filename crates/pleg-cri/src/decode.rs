//! A message of the event stream, from its bytes straight to the domain.
//!
//! Most of what an event says was said before. It is compared where it lies with what the last
//! event told of the same id, and only what differs is copied.
//!
//! The meaning of every field is [`convert`]'s, and prost's words are the last: whatever is not as
//! an encoder of this contract writes it is decoded by prost and converted.

mod fields;

use std::sync::Arc;

use pleg_runtime::core::{
    ContainerDetails, Details, Identity, Kind, Labels, PodUid, Report, Resources, RuntimeEvent,
    SandboxDetails, Shown, Text,
};
use prost::{DecodeError, Message as _};

use crate::convert::{self, POD_NAME, POD_NAMESPACE, POD_UID};
use crate::pool::{Pool, Told};
use crate::v1;
use crate::wire::{Pair, Unusual, text};
use fields::{Container, Event, Linux, Metadata, Sandbox};

/// Decodes the events of one stream.
#[derive(Debug, Default)]
pub struct EventDecoder {
    pool: Pool,
    told: Told,
}

impl EventDecoder {
    /// One that has seen nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The event in that message; `None` if it names nothing.
    ///
    /// # Errors
    /// If the bytes are no such message. What is wrong in fields that mean nothing here goes
    /// unseen.
    pub fn read(&mut self, message: &[u8]) -> Result<Option<RuntimeEvent>, DecodeError> {
        let event = Event::read(message).and_then(|mut event| self.event(&mut event));
        event.map(Some).or_else(|Unusual| {
            let event = v1::ContainerEventResponse::decode(message)?;
            Ok(convert::event_with(event, &mut self.pool))
        })
    }

    fn event(&mut self, event: &mut Event<'_>) -> Result<RuntimeEvent, Unusual> {
        if event.id.is_empty() {
            return Err(Unusual);
        }
        let sandbox = event.sandbox.as_mut().map(|s| self.sandbox(s));
        let sandbox = sandbox.transpose()?;
        let mut containers = Vec::with_capacity(event.containers.len());
        for said in &mut event.containers {
            if said.size == 0 {
                // Quirk `empty container statuses`.
                convert::named("");
            } else {
                containers.push(self.container(said)?);
            }
        }
        // The subject is nearly always one of those that are shown: one text for both.
        let mut shown = sandbox.iter().chain(&containers);
        let id = match shown.find(|report| report.id.as_str().as_bytes() == event.id) {
            Some(own) => own.id.clone(),
            None => text(event.id)?.into(),
        };
        let (kind, created_at) = (event.kind, event.created_at);
        if kind == v1::ContainerEventType::ContainerDeletedEvent as i32 {
            self.told.forget(id.as_str().as_bytes());
        }
        Ok(convert::put_together(
            id, kind, created_at, sandbox, containers,
        ))
    }

    fn sandbox(&mut self, said: &mut Sandbox<'_>) -> Result<Report, Unusual> {
        let Self { pool, told } = self;
        let before = told.of(some_id(said.id)?);
        let old = before.and_then(|r| match &r.details {
            Details::Sandbox(details) => Some(details),
            Details::Container(_) => None,
        });
        let labels = labels(pool, &mut said.labels, old.map(|d| &d.labels))?;
        let annotations = self::labels(pool, &mut said.annotations, old.map(|d| &d.annotations))?;
        let handler = shared(pool, said.runtime_handler, old.map(|d| &d.runtime_handler))?;
        let Metadata {
            name,
            uid,
            namespace,
            attempt,
        } = said.metadata;
        let who = before.map(|r| &r.identity);
        let labelled = or_label(&[], &labels, POD_UID);
        let named = or_label(uid, &labels, POD_UID);
        let identity = Identity {
            kind: Kind::Sandbox,
            unlabelled: labelled.is_none() || labelled != named,
            pod: pod(named, who)?,
            namespace: self::namespace(pool, or_label(namespace, &labels, POD_NAMESPACE), who)?,
            pod_name: pod_name(or_label(name, &labels, POD_NAME), who)?,
            sandbox: None,
            name: None,
            attempt,
            created_at: convert::time(said.created_at),
        };
        let details = SandboxDetails {
            ips: addresses(&said.ips, old.map(|d| &d.ips[..]))?,
            runtime_handler: handler,
            labels,
            annotations,
        };
        let details = match old.filter(|old| ***old == details) {
            Some(old) => Details::Sandbox(old.clone()),
            None => Details::from(details),
        };
        let shown = convert::sandbox_shown(said.state);
        let (report, again) = report(before, said.id, shown, identity, details)?;
        if !again {
            told.remember(&report, said.size);
        }
        Ok(report)
    }

    fn container(&mut self, said: &mut Container<'_>) -> Result<Report, Unusual> {
        let Self { pool, told } = self;
        let before = told.of(some_id(said.id)?);
        let old = before.and_then(|r| match &r.details {
            Details::Container(details) => Some(details),
            Details::Sandbox(_) => None,
        });
        let labels = labels(pool, &mut said.labels, old.map(|d| &d.labels))?;
        let annotations = self::labels(pool, &mut said.annotations, old.map(|d| &d.annotations))?;
        let who = before.map(|r| &r.identity);
        let name = shared(pool, said.name, who.and_then(|i| i.name.as_ref()))?;
        let labelled = or_label(&[], &labels, POD_UID);
        let identity = Identity {
            kind: Kind::Container,
            unlabelled: labelled.is_none(),
            pod: pod(labelled, who)?,
            namespace: namespace(pool, or_label(&[], &labels, POD_NAMESPACE), who)?,
            pod_name: pod_name(or_label(&[], &labels, POD_NAME), who)?,
            sandbox: None,
            name: Some(name).filter(|name| !name.is_empty()),
            attempt: said.attempt,
            created_at: convert::time(said.created_at),
        };
        let shown = convert::container_shown(said.state);
        let linux = said.resources.as_mut();
        let linux = linux.map(|l| resources(pool, l, old.and_then(|d| d.resources.as_ref())));
        let details = ContainerDetails {
            started_at: convert::time_unless_zero(said.started_at),
            finished_at: convert::time_unless_zero(said.finished_at),
            exit_code: convert::exit_code(shown, said.exit_code),
            reason: shared(pool, said.reason, old.map(|d| &d.reason))?,
            message: own(said.message, old.map(|d| &d.message))?,
            image: shared(pool, said.image, old.map(|d| &d.image))?,
            image_ref: shared(pool, said.image_ref, old.map(|d| &d.image_ref))?,
            image_id: shared(pool, said.image_id, old.map(|d| &d.image_id))?,
            log_path: own(said.log_path, old.map(|d| &d.log_path))?,
            resources: linux.transpose()?,
            labels,
            annotations,
        };
        let details = match old.filter(|old| ***old == details) {
            Some(old) => Details::Container(old.clone()),
            None => Details::from(details),
        };
        let (report, again) = report(before, said.id, shown, identity, details)?;
        if !again {
            told.remember(&report, said.size);
        }
        Ok(report)
    }
}

/// An id that names something; prost and the conversion know what to do without.
const fn some_id(id: &[u8]) -> Result<&[u8], Unusual> {
    match id {
        [] => Err(Unusual),
        id => Ok(id),
    }
}

/// The report, and whether it is all that was told of the id before.
fn report(
    before: Option<&Report>,
    id: &[u8],
    shown: Shown,
    identity: Identity,
    details: Details,
) -> Result<(Report, bool), Unusual> {
    let again = before.is_some_and(|r| r.identity == identity && r.details == details);
    let id = match before {
        Some(report) => report.id.clone(),
        None => text(id)?.into(),
    };
    let report = Report {
        id,
        shown,
        identity,
        details,
    };
    Ok((report, again))
}

/// What is said, or else the label; nothing if that is empty, too.
fn or_label<'a>(said: &'a [u8], labels: &'a Labels, key: &str) -> Option<&'a [u8]> {
    let label = || labels.get(key).map(str::as_bytes);
    let non_empty = |text: &&[u8]| !text.is_empty();
    Some(said)
        .filter(non_empty)
        .or_else(label)
        .filter(non_empty)
}

fn pod(said: Option<&[u8]>, before: Option<&Identity>) -> Result<Option<PodUid>, Unusual> {
    let Some(said) = said else { return Ok(None) };
    let before = before.and_then(|i| i.pod.as_ref());
    Ok(Some(
        match before.filter(|uid| uid.as_str().as_bytes() == said) {
            Some(uid) => uid.clone(),
            None => text(said)?.into(),
        },
    ))
}

fn namespace(
    pool: &mut Pool,
    said: Option<&[u8]>,
    before: Option<&Identity>,
) -> Result<Option<Text>, Unusual> {
    let before = before.and_then(|i| i.namespace.as_ref());
    said.map(|said| shared(pool, said, before)).transpose()
}

fn pod_name(said: Option<&[u8]>, before: Option<&Identity>) -> Result<Option<Text>, Unusual> {
    let before = before.and_then(|i| i.pod_name.as_ref());
    said.map(|said| own(said, before)).transpose()
}

/// A text that many ids have in common.
fn shared(pool: &mut Pool, said: &[u8], before: Option<&Text>) -> Result<Text, Unusual> {
    match before.filter(|before| before.as_bytes() == said) {
        Some(before) => Ok(before.clone()),
        None => pool.text(said),
    }
}

/// A text of one id alone.
fn own(said: &[u8], before: Option<&Text>) -> Result<Text, Unusual> {
    match before.filter(|before| before.as_bytes() == said) {
        Some(before) => Ok(before.clone()),
        None if said.is_empty() => Ok(Text::default()),
        None => Ok(text(said)?.into()),
    }
}

fn addresses(said: &[&[u8]], before: Option<&[Text]>) -> Result<Box<[Text]>, Unusual> {
    let before = before.unwrap_or_default();
    let mut addresses = Vec::with_capacity(said.len());
    for said in said {
        match before.iter().find(|address| address.as_bytes() == *said) {
            Some(address) => addresses.push(address.clone()),
            None => addresses.extend(convert::address(text(said)?)),
        }
    }
    Ok(addresses.into())
}

fn labels(
    pool: &mut Pool,
    said: &mut [Pair<'_>],
    before: Option<&Labels>,
) -> Result<Labels, Unusual> {
    match before.filter(|before| are_all(said, before)) {
        Some(before) => Ok(before.clone()),
        None => pool.labels(said),
    }
}

/// Whether those pairs, in whatever order, are all of these labels.
fn are_all(said: &[Pair<'_>], labels: &Labels) -> bool {
    let mut met = 0u64;
    let is_there = |(key, value): &Pair<'_>| {
        labels.position(key).is_some_and(|at| {
            let bit = 1u64.checked_shl(at as u32).unwrap_or(0);
            let first = met & bit == 0;
            met |= bit;
            first && bit != 0 && labels.value(at).as_bytes() == *value
        })
    };
    said.len() == labels.len() && said.iter().all(is_there)
}

fn resources(
    pool: &mut Pool,
    linux: &mut Linux<'_>,
    before: Option<&Arc<Resources>>,
) -> Result<Arc<Resources>, Unusual> {
    let resources = Resources {
        cpu_period: linux.cpu_period,
        cpu_quota: linux.cpu_quota,
        cpu_shares: linux.cpu_shares,
        memory_limit: linux.memory_limit,
        memory_swap_limit: linux.memory_swap_limit,
        cpuset_cpus: shared(pool, linux.cpuset_cpus, before.map(|r| &r.cpuset_cpus))?,
        cpuset_mems: shared(pool, linux.cpuset_mems, before.map(|r| &r.cpuset_mems))?,
        unified: labels(pool, &mut linux.unified, before.map(|r| &r.unified))?,
    };
    Ok(match before.filter(|before| ***before == resources) {
        Some(before) => before.clone(),
        None => pool.resources(resources),
    })
}
