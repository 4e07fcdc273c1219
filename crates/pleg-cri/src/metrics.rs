//! The metrics of this room: upstream's `kubelet_runtime_operations_*`, by their names to the
//! letter, and what was irregular in the runtime's answers.
//!
//! Labels are fixed words: never an id, a name, an endpoint or the text of an error.

use metrics::{Unit, counter, describe_counter, describe_histogram, histogram};
use pleg_runtime::clock::Clock;
use pleg_runtime::core::Instant;

const OPERATIONS: &str = "kubelet_runtime_operations_total";
const DURATION: &str = "kubelet_runtime_operations_duration_seconds";
const ERRORS: &str = "kubelet_runtime_operations_errors_total";
const IRREGULAR: &str = "pleg_irregular_input_total";

/// Registers the descriptions of this crate's metrics with the recorder.
pub fn describe_metrics() {
    describe_counter!(OPERATIONS, "Runtime operations begun, by type.");
    describe_histogram!(
        DURATION,
        Unit::Seconds,
        "Duration of runtime operations, by type."
    );
    describe_counter!(
        ERRORS,
        "Runtime operations that failed or were given up, by type."
    );
    describe_counter!(
        IRREGULAR,
        "Things that were missing or absurd in the runtime's answers, by kind; none was believed."
    );
}

/// An operation: the name of its call and upstream's label.
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

    const fn new(name: &'static str, label: &'static str) -> Self {
        Self { name, label }
    }
}

/// One operation under way. Counted when it begins, so that one that hangs is seen at once;
/// its duration and its failure when this is dropped, so that one that is given up is seen too.
#[derive(Debug)]
pub(crate) struct Measured {
    operation: Operation,
    clock: Clock,
    began: Instant,
    /// Whether it failed, if it is over now.
    pub(crate) failed: bool,
}

impl Measured {
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

impl Drop for Measured {
    fn drop(&mut self) {
        let took = self.clock.now().since(self.began).as_secs_f64();
        histogram!(DURATION, "operation_type" => self.operation.label).record(took);
        if self.failed {
            counter!(ERRORS, "operation_type" => self.operation.label).increment(1);
        }
    }
}

/// What was irregular in an answer (law 7: a normal input, counted).
#[derive(Clone, Copy, Debug)]
pub(crate) enum Irregular {
    /// A row, a status or an event that names nothing; it was dropped.
    NoId,
    /// An event without a sandbox status.
    NoSandboxStatus,
    /// An event, other than DELETED, whose statuses do not show its subject.
    NoSubjectStatus,
    /// A state or an event type by a number that the contract does not know.
    UnknownNumber,
    /// A time that no clock can have meant.
    AbsurdTime,
    /// An address that is none.
    AbsurdAddress,
}

impl Irregular {
    pub(crate) fn count(self) {
        let kind = match self {
            Self::NoId => "no_id",
            Self::NoSandboxStatus => "no_sandbox_status",
            Self::NoSubjectStatus => "no_subject_status",
            Self::UnknownNumber => "unknown_number",
            Self::AbsurdTime => "absurd_time",
            Self::AbsurdAddress => "absurd_address",
        };
        counter!(IRREGULAR, "kind" => kind).increment(1);
    }
}
