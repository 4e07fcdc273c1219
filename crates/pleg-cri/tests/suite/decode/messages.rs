//! Arbitrary event messages.

use std::collections::BTreeMap;

use pleg_cri::v1;
use proptest::prelude::*;
use proptest::sample::select;

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

pub(super) fn event() -> impl Strategy<Value = v1::ContainerEventResponse> {
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
