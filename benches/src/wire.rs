//! Encodes messages as a Go runtime does: with map entries in random order.

use std::collections::BTreeMap;

use bytes::{BufMut as _, Bytes, BytesMut};
use pleg_cri::v1;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, string};

use crate::random::Random;

type Map = BTreeMap<String, String>;

/// A message with labels and annotations.
pub trait Mapped: Message + Default + Sized {
    /// The field numbers of labels and annotations.
    const MAPS: [u32; 2];

    /// Takes the maps, and the fields that are encoded after them.
    fn take(&mut self) -> ([Map; 2], Self);

    /// Encodes the message with the entries of each map in random order.
    fn shuffled(mut self, random: &mut Random, out: &mut BytesMut) {
        let (maps, tail) = self.take();
        append(&self, out);
        for (number, map) in Self::MAPS.into_iter().zip(maps) {
            let mut entries: Vec<_> = map.into_iter().collect();
            random.shuffle(&mut entries);
            for (key, value) in entries {
                let inner = string::encoded_len(1, &key) + string::encoded_len(2, &value);
                encode_key(number, WireType::LengthDelimited, out);
                encode_varint(inner as u64, out);
                string::encode(1, &key, out);
                string::encode(2, &value, out);
            }
        }
        append(&tail, out);
    }
}

/// Appends a message. The buffer grows as needed.
fn append(message: &impl Message, out: &mut BytesMut) {
    out.reserve(message.encoded_len());
    message.encode_raw(out);
}

macro_rules! mapped {
    ($message:ident, $labels:literal, $annotations:literal, $($after:ident),+) => {
        impl Mapped for v1::$message {
            const MAPS: [u32; 2] = [$labels, $annotations];

            fn take(&mut self) -> ([Map; 2], Self) {
                use std::mem::take;
                let maps = [take(&mut self.labels), take(&mut self.annotations)];
                let tail = Self { $($after: take(&mut self.$after),)+ ..Self::default() };
                (maps, tail)
            }
        }
    };
}

mapped!(PodSandbox, 5, 6, runtime_handler);
mapped!(Container, 8, 9, image_id);
mapped!(PodSandboxStatus, 7, 8, runtime_handler);
mapped!(
    ContainerStatus,
    12,
    13,
    mounts,
    log_path,
    resources,
    image_id,
    user,
    stop_signal
);

/// Appends a field that is a message.
pub fn nested(number: u32, message: &[u8], out: &mut BytesMut) {
    out.reserve(message.len() + 2 * encoded_len_varint(message.len() as u64));
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(message.len() as u64, out);
    out.put_slice(message);
}

/// Returns the gRPC frame of a message: a byte for "not compressed", the length, the message.
#[must_use]
pub fn framed(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(message.len() + HEAD);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.put_slice(message);
    frame.freeze()
}

/// The length of a frame's header.
pub const HEAD: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffled_message_decodes_to_equal_message() {
        let labels: Map = (0..9).map(|n| (format!("k{n}"), format!("v{n}"))).collect();
        let row = v1::Container {
            id: "c".into(),
            image_id: "i".into(),
            annotations: labels.clone(),
            labels,
            ..Default::default()
        };
        let mut random = Random::new(1);
        let bytes: Vec<_> = (0..2)
            .map(|_| {
                let mut out = BytesMut::new();
                row.clone().shuffled(&mut random, &mut out);
                assert_eq!(v1::Container::decode(&out[..]).unwrap(), row);
                out
            })
            .collect();
        assert_ne!(bytes[0], bytes[1]);
        assert_eq!(bytes[0].len(), row.encoded_len());
    }
}
