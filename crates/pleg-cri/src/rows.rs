//! The rows of a list, decoded as far as needed.
//!
//! Of each row prost decodes the id and the state. The same bytes are decoded as a whole only
//! where the reader asks for it, which it does for ids that are not known yet.

use std::cell::RefCell;
use std::sync::Mutex;

use pleg_runtime::Row;
use pleg_runtime::core::{Kind, Report, Shown};
use prost::bytes::Bytes;
use prost::{DecodeError, Message};

use crate::pool::{self, Pool};
use crate::{convert, v1};

/// The rows of a `ListPodSandboxResponse`, or of one page of `StreamPodSandboxes`.
///
/// # Errors
/// If the message, or a row of it that is decoded as a whole, is malformed.
pub fn sandboxes(message: Bytes, row: &mut dyn FnMut(Row<'_>)) -> Result<(), DecodeError> {
    sandboxes_with(message, &Mutex::default(), row)
}

/// [`sandboxes`], sharing equal values by the pool.
pub(crate) fn sandboxes_with(
    message: Bytes,
    pool: &Mutex<Pool>,
    row: &mut dyn FnMut(Row<'_>),
) -> Result<(), DecodeError> {
    rows(
        Kind::Sandbox,
        message,
        |bytes| {
            let SandboxHead { id, state } = SandboxHead::decode(bytes)?;
            Ok((id, convert::sandbox_state(state)))
        },
        |bytes| {
            let whole = v1::PodSandbox::decode(bytes)?;
            Ok(convert::sandbox_row_with(whole, &mut pool::lock(pool)))
        },
        row,
    )
}

/// The rows of a `ListContainersResponse`, or of one page of `StreamContainers`.
///
/// # Errors
/// If the message, or a row of it that is decoded as a whole, is malformed.
pub fn containers(message: Bytes, row: &mut dyn FnMut(Row<'_>)) -> Result<(), DecodeError> {
    containers_with(message, &Mutex::default(), row)
}

/// [`containers`], sharing equal values by the pool.
pub(crate) fn containers_with(
    message: Bytes,
    pool: &Mutex<Pool>,
    row: &mut dyn FnMut(Row<'_>),
) -> Result<(), DecodeError> {
    rows(
        Kind::Container,
        message,
        |bytes| {
            let ContainerHead { id, state } = ContainerHead::decode(bytes)?;
            Ok((id, convert::container_state(state)))
        },
        |bytes| {
            let whole = v1::Container::decode(bytes)?;
            Ok(convert::container_row_with(whole, &mut pool::lock(pool)))
        },
        row,
    )
}

/// What the four messages have in common: their rows are in field 1.
#[derive(Clone, PartialEq, Message)]
struct EncodedRows {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    rows: Vec<Bytes>,
}

/// The id and the state of a `PodSandbox`.
#[derive(Clone, PartialEq, Message)]
struct SandboxHead {
    #[prost(bytes = "bytes", tag = "1")]
    id: Bytes,
    #[prost(int32, tag = "3")]
    state: i32,
}

/// The id and the state of a `Container`.
#[derive(Clone, PartialEq, Message)]
struct ContainerHead {
    #[prost(bytes = "bytes", tag = "1")]
    id: Bytes,
    #[prost(int32, tag = "6")]
    state: i32,
}

fn rows(
    kind: Kind,
    message: Bytes,
    head: impl Fn(Bytes) -> Result<(Bytes, Option<Shown>), DecodeError>,
    whole: impl Fn(&[u8]) -> Result<Option<Report>, DecodeError>,
    row: &mut dyn FnMut(Row<'_>),
) -> Result<(), DecodeError> {
    for bytes in EncodedRows::decode(message)?.rows {
        let failed = RefCell::new(None);
        let decode = || {
            whole(&bytes).unwrap_or_else(|error| {
                failed.replace(Some(error));
                None
            })
        };
        let (id, state) = head(bytes.clone())?;
        match (std::str::from_utf8(&id), state) {
            (Ok(id), Some(state)) if !id.is_empty() => {
                row(Row::encoded(id, kind, state, &decode));
            }
            // An unknown state, no id or no text: the conversion counts it, or prost refuses it.
            _ => {
                if let Some(report) = decode() {
                    row(report.into());
                }
            }
        }
        if let Some(error) = failed.into_inner() {
            return Err(error);
        }
    }
    Ok(())
}
