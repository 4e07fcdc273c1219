//! The runtime that is measured against: a process of its own that serves CRI on a unix socket
//! from a table of answers encoded ahead.
//!
//! It tells events as containerd 2 does: to each subscriber through a channel of 100, waiting for
//! one that does not read. Or as CRI-O does: through one of 1,000, and what does not fit is dropped.
//! It does not hold events for a subscriber to come.

mod call;
mod drive;
mod trouble;
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
use crate::payload::Profile;
use crate::protocol::{Counted, RuntimeAnswer, RuntimeOrder, Trouble, orders, reply};
use crate::usage::Usage;

/// How it is to be.
#[derive(Clone, Debug, clap::Args)]
pub struct Settings {
    /// The socket.
    #[arg(long)]
    pub socket: PathBuf,
    /// How many pods.
    #[arg(long)]
    pub pods: u32,
    /// How many containers each.
    #[arg(long, default_value_t = 1)]
    pub containers: u32,
    /// How much text they carry.
    #[arg(long, value_enum, default_value_t)]
    pub profile: Profile,
    /// What everything that looks random comes from.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How long each call takes, in ms.
    #[arg(long, default_value_t = 0)]
    pub latency: u64,
    /// Offers streaming lists, with so many rows to the page.
    #[arg(long)]
    pub page: Option<usize>,
    /// How many containers there are besides that have ended long ago.
    #[arg(long, default_value_t = 0)]
    pub ended: u32,
    /// Drops the events that a subscriber does not take in time, as CRI-O does.
    #[arg(long)]
    pub dropping: bool,
}

/// What all its connections share.
#[derive(Debug)]
struct Shared {
    table: Mutex<Table>,
    calls: Mutex<Calls>,
    subscribers: Mutex<Vec<mpsc::Sender<Result<Bytes, Broken>>>>,
    dropping: bool,
    latency: Duration,
    page: Option<usize>,
    clock: Clock,
    trouble: Mutex<Trouble>,
    /// Cancelled to end every connection that there is.
    connections: Mutex<CancellationToken>,
}

/// An event stream was broken off.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("broken off")]
struct Broken;

#[derive(Debug, Default)]
struct Calls {
    by_method: BTreeMap<&'static str, u64>,
    subscribed: i64,
}

impl Shared {
    fn counted(&self) -> Counted {
        let calls = lock(&self.calls);
        let by_method = calls.by_method.iter();
        Counted {
            usage: Usage::of_self(),
            calls: by_method.map(|(m, n)| ((*m).to_owned(), *n)).collect(),
            subscribed: calls.subscribed,
        }
    }

    /// Breaks every event stream off, and leaves the connections as they are.
    fn reset(&self) {
        for subscriber in std::mem::take(&mut *lock(&self.subscribers)) {
            // Where there is no room its end is as abrupt.
            let _ = subscriber.try_send(Err(Broken));
        }
    }

    /// Ends every connection, and whoever waits for events is forgotten.
    fn cut(&self) {
        std::mem::take(&mut *lock(&self.connections)).cancel();
        lock(&self.subscribers).clear();
    }

    fn now(&self) -> i64 {
        self.clock.wall().as_nanos()
    }

    /// When that moment of the wall clock is.
    fn instant(&self, wall: i64) -> pleg_core::Instant {
        let ahead = u64::try_from(wall - self.now()).unwrap_or(0);
        self.clock.now().after(Duration::from_nanos(ahead))
    }
}

/// Serves until the harness closes its end.
///
/// # Errors
/// If the socket cannot be had, or an order is not understood.
pub async fn serve(settings: Settings) -> Result<()> {
    let mut pods = pods(settings.seed, settings.pods, settings.containers);
    add_exited_containers(&mut pods, settings.seed, settings.ended);
    let mut table = Table::new(pods, settings.profile, settings.seed);
    table.prepare(settings.page.map_or(Page::Whole, Page::Of));
    let shared = Arc::new(Shared {
        table: Mutex::new(table),
        calls: Mutex::default(),
        subscribers: Mutex::default(),
        dropping: settings.dropping,
        latency: Duration::from_millis(settings.latency),
        page: settings.page,
        clock: Clock::start(),
        trouble: Mutex::default(),
        connections: Mutex::default(),
    });
    let mut orders = orders::<RuntimeOrder>();
    let mut driver = drive::Driver::new(shared.clone(), &settings);
    let mut listening = listen(&settings, &shared)?;
    reply(&RuntimeAnswer::Ready)?;
    while let Some(order) = orders.recv().await {
        let answer = match order? {
            RuntimeOrder::Plan { work } => driver.plan(work),
            RuntimeOrder::Play {
                rate,
                faults,
                cut_every,
            } => {
                let options = drive::PlayOptions {
                    rate,
                    faults,
                    cut_every: (cut_every > 0).then(|| Duration::from_millis(cut_every)),
                };
                driver.play(options).await
            }
            RuntimeOrder::History => driver.history(),
            RuntimeOrder::SetTrouble { trouble } => {
                *lock(&shared.trouble) = trouble;
                RuntimeAnswer::Ready
            }
            RuntimeOrder::Cut {
                at,
                down_ms,
                untold,
                reset,
            } => {
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
                if untold {
                    driver.happen_unreported();
                }
                if down_ms > 0 {
                    shared.clock.sleep_until(until).await;
                }
                if !reset {
                    // Those who are cut have to find somebody, and at once if nobody was down.
                    listening = listen(&settings, &shared)?;
                }
                RuntimeAnswer::Cut {
                    at,
                    listening: shared.now(),
                }
            }
            RuntimeOrder::Window { seconds } => {
                let before = shared.counted();
                let until = shared.clock.now().after(Duration::from_secs_f64(seconds));
                shared.clock.sleep_until(until).await;
                RuntimeAnswer::Counted(shared.counted().since(&before))
            }
            RuntimeOrder::Count => RuntimeAnswer::Counted(shared.counted()),
            RuntimeOrder::Truth => RuntimeAnswer::Truth {
                truth: lock(&shared.table).truth(),
            },
        };
        reply(&answer)?;
    }
    listening.cancel();
    shared.cut();
    // The harness may have taken the directory away.
    let _ = std::fs::remove_file(&settings.socket);
    Ok(())
}

/// Listens until that is cancelled.
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
                // How a client leaves is its own affair.
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
