//! The configuration of a container.

use std::collections::BTreeMap;
use std::path::Path;

use k8s_openapi::api::core::v1::{Container, PodSpec, VolumeMount};
use k8s_openapi::serde_json;
use pleg_cri::v1::{
    ContainerConfig, ContainerMetadata, ImageSpec, KeyValue, LinuxContainerConfig, Mount,
    MountPropagation, Signal,
};

use crate::actions::StartContainer;
use crate::downward::Fields;
use crate::mounts::SubPath;
use crate::names;
use crate::resources::linux_resources;
use crate::spec::{PodName, container_hash, spec_of};
use crate::unsupported::of_environment;
use crate::volumes::{ETC_HOSTS, SUB_PATHS, VolumeError, path_of};

use super::{FieldError, log_path, security};

const HOSTS: &str = "/etc/hosts";

pub(crate) struct ContainerInput<'a> {
    pub(crate) of: Fields<'a>,
    pub(crate) container: &'a Container,
    pub(crate) start: &'a StartContainer,
    /// The name of the image in the runtime's image service.
    pub(crate) image_ref: &'a str,
}

/// The stop signal of the runtime for a name such as `SIGTERM` or `SIGRTMIN+1`. `None` if there is no such signal.
#[must_use]
pub fn stop_signal(name: &str) -> Option<Signal> {
    let name = name.replace('+', "PLUS").replace('-', "MINUS");
    Signal::from_str_name(&format!("SIGNAL_{name}"))
}

type Variables = BTreeMap<String, String>;

impl ContainerInput<'_> {
    /// The configuration of the container, and the volume sub-paths that must be mounted before its creation. The error
    /// names the field that cannot be used, by its path in the container's specification.
    pub(crate) fn config(&self) -> Result<(ContainerConfig, Vec<SubPath>), FieldError> {
        let (container, spec) = (self.container, spec_of(self.of.pod));
        security::check_user(spec, container)?;
        let (envs, variables) = self.environment()?;
        let (mounts, sub_paths) = self.mounts(&variables)?;
        let expanded = |texts: &Option<Vec<String>>| -> Vec<String> {
            let texts = texts.iter().flatten();
            let expanded = texts.map(|text| expand(text, |name| variables.get(name)));
            expanded.collect()
        };
        let lifecycle = container.lifecycle.as_ref();
        let signal = lifecycle.and_then(|l| stop_signal(l.stop_signal.as_deref()?));
        let (name, attempt) = (container.name.clone(), self.start.attempt);
        let label = (names::CONTAINER_NAME.to_owned(), name.clone());
        let labels = PodName::of(self.of.pod).labels().chain([label]);
        let config = ContainerConfig {
            metadata: Some(ContainerMetadata { name, attempt }),
            image: Some(ImageSpec {
                image: self.image_ref.to_owned(),
                user_specified_image: container.image.clone().unwrap_or_default(),
                ..ImageSpec::default()
            }),
            command: expanded(&container.command),
            args: expanded(&container.args),
            working_dir: container.working_dir.clone().unwrap_or_default(),
            envs,
            mounts,
            labels: labels.collect(),
            annotations: self.annotations(spec),
            log_path: log_path(&container.name, attempt),
            stdin: container.stdin.unwrap_or_default(),
            stdin_once: container.stdin_once.unwrap_or_default(),
            tty: container.tty.unwrap_or_default(),
            linux: Some(LinuxContainerConfig {
                resources: Some(linux_resources(spec, container, self.of.node.memory)),
                security_context: Some(security::of_container(spec, container)),
            }),
            stop_signal: signal.unwrap_or(Signal::RuntimeDefault).into(),
            ..ContainerConfig::default()
        };
        Ok((config, sub_paths))
    }

    fn message_path(&self) -> &str {
        let path = self.container.termination_message_path.as_deref();
        let path = path.filter(|path| !path.is_empty());
        path.unwrap_or("/dev/termination-log")
    }

    fn annotations(&self, spec: &PodSpec) -> BTreeMap<String, String> {
        let (container, mut annotations) = (self.container, BTreeMap::new());
        let mut add = |key: &str, value: String| drop(annotations.insert(key.to_owned(), value));
        let policy = container.termination_message_policy.as_deref();
        let grace = spec.termination_grace_period_seconds.unwrap_or(30);
        add(names::CONTAINER_HASH, container_hash(container));
        add(names::RESTART_COUNT, self.start.restart_count.to_string());
        let path = self.message_path().to_owned();
        add("io.kubernetes.container.terminationMessagePath", path);
        add(names::MESSAGE_POLICY, policy.unwrap_or("File").to_owned());
        add(names::GRACE_PERIOD, grace.to_string());
        let ports = container.ports.as_ref().filter(|ports| !ports.is_empty());
        if let Some(ports) = ports.and_then(|ports| serde_json::to_string(ports).ok()) {
            add("io.kubernetes.container.ports", ports);
        }
        annotations
    }

    /// The environment variables in the order of the specification. Their values may refer to variables before them.
    fn environment(&self) -> Result<(Vec<KeyValue>, Variables), FieldError> {
        let refused = of_environment(self.container).into_iter().next();
        refused.map_or(Ok(()), Err)?;
        let (mut envs, mut variables) = (Vec::<KeyValue>::new(), Variables::new());
        for (at, variable) in self.container.env.iter().flatten().enumerate() {
            let value = match &variable.value_from {
                None => {
                    let value = variable.value.as_deref().unwrap_or_default();
                    Ok(expand(value, |name| variables.get(name)))
                }
                Some(source) => {
                    let (field, resource) = (&source.field_ref, &source.resource_field_ref);
                    self.of.value(field, resource, Some(self.container))
                }
            };
            let wrong = |problem: String| FieldError::new(format!("env[{at}].valueFrom"), problem);
            let (key, value) = (variable.name.clone(), value.map_err(wrong)?);
            envs.retain(|earlier| earlier.key != key);
            variables.insert(key.clone(), value.clone());
            let value = value.into();
            envs.push(KeyValue { key, value });
        }
        Ok((envs, variables))
    }

    /// A container's mounts: termination message, volumes, and the hosts file, unless a volume is at `/etc/hosts`.
    fn mounts(&self, variables: &Variables) -> Result<(Vec<Mount>, Vec<SubPath>), FieldError> {
        let (node, uid) = (self.of.node, PodName::of(self.of.pod).uid);
        let wrong = |error: VolumeError| FieldError::new("name", error.to_string());
        let message = node.termination_log(uid, &self.container.name, self.start.attempt);
        let mut mounts = vec![mount_at(self.message_path(), &message.map_err(wrong)?)];
        let of_volumes = || self.container.volume_mounts.iter().flatten();
        if !of_volumes().any(|mount| absolute(&mount.mount_path) == HOSTS) {
            let hosts = node.pod_path(uid, ETC_HOSTS, &[]).map_err(wrong)?;
            mounts.push(mount_at(HOSTS, &hosts));
        }
        let mut sub_paths = Vec::new();
        for (at, mount) in of_volumes().enumerate() {
            let made = self.volume_mount(at, mount, variables, &mut sub_paths);
            let path = format!("volumeMounts[{at}]");
            mounts.push(made.map_err(|error| wrong(error).below(&path))?);
        }
        Ok((mounts, sub_paths))
    }

    /// The mount of a volume. Adds the sub-path that the node must mount first, if any.
    fn volume_mount(
        &self,
        at: usize,
        mount: &VolumeMount,
        variables: &Variables,
        sub_paths: &mut Vec<SubPath>,
    ) -> Result<Mount, VolumeError> {
        let (Fields { pod, node, .. }, name) = (self.of, &mount.name);
        let mut volumes = spec_of(pod).volumes.iter().flatten();
        let missing = || format!("there is no volume {name:?}: add it to spec.volumes");
        let volume = volumes.find(|volume| volume.name == *name);
        let volume = volume.ok_or_else(|| VolumeError(missing()))?;
        let unknown = || format!("volume {name:?} is none of hostPath, emptyDir and downwardAPI");
        let host_path = path_of(volume, pod, node)?;
        let mut host_path = host_path.ok_or_else(|| VolumeError(unknown()))?;
        let mut unset = None;
        let path = match mount.sub_path_expr.as_deref().unwrap_or_default() {
            "" => mount.sub_path.clone().unwrap_or_default(),
            expression => expand(expression, |name| {
                let value = variables.get(name).filter(|value| !value.is_empty());
                unset = value.is_none().then(|| name.to_owned()).or(unset.take());
                value
            }),
        };
        // With an empty variable in `subPathExpr`, the container would get the whole volume or other pods' files.
        if let Some(name) = unset {
            let problem = format!("subPathExpr: the variable {name} is missing or empty");
            return Err(VolumeError(problem));
        }
        if !path.is_empty() {
            let names = [&**name, &self.container.name, &at.to_string()];
            let target = node.pod_path(PodName::of(pod).uid, SUB_PATHS, &names)?;
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
        Ok(Mount {
            // As in upstream's kubelet, containers cannot change the files of `downwardAPI` volumes.
            readonly: mount.read_only.unwrap_or_default() || volume.downward_api.is_some(),
            propagation: propagation.into(),
            // As in upstream's kubelet, the files of a `hostPath` volume keep their SELinux labels.
            selinux_relabel: volume.host_path.is_none(),
            ..mount_at(&mount.mount_path, &host_path)
        })
    }
}

/// A mount whose files get the container's SELinux labels.
fn mount_at(container_path: &str, host_path: &Path) -> Mount {
    Mount {
        container_path: absolute(container_path),
        host_path: host_path.display().to_string(),
        selinux_relabel: true,
        ..Mount::default()
    }
}

/// The path with a `/` in front.
pub(crate) fn absolute(path: &str) -> String {
    format!("/{}", path.strip_prefix('/').unwrap_or(path))
}

/// Replaces each `$(NAME)` whose variable has a value. Other references stay. `$$` is a `$` that begins no reference.
fn expand<'a>(text: &str, mut value: impl FnMut(&str) -> Option<&'a String>) -> String {
    let (mut expanded, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        let reference = after.strip_prefix('(').and_then(|r| r.split_once(')'));
        let Some((name, after)) = reference else {
            expanded.push('$');
            rest = after.strip_prefix('$').unwrap_or(after);
            continue;
        };
        match value(name) {
            Some(value) => expanded.push_str(value),
            None => expanded.extend(["$(", name, ")"]),
        }
        rest = after;
    }
    expanded + rest
}
