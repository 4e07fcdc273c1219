//! Tests of the manifests for Kubernetes.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, ResourceQuota};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{agent, path, read};

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

/// Parses a manifest. Fails if it has a field that the type of the object does not have.
fn manifest<T: DeserializeOwned + Serialize>(file: &str) -> Value {
    let given = yaml(&read(file));
    let object: T = serde_json::from_value(given.clone()).unwrap();
    assert_eq!(given, serde_json::to_value(&object).unwrap());
    given
}

fn pod() -> (Value, Value) {
    let set = manifest::<DaemonSet>("kubernetes/daemonset.yaml");
    let template = &set["spec"]["template"];
    let labels = &template["metadata"]["labels"];
    assert_eq!(&set["spec"]["selector"]["matchLabels"], labels);
    let pod = &template["spec"];
    (pod.clone(), pod["containers"][0].clone())
}

#[test]
fn kustomization_names_the_manifests_and_the_image() {
    let kustomization = yaml(&read("kubernetes/kustomization.yaml"));
    let namespace = manifest::<Namespace>("kubernetes/namespace.yaml");
    assert_eq!(namespace["metadata"]["name"], kustomization["namespace"]);
    let (pod, container) = pod();
    assert_eq!(container["image"], kustomization["images"][0]["name"]);
    let entries = std::fs::read_dir(path("kubernetes")).unwrap();
    let files = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut files: Vec<String> = files.filter(|file| file != "kustomization.yaml").collect();
    let order = ["namespace.yaml", "quota.yaml", "daemonset.yaml"];
    files.sort_by_key(|file| order.iter().position(|known| known == file));
    assert_eq!(kustomization["resources"], json!(files));
    let quota = manifest::<ResourceQuota>("kubernetes/quota.yaml");
    let scope = &quota["spec"]["scopeSelector"]["matchExpressions"][0];
    assert_eq!(scope["values"], json!([pod["priorityClassName"]]));
}

#[test]
fn daemonset_has_ports_mounts_and_rights_for_its_arguments() {
    let (pod, container) = pod();
    let given = container["args"].as_array().unwrap();
    let args = agent(given.iter().map(|arg| arg.as_str().unwrap()));
    let crate::http::Listen::Tcp(address) = args.listen else {
        panic!("{:?}", args.listen);
    };
    assert!(!address.ip().is_loopback(), "the kubelet probes it");
    assert_eq!(container["ports"][0]["containerPort"], address.port());
    let endpoint = args.connection.runtime.runtime_endpoint.unwrap();
    let mounts = container["volumeMounts"].as_array().unwrap();
    assert!(mounts.iter().all(|mount| mount["readOnly"] == true));
    for file in [endpoint.path(), &args.access.token_file.unwrap()] {
        let has_file = |mount: &Value| file.starts_with(mount["mountPath"].as_str().unwrap());
        assert!(mounts.iter().any(has_file), "{}", file.display());
    }
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert_eq!(pod.get("serviceAccountName"), None, "it needs no role");
    let allowed = json!({
        "runAsUser": 0,
        "runAsGroup": 0,
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": { "drop": ["ALL"], "add": ["SYS_PTRACE"] },
    });
    assert_eq!(container["securityContext"], allowed);
}

/// In kustomization.yaml, the patch is commented out.
#[test]
fn patch_in_the_kustomization_replaces_every_containerd_path() {
    let text = read("kubernetes/kustomization.yaml");
    let (_, patch) = text.split_once("patch: |-\n").expect("a patch");
    let lines = patch.lines().map(|line| line.trim_start_matches('#'));
    let patches = yaml(&lines.collect::<Vec<_>>().join("\n"));
    let mut set = yaml(&read("kubernetes/daemonset.yaml"));
    for patch in patches.as_array().unwrap() {
        assert_eq!(patch["op"], "replace");
        let replaced = set.pointer_mut(patch["path"].as_str().unwrap());
        *replaced.expect("it exists") = patch["value"].clone();
    }
    assert!(!set.to_string().contains("/run/containerd"), "{set}");
}
