//! Compares the event decoder with prost and the conversion: on valid messages with any order of
//! fields, on truncated and altered messages, and after previous messages.

mod edits;
mod messages;
mod used_fields;

use std::collections::BTreeMap;

use pleg_cri::{EventDecoder, convert, v1};
use pleg_runtime::core::RuntimeEvent;
use proptest::prelude::*;
use proptest::sample::Index;
use prost::Message as _;

use edits::{apply, edit, fields, shuffled};
use messages::event;

/// The result of prost and the conversion.
fn reference(message: &[u8]) -> Result<Option<RuntimeEvent>, prost::DecodeError> {
    v1::ContainerEventResponse::decode(message).map(convert::event)
}

/// Checks that the decoder returns the same as prost and the conversion. If prost rejects a field
/// that is not used, the decoder may return an event: that of the fields that are used.
fn check(decoder: &mut EventDecoder, message: &[u8]) -> Result<(), TestCaseError> {
    let decoded = decoder.read(message);
    match (reference(message), decoded) {
        (Err(_), Ok(event)) => {
            let used = used_fields::Event::decode(message);
            prop_assert_eq!(used.map(|e| convert::event(e.into_message())), Ok(event));
        }
        (expected, decoded) => prop_assert_eq!(decoded, expected),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn valid_message_decodes_as_by_prost(
        events in prop::collection::vec((event(), any::<u64>()), 1..6),
    ) {
        let mut decoder = EventDecoder::new();
        for (event, order) in events {
            let message = event.encode_to_vec();
            prop_assert_eq!(decoder.read(&message), reference(&message));
            let message = shuffled(&message, order, 2);
            prop_assert!(reference(&message).is_ok());
            prop_assert_eq!(decoder.read(&message), reference(&message));
        }
    }

    #[test]
    fn altered_message_decodes_as_by_prost(
        event in event(),
        order in any::<u64>(),
        edits in prop::collection::vec((any::<Index>(), edit()), 1..4),
    ) {
        let mut decoder = EventDecoder::new();
        let valid = event.encode_to_vec();
        check(&mut decoder, &valid)?;
        let mut message = shuffled(&valid, order, 2);
        for (at, edit) in edits {
            apply(&mut message, at, edit);
            check(&mut decoder, &message)?;
        }
        // The altered messages left nothing in the decoder.
        check(&mut decoder, &valid)?;
    }

    #[test]
    fn arbitrary_bytes_decode_as_by_prost(message in prop::collection::vec(any::<u8>(), 0..64)) {
        check(&mut EventDecoder::new(), &message)?;
    }
}

/// Every length of a message, and every bit of it.
#[test]
fn truncated_or_bit_flipped_message_decodes_as_by_prost() {
    let mut decoder = EventDecoder::new();
    let message = sample().encode_to_vec();
    for length in 0..message.len() {
        check(&mut decoder, &message[..length]).expect("the same result");
    }
    for bit in 0..message.len() * 8 {
        let mut message = message.clone();
        message[bit / 8] ^= 1 << (bit % 8);
        check(&mut decoder, &message).expect("the same result");
    }
}

/// The second message has as many pairs as the first, and all of them are known, but the labels
/// differ: one key is there twice.
#[test]
fn duplicate_label_key_counts_once() {
    let with = |labels: &[(&str, &str)]| {
        let labels = labels
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        let status = v1::PodSandboxStatus {
            id: "s1".to_owned(),
            labels: labels.collect(),
            ..v1::PodSandboxStatus::default()
        };
        status.encode_to_vec()
    };
    let with_duplicate = |status: &[u8]| {
        let entry = fields(status).last().expect("a label").1.to_vec();
        [status, &entry].concat()
    };
    let mut decoder = EventDecoder::new();
    for status in [
        with(&[("a", "1"), ("b", "2")]),
        with_duplicate(&with(&[("a", "1")])),
    ] {
        let length = u8::try_from(status.len()).expect("a short one");
        let message = [b"\x0a\x02s1\x22", &[length][..], &status].concat();
        let decoded = decoder.read(&message);
        assert_eq!(decoded, reference(&message));
        assert!(matches!(decoded, Ok(Some(event)) if event.sandbox.is_some()));
    }
    // A value that the duplicate overrides must be UTF-8, too.
    let entries = b"\x3a\x06\x0a\x01a\x12\x01\xff\x3a\x06\x0a\x01a\x12\x011";
    let message = [&b"\x0a\x02s1\x22\x14\x0a\x02s1"[..], entries].concat();
    assert!(reference(&message).is_err());
    assert_eq!(decoder.read(&message), reference(&message));
}

fn sample() -> v1::ContainerEventResponse {
    let map = |pairs: &[(&str, &str)]| {
        let pairs = pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        pairs.collect::<BTreeMap<_, _>>()
    };
    v1::ContainerEventResponse {
        container_id: "c1".to_owned(),
        container_event_type: v1::ContainerEventType::ContainerStoppedEvent.into(),
        created_at: 1_700_000_000_000_000_000,
        pod_sandbox_status: Some(v1::PodSandboxStatus {
            id: "s1".to_owned(),
            metadata: Some(v1::PodSandboxMetadata {
                name: "web".to_owned(),
                uid: "u1".to_owned(),
                namespace: "ns".to_owned(),
                attempt: 1,
            }),
            network: Some(v1::PodSandboxNetworkStatus {
                ip: "10.0.0.1".to_owned(),
                additional_ips: vec![v1::PodIp {
                    ip: "fd00::1".to_owned(),
                }],
            }),
            created_at: 1_700_000_000_000_000_000,
            labels: map(&[("io.kubernetes.pod.uid", "u1"), ("a", "b")]),
            annotations: map(&[("é", "ü")]),
            runtime_handler: "runc".to_owned(),
            ..v1::PodSandboxStatus::default()
        }),
        containers_statuses: vec![v1::ContainerStatus {
            id: "c1".to_owned(),
            metadata: Some(v1::ContainerMetadata {
                name: "app".to_owned(),
                attempt: 2,
            }),
            state: v1::ContainerState::ContainerExited.into(),
            exit_code: -1,
            labels: map(&[("io.kubernetes.pod.uid", "u1")]),
            mounts: vec![v1::Mount {
                host_path: "/a".to_owned(),
                ..v1::Mount::default()
            }],
            resources: Some(v1::ContainerResources {
                linux: Some(v1::LinuxContainerResources {
                    cpu_quota: 5,
                    ..v1::LinuxContainerResources::default()
                }),
            }),
            ..v1::ContainerStatus::default()
        }],
    }
}
