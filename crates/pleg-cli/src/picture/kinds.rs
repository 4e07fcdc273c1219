//! What can be found about the generator, the runtime and pods.

use super::finding::{Codes, Kind, Layer, Severity};
use Layer::{Calls, Host, Kubelet, Network, Pod, Runtime, Stream};
use Severity::{Critical, Info, Warning};

const NOTHING: Codes = &[];
/// What follows if the runtime does not answer.
const ANSWERS: Codes = &[
    "list_slow",
    "list_failed",
    "status_slow",
    "pods_hung",
    "pods_failing",
    "stream_down",
    "never_listed",
    "stale",
];
/// What follows if lists fail or hang.
const LISTED: Codes = &["never_listed", "stale"];
/// What follows from large answers.
const LISTS: Codes = &["list_failed", "list_slow"];
const SIZE: Codes = &["list_slow", "list_large"];

pub(super) const NEVER_LISTED: Kind = Kind("never_listed", Calls, Critical, NOTHING);
pub(super) const STALE: Kind = Kind("stale", Calls, Critical, NOTHING);
pub(super) const STALLED: Kind = Kind("stalled", Kubelet, Critical, NOTHING);
pub(super) const CLOSED: Kind = Kind("closed", Kubelet, Critical, NOTHING);
pub(super) const NOT_EXAMINED: Kind = Kind("not_examined", Runtime, Warning, ANSWERS);
pub(super) const RUNTIME_SILENT: Kind = Kind("runtime_silent", Runtime, Critical, ANSWERS);
pub(super) const UNREACHABLE: Kind = Kind("runtime_unreachable", Runtime, Critical, ANSWERS);
pub(super) const RUNTIME_NOT_READY: Kind = Kind("runtime_not_ready", Runtime, Critical, NOTHING);
pub(super) const NETWORK_NOT_READY: Kind = Kind("network_not_ready", Network, Critical, NOTHING);
pub(super) const CLOCK_STEP: Kind = Kind("clock_step", Host, Warning, NOTHING);
pub(super) const LIST_FAILED: Kind = Kind("list_failed", Calls, Critical, LISTED);
pub(super) const LIST_SLOW: Kind = Kind("list_slow", Calls, Warning, LISTED);
pub(super) const LIST_LARGE: Kind = Kind("list_large", Calls, Critical, LISTS);
pub(super) const FILTERS_IGNORED: Kind = Kind("filters_ignored", Calls, Warning, &["list_slow"]);
pub(super) const DEAD_CONTAINERS: Kind = Kind("dead_containers", Calls, Warning, SIZE);
pub(super) const DEAD_SANDBOXES: Kind = Kind("dead_sandboxes", Calls, Warning, SIZE);
pub(super) const STREAM_NOT_EXAMINED: Kind = Kind("stream_not_examined", Stream, Info, NOTHING);
pub(super) const STREAM_DISABLED: Kind = Kind("stream_disabled", Stream, Info, NOTHING);
pub(super) const STREAM_DOWN: Kind = Kind("stream_down", Stream, Warning, NOTHING);
pub(super) const STREAM_SILENT: Kind = Kind("stream_silent", Stream, Warning, &["stream_lossy"]);
pub(super) const STREAM_LOSSY: Kind = Kind("stream_lossy", Stream, Warning, NOTHING);
pub(super) const BACKLOG: Kind = Kind("backlog", Kubelet, Warning, NOTHING);
pub(super) const UNACKNOWLEDGED: Kind = Kind("unacknowledged", Kubelet, Warning, NOTHING);
pub(super) const PODS_HUNG: Kind = Kind("pods_hung", Pod, Critical, NOTHING);
pub(super) const PODS_FAILING: Kind = Kind("pods_failing", Pod, Warning, NOTHING);
pub(super) const STATUS_SLOW: Kind = Kind("status_slow", Pod, Warning, NOTHING);
pub(super) const RUNS_TWICE: Kind = Kind("container_runs_twice", Pod, Critical, NOTHING);
pub(super) const SANDBOX_TWICE: Kind = Kind("sandbox_twice", Pod, Warning, NOTHING);
pub(super) const SANDBOX_EMPTY: Kind = Kind("sandbox_empty", Pod, Warning, NOTHING);
pub(super) const NOT_STARTED: Kind = Kind("container_not_started", Pod, Warning, NOTHING);
pub(super) const RESTARTS: Kind = Kind("containers_restart", Pod, Info, &["dead_containers"]);
pub(super) const NO_ADDRESS: Kind = Kind("sandbox_without_address", Network, Warning, NOTHING);
