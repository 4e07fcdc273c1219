//! Which pictures there are.

use super::format::{count, nanos};
use super::hourly::Hourly;
use super::picture::{Axis, Bar, Line, bars, lines};
use super::query::{Data, Figure, On, on};
use super::targets::{audits, cut, restart, slow_churn, storm};
use crate::peer::Kind;
use crate::results::PARTS;
use crate::stats::median;

/// A picture: its file's name, what it shows, itself.
pub(super) type Picture = (&'static str, &'static str, String);

/// All that there are results for.
pub(super) fn all(data: &Data) -> Vec<Picture> {
    [
        (
            "cost",
            "What an idle hour costs, against the number of pods",
            cost(data),
        ),
        (
            "latency",
            "From a change in the runtime until it is visible in the cache",
            latency(data),
        ),
        (
            "cut",
            "How long a change stays unseen that happens while the connections are cut",
            over_a_cut(data),
        ),
        (
            "storm",
            "1,000 pods die at once: until the cache shows all of it",
            recovery(data),
        ),
    ]
    .into_iter()
    .filter_map(|(name, about, picture)| Some((name, about, picture?)))
    .collect()
}

pub(super) const fn color(peer: Kind) -> &'static str {
    match peer {
        Kind::Drain => "#8c8c8c",
        Kind::Decode | Kind::Owned => "#b9a26b",
        Kind::Generic | Kind::GenericPlain => "#c0392b",
        Kind::BestGeneric => "#e08e79",
        Kind::Evented => "#8e44ad",
        Kind::Hint => "#2471a3",
        Kind::Ours => "#1e8449",
    }
}

const TIME: Axis = Axis {
    name: "",
    label: nanos,
    logarithmic: true,
};

fn cost(data: &Data) -> Option<String> {
    let hourly = Hourly::of(data);
    let mut sizes: Vec<(u32, u32)> = data
        .0
        .iter()
        .map(|m| &m.sample.point)
        .filter(|p| audits(&p.workload))
        .map(|p| (p.pods, p.containers))
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    // One line for each peer: of every size, the smallest number of containers there is.
    sizes.dedup_by_key(|(pods, _)| *pods);
    if sizes.len() < 2 {
        return None;
    }
    let line = |peer: Kind| {
        let points = sizes.iter().filter_map(|&(pods, containers)| {
            let on = On {
                containers,
                ..on(audits, pods)
            };
            let cpu: Vec<f64> = hourly
                .cpu(on, peer, false)
                .into_iter()
                .map(|(_, _, cpu)| cpu)
                .collect();
            Some((f64::from(pods), median(&cpu)?))
        });
        Line {
            name: peer.name().to_owned(),
            color: color(peer),
            points: points.collect(),
            dots: true,
        }
    };
    let all: Vec<Line> = [Kind::Generic, Kind::BestGeneric, Kind::Ours]
        .into_iter()
        .map(line)
        .collect();
    let pods = Axis {
        name: if sizes.iter().any(|(_, containers)| *containers > 1) {
            "pods on the node (of two containers on the largest)"
        } else {
            "pods on the node"
        },
        label: count,
        logarithmic: true,
    };
    lines(
        "CPU of an idle hour",
        pods,
        Axis {
            name: "CPU time an hour",
            ..TIME
        },
        &all,
    )
}

fn latency(data: &Data) -> Option<String> {
    let line = |peer: Kind| {
        // Of each part the median over all repetitions.
        let curves: Vec<&Vec<u64>> = data
            .of(on(slow_churn, 1000), peer)
            .filter_map(|m| m.sample.curves.get("latency"))
            .collect();
        let points = PARTS.iter().enumerate().filter_map(|(n, part)| {
            let values: Vec<f64> = curves
                .iter()
                .filter_map(|c| c.get(n))
                .map(|v| *v as f64)
                .collect();
            Some((median(&values)?, part * 100.0))
        });
        Line {
            name: peer.name().to_owned(),
            color: color(peer),
            points: points.collect(),
            dots: false,
        }
    };
    let peers = [
        Kind::Drain,
        Kind::Ours,
        Kind::Evented,
        Kind::Hint,
        Kind::Generic,
    ];
    let all: Vec<Line> = peers
        .into_iter()
        .map(line)
        .filter(|l| !l.points.is_empty())
        .collect();
    let percent = Axis {
        name: "% of the changes are visible",
        label: count,
        logarithmic: false,
    };
    let time = Axis {
        name: "after the change, at 100 events a second",
        ..TIME
    };
    lines("Latency", time, percent, &all)
}

/// One bar for each peer with such a figure.
fn each(data: &Data, work: On, suffix: &str, figure: Figure<'_>, peers: &[Kind]) -> Vec<Bar> {
    peers
        .iter()
        .filter_map(|&peer| {
            let seen = median(&data.values(work, peer, figure));
            let waited = median(&data.values(work, peer, &|s| s.get("gave_up")));
            Some(Bar {
                name: format!("{}{suffix}", peer.name()),
                color: color(peer),
                value: seen.or(waited)?,
                more: seen.is_none(),
            })
        })
        .collect()
}

const GENERATORS: [Kind; 4] = [Kind::Ours, Kind::Generic, Kind::Evented, Kind::Hint];

fn over_a_cut(data: &Data) -> Option<String> {
    let mut all = each(
        data,
        on(cut, 1000),
        ", cut",
        &|s| s.get("stale"),
        &GENERATORS,
    );
    all.extend(each(
        data,
        on(restart, 1000),
        ", down 0.4 s",
        &|s| s.get("stale"),
        &GENERATORS,
    ));
    bars(
        "Staleness over a cut, 1,000 pods",
        Axis {
            name: "from the cut until the change is visible",
            ..TIME
        },
        &all,
    )
}

fn recovery(data: &Data) -> Option<String> {
    let mut all = Vec::new();
    for (latency, suffix) in [
        (0, ""),
        (1, ", 1 ms a call"),
        (10, ", 10 ms a call"),
        (100, ", 100 ms a call"),
    ] {
        let work = On {
            latency,
            ..on(storm, 1000)
        };
        let peers = [&[Kind::Drain][..], &GENERATORS].concat();
        all.extend(each(data, work, suffix, &|s| s.get("consistent"), &peers));
    }
    bars(
        "Storm of 1,000 pods",
        Axis {
            name: "from the first death until the cache shows all",
            ..TIME
        },
        &all,
    )
}
