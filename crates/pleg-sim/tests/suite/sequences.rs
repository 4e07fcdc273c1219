//! The event sequences of a pod's lifecycle, as clients see them. `pleg-node-model` tests which events each
//! runtime sends; these tests see that the simulator follows it, and what it adds.
//!
//! The test waits until every task is idle before the next step, so that only one order is possible.

use std::{collections::HashMap, time::Duration};

use crate::common::{Client, Events, event_text, namespaces, pod_config, sim};
use pleg_cri::v1::{self, ContainerState};
use pleg_sim::{Mode, Sim};

/// Go's zero time, as containerd 2 sends it.
const GO_ZERO_TIME: i64 = -6_795_364_578_871_345_152;

/// A simulator and its events. Ids have names: S for a sandbox, A for a container, A' for its next attempt.
struct Recorder {
    sim: Sim,
    cri: Client,
    events: Events,
    ids: HashMap<String, String>,
    last: v1::ContainerEventResponse,
}

impl Recorder {
    async fn new(mode: Mode, version: &str) -> Self {
        let sim = sim().mode(mode).runtime_version(version).build();
        Self {
            events: Events::subscribe(&sim).await,
            cri: Client::connect(&sim).await,
            sim,
            ids: HashMap::new(),
            last: v1::ContainerEventResponse::default(),
        }
    }

    /// Does the steps, which are separated by commas, and returns the events.
    async fn play(&mut self, steps: &str) -> Vec<String> {
        let mut recorded = Vec::new();
        for step in steps.split(", ") {
            if !self.step(step).await {
                recorded.push("refused".to_owned());
            }
            let names: Vec<_> = self.ids.iter().map(|(n, id)| (&**id, &**n)).collect();
            for event in self.events.all().await {
                recorded.push(event_text(&event, &names));
                self.last = event;
            }
        }
        recorded
    }

    /// Does one step. Returns false if it is refused.
    async fn step(&mut self, step: &str) -> bool {
        let words: Vec<_> = step.split(' ').collect();
        let id = |name: &str| self.ids[name].clone();
        let cri = &mut self.cri;
        let (name, new) = match words[..] {
            ["run" | "run-shared", name] => {
                let mut config = pod_config("p");
                if words[0] == "run-shared" {
                    namespaces(&mut config).pid = v1::NamespaceMode::Pod.into();
                }
                (name, cri.try_run_as(config).await.unwrap())
            }
            ["create", sandbox, name, ref command @ ..] => {
                let attempt = u32::from(name.ends_with('\''));
                let of_container = name.trim_end_matches('\'').to_lowercase();
                let (sandbox, command) = (id(sandbox), command.join(" "));
                let created = cri.create(&sandbox, &of_container, attempt, &command);
                (name, created.await)
            }
            ["advance", seconds] => {
                let seconds = Duration::from_secs(seconds.parse().unwrap());
                tokio::time::advance(seconds).await;
                return true;
            }
            [command, name, ref args @ ..] => {
                let id = id(name);
                match command {
                    "start" => return cri.try_start(&id).await.is_ok(),
                    "stop" => cri.stop(&id, args[0].parse().unwrap()).await,
                    "remove" => cri.remove(&id).await,
                    "stop-sandbox" => cri.stop_sandbox(&id).await,
                    "remove-sandbox" => cri.remove_sandbox(&id).await,
                    _ => return self.sim.control(&format!("{command} {id}")).await.is_ok(),
                }
                return true;
            }
            _ => panic!("unknown step {step}"),
        };
        self.ids.insert(name.to_owned(), new);
        true
    }
}

/// A runtime, steps => the last steps, and the beginnings of the events of these. Those of CRI-O are sorted: it
/// sends STOPPED of a sandbox within the call.
///
/// The first one: two containers, an exit, a restart, and the removal of everything. A second stop or removal
/// sends no second event, and the name of a removed sandbox is free again.
const BY_RUNTIME: &str = "\
containerd-2 v2.4.0: run S, remove-sandbox S => run S, create S A, start A, create S B, start B, exit A, \
create S A', start A', remove A, stop A' 10, stop B 0, stop-sandbox S, stop-sandbox S, remove A', remove B, \
remove B, remove-sandbox S, remove-sandbox S
CREATED(S) READY []
STARTED(S) READY []
CREATED(A) READY [A:CREATED]
STARTED(A) READY [A:RUNNING]
CREATED(B) READY [A:RUNNING, B:CREATED]
STARTED(B) READY [A:RUNNING, B:RUNNING]
STOPPED(A) READY [A:EXITED=1 Error, B:RUNNING]
CREATED(A') READY [A':CREATED, A:EXITED=1 Error, B:RUNNING]
STARTED(A') READY [A':RUNNING, A:EXITED=1 Error, B:RUNNING]
DELETED(A) READY [A':RUNNING, B:RUNNING]
STOPPED(A') READY [A':EXITED=0 Completed, B:RUNNING]
STOPPED(B) READY [A':EXITED=0 Completed, B:EXITED=137 Error]
STOPPED(S) NOTREADY [A':EXITED=0 Completed, B:EXITED=137 Error]
DELETED(A') NOTREADY [B:EXITED=137 Error]
DELETED(B) NOTREADY []
DELETED(S) NOTREADY []

containerd-1.7 1.7.24: run S, create S A, start A => remove-sandbox S
STOPPED(A) READY [A:EXITED=137 Error]
STOPPED(S) NOTREADY [A:EXITED=137 Error]
DELETED(A) NOTREADY []
DELETED(S) nil []

crio 1.36.3: run S, create S A, start A => remove-sandbox S
STOPPED(A)
STOPPED(S)

crio 1.31.0: run S, create S A => remove A
DELETED(A) READY [?:CREATED]

crio 1.27.0: run S, create S A, start A => stop A 0
DELETED(A) READY [A:EXITED=137 Error]
STOPPED(A) READY [A:EXITED=137 Error]

containerd-2 v2.2.7: run S, create S A, start A => oom A
STOPPED(A) READY [A:EXITED=137 Error]

containerd-2 v2.4.0: run S, create S A fail-start => start A
refused

crio 1.36.3: run S, create S A fail-start => start A
refused

containerd-2 v2.4.0: run S, create S A, start A => kill-sandbox S, kill-sandbox S, stop A 10
STOPPED(S) NOTREADY [A:RUNNING]
refused
STOPPED(A) NOTREADY [A:EXITED=0 Completed]

crio 1.36.3: run S, create S A, start A => kill-sandbox S
refused

containerd-2 v2.4.0: run-shared S, create S A, start A => kill-sandbox S
STOPPED(S) NOTREADY [A:RUNNING]
STOPPED(A) NOTREADY [A:EXITED=137 Error]

crio 1.36.3: run-shared S, create S A, start A => kill-sandbox S, kill-sandbox S
STOPPED(A)
STOPPED(S)
refused

containerd-2 v2.4.0: run S, create S A app exit 0 50 => start A
STARTED(A) READY [A:RUNNING]
STOPPED(A) READY [A:EXITED=0 Completed]

containerd-2 v2.4.0: run S, create S A sh -c exit 42 15000, start A => advance 15
STOPPED(A) READY [A:EXITED=42 Error]

containerd-2 v2.4.0: run S, create S A app ignore-term, start A => stop A 10
STOPPED(A) READY [A:EXITED=137 Error]

containerd-2 v2.4.0: run S, create S A app exit 1 3600000, start A => stop A 10
STOPPED(A) READY [A:EXITED=143 Error]";

#[tokio::test(start_paused = true)]
async fn events_differ_by_runtime() {
    for case in BY_RUNTIME.split("\n\n") {
        let (title, expected) = case.split_once('\n').unwrap();
        let (runtime, steps) = title.split_once(": ").unwrap();
        let (mode, version) = runtime.split_once(' ').unwrap();
        let (before, steps) = steps.split_once(" => ").unwrap();
        let mut recorder = Recorder::new(mode.parse().unwrap(), version).await;
        recorder.play(before).await;
        let mut recorded = recorder.play(steps).await;
        if mode == "crio" {
            recorded.sort();
        }
        let expected: Vec<_> = expected.lines().collect();
        assert_eq!(recorded.len(), expected.len(), "{title}: {recorded:?}");
        for (event, begin) in recorded.iter().zip(expected) {
            assert!(event.starts_with(begin), "{title}: {event}, not {begin}");
        }
        let sandbox = recorder.last.pod_sandbox_status.take().unwrap_or_default();
        let status = match recorder.ids.get("A") {
            Some(id) => recorder.cri.status(id).await.ok(),
            None => None,
        };
        let status = status.map(|s| (s.exit_code, s.reason));
        match steps {
            _ if before.ends_with("fail-start") => {
                let stays = mode != "crio";
                let expected = stays.then(|| (128, "StartError".to_owned()));
                assert_eq!(status, expected, "{title}");
                let rows = recorder.cri.containers().await.unwrap();
                assert_eq!(rows.len(), usize::from(stays), "{title}");
            }
            "oom A" => assert_eq!(status, Some((137, "OOMKilled".to_owned()))),
            "kill-sandbox S, kill-sandbox S, stop A 10" => {
                assert_ne!(sandbox.network.unwrap().ip, "", "still set");
                let rows = recorder.cri.sandboxes().await;
                assert_eq!(rows[0].state(), v1::PodSandboxState::SandboxNotready);
            }
            _ if steps.ends_with("remove-sandbox S") && mode == "containerd-2" => {
                assert_eq!(sandbox.created_at, GO_ZERO_TIME);
                assert_eq!(sandbox.metadata.unwrap().uid, "uid-p");
                assert!(recorder.cri.sandboxes().await.is_empty());
            }
            _ => {}
        }
        recorder.sim.shutdown().await;
    }
}

/// The time and the containers that PodSandboxStatus returns, by version.
#[tokio::test]
async fn pod_sandbox_status_by_version() {
    let (seconds, nanos) = (1_700_000_000, 1_700_000_000_000_000_000);
    for (mode, version, since, containers) in [
        (Mode::Containerd2, "v2.0.2", nanos, 0),
        (Mode::Crio, "1.28.0", seconds, 1),
        (Mode::CrioDisabled, "1.36.3", 0, 0),
    ] {
        let sim = sim().mode(mode).runtime_version(version).build();
        let mut cri = Client::connect(&sim).await;
        let s = cri.run("p").await;
        cri.create_and_start(&s, "a", "").await;
        let response = cri.sandbox_status(&s).await.unwrap();
        let later = response.timestamp - since;
        assert!(
            (0..1000).contains(&later) && (since > 0 || later == 0),
            "{version}: {later}"
        );
        assert_eq!(response.containers_statuses.len(), containers, "{version}");
        assert_eq!(response.status.unwrap().id, s);
        sim.shutdown().await;
    }
}

/// Every timestamp is later than what the statuses show, and the times of a container are in order.
#[tokio::test]
async fn events_are_stamped_after_their_statuses() {
    let sim = sim().build();
    let mut events = Events::subscribe(&sim).await;
    let mut cri = Client::connect(&sim).await;
    let s = cri.run("p").await;
    cri.create_and_start(&s, "a", "exit 3").await;
    let mut last = 0;
    for _ in 0..5 {
        let event = events.next().await;
        let sandbox = event.pod_sandbox_status.unwrap();
        assert!(event.created_at > sandbox.created_at);
        assert!(event.created_at > last);
        last = event.created_at;
        for c in event.containers_statuses {
            assert!(event.created_at > c.created_at.max(c.started_at).max(c.finished_at));
            if c.state() == ContainerState::ContainerExited {
                assert!(c.created_at < c.started_at && c.started_at < c.finished_at);
                assert_eq!((c.exit_code, c.reason.as_str()), (3, "Error"));
            }
        }
    }
    sim.shutdown().await;
}
