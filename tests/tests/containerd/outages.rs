//! The daemon is killed or frozen, or the generator restarts.
//!
//! After each: the cache equals the list within one relist period, events are used again without a
//! restart of the generator, nothing was announced twice, out of order or with a wrong exit code, and
//! everything that a list after the outage still showed was announced.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context;
use pleg::core::{Health, Id, Kind, Mode, ReportedState};
use pleg_tests::check::{listing, unannounced};
use pleg_tests::daemon::{Daemon, Version};
use pleg_tests::generator::Generator;
use pleg_tests::kubelet::{Kubelet, Life, Pod};
use pleg_tests::lives::retry;
use pleg_tests::wait::{pass_time, until};
use tokio::task::JoinSet;

use crate::start;

/// The limit until the cache equals the list and the stream is confirmed again.
const SETTLED: Duration = Duration::from_secs(75);
/// For how long the daemon is halted.
const FROZEN: Duration = Duration::from_secs(15);

on_both_versions! {
    kill_is_survived: killed();
    freeze_is_survived: frozen();
    restarted_generator_is_right: client_restarted();
}

/// kill -9 and restart of the daemon while containers exit and pods are made.
async fn killed(daemon: &Daemon) -> anyhow::Result<()> {
    let mut generator = start(daemon, Mode::Evented)?;
    let kubelet = Kubelet::new(daemon)?;
    let pods = kubelet.run_pods(12).await?;
    let churn = crashes(&kubelet, &pods, "job");
    let mut lives: JoinSet<anyhow::Result<()>> = JoinSet::new();
    for n in 0..4 {
        let kubelet = kubelet.clone();
        lives.spawn(async move { lifecycles_with_retries(&kubelet, n).await });
    }
    // Some containers have exited, and some run.
    pass_time(Duration::from_millis(300)).await;
    daemon.kill()?;
    // Containers exit while the daemon does not run.
    pass_time(Duration::from_millis(1500)).await;
    daemon.start()?;
    let back = generator.pleg.now();
    churn.join_all().await;
    lives
        .join_all()
        .await
        .into_iter()
        .collect::<anyhow::Result<()>>()?;
    settled(&mut generator, &kubelet).await?;
    println!(
        "settled {:?} after the restart",
        generator.pleg.now().since(back)
    );
    finish(generator, &kubelet, daemon.version).await
}

/// SIGSTOP of the daemon, while containers exit.
async fn frozen(daemon: &Daemon) -> anyhow::Result<()> {
    let mut generator = start(daemon, Mode::Evented)?;
    let kubelet = Kubelet::new(daemon)?;
    let pods = kubelet.run_pods(8).await?;
    let churn = crashes(&kubelet, &pods, "job");
    pass_time(Duration::from_millis(200)).await;
    daemon.signal("SIGSTOP")?;
    let frozen = generator.pleg.now();
    let health = generator.pleg.health();
    pass_time(FROZEN).await;
    // Health reports a frozen runtime, and the node stays ready for three minutes.
    let degraded = health.degraded();
    daemon.signal("SIGCONT")?;
    assert!(
        health.ready().is_ok(),
        "the node is unready after {FROZEN:?}"
    );
    let list_hangs = |h: &Health| h.list_in_flight.is_some() || h.list_error.is_some();
    assert!(
        !degraded.is_empty() || !list_hangs(&health.current()),
        "health reports a hanging list"
    );
    churn.join_all().await;
    settled(&mut generator, &kubelet).await?;
    println!(
        "{degraded:?}; settled {:?} after it was frozen",
        generator.pleg.now().since(frozen)
    );
    finish(generator, &kubelet, daemon.version).await
}

/// The generator restarts during a churn, twice.
async fn client_restarted(daemon: &Daemon) -> anyhow::Result<()> {
    let mut generator = start(daemon, Mode::Evented)?;
    let kubelet = Kubelet::new(daemon)?;
    let pods = kubelet.run_pods(8).await?;
    for round in 0..2 {
        let churn = crashes(&kubelet, &pods, &format!("job-{round}"));
        pass_time(Duration::from_millis(300)).await;
        generator.pleg.shutdown().await;
        generator.check_announced(&kubelet.objects())?;
        generator = start(daemon, Mode::Evented)?;
        churn.join_all().await;
    }
    settled(&mut generator, &kubelet).await?;
    finish(generator, &kubelet, daemon.version).await
}

/// Runs containers that crash one after the other in each pod. Calls fail while the daemon is down, and are not
/// repeated.
fn crashes(kubelet: &Kubelet, pods: &[(Pod, Id)], name: &str) -> JoinSet<()> {
    let pods = pods.iter().cloned().zip(0..);
    let crashes = pods.map(|((pod, _), n)| crash(kubelet.clone(), pod, n, name.to_owned()));
    crashes.collect()
}

async fn crash(kubelet: Kubelet, pod: Pod, n: i32, name: String) {
    for attempt in 0..3_u32 {
        let code = n * 10 + attempt.cast_signed() + 1;
        let life = Life::Exit {
            code,
            after_ms: 400 * u64::from(attempt),
        };
        if let Ok(id) = kubelet.create(&pod, &name, attempt, life).await {
            // A start that is interrupted may have happened or not.
            let _ = kubelet.start(&id).await;
        }
        pass_time(Duration::from_millis(100)).await;
    }
}

/// Three pods, one after the other, run, crash, stop and are removed. Calls that fail while the daemon is
/// down are repeated, as a kubelet does.
async fn lifecycles_with_retries(kubelet: &Kubelet, n: usize) -> anyhow::Result<()> {
    for round in 0..3 {
        let name = format!("life-{n}-{round}");
        let pod = retry(|| kubelet.run_pod(&name)).await?;
        let attempt = AtomicU32::new(0);
        let job = retry(|| {
            // An interrupted CreateContainer also leaves its name reserved.
            let attempt = attempt.fetch_add(1, Ordering::Relaxed);
            kubelet.create(
                &pod,
                "job",
                attempt,
                Life::Exit {
                    code: 7,
                    after_ms: 100,
                },
            )
        })
        .await?;
        retry(|| async {
            let outcome = kubelet.start(&job).await;
            match kubelet.container_status(&job).await? {
                // It was started by a call that was cut off, or has ended since.
                Some(status) if status.started_at != 0 => Ok(()),
                _ => outcome,
            }
        })
        .await?;
        pass_time(Duration::from_millis(250)).await;
        retry(|| kubelet.stop(&job)).await?;
        retry(|| kubelet.remove(&job)).await?;
        retry(|| kubelet.stop_pod(&pod)).await?;
        retry(|| kubelet.remove_pod(&pod)).await?;
    }
    Ok(())
}

/// Waits until the cache equals the list, the stream is confirmed and its events are used.
async fn settled(generator: &mut Generator, kubelet: &Kubelet) -> anyhow::Result<()> {
    generator.wait_until_cache_equals_list(SETTLED).await?;
    generator.wait_until_confirmed(SETTLED).await?;
    generator
        .wait_until_events_are_used(kubelet, "afterwards")
        .await
}

/// Checks all that was announced, and shuts the generator down.
async fn finish(
    mut generator: Generator,
    kubelet: &Kubelet,
    version: Version,
) -> anyhow::Result<()> {
    let stuck = jobs_end(&generator, kubelet).await?;
    if !stuck.is_empty() {
        println!("{version:?}: listed as running after they have exited: {stuck:?}");
        assert_eq!(version, Version::V1_7, "containerd 2.1 does not lose exits");
    }
    generator.wait_until_cache_equals_list(SETTLED).await?;
    // The runtime defines the exit code. It is 255 for an exit that the runtime has not seen.
    let mut objects = kubelet.objects();
    for (id, object) in objects
        .iter_mut()
        .filter(|(_, d)| d.kind == Kind::Container)
    {
        if let Some(status) = kubelet.container_status(id).await? {
            object.exit_code = status.exit_code;
        }
    }
    generator.check_announced(&objects)?;
    let listed = listing(&generator.observer).await?;
    let unannounced_states = unannounced(&listed, &objects, &generator.announced);
    assert!(unannounced_states.is_empty(), "{unannounced_states:#?}");
    generator.pleg.shutdown().await;
    Ok(())
}

/// Waits until every job that was started has ended. Returns those that stay listed as
/// running: containerd < 1.7.34 misses the exits of containers that end while it recovers
/// (containerd#10390).
async fn jobs_end(generator: &Generator, kubelet: &Kubelet) -> anyhow::Result<Vec<String>> {
    let objects = kubelet.objects();
    let running = || async {
        let listed = listing(&generator.observer).await.ok()?;
        let jobs = objects.iter().filter(|(_, d)| d.exit_code != 0);
        let running = jobs.filter(|(id, _)| listed.get(*id) == Some(&ReportedState::Running));
        Some(running.map(|(_, d)| d.name.clone()).collect::<Vec<_>>())
    };
    let all_ended = || async { running().await.filter(Vec::is_empty).map(drop) };
    match until(Duration::from_secs(10), "all jobs exit", all_ended).await {
        Ok(()) => Ok(Vec::new()),
        Err(_) => running().await.context("the runtime does not list"),
    }
}
