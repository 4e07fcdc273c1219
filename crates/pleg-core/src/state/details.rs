//! Merging the details of an id (invariant 3).
//!
//! An inspection beats every event: after it, an event only fills empty fields. If the event
//! differs, the pod is inspected again, because the event's statuses were read at an unknown time
//! before it was stamped. OOMKilled beats any other reason. A missing field erases nothing
//! (invariant 7), except a sandbox's addresses, which an inspection may show to be gone.

use std::sync::Arc;

use crate::types::labels::Labels;
use crate::types::report::Details;
use crate::types::status::{ContainerDetails, SandboxDetails, Text};

/// The reason that may arrive after the event (containerd before 2.3 learns of an OOM kill late),
/// and that no other reason replaces.
pub(crate) const OOM_KILLED: &str = "OOMKilled";

/// How an answer is merged with the known details.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// A read newer than the known details: its values replace them, and addresses that it does not
    /// show are gone.
    NewestRead,
    /// An event newer than the known details: its values replace them.
    NewestEvent,
    /// An answer that may be older: it only fills empty fields.
    Fills,
}

/// Merges `said` into `known` and returns whether anything changed. Equal details stay shared.
pub(crate) fn merge(known: &mut Details, said: &Details, weight: Weight) -> bool {
    match (known, said) {
        (Details::Sandbox(known), Details::Sandbox(said)) => {
            merge_shared(known, said, |known| merge_sandbox(known, said, weight))
        }
        (Details::Container(known), Details::Container(said)) => {
            merge_shared(known, said, |known| merge_container(known, said, weight))
        }
        // Ids do not change their kind; the first kind was recorded.
        _ => false,
    }
}

/// Whether any field is set in both and differs.
pub(crate) fn differ(one: &Details, other: &Details) -> bool {
    /// The value of a field, if it is set.
    macro_rules! differs {
        ($one:ident, $other:ident, $($field:ident: $empty:expr),*) => {
            $({
                let empty: fn(&_) -> bool = $empty;
                let (a, b) = (&$one.$field, &$other.$field);
                !empty(a) && !empty(b) && a != b
            })||*
        };
    }
    match (one, other) {
        (Details::Sandbox(a), Details::Sandbox(b)) => {
            a != b
                && differs!(a, b,
                    ips: no_address, runtime_handler: no_text,
                    labels: Labels::is_empty, annotations: Labels::is_empty)
        }
        (Details::Container(a), Details::Container(b)) => {
            a != b
                && differs!(a, b,
                    started_at: Option::is_none, finished_at: Option::is_none,
                    exit_code: Option::is_none, reason: no_text, message: no_text,
                    image: no_text, image_ref: no_text, image_id: no_text, log_path: no_text,
                    resources: Option::is_none,
                    labels: Labels::is_empty, annotations: Labels::is_empty)
        }
        _ => false,
    }
}

fn merge_shared<T: Eq>(
    known: &mut Arc<T>,
    said: &Arc<T>,
    merge: impl FnOnce(&mut Arc<T>) -> bool,
) -> bool {
    // Most reports repeat known details.
    if known == said {
        return false;
    }
    let changed = merge(known);
    if changed && known == said {
        *known = said.clone();
    }
    changed
}

/// Sets a field of the known details to the reported value, if it is to be merged. The details are
/// copied only then.
macro_rules! take {
    ($known:ident.$field:ident, $said:ident, $weight:ident, $empty:expr) => {{
        let (old, new) = (&$known.$field, &$said.$field);
        let empty: fn(&_) -> bool = $empty;
        let takes = !empty(new) && ($weight != Weight::Fills || empty(old)) && old != new;
        if takes {
            Arc::make_mut($known).$field = new.clone();
        }
        takes
    }};
}

fn merge_sandbox(known: &mut Arc<SandboxDetails>, said: &SandboxDetails, weight: Weight) -> bool {
    let mut changed = take!(known.ips, said, weight, no_address);
    if weight == Weight::NewestRead && said.ips.is_empty() && !known.ips.is_empty() {
        Arc::make_mut(known).ips = Box::default();
        changed = true;
    }
    changed |= take!(known.runtime_handler, said, weight, no_text);
    changed |= take!(known.labels, said, weight, Labels::is_empty);
    changed |= take!(known.annotations, said, weight, Labels::is_empty);
    changed
}

fn merge_container(
    known: &mut Arc<ContainerDetails>,
    said: &ContainerDetails,
    weight: Weight,
) -> bool {
    let mut changed = take!(known.started_at, said, weight, Option::is_none);
    changed |= take!(known.finished_at, said, weight, Option::is_none);
    changed |= take!(known.exit_code, said, weight, Option::is_none);
    if &*said.reason == OOM_KILLED {
        let always = Weight::NewestRead;
        changed |= take!(known.reason, said, always, no_text);
    } else if &*known.reason != OOM_KILLED {
        changed |= take!(known.reason, said, weight, no_text);
    }
    changed |= take!(known.message, said, weight, no_text);
    changed |= take!(known.image, said, weight, no_text);
    changed |= take!(known.image_ref, said, weight, no_text);
    changed |= take!(known.image_id, said, weight, no_text);
    changed |= take!(known.log_path, said, weight, no_text);
    changed |= take!(known.resources, said, weight, Option::is_none);
    changed |= take!(known.labels, said, weight, Labels::is_empty);
    changed |= take!(known.annotations, said, weight, Labels::is_empty);
    changed
}

#[expect(clippy::borrowed_box, reason = "of the field as it is")]
fn no_address(ips: &Box<[Text]>) -> bool {
    ips.is_empty()
}

fn no_text(text: &Text) -> bool {
    text.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(reason: &str, image: &str, label: Option<&str>) -> Details {
        Details::from(ContainerDetails {
            reason: reason.into(),
            image: image.into(),
            labels: label.map(|l| (l, l)).into_iter().collect(),
            ..ContainerDetails::default()
        })
    }

    fn sandbox(ips: &[&str]) -> Details {
        Details::from(SandboxDetails {
            ips: ips.iter().map(|&ip| ip.into()).collect(),
            ..SandboxDetails::default()
        })
    }

    #[test]
    fn older_news_only_fills_what_is_empty() {
        let mut known = container("Error", "", None);
        let said = container("Completed", "img", Some("l"));
        assert!(merge(&mut known, &said, Weight::Fills));
        assert_eq!(known, container("Error", "img", Some("l")));
        assert!(!merge(&mut known, &said, Weight::Fills));
    }

    #[test]
    fn the_newest_replaces_and_nothing_erases() {
        let mut known = container("Error", "img", Some("l"));
        assert!(!merge(
            &mut known,
            &container("", "", None),
            Weight::NewestRead
        ));
        assert!(merge(
            &mut known,
            &container("Completed", "", None),
            Weight::NewestEvent
        ));
        assert_eq!(known, container("Completed", "img", Some("l")));
        assert!(merge(
            &mut known,
            &container(OOM_KILLED, "", None),
            Weight::Fills
        ));
        assert!(!merge(
            &mut known,
            &container("Error", "", None),
            Weight::NewestRead
        ));
        assert_eq!(known, container(OOM_KILLED, "img", Some("l")));
    }

    /// Only addresses are removed when an inspection does not show them.
    #[test]
    fn only_a_read_takes_addresses_away() {
        let mut known = sandbox(&["10.0.0.1"]);
        for weight in [Weight::NewestEvent, Weight::Fills] {
            assert!(!merge(&mut known, &sandbox(&[]), weight));
        }
        assert!(!merge(&mut known, &sandbox(&["10.0.0.2"]), Weight::Fills));
        assert!(merge(
            &mut known,
            &sandbox(&["10.0.0.2"]),
            Weight::NewestEvent
        ));
        assert!(merge(&mut known, &sandbox(&[]), Weight::NewestRead));
        assert_eq!(known, sandbox(&[]));
        assert!(!merge(
            &mut known,
            &container("", "", None),
            Weight::NewestRead
        ));
    }

    #[test]
    fn details_differ_only_in_a_field_that_is_set_in_both() {
        let one = sandbox(&["10.0.0.1"]);
        assert!(differ(&one, &sandbox(&["10.0.0.2"])));
        assert!(!differ(&one, &sandbox(&[])) && !differ(&one, &one));
        let one = container("Error", "", None);
        assert!(differ(&one, &container("Completed", "", None)));
        assert!(!differ(&one, &container("Error", "img", None)) && !differ(&one, &one));
        assert!(!differ(&one, &sandbox(&["10.0.0.1"])));
    }

    #[test]
    fn each_new_field_is_a_change() {
        let at = Some(crate::types::time::WallTime::from_nanos(1));
        let none = ContainerDetails::default;
        for said in [
            ContainerDetails {
                started_at: at,
                ..none()
            },
            ContainerDetails {
                finished_at: at,
                ..none()
            },
            ContainerDetails {
                exit_code: Some(1),
                ..none()
            },
        ] {
            let (mut known, said) = (Details::from(none()), Details::from(said));
            assert!(merge(&mut known, &said, Weight::Fills), "{said:?}");
            assert_eq!(known, said);
        }
    }
}
