//! Each test kills the daemon, freezes the daemon, or restarts the generator.
//!
//! After each outage, the cache must equal the runtime's lists within one relist period, and the generator must
//! use events again. It must have announced every state that a list after the outage showed, and nothing twice,
//! out of order or with a wrong exit code.

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

/// The time limit after an outage until the cache equals the runtime's lists and health shows a confirmed stream.
const SETTLED: Duration = Duration::from_secs(75);
/// The time from SIGSTOP to SIGCONT in the test that freezes the daemon.
const FROZEN: Duration = Duration::from_secs(15);

on_both_versions! {
    generator_recovers_after_daemon_is_killed: killed();
    generator_recovers_after_daemon_is_frozen: frozen();
    restarted_generator_matches_list: client_restarted();
}

/// Kills (SIGKILL) and restarts the daemon while containers exit and the kubelet creates pods.
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
    // Some containers have exited, and some are running.
    pass_time(Duration::from_millis(300)).await;
    daemon.kill()?;
    // Wait, so that containers exit while the daemon is not running.
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

/// Stops the daemon (SIGSTOP) while containers exit.
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
    // Health must report that the runtime is frozen. The node stays ready, as the freeze takes less than 3 minutes.
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

/// Restarts the generator twice during a churn.
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

/// In each pod, runs containers that crash, one after the other. Does not retry calls that fail during the outage.
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
            // If the kill of the daemon interrupted StartContainer, the container may have started or not.
            let _ = kubelet.start(&id).await;
        }
        pass_time(Duration::from_millis(100)).await;
    }
}

/// Runs, crashes, stops and removes three pods, one after the other. Retries calls that fail while the daemon is
/// down, as a kubelet does.
async fn lifecycles_with_retries(kubelet: &Kubelet, n: usize) -> anyhow::Result<()> {
    for round in 0..3 {
        let name = format!("life-{n}-{round}");
        let pod = retry(|| kubelet.run_pod(&name)).await?;
        let attempt = AtomicU32::new(0);
        let job = retry(|| {
            // An interrupted CreateContainer leaves the container's name reserved, so every retry has a new attempt
            // number.
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
                // An earlier, interrupted call has started this container, which may have exited in the meantime.
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

/// Waits until the cache equals the runtime's lists, the stream [is confirmed](Generator::is_confirmed), and is used.
async fn settled(generator: &mut Generator, kubelet: &Kubelet) -> anyhow::Result<()> {
    generator.wait_until_cache_equals_list(SETTLED).await?;
    generator.wait_until_confirmed(SETTLED).await?;
    generator
        .wait_until_events_are_used(kubelet, "afterwards")
        .await
}

/// Checks all announcements, and shuts the generator down.
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
    // Expect the runtime's exit code: it is 255 if the container exited while the runtime was down.
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

/// Waits until every started job has exited. Returns the jobs that the runtime lists as running for
/// ever: containerd < 1.7.34 misses the exits of containers that exit while it recovers
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
