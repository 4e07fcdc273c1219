//! Decodes messages of the event stream directly to domain types.
//!
//! Most fields of an event have the same values as in the previous event of the same id. The decoder
//! compares them in the buffer, and copies only those that differ.
//!
//! [`convert`] defines the meaning of every field. A message that is not encoded in the usual way is
//! decoded with prost and converted, so that prost also decides what is malformed.

mod fields;

use std::sync::Arc;

use pleg_runtime::core::{
    ContainerDetails, Details, Identity, Kind, Labels, PodUid, Report, ReportedState, Resources,
    RuntimeEvent, SandboxDetails, Text,
};
use prost::{DecodeError, Message as _};

use crate::convert::{self, POD_NAME, POD_NAMESPACE, POD_UID};
use crate::interner::{Interner, LastReports};
use crate::v1;
use crate::wire::{Fallback, Pair, text};
use fields::{Container, Event, Linux, Metadata, Sandbox};

/// Decodes the events of one stream.
#[derive(Debug, Default)]
pub struct EventDecoder {
    interner: Interner,
    last_reports: LastReports,
}

impl EventDecoder {
    /// Creates a decoder for a new stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Decodes a message. `None` if the event has no id.
    ///
    /// # Errors
    /// If the message is malformed. Fields that are not used are not checked.
    pub fn read(&mut self, message: &[u8]) -> Result<Option<RuntimeEvent>, DecodeError> {
        let event = Event::read(message).and_then(|mut event| self.event(&mut event));
        event.map(Some).or_else(|Fallback| {
            let event = v1::ContainerEventResponse::decode(message)?;
            Ok(convert::event_with(event, &mut self.interner))
        })
    }

    fn event(&mut self, event: &mut Event<'_>) -> Result<RuntimeEvent, Fallback> {
        if event.id.is_empty() {
            return Err(Fallback);
        }
        let sandbox = event.sandbox.as_mut().map(|s| self.sandbox(s));
        let sandbox = sandbox.transpose()?;
        let mut containers = Vec::with_capacity(event.containers.len());
        for status in &mut event.containers {
            if status.size == 0 {
                // Quirk `empty container statuses`.
                convert::non_empty_id("");
            } else {
                containers.push(self.container(status)?);
            }
        }
        // Nearly always one of the statuses is that of the subject, so the id can be shared.
        let mut reports = sandbox.iter().chain(&containers);
        let id = match reports.find(|report| report.id.as_str().as_bytes() == event.id) {
            Some(subject) => subject.id.clone(),
            None => text(event.id)?.into(),
        };
        let (kind, created_at) = (event.kind, event.created_at);
        if kind == v1::ContainerEventType::ContainerDeletedEvent as i32 {
            self.last_reports.remove(id.as_str().as_bytes());
        }
        Ok(convert::event_from_parts(
            id, kind, created_at, sandbox, containers,
        ))
    }

    fn sandbox(&mut self, status: &mut Sandbox<'_>) -> Result<Report, Fallback> {
        let Self {
            interner,
            last_reports,
        } = self;
        let previous = last_reports.get(non_empty_id(status.id)?);
        let previous_details = previous.and_then(|r| match &r.details {
            Details::Sandbox(details) => Some(details),
            Details::Container(_) => None,
        });
        let labels = labels(
            interner,
            &mut status.labels,
            previous_details.map(|d| &d.labels),
        )?;
        let annotations = self::labels(
            interner,
            &mut status.annotations,
            previous_details.map(|d| &d.annotations),
        )?;
        let handler = shared(
            interner,
            status.runtime_handler,
            previous_details.map(|d| &d.runtime_handler),
        )?;
        let Metadata {
            name,
            uid,
            namespace,
            attempt,
        } = status.metadata;
        let previous_identity = previous.map(|r| &r.identity);
        let labelled = or_label(&[], &labels, POD_UID);
        let pod_uid = or_label(uid, &labels, POD_UID);
        let identity = Identity {
            kind: Kind::Sandbox,
            unlabelled: labelled.is_none() || labelled != pod_uid,
            pod: pod(pod_uid, previous_identity)?,
            namespace: self::namespace(
                interner,
                or_label(namespace, &labels, POD_NAMESPACE),
                previous_identity,
            )?,
            pod_name: pod_name(or_label(name, &labels, POD_NAME), previous_identity)?,
            sandbox: None,
            name: None,
            attempt,
            created_at: convert::time(status.created_at),
        };
        let details = SandboxDetails {
            ips: addresses(&status.ips, previous_details.map(|d| &d.ips[..]))?,
            runtime_handler: handler,
            labels,
            annotations,
        };
        let details = match previous_details.filter(|previous| ***previous == details) {
            Some(previous) => Details::Sandbox(previous.clone()),
            None => Details::from(details),
        };
        let shown = convert::sandbox_state_or_unknown(status.state);
        let (report, is_unchanged) = report(previous, status.id, shown, identity, details)?;
        if !is_unchanged {
            last_reports.insert(&report, status.size);
        }
        Ok(report)
    }

    fn container(&mut self, status: &mut Container<'_>) -> Result<Report, Fallback> {
        let Self {
            interner,
            last_reports,
        } = self;
        let previous = last_reports.get(non_empty_id(status.id)?);
        let previous_details = previous.and_then(|r| match &r.details {
            Details::Container(details) => Some(details),
            Details::Sandbox(_) => None,
        });
        let labels = labels(
            interner,
            &mut status.labels,
            previous_details.map(|d| &d.labels),
        )?;
        let annotations = self::labels(
            interner,
            &mut status.annotations,
            previous_details.map(|d| &d.annotations),
        )?;
        let previous_identity = previous.map(|r| &r.identity);
        let name = shared(
            interner,
            status.name,
            previous_identity.and_then(|i| i.name.as_ref()),
        )?;
        let labelled = or_label(&[], &labels, POD_UID);
        let identity = Identity {
            kind: Kind::Container,
            unlabelled: labelled.is_none(),
            pod: pod(labelled, previous_identity)?,
            namespace: namespace(
                interner,
                or_label(&[], &labels, POD_NAMESPACE),
                previous_identity,
            )?,
            pod_name: pod_name(or_label(&[], &labels, POD_NAME), previous_identity)?,
            sandbox: None,
            name: Some(name).filter(|name| !name.is_empty()),
            attempt: status.attempt,
            created_at: convert::time(status.created_at),
        };
        let shown = convert::container_state_or_unknown(status.state);
        let linux = status.resources.as_mut();
        let linux = linux.map(|l| {
            resources(
                interner,
                l,
                previous_details.and_then(|d| d.resources.as_ref()),
            )
        });
        let details = ContainerDetails {
            started_at: convert::time_unless_zero(status.started_at),
            finished_at: convert::time_unless_zero(status.finished_at),
            exit_code: convert::exit_code(shown, status.exit_code),
            reason: shared(interner, status.reason, previous_details.map(|d| &d.reason))?,
            message: unshared(status.message, previous_details.map(|d| &d.message))?,
            image: shared(interner, status.image, previous_details.map(|d| &d.image))?,
            image_ref: shared(
                interner,
                status.image_ref,
                previous_details.map(|d| &d.image_ref),
            )?,
            image_id: shared(
                interner,
                status.image_id,
                previous_details.map(|d| &d.image_id),
            )?,
            log_path: unshared(status.log_path, previous_details.map(|d| &d.log_path))?,
            resources: linux.transpose()?,
            labels,
            annotations,
        };
        let details =
            match previous_details.filter(|previous_details| ***previous_details == details) {
                Some(previous_details) => Details::Container(previous_details.clone()),
                None => Details::from(details),
            };
        let (report, is_unchanged) = report(previous, status.id, shown, identity, details)?;
        if !is_unchanged {
            last_reports.insert(&report, status.size);
        }
        Ok(report)
    }
}

/// An empty id is left to prost and the conversion.
const fn non_empty_id(id: &[u8]) -> Result<&[u8], Fallback> {
    match id {
        [] => Err(Fallback),
        id => Ok(id),
    }
}

/// The report, and whether identity and details are the same as in the previous report of the id.
fn report(
    previous: Option<&Report>,
    id: &[u8],
    shown: ReportedState,
    identity: Identity,
    details: Details,
) -> Result<(Report, bool), Fallback> {
    let is_unchanged = previous.is_some_and(|r| r.identity == identity && r.details == details);
    let id = match previous {
        Some(report) => report.id.clone(),
        None => text(id)?.into(),
    };
    let report = Report {
        id,
        shown,
        identity,
        details,
    };
    Ok((report, is_unchanged))
}

/// The value, or the label if the value is empty. `None` if both are empty.
fn or_label<'a>(value: &'a [u8], labels: &'a Labels, key: &str) -> Option<&'a [u8]> {
    let label = || labels.get(key).map(str::as_bytes);
    let non_empty = |text: &&[u8]| !text.is_empty();
    Some(value)
        .filter(non_empty)
        .or_else(label)
        .filter(non_empty)
}

fn pod(value: Option<&[u8]>, previous: Option<&Identity>) -> Result<Option<PodUid>, Fallback> {
    let Some(value) = value else { return Ok(None) };
    let previous = previous.and_then(|i| i.pod.as_ref());
    Ok(Some(
        match previous.filter(|uid| uid.as_str().as_bytes() == value) {
            Some(uid) => uid.clone(),
            None => text(value)?.into(),
        },
    ))
}

fn namespace(
    interner: &mut Interner,
    value: Option<&[u8]>,
    previous: Option<&Identity>,
) -> Result<Option<Text>, Fallback> {
    let previous = previous.and_then(|i| i.namespace.as_ref());
    value
        .map(|value| shared(interner, value, previous))
        .transpose()
}

fn pod_name(value: Option<&[u8]>, previous: Option<&Identity>) -> Result<Option<Text>, Fallback> {
    let previous = previous.and_then(|i| i.pod_name.as_ref());
    value.map(|value| unshared(value, previous)).transpose()
}

/// For a text that many ids have in common.
fn shared(
    interner: &mut Interner,
    value: &[u8],
    previous: Option<&Text>,
) -> Result<Text, Fallback> {
    match previous.filter(|previous| previous.as_bytes() == value) {
        Some(previous) => Ok(previous.clone()),
        None => interner.text(value),
    }
}

/// For a text that only one id has.
fn unshared(value: &[u8], previous: Option<&Text>) -> Result<Text, Fallback> {
    match previous.filter(|previous| previous.as_bytes() == value) {
        Some(previous) => Ok(previous.clone()),
        None if value.is_empty() => Ok(Text::default()),
        None => Ok(text(value)?.into()),
    }
}

fn addresses(values: &[&[u8]], previous: Option<&[Text]>) -> Result<Box<[Text]>, Fallback> {
    let previous = previous.unwrap_or_default();
    let mut addresses = Vec::with_capacity(values.len());
    for value in values {
        match previous.iter().find(|address| address.as_bytes() == *value) {
            Some(address) => addresses.push(address.clone()),
            None => addresses.extend(convert::address(text(value)?)),
        }
    }
    Ok(addresses.into())
}

fn labels(
    interner: &mut Interner,
    pairs: &mut [Pair<'_>],
    previous: Option<&Labels>,
) -> Result<Labels, Fallback> {
    match previous.filter(|previous| pairs_equal(pairs, previous)) {
        Some(previous) => Ok(previous.clone()),
        None => interner.labels(pairs),
    }
}

/// Whether the pairs, in any order, equal the labels.
fn pairs_equal(pairs: &[Pair<'_>], labels: &Labels) -> bool {
    let mut found = 0u64;
    let is_found = |(key, value): &Pair<'_>| {
        labels.position(key).is_some_and(|at| {
            let bit = 1u64.checked_shl(at as u32).unwrap_or(0);
            let is_first = found & bit == 0;
            found |= bit;
            is_first && bit != 0 && labels.value(at).as_bytes() == *value
        })
    };
    pairs.len() == labels.len() && pairs.iter().all(is_found)
}

fn resources(
    interner: &mut Interner,
    linux: &mut Linux<'_>,
    previous: Option<&Arc<Resources>>,
) -> Result<Arc<Resources>, Fallback> {
    let resources = Resources {
        cpu_period: linux.cpu_period,
        cpu_quota: linux.cpu_quota,
        cpu_shares: linux.cpu_shares,
        memory_limit: linux.memory_limit,
        memory_swap_limit: linux.memory_swap_limit,
        cpuset_cpus: shared(
            interner,
            linux.cpuset_cpus,
            previous.map(|r| &r.cpuset_cpus),
        )?,
        cpuset_mems: shared(
            interner,
            linux.cpuset_mems,
            previous.map(|r| &r.cpuset_mems),
        )?,
        unified: labels(interner, &mut linux.unified, previous.map(|r| &r.unified))?,
    };
    Ok(match previous.filter(|previous| ***previous == resources) {
        Some(previous) => previous.clone(),
        None => interner.resources(resources),
    })
}
