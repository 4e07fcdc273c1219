//! What can be found on the host: code, layer, severity, and which findings it explains where both are found.

use crate::picture::finding::Codes;
pub(super) use crate::picture::finding::Kind;
use crate::picture::finding::{Layer, Severity};
use Layer::{Host, Kubelet, Pod, Runtime};
use Severity::{Critical, Info, Warning};

const NOTHING: Codes = &[];
/// The findings about calls that a cause on the host may explain.
const CALLS: Codes = &[
    "runtime_silent",
    "list_slow",
    "list_failed",
    "status_slow",
    "pods_hung",
    "pods_failing",
];
/// What a runtime or a node explains that lacks CPU, memory, threads or a disk.
pub(super) const STARVED: Codes = &[
    "runtime_silent",
    "runtime_unreachable",
    "list_slow",
    "list_failed",
    "status_slow",
    "pods_hung",
    "pods_failing",
    "daemon_blocked",
    "daemon_restarted",
    "runc_hangs",
    "shim_blocked",
    "shim_zombie",
    "init_gone",
    "container_blocked",
    "blocked_tasks",
    "kubelet_pleg_unhealthy",
];
/// What a pod explains that does not react.
const OF_POD: Codes = &[
    "status_slow",
    "pods_hung",
    "pods_failing",
    "init_gone",
    "shim_zombie",
    "runc_hangs",
];
/// The same of a shim that does not reap, which is itself among the former.
const OF_ZOMBIE: Codes = &["status_slow", "pods_hung", "pods_failing", "init_gone"];
/// What a runtime explains that has forgotten its containers.
const LOST: Codes = &[
    "shim_orphaned",
    "init_gone",
    "pods_failing",
    "status_slow",
    "shim_missing",
];

/// What follows from the lists of the runtime. If the lists are old, nothing may follow.
pub(crate) const FROM_LISTS: Codes = &[
    "ended_container_runs",
    "shim_missing",
    "shim_orphaned",
    "init_gone",
];

pub(super) const MOUNT_HANGS: Kind = Kind("mount_hangs", Host, Critical, STARVED);
pub(super) const MOUNT_SLOW: Kind = Kind("mount_slow", Host, Info, NOTHING);
pub(super) const DISK_READONLY: Kind = Kind("disk_readonly", Host, Critical, STARVED);
pub(super) const DISK_FULL: Kind = Kind("disk_full", Host, Critical, STARVED);
pub(super) const DISK_INODES: Kind = Kind("disk_inodes", Host, Critical, STARVED);
pub(super) const DAEMON_CPU: Kind = Kind("daemon_cpu_limit", Host, Warning, STARVED);
pub(super) const DAEMON_MEMORY: Kind = Kind("daemon_memory_limit", Host, Warning, STARVED);
pub(super) const DAEMON_PIDS: Kind = Kind("daemon_pids_limit", Host, Warning, STARVED);
pub(super) const HOST_FILES: Kind = Kind("host_descriptors", Host, Warning, CALLS);
pub(super) const HOST_PIDS: Kind = Kind("host_pids", Host, Warning, CALLS);
pub(super) const IO_PRESSURE: Kind = Kind("io_pressure", Host, Info, NOTHING);
pub(super) const MEMORY_PRESSURE: Kind = Kind("memory_pressure", Host, Info, NOTHING);
pub(super) const CPU_PRESSURE: Kind = Kind("cpu_pressure", Host, Info, NOTHING);
pub(super) const BLOCKED_TASKS: Kind = Kind("blocked_tasks", Host, Info, NOTHING);
pub(super) const SYSTEMD_SILENT: Kind = Kind("systemd_silent", Host, Critical, CALLS);
pub(super) const SYSTEMD_OLD: Kind = Kind("systemd_old", Host, Info, NOTHING);
pub(super) const DAEMON_STOPPED: Kind = Kind("daemon_stopped", Runtime, Critical, CALLS);
pub(super) const DAEMON_FROZEN: Kind = Kind("daemon_frozen", Runtime, Critical, CALLS);
pub(super) const DAEMON_BLOCKED: Kind = Kind("daemon_blocked", Runtime, Warning, CALLS);
pub(super) const DAEMON_FILES: Kind = Kind("daemon_descriptors", Runtime, Warning, CALLS);
pub(super) const DAEMON_RESTARTED: Kind = Kind("daemon_restarted", Runtime, Info, NOTHING);
pub(super) const RUNC_HANGS: Kind = Kind("runc_hangs", Runtime, Critical, CALLS);
pub(super) const ENDED_RUNS: Kind = Kind("ended_container_runs", Pod, Critical, LOST);
pub(super) const SHIM_STOPPED: Kind = Kind("shim_stopped", Pod, Critical, OF_POD);
pub(super) const FROZEN: Kind = Kind("container_frozen", Pod, Critical, OF_POD);
pub(super) const SHIM_BLOCKED: Kind = Kind("shim_blocked", Pod, Critical, OF_POD);
pub(super) const CONTAINER_BLOCKED: Kind = Kind("container_blocked", Pod, Warning, OF_POD);
pub(super) const SHIM_MISSING: Kind = Kind("shim_missing", Pod, Warning, OF_POD);
pub(super) const SHIM_ORPHANED: Kind = Kind("shim_orphaned", Pod, Warning, NOTHING);
pub(super) const SHIM_ZOMBIE: Kind = Kind("shim_zombie", Pod, Warning, OF_ZOMBIE);
pub(super) const INIT_GONE: Kind = Kind("init_gone", Pod, Critical, NOTHING);
pub(super) const KUBELET_OTHER: Kind = Kind("kubelet_other_runtime", Kubelet, Warning, NOTHING);
pub(super) const KUBELET_STOPPED: Kind = Kind("kubelet_stopped", Kubelet, Critical, NOTHING);
pub(super) const KUBELET_PLEG: Kind = Kind("kubelet_pleg_unhealthy", Kubelet, Critical, NOTHING);
pub(super) const KUBELET_UNHEALTHY: Kind = Kind("kubelet_unhealthy", Kubelet, Warning, NOTHING);
pub(super) const KUBELET_SLOW: Kind = Kind("kubelet_relist_slow", Kubelet, Warning, NOTHING);
