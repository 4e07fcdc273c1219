//! Plays the script of this test over CRI, on a real runtime or on the simulator.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, ensure};
use pleg::core::Id;
use pleg_cri::v1::runtime_service_client::RuntimeServiceClient;
use pleg_cri::v1::{self, ContainerEventType as Kind};
use pleg_cri::{CriConfig, CriRuntime, Endpoint};
use pleg_tests::kubelet::{Kubelet, Pod, process_of};
use tokio::sync::mpsc;
use tonic::transport::Channel;

use super::{Act, Order, Received, SCRIPT, Step};
use crate::SOON;

/// A process that the test kills without a CRI call.
#[derive(Clone, Copy, Debug)]
pub(super) enum Victim<'a> {
    /// Kill the pause process of this sandbox.
    Sandbox(&'a Id),
    /// Make the program of this container exit with [`CRASH`](super::CRASH).
    Container(&'a Id),
}

/// Plays the script, and returns the events of each step. `kill` kills a process without a CRI call.
pub(super) async fn play(
    endpoint: &Endpoint,
    kubelet: Kubelet,
    kill: impl AsyncFn(&mut Player, Victim<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<Vec<Received>>> {
    let mut player = Player::new(endpoint, kubelet)?;
    let mut all = Vec::new();
    for step in SCRIPT {
        player
            .act(step.act, &kill)
            .await
            .with_context(|| format!("{:?}", step.act))?;
        all.push(player.events_of(step).await?);
    }
    Ok(all)
}

/// Kills processes of this machine.
pub(super) async fn kill_processes(player: &mut Player, victim: Victim<'_>) -> anyhow::Result<()> {
    let (pid, signal) = match victim {
        Victim::Sandbox(id) => (player.pause_of(id).await?, "-KILL"),
        Victim::Container(id) => {
            player.kubelet.wait_until_sigterm_is_handled(id).await?;
            let pid = player.kubelet.process(id).await;
            ensure!(pid > 1, "no process of {id}");
            (pid.to_string(), "-TERM")
        }
    };
    let mut kill = std::process::Command::new("kill");
    let status = kill.args([signal, &pid]).status()?;
    ensure!(status.success(), "kill {signal} {pid}");
    Ok(())
}

/// The objects of the script on one runtime, and its event stream.
pub(super) struct Player {
    client: RuntimeServiceClient<Channel>,
    kubelet: Kubelet,
    events: mpsc::UnboundedReceiver<v1::ContainerEventResponse>,
    pods: BTreeMap<&'static str, Pod>,
    containers: BTreeMap<&'static str, Id>,
    /// The name of each id.
    names: BTreeMap<String, &'static str>,
}

impl Player {
    fn new(endpoint: &Endpoint, kubelet: Kubelet) -> anyhow::Result<Self> {
        let client = CriRuntime::new(CriConfig::new(endpoint.clone()))?.runtime_client();
        let (sender, events) = mpsc::unbounded_channel();
        let mut subscriber = client.clone();
        // Wait for the response headers in a separate task, because containerd sends them only with the first event.
        // No event is lost meanwhile, because containerd queues events until there is a subscriber.
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
            pods: BTreeMap::new(),
            containers: BTreeMap::new(),
            names: BTreeMap::new(),
        })
    }

    async fn act(
        &mut self,
        act: Act,
        kill: &impl AsyncFn(&mut Self, Victim<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let kubelet = self.kubelet.clone();
        match act {
            Act::Run(name) => {
                let pod = kubelet.run_pod(name).await?;
                self.names.insert(pod.sandbox.to_string(), name);
                self.pods.insert(name, pod);
            }
            Act::Create {
                pod,
                id: name,
                name: own,
                attempt,
                life,
            } => {
                let id = kubelet.create(self.pod(pod)?, own, attempt, life).await?;
                self.names.insert(id.to_string(), name);
                self.containers.insert(name, id);
            }
            Act::Start(id) => kubelet.start(self.container(id)?).await?,
            Act::FailToStart(id) => {
                let id = self.container(id)?;
                let started = kubelet.start(id).await;
                ensure!(
                    started.is_err(),
                    "a container without a program has started"
                );
                let status = kubelet.container_status(id).await?;
                let status = status.context("the container has no status")?;
                let end = (status.exit_code, status.reason.as_str());
                ensure!(end == (128, "StartError"), "{status:?}");
            }
            Act::Crash(id) => {
                let id = self.container(id)?.clone();
                kill(self, Victim::Container(&id)).await?;
            }
            Act::Stop(id) => kubelet.stop(self.container(id)?).await?,
            Act::Remove(id) => kubelet.remove(self.container(id)?).await?,
            Act::StopPod(pod) => kubelet.stop_pod(self.pod(pod)?).await?,
            Act::RemovePod(pod) => kubelet.remove_pod(self.pod(pod)?).await?,
            Act::KillSandbox(pod) => {
                let id = self.pod(pod)?.sandbox.clone();
                kill(self, Victim::Sandbox(&id)).await?;
            }
        }
        Ok(())
    }

    fn pod(&self, name: &str) -> anyhow::Result<&Pod> {
        self.pods
            .get(name)
            .with_context(|| format!("no pod {name}"))
    }

    fn container(&self, name: &str) -> anyhow::Result<&Id> {
        let id = self.containers.get(name);
        id.with_context(|| format!("no container {name}"))
    }

    /// Waits for the events of a step.
    async fn events_of(&mut self, step: &Step) -> anyhow::Result<Vec<Received>> {
        let mut events = Vec::new();
        for n in 0..step.events {
            let event = tokio::time::timeout(SOON, self.events.recv()).await;
            let what = || format!("event {n} of {:?}", step.act);
            let event = event.with_context(|| format!("{} does not arrive", what()))?;
            let event = event.with_context(|| format!("the stream has ended before {}", what()))?;
            events.push(self.received(&event, step.order));
        }
        if step.order == Order::Free {
            events.sort();
        }
        Ok(events)
    }

    fn received(&self, event: &v1::ContainerEventResponse, order: Order) -> Received {
        let name = |id: &str| match self.names.get(id) {
            Some(&name) => name.to_owned(),
            None => format!("? {id}"),
        };
        let state = |c: &v1::ContainerStatus| {
            format!("{} {} {}", c.state().as_str_name(), c.exit_code, c.reason)
        };
        let sandbox = event.pod_sandbox_status.as_ref();
        let is_subject = sandbox.is_some_and(|sandbox| sandbox.id == event.container_id);
        let containers = event.containers_statuses.iter();
        let all = Received {
            kind: match event.container_event_type() {
                Kind::ContainerCreatedEvent => "CREATED",
                Kind::ContainerStartedEvent => "STARTED",
                Kind::ContainerStoppedEvent => "STOPPED",
                Kind::ContainerDeletedEvent => "DELETED",
            },
            subject: name(&event.container_id),
            sandbox: sandbox.map(|s| (s.state().as_str_name(), s.created_at < 0)),
            containers: containers.map(|c| (name(&c.id), state(c))).collect(),
        };
        all.in_order(order, is_subject)
    }

    /// The pid of a sandbox's pause process, from its verbose status.
    async fn pause_of(&self, sandbox: &Id) -> anyhow::Result<String> {
        let request = v1::PodSandboxStatusRequest {
            pod_sandbox_id: sandbox.to_string(),
            verbose: true,
        };
        let mut client = self.client.clone();
        let call = client.pod_sandbox_status(request);
        let answer = tokio::time::timeout(Duration::from_secs(10), call).await??;
        let pid = process_of(&answer.into_inner().info).context("no verbose info")?;
        ensure!(pid > 1, "no pid of a program: {pid}");
        Ok(pid.to_string())
    }
}
