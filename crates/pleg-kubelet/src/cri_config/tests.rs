//! Configurations of sandboxes and containers.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Pod;
use pleg_cri::v1::{
    ContainerConfig, LinuxContainerSecurityContext, NamespaceMode, Signal, SupplementalGroupsPolicy,
};
use serde_json::{Value, json};

use super::sandbox::{LOCAL, hosts};
use super::{ContainerInput, FieldError, NodeConfig, sandbox_config};
use crate::actions::StartContainer;
use crate::container_hash;
use crate::downward::Fields;
use crate::notation::rows;

fn node() -> NodeConfig {
    let mut node = NodeConfig::of_host("/var/lib/kubelet".as_ref(), Vec::new());
    (node.cpus, node.memory) = (4, 4 << 30);
    (node.logs, node.cgroup_parent) = ("/var/log/pods".into(), "/kubepods".to_owned());
    node
}

fn pod(spec: Value) -> Pod {
    let metadata = json!({
        "name": "web-n1", "namespace": "shop", "uid": "u-1",
        "labels": {"tier": "front"}, "annotations": {"note": "x"},
    });
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

/// The configuration of a container with these fields, and the name `app`, in a pod with volumes.
fn app(mut container: Value) -> Result<ContainerConfig, FieldError> {
    container["name"] = json!("app");
    let volumes = json!([
        {"name": "data", "hostPath": {"path": "/srv/data"}},
        {"name": "tmp", "emptyDir": {}},
        {"name": "nfs", "nfs": {"server": "s", "path": "/p"}},
        {"name": "pod", "downwardAPI": {}},
        {"name": "bare"},
    ]);
    let spec = json!({"nodeName": "n1", "volumes": volumes, "containers": [container]});
    config_of(&pod(spec), 0)
}

/// The configuration of the pod's container at the index `at`.
fn config_of(pod: &Pod, at: usize) -> Result<ContainerConfig, FieldError> {
    let of = Fields {
        pod,
        node: &node(),
        pod_ips: &[IpAddr::from([10, 0, 0, 7])],
    };
    let container = &pod.spec.as_ref().unwrap().containers[at];
    let start = &StartContainer {
        name: container.name.clone(),
        attempt: 3,
        restart_count: 3,
        existing: None,
        back_off_key: String::new(),
    };
    let input = ContainerInput {
        of,
        container,
        start,
        image_ref: "sha256:9",
    };
    input.config().map(|(config, _)| config)
}

const OF_POD: &str =
    "io.kubernetes.pod.name=web-n1, io.kubernetes.pod.namespace=shop, io.kubernetes.pod.uid=u-1";

/// The entries of a map as `KEY=VALUE`.
fn shown(map: impl IntoIterator<Item = (String, String)>) -> String {
    let each = map.into_iter().map(|(k, v)| format!("{k}={v}"));
    each.collect::<Vec<_>>().join(", ")
}

fn security(config: ContainerConfig) -> LinuxContainerSecurityContext {
    let linux = config.linux.unwrap_or_default();
    linux.security_context.unwrap_or_default()
}

#[test]
fn pod_namespace_that_leaves_the_log_directory_is_an_error() {
    let mut pod = pod(json!({"containers": [{"name": "app"}]}));
    pod.metadata.namespace = Some("../../../x".to_owned());
    let refused = node().log_directory(&pod);
    let refused = refused.map_err(|e| e.to_string());
    let reason = "\"../../../x_web-n1_u-1\" is not a name that a directory can have";
    assert_eq!(refused, Err(reason.to_owned()));
    assert!(sandbox_config(&pod, &node(), 0).is_err());
}

#[test]
fn relative_root_directory_is_made_absolute() {
    let node = NodeConfig::of_host("state".as_ref(), Vec::new());
    assert!(node.logs.is_absolute() && node.logs.ends_with("state/logs"));
}

#[test]
fn sandbox_has_upstreams_names_labels_and_log_directory() {
    let spec = json!({"containers": [
        {"name": "app", "ports": [{"containerPort": 80, "hostPort": 8080, "protocol": "UDP"}]},
    ]});
    let config = sandbox_config(&pod(spec), &node(), 2).unwrap();
    let metadata = config.metadata.unwrap_or_default();
    let names = [metadata.name, metadata.namespace, metadata.uid];
    assert_eq!(names, ["web-n1", "shop", "u-1"]);
    assert_eq!(metadata.attempt, 2);
    assert_eq!(config.hostname, "web-n1");
    assert_eq!(config.log_directory, "/var/log/pods/shop_web-n1_u-1");
    assert_eq!(shown(config.labels), format!("{OF_POD}, tier=front"));
    assert_eq!(config.annotations["note"], "x");
    let ports = config.port_mappings.iter();
    let ports = ports.map(|p| (p.protocol, p.container_port, p.host_port));
    assert_eq!(ports.collect::<Vec<_>>(), [(1, 80, 8080)]);
    assert_eq!(config.linux.unwrap_or_default().cgroup_parent, "/kubepods");
}

#[test]
fn sandbox_namespaces_follow_the_specification() {
    let of = |spec: Value| {
        let config = sandbox_config(&pod(spec), &node(), 0).unwrap();
        let security = config.linux.and_then(|linux| linux.security_context);
        let options = security.and_then(|security| security.namespace_options);
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
    let hash = container_hash(&serde_json::from_value(container.clone()).unwrap());
    let config = app(container).unwrap();
    let metadata = config.metadata.unwrap_or_default();
    assert_eq!((&*metadata.name, metadata.attempt), ("app", 3));
    assert_eq!(config.log_path, "app/3.log");
    let image = config.image.unwrap_or_default();
    let image = [image.image, image.user_specified_image];
    assert_eq!(image, ["sha256:9", "shop:1"]);
    let name = "io.kubernetes.container.name=app";
    assert_eq!(shown(config.labels), format!("{name}, {OF_POD}"));
    let annotations = [
        &format!("io.kubernetes.container.hash={hash}"),
        "io.kubernetes.container.ports=[{\"containerPort\":80}]",
        "io.kubernetes.container.restartCount=3",
        "io.kubernetes.container.terminationMessagePath=/dev/termination-log",
        "io.kubernetes.container.terminationMessagePolicy=FallbackToLogsOnError",
        "io.kubernetes.pod.terminationGracePeriod=30",
    ];
    assert_eq!(shown(config.annotations), annotations.join(", "));
}

#[test]
fn command_and_variables_are_expanded() {
    let config = app(json!({
        "command": ["/bin/$(NAME)"], "workingDir": "/srv",
        "env": [
            {"name": "NAME", "value": "web"},
            {"name": "GREETING", "value": "hello $(NAME) $(LATER)"},
            {"name": "LATER", "value": "no"},
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "TIER", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['tier']"}}},
            {"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        ],
    }));
    let config = config.unwrap();
    assert_eq!(config.command, ["/bin/web"]);
    assert_eq!(config.working_dir, "/srv");
    let variables = config.envs.into_iter();
    let variables = variables.map(|kv| (kv.key, String::from_utf8(kv.value).unwrap()));
    let expected = "NAME=web, GREETING=hello web $(LATER), LATER=no, POD=web-n1, IP=10.0.0.7, TIER=front, CPUS=4";
    assert_eq!(shown(variables), expected);
}

#[test]
fn variable_references_are_expanded_as_upstream_does() {
    let cases = [
        ("$(VAR_A)", "A"),
        ("___$(VAR_B)___$(VAR_A)", "___B___A"),
        ("$(VAR_EMPTY)", ""),
        ("$(REF)", "$(VAR_A)"),
        ("$$(VAR_A)", "$(VAR_A)"),
        ("$$$(VAR_A)", "$A"),
        ("$$$$(VAR_A)", "$$(VAR_A)"),
        ("$(UNKNOWN)", "$(UNKNOWN)"),
        ("$(a $$ b)", "$(a $$ b)"),
        ("$(a $(VAR_A))", "$(a $(VAR_A))"),
        ("$VAR_A", "$VAR_A"),
        ("$(VAR_A", "$(VAR_A"),
        ("$(VAR_A)$", "A$"),
        ("$$", "$"),
        ("$", "$"),
        ("é$(VAR_A)é", "éAé"),
        ("", ""),
    ];
    let config = app(json!({"args": cases.map(|(text, _)| text), "env": [
        {"name": "VAR_A", "value": "A"}, {"name": "VAR_B", "value": "B"},
        {"name": "VAR_EMPTY"}, {"name": "REF", "value": "$$(VAR_A)"},
    ]}));
    assert_eq!(config.unwrap().args, cases.map(|(_, expanded)| expanded));
}

#[test]
fn host_aliases_follow_pods_own_entry_or_nodes_hosts_file() {
    let of_node = "127.0.0.1 localhost\n10.0.0.1 node\n";
    let aliases = json!([{"ip": "10.1.1.1", "hostnames": ["db", "db.local"]}]);
    for (on_host, own) in [
        (false, format!("{LOCAL}10.0.0.7\tw\n")),
        (true, of_node.to_owned()),
    ] {
        let mut spec = json!({"containers": [], "hostname": "w", "hostAliases": aliases});
        spec["hostNetwork"] = on_host.into();
        let text = hosts(&pod(spec), &[[10, 0, 0, 7].into()], of_node);
        assert_eq!(text, own + "10.1.1.1\tdb\tdb.local\n");
    }
}

#[test]
fn volumes_are_mounted_from_their_paths_on_the_node() {
    let config = app(json!({
        "env": [{"name": "DAY", "value": "1"}],
        "volumeMounts": [
            {"name": "data", "mountPath": "/data", "readOnly": true},
            {"name": "tmp", "mountPath": "tmp"},
            {"name": "pod", "mountPath": "/pod"},
            {"name": "bare", "mountPath": "/bare"},
            {"name": "data", "mountPath": "/a", "subPath": "x/y"},
            {"name": "tmp", "mountPath": "/b", "subPathExpr": "$(DAY)"},
            {"name": "tmp", "mountPath": "/c", "subPath": ""},
        ],
    }));
    let mounts = config.unwrap().mounts;
    let mounts = mounts.iter().map(|m| {
        let host = m.host_path.replace("/var/lib/kubelet/pods/u-1", "POD");
        let is_of_host = host.starts_with("/srv") || host.contains("/data/app/");
        assert_eq!(m.selinux_relabel, !is_of_host, "{host}");
        (host, &*m.container_path, m.readonly)
    });
    let expected = [
        ("POD/containers/app/3", "/dev/termination-log", false),
        ("POD/etc-hosts", "/etc/hosts", false),
        ("/srv/data", "/data", true),
        ("POD/volumes/kubernetes.io~empty-dir/tmp", "/tmp", false),
        // Only the kubelet changes the files.
        ("POD/volumes/kubernetes.io~downward-api/pod", "/pod", true),
        // A volume without a source is an emptyDir.
        ("POD/volumes/kubernetes.io~empty-dir/bare", "/bare", false),
        ("POD/volume-subpaths/data/app/4", "/a", false),
        ("POD/volume-subpaths/tmp/app/5", "/b", false),
        ("POD/volumes/kubernetes.io~empty-dir/tmp", "/c", false),
    ];
    let expected = expected.map(|(host, to, readonly)| (host.to_owned(), to, readonly));
    assert_eq!(mounts.collect::<Vec<_>>(), expected);
    // A container that mounts a hosts file of its own does not get the pod's hosts file.
    let own = json!({"volumeMounts": [{"name": "data", "mountPath": "/etc/hosts"}]});
    let mounts = app(own).unwrap().mounts;
    let hosts = mounts.iter().filter(|m| m.container_path == "/etc/hosts");
    assert!(hosts.map(|m| &*m.host_path).eq(["/srv/data"]));
}

#[test]
fn security_settings_and_stop_signal_are_passed_to_the_runtime() {
    let pod = pod(json!({
        "securityContext": {
            "seLinuxOptions": {"type": "of_pod_t", "level": "s0"}, "supplementalGroupsPolicy": "Strict",
        },
        "containers": [
            {"name": "app", "securityContext": {"seLinuxOptions": {"type": "own_t"}}},
            {"name": "other", "lifecycle": {"stopSignal": "SIGRTMIN+1"}},
        ],
    }));
    let sandbox = sandbox_config(&pod, &node(), 0).unwrap().linux;
    let of_pod = sandbox.and_then(|linux| linux.security_context);
    let of_pod = of_pod.and_then(|context| context.selinux_options).unwrap();
    let [own, other] = [0, 1].map(|at| config_of(&pod, at).unwrap());
    assert_eq!(other.stop_signal(), Signal::Sigrtminplus1);
    let [own, other] = [own, other].map(security);
    let policy = other.supplemental_groups_policy();
    assert_eq!(policy, SupplementalGroupsPolicy::Strict);
    let [own, other] = [own, other].map(|context| context.selinux_options.unwrap());
    assert_eq!((&*of_pod.r#type, &*of_pod.level), ("of_pod_t", "s0"));
    assert_eq!((&*own.r#type, &*own.level), ("own_t", ""));
    assert_eq!(other, of_pod);
}

/// A row: the fields of the container, and the error.
#[test]
fn unusable_field_is_named_in_the_error() {
    let table = r#"
        {"volumeMounts": [{"name": "none", "mountPath": "/a"}]} | volumeMounts[0].name: there is no volume "none": add it to spec.volumes
        {"volumeMounts": [{"name": "nfs", "mountPath": "/a"}]} | volumeMounts[0].name: volume "nfs" is none of hostPath, emptyDir and downwardAPI
        {"securityContext": {"runAsNonRoot": true, "runAsUser": 0}} | securityContext.runAsNonRoot: the container must not run as root, and runAsUser is 0: change one
        {"envFrom": [{"configMapRef": {"name": "c"}}]} | envFrom: config maps and secrets are not read: write the variables in env
    "#;
    for row in rows(table) {
        let error = app(serde_json::from_str(row[0]).unwrap()).err();
        assert_eq!(error.unwrap().to_string(), row[1]);
    }
}

#[test]
fn kernel_paths_are_masked_unless_the_container_is_privileged() {
    let context = |context: Value| security(app(json!({"securityContext": context})).unwrap());
    let plain = context(json!({"runAsUser": 1000, "allowPrivilegeEscalation": false}));
    let paths = [plain.masked_paths, plain.readonly_paths];
    assert_eq!(paths.map(|paths| paths.len()), [12, 5]);
    assert!(plain.no_new_privs && !plain.privileged);
    assert_eq!(plain.run_as_user.map(|u| u.value), Some(1000));
    let privileged = context(json!({"privileged": true}));
    assert!(privileged.privileged && privileged.masked_paths.is_empty());
}
