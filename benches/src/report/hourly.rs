//! What an idle hour costs: CPU of one audit × audits an hour, and what a real window showed
//! beside its audits (our writer's beat, timers).

use super::query::{Data, On, on};
use super::targets::{audits, idle};
use crate::peer::Kind;
use crate::results::Sample;
use crate::stats::{Estimate, estimate, median};

const HOUR: f64 = 3600.0;

pub(super) struct Hourly<'a> {
    data: &'a Data,
}

impl<'a> Hourly<'a> {
    pub(super) const fn of(data: &'a Data) -> Self {
        Self { data }
    }

    /// How often a peer lists in an hour without events.
    fn lists(peer: Kind, sample: &Sample) -> Option<f64> {
        Some(match peer {
            Kind::Ours => HOUR / 60.0,
            Kind::Evented => HOUR / 300.0,
            // A second after the last one has ended.
            _ => HOUR / (1.0 + sample.get("audit_p50")? / 1e9),
        })
    }

    /// What a window shows beside the audits in it, in ns an hour: one of so many pods, if there
    /// was one, or else of another number; nothing where there was none.
    fn beside(&self, peer: Kind, pods: u32, whole: bool) -> f64 {
        let of = |sample: &Sample| {
            let per_audit = self.per_audit(sample.point.pods, peer, whole)?;
            let mut cpu = sample.get("peer_cpu")?;
            if whole {
                cpu += sample.get("runtime_cpu")?;
            }
            let beside = cpu - sample.get("calls_lists")? / 2.0 * per_audit;
            Some(beside.max(0.0) * HOUR / sample.get("seconds")?)
        };
        let windows = self.data.0.iter().map(|m| &m.sample);
        let windows = windows.filter(|s| s.point.peer == peer && idle(&s.point.workload));
        let (same, other): (Vec<_>, Vec<_>) = windows.partition(|s| s.point.pods == pods);
        let these = if same.is_empty() { other } else { same };
        let beside: Vec<f64> = these.into_iter().filter_map(of).collect();
        median(&beside).unwrap_or(0.0)
    }

    /// Whether there is a window to show what audits are not.
    pub(super) fn has_window(&self, peer: Kind) -> bool {
        let mut windows = self.data.0.iter().map(|m| &m.sample.point);
        windows.any(|p| p.peer == peer && idle(&p.workload))
    }

    fn per_audit(&self, pods: u32, peer: Kind, whole: bool) -> Option<f64> {
        let peer = if peer == Kind::BestGeneric {
            Kind::Ours
        } else {
            peer
        };
        let figure = |s: &Sample| audit(s, whole);
        Some(self.data.estimate(on(audits, pods), peer, &figure)?.median)
    }

    /// CPU in ns an hour, for each sample of audits.
    pub(super) fn cpu(&self, on: On, peer: Kind, whole: bool) -> Vec<(usize, u32, f64)> {
        let beside = self.beside(peer, on.pods, whole);
        // The best generic reads the lists as we do.
        let reads = if peer == Kind::BestGeneric {
            Kind::Ours
        } else {
            peer
        };
        let of = |m: &super::query::Measured| {
            let s = &m.sample;
            let hour = Self::lists(peer, s)? * audit(s, whole)? + beside;
            Some((m.run, s.rep, hour))
        };
        self.data.of(on, reads).filter_map(of).collect()
    }

    pub(super) fn ratio(&self, on: On, above: Kind, below: Kind, whole: bool) -> Option<Estimate> {
        let below = self.cpu(on, below, whole);
        let pairs = self
            .cpu(on, above, whole)
            .into_iter()
            .filter_map(|(run, rep, above)| {
                let (_, _, below) = below.iter().find(|(r, p, _)| (*r, *p) == (run, rep))?;
                Some(above / below)
            });
        estimate(&pairs.collect::<Vec<_>>())
    }
}

fn audit(sample: &Sample, whole: bool) -> Option<f64> {
    let runtime = if whole {
        sample.get("runtime_audit_cpu")?
    } else {
        0.0
    };
    Some(sample.get("audit_cpu")? + runtime)
}
