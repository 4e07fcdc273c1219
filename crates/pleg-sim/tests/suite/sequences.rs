//! The event sequences of a pod's lifecycle, as clients see them. `pleg-node-model` tests which events each
//! runtime sends; these tests see that the simulator follows it, and what it adds.
//!
//! The test waits for the event of an exit before the next step, so that only one order is possible.

use crate::common::{Client, Events, event_text, pod_config, sim, sim_with_mode};
use pleg_cri::v1::{
    self, ContainerEventType as Kind, ContainerFilter, ContainerState, PodSandboxFilter,
    PodSandboxState,
};
use pleg_sim::{Mode, Sim};

/// Go's zero time, as containerd 2 sends it.
const GO_ZERO_TIME: i64 = -6_795_364_578_871_345_152;

/// Records the events of a simulator as text.
struct Recorder {
    sim: Sim,
    cri: Client,
    events: Events,
    names: Vec<(String, &'static str)>,
    recorded: Vec<String>,
}

impl Recorder {
    async fn new(sim: Sim) -> Self {
        Self {
            events: Events::subscribe(&sim).await,
            cri: Client::connect(&sim).await,
            sim,
            names: Vec::new(),
            recorded: Vec::new(),
        }
    }

    async fn run(&mut self, name: &'static str, attempt: u32) -> String {
        let mut config = pod_config("p");
        config.metadata.as_mut().unwrap().attempt = attempt;
        let id = self.cri.try_run_as(config).await.unwrap();
        self.names.push((id.clone(), name));
        id
    }

    async fn create(&mut self, sandbox: &str, name: &'static str, attempt: u32) -> String {
        let metadata_name = name.trim_end_matches('\'').to_lowercase();
        let id = self
            .cri
            .create(sandbox, &metadata_name, attempt, "app")
            .await;
        self.names.push((id.clone(), name));
        id
    }

    async fn start(&mut self, sandbox: &str, name: &'static str, attempt: u32) -> String {
        let id = self.create(sandbox, name, attempt).await;
        self.cri.start(&id).await;
        id
    }

    /// Records that many events and returns the last.
    async fn record(&mut self, count: usize) -> v1::ContainerEventResponse {
        let names: Vec<_> = self.names.iter().map(|(id, n)| (id.as_str(), *n)).collect();
        let mut last = None;
        for _ in 0..count {
            let event = self.events.next().await;
            self.recorded.push(event_text(&event, &names));
            last = Some(event);
        }
        last.unwrap()
    }

    /// Takes all recorded events. Asserts that no more events arrive.
    async fn take_all(&mut self) -> Vec<String> {
        assert!(self.events.is_silent().await, "after {:?}", self.recorded);
        std::mem::take(&mut self.recorded)
    }
}

/// Two containers, an exit, a restart, and the removal of everything. A second stop or removal sends
/// no second event.
#[tokio::test(start_paused = true)]
async fn each_step_of_a_pod_sends_its_event_once() {
    let mut recorder = Recorder::new(sim_with_mode(Mode::Containerd2)).await;
    let s = recorder.run("S", 0).await;
    let a = recorder.start(&s, "A", 0).await;
    let b = recorder.start(&s, "B", 0).await;
    recorder.record(6).await;
    assert!(recorder.sim.kill_container(&a, 1));
    recorder.record(1).await;
    let a1 = recorder.start(&s, "A'", 1).await;
    recorder.cri.remove(&a).await;
    recorder.record(3).await;
    recorder.cri.stop(&a1, 10).await;
    recorder.record(1).await;
    recorder.cri.stop(&b, 0).await;
    recorder.record(1).await;
    recorder.cri.stop_sandbox(&s).await;
    recorder.record(1).await;
    recorder.cri.stop_sandbox(&s).await;
    recorder.cri.remove(&a1).await;
    recorder.cri.remove(&b).await;
    recorder.cri.remove(&b).await;
    recorder.cri.remove_sandbox(&s).await;
    recorder.cri.remove_sandbox(&s).await;
    let last = recorder.record(3).await.pod_sandbox_status.unwrap();
    assert_eq!(last.created_at, GO_ZERO_TIME);
    assert_eq!(last.metadata.unwrap().uid, "uid-p");
    let recorded = recorder.take_all().await;
    assert_eq!(recorded, LIFECYCLE);
    let all = PodSandboxFilter::default();
    assert!(recorder.cri.sandboxes(all).await.is_empty());
    // The name is free again.
    recorder.run("S", 0).await;
    recorder.record(2).await;
    assert_eq!(recorder.take_all().await, recorded[..2]);
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

/// CRI-O 1.31 to 1.34: a removed container leaves an empty status.
#[tokio::test(start_paused = true)]
async fn crio_sends_empty_status_for_removed_container() {
    let sim = sim().mode(Mode::Crio).runtime_version("1.31.0").build();
    let mut recorder = Recorder::new(sim).await;
    let s = recorder.run("S", 0).await;
    let a = recorder.create(&s, "A", 0).await;
    recorder.cri.remove(&a).await;
    let event = recorder.record(3).await;
    assert_eq!(event.container_event_type(), Kind::ContainerDeletedEvent);
    assert_eq!(event.containers_statuses, [v1::ContainerStatus::default()]);
    recorder.sim.shutdown().await;
}

/// CRI-O up to 1.27.0 sends DELETED for a stopped container.
#[tokio::test(start_paused = true)]
async fn old_crio_sends_deleted_for_stopped_container() {
    let sim = sim().mode(Mode::Crio).runtime_version("1.27.0").build();
    let mut recorder = Recorder::new(sim).await;
    let s = recorder.run("S", 0).await;
    let a = recorder.start(&s, "A", 0).await;
    recorder.record(3).await;
    recorder.cri.stop(&a, 0).await;
    recorder.record(2).await;
    let mut recorded = recorder.take_all().await.split_off(3);
    recorded.sort();
    let exited = ["DELETED(A)", "STOPPED(A)"].map(|e| format!("{e} READY [A:EXITED=137 Error]"));
    assert_eq!(recorded, exited);
    recorder.sim.shutdown().await;
}

/// The removal of a running pod: only containerd sends DELETED for its containers.
#[tokio::test(start_paused = true)]
async fn removal_of_running_pod_by_runtime() {
    let stopped = [
        "STOPPED(A) READY [A:EXITED=137 Error]",
        "STOPPED(S) NOTREADY [A:EXITED=137 Error]",
    ];
    let deleted = "DELETED(A) NOTREADY []";
    for (mode, starts, removals) in [
        (Mode::Containerd17, 4, &[deleted, "DELETED(S) nil []"][..]),
        (Mode::Containerd2, 4, &[deleted, "DELETED(S) NOTREADY []"]),
        (Mode::Crio, 3, &[]),
    ] {
        let mut recorder = Recorder::new(sim_with_mode(mode)).await;
        let s = recorder.run("S", 0).await;
        recorder.start(&s, "A", 0).await;
        recorder.record(starts).await;
        recorder.cri.remove_sandbox(&s).await;
        recorder.record(2 + removals.len()).await;
        let recorded = recorder.take_all().await.split_off(starts);
        assert_eq!(recorded[2..], *removals, "{mode}");
        if mode == Mode::Crio {
            // It sends STOPPED of the sandbox within the call, which may overtake the container's.
            let mut states: Vec<_> = recorded[..2].iter().map(|e| &e[..10]).collect();
            states.sort_unstable();
            assert_eq!(states, ["STOPPED(A)", "STOPPED(S)"]);
        } else {
            assert_eq!(recorded[..2], stopped, "{mode}");
        }
        recorder.sim.shutdown().await;
    }
}

/// The labels of containers decide: CRI-O shows all of the pod, not only those of the new sandbox.
#[tokio::test(start_paused = true)]
async fn second_sandbox_of_crio_shows_containers_of_the_first() {
    let mut recorder = Recorder::new(sim_with_mode(Mode::Crio)).await;
    let s = recorder.run("S", 0).await;
    recorder.start(&s, "A", 0).await;
    recorder.record(3).await;
    recorder.cri.stop_sandbox(&s).await;
    recorder.record(2).await;
    let s2 = recorder.run("S2", 1).await;
    recorder.start(&s2, "B", 0).await;
    let last = recorder.record(3).await;
    assert_eq!(last.pod_sandbox_status.unwrap().id, s2);
    let recorded = recorder.take_all().await;
    let started = "STARTED(B) READY [A:EXITED=137 Error, B:RUNNING]";
    assert_eq!(recorded.last().unwrap(), started);
    recorder.sim.shutdown().await;
}

/// A failed start sends no event. containerd keeps the container, CRI-O removes it.
#[tokio::test(start_paused = true)]
async fn failed_start_sends_no_event_by_runtime() {
    for (mode, starts, is_kept) in [(Mode::Containerd2, 2, true), (Mode::Crio, 1, false)] {
        let mut recorder = Recorder::new(sim_with_mode(mode)).await;
        let s = recorder.run("S", 0).await;
        let a = recorder.cri.create(&s, "a", 0, "fail-start").await;
        let error = recorder.cri.try_start(&a).await.unwrap_err();
        assert_eq!(error.code(), tonic::Code::Unknown);
        recorder.names.push((a.clone(), "A"));
        recorder.record(starts + 1).await;
        let recorded = recorder.take_all().await;
        let created = "CREATED(A) READY [A:CREATED]";
        assert_eq!(recorded.last().unwrap(), created, "{mode}");
        let status = recorder.cri.status(&a).await.ok();
        let expected = is_kept.then(|| (128, "StartError".to_owned()));
        assert_eq!(status.map(|s| (s.exit_code, s.reason)), expected, "{mode}");
        let all = ContainerFilter::default();
        let mut listed = recorder.cri.containers(all).await.into_iter();
        let state = listed.next().map(|c| c.state());
        let exited = is_kept.then_some(ContainerState::ContainerExited);
        assert_eq!(state, exited, "{mode}");
        if is_kept {
            recorder.cri.remove(&a).await;
            recorder.record(1).await;
            assert_eq!(recorder.take_all().await, ["DELETED(A) READY []"]);
        }
        recorder.sim.shutdown().await;
    }
}

/// Whether the reason of an exit is known in time depends on the version.
#[tokio::test(start_paused = true)]
async fn oom_reason_is_in_event_by_version() {
    for (version, recorded) in [("v2.2.7", "Error"), ("v2.3.0", "OOMKilled")] {
        let sim = sim().runtime_version(version).build();
        let mut recorder = Recorder::new(sim).await;
        let s = recorder.run("S", 0).await;
        let a = recorder.start(&s, "A", 0).await;
        recorder.record(4).await;
        assert!(recorder.sim.oom_kill_container(&a));
        let event = recorder.record(1).await;
        assert_eq!(event.containers_statuses[0].reason, recorded, "{version}");
        recorder.take_all().await;
        let status = recorder.cri.status(&a).await.unwrap();
        assert_eq!((status.exit_code, &*status.reason), (137, "OOMKilled"));
        recorder.sim.shutdown().await;
    }
}

fn with_shared_processes(mut config: v1::PodSandboxConfig) -> v1::PodSandboxConfig {
    let options = v1::NamespaceOption {
        pid: v1::NamespaceMode::Pod.into(),
        ..Default::default()
    };
    let security = v1::LinuxSandboxSecurityContext {
        namespace_options: Some(options),
        ..Default::default()
    };
    config.linux = Some(v1::LinuxPodSandboxConfig {
        security_context: Some(security),
        ..Default::default()
    });
    config
}

/// The pause process is killed. Containers exit with it only if they share its process namespace,
/// and only then does CRI-O have such a process.
#[tokio::test(start_paused = true)]
async fn killed_pause_process_by_runtime() {
    for mode in [Mode::Containerd2, Mode::Crio] {
        let crio = mode == Mode::Crio;
        for shares in [false, true] {
            let mut recorder = Recorder::new(sim_with_mode(mode)).await;
            let mut config = pod_config("p");
            if shares {
                config = with_shared_processes(config);
            }
            let s = recorder.cri.try_run_as(config).await.unwrap();
            recorder.names.push((s.clone(), "S"));
            let a = recorder.start(&s, "A", 0).await;
            recorder.record(if crio { 3 } else { 4 }).await;
            recorder.recorded.clear();
            assert_eq!(recorder.sim.kill_sandbox(&s), shares || !crio, "{mode}");
            assert!(!recorder.sim.kill_sandbox(&s), "once");
            if shares {
                recorder.record(2).await;
                let recorded = recorder.take_all().await;
                let mut subjects: Vec<_> = recorded.iter().map(|e| &e[..10]).collect();
                subjects.sort_unstable();
                assert_eq!(subjects, ["STOPPED(A)", "STOPPED(S)"], "{mode}");
            } else if crio {
                assert!(recorder.take_all().await.is_empty());
            } else {
                let sandbox = recorder.record(1).await.pod_sandbox_status.unwrap();
                assert_ne!(sandbox.network.unwrap().ip, "", "still set");
                let rows = recorder.cri.sandboxes(PodSandboxFilter::default()).await;
                assert_eq!(rows[0].state(), PodSandboxState::SandboxNotready);
                recorder.cri.stop(&a, 10).await;
                recorder.record(1).await;
                let stopped = [
                    "STOPPED(S) NOTREADY [A:RUNNING]",
                    "STOPPED(A) NOTREADY [A:EXITED=0 Completed]",
                ];
                assert_eq!(recorder.take_all().await, stopped, "{mode}");
            }
            recorder.sim.shutdown().await;
        }
    }
}

/// What PodSandboxStatus returns beside the status, by version.
#[tokio::test]
async fn pod_sandbox_status_by_version() {
    let (seconds, nanos) = (1_700_000_000, 1_700_000_000_000_000_000);
    for (mode, version, since, containers) in [
        (Mode::Containerd17, "1.7.24", 0, 0),
        (Mode::Containerd2, "v2.0.2", nanos, 0),
        (Mode::Containerd2, "v2.0.3", 0, 0),
        (Mode::Crio, "1.28.0", seconds, 1),
        (Mode::Crio, "1.36.3", nanos, 1),
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
