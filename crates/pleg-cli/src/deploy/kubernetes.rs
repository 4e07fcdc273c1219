//! The manifests.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Container, Namespace};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{agent, path, read};

/// The object in a manifest. Whatever the type does not have is an error: it would be missing, or
/// different, in what is written again.
fn strict<T: DeserializeOwned + Serialize>(text: &str) -> Result<T, String> {
    let given: Value = serde_saphyr::from_str(text).map_err(|e| e.to_string())?;
    let object: T = serde_json::from_value(given.clone()).map_err(|e| e.to_string())?;
    let again = serde_json::to_value(&object).map_err(|e| e.to_string())?;
    match difference(&given, &again, "") {
        None => Ok(object),
        Some(path) => Err(format!("{path} is not a field of this type")),
    }
}

/// The path of the first value that differs.
fn difference(given: &Value, again: &Value, path: &str) -> Option<String> {
    match (given, again) {
        (Value::Object(given), Value::Object(again)) => given.iter().find_map(|(key, value)| {
            let path = format!("{path}.{key}");
            difference(value, again.get(key).unwrap_or(&Value::Null), &path)
        }),
        (Value::Array(given), Value::Array(again)) if given.len() == again.len() => {
            let mut pairs = given.iter().zip(again).enumerate();
            pairs.find_map(|(n, (given, again))| difference(given, again, &format!("{path}[{n}]")))
        }
        _ => (given != again).then(|| path.to_owned()),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Kustomization {
    api_version: String,
    kind: String,
    namespace: String,
    resources: Vec<String>,
    images: Vec<Image>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Image {
    name: String,
    new_name: String,
    new_tag: String,
}

fn daemon_set() -> DaemonSet {
    strict(&read("kubernetes/daemonset.yaml")).unwrap()
}

fn container() -> Container {
    let pod = daemon_set().spec.template.spec.unwrap();
    let [container] = pod.containers.try_into().unwrap();
    container
}

#[test]
fn unknown_field_of_a_manifest_is_an_error() {
    let valid = read("kubernetes/daemonset.yaml");
    for (field, wrong) in [
        ("hostPID: true", "hostPid: true"),
        ("drop: [ALL]", "drops: [ALL]"),
        ("path: /readyz", "paths: /readyz"),
        ("hostPID: true", "hostPID: 1"),
    ] {
        assert!(valid.contains(field), "{field}");
        let result: Result<DaemonSet, _> = strict(&valid.replace(field, wrong));
        assert!(result.is_err(), "{wrong}");
    }
}

#[test]
fn kustomization_names_the_manifests_and_the_image() {
    let text = read("kubernetes/kustomization.yaml");
    let kustomization: Kustomization = serde_saphyr::from_str(&text).unwrap();
    assert_eq!(kustomization.kind, "Kustomization");
    assert_eq!(kustomization.api_version, "kustomize.config.k8s.io/v1beta1");
    let namespace: Namespace = strict(&read("kubernetes/namespace.yaml")).unwrap();
    assert_eq!(namespace.metadata.name, Some(kustomization.namespace));
    let mut listed = kustomization.resources;
    listed.extend(["kustomization.yaml".to_owned()]);
    listed.sort();
    let entries = std::fs::read_dir(path("kubernetes")).unwrap();
    let mut files: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    assert_eq!(listed, files);
    let [image] = kustomization.images.try_into().unwrap();
    assert_eq!(Some(image.name), container().image);
    assert!(!image.new_name.is_empty() && !image.new_tag.is_empty());
}

#[test]
fn arguments_ports_and_mounts_of_the_daemon_set_fit_each_other() {
    let container = container();
    let given = container.args.unwrap();
    let args = agent(given.iter().map(String::as_str));
    let crate::http::Listen::Tcp(address) = args.listen else {
        panic!("{:?}", args.listen);
    };
    let [port] = container.ports.unwrap().try_into().unwrap();
    assert_eq!(i32::from(address.port()), port.container_port);
    let mounts = container.volume_mounts.unwrap();
    let is_mounted = |file: &std::path::Path| {
        let below =
            |mount: &&k8s_openapi::api::core::v1::VolumeMount| file.starts_with(&mount.mount_path);
        mounts.iter().any(|mount| below(&mount))
    };
    let endpoint = args.connection.runtime.runtime_endpoint.unwrap();
    assert!(is_mounted(endpoint.path()), "{endpoint}");
    assert!(is_mounted(&args.access.token_file.unwrap()));
    assert!(!address.ip().is_loopback(), "the kubelet probes it");
}

#[test]
fn agent_has_no_rights_but_those_that_the_manifest_explains() {
    let set = daemon_set().spec;
    assert_eq!(
        set.selector.match_labels,
        set.template.metadata.unwrap().labels
    );
    let pod = set.template.spec.unwrap();
    assert_eq!(pod.automount_service_account_token, Some(false));
    assert_eq!(pod.service_account_name, None, "it needs no role");
    let context = container().security_context.unwrap();
    assert_eq!(context.privileged, None);
    assert_eq!(context.read_only_root_filesystem, Some(true));
    assert_eq!(context.allow_privilege_escalation, Some(false));
    let capabilities = context.capabilities.unwrap();
    assert_eq!(capabilities.drop, Some(vec!["ALL".to_owned()]));
    assert_eq!(capabilities.add, Some(vec!["SYS_PTRACE".to_owned()]));
    let mounts = container().volume_mounts.unwrap();
    assert!(mounts.iter().all(|mount| mount.read_only == Some(true)));
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Patch {
    op: String,
    path: String,
    value: String,
}

/// It is commented out.
#[test]
fn patch_for_another_runtime_replaces_what_names_containerd() {
    let text = read("kubernetes/kustomization.yaml");
    let (_, patch) = text.split_once("patch: |-\n").expect("a patch");
    let lines = patch.lines().map(|line| line.trim_start_matches('#'));
    let patches: Vec<Patch> =
        serde_saphyr::from_str(&lines.collect::<Vec<_>>().join("\n")).unwrap();
    let mut replaced: Value = serde_saphyr::from_str(&read("kubernetes/daemonset.yaml")).unwrap();
    for patch in patches {
        assert_eq!(patch.op, "replace");
        let value = replaced.pointer_mut(&patch.path).expect("it exists");
        let old = value.as_str().expect("a text");
        assert!(old.contains("/run/containerd"), "{}: {old}", patch.path);
        *value = patch.value.into();
    }
    assert!(
        !replaced.to_string().contains("/run/containerd"),
        "{replaced}"
    );
}
