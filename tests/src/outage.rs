//! The runtime is cut off, containers exit meanwhile, and pod workers keep asking.

use std::time::Duration;

use anyhow::ensure;
use pleg::PodUid;
use pleg::core::Id;
use tokio::task::JoinSet;

use crate::generator::Generator;
use crate::kubelet::{Kubelet, Life};
use crate::wait::{pass_time, until};

/// How often each worker asks, and how long it waits for the answer.
const ASKED_EVERY: Duration = Duration::from_secs(10);
/// From the return of the runtime to the announcement of the last death.
const ANNOUNCED_WITHIN: Duration = Duration::from_secs(2);
/// How many pods there are.
const PODS: i32 = 30;

/// A simulated runtime that can be cut off.
pub trait Interruptible {
    /// Cuts it off: its connections are lost, and it accepts no new ones.
    fn cut_off(&mut self) -> impl Future<Output = ()>;
    /// Reconnects it.
    ///
    /// # Errors
    /// If it cannot be.
    fn reconnect(&mut self) -> anyhow::Result<()>;
    /// Makes a container end. Returns false if it does not run.
    fn kill_container(&self, id: &Id, code: i32) -> bool;
}

/// Cuts the runtime off for that long. The containers of 30 pods end meanwhile, one after the other,
/// and a worker of each pod asks every 10 s. Each death must be announced with its exit code within
/// 2 s of the runtime's return.
///
/// # Errors
/// If one is not.
pub async fn deaths_are_announced_after_outage(
    generator: &mut Generator,
    kubelet: &Kubelet,
    runtime: &mut impl Interruptible,
    outage: Duration,
) -> anyhow::Result<()> {
    let (mut containers, mut workers) = (Vec::new(), JoinSet::new());
    let step = outage / PODS.unsigned_abs();
    for n in 0..PODS {
        let pod = kubelet.run_pod(&format!("outage-{n}")).await?;
        let life = Life::UntilTerminated { code: 10 + n };
        let id = kubelet.create(&pod, "app", 0, life).await?;
        kubelet.start(&id).await?;
        let offset = ASKED_EVERY * n.unsigned_abs() / PODS.unsigned_abs();
        workers.spawn(ask(generator.pleg.clone(), pod.uid.clone(), offset));
        containers.push(id);
    }
    runtime.cut_off().await;
    for (code, id) in (10..).zip(&containers) {
        ensure!(runtime.kill_container(id, code), "{id} runs");
        generator.drain_during(pass_time(step)).await;
    }
    for id in &containers {
        ensure!(
            generator.announced.died(id).is_none(),
            "the exit of {id} is announced during the outage"
        );
    }
    let failed = generator.pleg.counters().lists_failed;
    ensure!(failed > 0, "no list has failed");
    runtime.reconnect()?;
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
    println!(
        "cut off for {outage:?}: {failed} lists failed; {PODS} deaths announced within {slowest:?} of \
         the return"
    );
    ensure!(slowest <= ANNOUNCED_WITHIN, "{slowest:?}");
    generator.check(kubelet).await
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
