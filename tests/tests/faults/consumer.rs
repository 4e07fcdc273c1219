//! A consumer that takes nothing for a minute, in a storm of 400 pods: it must not delay the
//! runtime, and afterwards it must get every end and every removal, and the present state of every id.
//!
//! Measured is the longest of the runtime's calls that send an event, called in-process. Runs without a
//! stalled consumer show how long these take otherwise, and a run with a reader that stops reading
//! shows that the traffic is enough to block a send.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pleg::core::{Id, LifecycleType, ReportedState, Settings};
use pleg::runtime::Runtime;
use pleg::runtime::clock::{self, Clock};
use pleg::{Delivery, Subscription};
use pleg_cri::{CriConfig, CriRuntime, v1};
use pleg_sim::Sim;
use pleg_tests::check::{compare_cache, listing};
use pleg_tests::generator::Generator;
use pleg_tests::wait;
use prost::Message as _;

use crate::in_process::{InProcess, MS, SECOND, client};
use crate::storm::{Done, Storm};

/// hyper's flow control windows, of a stream and of a connection.
const STREAM_WINDOW: u64 = 2 << 20;
const CONNECTION_WINDOW: u64 = 5 << 20;

/// What the runtime sent: the bytes of events, and the containers whose exit code was sent.
#[derive(Debug, Default)]
struct Stream {
    bytes: AtomicU64,
    codes: Mutex<BTreeSet<Id>>,
}

impl Stream {
    /// Whether an event contained the container's exit code. A container that is removed before its
    /// STOPPED is sent has none.
    fn has_code(&self, id: &Id) -> bool {
        self.codes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(id)
    }
}

impl pleg_sim::Faults for Stream {
    fn event(&self, event: &mut v1::ContainerEventResponse) {
        self.bytes
            .fetch_add(event.encoded_len() as u64, Ordering::Relaxed);
        let ended = event
            .containers_statuses
            .iter()
            .filter(|c| c.state() == v1::ContainerState::ContainerExited)
            .map(|c| Id::from(&*c.id));
        self.codes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(ended);
    }
}

/// What one consumer received.
#[derive(Debug, Default)]
struct Received {
    last: BTreeMap<Id, LifecycleType>,
    /// Died, with the code.
    ends: BTreeMap<Id, Option<i32>>,
    removed: u64,
    /// The number of lost events, from `Lagged`.
    lost: u64,
    deliveries: u64,
}

impl Received {
    fn take(&mut self, delivery: Delivery) {
        self.deliveries += 1;
        let event = match delivery {
            Delivery::Event(event) => event,
            Delivery::Lagged { missed } => {
                self.lost += missed;
                return;
            }
            _ => return,
        };
        let Some(subject) = event.subject else {
            return;
        };
        if event.event == LifecycleType::ContainerDied {
            self.ends.insert(subject.id.clone(), subject.exit_code);
        }
        self.removed += u64::from(event.event == LifecycleType::ContainerRemoved);
        self.last.insert(subject.id, event.event);
    }

    /// Checks what was received. Returns the number of ids without Died.
    fn check(
        &self,
        done: &BTreeMap<Id, Done>,
        listed: &BTreeMap<Id, ReportedState>,
        has_code: impl Fn(&Id) -> bool,
    ) -> anyhow::Result<u64> {
        let mut missing = 0;
        for (id, done) in done {
            let last = self.last.get(id).copied();
            let gone = !listed.contains_key(id);
            anyhow::ensure!(gone == done.removed, "{id}: {done:?}, listed: {}", !gone);
            if let Some(code) = done.ended {
                match self.ends.get(id) {
                    Some(announced) if *announced == code => {}
                    Some(None) if !has_code(id) => {}
                    Some(other) => anyhow::bail!("{id}: ended with {code:?}, announced {other:?}"),
                    None if last.is_none() && gone => {
                        missing += 1;
                        continue;
                    }
                    None => anyhow::bail!("{id}: ended with {code:?}, not announced: {last:?}"),
                }
            }
            let due = match listed.get(id) {
                None => LifecycleType::ContainerRemoved,
                Some(ReportedState::Running) => LifecycleType::ContainerStarted,
                Some(_) => LifecycleType::ContainerDied,
            };
            anyhow::ensure!(
                last == Some(due),
                "{id}: {:?}, announced {last:?}",
                listed.get(id)
            );
        }
        Ok(missing)
    }
}

/// Takes everything until the subscription ends.
fn receive_all(mut from: Subscription) -> tokio::task::JoinHandle<Received> {
    tokio::spawn(async move {
        let mut received = Received::default();
        while let Some(delivery) = from.next().await {
            received.take(delivery);
        }
        received
    })
}

/// Which reader is stalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stalled {
    None,
    /// A consumer that takes nothing while the storm lasts.
    Consumer,
    /// The reader of the event stream, which takes nothing for 30 s.
    Reader,
}

/// What was measured in one storm.
#[derive(Debug)]
struct Outcome {
    longest: Duration,
    longest_real: Duration,
    sends: u64,
    lasted: Duration,
}

/// One storm over that runtime.
async fn run_storm<R: Runtime>(
    sim: &Sim,
    clock: Clock,
    runtime: R,
    observer: &CriRuntime,
    stalled: Stalled,
    has_code: impl Fn(&Id) -> bool,
) -> anyhow::Result<Outcome> {
    let (builder, recorder) = Generator::builder(runtime);
    let mut builder = builder.settings(Settings::default()).clock(clock);
    let (first, mut second) = (builder.subscribe(), builder.subscribe());
    let pleg = builder.spawn()?;
    pleg.wait_until_synced().await?;
    sim.wait_for_subscribers(1).await;
    let storm = Storm::new(sim.service(), clock);
    let mut late = Received::default();
    let began = clock.now();
    let prompt = receive_all(first);
    if stalled == Stalled::Reader {
        recorder.hold_events(true);
    }
    let running = storm.run_pods();
    let meanwhile = async {
        if stalled == Stalled::Reader {
            storm.pass(30 * SECOND).await;
            recorder.hold_events(false);
        }
        // In a run without a stalled consumer the second one keeps up as well.
        while stalled != Stalled::Consumer
            && let Some(delivery) = second.next().await
        {
            late.take(delivery);
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        ran = running => ran?,
        () = meanwhile => {}
    }
    let lasted = clock.now().since(began);
    wait::until_ok(20 * SECOND, "the cache is right", || {
        compare_cache(&pleg, observer)
    })
    .await?;
    // Some announcements need an inspection first.
    storm.pass(3 * SECOND).await;
    assert_eq!(pleg.health().ready(), Ok(()));
    let listed = listing(observer).await?;
    pleg.shutdown().await;
    while let Some(delivery) = second.next().await {
        late.take(delivery);
    }
    let measured = storm.take();
    let outcome = Outcome {
        longest: measured.longest,
        longest_real: measured.longest_real,
        sends: measured.sends,
        lasted,
    };
    if stalled == Stalled::Reader {
        // No list shows what was created and removed while nothing was read.
        return Ok(outcome);
    }
    let prompt = prompt.await?;
    let missing = prompt.check(&measured.done, &listed, &has_code)?;
    anyhow::ensure!(missing == 0, "a consumer that keeps up gets every event");
    let missing = late.check(&measured.done, &listed, &has_code)?;
    anyhow::ensure!(
        (missing, late.lost) == (0, 0),
        "{missing} ends lost, {} reported",
        late.lost
    );
    if stalled == Stalled::Consumer {
        println!(
            "  the stalled consumer took {} announcements: {} ends, {} removals, {} reported lost",
            late.deliveries,
            late.ends.len(),
            late.removed,
            late.lost
        );
        let (got, announced) = (late.deliveries, prompt.deliveries);
        assert!(got < announced, "nothing was joined: {got} of {announced}");
        assert_eq!(late.ends, prompt.ends);
        assert_eq!(late.removed, prompt.removed);
    }
    Ok(outcome)
}

/// One storm in this process, on paused time.
async fn run_in_process(stalled: Stalled) -> anyhow::Result<Outcome> {
    let node = InProcess::up();
    let runtime = pleg_tests::split::SplitRuntime {
        calls: client(&node.calls)?,
        events: client(&node.events)?,
    };
    let observer = node.observer_client()?;
    let real = clock::wall();
    let outcome = run_storm(&node.sim, node.clock, runtime, &observer, stalled, |_| true).await?;
    let carried = node.events.carried();
    println!(
        "{stalled:?}: longest of {} sends {:?} ({:?} of the host's time) in {:?} ({:?}), {} windows",
        outcome.sends,
        outcome.longest,
        outcome.longest_real,
        outcome.lasted,
        Duration::from_nanos(u64::try_from(clock::wall().nanos_since(real)).unwrap_or(0)),
        carried / CONNECTION_WINDOW,
    );
    assert!(
        carried >= 3 * CONNECTION_WINDOW.max(STREAM_WINDOW),
        "{carried}"
    );
    assert!(outcome.lasted >= 60 * SECOND, "{:?}", outcome.lasted);
    node.sim.shutdown().await;
    Ok(outcome)
}

#[tokio::test(start_paused = true)]
async fn stalled_consumer_delays_no_send() -> anyhow::Result<()> {
    // Time passes only while all tasks wait, by milliseconds, so a send that does not wait takes no time. (The clock
    // returns no instant twice: each look at it takes a nanosecond.)
    let stalled = run_in_process(Stalled::Consumer).await?;
    assert!(stalled.longest < MS, "{:?}", stalled.longest);
    let control = run_in_process(Stalled::Reader).await?;
    assert!(control.longest >= SECOND, "{:?}", control.longest);
    Ok(())
}

/// One storm over a real socket, in real time.
async fn run_over_socket(stalled: Stalled) -> anyhow::Result<Outcome> {
    let dir = tempfile::Builder::new().prefix("pleg").tempdir()?;
    let path = dir.path().join("cri.sock");
    let stream = Arc::new(Stream::default());
    let sim = Sim::builder().seed(11).faults(stream.clone()).build();
    let serving = sim.serve_unix(&path, std::future::pending())?;
    let config = CriConfig::new(format!("unix://{}", path.display()).parse()?);
    let observer = CriRuntime::new(config.clone())?;
    let runtime = CriRuntime::new(config)?;
    let has_code = |id: &Id| stream.has_code(id);
    let outcome = run_storm(&sim, Clock::start(), runtime, &observer, stalled, has_code).await?;
    let sent = stream.bytes.load(Ordering::Relaxed);
    println!(
        "{stalled:?}: longest of {} sends {:?} in {:?}, {} windows",
        outcome.sends,
        outcome.longest,
        outcome.lasted,
        sent / CONNECTION_WINDOW,
    );
    assert!(sent >= 3 * CONNECTION_WINDOW, "{sent}");
    assert!(outcome.lasted >= 60 * SECOND, "{:?}", outcome.lasted);
    serving.stop().await;
    sim.shutdown().await;
    Ok(outcome)
}

/// Five pairs, interleaved, of 60 s each: 11 minutes with the control.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes 11 minutes"]
async fn stalled_consumer_delays_no_send_in_real_time() -> anyhow::Result<()> {
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _pair in 0..5 {
        without.push(run_over_socket(Stalled::None).await?.longest);
        with.push(run_over_socket(Stalled::Consumer).await?.longest);
    }
    println!("longest sends without {without:?}, with {with:?}");
    // Chance alone makes 24 or 25 of the 25 comparisons come out against it once in 126 times.
    let longer = with
        .iter()
        .flat_map(|w| without.iter().filter(move |o| w > *o))
        .count();
    assert!(
        longer < 24,
        "{longer} of 25: with {with:?}, without {without:?}"
    );
    let control = run_over_socket(Stalled::Reader).await?.longest;
    assert!(control >= 10 * SECOND, "{control:?}");
    Ok(())
}
