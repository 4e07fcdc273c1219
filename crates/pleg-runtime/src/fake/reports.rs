//! Reports of sandboxes and containers, with ids made from the pod's uid and a name.

use pleg_core::{ContainerDetails, Details, Identity, Kind, Report, ReportedState, WallTime};

/// A sandbox of the pod `uid`, with the id `UID-NAME`.
#[must_use]
pub fn sandbox(uid: &str, name: &str, shown: ReportedState) -> Report {
    report(Kind::Sandbox, uid, name, shown)
}

/// A container of the pod `uid`, with the id `UID-NAME`, in the sandbox `UID-s`.
#[must_use]
pub fn container(uid: &str, name: &str, shown: ReportedState) -> Report {
    report(Kind::Container, uid, name, shown)
}

/// A container that has exited with that code.
#[must_use]
pub fn exited(uid: &str, name: &str, code: i32) -> Report {
    let details = ContainerDetails {
        exit_code: Some(code),
        reason: if code == 0 { "Completed" } else { "Error" }.into(),
        ..ContainerDetails::default()
    };
    Report {
        details: Details::from(details),
        ..container(uid, name, ReportedState::Exited)
    }
}

fn report(kind: Kind, uid: &str, name: &str, shown: ReportedState) -> Report {
    let is_container = kind == Kind::Container;
    let identity = Identity {
        pod: Some(uid.into()),
        namespace: Some("ns".into()),
        pod_name: Some(uid.into()),
        sandbox: is_container.then(|| format!("{uid}-s").into()),
        name: is_container.then(|| name.into()),
        created_at: WallTime::claimed(1_700_000_000_000_000_000),
        ..Identity::unknown(kind)
    };
    Report {
        id: format!("{uid}-{name}").into(),
        shown,
        identity,
        details: Details::none(kind),
    }
}
