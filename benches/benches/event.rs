//! Events through the whole generator in one process, without a transport: the time from the decoded
//! event until the cache shows it, and the events per second beside prost's decoding of the same
//! bytes.
#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a program for people"
)]

mod typical;

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pleg::core::{CallError, Report, RuntimeEvent};
use pleg::runtime::clock::Clock;
use pleg::runtime::fake::FakeRuntime;
use pleg::runtime::{MapEvents, Runtime};
use pleg::{ContainerState, Pleg};
use pleg_cri::{EventDecoder, convert, v1};
use prost::Message as _;
use tokio::sync::mpsc;

const PODS: u64 = 1000;
/// How many events are pushed through at once.
const MANY: u64 = 50_000;

fn main() {
    let (runtime, shared, say) = runtime();
    let (found, find) = std::sync::mpsc::channel();
    let (finish, over) = tokio::sync::oneshot::channel::<()>();
    let turner = std::thread::spawn(move || {
        let turn = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        turn.expect("a runtime").block_on(async move {
            let pleg = Pleg::builder(runtime).spawn().expect("it starts");
            pleg.wait_until_synced().await.expect("it lists");
            found.send(pleg.clone()).expect("somebody asks");
            over.await.ok();
            pleg.shutdown().await;
        });
    });
    let pleg = find.recv().expect("it starts");
    sustained(&pleg, &shared, &say, "told lately", 100);
    sustained(&pleg, &shared, &say, "not told lately", PODS);
    alone(&pleg, &shared, &say);
    drop(finish);
    turner.join().expect("it ends");
}

/// One event at a time: when does it show?
fn alone(pleg: &Pleg, shared: &Shared, say: &mpsc::UnboundedSender<Said>) {
    let mut took = Vec::new();
    for n in 0..PODS {
        let until = pleg.now().after(Duration::from_micros(700));
        while pleg.now() < until {
            std::hint::spin_loop();
        }
        let uid = typical::uid(n).into();
        say.send(Said::Stopped(n)).expect("it listens");
        let ended = || {
            let view = pleg.get(&uid);
            let app = view.status.container("app").map(|c| c.state);
            app == Some(ContainerState::Exited)
        };
        while !ended() {
            std::hint::spin_loop();
        }
        let seen = shared.clock.now().as_nanos();
        took.push(seen.saturating_sub(shared.received.load(SeqCst)));
    }
    took.sort_unstable();
    let at = |share: f64| took[(share * (took.len() - 1) as f64) as usize] as f64 / 1e3;
    println!(
        "received to visible, one at a time: p50 {:.1} µs, p90 {:.1}, p99 {:.1}, most {:.1}",
        at(0.5),
        at(0.9),
        at(0.99),
        at(1.0)
    );
}

/// Many at once: how long does it take, beside prost alone?
fn sustained(
    pleg: &Pleg,
    shared: &Shared,
    say: &mpsc::UnboundedSender<Said>,
    what: &str,
    pods: u64,
) {
    let mut ratios = Vec::new();
    for _ in 0..5 {
        let begun = shared.clock.now();
        for n in 0..MANY {
            let bytes = &shared.started[(n % pods) as usize];
            let message = v1::ContainerEventResponse::decode(&**bytes);
            std::hint::black_box(message.expect("a message"));
        }
        let raw = shared.clock.now().since(begun).as_secs_f64();
        let before: u64 = pleg.counters().events.iter().sum();
        let begun = shared.clock.now();
        for n in 0..MANY {
            say.send(Said::Started(n % pods)).expect("it listens");
        }
        while pleg.counters().events.iter().sum::<u64>() < before + MANY {
            std::thread::yield_now();
        }
        let ours = shared.clock.now().since(begun).as_secs_f64();
        ratios.push((raw / ours, MANY as f64 / ours, MANY as f64 / raw));
    }
    ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (ratio, ours, raw) = ratios[ratios.len() / 2];
    println!(
        "sustained, {what}: {:.0}k/s, prost alone {:.0}k/s, {ratio:.2} ×",
        ours / 1e3,
        raw / 1e3
    );
}

#[derive(Clone, Copy)]
enum Said {
    Started(u64),
    Stopped(u64),
}

struct Shared {
    clock: Clock,
    started: Vec<Vec<u8>>,
    stopped: Vec<Vec<u8>>,
    fake: FakeRuntime,
    /// When the last event was in hand.
    received: AtomicU64,
}

/// A runtime with [`PODS`] pods, whose events come as bytes.
fn runtime() -> (impl Runtime, Arc<Shared>, mpsc::UnboundedSender<Said>) {
    use v1::{ContainerEventType as Type, ContainerState as State};
    let (say, said) = mpsc::unbounded_channel();
    let of = |what: Type, state: State| {
        let event = |n| typical::event(n, what, state, typical::CREATED).encode_to_vec();
        (0..PODS).map(event).collect()
    };
    let fake = FakeRuntime::new();
    for n in 0..PODS {
        put(&fake, convert::sandbox_status(typical::sandbox_status(n)));
        put(&fake, container(n, State::ContainerRunning));
    }
    let shared = Arc::new(Shared {
        clock: Clock::start(),
        started: of(Type::ContainerStartedEvent, State::ContainerRunning),
        stopped: of(Type::ContainerStoppedEvent, State::ContainerExited),
        fake: fake.clone(),
        received: AtomicU64::new(0),
    });
    let said = Mutex::new(Some(said));
    let events = shared.clone();
    let runtime = MapEvents::new(fake, move |_| {
        let said = said.lock().ok().and_then(|mut said| said.take());
        Events {
            shared: events.clone(),
            said: said.expect("one subscribe"),
            decoder: EventDecoder::new(),
        }
    });
    (runtime, shared, say)
}

fn container(n: u64, state: v1::ContainerState) -> Option<Report> {
    let row = convert::container_row(typical::container_row(n))?;
    let status = convert::container_status(typical::container_status(n, state))?;
    Some(Report {
        identity: row.identity,
        ..status
    })
}

fn put(fake: &FakeRuntime, report: Option<Report>) {
    fake.put(report.expect("a valid status"));
}

struct Events {
    shared: Arc<Shared>,
    said: mpsc::UnboundedReceiver<Said>,
    decoder: EventDecoder,
}

impl futures::Stream for Events {
    type Item = Result<RuntimeEvent, CallError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(said) = ready!(self.said.poll_recv(cx)) else {
            return Poll::Ready(None);
        };
        let this = &mut *self;
        let bytes = match said {
            Said::Started(n) => &this.shared.started[n as usize],
            Said::Stopped(n) => {
                put(
                    &this.shared.fake,
                    container(n, v1::ContainerState::ContainerExited),
                );
                &this.shared.stopped[n as usize]
            }
        };
        let event = this.decoder.read(bytes).expect("a message");
        let now = this.shared.clock.now().as_nanos();
        this.shared.received.store(now, SeqCst);
        Poll::Ready(event.map(Ok))
    }
}
