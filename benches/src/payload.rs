//! The rows, statuses and events of pods. Their sizes are those of real nodes (`docs/benchmarks.md`
//! gives the sizes that were measured here).

use std::collections::BTreeMap;

use clap::ValueEnum;
use pleg_cri::v1;
use serde::{Deserialize, Serialize};

use crate::node::{Container, Pod};

/// The metadata of a pod in addition to what the kubelet writes.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    ValueEnum,
    Serialize,
    Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// No additional metadata.
    Lean,
    /// Seven labels, six annotations, five mounts.
    #[default]
    Typical,
    /// As `Typical`, with the whole manifest in an annotation and with a service mesh.
    Fat,
}

impl std::fmt::Display for Profile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Lean => "lean",
            Self::Typical => "typical",
            Self::Fat => "fat",
        })
    }
}

type Map = BTreeMap<String, String>;

const REPOSITORY: &str = "registry.example.com/payments/checkout-api";
const DIGEST: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

fn insert<const N: usize>(map: &mut Map, entries: [(&str, &str); N]) {
    map.extend(entries.map(|(k, v)| (k.to_owned(), v.to_owned())));
}

fn sandbox_maps(profile: Profile, pod: &Pod) -> (Map, Map) {
    let (mut labels, mut annotations) = (Map::new(), Map::new());
    insert(
        &mut labels,
        [
            ("io.kubernetes.pod.name", &pod.name),
            ("io.kubernetes.pod.namespace", &pod.namespace),
            ("io.kubernetes.pod.uid", &pod.uid),
        ],
    );
    insert(
        &mut annotations,
        [
            (
                "kubernetes.io/config.seen",
                "2026-03-01T09:30:00.123456789Z",
            ),
            ("kubernetes.io/config.source", "api"),
        ],
    );
    if profile == Profile::Lean {
        return (labels, annotations);
    }
    insert(
        &mut labels,
        [
            ("app.kubernetes.io/name", "checkout-api"),
            ("app.kubernetes.io/instance", "checkout-api-production"),
            ("app.kubernetes.io/part-of", "payments-platform"),
            ("pod-template-hash", "6c4d9f7b8d"),
        ],
    );
    insert(
        &mut annotations,
        [
            ("prometheus.io/scrape", "true"),
            ("prometheus.io/port", "9090"),
            (
                "cni.example.org/podIPs",
                "10.128.4.17/32,fd00:10:128::4:17/128",
            ),
            ("checksum/config", DIGEST),
            ("checksum/secrets", DIGEST),
            (
                "deploy.example.org/revision",
                "payments/checkout-api@v2.14.3 by the release train",
            ),
        ],
    );
    if profile == Profile::Fat {
        let manifest = format!(
            r#"{{"kind":"Pod","of":"{}","spec":"{}"}}"#,
            pod.name,
            "x".repeat(4000)
        );
        let mesh = format!(
            r#"{{"initContainers":["mesh-init"],"revision":"{}"}}"#,
            "y".repeat(440)
        );
        insert(
            &mut annotations,
            [
                (
                    "kubectl.kubernetes.io/last-applied-configuration",
                    &manifest,
                ),
                ("sidecar.mesh.example.org/status", &mesh),
            ],
        );
    }
    (labels, annotations)
}

fn container_maps(profile: Profile, pod: &Pod, container: &Container) -> (Map, Map) {
    let (mut labels, mut annotations) = (Map::new(), Map::new());
    insert(
        &mut labels,
        [
            ("io.kubernetes.container.name", &container.name),
            ("io.kubernetes.pod.name", &pod.name),
            ("io.kubernetes.pod.namespace", &pod.namespace),
            ("io.kubernetes.pod.uid", &pod.uid),
        ],
    );
    insert(
        &mut annotations,
        [
            ("io.kubernetes.container.hash", "6d9f4f22"),
            (
                "io.kubernetes.container.restartCount",
                &container.attempt.to_string(),
            ),
            (
                "io.kubernetes.container.terminationMessagePath",
                "/dev/termination-log",
            ),
            ("io.kubernetes.container.terminationMessagePolicy", "File"),
            ("io.kubernetes.pod.terminationGracePeriod", "30"),
        ],
    );
    if profile != Profile::Lean {
        let ports = r#"[{"name":"http","containerPort":8080,"protocol":"TCP"}]"#;
        insert(&mut annotations, [("io.kubernetes.container.ports", ports)]);
    }
    (labels, annotations)
}

fn sandbox_metadata(pod: &Pod) -> Option<v1::PodSandboxMetadata> {
    Some(v1::PodSandboxMetadata {
        name: pod.name.clone(),
        uid: pod.uid.clone(),
        namespace: pod.namespace.clone(),
        attempt: 0,
    })
}

fn image() -> Option<v1::ImageSpec> {
    Some(v1::ImageSpec {
        image: format!("sha256:{DIGEST}"),
        user_specified_image: format!("{REPOSITORY}:v2.14.3"),
        runtime_handler: String::new(),
        ..Default::default()
    })
}

fn container_metadata(container: &Container) -> Option<v1::ContainerMetadata> {
    Some(v1::ContainerMetadata {
        name: container.name.clone(),
        attempt: container.attempt,
    })
}

fn sandbox_state(pod: &Pod) -> i32 {
    let state = if pod.ready {
        v1::PodSandboxState::SandboxReady
    } else {
        v1::PodSandboxState::SandboxNotready
    };
    state.into()
}

/// A row of ListPodSandbox.
#[must_use]
pub fn sandbox_row(profile: Profile, pod: &Pod) -> v1::PodSandbox {
    let (labels, annotations) = sandbox_maps(profile, pod);
    v1::PodSandbox {
        labels,
        annotations,
        ..sandbox_row_without_maps(pod)
    }
}

/// The row without labels and annotations, which a runtime shares with its own record.
#[must_use]
pub fn sandbox_row_without_maps(pod: &Pod) -> v1::PodSandbox {
    v1::PodSandbox {
        id: pod.sandbox.clone(),
        metadata: sandbox_metadata(pod),
        state: sandbox_state(pod),
        created_at: pod.created_at,
        ..Default::default()
    }
}

/// A row of ListContainers.
#[must_use]
pub fn container_row(profile: Profile, pod: &Pod, container: &Container) -> v1::Container {
    let (labels, annotations) = container_maps(profile, pod, container);
    v1::Container {
        labels,
        annotations,
        ..container_row_without_maps(pod, container)
    }
}

/// The row without labels and annotations, which a runtime shares with its own record.
#[must_use]
pub fn container_row_without_maps(pod: &Pod, container: &Container) -> v1::Container {
    v1::Container {
        id: container.id.clone(),
        pod_sandbox_id: pod.sandbox.clone(),
        metadata: container_metadata(container),
        image: image(),
        image_ref: format!("sha256:{DIGEST}"),
        state: container.state.into(),
        created_at: container.created_at,
        image_id: format!("sha256:{DIGEST}"),
        ..Default::default()
    }
}

/// The status of PodSandboxStatus.
#[must_use]
pub fn sandbox_status(profile: Profile, pod: &Pod) -> v1::PodSandboxStatus {
    let (labels, annotations) = sandbox_maps(profile, pod);
    v1::PodSandboxStatus {
        id: pod.sandbox.clone(),
        metadata: sandbox_metadata(pod),
        state: sandbox_state(pod),
        created_at: pod.created_at,
        network: Some(v1::PodSandboxNetworkStatus {
            ip: pod.ip.clone(),
            additional_ips: Vec::new(),
        }),
        linux: Some(v1::LinuxPodSandboxStatus {
            namespaces: Some(v1::Namespace {
                options: Some(v1::NamespaceOption::default()),
            }),
        }),
        labels,
        annotations,
        runtime_handler: String::new(),
    }
}

/// The status of ContainerStatus.
#[must_use]
pub fn container_status(profile: Profile, pod: &Pod, container: &Container) -> v1::ContainerStatus {
    let (labels, annotations) = container_maps(profile, pod, container);
    let exited = container.state == v1::ContainerState::ContainerExited;
    let reason = match (exited, container.exit_code) {
        (false, _) => "",
        (true, 0) => "Completed",
        (true, _) => "Error",
    };
    v1::ContainerStatus {
        id: container.id.clone(),
        metadata: container_metadata(container),
        state: container.state.into(),
        created_at: container.created_at,
        started_at: container.started_at,
        finished_at: container.finished_at,
        exit_code: container.exit_code,
        image: image(),
        image_ref: format!("{REPOSITORY}@sha256:{DIGEST}"),
        reason: reason.to_owned(),
        labels,
        annotations,
        mounts: mounts(profile, pod, container),
        log_path: format!(
            "/var/log/pods/{}_{}_{}/{}/{}.log",
            pod.namespace, pod.name, pod.uid, container.name, container.attempt
        ),
        image_id: format!("sha256:{DIGEST}"),
        ..Default::default()
    }
}

fn mounts(profile: Profile, pod: &Pod, container: &Container) -> Vec<v1::Mount> {
    let of_pod = format!("/var/lib/kubelet/pods/{}", pod.uid);
    let name = &container.name;
    let all = [
        ("/etc/hosts", format!("{of_pod}/etc-hosts")),
        (
            "/dev/termination-log",
            format!("{of_pod}/containers/{name}/0"),
        ),
        (
            "/var/run/secrets/kubernetes.io/serviceaccount",
            format!("{of_pod}/volumes/kubernetes.io~projected/token"),
        ),
        (
            "/etc/app",
            format!("{of_pod}/volumes/kubernetes.io~configmap/app"),
        ),
        ("/data", format!("{of_pod}/volumes/kubernetes.io~csi/data")),
    ];
    let how_many = if profile == Profile::Lean { 3 } else { 5 };
    let mount = |(container_path, host_path): (&str, String)| v1::Mount {
        container_path: container_path.to_owned(),
        host_path,
        ..Default::default()
    };
    all.into_iter().take(how_many).map(mount).collect()
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::node::pod;

    /// The sizes in bytes that were measured and computed for real nodes, with 20 % tolerance.
    #[test]
    fn payload_sizes_match_real_nodes() {
        let pod = pod(1, 7, 1);
        let sizes = |profile| {
            let container = &pod.containers[0];
            [
                container_row(profile, &pod, container).encoded_len(),
                sandbox_row(profile, &pod).encoded_len(),
                container_status(profile, &pod, container).encoded_len(),
                sandbox_status(profile, &pod).encoded_len(),
            ]
        };
        for (profile, expected) in [
            (Profile::Lean, [952, 431, 1446, 477]),
            (Profile::Typical, [1100, 1184, 1856, 1230]),
            (Profile::Fat, [1100, 5871, 1856, 5917]),
        ] {
            for (is, expected) in sizes(profile).into_iter().zip(expected) {
                let ratio = is as f64 / f64::from(expected);
                assert!(
                    (0.8..1.2).contains(&ratio),
                    "{profile}: {is}, not {expected}"
                );
            }
        }
    }
}
