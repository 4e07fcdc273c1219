//! Messages encoded in advance, except for the fields that change.

use std::ops::RangeInclusive;

use bytes::{BufMut as _, Bytes, BytesMut};
use prost::Message;
use prost::encoding::{DecodeContext, WireType, decode_key, encode_key, encode_varint, skip_field};

use crate::typical::Random;

/// An encoded message without the fields that change: the fields before them and the fields after them.
#[derive(Debug)]
pub(super) struct Encoded([Bytes; 2]);

impl Encoded {
    /// Encodes the message as a Go runtime does: with the entries of each map in random order.
    pub(super) fn new(
        message: &impl Message,
        changing: RangeInclusive<u32>,
        random: &mut Random,
    ) -> Self {
        let encoded = message.encode_to_vec();
        let mut fields: Vec<(u32, &[u8])> = Vec::new();
        let (mut rest, mut start) = (&encoded[..], 0);
        while let Ok((number, wire)) = decode_key(&mut rest) {
            if skip_field(wire, number, &mut rest, DecodeContext::default()).is_err() {
                break;
            }
            let end = encoded.len() - rest.len();
            fields.push((number, &encoded[start..end]));
            start = end;
        }
        random.shuffle(&mut fields);
        // The sort is stable, so the entries of a map, which all have one field number, keep their random order.
        fields.sort_by_key(|(number, _)| *number);
        let part = |wanted: &dyn Fn(u32) -> bool| {
            let wanted = fields.iter().filter(|(number, _)| wanted(*number));
            let parts: Vec<&[u8]> = wanted.map(|(_, field)| *field).collect();
            Bytes::from(parts.concat())
        };
        Self([
            part(&|number| number < *changing.start()),
            part(&|number| number > *changing.end()),
        ])
    }

    /// Appends the message to `out` as its field number `field`. `changed` has only the fields that change.
    pub(super) fn append(&self, field: u32, changed: &impl Message, out: &mut BytesMut) {
        let [before, after] = &self.0;
        let length = before.len() + changed.encoded_len() + after.len();
        out.reserve(length + 16);
        encode_key(field, WireType::LengthDelimited, out);
        encode_varint(length as u64, out);
        out.put_slice(before);
        changed.encode_raw(out);
        out.put_slice(after);
    }
}

/// The length of a frame's header.
pub(super) const HEAD: usize = 5;

/// Returns the gRPC frame of a message: a byte for "not compressed", the length, the message.
pub(super) fn framed(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(message.len() + HEAD);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.put_slice(message);
    frame.freeze()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use pleg_cri::v1;

    use super::*;
    use crate::typical;

    fn encode(encoded: &Encoded, changed: &v1::ContainerStatus) -> v1::ContainerStatusResponse {
        let mut out = BytesMut::new();
        encoded.append(1, changed, &mut out);
        v1::ContainerStatusResponse::decode(&out[..]).unwrap()
    }

    #[test]
    fn message_with_changed_state_decodes_to_changed_status() {
        let pod = typical::pod(7);
        let mut app = pod.containers[0].clone();
        let status = typical::container_status(&pod, &app);
        let mut random = Random(1);
        let [one, other] = [(); 2].map(|()| Encoded::new(&status, 3..=10, &mut random));
        assert_ne!(
            one.0[1], other.0[1],
            "the entries of maps have another order"
        );
        app.exit_code = 3;
        app.finished_at = 77;
        let wanted = typical::container_status(&pod, &app);
        let mut status = encode(&one, &typical::container_state(&app))
            .status
            .unwrap();
        status.mounts.sort_by_key(|m| m.container_path.clone());
        let mut mounts = wanted.mounts.clone();
        mounts.sort_by_key(|m| m.container_path.clone());
        assert_eq!(status, v1::ContainerStatus { mounts, ..wanted });
    }

    /// Compares the encoded sizes with those measured and computed for real nodes, with 20 % tolerance.
    #[test]
    fn typical_rows_and_statuses_have_the_sizes_of_real_ones() {
        let pod = typical::pod(7);
        let app = &pod.containers[0];
        let sizes = BTreeMap::from([
            (1100, typical::container_row(&pod, app).encoded_len()),
            (1184, typical::sandbox_row(&pod).encoded_len()),
            (1856, typical::container_status(&pod, app).encoded_len()),
            (1230, typical::sandbox_status(&pod).encoded_len()),
        ]);
        for (expected, is) in sizes {
            let ratio = is as f64 / f64::from(expected);
            assert!((0.8..1.2).contains(&ratio), "{is}, not {expected}");
        }
    }
}
