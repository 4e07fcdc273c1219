//! What an event's message says, field by field, where it lies: nothing is copied, and nothing is
//! judged. What is not read (mounts, users, the image's annotations) is skipped by its length,
//! unseen.

use smallvec::SmallVec;

use crate::wire::{Fields, Pair, Unusual, Value};

pub(super) type Pairs<'a> = SmallVec<[Pair<'a>; 8]>;

/// An event as it lies in its message.
#[derive(Default)]
pub(super) struct Event<'a> {
    pub(super) id: &'a [u8],
    pub(super) kind: i32,
    pub(super) created_at: i64,
    pub(super) sandbox: Option<Sandbox<'a>>,
    pub(super) containers: SmallVec<[Container<'a>; 1]>,
}

impl<'a> Event<'a> {
    pub(super) fn read(message: &'a [u8]) -> Result<Self, Unusual> {
        let mut event = Self::default();
        let mut fields = Fields::of(message);
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

/// The second of two messages in one field would have to be merged with the first.
fn once<T>(slot: &mut Option<T>, value: T) -> Result<(), Unusual> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Unusual),
    }
}

/// Of two texts in one field the last one counts, and the first one must be a text, too.
#[inline]
fn once_text<'a>(slot: &mut &'a [u8], value: Value<'a>) -> Result<(), Unusual> {
    match std::mem::replace(slot, value.bytes()?) {
        [] => Ok(()),
        _ => Err(Unusual),
    }
}

/// A sandbox's status as it lies in its message.
#[derive(Default)]
pub(super) struct Sandbox<'a> {
    pub(super) id: &'a [u8],
    pub(super) metadata: Metadata<'a>,
    pub(super) state: i32,
    pub(super) created_at: i64,
    /// The primary one first; none of them empty.
    pub(super) ips: SmallVec<[&'a [u8]; 2]>,
    pub(super) labels: Pairs<'a>,
    pub(super) annotations: Pairs<'a>,
    pub(super) runtime_handler: &'a [u8],
    pub(super) size: usize,
}

#[derive(Default)]
pub(super) struct Metadata<'a> {
    pub(super) name: &'a [u8],
    pub(super) uid: &'a [u8],
    pub(super) namespace: &'a [u8],
    pub(super) attempt: u32,
}

impl<'a> Sandbox<'a> {
    fn read(message: &'a [u8]) -> Result<Self, Unusual> {
        let mut sandbox = Self {
            size: message.len(),
            ..Self::default()
        };
        let (mut metadata, mut network) = (None, None);
        let mut fields = Fields::of(message);
        while let Some((number, value)) = fields.next()? {
            match number {
                1 => once_text(&mut sandbox.id, value)?,
                2 => once(&mut metadata, Metadata::read(value.bytes()?)?)?,
                3 => sandbox.state = value.varint()? as i32,
                4 => sandbox.created_at = value.varint()? as i64,
                5 => once(&mut network, said_addresses(value.bytes()?)?)?,
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
    fn read(message: &'a [u8]) -> Result<Self, Unusual> {
        let mut metadata = Self::default();
        let mut fields = Fields::of(message);
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

fn said_addresses(network: &[u8]) -> Result<SmallVec<[&[u8]; 2]>, Unusual> {
    let (mut first, mut ips) = (&[][..], SmallVec::new());
    let mut fields = Fields::of(network);
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => once_text(&mut first, value)?,
            2 => ips.push(only_text(value.bytes()?)?),
            _ => {}
        }
    }
    ips.insert(0, first);
    ips.retain(|ip: &mut &[u8]| !ip.is_empty());
    Ok(ips)
}

/// A message of which only its first field is read, a text.
fn only_text(message: &[u8]) -> Result<&[u8], Unusual> {
    let mut text = &[][..];
    let mut fields = Fields::of(message);
    while let Some((number, value)) = fields.next()? {
        if number == 1 {
            once_text(&mut text, value)?;
        }
    }
    Ok(text)
}

/// An entry of a map as most of them are: a key, then a value, both of less than 128 bytes.
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

/// An entry of a map.
fn pair(entry: Value<'_>) -> Result<Pair<'_>, Unusual> {
    let entry = entry.bytes()?;
    if let Some(pair) = short_pair(entry) {
        return Ok(pair);
    }
    let (mut key, mut text) = (&[][..], &[][..]);
    let mut fields = Fields::of(entry);
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => once_text(&mut key, value)?,
            2 => once_text(&mut text, value)?,
            _ => {}
        }
    }
    Ok((key, text))
}

/// A container's status as it lies in its message.
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
    fn read(message: &'a [u8]) -> Result<Self, Unusual> {
        let mut container = Self {
            size: message.len(),
            ..Self::default()
        };
        let (mut metadata, mut image, mut resources) = (None, None, None);
        let mut fields = Fields::of(message);
        while let Some((number, value)) = fields.next()? {
            match number {
                1 => once_text(&mut container.id, value)?,
                2 => once(&mut metadata, name_and_attempt(value.bytes()?)?)?,
                3 => container.state = value.varint()? as i32,
                4 => container.created_at = value.varint()? as i64,
                5 => container.started_at = value.varint()? as i64,
                6 => container.finished_at = value.varint()? as i64,
                7 => container.exit_code = value.varint()? as i32,
                8 => once(&mut image, only_text(value.bytes()?)?)?,
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

fn name_and_attempt(metadata: &[u8]) -> Result<(&[u8], u32), Unusual> {
    let (mut name, mut attempt) = (&[][..], 0);
    let mut fields = Fields::of(metadata);
    while let Some((number, value)) = fields.next()? {
        match number {
            1 => once_text(&mut name, value)?,
            2 => attempt = value.varint()? as u32,
            _ => {}
        }
    }
    Ok((name, attempt))
}

/// The resources of a container on Linux as they lie in their message.
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

fn linux(resources: &[u8]) -> Result<Option<Linux<'_>>, Unusual> {
    let mut linux = None;
    let mut fields = Fields::of(resources);
    while let Some((number, value)) = fields.next()? {
        if number == 1 {
            once(&mut linux, Linux::read(value.bytes()?)?)?;
        }
    }
    Ok(linux)
}

impl<'a> Linux<'a> {
    fn read(message: &'a [u8]) -> Result<Self, Unusual> {
        let mut linux = Self::default();
        let mut fields = Fields::of(message);
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
