//! The simulated runtime: a process that serves CRI on a Unix socket from a table of answers that were
//! encoded in advance.
//!
//! It sends events as containerd 2 does, through a channel of 100 per subscriber, and waits for a
//! subscriber that does not read; or as CRI-O does, through a channel of 1,000, and drops events that
//! do not fit. It keeps no events while there is no subscriber.

mod call;
mod call_faults;
mod drive;
mod write;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};
use pleg_runtime::clock::Clock;
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::node::{Page, Table, add_exited_containers, pods};
use crate::protocol::{CallFaults, Counted, RuntimeAnswer, RuntimeOrder, orders, reply};
use crate::usage::Usage;

/// The settings of the runtime.
#[derive(Clone, Debug, clap::Args)]
pub struct Settings {
    /// The socket to listen on.
    #[arg(long)]
    pub socket: PathBuf,
    /// The number of pods.
    #[arg(long)]
    pub pods: u32,
    /// The number of containers per pod.
    #[arg(long, default_value_t = 1)]
    pub containers: u32,
    /// The seed of all random decisions.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The duration of each call, in ms.
    #[arg(long, default_value_t = 0)]
    pub latency: u64,
    /// Offer streaming lists with this many rows per page.
    #[arg(long)]
    pub page: Option<usize>,
    /// The number of additional exited containers.
    #[arg(long, default_value_t = 0)]
    pub exited: u32,
    /// Drop events that do not fit into a subscriber's queue, as CRI-O does.
    #[arg(long)]
    pub dropping: bool,
}

/// The state that all connections share.
#[derive(Debug)]
struct Shared {
    table: Mutex<Table>,
    /// The number of calls by method.
    calls: Mutex<BTreeMap<&'static str, u64>>,
    subscribers: Mutex<Vec<mpsc::Sender<Result<Bytes, StreamReset>>>>,
    dropping: bool,
    latency: Duration,
    page: Option<usize>,
    clock: Clock,
    call_faults: Mutex<CallFaults>,
    /// Cancelled to close every connection.
    connections: Mutex<CancellationToken>,
}

/// An event stream was reset.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("event stream reset")]
struct StreamReset;

impl Shared {
    fn counted(&self) -> Counted {
        let calls = lock(&self.calls);
        Counted {
            usage: Usage::of_self(),
            calls: calls.iter().map(|(m, n)| ((*m).to_owned(), *n)).collect(),
        }
    }

    /// Resets every event stream, and keeps the connections.
    fn reset(&self) {
        for subscriber in std::mem::take(&mut *lock(&self.subscribers)) {
            // If the queue is full, dropping the sender ends the stream.
            let _ = subscriber.try_send(Err(StreamReset));
        }
    }

    /// Closes every connection and removes all subscribers.
    fn cut(&self) {
        std::mem::take(&mut *lock(&self.connections)).cancel();
        lock(&self.subscribers).clear();
    }

    fn now(&self) -> i64 {
        self.clock.wall().as_nanos()
    }

    /// Converts a wall-clock time to an instant.
    fn instant(&self, wall: i64) -> pleg_core::Instant {
        let ahead = u64::try_from(wall - self.now()).unwrap_or(0);
        self.clock.now().after(Duration::from_nanos(ahead))
    }
}

/// Serves until the harness closes stdin.
///
/// # Errors
/// If the socket cannot be created, or an order is invalid.
pub async fn serve(settings: Settings) -> Result<()> {
    let mut pods = pods(settings.seed, settings.pods, settings.containers);
    add_exited_containers(&mut pods, settings.seed, settings.exited);
    let mut table = Table::new(pods, settings.seed);
    table.prepare(settings.page.map_or(Page::Whole, Page::Of));
    let shared = Arc::new(Shared {
        table: Mutex::new(table),
        calls: Mutex::default(),
        subscribers: Mutex::default(),
        dropping: settings.dropping,
        latency: Duration::from_millis(settings.latency),
        page: settings.page,
        clock: Clock::start(),
        call_faults: Mutex::default(),
        connections: Mutex::default(),
    });
    let mut orders = orders::<RuntimeOrder>();
    let mut driver = drive::Driver::new(shared.clone(), &settings);
    let mut listening = listen(&settings, &shared)?;
    reply(&RuntimeAnswer::Ready)?;
    while let Some(order) = orders.recv().await {
        let answer = match order? {
            RuntimeOrder::Plan { changes } => driver.plan(changes),
            RuntimeOrder::Play(play) => driver.play(play).await,
            RuntimeOrder::History => driver.history(),
            RuntimeOrder::SetCallFaults { faults } => {
                *lock(&shared.call_faults) = faults;
                RuntimeAnswer::Ready
            }
            RuntimeOrder::Cut { at, down_ms, reset } => {
                shared.clock.sleep_until(shared.instant(at)).await;
                let at = shared.now();
                if reset {
                    shared.reset();
                } else {
                    listening.cancel();
                    shared.cut();
                }
                let until = shared.clock.now().after(Duration::from_millis(down_ms));
                if down_ms > 0 {
                    std::fs::remove_file(&settings.socket)?;
                }
                driver.apply_without_events();
                if down_ms > 0 {
                    shared.clock.sleep_until(until).await;
                }
                if !reset {
                    // Clients must be able to reconnect, and at once if there is no downtime.
                    listening = listen(&settings, &shared)?;
                }
                RuntimeAnswer::Cut { at }
            }
            RuntimeOrder::Window { seconds } => {
                let before = shared.counted();
                let until = shared.clock.now().after(Duration::from_secs_f64(seconds));
                shared.clock.sleep_until(until).await;
                RuntimeAnswer::Counted(shared.counted().since(&before))
            }
            RuntimeOrder::Count => RuntimeAnswer::Counted(shared.counted()),
            RuntimeOrder::Expected => RuntimeAnswer::Expected {
                expected: lock(&shared.table).expected(),
            },
        };
        reply(&answer)?;
    }
    listening.cancel();
    shared.cut();
    // The harness may have removed the directory.
    let _ = std::fs::remove_file(&settings.socket);
    Ok(())
}

/// Listens until the returned token is cancelled.
fn listen(settings: &Settings, shared: &Arc<Shared>) -> Result<CancellationToken> {
    if settings.socket.exists() {
        std::fs::remove_file(&settings.socket)?;
    }
    let listener = UnixListener::bind(&settings.socket)
        .with_context(|| format!("cannot listen on {}", settings.socket.display()))?;
    let (stop, shared) = (CancellationToken::new(), shared.clone());
    let accepting = async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (shared, until) = (shared.clone(), lock(&shared.connections).clone());
            let connection = async move {
                let service =
                    hyper::service::service_fn(|request| call::answer(shared.clone(), request));
                let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service);
                // How a client disconnects does not matter.
                let _ = connection.await;
            };
            tokio::spawn(async move { until.run_until_cancelled(connection).await });
        }
    };
    let until = stop.clone();
    tokio::spawn(async move { until.run_until_cancelled(accepting).await });
    Ok(stop)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
