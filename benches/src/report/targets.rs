//! The targets, each with what was measured of it. The claim is the pessimistic end.

use super::format::{Unit, count, nanos, times};
use super::gate;
use super::hourly::Hourly;
use super::query::{Data, Figure, On, on};
use super::troubles;
use crate::harness::Workload;
use crate::peer::Kind;
use crate::results::Sample;
use crate::stats::Estimate;

/// A line of the table.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) what: String,
    pub(super) bound: String,
    pub(super) measured: Option<(Estimate, Unit)>,
    pub(super) verdict: Verdict,
}

/// How it came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The pessimistic end is within the bound.
    Met,
    /// The median is within the bound, the pessimistic end is not.
    Unsure,
    /// Not even the median.
    Missed,
    /// Why it was not measured.
    NotMeasured(&'static str),
}

/// What a figure has to be.
#[derive(Clone, Copy)]
pub(super) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Bound {
    fn verdict(self, of: Estimate) -> Verdict {
        let holds = |value: f64| match self {
            Self::AtLeast(bound) => value >= bound,
            Self::AtMost(bound) => value <= bound,
        };
        let pessimistic = match self {
            Self::AtLeast(_) => of.low,
            Self::AtMost(_) => of.high,
        };
        match (holds(pessimistic), holds(of.median)) {
            (true, _) => Verdict::Met,
            (false, true) => Verdict::Unsure,
            (false, false) => Verdict::Missed,
        }
    }
}

pub(super) fn row(
    name: &'static str,
    what: impl Into<String>,
    bound: Bound,
    measured: Option<Estimate>,
    unit: Unit,
) -> Row {
    let (sign, value) = match bound {
        Bound::AtLeast(value) => ("≥", value),
        Bound::AtMost(value) => ("≤", value),
    };
    Row {
        name,
        what: what.into(),
        bound: format!("{sign} {}", unit(value)),
        measured: measured.map(|m| (m, unit)),
        verdict: measured.map_or(Verdict::NotMeasured("not in these results"), |m| {
            bound.verdict(m)
        }),
    }
}

pub(super) fn elsewhere(name: &'static str, what: &str, bound: &str, why: &'static str) -> Row {
    Row {
        name,
        what: what.to_owned(),
        bound: bound.to_owned(),
        measured: None,
        verdict: Verdict::NotMeasured(why),
    }
}

/// From so many seconds on a pod hangs for longer than upstream bears to be without a relist.
const LONG: u32 = 180;

pub(super) fn audits(w: &Workload) -> bool {
    matches!(w, Workload::Audits { .. })
}
pub(super) fn idle(w: &Workload) -> bool {
    matches!(w, Workload::Idle { .. })
}
pub(super) fn slow_churn(w: &Workload) -> bool {
    matches!(w, Workload::Restarts { rate: 100, .. })
}
pub(super) fn fast_churn(w: &Workload) -> bool {
    matches!(w, Workload::Restarts { rate: 1000, .. })
}
pub(super) fn fastest_churn(w: &Workload) -> bool {
    matches!(w, Workload::Restarts { rate: 10_000, .. })
}
pub(super) fn storm(w: &Workload) -> bool {
    matches!(w, Workload::Storm)
}
pub(super) fn flood(w: &Workload) -> bool {
    matches!(w, Workload::Flood { .. })
}
pub(super) fn cut(w: &Workload) -> bool {
    matches!(w, Workload::Cut { down_ms: 0 })
}
pub(super) fn restart(w: &Workload) -> bool {
    matches!(w, Workload::Cut { down_ms: 400 })
}
pub(super) fn lossy(w: &Workload) -> bool {
    matches!(w, Workload::Lossy { .. })
}
pub(super) fn late(w: &Workload) -> bool {
    matches!(w, Workload::Late { .. })
}
pub(super) fn stalled(w: &Workload) -> bool {
    matches!(w, Workload::Stalled { .. })
}
pub(super) fn reads(w: &Workload) -> bool {
    matches!(w, Workload::Reads)
}
pub(super) fn memory(w: &Workload) -> bool {
    matches!(w, Workload::Memory)
}

pub(super) fn hung_pod(w: &Workload) -> bool {
    matches!(w, Workload::HungPod { seconds } if *seconds < LONG)
}
pub(super) fn hung_for_long(w: &Workload) -> bool {
    matches!(w, Workload::HungPod { seconds } if *seconds >= LONG)
}
pub(super) fn slow_list(w: &Workload) -> bool {
    matches!(w, Workload::SlowList { .. })
}
pub(super) fn stall(w: &Workload) -> bool {
    matches!(w, Workload::Stall { .. })
}
pub(super) fn frozen(w: &Workload) -> bool {
    matches!(w, Workload::Frozen { .. })
}
pub(super) fn probed(w: &Workload) -> bool {
    matches!(w, Workload::Probed { .. })
}
pub(super) fn reset(w: &Workload) -> bool {
    matches!(w, Workload::Reset)
}
pub(super) fn dropping(w: &Workload) -> bool {
    matches!(w, Workload::Dropping)
}
pub(super) fn flapping(w: &Workload) -> bool {
    matches!(w, Workload::Flapping { .. })
}
pub(super) fn bloat(w: &Workload) -> bool {
    matches!(w, Workload::Bloat { .. })
}

/// The whole table.
pub(super) fn table(data: &Data) -> Vec<Row> {
    let hourly = Hourly::of(data);
    let mut rows = at_rest(data, &hourly);
    rows.extend(events(data));
    rows.extend(lists(data, &hourly));
    rows.extend(troubles::rows(data));
    rows
}

pub(super) fn named(name: &str) -> impl Fn(&Sample) -> Option<f64> + use<> {
    let name = name.to_owned();
    move |s: &Sample| s.get(&name)
}

fn at_rest(data: &Data, hourly: &Hourly<'_>) -> Vec<Row> {
    use Bound::{AtLeast, AtMost};
    use Kind::{BestGeneric, Generic, Ours};
    let mut rows = Vec::new();
    for (pods, bound) in [(1000, 100.0), (110, 50.0)] {
        let beside = if hourly.has_window(Ours) {
            "+ what a window shows beside them"
        } else {
            "(no window in these results: the writer's beat is missing)"
        };
        let what = format!(
            "idle CPU of the peer, {} pods: P2 / ours, CPU per audit × audits an hour {beside}",
            count(f64::from(pods))
        );
        let ratio = hourly.ratio(on(audits, pods), Generic, Ours, false);
        rows.push(row("T1", what, AtLeast(bound), ratio, times));
    }
    let all = hourly.ratio(on(audits, 1000), Generic, Ours, true);
    rows.push(row(
        "T1",
        "the same, peer and runtime, 1,000 pods",
        AtLeast(60.0),
        all,
        times,
    ));
    let cpu = named("peer_cpu");
    for (pods, bound) in [(1000, 100.0), (110, 50.0)] {
        let window = data.ratio(on(idle, pods), (Generic, &cpu), (Ours, &cpu));
        let what = format!(
            "idle CPU of the peer in one real window, {} pods: P2 / ours",
            count(f64::from(pods))
        );
        rows.push(row("T1", what, AtLeast(bound), window, times));
    }
    let best = data.ratio(on(idle, 1000), (BestGeneric, &cpu), (Ours, &cpu));
    rows.push(row(
        "T1",
        "the same, 1,000 pods: P2b / ours (the period alone)",
        AtLeast(30.0),
        best,
        times,
    ));
    let calls: Figure<'_> = &|s| Some(s.get("calls_unary")? * 3600.0 / s.get("seconds")?);
    let ours = data.estimate(on(idle, 1000), Ours, calls);
    rows.push(row(
        "T2",
        "idle: calls an hour, 1,000 pods",
        AtMost(120.0),
        ours,
        count,
    ));
    let ratio = data.ratio(on(idle, 1000), (Generic, calls), (Ours, calls));
    rows.push(row(
        "T2",
        "idle: calls, P2 / ours",
        AtLeast(60.0),
        ratio,
        times,
    ));
    let each: Figure<'_> = &|s| {
        // A full list is two calls.
        let asked_for =
            2.0 * s.get("own_audits").unwrap_or(0.0) + s.get("own_exit_reads").unwrap_or(0.0);
        Some((s.get("calls_unary")? - asked_for) / s.get("events")?)
    };
    let ours = data.estimate(on(slow_churn, 1000), Ours, each);
    rows.push(row(
        "T2b",
        "calls per event at 100 events/s, besides lists and the one read of each failed exit",
        AtMost(0.02),
        ours,
        count,
    ));
    rows
}

fn events(data: &Data) -> Vec<Row> {
    use Bound::{AtLeast, AtMost};
    use Kind::{Drain, Generic, Ours};
    let slow = on(slow_churn, 1000);
    let mut rows = Vec::new();
    for (name, part, bound) in [("T3", "p50", 5e3), ("T3", "p99", 50e3)] {
        let of = data.metric(slow, Ours, &format!("in_process_{part}"));
        let what = format!("one event, received to visible in the cache, {part}");
        rows.push(row(name, what, AtMost(bound), of, nanos));
    }
    for (part, bound) in [("p50", 1.10), ("p99", 1.25), ("p999", 2.0)] {
        let figure = named(&format!("latency_{part}"));
        let ratio = data.ratio(slow, (Ours, &figure), (Drain, &figure));
        let what = format!("change to visible, 100 events/s: ours / P0's receipt, {part}");
        rows.push(row("T3", what, AtMost(bound), ratio, times));
    }
    for part in ["p50", "p99"] {
        let figure = named(&format!("latency_{part}"));
        let ratio = data.ratio(slow, (Generic, &figure), (Ours, &figure));
        let what = format!("change to visible: P2 / ours, {part}");
        rows.push(row("T3b", what, AtLeast(3000.0), ratio, times));
    }
    let held = data.metric(on(memory, 1000), Ours, "held_more");
    rows.push(row(
        "T5",
        "bytes held for each pod more (1,000 more than 1,000)",
        AtMost(1536.0),
        held,
        count,
    ));
    let figure = named("held_more");
    let ratio = data.ratio(on(memory, 1000), (Ours, &figure), (Kind::Owned, &figure));
    rows.push(row(
        "T5",
        "the same: ours / decoded statuses",
        AtMost(0.25),
        ratio,
        times,
    ));
    rows.extend(gated());
    rows
}

/// What the gate of instruction counts has counted of an event, from its bytes to the verdict.
fn gated() -> Vec<Row> {
    use Bound::{AtLeast, AtMost};
    let exactly = |value: f64| Estimate {
        median: value,
        low: value,
        high: value,
        count: 1,
    };
    let mut rows = Vec::new();
    for (what, path) in [
        ("an event that tells nothing new", "known"),
        (
            "the end of a container that was not told of before",
            "stopped",
        ),
    ] {
        let of = gate::instructions(path).map(exactly);
        let instructions = format!("instructions of {what}, from its bytes to the verdict");
        rows.push(row("T5b", instructions, AtMost(12_000.0), of, count));
        let of = gate::allocations(path).map(exactly);
        rows.push(row(
            "T5b",
            "allocations of the same",
            AtMost(4.0),
            of,
            count,
        ));
    }
    let ratio = gate::allocations("prost").zip(gate::allocations("known"));
    rows.push(row(
        "T5b",
        "allocations of decoding an event with prost / of ours that tells nothing new",
        AtLeast(25.0),
        ratio.map(|(prost, ours)| exactly(prost / ours)),
        times,
    ));
    rows
}

fn lists(data: &Data, hourly: &Hourly<'_>) -> Vec<Row> {
    use Bound::{AtLeast, AtMost};
    use Kind::{Decode, Generic, Ours};
    let thousand = on(audits, 1000);
    let mut rows = Vec::new();
    let took = named("audit_p50");
    let ratio = data.ratio(thousand, (Ours, &took), (Decode, &took));
    rows.push(row(
        "T4",
        "unchanged audit, 1,000 pods, socket to verdict / P1's decoding of the same bytes",
        AtMost(0.7),
        ratio,
        times,
    ));
    let cpu = named("audit_cpu");
    let ratio = data.ratio(thousand, (Ours, &cpu), (Decode, &cpu));
    rows.push(row("T4", "the same in CPU time", AtMost(0.7), ratio, times));
    let ratio = data.ratio(thousand, (Generic, &took), (Decode, &took));
    rows.push(row(
        "T4",
        "for comparison: P2's relist / P1",
        AtMost(1.6),
        ratio,
        times,
    ));
    let ours = data.metric(on(memory, 1000), Ours, "allocations");
    rows.push(row(
        "T4b",
        "allocations of an unchanged audit, 1,000 pods",
        AtMost(100.0),
        ours,
        count,
    ));
    let payload = on(audits, 1000);
    let wire = data
        .estimate(payload, Decode, &|s| s.get("wire_bytes"))
        .map(|e| e.median);
    let share = data.estimate(on(memory, 1000), Ours, &|s| {
        Some(s.get("allocated")? / wire?)
    });
    rows.push(row("T4c", "bytes allocated by an unchanged audit / bytes of the lists (in the place of what is held of them at once, which is no more)", AtMost(1.3), share, times));
    let large = On {
        containers: 2,
        ..on(audits, 10_000)
    };
    let ours = data.metric(large, Ours, "audit_cpu");
    rows.push(row(
        "T14",
        "10,000 pods × 2 containers over streaming lists: CPU of an audit",
        AtMost(40e6),
        ours,
        nanos,
    ));
    let ratio = hourly.ratio(large, Generic, Ours, false);
    rows.push(row(
        "T14",
        "idle CPU of the peer then, reckoned as T1's: P2 / ours",
        AtLeast(60.0),
        ratio,
        times,
    ));
    rows
}
