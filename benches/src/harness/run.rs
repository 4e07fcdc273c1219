//! One runtime and one subject, started for one measurement.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use pleg_runtime::clock::wall;

use super::child::{Process, Subject, expect_answer};
use super::{Point, Workload};
use crate::node::{Changes, ExpectedPod};
use crate::protocol::{
    CallFaults, Counted, EventFaults, Histogram, Play, Played, PodChange, Reached, Recorded,
    RuntimeAnswer, RuntimeOrder, Spent, Stale, SubjectAnswer, SubjectOrder, Watched,
};
use crate::subject::Kind;
use crate::usage::Usage;

/// The executable, directory and seed of a run.
#[derive(Debug)]
pub struct Run {
    executable: PathBuf,
    directory: PathBuf,
    /// The seed of all random decisions.
    pub seed: u64,
    started: AtomicU32,
}

impl Run {
    /// Creates a run that starts this executable, with sockets in `directory`.
    ///
    /// # Errors
    /// If the path of this executable is unknown.
    pub fn new(directory: &Path, seed: u64) -> Result<Self> {
        Ok(Self {
            executable: std::env::current_exe()?,
            directory: directory.to_owned(),
            seed,
            started: AtomicU32::new(0),
        })
    }

    /// Starts a runtime and a subject. The subject is synced and has received an event.
    pub(super) fn start(&self, point: &Point, how: &SubjectOptions) -> Result<Pair> {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let socket = self.directory.join(format!("{number}.sock"));
        let mut args = vec!["serve".to_owned()];
        let mut arg = |name: &str, value: String| args.extend([format!("--{name}"), value]);
        arg("socket", socket.display().to_string());
        arg("pods", point.pods.to_string());
        arg("containers", point.containers.to_string());
        arg("seed", self.seed.to_string());
        // If pod workers change the node, calls become slow only after the subject is synced.
        if !matches!(point.workload, Workload::OwnWrites { .. }) {
            arg("latency", point.latency.to_string());
        }
        if let Some(rows) = point.page {
            arg("page", rows.to_string());
        }
        if let Workload::ExitedContainers { exited, .. } = point.workload {
            arg("exited", exited.to_string());
        }
        if matches!(point.workload, Workload::Dropping) {
            args.push("--dropping".to_owned());
        }
        let runtime = Process::start(&self.executable, &args, &[])?;
        let mut args = vec!["subject".to_owned(), point.subject.argument()];
        args.extend(["--socket".to_owned(), socket.display().to_string()]);
        args.extend(how.without_timer.then(|| "--without-timer".to_owned()));
        args.extend(how.stamp.then(|| "--stamp".to_owned()));
        args.extend(how.stalled.then(|| "--stalled".to_owned()));
        let workers = point.workload.has_workers();
        args.extend(workers.then(|| "--workers".to_owned()));
        args.extend(how.probing.then(|| "--probing".to_owned()));
        let executable = if how.counting {
            self.counting()?
        } else {
            self.executable.clone()
        };
        let began = wall();
        let subject = Process::start(&executable, &args, environment(&point.workload))?;
        let mut pair = Pair {
            subject,
            runtime,
            synced_in: 0,
        };
        let expected = pair.expected()?;
        pair.subject.sync(expected)?;
        pair.synced_in = wall().nanos_since(began);
        pair.first_event(point.subject)?;
        Ok(pair)
    }

    /// Returns the executable that counts allocations.
    fn counting(&self) -> Result<PathBuf> {
        let beside = self.executable.with_file_name("bench-counting");
        ensure!(
            beside.exists(),
            "{} does not exist: build it first",
            beside.display()
        );
        Ok(beside)
    }
}

/// In comparisons of lists, subjects do not return freed memory to the kernel. Otherwise a subject that
/// decodes the whole list at once spends more time on page faults than on decoding.
const fn environment(workload: &Workload) -> &'static [(&'static str, &'static str)] {
    match workload {
        Workload::Relists { .. } | Workload::ExitedContainers { .. } => &[
            ("MALLOC_TRIM_THRESHOLD_", "1073741824"),
            ("MALLOC_MMAP_THRESHOLD_", "1073741824"),
        ],
        _ => &[],
    }
}

/// How a subject is started.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SubjectOptions {
    /// Whether the subject relists only when ordered.
    pub(super) without_timer: bool,
    pub(super) stamp: bool,
    pub(super) counting: bool,
    /// Whether the consumer does not read announcements.
    pub(super) stalled: bool,
    /// Whether the subject probes the runtime once a second.
    pub(super) probing: bool,
}

/// How connections are cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// How long the runtime does not listen, in ms.
    pub(super) down_ms: u32,
    /// Whether only the event streams are reset.
    pub(super) reset: bool,
}

/// A runtime and a subject. The subject is dropped first, so that it does not observe the end of the
/// runtime.
pub(super) struct Pair {
    pub(super) subject: Subject,
    runtime: Process<RuntimeOrder, RuntimeAnswer>,
    /// The time from the start of the subject until it was synced, in ns.
    pub(super) synced_in: i64,
}

impl Pair {
    pub(super) fn expected(&mut self) -> Result<Vec<ExpectedPod>> {
        let answer = self.runtime.request(&RuntimeOrder::Expected)?;
        Ok(expect_answer!(answer, RuntimeAnswer::Expected { expected } => expected))
    }

    /// Sends the first events, as on a node that has been in use.
    fn first_event(&mut self, subject: Kind) -> Result<()> {
        if matches!(subject, Kind::Decode | Kind::Statuses | Kind::Calls) {
            return Ok(());
        }
        if subject.subscribes() {
            self.wait_for_subscriber()?;
        }
        self.plan(Changes::Restarts { count: 2 })?;
        self.play(0.0, EventFaults::default())?;
        // Some subjects never show all of these changes (B5), so the harness does not wait for them.
        self.window(0.2)?;
        Ok(())
    }

    /// Waits for the first GetContainerEvents call.
    fn wait_for_subscriber(&mut self) -> Result<()> {
        for _ in 0..1000 {
            if self.counted()?.of(&["GetContainerEvents"]) > 0 {
                return Ok(());
            }
            self.window(0.01)?;
        }
        bail!("no subscriber within 10 s")
    }

    pub(super) fn window(&mut self, seconds: f64) -> Result<Counted> {
        self.begin_window(seconds)?;
        self.end_window(seconds)
    }

    pub(super) fn plan(&mut self, changes: Changes) -> Result<(u64, Vec<ExpectedPod>)> {
        let answer = self.runtime.request(&RuntimeOrder::Plan { changes })?;
        Ok(
            expect_answer!(answer, RuntimeAnswer::Planned { events, expected } => (events, expected)),
        )
    }

    pub(super) fn play(&mut self, rate: f64, faults: EventFaults) -> Result<Played> {
        self.play_with(Play {
            rate,
            faults,
            cut_every: 0,
        })
    }

    pub(super) fn play_with(&mut self, play: Play) -> Result<Played> {
        self.runtime.send(&RuntimeOrder::Play(play))?;
        let answer = self.runtime.receive(Duration::from_secs(1200))?;
        Ok(expect_answer!(answer, RuntimeAnswer::Played(played) => played))
    }

    /// Sets the faults of the runtime's calls.
    pub(super) fn set_call_faults(&mut self, faults: CallFaults) -> Result<()> {
        let answer = self
            .runtime
            .request(&RuntimeOrder::SetCallFaults { faults })?;
        expect_answer!(answer, RuntimeAnswer::Ready => {});
        Ok(())
    }

    /// Stops the runtime's process. Its socket and connections stay open.
    pub(super) fn freeze(&self) -> Result<()> {
        self.runtime.freeze()
    }

    /// Returns how stale the subject's cache was since recording began, for the pods that `counts`
    /// selects.
    pub(super) fn stale(&mut self, counts: impl Fn(&str) -> bool) -> Result<Stale> {
        let answer = self.runtime.request(&RuntimeOrder::History)?;
        let (mut before, mut changes): (Vec<ExpectedPod>, Vec<PodChange>) =
            expect_answer!(answer, RuntimeAnswer::History { before, changes } => (before, changes));
        before.retain(|of| counts(&of.uid));
        changes.retain(|of| counts(&of.pod.uid));
        let answer = self
            .subject
            .request(&SubjectOrder::Stale { before, changes })?;
        Ok(expect_answer!(answer, SubjectAnswer::Stale(stale) => stale))
    }

    /// Starts to watch the subject's health, until the first problem if `first`.
    pub(super) fn begin_watch(&mut self, during: Duration, first: bool) -> Result<()> {
        let millis = millis(during);
        self.subject.send(&SubjectOrder::Watch { millis, first })
    }

    pub(super) fn end_watch(&mut self, during: Duration) -> Result<Watched> {
        let answer = self.subject.receive(during + Duration::from_secs(30))?;
        Ok(expect_answer!(answer, SubjectAnswer::Watched(watched) => watched))
    }

    /// Cuts all connections at time `at`, or only resets the event streams. Returns the time of the cut.
    pub(super) fn cut(&mut self, at: i64, how: Cut) -> Result<i64> {
        let answer = self.runtime.request(&RuntimeOrder::Cut {
            at,
            down_ms: u64::from(how.down_ms),
            reset: how.reset,
        })?;
        Ok(expect_answer!(answer, RuntimeAnswer::Cut { at } => at))
    }

    pub(super) fn counted(&mut self) -> Result<Counted> {
        let answer = self.runtime.request(&RuntimeOrder::Count)?;
        Ok(expect_answer!(answer, RuntimeAnswer::Counted(counted) => counted))
    }

    pub(super) fn begin_window(&mut self, seconds: f64) -> Result<()> {
        self.runtime.send(&RuntimeOrder::Window { seconds })
    }

    pub(super) fn end_window(&mut self, seconds: f64) -> Result<Counted> {
        let answer = self
            .runtime
            .receive(Duration::from_secs_f64(seconds + 30.0))?;
        Ok(expect_answer!(answer, RuntimeAnswer::Counted(counted) => counted))
    }

    /// Makes the subject discard the events and announcements that it received so far.
    pub(super) fn discard(&mut self) -> Result<()> {
        let answer = self.subject.request(&SubjectOrder::Discard)?;
        expect_answer!(answer, SubjectAnswer::Used { .. } => {});
        Ok(())
    }

    /// Measures the duration of reads of the subject's cache, while the plan is played at `rate`, if given.
    pub(super) fn read(&mut self, during: Duration, rate: Option<f64>) -> Result<Histogram> {
        let pods = self.expected()?.into_iter().map(|t| t.uid).collect();
        let millis = millis(during);
        self.subject.send(&SubjectOrder::Read { pods, millis })?;
        if let Some(rate) = rate {
            self.play(rate, EventFaults::default())?;
        }
        let answer = self.subject.receive(during + Duration::from_secs(30))?;
        Ok(expect_answer!(answer, SubjectAnswer::Recorded(recorded) => recorded.in_process))
    }

    /// Runs pod workers that restart their pods. Returns their reads.
    pub(super) fn restart(&mut self, parallel: u32, times: u32) -> Result<Recorded> {
        self.subject
            .send(&SubjectOrder::Restart { parallel, times })?;
        let answer = self.subject.receive(Duration::from_secs(600))?;
        Ok(expect_answer!(answer, SubjectAnswer::Recorded(recorded) => recorded))
    }

    /// Starts pod workers that create, stop and remove pods.
    pub(super) fn begin_churn(&mut self, pods_per_second: f64, during: Duration) -> Result<()> {
        let millis = millis(during);
        let answer = self.subject.request(&SubjectOrder::Churn {
            pods_per_second,
            millis,
        })?;
        expect_answer!(answer, SubjectAnswer::Used { .. } => {});
        Ok(())
    }

    /// Returns the reads of the pod workers since the last call.
    pub(super) fn take_reads(&mut self) -> Result<Recorded> {
        let answer = self.subject.request(&SubjectOrder::TakeReads)?;
        Ok(expect_answer!(answer, SubjectAnswer::Recorded(recorded) => recorded))
    }

    pub(super) fn relist(&mut self, count: u32) -> Result<Spent> {
        self.subject.send(&SubjectOrder::Relist { count })?;
        let answer = self.subject.receive(Duration::from_secs(600))?;
        Ok(expect_answer!(answer, SubjectAnswer::Spent(spent) => spent))
    }

    /// Starts to wait until the subject shows the expected pods. Returns its usage so far.
    pub(super) fn wait_for(
        &mut self,
        expected: Vec<ExpectedPod>,
        events: u64,
        within: Duration,
    ) -> Result<Usage> {
        let within = millis(within);
        let answer = self.subject.request(&SubjectOrder::Await {
            expected,
            events,
            within,
        })?;
        Ok(expect_answer!(answer, SubjectAnswer::Used { usage, .. } => usage))
    }

    /// Starts to wait until every pod has evidence that was read after `after`.
    pub(super) fn wait_until_verified(
        &mut self,
        after: i64,
        uids: Vec<String>,
        within: Duration,
    ) -> Result<()> {
        let within = millis(within);
        self.subject.request(&SubjectOrder::Verify {
            after,
            uids,
            within,
        })?;
        Ok(())
    }

    pub(super) fn reached(&mut self, within: Duration) -> Result<Reached> {
        let answer = self.subject.receive(within + Duration::from_secs(30))?;
        Ok(expect_answer!(answer, SubjectAnswer::Reached(reached) => reached))
    }

    /// Returns the number of containers that the cache lacks or shows in a wrong state, and the number of
    /// containers in the cache that do not exist.
    pub(super) fn compared(&mut self) -> Result<(u64, u64)> {
        let expected = self.expected()?;
        let answer = self.subject.request(&SubjectOrder::Compare { expected })?;
        Ok(expect_answer!(answer, SubjectAnswer::Compared { lost, ghosts } => (lost, ghosts)))
    }
}

fn millis(of: Duration) -> u64 {
    u64::try_from(of.as_millis()).unwrap_or(u64::MAX)
}
