//! The resources of a container, as they are in effect.

use k8s_openapi::api::core::v1::{Container, ResourceRequirements};
use pleg::core::Resources;

use crate::quantity::{Amount, amount, canonical};

/// The fewest CPU shares that the kernel accepts.
const MIN_SHARES: i64 = 2;

/// The lowest effective limit of CPU, in thousandths.
const MIN_MILLI_CPU_LIMIT: i64 = 10;

/// The resources of a container as the API server stores them: a request that is left out is the limit, and quantities
/// are in canonical form.
#[must_use]
pub fn with_default_requests(
    resources: Option<&ResourceRequirements>,
) -> Option<ResourceRequirements> {
    let mut resources = resources?.clone();
    let limits = resources.limits.iter_mut().flatten();
    let requests = resources.requests.iter_mut().flatten();
    limits
        .chain(requests)
        .for_each(|(_, amount)| *amount = canonical(amount));
    if let Some(limits) = &resources.limits {
        let requests = resources.requests.get_or_insert_default();
        for (name, limit) in limits {
            requests
                .entry(name.clone())
                .or_insert_with(|| limit.clone());
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
        let wanted = amount(Some(limits), "cpu")
            .unwrap_or_default()
            .milli_value();
        // At or below the minimum, the limit in effect does not show the specified one.
        if let Some(limit) = milli_cpu_limit(in_effect)
            && limit.max(wanted) > MIN_MILLI_CPU_LIMIT
        {
            limits.insert("cpu".to_owned(), Amount::millis(limit).cpu());
        }
        if in_effect.memory_limit > 0 {
            let limit = Amount::whole(in_effect.memory_limit).bytes();
            limits.insert("memory".to_owned(), limit);
        }
    }
    if let Some(requests) = &mut resources.requests {
        let wanted = amount(Some(requests), "cpu")
            .unwrap_or_default()
            .milli_value();
        if let Some(request) = milli_cpu_request(in_effect, wanted)
            && request.max(wanted) > MIN_SHARES
        {
            requests.insert("cpu".to_owned(), Amount::millis(request).cpu());
        }
    }
    Some(resources)
}

fn milli_cpu_limit(resources: &Resources) -> Option<i64> {
    let (quota, period) = (resources.cpu_quota, resources.cpu_period);
    (quota > 0 && period > 0).then(|| quota.saturating_mul(1000) / period)
}

/// The CPU request in effect. Shares are coarser than thousandths: `wanted` is in effect if it has these shares.
fn milli_cpu_request(resources: &Resources, wanted: i64) -> Option<i64> {
    let shares = resources.cpu_shares;
    if shares <= 0 {
        return None;
    }
    let of_wanted = wanted.saturating_mul(1024) / 1000;
    if of_wanted.max(MIN_SHARES) == shares {
        return Some(wanted);
    }
    // Rounded up, as upstream does.
    Some(shares.saturating_mul(1000).saturating_add(1023) / 1024)
}
