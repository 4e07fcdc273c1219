//! What one answer of the runtime contains about one id, in a list row, in a status or in an event.
//! Plain data, in domain types. A field that the runtime left out is `None` or empty, and never means
//! that nothing exists (invariant 7).

use std::sync::Arc;

use crate::types::ids::{Id, Kind, PodUid};
use crate::types::status::{ContainerDetails, SandboxDetails, Text};
use crate::types::time::WallTime;

/// The state that a runtime reports for an id.
///
/// A sandbox is `Running` if the runtime reports READY, and `Exited` if it reports NOTREADY, as
/// upstream maps them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReportedState {
    /// A container that exists and was not started.
    Created,
    /// A running container, a ready sandbox.
    Running,
    /// A container that exited, a sandbox that is not ready.
    Exited,
    /// The runtime does not know the state. Outside the order: it never moves a state.
    Unknown,
}

impl ReportedState {
    /// The later of two states; a known one if the other is unknown.
    pub(crate) fn later(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unknown, known) | (known, Self::Unknown) => known,
            (one, other) => one.max(other),
        }
    }
}

/// The identity of an id. Each field is recorded once, from the first answer that has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Identity {
    /// Sandbox or container.
    pub kind: Kind,
    /// The pod, according to this answer: a sandbox's metadata uid, else the pod-uid label.
    pub pod: Option<PodUid>,
    /// Whether there is no pod-uid label, or it differs from a sandbox's metadata uid. A list of
    /// one pod selects by that label and does not show such an id.
    pub unlabelled: bool,
    /// The pod's namespace.
    pub namespace: Option<Text>,
    /// The pod's name.
    pub pod_name: Option<Text>,
    /// A container's sandbox.
    pub sandbox: Option<Id>,
    /// A container's name; `None` for a sandbox.
    pub name: Option<Text>,
    /// The number of earlier attempts under the same name.
    pub attempt: u32,
    /// When it was created according to the runtime.
    pub created_at: Option<WallTime>,
}

impl Identity {
    /// An identity of which only the kind is known.
    pub const fn new(kind: Kind) -> Self {
        Self {
            kind,
            pod: None,
            unlabelled: false,
            namespace: None,
            pod_name: None,
            sandbox: None,
            name: None,
            attempt: 0,
            created_at: None,
        }
    }

    /// Fills what is not known yet from `other`: of each field the first valid value counts. The kind stays. Returns
    /// whether anything became known.
    pub(crate) fn fill_from(&mut self, other: &Self) -> bool {
        fn fill<T: Clone>(known: &mut Option<T>, other: Option<&T>) -> bool {
            let fills = known.is_none() && other.is_some();
            if fills {
                *known = other.cloned();
            }
            fills
        }
        let Self {
            kind: _,
            pod,
            unlabelled,
            namespace,
            pod_name,
            sandbox,
            name,
            attempt,
            created_at,
        } = other;
        let mut filled = fill(&mut self.pod, pod.as_ref());
        filled |= fill(&mut self.namespace, namespace.as_ref());
        filled |= fill(&mut self.pod_name, pod_name.as_ref());
        filled |= fill(&mut self.sandbox, sandbox.as_ref());
        filled |= fill(&mut self.name, name.as_ref());
        filled |= fill(&mut self.created_at, created_at.as_ref());
        if self.unlabelled && !unlabelled {
            self.unlabelled = false;
            filled = true;
        }
        if self.attempt == 0 && *attempt != 0 {
            self.attempt = *attempt;
            filled = true;
        }
        filled
    }

    /// Whether it tells which container of its pod this is, and which of those of one name is the
    /// newest: what decides about the start of another one.
    pub(crate) const fn tells_apart(&self) -> bool {
        let is_named = match self.kind {
            Kind::Sandbox => true,
            Kind::Container => self.sandbox.is_some() && self.name.is_some(),
        };
        is_named && self.created_at.is_some()
    }

    /// Whether `said` has no field that is missing here.
    pub(crate) const fn knows(&self, said: &Self) -> bool {
        const fn fills<T>(known: &Option<T>, said: &Option<T>) -> bool {
            known.is_none() && said.is_some()
        }
        !fills(&self.pod, &said.pod)
            && !fills(&self.namespace, &said.namespace)
            && !fills(&self.pod_name, &said.pod_name)
            && !fills(&self.sandbox, &said.sandbox)
            && !fills(&self.name, &said.name)
            && !fills(&self.created_at, &said.created_at)
            && (self.attempt != 0 || said.attempt == 0)
            && (!self.unlabelled || said.unlabelled)
    }
}

/// The details of an id: everything but its state and identity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Details {
    /// Those of a sandbox.
    Sandbox(Arc<SandboxDetails>),
    /// Those of a container.
    Container(Arc<ContainerDetails>),
}

impl From<SandboxDetails> for Details {
    fn from(details: SandboxDetails) -> Self {
        Self::Sandbox(Arc::new(details))
    }
}

impl From<ContainerDetails> for Details {
    fn from(details: ContainerDetails) -> Self {
        Self::Container(Arc::new(details))
    }
}

impl Details {
    /// Empty details.
    pub fn none(kind: Kind) -> Self {
        match kind {
            Kind::Sandbox => Self::Sandbox(Arc::default()),
            Kind::Container => Self::Container(Arc::default()),
        }
    }
}

/// What one answer of the runtime contains about one id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Report {
    /// The id. Never empty.
    pub id: Id,
    /// Its state.
    pub shown: ReportedState,
    /// Its identity.
    pub identity: Identity,
    /// Its details; a list row has fewer than a status.
    pub details: Details,
}

impl Report {
    /// A report of `id`.
    pub fn new(
        id: impl Into<Id>,
        shown: ReportedState,
        identity: Identity,
        details: impl Into<Details>,
    ) -> Self {
        Self {
            id: id.into(),
            shown,
            identity,
            details: details.into(),
        }
    }

    /// Whether it reports that a container was started.
    pub(crate) fn was_started(&self) -> bool {
        matches!(&self.details, Details::Container(c) if c.started_at.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_knows_another_that_has_no_further_field() {
        let mut nothing = Identity::new(Kind::Container);
        nothing.unlabelled = true;
        let fields: [fn(&mut Identity); 8] = [
            |identity| identity.pod = Some("p".into()),
            |identity| identity.namespace = Some("ns".into()),
            |identity| identity.pod_name = Some("web".into()),
            |identity| identity.sandbox = Some("s".into()),
            |identity| identity.name = Some("app".into()),
            |identity| identity.created_at = Some(WallTime::from_nanos(1)),
            |identity| identity.attempt = 1,
            |identity| identity.unlabelled = false,
        ];
        assert!(nothing.knows(&nothing));
        for set in fields {
            let mut one = nothing.clone();
            set(&mut one);
            assert!(one.knows(&nothing) && one.knows(&one), "{one:?}");
            assert!(!nothing.knows(&one), "{one:?}");
        }
    }

    #[test]
    fn only_a_container_with_a_start_time_was_started() {
        let started = ContainerDetails {
            started_at: Some(WallTime::from_nanos(1)),
            ..ContainerDetails::default()
        };
        for (details, was_started) in [
            (started.into(), true),
            (Details::none(Kind::Container), false),
            (Details::none(Kind::Sandbox), false),
        ] {
            let identity = Identity::new(Kind::Container);
            let report = Report::new("c", ReportedState::Exited, identity, details);
            assert_eq!(report.was_started(), was_started, "{report:?}");
        }
    }
}
