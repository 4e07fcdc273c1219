//! The resources of a container, as they are in effect, and the quality-of-service class of a pod.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use pleg::core::Resources;

use crate::cri_config::{MIN_SHARES, shares_of};
use crate::quantity::{Amount, amount, canonical};
use crate::spec::containers_in;

/// The lowest effective limit of CPU, in thousandths.
const MIN_MILLI_CPU_LIMIT: i64 = 10;

/// The resources of a container as the API server stores them: a request that is not given is set to the limit, and
/// quantities are in canonical form.
#[must_use]
pub fn with_default_requests(given: Option<&ResourceRequirements>) -> Option<ResourceRequirements> {
    let mut resources = given?.clone();
    let amounts = [&mut resources.limits, &mut resources.requests];
    for (_, amount) in amounts.into_iter().flatten().flatten() {
        *amount = canonical(amount);
    }
    if let Some(limits) = &resources.limits {
        let requests = resources.requests.get_or_insert_default();
        for (name, limit) in limits {
            let request = requests.entry(name.clone());
            request.or_insert_with(|| limit.clone());
        }
    }
    Some(resources)
}

/// The resources of the specification, with the values in effect where the runtime reported them. A
/// container that does not run has those of the specification.
pub(super) fn reported(
    container: &Container,
    in_effect: Option<&Resources>,
) -> Option<ResourceRequirements> {
    let mut resources = with_default_requests(container.resources.as_ref())?;
    let Some(in_effect) = in_effect else {
        return Some(resources);
    };
    if let Some(limits) = &mut resources.limits {
        let (quota, period) = (in_effect.cpu_quota, in_effect.cpu_period);
        if quota > 0 && period > 0 {
            let limit = quota.saturating_mul(1000) / period;
            // Every limit up to the minimum takes effect as the minimum, so the status keeps the specified limit.
            if limit.max(milli_cpu(limits)) > MIN_MILLI_CPU_LIMIT {
                limits.insert("cpu".to_owned(), Amount::millis(limit).cpu());
            }
        }
        if in_effect.memory_limit > 0 {
            let limit = Amount::whole(in_effect.memory_limit).bytes();
            limits.insert("memory".to_owned(), limit);
        }
    }
    if let Some(requests) = &mut resources.requests {
        let (wanted, shares) = (milli_cpu(requests), in_effect.cpu_shares);
        if shares > 0 {
            // The specified request is in effect if its CPU shares are. Others are rounded up, as upstream does.
            let request = match shares_of(wanted) == shares {
                true => wanted,
                false => shares.saturating_mul(1000).saturating_add(1023) / 1024,
            };
            if request.max(wanted) > MIN_SHARES {
                requests.insert("cpu".to_owned(), Amount::millis(request).cpu());
            }
        }
    }
    Some(resources)
}

fn milli_cpu(of: &BTreeMap<String, Quantity>) -> i64 {
    amount(Some(of), "cpu").unwrap_or_default().milli_value()
}

/// The class of a pod: from its own resources if it has them, else from those of its containers. A
/// request that is left out is the limit, as the API server sets it.
///
/// `Guaranteed`: every container has equal requests and limits of CPU and memory. `Burstable`: some container has a
/// request or a limit. `BestEffort`: none has.
#[must_use]
pub fn qos_class(spec: &PodSpec) -> &'static str {
    let of_pod = spec.resources.as_ref();
    let of_pod = of_pod.filter(|r| r.requests.is_some() || r.limits.is_some());
    let each: Vec<_> = match of_pod {
        Some(_) => vec![of_pod],
        None => containers_in(spec).map(|c| c.resources.as_ref()).collect(),
    };
    let amount = |of, name| amount(of, name).filter(|amount| *amount != Amount::ZERO);
    let (mut any, mut guaranteed) = (false, true);
    for resources in each {
        for name in ["cpu", "memory"] {
            let limit = amount(resources.and_then(|r| r.limits.as_ref()), name);
            let given = resources.and_then(|r| r.requests.as_ref());
            let request = match given.is_some_and(|r| r.contains_key(name)) {
                true => amount(given, name),
                false => limit,
            };
            any |= limit.is_some() || request.is_some();
            guaranteed &= limit.is_some() && request == limit;
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}
