//! Values of a manifest that cannot be run.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Volume};

use crate::cri_config::FieldError;
use crate::from_pod::check_of;
use crate::quantity::Amount;

type Checked = Result<(), FieldError>;

fn wrong(field: impl Into<String>, problem: impl Into<String>) -> Checked {
    Err(FieldError::new(field, problem))
}

/// Checks the values of a pod.
pub(super) fn check(pod: &Pod) -> Checked {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    if !is_name(name, true) {
        return wrong(
            "metadata.name",
            format!("{name:?} is not a name: {NAME_RULE}"),
        );
    }
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    if !is_name(namespace, false) {
        return wrong(
            "metadata.namespace",
            format!("{namespace:?} is not a name: {NAME_RULE}"),
        );
    }
    let Some(spec) = &pod.spec else {
        return wrong("spec", "it is missing: write the containers of the pod");
    };
    if spec.containers.is_empty() {
        return wrong("spec.containers", "there is none: write at least one");
    }
    one_of(
        "spec.restartPolicy",
        spec.restart_policy.as_deref(),
        &["Always", "OnFailure", "Never"],
    )?;
    if spec.termination_grace_period_seconds.is_some_and(|s| s < 0) {
        return wrong(
            "spec.terminationGracePeriodSeconds",
            "it must not be negative",
        );
    }
    volumes(spec)?;
    let mut names = BTreeSet::new();
    let mut host_ports = BTreeSet::new();
    let init = spec.init_containers.iter().flatten().enumerate();
    let init = init.map(|(at, c)| (format!("spec.initContainers[{at}]"), c));
    let regular = spec.containers.iter().enumerate();
    let regular = regular.map(|(at, c)| (format!("spec.containers[{at}]"), c));
    for (path, container) in init.chain(regular) {
        if !names.insert(&container.name) {
            let problem = format!(
                "another container is named {:?}: rename one",
                container.name
            );
            return wrong(format!("{path}.name"), problem);
        }
        self::container(&path, container, spec)?;
        for (at, port) in container.ports.iter().flatten().enumerate() {
            let path = format!("{path}.ports[{at}]");
            let host_port = port.host_port.filter(|p| *p != 0);
            if !(1..=65535).contains(&port.container_port) {
                return wrong(
                    format!("{path}.containerPort"),
                    "it must be between 1 and 65535",
                );
            }
            let Some(host_port) = host_port else { continue };
            let path = format!("{path}.hostPort");
            if !(1..=65535).contains(&host_port) {
                return wrong(path, "it must be between 1 and 65535");
            }
            if spec.host_network == Some(true) && host_port != port.container_port {
                return wrong(path, "on the host network it must be the containerPort");
            }
            let protocol = port.protocol.as_deref().unwrap_or("TCP");
            if !host_ports.insert((host_port, protocol, port.host_ip.as_deref())) {
                let problem = format!("port {host_port}/{protocol} is used twice: change one");
                return wrong(path, problem);
            }
        }
    }
    Ok(())
}

const NAME_RULE: &str = "use lower-case letters, digits and -, with a letter or digit at both ends";

/// Whether a text is a DNS label, or a subdomain: labels with dots between them.
fn is_name(text: &str, dots: bool) -> bool {
    let most = if dots { 253 } else { 63 };
    let is_label = |label: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let ends = !label.starts_with('-') && !label.ends_with('-');
        !label.is_empty() && ends && label.chars().all(inner)
    };
    let labels = |text: &str| match dots {
        true => text.split('.').all(is_label),
        false => is_label(text),
    };
    text.len() <= most && labels(text)
}

fn one_of(field: &str, value: Option<&str>, allowed: &[&str]) -> Checked {
    match value {
        Some(value) if !allowed.contains(&value) => wrong(
            field,
            format!("{value:?} is none of {}", allowed.join(", ")),
        ),
        _ => Ok(()),
    }
}

fn volumes(spec: &PodSpec) -> Checked {
    let mut names = BTreeSet::new();
    for (at, volume) in spec.volumes.iter().flatten().enumerate() {
        let path = format!("spec.volumes[{at}]");
        if !names.insert(&volume.name) {
            let problem = format!("another volume is named {:?}: rename one", volume.name);
            return wrong(format!("{path}.name"), problem);
        }
        if !is_name(&volume.name, false) {
            let problem = format!("{:?} is not a name: {NAME_RULE}", volume.name);
            return wrong(format!("{path}.name"), problem);
        }
        self::volume(&path, volume)?;
    }
    Ok(())
}

fn volume(path: &str, volume: &Volume) -> Checked {
    match (&volume.host_path, &volume.empty_dir) {
        (Some(host_path), None) if !host_path.path.starts_with('/') => wrong(
            format!("{path}.hostPath.path"),
            "it must be an absolute path",
        ),
        (Some(_), None) => Ok(()),
        (None, Some(empty_dir)) if empty_dir.medium.as_deref().is_some_and(|m| !m.is_empty()) => {
            let problem = "memory is not provided: leave the medium out";
            wrong(format!("{path}.emptyDir.medium"), problem)
        }
        (None, Some(_)) => Ok(()),
        _ => wrong(
            path,
            "this kubelet provides hostPath and emptyDir only: use one of them",
        ),
    }
}

fn container(path: &str, container: &Container, spec: &PodSpec) -> Checked {
    if !is_name(&container.name, false) {
        let problem = format!("{:?} is not a name: {NAME_RULE}", container.name);
        return wrong(format!("{path}.name"), problem);
    }
    if container.image.as_deref().unwrap_or_default().is_empty() {
        return wrong(format!("{path}.image"), "it is missing: write an image");
    }
    let policy = container.image_pull_policy.as_deref();
    one_of(
        &format!("{path}.imagePullPolicy"),
        policy,
        &["Always", "IfNotPresent", "Never"],
    )?;
    one_of(
        &format!("{path}.restartPolicy"),
        container.restart_policy.as_deref(),
        &["Always"],
    )?;
    for (at, variable) in container.env.iter().flatten().enumerate() {
        if variable
            .value_from
            .as_ref()
            .is_some_and(|from| from.field_ref.is_none())
        {
            let problem = "only fieldRef can be used without an API server: write the value";
            return wrong(format!("{path}.env[{at}].valueFrom"), problem);
        }
    }
    for (at, mount) in container.volume_mounts.iter().flatten().enumerate() {
        if !spec.volumes.iter().flatten().any(|v| v.name == mount.name) {
            let problem = format!(
                "there is no volume {:?}: add it to spec.volumes",
                mount.name
            );
            return wrong(format!("{path}.volumeMounts[{at}].name"), problem);
        }
    }
    probes(path, container)?;
    resources(path, container)
}

fn probes(path: &str, container: &Container) -> Checked {
    for (name, probe) in [
        ("startupProbe", &container.startup_probe),
        ("livenessProbe", &container.liveness_probe),
        ("readinessProbe", &container.readiness_probe),
    ] {
        let Some(probe) = probe else { continue };
        if let Err(error) = check_of(container, probe) {
            let separator = if error.field.is_empty() { "" } else { "." };
            let field = format!("{path}.{name}{separator}{}", error.field);
            return wrong(field, error.problem);
        }
    }
    Ok(())
}

fn resources(path: &str, container: &Container) -> Checked {
    let Some(resources) = &container.resources else {
        return Ok(());
    };
    for (kind, amounts) in [
        ("requests", &resources.requests),
        ("limits", &resources.limits),
    ] {
        for (name, quantity) in amounts.iter().flatten() {
            let field = format!("{path}.resources.{kind}.{name}");
            match Amount::try_from(quantity) {
                Err(error) => return wrong(field, error.to_string()),
                Ok(amount) if amount.is_negative() => {
                    return wrong(field, "it must not be negative");
                }
                Ok(_) => {}
            }
        }
    }
    let (requests, limits) = (
        resources.requests.iter().flatten(),
        resources.limits.as_ref(),
    );
    for (name, request) in requests {
        let limit = limits.and_then(|l| l.get(name)).map(Amount::try_from);
        if let (Ok(request), Some(Ok(limit))) = (Amount::try_from(request), limit)
            && request > limit
        {
            let field = format!("{path}.resources.requests.{name}");
            return wrong(
                field,
                "it is greater than the limit: lower it, or raise the limit",
            );
        }
    }
    Ok(())
}
