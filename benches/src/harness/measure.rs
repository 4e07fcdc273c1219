//! The measurements on the simulated runtime, one function for each workload.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result};
use pleg_runtime::clock::wall;

use super::child::Subject;
use super::{Point, Workload, pause};
use crate::protocol::{Answer, ContainerChange, Order, Usage};
use crate::results::{Metrics, Sample, load, now};
use crate::runtime::{Changes, Counted, Runtime};
use crate::subject::Kind;
use crate::typical::Random;

/// The seconds without events before a long idle measurement. After them, this project's PLEG lists only once a minute.
pub(super) const SETTLING: f64 = 66.0;

/// Seconds after the last change within which even a subject that lists once a second sees this change.
const LAST_POLL: f64 = 1.5;

/// The seconds within which the cache of a subject must show that all containers have exited.
const STORM_LIMIT: f64 = 120.0;

/// Seconds for which pod workers run before a measurement: longer than a pod lives, so the number of pods is constant.
const CHURN_BEGIN: f64 = 4.5;

/// The executable and the directory for sockets.
pub(super) struct Run {
    executable: PathBuf,
    directory: PathBuf,
    started: AtomicU32,
}

impl Run {
    pub(super) fn new(directory: &Path) -> Result<Self> {
        Ok(Self {
            executable: std::env::current_exe()?,
            directory: directory.to_owned(),
            started: AtomicU32::new(0),
        })
    }

    /// Measures one point.
    pub(super) async fn measure(&self, point: &Point, rep: u32) -> Result<Sample> {
        let load = load();
        let metrics = match point.workload {
            Workload::Idle { seconds } => self.idle(point, seconds).await,
            Workload::Changes { rate, seconds } => self.changes(point, rate, seconds).await,
            Workload::OwnWrites {
                workers,
                times,
                call_ms,
            } => self.own_writes(point, workers, times, call_ms).await,
            Workload::Churn {
                pods_per_second,
                seconds,
            } => self.churn(point, pods_per_second, seconds).await,
            Workload::Storm { call_ms } => self.storm(point, call_ms, rep).await,
            Workload::Memory => self.memory(point).await,
        };
        Ok(Sample {
            point: point.clone(),
            daemon: None,
            rep,
            load,
            ended: now(),
            metrics: metrics.with_context(|| point.to_string())?,
        })
    }

    /// Starts a runtime whose calls take `call_ms`, and a subject. Waits until the subject's cache shows two restarts.
    async fn start(&self, point: &Point, call_ms: u64) -> Result<Pair> {
        let executable = match point.workload {
            Workload::Memory => self.executable.with_file_name("bench-counting"),
            _ => self.executable.clone(),
        };
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let socket = self.directory.join(format!("{number}.sock"));
        let runtime = Runtime::start(&socket, point.pods)?;
        runtime.set_call_ms(call_ms);
        let began = wall();
        let mut subject = Subject::start(&executable, point.subject, &socket)?;
        subject.sync(runtime.expected(false)).await?;
        let mut pair = Pair {
            subject,
            runtime,
            synced_in: wall().nanos_since(began),
        };
        // The subject must have received events before the measurement, as on a node whose pods change.
        if point.subject != Kind::Generic {
            while pair.runtime.counted().await?.of(&["GetContainerEvents"]) == 0 {
                pause(0.01).await;
            }
        }
        pair.runtime.play(Changes::Restarts(2), 0.0).await?;
        let expected = pair.runtime.expected(false);
        pair.subject.sync(expected).await?;
        Ok(pair)
    }

    async fn idle(&self, point: &Point, seconds: f64) -> Result<Metrics> {
        let mut pair = self.start(point, 0).await?;
        // To save a minute, smoke and quick mode do not wait until this project's PLEG lists only once a minute.
        pause(if seconds > 30.0 { SETTLING } else { 1.0 }).await;
        let mut metrics = Metrics::default();
        pair.window(seconds, &mut metrics).await?;
        Ok(metrics)
    }

    async fn changes(&self, point: &Point, rate: u32, seconds: f64) -> Result<Metrics> {
        let mut pair = self.start(point, 0).await?;
        let before = pair.used().await?;
        pair.subject.request(&Order::Record).await?;
        // A pod's first restart causes three events. Each later restart causes four, as it also removes a container.
        let restarts = Changes::Restarts((f64::from(rate) * seconds / 3.5).ceil() as u32);
        let played = pair.runtime.play(restarts, f64::from(rate)).await?;
        pause(LAST_POLL).await;
        let used = pair.used().await?.since(before);
        let mut seen = pair.subject.request(&Order::Seen).await?.seen;
        // On a loaded machine the subject may see some changes only after the pause of `LAST_POLL`.
        while seen.len() < played.made.len() {
            pause(LAST_POLL).await;
            let more = pair.subject.request(&Order::Seen).await?.seen;
            if more.is_empty() {
                break;
            }
            seen.extend(more);
        }
        let mut metrics = Metrics::default();
        latencies(&played.made, &seen, &mut metrics);
        let events = played.sent as f64;
        metrics.put("cpu_per_event", used.subject.cpu as f64 / events);
        metrics.put("runtime_cpu_per_event", used.runtime.cpu / events);
        metrics.put("calls_per_event", used.runtime.unary() / events);
        Ok(metrics)
    }

    async fn own_writes(
        &self,
        point: &Point,
        workers: u32,
        times: u32,
        call_ms: u64,
    ) -> Result<Metrics> {
        // The runtime answers calls slowly only after the subject is synced.
        let mut pair = self.start(point, 0).await?;
        pair.runtime.set_call_ms(call_ms);
        let before = pair.used().await?;
        let restart = Order::Restart { workers, times };
        let answer = pair.subject.request(&restart).await?;
        let used = pair.used().await?.since(before);
        let mut metrics = Metrics::default();
        let reads = answer.reads.len() as f64;
        metrics.put("calls_per_read", used.runtime.reads() / reads);
        metrics.put("cpu_per_read", used.subject.cpu as f64 / reads);
        metrics.put("runtime_cpu_per_read", used.runtime.cpu / reads);
        put_reads(answer, &mut metrics);
        Ok(metrics)
    }

    async fn churn(&self, point: &Point, pods_per_second: f64, seconds: f64) -> Result<Metrics> {
        let mut pair = self.start(point, 0).await?;
        pause(seconds.min(8.0)).await;
        let whole = Order::Churn {
            pods_per_second,
            seconds: CHURN_BEGIN + seconds,
        };
        pair.subject.request(&whole).await?;
        pause(CHURN_BEGIN).await;
        pair.subject.request(&Order::Reads).await?;
        let mut metrics = Metrics::default();
        pair.window(seconds, &mut metrics).await?;
        put_reads(pair.subject.request(&Order::Reads).await?, &mut metrics);
        Ok(metrics)
    }

    async fn storm(&self, point: &Point, call_ms: u64, rep: u32) -> Result<Metrics> {
        let mut pair = self.start(point, call_ms).await?;
        // A random pause, equal for all subjects, so that the exits come at any time between two lists of a subject.
        let mut random = Random(rep.into());
        pause(1.0 + random.below(1000) as f64 / 1000.0).await;
        let before = pair.used().await?;
        let expected = pair.runtime.expected(true);
        // Two events for each pod: its sandbox and its running container stop.
        let events = 2 * expected.len();
        let awaited = Order::Await {
            expected,
            events,
            seconds: STORM_LIMIT,
        };
        pair.subject.request(&awaited).await?;
        let played = pair.runtime.play(Changes::Deaths, 0.0).await?;
        let reached = pair.subject.receive().await?;
        let used = pair.used().await?.since(before);
        let mut metrics = Metrics::default();
        if point.subject != Kind::RuntimeAlone {
            metrics.put("synced", pair.synced_in as f64);
        }
        metrics.put("cpu", used.subject.cpu as f64);
        metrics.put("runtime_cpu", used.runtime.cpu);
        metrics.put("calls", used.runtime.unary());
        let at = reached.at.context("the cache does not show all deaths")?;
        metrics.put("shown", (at - played.first) as f64);
        Ok(metrics)
    }

    async fn memory(&self, point: &Point) -> Result<Metrics> {
        let mut live = Vec::new();
        // The second node has twice the pods: the difference leaves out what no pod needs, such as connection buffers.
        for pods in [point.pods, 2 * point.pods] {
            let point = Point {
                pods,
                ..point.clone()
            };
            let mut pair = self.start(&point, 0).await?;
            // Takes the least of ten measured values, because a list in progress allocates memory as well.
            let mut least = u64::MAX;
            for _ in 0..10 {
                pause(0.2).await;
                let answer = pair.subject.request(&Order::Use).await?;
                least = least.min(answer.live_bytes.context("allocations are not counted")?);
            }
            live.push(least as f64);
        }
        let mut metrics = Metrics::default();
        metrics.put("held", live[0]);
        metrics.put("held_per_pod", (live[1] - live[0]) / point.pods as f64);
        Ok(metrics)
    }
}

/// A runtime and the subject that observes it. Dropping the pair drops the subject first.
struct Pair {
    subject: Subject,
    runtime: Runtime,
    /// The time from the start of the subject until it was synced, in ns.
    synced_in: i64,
}

struct Used {
    subject: Usage,
    runtime: Counted,
}

impl Used {
    fn since(self, before: Self) -> Self {
        Self {
            subject: self.subject.since(&before.subject),
            runtime: self.runtime.since(&before.runtime),
        }
    }
}

impl Pair {
    async fn used(&mut self) -> Result<Used> {
        Ok(Used {
            subject: self.subject.request(&Order::Use).await?.usage,
            runtime: self.runtime.counted().await?,
        })
    }

    /// Measures the resource usage of subject and runtime during the next `seconds` seconds.
    async fn window(&mut self, seconds: f64, metrics: &mut Metrics) -> Result<()> {
        let before = self.used().await?;
        pause(seconds).await;
        let used = self.used().await?.since(before);
        metrics.put("seconds", seconds);
        metrics.put("cpu", used.subject.cpu as f64);
        metrics.put("woken", used.subject.woken as f64);
        metrics.put("peak_kib", used.subject.peak_kib as f64);
        metrics.put("resident_kib", used.subject.resident_kib as f64);
        metrics.put("runtime_cpu", used.runtime.cpu);
        metrics.put("calls", used.runtime.unary());
        Ok(())
    }
}

fn put_reads(answer: Answer, metrics: &mut Metrics) {
    metrics.put("wrong_reads", answer.wrong_reads as f64);
    metrics.quantiles("read", answer.reads);
}

/// Records in `metrics` the time from each change until the subject saw the change.
pub(super) fn latencies(made: &[ContainerChange], seen: &[ContainerChange], metrics: &mut Metrics) {
    let mut first = HashMap::new();
    for change in seen {
        first.entry((&change.id, change.died)).or_insert(change.at);
    }
    for (name, died) in [("death", true), ("start", false)] {
        let of_kind = made.iter().filter(|change| change.died == died);
        let seen = of_kind.clone().filter_map(|change| {
            let seen = first.get(&(&change.id, died))?;
            Some(u64::try_from(seen - change.at).unwrap_or(0))
        });
        let seen: Vec<u64> = seen.collect();
        let unseen = of_kind.count() - seen.len();
        metrics.put(&format!("{name}_unseen"), unseen as f64);
        metrics.quantiles(name, seen);
    }
}
