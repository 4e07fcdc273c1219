//! Compares the row decoder with prost and the conversion of the complete list: the same rows, the
//! same errors, and the same id and state before and after a row is decoded completely.

use std::collections::BTreeMap;

use pleg_cri::{convert, rows, v1};
use pleg_runtime::Row;
use pleg_runtime::core::Report;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use prost::bytes::Bytes;
use prost::{DecodeError, Message};

type Rows = fn(Bytes, &mut dyn FnMut(Row<'_>)) -> Result<(), DecodeError>;

type Decode = fn(&[u8]) -> Result<Vec<Report>, DecodeError>;

/// Decodes all rows. Checks that id, kind and state are the same before and after decoding.
fn read(rows: Rows, message: &[u8]) -> Result<Vec<Report>, DecodeError> {
    let mut all = Vec::new();
    rows(Bytes::copy_from_slice(message), &mut |row| {
        let partial = (row.id().to_owned(), row.kind(), row.shown());
        if let Some(report) = row.report() {
            let (id, kind) = (report.id.to_string(), report.identity.kind);
            assert_eq!(partial, (id, kind, report.shown));
            all.push(report);
        }
    })?;
    Ok(all)
}

fn decoded_sandboxes(message: &[u8]) -> Result<Vec<Report>, DecodeError> {
    let rows = v1::ListPodSandboxResponse::decode(message)?.items;
    Ok(rows.into_iter().filter_map(convert::sandbox_row).collect())
}

fn decoded_containers(message: &[u8]) -> Result<Vec<Report>, DecodeError> {
    let rows = v1::ListContainersResponse::decode(message)?.containers;
    Ok(rows
        .into_iter()
        .filter_map(convert::container_row)
        .collect())
}

/// Checks that the row decoder and prost return the same rows, or that both fail.
fn assert_same(message: &[u8]) {
    let both: [(Rows, Decode); 2] = [
        (rows::sandboxes, decoded_sandboxes),
        (rows::containers, decoded_containers),
    ];
    for (rows, decoded) in both {
        match (read(rows, message), decoded(message)) {
            (Ok(read), Ok(decoded)) => assert_eq!(read, decoded),
            (Err(_), Err(_)) => {}
            (read, decoded) => panic!("read {read:?}, decoded {decoded:?}"),
        }
    }
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["", "[a-z]{1,8}", "[a-zé]{30,300}"]
}

fn map() -> impl Strategy<Value = BTreeMap<String, String>> {
    btree_map("[a-z./]{0,20}", text(), 0..6)
}

fn number() -> impl Strategy<Value = i64> {
    prop_oneof![
        Just(0),
        any::<i64>(),
        1_600_000_000_000_000_000_i64..1_800_000_000_000_000_000
    ]
}

fn state() -> impl Strategy<Value = i32> {
    prop_oneof![0..5, any::<i32>()]
}

fn sandbox() -> impl Strategy<Value = v1::PodSandbox> {
    let metadata = (text(), text(), text(), any::<u32>());
    let metadata = metadata.prop_map(|(name, uid, namespace, attempt)| v1::PodSandboxMetadata {
        name,
        uid,
        namespace,
        attempt,
    });
    let metadata = proptest::option::of(metadata);
    (text(), metadata, state(), number(), map(), map(), text()).prop_map(
        |(id, metadata, state, created_at, labels, annotations, runtime_handler)| v1::PodSandbox {
            id,
            metadata,
            state,
            created_at,
            labels,
            annotations,
            runtime_handler,
        },
    )
}

fn container() -> impl Strategy<Value = v1::Container> {
    let image = (text(), map(), text(), text());
    let image = image.prop_map(|(image, annotations, user, handler)| v1::ImageSpec {
        image,
        annotations,
        user_specified_image: user,
        runtime_handler: handler,
        ..Default::default()
    });
    let metadata = (text(), any::<u32>());
    let metadata = metadata.prop_map(|(name, attempt)| v1::ContainerMetadata { name, attempt });
    let (image, metadata) = (proptest::option::of(image), proptest::option::of(metadata));
    let texts = (text(), text(), text(), text());
    (texts, metadata, image, state(), number(), map(), map()).prop_map(
        |(texts, metadata, image, state, created_at, labels, annotations)| v1::Container {
            id: texts.0,
            pod_sandbox_id: texts.1,
            metadata,
            image,
            image_ref: texts.2,
            state,
            created_at,
            labels,
            annotations,
            image_id: texts.3,
        },
    )
}

fn sandboxes() -> impl Strategy<Value = Vec<u8>> {
    vec(sandbox(), 0..6).prop_map(|items| v1::ListPodSandboxResponse { items }.encode_to_vec())
}

fn containers() -> impl Strategy<Value = Vec<u8>> {
    vec(container(), 0..6)
        .prop_map(|containers| v1::ListContainersResponse { containers }.encode_to_vec())
}

/// A length-delimited field.
fn field(number: u32, value: &[u8]) -> Vec<u8> {
    let mut field = Vec::new();
    let wire = prost::encoding::WireType::LengthDelimited;
    prost::encoding::encode_key(number, wire, &mut field);
    prost::encoding::encode_varint(value.len() as u64, &mut field);
    field.extend(value);
    field
}

/// An encoded list with one row.
fn list_of(row: &[u8]) -> Vec<u8> {
    field(1, row)
}

proptest! {
    #[test]
    fn valid_list_decodes_as_by_prost(sandboxes in sandboxes(), containers in containers()) {
        prop_assert_eq!(read(rows::sandboxes, &sandboxes)?, decoded_sandboxes(&sandboxes)?);
        prop_assert_eq!(read(rows::containers, &containers)?, decoded_containers(&containers)?);
    }

    #[test]
    fn truncated_list_decodes_as_by_prost(
        message in prop_oneof![sandboxes(), containers()],
        at in any::<prop::sample::Index>(),
    ) {
        assert_same(&message[..at.index(message.len() + 1)]);
    }

    #[test]
    fn altered_list_decodes_as_by_prost(
        message in prop_oneof![sandboxes(), containers()],
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut message = message;
        for (at, byte) in changes {
            if !message.is_empty() {
                let at = at.index(message.len());
                message[at] = byte;
            }
        }
        assert_same(&message);
    }

    #[test]
    fn arbitrary_bytes_decode_as_by_prost(bytes in vec(any::<u8>(), 0..200)) {
        assert_same(&bytes);
        assert_same(&list_of(&bytes));
    }

    /// The last occurrence of a field counts.
    #[test]
    fn row_with_duplicate_fields_decodes_as_by_prost(first in container(), second in container()) {
        let both = [first.encode_to_vec(), second.encode_to_vec()].concat();
        assert_same(&list_of(&both));
    }
}

/// A field with another wire type is an error. It is never read as an empty field.
#[test]
fn field_of_wrong_wire_type_is_an_error() {
    let row = v1::Container {
        id: "c".into(),
        ..Default::default()
    };
    for number in 1..=10 {
        let mut bytes = row.encode_to_vec();
        let wrong = if number == 6 || number == 7 {
            field(number, b"")
        } else {
            vec![(number as u8) << 3, 0]
        };
        bytes.extend(wrong);
        let message = list_of(&bytes);
        assert_same(&message);
        // For a map field, prost does not check the wire type and reads the varint as a length.
        let is_map = number == 8 || number == 9;
        let error = read(rows::containers, &message).is_err();
        assert_eq!(error, !is_map, "{number}");
    }
    for map in [8, 9] {
        let contains_the_id = [&[map << 3, 3], &*row.encode_to_vec()].concat();
        assert_same(&list_of(&contains_the_id));
    }
}

/// The rows before and after a field that is not in the CRI are passed on once each.
#[test]
fn rows_around_unusual_field_decode_as_by_prost() {
    let row = |id: &str| {
        let container = v1::Container {
            id: id.into(),
            metadata: Some(v1::ContainerMetadata::default()),
            image: Some(v1::ImageSpec::default()),
            ..Default::default()
        };
        list_of(&container.encode_to_vec())
    };
    // Field 15 with fixed 32 and 64 bits, an empty group, and a key that is encoded in more bytes than needed.
    let unusual: [&[u8]; 4] = [
        &[0x7d, 1, 2, 3, 4],
        &[0x79, 1, 2, 3, 4, 5, 6, 7, 8],
        &[0x7b, 0x7c],
        &[0xf8, 0x80, 0x00, 1],
    ];
    for field in unusual {
        let message = [&row("a"), &row("b"), field, &row("c"), &row("d")].concat();
        let rows = read(rows::containers, &message).expect("a valid list");
        let ids: Vec<_> = rows.iter().map(|row| row.id.as_str()).collect();
        assert_eq!(ids, ["a", "b", "c", "d"], "{field:02x?}");
        assert_same(&message);
    }
}
