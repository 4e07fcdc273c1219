//! Requests and limits.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::serde_json::Value;

use super::FieldError;
use super::texts::is_key;
use pleg_kubelet::fields_at;
use pleg_kubelet::quantity::Amount;

/// Returns true for resources that are not Kubernetes' own, such as devices. Requests must be whole, and equal limits.
pub(super) fn is_extended(name: &str) -> bool {
    let Some((domain, _)) = name.split_once('/') else {
        return false;
    };
    let is_own = domain == "kubernetes.io" || domain.ends_with(".kubernetes.io");
    !is_own && !domain.starts_with("requests.") && is_key(name)
}

pub(super) fn is_huge_pages(name: &str) -> bool {
    let size = name.strip_prefix("hugepages-");
    size.is_some_and(|size| amount(size).is_some())
}

fn amount(text: &str) -> Option<Amount> {
    Amount::try_from(&Quantity(text.to_owned())).ok()
}

pub(super) fn check(pod: &Value, errors: &mut Vec<FieldError>) {
    for (path, resources) in fields_at(pod, "spec.@.resources") {
        let mut names = Vec::new();
        for (field, given) in fields_at(resources, "*.*") {
            let (Some((kind, name)), Some(given)) = (field.split_once('.'), given.as_str()) else {
                continue;
            };
            names.push(name.to_owned());
            let limit = || resources.get("limits")?.get(name)?.as_str();
            let is_part = |amount: Amount| Amount::whole(amount.value()) != amount;
            let mut add =
                |problem| errors.push(FieldError::new(format!("{path}.{field}"), problem));
            if is_extended(name) && amount(given).is_some_and(is_part) {
                add(format!("{given} is not a whole number: write one"));
            }
            if let Some(problem) = above_limit(name, given, limit()).filter(|_| kind == "requests")
            {
                add(problem);
            }
        }
        let huge_pages = names.iter().filter(|name| is_huge_pages(name)).min();
        let is_basic = |name: &String| name == "cpu" || name == "memory";
        if let Some(name) = huge_pages.filter(|_| !names.iter().any(is_basic)) {
            let problem = format!("{name} needs cpu or memory: write one as well");
            errors.push(FieldError::new(path, problem));
        }
    }
}

/// The problem of a request that is above its limit or, for extended resources and huge pages, differs from its limit.
fn above_limit(name: &str, request: &str, limit: Option<&str>) -> Option<String> {
    let is_shared = !is_extended(name) && !is_huge_pages(name);
    let Some(limit) = limit else {
        return (!is_shared).then(|| format!("{request} has no limit: write the same limit"));
    };
    let (of_request, of_limit) = (amount(request)?, amount(limit)?);
    match is_shared {
        true if of_request > of_limit => Some(format!(
            "{request} is greater than the limit {limit}: lower it, or raise the limit"
        )),
        false if of_request != of_limit => Some(format!(
            "{request} is not the limit {limit}: write the same amount"
        )),
        _ => None,
    }
}
