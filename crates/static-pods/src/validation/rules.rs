//! What is allowed in a field.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::serde_json::Value;

use super::texts::Text;
use pleg_kubelet::quantity::Amount;

/// A pattern of paths, and what is allowed there.
pub(super) type Rule = (&'static str, Allowed);

/// The greatest number that the kernel takes as a user or group, and the API as a deadline.
pub(super) const MAX: i64 = i32::MAX as i64;

pub(super) enum Allowed {
    /// One of these texts, or an empty one: not set.
    OneOf(&'static [&'static str]),
    /// A number from the first to the second.
    Range(i64, i64),
    /// A number that is at least this one.
    AtLeast(i64),
    /// A text of this kind.
    Is(&'static Text),
    /// A text of this kind, or an empty one: not set.
    IsOrEmpty(&'static Text),
    /// An object whose keys are all of this kind.
    Keys(&'static Text),
    /// A quantity that is not negative.
    Amount,
    /// A list that is not empty.
    Filled(&'static str),
}

impl Allowed {
    /// Returns what is wrong with a value, and what to do.
    pub(super) fn problems(&self, value: &Value) -> Vec<String> {
        let text = value.as_str().unwrap_or_default();
        let problem = match self {
            Self::OneOf(allowed) => (!text.is_empty() && !allowed.contains(&text))
                .then(|| format!("{text:?} is none of {}", allowed.join(", "))),
            Self::Range(least, most) => value
                .as_i64()
                .filter(|number| !(*least..=*most).contains(number))
                .map(|number| {
                    format!("{number} is not allowed: write a number from {least} to {most}")
                }),
            Self::AtLeast(least) => value
                .as_i64()
                .filter(|number| number < least)
                .map(|number| format!("{number} is not allowed: write {least} or more")),
            Self::IsOrEmpty(_) if text.is_empty() => None,
            Self::Is(kind) | Self::IsOrEmpty(kind) => kind.problem(text),
            Self::Keys(kind) => {
                let keys = value
                    .as_object()
                    .into_iter()
                    .flat_map(|object| object.keys());
                return keys.filter_map(|key| kind.problem(key)).collect();
            }
            Self::Amount => amount(text),
            Self::Filled(problem) => {
                let empty = value.as_array().is_some_and(Vec::is_empty);
                empty.then(|| (*problem).to_owned())
            }
        };
        problem.into_iter().collect()
    }
}

fn amount(text: &str) -> Option<String> {
    match Amount::try_from(&Quantity(text.to_owned())) {
        Err(error) => Some(error.to_string()),
        Ok(amount) if amount.is_negative() => Some(format!("{text} is negative: write 0 or more")),
        Ok(_) => None,
    }
}
