//! Lists, read without being decoded: of each row its id, its state and a fingerprint of all but
//! the state.
//!
//! Most rows of most lists say what they said before; for those this is all that is needed, and it
//! costs a fraction of decoding them. A row that is new or changed is decoded from its own bytes,
//! by prost, and goes through [`convert`] like everything else.
//!
//! The fingerprint does not depend on the order of a map's entries: runtimes written in Go encode
//! maps in random order. It is a sum over hashes of the fields' bytes, seeded anew in each process,
//! so that nobody who writes labels can make a change of them look like none. It trusts the order
//! of nothing else, and that no key is twice in a map.
//!
//! What is malformed is left to prost: wherever this reader cannot go on, prost decodes what is
//! left and has the last word, so that the same bytes are the same rows, or the same error.

use std::cell::RefCell;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{LazyLock, Mutex};

use pleg_runtime::Row;
use pleg_runtime::core::{Fingerprint, Kind, Report, Shown};
use prost::{DecodeError, Message};
use rapidhash::v3::{RapidSecrets, rapidhash_v3_micro_inline};

use crate::pool::{self, Pool};
use crate::wire::{Fields, Unusual, Value};
use crate::{convert, v1};

/// The rows of a `ListPodSandboxResponse`, or of one page of `StreamPodSandboxes`.
///
/// # Errors
/// If the message, or a row that was to be decoded, is malformed.
pub fn sandboxes(message: &[u8], row: &mut dyn FnMut(Row<'_>)) -> Result<(), DecodeError> {
    sandboxes_with(message, &Mutex::default(), row)
}

/// [`sandboxes`], what is decoded sharing with the pool.
pub(crate) fn sandboxes_with(
    message: &[u8],
    pool: &Mutex<Pool>,
    row: &mut dyn FnMut(Row<'_>),
) -> Result<(), DecodeError> {
    let list = |message: &[u8]| Ok(v1::ListPodSandboxResponse::decode(message)?.items);
    let convert = |row| convert::sandbox_row_with(row, &mut pool::lock(pool));
    rows(&SANDBOX, message, list, convert, row)
}

/// The rows of a `ListContainersResponse`, or of one page of `StreamContainers`.
///
/// # Errors
/// If the message, or a row that was to be decoded, is malformed.
pub fn containers(message: &[u8], row: &mut dyn FnMut(Row<'_>)) -> Result<(), DecodeError> {
    containers_with(message, &Mutex::default(), row)
}

/// [`containers`], what is decoded sharing with the pool.
pub(crate) fn containers_with(
    message: &[u8],
    pool: &Mutex<Pool>,
    row: &mut dyn FnMut(Row<'_>),
) -> Result<(), DecodeError> {
    let list = |message: &[u8]| Ok(v1::ListContainersResponse::decode(message)?.containers);
    let convert = |row| convert::container_row_with(row, &mut pool::lock(pool));
    rows(&CONTAINER, message, list, convert, row)
}

/// Where things are in a row.
struct Shape {
    kind: Kind,
    state: u32,
    shown: fn(i32) -> Option<Shown>,
    /// Fields that are maps, and the one message that has a map in it: one bit each.
    maps: u64,
    nested: u64,
}

/// In both kinds of rows.
const ID: u32 = 1;
/// The field of rows, in all four messages.
const ROWS: u32 = 1;
/// The maps of an `ImageSpec`.
const IMAGE_MAPS: u64 = 1 << 2;

const SANDBOX: Shape = Shape {
    kind: Kind::Sandbox,
    state: 3,
    shown: convert::sandbox_state,
    maps: 1 << 5 | 1 << 6,
    nested: 0,
};

const CONTAINER: Shape = Shape {
    kind: Kind::Container,
    state: 6,
    shown: convert::container_state,
    maps: 1 << 8 | 1 << 9,
    nested: 1 << 4,
};

fn rows<T: Message + Default>(
    shape: &Shape,
    message: &[u8],
    decode_list: impl Fn(&[u8]) -> Result<Vec<T>, DecodeError>,
    convert: impl Fn(T) -> Option<Report>,
    row: &mut dyn FnMut(Row<'_>),
) -> Result<(), DecodeError> {
    let failed = RefCell::new(None);
    let mut fields = Fields::of(message);
    let mut met = 0;
    loop {
        let bytes = match fields.next() {
            Ok(None) => return Ok(()),
            Ok(Some((ROWS, Value::Bytes(bytes)))) => bytes,
            Ok(Some((ROWS, _))) | Err(Unusual) => break,
            Ok(Some(_)) => continue,
        };
        met += 1;
        let decode = || match T::decode(bytes) {
            Ok(decoded) => convert(decoded),
            Err(error) => {
                failed.borrow_mut().get_or_insert(error);
                None
            }
        };
        match skim(shape, bytes) {
            Some(skimmed) => {
                let Skimmed { id, shown, rest } = skimmed;
                let encoded = Row::encoded(id, shape.kind, shown, &decode);
                row(encoded.with_fingerprint(rest));
            }
            None => {
                if let Some(report) = decode() {
                    row(report.into());
                }
            }
        }
        if let Some(error) = failed.take() {
            return Err(error);
        }
    }
    // It does not look like one; prost will know.
    let left = decode_list(message)?.into_iter().skip(met);
    for report in left.filter_map(&convert) {
        row(report.into());
    }
    Ok(())
}

/// What is known of a row that was not decoded.
struct Skimmed<'a> {
    id: &'a str,
    shown: Shown,
    rest: Fingerprint,
}

/// None if the row names nothing or shows no state that is known, which is to be counted, or if
/// what it says depends on the order of its fields.
fn skim<'a>(shape: &Shape, row: &'a [u8]) -> Option<Skimmed<'a>> {
    let secrets = &*SECRETS;
    let (mut id, mut state, mut rest) = (&[][..], 0, 0_u64);
    let mut once = Once::but_for(shape.maps);
    let mut fields = Fields::of(row);
    loop {
        while let Some(entry) = fields.short_of(shape.maps) {
            rest = rest.wrapping_add(hash(entry, secrets));
        }
        let Some(field) = Field::next(&mut fields).ok()? else {
            break;
        };
        once.meets(&field)?;
        if field.number == shape.state {
            state = field.value.varint().ok()?;
            continue;
        }
        if field.number == ID {
            id = field.value.bytes().ok()?;
        }
        if bit(field.number) & shape.nested != 0 {
            let image = field.value.bytes().ok()?;
            let inner = sum(image, IMAGE_MAPS, secrets)?;
            // The sum stands for the fields' bytes; what it is the sum of counts, too.
            let stands_for = [inner, u64::from(field.number)].map(u64::to_le_bytes);
            rest = rest.wrapping_add(hash(stands_for.as_flattened(), secrets));
        } else {
            rest = rest.wrapping_add(hash(field.whole, secrets));
        }
    }
    let id = std::str::from_utf8(id).ok().filter(|id| !id.is_empty())?;
    Some(Skimmed {
        id,
        // As prost narrows an enumeration.
        shown: (shape.shown)(state as i32)?,
        rest: Fingerprint::from(rest),
    })
}

/// The sum over the hashes of a message's fields.
fn sum(message: &[u8], maps: u64, secrets: &RapidSecrets) -> Option<u64> {
    let (mut sum, mut once) = (0_u64, Once::but_for(maps));
    let mut fields = Fields::of(message);
    while let Some(field) = Field::next(&mut fields).ok()? {
        once.meets(&field)?;
        sum = sum.wrapping_add(hash(field.whole, secrets));
    }
    Some(sum)
}

/// A field that comes twice and is no map has the value that comes last, which a sum cannot tell.
/// And a map's entry is bytes, or it is nothing that can be read here.
struct Once {
    maps: u64,
    met: u64,
}

impl Once {
    const fn but_for(maps: u64) -> Self {
        Self { maps, met: 0 }
    }

    fn meets(&mut self, field: &Field<'_>) -> Option<()> {
        let bit = bit(field.number);
        if bit & self.maps != 0 {
            return field.value.bytes().ok().map(drop);
        }
        let again = self.met & bit != 0;
        self.met |= bit;
        (!again).then_some(())
    }
}

/// Fields beyond are in no message here.
fn bit(field: u32) -> u64 {
    1_u64.checked_shl(field).unwrap_or(0)
}

static SECRETS: LazyLock<RapidSecrets> =
    LazyLock::new(|| RapidSecrets::seed(RandomState::new().build_hasher().finish()));

fn hash(bytes: &[u8], secrets: &RapidSecrets) -> u64 {
    rapidhash_v3_micro_inline::<true, true>(bytes, secrets)
}

/// A field of a message, and all of it as it is encoded.
struct Field<'a> {
    number: u32,
    value: Value<'a>,
    whole: &'a [u8],
}

impl<'a> Field<'a> {
    #[inline(always)]
    fn next(fields: &mut Fields<'a>) -> Result<Option<Self>, Unusual> {
        let start = fields.rest();
        let Some((number, value)) = fields.next()? else {
            return Ok(None);
        };
        let length = start.len() - fields.rest().len();
        let whole = start.get(..length).ok_or(Unusual)?;
        Ok(Some(Self {
            number,
            value,
            whole,
        }))
    }
}
