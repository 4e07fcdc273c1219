//! Each metric in `docs/metrics.md` exists in a scrape, and moves when its cause occurs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pleg_tests::wait::until;

use super::agent::Agent;
use super::run::{arg, control, kubelet, remove_pod, run_pod, serve};
use crate::support::TestDir;

/// The longest wait: the runtime's `Status` is read every 30 s.
const PATIENCE: Duration = Duration::from_secs(40);

/// What may be constant while the agent runs.
const CONSTANT: [&str; 6] = [
    "pleg_build_info",
    "pleg_message_limit_bytes",
    "process_max_fds",
    "process_start_time_seconds",
    "process_threads",
    "process_virtual_memory_bytes",
];
/// What only a flood, an overload, a bug, or a certain runtime moves. A test of the crate `pleg` shows that
/// they are written (`metrics.rs`).
const RARE: [&str; 6] = [
    "pleg_backlog_events",
    "pleg_events_joined_total",
    "pleg_events_lost_total",
    "pleg_stream_panics_total",
    "pleg_streams_renewed_total",
    "pleg_unacknowledged_timestamp_seconds",
];

/// The names and descriptions in `docs/metrics.md`.
fn documented() -> BTreeMap<&'static str, &'static str> {
    let page = include_str!("../../../../../docs/metrics.md");
    let rows = page.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let (name, _, text) = (cells.next()?, cells.next()?, cells.next()?);
        name.contains('_').then_some((name, text))
    });
    rows.collect()
}

/// The values that each series had. An empty text: it did not exist at first.
#[derive(Default)]
struct Seen {
    series: BTreeMap<String, BTreeSet<String>>,
    scrapes: u32,
}

impl Seen {
    async fn scrape(&mut self, agent: &Agent) {
        let (code, _, page) = agent.get("/metrics").await;
        assert_eq!(code, 200);
        for line in page.lines().filter(|l| !l.starts_with('#')) {
            if let Some((series, value)) = line.rsplit_once(' ') {
                let known = self.series.entry(series.to_owned());
                let values = known.or_insert_with(|| {
                    let absent = (self.scrapes > 0).then(String::new);
                    absent.into_iter().collect()
                });
                values.insert(value.to_owned());
            }
        }
        self.scrapes += 1;
    }

    fn series(&self, metric: &str) -> impl Iterator<Item = (&str, &BTreeSet<String>)> {
        let of_metric = move |(series, _): &(&String, _)| name(series) == metric;
        let all = self.series.iter().filter(of_metric);
        all.map(|(series, values)| (&**series, values))
    }

    fn has_moved(&self, metric: &str) -> bool {
        self.series(metric).any(|(_, values)| values.len() > 1)
    }
}

/// The name of the metric of a series.
fn name(series: &str) -> &str {
    let name = series.split('{').next().unwrap_or(series);
    let suffixes = ["_bucket", "_sum", "_count"].iter();
    let mut histogram = suffixes.filter_map(|suffix| name.strip_suffix(suffix));
    // Upstream's counters end with `_count`, too.
    let is_histogram = |name: &&str| name.ends_with("_seconds");
    histogram.find(is_histogram).unwrap_or(name)
}

/// Scrapes until these have moved.
async fn until_moved(agent: &Agent, seen: &mut Seen, metrics: &[&str]) {
    let seen = tokio::sync::Mutex::new(seen);
    let moved = until(PATIENCE, "all have moved", || async {
        let mut seen = seen.lock().await;
        seen.scrape(agent).await;
        let all = metrics.iter().all(|metric| seen.has_moved(metric));
        all.then_some(())
    });
    if moved.await.is_err() {
        let seen = seen.lock().await;
        let still: Vec<_> = metrics.iter().filter(|m| !seen.has_moved(m)).collect();
        let (_, _, page) = agent.get("/readyz?verbose").await;
        panic!("these have not moved: {still:?}; {page}");
    }
}

#[tokio::test]
async fn each_documented_metric_exists_and_moves() {
    let dir = TestDir::new();
    let socket = dir.path("cri.sock");
    let args = ["-r", arg(&socket), "--probe-period", "1s"];
    let agent = Agent::start(&[&args[..], &["--relist-period-max", "2s"]].concat()).await;
    let mut seen = Seen::default();
    let seen = &mut seen;

    // No runtime yet.
    seen.scrape(&agent).await;
    let errors = [
        "pleg_lists_failed_total",
        "kubelet_evented_pleg_connection_error_count",
        "kubelet_runtime_operations_errors_total",
    ];
    until_moved(&agent, seen, &errors).await;
    let _sim = serve(&socket).await;
    let up = [
        "pleg_ready",
        "pleg_not_ready",
        "pleg_degraded",
        "pleg_stream_state",
        "pleg_relist_period_seconds",
        "pleg_last_list_timestamp_seconds",
        "pleg_list_interval_seconds",
    ];
    until_moved(&agent, seen, &up).await;

    // Pods come and go.
    let kubelet = kubelet(&socket, dir.root());
    let (pod, id) = run_pod(&kubelet, "one").await;
    let created = [
        "kubelet_running_pods",
        "kubelet_running_containers",
        "pleg_list_message_bytes",
    ];
    until_moved(&agent, seen, &created).await;
    kubelet.stop(&id).await.expect("stopped");
    kubelet.remove(&id).await.expect("removed");
    remove_pod(&kubelet, &pod).await;

    // A pod whose calls hang, and then the whole list.
    let (_, id) = run_pod(&kubelet, "two").await;
    control(&socket, &["pod.uid-two.hang=on"]).await;
    let hung = ["pleg_inspections_overdue", "pleg_pods_failing"];
    until_moved(&agent, seen, &hung).await;
    control(&socket, &["reset"]).await;
    // While relists fail, a pod is listed for its events, and that fails, too.
    let lists = [
        "list_pod_sandbox.fail=internal",
        "stream_pod_sandboxes.fail=internal",
    ];
    control(&socket, &lists).await;
    run_pod(&kubelet, "unlisted").await;
    until_moved(&agent, seen, &["pleg_inspections_failed_total"]).await;
    control(&socket, &["reset"]).await;
    control(&socket, &["stream_containers.hang=on"]).await;
    until_moved(&agent, seen, &["pleg_list_in_flight_seconds"]).await;
    control(&socket, &["reset"]).await;

    // Events that are irregular, and then all lost.
    control(&socket, &["sandbox.nil=#1", "containers.hole=on"]).await;
    let (_, third) = run_pod(&kubelet, "three").await;
    until_moved(&agent, seen, &["pleg_irregular_input_total"]).await;
    control(&socket, &["reset"]).await;
    control(&socket, &["drop=on"]).await;
    for id in [&id, &third] {
        kubelet.stop(id).await.expect("stopped");
    }
    // No event is expected in the first seconds of a stream.
    let lose = async {
        for n in 4.. {
            run_pod(&kubelet, &format!("lost-{n}")).await;
            pleg_tests::wait::pass_time(Duration::from_secs(2)).await;
        }
    };
    tokio::select! {
        () = lose => {}
        () = until_moved(&agent, seen, &["pleg_missed_events_total"]) => {}
    }

    // A stream that is lost, and a list that omits what exists.
    control(&socket, &["reset"]).await;
    control(&socket, &["cut"]).await;
    control(&socket, &["list.empty=#1"]).await;
    let lost = ["pleg_streams_lost_total", "pleg_undone_total"];
    until_moved(&agent, seen, &lost).await;

    // Everything else has moved meanwhile, or when the runtime reports its status.
    let documented = documented();
    let exempt = [&CONSTANT[..], &RARE].concat();
    let is_moving = |name: &&str| !exempt.contains(name);
    let moving: Vec<&str> = documented.keys().copied().filter(is_moving).collect();
    until_moved(&agent, seen, &moving).await;
    check_names_and_labels(seen, &documented);
    agent.stop().await;
}

fn check_names_and_labels(seen: &Seen, documented: &BTreeMap<&str, &str>) {
    for series in seen.series.keys() {
        let text = documented.get(name(series));
        let text = text.unwrap_or_else(|| panic!("{series} is not in docs/metrics.md"));
        let labels = series.split_once('{').map_or("", |(_, labels)| labels);
        for label in labels.split("\",").filter_map(|l| l.split_once('=')) {
            let label = label.0;
            let is_named = label == "le" || text.contains(&format!("`{label}`"));
            assert!(is_named, "the label {label} of {series} is not described");
        }
    }
    for name in documented.keys() {
        let exists = seen.series(name).next().is_some();
        assert!(exists || RARE.contains(name), "{name} does not exist");
    }
}
