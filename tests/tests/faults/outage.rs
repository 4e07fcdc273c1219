//! The runtime is cut off, containers exit meanwhile, and pod workers keep asking, on paused time.

use std::time::Duration;

use anyhow::ensure;
use pleg::PodUid;
use pleg::core::Settings;
use pleg_tests::faulty_pipe::{Accepting, Break};
use pleg_tests::kubelet::Life;
use pleg_tests::wait::until;
use tokio::task::JoinSet;

use crate::in_process::{InProcess, MINUTE, SECOND};

/// How often each worker asks, and how long it waits for the answer.
const ASKED_EVERY: Duration = Duration::from_secs(10);
/// From the return of the runtime to the announcement of the last death.
const ANNOUNCED_WITHIN: Duration = Duration::from_secs(2);
/// How many pods there are.
const PODS: i32 = 30;

/// The runtime is cut off for a minute. The containers of 30 pods end meanwhile, one after the other,
/// and a worker of each pod asks every 10 s. Each death is announced with its exit code within 2 s of
/// the runtime's return, and later events are used.
#[tokio::test(start_paused = true)]
async fn deaths_in_an_outage_are_announced_at_its_end() -> anyhow::Result<()> {
    let node = InProcess::up();
    let mut generator = node.start(Settings::default()).await?;
    let kubelet = node.kubelet()?;
    let (mut containers, mut workers) = (Vec::new(), JoinSet::new());
    for n in 0..PODS {
        let pod = kubelet.run_pod(&format!("outage-{n}")).await?;
        let life = Life::UntilTerminated { code: 10 + n };
        let id = kubelet.run(&pod, "app", 0, life).await?;
        let offset = ASKED_EVERY * n.unsigned_abs() / PODS.unsigned_abs();
        workers.spawn(ask(generator.pleg.clone(), pod.uid.clone(), offset));
        containers.push(id);
    }
    let pipes = [&node.events, &node.calls];
    for pipe in pipes {
        pipe.set_accepting(Accepting::Refused);
        pipe.break_now(Break::Reset);
    }
    for (code, id) in (10..).zip(&containers) {
        ensure!(node.sim.kill_container(id.as_str(), code), "{id} runs");
        let step = node.pass(MINUTE / PODS.unsigned_abs());
        generator.drain_during(step).await;
    }
    for id in &containers {
        ensure!(
            generator.announced.died(id).is_none(),
            "the exit of {id} is announced during the outage"
        );
    }
    let failed = generator.pleg.counters().lists_failed;
    ensure!(failed > 0, "no list has failed");
    for pipe in pipes {
        pipe.set_accepting(Accepting::Served);
    }
    let back = generator.pleg.now();
    until(ANNOUNCED_WITHIN * 10, "all deaths are announced", || {
        generator.drain();
        let all = containers
            .iter()
            .all(|id| generator.announced.died(id).is_some());
        async move { all.then_some(()) }
    })
    .await?;
    workers.shutdown().await;
    let (mut slowest, mut wrong) = (Duration::ZERO, Vec::new());
    for (code, id) in (10..).zip(&containers) {
        match generator.announced.died(id) {
            Some((at, Some(c))) if c == code => slowest = slowest.max(at.since(back)),
            other => wrong.push(format!("{id} ended with {code}: {other:?}, back {back:?}")),
        }
    }
    ensure!(wrong.is_empty(), "{wrong:#?}");
    ensure!(slowest <= ANNOUNCED_WITHIN, "{slowest:?}");
    generator.check(&kubelet).await?;
    generator.wait_until_confirmed(MINUTE + 3 * SECOND).await?;
    generator
        .wait_until_events_are_used(&kubelet, "afterwards")
        .await?;
    node.end(generator).await;
    Ok(())
}

/// Asks for a new state of that pod every 10 s, first after `offset`.
async fn ask(pleg: pleg::Pleg, uid: PodUid, offset: Duration) {
    let mut at = pleg.now().after(offset);
    loop {
        pleg.clock().sleep_until(at).await;
        let _ = pleg.newer_than(&uid, pleg.now(), ASKED_EVERY).await;
        at = at.after(ASKED_EVERY);
    }
}
