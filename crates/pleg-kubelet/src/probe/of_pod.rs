//! The probes and hooks of a `v1.Pod`.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{
    Container, ExecAction, HTTPGetAction, LifecycleHandler, Pod, Probe as ApiProbe,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::ProbeKind;
use super::check::Check;
use super::state::Probe;
use crate::cri_config::FieldError;
use crate::spec::{containers_in, spec_of};

/// The probes of a pod's containers. Fields that are not set have the API's defaults. Probes that [`Check`] cannot
/// perform are left out; [`unsupported`](fn@crate::unsupported) finds them.
pub(super) fn probes_of(pod: &Pod) -> Vec<Arc<Probe>> {
    let given = |value: Option<i32>, default| {
        let value = value.and_then(|value| u32::try_from(value).ok());
        value.filter(|value| *value > 0).unwrap_or(default)
    };
    let seconds = move |value, default| Duration::from_secs(given(value, default).into());
    let probes = containers_in(spec_of(pod)).flat_map(|container| {
        let kinds = [
            (ProbeKind::Startup, &container.startup_probe),
            (ProbeKind::Liveness, &container.liveness_probe),
            (ProbeKind::Readiness, &container.readiness_probe),
        ];
        kinds.into_iter().filter_map(move |(kind, probe)| {
            let probe = probe.as_ref()?;
            Some(Arc::new(Probe {
                container: container.name.clone(),
                kind,
                initial_delay: seconds(probe.initial_delay_seconds, 0),
                period: seconds(probe.period_seconds, 10),
                timeout: seconds(probe.timeout_seconds, 1),
                success_threshold: given(probe.success_threshold, 1),
                failure_threshold: given(probe.failure_threshold, 3),
                check: check_of(container, probe).ok()?,
            }))
        })
    });
    probes.collect()
}

/// The action of a container's hook. The error names the field that cannot be used, by its path in the hook.
pub(crate) fn hook_of(container: &Container, hook: &LifecycleHandler) -> Result<Check, FieldError> {
    if let Some(sleep) = &hook.sleep {
        let seconds = u64::try_from(sleep.seconds).unwrap_or(0);
        return Ok(Check::Sleep(Duration::from_secs(seconds)));
    }
    let missing = "write one of exec, httpGet and sleep";
    exec_or_http(container, &hook.exec, &hook.http_get, missing)
}

/// The action of a container's probe. The error names the field that cannot be used, by its path in the probe.
pub(crate) fn check_of(container: &Container, probe: &ApiProbe) -> Result<Check, FieldError> {
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
    let missing = "it does nothing: write one of exec, tcpSocket, httpGet and grpc";
    exec_or_http(container, &probe.exec, &probe.http_get, missing)
}

fn exec_or_http(
    container: &Container,
    exec: &Option<ExecAction>,
    http: &Option<HTTPGetAction>,
    missing: &str,
) -> Result<Check, FieldError> {
    if let Some(exec) = exec {
        return Ok(Check::Exec(exec.command.clone().unwrap_or_default()));
    }
    let http = http.clone().ok_or(FieldError::new("", missing))?;
    let scheme = http.scheme.as_deref().unwrap_or("HTTP");
    if !["HTTP", "HTTPS"].contains(&scheme) {
        let problem = format!("{scheme} is not provided: use HTTP or HTTPS");
        return Err(FieldError::new("httpGet.scheme", problem));
    }
    let port = port_of(container, &http.port, "httpGet.port")?;
    Ok(Check::Http(port, http))
}

/// Resolves a port: a number, or the name of a port of the container.
fn port_of(container: &Container, port: &IntOrString, field: &str) -> Result<u16, FieldError> {
    let (number, problem) = match port {
        IntOrString::Int(number) => (*number, "it must be between 1 and 65535".to_owned()),
        IntOrString::String(name) => {
            let mut ports = container.ports.iter().flatten();
            let named = ports.find(|port| port.name.as_ref() == Some(name));
            let number = named.map_or_else(|| name.parse().ok(), |port| Some(port.container_port));
            let problem = format!("the container has no port named {name:?}: add it to ports");
            (number.unwrap_or(0), problem)
        }
    };
    let number = u16::try_from(number).ok().filter(|number| *number != 0);
    number.ok_or_else(|| FieldError::new(field, problem))
}
