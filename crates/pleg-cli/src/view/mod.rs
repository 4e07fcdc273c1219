//! The view of a node at one instant: its pods, the recent records, health, the event stream, and how long the
//! calls to the runtime take. `pleg top` shows it, and the agent serves it as JSON.
//!
//! A view is computed from what the generator publishes. Time is an argument, and nothing here makes a call.
//! A view is bounded: it has one page of the pods, and at most one pod in detail.

mod cost;
mod detail;
mod difference;
mod feed;
mod health;
mod model;
mod pods;
mod query;
mod series;

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use derive_more::Constructor;
use itertools::Itertools as _;
use pleg::Exit;
use pleg::core::{
    CallError, ContainerState, ContainerStatus, Health, Instant, PodStatus, PodUid, PodView,
    SandboxState, SandboxStatus, StreamState, WallTime,
};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::filter::Selector;
use crate::json::{self, utc};
use crate::meter::{Calls, is_answer};
use crate::picture::Picture;
use crate::picture::finding::{Finding, Severity};
use crate::picture::runtime::Problem;
use crate::record::{Page, Pod, Record, SYNCED};
use crate::text::{clip, lasting, lower};
pub(crate) use cost::{COMPARED_AFTER, CallCosts, Cost};
pub(crate) use detail::Detail;
use detail::MOST_HISTORY;
pub(crate) use difference::{difference, with_moments};
use feed::Feed;
pub(crate) use feed::Lines;
pub(crate) use health::{HealthView, Reason, Relist, StreamView};
pub(crate) use model::{Inputs, Model};
use pods::MOST_OF_POD;
pub(crate) use pods::{ContainerRow, ExitRow, PodRow, PodsPage};
use query::Sort;
pub(crate) use query::{MOST_ROWS, Query};
use series::{INTERVAL, interval};
pub(crate) use series::{Point, Series};

/// Names are cut to `MOST_NAME` characters, and other texts to `MOST_TEXT`: a runtime may send texts of any length.
const MOST_NAME: usize = 256;
const MOST_TEXT: usize = 1024;

/// A node at one instant. Durations are in seconds, and as of `time`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct View {
    /// The present time by the clock of the process that observes the node: UTC, RFC 3339.
    pub(crate) time: String,
    /// The time at which this process began to observe the node.
    pub(crate) since: String,
    pub(crate) node: String,
    pub(crate) runtime: String,
    pub(crate) simulated: bool,
    pub(crate) health: HealthView,
    pub(crate) relist: Relist,
    pub(crate) stream: StreamView,
    pub(crate) latency: Latency,
    pub(crate) cost: Cost,
    pub(crate) pods: PodsPage,
    pub(crate) detail: Option<Detail>,
    pub(crate) feed: FeedPage,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Latency {
    pub(crate) interval_seconds: f64,
    /// The number of the interval of the last point in each series. It grows by one with each interval.
    pub(crate) interval: u64,
    /// A complete list that takes longer than this is a finding. `reads_slow_ms`: the same for a call about one pod.
    pub(crate) lists_slow_ms: f64,
    pub(crate) reads_slow_ms: f64,
    pub(crate) lists: Vec<Point>,
    pub(crate) reads: Vec<Point>,
    /// The time from a change, by the runtime's clock, until the generator detected it.
    pub(crate) events: Vec<Point>,
}

/// The newest records that match the query, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct FeedPage {
    pub(crate) records: Vec<Record>,
    /// Lifecycle events per second, in the last ten seconds.
    pub(crate) events_per_second: f64,
    /// The time since which the feed has every record.
    pub(crate) complete_since: String,
}

fn name(text: &str) -> String {
    clip(text, MOST_NAME).into_owned()
}

/// A text such as an error message, truncated to the maximum that a view shows; `None` if it is empty.
fn long(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| clip(text, MOST_TEXT).into_owned())
}

/// The problem with the status of a sandbox or container: it could not be read, or its status call returns NotFound.
fn problem_of(error: Option<&Arc<CallError>>, is_missing: bool) -> Option<String> {
    let missing = is_missing.then(|| "listed, but its status call returns NotFound".to_owned());
    error.map_or(missing, |error| long(&error.to_string()))
}

/// The seconds since `at`. Zero if the runtime's clock is ahead.
pub(crate) fn ago(now: WallTime, at: WallTime) -> f64 {
    now.nanos_since(at).max(0) as f64 / 1e9
}

#[cfg(test)]
pub(crate) mod tests;
