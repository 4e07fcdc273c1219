//! Compares the event decoder with prost and the conversion: on valid messages with any order of
//! fields, on truncated and altered messages, and after previous messages.

use std::collections::BTreeMap;

use pleg_cri::{EventDecoder, convert, v1};
use pleg_runtime::core::RuntimeEvent;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use prost::Message as _;

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

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        any::<u8>().prop_map(Edit::Set),
        any::<u8>().prop_map(Edit::Insert),
        Just(Edit::Remove),
        Just(Edit::Cut),
        any::<Index>().prop_map(Edit::Duplicate),
    ]
}

#[derive(Clone, Debug)]
enum Edit {
    Set(u8),
    Insert(u8),
    Remove,
    Cut,
    /// Appends a copy of a field, with a valid number and wire type.
    Duplicate(Index),
}

fn apply(message: &mut Vec<u8>, at: Index, edit: Edit) {
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
fn fields(mut message: &[u8]) -> Vec<(Option<usize>, &[u8])> {
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
fn shuffled(message: &[u8], order: u64, depth: usize) -> Vec<u8> {
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

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => select(vec!["", "a", "bb", "é", "10.0.0.1", "fd00::1", "u1", "runc"]).prop_map(str::to_owned),
        1 => "[a-cé]{0,12}",
    ]
}

fn number() -> impl Strategy<Value = i64> {
    let usual = vec![
        0,
        1,
        -1,
        1_700_000_000_000_000_000,
        -6_795_364_578_871_345_152,
    ];
    prop_oneof![select(usual), any::<i64>()]
}

fn map() -> impl Strategy<Value = BTreeMap<String, String>> {
    let key = select(vec![
        "",
        "a",
        "b",
        "io.kubernetes.pod.uid",
        "io.kubernetes.pod.name",
        "io.kubernetes.pod.namespace",
    ]);
    prop::collection::btree_map(key.prop_map(str::to_owned), text(), 0..5)
}

fn sandbox() -> impl Strategy<Value = v1::PodSandboxStatus> {
    let metadata = (text(), text(), text(), 0u32..3);
    let metadata = prop::option::of(metadata.prop_map(|(name, uid, namespace, attempt)| {
        v1::PodSandboxMetadata {
            name,
            uid,
            namespace,
            attempt,
        }
    }));
    let network = prop::option::of((text(), prop::collection::vec(text(), 0..3)));
    let network = network.prop_map(|network| {
        network.map(|(ip, more)| v1::PodSandboxNetworkStatus {
            ip,
            additional_ips: more.into_iter().map(|ip| v1::PodIp { ip }).collect(),
        })
    });
    (
        text(),
        metadata,
        -1..4,
        number(),
        network,
        map(),
        map(),
        text(),
    )
        .prop_map(
            |(id, metadata, state, created_at, network, labels, annotations, runtime_handler)| {
                v1::PodSandboxStatus {
                    id,
                    metadata,
                    state,
                    created_at,
                    network,
                    labels,
                    annotations,
                    runtime_handler,
                    linux: Some(v1::LinuxPodSandboxStatus::default()),
                }
            },
        )
}

fn container() -> impl Strategy<Value = v1::ContainerStatus> {
    let metadata = prop::option::of((text(), 0u32..3));
    let linux = prop::option::of((number(), text(), map())).prop_map(|linux| {
        linux.map(|(n, cpus, unified)| v1::LinuxContainerResources {
            cpu_quota: n,
            memory_swap_limit_in_bytes: n,
            cpuset_cpus: cpus,
            unified,
            ..v1::LinuxContainerResources::default()
        })
    });
    let resources = prop::option::of(linux.prop_map(|linux| v1::ContainerResources { linux }));
    let times = (number(), number(), number(), any::<i32>());
    let texts = prop::array::uniform6(text());
    (
        text(),
        metadata,
        -1..5,
        times,
        texts,
        map(),
        map(),
        resources,
        any::<bool>(),
    )
        .prop_map(
            |(id, metadata, state, times, texts, labels, annotations, resources, more)| {
                let [image, image_ref, reason, message, log_path, image_id] = texts;
                let mount = v1::Mount {
                    container_path: image.clone(),
                    ..v1::Mount::default()
                };
                v1::ContainerStatus {
                    id,
                    metadata: metadata
                        .map(|(name, attempt)| v1::ContainerMetadata { name, attempt }),
                    state,
                    created_at: times.0,
                    started_at: times.1,
                    finished_at: times.2,
                    exit_code: times.3,
                    image: more.then(|| v1::ImageSpec {
                        image,
                        ..v1::ImageSpec::default()
                    }),
                    image_ref,
                    reason,
                    message,
                    labels,
                    annotations,
                    mounts: vec![mount; usize::from(more)],
                    log_path,
                    resources,
                    image_id,
                    ..v1::ContainerStatus::default()
                }
            },
        )
}

fn event() -> impl Strategy<Value = v1::ContainerEventResponse> {
    let sandbox = prop::option::of(sandbox());
    let containers = prop::collection::vec(container(), 0..4);
    (text(), -1..6, number(), sandbox, containers).prop_map(
        |(container_id, kind, created_at, pod_sandbox_status, containers_statuses)| {
            v1::ContainerEventResponse {
                container_id,
                container_event_type: kind,
                created_at,
                pod_sandbox_status,
                containers_statuses,
            }
        },
    )
}

/// The event messages, reduced to the fields that are used.
mod used_fields {
    use std::collections::BTreeMap;

    use pleg_cri::v1;

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Event {
        #[prost(string, tag = "1")]
        id: String,
        #[prost(int32, tag = "2")]
        kind: i32,
        #[prost(int64, tag = "3")]
        created_at: i64,
        #[prost(message, optional, tag = "4")]
        sandbox: Option<Sandbox>,
        #[prost(message, repeated, tag = "5")]
        containers: Vec<Container>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    struct Sandbox {
        #[prost(string, tag = "1")]
        id: String,
        #[prost(message, optional, tag = "2")]
        metadata: Option<v1::PodSandboxMetadata>,
        #[prost(int32, tag = "3")]
        state: i32,
        #[prost(int64, tag = "4")]
        created_at: i64,
        #[prost(message, optional, tag = "5")]
        network: Option<v1::PodSandboxNetworkStatus>,
        #[prost(btree_map = "string, string", tag = "7")]
        labels: BTreeMap<String, String>,
        #[prost(btree_map = "string, string", tag = "8")]
        annotations: BTreeMap<String, String>,
        #[prost(string, tag = "9")]
        handler: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    struct Container {
        #[prost(string, tag = "1")]
        id: String,
        #[prost(message, optional, tag = "2")]
        metadata: Option<v1::ContainerMetadata>,
        #[prost(int32, tag = "3")]
        state: i32,
        #[prost(int64, tag = "4")]
        created_at: i64,
        #[prost(int64, tag = "5")]
        started_at: i64,
        #[prost(int64, tag = "6")]
        finished_at: i64,
        #[prost(int32, tag = "7")]
        exit_code: i32,
        #[prost(message, optional, tag = "8")]
        image: Option<Image>,
        #[prost(string, tag = "9")]
        image_ref: String,
        #[prost(string, tag = "10")]
        reason: String,
        #[prost(string, tag = "11")]
        message: String,
        #[prost(btree_map = "string, string", tag = "12")]
        labels: BTreeMap<String, String>,
        #[prost(btree_map = "string, string", tag = "13")]
        annotations: BTreeMap<String, String>,
        #[prost(string, tag = "15")]
        log_path: String,
        #[prost(message, optional, tag = "16")]
        resources: Option<Resources>,
        #[prost(string, tag = "17")]
        image_id: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    struct Image {
        #[prost(string, tag = "1")]
        image: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    struct Resources {
        #[prost(message, optional, tag = "1")]
        linux: Option<Linux>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    struct Linux {
        #[prost(int64, tag = "1")]
        cpu_period: i64,
        #[prost(int64, tag = "2")]
        cpu_quota: i64,
        #[prost(int64, tag = "3")]
        cpu_shares: i64,
        #[prost(int64, tag = "4")]
        memory_limit: i64,
        #[prost(string, tag = "6")]
        cpuset_cpus: String,
        #[prost(string, tag = "7")]
        cpuset_mems: String,
        #[prost(btree_map = "string, string", tag = "9")]
        unified: BTreeMap<String, String>,
        #[prost(int64, tag = "10")]
        memory_swap_limit: i64,
    }

    impl Event {
        pub(crate) fn into_message(self) -> v1::ContainerEventResponse {
            v1::ContainerEventResponse {
                container_id: self.id,
                container_event_type: self.kind,
                created_at: self.created_at,
                pod_sandbox_status: self.sandbox.map(|s| v1::PodSandboxStatus {
                    id: s.id,
                    metadata: s.metadata,
                    state: s.state,
                    created_at: s.created_at,
                    network: s.network,
                    linux: None,
                    labels: s.labels,
                    annotations: s.annotations,
                    runtime_handler: s.handler,
                }),
                containers_statuses: self
                    .containers
                    .into_iter()
                    .map(Container::into_message)
                    .collect(),
            }
        }
    }

    impl Container {
        fn into_message(self) -> v1::ContainerStatus {
            let linux = |l: Linux| v1::LinuxContainerResources {
                cpu_period: l.cpu_period,
                cpu_quota: l.cpu_quota,
                cpu_shares: l.cpu_shares,
                memory_limit_in_bytes: l.memory_limit,
                memory_swap_limit_in_bytes: l.memory_swap_limit,
                cpuset_cpus: l.cpuset_cpus,
                cpuset_mems: l.cpuset_mems,
                unified: l.unified,
                ..v1::LinuxContainerResources::default()
            };
            v1::ContainerStatus {
                id: self.id,
                metadata: self.metadata,
                state: self.state,
                created_at: self.created_at,
                started_at: self.started_at,
                finished_at: self.finished_at,
                exit_code: self.exit_code,
                image: self.image.map(|i| v1::ImageSpec {
                    image: i.image,
                    ..v1::ImageSpec::default()
                }),
                image_ref: self.image_ref,
                reason: self.reason,
                message: self.message,
                labels: self.labels,
                annotations: self.annotations,
                log_path: self.log_path,
                resources: self.resources.map(|r| v1::ContainerResources {
                    linux: r.linux.map(linux),
                }),
                image_id: self.image_id,
                ..v1::ContainerStatus::default()
            }
        }
    }
}
