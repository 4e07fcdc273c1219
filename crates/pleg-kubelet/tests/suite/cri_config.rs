//! What the runtime is told of a pod.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Pod;
use pleg_cri::v1::{ContainerConfig, DnsConfig, NamespaceMode, Signal, SupplementalGroupsPolicy};
use pleg_kubelet::container_hash;
use pleg_kubelet::cri_config::{
    ContainerInput, FieldError, NodeConfig, container_config, log_path, sandbox_config,
};
use pleg_kubelet::volumes::PodDirectories;
use serde_json::{Value, json};

fn node() -> NodeConfig {
    NodeConfig {
        logs: "/var/log/pods".into(),
        pods: PodDirectories::new("/var/lib/kubelet/pods"),
        cpus: 4,
        memory: 4 << 30,
        dns: DnsConfig {
            servers: vec!["1.1.1.1".to_owned()],
            ..DnsConfig::default()
        },
        cgroup_parent: "/kubepods".to_owned(),
        host_ips: vec![IpAddr::from([192, 168, 0, 1])],
    }
}

fn pod(spec: Value) -> Pod {
    let metadata = json!({
        "name": "web-n1", "namespace": "shop", "uid": "u-1",
        "labels": {"tier": "front"}, "annotations": {"note": "x"},
    });
    let pod = serde_json::from_value(json!({"metadata": metadata, "spec": spec}));
    pod.unwrap_or_else(|error| panic!("{error}"))
}

fn app(container: Value) -> Result<ContainerConfig, FieldError> {
    let volumes = json!([
        {"name": "data", "hostPath": {"path": "/srv/data"}},
        {"name": "tmp", "emptyDir": {}},
        {"name": "nfs", "nfs": {"server": "s", "path": "/p"}},
        {"name": "pod", "downwardAPI": {}},
        {"name": "bare"},
    ]);
    config_of(
        &pod(json!({"nodeName": "n1", "volumes": volumes, "containers": [container]})),
        0,
    )
}

/// The configuration of the container at that index.
fn config_of(pod: &Pod, at: usize) -> Result<ContainerConfig, FieldError> {
    let spec = pod.spec.as_ref();
    let input = ContainerInput {
        pod,
        container: spec.map_or_else(|| panic!("it has a specification"), |s| &s.containers[at]),
        attempt: 3,
        restart_count: 3,
        image_ref: "sha256:9",
        pod_ips: &[IpAddr::from([10, 0, 0, 7])],
    };
    container_config(&input, &node())
}

#[test]
fn namespace_that_leads_out_of_the_log_directory_is_refused() {
    let mut pod = pod(json!({"containers": [{"name": "app"}]}));
    pod.metadata.namespace = Some("../../../x".to_owned());
    let refused = node().log_directory(&pod).map_err(|e| e.to_string());
    let reason = "\"../../../x_web-n1_u-1\" is not a name that a directory can have";
    assert_eq!(refused, Err(reason.to_owned()));
    assert!(sandbox_config(&pod, &node(), 0).is_err());
}

#[test]
fn relative_root_is_made_absolute() {
    let node = NodeConfig::of_host("state".as_ref(), Vec::new());
    assert!(node.logs.is_absolute() && node.logs.ends_with("state/logs"));
}

#[test]
fn sandbox_has_upstreams_names_labels_and_directory() {
    let spec = json!({"containers": [
        {"name": "app", "ports": [{"containerPort": 80, "hostPort": 8080, "protocol": "UDP"}]},
    ]});
    let config = sandbox_config(&pod(spec), &node(), 2).unwrap();
    let metadata = config.metadata.unwrap_or_default();
    assert_eq!(
        (
            &*metadata.name,
            &*metadata.namespace,
            &*metadata.uid,
            metadata.attempt
        ),
        ("web-n1", "shop", "u-1", 2)
    );
    assert_eq!(config.hostname, "web-n1");
    assert_eq!(config.log_directory, "/var/log/pods/shop_web-n1_u-1");
    let labels: Vec<_> = config
        .labels
        .iter()
        .map(|(k, v)| format!("{k}={v}"))
        .collect();
    assert_eq!(
        labels,
        [
            "io.kubernetes.pod.name=web-n1",
            "io.kubernetes.pod.namespace=shop",
            "io.kubernetes.pod.uid=u-1",
            "tier=front",
        ]
    );
    assert_eq!(
        config.annotations.get("note").map(String::as_str),
        Some("x")
    );
    let ports: Vec<_> = config
        .port_mappings
        .iter()
        .map(|p| (p.protocol, p.container_port, p.host_port))
        .collect();
    assert_eq!(ports, [(1, 80, 8080)]);
    assert_eq!(
        config.linux.map(|l| l.cgroup_parent).as_deref(),
        Some("/kubepods")
    );
}

#[test]
fn namespaces_follow_the_specification() {
    let of = |spec: Value| {
        let linux = sandbox_config(&pod(spec), &node(), 0)
            .unwrap()
            .linux
            .unwrap_or_default();
        let options = linux.security_context.unwrap_or_default().namespace_options;
        let options = options.unwrap_or_default();
        [options.network(), options.pid(), options.ipc()]
    };
    use NamespaceMode::{Container, Node, Pod};
    assert_eq!(of(json!({"containers": []})), [Pod, Container, Pod]);
    let shared = json!({"containers": [], "shareProcessNamespace": true});
    assert_eq!(of(shared), [Pod, Pod, Pod]);
    let host = json!({"containers": [], "hostNetwork": true, "hostPID": true, "hostIPC": true});
    assert_eq!(of(host.clone()), [Node, Node, Node]);
    assert_eq!(sandbox_config(&pod(host), &node(), 0).unwrap().hostname, "");
}

#[test]
fn container_has_upstreams_labels_and_annotations() {
    let container = json!({
        "name": "app", "image": "shop:1", "terminationMessagePolicy": "FallbackToLogsOnError",
        "ports": [{"containerPort": 80}],
    });
    let hash = container_hash(&serde_json::from_value(container.clone()).unwrap_or_default());
    let config = app(container).unwrap_or_else(|error| panic!("{error}"));
    let metadata = config.metadata.unwrap_or_default();
    assert_eq!((&*metadata.name, metadata.attempt), ("app", 3));
    assert_eq!(
        (&*config.log_path, log_path("app", 3)),
        ("app/3.log", "app/3.log".to_owned())
    );
    let image = config.image.unwrap_or_default();
    assert_eq!(
        (&*image.image, &*image.user_specified_image),
        ("sha256:9", "shop:1")
    );
    let labels: Vec<_> = config
        .labels
        .iter()
        .map(|(k, v)| format!("{k}={v}"))
        .collect();
    assert_eq!(
        labels,
        [
            "io.kubernetes.container.name=app",
            "io.kubernetes.pod.name=web-n1",
            "io.kubernetes.pod.namespace=shop",
            "io.kubernetes.pod.uid=u-1",
        ]
    );
    let annotations: Vec<_> = config
        .annotations
        .iter()
        .map(|(k, v)| format!("{k}={v}"))
        .collect();
    assert_eq!(
        annotations,
        [
            format!("io.kubernetes.container.hash={hash}"),
            "io.kubernetes.container.ports=[{\"containerPort\":80}]".to_owned(),
            "io.kubernetes.container.restartCount=3".to_owned(),
            "io.kubernetes.container.terminationMessagePath=/dev/termination-log".to_owned(),
            "io.kubernetes.container.terminationMessagePolicy=FallbackToLogsOnError".to_owned(),
            "io.kubernetes.pod.terminationGracePeriod=30".to_owned(),
        ]
    );
}

#[test]
fn command_arguments_and_variables_are_expanded() {
    let config = app(json!({
        "name": "app",
        "command": ["/bin/$(NAME)"],
        "args": ["$(GREETING)", "$$(NAME)", "$(UNKNOWN)"],
        "workingDir": "/srv",
        "env": [
            {"name": "NAME", "value": "web"},
            {"name": "GREETING", "value": "hello $(NAME) $(LATER)"},
            {"name": "LATER", "value": "no"},
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "TIER", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['tier']"}}},
            {"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        ],
    }))
    .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(config.command, ["/bin/web"]);
    assert_eq!(config.args, ["hello web $(LATER)", "$(NAME)", "$(UNKNOWN)"]);
    assert_eq!(config.working_dir, "/srv");
    let variables: Vec<_> = config
        .envs
        .iter()
        .map(|kv| format!("{}={}", kv.key, String::from_utf8_lossy(&kv.value)))
        .collect();
    assert_eq!(
        variables,
        [
            "NAME=web",
            "GREETING=hello web $(LATER)",
            "LATER=no",
            "POD=web-n1",
            "IP=10.0.0.7",
            "TIER=front",
            "CPUS=4",
        ]
    );
}

#[test]
fn mounts_are_paths_on_the_node() {
    let config = app(json!({"name": "app", "volumeMounts": [
        {"name": "data", "mountPath": "/data", "readOnly": true},
        {"name": "tmp", "mountPath": "tmp"},
        {"name": "pod", "mountPath": "/pod"},
        {"name": "bare", "mountPath": "/bare"},
    ]}))
    .unwrap_or_else(|error| panic!("{error}"));
    let mounts: Vec<_> = config
        .mounts
        .iter()
        .map(|m| (&*m.host_path, &*m.container_path, m.readonly))
        .collect();
    let volumes = "/var/lib/kubelet/pods/u-1/volumes";
    let empty_dir = |name: &str| format!("{volumes}/kubernetes.io~empty-dir/{name}");
    let (tmp, bare) = (empty_dir("tmp"), empty_dir("bare"));
    let files = format!("{volumes}/kubernetes.io~downward-api/pod");
    let message = "/var/lib/kubelet/pods/u-1/containers/app/3";
    let expected = [
        (message, "/dev/termination-log", false),
        ("/var/lib/kubelet/pods/u-1/etc-hosts", "/etc/hosts", false),
        ("/srv/data", "/data", true),
        (&tmp, "/tmp", false),
        // The files are the node's.
        (&files, "/pod", true),
        // A volume without a source is an emptyDir.
        (&bare, "/bare", false),
    ];
    assert_eq!(mounts, expected);
}

#[test]
fn path_in_a_volume_is_mounted_from_the_pods_directory() {
    let config = app(json!({
        "name": "app",
        "env": [{"name": "DAY", "value": "1"}],
        "volumeMounts": [
            {"name": "data", "mountPath": "/a", "subPath": "x/y"},
            {"name": "tmp", "mountPath": "/b", "subPathExpr": "$(DAY)"},
            {"name": "tmp", "mountPath": "/c", "subPath": ""},
        ],
    }))
    .unwrap_or_else(|error| panic!("{error}"));
    let paths = config.mounts.iter().map(|m| &*m.host_path);
    let pod = "/var/lib/kubelet/pods/u-1";
    let expected = [
        format!("{pod}/volume-subpaths/data/app/0"),
        format!("{pod}/volume-subpaths/tmp/app/1"),
        format!("{pod}/volumes/kubernetes.io~empty-dir/tmp"),
    ];
    assert!(paths.skip(2).eq(expected), "{config:?}");
}

#[test]
fn stop_signal_and_groups_policy_are_passed_on() {
    let spec = json!({
        "securityContext": {"supplementalGroupsPolicy": "Strict"},
        "containers": [{"name": "app", "lifecycle": {"stopSignal": "SIGUSR1"}}],
    });
    let config = config_of(&pod(spec), 0).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(config.stop_signal(), Signal::Sigusr1);
    let context = config.linux.and_then(|linux| linux.security_context);
    let policy = context.map(|context| context.supplemental_groups_policy());
    assert_eq!(policy, Some(SupplementalGroupsPolicy::Strict));
}

#[test]
fn selinux_labels_are_passed_on_the_containers_own_first() {
    let spec = json!({
        "securityContext": {"seLinuxOptions": {"type": "of_pod_t", "level": "s0"}},
        "containers": [
            {"name": "app", "securityContext": {"seLinuxOptions": {"type": "own_t"}}},
            {"name": "other"},
        ],
    });
    let pod = pod(spec);
    let sandbox = sandbox_config(&pod, &node(), 0).unwrap();
    let context = sandbox.linux.and_then(|linux| linux.security_context);
    let of_pod = context.and_then(|context| context.selinux_options).unwrap();
    assert_eq!((&*of_pod.r#type, &*of_pod.level), ("of_pod_t", "s0"));
    for (at, kind, level) in [(0, "own_t", ""), (1, "of_pod_t", "s0")] {
        let config = config_of(&pod, at).unwrap();
        let context = config.linux.and_then(|linux| linux.security_context);
        let labels = context.and_then(|context| context.selinux_options).unwrap();
        assert_eq!((&*labels.r#type, &*labels.level), (kind, level));
    }
}

#[test]
fn own_hosts_file_of_a_container_is_mounted_alone() {
    let config = app(json!({"name": "app", "volumeMounts": [
        {"name": "data", "mountPath": "/etc/hosts"},
    ]}));
    let mounts = config.unwrap_or_else(|error| panic!("{error}")).mounts;
    let hosts = mounts.iter().filter(|m| m.container_path == "/etc/hosts");
    assert!(hosts.map(|m| &*m.host_path).eq(["/srv/data"]));
}

#[test]
fn what_cannot_be_used_is_named() {
    let mount = |mount: Value| json!({"name": "app", "volumeMounts": [mount]});
    let variable =
        |source: Value| json!({"name": "app", "env": [{"name": "A", "valueFrom": source}]});
    let cases = [
        (
            mount(json!({"name": "none", "mountPath": "/a"})),
            "volumeMounts[0].name: there is no volume \"none\": add it to spec.volumes",
        ),
        (
            mount(json!({"name": "nfs", "mountPath": "/a"})),
            "volumeMounts[0].name: volume \"nfs\" is none of hostPath, emptyDir and downwardAPI",
        ),
        (
            json!({"name": "app", "securityContext": {"runAsNonRoot": true}}),
            "securityContext.runAsNonRoot: the user of the image is not looked up: write runAsUser \
             as well",
        ),
        (
            json!({"name": "app", "securityContext": {"runAsNonRoot": true, "runAsUser": 0}}),
            "securityContext.runAsNonRoot: it must not run as root, and runAsUser is 0: change one",
        ),
        (
            variable(json!({"secretKeyRef": {"name": "s", "key": "k"}})),
            "env[0].valueFrom.secretKeyRef: secrets are not read: write the value",
        ),
        (
            json!({"name": "app", "envFrom": [{"configMapRef": {"name": "c"}}]}),
            "envFrom: config maps and secrets are not read: write the variables in env",
        ),
    ];
    for (container, message) in cases {
        let error = app(container).err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some(message));
    }
}

#[test]
fn privileged_container_sees_the_whole_kernel() {
    let context = |context: Value| {
        let config = app(json!({"name": "app", "securityContext": context}));
        let linux = config.unwrap_or_default().linux.unwrap_or_default();
        linux.security_context.unwrap_or_default()
    };
    let plain = context(json!({"runAsUser": 1000, "allowPrivilegeEscalation": false}));
    assert_eq!(
        (plain.masked_paths.len(), plain.readonly_paths.len()),
        (12, 5)
    );
    assert!(plain.no_new_privs && !plain.privileged);
    assert_eq!(plain.run_as_user.map(|u| u.value), Some(1000));
    let privileged = context(json!({"privileged": true}));
    assert!(privileged.privileged && privileged.masked_paths.is_empty());
}
