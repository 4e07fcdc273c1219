//! The fields of an event message, borrowed from the buffer. Nothing is copied or validated. Fields
//! that are not used (mounts, users, the annotations of the image) are skipped by their length and
//! not parsed.

use smallvec::SmallVec;

use crate::wire::{Fallback, Fields, Pair, Value};

pub(super) type Pairs<'a> = SmallVec<[Pair<'a>; 8]>;

/// The fields of an event.
#[derive(Default)]
pub(super) struct Event<'a> {
    pub(super) id: &'a [u8],
    pub(super) kind: i32,
    pub(super) created_at: i64,
    pub(super) sandbox: Option<Sandbox<'a>>,
    pub(super) containers: SmallVec<[Container<'a>; 1]>,
}

impl<'a> Event<'a> {
    pub(super) fn read(message: &'a [u8]) -> Result<Self, Fallback> {
        let mut event = Self::default();
        let mut fields = Fields::new(message);
        while let Some((number, value)) = fields.next()? {
            match number {
                1 => once_text(&mut event.id, value)?,
                2 => event.kind = value.varint()? as i32,
                3 => event.created_at = value.varint()? as i64,
                4 => once(&mut event.sandbox, Sandbox::read(value.bytes()?)?)?,
                5 => event.containers.push(Container::read(value.bytes()?)?),
                _ => {}
            }
        }
        Ok(event)
    }
}

/// Sets a message field. Protobuf merges a repeated occurrence with the first; that is left to
/// prost.
fn once<T>(slot: &mut Option<T>, value: T) -> Result<(), Fallback> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Fallback),
    }
}

/// Sets a string field. The last of several occurrences counts, but all must be UTF-8; that is left
/// to prost.
#[inline]
fn once_text<'a>(slot: &mut &'a [u8], value: Value<'a>) -> Result<(), Fallback> {
    match std::mem::replace(slot, value.bytes()?) {
        [] => Ok(()),
        _ => Err(Fallback),
    }
}

/// The fields of a sandbox status.
#[derive(Default)]
pub(super) struct Sandbox<'a> {
    pub(super) id: &'a [u8],
    pub(super) metadata: Metadata<'a>,
    pub(super) state: i32,
    pub(super) created_at: i64,
    /// The primary address first, without empty ones.
    pub(super) ips: SmallVec<[&'a [u8]; 2]>,
    pub(super) labels: Pairs<'a>,
    pub(super) annotations: Pairs<'a>,
    pub(super) runtime_handler: &'a [u8],
}

#[derive(Default)]
pub(super) struct Metadata<'a> {
    pub(super) name: &'a [u8],
    pub(super) uid: &'a [u8],
    pub(super) namespace: &'a [u8],
    pub(super) attempt: u32,
}

impl<'a> Sandbox<'a> {
    fn read(message: &'a [u8]) -> Result<Self, Fallback> {
        let mut sandbox = Self::default();
        let (mut metadata, mut network) = (None, None);
        let mut fields = Fields::new(message);
        while let Some((number, value)) = fields.next()? {
            match number {
                1 => once_text(&mut sandbox.id, value)?,
                2 => once(&mut metadata, Metadata::read(value.bytes()?)?)?,
                3 => sandbox.state = value.varint()? as i32,
                4 => sandbox.created_at = value.varint()? as i64,
                5 => once(&mut network, addresses(value.bytes()?)?)?,
                7 => sandbox.labels.push(pair(value)?),
                8 => sandbox.annotations.push(pair(value)?),
                9 => once_text(&mut sandbox.runtime_handler, value)?,
                _ => {}
            }
        }
        sandbox.metadata = metadata.unwrap_or_default();
        sandbox.ips = network.unwrap_or_default();
        Ok(sandbox)
    }
}

impl<'a> Metadata<'a> {
    fn read(message: &'a [u8]) -> Result<Self, Fallback> {
        let mut metadata = Self::default();
        let mut fields = Fields::new(message);
        while let Some((number, value)) = fields.next()? {
            match number {
                1 => once_text(&mut metadata.name, value)?,
                2 => once_text(&mut metadata.uid, value)?,
                3 => once_text(&mut metadata.namespace, value)?,
                4 => metadata.attempt = value.varint()? as u32,
                _ => {}
            }
        }
        Ok(metadata)
    }
}

fn addresses(network: &[u8]) -> Result<SmallVec<[&[u8]; 2]>, Fallback> {
    let (mut first, mut ips) = (&[][..], SmallVec::new());
    let mut fields = Fields::new(network);
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => once_text(&mut first, value)?,
            2 => ips.push(first_text(value.bytes()?)?),
            _ => {}
        }
    }
    ips.insert(0, first);
    ips.retain(|ip: &mut &[u8]| !ip.is_empty());
    Ok(ips)
}

/// The first field of a message, a string. Other fields are ignored.
fn first_text(message: &[u8]) -> Result<&[u8], Fallback> {
    let mut text = &[][..];
    let mut fields = Fields::new(message);
    while let Some((number, value)) = fields.next()? {
        if number == 1 {
            once_text(&mut text, value)?;
        }
    }
    Ok(text)
}

/// Parses a map entry in the most frequent form: a key, then a value, both shorter than 128 bytes.
#[inline]
fn short_pair(entry: &[u8]) -> Option<Pair<'_>> {
    let [0x0a, length @ ..0x80, rest @ ..] = entry else {
        return None;
    };
    let (key, rest) = rest.split_at_checked(usize::from(*length))?;
    match rest {
        [0x12, length @ ..0x80, value @ ..] if value.len() == usize::from(*length) => {
            Some((key, value))
        }
        _ => None,
    }
}

/// Parses a map entry.
fn pair(entry: Value<'_>) -> Result<Pair<'_>, Fallback> {
    let entry = entry.bytes()?;
    if let Some(pair) = short_pair(entry) {
        return Ok(pair);
    }
    let (mut key, mut text) = (&[][..], &[][..]);
    let mut fields = Fields::new(entry);
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => once_text(&mut key, value)?,
            2 => once_text(&mut text, value)?,
            _ => {}
        }
    }
    Ok((key, text))
}

/// The fields of a container status.
#[derive(Default)]
pub(super) struct Container<'a> {
    pub(super) id: &'a [u8],
    pub(super) name: &'a [u8],
    pub(super) attempt: u32,
    pub(super) state: i32,
    pub(super) created_at: i64,
    pub(super) started_at: i64,
    pub(super) finished_at: i64,
    pub(super) exit_code: i32,
    pub(super) image: &'a [u8],
    pub(super) image_ref: &'a [u8],
    pub(super) reason: &'a [u8],
    pub(super) message: &'a [u8],
    pub(super) labels: Pairs<'a>,
    pub(super) annotations: Pairs<'a>,
    pub(super) log_path: &'a [u8],
    pub(super) resources: Option<Linux<'a>>,
    pub(super) image_id: &'a [u8],
    pub(super) size: usize,
}

impl<'a> Container<'a> {
    fn read(message: &'a [u8]) -> Result<Self, Fallback> {
        let mut container = Self {
            size: message.len(),
            ..Self::default()
        };
        let (mut metadata, mut image, mut resources) = (None, None, None);
        let mut fields = Fields::new(message);
        while let Some((number, value)) = fields.next()? {
            match number {
                1 => once_text(&mut container.id, value)?,
                2 => once(&mut metadata, name_and_attempt(value.bytes()?)?)?,
                3 => container.state = value.varint()? as i32,
                4 => container.created_at = value.varint()? as i64,
                5 => container.started_at = value.varint()? as i64,
                6 => container.finished_at = value.varint()? as i64,
                7 => container.exit_code = value.varint()? as i32,
                8 => once(&mut image, first_text(value.bytes()?)?)?,
                9 => once_text(&mut container.image_ref, value)?,
                10 => once_text(&mut container.reason, value)?,
                11 => once_text(&mut container.message, value)?,
                12 => container.labels.push(pair(value)?),
                13 => container.annotations.push(pair(value)?),
                15 => once_text(&mut container.log_path, value)?,
                16 => once(&mut resources, linux(value.bytes()?)?)?,
                17 => once_text(&mut container.image_id, value)?,
                _ => {}
            }
        }
        (container.name, container.attempt) = metadata.unwrap_or_default();
        container.image = image.unwrap_or_default();
        container.resources = resources.flatten();
        Ok(container)
    }
}

fn name_and_attempt(metadata: &[u8]) -> Result<(&[u8], u32), Fallback> {
    let (mut name, mut attempt) = (&[][..], 0);
    let mut fields = Fields::new(metadata);
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => once_text(&mut name, value)?,
            2 => attempt = value.varint()? as u32,
            _ => {}
        }
    }
    Ok((name, attempt))
}

/// The Linux resources of a container.
#[derive(Default)]
pub(super) struct Linux<'a> {
    pub(super) cpu_period: i64,
    pub(super) cpu_quota: i64,
    pub(super) cpu_shares: i64,
    pub(super) memory_limit: i64,
    pub(super) memory_swap_limit: i64,
    pub(super) cpuset_cpus: &'a [u8],
    pub(super) cpuset_mems: &'a [u8],
    pub(super) unified: SmallVec<[Pair<'a>; 1]>,
}

fn linux(resources: &[u8]) -> Result<Option<Linux<'_>>, Fallback> {
    let mut linux = None;
    let mut fields = Fields::new(resources);
    while let Some((number, value)) = fields.next()? {
        if number == 1 {
            once(&mut linux, Linux::read(value.bytes()?)?)?;
        }
    }
    Ok(linux)
}

impl<'a> Linux<'a> {
    fn read(message: &'a [u8]) -> Result<Self, Fallback> {
        let mut linux = Self::default();
        let mut fields = Fields::new(message);
        while let Some((number, value)) = fields.next()? {
            match number {
                1 => linux.cpu_period = value.varint()? as i64,
                2 => linux.cpu_quota = value.varint()? as i64,
                3 => linux.cpu_shares = value.varint()? as i64,
                4 => linux.memory_limit = value.varint()? as i64,
                6 => once_text(&mut linux.cpuset_cpus, value)?,
                7 => once_text(&mut linux.cpuset_mems, value)?,
                9 => linux.unified.push(pair(value)?),
                10 => linux.memory_swap_limit = value.varint()? as i64,
                _ => {}
            }
        }
        Ok(linux)
    }
}
