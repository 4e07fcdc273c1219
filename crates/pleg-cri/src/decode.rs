//! Decodes messages of the event stream directly to domain types.
//!
//! It reads the fields in the receive buffer and copies only the values, of which equal ones are
//! shared. Decoding with prost and converting takes four times as many instructions and seven times as
//! many allocations (`just instructions`).
//!
//! [`convert`] defines the meaning of every field. A message that is not encoded in the usual way is
//! decoded with prost and converted, so that prost also decides what is malformed.

mod fields;

use std::sync::Arc;

use pleg_runtime::core::{
    ContainerDetails, Id, Identity, Kind, Labels, PodUid, Report, Resources, RuntimeEvent,
    SandboxDetails, Text,
};
use prost::{DecodeError, Message as _};

use crate::convert::{self, POD_NAME, POD_NAMESPACE, POD_UID};
use crate::interner::Interner;
use crate::v1;
use crate::wire::{Fallback, text};
use fields::{Container, Event, Linux, Metadata, Sandbox};

/// Decodes the events of one stream.
#[derive(Debug, Default)]
pub struct EventDecoder {
    interner: Interner,
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
        Ok(convert::event_from_parts(
            id, kind, created_at, sandbox, containers,
        ))
    }

    fn sandbox(&mut self, status: &mut Sandbox<'_>) -> Result<Report, Fallback> {
        let interner = &mut self.interner;
        let id = id(status.id)?;
        let labels = interner.labels(&mut status.labels)?;
        let annotations = interner.labels(&mut status.annotations)?;
        let Metadata {
            name,
            uid,
            namespace,
            attempt,
        } = status.metadata;
        let labelled = or_label(&[], &labels, POD_UID);
        let pod_uid = or_label(uid, &labels, POD_UID);
        let mut identity = Identity::new(Kind::Sandbox);
        identity.unlabelled = labelled.is_none() || labelled != pod_uid;
        identity.pod = pod(pod_uid)?;
        identity.namespace = interner.optional(or_label(namespace, &labels, POD_NAMESPACE))?;
        identity.pod_name = unshared(or_label(name, &labels, POD_NAME))?;
        identity.attempt = attempt;
        identity.created_at = convert::time(status.created_at);
        let mut details = SandboxDetails::default();
        details.ips = addresses(&status.ips)?;
        details.runtime_handler = interner.text(status.runtime_handler)?;
        details.labels = labels;
        details.annotations = annotations;
        let shown = convert::sandbox_state_or_unknown(status.state);
        Ok(Report::new(id, shown, identity, details))
    }

    fn container(&mut self, status: &mut Container<'_>) -> Result<Report, Fallback> {
        let interner = &mut self.interner;
        let id = id(status.id)?;
        let labels = interner.labels(&mut status.labels)?;
        let annotations = interner.labels(&mut status.annotations)?;
        let labelled = or_label(&[], &labels, POD_UID);
        let mut identity = Identity::new(Kind::Container);
        identity.unlabelled = labelled.is_none();
        identity.pod = pod(labelled)?;
        identity.namespace = interner.optional(or_label(&[], &labels, POD_NAMESPACE))?;
        identity.pod_name = unshared(or_label(&[], &labels, POD_NAME))?;
        identity.name = interner.optional(Some(status.name).filter(|name| !name.is_empty()))?;
        identity.attempt = status.attempt;
        identity.created_at = convert::time(status.created_at);
        let shown = convert::container_state_or_unknown(status.state);
        let linux = status.resources.as_mut();
        let mut details = ContainerDetails::default();
        details.started_at = convert::time_unless_zero(status.started_at);
        details.finished_at = convert::time_unless_zero(status.finished_at);
        details.exit_code = convert::exit_code(shown, status.exit_code);
        details.reason = interner.text(status.reason)?;
        details.message = unshared(Some(status.message))?.unwrap_or_default();
        details.image = interner.text(status.image)?;
        details.image_ref = interner.text(status.image_ref)?;
        details.image_id = interner.text(status.image_id)?;
        details.log_path = unshared(Some(status.log_path))?.unwrap_or_default();
        details.resources = linux.map(|linux| resources(interner, linux)).transpose()?;
        details.labels = labels;
        details.annotations = annotations;
        Ok(Report::new(id, shown, identity, details))
    }
}

/// An empty id is left to prost and the conversion.
fn id(id: &[u8]) -> Result<Id, Fallback> {
    match id {
        [] => Err(Fallback),
        id => Ok(text(id)?.into()),
    }
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

fn pod(value: Option<&[u8]>) -> Result<Option<PodUid>, Fallback> {
    Ok(value.map(text).transpose()?.map(PodUid::from))
}

/// For a text that only one id has.
fn unshared(value: Option<&[u8]>) -> Result<Option<Text>, Fallback> {
    Ok(value.map(text).transpose()?.map(Text::from))
}

fn addresses(values: &[&[u8]]) -> Result<Box<[Text]>, Fallback> {
    let mut addresses = Vec::with_capacity(values.len());
    for value in values {
        addresses.extend(convert::address(text(value)?));
    }
    Ok(addresses.into())
}

fn resources(interner: &mut Interner, linux: &mut Linux<'_>) -> Result<Arc<Resources>, Fallback> {
    let mut resources = Resources::default();
    resources.cpu_period = linux.cpu_period;
    resources.cpu_quota = linux.cpu_quota;
    resources.cpu_shares = linux.cpu_shares;
    resources.memory_limit = linux.memory_limit;
    resources.memory_swap_limit = linux.memory_swap_limit;
    resources.cpuset_cpus = interner.text(linux.cpuset_cpus)?;
    resources.cpuset_mems = interner.text(linux.cpuset_mems)?;
    resources.unified = interner.labels(&mut linux.unified)?;
    Ok(interner.resources(resources))
}
