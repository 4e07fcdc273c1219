//! The simulated runtime: a thread that serves CRI on a Unix socket. It encodes in advance all that does not depend on
//! a container's state, so that it needs little CPU time.
//!
//! The runtime sends events as containerd 2 does: each subscriber has a channel for 100 events, and if the channel is
//! full, the runtime waits for the subscriber. It queues no events while there is no subscriber.

mod answer;
mod encoded;
mod node;
mod play;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};
use nix::sys::resource::UsageWho;
use pleg_runtime::clock::Clock;
use tokio::net::UnixListener;
use tokio::runtime::{Builder, Handle};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::protocol::{ExpectedPod, Usage};
use node::Node;
pub(crate) use play::{Changes, Played};

/// The simulated runtime. Dropping it ends its thread.
pub(crate) struct Runtime {
    shared: Arc<Shared>,
    /// A handle of the tokio runtime in the thread.
    thread: Handle,
    _stop: DropGuard,
}

struct Shared {
    node: Mutex<Node>,
    /// The number of calls by method.
    calls: Mutex<BTreeMap<&'static str, u64>>,
    subscribers: Mutex<Vec<mpsc::Sender<Bytes>>>,
    /// The duration of each call, in ms.
    call_ms: AtomicU64,
    clock: Clock,
}

/// The CPU time of the runtime, and the calls that it received.
pub(crate) struct Counted {
    /// The CPU time in ns.
    pub(crate) cpu: f64,
    calls: BTreeMap<&'static str, u64>,
}

impl Counted {
    pub(crate) fn since(self, before: &Self) -> Self {
        let calls = self.calls.into_iter();
        let calls = calls.map(|(method, now)| (method, now - before.of(&[method])));
        Self {
            cpu: self.cpu - before.cpu,
            calls: calls.collect(),
        }
    }

    /// The number of calls of the methods `methods`.
    pub(crate) fn of(&self, methods: &[&str]) -> u64 {
        methods.iter().filter_map(|m| self.calls.get(m)).sum()
    }

    /// The number of all calls except GetContainerEvents.
    pub(crate) fn unary(&self) -> f64 {
        let all: u64 = self.calls.values().sum();
        (all - self.of(&["GetContainerEvents"])) as f64
    }

    /// The number of list and status calls.
    pub(crate) fn reads(&self) -> f64 {
        self.of(&[
            "ListPodSandbox",
            "ListContainers",
            "PodSandboxStatus",
            "ContainerStatus",
        ]) as f64
    }
}

impl Runtime {
    /// Serves a node with this number of pods.
    pub(crate) fn start(socket: &Path, pods: u64) -> Result<Self> {
        let tokio = Builder::new_current_thread().enable_all().build()?;
        let thread = tokio.handle().clone();
        let listener = {
            let _in_runtime = thread.enter();
            UnixListener::bind(socket)
                .with_context(|| format!("cannot listen on {}", socket.display()))?
        };
        let stop = CancellationToken::new();
        let (shared, stopped) = (Arc::new(Shared::new(pods)), stop.clone());
        let serving = serve(listener, shared.clone());
        std::thread::spawn(move || tokio.block_on(stopped.run_until_cancelled(serving)));
        Ok(Self {
            shared,
            thread,
            _stop: stop.drop_guard(),
        })
    }

    pub(crate) fn set_call_ms(&self, call_ms: u64) {
        let current = &self.shared.call_ms;
        current.store(call_ms, std::sync::atomic::Ordering::Relaxed);
    }

    /// The pods that a subject's cache must show now or, if `after_deaths`, once all containers have exited.
    pub(crate) fn expected(&self, after_deaths: bool) -> Vec<ExpectedPod> {
        lock(&self.shared.node).expected(after_deaths)
    }

    pub(crate) async fn counted(&self) -> Result<Counted> {
        let usage = async { Usage::of(UsageWho::RUSAGE_THREAD) };
        let cpu = self.thread.spawn(usage).await?.cpu as f64;
        let calls = lock(&self.shared.calls).clone();
        Ok(Counted { cpu, calls })
    }

    /// Makes `rate` changes per second or, if `rate` is 0, changes as fast as the subscriber receives their events.
    pub(crate) async fn play(&self, changes: Changes, rate: f64) -> Result<Played> {
        let playing = play::play(self.shared.clone(), changes, rate);
        Ok(self.thread.spawn(playing).await?)
    }
}

impl Shared {
    fn new(pods: u64) -> Self {
        Self {
            node: Mutex::new(Node::new(pods)),
            calls: Mutex::default(),
            subscribers: Mutex::default(),
            call_ms: AtomicU64::new(0),
            clock: Clock::start(),
        }
    }

    /// Sends an event to every subscriber. Waits for a subscriber that does not read. Removes closed subscribers.
    async fn publish(&self, event: Bytes) {
        let subscribers = lock(&self.subscribers).clone();
        for subscriber in subscribers {
            if subscriber.send(event.clone()).await.is_err() {
                lock(&self.subscribers).retain(|s| !s.is_closed());
            }
        }
    }

    async fn delay(&self, time: Duration) {
        let until = self.clock.now().after(time);
        self.clock.sleep_until(until).await;
    }
}

async fn serve(listener: UnixListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let shared = shared.clone();
        tokio::spawn(async move {
            let answer = |request| answer::answer(shared.clone(), request);
            let service = hyper::service::service_fn(answer);
            let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service);
            // The error of the connection does not matter: it shows only how the client has disconnected.
            let _ = connection.await;
        });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
