//! The status of a pod as `v1.PodStatus`, as upstream's kubelet reports it.

mod containers;
mod pod;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{ContainerStateWaiting, HostIP, Pod, PodIP, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use pleg::{Id, WallTime};

use crate::plan::Observed;
use crate::spec::spec_of;

pub use crate::resources::qos_class;
pub use pod::OWN_CONDITIONS;
pub(crate) use pod::time_left;

/// Converts a time to the type of the API, which has whole seconds.
#[must_use]
pub fn api_time(at: WallTime) -> Time {
    let seconds = at.as_nanos().div_euclid(1_000_000_000);
    // This cannot fail, because every number of nanoseconds is a valid time.
    Time(Timestamp::from_second(seconds).unwrap_or_default())
}

/// The waiting state of a container, with one of upstream's reasons, such as `ErrImagePull`.
pub(crate) fn waiting(reason: &str, message: String) -> ContainerStateWaiting {
    ContainerStateWaiting {
        reason: Some(reason.to_owned()),
        message: Some(message),
    }
}

pub(crate) struct PodState<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) observed: &'a Observed,
    pub(crate) previous: Option<&'a PodStatus>,
    /// The termination messages of containers, by id.
    pub(crate) messages: &'a BTreeMap<Id, String>,
    pub(crate) waiting: &'a BTreeMap<String, ContainerStateWaiting>,
    /// The runtime's name: `containerd` in `containerd://…`.
    pub(crate) runtime: &'a str,
    /// The node's addresses: one, or one of each IP family with the preferred family first.
    pub(crate) host_ips: &'a [IpAddr],
    pub(crate) now: WallTime,
}

/// The status of a pod.
///
/// It differs from upstream. If the predecessor of a container was removed, the container's last state comes from an
/// exit record or the previous status; upstream loses it. An exited container whose exit code stays unknown is shown
/// like a container that vanished; upstream shows any exit code that the runtime sends. While the code may still become
/// known, the container keeps its reported state; upstream reports no state. The phase uses the new probe results.
pub(crate) fn pod_status(mut state: PodState<'_>) -> PodStatus {
    state.previous = state.previous.or(state.pod.status.as_ref());
    let all = state.statuses();
    let start_time = state.previous.and_then(|p| p.start_time.clone());
    let mut status = PodStatus {
        qos_class: Some(qos_class(spec_of(state.pod)).to_owned()),
        observed_generation: state.pod.metadata.generation,
        start_time: start_time.or_else(|| Some(api_time(state.now))),
        ..PodStatus::default()
    };
    state.set_phase(&mut status, &all);
    let phase = status.phase.as_deref().unwrap_or_default();
    status.conditions = Some(state.conditions(&all, phase));
    let (_, init): (Vec<_>, Vec<_>) = all.init.into_iter().unzip();
    let (_, mut regular): (Vec<_>, Vec<_>) = all.regular.into_iter().unzip();
    regular.sort_by(|a, b| a.name.cmp(&b.name));
    status.container_statuses = Some(regular);
    status.init_container_statuses = (!init.is_empty()).then_some(init);
    set_addresses(&mut status, &state);
    status
}

/// The addresses that the runtime reports for the pod. A pod on the host network gets the node's addresses instead.
pub(crate) fn pod_ips(status: &pleg::PodStatus, pod: &Pod, host_ips: &[IpAddr]) -> Vec<IpAddr> {
    let given: Vec<_> = status.ips.iter().filter_map(|ip| ip.parse().ok()).collect();
    match given.is_empty() && spec_of(pod).host_network == Some(true) {
        true => host_ips.to_vec(),
        false => given,
    }
}

/// Sets the addresses of the pod and its node, one of each family. The family of the node's first address comes first.
fn set_addresses(status: &mut PodStatus, state: &PodState<'_>) {
    let ips = pod_ips(&state.observed.view.status, state.pod, state.host_ips);
    let first_is_v4 = state.host_ips.first().is_none_or(IpAddr::is_ipv4);
    let of = |v4: bool| ips.iter().find(|ip| ip.is_ipv4() == v4);
    let chosen = [of(first_is_v4), of(!first_is_v4)].into_iter().flatten();
    let chosen: Vec<_> = chosen.map(|ip| PodIP { ip: ip.to_string() }).collect();
    status.pod_ip = chosen.first().map(|first| first.ip.clone());
    status.pod_ips = (!chosen.is_empty()).then_some(chosen);
    let host = state.host_ips.iter().take(2);
    let host: Vec<_> = host.map(|ip| HostIP { ip: ip.to_string() }).collect();
    status.host_ip = host.first().map(|first| first.ip.clone());
    status.host_ips = (!host.is_empty()).then_some(host);
}
