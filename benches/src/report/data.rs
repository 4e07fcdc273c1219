//! Samples of the same workload, by subject.

use crate::harness::{Point, Workload};
use crate::results::Sample;
use crate::stats::{Estimate, estimate};
use crate::subject::Kind;

/// All samples, each with the index of its file.
#[derive(Debug, Default)]
pub(super) struct Data(pub(super) Vec<(usize, Sample)>);

/// Selects the samples of one workload on nodes of one size.
#[derive(Clone, Copy)]
pub(super) struct SampleFilter {
    pub(super) workload: fn(&Workload) -> bool,
    pub(super) pods: u32,
    pub(super) containers: u32,
    pub(super) latency: u64,
    /// Selects only `Churn` with this rate of new pods in 100 seconds.
    rate: Option<u32>,
}

impl SampleFilter {
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

    /// Selects samples with this duration of each call, in ms.
    pub(super) const fn latency(self, latency: u64) -> Self {
        Self { latency, ..self }
    }

    /// Selects only `Churn` with this rate of new pods in 100 seconds.
    pub(super) const fn rate(self, per_hundred_seconds: u32) -> Self {
        Self {
            rate: Some(per_hundred_seconds),
            ..self
        }
    }

    fn matches(&self, point: &Point) -> bool {
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
            && point.latency == self.latency
    }
}

/// A figure of a sample.
#[derive(Clone, Copy)]
pub(super) enum Figure {
    Value(&'static str),
    /// The sum of both.
    Sum(&'static str, &'static str),
    /// The first minus the second.
    Difference(&'static str, &'static str),
    /// The first divided by the second.
    Quotient(&'static str, &'static str),
    /// A value of the whole window, for one hour.
    PerHour(&'static str),
    /// A value of the whole window, for one second.
    PerSecond(&'static str),
    /// A size in KiB, in bytes.
    Kib(&'static str),
    /// The number of events per second.
    EventRate,
}

impl Figure {
    /// Returns the figure, if the sample has it. If a subject did not finish, the time limit of the
    /// measurement is used.
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
    /// Returns the samples of a subject. If the workload was run with several durations, only the longest is
    /// used.
    pub(super) fn of(
        &self,
        filter: SampleFilter,
        subject: Kind,
    ) -> impl Iterator<Item = &(usize, Sample)> {
        let longest = self.longest(filter);
        self.0.iter().filter(move |(_, sample)| {
            let point = &sample.point;
            point.subject == subject && filter.matches(point) && Some(point.workload) == longest
        })
    }

    fn longest(&self, filter: SampleFilter) -> Option<Workload> {
        let points = self.0.iter().map(|(_, sample)| &sample.point);
        points
            .filter(|p| filter.matches(p))
            .map(|p| p.workload)
            .max()
    }

    /// Returns the duration of the workload, in seconds.
    pub(super) fn seconds(&self, filter: SampleFilter) -> Option<u32> {
        self.longest(filter).and_then(|workload| workload.seconds())
    }

    /// Returns the median of a figure, with its interval.
    pub(super) fn estimate(
        &self,
        filter: SampleFilter,
        subject: Kind,
        figure: Figure,
    ) -> Option<Estimate> {
        let samples = self.of(filter, subject);
        let values: Vec<f64> = samples.filter_map(|(_, s)| figure.of(s)).collect();
        estimate(&values)
    }

    /// Returns the ratio of a figure of `above` to that of `below`, over samples of the same repetition.
    pub(super) fn ratio(
        &self,
        filter: SampleFilter,
        figure: Figure,
        (above, below): (Kind, Kind),
    ) -> Option<Estimate> {
        let pairs = self.of(filter, above).flat_map(|(run, a)| {
            let same = move |(r, b): &&(usize, Sample)| r == run && b.rep == a.rep;
            self.of(filter, below)
                .filter(same)
                .map(move |(_, b)| (a, b))
        });
        let ratios = pairs.filter_map(|(a, b)| Some(figure.of(a)? / figure.of(b)?));
        estimate(&ratios.filter(|r| r.is_finite()).collect::<Vec<_>>())
    }
}
