//! Tests that reconnects, server restarts, and shutdowns during calls leak no task, descriptor or memory.
//!
//! Each measurement runs in its own process, because other tests would change the descriptors and memory in use.

use std::alloc::System;
use std::process::{Command, Stdio};

use anyhow::Context;
use cap::Cap;
use pleg::core::{Settings, StreamState};
use pleg::{Pleg, ReconnectSettings};
use pleg_cri::{CriConfig, CriRuntime};
use pleg_sim::Sim;
use pleg_tests::generator::is_confirmed;
use pleg_tests::kubelet::{Kubelet, Life, Pod};
use pleg_tests::wait::until_ok;
use tokio::runtime::Handle;

use crate::node::{MINUTE, MS, Node, SECOND};
use crate::pipe::Break;

/// The allocator of this program, which counts the allocated bytes.
#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

/// The environment variable that marks the child process. Without it, the measuring tests return at once.
const ALONE: &str = "PLEG_FAULTS_ALONE";

/// Runs one of the measuring tests below in a child process.
fn in_own_process(test: &str) -> anyhow::Result<()> {
    let output = Command::new(std::env::current_exe()?)
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env(ALONE, "1")
        .stdin(Stdio::null())
        .output()?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{stdout}\n{stderr}");
    anyhow::ensure!(
        stdout.contains("left behind"),
        "it measured nothing: {stdout}"
    );
    Ok(())
}

fn is_own_process() -> bool {
    std::env::var_os(ALONE).is_some()
}

#[test]
fn many_reconnects_leak_no_memory_and_no_task() -> anyhow::Result<()> {
    in_own_process("leaks::memory_and_tasks_do_not_grow_after_100_reconnects")
}

#[test]
fn shutdowns_and_server_restarts_leak_no_task_and_no_descriptor() -> anyhow::Result<()> {
    in_own_process("leaks::no_task_or_descriptor_remains_after_generators_shut_down")
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

fn descriptors() -> anyhow::Result<usize> {
    // One of the counted descriptors is that of the directory /proc/self/fd, which is open for the count.
    Ok(std::fs::read_dir("/proc/self/fd")?.count())
}

/// Settings with which the generator subscribes again almost without a pause.
fn at_once() -> ReconnectSettings {
    ReconnectSettings {
        subscribes_per_minute: 600,
        backoff_from: MS,
        backoff_to: 10 * MS,
        ..ReconnectSettings::default()
    }
}

/// Breaks both connections 600 times, on paused time. At the end, the process must have no more tasks and hardly more
/// memory than after 100 times.
#[tokio::test(start_paused = true)]
#[ignore = "measured in a process of its own"]
async fn memory_and_tasks_do_not_grow_after_100_reconnects() -> anyhow::Result<()> {
    if !is_own_process() {
        return Ok(());
    }
    let idle = tasks();
    let node = Node::up();
    let kubelet = node.kubelet()?;
    let (pod, _) = kubelet.run_pods(5).await?.remove(0);
    let (builder, recorder) = node.builder(Settings::default())?;
    let mut builder = builder.reconnect(at_once());
    let mut subscription = builder.subscribe();
    let pleg = builder.spawn()?;
    pleg.wait_until_synced().await?;
    let mut after_100 = None;
    for cycle in 1..=600 {
        let how = [Break::Reset, Break::End][cycle % 2];
        node.events.break_now(how);
        node.calls.break_now(how);
        node.pass(MS).await;
        node.until(MINUTE, "the stream is confirmed again", || {
            is_confirmed(&pleg) && pleg.health().degraded().is_empty()
        })
        .await?;
        while subscription.try_next().is_some() {}
        recorder.clear();
        if cycle % 100 == 0 {
            // Use a new kubelet each time: a kubelet records all its objects, which would look like a leak.
            restart_containers(&node.kubelet()?, &pod).await?;
        }
        if cycle == 100 {
            age_records(&node).await?;
            after_100 = Some((HEAP.allocated(), tasks()));
        }
    }
    age_records(&node).await?;
    let (bytes, busy) = after_100.context("no measurement after 100 reconnects")?;
    let grown = HEAP.allocated().saturating_sub(bytes);
    let dials = (node.events.dials(), node.calls.dials());
    println!("left behind after 500 reconnects: {grown} bytes of {bytes}; {dials:?} dials");
    assert!(dials.0 > 600 && dials.1 > 600, "{dials:?}");
    assert!(grown < 32 << 10, "{grown} bytes: 65 and more a reconnect");
    assert_eq!(tasks(), busy);
    pleg.shutdown().await;
    node.sim.shutdown().await;
    drop((pleg, subscription, kubelet, node));
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(tasks(), idle);
    Ok(())
}

/// Restarts containers to cause events: only when the runtime sends an event does it notice that a subscriber is gone.
async fn restart_containers(kubelet: &Kubelet, pod: &Pod) -> anyhow::Result<()> {
    for attempt in 0..5 {
        let life = Life::Exit {
            code: 0,
            after_ms: 1,
        };
        let id = kubelet.run(pod, "short", attempt, life).await?;
        pleg_tests::lives::ended(kubelet, &id).await?;
        kubelet.remove(&id).await?;
    }
    Ok(())
}

/// Lets enough time pass for the generator to drop the exit records of removed pods.
async fn age_records(node: &Node) -> anyhow::Result<()> {
    node.pass(12 * MINUTE).await;
    anyhow::ensure!(
        node.sim.counts().subscribers == 1,
        "closed subscribers are left"
    );
    Ok(())
}

/// Starts generators over sockets, in real time. Shuts some down, even during calls that hang; drops others; and
/// restarts the server. Afterwards no task and no descriptor must be left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measured in a process of its own"]
async fn no_task_or_descriptor_remains_after_generators_shut_down() -> anyhow::Result<()> {
    if !is_own_process() {
        return Ok(());
    }
    // Count before the first round, because right after a round, tasks may still be closing descriptors.
    let before = (tasks(), descriptors()?);
    let mut bytes = Vec::new();
    for round in 0..20 {
        one_round(round).await?;
        settled(before).await?;
        bytes.push(HEAP.allocated());
    }
    let grown = bytes[19].saturating_sub(bytes[4]);
    println!(
        "left behind by 60 generators: {grown} bytes of {}",
        bytes[4]
    );
    assert!(grown < 64 << 10, "{grown} bytes in 15 rounds: {bytes:?}");
    Ok(())
}

/// Waits until the numbers of tasks and descriptors equal `before`.
async fn settled(before: (usize, usize)) -> anyhow::Result<()> {
    let what = "all tasks and descriptors are gone";
    until_ok(10 * SECOND, what, || async {
        match (tasks(), descriptors().map_err(|e| e.to_string())?) {
            now if now == before => Ok(()),
            now => Err(format!("(tasks, descriptors) {now:?}, before {before:?}")),
        }
    })
    .await
}

/// Waits until each generator is subscribed and has lost at least `lost` streams.
async fn subscribed(all: &[Pleg], lost: u64, what: &str) -> anyhow::Result<()> {
    for (n, pleg) in all.iter().enumerate() {
        until_ok(10 * SECOND, what, || async move {
            let stream = pleg.health().current().stream;
            match (&stream, pleg.counters().streams_lost) {
                (StreamState::Subscribed { .. }, l) if l >= lost => Ok(()),
                (_, l) => Err(format!("generator {n}: {stream:?}, {l} streams lost")),
            }
        })
        .await?;
    }
    Ok(())
}

async fn one_round(round: usize) -> anyhow::Result<()> {
    let dir = tempfile::Builder::new().prefix("pleg").tempdir()?;
    let path = dir.path().join("cri.sock");
    let sim = Sim::builder().seed(3).build();
    let endpoint: pleg_cri::Endpoint = format!("unix://{}", path.display()).parse()?;
    let serving = sim.serve_unix(&path, std::future::pending())?;
    let kubelet = Kubelet::at(&endpoint, "app:1", "", dir.path())?;
    let mut all = Vec::new();
    for _ in 0..3 {
        let runtime = CriRuntime::new(CriConfig::new(endpoint.clone()))?;
        let pleg = Pleg::builder(runtime).reconnect(at_once()).spawn()?;
        pleg.wait_until_synced().await?;
        all.push(pleg);
    }
    // Wait, because a generator that connects only after this server has stopped would lose no stream.
    subscribed(&all, 0, "it has subscribed").await?;
    for n in 0..3 {
        let pod = kubelet.run_pod(&format!("pod-{round}-{n}")).await?;
        kubelet.run(&pod, "app", 0, Life::UntilStopped).await?;
        sim.set_knob(&format!("pod.{}.hang=on", pod.uid))?;
    }
    serving.stop().await;
    let serving = sim.serve_unix(&path, std::future::pending())?;
    subscribed(&all, 1, "it has subscribed again").await?;
    // Some of these calls hang.
    let mut waits = tokio::task::JoinSet::new();
    for pleg in &all {
        for view in pleg.snapshot() {
            let (pleg, uid) = (pleg.clone(), view.status.uid.clone());
            waits.spawn(async move { pleg.newer_than(&uid, pleg.now(), MINUTE).await });
        }
    }
    let [first, _dropped, last] = &all[..] else {
        anyhow::bail!("there are not three generators");
    };
    let clock = last.clock();
    let began = clock.now();
    first.shutdown().await;
    sim.control("cut").await?;
    last.shutdown().await;
    let took = clock.now().since(began);
    assert!(took < 5 * SECOND, "{took:?}: it has waited for a call");
    // One generator was not shut down. It ends because its last handle is dropped here.
    drop(all);
    waits.shutdown().await;
    serving.stop().await;
    sim.shutdown().await;
    Ok(())
}
