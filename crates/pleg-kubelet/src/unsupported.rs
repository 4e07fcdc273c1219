//! Fields of a pod that this crate does not implement. A pod that needs such a field would not run as specified.

use k8s_openapi::api::core::v1::{Container, DownwardAPIVolumeFile, LifecycleHandler, Pod, Probe};
use k8s_openapi::serde::Deserialize as _;
use k8s_openapi::serde_json::{self, Value, json};

use crate::cri_config::{FieldError, check_user};
use crate::downward;
use crate::probe::{check_of, hook_of};
use crate::spec::spec_of;

/// Paths of unsupported fields (see [`fields_at`]), with advice. `PATH=VALUE` is refused only with this value, in which
/// `*` stands for any text.
pub(crate) const OF_POD: &str = "\
spec.dnsConfig: pods have the name resolution of the node: remove it
spec.ephemeralContainers: they are not run: remove them
spec.hostUsers=false: user namespaces are not made: remove it
spec.hostnameOverride: write hostname
spec.overhead: runtime classes are not looked up: remove it
spec.resourceClaims: claims are not read: remove them
spec.resources: write the resources of the containers
spec.runtimeClassName: runtime classes are not looked up: remove it
spec.schedulingGates: a pod with gates waits for a scheduler: remove them
spec.setHostnameAsFQDN=true: the node has no cluster domain: remove it
spec.securityContext.appArmorProfile: AppArmor profiles are not applied: remove it
spec.securityContext.seccompProfile.localhostProfile: profiles of the node are not looked up: write type RuntimeDefault
spec.securityContext.windowsOptions: containers run on Linux: remove them
spec.@.*Probe.grpc.mode=TLS: gRPC probes have no TLS: use httpGet, tcpSocket or exec
spec.@.*Probe.httpGet.protocol: requests are HTTP/1.1: remove it
spec.@.*Probe.terminationGracePeriodSeconds: containers are stopped with the grace period of the pod: remove it
spec.@.lifecycle.*.httpGet.protocol: requests are HTTP/1.1: remove it
spec.@.resizePolicy.restartPolicy=RestartContainer: containers keep running: write NotRequired
spec.@.resources.claims: claims are not read: remove them
spec.@.resources.limits.*/*: devices and huge pages are not provided: remove it
spec.@.resources.limits.hugepages-*: devices and huge pages are not provided: remove it
spec.@.restartPolicyRules.action=RestartAllContainers: only the container is restarted: write Restart
spec.@.securityContext.appArmorProfile: AppArmor profiles are not applied: remove it
spec.@.securityContext.seccompProfile.localhostProfile: profiles of the node are not looked up: write type RuntimeDefault
spec.@.securityContext.windowsOptions: containers run on Linux: remove them
spec.@.volumeDevices: block devices are not provided: mount a hostPath
spec.@.volumeMounts.bindMountOptions: they are not set: remove them
spec.@.volumeMounts.recursiveReadOnly=Enabled: Enabled is not provided: write IfPossible, or remove it
spec.volumes.emptyDir.medium=HugePages*: huge pages are not provided: write Memory, or remove it
spec.volumes.emptyDir.mode: the mode is 0777: remove it
spec.volumes.downwardAPI.defaultUser: the files belong to root: remove it
spec.volumes.downwardAPI.items.user: the files belong to root: remove it";

/// Like `OF_POD`, for fields in the environment of a container. Their paths begin at the container.
const OF_ENVIRONMENT: &str = "\
env.valueFrom.configMapKeyRef: config maps are not read: write the value
env.valueFrom.fileKeyRef: files of containers are not read: write the value
env.valueFrom.secretKeyRef: secrets are not read: write the value
envFrom: config maps and secrets are not read: write the variables in env";

/// Like `OF_POD`, for a plan without probe results or the pod's deadline, and for `Sources` without pull secrets.
pub(crate) const PROBES: &str =
    "spec.@.*Probe: the plan has no results of probes: pass Some(probes) to Planner::plan";
pub(crate) const DEADLINE: &str =
    "spec.activeDeadlineSeconds: the plan does not end the pod then: call Desired::until_deadline";
pub(crate) const PULL_SECRETS: &str = "\
spec.imagePullSecrets: secrets are not read: write the credentials into the node's docker config file";

/// Finds all fields of a pod that this crate does not implement. A pod without such fields runs as specified.
///
/// Each error has the path of the field, and advice. Fields for schedulers, controllers, name servers or admission
/// (node selectors, host ports, sysctls) are no errors. Limits of local storage are not enforced, and are no errors.
/// [`Performer::perform`](crate::perform::Performer::perform) refuses pods and containers that have errors.
#[must_use]
pub fn unsupported(pod: &Pod) -> Vec<FieldError> {
    let mut errors = of_pod(pod, [OF_POD, PULL_SECRETS]);
    for (path, container) in containers(pod) {
        let user = check_user(spec_of(pod), container).err();
        let found = of_environment(container).into_iter().chain(user);
        errors.extend(found.map(|error| error.below(&path)));
    }
    errors
}

/// The unsupported fields of a pod, except fields in the environment of its containers. `tables` are like `OF_POD`.
pub(crate) fn of_pod(pod: &Pod, tables: impl IntoIterator<Item = &'static str>) -> Vec<FieldError> {
    const VOLUMES: &str = "only hostPath, emptyDir and downwardAPI are provided: use one of them";
    let value = serde_json::to_value(pod).unwrap_or_default();
    let found = tables.into_iter().map(|table| in_table(table, &value));
    let mut errors: Vec<_> = found.flatten().collect();
    for (field, _) in fields_at(&value, "spec.volumes.*") {
        let provided = [".name", ".hostPath", ".emptyDir", ".downwardAPI"];
        if !provided.iter().any(|name| field.ends_with(name)) {
            errors.push(FieldError::new(field, VOLUMES));
        }
    }
    for (field, item) in fields_at(&value, "spec.volumes.downwardAPI.items.[]") {
        let item = DownwardAPIVolumeFile::deserialize(item).ok();
        let problem = item.and_then(|item| downward::check(&item).err());
        errors.extend(problem.map(|problem| FieldError::new(field, problem)));
    }
    for (path, container) in containers(pod) {
        let lifecycle = container.lifecycle.clone().unwrap_or_default();
        let probe = |probe: &Option<Probe>| check_of(container, probe.as_ref()?).err();
        let hook = |hook: &Option<LifecycleHandler>| hook_of(container, hook.as_ref()?).err();
        for (name, error) in [
            ("startupProbe", probe(&container.startup_probe)),
            ("livenessProbe", probe(&container.liveness_probe)),
            ("readinessProbe", probe(&container.readiness_probe)),
            ("lifecycle.postStart", hook(&lifecycle.post_start)),
            ("lifecycle.preStop", hook(&lifecycle.pre_stop)),
        ] {
            errors.extend(error.map(|error| error.below(&format!("{path}.{name}"))));
        }
    }
    errors
}

/// The unsupported fields in the environment of a container. Their paths begin at the container.
pub(crate) fn of_environment(container: &Container) -> Vec<FieldError> {
    let value = serde_json::to_value(container).unwrap_or_default();
    in_table(OF_ENVIRONMENT, &value)
}

fn in_table(table: &str, value: &Value) -> Vec<FieldError> {
    // The API treats these values as unset.
    let unset = [Value::Null, json!([]), json!({}), json!("")];
    let mut errors = Vec::new();
    for (path, problem) in table.lines().filter_map(|line| line.split_once(": ")) {
        let (path, refused) = path.split_once('=').unwrap_or((path, "*"));
        for (field, value) in fields_at(value, path) {
            let text = value.as_str().map(str::to_owned);
            let text = text.unwrap_or_else(|| value.to_string());
            if !unset.contains(value) && is_like(&text, refused) {
                errors.push(FieldError::new(field, problem));
            }
        }
    }
    errors
}

fn containers(pod: &Pod) -> impl Iterator<Item = (String, &Container)> {
    let spec = spec_of(pod);
    let init = spec.init_containers.iter().flatten().enumerate();
    let init = init.map(|(at, container)| (format!("spec.initContainers[{at}]"), container));
    let regular = spec.containers.iter().enumerate();
    init.chain(regular.map(|(at, container)| (format!("spec.containers[{at}]"), container)))
}

/// Finds the values at a path. Each value comes with its own path, as in [`FieldError`].
///
/// A path leads through each element of a list. `[]` at its end stands for the elements themselves, `@` for the fields
/// `initContainers` and `containers`, and `*` for any text in the name of a field.
#[must_use]
pub fn fields_at<'a>(value: &'a Value, path: &str) -> Vec<(String, &'a Value)> {
    let mut found = Vec::new();
    find(value, path, String::new(), &mut found);
    found
}

/// Adds the values at `path` below `value`, which is at the path `at`.
fn find<'a>(value: &'a Value, path: &str, at: String, found: &mut Vec<(String, &'a Value)>) {
    if let Value::Array(elements) = value
        && !path.is_empty()
    {
        let path = if path == "[]" { "" } else { path };
        for (index, element) in elements.iter().enumerate() {
            find(element, path, format!("{at}[{index}]"), found);
        }
    } else if path.is_empty() {
        found.push((at, value));
    } else if let Some(rest) = path.strip_prefix('@') {
        for name in ["initContainers", "containers"] {
            find(value, &format!("{name}{rest}"), at.clone(), found);
        }
    } else if let Value::Object(fields) = value {
        let (name, rest) = path.split_once('.').unwrap_or((path, ""));
        let separator = if at.is_empty() { "" } else { "." };
        for (field, value) in fields.iter().filter(|(field, _)| is_like(field, name)) {
            find(value, rest, format!("{at}{separator}{field}"), found);
        }
    }
}

/// Returns true if the text matches a pattern, in which `*` stands for any text.
fn is_like(text: &str, pattern: &str) -> bool {
    let Some((start, pattern)) = pattern.split_once('*') else {
        return text == pattern;
    };
    let Some(rest) = text.strip_prefix(start) else {
        return false;
    };
    let mut ends = (0..=rest.len()).filter_map(|at| rest.get(at..));
    ends.any(|end| is_like(end, pattern))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests of manifests in `static_pods` compare the errors of single fields.
    #[test]
    fn all_unsupported_fields_of_a_pod_are_found() {
        let pod = json!({"spec": {
            "initContainers": [
                {"name": "i", "restartPolicy": "Always", "startupProbe": {"grpc": {"port": 1}}},
            ],
            "containers": [{
                "name": "app",
                "readinessProbe": {"httpGet": {"port": 1, "protocol": "HTTP/2"}},
                "resources": {"limits": {"cpu": "1", "example.com/gpu": "1", "hugepages-2Mi": "2Mi"}},
                "volumeMounts": [{"name": "a", "mountPath": "/a", "bindMountOptions": ["noexec"]}],
            }],
        }});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let errors = unsupported(&pod).into_iter();
        let mut fields: Vec<_> = errors.map(|error| error.field).collect();
        fields.sort();
        let expected = [
            "spec.containers[0].readinessProbe.httpGet.protocol",
            "spec.containers[0].resources.limits.example.com/gpu",
            "spec.containers[0].resources.limits.hugepages-2Mi",
            "spec.containers[0].volumeMounts[0].bindMountOptions",
        ];
        assert_eq!(fields, expected);
        let without_probes = &of_pod(&pod, [PROBES])[0].field;
        assert_eq!(without_probes, "spec.initContainers[0].startupProbe");
    }
}
