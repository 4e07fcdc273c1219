//! Requests and limits.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::texts::{Text, is_key_with_domain};
use super::{Allowed, Each, Errors, Rule};
use pleg_kubelet::quantity::Amount;

pub(super) const RULES: &[Rule] = &[
    ("spec.@.resources.limits", Allowed::Keys(&RESOURCE)),
    ("spec.@.resources.limits.*", Allowed::Amount),
    ("spec.@.resources.requests", Allowed::Keys(&RESOURCE)),
    ("spec.@.resources.requests.*", Allowed::Amount),
];

const RESOURCE: Text = Text::new(
    "a resource",
    "use cpu, memory, ephemeral-storage, hugepages-SIZE, or a name with a domain such as \
     example.com/gpu",
    |name| {
        let basic = matches!(name, "cpu" | "memory" | "ephemeral-storage");
        basic || is_huge_pages(name) || is_extended(name)
    },
);

/// Returns true for resources that are not Kubernetes' own, such as devices. They are whole, and not
/// shared.
fn is_extended(name: &str) -> bool {
    let domain = name.split_once('/').map_or("", |(domain, _)| domain);
    let own = domain == "kubernetes.io" || domain.ends_with(".kubernetes.io");
    !own && !domain.starts_with("requests.") && is_key_with_domain(name)
}

fn is_huge_pages(name: &str) -> bool {
    name.strip_prefix("hugepages-")
        .is_some_and(|size| Amount::try_from(&Quantity(size.to_owned())).is_ok())
}

pub(super) fn check(each: &Each<'_>, errors: &mut Errors) {
    let Some(resources) = &each.container.resources else {
        return;
    };
    let path = format!("{}.resources", each.path);
    let none = BTreeMap::new();
    let limits = resources.limits.as_ref().unwrap_or(&none);
    let requests = resources.requests.as_ref().unwrap_or(&none);
    for (kind, amounts) in [("limits", limits), ("requests", requests)] {
        for (name, quantity) in amounts.iter().filter(|(name, _)| is_extended(name)) {
            let whole = |amount: Amount| Amount::whole(amount.value()) == amount;
            if Amount::try_from(quantity).is_ok_and(|amount| !whole(amount)) {
                let problem = format!("{} is not a whole number: write one", quantity.0);
                errors.add(format!("{path}.{kind}.{name}"), problem);
            }
        }
    }
    for (name, request) in requests {
        if let Some(problem) = above_limit(name, request, limits.get(name)) {
            errors.add(format!("{path}.requests.{name}"), problem);
        }
    }
    let given = |name: &str| limits.contains_key(name) || requests.contains_key(name);
    let huge_pages = limits.keys().chain(requests.keys());
    if let Some(name) = huge_pages.filter(|name| is_huge_pages(name)).min()
        && !given("cpu")
        && !given("memory")
    {
        let problem = format!("{name} needs cpu or memory: write one as well");
        errors.add(path, problem);
    }
}

/// Returns what is wrong with a request. Those that cannot be shared must be equal to their limits.
fn above_limit(name: &str, request: &Quantity, limit: Option<&Quantity>) -> Option<String> {
    let shared = !is_extended(name) && !is_huge_pages(name);
    let Some(limit) = limit else {
        return (!shared).then(|| format!("{} has no limit: write the same limit", request.0));
    };
    let amounts = (
        Amount::try_from(request).ok()?,
        Amount::try_from(limit).ok()?,
    );
    match shared {
        true if amounts.0 > amounts.1 => Some(format!(
            "{} is greater than the limit {}: lower it, or raise the limit",
            request.0, limit.0
        )),
        false if amounts.0 != amounts.1 => Some(format!(
            "{} is not the limit {}: write the same amount",
            request.0, limit.0
        )),
        _ => None,
    }
}
