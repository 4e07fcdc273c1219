//! Kills the daemon and the mini-kubelet repeatedly while containers crash and the mini-kubelet restarts them.
//!
//! Two containers with the same name must never run in one pod at the same time, and the mini-kubelet must report every
//! exit code. In the end all pods must run, and other sandboxes may exist only if no CRI client can remove them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, ensure};
use futures::StreamExt;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pleg::core::{Id, Instant, Mode};
use pleg::runtime::Runtime;
use pleg::runtime::clock::Clock;
use pleg_cri::v1::{Container, ContainerFilter, ContainerState, PodSandbox, PodSandboxState};
use tokio::task::JoinSet;

use crate::daemon::Daemon;
use crate::environment::number;
use crate::kubelet::Kubelet;
use crate::wait::{pass_time, until, until_ok};

use super::manifests::{self, APP, JOB, Kind, exit_codes};
use super::poller::{Observed, Poller, Seen, process_is_gone};
use super::process::{Event, StaticPods};

/// The time from the kill of the daemon until the test starts it again. Containers exit in this time.
const AWAY: Duration = Duration::from_millis(1500);
/// The time limit of a wait in this test, unless the wait has its own. The daemon may be down in this time.
const PATIENCE: Duration = Duration::from_secs(180);
/// A container that the runtime lists as created or exited although its task exists counts as unremovable after this
/// time. Usually the runtime deletes a task within milliseconds.
const UNREMOVABLE_AFTER: Duration = Duration::from_secs(20);
/// The time limit for garbage collection; upstream runs it every minute.
const COLLECTED_WITHIN: Duration = Duration::from_secs(100);

/// The way in which the mini-kubelet gets events in a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// The mini-kubelet uses the event stream.
    Evented,
    /// A second client subscribes, and on containerd 1.7 takes a part of the events.
    SecondSubscriber,
    /// The mini-kubelet does not use the event stream.
    Polling,
}

/// The numbers of pods, restarts and kills.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The number of pods.
    pub pods: u32,
    /// The minimum number of restarts.
    pub restarts: u32,
    /// The number of times the test kills the daemon.
    pub daemon_kills: u32,
    /// The number of times the test kills the mini-kubelet.
    pub own_kills: u32,
}

impl Plan {
    /// The numbers that environment variables set. By default, the test is short.
    pub fn from_env() -> anyhow::Result<Self> {
        Ok(Self {
            pods: number("PLEG_KUBELET_PODS", 8)?,
            restarts: number("PLEG_KUBELET_RESTARTS", 40)?,
            daemon_kills: number("PLEG_KUBELET_DAEMON_KILLS", 1)?,
            own_kills: number("PLEG_KUBELET_OWN_KILLS", 1)?,
        })
    }

    /// The kills in order. Each is due when the jobs of all pods have restarted this number of times in total.
    fn steps(self) -> Vec<(u32, Killed)> {
        let spread =
            |what, count| (1..=count).map(move |n| (self.restarts * n / (count + 1), what));
        let daemon = spread(Killed::Daemon, self.daemon_kills);
        let mut steps: Vec<_> = daemon
            .chain(spread(Killed::Kubelet, self.own_kills))
            .collect();
        // Stable: after the same number of restarts, a kill of the daemon comes before a kill of the mini-kubelet.
        steps.sort_by_key(|(at, _)| *at);
        steps
    }
}

#[derive(Clone, Copy, Debug)]
enum Killed {
    Daemon,
    Kubelet,
}

/// Runs the plan on a daemon.
pub async fn crash(daemon: &Daemon, variant: Variant, plan: Plan) -> anyhow::Result<()> {
    let mut run = Box::pin(Run::start(daemon, variant, plan)).await?;
    let done = Box::pin(run.all(plan)).await;
    done.map_err(|error| {
        // Copy the log, because dropping the daemon removes its directory.
        let log =
            std::env::temp_dir().join(format!("static-pods-{:?}-{variant:?}.log", daemon.version));
        let copied = run.kubelet.copy_log(&log);
        error.context(format!(
            "{variant:?} on {:?}; log in {log:?}: {copied:?}",
            daemon.version
        ))
    })
}

struct Run<'a> {
    daemon: &'a Daemon,
    variant: Variant,
    pods: u32,
    client: Kubelet,
    poller: Poller,
    kubelet: StaticPods,
    clock: Clock,
    _second: JoinSet<()>,
    /// By id of a container that the runtime cannot remove (it is not running, but containerd still has its task): the
    /// instant at which the test first saw the task of the stopped container.
    unremovable: Mutex<BTreeMap<String, Instant>>,
}

impl<'a> Run<'a> {
    async fn start(daemon: &'a Daemon, variant: Variant, plan: Plan) -> anyhow::Result<Self> {
        let mode = match variant {
            Variant::Polling => Mode::Polling,
            _ => Mode::Evented,
        };
        let mut second = JoinSet::new();
        if variant == Variant::SecondSubscriber {
            second.spawn(take_events(daemon.runtime()?));
        }
        let client = Kubelet::new(daemon)?;
        let mut run = Self {
            daemon,
            variant,
            pods: plan.pods,
            poller: Poller::start(client.clone()),
            client,
            kubelet: StaticPods::new(daemon, mode)?,
            clock: Clock::start(),
            _second: second,
            unremovable: Mutex::default(),
        };
        run.write(Kind::Crashing)?;
        run.kubelet.start().await?;
        Ok(run)
    }

    fn write(&self, kind: Kind) -> anyhow::Result<()> {
        manifests::write(&self.kubelet.manifests, kind, self.pods, &self.daemon.image)
    }

    async fn all(&mut self, plan: Plan) -> anyhow::Result<()> {
        let begun = self.clock.now();
        let mut done = 0;
        for (at, killed) in plan.steps() {
            self.restarted(at, at - done).await?;
            done = at;
            println!("{} ms: {killed:?} is killed", now_ms());
            match killed {
                Killed::Daemon => {
                    self.daemon.kill()?;
                    pass_time(AWAY).await;
                    tokio::task::block_in_place(|| self.daemon.start())?;
                }
                Killed::Kubelet => {
                    self.kubelet.kill().await?;
                    self.kubelet.start().await?;
                }
            }
        }
        self.restarted(plan.restarts, plan.restarts - done).await?;
        let stuck = self.all_are_restarted().await?;
        let crashed_for = self.clock.now().since(begun);
        self.all_exits_are_reported().await?;

        self.poller.pods_are_stopped();
        let before = self.ready_sandboxes().await?;
        self.write(Kind::Calm)?;
        self.only_calm_pods_run(&before).await?;
        let garbage = self.garbage_is_collected().await?;
        self.kubelet.terminate().await?;
        ensure!(
            self.wrong_now(1).await?.is_none(),
            "pods ended with static_pods"
        );
        println!(
            "{:?}, {:?}, {plan:?}: {crashed_for:?}; garbage collected after {garbage:?}",
            self.daemon.version, self.variant
        );
        self.check(plan, &stuck)
    }

    /// Waits until jobs have restarted `at` times in total. The time limit depends on `more`, the restarts to go.
    async fn restarted(&self, at: u32, more: u32) -> anyhow::Result<()> {
        let within = PATIENCE + Duration::from_secs(2) * more;
        let what = format!("{at} restarts");
        until(within, &what, || async {
            (self.poller.read(|o| o.restarts(JOB)) >= u64::from(at)).then_some(())
        })
        .await
        .with_context(|| format!("{} so far", self.poller.read(|o| o.restarts(JOB))))
    }

    /// Waits until each pod has a job that started after this call, and a running app. Returns containers that the
    /// runtime lists as running although their process is gone: no CRI client can detect that they must be restarted.
    async fn all_are_restarted(&self) -> anyhow::Result<BTreeSet<Id>> {
        let now = self.poller.read(|o| o.polls);
        let dead = || self.poller.read(|o| dead(o, self.pods, now));
        let outcome = until_ok(PATIENCE, "all are restarted", || async {
            match dead() {
                all if all.is_empty() => Ok(()),
                some => Err(some),
            }
        })
        .await;
        let mut stuck = BTreeSet::new();
        for (pod, name) in dead() {
            let of_name = |c: &&Container| is(c, &pod, &name) && is_running(c);
            let listed = self.client.containers(ContainerFilter::default()).await?;
            let Some(running) = listed.iter().find(of_name) else {
                return outcome.map(|()| stuck);
            };
            let id = Id::from(running.id.as_str());
            match process_is_gone(&self.client, &id).await {
                Some(why) => println!("{pod}/{name}: listed as running, but {why}"),
                None => return outcome.map(|()| stuck),
            }
            stuck.insert(id);
        }
        Ok(stuck)
    }

    /// Waits until the mini-kubelet has reported the exit code of every container that the poller saw exited.
    async fn all_exits_are_reported(&self) -> anyhow::Result<()> {
        until_ok(PATIENCE, "all exits are reported", || async {
            let wrong = self.unreported();
            if wrong.is_empty() { Ok(()) } else { Err(wrong) }
        })
        .await
    }

    /// By container: the reported exit codes, each with the number of the mini-kubelet's run that reported the code.
    fn reported(&self) -> BTreeMap<Id, BTreeSet<(u32, Option<i32>)>> {
        let mut reported: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for line in self.kubelet.lines() {
            if let Event::Ended { id, exit_code, .. } = line.event {
                let codes = reported.entry(Id::from(id)).or_default();
                codes.insert((line.run, exit_code));
            }
        }
        reported
    }

    /// Containers that the poller saw exited, but whose exit code the mini-kubelet did not report or reported wrongly.
    /// A run of the mini-kubelet may report the exit without a code if another run reports the code.
    fn unreported(&self) -> Vec<String> {
        let reported = self.reported();
        let codes = exit_codes(self.pods);
        let observed = self.poller.observed();
        let mut wrong = Vec::new();
        for (id, seen) in observed.containers.iter().filter(|(_, c)| c.exited) {
            let planned = codes.get(&(seen.pod.clone(), seen.name.clone())).copied();
            let code = seen.status.as_ref().map(|s| s.exit_code);
            let code = code.or(planned.filter(|_| !seen.stopped));
            let all = reported.get(id);
            let known: BTreeSet<_> = all.into_iter().flatten().filter_map(|(_, c)| *c).collect();
            // The test cannot know the exit code of a stopped container in advance.
            let is_right = |known| code.is_none_or(|code| known == code);
            if known.len() != 1 || !known.iter().copied().all(is_right) {
                let at = seen.status.as_ref().map(|s| s.finished_at / 1_000_000);
                wrong.push(format!(
                    "{seen} {id} ended with {code:?} at {at:?} ms, reported {all:?} by (run, code)"
                ));
            }
        }
        wrong
    }

    async fn ready_sandboxes(&self) -> anyhow::Result<BTreeSet<String>> {
        let mut sandboxes = self.client.sandboxes().await?;
        sandboxes.retain(|s| s.state() == PodSandboxState::SandboxReady);
        Ok(sandboxes.into_iter().map(|s| s.id).collect())
    }

    /// Waits until all pods of the latest manifests run and the runtime has no other pods. `before`: the sandboxes that
    /// belong to pods of earlier manifests.
    async fn only_calm_pods_run(&self, before: &BTreeSet<String>) -> anyhow::Result<()> {
        until_ok(PATIENCE, "only the last pods are running", || async {
            let ready = self.ready_sandboxes().await;
            let ready = ready.map_err(|error| format!("{error:#}"))?;
            if !ready.is_disjoint(before) {
                return Err("pods of earlier manifests are running".to_owned());
            }
            match self.wrong_now(1).await {
                Ok(None) => Ok(()),
                Ok(Some(wrong)) => Err(wrong),
                Err(error) => Err(format!("{error:#}")),
            }
        })
        .await
    }

    /// Checks that each pod has one ready sandbox and, for each container name, one running container and at most
    /// `dead` exited ones. Returns the first deviation.
    async fn wrong_now(&self, dead: usize) -> anyhow::Result<Option<String>> {
        let mut sandboxes = self.client.sandboxes().await?;
        let mut listed = self.client.containers(ContainerFilter::default()).await?;
        let unremovable = self.unremovable_now(&listed)?;
        let is_unremovable = |s: &PodSandbox| {
            let mut all = listed.iter().filter(|c| unremovable.contains(&c.id));
            s.state() != PodSandboxState::SandboxReady && all.any(|c| c.pod_sandbox_id == s.id)
        };
        sandboxes.retain(|s| !is_unremovable(s));
        listed.retain(|c| !unremovable.contains(&c.id));
        let ready = |s: &&PodSandbox| s.state() == PodSandboxState::SandboxReady;
        let (all, ready) = (sandboxes.len(), sandboxes.iter().filter(ready).count());
        if all != self.pods as usize || ready != all {
            return Ok(Some(format!("{ready} sandboxes of {all} are ready")));
        }
        for pod in 0..self.pods {
            for name in [APP, JOB] {
                let pod = manifests::pod_name(pod);
                let of_name: Vec<_> = listed.iter().filter(|c| is(c, &pod, name)).collect();
                let running = of_name.iter().filter(|c| is_running(c)).count();
                if running != 1 || of_name.len() > 1 + dead {
                    let states: Vec<_> = of_name.iter().map(|c| c.state()).collect();
                    return Ok(Some(format!("{pod}/{name}: {states:?}")));
                }
            }
        }
        let known =
            |c: &&Container| (0..self.pods).any(|n| is(c, &manifests::pod_name(n), &name(c)));
        let unknown = listed.iter().find(|c| !known(c));
        Ok(unknown.map(|c| format!("{c:?} is left")))
    }

    /// Containers that the runtime has listed as created or exited for [`UNREMOVABLE_AFTER`] although they have a
    /// task. No CRI client can remove these containers or their sandboxes: if containerd 1.7 is killed while it
    /// starts a container, it later returns "cannot delete running task".
    fn unremovable_now(&self, listed: &[Container]) -> anyhow::Result<BTreeSet<String>> {
        let tasks = self.daemon.tasks()?;
        let now = self.clock.now();
        let mut unremovable = self
            .unremovable
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let has_task = |id: &str| {
            let mut rows = listed.iter().filter(|c| !is_running(c));
            rows.any(|c| c.id == id) && tasks.contains(id)
        };
        unremovable.retain(|id, _| has_task(id));
        for container in listed.iter().filter(|c| has_task(&c.id)) {
            unremovable.entry(container.id.clone()).or_insert(now);
        }
        let permanent = unremovable
            .iter()
            .filter(|(_, at)| now.since(**at) >= UNREMOVABLE_AFTER);
        Ok(permanent.map(|(id, _)| id.clone()).collect())
    }

    /// Kills the app of some pods three times each, and waits until one exited container of each is left.
    async fn garbage_is_collected(&self) -> anyhow::Result<Duration> {
        for _ in 0..3 {
            let listed = self.client.containers(ContainerFilter::default()).await?;
            let mut ended = Vec::new();
            for pod in 0..self.pods.min(3) {
                let pod = manifests::pod_name(pod);
                let app = listed.iter().find(|c| is(c, &pod, APP) && is_running(c));
                let id = Id::from(app.context("no app runs")?.id.as_str());
                self.client.wait_until_sigterm_is_handled(&id).await?;
                let process = i32::try_from(self.client.process(&id).await)?;
                kill(Pid::from_raw(process), Signal::SIGTERM)?;
                ended.push(id);
            }
            until_ok(PATIENCE, "the apps are running again", || async {
                let listed = self.client.containers(ContainerFilter::default()).await;
                let listed = listed.map_err(|e| format!("{e:#}"))?;
                let runs = |id: &&Id| listed.iter().any(|c| c.id == id.as_str() && is_running(c));
                match ended.iter().find(runs) {
                    Some(id) => Err(format!("{id} runs")),
                    None => self
                        .wrong_now(3)
                        .await
                        .map_err(|e| format!("{e:#}"))?
                        .map_or(Ok(()), Err),
                }
            })
            .await?;
        }
        let since = self.clock.now();
        until_ok(COLLECTED_WITHIN, "garbage is collected", || async {
            let wrong = self.wrong_now(1).await.map_err(|e| format!("{e:#}"))?;
            wrong.map_or(Ok(()), Err)
        })
        .await?;
        Ok(self.clock.now().since(since))
    }

    /// Checks that the poller saw no two containers of one name running, and that all exit codes were reported.
    fn check(&self, plan: Plan, stuck: &BTreeSet<Id>) -> anyhow::Result<()> {
        let observed = self.poller.observed();
        let unremovable = self
            .unremovable
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        println!(
            "{} restarts; the runtime cannot remove {} containers, and lists {} as running that are not",
            observed.restarts(JOB),
            unremovable.len(),
            stuck.len(),
        );
        ensure!(
            unremovable.len() <= plan.daemon_kills as usize,
            "more than one for each time the daemon was killed: {unremovable:?}"
        );
        ensure!(observed.doubles.is_empty(), "{:#?}", observed.doubles);
        let overlaps = observed.overlaps();
        ensure!(overlaps.is_empty(), "{overlaps:#?}");
        let unreported = self.unreported();
        ensure!(unreported.is_empty(), "{unreported:#?}");
        Ok(())
    }
}

/// The pods and names of jobs that have not started after poll number `since`, and of apps that are not running.
fn dead(observed: &Observed, pods: u32, since: u64) -> Vec<(String, String)> {
    let mut dead = Vec::new();
    for pod in (0..pods).map(manifests::pod_name) {
        for name in [APP, JOB] {
            let goes_on = |c: &Seen| {
                let fresh = if name == JOB {
                    c.since > since && c.ran
                } else {
                    c.ran && !c.exited
                };
                c.pod == pod && c.name == name && fresh
            };
            if !observed.containers.values().any(goes_on) {
                dead.push((pod.clone(), name.to_owned()));
            }
        }
    }
    dead
}

fn now_ms() -> i64 {
    pleg::runtime::clock::wall().as_nanos() / 1_000_000
}

fn name(container: &Container) -> String {
    container.metadata.clone().unwrap_or_default().name
}

fn is(container: &Container, pod: &str, of_name: &str) -> bool {
    let label = container.labels.get("io.kubernetes.pod.name");
    label.is_some_and(|label| label == pod) && name(container) == of_name
}

fn is_running(container: &Container) -> bool {
    container.state() == ContainerState::ContainerRunning
}

/// Subscribes as a second client and takes events, until the caller aborts the task.
async fn take_events(runtime: impl Runtime) {
    loop {
        if let Ok(mut events) = runtime.subscribe().await {
            while let Some(Ok(_)) = events.next().await {}
        }
        pass_time(Duration::from_millis(200)).await;
    }
}
