//! The ids of the fuzzed world, and the operations that the bytes of an input encode.

use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use pleg_core::{
    ContainerDetails, Details, Id, Identity, Kind, PodUid, Report, ReportedState, WallTime,
};

use crate::harness::WALL_ORIGIN;

const PODS: u8 = 2;
const SANDBOXES: u8 = 2;
const CONTAINERS: u8 = 3;
/// Each sandbox and its containers.
pub(super) const OF_SANDBOX: u8 = 1 + CONTAINERS;
const IDS: u8 = PODS * SANDBOXES * OF_SANDBOX;

/// One of the ids of this world. Its number determines its kind, sandbox and pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ObjectNumber(pub(super) u8);

impl<'a> Arbitrary<'a> for ObjectNumber {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        Ok(Self(u8::arbitrary(u)? % IDS))
    }
}

impl ObjectNumber {
    pub(super) const fn kind(self) -> Kind {
        if self.0.is_multiple_of(OF_SANDBOX) {
            Kind::Sandbox
        } else {
            Kind::Container
        }
    }

    pub(super) const fn sandbox(self) -> Self {
        Self(self.0 - self.0 % OF_SANDBOX)
    }

    pub(super) fn id(self) -> Id {
        format!("i{}", self.0).into()
    }

    pub(super) fn pod(self) -> PodUid {
        pod(self.0 / (SANDBOXES * OF_SANDBOX))
    }

    pub(super) fn report(
        self,
        shown: ReportedState,
        code: Option<i32>,
        unlabelled: bool,
    ) -> Report {
        let kind = self.kind();
        let mut identity = Identity::new(kind);
        identity.attempt = u32::from(self.0);
        identity.created_at = WallTime::claimed(WALL_ORIGIN + i64::from(self.0));
        if !unlabelled {
            identity.pod = Some(self.pod());
            identity.sandbox = (kind == Kind::Container).then(|| self.sandbox().id());
            identity.name = (kind == Kind::Container).then(|| "app".into());
        }
        let details = match kind {
            Kind::Sandbox => Details::none(kind),
            Kind::Container => {
                let mut details = ContainerDetails::default();
                details.exit_code = code.filter(|_| shown == ReportedState::Exited);
                details.into()
            }
        };
        let shown = match (kind, shown) {
            (Kind::Sandbox, ReportedState::Created) => ReportedState::Running,
            (_, shown) => shown,
        };
        Report::new(self.id(), shown, identity, details)
    }
}

pub(super) fn pod(number: u8) -> PodUid {
    format!("u{number}").into()
}

/// One more than exist, so that requests may name an unknown pod.
#[derive(Clone, Copy, Debug)]
pub(super) struct PodNumber(pub(super) u8);

impl<'a> Arbitrary<'a> for PodNumber {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        Ok(Self(u8::arbitrary(u)? % (PODS + 1)))
    }
}

#[derive(Clone, Copy, Debug, Arbitrary)]
pub(super) enum SeenState {
    Created,
    Running,
    Exited,
    Unknown,
}

impl From<SeenState> for ReportedState {
    fn from(state: SeenState) -> Self {
        match state {
            SeenState::Created => Self::Created,
            SeenState::Running => Self::Running,
            SeenState::Exited => Self::Exited,
            SeenState::Unknown => Self::Unknown,
        }
    }
}

#[derive(Clone, Copy, Debug, Arbitrary)]
pub(super) struct Seen {
    pub(super) object: ObjectNumber,
    pub(super) state: SeenState,
    pub(super) code: Option<u8>,
    /// The report does not name its pod.
    pub(super) unlabelled: bool,
}

impl Seen {
    pub(super) fn report(self) -> Report {
        let (state, code) = (self.state.into(), self.code.map(i32::from));
        self.object.report(state, code, self.unlabelled)
    }
}

#[derive(Clone, Copy, Debug, Arbitrary)]
pub(super) enum EventKind {
    Created,
    Started,
    Stopped,
    Deleted,
    Other,
}

#[derive(Clone, Copy, Debug, Arbitrary)]
pub(super) enum Stamp {
    Now,
    Absurd,
    /// That many seconds ago, or ahead.
    Off(i16),
}

#[derive(Clone, Copy, Debug, Arbitrary)]
pub(super) enum Pause {
    Millis(u8),
    Tenths(u8),
    Seconds(u8),
}

#[derive(Clone, Debug, Arbitrary)]
pub(super) enum Answer {
    /// What exists.
    True,
    /// Something else.
    Wrong([Option<Seen>; 3]),
    /// Something else, and an error.
    Partial([Option<Seen>; 2]),
    Failed,
}

#[derive(Clone, Debug, Arbitrary)]
pub(super) enum Operation {
    /// An object is created, changes or is removed.
    Exists(ObjectNumber, Option<SeenState>, u8),
    /// A true event.
    TrueEvent(ObjectNumber, EventKind),
    Event {
        subject: ObjectNumber,
        what: EventKind,
        stamp: Stamp,
        sandbox: Option<Seen>,
        containers: [Option<Seen>; 2],
    },
    Subscribed,
    Ended {
        never_offered: bool,
        retry: Pause,
    },
    Backlog(bool),
    Pass(Pause),
    /// Answers one of the reads in flight.
    Answer {
        which: u8,
        answer: Answer,
        /// The read began now instead of when it was requested.
        late: bool,
    },
    /// Answers a read that was answered already or never requested.
    Again {
        ticket: u8,
        list: bool,
    },
    /// Answers all reads in flight with what exists.
    AnswerAll,
    Wait {
        pod: PodNumber,
        /// Milliseconds from now.
        after: i16,
    },
    Relist(PodNumber),
    Reinspect(PodNumber),
    RelistNow,
    Cancel(u8),
    Acknowledge(ObjectNumber),
}

#[derive(Clone, Copy, Debug, Arbitrary)]
pub(super) struct Config {
    pub(super) polling: bool,
    /// One slot of each kind, so that queues build up.
    pub(super) one_slot: bool,
}

impl Pause {
    pub(super) fn duration(self) -> Duration {
        match self {
            Self::Millis(n) => Duration::from_millis(n.into()),
            Self::Tenths(n) => Duration::from_millis(100) * u32::from(n),
            Self::Seconds(n) => Duration::from_secs(n.into()),
        }
    }
}
