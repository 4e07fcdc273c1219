//! Decodes the rows of lists, as far as needed.
//!
//! Every row has its id and state decoded. The complete row is decoded only if the reader requests it. Readers request
//! complete rows for unknown ids only, and most rows of most lists have known ids.

use std::cell::RefCell;

use pleg_runtime::Row;
use pleg_runtime::core::{Kind, Report, ReportedState};
use prost::encoding::{
    DecodeContext, WireType, check_wire_type, decode_key, decode_varint, skip_field,
};
use prost::{DecodeError, Message};

use crate::{convert, v1};

/// Passes on the rows of a `ListPodSandboxResponse`, or of one page of `StreamPodSandboxes`.
///
/// # Errors
/// If the message, or a row that is decoded completely, is malformed.
pub fn sandboxes(message: &[u8], row: &mut dyn FnMut(Row<'_>)) -> Result<(), DecodeError> {
    let mut brief = SandboxRow::default();
    Encoded(message).try_for_each(|encoded| pass_on(&mut brief, encoded?, row))
}

/// Passes on the rows of a `ListContainersResponse`, or of one page of `StreamContainers`.
///
/// # Errors
/// If the message, or a row that is decoded completely, is malformed.
pub fn containers(message: &[u8], row: &mut dyn FnMut(Row<'_>)) -> Result<(), DecodeError> {
    let mut brief = ContainerRow::default();
    Encoded(message).try_for_each(|encoded| pass_on(&mut brief, encoded?, row))
}

/// The field with the rows, in all four list messages.
const ROWS: u32 = 1;

/// The encoded rows of any of the four list messages: slices of the message, not decoded.
pub(crate) struct Encoded<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Encoded<'a> {
    type Item = Result<&'a [u8], DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_row().transpose()
    }
}

impl<'a> Encoded<'a> {
    fn next_row(&mut self) -> Result<Option<&'a [u8]>, DecodeError> {
        while !self.0.is_empty() {
            let (field, wire) = decode_key(&mut self.0)?;
            let mut value = self.0;
            skip_field(wire, field, &mut self.0, DecodeContext::default())?;
            if field == ROWS {
                check_wire_type(WireType::LengthDelimited, wire)?;
                decode_varint(&mut value)?;
                return Ok(Some(&value[..value.len() - self.0.len()]));
            }
        }
        Ok(None)
    }
}

/// The fields of a row that are always decoded.
pub(crate) trait BriefRow: Message + Default {
    const KIND: Kind;

    fn id(&self) -> &str;

    /// `None` if the number of the state is not in the CRI.
    fn shown(&self) -> Option<ReportedState>;

    /// Decodes a complete row. `None` if it has no id.
    fn complete(encoded: &[u8]) -> Result<Option<Report>, DecodeError>;
}

/// The id and the state of a `PodSandbox`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SandboxRow {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(int32, tag = "3")]
    state: i32,
}

impl BriefRow for SandboxRow {
    const KIND: Kind = Kind::Sandbox;

    fn id(&self) -> &str {
        &self.id
    }

    fn shown(&self) -> Option<ReportedState> {
        convert::sandbox_state(self.state)
    }

    fn complete(encoded: &[u8]) -> Result<Option<Report>, DecodeError> {
        v1::PodSandbox::decode(encoded).map(convert::sandbox_row)
    }
}

/// The id and the state of a `Container`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ContainerRow {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(int32, tag = "6")]
    state: i32,
}

impl BriefRow for ContainerRow {
    const KIND: Kind = Kind::Container;

    fn id(&self) -> &str {
        &self.id
    }

    fn shown(&self) -> Option<ReportedState> {
        convert::container_state(self.state)
    }

    fn complete(encoded: &[u8]) -> Result<Option<Report>, DecodeError> {
        v1::Container::decode(encoded).map(convert::container_row)
    }
}

/// Decodes the id and the state into `brief`, reusing its memory, and passes on the row.
pub(crate) fn pass_on<B: BriefRow>(
    brief: &mut B,
    encoded: &[u8],
    row: &mut dyn FnMut(Row<'_>),
) -> Result<(), DecodeError> {
    brief.clear();
    brief.merge(encoded)?;
    let failed = RefCell::new(None);
    let decode = || {
        B::complete(encoded).unwrap_or_else(|error| {
            failed.replace(Some(error));
            None
        })
    };
    match brief.shown().filter(|_| !brief.id().is_empty()) {
        Some(shown) => row(Row::encoded(brief.id(), B::KIND, shown, &decode)),
        // The conversion counts a row that has no id, and a row whose state is not in the CRI.
        None => {
            if let Some(report) = decode() {
                row(report.into());
            }
        }
    }
    failed.into_inner().map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    #[test]
    fn field_of_a_newer_cri_between_rows_is_skipped() {
        // Fields to skip: number 15 as a 32-bit and a 64-bit value, an empty group, a key in more bytes than needed.
        let fixed: [&[u8]; 2] = [&[0x7d, 1, 2, 3, 4], &[0x79, 1, 2, 3, 4, 5, 6, 7, 8]];
        let other: [&[u8]; 2] = [&[0x7b, 0x7c], &[0xf8, 0x80, 0x00, 1]];
        for field in fixed.into_iter().chain(other) {
            let message = [&b"\x0a\x01a"[..], field, b"\x0a\x01b"].concat();
            let rows: Result<Vec<_>, _> = super::Encoded(&message).collect();
            assert_eq!(rows.unwrap(), [b"a", b"b"], "{field:02x?}");
        }
    }
}
