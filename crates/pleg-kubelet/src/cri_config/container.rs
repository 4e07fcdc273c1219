//! The configuration of a container.

use std::collections::BTreeMap;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::{Container, PodSpec, VolumeMount};
use k8s_openapi::serde_json;
use pleg_cri::v1::{
    ContainerConfig, ContainerMetadata, ImageSpec, KeyValue, LinuxContainerConfig, Mount,
    MountPropagation, Signal,
};

use crate::downward::{Fields, NO_SOURCE};
use crate::mounts::SubPath;
use crate::names::{self, PodName};
use crate::resources::linux_resources;
use crate::spec::{container_hash, container_of, spec_of};
use crate::unsupported::of_environment;
use crate::volumes::{ETC_HOSTS, SUB_PATHS, VolumeError, path_of};

use super::{FieldError, log_path, security, text};

const HOSTS: &str = "/etc/hosts";

#[derive(Clone, Copy)]
pub(crate) struct ContainerInput<'a> {
    pub(crate) of: Fields<'a>,
    pub(crate) container: &'a Container,
    /// The number of earlier attempts to create a container of the same name.
    pub(crate) attempt: u32,
    pub(crate) restart_count: u32,
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
        let environment = self.environment()?;
        let variables = environment.iter().cloned().collect();
        let (mounts, sub_paths) = self.mounts(&variables)?;
        let expanded = |texts: &Option<Vec<String>>| -> Vec<String> {
            let texts = texts.iter().flatten();
            let expanded = texts.map(|text| expand(text, |name| variables.get(name)));
            expanded.collect()
        };
        let lifecycle = container.lifecycle.as_ref();
        let signal = lifecycle.and_then(|l| l.stop_signal.as_ref());
        let signal = signal.and_then(|name| stop_signal(name));
        let name = container.name.clone();
        let label = (names::CONTAINER_NAME.to_owned(), name.clone());
        let labels = PodName::of(self.of.pod).labels().chain([label]);
        let envs = environment.into_iter().map(|(key, value)| {
            let value = value.into();
            KeyValue { key, value }
        });
        let config = ContainerConfig {
            metadata: Some(ContainerMetadata {
                name,
                attempt: self.attempt,
            }),
            image: Some(ImageSpec {
                image: self.image_ref.to_owned(),
                user_specified_image: container.image.clone().unwrap_or_default(),
                ..ImageSpec::default()
            }),
            command: expanded(&container.command),
            args: expanded(&container.args),
            working_dir: container.working_dir.clone().unwrap_or_default(),
            envs: envs.collect(),
            mounts,
            labels: labels.collect(),
            annotations: self.annotations(spec),
            log_path: log_path(&container.name, self.attempt),
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
        add(names::RESTART_COUNT, self.restart_count.to_string());
        let (path, policy) = (self.message_path(), policy.unwrap_or("File"));
        add(names::TERMINATION_MESSAGE_PATH, path.to_owned());
        add(names::TERMINATION_MESSAGE_POLICY, policy.to_owned());
        add(names::GRACE_PERIOD, grace.to_string());
        let ports = container.ports.as_ref().filter(|ports| !ports.is_empty());
        if let Some(ports) = ports.and_then(|ports| serde_json::to_string(ports).ok()) {
            add(names::CONTAINER_PORTS, ports);
        }
        annotations
    }

    /// The environment variables in the order of the specification. Their values may refer to variables before them.
    fn environment(&self) -> Result<Vec<(String, String)>, FieldError> {
        if let Some(refused) = of_environment(self.container).into_iter().next() {
            return Err(refused);
        }
        let mut known = BTreeMap::new();
        let mut environment: Vec<(String, String)> = Vec::new();
        for (at, variable) in self.container.env.iter().flatten().enumerate() {
            let wrong = |problem: String| FieldError::new(format!("env[{at}].valueFrom"), problem);
            let source = variable.value_from.as_ref();
            let value = match source.map(|s| (&s.field_ref, &s.resource_field_ref)) {
                None => {
                    let value = variable.value.as_deref().unwrap_or_default();
                    Ok(expand(value, |name| known.get(name)))
                }
                Some((Some(field), _)) => self.of.field(&field.field_path),
                Some((None, Some(selector))) => {
                    let name = selector.container_name.as_deref().unwrap_or_default();
                    let container = match name.is_empty() {
                        true => Some(self.container),
                        false => container_of(self.of.pod, name),
                    };
                    let unknown = || format!("there is no container {name:?}");
                    let container = container.ok_or_else(unknown);
                    container.and_then(|container| self.of.resource(container, selector))
                }
                Some((None, None)) => Err(NO_SOURCE.to_owned()),
            };
            let value = value.map_err(wrong)?;
            known.insert(variable.name.clone(), value.clone());
            environment.retain(|(name, _)| *name != variable.name);
            environment.push((variable.name.clone(), value));
        }
        Ok(environment)
    }

    /// A container's mounts: termination message, volumes, and the hosts file, unless a volume is at `/etc/hosts`.
    fn mounts(&self, variables: &Variables) -> Result<(Vec<Mount>, Vec<SubPath>), FieldError> {
        let (pods, name) = (&self.of.node.pods, &self.container.name);
        let uid = PodName::of(self.of.pod).uid;
        let own = |container_path: &str, host_path: Result<PathBuf, VolumeError>| {
            let host_path =
                host_path.map_err(|error| FieldError::new("name", error.to_string()))?;
            Ok(Mount {
                container_path: absolute(container_path),
                host_path: text(&host_path),
                selinux_relabel: true,
                ..Mount::default()
            })
        };
        let message = pods.termination_log(uid, name, self.attempt);
        let mut mounts = vec![own(self.message_path(), message)?];
        let of_volumes = || self.container.volume_mounts.iter().flatten();
        if !of_volumes().any(|mount| absolute(&mount.mount_path) == HOSTS) {
            mounts.push(own(HOSTS, pods.below(uid, ETC_HOSTS, &[]))?);
        }
        let mut sub_paths = Vec::new();
        for (at, mount) in of_volumes().enumerate() {
            let made = self.volume_mount(at, mount, variables);
            let field = || format!("volumeMounts[{at}].name");
            let (made, sub_path) = made.map_err(|problem| FieldError::new(field(), problem))?;
            mounts.push(made);
            sub_paths.extend(sub_path);
        }
        Ok((mounts, sub_paths))
    }

    /// The mount of a volume, and the sub-path that the node must mount first. The error names the volume or its path.
    fn volume_mount(
        &self,
        at: usize,
        mount: &VolumeMount,
        variables: &Variables,
    ) -> Result<(Mount, Option<SubPath>), String> {
        let (Fields { pod, node, .. }, name) = (self.of, &mount.name);
        let mut volumes = spec_of(pod).volumes.iter().flatten();
        let volume = volumes.find(|v| v.name == *name);
        let missing = || format!("there is no volume {name:?}: add it to spec.volumes");
        let volume = volume.ok_or_else(missing)?;
        let unknown = || format!("volume {name:?} is none of hostPath, emptyDir and downwardAPI");
        let shown = |error: VolumeError| error.to_string();
        let host_path = path_of(volume, pod, node).ok_or_else(unknown)?;
        let mut host_path = host_path.map_err(shown)?;
        let set = |path: &&String| !path.is_empty();
        let expression = mount.sub_path_expr.as_ref().filter(set);
        let mut unset = None;
        let path = expression.map(|path| {
            expand(path, |name| {
                let value = variables.get(name).filter(set);
                unset = value.is_none().then(|| name.to_owned()).or(unset.take());
                value
            })
        });
        // With an empty variable in `subPathExpr`, the container would get the whole volume or other pods' files.
        if let Some(name) = unset {
            return Err(format!(
                "subPathExpr: the variable {name} is missing or empty"
            ));
        }
        let path = path.or_else(|| mount.sub_path.clone().filter(|path| set(&path)));
        let mut sub_path = None;
        if let Some(path) = path {
            let names = [&**name, &self.container.name, &at.to_string()];
            let target = node.pods.below(PodName::of(pod).uid, SUB_PATHS, &names);
            let target = target.map_err(shown)?;
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
            // As in upstream's kubelet, containers cannot change the files of `downwardAPI` volumes.
            readonly: mount.read_only.unwrap_or_default() || volume.downward_api.is_some(),
            propagation: propagation.into(),
            // As in upstream's kubelet, the files of a `hostPath` volume keep their SELinux labels.
            selinux_relabel: volume.host_path.is_none(),
            ..Mount::default()
        };
        Ok((mount, sub_path))
    }
}

/// The path with a `/` in front.
pub(crate) fn absolute(path: &str) -> String {
    match path.starts_with('/') {
        true => path.to_owned(),
        false => format!("/{path}"),
    }
}

/// Replaces each `$(NAME)` whose variable has a value. Other references stay. `$$` is a `$` that begins no reference.
fn expand<'a>(text: &str, mut value: impl FnMut(&str) -> Option<&'a String>) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        rest = after;
        if let Some(after) = rest.strip_prefix('$') {
            expanded.push('$');
            rest = after;
            continue;
        }
        let Some((name, after)) = rest.strip_prefix('(').and_then(|r| r.split_once(')')) else {
            expanded.push('$');
            continue;
        };
        match value(name) {
            Some(value) => expanded.push_str(value),
            None => expanded.extend(["$(", name, ")"]),
        }
        rest = after;
    }
    expanded.push_str(rest);
    expanded
}
