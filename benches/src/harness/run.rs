//! One runtime and one subject, started for one measurement.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::ValueEnum as _;
use pleg_runtime::clock::wall;

use super::child::Process;
use super::{Point, Workload};
use crate::node::{Truth, Work};
use crate::protocol::{
    Counted, Faults, Happened, Histogram, Recorded, RuntimeAnswer, RuntimeOrder, Stale,
    SubjectAnswer, SubjectOrder, Trouble, Watched,
};
use crate::subject::Kind;
use crate::usage::Usage;

/// Where measurements are made.
#[derive(Debug)]
pub struct Run {
    executable: PathBuf,
    directory: PathBuf,
    /// What everything that looks random comes from.
    pub seed: u64,
    started: AtomicU32,
}

impl Run {
    /// One whose processes are this executable. Its sockets are in `directory`.
    ///
    /// # Errors
    /// If it does not know where this executable is.
    pub fn new(directory: &Path, seed: u64) -> Result<Self> {
        Ok(Self {
            executable: std::env::current_exe()?,
            directory: directory.to_owned(),
            seed,
            started: AtomicU32::new(0),
        })
    }

    /// A runtime and a subject that knows it, and has heard an event.
    pub(super) fn start(&self, point: &Point, how: &SubjectOptions) -> Result<Pair> {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let socket = self.directory.join(format!("{number}.sock"));
        let mut args = vec!["serve".to_owned()];
        let mut arg = |name: &str, value: String| args.extend([format!("--{name}"), value]);
        arg("socket", socket.display().to_string());
        arg("pods", point.pods.to_string());
        arg("containers", point.containers.to_string());
        arg("profile", point.profile.to_string());
        arg("seed", self.seed.to_string());
        // Where pod workers write, calls are slow only after the subject has read the node.
        if !matches!(point.workload, Workload::OwnWrites { .. }) {
            arg("latency", point.latency.to_string());
        }
        if let Some(rows) = point.page {
            arg("page", rows.to_string());
        }
        if let Workload::Bloat { ended, .. } = point.workload {
            arg("ended", ended.to_string());
        }
        if matches!(point.workload, Workload::Dropping) {
            args.push("--dropping".to_owned());
        }
        let runtime = Process::start(&self.executable, &args)?;
        let name = point.subject.to_possible_value();
        let name = name.map_or_else(String::new, |v| v.get_name().to_owned());
        let mut args = vec!["subject".to_owned(), name];
        args.extend(["--socket".to_owned(), socket.display().to_string()]);
        args.extend(how.by_hand.then(|| "--by-hand".to_owned()));
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
        let subject = Process::start_with(&executable, &args, environment(&point.workload))?;
        let mut pair = Pair {
            subject,
            runtime,
            synced_in: 0,
        };
        let truth = pair.truth()?;
        pair.sync(truth)?;
        pair.synced_in = wall().nanos_since(began);
        pair.first_event(point.subject)?;
        Ok(pair)
    }

    /// The executable that counts allocations.
    fn counting(&self) -> Result<PathBuf> {
        let beside = self.executable.with_file_name("bench-counting");
        ensure!(
            beside.exists(),
            "there is no {}: build it",
            beside.display()
        );
        Ok(beside)
    }
}

/// For comparisons of lists, no subject returns freed memory to the kernel and faults it in again:
/// otherwise a subject that decodes the whole list at once pays more for page faults than for decoding.
const fn environment(workload: &Workload) -> &'static [(&'static str, &'static str)] {
    match workload {
        Workload::Relists { .. } | Workload::Bloat { .. } => &[
            ("MALLOC_TRIM_THRESHOLD_", "1073741824"),
            ("MALLOC_MMAP_THRESHOLD_", "1073741824"),
        ],
        _ => &[],
    }
}

/// How a subject is started.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SubjectOptions {
    pub(super) by_hand: bool,
    pub(super) stamp: bool,
    pub(super) counting: bool,
    /// Nobody takes what it announces.
    pub(super) stalled: bool,
    /// It asks for a sign of life once a second.
    pub(super) probing: bool,
}

/// What is done to connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// How long nobody listens.
    pub(super) down_ms: u32,
    /// Only the event streams are broken off.
    pub(super) reset: bool,
}

/// A runtime and a subject. The subject ends first: a runtime that goes away would be news to it.
pub(super) struct Pair {
    subject: Process<SubjectOrder, SubjectAnswer>,
    runtime: Process<RuntimeOrder, RuntimeAnswer>,
    /// How long it took the subject, from its start, to know what exists, in ns.
    pub(super) synced_in: i64,
}

/// What a play has come to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Played {
    pub(super) sent: u64,
    pub(super) first: i64,
    pub(super) last: i64,
    pub(super) late: i64,
    pub(super) blocked: i64,
    pub(super) dropped: u64,
}

/// What a subject that was waited for has said.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reached {
    pub(super) at: Option<i64>,
    /// What it used until then.
    pub(super) usage: Usage,
}

/// What relists have cost.
#[derive(Clone, Debug)]
pub(super) struct Spent {
    pub(super) usage: Usage,
    pub(super) took: Vec<u64>,
    pub(super) allocations: Option<u64>,
    pub(super) bytes: Option<u64>,
}

/// An answer that was not the one to come.
macro_rules! expect {
    ($answer:expr, $pattern:pat => $value:expr) => {
        match $answer {
            $pattern => $value,
            other => bail!("an answer to another order: {other:?}"),
        }
    };
}

impl Pair {
    pub(super) fn truth(&mut self) -> Result<Vec<Truth>> {
        let answer = self.runtime.request(&RuntimeOrder::Truth)?;
        Ok(expect!(answer, RuntimeAnswer::Truth { truth } => truth))
    }

    fn sync(&mut self, truth: Vec<Truth>) -> Result<()> {
        self.subject.send(&SubjectOrder::Sync { truth })?;
        let answer = self.subject.receive(Duration::from_secs(450))?;
        let synced = expect!(answer, SubjectAnswer::Synced { synced } => synced);
        ensure!(synced, "the subject does not come to know what exists");
        Ok(())
    }

    /// On a node that is idle the stream has delivered events before.
    fn first_event(&mut self, subject: Kind) -> Result<()> {
        if matches!(subject, Kind::Decode | Kind::Owned | Kind::Calls) {
            return Ok(());
        }
        if subject.subscribes() {
            self.subscribed_since(1)?;
        }
        self.plan(Work::Restarts { count: 2 })?;
        self.play(0.0, Faults::default())?;
        // Not every subject ever comes to show all of it (B5), so there is nothing to wait for.
        self.window(0.2)?;
        Ok(())
    }

    /// Waits until the event stream was asked for after that moment; when it was.
    pub(super) fn subscribed_since(&mut self, moment: i64) -> Result<i64> {
        for _ in 0..1000 {
            let subscribed = self.window(0.01)?.subscribed;
            if subscribed >= moment {
                return Ok(subscribed);
            }
        }
        bail!("nobody asks for the event stream")
    }

    pub(super) fn window(&mut self, seconds: f64) -> Result<Counted> {
        self.begin_window(seconds)?;
        self.end_window(seconds)
    }

    pub(super) fn plan(&mut self, work: Work) -> Result<(u64, Vec<Truth>)> {
        let answer = self.runtime.request(&RuntimeOrder::Plan { work })?;
        Ok(expect!(answer, RuntimeAnswer::Planned { events, truth } => (events, truth)))
    }

    pub(super) fn play(&mut self, rate: f64, faults: Faults) -> Result<Played> {
        self.play_cut(rate, faults, 0)
    }

    /// The same, and every connection is cut again and again, after so many ms.
    pub(super) fn play_cut(&mut self, rate: f64, faults: Faults, cut_every: u64) -> Result<Played> {
        self.runtime.send(&RuntimeOrder::Play {
            rate,
            faults,
            cut_every,
        })?;
        let answer = self.runtime.receive(Duration::from_secs(1200))?;
        let RuntimeAnswer::Played {
            sent,
            first,
            last,
            late,
            blocked,
            dropped,
        } = answer
        else {
            bail!("an answer to another order: {answer:?}")
        };
        Ok(Played {
            sent,
            first,
            last,
            late,
            blocked,
            dropped,
        })
    }

    /// From now on that is wrong with the runtime.
    pub(super) fn set_trouble(&mut self, trouble: Trouble) -> Result<()> {
        let answer = self
            .runtime
            .request(&RuntimeOrder::SetTrouble { trouble })?;
        expect!(answer, RuntimeAnswer::Ready => {});
        Ok(())
    }

    /// Stops the runtime's process for good; its socket and its connections stay.
    pub(super) fn freeze(&self) -> Result<()> {
        self.runtime.freeze()
    }

    /// What has happened since the last plan, to pods of which `counts` is true; and how stale the
    /// subject's cache was of it since recording began.
    pub(super) fn stale(&mut self, counts: impl Fn(&str) -> bool) -> Result<Stale> {
        let answer = self.runtime.request(&RuntimeOrder::History)?;
        let (mut before, mut changes): (Vec<Truth>, Vec<Happened>) =
            expect!(answer, RuntimeAnswer::History { before, changes } => (before, changes));
        before.retain(|of| counts(&of.uid));
        changes.retain(|of| counts(&of.pod.uid));
        let answer = self
            .subject
            .request(&SubjectOrder::Stale { before, changes })?;
        Ok(expect!(answer, SubjectAnswer::Stale(stale) => stale))
    }

    /// The subject's health is looked at from now on, for that long or until it is not well.
    pub(super) fn begin_watch(&mut self, during: Duration, first: bool) -> Result<()> {
        let millis = millis(during);
        self.subject.send(&SubjectOrder::Watch { millis, first })
    }

    pub(super) fn end_watch(&mut self, during: Duration) -> Result<Watched> {
        let answer = self.subject.receive(during + Duration::from_secs(30))?;
        Ok(expect!(answer, SubjectAnswer::Watched(watched) => watched))
    }

    /// Cuts all connections at that moment, or breaks off the event streams alone; when that was,
    /// and when it listened again.
    pub(super) fn cut(&mut self, at: i64, how: Cut) -> Result<(i64, i64)> {
        let answer = self.runtime.request(&RuntimeOrder::Cut {
            at,
            down_ms: u64::from(how.down_ms),
            untold: true,
            reset: how.reset,
        })?;
        Ok(expect!(answer, RuntimeAnswer::Cut { at, listening } => (at, listening)))
    }

    pub(super) fn counted(&mut self) -> Result<Counted> {
        let answer = self.runtime.request(&RuntimeOrder::Count)?;
        Ok(expect!(answer, RuntimeAnswer::Counted(counted) => counted))
    }

    pub(super) fn begin_window(&mut self, seconds: f64) -> Result<()> {
        self.runtime.send(&RuntimeOrder::Window { seconds })
    }

    pub(super) fn end_window(&mut self, seconds: f64) -> Result<Counted> {
        let answer = self
            .runtime
            .receive(Duration::from_secs_f64(seconds + 30.0))?;
        Ok(expect!(answer, RuntimeAnswer::Counted(counted) => counted))
    }

    pub(super) fn used(&mut self) -> Result<(Usage, Option<u64>)> {
        let answer = self.subject.request(&SubjectOrder::Use)?;
        Ok(expect!(answer, SubjectAnswer::Used { usage, held } => (usage, held)))
    }

    pub(super) fn record(&mut self) -> Result<Usage> {
        let answer = self.subject.request(&SubjectOrder::Record)?;
        Ok(expect!(answer, SubjectAnswer::Used { usage, .. } => usage))
    }

    /// Counts what the subject does from now on; see [`SubjectOrder::Count`].
    pub(super) fn count(&mut self) -> Result<Usage> {
        let answer = self.subject.request(&SubjectOrder::Count)?;
        Ok(expect!(answer, SubjectAnswer::Used { usage, .. } => usage))
    }

    pub(super) fn recorded(&mut self) -> Result<Recorded> {
        let answer = self.subject.request(&SubjectOrder::Recorded)?;
        Ok(expect!(answer, SubjectAnswer::Recorded(recorded) => recorded))
    }

    /// How long reads of the subject's cache take, while the plan happens at that rate, if one is
    /// given.
    pub(super) fn read(&mut self, during: Duration, rate: Option<f64>) -> Result<Histogram> {
        let pods = self.truth()?.into_iter().map(|t| t.uid).collect();
        let millis = millis(during);
        self.subject.send(&SubjectOrder::Read { pods, millis })?;
        if let Some(rate) = rate {
            self.play(rate, Faults::default())?;
        }
        let answer = self.subject.receive(during + Duration::from_secs(30))?;
        Ok(expect!(answer, SubjectAnswer::Recorded(recorded) => recorded.in_process))
    }

    /// Pod workers restart pods of their own; how long their reads took.
    pub(super) fn restart(&mut self, parallel: u32, times: u32) -> Result<Recorded> {
        self.subject
            .send(&SubjectOrder::Restart { parallel, times })?;
        let answer = self.subject.receive(Duration::from_secs(600))?;
        Ok(expect!(answer, SubjectAnswer::Recorded(recorded) => recorded))
    }

    /// Pod workers create, stop and remove pods from now on.
    pub(super) fn begin_churn(&mut self, pods_per_second: f64, during: Duration) -> Result<()> {
        let millis = millis(during);
        let answer = self.subject.request(&SubjectOrder::Churn {
            pods_per_second,
            millis,
        })?;
        expect!(answer, SubjectAnswer::Used { .. } => {});
        Ok(())
    }

    /// The reads of the churn's workers since the last call.
    pub(super) fn take_reads(&mut self) -> Result<Recorded> {
        let answer = self.subject.request(&SubjectOrder::TakeReads)?;
        Ok(expect!(answer, SubjectAnswer::Recorded(recorded) => recorded))
    }

    pub(super) fn relist(&mut self, count: u32) -> Result<Spent> {
        self.subject.send(&SubjectOrder::Relist { count })?;
        let answer = self.subject.receive(Duration::from_secs(600))?;
        let SubjectAnswer::Spent {
            usage,
            took,
            allocations,
            bytes,
        } = answer
        else {
            bail!("an answer to another order: {answer:?}")
        };
        Ok(Spent {
            usage,
            took,
            allocations,
            bytes,
        })
    }

    /// The subject begins to wait until it shows that; what it has used so far.
    pub(super) fn wait_for(
        &mut self,
        truth: Vec<Truth>,
        events: u64,
        within: Duration,
    ) -> Result<Usage> {
        let within = millis(within);
        let answer = self.subject.request(&SubjectOrder::Await {
            truth,
            events,
            within,
        })?;
        Ok(expect!(answer, SubjectAnswer::Used { usage, .. } => usage))
    }

    /// The subject begins to wait until evidence begun after that moment stands for every pod.
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
        Ok(expect!(answer, SubjectAnswer::Reached { at, usage } => Reached { at, usage }))
    }

    /// How many containers the subject's cache shows wrongly or not at all, and how many it shows
    /// that there are not.
    pub(super) fn compared(&mut self) -> Result<(u64, u64)> {
        let truth = self.truth()?;
        let answer = self.subject.request(&SubjectOrder::Compare { truth })?;
        Ok(expect!(answer, SubjectAnswer::Compared { lost, ghosts } => (lost, ghosts)))
    }
}

fn millis(of: Duration) -> u64 {
    u64::try_from(of.as_millis()).unwrap_or(u64::MAX)
}
