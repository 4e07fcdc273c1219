//! The targets of cuts, storms, losses and of what hangs.

use super::format::{count, nanos, times};
use super::query::{Data, Figure, On, on};
use super::targets::{
    Bound, Row, Verdict, cut, dropping, elsewhere, fastest_churn, flapping, flood, frozen,
    hung_for_long, late, lossy, named, probed, reads, reset, restart, row, slow_churn, stall,
    stalled, storm,
};
use crate::peer::Kind;
use crate::results::Sample;
use crate::stats::Estimate;

/// All of them.
pub(super) fn rows(data: &Data) -> Vec<Row> {
    [cuts(data), bursts(data), losses(data)].concat()
}

fn cuts(data: &Data) -> Vec<Row> {
    use Bound::{AtLeast, AtMost};
    use Kind::{Evented, Generic, Ours};
    let mut rows = Vec::new();
    let verified = named("verified");
    // The worst of them stands for the 99th part: there are too few to have one.
    let worst = data
        .values(on(cut, 1000), Ours, &verified)
        .into_iter()
        .fold(f64::NAN, f64::max);
    let of = data
        .estimate(on(cut, 1000), Ours, &verified)
        .map(|e| Estimate { high: worst, ..e });
    rows.push(row(
        "T6",
        "stream cut, 1,000 pods: until every pod is verified (the worst of all)",
        AtMost(50e6),
        of,
        nanos,
    ));
    let stale = named("stale");
    let ratio = data.ratio(on(cut, 1000), (Generic, &stale), (Ours, &stale));
    rows.push(row(
        "T6",
        "a change that the cut swallowed: P2's staleness / ours",
        AtLeast(10.0),
        ratio,
        times,
    ));
    let long: Figure<'_> = &|s| s.get("stale").or_else(|| s.get("gave_up"));
    let ratio = data.ratio(on(cut, 1000), (Evented, long), (Ours, long));
    rows.push(row(
        "T6",
        "the same: P3 / ours (P3 was given 20 s; its worst case is 300 s)",
        AtLeast(100.0),
        ratio,
        times,
    ));
    let broken = data.metric(on(reset, 1000), Ours, "verified");
    rows.push(row(
        "T6",
        "the event stream alone breaks off (RST_STREAM): until every pod is verified",
        AtMost(50e6),
        broken,
        nanos,
    ));
    let again = data.metric(on(restart, 1000), Ours, "evented_again");
    rows.push(row(
        "T6b",
        "restart of 0.4 s: from the socket's return until the stream is asked for",
        AtMost(100e6),
        again,
        nanos,
    ));
    rows
}

fn bursts(data: &Data) -> Vec<Row> {
    use Bound::{AtLeast, AtMost};
    use Kind::{Drain, Generic, Ours};
    let mut rows = Vec::new();
    // Who was given up on took longer than that.
    let consistent = |s: &Sample| s.get("consistent").or_else(|| s.get("gave_up"));
    let storms = on(storm, 1000);
    let ratio = data.ratio(storms, (Ours, &consistent), (Drain, &consistent));
    rows.push(row(
        "T7",
        "1,000 pods die at once: until the cache shows it / until P0 has drained it",
        AtMost(1.15),
        ratio,
        times,
    ));
    let slow = On {
        latency: 1,
        ..storms
    };
    let ratio = data.ratio(slow, (Generic, &consistent), (Ours, &consistent));
    rows.push(row(
        "T7",
        "the same at 1 ms a call: P2 / ours",
        AtLeast(40.0),
        ratio,
        times,
    ));
    let slowest = On {
        latency: 100,
        ..storms
    };
    let ratio = data.ratio(slowest, (Generic, &consistent), (Ours, &consistent));
    rows.push(in_full(row(
        "T7",
        "the same at 100 ms a call: P2 / ours",
        AtLeast(1000.0),
        ratio,
        times,
    )));
    rows.push(elsewhere(
        "T7b",
        "decodes in a storm",
        "≤ distinct pods + events that met an empty queue",
        "every event is read, for law 8 skips no STOPPED; what it says again is compared, not decoded",
    ));
    let speed: Figure<'_> = &|s| Some(s.get("events")? * 1e9 / consistent(s)?);
    let floods = on(flood, 1000);
    let ratio = data.ratio(floods, (Ours, speed), (Drain, speed));
    rows.push(row(
        "T8",
        "events taken as fast as they come: ours / P0",
        AtLeast(0.8),
        ratio,
        times,
    ));
    let ours = data.estimate(floods, Ours, speed);
    rows.push(row(
        "T8",
        "events a second, typical payload, both processes on two cores",
        AtLeast(50_000.0),
        ours,
        count,
    ));
    let fastest = on(fastest_churn, 1000);
    let ratio = data.ratio(
        fastest,
        (Ours, &named("lag_p99")),
        (Drain, &named("latency_p99")),
    );
    rows.push(row(
        "T8",
        "lag at 10,000 events/s, p99: ours until all changes are visible / P0's receipt",
        AtMost(2.0),
        ratio,
        times,
    ));
    let grows: Figure<'_> = &|s| Some(s.get("lag_later_p50")? / s.get("lag_earlier_p50")?);
    let ours = data.estimate(fastest, Ours, grows);
    let during = data.during(fastest);
    rows.push(row(
        "T8",
        format!(
            "10,000 events/s{during}, all changes: lag of the later half / of the earlier half, p50"
        ),
        AtMost(1.5),
        ours,
        times,
    ));
    rows
}

fn losses(data: &Data) -> Vec<Row> {
    use Bound::AtMost;
    use Kind::Ours;
    let mut rows = Vec::new();
    rows.extend(untaken(data));
    rows.push(elsewhere(
        "T10",
        "lost or ghost states in 10⁹ simulated events",
        "0",
        "here; `just soak` runs them: none in 1,208,644,506 (docs/invariants.md)",
    ));
    let wrong: Figure<'_> = &|s| Some(s.get("lost")? + s.get("ghosts")?);
    for (what, on) in [
        ("100 events/s", on(slow_churn, 1000)),
        ("the storm", on(storm, 1000)),
        (
            "the storm under a runtime that drops what does not fit",
            on(dropping, 1000),
        ),
        ("1 % lost and 1 % doubled", on(lossy, 1000)),
        ("10 % told up to 2 s late and out of order", on(late, 1000)),
        ("a cut a second under 100 events/s", on(flapping, 1000)),
    ] {
        let ours = data.estimate(on, Ours, wrong);
        rows.push(row(
            "T10",
            format!("containers lost or shown though gone, after {what}"),
            AtMost(0.0),
            ours,
            count,
        ));
    }
    let after = data.metric(on(lossy, 1000), Ours, "after_last");
    rows.push(row(
        "T11",
        "1 % of the events lost: from the last event until the cache is right",
        AtMost(60e9),
        after,
        nanos,
    ));
    let unseen: Figure<'_> = &|s| Some(s.get("stale")? / s.get("period")?);
    let ours = data.estimate(on(stall, 1000), Ours, unseen);
    rows.push(row(
        "T11",
        format!(
            "the stream stands still: unseen for / period of our lists then ({}; 60 s at most)",
            period(data, on(stall, 1000))
        ),
        AtMost(1.05),
        ours,
        times,
    ));
    rows.push(elsewhere(
        "T11",
        "1 of 100 events lost, of a pod in which something happens: until it is seen",
        "≤ 100 ms",
        "nothing of our own is asked of the runtime here, whose answer would show it",
    ));
    let noticed = data.metric(on(frozen, 1000), Ours, "noticed");
    rows.push(row(
        "T12",
        format!(
            "a frozen runtime: until ours says that something is wrong (its lists came every {})",
            period(data, on(frozen, 1000))
        ),
        AtMost(3e9),
        noticed,
        nanos,
    ));
    let noticed = data.metric(on(probed, 1000), Ours, "noticed");
    rows.push(row(
        "T12",
        "the same with the liveness probe, once a second (off by default)",
        AtMost(3e9),
        noticed,
        nanos,
    ));
    let unready = data.metric(on(hung_for_long, 1000), Ours, "unready");
    let during = data.during(on(hung_for_long, 1000));
    rows.push(in_full(row(
        "T12",
        format!("one pod hangs{during}: said to be not ready for (nor is P2, whose relist lasts two minutes then)"),
        AtMost(0.0),
        unready,
        nanos,
    )));
    let reads_of = |s: &Sample| Some(s.get("read_busy_p99")? / s.get("read_quiet_p99")?);
    let ours = data.estimate(on(reads, 1000), Ours, &reads_of);
    rows.push(row(
        "T13",
        "reads of the cache: p99 at 2,000 events/s / on a quiet node",
        AtMost(1.5),
        ours,
        times,
    ));
    rows.push(elsewhere(
        "T13",
        "from the cache's commit until one who waits is awake, p99",
        "≤ 50 µs",
        "it is the end of what T3 measures, not taken by itself",
    ));
    rows
}

/// What comes of it when nobody takes what is announced.
fn untaken(data: &Data) -> Vec<Row> {
    let on = on(stalled, 1000);
    let mut rows = Vec::new();
    let mut of = |what: &str, name: &str, most: f64, unit| {
        let ours = data.metric(on, Kind::Ours, name);
        rows.push(row("T9", what, Bound::AtMost(most), ours, unit));
    };
    let during = format!(
        "nobody takes what is announced, 1,000 events/s{}",
        data.during(on)
    );
    of(
        &format!(
            "{during}: the longest that the runtime waited to tell one (a turn of the scheduler is no more; nor does P3 hold it up)"
        ),
        "send_blocked",
        20e6,
        nanos,
    );
    of("… said to be not ready for", "unready", 0.0, nanos);
    rows
}

/// One that lasts too long for half an hour.
fn in_full(row: Row) -> Row {
    match row.measured {
        Some(_) => row,
        None => Row {
            verdict: Verdict::NotMeasured("it takes minutes; `just bench-full` has it"),
            ..row
        },
    }
}

/// How often ours listed everything when something went wrong.
fn period(data: &Data, on: On) -> String {
    let period = data.metric(on, Kind::Ours, "period");
    period.map_or_else(|| "–".to_owned(), |p| nanos(p.median))
}
