//! A small world with the core's names on it: what the runtime says of whom.

use pleg_core::{
    Confirmed, ContainerDetails, Details, EventType, Id, Identity, Instant, Kind, Output, PodUid,
    PodView, Report, ReportedState, RuntimeEvent, WallTime,
};

use super::script::{Snapshot, Stage, Step, Who};
use super::worlds::World;

/// The runtime's time of creation of whoever comes first; below the world's clock, which never
/// shifts it.
const CREATED: i64 = 200_000_000_000_000_000;

/// A world whose beings have their names.
#[derive(Debug)]
pub struct Cast {
    pub world: &'static World,
    pub ids: Vec<Id>,
    pub pods: Vec<PodUid>,
    identities: Vec<Identity>,
}

impl Cast {
    pub fn new(world: &'static World) -> Self {
        let mut pods: Vec<PodUid> = Vec::new();
        for being in world.tale.beings {
            if !pods.iter().any(|p| p.as_str() == being.pod) {
                pods.push(being.pod.into());
            }
        }
        let ids: Vec<Id> = world.tale.beings.iter().map(|b| b.id.into()).collect();
        let identities = (0..ids.len())
            .map(|who| {
                let being = &world.tale.beings[who];
                Identity {
                    pod: Some(being.pod.into()),
                    namespace: Some("ns".into()),
                    // Deleted and made anew, a pod has another uid under the same name.
                    pod_name: Some("web-0".into()),
                    sandbox: being.sandbox.map(|s| ids[s].clone()),
                    name: being.sandbox.map(|_| "app".into()),
                    attempt: being.attempt,
                    created_at: Some(WallTime::from_nanos(CREATED + who as i64)),
                    ..Identity::unknown(kind(world, who))
                }
            })
            .collect();
        Self {
            world,
            ids,
            pods,
            identities,
        }
    }

    pub fn who(&self, id: &Id) -> Option<Who> {
        self.ids.iter().position(|i| i == id)
    }

    /// The pod of that one, by its number.
    pub fn pod_of(&self, who: Who) -> usize {
        let uid = self.world.tale.beings[who].pod;
        let number = self.pods.iter().position(|p| p.as_str() == uid);
        number.unwrap_or(usize::MAX)
    }

    pub fn of_pod(&self, pod: usize) -> impl Iterator<Item = Who> {
        (0..self.ids.len()).filter(move |&w| self.pod_of(w) == pod)
    }

    pub fn kind(&self, who: Who) -> Kind {
        kind(self.world, who)
    }

    /// What a list row says.
    pub fn row(&self, who: Who, stage: Stage) -> Option<Report> {
        let shown = match stage {
            Stage::Created => ReportedState::Created,
            Stage::Running => ReportedState::Running,
            Stage::Exited => ReportedState::Exited,
            Stage::Absent | Stage::Removed => return None,
        };
        Some(Report {
            id: self.ids[who].clone(),
            shown,
            identity: self.identities[who].clone(),
            details: Details::none(self.kind(who)),
        })
    }

    /// What a status says. A container's does not say which sandbox it is in; one that has ended
    /// has its exit code.
    pub fn status(&self, who: Who, stage: Stage) -> Option<Report> {
        let mut report = self.row(who, stage)?;
        report.identity.sandbox = None;
        if stage == Stage::Exited && self.kind(who) == Kind::Container {
            let code = self.world.tale.beings[who].code;
            report.details = Details::from(ContainerDetails {
                exit_code: Some(code),
                reason: if code == 0 { "Completed" } else { "Error" }.into(),
                ..ContainerDetails::default()
            });
        }
        Some(report)
    }

    /// The event of a step, with the statuses of the one sandbox that it is about as containerd
    /// reads them: a sandbox that is gone has none.
    pub fn event(&self, step: Step, seen: &Snapshot, stamped: u64) -> RuntimeEvent {
        let Step(who, to) = step;
        let sandbox = self.world.tale.beings[who].sandbox.unwrap_or(who);
        let containers = (0..self.ids.len())
            .filter(|&w| self.world.tale.beings[w].sandbox == Some(sandbox))
            .filter_map(|w| self.status(w, seen[w]))
            .collect();
        RuntimeEvent {
            id: self.ids[who].clone(),
            event: match to {
                Stage::Absent | Stage::Created => EventType::Created,
                Stage::Running => EventType::Started,
                Stage::Exited => EventType::Stopped,
                Stage::Removed => EventType::Deleted,
            },
            created_at: stamped.cast_signed(),
            sandbox: self.status(sandbox, seen[sandbox]),
            containers,
        }
    }

    /// Everybody who is told in the same event as that one.
    pub fn together(&self, who: Who) -> impl Iterator<Item = Who> {
        let of = |w: Who| self.world.tale.beings[w].sandbox.unwrap_or(w);
        (0..self.ids.len()).filter(move |&w| of(w) == of(who))
    }
}

fn kind(world: &World, who: Who) -> Kind {
    match world.tale.beings[who].sandbox {
        None => Kind::Sandbox,
        Some(_) => Kind::Container,
    }
}

// --- for the tale of a counterexample ---

impl Cast {
    /// What the machine said, in one line.
    pub fn tell(&self, output: &Output, since: u64) -> String {
        match output {
            Output::Publish { uid, view } => {
                format!(
                    "publishes {uid} {}: {}",
                    as_of(view.as_of, since),
                    show(view)
                )
            }
            Output::Remove { uid } => format!("withdraws {uid}"),
            Output::ListApplied { as_of: at, .. } => {
                format!(
                    "what is not in the cache does not exist, {}",
                    as_of(Some(*at), since)
                )
            }
            Output::Refresh { as_of: at, pods } => {
                let pods = match pods {
                    Confirmed::All => "every pod".to_owned(),
                    Confirmed::These(pods) => {
                        let pods: Vec<&str> = pods.iter().map(PodUid::as_str).collect();
                        pods.join(", ")
                    }
                };
                format!("confirms {pods} {}", as_of(Some(*at), since))
            }
            Output::Terminals { uid, records } => format!("keeps {} ends of {uid}", records.len()),
            Output::Announce(event) => match &event.subject {
                Some(s) => format!("announces {} of {}", event.event, s.id),
                None => format!("announces {} of {}", event.event, event.uid),
            },
            Output::Answer {
                answer: Ok(view), ..
            } => format!("answers {}: {}", as_of(view.as_of, since), show(view)),
            Output::Answer {
                answer: Err(error), ..
            } => format!("answers with an error: {error}"),
            Output::List { .. } => "asks for a list".into(),
            Output::Inspect { uid, causes, .. } => format!("asks for {uid}, because {causes:?}"),
            Output::Read { id, .. } => format!("asks for the status of {id}"),
            other => format!("{other:?}"),
        }
    }
}

fn as_of(at: Option<Instant>, since: u64) -> String {
    match at {
        Some(at) => format!("as {}", when(at.as_nanos(), since).replacen("at", "of", 1)),
        None => "as of never".into(),
    }
}

/// An instant, in milliseconds since the tale began.
pub fn when(at: u64, since: u64) -> String {
    let micros = (at.cast_signed() - since.cast_signed()) / 1000;
    format!("at {:+.1} ms", micros as f64 / 1000.0)
}

fn show(view: &PodView) -> String {
    let sandboxes = view.status.sandboxes.iter();
    let sandboxes = sandboxes.map(|s| format!("{} {:?}", s.id, s.state));
    let containers = view.status.containers.iter().map(|c| {
        let code = c.details.exit_code;
        let code = code.map_or(String::new(), |code| format!("({code})"));
        format!("{} {:?}{code}", c.id, c.state)
    });
    let shown: Vec<String> = sandboxes.chain(containers).collect();
    if shown.is_empty() {
        "nothing".into()
    } else {
        shown.join(", ")
    }
}
