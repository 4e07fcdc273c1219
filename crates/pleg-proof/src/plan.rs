//! The configuration of a world, derived from a seed. `smaller` reduces it step by step to find what
//! a violation needs.

use std::fmt;

use crate::fault_profile::{FaultProfile, MS, RuntimeKind};
use crate::faults::{Fault, named};
use crate::rng::Rng;

named! {
    /// Whether and how pod workers operate the pods.
    KubeletMode {
        /// Random operations change the pods, and consumers only query.
        Off = "off",
        /// Pod workers that ask for a status newer than their last change.
        On = "on",
        /// Pod workers that ask for a status newer than their last run, as upstream's do: every
        /// run costs a read.
        EachRun = "each-run",
    }
}

impl KubeletMode {
    /// Whether there are pod workers.
    pub const fn has_workers(self) -> bool {
        !matches!(self, Self::Off)
    }
}

/// Faults that occur only with pod workers.
const WORKER_FAULTS: [(Fault, [u8; 5]); 7] = [
    (Fault::OperationFails, [0, 0, 0, 2, 8]),
    (Fault::ReplyLost, [0, 0, 0, 2, 8]),
    (Fault::EffectLate, [0, 0, 0, 2, 8]),
    (Fault::StatusNotFound, [0, 0, 0, 2, 8]),
    (Fault::StatusHidden, [0, 0, 0, 2, 8]),
    (Fault::StatusFails, [0, 0, 0, 2, 8]),
    (Fault::Outage, [0, 0, 0, 1, 2]),
];

/// The configuration of one world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub seed: u64,
    pub runtime: RuntimeKind,
    pub fault_profile: FaultProfile,
    pub pods: usize,
    /// How long the workload runs with faults, in seconds.
    pub fault_secs: u64,
    /// How long it continues without faults, in seconds.
    pub calm_secs: u64,
    /// How long nothing happens before the last phases, in hours.
    pub quiet_hours: u64,
    /// The longest pause between two node operations, in milliseconds; most are shorter.
    pub pause: u64,
    /// The longest pause between two consumer requests; none without consumers.
    pub request_pause: Option<u64>,
    /// One inspection slot, and this many overdue inspections.
    pub one_slot: Option<usize>,
    /// The maximum number of tombstones.
    pub tombstones: usize,
    /// The capacity of the backlog: arrivals kept unjoined, and ids.
    pub backlog: (usize, usize),
    /// The capacity of the runtime's own queue.
    pub queue: usize,
    /// The longest relist period, and the unready threshold, in seconds.
    pub list_limits: (u64, u64),
    pub kubelet: KubeletMode,
}

impl Plan {
    /// The configuration of that seed. Most worlds are small, which finds bugs soonest. One in 64 has
    /// 110 pods. Half of the others have pod workers.
    pub fn from_seed(seed: u64) -> Self {
        let mut plan = Self::without_workers(seed);
        let has_workers = plan.pods <= 30 && Rng::new(seed ^ 0xACE).percent(50);
        if !has_workers {
            return plan;
        }
        // Workers do more in a second, and most requests come from them.
        if plan.pods > 4 {
            (plan.pods, plan.fault_secs) = (plan.pods.min(12), 20);
        }
        plan.request_pause = plan.request_pause.map(|pause| 4 * pause);
        let each_run = Rng::new(seed ^ 0xDEED).percent(20);
        let kubelet = [KubeletMode::On, KubeletMode::EachRun][usize::from(each_run)];
        plan.with_kubelet(kubelet)
    }

    /// The same world with or without pod workers. With workers there are no false events: the
    /// reconciler must believe a false exit (invariant 2), so a worker would act on it.
    #[must_use]
    pub fn with_kubelet(mut self, kubelet: KubeletMode) -> Self {
        if kubelet == self.kubelet {
            return self;
        }
        let mut fault_profile = self.fault_profile;
        if kubelet.has_workers() {
            fault_profile = fault_profile.with(0, &[Fault::FalseEvent]);
            let mut rng = Rng::new(self.seed ^ 0xFACE);
            for (fault, percent) in WORKER_FAULTS {
                fault_profile = fault_profile.with(rng.pick(&percent), &[fault]);
            }
        } else {
            let false_events = Self::without_workers(self.seed)
                .fault_profile
                .percent(Fault::FalseEvent) as u8;
            fault_profile = fault_profile
                .with(0, &WORKER_FAULTS.map(|(fault, _)| fault))
                .with(false_events, &[Fault::FalseEvent]);
        }
        (self.fault_profile, self.kubelet) = (fault_profile, kubelet);
        self
    }

    /// The world of that seed without pod workers.
    fn without_workers(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0xABCD);
        let runtime = match rng.below(20) {
            0..=5 => RuntimeKind::Containerd17,
            6..=10 => RuntimeKind::Containerd2,
            11..=16 => RuntimeKind::Crio,
            17 => RuntimeKind::CrioDisabled,
            18 => RuntimeKind::Unimplemented,
            _ => RuntimeKind::Polled,
        };
        let (pods, fault_secs, pause) = match rng.below(64) {
            0 => (110, 120, 185),
            1..=6 => (rng.between(5, 30) as usize, 60, 300),
            _ => (rng.between(1, 4) as usize, 20, 400),
        };
        let fault_profile = FaultProfile::random(&mut rng, runtime);
        let small = pods <= 4;
        // No report is older than its read, so tombstones may be dropped early.
        let stale_events = [
            Fault::Late,
            Fault::ListedAfterRemoval,
            Fault::Reordered,
            Fault::Stale,
            Fault::Duplicated,
        ];
        let no_stale_events = stale_events
            .iter()
            .all(|&fault| fault_profile.percent(fault) == 0);
        let few = small && rng.percent(10) && no_stale_events;
        let tombstones = if few { 12 } else { 100_000 };
        let request_pause = if small { 1500 } else { 400 };
        Self {
            seed,
            runtime,
            fault_profile,
            pods,
            fault_secs,
            calm_secs: if rng.percent(25) { fault_secs } else { 0 },
            // Without a stream there are lists every second.
            quiet_hours: if seed % 16 == 1 && runtime.streams() {
                2
            } else {
                0
            },
            pause,
            request_pause: Some(request_pause),
            one_slot: (small && rng.percent(30)).then(|| rng.between(1, 2) as usize),
            tombstones,
            backlog: match rng.below(8) {
                0 => (1024, 100_000),
                1 if small => (1, 4),
                _ => (2, 1000),
            },
            queue: if rng.percent(50) { 1000 } else { 6 },
            list_limits: if rng.percent(15) { (8, 10) } else { (60, 180) },
            kubelet: KubeletMode::Off,
        }
    }

    /// A full node: 110 pods and 10 events a second for ten minutes, the first of them with faults.
    /// Used to measure throughput.
    pub fn node(seed: u64) -> Self {
        let streaming = [
            RuntimeKind::Containerd17,
            RuntimeKind::Containerd2,
            RuntimeKind::Crio,
        ];
        let mut rng = Rng::new(seed ^ 0xDCBA);
        let runtime = rng.pick(&streaming);
        Self {
            runtime,
            fault_profile: FaultProfile::random(&mut rng, runtime),
            pods: 110,
            fault_secs: 60,
            calm_secs: 540,
            quiet_hours: 0,
            pause: 155,
            request_pause: Some(400),
            one_slot: None,
            tombstones: 100_000,
            backlog: (1024, 100_000),
            queue: 1000,
            list_limits: (60, 180),
            kubelet: KubeletMode::Off,
            ..Self::from_seed(seed)
        }
    }

    /// Slightly smaller configurations, largest reduction first.
    pub fn smaller(&self) -> Vec<Self> {
        let mut out = Vec::new();
        let mut with = |change: &dyn Fn(&mut Self)| {
            let mut plan = self.clone();
            change(&mut plan);
            if plan != *self {
                out.push(plan);
            }
        };
        with(&|p| p.pods = 1.max(p.pods / 4));
        with(&|p| p.calm_secs = 0);
        with(&|p| p.quiet_hours = 0);
        with(&|p| p.fault_secs = 1.max(p.fault_secs / 4));
        for fault in self.fault_profile.faults() {
            with(&|p| p.fault_profile = p.fault_profile.clone().with(0, &[fault]));
        }
        with(&|p| p.kubelet = KubeletMode::Off);
        with(&|p| p.kubelet = p.kubelet.min(KubeletMode::On));
        with(&|p| p.request_pause = None);
        with(&|p| p.one_slot = None);
        with(&|p| p.tombstones = 100_000);
        with(&|p| p.backlog = (1024, 100_000));
        with(&|p| p.queue = 1000);
        with(&|p| p.list_limits = (60, 180));
        with(&|p| p.fault_profile.delay = 0..=3);
        with(&|p| p.pods -= usize::from(p.pods > 1));
        with(&|p| p.fault_secs -= u64::from(p.fault_secs > 1));
        out
    }

    /// A random pause between two operations.
    pub(crate) fn pause(&self, rng: &mut Rng) -> u64 {
        let longest = if rng.percent(20) { 7 } else { 1 } * self.pause;
        rng.between(0, longest) * MS
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (pods, fault_secs) = (self.pods, self.fault_secs);
        let (seed, runtime) = (self.seed, self.runtime.name());
        write!(
            f,
            "seed {seed}: {runtime}, {pods} pods, {fault_secs} s with "
        )?;
        write!(f, "{} (", self.fault_profile.name)?;
        for (n, fault) in self.fault_profile.faults().enumerate() {
            let comma = if n > 0 { ", " } else { "" };
            write!(
                f,
                "{comma}{} {}%",
                fault.name(),
                self.fault_profile.percent(fault)
            )?;
        }
        write!(f, ")")?;
        if self.calm_secs > 0 {
            write!(f, ", {} s without faults", self.calm_secs)?;
        }
        if self.quiet_hours > 0 {
            write!(f, ", {} quiet hours", self.quiet_hours)?;
        }
        if self.request_pause.is_none() {
            write!(f, ", no requests")?;
        }
        if self.kubelet.has_workers() {
            write!(f, ", kubelet {}", self.kubelet.name())?;
        }
        if let Some(overdue) = self.one_slot {
            write!(f, ", one slot and {overdue} overdue")?;
        }
        let (tombstones, backlog) = (self.tombstones, self.backlog);
        let (queue, list_limits) = (self.queue, self.list_limits);
        write!(
            f,
            ", {tombstones} tombstones, backlog {backlog:?}, queue {queue}, relist limits {list_limits:?} s"
        )
    }
}

/// Applies changes such as `pods=1,fault-secs=3,without=disconnect`.
///
/// # Errors
/// The change that is not understood.
pub fn change(plan: &mut Plan, changes: &str) -> Result<(), String> {
    for change in changes.split(',').filter(|c| !c.is_empty()) {
        let (what, how) = change.split_once('=').unwrap_or((change, ""));
        let number = || {
            let number = how.parse::<u64>();
            number.map_err(|_| format!("{change}: expected a number"))
        };
        match what {
            "pods" => plan.pods = number()?.max(1) as usize,
            "fault-secs" => plan.fault_secs = number()?,
            "calm-secs" => plan.calm_secs = number()?,
            "quiet-hours" => plan.quiet_hours = number()?,
            "pause" => plan.pause = number()?,
            "delay" => plan.fault_profile.delay = 0..=number()?,
            "request-pause" => plan.request_pause = Some(number()?).filter(|&n| n > 0),
            "slots" => plan.one_slot = Some(number()? as usize).filter(|&n| n > 0),
            "tombstones" => plan.tombstones = number()?.max(1) as usize,
            "unjoined" => plan.backlog.0 = number()? as usize,
            "ids" => plan.backlog.1 = number()? as usize,
            "queue" => plan.queue = number()? as usize,
            "relist-period" => plan.list_limits = (number()?, number()? * 3),
            "kubelet" => {
                let kubelet =
                    KubeletMode::named(how).ok_or(format!("{how}: off, on or each-run"))?;
                *plan = plan.clone().with_kubelet(kubelet);
            }
            "without" if how == "all" => {
                plan.fault_profile = plan.fault_profile.clone().with(0, Fault::ALL);
            }
            "without" => {
                let fault = Fault::named(how).ok_or(format!("{how}: no such fault"))?;
                plan.fault_profile = plan.fault_profile.clone().with(0, &[fault]);
            }
            "with" => {
                let (name, percent) = how.split_once(':').unwrap_or((how, "10"));
                let fault = Fault::named(name).ok_or(format!("{name}: no such fault"))?;
                let percent = percent
                    .parse()
                    .map_err(|_| format!("{change}: expected a number"))?;
                plan.fault_profile = plan.fault_profile.clone().with(percent, &[fault]);
            }
            "runtime" => {
                plan.runtime = RuntimeKind::named(how).ok_or(format!("{how}: no such runtime"))?;
            }
            _ => return Err(format!("{what}: unknown setting")),
        }
    }
    Ok(())
}

/// The changes that turn `origin` into `plan`, for [`change`].
pub fn changes(plan: &Plan, origin: &Plan) -> String {
    let mut out: Vec<String> = Vec::new();
    let mut add = |differs: bool, text: String| {
        if differs {
            out.push(text);
        }
    };
    add(
        plan.kubelet != origin.kubelet,
        format!("kubelet={}", plan.kubelet.name()),
    );
    add(plan.pods != origin.pods, format!("pods={}", plan.pods));
    let fault_secs = plan.fault_secs;
    add(
        fault_secs != origin.fault_secs,
        format!("fault-secs={fault_secs}"),
    );
    add(
        plan.calm_secs != origin.calm_secs,
        format!("calm-secs={}", plan.calm_secs),
    );
    let quiet_hours = plan.quiet_hours;
    add(
        quiet_hours != origin.quiet_hours,
        format!("quiet-hours={quiet_hours}"),
    );
    add(plan.pause != origin.pause, format!("pause={}", plan.pause));
    let delay = plan.fault_profile.delay.end();
    add(
        *delay != *origin.fault_profile.delay.end(),
        format!("delay={delay}"),
    );
    let request_pause = plan.request_pause.unwrap_or(0);
    add(
        plan.request_pause != origin.request_pause,
        format!("request-pause={request_pause}"),
    );
    let slots = plan.one_slot.unwrap_or(0);
    add(plan.one_slot != origin.one_slot, format!("slots={slots}"));
    let tombstones = plan.tombstones;
    add(
        tombstones != origin.tombstones,
        format!("tombstones={tombstones}"),
    );
    let (plain, ids) = plan.backlog;
    add(plain != origin.backlog.0, format!("unjoined={plain}"));
    add(ids != origin.backlog.1, format!("ids={ids}"));
    add(plan.queue != origin.queue, format!("queue={}", plan.queue));
    let list_limits = plan.list_limits;
    add(
        list_limits != origin.list_limits,
        format!("relist-period={}", list_limits.0),
    );
    // The kubelet mode changes the fault profile, too.
    let origin = origin.clone().with_kubelet(plan.kubelet);
    let gone = |fault: &Fault| plan.fault_profile.percent(*fault) == 0;
    let all_but_few = origin.fault_profile.faults().filter(gone).count() > 4;
    add(all_but_few, "without=all".to_owned());
    for &fault in Fault::ALL {
        let (percent, name) = (plan.fault_profile.percent(fault), fault.name());
        let before = if all_but_few {
            0
        } else {
            origin.fault_profile.percent(fault)
        };
        add(before > 0 && percent == 0, format!("without={name}"));
        let more = before != percent && percent > 0;
        add(more, format!("with={name}:{percent}"));
    }
    out.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_a_smaller_plan_reproduce_it() {
        for seed in 0..200 {
            let origin = Plan::from_seed(seed);
            let mut plan = origin.clone();
            if seed % 2 == 0 {
                plan = plan.with_kubelet(KubeletMode::On);
            }
            for n in [0, 1, 2, 3, 4, 5, 6, 6, 6, 6] {
                let smaller = plan.smaller();
                if let Some(next) = smaller.into_iter().nth(n) {
                    plan = next;
                }
            }
            let changes_text = changes(&plan, &origin);
            let mut replayed = origin;
            change(&mut replayed, &changes_text).unwrap_or_else(|e| panic!("{changes_text}: {e}"));
            assert_eq!(replayed, plan, "{changes_text}");
        }
    }

    #[test]
    fn unknown_setting_is_an_error() {
        let mut plan = Plan::from_seed(1);
        let wrong = [
            "pods=x",
            "without=nothing",
            "with=disconnect:x",
            "runtime=docker",
            "colour=red",
            "kubelet=maybe",
            "open=nothing",
        ];
        for wrong in wrong {
            assert!(change(&mut plan, wrong).is_err(), "{wrong}");
        }
    }
}
