//! Probes and lifecycle hooks.

use k8s_openapi::api::core::v1::{Lifecycle, LifecycleHandler, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::texts::{HEADER, PORT_NAME};
use super::{Allowed, Each, Errors, Rule, given};

const COMMAND: Allowed = Allowed::Filled(NO_COMMAND);
const NO_COMMAND: &str = "[] is empty: write a command and its arguments";
const SCHEME: Allowed = Allowed::OneOf(&["HTTP", "HTTPS"]);

pub(super) const RULES: &[Rule] = &[
    ("spec.@.*Probe.exec.command", COMMAND),
    ("spec.@.*Probe.failureThreshold", Allowed::AtLeast(0)),
    ("spec.@.*Probe.grpc.port", Allowed::Range(1, 65535)),
    (
        "spec.@.*Probe.httpGet.httpHeaders.name",
        Allowed::Is(&HEADER),
    ),
    ("spec.@.*Probe.httpGet.scheme", SCHEME),
    ("spec.@.*Probe.initialDelaySeconds", Allowed::AtLeast(0)),
    ("spec.@.*Probe.periodSeconds", Allowed::AtLeast(0)),
    ("spec.@.*Probe.successThreshold", Allowed::AtLeast(0)),
    (
        "spec.@.*Probe.terminationGracePeriodSeconds",
        Allowed::AtLeast(1),
    ),
    ("spec.@.*Probe.timeoutSeconds", Allowed::AtLeast(0)),
    ("spec.@.lifecycle.*.exec.command", COMMAND),
    (
        "spec.@.lifecycle.*.httpGet.httpHeaders.name",
        Allowed::Is(&HEADER),
    ),
    ("spec.@.lifecycle.*.httpGet.scheme", SCHEME),
    ("spec.@.lifecycle.*.sleep.seconds", Allowed::AtLeast(0)),
];

pub(super) fn check(each: &Each<'_>, errors: &mut Errors) {
    let container = each.container;
    for (name, probe) in [
        ("startupProbe", &container.startup_probe),
        ("livenessProbe", &container.liveness_probe),
        ("readinessProbe", &container.readiness_probe),
    ] {
        let Some(probe) = probe else { continue };
        let path = format!("{}.{name}", each.path);
        if each.plain_init {
            errors.add(path, "init containers are not probed: remove it");
            continue;
        }
        check_handlers(&path, probe, errors);
        if name == "readinessProbe" {
            if let Some(seconds) = probe.termination_grace_period_seconds {
                let problem = format!("{seconds} has no effect, it stops nothing: remove it");
                errors.add(format!("{path}.terminationGracePeriodSeconds"), problem);
            }
        } else if let Some(number) = probe.success_threshold.filter(|number| *number > 1) {
            let problem = format!("{number} is not allowed in a {name}: write 1");
            errors.add(format!("{path}.successThreshold"), problem);
        }
    }
}

fn check_handlers(path: &str, probe: &Probe, errors: &mut Errors) {
    let handlers = given(&[
        ("exec", probe.exec.is_some()),
        ("httpGet", probe.http_get.is_some()),
        ("tcpSocket", probe.tcp_socket.is_some()),
        ("grpc", probe.grpc.is_some()),
    ]);
    let alternatives = "exec, httpGet, tcpSocket and grpc";
    exactly_one(path, &handlers, alternatives, errors);
    if probe
        .exec
        .as_ref()
        .is_some_and(|exec| exec.command.is_none())
    {
        errors.add(format!("{path}.exec.command"), NO_COMMAND);
    }
    if let Some(http) = &probe.http_get {
        port(format!("{path}.httpGet.port"), &http.port, errors);
    }
    if let Some(tcp) = &probe.tcp_socket {
        port(format!("{path}.tcpSocket.port"), &tcp.port, errors);
    }
}

pub(super) fn check_lifecycle(each: &Each<'_>, errors: &mut Errors) {
    let Some(lifecycle) = &each.container.lifecycle else {
        return;
    };
    let path = format!("{}.lifecycle", each.path);
    let Lifecycle {
        post_start,
        pre_stop,
        ..
    } = lifecycle;
    if each.plain_init && (post_start.is_some() || pre_stop.is_some()) {
        errors.add(path, "init containers have no hooks: remove it");
        return;
    }
    for (name, hook) in [("postStart", post_start), ("preStop", pre_stop)] {
        if let Some(hook) = hook {
            check_hook(&format!("{path}.{name}"), hook, errors);
        }
    }
}

fn check_hook(path: &str, hook: &LifecycleHandler, errors: &mut Errors) {
    let handlers = given(&[
        ("exec", hook.exec.is_some()),
        ("httpGet", hook.http_get.is_some()),
        ("tcpSocket", hook.tcp_socket.is_some()),
        ("sleep", hook.sleep.is_some()),
    ]);
    exactly_one(path, &handlers, "exec, httpGet and sleep", errors);
    if hook
        .exec
        .as_ref()
        .is_some_and(|exec| exec.command.is_none())
    {
        errors.add(format!("{path}.exec.command"), NO_COMMAND);
    }
    if let Some(http) = &hook.http_get {
        port(format!("{path}.httpGet.port"), &http.port, errors);
    }
}

fn exactly_one(path: &str, given: &[&str], alternatives: &str, errors: &mut Errors) {
    match given {
        [] => errors.add(
            path,
            format!("it does nothing: write one of {alternatives}"),
        ),
        [_] => {}
        _ => errors.add(path, format!("{} are given: keep one", given.join(" and "))),
    }
}

/// A port is a number, or the name of a port of the container.
fn port(field: String, port: &IntOrString, errors: &mut Errors) {
    let problem = match port {
        IntOrString::Int(number) if (1..=65535).contains(number) => None,
        IntOrString::Int(number) => Some(format!(
            "{number} is not allowed: write a number from 1 to 65535"
        )),
        IntOrString::String(number) if number.parse::<u16>().is_ok() => Some(format!(
            "{number:?} is a text: write the number without quotes"
        )),
        IntOrString::String(name) => PORT_NAME.problem(name),
    };
    if let Some(problem) = problem {
        errors.add(field, problem);
    }
}
