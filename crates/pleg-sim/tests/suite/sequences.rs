//! Tests the event sequences that clients get for a pod. The tests of `pleg-node-model` check which events each runtime
//! sends; these tests check what the simulator adds: timestamps, refused steps, and answers to status calls.
//!
//! The test waits until every task is idle before the next step, so that the events of two steps cannot change places.

use crate::common::{Client, Events, event_text, namespaces, pod_config, sim};
use pleg_cri::v1::{self, ContainerState};
use pleg_node_model::GO_ZERO_TIME;
use pleg_sim::{Mode, Sim};

/// A simulator and its events. The pod has one sandbox S with one container A.
struct Recorder {
    sim: Sim,
    cri: Client,
    events: Events,
    s: String,
    a: String,
    last: v1::ContainerEventResponse,
}

impl Recorder {
    async fn new(mode: Mode, version: &str) -> Self {
        let sim = sim().mode(mode).runtime_version(version).build();
        Self {
            events: Events::subscribe(&sim).await,
            cri: Client::connect(&sim).await,
            sim,
            s: String::new(),
            a: String::new(),
            last: v1::ContainerEventResponse::default(),
        }
    }

    /// Does `steps`, such as `run, create, start`, and returns their events as text. Asserts that every timestamp is
    /// later than the times in the statuses, and that the times of a container are in order.
    async fn play(&mut self, steps: &str) -> Vec<String> {
        let mut recorded = Vec::new();
        for step in steps.split(", ") {
            if !self.step(step).await {
                recorded.push("refused".to_owned());
            }
            for event in self.events.all().await {
                let (at, sandbox) = (event.created_at, event.pod_sandbox_status.as_ref());
                assert!(at > self.last.created_at, "{event:?}");
                assert!(sandbox.is_none_or(|s| at > s.created_at), "{event:?}");
                for c in &event.containers_statuses {
                    let times = [c.created_at, c.started_at, c.finished_at];
                    assert!(times.iter().all(|time| at > *time), "{c:?}");
                    let has_ended = c.state() == ContainerState::ContainerExited;
                    assert!(!has_ended || times[0] < times[1] && times[1] < times[2]);
                }
                recorded.push(event_text(&event, &[(&self.s, "S"), (&self.a, "A")]));
                self.last = event;
            }
        }
        recorded
    }

    /// Does one step. Returns false if the simulator refuses the step.
    async fn step(&mut self, step: &str) -> bool {
        let (command, argument) = step.split_once(' ').unwrap_or((step, ""));
        let cri = &mut self.cri;
        match command {
            "run" => self.s = cri.run("p").await,
            "run-shared" => {
                let mut config = pod_config("p");
                namespaces(&mut config).pid = v1::NamespaceMode::Pod.into();
                self.s = cri.try_run(config).await.unwrap();
            }
            "create" => self.a = cri.create(&self.s, "a", 0, argument).await,
            "start" => return cri.try_start(&self.a).await.is_ok(),
            "stop" => cri.stop(&self.a, argument.parse().unwrap()).await,
            "remove" => cri.remove(&self.a).await,
            "remove-sandbox" => cri.remove_sandbox(&self.s).await,
            _ => {
                let id = if command == "oom" { &self.a } else { &self.s };
                return self.sim.control(&format!("{command} {id}")).await.is_ok();
            }
        }
        true
    }
}

/// Each paragraph is a case: a runtime, preparing steps, `=>`, steps under test, and the start of each event's text.
/// Events of CRI-O are sorted, because STOPPED of a sandbox may come before or after STOPPED of its containers.
const BY_RUNTIME: &str = "\
containerd-2 v2.4.0: run => remove-sandbox, remove-sandbox
STOPPED(S) NOTREADY []
DELETED(S) NOTREADY []

containerd-1.7 1.7.24: run, create, start => remove-sandbox
STOPPED(A) READY [A:EXITED=137 Error]
STOPPED(S) NOTREADY [A:EXITED=137 Error]
DELETED(A) NOTREADY []
DELETED(S) nil []

crio 1.36.3: run, create, start => remove-sandbox
STOPPED(A)
STOPPED(S)

crio 1.31.0: run, create => remove
DELETED(A) READY [?:CREATED]

crio 1.27.0: run, create, start => stop 0
DELETED(A) READY [A:EXITED=137 Error]
STOPPED(A) READY [A:EXITED=137 Error]

containerd-2 v2.2.7: run, create, start => oom
STOPPED(A) READY [A:EXITED=137 Error]

containerd-2 v2.4.0: run, create fail-start => start
refused

crio 1.36.3: run, create fail-start => start
refused

containerd-2 v2.4.0: run, create, start => kill-sandbox, kill-sandbox, stop 10
STOPPED(S) NOTREADY [A:RUNNING]
refused
STOPPED(A) NOTREADY [A:EXITED=0 Completed]

crio 1.36.3: run, create, start => kill-sandbox
refused

crio 1.36.3: run-shared, create, start => kill-sandbox, kill-sandbox
STOPPED(A)
STOPPED(S)
refused

containerd-2 v2.4.0: run, create app exit 3 50 => start
STARTED(A) READY [A:RUNNING]
STOPPED(A) READY [A:EXITED=3 Error]

containerd-2 v2.4.0: run, create app ignore-term, start => stop 10
STOPPED(A) READY [A:EXITED=137 Error]

containerd-2 v2.4.0: run, create app exit 1 3600000, start => stop 10
STOPPED(A) READY [A:EXITED=143 Error]";

#[tokio::test(start_paused = true)]
async fn event_sequence_of_a_pod_depends_on_runtime() {
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
        let Recorder { mut cri, last, .. } = recorder;
        let sandbox = last.pod_sandbox_status.unwrap_or_default();
        let status = cri.status(&recorder.a).await.ok();
        let status = status.map(|s| (s.exit_code, s.reason));
        // The timestamp and the containers of PodSandboxStatus depend on the version of the runtime.
        if let Ok(response) = cri.sandbox_status(&recorder.s).await {
            let time = match version {
                "1.36.3" => 1_700_000_000_000_000_000,
                _ if mode == "crio" => 1_700_000_000,
                _ => 0,
            };
            let later = response.timestamp - time;
            assert!((0..1000).contains(&later) && (time > 0 || later == 0));
            let containers = usize::from(mode == "crio" && status.is_some());
            assert_eq!(response.containers_statuses.len(), containers, "{title}");
            assert_eq!(response.status.unwrap().id, recorder.s);
        }
        match steps {
            "start" if before.ends_with("fail-start") => {
                let stays = mode != "crio";
                let expected = stays.then(|| (128, "StartError".to_owned()));
                assert_eq!(status, expected, "{title}");
                let rows = cri.containers().await.unwrap();
                assert_eq!(rows.len(), usize::from(stays), "{title}");
            }
            "oom" => assert_eq!(status, Some((137, "OOMKilled".to_owned()))),
            "kill-sandbox, kill-sandbox, stop 10" => {
                assert_ne!(sandbox.network.unwrap().ip, "", "still set");
                let state = cri.sandboxes().await[0].state();
                assert_eq!(state, v1::PodSandboxState::SandboxNotready);
            }
            "remove-sandbox, remove-sandbox" => {
                assert_eq!(sandbox.created_at, GO_ZERO_TIME);
                assert_eq!(sandbox.metadata.unwrap().uid, "uid-p");
                assert!(cri.sandboxes().await.is_empty());
            }
            _ => {}
        }
        recorder.sim.shutdown().await;
    }
}
