//! The metrics of this crate: the kubelet's `kubelet_runtime_operations_*`, with exactly the kubelet's names, a counter
//! of irregular input from the runtime, and gauges of the size of list messages and its maximum.
//!
//! Label values are from fixed sets: never an id, a name, an endpoint or an error message.

use metrics::{
    Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use pleg_runtime::clock::Clock;
use pleg_runtime::core::Instant;

const OPERATIONS: &str = "kubelet_runtime_operations_total";
const DURATION: &str = "kubelet_runtime_operations_duration_seconds";
const ERRORS: &str = "kubelet_runtime_operations_errors_total";
const IRREGULAR: &str = "pleg_irregular_input_total";
const LIST_BYTES: &str = "pleg_list_message_bytes";
const LIMIT: &str = "pleg_message_limit_bytes";

/// Registers the descriptions of this crate's metrics with the recorder.
pub fn describe_metrics() {
    describe_counter!(
        OPERATIONS,
        "Runtime operations started, by `operation_type`."
    );
    describe_histogram!(
        DURATION,
        Unit::Seconds,
        "Duration of runtime operations, by `operation_type`."
    );
    describe_counter!(
        ERRORS,
        "Runtime operations that failed or were cancelled, by `operation_type`."
    );
    describe_gauge!(
        LIST_BYTES,
        "The largest message of the last full list, by `operation_type`. A list with a message above the limit fails."
    );
    describe_gauge!(LIMIT, "The largest message that is received.");
    describe_counter!(
        IRREGULAR,
        "Missing or invalid values in responses and events of the runtime, by `kind`; they are ignored."
    );
}

/// An operation: the name of its CRI call, and the value of the kubelet's metric label `operation_type`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    pub(crate) name: &'static str,
    label: &'static str,
}

impl Operation {
    pub(crate) const VERSION: Self = Self::new("Version", "version");
    pub(crate) const LIST_SANDBOXES: Self = Self::new("ListPodSandbox", "list_podsandbox");
    pub(crate) const LIST_CONTAINERS: Self = Self::new("ListContainers", "list_containers");
    pub(crate) const SANDBOX_STATUS: Self = Self::new("PodSandboxStatus", "podsandbox_status");
    pub(crate) const CONTAINER_STATUS: Self = Self::new("ContainerStatus", "container_status");
    pub(crate) const EVENTS: Self = Self::new("GetContainerEvents", "get_container_events");

    pub(crate) const RUN_SANDBOX: Self = Self::new("RunPodSandbox", "run_podsandbox");
    pub(crate) const STOP_SANDBOX: Self = Self::new("StopPodSandbox", "stop_podsandbox");
    pub(crate) const REMOVE_SANDBOX: Self = Self::new("RemovePodSandbox", "remove_podsandbox");
    pub(crate) const UPDATE_SANDBOX: Self =
        Self::new("UpdatePodSandboxResources", "update_podsandbox_resources");
    pub(crate) const CREATE_CONTAINER: Self = Self::new("CreateContainer", "create_container");
    pub(crate) const START_CONTAINER: Self = Self::new("StartContainer", "start_container");
    pub(crate) const STOP_CONTAINER: Self = Self::new("StopContainer", "stop_container");
    pub(crate) const REMOVE_CONTAINER: Self = Self::new("RemoveContainer", "remove_container");
    pub(crate) const UPDATE_CONTAINER: Self =
        Self::new("UpdateContainerResources", "update_container");
    pub(crate) const REOPEN_LOG: Self = Self::new("ReopenContainerLog", "reopen_container_log");
    pub(crate) const EXEC_SYNC: Self = Self::new("ExecSync", "exec_sync");
    pub(crate) const STATUS: Self = Self::new("Status", "status");
    pub(crate) const RUNTIME_CONFIG: Self = Self::new("RuntimeConfig", "runtime_config");
    pub(crate) const UPDATE_RUNTIME_CONFIG: Self =
        Self::new("UpdateRuntimeConfig", "update_runtime_config");
    pub(crate) const IMAGE_STATUS: Self = Self::new("ImageStatus", "image_status");
    pub(crate) const LIST_IMAGES: Self = Self::new("ListImages", "list_images");
    pub(crate) const PULL_IMAGE: Self = Self::new("PullImage", "pull_image");
    pub(crate) const REMOVE_IMAGE: Self = Self::new("RemoveImage", "remove_image");
    pub(crate) const IMAGE_FS_INFO: Self = Self::new("ImageFsInfo", "image_fs_info");

    /// A call that an embedder makes with `CriClient::call`, because `CriClient` has no method for it.
    pub(crate) const fn other(name: &'static str) -> Self {
        Self::new(name, "other")
    }

    const fn new(name: &'static str, label: &'static str) -> Self {
        Self { name, label }
    }
}

/// Sets two gauges: the size of the largest message of a list of the whole node, and `CriConfig::message_limit`.
pub(crate) fn listed(operation: Operation, bytes: usize, limit: usize) {
    gauge!(LIST_BYTES, "operation_type" => operation.label).set(bytes as f64);
    gauge!(LIMIT).set(limit as f64);
}

/// Measures an operation in progress. Counts the operation at its start, so that a hanging operation is visible at
/// once. Records duration and failure when dropped, so that a cancelled operation is visible as well.
#[derive(Debug)]
pub(crate) struct Measurement {
    operation: Operation,
    clock: Clock,
    began: Instant,
    /// True if the operation counts as failed when this measurement is dropped.
    pub(crate) failed: bool,
}

impl Measurement {
    pub(crate) fn begin(operation: Operation, clock: Clock) -> Self {
        counter!(OPERATIONS, "operation_type" => operation.label).increment(1);
        Self {
            operation,
            clock,
            began: clock.now(),
            failed: true,
        }
    }
}

impl Drop for Measurement {
    fn drop(&mut self) {
        let seconds = self.clock.now().since(self.began).as_secs_f64();
        histogram!(DURATION, "operation_type" => self.operation.label).record(seconds);
        if self.failed {
            counter!(ERRORS, "operation_type" => self.operation.label).increment(1);
        }
    }
}

/// The kinds of irregular input from the runtime. Such input is expected and counted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Irregular {
    /// A row, a status or an event without an id; it is dropped.
    NoId,
    /// An event without a sandbox status.
    NoSandboxStatus,
    /// An event, other than DELETED, without a status of the sandbox or container that it is about.
    NoSubjectStatus,
    /// A state or an event type whose number is not in the CRI.
    UnknownEnumValue,
    /// A timestamp outside of the plausible range.
    InvalidTime,
    /// An address that is not an IP address.
    InvalidAddress,
    /// Labels or annotations of an object that together are larger than `MAX_LABELS` in `convert.rs`.
    LabelsTooLarge,
    /// A label or annotation that is not valid UTF-8; it is dropped.
    InvalidLabel,
}

impl Irregular {
    pub(crate) fn count(self) {
        let kind = match self {
            Self::NoId => "no_id",
            Self::NoSandboxStatus => "no_sandbox_status",
            Self::NoSubjectStatus => "no_subject_status",
            Self::UnknownEnumValue => "unknown_enum_value",
            Self::InvalidTime => "invalid_time",
            Self::InvalidAddress => "invalid_address",
            Self::LabelsTooLarge => "labels_too_large",
            Self::InvalidLabel => "invalid_label",
        };
        counter!(IRREGULAR, "kind" => kind).increment(1);
    }
}
