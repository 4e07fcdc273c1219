//! A typical pod of one container, as a runtime reports it: seven labels and six annotations on the
//! sandbox, the kubelet's own on the container, five mounts. Its size is that of pods on real nodes.

use std::collections::BTreeMap;

use pleg_cri::v1;

/// When everything here was created, in nanoseconds since the epoch.
pub(crate) const CREATED: i64 = 1_700_000_000_000_000_000;

pub(crate) fn sandbox_id(n: u64) -> String {
    hex64("a", n)
}

pub(crate) fn container_id(n: u64) -> String {
    hex64("b", n)
}

/// As long as a runtime's ids are, and as different from each other from the start.
fn hex64(kind: &str, n: u64) -> String {
    let word = |k: u64| (n + k).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (n << 7);
    let kind = u64::from(kind.as_bytes()[0]);
    (0..4)
        .map(|k| format!("{:016x}", word(k * 1_000_003 + kind * 7919)))
        .collect()
}

pub(crate) fn uid(n: u64) -> String {
    format!(
        "{:08x}-3b1c-4e6f-9a52-{:012x}",
        n * 2_654_435_761 % (1 << 32),
        n
    )
}

pub(crate) fn pod_name(n: u64) -> String {
    format!("checkout-api-7d9c6b5f4d-{:05x}", n * 7919 % (1 << 20))
}

fn map<const N: usize>(pairs: [(&str, String); N]) -> BTreeMap<String, String> {
    pairs.map(|(k, v)| (k.to_owned(), v)).into()
}

fn sandbox_labels(n: u64) -> BTreeMap<String, String> {
    map([
        ("app.kubernetes.io/name", "checkout-api".to_owned()),
        ("app.kubernetes.io/instance", format!("checkout-{}", n % 7)),
        ("pod-template-hash", "7d9c6b5f4d".to_owned()),
        ("topology.kubernetes.io/zone", format!("eu-west-1{}", n % 3)),
        ("io.kubernetes.pod.name", pod_name(n)),
        ("io.kubernetes.pod.namespace", "payments".to_owned()),
        ("io.kubernetes.pod.uid", uid(n)),
    ])
}

fn sandbox_annotations(n: u64) -> BTreeMap<String, String> {
    map([
        (
            "kubernetes.io/config.seen",
            format!("2026-11-21T09:00:{:02}.{:09}Z", n % 60, n),
        ),
        ("kubernetes.io/config.source", "api".to_owned()),
        ("checksum/config", hex64("c", n % 5)),
        (
            "k8s.v1.cni.cncf.io/network-status",
            format!(
                "[{{\"name\":\"k8s-pod-network\",\"interface\":\"eth0\",\"ips\":[\"10.244.{}.{}\"],\
                 \"mac\":\"0a:58:0a:f4:{:02x}:{:02x}\",\"default\":true,\"dns\":{{}},\
                 \"gateway\":[\"10.244.0.1\"],\"mtu\":1450}}]",
                n / 250,
                n % 250 + 2,
                n / 256,
                n % 256
            ),
        ),
        ("prometheus.io/path", "/metrics".to_owned()),
        ("cni.projectcalico.org/containerID", sandbox_id(n)),
    ])
}

fn container_labels(n: u64) -> BTreeMap<String, String> {
    map([
        ("io.kubernetes.container.name", "app".to_owned()),
        ("io.kubernetes.pod.name", pod_name(n)),
        ("io.kubernetes.pod.namespace", "payments".to_owned()),
        ("io.kubernetes.pod.uid", uid(n)),
    ])
}

fn container_annotations(n: u64) -> BTreeMap<String, String> {
    map([
        (
            "io.kubernetes.container.hash",
            format!("{:08x}", n % 5 + 0x5f3a_9c1d),
        ),
        (
            "io.kubernetes.container.ports",
            "[{\"name\":\"http\",\"containerPort\":8080,\"protocol\":\"TCP\"},\
             {\"name\":\"metrics\",\"containerPort\":9090,\"protocol\":\"TCP\"}]"
                .to_owned(),
        ),
        ("io.kubernetes.container.restartCount", "0".to_owned()),
        (
            "io.kubernetes.container.terminationMessagePath",
            "/dev/termination-log".to_owned(),
        ),
        (
            "io.kubernetes.container.terminationMessagePolicy",
            "File".to_owned(),
        ),
        ("io.kubernetes.pod.terminationGracePeriod", "30".to_owned()),
    ])
}

fn sandbox_metadata(n: u64) -> Option<v1::PodSandboxMetadata> {
    Some(v1::PodSandboxMetadata {
        name: pod_name(n),
        uid: uid(n),
        namespace: "payments".to_owned(),
        attempt: 0,
    })
}

fn container_metadata() -> Option<v1::ContainerMetadata> {
    let (name, attempt) = ("app".to_owned(), 0);
    Some(v1::ContainerMetadata { name, attempt })
}

fn image() -> Option<v1::ImageSpec> {
    Some(v1::ImageSpec {
        image: "123456789012.dkr.ecr.eu-west-1.example.com/payments/checkout-api:v1.42.0-20261121"
            .to_owned(),
        ..v1::ImageSpec::default()
    })
}

fn image_ref() -> String {
    format!(
        "123456789012.dkr.ecr.eu-west-1.example.com/payments/checkout-api@sha256:{}",
        hex64("d", 1)
    )
}

fn image_id() -> String {
    format!("sha256:{}", hex64("e", 1))
}

fn mounts(n: u64) -> Vec<v1::Mount> {
    [
        (
            "/var/run/secrets/kubernetes.io/serviceaccount",
            "volumes/kubernetes.io~projected/kube-api-access",
        ),
        ("/etc/hosts", "etc-hosts"),
        ("/dev/termination-log", "containers/app/5f3a9c1d"),
        ("/etc/checkout", "volumes/kubernetes.io~configmap/config"),
        ("/tmp", "volumes/kubernetes.io~empty-dir/tmp"),
    ]
    .into_iter()
    .map(|(container_path, of_pod)| v1::Mount {
        container_path: container_path.to_owned(),
        host_path: format!("/var/lib/kubelet/pods/{}/{of_pod}", uid(n)),
        ..v1::Mount::default()
    })
    .collect()
}

pub(crate) fn sandbox_row(n: u64) -> v1::PodSandbox {
    v1::PodSandbox {
        id: sandbox_id(n),
        metadata: sandbox_metadata(n),
        created_at: CREATED,
        labels: sandbox_labels(n),
        annotations: sandbox_annotations(n),
        runtime_handler: "runc".to_owned(),
        ..v1::PodSandbox::default()
    }
}

pub(crate) fn sandbox_status(n: u64) -> v1::PodSandboxStatus {
    v1::PodSandboxStatus {
        id: sandbox_id(n),
        metadata: sandbox_metadata(n),
        created_at: CREATED,
        network: Some(v1::PodSandboxNetworkStatus {
            ip: format!("10.244.{}.{}", n / 250, n % 250 + 2),
            ..v1::PodSandboxNetworkStatus::default()
        }),
        labels: sandbox_labels(n),
        annotations: sandbox_annotations(n),
        runtime_handler: "runc".to_owned(),
        ..v1::PodSandboxStatus::default()
    }
}

pub(crate) fn container_row(n: u64) -> v1::Container {
    v1::Container {
        id: container_id(n),
        pod_sandbox_id: sandbox_id(n),
        metadata: container_metadata(),
        image: image(),
        image_ref: image_ref(),
        image_id: image_id(),
        state: v1::ContainerState::ContainerRunning.into(),
        created_at: CREATED,
        labels: container_labels(n),
        annotations: container_annotations(n),
    }
}

pub(crate) fn container_status(n: u64, state: v1::ContainerState) -> v1::ContainerStatus {
    let ended = state == v1::ContainerState::ContainerExited;
    v1::ContainerStatus {
        id: container_id(n),
        metadata: container_metadata(),
        state: state.into(),
        created_at: CREATED,
        started_at: CREATED + 1_000_000,
        finished_at: if ended { CREATED + 9_000_000 } else { 0 },
        exit_code: if ended { 1 } else { 0 },
        reason: if ended {
            "Error".to_owned()
        } else {
            String::new()
        },
        image: image(),
        image_ref: image_ref(),
        image_id: image_id(),
        labels: container_labels(n),
        annotations: container_annotations(n),
        mounts: mounts(n),
        log_path: format!(
            "/var/log/pods/payments_{}_{}/app/0.log",
            pod_name(n),
            uid(n)
        ),
        resources: Some(v1::ContainerResources {
            linux: Some(v1::LinuxContainerResources {
                cpu_period: 100_000,
                cpu_quota: 50_000,
                cpu_shares: 512,
                memory_limit_in_bytes: 512 << 20,
                ..v1::LinuxContainerResources::default()
            }),
        }),
        ..v1::ContainerStatus::default()
    }
}

/// An event about the container of pod `n`, which its own status shows in that state.
pub(crate) fn event(
    n: u64,
    event: v1::ContainerEventType,
    state: v1::ContainerState,
    created_at: i64,
) -> v1::ContainerEventResponse {
    v1::ContainerEventResponse {
        container_id: container_id(n),
        container_event_type: event.into(),
        created_at,
        pod_sandbox_status: Some(sandbox_status(n)),
        containers_statuses: vec![container_status(n, state)],
    }
}
