//! A poller that lists a runtime's containers 40 times a second, on its own connection and without a generator.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pleg::core::Id;
use pleg_cri::v1::{Container, ContainerFilter, ContainerState, ContainerStatus};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::kubelet::Kubelet;
use crate::usage;

const EVERY: Duration = Duration::from_millis(25);

/// A container that the runtime has listed.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The uid of the container's pod.
    pub uid: String,
    /// The name of the container's pod.
    pub pod: String,
    /// The container's name.
    pub name: String,
    /// The container's attempt number.
    pub attempt: u32,
    /// The number of the first poll that listed the container.
    pub since: u64,
    /// True if a poll has listed the container as running or exited.
    pub ran: bool,
    /// True if a poll has listed the container as exited, and the runtime has answered the poller's status call.
    pub exited: bool,
    /// The container's status after the exit; `None` if the container was removed before the poller read the status.
    pub status: Option<ContainerStatus>,
    /// True if the container exited after the test had called [`Poller::pods_are_stopped`].
    pub stopped: bool,
}

impl Seen {
    fn of(row: &Container, since: u64) -> Self {
        let label = |name: &str| row.labels.get(name).cloned().unwrap_or_default();
        let metadata = row.metadata.clone().unwrap_or_default();
        Self {
            uid: label("io.kubernetes.pod.uid"),
            pod: label("io.kubernetes.pod.name"),
            name: metadata.name,
            attempt: metadata.attempt,
            since,
            ran: false,
            exited: false,
            status: None,
            stopped: false,
        }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}-{}", self.pod, self.name, self.attempt)
    }
}

/// Everything that the poller has observed.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Every container that any poll has listed.
    pub containers: BTreeMap<Id, Seen>,
    /// The number of polls.
    pub polls: u64,
    /// Groups of containers of one pod that had the same name and ran at the same time.
    pub doubles: Vec<String>,
    stopping: bool,
}

impl Observed {
    /// The number of restarts: containers with the given name that ran, not counting the first container of each pod.
    pub fn restarts(&self, name: &str) -> u64 {
        let all = self.containers.values();
        all.filter(|c| c.name == name && c.attempt > 0 && c.ran)
            .count() as u64
    }

    /// Pairs of containers with the same name and pod whose run times overlap, according to the start and finish times
    /// that the runtime reports.
    pub fn overlaps(&self) -> Vec<String> {
        let mut by_name: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for seen in self.containers.values() {
            let times = seen.status.as_ref().map(|s| (s.started_at, s.finished_at));
            if let Some((started @ 1.., finished)) = times {
                let lives = by_name.entry((&seen.uid, &seen.name)).or_default();
                lives.push((started, finished, seen));
            }
        }
        let mut found = Vec::new();
        for lives in by_name.values_mut() {
            lives.sort_by_key(|(started, ..)| *started);
            for pair in lives.windows(2) {
                if let [(_, finished, earlier), (started, _, later)] = pair
                    && started < finished
                {
                    let by = Duration::from_nanos((finished - started).unsigned_abs());
                    found.push(format!(
                        "{later} was started {by:?} before {earlier} finished"
                    ));
                }
            }
        }
        found
    }
}

/// The poller. Dropping this value ends its tasks.
#[derive(Debug)]
pub struct Poller {
    observed: Arc<Mutex<Observed>>,
    _tasks: JoinSet<()>,
}

impl Poller {
    /// Starts to poll the runtime of this kubelet.
    pub fn start(kubelet: Kubelet) -> Self {
        let observed: Arc<Mutex<Observed>> = Arc::default();
        let observer = Observer {
            kubelet,
            observed: observed.clone(),
        };
        let (exits, to_read) = unbounded_channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(observer.clone().read_statuses(to_read));
        tasks.spawn(observer.run(exits));
        Self {
            observed,
            _tasks: tasks,
        }
    }

    /// A copy of the observations so far.
    pub fn observed(&self) -> Observed {
        self.read(Clone::clone)
    }

    /// Reads the observations so far.
    pub fn read<T>(&self, what: impl FnOnce(&Observed) -> T) -> T {
        what(&lock(&self.observed))
    }

    /// Tells the poller that the test stops pods: it marks containers that exit from now on as stopped.
    pub fn pods_are_stopped(&self) {
        lock(&self.observed).stopping = true;
    }
}

fn lock(observed: &Mutex<Observed>) -> std::sync::MutexGuard<'_, Observed> {
    observed.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone)]
struct Observer {
    kubelet: Kubelet,
    observed: Arc<Mutex<Observed>>,
}

impl Observer {
    async fn run(self, exits: UnboundedSender<Id>) {
        let mut ticks = tokio::time::interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let listed = self.kubelet.containers(ContainerFilter::default()).await;
            lock(&self.observed).polls += 1;
            let Ok(rows) = listed else {
                continue;
            };
            for suspects in self.suspects(&rows) {
                self.verify(&suspects).await;
            }
            for id in self.newly_exited(&rows) {
                let _ = exits.send(id);
            }
        }
    }

    /// Reads the statuses of exited containers in a separate task, so that the next poll does not wait for these reads.
    async fn read_statuses(self, mut exits: UnboundedReceiver<Id>) {
        while let Some(id) = exits.recv().await {
            // Skip an id that was read already: until this task has read its status, every poll queues it again.
            let is_read = |o: &Observed| o.containers.get(&id).is_none_or(|seen| seen.exited);
            if is_read(&lock(&self.observed)) {
                continue;
            }
            if let Ok(status) = self.kubelet.container_status(&id).await
                && let Some(seen) = lock(&self.observed).containers.get_mut(&id)
            {
                (seen.exited, seen.status) = (true, status);
            }
        }
    }

    /// Records the rows of a list. Returns groups of containers of one pod that have the same name and that the
    /// list shows running at the same time.
    fn suspects(&self, rows: &[Container]) -> Vec<BTreeSet<Id>> {
        let mut observed = lock(&self.observed);
        let poll = observed.polls;
        let mut running: BTreeMap<_, BTreeSet<Id>> = BTreeMap::new();
        for row in rows {
            let id = Id::from(row.id.as_str());
            let seen = observed.containers.entry(id.clone());
            let seen = seen.or_insert_with(|| Seen::of(row, poll));
            seen.ran |= row.state() != ContainerState::ContainerCreated;
            if row.state() == ContainerState::ContainerRunning {
                let of_name = running.entry((seen.uid.clone(), seen.name.clone()));
                of_name.or_default().insert(id);
            }
        }
        running.into_values().filter(|ids| ids.len() > 1).collect()
    }

    fn newly_exited(&self, rows: &[Container]) -> Vec<Id> {
        let mut observed = lock(&self.observed);
        let stopping = observed.stopping;
        let mut ids = Vec::new();
        let exited = |row: &&Container| row.state() == ContainerState::ContainerExited;
        for row in rows.iter().filter(exited) {
            let id = Id::from(row.id.as_str());
            if let Some(seen) = observed.containers.get_mut(&id)
                && !seen.exited
            {
                seen.stopped = stopping;
                ids.push(id);
            }
        }
        ids
    }

    /// Checks with statuses and processes if all containers `suspects` are really running, because lists may be wrong.
    async fn verify(&self, suspects: &BTreeSet<Id>) {
        let mut running = Vec::new();
        for id in suspects {
            if self.not_running(id).await.is_none() {
                running.push(id);
            }
        }
        if running.len() > 1 {
            let mut observed = lock(&self.observed);
            let name = |id| observed.containers.get(id).map(ToString::to_string);
            let names: Vec<_> = running.into_iter().filter_map(name).collect();
            let double = format!("{} run at the same time", names.join(" and "));
            if !observed.doubles.contains(&double) {
                observed.doubles.push(double);
            }
        }
    }

    /// The reason why a container that is listed as running is not; `None` if it is, or if its status call fails.
    async fn not_running(&self, id: &Id) -> Option<String> {
        match self.kubelet.container_status(id).await {
            Err(_) => return None,
            Ok(None) => return Some("it has no status".to_owned()),
            Ok(Some(status)) if status.state() != ContainerState::ContainerRunning => {
                return Some(format!("its status is {:?}", status.state()));
            }
            Ok(Some(_)) => {}
        }
        process_is_gone(&self.kubelet, id).await
    }
}

/// The reason why a container's process is not running; `None` if it is, or if the runtime reports no process.
pub async fn process_is_gone(kubelet: &Kubelet, id: &Id) -> Option<String> {
    let process = kubelet.process(id).await;
    match usage::state(process) {
        _ if process == 0 => None,
        None => Some(format!("its process {process} is gone")),
        Some('Z' | 'X') => Some(format!("its process {process} has ended")),
        Some(_) => None,
    }
}
