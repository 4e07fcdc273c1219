//! The interleavings of the writer with its consumers, explored by shuttle: the cache, those who
//! wait, the subscriptions and the shutdown are the product's own; the machine is driven by a
//! writer of the tests, on a node that fits into a lock. `just shuttle` runs it.

#![allow(clippy::expect_used, clippy::panic, reason = "tests")]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pleg_core::{
    Confirmed, Counters, Details, Identity, Inspection, Instant, Kind, LifecycleType, List, Output,
    PodLifecycleEvent, PodStatus, PodUid, PodView, Reconciler, Report, Rows, Settings, Shown,
    Ticket,
};
use pleg_runtime::clock::Clock;
use shuttle::rand::Rng;
use shuttle_tokio::task::spawn;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cache::Published;
use crate::callers::{Callers, Command};
use crate::error::WaitError;
use crate::handle::{Pleg, Shared};
use crate::outlets::Outlets;
use crate::subscription::{Delivery, Subscribers};
use crate::sync::{mpsc, watch};

const DEADLINE: Duration = Duration::from_secs(10);

/// Explores a scenario: half of the schedules by chance, half by priorities that change rarely,
/// which finds what needs few switches at the right places.
fn explore(scenario: impl Fn() + Clone + Send + Sync + 'static) {
    let schedules = std::env::var("PLEG_SCHEDULES").ok();
    let schedules = schedules.and_then(|n| n.parse().ok()).unwrap_or(10_000);
    shuttle::check_random(scenario.clone(), schedules / 2);
    shuttle::check_pct(scenario, schedules / 2, 3);
}

// --- a node and its writer ---

/// What exists, and a clock that moves with every look at it.
#[derive(Clone, Debug, Default)]
struct Node {
    exists: Arc<Mutex<Vec<Report>>>,
    time: Arc<AtomicU64>,
}

impl Node {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.time.fetch_add(1_000_000, Ordering::Relaxed) + 1_000_000_000)
    }

    fn exists(&self) -> Vec<Report> {
        let exists = self.exists.lock();
        exists.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Starts a container, and says when it ran.
    fn start(&self, pod: &str, id: &str) -> Instant {
        let report = Report {
            id: id.into(),
            shown: Shown::Running,
            identity: Identity {
                pod: Some(pod.into()),
                name: Some(id.into()),
                ..Identity::unknown(Kind::Container)
            },
            details: Details::none(Kind::Container),
        };
        let mut exists = self.exists.lock().unwrap_or_else(PoisonError::into_inner);
        exists.push(report);
        drop(exists);
        self.now()
    }
}

/// Turns as the driver does, but for its sources: a read takes as long as the schedule wants.
struct Writer {
    node: Node,
    machine: Reconciler,
    to: Outlets,
    commands: mpsc::Receiver<Command>,
    stop: CancellationToken,
    reads: VecDeque<(Output, Instant)>,
}

/// A generator of that node. Must be called inside an execution.
fn generator(node: &Node) -> (Pleg, Writer) {
    let now = node.now();
    let machine = Reconciler::new(Settings::default(), now).expect("valid settings");
    let (commands, requests) = mpsc::channel(4);
    let (health, watched) = watch::channel(machine.health(now));
    let (counted, counters) = watch::channel(Counters::default());
    let (published, subscribers) = <(Arc<Published>, Arc<Subscribers>)>::default();
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let to = Outlets {
        published: published.clone(),
        subscribers: subscribers.clone(),
        fifo: None,
        health,
        counters: counted,
        callers: Callers::default(),
    };
    let shared = Shared {
        clock: Clock::start(),
        published,
        subscribers,
        health: watched,
        counters,
        commands,
        stop: stop.clone(),
        tasks,
    };
    let writer = Writer {
        node: node.clone(),
        machine,
        to,
        commands: requests,
        stop,
        reads: VecDeque::new(),
    };
    let pleg = Pleg {
        shared: Arc::new(shared),
    };
    (pleg, writer)
}

impl Writer {
    fn spawn(self, pleg: &Pleg) {
        let tasks = pleg.shared.tasks.clone();
        spawn(tasks.track_future(self.run()));
        tasks.close();
    }

    async fn run(mut self) {
        loop {
            self.turn();
            if self.stop.is_cancelled() {
                break;
            }
            let reads_first = !self.reads.is_empty() && shuttle::rand::thread_rng().gen_bool(0.5);
            if reads_first || (self.commands.is_empty() && !self.reads.is_empty()) {
                self.answer_a_read();
                shuttle::future::yield_now().await;
                continue;
            }
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                Some(command) = self.commands.recv() => {
                    let now = self.node.now();
                    self.to.callers.obey(&mut self.machine, now, command);
                }
            }
            self.to.callers.forget_the_gone(&mut self.machine);
        }
        self.to.close(&mut self.commands);
    }

    fn turn(&mut self) {
        while let Some(output) = self.machine.poll_output() {
            if let Some(wanted) = self.to.tell(output) {
                self.reads.push_back((wanted, self.node.now()));
            }
        }
        let now = self.node.now();
        let (health, counters) = (self.machine.health(now), self.machine.counters());
        self.to.show(health, counters, now);
    }

    fn answer_a_read(&mut self) {
        let Some((read, began)) = self.reads.pop_front() else {
            return;
        };
        let exists = self.node.exists();
        let now = self.node.now();
        match read {
            Output::List { ticket, .. } => {
                let list = List {
                    ticket,
                    began,
                    ended: now,
                    rows: Ok(exists.into_iter().collect()),
                };
                self.machine.handle_list(now, list);
            }
            Output::Inspect { ticket, uid, .. } => {
                let of_pod = |r: &Report| r.identity.pod.as_ref() == Some(&uid);
                let found = exists.into_iter().filter(of_pod).collect();
                self.machine
                    .handle_inspection(now, inspection(ticket, began, now, found));
            }
            _ => {}
        }
    }
}

fn inspection(ticket: Ticket, began: Instant, ended: Instant, found: Vec<Report>) -> Inspection {
    Inspection {
        ticket,
        began,
        ended,
        found,
        gone: Vec::new(),
        error: None,
    }
}

// --- those who wait ---

/// Whoever has changed something and asks for a view that is newer sees it, however many others
/// do the same.
#[test]
fn one_reads_what_one_has_written() {
    explore(|| {
        shuttle::future::block_on(async {
            let node = Node::default();
            let (pleg, writer) = generator(&node);
            writer.spawn(&pleg);
            let consumers = ["a", "b", "c"].map(|id| {
                let (pleg, node) = (pleg.clone(), node.clone());
                spawn(async move {
                    let pod = if id == "c" { "q" } else { "p" };
                    let since = node.start(pod, id);
                    let view = pleg.newer_than(&pod.into(), since, DEADLINE).await;
                    let view = view.expect("an answer");
                    assert!(view.status.container(id).is_some(), "{id} in {view:?}");
                    assert!(view.as_of > Some(since));
                    // Whoever was answered finds no less in the cache.
                    assert!(pleg.get(&pod.into()).status.container(id).is_some());
                })
            });
            for consumer in consumers {
                consumer.await.expect("a consumer");
            }
            pleg.shutdown().await;
        });
    });
}

/// Whoever waits when the generator shuts down, or asks while it does, is told so.
#[test]
fn a_shutdown_leaves_nobody_waiting() {
    explore(|| {
        shuttle::future::block_on(async {
            let node = Node::default();
            let (pleg, writer) = generator(&node);
            writer.spawn(&pleg);
            let waits = spawn({
                let pleg = pleg.clone();
                async move {
                    // It asks for the future: no read answers it.
                    let later = Instant::from_nanos(u64::MAX);
                    pleg.newer_than(&"p".into(), later, DEADLINE).await
                }
            });
            let asks = spawn({
                let pleg = pleg.clone();
                async move {
                    let read = pleg.request_relist(&"p".into()).await;
                    let listed = pleg.relist_now().await;
                    (read, listed)
                }
            });
            let synced = spawn({
                let pleg = pleg.clone();
                async move { pleg.wait_until_synced().await }
            });
            let told = spawn({
                let mut subscription = pleg.subscribe();
                async move { while subscription.next().await.is_some() {} }
            });
            pleg.shutdown().await;
            assert!(matches!(waits.await.expect("one"), Err(WaitError::Closed)));
            asks.await.expect("one that asks").0.ok();
            synced.await.expect("one that waits to be synced").ok();
            told.await.expect("a subscriber");
        });
    });
}

/// Whoever gives up waiting takes nobody along.
#[test]
fn one_that_gives_up_harms_nobody() {
    explore(|| {
        shuttle::future::block_on(async {
            let node = Node::default();
            let (pleg, writer) = generator(&node);
            writer.spawn(&pleg);
            let since = node.start("p", "a");
            let gives_up = spawn({
                let pleg = pleg.clone();
                async move {
                    let pod = PodUid::from("p");
                    let asked = pleg.newer_than(&pod, since, DEADLINE);
                    tokio::select! {
                        biased;
                        view = asked => drop(view),
                        () = shuttle::future::yield_now() => {}
                    }
                }
            });
            let view = pleg.newer_than(&"p".into(), since, DEADLINE).await;
            let view = view.expect("an answer");
            assert!(view.status.container("a").is_some(), "{view:?}");
            gives_up.await.expect("one that gives up");
            pleg.shutdown().await;
        });
    });
}

/// The cache counts as synced when it holds what exists, and whoever waits for that learns it.
#[test]
fn whoever_waits_for_the_sync_finds_everything() {
    explore(|| {
        shuttle::future::block_on(async {
            let node = Node::default();
            node.start("p", "a");
            let (pleg, writer) = generator(&node);
            let waits = spawn({
                let pleg = pleg.clone();
                async move {
                    pleg.wait_until_synced().await.expect("it is synced");
                    let view = pleg.get(&"p".into());
                    assert!(view.status.container("a").is_some());
                    assert!(view.inspected.is_some(), "with its details");
                    assert_eq!(pleg.snapshot().len(), 1);
                }
            });
            writer.spawn(&pleg);
            waits.await.expect("one that waits");
            pleg.shutdown().await;
        });
    });
}

// --- the cache ---

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

fn something(pod: &str, as_of: u64) -> PodView {
    let mut status = PodStatus::nothing(pod.into());
    status.containers = [container()].into();
    PodView::new(Arc::new(status), Some(at(as_of)), None)
}

/// Some container, as the machine makes them.
fn container() -> pleg_core::ContainerStatus {
    let now = at(1);
    let mut machine = Reconciler::new(Settings::default(), now).expect("valid settings");
    let node = Node::default();
    node.start("p", "a");
    let Some(Output::List { ticket, .. }) = machine.poll_output() else {
        panic!("it lists first");
    };
    let rows = Ok(node.exists().into_iter().collect());
    let (began, ended) = (now, now);
    machine.handle_list(
        now,
        List {
            ticket,
            began,
            ended,
            rows,
        },
    );
    loop {
        if let Some(Output::Publish { view, .. }) = machine.poll_output() {
            return view.status.containers[0].clone();
        }
    }
}

/// A reader never sees a pod become less fresh: not when it goes, and not when a list has swept
/// it away; and what a list has shown before it is swept is there.
#[test]
fn freshness_never_goes_back() {
    let first = something("p", 5);
    explore(move || {
        let published = Arc::new(Published::default());
        published.sweep(at(3), &[]);
        published.put("p".into(), first.clone());
        let writer = shuttle::thread::spawn({
            let (published, second) = (published.clone(), something_like(&first, 12));
            move || {
                let p = PodUid::from("p");
                published.confirm(at(7), &Confirmed::These(vec![p.clone()]));
                published.withdraw(&p);
                published.sweep(at(10), &[p.clone()]);
                published.put("q".into(), second);
                published.sweep(at(12), &[]);
            }
        });
        let readers = [(); 2].map(|()| {
            let published = published.clone();
            shuttle::thread::spawn(move || {
                let mut before = None;
                for _ in 0..3 {
                    let view = published.get(&"p".into());
                    assert!(view.as_of >= before, "{:?} after {before:?}", view.as_of);
                    assert!(view.as_of.is_some());
                    before = view.as_of;
                }
                let other = published.get(&"q".into());
                let absent = other.status.is_nothing() && other.as_of >= Some(at(12));
                assert!(!absent, "swept as of 12, and q was listed then");
            })
        });
        writer.join().expect("the writer");
        for reader in readers {
            reader.join().expect("a reader");
        }
    });
}

/// A list that confirms every pod there is confirms none that came after it, whenever somebody
/// looks, and none of it is taken back.
#[test]
fn a_list_confirms_only_what_was_there() {
    let (first, listed) = (something("p", 5), something("q", 14));
    explore(move || {
        let published = Arc::new(Published::default());
        published.put("p".into(), first.clone());
        let writer = shuttle::thread::spawn({
            let (published, listed) = (published.clone(), listed.clone());
            let told = PodView::new(listed.status.clone(), None, None);
            let ended = PodView::new(Arc::new(PodStatus::nothing("p".into())), Some(at(9)), None);
            move || {
                published.confirm(at(9), &Confirmed::All);
                published.put("q".into(), told);
                published.put("p".into(), ended);
                published.confirm(at(14), &Confirmed::All);
                published.put("q".into(), listed);
            }
        });
        let readers = [(); 2].map(|()| {
            let published = published.clone();
            shuttle::thread::spawn(move || {
                let mut before = (None, None);
                for _ in 0..3 {
                    let p = published.get(&"p".into());
                    assert!(p.status.is_nothing() || p.as_of <= Some(at(9)), "{p:?}");
                    let p = p.as_of;
                    let q = published.get(&"q".into()).as_of;
                    assert!([None, Some(at(14))].contains(&q), "{q:?} was never proved");
                    assert!(p >= before.0 && q >= before.1, "after {before:?}");
                    before = (p, q);
                    let snapshot = published.snapshot();
                    let q = snapshot.iter().find(|v| v.status.uid.as_str() == "q");
                    assert!(q.is_none_or(|q| q.as_of != Some(at(9))), "{snapshot:?}");
                }
            })
        });
        writer.join().expect("the writer");
        for reader in readers {
            reader.join().expect("a reader");
        }
        assert_eq!(published.get(&"p".into()).as_of, Some(at(14)));
    });
}

fn something_like(view: &PodView, as_of: u64) -> PodView {
    PodView::new(view.status.clone(), Some(at(as_of)), None)
}

// --- the subscriptions ---

fn announcement(what: LifecycleType, number: u64) -> PodLifecycleEvent {
    // Every announcement has the shape of this one, which the machine made.
    static MADE: std::sync::OnceLock<PodLifecycleEvent> = std::sync::OnceLock::new();
    let mut event = MADE.get_or_init(made_by_the_machine).clone();
    event.event = what;
    event.detected = at(number);
    if let Some(subject) = &mut event.subject {
        subject.id = number.to_string().into();
    }
    event
}

fn made_by_the_machine() -> PodLifecycleEvent {
    let now = at(1);
    let mut machine = Reconciler::new(Settings::default(), now).expect("valid settings");
    let node = Node::default();
    node.start("p", "a");
    loop {
        match machine.poll_output() {
            Some(Output::List { ticket, .. }) => {
                let rows = Ok(node.exists().into_iter().collect());
                let (began, ended) = (now, now);
                machine.handle_list(
                    now,
                    List {
                        ticket,
                        began,
                        ended,
                        rows,
                    },
                );
            }
            Some(Output::Inspect { ticket, .. }) => {
                machine.handle_inspection(now, inspection(ticket, now, now, node.exists()));
            }
            Some(Output::Announce(event)) => return event,
            Some(_) => {}
            None => panic!("it announces what it finds"),
        }
    }
}

/// Whoever subscribes and then looks at the cache misses nothing: it is there, or it is told.
#[test]
fn subscribe_then_snapshot_misses_nothing() {
    let view = something("p", 5);
    explore(move || {
        let (published, subscribers) = <(Arc<Published>, Arc<Subscribers>)>::default();
        let writer = shuttle::thread::spawn({
            let (published, subscribers) = (published.clone(), subscribers.clone());
            let view = view.clone();
            move || {
                // The order in which the machine wants it: the cache first (law 9).
                published.put("p".into(), view);
                subscribers.announce(&announcement(LifecycleType::ContainerStarted, 1));
                subscribers.close();
            }
        });
        let mut subscription = subscribers.subscribe();
        let there = published.snapshot().len();
        shuttle::future::block_on(async {
            let mut told = 0;
            while subscription.next().await.is_some() {
                told += 1;
                assert_eq!(published.snapshot().len(), 1, "told before it is there");
            }
            assert!(there + told >= 1, "neither there nor told");
        });
        writer.join().expect("the writer");
    });
}

/// A subscriber that waits is woken for everything, in order, and at the end; one that comes
/// while the generator ends is told of the end.
#[test]
fn a_subscriber_is_woken_for_everything() {
    const EVENTS: u64 = 3;
    explore(|| {
        let subscribers = Arc::new(Subscribers::default());
        let mut subscription = subscribers.subscribe();
        let writer = shuttle::thread::spawn({
            let subscribers = subscribers.clone();
            move || {
                for n in 0..EVENTS {
                    subscribers.announce(&announcement(LifecycleType::ContainerStarted, n));
                }
                subscribers.close();
            }
        });
        let late = shuttle::thread::spawn({
            let subscribers = subscribers.clone();
            move || {
                let mut subscription = subscribers.subscribe();
                shuttle::future::block_on(async { while subscription.next().await.is_some() {} });
            }
        });
        shuttle::future::block_on(async {
            let mut told = Vec::new();
            while let Some(Delivery::Event(event)) = subscription.next().await {
                told.push(event.detected.as_nanos());
            }
            assert_eq!(told, (0..EVENTS).collect::<Vec<_>>());
        });
        writer.join().expect("the writer");
        late.join().expect("one that comes late");
    });
}

/// A subscriber that lags is told of every end, or that it missed one.
#[test]
fn one_that_lags_knows_what_it_missed() {
    const ENDS: u64 = 9;
    explore(|| {
        let subscribers = Arc::new(Subscribers::default());
        let mut subscription = subscribers.subscribe();
        let writer = shuttle::thread::spawn({
            let subscribers = subscribers.clone();
            move || {
                for n in 0..ENDS {
                    subscribers.announce(&announcement(LifecycleType::ContainerRemoved, n));
                }
                subscribers.close();
            }
        });
        shuttle::future::block_on(async {
            let (mut told, mut missed) = (0, 0);
            while let Some(delivery) = subscription.next().await {
                match delivery {
                    Delivery::Event(_) => told += 1,
                    Delivery::Lagged { missed: n } => missed += n,
                }
            }
            assert_eq!(told + missed, ENDS);
        });
        writer.join().expect("the writer");
    });
}
