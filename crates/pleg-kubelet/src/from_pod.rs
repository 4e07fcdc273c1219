//! Converts a `v1.Pod` for pod workers, volumes and probes.

use std::time::Duration;

use k8s_openapi::api::core::v1::{
    Container, HTTPGetAction, LifecycleHandler, Pod, PodSpec as ApiSpec, Probe as ApiProbe,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use k8s_openapi::serde_json;

use pleg::core::Resources;

use crate::cri_config::{FieldError, linux_resources};
use crate::probe::{Check, Probe, ProbeKind, ProbeTiming};
use crate::spec::{ContainerRole, ContainerSpec, PodSpec, RestartPolicy};

impl PodSpec {
    /// The specification of a pod. Fields that are not set have the API's defaults.
    pub(crate) fn from_pod(pod: &Pod) -> Self {
        let default = ApiSpec::default();
        let spec = pod.spec.as_ref().unwrap_or(&default);
        let init = spec.init_containers.iter().flatten();
        let init = init.map(|c| match is_sidecar(c) {
            true => container_spec(spec, c, ContainerRole::Sidecar),
            false => container_spec(spec, c, ContainerRole::Init),
        });
        let regular = spec.containers.iter();
        let regular = regular.map(|c| container_spec(spec, c, ContainerRole::Regular));
        // A deletion may shorten the grace period.
        let grace = pod.metadata.deletion_grace_period_seconds;
        let grace = grace.or(spec.termination_grace_period_seconds);
        let grace = u64::try_from(grace.unwrap_or(30)).unwrap_or(0);
        Self {
            restart_policy: policy(spec.restart_policy.as_deref()),
            containers: init.chain(regular).collect(),
            termination_grace_period: Duration::from_secs(grace),
            host_network: spec.host_network == Some(true),
        }
    }
}

/// The init containers, then the regular ones.
pub(crate) fn containers_in(spec: &ApiSpec) -> impl Iterator<Item = &Container> {
    spec.init_containers
        .iter()
        .flatten()
        .chain(&spec.containers)
}

/// Returns true if an init container is restartable: it runs as long as the pod (a sidecar).
pub(crate) fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Returns true if the container is restarted after it exited with that code.
pub(crate) fn restarts(container: &Container, spec: &ApiSpec, exit_code: i32) -> bool {
    let made = container_spec(spec, container, ContainerRole::Regular);
    made.restarts(policy(spec.restart_policy.as_deref()), exit_code)
}

fn policy(name: Option<&str>) -> RestartPolicy {
    match name {
        Some("Never") => RestartPolicy::Never,
        Some("OnFailure") => RestartPolicy::OnFailure,
        _ => RestartPolicy::Always,
    }
}

fn container_spec(pod: &ApiSpec, container: &Container, role: ContainerRole) -> ContainerSpec {
    let rules = container.restart_policy_rules.iter().flatten();
    let rules = rules.filter(|rule| rule.action == "Restart");
    let resources = container.resources.as_ref().map(|resources| {
        // The memory of the node does not matter for these.
        let linux = linux_resources(pod, Some(resources), 0);
        let mut made = Resources::default();
        made.cpu_shares = linux.cpu_shares;
        made.cpu_quota = linux.cpu_quota;
        made.memory_limit = linux.memory_limit_in_bytes;
        made
    });
    let own_policy = container.restart_policy.as_deref();
    ContainerSpec {
        name: container.name.clone(),
        role,
        hash: container_hash(container),
        resources,
        restart_policy: own_policy.map(|name| policy(Some(name))),
        restart_on: rules.filter_map(|rule| rule.exit_codes.clone()).collect(),
    }
}

/// The hash of the container's name and image, which cannot change while it runs. As upstream: FNV-1a of the JSON of
/// both, as Go prints its bytes.
#[must_use]
pub fn container_hash(container: &Container) -> String {
    let image = container.image.as_deref().unwrap_or_default();
    let text = |text: &str| serde_json::Value::from(text).to_string();
    let picked = format!(
        "{{\"image\":{},\"name\":{}}}",
        text(image),
        text(&container.name)
    );
    let bytes: Vec<String> = picked.bytes().map(|byte| byte.to_string()).collect();
    let printed = format!("([]uint8)[{}]", bytes.join(" "));
    let hash = printed.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    format!("{hash:x}")
}

/// The probes of a pod's containers, in their order. Fields that are not set have the API's defaults. Probes that
/// [`Check`] cannot perform are left out; [`unsupported`](fn@crate::unsupported) finds them.
pub(crate) fn probes_of(pod: &Pod) -> Vec<Probe> {
    let containers = pod.spec.iter().flat_map(containers_in);
    let probes = containers.flat_map(|container| {
        let kinds = [
            (ProbeKind::Startup, &container.startup_probe),
            (ProbeKind::Liveness, &container.liveness_probe),
            (ProbeKind::Readiness, &container.readiness_probe),
        ];
        kinds.into_iter().filter_map(move |(kind, probe)| {
            let probe = probe.as_ref()?;
            Some(Probe {
                container: container.name.clone(),
                kind,
                timing: timing_of(probe),
                check: check_of(container, probe).ok()?,
            })
        })
    });
    probes.collect()
}

fn timing_of(probe: &ApiProbe) -> ProbeTiming {
    let given = |value: Option<i32>, default| {
        let value = value.and_then(|value| u32::try_from(value).ok());
        value.filter(|value| *value > 0).unwrap_or(default)
    };
    let seconds = |value, default| Duration::from_secs(given(value, default).into());
    ProbeTiming {
        initial_delay: seconds(probe.initial_delay_seconds, 0),
        period: seconds(probe.period_seconds, 10),
        timeout: seconds(probe.timeout_seconds, 1),
        success_threshold: given(probe.success_threshold, 1),
        failure_threshold: given(probe.failure_threshold, 3),
    }
}

/// The action of a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    Check(Check),
    Sleep(Duration),
}

/// The action of a container's hook.
///
/// # Errors
/// The field that cannot be used. Its path begins at the hook.
pub(crate) fn hook_of(container: &Container, hook: &LifecycleHandler) -> Result<Hook, FieldError> {
    if let Some(sleep) = &hook.sleep {
        let seconds = u64::try_from(sleep.seconds).unwrap_or(0);
        return Ok(Hook::Sleep(Duration::from_secs(seconds)));
    }
    let check = match (&hook.exec, &hook.http_get) {
        (Some(exec), _) => Check::Exec {
            command: exec.command.clone().unwrap_or_default(),
        },
        (None, Some(http)) => http_check(container, http)?,
        (None, None) => return Err(FieldError::new("", "write one of exec, httpGet and sleep")),
    };
    Ok(Hook::Check(check))
}

/// The action of a probe.
///
/// # Errors
/// The field that cannot be used. Its path begins at the probe.
pub(crate) fn check_of(container: &Container, probe: &ApiProbe) -> Result<Check, FieldError> {
    if let Some(exec) = &probe.exec {
        let command = exec.command.clone().unwrap_or_default();
        return Ok(Check::Exec { command });
    }
    if let Some(tcp) = &probe.tcp_socket {
        return Ok(Check::Tcp {
            host: tcp.host.clone().unwrap_or_default(),
            port: port_of(container, &tcp.port, "tcpSocket.port")?,
        });
    }
    if let Some(grpc) = &probe.grpc {
        return Ok(Check::Grpc {
            port: port_of(container, &IntOrString::Int(grpc.port), "grpc.port")?,
            service: grpc.service.clone().unwrap_or_default(),
        });
    }
    match &probe.http_get {
        Some(http) => http_check(container, http),
        None => {
            let problem = "it does nothing: write one of exec, tcpSocket, httpGet and grpc";
            Err(FieldError::new("", problem))
        }
    }
}

fn http_check(container: &Container, http: &HTTPGetAction) -> Result<Check, FieldError> {
    let scheme = http.scheme.as_deref().unwrap_or("HTTP");
    if !matches!(scheme, "HTTP" | "HTTPS") {
        let problem = format!("{scheme} is not provided: use HTTP or HTTPS");
        return Err(FieldError::new("httpGet.scheme", problem));
    }
    let headers = http.http_headers.iter().flatten();
    Ok(Check::Http {
        tls: scheme == "HTTPS",
        host: http.host.clone().unwrap_or_default(),
        port: port_of(container, &http.port, "httpGet.port")?,
        path: http.path.clone().unwrap_or_default(),
        headers: headers
            .map(|header| (header.name.clone(), header.value.clone()))
            .collect(),
    })
}

/// The number of a port that is given by its number or its name in the container.
fn port_of(container: &Container, port: &IntOrString, field: &str) -> Result<u16, FieldError> {
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => {
            let mut ports = container.ports.iter().flatten();
            let named = ports.find(|port| port.name.as_ref() == Some(name));
            named.map_or_else(|| name.parse().ok(), |port| Some(port.container_port))
        }
    };
    let number = number.and_then(|number| u16::try_from(number).ok());
    number.filter(|number| *number != 0).ok_or_else(|| {
        let problem = match port {
            IntOrString::Int(_) => "it must be between 1 and 65535".to_owned(),
            IntOrString::String(name) => {
                format!("the container has no port named {name:?}: add it to ports")
            }
        };
        FieldError::new(field, problem)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec_of(pod: Value) -> PodSpec {
        PodSpec::from_pod(&serde_json::from_value(pod).expect("a pod"))
    }

    #[test]
    fn specification_has_init_containers_first_and_the_apis_defaults() {
        let spec = spec_of(json!({"spec": {
            "containers": [{"name": "app", "image": "shop:1"}],
            "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}],
        }}));
        let roles: Vec<_> = spec.containers.iter().map(|c| (&*c.name, c.role)).collect();
        use ContainerRole::{Init, Regular, Sidecar};
        assert_eq!(roles, [("i", Init), ("s", Sidecar), ("app", Regular)]);
        assert_eq!(spec.restart_policy, RestartPolicy::Always);
        assert_eq!(spec.termination_grace_period, Duration::from_secs(30));
    }

    #[test]
    fn restart_policy_and_grace_period_come_from_the_pod() {
        for (policy, grace, deletion, expected) in [
            ("Never", 5, None, (RestartPolicy::Never, 5)),
            ("OnFailure", 60, Some(2), (RestartPolicy::OnFailure, 2)),
            ("Always", -1, None, (RestartPolicy::Always, 0)),
        ] {
            let spec = json!({"containers": [], "restartPolicy": policy, "terminationGracePeriodSeconds": grace});
            let metadata = json!({"deletionGracePeriodSeconds": deletion});
            let spec = spec_of(json!({"metadata": metadata, "spec": spec}));
            let found = (spec.restart_policy, spec.termination_grace_period.as_secs());
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn hash_matches_upstream_and_changes_with_name_and_image_only() {
        let hash = |name: &str, image: &str, args: Option<Vec<String>>| {
            let mut container = Container::default();
            (container.name, container.args) = (name.to_owned(), args);
            container.image = Some(image.to_owned());
            container_hash(&container)
        };
        let same = hash("test_container", "foo/image:v1", None);
        assert_eq!(same, "8e45cbd0");
        let with_args = hash("test_container", "foo/image:v1", Some(vec!["x".to_owned()]));
        assert_eq!(with_args, same);
        assert_ne!(hash("test_container", "foo/image:v2", None), same);
        assert_ne!(hash("log", "foo/image:v1", None), same);
    }
}
