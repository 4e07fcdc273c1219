//! What a seed decides: which runtime, how many pods, which weather, for how long. A plan can be
//! made smaller, one thing at a time, to find out what a broken law needs.

use std::fmt;

use crate::dice::Dice;
use crate::faults::{Fault, named};
use crate::weather::{Flavor, MS, Weather};

named! {
    /// Who operates the pods.
    Kubelet {
        /// Nobody: things happen to them, and consumers only ask.
        Off = "off",
        /// Pod workers that ask for a status newer than their last change.
        On = "on",
        /// Pod workers that ask for a status newer than their last run, as upstream's do: every
        /// run costs a read.
        EachRun = "each-run",
    }
}

impl Kubelet {
    /// Whether there are pod workers.
    pub const fn acts(self) -> bool {
        !matches!(self, Self::Off)
    }
}

/// The faults that come only where pod workers operate the pods.
const ACTING: [(Fault, [u8; 5]); 7] = [
    (Fault::OperationFails, [0, 0, 0, 2, 8]),
    (Fault::ReplyLost, [0, 0, 0, 2, 8]),
    (Fault::EffectLate, [0, 0, 0, 2, 8]),
    (Fault::StatusNotFound, [0, 0, 0, 2, 8]),
    (Fault::StatusHidden, [0, 0, 0, 2, 8]),
    (Fault::StatusFails, [0, 0, 0, 2, 8]),
    (Fault::Outage, [0, 0, 0, 1, 2]),
];

/// One world, before it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub seed: u64,
    pub flavor: Flavor,
    pub weather: Weather,
    pub pods: usize,
    /// How long the node is at work in this weather, in seconds.
    pub trouble: u64,
    /// How long it goes on in fair weather after that.
    pub calm: u64,
    /// The longest pause between two operations of the node, in milliseconds; most are shorter.
    pub pause: u64,
    /// The longest pause between two questions of consumers; none if there are no consumers.
    pub questions: Option<u64>,
    /// One inspection at a time, and this many overdue.
    pub one_slot: Option<usize>,
    /// How many tombstones there may be.
    pub tombstones: usize,
    /// How many arrivals wait for the writer unjoined, and of how many ids.
    pub backlog: (usize, usize),
    /// The runtime's own queue.
    pub queue: usize,
    /// The longest period of the full list, and after how long without one the node is not ready.
    pub patience: (u64, u64),
    pub kubelet: Kubelet,
}

impl Plan {
    /// What that seed decides. Most worlds are small: small worlds find bugs. One in 64 is a node
    /// of 110 pods. In half of the others pod workers operate the pods.
    pub fn of(seed: u64) -> Self {
        let mut plan = Self::watched(seed);
        let acts = plan.pods <= 30 && Dice::new(seed ^ 0xACE).percent(50);
        if !acts {
            return plan;
        }
        // There is more to do in a second for workers than for those who watch, and workers ask most
        // of the questions.
        if plan.pods > 4 {
            (plan.pods, plan.trouble) = (plan.pods.min(12), 20);
        }
        plan.questions = plan.questions.map(|pause| 4 * pause);
        let each_run = Dice::new(seed ^ 0xDEED).percent(20);
        let kubelet = [Kubelet::On, Kubelet::EachRun][usize::from(each_run)];
        plan.with_kubelet(kubelet)
    }

    /// The same world with or without pod workers. Lies are left out beside them: an event that
    /// tells of an end that did not happen is to be believed (invariant 2), and so acted on.
    #[must_use]
    pub fn with_kubelet(mut self, kubelet: Kubelet) -> Self {
        if kubelet == self.kubelet {
            return self;
        }
        let mut weather = self.weather;
        if kubelet.acts() {
            weather = weather.with(0, &[Fault::Lie]);
            let mut dice = Dice::new(self.seed ^ 0xFACE);
            for (fault, percent) in ACTING {
                weather = weather.with(dice.pick(&percent), &[fault]);
            }
        } else {
            let lies = Self::watched(self.seed).weather.percent(Fault::Lie) as u8;
            weather = weather
                .with(0, &ACTING.map(|(fault, _)| fault))
                .with(lies, &[Fault::Lie]);
        }
        (self.weather, self.kubelet) = (weather, kubelet);
        self
    }

    /// A world of that seed in which things happen to the pods and consumers only ask.
    fn watched(seed: u64) -> Self {
        let mut dice = Dice::new(seed ^ 0xABCD);
        let flavor = match dice.below(20) {
            0..=5 => Flavor::Containerd17,
            6..=10 => Flavor::Containerd2,
            11..=16 => Flavor::Crio,
            17 => Flavor::CrioDisabled,
            18 => Flavor::Unimplemented,
            _ => Flavor::Polled,
        };
        let (pods, trouble, pause) = match dice.below(64) {
            0 => (110, 120, 185),
            1..=6 => (dice.between(5, 30) as usize, 60, 300),
            _ => (dice.between(1, 4) as usize, 20, 400),
        };
        let weather = Weather::of(&mut dice, flavor);
        let small = pods <= 4;
        // Nothing is told of what was removed a while ago: a tombstone may go before its time.
        let old_news = [
            Fault::Late,
            Fault::Lingers,
            Fault::Swapped,
            Fault::Stale,
            Fault::Doubled,
        ];
        let no_old_news = old_news.iter().all(|&fault| weather.percent(fault) == 0);
        let few = small && dice.percent(10) && no_old_news;
        let tombstones = if few { 12 } else { 100_000 };
        let questions = if small { 1500 } else { 400 };
        Self {
            seed,
            flavor,
            weather,
            pods,
            trouble,
            calm: if dice.percent(25) { trouble } else { 0 },
            pause,
            questions: Some(questions),
            one_slot: (small && dice.percent(30)).then(|| dice.between(1, 2) as usize),
            tombstones,
            backlog: match dice.below(8) {
                0 => (1024, 100_000),
                1 if small => (1, 4),
                _ => (2, 1000),
            },
            queue: if dice.percent(50) { 1000 } else { 6 },
            patience: if dice.percent(15) { (8, 10) } else { (60, 180) },
            kubelet: Kubelet::Off,
        }
    }

    /// A whole node at work: 110 pods and 10 events a second, on a runtime that the seed decides;
    /// for the first of ten minutes in a weather that the seed decides. The rate is measured on
    /// these.
    pub fn node(seed: u64) -> Self {
        let streaming = [Flavor::Containerd17, Flavor::Containerd2, Flavor::Crio];
        let mut dice = Dice::new(seed ^ 0xDCBA);
        let flavor = dice.pick(&streaming);
        Self {
            flavor,
            weather: Weather::of(&mut dice, flavor),
            pods: 110,
            trouble: 60,
            calm: 540,
            pause: 155,
            questions: Some(400),
            one_slot: None,
            tombstones: 100_000,
            backlog: (1024, 100_000),
            queue: 1000,
            patience: (60, 180),
            kubelet: Kubelet::Off,
            ..Self::of(seed)
        }
    }

    /// Plans that are a little smaller than this one, the greatest steps first.
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
        with(&|p| p.calm = 0);
        with(&|p| p.trouble = 1.max(p.trouble / 4));
        for fault in self.weather.faults() {
            with(&|p| p.weather = p.weather.clone().with(0, &[fault]));
        }
        with(&|p| p.kubelet = Kubelet::Off);
        with(&|p| p.kubelet = p.kubelet.min(Kubelet::On));
        with(&|p| p.questions = None);
        with(&|p| p.one_slot = None);
        with(&|p| p.tombstones = 100_000);
        with(&|p| p.backlog = (1024, 100_000));
        with(&|p| p.queue = 1000);
        with(&|p| p.patience = (60, 180));
        with(&|p| p.weather.delay = 0..=3);
        with(&|p| p.pods -= usize::from(p.pods > 1));
        with(&|p| p.trouble -= u64::from(p.trouble > 1));
        out
    }

    /// A pause between two operations.
    pub(crate) fn pause(&self, dice: &mut Dice) -> u64 {
        let longest = if dice.percent(20) { 7 } else { 1 } * self.pause;
        dice.between(0, longest) * MS
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (pods, trouble) = (self.pods, self.trouble);
        let (seed, flavor) = (self.seed, self.flavor.name());
        write!(f, "seed {seed}: {flavor}, {pods} pods, {trouble} s of ")?;
        write!(f, "{} weather (", self.weather.name)?;
        for (n, fault) in self.weather.faults().enumerate() {
            let comma = if n > 0 { ", " } else { "" };
            write!(
                f,
                "{comma}{} {}%",
                fault.name(),
                self.weather.percent(fault)
            )?;
        }
        write!(f, ")")?;
        if self.calm > 0 {
            write!(f, ", {} s of calm", self.calm)?;
        }
        if self.questions.is_none() {
            write!(f, ", no questions")?;
        }
        if self.kubelet.acts() {
            write!(f, ", kubelet {}", self.kubelet.name())?;
        }
        if let Some(overdue) = self.one_slot {
            write!(f, ", one slot and {overdue} overdue")?;
        }
        let (tombstones, backlog) = (self.tombstones, self.backlog);
        let (queue, patience) = (self.queue, self.patience);
        write!(
            f,
            ", {tombstones} tombstones, backlog {backlog:?}, queue {queue}, patience {patience:?} s"
        )
    }
}

/// Changes to what a seed decides, as a replay is told them: `pods=1,trouble=3,without=cut`.
///
/// # Errors
/// What is not understood.
pub fn change(plan: &mut Plan, changes: &str) -> Result<(), String> {
    for change in changes.split(',').filter(|c| !c.is_empty()) {
        let (what, how) = change.split_once('=').unwrap_or((change, ""));
        let number = || {
            let number = how.parse::<u64>();
            number.map_err(|_| format!("{change}: a number is needed"))
        };
        match what {
            "pods" => plan.pods = number()?.max(1) as usize,
            "trouble" => plan.trouble = number()?,
            "calm" => plan.calm = number()?,
            "pause" => plan.pause = number()?,
            "delay" => plan.weather.delay = 0..=number()?,
            "questions" => plan.questions = Some(number()?).filter(|&n| n > 0),
            "slots" => plan.one_slot = Some(number()? as usize).filter(|&n| n > 0),
            "tombstones" => plan.tombstones = number()?.max(1) as usize,
            "plain" => plan.backlog.0 = number()? as usize,
            "ids" => plan.backlog.1 = number()? as usize,
            "queue" => plan.queue = number()? as usize,
            "patience" => plan.patience = (number()?, number()? * 3),
            "kubelet" => {
                let kubelet = Kubelet::named(how).ok_or(format!("{how}: off, on or each-run"))?;
                *plan = plan.clone().with_kubelet(kubelet);
            }
            "without" if how == "all" => {
                plan.weather = plan.weather.clone().with(0, Fault::ALL);
            }
            "without" => {
                let fault = Fault::named(how).ok_or(format!("{how}: no such fault"))?;
                plan.weather = plan.weather.clone().with(0, &[fault]);
            }
            "with" => {
                let (name, percent) = how.split_once(':').unwrap_or((how, "10"));
                let fault = Fault::named(name).ok_or(format!("{name}: no such fault"))?;
                let percent = percent.parse().map_err(|_| format!("{change}: a number"))?;
                plan.weather = plan.weather.clone().with(percent, &[fault]);
            }
            "runtime" => {
                plan.flavor = Flavor::named(how).ok_or(format!("{how}: no such runtime"))?;
            }
            _ => return Err(format!("{what}: nothing that can be changed")),
        }
    }
    Ok(())
}

/// What makes `plan` out of what its seed decides, for [`change`].
pub fn changes(plan: &Plan, origin: &Plan) -> String {
    let mut out: Vec<String> = Vec::new();
    let mut say = |differs: bool, text: String| {
        if differs {
            out.push(text);
        }
    };
    say(
        plan.kubelet != origin.kubelet,
        format!("kubelet={}", plan.kubelet.name()),
    );
    say(plan.pods != origin.pods, format!("pods={}", plan.pods));
    let trouble = plan.trouble;
    say(trouble != origin.trouble, format!("trouble={trouble}"));
    say(plan.calm != origin.calm, format!("calm={}", plan.calm));
    say(plan.pause != origin.pause, format!("pause={}", plan.pause));
    let delay = plan.weather.delay.end();
    say(
        *delay != *origin.weather.delay.end(),
        format!("delay={delay}"),
    );
    let questions = plan.questions.unwrap_or(0);
    say(
        plan.questions != origin.questions,
        format!("questions={questions}"),
    );
    let slots = plan.one_slot.unwrap_or(0);
    say(plan.one_slot != origin.one_slot, format!("slots={slots}"));
    let tombstones = plan.tombstones;
    say(
        tombstones != origin.tombstones,
        format!("tombstones={tombstones}"),
    );
    let (plain, ids) = plan.backlog;
    say(plain != origin.backlog.0, format!("plain={plain}"));
    say(ids != origin.backlog.1, format!("ids={ids}"));
    say(plan.queue != origin.queue, format!("queue={}", plan.queue));
    let patience = plan.patience;
    say(
        patience != origin.patience,
        format!("patience={}", patience.0),
    );
    // The kubelet changes the weather, too.
    let origin = origin.clone().with_kubelet(plan.kubelet);
    let gone = |fault: &Fault| plan.weather.percent(*fault) == 0;
    let all_but_few = origin.weather.faults().filter(gone).count() > 4;
    say(all_but_few, "without=all".to_owned());
    for &fault in Fault::ALL {
        let (percent, name) = (plan.weather.percent(fault), fault.name());
        let before = if all_but_few {
            0
        } else {
            origin.weather.percent(fault)
        };
        say(before > 0 && percent == 0, format!("without={name}"));
        let more = before != percent && percent > 0;
        say(more, format!("with={name}:{percent}"));
    }
    out.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_smaller_plan_can_be_told_to_a_replay() {
        for seed in 0..200 {
            let origin = Plan::of(seed);
            let mut plan = origin.clone();
            if seed % 2 == 0 {
                plan = plan.with_kubelet(Kubelet::On);
            }
            for n in [0, 1, 2, 3, 4, 5, 6, 6, 6, 6] {
                let smaller = plan.smaller();
                if let Some(next) = smaller.into_iter().nth(n) {
                    plan = next;
                }
            }
            let told = changes(&plan, &origin);
            let mut replayed = origin;
            change(&mut replayed, &told).unwrap_or_else(|e| panic!("{told}: {e}"));
            assert_eq!(replayed, plan, "{told}");
        }
    }

    #[test]
    fn what_cannot_be_changed_is_named() {
        let mut plan = Plan::of(1);
        let wrong = [
            "pods=x",
            "without=nothing",
            "with=cut:x",
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
