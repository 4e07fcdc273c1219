//! The peers side by side: one column for each, one line for each figure.

use std::fmt::Write as _;

use super::format::{Unit, count, nanos};
use super::query::{Data, Figure, On, on};
use super::targets::{
    audits, bloat, cut, dropping, fast_churn, fastest_churn, flapping, frozen, hung_for_long,
    hung_pod, idle, late, lossy, memory, probed, reset, slow_churn, slow_list, stall, stalled,
    storm,
};
use crate::harness::Workload;
use crate::peer::Kind;
use crate::results::Sample;

const PEERS: [Kind; 6] = [
    Kind::Drain,
    Kind::Generic,
    Kind::BestGeneric,
    Kind::Evented,
    Kind::Hint,
    Kind::Ours,
];

/// A table that is being written.
struct Table<'a> {
    data: &'a Data,
    out: &'a mut String,
}

/// All of them.
pub(super) fn write(data: &Data, out: &mut String) {
    let names: Vec<&str> = PEERS.iter().map(|p| p.name()).collect();
    let _ = writeln!(
        out,
        "| | {} |\n| --- |{}",
        names.join(" | "),
        " --- |".repeat(PEERS.len())
    );
    let mut table = Table { data, out };
    at_rest(&mut table);
    busy(&mut table);
    in_trouble(&mut table);
}

impl Table<'_> {
    /// A line, if anybody has that figure.
    fn line(&mut self, what: &str, work: On, figure: Figure<'_>, unit: Unit) {
        let cell = |&peer: &Kind| {
            let of = self.data.estimate(work, peer, figure);
            of.map_or_else(|| "–".to_owned(), |of| unit(of.median))
        };
        self.cells(what, PEERS.iter().map(cell).collect());
    }

    /// The same, of what came out worst.
    fn worst(&mut self, what: &str, work: On, figure: Figure<'_>, unit: Unit) {
        let cell = |&peer: &Kind| {
            let of = self.data.values(work, peer, figure).into_iter();
            of.reduce(f64::max).map_or_else(|| "–".to_owned(), unit)
        };
        self.cells(what, PEERS.iter().map(cell).collect());
    }

    fn cells(&mut self, what: &str, cells: Vec<String>) {
        if cells.iter().any(|c| c != "–") {
            let _ = writeln!(self.out, "| {what} | {} |", cells.join(" | "));
        }
    }

    /// A line of what was measured under that name.
    fn named(&mut self, what: &str, work: On, name: &str, unit: Unit) {
        self.line(what, work, &|s| s.get(name), unit);
    }
}

fn at_rest(table: &mut Table<'_>) {
    let (lists, rest, held) = (on(audits, 1000), on(idle, 1000), on(memory, 1000));
    table.named("CPU of one full list, all of it", lists, "audit_cpu", nanos);
    table.named("… of the runtime", lists, "runtime_audit_cpu", nanos);
    table.named(
        "CPU of one full list with 18,500 containers more that have ended, in pages",
        on(bloat, 1000),
        "audit_cpu",
        nanos,
    );
    table.named(
        "from the start until it knows what exists",
        lists,
        "synced_in",
        nanos,
    );
    let hour =
        |name: &'static str| move |s: &Sample| Some(s.get(name)? * 3600.0 / s.get("seconds")?);
    table.line(
        "idle for ten minutes, given for an hour: CPU",
        rest,
        &hour("peer_cpu"),
        nanos,
    );
    table.line("… of the runtime", rest, &hour("runtime_cpu"), nanos);
    table.line("… calls", rest, &hour("calls_unary"), count);
    table.line("… times woken up", rest, &hour("peer_woken"), count);
    table.named("bytes held", held, "held", count);
    table.named("… for each pod more", held, "held_more", count);
    table.named(
        "allocations of one unchanged list",
        held,
        "allocations",
        count,
    );
}

fn one_lifecycle(w: &Workload) -> bool {
    matches!(
        w,
        Workload::Lifecycles {
            per_ten_seconds: 10,
            ..
        }
    )
}

fn sixteen_lifecycles(w: &Workload) -> bool {
    matches!(
        w,
        Workload::Lifecycles {
            per_ten_seconds: 160,
            ..
        }
    )
}

const STALE: &str = "… stale: pod-time a minute";

fn busy(table: &mut Table<'_>) {
    let each = |name: &'static str| move |s: &Sample| Some(s.get(name)? / s.get("events")?);
    for (what, work) in [
        ("100 events/s", on(slow_churn, 1000)),
        ("1,000 events/s", on(fast_churn, 1000)),
        ("10,000 events/s", on(fastest_churn, 1000)),
        ("1 pod a second comes and goes", on(one_lifecycle, 1000)),
        ("16 pods a second come and go", on(sixteen_lifecycles, 1000)),
    ] {
        let first = format!("{what}: change to visible, p50");
        table.named(&first, work, "latency_p50", nanos);
        table.named("… p99", work, "latency_p99", nanos);
        table.named(
            "… of all changes, those that others overtook, too, p50",
            work,
            "lag_p50",
            nanos,
        );
        table.named("… p99", work, "lag_p99", nanos);
        table.named(STALE, work, "stale_per_minute", nanos);
        table.line("… CPU per event", work, &each("peer_cpu"), nanos);
        table.line("… of the runtime", work, &each("runtime_cpu"), nanos);
        table.line("… calls per event", work, &each("calls_unary"), count);
        table.line(
            "… containers lost or ghosts afterwards",
            work,
            &|s| Some(s.get("lost")? + s.get("ghosts")?),
            count,
        );
    }
    table.named(
        "1,000 pods die: until the cache shows it",
        on(storm, 1000),
        "consistent",
        nanos,
    );
    table.line(
        "… after the last event was sent",
        on(storm, 1000),
        &|s| Some(s.get("consistent")? - s.get("sent_in")?),
        nanos,
    );
    table.named("… CPU", on(storm, 1000), "peer_cpu", nanos);
    let slow = On {
        latency: 1,
        ..on(storm, 1000)
    };
    table.named("… at 1 ms a call", slow, "consistent", nanos);
    let drops = on(dropping, 1000);
    table.worst(
        "the same, the runtime drops what does not fit (CRI-O): the worst run (given up after 20 s)",
        drops,
        &|s| s.get("consistent").or_else(|| s.get("gave_up")),
        nanos,
    );
    table.worst(
        "… most events dropped in a run",
        drops,
        &|s| s.get("events_dropped"),
        count,
    );
    table.line(
        "… containers lost or ghosts afterwards",
        drops,
        &|s| Some(s.get("lost")? + s.get("ghosts")?),
        count,
    );
}

fn in_trouble(table: &mut Table<'_>) {
    table.named(
        "a change that a cut swallowed: unseen for (one pod: its pod-time)",
        on(cut, 1000),
        "stale",
        nanos,
    );
    table.named(
        "… that a reset of the event stream swallowed",
        on(reset, 1000),
        "stale",
        nanos,
    );
    let still = on(stall, 1000);
    table.named(
        "a change while the stream stands still: unseen for",
        still,
        "stale",
        nanos,
    );
    table.named("… period of its lists then", still, "period", nanos);
    for (what, work) in [
        (
            "one pod hangs, 100 events/s of the others",
            on(hung_pod, 1000),
        ),
        (
            "one pod hangs for minutes, 100 events/s of the others",
            on(hung_for_long, 1000),
        ),
        ("a list takes 5 s more, 100 events/s", on(slow_list, 1000)),
        ("cut once a second, 100 events/s", on(flapping, 1000)),
        ("1 % lost and 1 % doubled, 400 events/s", on(lossy, 1000)),
        (
            "10 % told up to 2 s late and out of order, 400 events/s",
            on(late, 1000),
        ),
    ] {
        let during = table.data.during(work);
        let first = format!("{what}{during}: change to visible, all changes, p50");
        table.named(&first, work, "lag_p50", nanos);
        table.named("… p99", work, "lag_p99", nanos);
        table.named(STALE, work, "stale_per_minute", nanos);
        table.named("… changes not seen by the end", work, "unseen", count);
        table.named("… said to be not ready for", work, "unready", nanos);
    }
    let untaken = on(stalled, 1000);
    table.named(
        "nobody takes what is announced, 1,000 events/s: said to be not ready for",
        untaken,
        "unready",
        nanos,
    );
    table.line(
        "… part of the ends that it is not told of when it takes what is there (ours says that some are missing)",
        untaken,
        // Of the four events of a restart one is an end.
        &|s| Some(s.get("ends_untold")? / (s.get("events")? / 4.0)),
        count,
    );
    table.line(
        "… containers lost or ghosts in the cache afterwards",
        untaken,
        &|s| Some(s.get("lost")? + s.get("ghosts")?),
        count,
    );
    let dead = on(frozen, 1000);
    table.named(
        "a frozen runtime: until it says that something is wrong",
        dead,
        "noticed",
        nanos,
    );
    table.named("… period of its lists then", dead, "period", nanos);
    table.named(
        "… with a liveness probe, once a second",
        on(probed, 1000),
        "noticed",
        nanos,
    );
}
