//! The event sequences of a pod's life, by runtime: reference/runtimes.md 7.1 to 7.4.
//!
//! One script for every runtime; what is told of it is written out for each. Events of exits are
//! awaited before the script goes on, so that the order is the one order there can be.

use crate::common::{Client, Events, golden, pod_config, sim, sim_of};
use pleg_cri::v1::{self, ContainerEventType as Kind};
use pleg_sim::{Mode, Sim};

const GONE: i64 = -6_795_364_578_871_345_152;

/// What a simulator tells, as text.
struct Told {
    sim: Sim,
    cri: Client,
    events: Events,
    names: Vec<(String, &'static str)>,
    told: Vec<String>,
}

impl Told {
    async fn by(sim: Sim) -> Self {
        Self {
            events: Events::subscribe(&sim).await,
            cri: Client::of(&sim).await,
            sim,
            names: Vec::new(),
            told: Vec::new(),
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

    /// Takes that many events.
    async fn hear(&mut self, count: usize) -> v1::ContainerEventResponse {
        let names: Vec<_> = self.names.iter().map(|(id, n)| (id.as_str(), *n)).collect();
        let mut last = None;
        for _ in 0..count {
            let event = self.events.next().await;
            self.told.push(golden(&event, &names));
            last = Some(event);
        }
        last.unwrap()
    }

    /// All that was told so far. Nothing more comes.
    async fn all(&mut self) -> Vec<String> {
        assert!(self.events.is_silent().await, "after {:?}", self.told);
        std::mem::take(&mut self.told)
    }
}

/// 7.1 to 7.3: two containers, a crash, a restart, the remains removed, stopped, removed.
/// `removals` is how many events the last call tells.
async fn a_life(mut t: Told, starts: usize, removals: usize) -> Vec<String> {
    let s = t.run("S", 0).await;
    let a = t.start(&s, "A", 0).await;
    let b = t.start(&s, "B", 0).await;
    t.hear(starts + 4).await;
    assert!(t.sim.kill_container(&a, 1));
    t.hear(1).await;
    let a1 = t.start(&s, "A'", 1).await;
    t.cri.remove(&a).await;
    t.hear(3).await;
    t.cri.stop(&a1, 10).await;
    t.hear(1).await;
    t.cri.stop(&b, 0).await;
    t.hear(1).await;
    t.cri.stop_sandbox(&s).await;
    t.hear(1).await;
    t.cri.stop_sandbox(&s).await;
    t.cri.remove(&a1).await;
    t.cri.remove(&b).await;
    t.cri.remove_sandbox(&s).await;
    t.cri.remove_sandbox(&s).await;
    t.hear(2).await;
    if removals > 0 {
        let last = t.hear(removals).await;
        let created_at = last.pod_sandbox_status.map(|s| s.created_at);
        let nil = t.sim.mode() == Mode::Containerd17;
        assert_eq!(created_at, (!nil).then_some(GONE));
    }
    let told = t.all().await;
    t.sim.shutdown().await;
    told
}

const CONTAINERD: [&str; 14] = [
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
];

#[tokio::test(start_paused = true)]
async fn a_life_on_containerd_1_7() {
    let told = a_life(Told::by(sim_of(Mode::Containerd17)).await, 2, 1).await;
    assert_eq!(told[..14], CONTAINERD);
    assert_eq!(told[14..], ["DELETED(B) NOTREADY []", "DELETED(S) nil []"]);
}

#[tokio::test(start_paused = true)]
async fn a_life_on_containerd_2() {
    let told = a_life(Told::by(sim_of(Mode::Containerd2)).await, 2, 1).await;
    assert_eq!(told[..14], CONTAINERD);
    let end = ["DELETED(B) NOTREADY []", "DELETED(S) NOTREADY []"];
    assert_eq!(told[14..], end);
}

/// The same but for the sandbox: neither its creation nor its removal is told.
#[tokio::test(start_paused = true)]
async fn a_life_on_crio() {
    for version in ["1.36.3", "1.30.1", "1.28.0", "1.27.1"] {
        let sim = sim().mode(Mode::Crio).runtime_version(version).build();
        let told = a_life(Told::by(sim).await, 1, 0).await;
        assert_eq!(told[..13], CONTAINERD[1..], "{version}");
        assert_eq!(told[13..], ["DELETED(B) NOTREADY []"], "{version}");
    }
}

/// CRI-O 1.31 to 1.34: what has just gone leaves an empty element.
#[tokio::test(start_paused = true)]
async fn crio_leaves_holes() {
    for (version, empty) in [("1.30.9", 0), ("1.31.0", 1), ("1.34.11", 1), ("1.35.0", 0)] {
        let sim = sim().mode(Mode::Crio).runtime_version(version).build();
        let mut t = Told::by(sim).await;
        let s = t.run("S", 0).await;
        let a = t.create(&s, "A", 0).await;
        t.cri.remove(&a).await;
        let event = t.hear(3).await;
        assert_eq!(event.container_event_type(), Kind::ContainerDeletedEvent);
        let holes = event.containers_statuses.iter().filter(|c| c.id.is_empty());
        assert_eq!(holes.count(), empty, "{version}");
        t.sim.shutdown().await;
    }
}

/// CRI-O ≤ 1.27.0 tells a removal as it stops a container.
#[tokio::test(start_paused = true)]
async fn old_crio_tells_a_stop_as_a_removal() {
    let sim = sim().mode(Mode::Crio).runtime_version("1.27.0").build();
    let mut t = Told::by(sim).await;
    let s = t.run("S", 0).await;
    let a = t.start(&s, "A", 0).await;
    t.hear(3).await;
    t.cri.stop(&a, 0).await;
    t.hear(2).await;
    let mut told = t.all().await.split_off(3);
    told.sort();
    let exited = "READY [A:EXITED=137 Error]";
    assert_eq!(
        told,
        [
            format!("DELETED(A) {exited}"),
            format!("STOPPED(A) {exited}")
        ]
    );
    t.sim.shutdown().await;
}

/// Removing a pod that runs: its containers' removals are told by containerd alone.
#[tokio::test(start_paused = true)]
async fn a_running_pod_is_removed() {
    let stopped = [
        "STOPPED(A) READY [A:EXITED=137 Error]",
        "STOPPED(S) NOTREADY [A:EXITED=137 Error]",
    ];
    for (mode, starts, removals) in [
        (
            Mode::Containerd17,
            4,
            &["DELETED(A) NOTREADY []", "DELETED(S) nil []"][..],
        ),
        (
            Mode::Containerd2,
            4,
            &["DELETED(A) NOTREADY []", "DELETED(S) NOTREADY []"],
        ),
        (Mode::Crio, 3, &[]),
    ] {
        let mut t = Told::by(sim_of(mode)).await;
        let s = t.run("S", 0).await;
        t.start(&s, "A", 0).await;
        t.hear(starts).await;
        t.cri.remove_sandbox(&s).await;
        t.hear(2 + removals.len()).await;
        let told = t.all().await.split_off(starts);
        assert_eq!(told[2..], *removals, "{mode}");
        // CRI-O tells the sandbox's end within the call, and may overtake the container's.
        let mut ends = told[..2].to_vec();
        ends.sort();
        if mode == Mode::Crio {
            let states: Vec<_> = ends.iter().filter_map(|e| e.split(' ').next()).collect();
            assert_eq!(states, ["STOPPED(A)", "STOPPED(S)"]);
        } else {
            assert_eq!(ends, stopped, "{mode}");
        }
        t.sim.shutdown().await;
    }
}

/// 7.2: a new sandbox of the same pod. containerd shows its own containers, CRI-O all the pod's.
#[tokio::test(start_paused = true)]
async fn a_second_sandbox_of_a_pod() {
    for (mode, first, shown) in [
        (Mode::Containerd17, 2, "[B:RUNNING]"),
        (Mode::Containerd2, 2, "[B:RUNNING]"),
        (Mode::Crio, 1, "[A:EXITED=137 Error, B:RUNNING]"),
    ] {
        let mut t = Told::by(sim_of(mode)).await;
        let s = t.run("S", 0).await;
        t.start(&s, "A", 0).await;
        t.hear(first + 2).await;
        t.cri.stop_sandbox(&s).await;
        t.hear(2).await;
        let s2 = t.run("S2", 1).await;
        t.start(&s2, "B", 0).await;
        let last = t.hear(first + 2).await;
        assert_eq!(last.pod_sandbox_status.unwrap().id, s2);
        let told = t.all().await;
        assert_eq!(
            *told.last().unwrap(),
            format!("STARTED(B) READY {shown}"),
            "{mode}"
        );
        t.sim.shutdown().await;
    }
}

/// 7.2: a start that fails tells nothing. containerd keeps the container, CRI-O removes it.
#[tokio::test(start_paused = true)]
async fn a_start_fails() {
    for (mode, starts, stays) in [
        (Mode::Containerd17, 2, true),
        (Mode::Containerd2, 2, true),
        (Mode::Crio, 1, false),
    ] {
        let mut t = Told::by(sim_of(mode)).await;
        let s = t.run("S", 0).await;
        let a = t.cri.create(&s, "a", 0, "fail-start").await;
        t.cri.try_start(&a).await.unwrap_err();
        t.hear(starts + 1).await;
        t.all().await;
        let status = t.cri.status(&a).await.ok();
        let expected = stays.then(|| (128, "StartError".to_owned()));
        assert_eq!(status.map(|s| (s.exit_code, s.reason)), expected, "{mode}");
        t.sim.shutdown().await;
    }
}

/// 7.2: why a container ended is known in time, or only afterwards, by version.
#[tokio::test(start_paused = true)]
async fn out_of_memory() {
    for (mode, version, told) in [
        (Mode::Containerd17, "1.7.24", "Error"),
        (Mode::Containerd2, "v2.2.7", "Error"),
        (Mode::Containerd2, "v2.3.0", "OOMKilled"),
        (Mode::Crio, "1.36.3", "OOMKilled"),
    ] {
        let sim = sim().mode(mode).runtime_version(version).build();
        let mut t = Told::by(sim).await;
        let s = t.run("S", 0).await;
        let a = t.start(&s, "A", 0).await;
        t.hear(if mode == Mode::Crio { 3 } else { 4 }).await;
        assert!(t.sim.oom_kill_container(&a));
        let event = t.hear(1).await;
        assert_eq!(event.containers_statuses[0].reason, told, "{version}");
        t.all().await;
        let status = t.cri.status(&a).await.unwrap();
        assert_eq!(
            (status.exit_code, status.reason.as_str()),
            (137, "OOMKilled"),
            "{version}"
        );
        t.sim.shutdown().await;
    }
}

fn shared(mut config: v1::PodSandboxConfig) -> v1::PodSandboxConfig {
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

/// 7.4: the pause process is killed. Its containers go with it only where they share its process
/// namespace; only then has CRI-O such a process at all.
#[tokio::test(start_paused = true)]
async fn the_pause_process_is_killed() {
    for mode in [Mode::Containerd17, Mode::Containerd2, Mode::Crio] {
        let crio = mode == Mode::Crio;
        for shares in [false, true] {
            let mut t = Told::by(sim_of(mode)).await;
            let config = pod_config("p");
            let config = if shares { shared(config) } else { config };
            let s = t.cri.try_run_as(config).await.unwrap();
            t.names.push((s.clone(), "S"));
            t.start(&s, "A", 0).await;
            t.hear(if crio { 3 } else { 4 }).await;
            t.told.clear();
            assert_eq!(t.sim.kill_sandbox(&s), shares || !crio, "{mode}");
            assert!(!t.sim.kill_sandbox(&s), "once");
            if shares {
                t.hear(2).await;
                let told = t.all().await;
                let mut subjects: Vec<_> = told.iter().map(|e| &e[..10]).collect();
                subjects.sort_unstable();
                assert_eq!(subjects, ["STOPPED(A)", "STOPPED(S)"], "{mode}");
            } else if crio {
                assert!(t.all().await.is_empty());
            } else {
                let event = t.hear(1).await;
                assert!(
                    !event
                        .pod_sandbox_status
                        .unwrap()
                        .network
                        .unwrap()
                        .ip
                        .is_empty()
                );
                assert_eq!(t.all().await, ["STOPPED(S) NOTREADY [A:RUNNING]"], "{mode}");
            }
            t.sim.shutdown().await;
        }
    }
}

/// Section 2: what PodSandboxStatus has beside the status, by version.
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
        let mut cri = Client::of(&sim).await;
        let s = cri.run("p").await;
        cri.create_and_start(&s, "a", "").await;
        let answer = cri.sandbox_status(&s).await.unwrap();
        let later = answer.timestamp - since;
        assert!(
            (0..1000).contains(&later) && (since > 0 || later == 0),
            "{version}: {later}"
        );
        assert_eq!(answer.containers_statuses.len(), containers, "{version}");
        assert_eq!(answer.status.unwrap().id, s);
        sim.shutdown().await;
    }
}
