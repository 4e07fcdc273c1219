//! The manifests.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Container, Namespace, PodSpec, ResourceQuota};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{agent, path, read};

/// The object in a manifest. A field that the type does not have would be missing in what is written again.
fn manifest<T: DeserializeOwned + Serialize>(file: &str) -> T {
    let given: Value = serde_saphyr::from_str(&read(file)).unwrap();
    let object: T = serde_json::from_value(given.clone()).unwrap();
    assert_eq!(given, serde_json::to_value(&object).unwrap());
    object
}

fn pod() -> (PodSpec, Container) {
    let set: DaemonSet = manifest("kubernetes/daemonset.yaml");
    let labels = set.spec.template.metadata.unwrap().labels;
    assert_eq!(set.spec.selector.match_labels, labels);
    let mut pod = set.spec.template.spec.unwrap();
    let container = pod.containers.pop().unwrap();
    (pod, container)
}

#[test]
fn kustomization_names_the_manifests_and_the_image() {
    let text = read("kubernetes/kustomization.yaml");
    let kustomization: Value = serde_saphyr::from_str(&text).unwrap();
    let namespace: Namespace = manifest("kubernetes/namespace.yaml");
    assert_eq!(
        namespace.metadata.name.as_deref(),
        kustomization["namespace"].as_str()
    );
    let entries = std::fs::read_dir(path("kubernetes")).unwrap();
    let files = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut files: Vec<String> = files.filter(|file| file != "kustomization.yaml").collect();
    files.sort_by_key(|file| {
        ["namespace.yaml", "quota.yaml", "daemonset.yaml"]
            .iter()
            .position(|f| f == file)
    });
    assert_eq!(kustomization["resources"], json!(files));
    assert_eq!(
        pod().1.image.as_deref(),
        kustomization["images"][0]["name"].as_str()
    );
}

#[test]
fn quota_allows_the_priority_class_of_the_agent() {
    let quota: ResourceQuota = manifest("kubernetes/quota.yaml");
    let scopes = quota
        .spec
        .unwrap()
        .scope_selector
        .unwrap()
        .match_expressions
        .unwrap();
    assert_eq!(
        scopes[0].values.as_deref(),
        pod().0.priority_class_name.as_slice().into()
    );
}

#[test]
fn arguments_ports_and_mounts_fit_each_other() {
    let (_, container) = pod();
    let given = container.args.unwrap();
    let args = agent(given.iter().map(String::as_str));
    let crate::http::Listen::Tcp(address) = args.listen else {
        panic!("{:?}", args.listen);
    };
    assert!(!address.ip().is_loopback(), "the kubelet probes it");
    assert_eq!(
        i32::from(address.port()),
        container.ports.unwrap()[0].container_port
    );
    let endpoint = args.connection.runtime.runtime_endpoint.unwrap();
    let mounts = container.volume_mounts.unwrap();
    for file in [endpoint.path(), &args.access.token_file.unwrap()] {
        let is_mounted = mounts
            .iter()
            .any(|mount| file.starts_with(&mount.mount_path));
        assert!(is_mounted, "{}", file.display());
    }
}

#[test]
fn agent_has_no_rights_but_those_explained() {
    let (pod, container) = pod();
    assert_eq!(pod.automount_service_account_token, Some(false));
    assert_eq!(pod.service_account_name, None, "it needs no role");
    let context = serde_json::to_value(container.security_context).unwrap();
    let allowed = json!({
        "runAsUser": 0,
        "runAsGroup": 0,
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": { "drop": ["ALL"], "add": ["SYS_PTRACE"] },
    });
    assert_eq!(context, allowed);
    let mounts = container.volume_mounts.unwrap();
    assert!(mounts.iter().all(|mount| mount.read_only == Some(true)));
}

/// The patch is commented out.
#[test]
fn patch_for_another_runtime_replaces_containerd() {
    let text = read("kubernetes/kustomization.yaml");
    let (_, patch) = text.split_once("patch: |-\n").expect("a patch");
    let lines = patch.lines().map(|line| line.trim_start_matches('#'));
    let patches: Vec<Value> =
        serde_saphyr::from_str(&lines.collect::<Vec<_>>().join("\n")).unwrap();
    let mut set: Value = serde_saphyr::from_str(&read("kubernetes/daemonset.yaml")).unwrap();
    for patch in patches {
        assert_eq!(patch["op"], "replace");
        let replaced = set
            .pointer_mut(patch["path"].as_str().unwrap())
            .expect("it exists");
        *replaced = patch["value"].clone();
    }
    assert!(!set.to_string().contains("/run/containerd"), "{set}");
}
