//! Merging what is known of an id besides its state (design, section 2, "Details").
//!
//! An inspection that began after the last event arrived beats it; otherwise field by field the
//! value that is not empty. OOMKilled beats any reason. Nothing that a runtime may leave out
//! erases anything (law 7), but for a sandbox's addresses, which an inspection may show gone.

use crate::observed::Details;
use crate::status::{ContainerDetails, Labels, SandboxDetails, Text};

/// The reason that may arrive after the event (containerd before 2.3 learns of an OOM kill late)
/// and that no other reason replaces.
pub(crate) const OOM_KILLED: &str = "OOMKilled";

/// How far an answer may be trusted against what is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// A read that is newer than all that is known: its values replace ours, and addresses that
    /// it does not show are gone.
    NewestRead,
    /// An event that is newer than all that is known: its values replace ours.
    NewestEvent,
    /// It may be older: it only fills what is empty.
    Fills,
}

/// Merges `said` into `known`; whether anything changed.
pub(crate) fn merge(known: &mut Details, said: &Details, weight: Weight) -> bool {
    match (known, said) {
        (Details::Sandbox(known), Details::Sandbox(said)) => merge_sandbox(known, said, weight),
        (Details::Container(known), Details::Container(said)) => {
            merge_container(known, said, weight)
        }
        // An id that changes its kind does not exist; the first kind was believed.
        _ => false,
    }
}

fn merge_sandbox(known: &mut SandboxDetails, said: &SandboxDetails, weight: Weight) -> bool {
    let mut m = Merge {
        weight,
        changed: false,
    };
    if weight == Weight::NewestRead {
        m.set(&mut known.ips, &said.ips);
    } else {
        m.field(&mut known.ips, &said.ips, Vec::is_empty);
    }
    m.text(&mut known.runtime_handler, &said.runtime_handler);
    m.labels(&mut known.labels, &said.labels);
    m.labels(&mut known.annotations, &said.annotations);
    m.changed
}

fn merge_container(known: &mut ContainerDetails, said: &ContainerDetails, weight: Weight) -> bool {
    let mut m = Merge {
        weight,
        changed: false,
    };
    m.option(&mut known.started_at, &said.started_at);
    m.option(&mut known.finished_at, &said.finished_at);
    m.option(&mut known.exit_code, &said.exit_code);
    if &*said.reason == OOM_KILLED {
        m.set(&mut known.reason, &said.reason);
    } else if &*known.reason != OOM_KILLED {
        m.text(&mut known.reason, &said.reason);
    }
    m.text(&mut known.message, &said.message);
    m.text(&mut known.image, &said.image);
    m.text(&mut known.image_ref, &said.image_ref);
    m.text(&mut known.image_id, &said.image_id);
    m.text(&mut known.log_path, &said.log_path);
    m.option(&mut known.resources, &said.resources);
    m.labels(&mut known.labels, &said.labels);
    m.labels(&mut known.annotations, &said.annotations);
    m.changed
}

/// One merge under way.
struct Merge {
    weight: Weight,
    changed: bool,
}

impl Merge {
    fn text(&mut self, known: &mut Text, said: &Text) {
        self.field(known, said, |t| t.is_empty());
    }

    fn labels(&mut self, known: &mut Labels, said: &Labels) {
        self.field(known, said, |l| l.is_empty());
    }

    fn option<T: Clone + PartialEq>(&mut self, known: &mut Option<T>, said: &Option<T>) {
        self.field(known, said, Option::is_none);
    }

    fn field<T: Clone + PartialEq>(&mut self, known: &mut T, said: &T, empty: fn(&T) -> bool) {
        if !empty(said) && (self.weight != Weight::Fills || empty(known)) {
            self.set(known, said);
        }
    }

    fn set<T: Clone + PartialEq>(&mut self, known: &mut T, said: &T) {
        if known != said {
            *known = said.clone();
            self.changed = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(reason: &str, image: &str, label: Option<&str>) -> Details {
        let labels = label.map(|l| [(l.into(), l.into())].into());
        Details::Container(ContainerDetails {
            reason: reason.into(),
            image: image.into(),
            labels: labels.map(Labels::new).unwrap_or_default(),
            ..ContainerDetails::default()
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

    /// Addresses alone go when an inspection does not show them.
    #[test]
    fn only_a_read_takes_addresses_away() {
        let with = |ips: &[&str]| {
            Details::Sandbox(SandboxDetails {
                ips: ips.iter().map(|&ip| ip.into()).collect(),
                ..SandboxDetails::default()
            })
        };
        let mut known = with(&["10.0.0.1"]);
        for weight in [Weight::NewestEvent, Weight::Fills] {
            assert!(!merge(&mut known, &with(&[]), weight));
        }
        assert!(!merge(&mut known, &with(&["10.0.0.2"]), Weight::Fills));
        assert!(merge(&mut known, &with(&["10.0.0.2"]), Weight::NewestEvent));
        assert!(merge(&mut known, &with(&[]), Weight::NewestRead));
        assert_eq!(known, with(&[]));
        assert!(!merge(
            &mut known,
            &container("", "", None),
            Weight::NewestRead
        ));
    }
}
