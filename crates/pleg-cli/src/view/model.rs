//! The data about a node that is kept from one view to the next, and the computation of a view.

use super::*;

/// The maximum number of changed pods that are remembered until the next `tick`.
const MOST_CHANGED: usize = 10_000;
/// The threshold of the finding `list_slow`.
const LIST_SLOW_MS: f64 = 3_000.0;

/// The recent records, and the measurements for the view. The size of a model is bounded.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) feed: Feed,
    events: Series,
    changed: HashSet<PodUid>,
    /// The status calls that the generic PLEG would have made.
    statuses: Series,
}

pub(crate) struct Inputs<'a> {
    pub(crate) picture: &'a Picture,
    /// The time by the wall clock at the instant `picture.now`.
    pub(crate) wall: WallTime,
    pub(crate) pods: &'a [PodView],
    /// The exits of the containers of the pod that is shown in detail.
    pub(crate) ends: &'a [Exit],
    pub(crate) calls: &'a Calls,
}

impl Model {
    pub(crate) fn new(now: Instant, wall: WallTime) -> Self {
        Self {
            feed: Feed::new(now, wall),
            events: Series::new(now),
            changed: HashSet::new(),
            statuses: Series::new(now),
        }
    }

    pub(crate) fn record(&mut self, now: Instant, at: WallTime, record: &Record) {
        self.feed.add(now, at, record);
        if let Some(ms) = record.latency_ms {
            let latency = Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default();
            self.events.add(now, latency);
        }
        if record.is_event()
            && let Some(pod) = &record.pod
            && self.changed.len() < MOST_CHANGED
        {
            self.changed.insert(PodUid::from(pod.uid.as_str()));
        }
    }

    /// Call this once a second, as the generic PLEG lists. `ids`: how many statuses that PLEG would read of a pod.
    pub(crate) fn tick(&mut self, now: Instant, ids: impl Fn(&PodUid) -> usize) {
        for uid in self.changed.drain() {
            for _ in 0..ids(&uid) {
                self.statuses.add(now, Duration::ZERO);
            }
        }
    }

    /// The view, without the names of the node and its runtime.
    pub(crate) fn view(&self, inputs: &Inputs<'_>, query: &Query) -> View {
        let now = inputs.picture.now;
        View {
            time: utc(inputs.wall).to_string(),
            since: utc(self.feed.began_at).to_string(),
            health: HealthView::new(inputs),
            relist: Relist::new(inputs.picture),
            stream: StreamView::new(inputs.picture),
            latency: Latency {
                interval_seconds: INTERVAL.as_secs_f64(),
                interval: interval(now),
                lists_slow_ms: LIST_SLOW_MS,
                reads_slow_ms: Health::HUNG_AFTER.as_secs_f64() * 1e3,
                lists: inputs.calls.lists.points(now),
                reads: inputs.calls.reads.points(now),
                events: self.events.points(now),
            },
            cost: Cost::new(now, inputs.calls, &self.statuses),
            pods: PodsPage::new(inputs, query),
            detail: self.detail(inputs, query),
            feed: self.feed.page(now, query),
            ..View::default()
        }
    }

    fn detail(&self, inputs: &Inputs<'_>, query: &Query) -> Option<Detail> {
        if query.pod.is_empty() {
            return None;
        }
        let history = self.feed.history(&query.pod, MOST_HISTORY);
        let mut pods = inputs.pods.iter();
        // The uid in the query is from a view, so it may be truncated.
        match pods.find(|pod| name(pod.status.uid.as_str()) == query.pod) {
            Some(view) => Some(Detail::new(view, inputs, history)),
            None => Detail::gone(inputs, history),
        }
    }
}
