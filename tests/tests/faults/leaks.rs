//! No task, descriptor or memory is leaked by a thousand reconnects, by servers that come and go, and by
//! shutdowns during calls.
//!
//! Descriptors and memory belong to the process, so each measurement has a process of its own.

use std::alloc::System;
use std::process::{Command, Stdio};

use anyhow::Context;
use cap::Cap;
use pleg::core::StreamState;
use pleg::{Pleg, ReconnectSettings};
use pleg_cri::{CriConfig, CriRuntime};
use pleg_sim::Sim;
use pleg_tests::faulty_pipe::Break;
use pleg_tests::kubelet::{Kubelet, Life, Pod};
use pleg_tests::split::SplitRuntime;
use pleg_tests::wait::until_ok;
use tokio::runtime::Handle;

use crate::in_process::{InProcess, MINUTE, MS, SECOND, client};

/// Counts the bytes that are in use.
#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

/// Set for the child, so that a run of all ignored tests does not measure in company.
const ALONE: &str = "PLEG_FAULTS_ALONE";

/// Runs one of the tests below in a process of its own.
fn in_own_process(test: &str) -> anyhow::Result<()> {
    let output = Command::new(std::env::current_exe()?)
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env(ALONE, "1")
        .stdin(Stdio::null())
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let figures = said.lines().filter(|l| l.starts_with("left behind"));
    figures.for_each(|line| println!("{line}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{said}\n{errors}");
    anyhow::ensure!(said.contains("left behind"), "it measured nothing: {said}");
    Ok(())
}

fn is_own_process() -> bool {
    std::env::var_os(ALONE).is_some()
}

#[test]
fn thousand_reconnects_leak_nothing() -> anyhow::Result<()> {
    in_own_process("leaks::measure_thousand_reconnects")
}

#[test]
fn sockets_and_generators_leak_nothing() -> anyhow::Result<()> {
    in_own_process("leaks::measure_sockets_and_generators")
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

fn descriptors() -> anyhow::Result<usize> {
    // Its own descriptor of the directory is one of them, each time.
    Ok(std::fs::read_dir("/proc/self/fd")?.count())
}

/// As often as a test needs it.
fn at_once() -> ReconnectSettings {
    ReconnectSettings {
        subscribes_per_minute: 600,
        backoff_from: MS,
        backoff_to: 10 * MS,
        ..ReconnectSettings::default()
    }
}

/// Within the process, on paused time: what is in use after 200 reconnects of both lines is all
/// that is in use after 1,200.
#[tokio::test(start_paused = true)]
#[ignore = "measured in a process of its own"]
async fn measure_thousand_reconnects() -> anyhow::Result<()> {
    if !is_own_process() {
        return Ok(());
    }
    let idle = tasks();
    let node = InProcess::up();
    let kubelet = node.kubelet()?;
    let pod = node.run_pods(&kubelet, 5).await?.remove(0);
    // Nobody listens in: what is overheard is kept.
    let runtime = SplitRuntime {
        calls: client(&node.calls)?,
        events: client(&node.events)?,
    };
    let builder = Pleg::builder(runtime).clock(node.clock);
    let mut builder = builder.reconnect(at_once());
    let mut subscription = builder.subscribe();
    let pleg = builder.spawn()?;
    pleg.wait_until_synced().await?;
    let (mut after_200, mut most) = (None, 0);
    for cycle in 1..=1200 {
        let how = [Break::Reset, Break::End][cycle % 2];
        node.events.break_now(how);
        node.calls.break_now(how);
        node.pass(MS).await;
        node.until(MINUTE, "it is back", || {
            let health = pleg.health();
            let stream = health.current().stream;
            let stands = matches!(stream, StreamState::Subscribed { confirmed, .. } if confirmed);
            stands && health.degraded().is_empty()
        })
        .await?;
        while subscription.try_next().is_some() {}
        most = most.max(tasks());
        if cycle % 100 == 0 {
            // One that forgets what it did.
            restart_containers(&node.kubelet()?, &pod).await?;
        }
        if cycle == 200 {
            age_tombstones(&node).await?;
            after_200 = Some((HEAP.allocated(), tasks()));
        }
    }
    age_tombstones(&node).await?;
    let (bytes, busy) = after_200.context("there were 200")?;
    let grown = HEAP.allocated().saturating_sub(bytes);
    let dials = (node.events.dials(), node.calls.dials());
    println!(
        "left behind after 1,000 reconnects: {grown} bytes of {bytes}, {} tasks of {busy} (at most \
         {most}), {dials:?} dials",
        tasks() - busy
    );
    assert!(dials.0 > 1200 && dials.1 > 1200, "{dials:?}");
    assert!(grown < 64 << 10, "{grown} bytes: 65 and more a reconnect");
    assert_eq!(tasks(), busy);
    pleg.shutdown().await;
    node.sim.shutdown().await;
    drop((pleg, subscription, kubelet, node));
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    println!("left behind at the end: {} tasks", tasks() - idle);
    assert_eq!(tasks(), idle);
    Ok(())
}

/// Events, by which the runtime notices its dead subscribers: half of them with each one.
async fn restart_containers(kubelet: &Kubelet, pod: &Pod) -> anyhow::Result<()> {
    for attempt in 0..5 {
        let life = Life::Exit {
            code: 0,
            after_ms: 1,
        };
        let id = kubelet.create(pod, "short", attempt, life).await?;
        kubelet.start(&id).await?;
        pleg_tests::lives::ended(kubelet, &id).await?;
        kubelet.remove(&id).await?;
    }
    Ok(())
}

/// Tombstones age.
async fn age_tombstones(node: &InProcess) -> anyhow::Result<()> {
    node.pass(12 * MINUTE).await;
    anyhow::ensure!(node.sim.subscribers() == 1, "the dead ones are noticed");
    Ok(())
}

/// Over sockets, in real time: generators are shut down, dropped, and shut down while all their
/// calls hang; the server goes and comes. Afterwards every task and descriptor is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measured in a process of its own"]
async fn measure_sockets_and_generators() -> anyhow::Result<()> {
    if !is_own_process() {
        return Ok(());
    }
    // Before anything was opened: after a first round some of it might still be closing.
    let before = (tasks(), descriptors()?);
    let mut bytes = Vec::new();
    for round in 0..20 {
        one_round(round).await?;
        settled(before).await?;
        bytes.push(HEAP.allocated());
    }
    let grown = bytes[19].saturating_sub(bytes[4]);
    println!(
        "left behind by 60 generators and 40 servers: no task and no descriptor more than the {} \
         and {} before, {grown} bytes of {}",
        before.0, before.1, bytes[4]
    );
    assert!(grown < 64 << 10, "{grown} bytes in 15 rounds: {bytes:?}");
    Ok(())
}

/// Connections are closed by tasks of their own, a moment later.
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

/// Waits until all streams stand, after so many were lost.
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
    let faults = std::sync::Arc::new(crate::call_faults::CallFaults::default());
    let sim = Sim::builder().seed(3).faults(faults.clone()).build();
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
    // Whose first dial comes too late for this server has no stream to lose.
    subscribed(&all, 0, "it has subscribed").await?;
    for n in 0..3 {
        let pod = kubelet.run_pod(&format!("pod-{round}-{n}")).await?;
        let app = kubelet.create(&pod, "app", 0, Life::UntilStopped).await?;
        kubelet.start(&app).await?;
        faults.hang_id(app.as_str());
    }
    serving.stop().await;
    let serving = sim.serve_unix(&path, std::future::pending())?;
    subscribed(&all, 1, "it has subscribed again").await?;
    // Some of these hang.
    let mut waits = tokio::task::JoinSet::new();
    for pleg in &all {
        for view in pleg.snapshot() {
            let (pleg, uid) = (pleg.clone(), view.status.uid.clone());
            waits.spawn(async move { pleg.newer_than(&uid, pleg.now(), MINUTE).await });
        }
    }
    let [shut, _dropped, late] = &all[..] else {
        anyhow::bail!("three of them");
    };
    let clock = late.clock();
    let began = clock.now();
    shut.shutdown().await;
    sim.sever_connections();
    late.shutdown().await;
    let took = clock.now().since(began);
    assert!(took < 5 * SECOND, "no shutdown waits for a call: {took:?}");
    // The last handle ends the one that nobody shut down.
    drop(all);
    waits.shutdown().await;
    serving.stop().await;
    sim.shutdown().await;
    Ok(())
}
