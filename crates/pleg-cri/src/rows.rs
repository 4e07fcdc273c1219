//! Decodes the rows of a list, as far as needed.
//!
//! The id and the state of each row are always decoded. The complete row is decoded only if the
//! reader asks for it, which it does for unknown ids.

use std::cell::RefCell;
use std::sync::Mutex;

use pleg_runtime::Row;
use pleg_runtime::core::{Kind, Report, ReportedState};
use prost::bytes::Bytes;
use prost::{DecodeError, Message};

use crate::interner::{self, Interner};
use crate::{convert, v1};

/// Passes on the rows of a `ListPodSandboxResponse`, or of one page of `StreamPodSandboxes`.
///
/// # Errors
/// If the message, or a row that is decoded completely, is malformed.
pub fn sandboxes(message: Bytes, row: &mut dyn FnMut(Row<'_>)) -> Result<(), DecodeError> {
    sandboxes_with(message, &Mutex::default(), row)
}

/// Like [`sandboxes`], with an interner.
pub(crate) fn sandboxes_with(
    message: Bytes,
    interner: &Mutex<Interner>,
    row: &mut dyn FnMut(Row<'_>),
) -> Result<(), DecodeError> {
    rows(
        Kind::Sandbox,
        message,
        |bytes| {
            let SandboxIdAndState { id, state } = SandboxIdAndState::decode(bytes)?;
            Ok((id, convert::sandbox_state(state)))
        },
        |bytes| {
            let complete = v1::PodSandbox::decode(bytes)?;
            Ok(convert::sandbox_row_with(
                complete,
                &mut interner::lock(interner),
            ))
        },
        row,
    )
}

/// Passes on the rows of a `ListContainersResponse`, or of one page of `StreamContainers`.
///
/// # Errors
/// If the message, or a row that is decoded completely, is malformed.
pub fn containers(message: Bytes, row: &mut dyn FnMut(Row<'_>)) -> Result<(), DecodeError> {
    containers_with(message, &Mutex::default(), row)
}

/// Like [`containers`], with an interner.
pub(crate) fn containers_with(
    message: Bytes,
    interner: &Mutex<Interner>,
    row: &mut dyn FnMut(Row<'_>),
) -> Result<(), DecodeError> {
    rows(
        Kind::Container,
        message,
        |bytes| {
            let ContainerIdAndState { id, state } = ContainerIdAndState::decode(bytes)?;
            Ok((id, convert::container_state(state)))
        },
        |bytes| {
            let complete = v1::Container::decode(bytes)?;
            Ok(convert::container_row_with(
                complete,
                &mut interner::lock(interner),
            ))
        },
        row,
    )
}

/// Any of the four list messages: all have their rows in field 1.
#[derive(Clone, PartialEq, Message)]
struct EncodedRows {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    rows: Vec<Bytes>,
}

/// The id and the state of a `PodSandbox`.
#[derive(Clone, PartialEq, Message)]
struct SandboxIdAndState {
    #[prost(bytes = "bytes", tag = "1")]
    id: Bytes,
    #[prost(int32, tag = "3")]
    state: i32,
}

/// The id and the state of a `Container`.
#[derive(Clone, PartialEq, Message)]
struct ContainerIdAndState {
    #[prost(bytes = "bytes", tag = "1")]
    id: Bytes,
    #[prost(int32, tag = "6")]
    state: i32,
}

fn rows(
    kind: Kind,
    message: Bytes,
    id_and_state: impl Fn(Bytes) -> Result<(Bytes, Option<ReportedState>), DecodeError>,
    complete: impl Fn(&[u8]) -> Result<Option<Report>, DecodeError>,
    row: &mut dyn FnMut(Row<'_>),
) -> Result<(), DecodeError> {
    for bytes in EncodedRows::decode(message)?.rows {
        let failed = RefCell::new(None);
        let decode = || {
            complete(&bytes).unwrap_or_else(|error| {
                failed.replace(Some(error));
                None
            })
        };
        let (id, state) = id_and_state(bytes.clone())?;
        match (std::str::from_utf8(&id), state) {
            (Ok(id), Some(state)) if !id.is_empty() => {
                row(Row::encoded(id, kind, state, &decode));
            }
            // An unknown state, an empty id or invalid UTF-8: the conversion counts it, or prost
            // returns an error.
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
