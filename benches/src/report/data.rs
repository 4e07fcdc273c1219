//! Samples of the same work, by subject.

use crate::harness::{Point, Workload};
use crate::payload::Profile;
use crate::results::Sample;
use crate::stats::{Estimate, estimate};
use crate::subject::Kind;

/// All samples, each with the number of the file that it is from.
#[derive(Debug, Default)]
pub(super) struct Data(pub(super) Vec<(usize, Sample)>);

/// A workload on a node of typical pods.
#[derive(Clone, Copy)]
pub(super) struct Work {
    pub(super) workload: fn(&Workload) -> bool,
    pub(super) pods: u32,
    pub(super) containers: u32,
    pub(super) latency: u64,
    /// Only the churn of so many pods in 100 seconds.
    rate: Option<u32>,
}

impl Work {
    pub(super) const fn new(workload: fn(&Workload) -> bool) -> Self {
        Self {
            workload,
            pods: 1000,
            containers: 1,
            latency: 0,
            rate: None,
        }
    }

    pub(super) const fn pods(self, pods: u32, containers: u32) -> Self {
        Self {
            pods,
            containers,
            ..self
        }
    }

    /// How long each call takes, in ms.
    pub(super) const fn latency(self, latency: u64) -> Self {
        Self { latency, ..self }
    }

    /// Only the churn of so many pods in 100 seconds.
    pub(super) const fn rate(self, per_hundred_seconds: u32) -> Self {
        Self {
            rate: Some(per_hundred_seconds),
            ..self
        }
    }

    fn is(&self, point: &Point) -> bool {
        let rate = match point.workload {
            Workload::Churn {
                per_hundred_seconds,
                ..
            } => Some(per_hundred_seconds),
            _ => None,
        };
        (self.rate.is_none() || self.rate == rate)
            && (self.workload)(&point.workload)
            && point.pods == self.pods
            && point.containers == self.containers
            && point.profile == Profile::Typical
            && point.latency == self.latency
    }
}

/// A figure of a sample.
#[derive(Clone, Copy)]
pub(super) enum Figure {
    Value(&'static str),
    /// Both together.
    Sum(&'static str, &'static str),
    /// The first less the second.
    Difference(&'static str, &'static str),
    /// The first divided by the second.
    Quotient(&'static str, &'static str),
    /// A value of the whole window, for one hour.
    PerHour(&'static str),
    /// A value of the whole window, for one second.
    PerSecond(&'static str),
    /// A size in KiB, in bytes.
    Kib(&'static str),
    /// How many events were handled in a second.
    EventRate,
}

impl Figure {
    /// The figure, if the sample has it. If a subject did not finish, the time after which the
    /// measurement ended counts.
    fn of(self, sample: &Sample) -> Option<f64> {
        let get = |name: &str| match name {
            "consistent" | "stale" => sample.get(name).or_else(|| sample.get("gave_up")),
            _ => sample.get(name),
        };
        Some(match self {
            Self::Value(name) => get(name)?,
            Self::Sum(one, other) => get(one)? + get(other)?,
            Self::Difference(one, other) => get(one)? - get(other)?,
            Self::Quotient(one, other) => get(one)? / get(other)?,
            Self::PerSecond(name) => get(name)? / get("seconds")?,
            Self::Kib(name) => get(name)? * 1024.0,
            Self::PerHour(name) => get(name)? * 3600.0 / get("seconds")?,
            Self::EventRate => get("events")? * 1e9 / get("consistent")?,
        })
    }
}

impl Data {
    /// The samples of a subject. If the work was done for several durations, only the longest counts.
    pub(super) fn of(&self, work: Work, subject: Kind) -> impl Iterator<Item = &(usize, Sample)> {
        let longest = self.longest(work);
        self.0.iter().filter(move |(_, sample)| {
            let point = &sample.point;
            point.subject == subject && work.is(point) && Some(point.workload) == longest
        })
    }

    fn longest(&self, work: Work) -> Option<Workload> {
        let points = self.0.iter().map(|(_, sample)| &sample.point);
        points.filter(|p| work.is(p)).map(|p| p.workload).max()
    }

    /// How long the work lasts, in seconds.
    pub(super) fn seconds(&self, work: Work) -> Option<u32> {
        self.longest(work).and_then(|workload| workload.seconds())
    }

    /// The median of a figure, with its interval.
    pub(super) fn estimate(&self, work: Work, subject: Kind, figure: Figure) -> Option<Estimate> {
        let samples = self.of(work, subject);
        let values: Vec<f64> = samples.filter_map(|(_, s)| figure.of(s)).collect();
        estimate(&values)
    }

    /// A figure of `above` divided by that of `below`, over samples of the same repetition.
    pub(super) fn ratio(
        &self,
        work: Work,
        figure: Figure,
        (above, below): (Kind, Kind),
    ) -> Option<Estimate> {
        let pairs = self.of(work, above).flat_map(|(run, a)| {
            let same = move |(r, b): &&(usize, Sample)| r == run && b.rep == a.rep;
            self.of(work, below).filter(same).map(move |(_, b)| (a, b))
        });
        let ratios = pairs.filter_map(|(a, b)| Some(figure.of(a)? / figure.of(b)?));
        estimate(&ratios.filter(|r| r.is_finite()).collect::<Vec<_>>())
    }
}
