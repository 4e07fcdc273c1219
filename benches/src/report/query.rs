//! Finding in the results what belongs together: peers of the same repetition on the same work.

use crate::harness::{Point, Workload};
use crate::payload::Profile;
use crate::peer::Kind;
use crate::results::Sample;
use crate::stats::{Estimate, estimate};

/// A sample and the run that it is of.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) run: usize,
    pub(super) sample: Sample,
}

/// Everything that was measured.
#[derive(Debug, Default)]
pub(super) struct Data(pub(super) Vec<Measured>);

/// The same work for every peer.
#[derive(Clone, Copy)]
pub(super) struct On {
    pub(super) workload: fn(&Workload) -> bool,
    pub(super) pods: u32,
    pub(super) containers: u32,
    pub(super) profile: Profile,
    pub(super) latency: u64,
}

/// That workload on a node of so many typical pods of one container each.
pub(super) const fn on(workload: fn(&Workload) -> bool, pods: u32) -> On {
    On {
        workload,
        pods,
        containers: 1,
        profile: Profile::Typical,
        latency: 0,
    }
}

impl On {
    fn is(&self, point: &Point) -> bool {
        (self.workload)(&point.workload)
            && point.pods == self.pods
            && point.containers == self.containers
            && point.profile == self.profile
            && point.latency == self.latency
    }
}

/// A figure of a sample, measured or computed.
pub(super) type Figure<'a> = &'a dyn Fn(&Sample) -> Option<f64>;

impl Data {
    /// What was measured of the peer on that work. Where it was done for five seconds and for sixty,
    /// only the longest counts, for whomever it was measured: unlike work is not thrown together.
    pub(super) fn of(&self, on: On, peer: Kind) -> impl Iterator<Item = &Measured> {
        let longest = self.longest(on);
        let is_it = move |p: &Point| p.peer == peer && on.is(p) && Some(p.workload) == longest;
        self.0.iter().filter(move |m| is_it(&m.sample.point))
    }

    fn longest(&self, on: On) -> Option<Workload> {
        let points = self.0.iter().map(|m| &m.sample.point);
        points.filter(|p| on.is(p)).map(|p| p.workload).max()
    }

    /// " for 5 s", if it was done and is work that goes on for some time; or else nothing.
    pub(super) fn during(&self, on: On) -> String {
        let seconds = self.longest(on).and_then(|w| w.seconds());
        seconds.map_or_else(String::new, |s| format!(" for {s} s"))
    }

    /// Every value of a figure.
    pub(super) fn values(&self, on: On, peer: Kind, figure: Figure<'_>) -> Vec<f64> {
        self.of(on, peer)
            .filter_map(|m| figure(&m.sample))
            .collect()
    }

    /// The median of a figure, with its interval.
    pub(super) fn estimate(&self, on: On, peer: Kind, figure: Figure<'_>) -> Option<Estimate> {
        estimate(&self.values(on, peer, figure))
    }

    /// The same of a figure that was measured.
    pub(super) fn metric(&self, on: On, peer: Kind, name: &str) -> Option<Estimate> {
        self.estimate(on, peer, &|s| s.get(name))
    }

    /// How many times one peer's figure is another's, pair by pair.
    pub(super) fn ratio(
        &self,
        on: On,
        (above, of): (Kind, Figure<'_>),
        (below, to): (Kind, Figure<'_>),
    ) -> Option<Estimate> {
        let pairs = self.of(on, above).flat_map(|a| {
            let same = move |b: &&Measured| b.run == a.run && b.sample.rep == a.sample.rep;
            self.of(on, below).filter(same).map(move |b| (a, b))
        });
        let ratios = pairs.filter_map(|(a, b)| Some(of(&a.sample)? / to(&b.sample)?));
        estimate(&ratios.filter(|r| r.is_finite()).collect::<Vec<_>>())
    }
}
