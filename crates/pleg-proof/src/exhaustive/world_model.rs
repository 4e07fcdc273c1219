//! A small world with the core's types: the reports of its objects.

use pleg_core::{
    Confirmed, ContainerDetails, Details, EventType, Id, Identity, Instant, Kind, Output, PodUid,
    PodView, Report, ReportedState, RuntimeEvent, WallTime,
};

use super::scenario::{ObjectIndex, Snapshot, Stage, Step};
use super::worlds::World;

/// The creation time of the first object; below the world's clock, so it is never shifted.
const CREATED: i64 = 200_000_000_000_000_000;

/// A world and the ids of its objects.
#[derive(Debug)]
pub struct WorldModel {
    pub world: &'static World,
    pub ids: Vec<Id>,
    pub pods: Vec<PodUid>,
    identities: Vec<Identity>,
}

impl WorldModel {
    pub fn new(world: &'static World) -> Self {
        let mut pods: Vec<PodUid> = Vec::new();
        for object in world.scenario.objects {
            if !pods.iter().any(|p| p.as_str() == object.pod) {
                pods.push(object.pod.into());
            }
        }
        let ids: Vec<Id> = world.scenario.objects.iter().map(|b| b.id.into()).collect();
        let identities = (0..ids.len())
            .map(|index| {
                let object = &world.scenario.objects[index];
                let mut identity = Identity::new(kind(world, index));
                identity.pod = Some(object.pod.into());
                identity.namespace = Some("ns".into());
                // A recreated pod has another uid under the same name.
                identity.pod_name = Some("web-0".into());
                identity.sandbox = object.sandbox.map(|s| ids[s].clone());
                identity.name = object.sandbox.map(|_| "app".into());
                identity.attempt = object.attempt;
                identity.created_at = Some(WallTime::from_nanos(CREATED + index as i64));
                identity
            })
            .collect();
        Self {
            world,
            ids,
            pods,
            identities,
        }
    }

    pub fn index_of(&self, id: &Id) -> Option<ObjectIndex> {
        self.ids.iter().position(|i| i == id)
    }

    /// The number of the object's pod.
    pub fn pod_of(&self, object: ObjectIndex) -> usize {
        let uid = self.world.scenario.objects[object].pod;
        let number = self.pods.iter().position(|p| p.as_str() == uid);
        number.unwrap_or(usize::MAX)
    }

    pub fn of_pod(&self, pod: usize) -> impl Iterator<Item = ObjectIndex> {
        (0..self.ids.len()).filter(move |&w| self.pod_of(w) == pod)
    }

    pub fn kind(&self, object: ObjectIndex) -> Kind {
        kind(self.world, object)
    }

    /// A list row.
    pub fn row(&self, object: ObjectIndex, stage: Stage) -> Option<Report> {
        let shown = match stage {
            Stage::Created => ReportedState::Created,
            Stage::Running => ReportedState::Running,
            Stage::Exited => ReportedState::Exited,
            Stage::Absent | Stage::Removed => return None,
        };
        let identity = self.identities[object].clone();
        let details = Details::none(self.kind(object));
        Some(Report::new(
            self.ids[object].clone(),
            shown,
            identity,
            details,
        ))
    }

    /// A status. A container's status does not name its sandbox; an exited one has its exit code.
    pub fn status(&self, object: ObjectIndex, stage: Stage) -> Option<Report> {
        let mut report = self.row(object, stage)?;
        report.identity.sandbox = None;
        if stage == Stage::Exited && self.kind(object) == Kind::Container {
            let code = self.world.scenario.objects[object].code;
            let mut details = ContainerDetails::default();
            details.exit_code = Some(code);
            details.reason = if code == 0 { "Completed" } else { "Error" }.into();
            report.details = details.into();
        }
        Some(report)
    }

    /// The event of a step, with the statuses of one sandbox, as containerd sends it: a removed sandbox
    /// has no status.
    pub fn event(&self, step: Step, seen: &Snapshot, stamped: u64) -> RuntimeEvent {
        let Step(object, to) = step;
        let sandbox = self.world.scenario.objects[object]
            .sandbox
            .unwrap_or(object);
        let containers = (0..self.ids.len())
            .filter(|&w| self.world.scenario.objects[w].sandbox == Some(sandbox))
            .filter_map(|w| self.status(w, seen[w]))
            .collect();
        let event = match to {
            Stage::Absent | Stage::Created => EventType::Created,
            Stage::Running => EventType::Started,
            Stage::Exited => EventType::Stopped,
            Stage::Removed => EventType::Deleted,
        };
        let mut event = RuntimeEvent::new(self.ids[object].clone(), event);
        event.created_at = stamped.cast_signed();
        event.sandbox = self.status(sandbox, seen[sandbox]);
        event.containers = containers;
        event
    }

    /// All objects in the same event as that one.
    pub fn in_same_event(&self, object: ObjectIndex) -> impl Iterator<Item = ObjectIndex> {
        let of = |w: ObjectIndex| self.world.scenario.objects[w].sandbox.unwrap_or(w);
        (0..self.ids.len()).filter(move |&w| of(w) == of(object))
    }
}

fn kind(world: &World, object: ObjectIndex) -> Kind {
    match world.scenario.objects[object].sandbox {
        None => Kind::Sandbox,
        Some(_) => Kind::Container,
    }
}

// --- the trace of a counterexample ---

impl WorldModel {
    /// Formats an output in one line.
    pub fn format_output(&self, output: &Output, since: u64) -> String {
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

/// An instant, in milliseconds since the start of the trace.
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
