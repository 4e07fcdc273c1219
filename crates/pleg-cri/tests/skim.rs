//! Lists that are skimmed against lists that are decoded: the same rows, the same errors, and
//! fingerprints that are equal if and only if the rows say the same.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::collections::BTreeMap;

use pleg_cri::{convert, skim, v1};
use pleg_runtime::Row;
use pleg_runtime::core::{Fingerprint, Report};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use prost::{DecodeError, Message};

type Skim = fn(&[u8], &mut dyn FnMut(Row<'_>)) -> Result<(), DecodeError>;

type Decode = fn(&[u8]) -> Result<Vec<Report>, DecodeError>;

/// All rows, decoded; what a row says before it is decoded is what it says after.
fn skimmed(skim: Skim, message: &[u8]) -> Result<Vec<Report>, DecodeError> {
    let mut rows = Vec::new();
    skim(message, &mut |row| {
        let said = (row.id().to_owned(), row.kind(), row.shown());
        if let Some(report) = row.report() {
            let (id, kind) = (report.id.to_string(), report.identity.kind);
            assert_eq!(said, (id, kind, report.shown));
            rows.push(report);
        }
    })?;
    Ok(rows)
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

/// Skimmed and decoded, any bytes are the same rows or none.
fn the_same(message: &[u8]) {
    let both: [(Skim, Decode); 2] = [
        (skim::sandboxes, decoded_sandboxes),
        (skim::containers, decoded_containers),
    ];
    for (skim, decoded) in both {
        match (skimmed(skim, message), decoded(message)) {
            (Ok(skimmed), Ok(decoded)) => assert_eq!(skimmed, decoded),
            (Err(_), Err(_)) => {}
            (skimmed, decoded) => panic!("skimmed {skimmed:?}, decoded {decoded:?}"),
        }
    }
}

fn fingerprints(skim: Skim, message: &[u8]) -> Vec<Option<Fingerprint>> {
    let mut all = Vec::new();
    skim(message, &mut |row| all.push(row.fingerprint())).unwrap();
    all
}

fn of_sandbox(row: &v1::PodSandbox) -> Option<Fingerprint> {
    let items = vec![row.clone()];
    let message = v1::ListPodSandboxResponse { items }.encode_to_vec();
    fingerprints(skim::sandboxes, &message)[0]
}

fn of_container(row: &v1::Container) -> Option<Fingerprint> {
    let containers = vec![row.clone()];
    let message = v1::ListContainersResponse { containers }.encode_to_vec();
    fingerprints(skim::containers, &message)[0]
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

/// The fields of a message, each with its number; a reader of the test's own.
fn fields(mut message: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut all = Vec::new();
    while !message.is_empty() {
        let start = message;
        let (number, wire) = prost::encoding::decode_key(&mut message).unwrap();
        let context = prost::encoding::DecodeContext::default();
        prost::encoding::skip_field(wire, number, &mut message, context).unwrap();
        all.push((number, start[..start.len() - message.len()].to_vec()));
    }
    all
}

fn value(field: &[u8]) -> &[u8] {
    let mut value = field;
    prost::encoding::decode_key(&mut value).unwrap();
    prost::encoding::decode_varint(&mut value).unwrap();
    value
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

fn shuffled(message: &[u8], mut dice: impl FnMut(usize) -> usize) -> Vec<u8> {
    let mut fields = fields(message);
    for last in (1..fields.len()).rev() {
        fields.swap(last, dice(last + 1));
    }
    fields.into_iter().flat_map(|(_, whole)| whole).collect()
}

/// A list of that one row.
fn listed(row: &[u8]) -> Vec<u8> {
    field(1, row)
}

proptest! {
    #[test]
    fn a_skimmed_list_is_the_decoded_one(sandboxes in sandboxes(), containers in containers()) {
        prop_assert_eq!(skimmed(skim::sandboxes, &sandboxes)?, decoded_sandboxes(&sandboxes)?);
        prop_assert_eq!(skimmed(skim::containers, &containers)?, decoded_containers(&containers)?);
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

    /// Go encodes maps in random order.
    #[test]
    fn a_fingerprint_does_not_depend_on_the_order_of_fields(
        row in container(), sandbox in sandbox(), seed in any::<u64>(),
    ) {
        let row = v1::Container { id: "c".to_owned(), ..row };
        let sandbox = v1::PodSandbox { id: "s".to_owned(), ..sandbox };
        let mut seed = seed;
        let mut dice = |n: usize| {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (seed >> 33) as usize % n
        };
        let bytes = shuffled(&row.encode_to_vec(), &mut dice);
        let image = 4;
        let bytes: Vec<u8> = fields(&bytes)
            .into_iter()
            .flat_map(|(number, whole)| match number == image {
                true => field(image, &shuffled(value(&whole), &mut dice)),
                false => whole,
            })
            .collect();
        let message = listed(&bytes);
        prop_assert_eq!(fingerprints(skim::containers, &message), [of_container(&row)]);
        prop_assert_eq!(skimmed(skim::containers, &message)?, decoded_containers(&message)?);
        let message = listed(&shuffled(&sandbox.encode_to_vec(), &mut dice));
        prop_assert_eq!(fingerprints(skim::sandboxes, &message), [of_sandbox(&sandbox)]);
    }

    /// Of two rows of one id, whatever differs between them but the state.
    #[test]
    fn fingerprints_are_equal_if_and_only_if_the_rows_say_the_same(
        one in container(), other in container(), swap in 0..9_u8,
    ) {
        let id = "c".to_owned();
        let one = v1::Container { id, state: 0, ..one };
        let mut changed = one.clone();
        match swap {
            0 => changed.pod_sandbox_id = other.pod_sandbox_id,
            1 => changed.metadata = other.metadata,
            2 => changed.image = other.image,
            3 => changed.image_ref = other.image_ref,
            4 => changed.created_at = other.created_at,
            5 => changed.labels = other.labels,
            6 => changed.annotations = other.annotations,
            7 => changed.image_id = other.image_id,
            // What a label said an annotation says.
            _ => std::mem::swap(&mut changed.labels, &mut changed.annotations),
        }
        let same = changed == one;
        changed.state = 2;
        prop_assert_eq!(of_container(&one) == of_container(&changed), same);
    }

    #[test]
    fn so_are_those_of_sandboxes(one in sandbox(), other in sandbox(), swap in 0..6_u8) {
        let id = "s".to_owned();
        let one = v1::PodSandbox { id, state: 0, ..one };
        let mut changed = one.clone();
        match swap {
            0 => changed.metadata = other.metadata,
            1 => changed.created_at = other.created_at,
            2 => changed.labels = other.labels,
            3 => changed.annotations = other.annotations,
            4 => changed.runtime_handler = other.runtime_handler,
            _ => std::mem::swap(&mut changed.labels, &mut changed.annotations),
        }
        let same = changed == one;
        changed.state = 1;
        prop_assert_eq!(of_sandbox(&one) == of_sandbox(&changed), same);
    }

    /// The last of them counts, and a sum would not tell which that is.
    #[test]
    fn a_row_with_a_field_twice_has_no_fingerprint(row in container(), again in container()) {
        let twice = [row.encode_to_vec(), again.encode_to_vec()].concat();
        the_same(&listed(&twice));
        let id_twice = !row.id.is_empty() && !again.id.is_empty();
        if id_twice {
            prop_assert_eq!(fingerprints(skim::containers, &listed(&twice)), [None]);
        }
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
        let error = skimmed(skim::containers, &message).is_err();
        assert_eq!(error, !is_map, "{number}");
    }
    for map in [8, 9] {
        let swallows_the_id = [&[map << 3, 3], &*row.encode_to_vec()].concat();
        the_same(&listed(&swallows_the_id));
    }
}
