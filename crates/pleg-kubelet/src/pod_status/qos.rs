//! The quality-of-service class of a pod.

use k8s_openapi::api::core::v1::PodSpec;

use crate::from_pod::containers_in;
use crate::quantity;

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
    let amount = |of, name| quantity::amount(of, name).filter(|amount| !amount.is_zero());
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
