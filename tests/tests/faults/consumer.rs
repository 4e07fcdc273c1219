//! A consumer that takes nothing for a minute, in a storm of a thousand pods: the runtime must not
//! feel it, and afterwards the consumer must learn all that matters (laws 8 and 9).
//!
//! What the runtime feels is the longest of its calls that tell an event, made within the process:
//! a send and little else. Paired runs without a stalled consumer say what it is otherwise, and a
//! run with a reader that stops reading says that the traffic is enough to see a blocked send.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pleg::core::{Id, LifecycleType, ReportedState, Settings};
use pleg::runtime::Runtime;
use pleg::runtime::clock::{self, Clock};
use pleg::{Delivery, Pleg, Subscription};
use pleg_cri::v1::runtime_service_server::RuntimeService as _;
use pleg_cri::{CriConfig, CriRuntime, v1};
use pleg_sim::{CriService, Sim};
use pleg_tests::check::{cache_is_right, listing};
use pleg_tests::undrained::Undrained;
use pleg_tests::wait;
use prost::Message as _;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::{Request, Status};

use crate::inside::{Inside, MS, SECOND, client};

const PODS: u64 = 1000;
/// So that three windows of a connection pass, which is more than those of a stream.
const ANNOTATION: usize = 1500;
/// hyper's flow control windows, of a stream and of a connection.
const STREAM_WINDOW: u64 = 2 << 20;
const CONNECTION_WINDOW: u64 = 5 << 20;
/// A pod starts after each.
const PACE: Duration = Duration::from_millis(60);

/// What was done to one container or sandbox.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    /// With which code it has ended; a sandbox ends with none.
    ended: Option<Option<i32>>,
    removed: bool,
}

/// The storm: a thousand pods come, crash, restart and partly go.
#[derive(Clone)]
struct Storm {
    service: CriService,
    clock: Clock,
    heard: Arc<Mutex<Heard>>,
}

/// What was felt and done in it.
#[derive(Default)]
struct Heard {
    /// On the clock of the test, which may be paused.
    longest: Duration,
    /// On the host's.
    longest_real: Duration,
    sends: u64,
    done: BTreeMap<Id, Done>,
}

impl Storm {
    fn heard<T>(&self, look: impl FnOnce(&mut Heard) -> T) -> T {
        look(&mut self.heard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A call that tells an event.
    async fn send<T>(
        &self,
        call: impl Future<Output = Result<tonic::Response<T>, Status>>,
    ) -> Result<T, Status> {
        let (began, real) = (self.clock.now(), clock::wall());
        let answer = call.await?.into_inner();
        let took = self.clock.now().since(began);
        let took_real = u64::try_from(clock::wall().nanos_since(real)).unwrap_or(0);
        self.heard(|h| {
            h.longest = h.longest.max(took);
            h.longest_real = h.longest_real.max(Duration::from_nanos(took_real));
            h.sends += 1;
        });
        Ok(answer)
    }

    async fn pass(&self, time: Duration) {
        self.clock.sleep_until(self.clock.now().after(time)).await;
    }

    /// All pods, from now on, until the last is done.
    async fn rage(&self) -> anyhow::Result<()> {
        let mut lives = JoinSet::new();
        for n in 0..PODS {
            let storm = self.clone();
            lives.spawn(async move { storm.life(n).await });
        }
        while let Some(life) = lives.join_next().await {
            life??;
        }
        Ok(())
    }

    async fn life(&self, n: u64) -> Result<(), Status> {
        self.pass(PACE * u32::try_from(n).unwrap_or(0)).await;
        let config = pod_config(n);
        let request = v1::RunPodSandboxRequest {
            config: Some(config.clone()),
            ..v1::RunPodSandboxRequest::default()
        };
        let sandbox = self
            .send(self.service.run_pod_sandbox(Request::new(request)))
            .await?
            .pod_sandbox_id;
        self.did(&sandbox, |_| ());
        // One of ten loses more ends of one name than are kept for one who lags.
        let crashes = if n.is_multiple_of(10) { 8 } else { 2 };
        for attempt in 0..crashes {
            let code = 1 + i32::try_from((7 * n + attempt) % 250).unwrap_or(0);
            let command = format!("exit {code} {}", 100 + n % 7 * 100);
            let id = self.run(&sandbox, &config, attempt, &command).await?;
            self.ended(&id).await?;
            self.did(&id, |d| d.ended = Some(Some(code)));
            if n.is_multiple_of(10) || attempt == 0 {
                self.remove(&id).await?;
            }
        }
        let id = self.run(&sandbox, &config, crashes, "run").await?;
        if n % 2 == 1 {
            let request = v1::StopContainerRequest {
                container_id: id.clone(),
                timeout: 10,
            };
            self.send(self.service.stop_container(Request::new(request)))
                .await?;
            self.did(&id, |d| d.ended = Some(Some(0)));
        }
        if n % 4 == 1 {
            self.remove(&id).await?;
            let pod_sandbox_id = sandbox.clone();
            let request = v1::StopPodSandboxRequest { pod_sandbox_id };
            self.send(self.service.stop_pod_sandbox(Request::new(request)))
                .await?;
            self.did(&sandbox, |d| d.ended = Some(None));
        }
        Ok(())
    }

    async fn run(
        &self,
        sandbox: &str,
        pod: &v1::PodSandboxConfig,
        attempt: u64,
        command: &str,
    ) -> Result<String, Status> {
        let uid = pod.metadata.as_ref().map(|m| m.uid.clone());
        let metadata = v1::ContainerMetadata {
            name: "app".to_owned(),
            attempt: u32::try_from(attempt).unwrap_or(0),
        };
        let config = v1::ContainerConfig {
            metadata: Some(metadata),
            image: Some(v1::ImageSpec {
                image: "app:1".to_owned(),
                ..v1::ImageSpec::default()
            }),
            command: command.split(' ').map(str::to_owned).collect(),
            labels: [
                ("io.kubernetes.pod.uid".to_owned(), uid.unwrap_or_default()),
                ("io.kubernetes.container.name".to_owned(), "app".to_owned()),
            ]
            .into(),
            ..v1::ContainerConfig::default()
        };
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(config),
            sandbox_config: Some(pod.clone()),
        };
        let id = self
            .send(self.service.create_container(Request::new(request)))
            .await?
            .container_id;
        let request = v1::StartContainerRequest {
            container_id: id.clone(),
        };
        self.send(self.service.start_container(Request::new(request)))
            .await?;
        self.did(&id, |_| ());
        Ok(id)
    }

    async fn ended(&self, id: &str) -> Result<(), Status> {
        loop {
            let request = v1::ContainerStatusRequest {
                container_id: id.to_owned(),
                verbose: false,
            };
            let answer = self.service.container_status(Request::new(request)).await?;
            let status = answer.into_inner().status;
            if status.is_some_and(|s| s.state() == v1::ContainerState::ContainerExited) {
                return Ok(());
            }
            self.pass(50 * MS).await;
        }
    }

    async fn remove(&self, id: &str) -> Result<(), Status> {
        let request = v1::RemoveContainerRequest {
            container_id: id.to_owned(),
        };
        self.send(self.service.remove_container(Request::new(request)))
            .await?;
        self.did(id, |d| d.removed = true);
        Ok(())
    }

    fn did(&self, id: &str, what: impl FnOnce(&mut Done)) {
        self.heard(|h| what(h.done.entry(Id::from(id)).or_default()));
    }
}

fn pod_config(n: u64) -> v1::PodSandboxConfig {
    let uid = format!("uid-{n}");
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: format!("pod-{n}"),
            uid: uid.clone(),
            namespace: "storm".to_owned(),
            attempt: 0,
        }),
        labels: [("io.kubernetes.pod.uid".to_owned(), uid)].into(),
        annotations: [("padding".to_owned(), "x".repeat(ANNOTATION))].into(),
        ..v1::PodSandboxConfig::default()
    }
}

/// What the runtime tells: how many bytes of events, and of which containers the exit code.
#[derive(Debug, Default)]
struct Stream {
    bytes: AtomicU64,
    codes: Mutex<BTreeSet<Id>>,
}

impl Stream {
    /// Whether the exit code of that container can be known. One that is removed before its end
    /// is told (on a busy machine that happens, as with a real runtime) takes it along.
    fn told_the_code(&self, id: &Id) -> bool {
        self.codes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(id)
    }
}

impl pleg_sim::Faults for Stream {
    fn event(&self, event: &mut v1::ContainerEventResponse) -> pleg_sim::Delivery {
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
        pleg_sim::Delivery::Once
    }
}

/// What one consumer was told.
#[derive(Debug, Default)]
struct Told {
    last: BTreeMap<Id, LifecycleType>,
    /// Died, with the code.
    ends: BTreeMap<Id, Option<i32>>,
    removed: u64,
    /// How many it was told to have lost.
    lost: u64,
    deliveries: u64,
}

impl Told {
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

    /// What it was not told: of how many ids the end is missing. What it was told must be right.
    fn judge(
        &self,
        done: &BTreeMap<Id, Done>,
        listed: &BTreeMap<Id, ReportedState>,
        has_code: impl Fn(&Id) -> bool,
    ) -> anyhow::Result<u64> {
        let mut unheard = 0;
        for (id, done) in done {
            let last = self.last.get(id).copied();
            let gone = !listed.contains_key(id);
            anyhow::ensure!(gone == done.removed, "{id}: {done:?}, listed: {}", !gone);
            if let Some(code) = done.ended {
                match self.ends.get(id) {
                    Some(told) if *told == code => {}
                    Some(None) if !has_code(id) => {}
                    Some(other) => anyhow::bail!("{id}: ended with {code:?}, told {other:?}"),
                    None if last.is_none() && gone => {
                        unheard += 1;
                        continue;
                    }
                    None => anyhow::bail!("{id}: ended with {code:?}, not told: {last:?}"),
                }
            }
            let due = match listed.get(id) {
                None => LifecycleType::ContainerRemoved,
                Some(ReportedState::Running) => LifecycleType::ContainerStarted,
                Some(_) => LifecycleType::ContainerDied,
            };
            anyhow::ensure!(
                last == Some(due),
                "{id}: {:?}, told {last:?}",
                listed.get(id)
            );
        }
        Ok(unheard)
    }
}

/// Takes everything as it comes until told to stop.
fn keeps_up(mut from: Subscription) -> tokio::task::JoinHandle<Told> {
    tokio::spawn(async move {
        let mut told = Told::default();
        while let Some(delivery) = from.next().await {
            told.take(delivery);
        }
        told
    })
}

/// Who does not do as it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Culprit {
    Nobody,
    /// A consumer that takes nothing while the storm lasts.
    Consumer,
    /// The reader of the event stream, which takes nothing for 30 s.
    Reader,
}

/// What came of one storm.
#[derive(Debug)]
struct Outcome {
    longest: Duration,
    longest_real: Duration,
    sends: u64,
    lasted: Duration,
}

/// One storm over that runtime.
async fn weather<R: Runtime>(
    sim: &Sim,
    clock: Clock,
    runtime: R,
    truth: &CriRuntime,
    culprit: Culprit,
    has_code: impl Fn(&Id) -> bool,
) -> anyhow::Result<Outcome> {
    let reads = watch::Sender::new(true);
    let runtime = Undrained::new(runtime, reads.subscribe());
    let mut builder = Pleg::builder(runtime)
        .settings(Settings::default())
        .clock(clock);
    let (first, mut second) = (builder.subscribe(), builder.subscribe());
    let pleg = builder.spawn()?;
    pleg.wait_until_synced().await?;
    sim.wait_for_subscribers(1).await;
    let storm = Storm {
        service: sim.service(),
        clock,
        heard: Arc::default(),
    };
    let mut late = Told::default();
    let began = clock.now();
    let keen = keeps_up(first);
    if culprit == Culprit::Reader {
        reads.send_replace(false);
    }
    let raging = storm.rage();
    let meanwhile = async {
        if culprit == Culprit::Reader {
            storm.pass(30 * SECOND).await;
            reads.send_replace(true);
        }
        // In a run without a stalled consumer the second one keeps up as well.
        while culprit != Culprit::Consumer
            && let Some(delivery) = second.next().await
        {
            late.take(delivery);
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        raged = raging => raged?,
        () = meanwhile => {}
    }
    let lasted = clock.now().since(began);
    wait::until_right(20 * SECOND, "the cache is right", || {
        cache_is_right(&pleg, truth)
    })
    .await?;
    // What needs an inspection before it is announced has had it.
    storm.pass(3 * SECOND).await;
    assert_eq!(pleg.health().ready(), Ok(()));
    let listed = listing(truth).await?;
    pleg.shutdown().await;
    while let Some(delivery) = second.next().await {
        late.take(delivery);
    }
    let heard = storm.heard(std::mem::take);
    let outcome = Outcome {
        longest: heard.longest,
        longest_real: heard.longest_real,
        sends: heard.sends,
        lasted,
    };
    if culprit == Culprit::Reader {
        // What came and went while nobody read was seen by no list.
        return Ok(outcome);
    }
    let unheard = keen.await?.judge(&heard.done, &listed, &has_code)?;
    anyhow::ensure!(unheard == 0, "who keeps up is told everything");
    let unheard = late.judge(&heard.done, &listed, &has_code)?;
    anyhow::ensure!(
        unheard == late.lost,
        "{unheard} lost, told of {}",
        late.lost
    );
    if culprit == Culprit::Consumer {
        println!(
            "  the stalled consumer took {} announcements: {} ends, {} removals, told of {} lost",
            late.deliveries,
            late.ends.len(),
            late.removed,
            late.lost
        );
        assert!(late.lost > 0, "the storm is more than is kept for it");
    }
    Ok(outcome)
}

/// One storm within the process, on paused time.
async fn inside(culprit: Culprit) -> anyhow::Result<Outcome> {
    let node = Inside::up();
    let runtime = pleg_tests::split::Split {
        calls: client(&node.calls)?,
        events: client(&node.events)?,
    };
    let truth = node.truth()?;
    let real = clock::wall();
    let outcome = weather(&node.sim, node.clock, runtime, &truth, culprit, |_| true).await?;
    let carried = node.events.carried();
    println!(
        "{culprit:?}: longest of {} sends {:?} ({:?} of the host's time) in {:?} ({:?}), {} windows",
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
async fn a_stalled_consumer_holds_up_no_send() -> anyhow::Result<()> {
    // Time passes only where somebody waits: a send that waits for nobody takes none.
    let without = inside(Culprit::Nobody).await?;
    let with = inside(Culprit::Consumer).await?;
    assert_eq!(
        (with.longest, without.longest),
        (Duration::ZERO, Duration::ZERO)
    );
    let control = inside(Culprit::Reader).await?;
    // Until the generator takes the stream for silent and ends it.
    assert!(control.longest >= SECOND, "{:?}", control.longest);
    Ok(())
}

/// One storm over a real socket, in real time.
async fn outside(culprit: Culprit) -> anyhow::Result<Outcome> {
    let dir = tempfile::Builder::new().prefix("pleg").tempdir()?;
    let path = dir.path().join("cri.sock");
    let stream = Arc::new(Stream::default());
    let sim = Sim::builder().seed(11).faults(stream.clone()).build();
    let serving = sim.serve_unix(&path, std::future::pending())?;
    let config = CriConfig::new(format!("unix://{}", path.display()).parse()?);
    let truth = CriRuntime::new(config.clone())?;
    let runtime = CriRuntime::new(config)?;
    let has_code = |id: &Id| stream.told_the_code(id);
    let outcome = weather(&sim, Clock::start(), runtime, &truth, culprit, has_code).await?;
    let told = stream.bytes.load(Ordering::Relaxed);
    println!(
        "{culprit:?}: longest of {} sends {:?} in {:?}, {} windows",
        outcome.sends,
        outcome.longest,
        outcome.lasted,
        told / CONNECTION_WINDOW,
    );
    assert!(told >= 3 * CONNECTION_WINDOW, "{told}");
    assert!(outcome.lasted >= 60 * SECOND, "{:?}", outcome.lasted);
    serving.stop().await;
    sim.shutdown().await;
    Ok(outcome)
}

/// Five pairs, interleaved, of 60 s each: 11 minutes with the control.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes 11 minutes"]
async fn a_stalled_consumer_holds_up_no_send_in_real_time() -> anyhow::Result<()> {
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _pair in 0..5 {
        without.push(outside(Culprit::Nobody).await?.longest);
        with.push(outside(Culprit::Consumer).await?.longest);
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
    let control = outside(Culprit::Reader).await?.longest;
    assert!(control >= 10 * SECOND, "{control:?}");
    Ok(())
}
