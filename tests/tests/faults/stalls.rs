//! Open connections that stall in the middle of a message.

use anyhow::Context as _;
use pleg::core::{CallErrorKind, Degraded, Id, LifecycleType, NotReady, Settings, StreamState};
use pleg::{Pleg, RelistError};
use pleg_tests::faulty_pipe::Break;
use pleg_tests::kubelet::{Kubelet, Life};

use crate::in_process::{InProcess, MINUTE, MS, SECOND};

fn relist(pleg: &Pleg) -> tokio::task::JoinHandle<Result<(), RelistError>> {
    let pleg = pleg.clone();
    tokio::spawn(async move { pleg.relist_now().await })
}

/// A list stalls in the middle. Health reports it within 3 s, and it fails at its deadline. Meanwhile events
/// still announce ends, which need no call. When the server resumes, the generator recovers.
#[tokio::test(start_paused = true)]
async fn stalled_list_is_reported_and_given_up_at_its_deadline() -> anyhow::Result<()> {
    for at in [1, 9, 100, 500, 1500] {
        let node = InProcess::up();
        let kubelet = node.kubelet()?;
        let pods = node.run_pods(&kubelet, 3).await?;
        let mut generator = node.start(Settings::default()).await?;
        node.calls.break_after(at, Break::Stall);
        let list = relist(&generator.pleg);
        let reported_after = node
            .until(4 * SECOND, "it is reported", || {
                assert_eq!(generator.pleg.health().ready(), Ok(()));
                generator.is_degraded("list_slow")
            })
            .await?;
        assert!(reported_after <= 3 * SECOND + 3 * MS, "{reported_after:?}");
        let started = kubelet.run_pod("meanwhile").await?;
        let view = generator.pleg.get(&pods[0].uid);
        let app = view
            .status
            .container("app")
            .context("no container")?
            .id
            .clone();
        kubelet.stop(&app).await?;
        node.until(10 * MS, "the stream delivers an event", || {
            generator.has(&app, LifecycleType::ContainerDied)
        })
        .await?;
        let code = generator.announced.died(&app).and_then(|(_, code)| code);
        assert_eq!(code, Some(0), "the event has shown it");
        let Err(RelistError::Failed(error)) = list.await? else {
            anyhow::bail!("the list has succeeded");
        };
        assert_eq!(error.kind, CallErrorKind::DeadlineExceeded);
        assert!(generator.is_degraded("list_failed"));
        // Still reported, still ready.
        for _ in 0..60 {
            node.pass(SECOND).await;
            assert!(generator.is_degraded("list_failed") || generator.is_degraded("list_slow"));
            assert_eq!(generator.pleg.health().ready(), Ok(()));
        }
        node.calls.resume();
        let recovered_after = node
            .until(MINUTE, "nothing is degraded", || generator.is_well())
            .await?;
        assert!(generator.has(&started.sandbox, LifecycleType::ContainerStarted));
        println!(
            "stalled after {at} bytes: reported after {reported_after:?}, recovered \
             {recovered_after:?} after it resumed"
        );
        generator.check(&kubelet).await?;
        node.end(generator).await;
    }
    Ok(())
}

/// Invariant 12: after three minutes without a complete list the node is not ready, and not before.
#[tokio::test(start_paused = true)]
async fn node_is_unready_after_three_minutes_without_a_list() -> anyhow::Result<()> {
    let node = InProcess::up();
    let kubelet = node.kubelet()?;
    node.run_pods(&kubelet, 1).await?;
    let generator = node.start(Settings::default()).await?;
    node.calls.break_now(Break::Stall);
    let last = generator.health().last_list;
    for _ in 0..400 {
        node.pass(SECOND).await;
        let health = generator.pleg.health();
        assert_eq!(health.current().last_list, last, "no list succeeds");
        let silent = last.map(|l| node.clock.now().since(l)).unwrap_or_default();
        match health.ready() {
            Ok(()) => assert!(silent <= 180 * SECOND, "{silent:?}"),
            Err(NotReady::Stale { elapsed, threshold }) => {
                assert!(silent > 180 * SECOND && elapsed > threshold, "{silent:?}");
            }
            Err(other) => anyhow::bail!("{other}"),
        }
    }
    assert!(generator.pleg.health().ready().is_err());
    node.calls.break_now(Break::Reset);
    let back = node
        .until(2 * SECOND, "it is ready again", || {
            generator.pleg.health().ready().is_ok() && generator.is_well()
        })
        .await?;
    println!("ready {back:?} after the dead connection was cut");
    node.check_and_end(generator, &kubelet).await
}

async fn short_job(kubelet: &Kubelet, name: &str) -> anyhow::Result<Id> {
    let pod = kubelet.run_pod(name).await?;
    let life = Life::Exit {
        code: 9,
        after_ms: 30_000,
    };
    let job = kubelet.run(&pod, "job", 0, life).await?;
    Ok(job)
}

/// What happens to a stream that has stalled.
#[derive(Clone, Copy, Debug)]
enum Then {
    Resumes,
    Breaks(Break),
    StaysMute,
}

/// An event stalls in the middle, and the stream is silent. Lists find what it does not report and
/// count it. The node stays ready. If nothing else ends the stream, it is subscribed again ten minutes after the first
/// miss. Health reports the lossy stream until the losses are ten minutes old.
#[tokio::test(start_paused = true)]
async fn stalled_stream_is_lossy_and_subscribed_again() -> anyhow::Result<()> {
    for (at, then) in [
        (1, Then::Resumes),
        (100, Then::Breaks(Break::Reset)),
        (700, Then::Breaks(Break::End)),
        (1, Then::StaysMute),
    ] {
        let node = InProcess::up();
        let kubelet = node.kubelet()?;
        node.run_pods(&kubelet, 2).await?;
        let mut generator = node.start(Settings::default()).await?;
        // The period has grown.
        node.pass(2 * MINUTE).await;
        node.events.break_after(at, Break::Stall);
        let mut found = Vec::new();
        for n in 0..5 {
            let job = short_job(&kubelet, &format!("job-{n}")).await?;
            let within = 2 * MINUTE;
            let what = "a list finds the exit";
            let took = node
                .until(within, what, || {
                    assert_eq!(generator.pleg.health().ready(), Ok(()));
                    generator.has(&job, LifecycleType::ContainerDied)
                })
                .await?;
            found.push(took.saturating_sub(30 * SECOND));
            node.pass(10 * SECOND).await;
        }
        let missed = generator.missed();
        println!(
            "a stream that stalls after {at} bytes: {missed} missed; exits found {found:?} late"
        );
        // STARTED and STOPPED of all but the last job. Within 10 s the last ones may still come.
        assert!(missed >= 8, "{missed}");
        // The next list finds the first loss. After that the period is short.
        assert!(found[0] <= MINUTE, "{found:?}");
        assert!(
            found[1..].iter().all(|late| *late <= SECOND + 10 * MS),
            "{found:?}"
        );
        let renewed = || generator.pleg.counters().streams_renewed;
        assert_eq!(renewed(), 0);
        match then {
            Then::Resumes => node.events.resume(),
            Then::Breaks(how) => node.events.break_now(how),
            Then::StaysMute => {
                let dials = node.events.dials();
                let what = "the mute stream is subscribed again";
                let took = node.until(10 * MINUTE, what, || renewed() == 1).await?;
                println!("  subscribed again {took:?} later");
                node.pass(SECOND).await;
                assert_eq!(
                    node.events.dials(),
                    dials + 1,
                    "the new stream has a connection of its own"
                );
            }
        }
        node.until(5 * SECOND, "there is a stream", || generator.is_confirmed())
            .await?;
        assert_eq!(generator.degraded(), ["stream_lossy"]);
        // Losses are counted by whole minutes.
        node.until(11 * MINUTE, "its losses are too old to count", || {
            generator.is_well()
        })
        .await?;
        assert!(renewed() <= u64::from(matches!(then, Then::StaysMute)));
        generator.check(&kubelet).await?;
        let job = short_job(&kubelet, "afterwards").await?;
        node.until(30 * SECOND + 5 * MS, "the stream reports an exit", || {
            generator.has(&job, LifecycleType::ContainerDied)
        })
        .await?;
        generator.check(&kubelet).await?;
        node.end(generator).await;
    }
    Ok(())
}

/// The state of a lost stream contains the cause.
#[tokio::test(start_paused = true)]
async fn lost_stream_is_reported_with_its_cause() -> anyhow::Result<()> {
    let node = InProcess::up();
    let kubelet = node.kubelet()?;
    let generator = node.start(Settings::default()).await?;
    kubelet.run_pod("announced").await?;
    node.pass(SECOND).await;
    node.events
        .set_accepting(pleg_tests::faulty_pipe::Accepting::Refused);
    node.events.break_now(Break::Reset);
    let cut = node.clock.now();
    node.until(10 * MS, "it is reported", || {
        generator.is_degraded("stream_down")
    })
    .await?;
    let StreamState::Down { why, since, .. } = generator.health().stream else {
        anyhow::bail!("it is down");
    };
    assert!(since.since(cut) <= 2 * MS);
    println!("{why:?}");
    let [Degraded::StreamDown { since: reported }] = generator.pleg.health().degraded()[..] else {
        anyhow::bail!("{:?}", generator.degraded());
    };
    assert_eq!(reported, since);
    node.end(generator).await;
    Ok(())
}
