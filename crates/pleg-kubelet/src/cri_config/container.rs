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
use crate::pod_volumes::Volume;
use crate::sub_path::SubPath;
use crate::unsupported::of_environment;
use crate::volumes::VolumeError;

use super::{FieldError, NodeConfig, expand, linux_resources, log_path, security, text};

/// Where a container has its hosts file.
const HOSTS: &str = "/etc/hosts";

/// What a container is created from.
#[derive(Clone, Copy)]
pub(crate) struct ContainerInput<'a> {
    pub(crate) pod: &'a Pod,
    /// The container, one of the pod.
    pub(crate) container: &'a Container,
    /// The number of earlier attempts to create a container of that name.
    pub(crate) attempt: u32,
    /// How often a container of that name was restarted, with this one.
    pub(crate) restart_count: u32,
    /// The image, as the image service names it.
    pub(crate) image_ref: &'a str,
    /// The addresses of the pod's sandbox, for `status.podIP`.
    pub(crate) pod_ips: &'a [IpAddr],
}

/// The configuration of a container, and the paths in volumes that it needs.
///
/// # Errors
/// A field that cannot be used. Its path begins at the container.
pub(crate) fn container_config(
    input: &ContainerInput<'_>,
    node: &NodeConfig,
) -> Result<(ContainerConfig, Vec<SubPath>), FieldError> {
    let container = input.container;
    let default = PodSpec::default();
    let spec = input.pod.spec.as_ref().unwrap_or(&default);
    security::check_user(spec, container)?;
    let environment = environment(input, node)?;
    let variables = environment.iter().cloned().collect();
    let (mounts, sub_paths) = mounts(input, node, &variables)?;
    let expanded = |texts: &Option<Vec<String>>| -> Vec<String> {
        let texts = texts.iter().flatten();
        texts.map(|text| expand(text, &variables)).collect()
    };
    let signal = container
        .lifecycle
        .as_ref()
        .and_then(|l| l.stop_signal.as_ref());
    let signal = signal.and_then(|name| Signal::from_str_name(&format!("SIGNAL_{name}")));
    let (resources, name) = (container.resources.as_ref(), container.name.clone());
    let labels = PodName::of(input.pod).labels().into_iter();
    let variables = environment.into_iter().map(|(key, value)| KeyValue {
        key,
        value: value.into(),
    });
    let config = ContainerConfig {
        metadata: Some(ContainerMetadata {
            name: name.clone(),
            attempt: input.attempt,
        }),
        image: Some(ImageSpec {
            image: input.image_ref.to_owned(),
            user_specified_image: container.image.clone().unwrap_or_default(),
            ..ImageSpec::default()
        }),
        command: expanded(&container.command),
        args: expanded(&container.args),
        working_dir: container.working_dir.clone().unwrap_or_default(),
        envs: variables.collect(),
        mounts,
        labels: labels
            .chain([(names::CONTAINER_NAME.to_owned(), name)])
            .collect(),
        annotations: annotations(input, spec),
        log_path: log_path(&container.name, input.attempt),
        stdin: container.stdin.unwrap_or_default(),
        stdin_once: container.stdin_once.unwrap_or_default(),
        tty: container.tty.unwrap_or_default(),
        linux: Some(LinuxContainerConfig {
            resources: Some(linux_resources(spec, resources, node.memory)),
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
    let grace = spec.termination_grace_period_seconds.unwrap_or(30);
    let ports = container.ports.as_ref().filter(|ports| !ports.is_empty());
    let ports = ports.and_then(|ports| serde_json::to_string(ports).ok());
    let annotations = [
        (names::CONTAINER_HASH, Some(container_hash(container))),
        (names::RESTART_COUNT, Some(input.restart_count.to_string())),
        (
            names::TERMINATION_MESSAGE_PATH,
            Some(message_path(container).to_owned()),
        ),
        (
            names::TERMINATION_MESSAGE_POLICY,
            Some(policy.unwrap_or("File").to_owned()),
        ),
        (names::GRACE_PERIOD, Some(grace.to_string())),
        (names::CONTAINER_PORTS, ports),
    ];
    let given = annotations.into_iter();
    given
        .filter_map(|(key, value)| Some((key.to_owned(), value?)))
        .collect()
}

/// The variables in their order. A value may refer to variables before it.
fn environment(
    input: &ContainerInput<'_>,
    node: &NodeConfig,
) -> Result<Vec<(String, String)>, FieldError> {
    if let Some(refused) = of_environment(input.container).into_iter().next() {
        return Err(refused);
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
        (None, None) => Err("write one of fieldRef and resourceFieldRef".to_owned()),
    }
}

/// The mounts of the files that every container has: its termination message, and the hosts file, unless the container
/// mounts something there.
fn own_mounts(input: &ContainerInput<'_>, node: &NodeConfig) -> Result<Vec<Mount>, FieldError> {
    let container = input.container;
    let uid = PodUid::from(PodName::of(input.pod).uid);
    let wrong = |error: VolumeError| FieldError::new("name", error.to_string());
    let message = node
        .pods
        .termination_log(&uid, &container.name, input.attempt);
    let mut own = vec![(absolute(message_path(container)), message.map_err(wrong)?)];
    let mut others = container.volume_mounts.iter().flatten();
    if !others.any(|mount| absolute(&mount.mount_path) == HOSTS) {
        own.push((HOSTS.to_owned(), node.pods.hosts(&uid).map_err(wrong)?));
    }
    let own = own.into_iter().map(|(container_path, host_path)| Mount {
        container_path,
        host_path: text(&host_path),
        ..Mount::default()
    });
    Ok(own.collect())
}

fn mounts(
    input: &ContainerInput<'_>,
    node: &NodeConfig,
    variables: &BTreeMap<String, String>,
) -> Result<(Vec<Mount>, Vec<SubPath>), FieldError> {
    let mut mounts = own_mounts(input, node)?;
    let mut sub_paths = Vec::new();
    let of_volumes = input.container.volume_mounts.iter().flatten();
    for (at, mount) in of_volumes.enumerate() {
        let made = volume_mount(input, node, at, mount, variables);
        let (made, sub_path) = made.map_err(|e| e.below(&format!("volumeMounts[{at}]")))?;
        mounts.push(made);
        sub_paths.extend(sub_path);
    }
    Ok((mounts, sub_paths))
}

/// A mount of a volume, and the path in it that must be mounted on the node before.
fn volume_mount(
    input: &ContainerInput<'_>,
    node: &NodeConfig,
    at: usize,
    mount: &VolumeMount,
    variables: &BTreeMap<String, String>,
) -> Result<(Mount, Option<SubPath>), FieldError> {
    let wrong = |problem: String| FieldError::new("name", problem);
    let name = &mount.name;
    let volumes = input
        .pod
        .spec
        .as_ref()
        .and_then(|spec| spec.volumes.as_ref());
    let volume = volumes.into_iter().flatten().find(|v| v.name == *name);
    let Some(volume) = volume else {
        return Err(wrong(format!(
            "there is no volume {name:?}: add it to spec.volumes"
        )));
    };
    let Some(kind) = Volume::of(volume) else {
        return Err(wrong(format!(
            "volume {name:?} is none of hostPath, emptyDir and downwardAPI"
        )));
    };
    let host_path = kind.path(name, input.pod, node);
    let mut host_path = host_path.map_err(|error| wrong(error.to_string()))?;
    let set = |path: &&String| !path.is_empty();
    let expression = mount.sub_path_expr.as_ref().filter(set);
    let path = expression.map(|path| expand(path, variables));
    let path = path.or_else(|| mount.sub_path.clone().filter(|path| set(&path)));
    let mut sub_path = None;
    if let Some(path) = path {
        let uid = PodUid::from(PodName::of(input.pod).uid);
        let target = node.pods.sub_path(&uid, name, &input.container.name, at);
        let target = target.map_err(|error| wrong(error.to_string()))?;
        sub_path = Some(SubPath {
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
    let mount = Mount {
        container_path: absolute(&mount.mount_path),
        host_path: text(&host_path),
        // As upstream: the files are the node's.
        readonly: mount.read_only.unwrap_or_default() || volume.downward_api.is_some(),
        propagation: propagation.into(),
        ..Mount::default()
    };
    Ok((mount, sub_path))
}
