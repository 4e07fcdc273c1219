//! The quality-of-service class of a pod.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::{PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::quantity::Amount;

/// The class of a pod, which decides what is killed first when memory is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QosClass {
    /// Every container has equal requests and limits of CPU and memory.
    Guaranteed,
    /// Some container has a request or a limit.
    Burstable,
    /// None has.
    BestEffort,
}

impl QosClass {
    /// Upstream's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }
}

impl fmt::Display for QosClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The amount of that resource, unless it is zero or not a quantity.
fn amount(of: Option<&BTreeMap<String, Quantity>>, resource: &str) -> Option<Amount> {
    let amount = Amount::try_from(of?.get(resource)?).ok()?;
    (!amount.is_zero()).then_some(amount)
}

/// The class of a pod: from its own resources if it has them, else from those of its containers. A
/// request that is left out is the limit, as the API server sets it.
#[must_use]
pub fn qos_class(spec: &PodSpec) -> QosClass {
    let of_pod = spec
        .resources
        .as_ref()
        .filter(|r| r.requests.is_some() || r.limits.is_some());
    let each: Vec<Option<&ResourceRequirements>> = match of_pod {
        Some(resources) => vec![Some(resources)],
        None => {
            let init = spec.init_containers.iter().flatten();
            let all = init.chain(&spec.containers);
            all.map(|c| c.resources.as_ref()).collect()
        }
    };
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
        (false, _) => QosClass::BestEffort,
        (true, true) => QosClass::Guaranteed,
        (true, false) => QosClass::Burstable,
    }
}
