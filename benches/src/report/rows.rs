//! The tables of the page, as data.

use super::data::Figure::{self, Difference, EventRate, Kib, PerHour, Quotient, Sum, Value};
use super::data::SampleFilter;
use super::format::{Unit, bytes, count, nanos};
use crate::harness::Workload::{
    Cut, Dropping, ExitedContainers, Flapping, Flood, Frozen, HungPod, Idle, Late, Lifecycles,
    Lossy, Memory, OwnWrites, Probed, Reads, Relists, Reset, Restarts, SilentStream, SlowList,
    StalledConsumer, Storm,
};
use crate::subject::Kind::{self, Calls, Decode, Drain, Generic, Ours, Polling, Statuses};

/// A table.
pub(super) struct Table {
    pub(super) title: &'static str,
    pub(super) groups: &'static [Group],
}

/// Rows of the same workload.
pub(super) struct Group {
    pub(super) title: &'static str,
    pub(super) filter: SampleFilter,
    pub(super) rows: &'static [Row],
}

/// A figure of each subject, and ratios of two subjects.
pub(super) struct Row {
    pub(super) title: &'static str,
    pub(super) figure: Figure,
    pub(super) unit: Unit,
    /// Each is the figure of the first subject divided by that of the second.
    pub(super) ratios: &'static [(Kind, Kind)],
}

const fn row(title: &'static str, figure: Figure, unit: Unit) -> Row {
    Row {
        title,
        figure,
        unit,
        ratios: &[],
    }
}

impl Row {
    const fn ratios(mut self, ratios: &'static [(Kind, Kind)]) -> Self {
        self.ratios = ratios;
        self
    }
}

macro_rules! samples {
    ($workload:pat) => {
        SampleFilter::new(|workload| matches!(workload, $workload))
    };
}

macro_rules! own_writes {
    ($title:literal, $parallel:literal, $latency:literal) => {
        group(
            $title,
            samples!(OwnWrites {
                parallel: $parallel,
                ..
            })
            .latency($latency),
            OWN_WRITES,
        )
    };
}

const fn group(title: &'static str, filter: SampleFilter, rows: &'static [Row]) -> Group {
    Group {
        title,
        filter,
        rows,
    }
}

const IDLE: &[Row] = &[
    row("CPU", PerHour("subject_cpu"), nanos).ratios(&[
        (Generic, Ours),
        (Polling, Ours),
        (Generic, Calls),
    ]),
    row("CPU of the runtime", PerHour("runtime_cpu"), nanos).ratios(&[(Generic, Ours)]),
    row("calls", PerHour("calls_unary"), count).ratios(&[(Generic, Ours)]),
    row("wake-ups", PerHour("subject_woken"), count).ratios(&[(Generic, Ours)]),
    row(
        "resident memory of the process",
        Kib("subject_resident_kib"),
        bytes,
    ),
    row("its peak", Kib("subject_peak_kib"), bytes),
];

const OWN_WRITES: &[Row] = &[
    row("calls per read", Value("calls_per_read"), count).ratios(&[(Ours, Generic)]),
    row("read, p50", Value("read_p50"), nanos).ratios(&[(Generic, Ours)]),
    row("read, p99", Value("read_p99"), nanos).ratios(&[(Generic, Ours)]),
    row("CPU per read, with its write", Value("cpu_per_read"), nanos).ratios(&[(Ours, Generic)]),
    row("CPU of the runtime", Value("runtime_cpu_per_read"), nanos).ratios(&[(Ours, Generic)]),
    row("reads without the change", Value("own_wrong_reads"), count),
];

const IDLE_110: &[Row] = &[
    row("CPU", PerHour("subject_cpu"), nanos).ratios(&[(Generic, Ours), (Generic, Calls)]),
    row("calls", PerHour("calls_unary"), count),
];

const RELIST: &[Row] = &[
    row("CPU", Value("relist_cpu"), nanos).ratios(&[(Ours, Generic), (Ours, Decode)]),
    row("duration, p50", Value("relist_p50"), nanos).ratios(&[(Ours, Decode)]),
    row("CPU of the runtime", Value("runtime_relist_cpu"), nanos),
    row("start until synced", Value("synced_in"), nanos),
];

const LARGE_RELIST: &[Row] = &[
    row("CPU", Value("relist_cpu"), nanos),
    row("duration, p50", Value("relist_p50"), nanos).ratios(&[(Ours, Generic)]),
];

const MEMORY: &[Row] = &[
    row("held", Value("held"), bytes).ratios(&[(Ours, Generic)]),
    row("held for each further pod", Value("held_more"), bytes)
        .ratios(&[(Ours, Generic), (Ours, Statuses)]),
    row(
        "allocations of an unchanged relist",
        Value("allocations"),
        count,
    )
    .ratios(&[(Ours, Generic)]),
    row("bytes of these allocations", Value("allocated"), bytes).ratios(&[(Ours, Generic)]),
];

const BOTH: &[(Kind, Kind)] = &[(Generic, Ours), (Ours, Drain)];

const CHANGES: &[Row] = &[
    row("change to visible, p50", Value("latency_p50"), nanos).ratios(BOTH),
    row("change to visible, p99", Value("latency_p99"), nanos).ratios(BOTH),
    row("decoded to visible, p50", Value("in_process_p50"), nanos),
    row("decoded to visible, p99", Value("in_process_p99"), nanos),
    row("every change, p50", Value("lag_p50"), nanos).ratios(&[(Generic, Ours)]),
    row("every change, p99", Value("lag_p99"), nanos).ratios(&[(Generic, Ours)]),
    row(
        "stale pod-time per minute",
        Value("stale_per_minute"),
        nanos,
    )
    .ratios(&[(Generic, Ours)]),
    row("CPU per event", Quotient("subject_cpu", "events"), nanos)
        .ratios(&[(Ours, Drain), (Ours, Generic)]),
    row(
        "CPU of the runtime per event",
        Quotient("runtime_cpu", "events"),
        nanos,
    ),
    row("calls per event", Quotient("calls_unary", "events"), count),
    row("containers wrong afterwards", Sum("lost", "ghosts"), count),
];

const STORM: &[Row] = &[
    row("until the cache shows it", Value("consistent"), nanos).ratios(BOTH),
    row(
        "after the last event was sent",
        Difference("consistent", "sent_in"),
        nanos,
    )
    .ratios(&[(Ours, Drain)]),
    row("CPU", Value("subject_cpu"), nanos).ratios(&[(Generic, Ours)]),
    row("containers wrong afterwards", Sum("lost", "ghosts"), count),
];

const SLOW_STORM: &[Row] =
    &[row("until the cache shows it", Value("consistent"), nanos).ratios(&[(Generic, Ours)])];

const DROPPING: &[Row] = &[
    row("until the cache shows it", Value("consistent"), nanos),
    row("events dropped", Value("events_dropped"), count),
    row("containers wrong afterwards", Sum("lost", "ghosts"), count),
];

const CUT: &[Row] = &[
    row("the change is unseen for", Value("stale"), nanos).ratios(&[(Generic, Ours)]),
    row("until every pod is verified", Value("verified"), nanos),
];

const FAULTS: &[Row] = &[
    row("every change, p50", Value("lag_p50"), nanos).ratios(&[(Generic, Ours)]),
    row("every change, p99", Value("lag_p99"), nanos).ratios(&[(Generic, Ours)]),
    row(
        "stale pod-time per minute",
        Value("stale_per_minute"),
        nanos,
    )
    .ratios(&[(Generic, Ours)]),
    row("changes never seen", Value("unseen"), count),
    row("not ready for", Value("unready"), nanos),
    row("containers wrong afterwards", Sum("lost", "ghosts"), count),
];

const STALLED_CONSUMER: &[Row] = &[
    row("not ready for", Value("unready"), nanos),
    row(
        "longest wait of the runtime to send",
        Value("send_blocked"),
        nanos,
    ),
    row(
        "exits that the consumer does not receive",
        Value("ends_untold"),
        count,
    ),
    row("containers wrong afterwards", Sum("lost", "ghosts"), count),
];

const SILENT_STREAM: &[Row] = &[
    row("the change is unseen for", Value("stale"), nanos),
    row("relist period then", Value("period"), nanos),
];

const FROZEN: &[Row] = &[
    row("until it is reported", Value("noticed"), nanos),
    row("relist period then", Value("period"), nanos),
];

pub(super) const TABLES: &[Table] = &[
    Table {
        title: "An idle hour",
        groups: &[
            group("1,000 pods", samples!(Idle { .. }), IDLE),
            group("110 pods", samples!(Idle { .. }).pods(110, 1), IDLE_110),
        ],
    },
    Table {
        title: "Relist of an unchanged node",
        groups: &[
            group("110 pods", samples!(Relists { .. }).pods(110, 1), RELIST),
            group("1,000 pods", samples!(Relists { .. }), RELIST),
            group(
                "10,000 pods of 2 containers, streaming lists",
                samples!(Relists { .. }).pods(10_000, 2),
                LARGE_RELIST,
            ),
            group(
                "500 pods of 10 containers",
                samples!(Relists { .. }).pods(500, 10),
                RELIST,
            ),
            group(
                "1,000 pods and 18,500 exited containers, streaming lists",
                samples!(ExitedContainers { .. }),
                RELIST,
            ),
        ],
    },
    Table {
        title: "Memory of a settled node",
        groups: &[
            group("1,000 pods", samples!(Memory), MEMORY),
            group(
                "500 pods of 10 containers",
                samples!(Memory).pods(500, 10),
                MEMORY,
            ),
        ],
    },
    Table {
        title: "Pod workers read after their own changes, 1,000 pods",
        groups: &[
            own_writes!("1 worker, 0 ms per call", 1, 0),
            own_writes!("10 workers, 0 ms per call", 10, 0),
            own_writes!("100 workers, 0 ms per call", 100, 0),
            own_writes!("1 worker, 5 ms per call", 1, 5),
            own_writes!("10 workers, 5 ms per call", 10, 5),
            own_writes!("100 workers, 5 ms per call", 100, 5),
            own_writes!("1 worker, 50 ms per call", 1, 50),
            own_writes!("10 workers, 50 ms per call", 10, 50),
            own_writes!("100 workers, 50 ms per call", 100, 50),
        ],
    },
    Table {
        title: "Changes, 1,000 pods",
        groups: &[
            group(
                "restarts, 100 events/s",
                samples!(Restarts { rate: 100, .. }),
                CHANGES,
            ),
            group(
                "restarts, 1,000 events/s",
                samples!(Restarts { rate: 1000, .. }),
                CHANGES,
            ),
            group(
                "restarts, 10,000 events/s",
                samples!(Restarts { rate: 10_000, .. }),
                CHANGES,
            ),
            group(
                "1 pod/s created and removed",
                samples!(Lifecycles {
                    per_ten_seconds: 10,
                    ..
                }),
                CHANGES,
            ),
            group(
                "16 pods/s created and removed",
                samples!(Lifecycles {
                    per_ten_seconds: 160,
                    ..
                }),
                CHANGES,
            ),
            group(
                "events as fast as they are read",
                samples!(Flood { .. }),
                &[row("events per second", EventRate, count).ratios(&[(Ours, Drain)])],
            ),
            group(
                "reads of the cache",
                samples!(Reads),
                &[
                    row("p99, idle node", Value("read_quiet_p99"), nanos),
                    row("p99, 2,000 events/s", Value("read_busy_p99"), nanos),
                ],
            ),
        ],
    },
    Table {
        title: "1,000 pods die at once",
        groups: &[
            group("0 ms per call", samples!(Storm), STORM),
            group("1 ms per call", samples!(Storm).latency(1), SLOW_STORM),
            group(
                "the runtime drops events that are not read in time (CRI-O)",
                samples!(Dropping),
                DROPPING,
            ),
        ],
    },
    Table {
        title: "Faults, 1,000 pods",
        groups: &[
            group(
                "connections cut, and one change meanwhile",
                samples!(Cut { down_ms: 0 }),
                CUT,
            ),
            group(
                "runtime down for 0.4 s, and one change meanwhile",
                samples!(Cut { down_ms: 400 }),
                CUT,
            ),
            group(
                "event stream reset, and one change meanwhile",
                samples!(Reset),
                CUT,
            ),
            group(
                "event stream silent, and one change",
                samples!(SilentStream { .. }),
                SILENT_STREAM,
            ),
            group("runtime frozen", samples!(Frozen { .. }), FROZEN),
            group(
                "runtime frozen, probe every second",
                samples!(Probed { .. }),
                FROZEN,
            ),
            group(
                "one pod hangs, 100 events/s of the others",
                samples!(HungPod { .. }),
                FAULTS,
            ),
            group(
                "lists take 5 s more, 100 events/s",
                samples!(SlowList { .. }),
                FAULTS,
            ),
            group(
                "connections cut once a second, 100 events/s",
                samples!(Flapping { .. }),
                FAULTS,
            ),
            group(
                "1 % of events lost and 1 % duplicated, 400 events/s",
                samples!(Lossy { .. }),
                FAULTS,
            ),
            group(
                "10 % of events up to 2 s late, 400 events/s",
                samples!(Late { .. }),
                FAULTS,
            ),
            group(
                "the consumer does not read announcements, 1,000 events/s",
                samples!(StalledConsumer { .. }),
                STALLED_CONSUMER,
            ),
        ],
    },
];
