//! Manifests modelled on those of real projects: this kubelet runs them, or its error names the refused field. Each
//! file names the project's file on which it is modelled. `fields.tsv` lists the fields, and the files that use each.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;
use static_pods::manifest::Manifest;

/// The files; after `=` the field for which a file is refused.
const FILES: &str = "deckhouse-kubernetes-api-proxy gce-konnectivity-server gce-kube-addon-manager \
    kops-etcd-manager-main=spec.volumes[4].image kops-kube-apiserver kube-vip kubeadm-etcd kubeadm-ha-haproxy \
    kubeadm-kube-apiserver kubeadm-kube-controller-manager kubeadm-kube-scheduler kubespray-nginx-proxy \
    openshift-bootstrap-keepalived openshift-etcd openshift-kube-apiserver openshift-kube-apiserver-startup-monitor \
    openshift-kube-rbac-proxy-crio openshift-kube-scheduler rke2-etcd rke2-kube-apiserver talos-kube-apiserver";

/// The paths of all fields that have a value and no fields of their own. Elements of a list have the list's path.
fn fields_of(value: &Value, path: &str) -> Vec<String> {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            let fields = fields.iter();
            let below = fields.map(|(name, value)| fields_of(value, &format!("{path}.{name}")));
            below.flatten().collect()
        }
        Value::Array(list) if !list.is_empty() => {
            let elements = list.iter();
            elements.flat_map(|value| fields_of(value, path)).collect()
        }
        _ => vec![path.to_owned()],
    }
}

#[test]
fn real_manifests_run_or_the_error_names_the_refused_field() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/manifests/real");
    let files = std::fs::read_dir(&directory).map(Iterator::count);
    assert_eq!(files.unwrap_or_default(), FILES.split(' ').count());
    let mut table: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for file in FILES.split(' ') {
        let (name, field) = file.split_once('=').unwrap_or((file, ""));
        let file = directory.join(format!("{name}.yaml"));
        let text = std::fs::read_to_string(&file).unwrap();
        let mut read = Manifest::parse_all(&file, &text, "node", false);
        let refused = read.remove(0).err();
        let refused = refused.map(|error| error.field.unwrap_or(error.problem));
        assert_eq!(refused.as_deref().unwrap_or_default(), field, "{name}");
        let pod: Value = serde_saphyr::from_str(&text).unwrap();
        for field in fields_of(&pod["spec"], "spec") {
            table.entry(field).or_default().insert(name);
        }
    }
    let listed = include_str!("fields.tsv").lines().map(|row| {
        let (field, files) = row.split_once('\t').unwrap();
        (field.to_owned(), files.split(' ').collect())
    });
    assert_eq!(table, listed.collect());
}
