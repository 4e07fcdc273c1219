//! Records the metrics of a generator through the facade crate `metrics`. A metric has the name of an upstream kubelet
//! metric only if it means the same; all other names begin with `pleg_`. Labels never contain a pod, container,
//! endpoint or error text. The description of a metric names its labels.

use std::time::Duration;

use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use pleg_core::{
    ContainerState, Counters, Degraded, Health, Instant, List, NotReady, SandboxState,
    StreamChange, StreamEnd, StreamState,
};
use pleg_evented::ReaderGauges;
use pleg_runtime::clock;

use crate::cache::Published;

/// Declares the names of metrics and a function that describes them.
macro_rules! metrics {
    ($(#[$doc:meta])* $visible:vis fn $describe:ident; $($name:ident: $kind:ident $key:literal $text:literal;)*) => {
        $(const $name: &str = $key;)*

        $(#[$doc])*
        $visible fn $describe() {
            $(describe!($kind $name $text);)*
        }
    };
}

macro_rules! describe {
    (counter $name:ident $text:literal) => {
        describe_counter!($name, $text)
    };
    (gauge $name:ident $text:literal) => {
        describe_gauge!($name, $text)
    };
    (histogram $name:ident $text:literal) => {
        describe_histogram!($name, $text)
    };
}

metrics! {
    /// Registers the description of the metric that counts the events dropped by [`Fifo`](crate::Fifo) when it is full.
    pub(crate) fn describe_queue;

    DISCARDED: counter "kubelet_pleg_discard_events" "Events that did not fit into the upstream queue.";
}

// There is no kubelet_pleg_relist_interval_seconds, kubelet_pleg_last_seen_seconds or
// kubelet_evented_pleg_connection_latency_seconds. Upstream's mean something else: upstream relists every second, sets
// last_seen whenever health is checked, and counts replayed events in the latency.
metrics! {
    /// Registers the descriptions of a generator's metrics with the recorder, as [`Builder::spawn`] does.
    ///
    /// [`Builder::spawn`]: crate::Builder::spawn
    pub fn describe_metrics;

    RELIST_DURATION: histogram "kubelet_pleg_relist_duration_seconds"
        "Duration of a full list, also of one that failed. Unlike the kubelet's, without the status calls for the \
         pods that changed.";
    POD_RELIST_DURATION: histogram "kubelet_pleg_pod_relist_duration_seconds"
        "Duration of a read of one pod: its lists, and the status calls that follow.";
    CONNECTED: counter "kubelet_evented_pleg_connection_success_count" "Event streams that were opened.";
    CONNECTION_ERRORS: counter "kubelet_evented_pleg_connection_error_count"
        "Event streams that ended or could not be opened.";
    RUNNING_PODS: gauge "kubelet_running_pods" "Sandboxes that are ready.";
    RUNNING_CONTAINERS: gauge "kubelet_running_containers" "Containers, by `container_state`.";
    LIST_INTERVAL: histogram "pleg_list_interval_seconds"
        "Time from the start of the last complete list to the start of the next list.";
    LAST_LIST: gauge "pleg_last_list_timestamp_seconds" "Unix time of the start of the last complete list.";
    EVENT_LATENCY: histogram "pleg_event_latency_seconds"
        "Time from the runtime's timestamp of an event to its arrival. Events from before the subscribe call, which \
         the runtime sends again, do not count.";
    MISSED: counter "pleg_missed_events_total" "Events that the stream did not deliver, by `kind`.";
    RECEIVED: counter "pleg_notifications_received_total" "Events received, by `type`.";
    EVENTS_LOST: counter "pleg_events_lost_total" "Events about more than 100,000 ids at once; a list replaces them.";
    UNDONE: counter "pleg_undone_total" "Ends and removals that later reads have undone.";
    STATUSES: counter "pleg_statuses_total" "Status calls.";
    LISTS: counter "pleg_lists_total" "Full lists.";
    LISTS_FAILED: counter "pleg_lists_failed_total" "Full lists that failed.";
    INSPECTIONS: counter "pleg_inspections_total" "Reads of single pods.";
    INSPECTIONS_FAILED: counter "pleg_inspections_failed_total" "Reads of single pods that failed.";
    PROBES: counter "pleg_probes_total" "Status calls that probed the runtime.";
    STREAMS_LOST: counter "pleg_streams_lost_total" "Event streams that were lost.";
    STREAMS_RENEWED: counter "pleg_streams_renewed_total"
        "Event streams that were ended because they reported no event while reads showed changes.";
    STREAM_PANICS: counter "pleg_stream_panics_total"
        "Panics of the event stream reader; each was followed by a new subscribe call.";
    JOINED: counter "pleg_events_joined_total" "Events joined with another event while the generator was slow.";
    PERIOD: gauge "pleg_relist_period_seconds" "The present relist period.";
    LIST_IN_FLIGHT: gauge "pleg_list_in_flight_seconds"
        "How long the full list in flight has been running; 0 if there is none.";
    STREAM_STATE: gauge "pleg_stream_state" "1 for the present `state` of the event stream, 0 for other states.";
    BACKLOG: gauge "pleg_backlog_events" "Events that wait until the generator handles them.";
    OVERDUE: gauge "pleg_inspections_overdue" "Reads of single pods that take longer than 250 ms and have not ended.";
    PODS_FAILING: gauge "pleg_pods_failing" "Pods that cannot be read.";
    UNACKNOWLEDGED: gauge "pleg_unacknowledged_timestamp_seconds"
        "When the earliest end was detected that the registered `consumer` has not acknowledged; 0 if there is none.";
    READY: gauge "pleg_ready" "1 if the generator is ready: the pods of the node are known.";
    NOT_READY: gauge "pleg_not_ready" "1 for the `reason` why the generator is not ready, 0 for other reasons.";
    DEGRADED: gauge "pleg_degraded" "1 for each `reason` why the generator is degraded, 0 for other reasons.";
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

/// Writes metrics that have changed. Stores the last written values, to compare.
#[derive(Debug, Default)]
pub(crate) struct MetricsWriter {
    counters: Option<Counters>,
    health: Option<Health>,
    last_list: Option<Instant>,
    /// The stream reader's counts at the last write: waiting events, merged events and panics.
    reader: Option<[u64; 3]>,
    /// The instant of the last write.
    at: Option<Instant>,
    /// The instant of the next write of metrics, if no change causes an earlier one.
    due: Option<Instant>,
}

/// The minimum time between two writes of the metrics. They are scraped every few seconds, while thousands of events
/// may arrive per second.
const APART: Duration = Duration::from_millis(100);
/// The period at which the gauge with the duration of the list in flight is written.
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

    /// The instant at which [`show`](Self::show) must be called even if nothing else happens: to make a write that was
    /// postponed, or because the gauge of the list in flight grows.
    pub(crate) const fn due(&self) -> Option<Instant> {
        self.due
    }

    pub(crate) fn show(
        &mut self,
        health: &Health,
        counters: &Counters,
        published: &Published,
        reader: &ReaderGauges,
        now: Instant,
    ) {
        let earliest = self.earliest(health);
        if let Some(at) = earliest.filter(|&at| now < at) {
            let is_early = self.due.is_some_and(|due| due < at);
            let is_late = self.due.is_none_or(|due| due > at);
            if is_early || is_late && self.is_outdated(health, counters, reader) {
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
        show_census(published);
        let of_reader = counts_of(reader);
        if self.reader != Some(of_reader) {
            let [waiting, joined, panics] = of_reader;
            gauge!(BACKLOG).set(waiting as f64);
            counter!(JOINED).absolute(joined);
            counter!(STREAM_PANICS).absolute(panics);
            self.reader = Some(of_reader);
        }
        // `LIST_IN_FLIGHT` grows while a list hangs, so that an outage is visible while it lasts (upstream k#87108).
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

    /// The earliest instant of the next write. The end of a list changes most values, so a write waits for a list in
    /// flight to end, at most for [`MOVES`]. So the driver of an idle node, which only lists, wakes up once per list.
    fn earliest(&self, health: &Health) -> Option<Instant> {
        let apart = self.at?.after(APART);
        let listed = health.list_in_flight.map(|since| since.after(MOVES));
        Some(listed.map_or(apart, |listed| apart.max(listed)))
    }

    /// Returns true if a write would change a metric. Ignores metrics that only grow with time.
    fn is_outdated(&self, health: &Health, counters: &Counters, reader: &ReaderGauges) -> bool {
        self.counters.as_ref() != Some(counters)
            || self.reader != Some(counts_of(reader))
            || !self.shows(health)
    }

    fn shows(&self, health: &Health) -> bool {
        let shown = self.health.as_ref();
        shown.is_some_and(|shown| shown.says_the_same(health))
    }
}

/// The stream reader's counts of waiting events, merged events and panics.
fn counts_of(reader: &ReaderGauges) -> [u64; 3] {
    [reader.waiting() as u64, reader.joined(), reader.panics()]
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

/// Counts pods and containers by state.
fn show_census(published: &Published) {
    let was_ready = SandboxState::Unknown {
        last_ready: Some(true),
    };
    let runs = |state| state == SandboxState::Ready || state == was_ready;
    let (mut pods, [mut created, mut running, mut exited, mut unknown]) = (0, [0; 4]);
    for view in published.snapshot() {
        let mut sandboxes = view.status.sandboxes.iter();
        pods += u32::from(sandboxes.any(|sandbox| runs(sandbox.state)));
        for container in &view.status.containers {
            *match container.state {
                ContainerState::Created => &mut created,
                ContainerState::Running => &mut running,
                ContainerState::Exited => &mut exited,
                _ => &mut unknown,
            } += 1;
        }
    }
    gauge!(RUNNING_PODS).set(pods);
    for (state, number) in [
        ("created", created),
        ("running", running),
        ("exited", exited),
        ("unknown", unknown),
    ] {
        // Writes zero as well. Otherwise the gauge of this state would stay at its last count, as it does upstream.
        gauge!(RUNNING_CONTAINERS, "container_state" => state).set(number);
    }
}

fn show_health(health: &Health) {
    gauge!(PERIOD).set(health.period.as_secs_f64());
    gauge!(OVERDUE).set(health.overdue as f64);
    gauge!(PODS_FAILING).set(health.failing as f64);
    let state = match &health.stream {
        StreamState::Off => "off",
        stream if stream.declined().is_some() => "off",
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
