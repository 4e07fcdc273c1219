//! The script on the node model, whose ids are the names of the script.

use pleg_node_model::{
    Event, EventType, Kind, NewContainer, Node, Pod, Profile, Refused, Shown, Status,
};

use super::{Act, CRASH, Order, Received, SCRIPT};

/// Plays the script. Returns the events of each step.
pub(super) fn play(profile: Profile) -> Result<Vec<Vec<Received>>, Refused> {
    let mut node = Node::new(profile);
    let mut all = Vec::new();
    for step in SCRIPT {
        let due = act(&mut node, step.act)?;
        let events = due.iter().filter_map(|due| {
            let at = due.at;
            let event = node.event(due, at)?;
            Some(received(&event, step.order))
        });
        let mut events: Vec<_> = events.collect();
        if step.order == Order::Free {
            events.sort();
        }
        all.push(events);
    }
    Ok(all)
}

fn act(node: &mut Node, act: Act) -> Result<Vec<pleg_node_model::Due>, Refused> {
    let now = node.latest() + 1;
    Ok(match act {
        Act::Run(pod) => node.run_sandbox(pod, &Pod::new(pod, "default", pod), 0, now)?,
        Act::Create {
            pod,
            id,
            name,
            attempt,
            life: _,
        } => {
            let new = NewContainer::new(id, pod, name);
            node.create_container(NewContainer { attempt, ..new }, now)?
        }
        Act::Start(id) => node.start(&id.into(), now)?,
        Act::FailToStart(id) => {
            node.fail_start(&id.into(), now)?;
            let status = node.status(id, Kind::Container, node.latest());
            let end = status.map(|status| (status.exit_code, status.reason));
            assert_eq!(end, Some((Some(128), "StartError")));
            Vec::new()
        }
        Act::Crash(id) => node.exit(&id.into(), CRASH, "Error", now),
        // The programs of the script end with 0 when they are stopped. With their pod, they are killed.
        Act::Stop(id) => node.exit(&id.into(), 0, "Completed", now),
        Act::StopPod(pod) => node.stop_sandbox(&pod.into(), now),
        Act::Remove(id) => node.remove_container(&id.into(), now),
        Act::RemovePod(pod) => node.remove_sandbox(&pod.into(), now),
        Act::KillSandbox(pod) => {
            if let Some(sandbox) = node.object_mut(pod) {
                sandbox.shares_processes = true;
            }
            node.kill_sandbox(&pod.into(), now)
        }
    })
}

fn received(event: &Event, order: Order) -> Received {
    let sandbox = event.sandbox.as_ref();
    let is_subject = sandbox.is_some_and(|sandbox| sandbox.row.id == event.subject);
    let containers = event.containers.iter().flatten();
    let all = Received {
        kind: match event.what {
            EventType::Created => "CREATED",
            EventType::Started => "STARTED",
            EventType::Stopped => "STOPPED",
            EventType::Deleted => "DELETED",
        },
        subject: event.subject.to_string(),
        sandbox: sandbox.map(|sandbox| {
            let state = match sandbox.row.shown {
                Shown::Running => "SANDBOX_READY",
                _ => "SANDBOX_NOTREADY",
            };
            (state, sandbox.row.created_at < 0)
        }),
        containers: containers
            .map(|status| (status.row.id.to_string(), state(status)))
            .collect(),
    };
    all.in_order(order, is_subject)
}

fn state(status: &Status) -> String {
    let state = match status.row.shown {
        Shown::Created => "CONTAINER_CREATED",
        Shown::Running => "CONTAINER_RUNNING",
        Shown::Exited => "CONTAINER_EXITED",
        Shown::Unknown => "CONTAINER_UNKNOWN",
    };
    let code = status.exit_code.unwrap_or_default();
    format!("{state} {code} {}", status.reason)
}
