//! The rows and statuses of pods: seven labels and eight annotations on the sandbox, five mounts. Their sizes
//! are those of real nodes.

use std::collections::BTreeMap;

use pleg_cri::v1;

use crate::node::{Container, Pod};

type Map = BTreeMap<String, String>;

const REPOSITORY: &str = "registry.example.com/payments/checkout-api";
const DIGEST: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

fn insert<const N: usize>(map: &mut Map, entries: [(&str, &str); N]) {
    map.extend(entries.map(|(k, v)| (k.to_owned(), v.to_owned())));
}

fn sandbox_maps(pod: &Pod) -> (Map, Map) {
    let (mut labels, mut annotations) = (Map::new(), Map::new());
    insert(
        &mut labels,
        [
            ("io.kubernetes.pod.name", &pod.name),
            ("io.kubernetes.pod.namespace", &pod.namespace),
            ("io.kubernetes.pod.uid", &pod.uid),
            ("app.kubernetes.io/name", "checkout-api"),
            ("app.kubernetes.io/instance", "checkout-api-production"),
            ("app.kubernetes.io/part-of", "payments-platform"),
            ("pod-template-hash", "6c4d9f7b8d"),
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
    (labels, annotations)
}

fn container_maps(pod: &Pod, container: &Container) -> (Map, Map) {
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
            (
                "io.kubernetes.container.ports",
                r#"[{"name":"http","containerPort":8080,"protocol":"TCP"}]"#,
            ),
        ],
    );
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
pub fn sandbox_row(pod: &Pod) -> v1::PodSandbox {
    let (labels, annotations) = sandbox_maps(pod);
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
pub fn container_row(pod: &Pod, container: &Container) -> v1::Container {
    let (labels, annotations) = container_maps(pod, container);
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
pub fn sandbox_status(pod: &Pod) -> v1::PodSandboxStatus {
    let (labels, annotations) = sandbox_maps(pod);
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
pub fn container_status(pod: &Pod, container: &Container) -> v1::ContainerStatus {
    let (labels, annotations) = container_maps(pod, container);
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
        mounts: mounts(pod, container),
        log_path: format!(
            "/var/log/pods/{}_{}_{}/{}/{}.log",
            pod.namespace, pod.name, pod.uid, container.name, container.attempt
        ),
        image_id: format!("sha256:{DIGEST}"),
        ..Default::default()
    }
}

fn mounts(pod: &Pod, container: &Container) -> Vec<v1::Mount> {
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
    let mount = |(container_path, host_path): (&str, String)| v1::Mount {
        container_path: container_path.to_owned(),
        host_path,
        ..Default::default()
    };
    all.map(mount).into()
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
        let container = &pod.containers[0];
        let sizes = [
            container_row(&pod, container).encoded_len(),
            sandbox_row(&pod).encoded_len(),
            container_status(&pod, container).encoded_len(),
            sandbox_status(&pod).encoded_len(),
        ];
        for (is, expected) in sizes.into_iter().zip([1100, 1184, 1856, 1230]) {
            let ratio = is as f64 / f64::from(expected);
            assert!((0.8..1.2).contains(&ratio), "{is}, not {expected}");
        }
    }
}
