//! The configuration of a container.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Container, EnvVarSource, Pod, PodSpec, VolumeMount};
use k8s_openapi::serde_json;
use pleg::PodUid;
use pleg_cri::v1::{
    ContainerConfig, ContainerMetadata, ImageSpec, KeyValue, LinuxContainerConfig, Mount,
    MountPropagation, Signal,
};

use crate::downward::Fields;
use crate::from_pod::container_hash;
use crate::names;
use crate::pod_name::PodName;
use crate::sub_path::SubPath;

use super::{FieldError, NodeConfig, expand, linux_resources, log_path, security, text};

/// Where a container has its hosts file.
const HOSTS: &str = "/etc/hosts";

/// What a container is created from.
#[derive(Clone, Copy, Debug)]
pub struct ContainerInput<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// The container, one of the pod.
    pub container: &'a Container,
    /// The number of earlier attempts to create a container of that name.
    pub attempt: u32,
    /// How often a container of that name was restarted, with this one.
    pub restart_count: u32,
    /// The image, as the image service names it.
    pub image_ref: &'a str,
    /// The addresses of the pod's sandbox, for `status.podIP`.
    pub pod_ips: &'a [IpAddr],
}

/// The configuration of a container.
///
/// # Errors
/// A field that cannot be used. Its path begins at the container.
pub fn container_config(
    input: &ContainerInput<'_>,
    node: &NodeConfig,
) -> Result<ContainerConfig, FieldError> {
    with_sub_paths(input, node).map(|(config, _)| config)
}

/// The configuration of a container, and the paths in volumes that it needs.
pub(crate) fn with_sub_paths(
    input: &ContainerInput<'_>,
    node: &NodeConfig,
) -> Result<(ContainerConfig, Vec<SubPath>), FieldError> {
    let ContainerInput {
        pod,
        container,
        attempt,
        ..
    } = *input;
    let default = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&default);
    security::check_user(spec, container)?;
    let environment = environment(input, node)?;
    let variables = environment.iter().cloned().collect();
    let (mounts, sub_paths) = mounts(input, spec, node, &variables)?;
    let expanded = |texts: &Option<Vec<String>>| -> Vec<String> {
        texts
            .iter()
            .flatten()
            .map(|text| expand(text, &variables))
            .collect()
    };
    let lifecycle = container.lifecycle.as_ref();
    let signal = lifecycle
        .and_then(|l| Signal::from_str_name(&format!("SIGNAL_{}", l.stop_signal.as_ref()?)));
    let config = ContainerConfig {
        metadata: Some(ContainerMetadata {
            name: container.name.clone(),
            attempt,
        }),
        image: Some(ImageSpec {
            image: input.image_ref.to_owned(),
            user_specified_image: container.image.clone().unwrap_or_default(),
            ..ImageSpec::default()
        }),
        command: expanded(&container.command),
        args: expanded(&container.args),
        working_dir: container.working_dir.clone().unwrap_or_default(),
        envs: environment
            .into_iter()
            .map(|(key, value)| KeyValue {
                key,
                value: value.into(),
            })
            .collect(),
        mounts,
        labels: {
            let name = (names::CONTAINER_NAME.to_owned(), container.name.clone());
            PodName::of(pod)
                .labels()
                .into_iter()
                .chain([name])
                .collect()
        },
        annotations: annotations(input, spec),
        log_path: log_path(&container.name, attempt),
        stdin: container.stdin.unwrap_or_default(),
        stdin_once: container.stdin_once.unwrap_or_default(),
        tty: container.tty.unwrap_or_default(),
        linux: Some(LinuxContainerConfig {
            resources: Some(linux_resources(
                spec,
                container.resources.as_ref(),
                node.memory,
            )),
            security_context: Some(security::of_container(spec, container)),
        }),
        stop_signal: signal.unwrap_or(Signal::RuntimeDefault).into(),
        ..ContainerConfig::default()
    };
    Ok((config, sub_paths))
}

/// The file in the container that has its termination message.
fn message_path(container: &Container) -> &str {
    let path = container.termination_message_path.as_deref();
    path.filter(|path| !path.is_empty())
        .unwrap_or("/dev/termination-log")
}

fn absolute(path: &str) -> String {
    match path.starts_with('/') {
        true => path.to_owned(),
        false => format!("/{path}"),
    }
}

fn annotations(input: &ContainerInput<'_>, spec: &PodSpec) -> BTreeMap<String, String> {
    let container = input.container;
    let policy = container.termination_message_policy.as_deref();
    let mut annotations = BTreeMap::from([
        (names::CONTAINER_HASH, container_hash(container)),
        (names::RESTART_COUNT, input.restart_count.to_string()),
        (
            names::TERMINATION_MESSAGE_PATH,
            message_path(container).to_owned(),
        ),
        (
            names::TERMINATION_MESSAGE_POLICY,
            policy.unwrap_or("File").to_owned(),
        ),
        (
            names::GRACE_PERIOD,
            spec.termination_grace_period_seconds
                .unwrap_or(30)
                .to_string(),
        ),
    ]);
    if let Some(ports) = container.ports.as_ref().filter(|ports| !ports.is_empty())
        && let Ok(ports) = serde_json::to_string(ports)
    {
        annotations.insert(names::CONTAINER_PORTS, ports);
    }
    annotations
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

/// The variables in their order. A value may refer to variables before it.
fn environment(
    input: &ContainerInput<'_>,
    node: &NodeConfig,
) -> Result<Vec<(String, String)>, FieldError> {
    if input
        .container
        .env_from
        .as_ref()
        .is_some_and(|from| !from.is_empty())
    {
        return Err(FieldError::new(
            "envFrom",
            "there is no API server to read config maps and secrets from: write the variables in env",
        ));
    }
    let mut known = BTreeMap::new();
    let mut environment: Vec<(String, String)> = Vec::new();
    for (at, variable) in input.container.env.iter().flatten().enumerate() {
        let value = match &variable.value_from {
            Some(source) => value_from(input, node, source)
                .map_err(|problem| FieldError::new(format!("env[{at}].valueFrom"), problem))?,
            None => expand(variable.value.as_deref().unwrap_or_default(), &known),
        };
        known.insert(variable.name.clone(), value.clone());
        environment.retain(|(name, _)| *name != variable.name);
        environment.push((variable.name.clone(), value));
    }
    Ok(environment)
}

/// The value of a variable that is taken from the pod.
fn value_from(
    input: &ContainerInput<'_>,
    node: &NodeConfig,
    source: &EnvVarSource,
) -> Result<String, String> {
    let fields = Fields {
        pod: input.pod,
        node,
        pod_ips: input.pod_ips,
    };
    match (&source.field_ref, &source.resource_field_ref) {
        (Some(field), _) => fields.field(&field.field_path),
        (None, Some(selector)) => fields.resource(input.container, selector),
        (None, None) => {
            Err("config maps, secrets and files are not read: write the value".to_owned())
        }
    }
}

/// The path in the volume that is mounted instead of the volume.
fn sub_path(mount: &VolumeMount, variables: &BTreeMap<String, String>) -> Option<String> {
    let set = |path: &&String| !path.is_empty();
    let expanded = mount
        .sub_path_expr
        .as_ref()
        .filter(set)
        .map(|path| expand(path, variables));
    expanded.or_else(|| mount.sub_path.clone().filter(|path| set(&path)))
}

/// The mounts, and the paths in volumes that must be mounted on the node before.
fn mounts(
    input: &ContainerInput<'_>,
    spec: &PodSpec,
    node: &NodeConfig,
    variables: &BTreeMap<String, String>,
) -> Result<(Vec<Mount>, Vec<SubPath>), FieldError> {
    let container = input.container;
    let uid = PodUid::from(PodName::of(input.pod).uid);
    let message = node
        .pods
        .termination_log(&uid, &container.name, input.attempt);
    let message = message.map_err(|error| FieldError::new("name", error.to_string()))?;
    let hosts = node.pods.hosts(&uid);
    let hosts = hosts.map_err(|error| FieldError::new("name", error.to_string()))?;
    let mut own = vec![(absolute(message_path(container)), message)];
    let mut others = container.volume_mounts.iter().flatten();
    if !others.any(|mount| absolute(&mount.mount_path) == HOSTS) {
        own.push((HOSTS.to_owned(), hosts));
    }
    let own = own.into_iter().map(|(container_path, host_path)| Mount {
        container_path,
        host_path: text(&host_path),
        ..Mount::default()
    });
    let mut mounts: Vec<_> = own.collect();
    let mut sub_paths = Vec::new();
    for (at, mount) in input.container.volume_mounts.iter().flatten().enumerate() {
        let wrong = |field: &str, problem: String| {
            FieldError::new(format!("volumeMounts[{at}].{field}"), problem)
        };
        let volume = spec.volumes.iter().flatten().find(|v| v.name == mount.name);
        let Some(volume) = volume else {
            let problem = format!(
                "there is no volume {:?}: add it to spec.volumes",
                mount.name
            );
            return Err(wrong("name", problem));
        };
        let Some(mut host_path) = node.volume_path(input.pod, volume) else {
            let problem = format!(
                "volume {:?} is none of hostPath, emptyDir and downwardAPI",
                mount.name
            );
            return Err(wrong("name", problem));
        };
        if let Some(path) = sub_path(mount, variables) {
            let target = node.pods.sub_path(&uid, &mount.name, &container.name, at);
            let target = target.map_err(|error| wrong("name", error.to_string()))?;
            sub_paths.push(SubPath {
                volume: std::mem::replace(&mut host_path, target.clone()),
                path: path.into(),
                target,
            });
        }
        let propagation = match mount.mount_propagation.as_deref() {
            Some("Bidirectional") => MountPropagation::PropagationBidirectional,
            Some("HostToContainer") => MountPropagation::PropagationHostToContainer,
            _ => MountPropagation::PropagationPrivate,
        };
        mounts.push(Mount {
            container_path: absolute(&mount.mount_path),
            host_path: text(&host_path),
            // As upstream: the files are the node's.
            readonly: mount.read_only.unwrap_or_default() || volume.downward_api.is_some(),
            propagation: propagation.into(),
            ..Mount::default()
        });
    }
    Ok((mounts, sub_paths))
}
