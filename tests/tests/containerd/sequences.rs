//! Compares the simulator (`pleg-sim`) with real runtimes: runs the same script on both, and compares the events that
//! the simulator and a daemon of the same version send.
//!
//! The test replaces ids by names. It compares the type and the subject of every event, the state of the
//! sandbox status if there is one, and the state, exit code and reason of every container status.
//! Each step waits for its events, so events of different steps have a fixed order. If one call causes several exits,
//! their order is undefined, because containerd sends them from different goroutines. The test compares the events of
//! such a step as a set, and in each event only the status of the object that the event is about.

mod wire;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use anyhow::ensure;
use pleg_cri::Endpoint;
use pleg_cri::v1;
use pleg_sim::{Mode, Sim};
use pleg_tests::daemon::{Daemon, Version};
use pleg_tests::kubelet::{Kubelet, Life};

use crate::with_daemon;

#[tokio::test(flavor = "multi_thread")]
async fn simulator_sends_same_events_as_containerd_1_7() -> anyhow::Result<()> {
    with_daemon(Version::V1_7, async |daemon: &_| {
        compare_events(daemon, Mode::Containerd17).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn simulator_sends_same_events_as_containerd_2() -> anyhow::Result<()> {
    with_daemon(Version::V2, async |daemon: &_| {
        compare_events(daemon, Mode::Containerd2).await
    })
    .await
}

async fn compare_events(daemon: &Daemon, mode: Mode) -> anyhow::Result<()> {
    let mut client = daemon.runtime()?.runtime_client();
    let answer = client.version(v1::VersionRequest::default()).await?;
    let answer = answer.into_inner();
    mode.check_version(&answer.runtime_version)?;
    let real = wire::play(
        &daemon.endpoint,
        Kubelet::new(daemon)?,
        wire::kill_processes,
    )
    .await?;

    let dir = tempfile::Builder::new().prefix("pleg").tempdir()?;
    let version = answer.runtime_version.clone();
    let sim = Sim::builder().mode(mode).runtime_version(version).build();
    let _serving = sim.serve_unix(dir.path().join("cri.sock"), std::future::pending())?;
    let endpoint: Endpoint = format!("unix://{}", dir.path().join("cri.sock").display()).parse()?;
    let kubelet = Kubelet::at(&endpoint, "app:1", "", Path::new("/logs"))?;
    let kill = async |_: &mut wire::Player, victim: wire::Victim<'_>| {
        let killed = match victim {
            wire::Victim::Sandbox(id) => sim.kill_sandbox(id.as_str()),
            wire::Victim::Container(id) => sim.kill_container(id.as_str(), CRASH),
        };
        ensure!(killed, "kill {victim:?}");
        Ok(())
    };
    let simulated = wire::play(&endpoint, kubelet, kill).await?;
    sim.shutdown().await;

    for ((step, real), other) in SCRIPT.iter().zip(&real).zip(&simulated) {
        assert_eq!(real, other, "{:?} on {}", step.act, answer.runtime_version);
    }
    assert_eq!((real.len(), simulated.len()), (SCRIPT.len(), SCRIPT.len()));
    Ok(())
}

/// An action on a runtime. Pods and containers are identified by the names that the script gives them.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// Runs a pod.
    Run(&'static str),
    Create {
        pod: &'static str,
        id: &'static str,
        /// The container's name in its pod.
        name: &'static str,
        attempt: u32,
        life: Life,
    },
    Start(&'static str),
    /// Starts a container whose program does not exist.
    FailToStart(&'static str),
    /// Makes the program of a container exit with [`CRASH`].
    Crash(&'static str),
    Stop(&'static str),
    Remove(&'static str),
    StopPod(&'static str),
    RemovePod(&'static str),
    /// Kills the pause process of a pod whose containers share its process namespace.
    KillSandbox(&'static str),
}

const CRASH: i32 = 3;

/// `One`: the events of a step have a fixed order. `Free`: their order is undefined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    One,
    Free,
}

/// An action of the script, the number of events that it causes, and whether their order is fixed.
struct Step {
    act: Act,
    events: usize,
    order: Order,
}

const fn step(act: Act, events: usize) -> Step {
    let order = Order::One;
    Step { act, events, order }
}

const fn free(act: Act, events: usize) -> Step {
    let order = Order::Free;
    Step { act, events, order }
}

const fn create(pod: &'static str, id: &'static str) -> Act {
    create_as(pod, id, (id, 0), Life::UntilStopped)
}

const fn create_as(
    pod: &'static str,
    id: &'static str,
    (name, attempt): (&'static str, u32),
    life: Life,
) -> Act {
    Act::Create {
        pod,
        id,
        name,
        attempt,
        life,
    }
}

/// The life of a container whose exit the test causes after receiving STARTED. If the container exited by itself,
/// the statuses in STARTED could already show the exit.
const CRASHES: Life = Life::UntilTerminated { code: CRASH };

const SCRIPT: &[Step] = &[
    // Tests two containers, a crash and a restart, a start that fails, stops and removals.
    step(Act::Run("life"), 2),
    step(create("life", "a"), 1),
    step(Act::Start("a"), 1),
    step(create_as("life", "b", ("b", 0), CRASHES), 1),
    step(Act::Start("b"), 1),
    step(Act::Crash("b"), 1),
    step(
        create_as("life", "b again", ("b", 1), Life::UntilStopped),
        1,
    ),
    step(Act::Start("b again"), 1),
    step(Act::Remove("b"), 1),
    step(create_as("life", "c", ("c", 0), Life::CannotStart), 1),
    step(Act::FailToStart("c"), 0),
    step(Act::Remove("c"), 1),
    step(Act::Stop("a"), 1),
    free(Act::StopPod("life"), 2),
    step(Act::Remove("a"), 1),
    step(Act::Remove("b again"), 1),
    step(Act::StopPod("life"), 0),
    step(Act::RemovePod("life"), 1),
    step(Act::Run("gone"), 2),
    step(create("gone", "d"), 1),
    step(Act::Start("d"), 1),
    step(create("gone", "e"), 1),
    step(Act::Start("e"), 1),
    free(Act::RemovePod("gone"), 6),
    // Tests a killed sandbox.
    step(Act::Run("killed"), 2),
    step(create("killed", "f"), 1),
    step(Act::Start("f"), 1),
    free(Act::KillSandbox("killed"), 2),
    step(Act::StopPod("killed"), 0),
    step(Act::RemovePod("killed"), 2),
    // Run one more pod: if an earlier step sent too many events, the test would get those instead of this pod's events.
    step(Act::Run("end"), 2),
];

/// The values of an event that are the same in each run.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Received {
    kind: &'static str,
    subject: String,
    /// The sandbox's state ("…" if undefined), and true if its creation time is negative (containerd 2, in a removal).
    sandbox: Option<(&'static str, bool)>,
    /// The states of the containers, with exit code and reason.
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

impl Received {
    /// Removes statuses whose states are undefined if several objects exit at the same time.
    fn in_order(mut self, order: Order, sandbox_is_subject: bool) -> Self {
        if order == Order::Free {
            self.containers.retain(|name, _| *name == self.subject);
            if let Some(sandbox) = self.sandbox.as_mut().filter(|_| !sandbox_is_subject) {
                *sandbox = ("…", false);
            }
        }
        self
    }
}
