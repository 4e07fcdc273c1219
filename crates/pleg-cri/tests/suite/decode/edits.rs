//! Changes of an encoded message: of single bytes, and of the number and order of its fields.

use proptest::prelude::*;
use proptest::sample::Index;

pub(super) fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        any::<u8>().prop_map(Edit::Set),
        any::<u8>().prop_map(Edit::Insert),
        Just(Edit::Remove),
        Just(Edit::Cut),
        any::<Index>().prop_map(Edit::Duplicate),
    ]
}

#[derive(Clone, Debug)]
pub(super) enum Edit {
    Set(u8),
    Insert(u8),
    Remove,
    Cut,
    /// Appends a copy of a field, with a valid number and wire type.
    Duplicate(Index),
}

pub(super) fn apply(message: &mut Vec<u8>, at: Index, edit: Edit) {
    if message.is_empty() {
        return;
    }
    let place = at.index(message.len());
    match edit {
        Edit::Set(byte) => message[place] = byte,
        Edit::Insert(byte) => message.insert(place, byte),
        Edit::Remove => drop(message.remove(place)),
        Edit::Cut => message.truncate(place),
        Edit::Duplicate(which) => {
            let fields = fields(message);
            if !fields.is_empty() {
                let duplicate = fields[which.index(fields.len())].1.to_vec();
                message.extend(duplicate);
            }
        }
    }
}

/// The fields of a message: the offset of the payload, if the field is length-delimited, and all
/// bytes of the field.
pub(super) fn fields(mut message: &[u8]) -> Vec<(Option<usize>, &[u8])> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let mut rest = message;
        let Ok((_, kind)) = prost::encoding::decode_key(&mut rest) else {
            break;
        };
        let payload = match kind {
            prost::encoding::WireType::Varint => {
                if prost::encoding::decode_varint(&mut rest).is_err() {
                    break;
                }
                None
            }
            prost::encoding::WireType::LengthDelimited => {
                let length = prost::encoding::decode_varint(&mut rest).unwrap_or(u64::MAX);
                if length > rest.len() as u64 {
                    break;
                }
                let begin = message.len() - rest.len();
                rest = &rest[length as usize..];
                Some(begin)
            }
            _ => break,
        };
        let (field, after) = message.split_at(message.len() - rest.len());
        fields.push((payload, field));
        message = after;
    }
    fields
}

/// The same message with its fields in another order, including the fields of its statuses.
pub(super) fn shuffled(message: &[u8], order: u64, depth: usize) -> Vec<u8> {
    let mut fields: Vec<Vec<u8>> = fields(message)
        .into_iter()
        .map(|(payload, field)| match payload {
            // Statuses are the only large fields.
            Some(begin) if depth > 0 && field.len() > 40 => {
                let (head, payload) = field.split_at(begin);
                [head, &shuffled(payload, order.rotate_left(7), depth - 1)].concat()
            }
            _ => field.to_vec(),
        })
        .collect();
    let mut random = order | 1;
    for n in (1..fields.len()).rev() {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        fields.swap(n, (random >> 33) as usize % (n + 1));
    }
    fields.concat()
}
