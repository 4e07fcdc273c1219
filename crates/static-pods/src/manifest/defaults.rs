//! Sets the defaults of a pod's resources as the API server does, because no API server has processed a manifest.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use pleg_kubelet::quantity::Amount;

/// Sets missing requests to the limits, and rewrites all quantities in their canonical form.
pub(crate) fn set_defaults(pod: &mut Pod) {
    let Some(spec) = &mut pod.spec else { return };
    let init = spec.init_containers.iter_mut().flatten();
    let containers = init.chain(&mut spec.containers);
    for resources in containers.filter_map(|c| c.resources.as_mut()) {
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
    }
}

/// The canonical form of a quantity: no fraction, and the largest decimal suffix (`100m` for `0.1`) or binary suffix
/// (`1Gi` for `1024Mi`). Quantities with an exponent, and texts that are not quantities, are returned unchanged.
fn canonical(quantity: &Quantity) -> Quantity {
    let text = quantity.0.as_str();
    let has_exponent = text.contains(['e', 'E']) && !text.ends_with(['E', 'i']);
    match Amount::try_from(quantity) {
        Ok(amount) if !has_exponent => match text.ends_with('i') && amount.value() >= 1024 {
            true => amount.binary(),
            false => amount.decimal(),
        },
        _ => quantity.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_quantity_is_whole_with_largest_decimal_or_binary_suffix() {
        for (given, expected) in [
            ("0.1", "100m"),
            ("1000m", "1"),
            ("0.5Gi", "512Mi"),
            ("1024Mi", "1Gi"),
            ("1.5Ki", "1536"),
            ("536870912", "536870912"),
            ("1000M", "1G"),
            ("1000P", "1E"),
            ("0Mi", "0"),
            ("-0.5", "-500m"),
            ("1e3", "1e3"),
            ("none", "none"),
        ] {
            let found = canonical(&Quantity(given.to_owned())).0;
            assert_eq!(found, expected, "{given}");
        }
    }
}
