//! Typical pods, as a runtime reports them: seven labels and eight annotations on the sandbox, five mounts. Their
//! encoded rows and statuses are about as long as on real nodes. Benchmarks and instruction counts (`hot.rs`) use them.

use std::collections::BTreeMap;

use pleg_cri::v1::{self, ContainerState};

type Map = BTreeMap<String, String>;

/// The creation time of the pods that exist when a benchmark starts: 2026-01-01, in ns.
pub(crate) const CREATED: i64 = 1_767_225_600_000_000_000;
const REPOSITORY: &str = "registry.example.com/payments/checkout-api";
const DIGEST: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

/// The random number generator splitmix64, for ids, the order of maps, and the order of pods.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A random number less than `bound`; 0 if `bound` is 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.next().checked_rem(bound as u64).unwrap_or(0) as usize
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }

    /// 64 hexadecimal digits, as in the ids of real runtimes.
    pub(crate) fn id(&mut self) -> String {
        (0..4).map(|_| format!("{:016x}", self.next())).collect()
    }
}

/// A container. Times are in ns since the epoch; `started_at` is 0 before the start, `finished_at` before the exit.
#[derive(Clone, Debug)]
pub(crate) struct Container {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) attempt: u32,
    pub(crate) state: ContainerState,
    pub(crate) created_at: i64,
    pub(crate) started_at: i64,
    pub(crate) finished_at: i64,
    pub(crate) exit_code: i32,
}

impl Container {
    pub(crate) fn created(id: String, name: &str, attempt: u32) -> Self {
        Self {
            id,
            name: name.to_owned(),
            attempt,
            state: ContainerState::ContainerCreated,
            created_at: CREATED,
            started_at: 0,
            finished_at: 0,
            exit_code: 0,
        }
    }
}

/// A pod with one sandbox.
#[derive(Clone, Debug)]
pub(crate) struct Pod {
    pub(crate) uid: String,
    pub(crate) name: String,
    pub(crate) ip: String,
    pub(crate) sandbox: String,
    pub(crate) ready: bool,
    pub(crate) created_at: i64,
    /// The containers of the pod, newest first, as in real runtimes.
    pub(crate) containers: Vec<Container>,
}

/// A running pod with one container. Its name and ids follow from `number`.
pub(crate) fn pod(number: u64) -> Pod {
    let mut random = Random(number << 20);
    let hex = random.id();
    let app = Container {
        state: ContainerState::ContainerRunning,
        started_at: CREATED,
        ..Container::created(random.id(), "app-0", 0)
    };
    Pod {
        uid: [
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..32],
        ]
        .join("-"),
        name: format!("checkout-api-6c4d9f7b8d-{number:05}"),
        ip: format!("10.128.{}.{}", number / 250, number % 250 + 2),
        sandbox: random.id(),
        ready: true,
        created_at: CREATED,
        containers: vec![app],
    }
}

fn map<const N: usize>(entries: [(&str, &str); N]) -> Map {
    entries.map(|(k, v)| (k.to_owned(), v.to_owned())).into()
}

fn sandbox_labels(pod: &Pod) -> Map {
    map([
        ("io.kubernetes.pod.name", &pod.name),
        ("io.kubernetes.pod.namespace", "payments"),
        ("io.kubernetes.pod.uid", &pod.uid),
        ("app.kubernetes.io/name", "checkout-api"),
        ("app.kubernetes.io/instance", "checkout-api-production"),
        ("app.kubernetes.io/part-of", "payments-platform"),
        ("pod-template-hash", "6c4d9f7b8d"),
    ])
}

fn sandbox_annotations() -> Map {
    let revision = "payments/checkout-api@v2.14.3 by the release train";
    let addresses = "10.128.4.17/32,fd00:10:128::4:17/128";
    map([
        (
            "kubernetes.io/config.seen",
            "2026-03-01T09:30:00.123456789Z",
        ),
        ("kubernetes.io/config.source", "api"),
        ("prometheus.io/scrape", "true"),
        ("prometheus.io/port", "9090"),
        ("cni.example.org/podIPs", addresses),
        ("checksum/config", DIGEST),
        ("checksum/secrets", DIGEST),
        ("deploy.example.org/revision", revision),
    ])
}

fn container_labels(pod: &Pod, container: &Container) -> Map {
    map([
        ("io.kubernetes.container.name", &container.name),
        ("io.kubernetes.pod.name", &pod.name),
        ("io.kubernetes.pod.namespace", "payments"),
        ("io.kubernetes.pod.uid", &pod.uid),
    ])
}

fn container_annotations(container: &Container) -> Map {
    const PREFIX: &str = "io.kubernetes.container.";
    let ports = r#"[{"name":"http","containerPort":8080,"protocol":"TCP"}]"#;
    let mut all = map([
        ("hash", "6d9f4f22"),
        ("restartCount", &container.attempt.to_string()),
        ("terminationMessagePath", "/dev/termination-log"),
        ("terminationMessagePolicy", "File"),
        ("ports", ports),
    ]);
    all = all
        .into_iter()
        .map(|(k, v)| (format!("{PREFIX}{k}"), v))
        .collect();
    all.extend(map([("io.kubernetes.pod.terminationGracePeriod", "30")]));
    all
}

fn sandbox_metadata(pod: &Pod) -> Option<v1::PodSandboxMetadata> {
    Some(v1::PodSandboxMetadata {
        name: pod.name.clone(),
        uid: pod.uid.clone(),
        namespace: "payments".to_owned(),
        attempt: 0,
    })
}

pub(crate) fn sandbox_state(pod: &Pod) -> i32 {
    i32::from(!pod.ready)
}

fn container_metadata(container: &Container) -> Option<v1::ContainerMetadata> {
    Some(v1::ContainerMetadata {
        name: container.name.clone(),
        attempt: container.attempt,
    })
}

fn image() -> Option<v1::ImageSpec> {
    Some(v1::ImageSpec {
        image: format!("sha256:{DIGEST}"),
        user_specified_image: format!("{REPOSITORY}:v2.14.3"),
        ..Default::default()
    })
}

/// A row of ListPodSandbox without labels and annotations: a Go runtime makes each row with pointers to these maps.
pub(crate) fn sandbox_item(pod: &Pod) -> v1::PodSandbox {
    v1::PodSandbox {
        id: pod.sandbox.clone(),
        metadata: sandbox_metadata(pod),
        state: sandbox_state(pod),
        created_at: pod.created_at,
        ..Default::default()
    }
}

pub(crate) fn sandbox_row(pod: &Pod) -> v1::PodSandbox {
    v1::PodSandbox {
        labels: sandbox_labels(pod),
        annotations: sandbox_annotations(),
        ..sandbox_item(pod)
    }
}

/// A row of ListContainers without labels and annotations: a Go runtime makes each row with pointers to these maps.
pub(crate) fn container_item(pod: &Pod, container: &Container) -> v1::Container {
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

pub(crate) fn container_row(pod: &Pod, container: &Container) -> v1::Container {
    v1::Container {
        labels: container_labels(pod, container),
        annotations: container_annotations(container),
        ..container_item(pod, container)
    }
}

pub(crate) fn sandbox_status(pod: &Pod) -> v1::PodSandboxStatus {
    let options = Some(v1::NamespaceOption::default());
    v1::PodSandboxStatus {
        id: pod.sandbox.clone(),
        metadata: sandbox_metadata(pod),
        state: sandbox_state(pod),
        created_at: pod.created_at,
        network: Some(v1::PodSandboxNetworkStatus {
            ip: pod.ip.clone(),
            ..Default::default()
        }),
        linux: Some(v1::LinuxPodSandboxStatus {
            namespaces: Some(v1::Namespace { options }),
        }),
        labels: sandbox_labels(pod),
        annotations: sandbox_annotations(),
        ..Default::default()
    }
}

/// A container's status with only those fields that may change while the container exists.
pub(crate) fn container_state(container: &Container) -> v1::ContainerStatus {
    let reason = match (container.state, container.exit_code) {
        (ContainerState::ContainerExited, 0) => "Completed",
        (ContainerState::ContainerExited, _) => "Error",
        _ => "",
    };
    v1::ContainerStatus {
        state: container.state.into(),
        created_at: container.created_at,
        started_at: container.started_at,
        finished_at: container.finished_at,
        exit_code: container.exit_code,
        image: image(),
        image_ref: format!("{REPOSITORY}@sha256:{DIGEST}"),
        reason: reason.to_owned(),
        ..Default::default()
    }
}

pub(crate) fn container_status(pod: &Pod, container: &Container) -> v1::ContainerStatus {
    let (name, attempt) = (&container.name, container.attempt);
    v1::ContainerStatus {
        id: container.id.clone(),
        metadata: container_metadata(container),
        labels: container_labels(pod, container),
        annotations: container_annotations(container),
        mounts: mounts(pod, container),
        log_path: format!(
            "/var/log/pods/payments_{}_{}/{name}/{attempt}.log",
            pod.name, pod.uid
        ),
        image_id: format!("sha256:{DIGEST}"),
        ..container_state(container)
    }
}

fn mounts(pod: &Pod, container: &Container) -> Vec<v1::Mount> {
    let termination = format!("containers/{}/0", container.name);
    let all = [
        ("/etc/hosts", "etc-hosts"),
        ("/dev/termination-log", &termination),
        (
            "/var/run/secrets/kubernetes.io/serviceaccount",
            "volumes/kubernetes.io~projected/token",
        ),
        ("/etc/app", "volumes/kubernetes.io~configmap/app"),
        ("/data", "volumes/kubernetes.io~csi/data"),
    ];
    let mount = |(container_path, of_pod): (&str, &str)| v1::Mount {
        container_path: container_path.to_owned(),
        host_path: format!("/var/lib/kubelet/pods/{}/{of_pod}", pod.uid),
        ..Default::default()
    };
    all.map(mount).into()
}
