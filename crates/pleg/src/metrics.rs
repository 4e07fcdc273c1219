//! Metrics, through the `metrics` facade. A metric has upstream's name if it also has upstream's meaning;
//! all others begin with `pleg_`. Labels never contain a pod, container, endpoint or error text. A
//! description names the labels.

use std::time::Duration;

use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use pleg_core::{
    Counters, Degraded, Health, Instant, List, NotReady, StateCounts, StreamChange, StreamEnd,
    StreamState,
};
use pleg_evented::ReaderGauges;
use pleg_runtime::clock;

const RELIST_DURATION: &str = "kubelet_pleg_relist_duration_seconds";
const POD_RELIST_DURATION: &str = "kubelet_pleg_pod_relist_duration_seconds";
const DISCARDED: &str = "kubelet_pleg_discard_events";
const CONNECTED: &str = "kubelet_evented_pleg_connection_success_count";
const CONNECTION_ERRORS: &str = "kubelet_evented_pleg_connection_error_count";
const RUNNING_PODS: &str = "kubelet_running_pods";
const RUNNING_CONTAINERS: &str = "kubelet_running_containers";

// Upstream's kubelet_pleg_relist_interval_seconds, kubelet_pleg_last_seen_seconds and
// kubelet_evented_pleg_connection_latency_seconds mean something else: upstream relists every second, sets
// the second one whenever health is checked, and counts replayed events in the third.
const LIST_INTERVAL: &str = "pleg_list_interval_seconds";
const LAST_LIST: &str = "pleg_last_list_timestamp_seconds";
const EVENT_LATENCY: &str = "pleg_event_latency_seconds";
const MISSED: &str = "pleg_missed_events_total";
const RECEIVED: &str = "pleg_notifications_received_total";
const EVENTS_LOST: &str = "pleg_events_lost_total";
const UNDONE: &str = "pleg_undone_total";
const STATUSES: &str = "pleg_statuses_total";
const LISTS: &str = "pleg_lists_total";
const LISTS_FAILED: &str = "pleg_lists_failed_total";
const INSPECTIONS: &str = "pleg_inspections_total";
const INSPECTIONS_FAILED: &str = "pleg_inspections_failed_total";
const PROBES: &str = "pleg_probes_total";
const STREAMS_LOST: &str = "pleg_streams_lost_total";
const STREAMS_RENEWED: &str = "pleg_streams_renewed_total";
const STREAM_PANICS: &str = "pleg_stream_panics_total";
const JOINED: &str = "pleg_events_joined_total";
const PERIOD: &str = "pleg_relist_period_seconds";
const LIST_IN_FLIGHT: &str = "pleg_list_in_flight_seconds";
const STREAM_STATE: &str = "pleg_stream_state";
const BACKLOG: &str = "pleg_backlog_events";
const OVERDUE: &str = "pleg_inspections_overdue";
const PODS_FAILING: &str = "pleg_pods_failing";
const UNACKNOWLEDGED: &str = "pleg_unacknowledged_timestamp_seconds";
const READY: &str = "pleg_ready";
const NOT_READY: &str = "pleg_not_ready";
const DEGRADED: &str = "pleg_degraded";

/// Registers the descriptions of a generator's metrics with the recorder. [`Builder::spawn`] also does it.
///
/// [`Builder::spawn`]: crate::Builder::spawn
pub fn describe_metrics() {
    describe_histogram!(
        RELIST_DURATION,
        "Duration of a full list, also of one that failed. Unlike the kubelet's, without the status calls for \
         the pods that changed."
    );
    describe_histogram!(
        LIST_INTERVAL,
        "Time from the start of the last complete list to the start of the next list."
    );
    describe_histogram!(
        POD_RELIST_DURATION,
        "Duration of a read of one pod: its lists, and the status calls that follow."
    );
    describe_gauge!(
        LAST_LIST,
        "Unix time of the start of the last complete list."
    );
    describe_counter!(CONNECTED, "Event streams that were opened.");
    describe_counter!(
        CONNECTION_ERRORS,
        "Event streams that ended or could not be opened."
    );
    describe_histogram!(
        EVENT_LATENCY,
        "Time from the runtime's timestamp of an event to its arrival. Events from before the subscribe, which \
         the runtime sends again, do not count."
    );
    describe_gauge!(RUNNING_PODS, "Sandboxes that are ready.");
    describe_gauge!(RUNNING_CONTAINERS, "Containers, by `container_state`.");
    describe_counter!(MISSED, "Events that the stream did not deliver, by `kind`.");
    describe_counter!(RECEIVED, "Events received, by `type`.");
    describe_counter!(
        EVENTS_LOST,
        "Events about more than 100,000 ids at once; a list replaces them."
    );
    describe_counter!(UNDONE, "Ends and removals that later reads have undone.");
    describe_counter!(STATUSES, "Status calls.");
    describe_counter!(LISTS, "Full lists.");
    describe_counter!(LISTS_FAILED, "Full lists that failed.");
    describe_counter!(INSPECTIONS, "Reads of single pods.");
    describe_counter!(INSPECTIONS_FAILED, "Reads of single pods that failed.");
    describe_counter!(PROBES, "Status calls that probed the runtime.");
    describe_counter!(STREAMS_LOST, "Event streams that were lost.");
    describe_counter!(
        STREAMS_RENEWED,
        "Event streams that were ended because they reported no event while reads showed changes."
    );
    describe_counter!(
        STREAM_PANICS,
        "Panics of the event stream reader; each was followed by a new subscribe."
    );
    describe_counter!(
        JOINED,
        "Events joined with another event while the writer was slow."
    );
    describe_gauge!(PERIOD, "The present relist period.");
    describe_gauge!(
        LIST_IN_FLIGHT,
        "How long the full list in flight has been running; 0 if there is none."
    );
    describe_gauge!(
        STREAM_STATE,
        "1 for the present `state` of the event stream, 0 for the others."
    );
    describe_gauge!(BACKLOG, "Events that wait for the writer.");
    describe_gauge!(
        OVERDUE,
        "Reads of single pods that take longer than 250 ms and still run."
    );
    describe_gauge!(PODS_FAILING, "Pods that cannot be read.");
    describe_gauge!(
        UNACKNOWLEDGED,
        "When the earliest end was detected that the registered `consumer` has not acknowledged; 0 if there is none."
    );
    describe_gauge!(
        READY,
        "1 if the generator is ready: the pods of the node are known."
    );
    describe_gauge!(
        NOT_READY,
        "1 for the `reason` why the generator is not ready, 0 for the others."
    );
    describe_gauge!(
        DEGRADED,
        "1 for each `reason` why the generator is degraded, 0 for the others."
    );
}

/// The metric of the queue with upstream's semantics.
pub(crate) fn describe_queue() {
    describe_counter!(
        DISCARDED,
        "Events that did not fit into the upstream queue."
    );
}

/// Readiness and degraded reasons.
pub(crate) fn reasons(ready: &Result<(), NotReady>, degraded: &[Degraded]) {
    let flag = |is_set: bool| f64::from(u8::from(is_set));
    gauge!(READY).set(flag(ready.is_ok()));
    let why = ready.as_ref().err().map(NotReady::as_str);
    for code in NotReady::CODES {
        gauge!(NOT_READY, "reason" => code).set(flag(why == Some(code)));
    }
    for code in Degraded::CODES {
        let is_set = degraded.iter().any(|reason| reason.as_str() == code);
        gauge!(DEGRADED, "reason" => code).set(flag(is_set));
    }
}

pub(crate) fn discarded() {
    counter!(DISCARDED).increment(1);
}

pub(crate) fn stream_changed(change: &StreamChange) {
    match change {
        StreamChange::Subscribed { .. } => counter!(CONNECTED).increment(1),
        StreamChange::Ended { .. } => counter!(CONNECTION_ERRORS).increment(1),
    }
}

pub(crate) fn pod_read(took: Duration) {
    histogram!(POD_RELIST_DURATION).record(took);
}

/// Records the time from the runtime's timestamps of events to their arrival.
pub(crate) fn arrived(latencies: &[Duration]) {
    let latency = histogram!(EVENT_LATENCY);
    for &seconds in latencies {
        latency.record(seconds);
    }
}

/// The values that were written last, so that only changes are written.
#[derive(Debug, Default)]
pub(crate) struct MetricsWriter {
    counters: Option<Counters>,
    state_counts: Option<StateCounts>,
    health: Option<Health>,
    last_list: Option<Instant>,
    waiting: Option<usize>,
    /// When anything was last written.
    at: Option<Instant>,
    /// When to write again even if nothing else happens.
    due: Option<Instant>,
}

/// The minimum time between two writes. Metrics are scraped every few seconds, while thousands of
/// events may arrive per second.
const APART: Duration = Duration::from_millis(100);
/// How often the gauge of a list in flight is written.
const MOVES: Duration = Duration::from_secs(1);

impl MetricsWriter {
    pub(crate) fn listed(&mut self, list: &List) {
        histogram!(RELIST_DURATION).record(list.ended.since(list.began));
        if let Some(last) = self.last_list {
            histogram!(LIST_INTERVAL).record(list.began.since(last));
        }
        if list.rows.is_ok() {
            self.last_list = Some(list.began);
            let ago = list.ended.since(list.began);
            gauge!(LAST_LIST).set(clock::wall().before(ago).as_nanos() as f64 / 1e9);
        }
    }

    /// When [`show`](Self::show) must be called even if nothing else happens: a write was
    /// postponed, or a list is in flight, whose gauge grows.
    pub(crate) const fn due(&self) -> Option<Instant> {
        self.due
    }

    pub(crate) fn show(
        &mut self,
        health: &Health,
        counters: &Counters,
        state_counts: StateCounts,
        reader: &ReaderGauges,
        now: Instant,
    ) {
        let earliest = self.earliest(health);
        if let Some(at) = earliest.filter(|&at| now < at) {
            let is_early = self.due.is_some_and(|due| due < at);
            let is_late = self.due.is_none_or(|due| due > at);
            if is_early || is_late && self.is_outdated(health, counters, state_counts, reader) {
                self.due = Some(at);
            }
            return;
        }
        self.at = Some(now);
        self.due = health.list_in_flight.map(|_| now.after(MOVES));
        if self.counters.as_ref() != Some(counters) {
            show_counters(counters);
            self.counters = Some(counters.clone());
        }
        if self.state_counts != Some(state_counts) {
            show_census(state_counts);
            self.state_counts = Some(state_counts);
        }
        let waiting = reader.waiting();
        if self.waiting != Some(waiting) {
            gauge!(BACKLOG).set(waiting as f64);
            counter!(JOINED).absolute(reader.joined());
            counter!(STREAM_PANICS).absolute(reader.panics());
            self.waiting = Some(waiting);
        }
        // The gauge grows while a call hangs, so that an outage shows during the outage (upstream
        // k#87108).
        let in_flight = health
            .list_in_flight
            .map_or(0.0, |since| now.since(since).as_secs_f64());
        gauge!(LIST_IN_FLIGHT).set(in_flight);
        reasons(&health.ready(now), &health.degraded(now));
        if !self.shows(health) {
            show_health(health);
            self.show_unacknowledged(health, now);
            self.health = Some(health.clone());
        }
    }

    fn show_unacknowledged(&self, health: &Health, now: Instant) {
        let shown = self.health.iter().flat_map(|shown| &shown.unacknowledged);
        for owing in shown {
            gauge!(UNACKNOWLEDGED, "consumer" => owing.consumer.to_string()).set(0.0);
        }
        for owing in &health.unacknowledged {
            let since = clock::wall().before(now.since(owing.since)).as_nanos() as f64 / 1e9;
            gauge!(UNACKNOWLEDGED, "consumer" => owing.consumer.to_string()).set(since);
        }
    }

    /// When the next write is allowed. The end of a list changes most values, so a write waits for
    /// it: an idle node, which only lists, wakes up once. A long list is not waited for.
    fn earliest(&self, health: &Health) -> Option<Instant> {
        let apart = self.at?.after(APART);
        let listed = health.list_in_flight.map(|since| since.after(MOVES));
        Some(listed.map_or(apart, |listed| apart.max(listed)))
    }

    /// Returns true if a write would change anything. What only grows with time is not compared.
    fn is_outdated(
        &self,
        health: &Health,
        counters: &Counters,
        state_counts: StateCounts,
        reader: &ReaderGauges,
    ) -> bool {
        self.counters.as_ref() != Some(counters)
            || self.state_counts != Some(state_counts)
            || self.waiting != Some(reader.waiting())
            || !self.shows(health)
    }

    fn shows(&self, health: &Health) -> bool {
        let shown = self.health.as_ref();
        shown.is_some_and(|shown| shown.says_the_same(health))
    }
}

fn show_counters(c: &Counters) {
    for (name, n) in [
        ("created", c.events.created),
        ("started", c.events.started),
        ("stopped", c.events.stopped),
        ("deleted", c.events.deleted),
        ("other", c.events.other),
    ] {
        counter!(RECEIVED, "type" => name).absolute(n);
    }
    for (kind, n) in [
        ("container_started", c.missed.container_started),
        ("container_stopped", c.missed.container_stopped),
    ] {
        counter!(MISSED, "kind" => kind).absolute(n);
    }
    counter!(EVENTS_LOST).absolute(c.events_lost);
    counter!(UNDONE).absolute(c.undone);
    counter!(STATUSES).absolute(c.statuses);
    counter!(LISTS).absolute(c.lists);
    counter!(LISTS_FAILED).absolute(c.lists_failed);
    counter!(INSPECTIONS).absolute(c.pod_reads);
    counter!(INSPECTIONS_FAILED).absolute(c.pod_reads_failed);
    counter!(PROBES).absolute(c.probes);
    counter!(STREAMS_LOST).absolute(c.streams_lost);
    counter!(STREAMS_RENEWED).absolute(c.streams_renewed);
}

fn show_census(state_counts: StateCounts) {
    gauge!(RUNNING_PODS).set(state_counts.running_pods as f64);
    for (state, n) in [
        ("created", state_counts.created),
        ("running", state_counts.running),
        ("exited", state_counts.exited),
        ("unknown", state_counts.unknown),
    ] {
        // Also written when it is zero: upstream keeps the last count of a state (C14).
        gauge!(RUNNING_CONTAINERS, "container_state" => state).set(n as f64);
    }
}

fn show_health(health: &Health) {
    gauge!(PERIOD).set(health.period.as_secs_f64());
    gauge!(OVERDUE).set(health.overdue as f64);
    gauge!(PODS_FAILING).set(health.failing as f64);
    let state = match &health.stream {
        StreamState::Off
        | StreamState::Down {
            why: StreamEnd::Declined,
            ..
        } => "off",
        StreamState::Subscribed {
            confirmed: true, ..
        } => "confirmed",
        StreamState::Subscribed { .. } => "unconfirmed",
        StreamState::Down {
            why: StreamEnd::NeverOffered,
            ..
        } => "never_offered",
        StreamState::Down {
            why: StreamEnd::Disabled,
            ..
        } => "disabled",
        StreamState::Down { .. } => "down",
        _ => "starting",
    };
    for name in [
        "off",
        "starting",
        "unconfirmed",
        "confirmed",
        "down",
        "never_offered",
        "disabled",
    ] {
        gauge!(STREAM_STATE, "state" => name).set(f64::from(u8::from(name == state)));
    }
}

#[cfg(test)]
mod tests;
