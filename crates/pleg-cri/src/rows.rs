//! Decodes the rows of lists, each row only as far as the caller needs it.
//!
//! Every row has its id and state decoded. The complete row is decoded only if the caller requests it. In a list of the
//! node, the PLEG requests complete rows of ids that its cache lacks, which in most lists are few.

use std::cell::RefCell;

use pleg_runtime::Row;
use pleg_runtime::core::{ContainerDetails, Kind, Report, ReportedState, SandboxDetails};
use prost::encoding::{
    DecodeContext, WireType, check_wire_type, decode_key, decode_varint, skip_field,
};
use prost::{DecodeError, Message};

use crate::convert::encoded_labels;
use crate::{convert, v1};

/// Passes each row of a `ListPodSandboxResponse`, or of one page of `StreamPodSandboxes`, to `row`.
///
/// # Errors
/// If the message, or a row that is decoded completely, is malformed.
pub fn sandboxes(message: &[u8], row: &mut dyn FnMut(Row<'_>)) -> Result<(), DecodeError> {
    let mut brief = SandboxRow::default();
    encoded(message).try_for_each(|next| pass_on(&mut brief, next?, row))
}

/// Passes each row of a `ListContainersResponse`, or of one page of `StreamContainers`, to `row`.
///
/// # Errors
/// If the message, or a row that is decoded completely, is malformed.
pub fn containers(message: &[u8], row: &mut dyn FnMut(Row<'_>)) -> Result<(), DecodeError> {
    let mut brief = ContainerRow::default();
    encoded(message).try_for_each(|next| pass_on(&mut brief, next?, row))
}

/// The number of the field with the rows, in all four list messages.
const ROWS: u32 = 1;

/// The encoded rows of any of the four list messages: slices of the message, not decoded.
pub(crate) fn encoded(message: &[u8]) -> impl Iterator<Item = Result<&[u8], DecodeError>> {
    Fields(message).values(ROWS)
}

/// The fields of a message: the number of each, its wire type, and its value as a slice of the message.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    /// The values of the field with the number `of`, which are texts, bytes or messages.
    pub(crate) fn values(self, of: u32) -> impl Iterator<Item = Result<&'a [u8], DecodeError>> {
        self.filter_map(move |next| match next {
            Ok((field, wire, value)) => (field == of)
                .then(|| check_wire_type(WireType::LengthDelimited, wire).map(|()| value)),
            Err(error) => Some(Err(error)),
        })
    }

    fn next_field(&mut self) -> Result<(u32, WireType, &'a [u8]), DecodeError> {
        let (field, wire) = decode_key(&mut self.0)?;
        let mut value = self.0;
        if wire == WireType::LengthDelimited {
            let length = decode_varint(&mut value)?;
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            if let Some((value, rest)) = value.split_at_checked(length) {
                self.0 = rest;
                return Ok((field, wire, value));
            }
        }
        // `skip_field` also fails if the end of a text or of a nested message is missing.
        skip_field(wire, field, &mut self.0, DecodeContext::default())?;
        Ok((field, wire, &value[..value.len() - self.0.len()]))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, WireType, &'a [u8]), DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        (!self.0.is_empty()).then(|| self.next_field())
    }
}

/// The fields of a row that are always decoded.
pub(crate) trait BriefRow: Message + Default {
    const KIND: Kind;

    fn id(&self) -> &str;

    /// The state; `None` if its number is not in the CRI.
    fn shown(&self) -> Option<ReportedState>;

    /// Decodes a complete row. `None` if it has no id.
    fn complete(encoded: &[u8]) -> Result<Option<Report>, DecodeError>;
}

/// [`v1::PodSandbox`], without labels and annotations: `encoded_labels` decodes these.
#[derive(Clone, PartialEq, Message)]
struct WholeSandbox {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(message, optional, tag = "2")]
    metadata: Option<v1::PodSandboxMetadata>,
    #[prost(int32, tag = "3")]
    state: i32,
    #[prost(int64, tag = "4")]
    created_at: i64,
    #[prost(string, tag = "7")]
    runtime_handler: String,
}

/// [`v1::Container`], without labels and annotations: `encoded_labels` decodes these.
#[derive(Clone, PartialEq, Message)]
struct WholeContainer {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(string, tag = "2")]
    pod_sandbox_id: String,
    #[prost(message, optional, tag = "3")]
    metadata: Option<v1::ContainerMetadata>,
    #[prost(message, optional, tag = "4")]
    image: Option<v1::ImageSpec>,
    #[prost(string, tag = "5")]
    image_ref: String,
    #[prost(int32, tag = "6")]
    state: i32,
    #[prost(int64, tag = "7")]
    created_at: i64,
    #[prost(string, tag = "10")]
    image_id: String,
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
        let row = WholeSandbox::decode(encoded)?;
        let labels = encoded_labels(encoded, 5)?;
        let identity = convert::sandbox_identity(row.metadata, &labels, row.created_at);
        let mut details = SandboxDetails::default();
        details.runtime_handler = convert::text(row.runtime_handler);
        details.labels = labels;
        details.annotations = encoded_labels(encoded, 6)?;
        let shown = convert::sandbox_state_or_unknown(row.state);
        Ok(convert::id(row.id).map(|id| Report::new(id, shown, identity, details)))
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
        let row = WholeContainer::decode(encoded)?;
        let labels = encoded_labels(encoded, 8)?;
        let mut identity = convert::container_identity(row.metadata, &labels, row.created_at);
        identity.sandbox = convert::non_empty(row.pod_sandbox_id);
        let mut details = ContainerDetails::default();
        details.image = convert::text(row.image.unwrap_or_default().image);
        details.image_ref = convert::text(row.image_ref);
        details.image_id = convert::text(row.image_id);
        details.labels = labels;
        details.annotations = encoded_labels(encoded, 9)?;
        let shown = convert::container_state_or_unknown(row.state);
        Ok(convert::id(row.id).map(|id| Report::new(id, shown, identity, details)))
    }
}

/// Decodes the id and the state into `brief`, whose memory is reused, and passes the row to `row`.
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
        // No id, or a state that is not in the CRI: decodes the complete row, as `complete` counts this in a metric.
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
    fn unknown_field_between_the_rows_of_a_list_is_skipped() {
        // Unknown fields: number 15 as a 32-bit and a 64-bit value, an empty group, a key in more bytes than needed.
        let fixed: [&[u8]; 2] = [&[0x7d, 1, 2, 3, 4], &[0x79, 1, 2, 3, 4, 5, 6, 7, 8]];
        let other: [&[u8]; 2] = [&[0x7b, 0x7c], &[0xf8, 0x80, 0x00, 1]];
        for field in fixed.into_iter().chain(other) {
            let message = [&b"\x0a\x01a"[..], field, b"\x0a\x01b"].concat();
            let rows: Result<Vec<_>, _> = super::encoded(&message).collect();
            assert_eq!(rows.unwrap(), [b"a", b"b"], "{field:02x?}");
        }
    }
}
