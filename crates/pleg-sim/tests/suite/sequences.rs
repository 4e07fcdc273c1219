//! The event sequences of a pod's lifecycle, as clients see them. `pleg-node-model` tests which events each
//! runtime sends; these tests see that the simulator follows it, and what it adds.
//!
//! The test waits until every task is idle before the next step, so that only one order is possible.

use std::collections::HashMap;

use crate::common::{Client, Events, event_text, pod_config, sim};
use pleg_cri::v1::{
    self, ContainerEventType as Kind, ContainerFilter, ContainerState, PodSandboxFilter,
};
use pleg_sim::{Mode, Sim};

/// Go's zero time, as containerd 2 sends it.
const GO_ZERO_TIME: i64 = -6_795_364_578_871_345_152;

/// A simulator and its events. Ids have names: S for a sandbox, A for a container.
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
            while !self.events.is_silent().await {
                self.last = self.events.take_kept();
                recorded.push(event_text(&self.last, &names));
            }
        }
        recorded
    }

    /// Does one step. Returns false if the control command is refused.
    async fn step(&mut self, step: &str) -> bool {
        let words: Vec<_> = step.split(' ').collect();
        let id = |name: &str| self.ids[name].clone();
        let cri = &mut self.cri;
        let new = match words[..] {
            ["run", _, attempt] | ["run-shared", _, attempt] => {
                let mut config = pod_config("p");
                config.metadata.as_mut().unwrap().attempt = attempt.parse().unwrap();
                if words[0] == "run-shared" {
                    config.linux = Some(shared_processes());
                }
                cri.try_run_as(config).await.unwrap()
            }
            ["create", sandbox, name, attempt, ref command @ ..]
            | ["start", sandbox, name, attempt, ref command @ ..] => {
                let name = name.trim_end_matches('\'').to_lowercase();
                let attempt = attempt.parse().unwrap();
                let command = command.join(" ");
                let container = cri.create(&id(sandbox), &name, attempt, &command).await;
                if words[0] == "start" {
                    cri.start(&container).await;
                }
                container
            }
            [command, name, ref args @ ..] => {
                let id = id(name);
                match command {
                    "stop" => cri.stop(&id, args[0].parse().unwrap()).await,
                    "remove" => cri.remove(&id).await,
                    "stop-sandbox" => cri.stop_sandbox(&id).await,
                    "remove-sandbox" => cri.remove_sandbox(&id).await,
                    _ => return self.sim.control(&format!("{command} {id}")).await.is_ok(),
                }
                return true;
            }
            _ => return false,
        };
        let is_sandbox = words[0].starts_with("run");
        let name = words[if is_sandbox { 1 } else { 2 }];
        self.ids.insert(name.to_owned(), new);
        true
    }
}

fn shared_processes() -> v1::LinuxPodSandboxConfig {
    let options = v1::NamespaceOption {
        pid: v1::NamespaceMode::Pod.into(),
        ..Default::default()
    };
    let security = v1::LinuxSandboxSecurityContext {
        namespace_options: Some(options),
        ..Default::default()
    };
    v1::LinuxPodSandboxConfig {
        security_context: Some(security),
        ..Default::default()
    }
}

/// Two containers, an exit, a restart, and the removal of everything. A second stop or removal sends
/// no second event.
#[tokio::test(start_paused = true)]
async fn each_step_of_a_pod_sends_its_event_once() {
    let mut recorder = Recorder::new(Mode::Containerd2, "v2.4.0").await;
    let start = "run S 0, start S A 0, start S B 0, exit A, start S A' 1, remove A";
    let stop = "stop A' 10, stop B 0, stop-sandbox S, stop-sandbox S";
    let remove = "remove A', remove B, remove B, remove-sandbox S, remove-sandbox S";
    let recorded = recorder.play(&format!("{start}, {stop}, {remove}")).await;
    assert_eq!(recorded, LIFECYCLE);
    let last = recorder.last.pod_sandbox_status.take().unwrap();
    assert_eq!(last.created_at, GO_ZERO_TIME);
    assert_eq!(last.metadata.unwrap().uid, "uid-p");
    let all = PodSandboxFilter::default();
    assert!(recorder.cri.sandboxes(all).await.is_empty());
    // The name is free again.
    assert_eq!(recorder.play("run S 0").await, LIFECYCLE[..2]);
    recorder.sim.shutdown().await;
}

const LIFECYCLE: [&str; 16] = [
    "CREATED(S) READY []",
    "STARTED(S) READY []",
    "CREATED(A) READY [A:CREATED]",
    "STARTED(A) READY [A:RUNNING]",
    "CREATED(B) READY [A:RUNNING, B:CREATED]",
    "STARTED(B) READY [A:RUNNING, B:RUNNING]",
    "STOPPED(A) READY [A:EXITED=1 Error, B:RUNNING]",
    "CREATED(A') READY [A':CREATED, A:EXITED=1 Error, B:RUNNING]",
    "STARTED(A') READY [A':RUNNING, A:EXITED=1 Error, B:RUNNING]",
    "DELETED(A) READY [A':RUNNING, B:RUNNING]",
    "STOPPED(A') READY [A':EXITED=0 Completed, B:RUNNING]",
    "STOPPED(B) READY [A':EXITED=0 Completed, B:EXITED=137 Error]",
    "STOPPED(S) NOTREADY [A':EXITED=0 Completed, B:EXITED=137 Error]",
    "DELETED(A') NOTREADY [B:EXITED=137 Error]",
    "DELETED(B) NOTREADY []",
    "DELETED(S) NOTREADY []",
];

/// A runtime, steps => the last steps, and the events of these. The order is free for CRI-O, which sends
/// STOPPED of a sandbox within the call; only the beginnings of its events are compared.
const BY_RUNTIME: &str = "\
containerd-1.7 1.7.24: run S 0, start S A 0 => remove-sandbox S
STOPPED(A) READY [A:EXITED=137 Error]
STOPPED(S) NOTREADY [A:EXITED=137 Error]
DELETED(A) NOTREADY []
DELETED(S) nil []

containerd-2 v2.4.0: run S 0, start S A 0 => remove-sandbox S
STOPPED(A) READY [A:EXITED=137 Error]
STOPPED(S) NOTREADY [A:EXITED=137 Error]
DELETED(A) NOTREADY []
DELETED(S) NOTREADY []

crio 1.36.3: run S 0, start S A 0 => remove-sandbox S
STOPPED(A)
STOPPED(S)

crio 1.31.0: run S 0, create S A 0 => remove A
DELETED(A) READY [?:CREATED]

crio 1.27.0: run S 0, start S A 0 => stop A 0
DELETED(A) READY [A:EXITED=137 Error]
STOPPED(A) READY [A:EXITED=137 Error]

crio 1.36.3: run S 0, start S A 0, stop-sandbox S, run T 1 => start T B 0
CREATED(B) READY [A:EXITED=137 Error, B:CREATED]
STARTED(B) READY [A:EXITED=137 Error, B:RUNNING]

containerd-2 v2.2.7: run S 0, start S A 0 => oom A
STOPPED(A) READY [A:EXITED=137 Error]

containerd-2 v2.3.0: run S 0, start S A 0 => oom A
STOPPED(A) READY [A:EXITED=137 OOMKilled]

containerd-2 v2.4.0: run S 0, start S A 0 => kill-sandbox S, kill-sandbox S, stop A 10
STOPPED(S) NOTREADY [A:RUNNING]
refused
STOPPED(A) NOTREADY [A:EXITED=0 Completed]

crio 1.36.3: run S 0, start S A 0 => kill-sandbox S
refused

containerd-2 v2.4.0: run-shared S 0, start S A 0 => kill-sandbox S
STOPPED(S) NOTREADY [A:RUNNING]
STOPPED(A) NOTREADY [A:EXITED=137 Error]

crio 1.36.3: run-shared S 0, start S A 0 => kill-sandbox S, kill-sandbox S
STOPPED(A)
STOPPED(S)
refused";

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
        let expected: Vec<_> = expected.lines().collect();
        if mode == "crio" {
            recorded.sort();
            let each = recorded.iter().zip(&expected);
            let begin = each.filter(|(event, begin)| event.starts_with(**begin));
            assert_eq!(begin.count(), expected.len(), "{title}: {recorded:?}");
        }
        let count = if mode == "crio" { 0 } else { expected.len() };
        assert_eq!(recorded[..count], expected[..count], "{title}");
        assert_eq!(recorded.len(), expected.len(), "{title}: {recorded:?}");
        if steps.starts_with("oom") {
            let status = recorder.cri.status(&recorder.ids["A"]).await.unwrap();
            assert_eq!((status.exit_code, &*status.reason), (137, "OOMKilled"));
        }
        if steps.starts_with("kill-sandbox") && expected.len() > 1 {
            let sandbox = recorder.last.pod_sandbox_status.unwrap();
            assert_ne!(sandbox.network.unwrap().ip, "", "still set");
            let rows = recorder.cri.sandboxes(PodSandboxFilter::default()).await;
            assert_eq!(rows[0].state(), v1::PodSandboxState::SandboxNotready);
        }
        recorder.sim.shutdown().await;
    }
}

/// A failed start sends no event. containerd keeps the container, CRI-O removes it.
#[tokio::test(start_paused = true)]
async fn failed_start_sends_no_event_by_runtime() {
    for (mode, is_kept) in [(Mode::Containerd2, true), (Mode::Crio, false)] {
        let mut recorder = Recorder::new(mode, mode.default_version()).await;
        recorder.play("run S 0, create S A 0 fail-start").await;
        let a = recorder.ids["A"].clone();
        let error = recorder.cri.try_start(&a).await.unwrap_err();
        assert_eq!(error.code(), tonic::Code::Unknown);
        assert!(recorder.events.is_silent().await, "{mode}");
        let status = recorder.cri.status(&a).await.ok();
        let expected = is_kept.then(|| (128, "StartError".to_owned()));
        assert_eq!(status.map(|s| (s.exit_code, s.reason)), expected, "{mode}");
        let listed = recorder.cri.containers(ContainerFilter::default()).await;
        let states: Vec<_> = listed.iter().map(v1::Container::state).collect();
        let exited = [ContainerState::ContainerExited];
        assert_eq!(states, exited[..usize::from(is_kept)], "{mode}");
        if is_kept {
            assert_eq!(recorder.play("remove A").await, ["DELETED(A) READY []"]);
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

#[tokio::test(start_paused = true)]
async fn containers_exit_as_their_commands_say() {
    let sim = sim().build();
    let mut events = Events::subscribe(&sim).await;
    let mut cri = Client::connect(&sim).await;
    let s = cri.run("p").await;
    let zero = cri.create_and_start(&s, "zero", "app exit 0 50").await;
    let late = cri
        .create_and_start(&s, "late", "sh -c exit 42 15000")
        .await;
    let hard = cri.create_and_start(&s, "hard", "app ignore-term").await;
    let stopped = cri
        .create_and_start(&s, "stopped", "app exit 1 3600000")
        .await;
    cri.stop(&hard, 10).await; // it ignores SIGTERM
    cri.stop(&stopped, 10).await;
    let mut stopped_ids = Vec::new();
    while stopped_ids.len() < 4 {
        let event = events.next().await;
        if event.container_event_type() == Kind::ContainerStoppedEvent {
            stopped_ids.push(event.container_id);
        }
    }
    assert_eq!(
        stopped_ids,
        [zero.clone(), hard.clone(), stopped.clone(), late.clone()]
    );
    for (id, code, reason) in [
        (zero, 0, "Completed"),
        (late, 42, "Error"),
        (hard, 137, "Error"),
        (stopped, 143, "Error"),
    ] {
        let status = cri.status(&id).await.unwrap();
        assert_eq!((status.exit_code, status.reason.as_str()), (code, reason));
    }
    sim.shutdown().await;
}
