//! The downward API: a container gets fields of its pod in environment variables and in files of a volume.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::{
    Container, DownwardAPIVolumeFile, DownwardAPIVolumeSource, ObjectFieldSelector, Pod,
    ResourceFieldSelector,
};

use crate::cri_config::NodeConfig;
use crate::quantity::Amount;
use crate::resources::{limit, request};
use crate::spec::{PodName, container_of, spec_of};

const NO_SOURCE: &str = "write one of fieldRef and resourceFieldRef";

/// The files of a volume, by path: the text and the permissions of each, such as `0o644`.
pub(crate) type Files = BTreeMap<PathBuf, (String, u32)>;

/// The values of the fields of one pod.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) node: &'a NodeConfig,
    /// The addresses of the pod's sandbox. Empty for the files of a volume, because `check` refuses addresses there.
    pub(crate) pod_ips: &'a [IpAddr],
}

impl Fields<'_> {
    /// The value of a field of the pod or of a resource of a container. `own` is the container whose variable gets
    /// the value, `None` for a file. The error is advice for the author of the pod.
    pub(crate) fn value(
        &self,
        field: &Option<ObjectFieldSelector>,
        resource: &Option<ResourceFieldSelector>,
        own: Option<&Container>,
    ) -> Result<String, String> {
        match (field, resource) {
            (Some(field), _) => self.field(&field.field_path),
            (None, Some(selector)) => self.resource(selector, own),
            (None, None) => Err(NO_SOURCE.to_owned()),
        }
    }

    fn field(&self, path: &str) -> Result<String, String> {
        let (spec, metadata) = (spec_of(self.pod), &self.pod.metadata);
        let in_map = path.strip_suffix("']").and_then(|p| p.split_once("['"));
        let (field, key) = in_map.map_or((path, None), |(field, key)| (field, Some(key)));
        let of_map = |map: &Option<BTreeMap<String, String>>| match (map, key) {
            (Some(map), Some(key)) => map.get(key).cloned().unwrap_or_default(),
            (map, _) => {
                let lines = map.iter().flatten().map(|(k, v)| format!("{k}={v:?}"));
                lines.collect::<Vec<_>>().join("\n")
            }
        };
        let joined = |ips: &[IpAddr]| {
            let ips = ips.iter().map(IpAddr::to_string);
            ips.collect::<Vec<_>>().join(",")
        };
        let first = |ips: &[IpAddr]| joined(ips.get(..1).unwrap_or_default());
        let text_of = |text: &Option<String>| text.clone().unwrap_or_default();
        let name = PodName::of(self.pod);
        Ok(match (field, key) {
            ("metadata.labels", _) => of_map(&metadata.labels),
            ("metadata.annotations", _) => of_map(&metadata.annotations),
            ("metadata.name", None) => name.name.to_owned(),
            ("metadata.namespace", None) => name.namespace.to_owned(),
            ("metadata.uid", None) => name.uid.to_owned(),
            ("spec.nodeName", None) => text_of(&spec.node_name),
            ("spec.serviceAccountName", None) => text_of(&spec.service_account_name),
            ("status.hostIP", None) => first(&self.node.host_ips),
            ("status.hostIPs", None) => joined(&self.node.host_ips),
            ("status.podIP", None) => first(self.pod_ips),
            ("status.podIPs", None) => joined(self.pod_ips),
            _ => {
                return Err(format!(
                    "{path:?} is not a field that a variable can have: use one of metadata.name, metadata.namespace, \
                     metadata.uid, metadata.labels['KEY'], metadata.annotations['KEY'], spec.nodeName, \
                     spec.serviceAccountName, status.hostIP, status.hostIPs, status.podIP and status.podIPs"
                ));
            }
        })
    }

    /// The value of a resource in units of the selector's divisor, rounded up. A limit of CPU or memory that is not set
    /// counts as the node's capacity.
    fn resource(
        &self,
        selector: &ResourceFieldSelector,
        own: Option<&Container>,
    ) -> Result<String, String> {
        let container = match selector.container_name.as_deref().unwrap_or_default() {
            "" => own,
            name => container_of(self.pod, name),
        };
        let container = container.ok_or("its containerName names no container: change it")?;
        let (resource, resources) = (&*selector.resource, container.resources.as_ref());
        let (name, given) = match resource.split_once('.') {
            Some(("limits", name)) => (name, limit(resources, name)),
            Some(("requests", name)) => (name, request(resources, name).or(Some(Amount::ZERO))),
            _ => return Err(format!("{resource:?} is not limits.NAME or requests.NAME")),
        };
        let whole = |units: u64| Amount::whole(i64::try_from(units).unwrap_or(i64::MAX));
        let amount = match (given, resource) {
            (Some(given), _) => given,
            (None, "limits.cpu") => whole(self.node.cpus.into()),
            (None, "limits.memory") => whole(self.node.memory),
            (None, _) => return Err(format!("the container has no {resource}: write it")),
        };
        let divisor = selector.divisor.as_ref().map(Amount::try_from).transpose();
        let divisor = divisor.map_err(|error| error.to_string())?;
        let divisor = divisor.filter(|divisor| *divisor != Amount::ZERO);
        let divisor = divisor.unwrap_or(Amount::whole(1));
        let (amount, divisor) = match name {
            "cpu" => (amount.milli_value(), divisor.milli_value()),
            _ => (amount.value(), divisor.value()),
        };
        let [amount, divisor] = [amount, divisor].map(|value| u64::try_from(value).unwrap_or(0));
        Ok(amount.div_ceil(divisor.max(1)).to_string())
    }

    /// The files of a `downwardAPI` volume. The error names an item without a value, and has advice.
    pub(crate) fn files(&self, source: &DownwardAPIVolumeSource) -> Result<Files, String> {
        let files = source.items.iter().flatten().map(|item| {
            let text = check(item)
                .and_then(|()| self.value(&item.field_ref, &item.resource_field_ref, None));
            let text = text.map_err(|problem| format!("{}: {problem}", item.path))?;
            let mode = item.mode.or(source.default_mode).unwrap_or(0o644);
            let mode = mode.cast_unsigned() & 0o777;
            Ok((PathBuf::from(&item.path), (text, mode)))
        });
        files.collect()
    }
}

/// Checks an item of a `downwardAPI` volume without looking up its value. The error is advice for the pod's author.
pub(crate) fn check(item: &DownwardAPIVolumeFile) -> Result<(), String> {
    let path = Path::new(&item.path);
    let mut parts = path.components();
    let is_below = parts.all(|part| matches!(part, Component::Normal(_)));
    if item.path.is_empty() || !is_below || item.path.starts_with("..") {
        return Err(format!("{path:?} is empty, absolute or has ..: change it"));
    }
    match (&item.field_ref, &item.resource_field_ref) {
        (Some(field), None) if field.field_path.starts_with("metadata.") => Ok(()),
        (None, Some(_)) => Ok(()),
        (Some(field), None) => Err(format!(
            "{:?} is not a field that a file can have: use metadata.name, metadata.namespace, metadata.uid, \
             metadata.labels or metadata.annotations",
            field.field_path
        )),
        _ => Err(NO_SOURCE.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::{self, Value, json};

    use super::*;

    fn fields<'a>(pod: &'a Pod, node: &'a NodeConfig) -> Fields<'a> {
        let pod_ips = &[];
        Fields { pod, node, pod_ips }
    }

    #[test]
    fn resources_are_rounded_up_and_limits_default_to_node_capacity() {
        let mut node = NodeConfig::of_host(Path::new("/r"), Vec::new());
        (node.cpus, node.memory) = (4, 1000);
        let pod = Pod::default();
        let fields = fields(&pod, &node);
        let limits = json!({"cpu": "1500m", "memory": "1Mi"});
        let with_limits = json!({"name": "app", "resources": {"limits": limits}});
        let with_limits: Container = serde_json::from_value(with_limits).unwrap();
        let without = Container::default();
        let value = |container, resource: &str, divisor: &Value| {
            let selector = json!({"resource": resource, "divisor": divisor});
            let selector = serde_json::from_value(selector).unwrap();
            fields.resource(&selector, Some(container))
        };
        for (container, resource, divisor, expected) in [
            (&with_limits, "limits.cpu", json!(null), "2"),
            (&with_limits, "limits.cpu", json!("1m"), "1500"),
            (&with_limits, "requests.cpu", json!("0"), "2"),
            (&with_limits, "limits.memory", json!("1Ki"), "1024"),
            (&with_limits, "requests.ephemeral-storage", json!(null), "0"),
            (&without, "limits.cpu", json!(null), "4"),
            (&without, "limits.memory", json!(null), "1000"),
        ] {
            let found = value(container, resource, &divisor);
            assert_eq!(found.as_deref(), Ok(expected), "{resource} {divisor}");
        }
        assert!(value(&without, "limits.ephemeral-storage", &Value::Null).is_err());
    }

    #[test]
    fn downward_files_have_one_label_per_line_and_given_mode() {
        let pod = json!({"metadata": {"labels": {"a": "1", "b": "x\"y"}}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let source = json!({"defaultMode": 0o400, "items": [
            {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
            {"path": "d/b", "mode": 0o600, "fieldRef": {"fieldPath": "metadata.labels['b']"}},
        ]});
        let source = serde_json::from_value(source).unwrap();
        let node = NodeConfig::of_host(Path::new("/r"), Vec::new());
        let fields = fields(&pod, &node);
        let file = |text: &str, mode| (text.to_owned(), mode);
        let expected = BTreeMap::from([
            ("labels".into(), file("a=\"1\"\nb=\"x\\\"y\"", 0o400)),
            ("d/b".into(), file("x\"y", 0o600)),
        ]);
        assert_eq!(fields.files(&source), Ok(expected));
    }
}
