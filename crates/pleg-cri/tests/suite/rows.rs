//! Rows of lists against prost and the plain conversion of the whole list: the same rows, the same
//! errors, and the same id and state before a row is decoded as a whole.
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

/// All rows, decoded; what a row says before it is decoded is what it says after.
fn read(rows: Rows, message: &[u8]) -> Result<Vec<Report>, DecodeError> {
    let mut all = Vec::new();
    rows(Bytes::copy_from_slice(message), &mut |row| {
        let said = (row.id().to_owned(), row.kind(), row.shown());
        if let Some(report) = row.report() {
            let (id, kind) = (report.id.to_string(), report.identity.kind);
            assert_eq!(said, (id, kind, report.shown));
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

/// Row by row and as a whole, any bytes are the same rows or none.
fn the_same(message: &[u8]) {
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

/// A field of bytes.
fn field(number: u32, value: &[u8]) -> Vec<u8> {
    let mut field = Vec::new();
    let wire = prost::encoding::WireType::LengthDelimited;
    prost::encoding::encode_key(number, wire, &mut field);
    prost::encoding::encode_varint(value.len() as u64, &mut field);
    field.extend(value);
    field
}

/// A list of that one row.
fn listed(row: &[u8]) -> Vec<u8> {
    field(1, row)
}

proptest! {
    #[test]
    fn a_skimmed_list_is_the_decoded_one(sandboxes in sandboxes(), containers in containers()) {
        prop_assert_eq!(read(rows::sandboxes, &sandboxes)?, decoded_sandboxes(&sandboxes)?);
        prop_assert_eq!(read(rows::containers, &containers)?, decoded_containers(&containers)?);
    }

    #[test]
    fn what_is_cut_off_is_malformed_as_it_is_to_prost(
        message in prop_oneof![sandboxes(), containers()],
        at in any::<prop::sample::Index>(),
    ) {
        the_same(&message[..at.index(message.len() + 1)]);
    }

    #[test]
    fn what_is_changed_anywhere_is_what_it_is_to_prost(
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
        the_same(&message);
    }

    #[test]
    fn any_bytes_are_what_they_are_to_prost(bytes in vec(any::<u8>(), 0..200)) {
        the_same(&bytes);
        the_same(&listed(&bytes));
    }

    /// The last value of a field that comes twice counts.
    #[test]
    fn row_with_a_field_twice_is_decoded_as_by_prost(row in container(), again in container()) {
        let twice = [row.encode_to_vec(), again.encode_to_vec()].concat();
        the_same(&listed(&twice));
    }
}

/// A field in another wire type is an error, and never the same as that field left empty.
#[test]
fn a_field_of_a_wrong_type_is_not_an_empty_one() {
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
        let message = listed(&bytes);
        the_same(&message);
        // prost takes any number before a map's entry for its length.
        let is_map = number == 8 || number == 9;
        let error = read(rows::containers, &message).is_err();
        assert_eq!(error, !is_map, "{number}");
    }
    for map in [8, 9] {
        let swallows_the_id = [&[map << 3, 3], &*row.encode_to_vec()].concat();
        the_same(&listed(&swallows_the_id));
    }
}
