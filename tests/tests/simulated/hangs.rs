//! Tests a generator while all calls about some pods hang, or while the event stream delivers nothing.

use std::time::Duration;

use futures::future::join_all;
use pleg::WaitError;
use pleg::core::{Id, LifecycleType, Settings};
use pleg_tests::generator::Generator;
use pleg_tests::kubelet::{Kubelet, Life, Pod};

use crate::node::{MINUTE, MS, Node, SECOND};
use crate::pipe::Break;

/// Waits for new views of all these pods at once, `rounds` times. 99 % of the waits must end within 5 s.
async fn are_served(
    node: &Node,
    generator: &Generator,
    pods: &[(Pod, Id)],
    rounds: usize,
) -> anyhow::Result<()> {
    let mut took = Vec::new();
    for _ in 0..rounds {
        let began = node.clock.now();
        let answers = join_all(pods.iter().map(|(pod, _)| async move {
            let view = generator.pleg.newer_than(&pod.uid, began, MINUTE).await?;
            anyhow::ensure!(view.as_of >= Some(began), "stale: {view:?}");
            Ok(node.clock.now().since(began))
        }));
        for answer in answers.await {
            took.push(answer?);
        }
        assert_eq!(generator.pleg.health().ready(), Ok(()));
        node.pass(100 * MS).await;
    }
    took.sort();
    let p99 = took[took.len() * 99 / 100];
    anyhow::ensure!(p99 < 5 * SECOND, "p99 {p99:?}");
    Ok(())
}

/// Lets status calls for the first `hung` pods hang while the test waits for each pod. Health must report hung pods in
/// 3 s, the waiters must get the last good status, reads of other pods must succeed, and the node must stay ready.
async fn hung_pods(hung: usize) -> anyhow::Result<()> {
    let node = Node::up();
    let kubelet = node.kubelet()?;
    let pods = kubelet.run_pods(hung + 20).await?;
    let generator = node.start(Settings::default()).await?;
    let (bad, good) = pods.split_at(hung);
    for (pod, _) in bad {
        node.set(&format!("pod.{}.hang=on", pod.uid));
    }
    let began = node.clock.now();
    // Health reports hung pods when a status call is late. `details_newer_than` reads every status, but `newer_than`
    // only lists an unchanged pod, and so causes no status call.
    let waits = bad.iter().map(|(pod, _)| {
        let pleg = &generator.pleg;
        pleg.details_newer_than(&pod.uid, began, MINUTE)
    });
    let reported = node.until(
        Duration::from_millis(3001),
        "health reports the hung pods",
        || generator.is_degraded("pods_hung"),
    );
    let served = are_served(&node, &generator, good, 50);
    let (answers, reported_after, served) = futures::join!(join_all(waits), reported, served);
    println!("{hung} hung pods: reported after {:?}", reported_after?);
    served?;
    for answer in answers {
        let Err(WaitError::Read { last_good, .. }) = answer else {
            anyhow::bail!("the read of a hung pod returned {answer:?}");
        };
        assert!(last_good.status.exists(), "no last good status");
    }
    // Let the calls hang for more than three minutes. After three minutes without a list, a node would not be ready.
    for _ in 0..50 {
        node.pass(4 * SECOND).await;
        assert_eq!(generator.pleg.health().ready(), Ok(()));
        assert!(generator.is_degraded("pods_failing") || generator.is_degraded("pods_hung"));
    }
    are_served(&node, &generator, good, 5).await?;
    for (pod, _) in bad {
        node.set(&format!("pod.{}.hang=off", pod.uid));
    }
    node.until(2 * MINUTE, "nothing is degraded", || generator.is_well())
        .await?;
    node.check_and_end(generator, &kubelet).await
}

#[tokio::test(start_paused = true)]
async fn hung_pods_delay_no_read_of_other_pods() -> anyhow::Result<()> {
    hung_pods(1).await?;
    hung_pods(110).await
}

async fn short_job(kubelet: &Kubelet, name: &str) -> anyhow::Result<Id> {
    let pod = kubelet.run_pod(name).await?;
    let life = Life::Exit {
        code: 9,
        after_ms: 30_000,
    };
    kubelet.run(&pod, "job", 0, life).await
}

/// What happens to the stalled stream next.
#[derive(Clone, Copy, Debug)]
enum Then {
    Resumes,
    Breaks(Break),
    StaysMute,
}

/// The stream stalls in the middle of an event. Relists find the changes whose events do not arrive, and the generator
/// counts these events as missed. The node stays ready. If nothing else ends the stream, the generator subscribes again
/// ten minutes after the first missed event. Health reports a lossy stream until the missed events are ten minutes old.
#[tokio::test(start_paused = true)]
async fn stalled_stream_is_reported_lossy_and_replaced() -> anyhow::Result<()> {
    for (at, then) in [
        (1, Then::Resumes),
        (100, Then::Breaks(Break::Reset)),
        (1, Then::StaysMute),
    ] {
        let node = Node::up();
        let kubelet = node.kubelet()?;
        let mut generator = node.start(Settings::default()).await?;
        // Wait for two minutes, in which the relist period grows.
        node.pass(2 * MINUTE).await;
        node.events.break_after(at, Break::Stall);
        let mut found = Vec::new();
        for n in 0..5 {
            let job = short_job(&kubelet, &format!("job-{n}")).await?;
            node.pass(30 * SECOND).await;
            let late = node
                .until(2 * MINUTE, "a list finds the exit", || {
                    assert_eq!(generator.pleg.health().ready(), Ok(()));
                    generator.has(&job, LifecycleType::ContainerDied)
                })
                .await?;
            found.push(late);
            node.pass(10 * SECOND).await;
        }
        // The generator must count STARTED and STOPPED of the first four jobs as missed. It need not count those of the
        // fifth job yet, because an event may be 10 s late.
        assert!(generator.missed() >= 8, "{}", generator.missed());
        // The next relist, which comes within a minute, finds the first exit. From then on the generator relists every
        // second.
        let late = found[1..].iter().max();
        assert!(
            found[0] <= MINUTE && late <= Some(&(SECOND + 10 * MS)),
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
                node.until(10 * MINUTE, what, || renewed() == 1).await?;
                node.pass(SECOND).await;
                let own = node.events.dials() == dials + 1;
                assert!(own, "the new stream has a connection of its own");
            }
        }
        node.until(5 * SECOND, "there is a stream", || generator.is_confirmed())
            .await?;
        assert_eq!(generator.degraded(), ["stream_lossy"]);
        // Wait for eleven minutes instead of ten, because the generator counts missed events per whole minute.
        node.until(11 * MINUTE, "its losses are too old to count", || {
            generator.is_well()
        })
        .await?;
        assert!(renewed() <= u64::from(matches!(then, Then::StaysMute)));
        let job = short_job(&kubelet, "afterwards").await?;
        node.pass(30 * SECOND).await;
        node.until(5 * MS, "the stream reports an exit", || {
            generator.has(&job, LifecycleType::ContainerDied)
        })
        .await?;
        node.check_and_end(generator, &kubelet).await?;
    }
    Ok(())
}
