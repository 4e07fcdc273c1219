//! What was found by reading the classic evented PLEG (B).

use std::time::Duration;

use pleg_core::{EventType, Shown};
use rivals::{Fifo, Subject};

use crate::support::{
    Deed, MINUTE, MS, Node, Op, PodWorker, SECOND, SyncLoop, attempt, cached, container, drain,
    evented_1_35, evented_1_36, evented_on_crio, exited, forget, generic, ours, pass, sandbox,
    settled, soon, until,
};

/// A kubelet starts on a node with 1,200 things to announce. How many lifecycle events its sync
/// loop has taken in two minutes, and whether it may go on.
async fn full_channel<S: Subject>(start: impl FnOnce(&Node) -> (S, Fifo)) -> (usize, bool) {
    let node = Node::new();
    for n in 0..600 {
        node.run_pod(&format!("p{n}"));
    }
    let (subject, mut fifo) = start(&node);
    let mut sync_loop = SyncLoop::default();
    sync_loop.run(&subject, &mut fifo, 2 * MINUTE).await;
    let healthy = subject.healthy().is_ok();
    soon(subject.shutdown()).await;
    (sync_loop.taken, healthy)
}

/// B1. Upstream: a full channel is unhealthy, and an unhealthy kubelet takes nothing out of the
/// channel: for ever. Ours: how much waits for a consumer is no matter of health.
#[tokio::test(start_paused = true)]
async fn b1_health_and_channel_deadlock() {
    assert_eq!(full_channel(evented_1_36).await, (0, false));
    assert_eq!(
        full_channel(generic).await,
        (1000, true),
        "not by its channel alone"
    );
    assert_eq!(full_channel(ours).await, (1000, true));
}

/// What a late event of a pod that is gone brings back.
#[derive(Debug, PartialEq, Eq)]
struct Ghost {
    after_a_second: bool,
    after_twenty_minutes: bool,
    announced: Vec<String>,
}

/// A pod is gone, and that was noticed; then comes the STOPPED of its container, which was held
/// up.
async fn late_event<S: Subject>(start: impl FnOnce(&Node) -> (S, Fifo)) -> Ghost {
    let node = Node::new();
    node.run_pod("p");
    let (subject, mut fifo) = start(&node);
    settled(&subject, &node, "p").await;
    node.put(exited("p", "c", 0));
    let stopped = node.event(EventType::Stopped, "p-c", subject.wall());
    node.remove("p-c");
    node.remove("p-s");
    pass(&subject, 5 * MINUTE + SECOND).await;
    let there = || !subject.get(&"p".into()).status.is_nothing();
    assert!(!there(), "its end was noticed");
    forget(&mut fifo);
    node.tell(&stopped);
    pass(&subject, SECOND).await;
    let after_a_second = there();
    pass(&subject, 20 * MINUTE).await;
    let ghost = Ghost {
        after_a_second,
        after_twenty_minutes: there(),
        announced: drain(&mut fifo),
    };
    soon(subject.shutdown()).await;
    ghost
}

/// B2. Upstream: nothing remembers that the pod is gone, so the event puts it back, and no list
/// ever takes it away again. Ours: a removed id stays removed; that its exit code is known now is
/// a PodSync.
#[tokio::test(start_paused = true)]
async fn b2_ghost_entries() {
    let upstream = Ghost {
        after_a_second: true,
        after_twenty_minutes: true,
        announced: vec!["p Died p-c".to_owned()],
    };
    assert_eq!(late_event(evented_1_36).await, upstream);
    let ours_says = Ghost {
        after_a_second: false,
        after_twenty_minutes: false,
        announced: vec!["p PodSync".to_owned()],
    };
    assert_eq!(late_event(ours).await, ours_says);
}

/// A container comes to run, untold. Whether a status that claims to be newer than that shows it.
async fn newer_than_the_change<S: Subject>(start: impl FnOnce(&Node) -> (S, Fifo)) -> bool {
    let node = Node::new();
    node.run_sandbox("p");
    let (subject, _fifo) = start(&node);
    settled(&subject, &node, "p").await;
    node.put(container("p", "c", Shown::Running));
    pass(&subject, MS).await;
    let after = subject.clock().now();
    let answer = soon(subject.newer_than(&"p".into(), after)).await;
    soon(subject.shutdown()).await;
    answer.status.container("c").is_some()
}

/// While a list of the node takes 6 s, one asks twice for the same pod, newer than the same
/// instant: at 5.5 s and at 6.5 s. How long each waits.
async fn asked_twice<S: Subject>(start: impl FnOnce(&Node) -> (S, Fifo)) -> [Duration; 2] {
    let node = Node::new();
    node.take(Op::List, 3 * SECOND);
    let (subject, _fifo) = start(&node);
    let clock = subject.clock();
    pass(&subject, SECOND).await;
    let after = clock.now();
    let mut waits = [4500 * MS, SECOND];
    for wait in &mut waits {
        pass(&subject, *wait).await;
        let asked = clock.now();
        soon(subject.newer_than(&"p".into(), after)).await;
        *wait = clock.now().since(asked);
    }
    soon(subject.shutdown()).await;
    waits
}

/// B3. Upstream: a timer claims every five seconds that everything was seen just now, and the list
/// that ends later takes the claim back. Ours: only a read makes anything fresher, and what was
/// answered once is answered again.
#[tokio::test(start_paused = true)]
async fn b3_freshness_by_timer() {
    assert!(!newer_than_the_change(evented_1_35).await);
    assert!(newer_than_the_change(ours).await);
    let [first, again] = asked_twice(evented_1_35).await;
    assert!(first <= MS && again >= 3 * SECOND, "{first:?}, {again:?}");
    let [first, again] = asked_twice(ours).await;
    assert!(first <= MS && again <= MS, "{first:?}, {again:?}");
}

/// When the runtime stamps an event.
#[derive(Clone, Copy, Debug)]
enum Stamped {
    /// When it reads the statuses. None does.
    AtReading,
    /// When it sends.
    AtSending,
}

/// A list shows that a container has ended; then comes an event whose statuses were read earlier.
/// What the cache shows at once and after 20 minutes, and what was announced.
async fn read_before_the_list<S: Subject>(
    start: impl FnOnce(&Node) -> (S, Fifo),
    stamped: Stamped,
) -> (Option<Shown>, Option<Shown>, Vec<String>) {
    let node = Node::new();
    node.run_pod("p");
    let mut started = node.event(EventType::Started, "p-c", pleg_runtime::clock::wall());
    node.put(exited("p", "c", 7));
    let (subject, mut fifo) = start(&node);
    settled(&subject, &node, "p").await;
    if matches!(stamped, Stamped::AtSending) {
        started.created_at = subject.wall().as_nanos();
    }
    node.tell(&started);
    pass(&subject, MS).await;
    let at_once = cached(&subject, "p", "c");
    pass(&subject, 20 * MINUTE).await;
    let later = cached(&subject, "p", "c");
    soon(subject.shutdown()).await;
    let mut announced = drain(&mut fifo);
    announced.retain(|e| e.ends_with("p-c"));
    (at_once, later, announced)
}

/// B4. Upstream: the runtime's stamp decides which is newer, so the older statuses win, and as
/// the lists show no change nothing mends it. Ours: a container that has ended stays ended.
#[tokio::test(start_paused = true)]
async fn b4_older_data_with_a_newer_stamp() {
    let runs = Some(Shown::Running);
    let told = ["p Died p-c", "p Started p-c"].map(str::to_owned).to_vec();
    let wrong = (runs, runs, told);
    let ended = Some(Shown::Exited);
    let right = (ended, ended, vec!["p Died p-c".to_owned()]);
    let upstream = read_before_the_list(evented_on_crio, Stamped::AtSending).await;
    assert_eq!(upstream, wrong);
    let upstream = read_before_the_list(evented_on_crio, Stamped::AtReading).await;
    assert_eq!(upstream, right, "it is the stamp");
    // On containerd no stamp protects what a list has shown.
    let upstream = read_before_the_list(evented_1_35, Stamped::AtReading).await;
    assert_eq!(upstream, wrong);
    for stamped in [Stamped::AtSending, Stamped::AtReading] {
        assert_eq!(
            read_before_the_list(ours, stamped).await,
            right,
            "{stamped:?}"
        );
    }
}

/// A pod runs in its second sandbox when the first one is deleted. How many sandboxes and
/// containers the cache shows then, and what the pod's worker does.
async fn old_sandbox_deleted<S: Subject>(
    start: impl FnOnce(&Node) -> (S, Fifo),
) -> (usize, usize, Vec<Deed>) {
    let node = Node::new();
    node.put(sandbox("p", "s0", Shown::Exited));
    node.put(attempt(sandbox("p", "s1", Shown::Running), 1));
    let mut running = container("p", "c", Shown::Running);
    running.identity.sandbox = Some("p-s1".into());
    node.put(running);
    let (subject, _fifo) = start(&node);
    settled(&subject, &node, "p").await;
    let deleted = node.event(EventType::Deleted, "p-s0", subject.wall());
    node.remove("p-s0");
    node.tell(&deleted);
    pass(&subject, MS).await;
    let status = subject.get(&"p".into()).status;
    let deeds = PodWorker::new(&subject, &node, "p", &[]).sync().await;
    soon(subject.shutdown()).await;
    (status.sandboxes.len(), status.containers.len(), deeds)
}

/// B6. Upstream: the DELETED of an old sandbox deletes all that is known of the pod, so a second
/// pod is started beside the running one. Ours: it removes that sandbox.
#[tokio::test(start_paused = true)]
async fn b6_an_old_sandbox_takes_the_pod_with_it() {
    let all_anew = vec![Deed::CreatedSandbox, Deed::CreatedContainer];
    assert_eq!(old_sandbox_deleted(evented_1_36).await, (0, 0, all_anew));
    assert_eq!(old_sandbox_deleted(ours).await, (1, 1, vec![]));
}

/// A pod of which an event has told, so that its entry is by an event.
async fn told_by_event<S: Subject>(node: &Node, subject: &S, fifo: &mut Fifo) {
    settled(subject, node, "p").await;
    node.tell(&node.event(EventType::Started, "p-c", subject.wall()));
    pass(subject, 10 * MS).await;
    forget(fifo);
}

/// After how long a container's end is announced of which no event came, and a PodSync that was
/// asked for.
async fn found_by_a_list<S: Subject>(start: impl Fn(&Node) -> (S, Fifo)) -> [Option<Duration>; 2] {
    let mut took = [None; 2];
    for (nth, awaited) in ["p Died p-c", "p PodSync"].into_iter().enumerate() {
        let node = Node::new();
        node.run_pod("p");
        let (subject, mut fifo) = start(&node);
        told_by_event(&node, &subject, &mut fifo).await;
        if nth == 0 {
            node.put(exited("p", "c", 9));
        } else {
            subject.request_reinspect(&"p".into());
        }
        let told = || drain(&mut fifo).iter().any(|e| e == awaited);
        took[nth] = until(&subject, told).await;
        soon(subject.shutdown()).await;
    }
    took
}

/// How often a container's start is announced of which an event came, within ten minutes.
async fn announced_starts<S: Subject>(start: impl FnOnce(&Node) -> (S, Fifo)) -> usize {
    let node = Node::new();
    node.run_sandbox("p");
    let (subject, mut fifo) = start(&node);
    settled(&subject, &node, "p").await;
    forget(&mut fifo);
    node.put(container("p", "c", Shown::Running));
    node.tell(&node.event(EventType::Started, "p-c", subject.wall()));
    pass(&subject, 10 * MINUTE).await;
    soon(subject.shutdown()).await;
    let all = drain(&mut fifo);
    all.iter().filter(|e| *e == "p Started p-c").count()
}

/// B8. Upstream: two that write and do not know of each other: what a list finds is rejected by
/// the cache and never announced (on containerd), or announced a second time (on CRI-O). Ours: one
/// record of what was announced, whoever saw it first.
#[tokio::test(start_paused = true)]
async fn b8_two_writers() {
    assert_eq!(found_by_a_list(evented_1_36).await, [None, None]);
    let [died, synced] = found_by_a_list(ours).await;
    assert!(died.unwrap() <= 11 * SECOND, "{died:?}");
    assert!(synced.unwrap() <= MS, "{synced:?}");
    assert_eq!(announced_starts(evented_on_crio).await, 2);
    assert_eq!(announced_starts(ours).await, 1);
}

/// The stream is cut, and is back after 100 ms; in between a container ends, and nobody keeps the
/// event. After how long its end is announced.
async fn gap<S: Subject>(start: impl FnOnce(&Node) -> (S, Fifo)) -> Option<Duration> {
    let node = Node::new();
    node.run_pod("p");
    let (subject, mut fifo) = start(&node);
    settled(&subject, &node, "p").await;
    forget(&mut fifo);
    node.take(Op::Subscribe, 100 * MS);
    node.cut();
    pass(&subject, 50 * MS).await;
    assert_eq!(node.streams(), 0);
    node.put(exited("p", "c", 1));
    let told = || drain(&mut fifo).iter().any(|e| e == "p Died p-c");
    let took = until(&subject, told).await;
    soon(subject.shutdown()).await;
    took
}

/// B11. Upstream: relists, then asks for the stream again: what falls in between is not known for
/// five minutes. Ours: asks for the stream, then lists, and lists every second until the stream
/// has been checked.
#[tokio::test(start_paused = true)]
async fn b11_the_gap_of_a_reconnect() {
    let upstream = gap(evented_1_36).await.unwrap();
    assert!(
        (299 * SECOND..301 * SECOND).contains(&upstream),
        "{upstream:?}"
    );
    let ours = gap(ours).await.unwrap();
    assert!(ours <= 2 * SECOND, "{ours:?}");
}
