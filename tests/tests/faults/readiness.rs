//! Readiness, degraded reasons and answers while something hangs: one pod, 110
//! pods, a list, the stream, a consumer.
//!
//! Expected is readiness as invariant 12 defines it, by the instants of the calls themselves: a complete
//! list began within the last 3 min, and no work of the writer is overdue.

use std::time::Duration;

use futures::future::join_all;
use pleg::core::{LifecycleType, NotReady, Settings};
use pleg::{Delivery, WaitError};
use pleg_tests::faulty_pipe::{Accepting, Break};
use pleg_tests::generator::Generator;
use pleg_tests::kubelet::{Kubelet, Life, Pod};

use crate::in_process::{InProcess, MINUTE, MS, SECOND};

/// Invariant 12.
const UNREADY_AFTER: Duration = MINUTE.saturating_mul(3);
/// The deadline of a list.
const LIST_DEADLINE: Duration = Duration::from_secs(30);
/// A cause is reported this soon after its first sign; the check may come a millisecond later.
const REPORTED_WITHIN: Duration = Duration::from_millis(3001);

/// How long `newer_than` took for these pods, all of them at once, `rounds` times.
async fn served(
    node: &InProcess,
    generator: &Generator,
    pods: &[Pod],
    rounds: usize,
) -> anyhow::Result<Vec<Duration>> {
    let mut took = Vec::new();
    for _ in 0..rounds {
        let asked = node.clock.now();
        let answers = join_all(pods.iter().map(|pod| async move {
            let view = generator.pleg.newer_than(&pod.uid, asked, MINUTE).await?;
            anyhow::ensure!(view.as_of >= Some(asked), "stale: {view:?}");
            Ok(node.clock.now().since(asked))
        }));
        for answer in answers.await {
            took.push(answer?);
        }
        assert_eq!(generator.pleg.health().ready(), Ok(()));
        node.pass(100 * MS).await;
    }
    Ok(took)
}

/// Checks that p99 of the answers of healthy pods is below 5 s.
fn check(title: &str, mut took: Vec<Duration>) {
    took.sort();
    let at = |percent: usize| took[(took.len() * percent / 100).min(took.len() - 1)];
    println!(
        "{title}: {} healthy answers: p50 {:?}, p99 {:?}, most {:?}",
        took.len(),
        at(50),
        at(99),
        at(100)
    );
    assert!(at(99) < 5 * SECOND, "{title}: p99 {:?}", at(99));
}

/// The first `hung` pods do not answer, and a waiter waits for each of them.
async fn hung_pods(hung: usize, healthy: usize) -> anyhow::Result<()> {
    let node = InProcess::up();
    let kubelet = node.kubelet()?;
    let pods = node.run_pods(&kubelet, hung + healthy).await?;
    let generator = node.start(Settings::default()).await?;
    let (bad, good) = pods.split_at(hung);
    bad.iter()
        .for_each(|p| node.faults.hang_id(p.sandbox.as_str()));
    let (pleg, asked) = (generator.pleg.clone(), node.clock.now());
    let waits: Vec<_> = bad
        .iter()
        .map(|pod| {
            let (pleg, uid) = (pleg.clone(), pod.uid.clone());
            let clock = node.clock;
            tokio::spawn(async move {
                let answer = pleg.details_newer_than(&uid, asked, MINUTE).await;
                (answer, clock.now().since(asked))
            })
        })
        .collect();
    // Its first sign is the late status call. A waiter for a state alone causes none.
    let reported_after = async {
        let took = node
            .until(REPORTED_WITHIN, "it is reported", || {
                generator.is_degraded("pods_hung")
            })
            .await?;
        anyhow::Ok(took)
    };
    let (reported_after, took) =
        futures::join!(reported_after, served(&node, &generator, good, 20));
    println!("{hung} hung pods: reported after {:?}", reported_after?);
    check(&format!("{hung} hung pods"), took?);
    let mut longest = Duration::ZERO;
    for wait in waits {
        let (answer, after) = wait.await?;
        let Err(WaitError::Read { last_good, .. }) = answer else {
            anyhow::bail!("it hangs: {answer:?}");
        };
        assert!(last_good.status.exists(), "no last good status");
        longest = longest.max(after);
    }
    println!("{hung} hung pods: their waiters get errors after {longest:?} at most");
    // While the pods hang, the node is ready, the cause is reported, other waiters are answered, and lists
    // run.
    for _ in 0..240 {
        node.pass(SECOND).await;
        assert_eq!(generator.pleg.health().ready(), Ok(()));
        assert!(generator.is_degraded("pods_failing") || generator.is_degraded("pods_hung"));
    }
    check(
        &format!("{hung} hung pods after 4 min"),
        served(&node, &generator, good, 5).await?,
    );
    node.faults.clear();
    let recovered_after = node
        .until(2 * MINUTE, "nothing is degraded", || generator.is_well())
        .await?;
    println!("{hung} hung pods: recovered {recovered_after:?} after they answer again");
    node.check_and_end(generator, &kubelet).await
}

#[tokio::test(start_paused = true)]
async fn hung_pod_delays_no_other() -> anyhow::Result<()> {
    hung_pods(1, 60).await
}

#[tokio::test(start_paused = true)]
async fn hundred_and_ten_hung_pods_delay_no_other() -> anyhow::Result<()> {
    hung_pods(110, 60).await
}

#[tokio::test(start_paused = true)]
async fn hung_list_is_reported_and_delays_no_answer() -> anyhow::Result<()> {
    let node = InProcess::up();
    let kubelet = node.kubelet()?;
    let pods = node.run_pods(&kubelet, 60).await?;
    let generator = node.start(Settings::default()).await?;
    node.faults.hang_calls("StreamPodSandboxes", 1);
    let (pleg, asked) = (generator.pleg.clone(), node.clock.now());
    let list = tokio::spawn(async move { pleg.relist_now().await });
    node.pass(MS).await;
    let reported_after = async {
        let slow = || generator.is_degraded("list_slow");
        node.until(REPORTED_WITHIN, "it is reported", slow).await
    };
    let (reported_after, took) =
        futures::join!(reported_after, served(&node, &generator, &pods, 50));
    println!("a hung list: reported after {:?}", reported_after?);
    check("a hung list", took?);
    assert!(list.await?.is_err());
    let took = node.clock.now().since(asked);
    assert!(
        (LIST_DEADLINE..LIST_DEADLINE + 3 * MS).contains(&took),
        "{took:?}"
    );
    assert_eq!(generator.degraded(), ["list_failed"]);
    let recovered_after = node
        .until(2 * SECOND, "nothing is degraded", || generator.is_well())
        .await?;
    println!("a hung list: recovered {recovered_after:?} after its deadline");
    node.check_and_end(generator, &kubelet).await
}

/// No list is answered. The node is ready for three minutes to the millisecond. Then it is unready, with
/// upstream's text. It is ready again after the first list that succeeds.
#[tokio::test(start_paused = true)]
async fn node_is_unready_after_three_minutes_of_hung_lists() -> anyhow::Result<()> {
    let node = InProcess::up();
    let kubelet = node.kubelet()?;
    node.run_pods(&kubelet, 3).await?;
    let generator = node.start(Settings::default()).await?;
    node.faults.hang_calls("StreamPodSandboxes", u64::MAX);
    let last = generator.health().last_list;
    let unready = last.map_or(node.clock.now(), |l| l.after(UNREADY_AFTER));
    while node.clock.now() <= unready {
        assert_eq!(generator.pleg.health().ready(), Ok(()));
        node.pass(100 * MS).await;
    }
    for _ in 0..100 {
        node.pass(100 * MS).await;
        let why = generator.pleg.health().ready();
        assert!(matches!(why, Err(NotReady::Stale { .. })), "{why:?}");
        let text = why.map_err(|why| why.to_string()).err().unwrap_or_default();
        assert!(text.starts_with("pleg was last seen active 3m"), "{text}");
        assert!(text.ends_with("ago; threshold is 3m0s"), "{text}");
    }
    node.faults.clear();
    // The list in flight is never answered, and its deadline has grown to 2 min.
    let recovered_after = node
        .until(2 * MINUTE + 2 * SECOND, "nothing is degraded", || {
            generator.is_well() && generator.pleg.health().ready().is_ok()
        })
        .await?;
    println!("hung lists: ready and recovered {recovered_after:?} after they answer again");
    node.check_and_end(generator, &kubelet).await
}

#[tokio::test(start_paused = true)]
async fn cut_stream_is_reported_and_leaves_the_node_ready() -> anyhow::Result<()> {
    let node = InProcess::up();
    let kubelet = node.kubelet()?;
    let pods = node.run_pods(&kubelet, 60).await?;
    let generator = node.start(Settings::default()).await?;
    node.events.set_accepting(Accepting::Refused);
    node.events.break_now(Break::Reset);
    let reported_after = node
        .until(REPORTED_WITHIN, "it is reported", || {
            generator.is_degraded("stream_down")
        })
        .await?;
    println!("a cut stream: reported after {reported_after:?}");
    check("a cut stream", served(&node, &generator, &pods, 50).await?);
    for _ in 0..240 {
        node.pass(SECOND).await;
        assert_eq!(generator.pleg.health().ready(), Ok(()));
        assert_eq!(generator.degraded(), ["stream_down"]);
    }
    node.events.set_accepting(Accepting::Served);
    let recovered_after = node
        .until(MINUTE + 2 * SECOND, "nothing is degraded", || {
            generator.is_well()
        })
        .await?;
    println!("a cut stream: recovered {recovered_after:?} after connections are accepted again");
    node.check_and_end(generator, &kubelet).await
}

/// Starts containers of the pod one after the other. Each exits and is removed.
async fn restarts(kubelet: &Kubelet, pod: &Pod, times: u32) -> anyhow::Result<()> {
    for attempt in 0..times {
        let life = Life::Exit {
            code: 3,
            after_ms: 1,
        };
        let id = kubelet.run(pod, "loop", attempt, life).await?;
        pleg_tests::lives::ended(kubelet, &id).await?;
        kubelet.remove(&id).await?;
    }
    Ok(())
}

/// A consumer takes nothing, and upstream's queue is never emptied. Neither makes the node unready. The
/// consumer gets every exit as soon as it reads, and the queue drops and counts events. A consumer that keeps
/// up gets all.
#[tokio::test(start_paused = true)]
async fn full_consumer_loses_no_exit_and_leaves_the_node_ready() -> anyhow::Result<()> {
    let metrics = metrics_util::debugging::DebuggingRecorder::new();
    let seen = metrics.snapshotter();
    let _ours = metrics::set_default_local_recorder(&metrics);
    let node = InProcess::up();
    let kubelet = node.kubelet()?;
    let pods = node.run_pods(&kubelet, 60).await?;
    let (mut builder, recorder) = node.builder(Settings::default())?;
    let mut full = builder.subscribe();
    let _fifo = builder.upstream_fifo();
    let mut generator = Generator::spawn(builder, recorder, node.observer_client()?)?;
    generator.pleg.wait_until_synced().await?;
    node.until(5 * SECOND, "the stream is confirmed", || {
        generator.is_well()
    })
    .await?;
    let check_health = |generator: &Generator| {
        assert_eq!(generator.pleg.health().ready(), Ok(()));
        assert_eq!(generator.degraded(), [""; 0]);
    };
    for _ in 0..20 {
        restarts(&kubelet, &pods[0], 50).await?;
        generator.drain();
        check_health(&generator);
    }
    check(
        "a full consumer",
        served(&node, &generator, &pods, 10).await?,
    );
    for _ in 0..240 {
        node.pass(SECOND).await;
        check_health(&generator);
    }
    let objects = kubelet.objects();
    generator.drain();
    let missing = generator
        .announced
        .missing(&objects, Some(&generator.recorder.log()));
    assert!(
        missing.is_empty(),
        "a consumer that keeps up misses: {missing:#?}"
    );
    let (mut lagged, mut died, mut deliveries) = (0, 0, 0);
    while let Some(delivery) = full.try_next() {
        deliveries += 1;
        match delivery {
            Delivery::Lagged { missed } => lagged += missed,
            Delivery::Event(e) if e.uid == pods[0].uid => {
                died += u64::from(e.event == LifecycleType::ContainerDied);
            }
            _ => {}
        }
    }
    println!(
        "a full consumer: {died} exits in {deliveries} deliveries, {lagged} counted by Lagged"
    );
    assert_eq!((died, lagged), (1000, 0), "every exit is delivered");
    // Started of containers that have ended since is joined with what followed.
    let announced: usize = generator.announced.sources().values().sum();
    assert!(deliveries < announced, "{deliveries} of {announced}");
    let discarded = seen
        .snapshot()
        .into_vec()
        .into_iter()
        .find(|(key, ..)| key.key().name() == "kubelet_pleg_discard_events")
        .map(|(.., value)| value);
    println!("a full consumer: upstream's queue has dropped {discarded:?}");
    let dropped =
        matches!(discarded, Some(metrics_util::debugging::DebugValue::Counter(n)) if n > 1000);
    assert!(dropped, "{discarded:?}");
    node.check_and_end(generator, &kubelet).await
}
