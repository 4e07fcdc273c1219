//! The simulator compared with real runtimes: one script on `pleg-sim` and on a daemon of the same
//! version, and the events that each sends.
//!
//! Ids are replaced by names. Compared are the type and the subject of every event, whether it has a
//! sandbox status and in which state, and the state, exit code and reason of every container that it
//! shows. Each step waits for its events, so their order is undefined only where containerd leaves it
//! undefined: events of several exits that one call causes come from different goroutines. The events
//! of such a step are compared as a set, and of their statuses only the state of the subject.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use pleg::core::Id;
use pleg_cri::v1::runtime_service_client::RuntimeServiceClient;
use pleg_cri::v1::{self, ContainerEventType as Kind};
use pleg_cri::{CriConfig, CriRuntime, Endpoint};
use pleg_sim::{Mode, Sim};
use pleg_tests::daemon::{Daemon, Version};
use pleg_tests::kubelet::{Kubelet, Life, Pod};
use tokio::sync::mpsc;
use tonic::transport::Channel;

use crate::{SOON, with_daemon};

#[tokio::test(flavor = "multi_thread")]
async fn simulator_sends_the_events_of_1_7() -> anyhow::Result<()> {
    with_daemon(Version::V1_7, async |daemon: &_| {
        compare_events(daemon, Mode::Containerd17).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn simulator_sends_the_events_of_2() -> anyhow::Result<()> {
    with_daemon(Version::V2, async |daemon: &_| {
        compare_events(daemon, Mode::Containerd2).await
    })
    .await
}

async fn compare_events(daemon: &Daemon, mode: Mode) -> anyhow::Result<()> {
    let answer = daemon.runtime()?.runtime_client();
    let answer = answer
        .clone()
        .version(v1::VersionRequest::default())
        .await?
        .into_inner();
    mode.check_version(&answer.runtime_version)?;
    let real = {
        let kubelet = Kubelet::new(daemon)?;
        let kill = |signal: &str, pid: &str| {
            let killed = std::process::Command::new("kill")
                .args([signal, pid])
                .status();
            killed.is_ok_and(|status| status.success())
        };
        let mut script = Script::new(&daemon.endpoint, kubelet).await?;
        script
            .play(async |s: &mut Script, victim: Victim<'_>| {
                let (pid, signal) = match victim {
                    Victim::Sandbox(id) => (s.pause_of(id).await?, "-KILL"),
                    Victim::Container(id) => {
                        s.kubelet.wait_until_sigterm_is_handled(id).await?;
                        let pid = s.kubelet.process(id).await;
                        ensure!(pid > 1, "no process of {id}");
                        (pid.to_string(), "-TERM")
                    }
                };
                ensure!(kill(signal, &pid), "kill {signal} {pid}");
                Ok(())
            })
            .await?;
        script.sent
    };

    let dir = tempfile::Builder::new().prefix("pleg").tempdir()?;
    let sim = Sim::builder()
        .mode(mode)
        .runtime_version(answer.runtime_version.clone())
        .build();
    let _serving = sim.serve_unix(dir.path().join("cri.sock"), std::future::pending())?;
    let endpoint: Endpoint = format!("unix://{}", dir.path().join("cri.sock").display()).parse()?;
    let kubelet = Kubelet::at(&endpoint, "app:1", "", Path::new("/logs"))?;
    let mut script = Script::new(&endpoint, kubelet).await?;
    script
        .play(async |_: &mut Script, victim: Victim<'_>| {
            let killed = match victim {
                Victim::Sandbox(id) => sim.kill_sandbox(id.as_str()),
                Victim::Container(id) => sim.kill_container(id.as_str(), CRASH),
            };
            ensure!(killed, "kill {victim:?}");
            Ok(())
        })
        .await?;
    sim.shutdown().await;

    let mut events = 0;
    for (real, simulated) in real.iter().zip(&script.sent) {
        assert_eq!(
            real, simulated,
            "{} {}: the events of the runtime and of the simulator differ",
            answer.runtime_name, answer.runtime_version
        );
        events += real.events.len();
    }
    assert_eq!(real.len(), script.sent.len());
    println!(
        "{} {}: {events} events of {} steps are equal",
        answer.runtime_name,
        answer.runtime_version,
        real.len()
    );
    Ok(())
}

/// The events of one step.
#[derive(Debug, PartialEq)]
struct Step {
    what: &'static str,
    events: Vec<Received>,
}

/// One event, without the values that differ between runs.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Received {
    kind: &'static str,
    subject: String,
    /// The sandbox's state, and whether its creation time is negative.
    sandbox: Option<(&'static str, bool)>,
    containers: BTreeMap<String, String>,
}

impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            subject,
            sandbox,
            containers,
        } = self;
        write!(f, "{kind}({subject}) {sandbox:?} {containers:?}")
    }
}

/// The script on one runtime, and the events that it sent.
struct Script {
    client: RuntimeServiceClient<Channel>,
    kubelet: Kubelet,
    events: mpsc::UnboundedReceiver<v1::ContainerEventResponse>,
    names: BTreeMap<String, String>,
    sent: Vec<Step>,
}

/// What is killed outside of CRI.
#[derive(Clone, Copy, Debug)]
enum Victim<'a> {
    /// A sandbox's pause process is killed.
    Sandbox(&'a Id),
    /// A container's program crashes with [`CRASH`].
    Container(&'a Id),
}

const CRASH: i32 = 3;

/// Whether the events of a step have one order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    One,
    Free,
}

impl Script {
    async fn new(endpoint: &Endpoint, kubelet: Kubelet) -> anyhow::Result<Self> {
        let client = CriRuntime::new(CriConfig::new(endpoint.clone()))?.runtime_client();
        let (sender, events) = mpsc::unbounded_channel();
        let mut subscriber = client.clone();
        // containerd responds with the first event, and keeps events until there is a subscriber.
        tokio::spawn(async move {
            let answer = subscriber
                .get_container_events(v1::GetEventsRequest {})
                .await?;
            let mut stream = answer.into_inner();
            while let Some(event) = stream.message().await? {
                if sender.send(event).is_err() {
                    break;
                }
            }
            Ok::<_, tonic::Status>(())
        });
        Ok(Self {
            client,
            kubelet,
            events,
            names: BTreeMap::new(),
            sent: Vec::new(),
        })
    }

    /// Runs the script. `kill` kills a sandbox or container outside of CRI.
    async fn play(
        &mut self,
        kill: impl AsyncFn(&mut Self, Victim<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.play_lifecycle(&kill).await?;
        self.play_removal_of_a_running_pod().await?;
        self.play_killed_sandbox(&kill).await?;
        // An unexpected event of an earlier step would arrive before these events.
        self.run("end").await.map(drop)
    }

    /// Two containers, a crash and a restart, a start that fails, stops, removals.
    async fn play_lifecycle(
        &mut self,
        kill: &impl AsyncFn(&mut Self, Victim<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let k = self.kubelet.clone();
        let pod = self.run("life").await?;
        let a = self.create(&pod, "a", 0, Life::UntilStopped).await?;
        self.start(&a, 1, "start").await?;
        // The container exits after its STARTED was received. Otherwise the statuses in STARTED could show
        // the exit.
        let crash = Life::UntilTerminated { code: CRASH };
        let b = self.create(&pod, "b", 0, crash).await?;
        self.start(&b, 1, "start").await?;
        kill(self, Victim::Container(&b)).await?;
        self.expect_events("crash", 1, Order::One).await?;
        let b1 = self.create(&pod, "b", 1, Life::UntilStopped).await?;
        self.start(&b1, 1, "restart").await?;
        k.remove(&b).await?;
        self.expect_events("remove the crashed one", 1, Order::One)
            .await?;
        let c = self.create(&pod, "c", 0, Life::CannotStart).await?;
        ensure!(
            k.start(&c).await.is_err(),
            "a container without a program has started"
        );
        let status = k
            .container_status(&c)
            .await?
            .context("the container has no status")?;
        ensure!(
            (status.exit_code, status.reason.as_str()) == (128, "StartError"),
            "{status:?}"
        );
        k.remove(&c).await?;
        self.expect_events("remove the one that failed to start", 1, Order::One)
            .await?;
        k.stop(&a).await?;
        self.expect_events("stop a container", 1, Order::One)
            .await?;
        k.stop_pod(&pod).await?;
        self.expect_events("stop the pod, one container runs", 2, Order::Free)
            .await?;
        k.remove(&a).await?;
        self.expect_events("remove a container", 1, Order::One)
            .await?;
        k.remove(&b1).await?;
        self.expect_events("remove a container", 1, Order::One)
            .await?;
        k.stop_pod(&pod).await?;
        k.remove_pod(&pod).await?;
        self.expect_events("remove the pod", 1, Order::One).await
    }

    async fn play_removal_of_a_running_pod(&mut self) -> anyhow::Result<()> {
        let pod = self.run("gone").await?;
        for name in ["a", "b"] {
            let id = self.create(&pod, name, 0, Life::UntilStopped).await?;
            self.start(&id, 1, "start").await?;
        }
        self.kubelet.remove_pod(&pod).await?;
        self.expect_events("remove a pod that runs", 6, Order::Free)
            .await
    }

    async fn play_killed_sandbox(
        &mut self,
        kill: &impl AsyncFn(&mut Self, Victim<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let pod = self.run("killed").await?;
        let a = self.create(&pod, "a", 0, Life::UntilStopped).await?;
        self.start(&a, 1, "start").await?;
        kill(self, Victim::Sandbox(&pod.sandbox)).await?;
        self.expect_events(
            "kill the pause process, whose namespace is shared",
            2,
            Order::Free,
        )
        .await?;
        self.kubelet.stop_pod(&pod).await?;
        self.kubelet.remove_pod(&pod).await?;
        self.expect_events("remove the pod", 2, Order::One).await
    }

    async fn run(&mut self, name: &str) -> anyhow::Result<Pod> {
        let pod = self.kubelet.run_pod(name).await?;
        self.names.insert(pod.sandbox.to_string(), name.to_owned());
        self.expect_events("run", 2, Order::One).await?;
        Ok(pod)
    }

    async fn create(
        &mut self,
        pod: &Pod,
        name: &str,
        attempt: u32,
        life: Life,
    ) -> anyhow::Result<Id> {
        let id = self.kubelet.create(pod, name, attempt, life).await?;
        self.names
            .insert(id.to_string(), format!("{name}{attempt}"));
        self.expect_events("create", 1, Order::One).await?;
        Ok(id)
    }

    async fn start(&mut self, id: &Id, events: usize, what: &'static str) -> anyhow::Result<()> {
        self.kubelet.start(id).await?;
        self.expect_events(what, events, Order::One).await
    }

    /// Waits for the events of a step.
    async fn expect_events(
        &mut self,
        what: &'static str,
        count: usize,
        order: Order,
    ) -> anyhow::Result<()> {
        let mut events = Vec::new();
        for n in 0..count {
            let event = tokio::time::timeout(SOON, self.events.recv()).await;
            let event = event.with_context(|| format!("{what}: event {n} does not arrive"))?;
            let event = event.with_context(|| format!("{what}: the stream has ended"))?;
            events.push(self.sent(&event, order));
        }
        if order == Order::Free {
            events.sort();
        }
        self.sent.push(Step { what, events });
        Ok(())
    }

    fn sent(&self, event: &v1::ContainerEventResponse, order: Order) -> Received {
        let name = |id: &str| {
            self.names
                .get(id)
                .cloned()
                .unwrap_or_else(|| format!("? {id}"))
        };
        let subject = name(&event.container_id);
        let state = |c: &v1::ContainerStatus| {
            format!("{} {} {}", c.state().as_str_name(), c.exit_code, c.reason)
        };
        let containers = event.containers_statuses.iter();
        let all: BTreeMap<_, _> = containers.map(|c| (name(&c.id), state(c))).collect();
        let kind = event.container_event_type();
        let own_sandbox = |id: &str| id == event.container_id;
        let sandbox = event.pod_sandbox_status.as_ref().map(|s| {
            // If several objects exit at the same time, the sandbox's state is undefined, unless the
            // sandbox is the subject.
            let compares_state = order == Order::One || own_sandbox(&s.id);
            (
                if compares_state {
                    s.state().as_str_name()
                } else {
                    "…"
                },
                compares_state && s.created_at < 0,
            )
        });
        let mut containers = all;
        if order == Order::Free {
            containers.retain(|name, _| *name == subject);
        }
        Received {
            kind: match kind {
                Kind::ContainerCreatedEvent => "CREATED",
                Kind::ContainerStartedEvent => "STARTED",
                Kind::ContainerStoppedEvent => "STOPPED",
                Kind::ContainerDeletedEvent => "DELETED",
            },
            subject,
            sandbox,
            containers,
        }
    }

    /// The pid of a sandbox's pause process, from the runtime's verbose answer.
    async fn pause_of(&self, sandbox: &Id) -> anyhow::Result<String> {
        let request = v1::PodSandboxStatusRequest {
            pod_sandbox_id: sandbox.to_string(),
            verbose: true,
        };
        let call = self.client.clone();
        let mut call = call;
        let answer =
            tokio::time::timeout(Duration::from_secs(10), call.pod_sandbox_status(request))
                .await??
                .into_inner();
        pid_in(&answer.info)
    }
}

fn pid_in(info: &BTreeMap<String, String>) -> anyhow::Result<String> {
    let info = info.get("info").context("no verbose info")?;
    let (_, pid) = info.split_once("\"pid\":").context("no pid")?;
    let digits = pid.trim_start().chars().take_while(char::is_ascii_digit);
    let pid: String = digits.collect();
    ensure!(pid.parse::<u32>()? > 1, "no pid of a program: {pid}");
    Ok(pid)
}
