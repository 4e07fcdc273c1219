//! The statuses of a pod's containers.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated as Terminated,
    ContainerStateWaiting, ContainerStatus, Probe, VolumeMountStatus,
};
use pleg::core;
use pleg::{Exit, Id, WallTime};

use super::api_time;
use crate::history::restart_count;
use crate::perform::not_created;
use crate::probe::ProbeResults;
use crate::resources;

use super::{PodState, find};
use crate::spec::{UNKNOWN_EXIT_CODE, containers_in, is_sidecar, restarts, spec_of};

impl PodState<'_> {
    /// The statuses of the init containers in their order, or of the regular containers sorted by name.
    pub(super) fn statuses(&self, init: bool) -> Vec<ContainerStatus> {
        let spec = spec_of(self.pod);
        let containers = match init {
            true => spec.init_containers.as_deref().unwrap_or_default(),
            false => &*spec.containers,
        };
        let before = self.previous.and_then(|previous| match init {
            true => previous.init_container_statuses.as_deref(),
            false => previous.container_statuses.as_deref(),
        });
        let each = |container: &Container| {
            let one = One {
                state: self,
                container,
                previous: find(before.unwrap_or_default(), &container.name),
                init,
            };
            one.status()
        };
        let mut statuses: Vec<_> = containers.iter().map(each).collect();
        if !init {
            statuses.sort_by(|a, b| a.name.cmp(&b.name));
        }
        statuses
    }
}

/// A container of the specification, with the inputs of its status.
struct One<'a> {
    state: &'a PodState<'a>,
    container: &'a Container,
    previous: Option<&'a ContainerStatus>,
    init: bool,
}

impl<'a> One<'a> {
    fn status(&self) -> ContainerStatus {
        let mut instances = self.instances();
        let mut status = match instances.next() {
            Some(newest) => self.existing(newest),
            None => self.absent(),
        };
        let newest = status.container_id.as_deref();
        if let Some(older) = instances.next() {
            let state = self.state_of(older);
            status.last_state = Some(state).filter(|state| *state != ContainerState::default());
        } else if let Some(record) = self.last_record(newest) {
            status.last_state = Some(ended_state(Terminated {
                finished_at: record.finished_at.map(api_time),
                ..self.ended(&record.id, record.exit_code, &record.reason, "")
            }));
        } else if let Some(previous) = self.previous_of(&status) {
            // No earlier container of this name and no exit record of one is left: keep the reported `last_state`.
            status.last_state.clone_from(&previous.last_state);
        }
        status.volume_mounts = self.volume_mounts();
        self.infer_lost_end(&mut status);
        self.apply_waiting(&mut status);
        self.apply_probes(&mut status);
        status
    }

    /// The previously reported status of this container name, if it has the same container id as `status`.
    fn previous_of(&self, status: &ContainerStatus) -> Option<&'a ContainerStatus> {
        let previous = self.previous;
        previous.filter(|p| p.container_id == status.container_id)
    }

    fn volume_mounts(&self) -> Option<Vec<VolumeMountStatus>> {
        let mounts = self.container.volume_mounts.as_ref()?.iter();
        let mounts = mounts.map(|mount| VolumeMountStatus {
            name: mount.name.clone(),
            mount_path: mount.mount_path.clone(),
            read_only: mount.read_only.filter(|read_only| *read_only),
            // No mount is recursively read-only: the performer refuses pods with `recursiveReadOnly: Enabled`.
            recursive_read_only: (mount.read_only == Some(true)).then(|| "Disabled".to_owned()),
            ..VolumeMountStatus::default()
        });
        Some(mounts.collect()).filter(|mounts: &Vec<_>| !mounts.is_empty())
    }

    /// The runtime's containers that have the name of `self.container`, newest first.
    fn instances(&self) -> impl Iterator<Item = &'a core::ContainerStatus> {
        let status = &self.state.observed.view.status;
        let (all, name) = (&status.containers, &self.container.name);
        all.iter().filter(move |c| *c.name == **name)
    }

    fn id(&self, id: &Id) -> String {
        format!("{}://{id}", self.state.runtime)
    }

    /// The last exit record of a container that has the name of `self.container` and not the id `except`.
    fn last_record(&self, except: Option<&str>) -> Option<&'a Exit> {
        let of_this =
            |r: &&Exit| *r.name == *self.container.name && Some(&*self.id(&r.id)) != except;
        let ends = self.state.observed.ended.iter().filter(of_this);
        ends.max_by(|a, b| a.detected.cmp(&b.detected).then(Ordering::Less))
    }

    /// The status for a container name, from the newest container of that name.
    fn existing(&self, newest: &core::ContainerStatus) -> ContainerStatus {
        let details = &newest.details;
        let mut status = ContainerStatus {
            name: self.container.name.clone(),
            image: match details.image.is_empty() {
                true => self.container.image.clone().unwrap_or_default(),
                false => details.image.to_string(),
            },
            // As in upstream's kubelet, `image_id` is the image's reference, not its id.
            image_id: details.image_ref.to_string(),
            container_id: Some(self.id(&newest.id)),
            restart_count: i32::try_from(restart_count(newest)).unwrap_or(i32::MAX),
            state: Some(self.state_of(newest)),
            ..ContainerStatus::default()
        };
        let is_unknown = matches!(newest.state, pleg::ContainerState::Unknown { .. });
        if let Some(previous) = self.previous.filter(|p| is_unknown && is_running(p)) {
            status.state = Some(ended_state(unknown(NOT_LOCATED)));
            status.restart_count = previous.restart_count.saturating_add(1);
        }
        if self.code_may_come(newest) {
            let before = self.previous_of(&status).and_then(|p| p.state.clone());
            status.state = before.or_else(|| Some(waiting(ContainerStateWaiting::default())));
        }
        let running = newest.state == pleg::ContainerState::Running;
        let in_effect = details.resources.as_deref().filter(|_| running);
        status.resources = resources::reported(self.container, in_effect);
        let allocated = self.container.resources.as_ref();
        status.allocated_resources = allocated.and_then(|r| r.requests.clone());
        status
    }

    /// Returns true if a container has exited and its missing exit code may still become known.
    fn code_may_come(&self, status: &core::ContainerStatus) -> bool {
        let mut records = self.state.observed.ended.iter();
        let may_come = match records.any(|record| record.id == status.id) {
            true => self.state.observed.unread.contains(&status.id),
            false => status.error.is_some() || status.status_missing,
        };
        let has_exited = status.state == pleg::ContainerState::Exited;
        has_exited && status.details.exit_code.is_none() && may_come
    }

    /// The state of one container. Waiting if it was created and not started, or if its state is unknown.
    fn state_of(&self, status: &core::ContainerStatus) -> ContainerState {
        match status.state {
            pleg::ContainerState::Running => ContainerState {
                running: Some(ContainerStateRunning {
                    started_at: status.details.started_at.map(api_time),
                }),
                ..ContainerState::default()
            },
            pleg::ContainerState::Exited => {
                let details = &status.details;
                // As upstream, the start time of a container that never started is the epoch.
                let never = details.exit_code.map(|_| WallTime::from_nanos(0));
                let (code, reason) = (details.exit_code, &details.reason);
                ended_state(Terminated {
                    started_at: details.started_at.or(never).map(api_time),
                    finished_at: details.finished_at.map(api_time),
                    ..self.ended(&status.id, code, reason, &details.message)
                })
            }
            _ => waiting(ContainerStateWaiting::default()),
        }
    }

    /// The terminated state of a container, with its termination message. As upstream, a pod's messages share 12 KiB.
    fn ended(&self, id: &Id, code: Option<i32>, reason: &str, message: &str) -> Terminated {
        const OF_POD: usize = 12 << 10;
        let left = self.state.messages.get(id).map_or("", |left| left);
        let both = !message.is_empty() && !left.is_empty();
        let separator = if both { ": " } else { "" };
        let mut message = format!("{message}{separator}{left}");
        let most = OF_POD / containers_in(spec_of(self.state.pod)).count().max(1);
        message.truncate(message.floor_char_boundary(most));
        let mut ended = unknown(&message);
        if let Some(code) = code {
            (ended.exit_code, ended.reason) = (code, text(reason));
        }
        ended.container_id = Some(self.id(id));
        ended
    }

    /// The status of a container name if no container of this name exists.
    fn absent(&self) -> ContainerStatus {
        if let Some(previous) = self.previous.filter(|p| terminated(p).is_some()) {
            return previous.clone();
        }
        let reason = ContainerStateWaiting {
            reason: text(not_created(self.state.pod)),
            message: None,
        };
        ContainerStatus {
            name: self.container.name.clone(),
            image: self.container.image.clone().unwrap_or_default(),
            restart_count: self.previous.map_or(0, |p| p.restart_count),
            last_state: self.previous.and_then(|p| p.last_state.clone()),
            state: Some(waiting(reason)),
            ..ContainerStatus::default()
        }
    }

    /// Sets the (last) terminated state of a container that is gone, as implied by `previous` or by regular containers.
    fn infer_lost_end(&self, status: &mut ContainerStatus) {
        if self.instances().next().is_some() || terminated(status).is_some() {
            return;
        }
        let was_running = self.previous.is_some_and(is_running);
        if was_running && last_terminated(status).is_none() {
            status.last_state = Some(ended_state(unknown(VANISHED)));
            if self.state.pod.metadata.deletion_timestamp.is_none() {
                status.restart_count = status.restart_count.saturating_add(1);
            }
        }
        let initialized = spec_of(self.state.pod).containers.iter().any(|c| {
            let all = &self.state.observed.view.status.containers;
            all.iter().any(|status| *status.name == *c.name)
        });
        if self.init && !is_sidecar(self.container) && initialized {
            let mut success = unknown(INFERRED);
            (success.exit_code, success.reason) = (0, text("Completed"));
            status.state = Some(ended_state(success));
        }
    }

    /// Sets the waiting reason of a container that will be started or restarted, if the reason is known.
    fn apply_waiting(&self, status: &mut ContainerStatus) {
        let Some(reason) = self.state.waiting.get(&self.container.name) else {
            return;
        };
        let inferred = self.init && self.instances().next().is_none();
        let is_replaced = self.state.observed.replaced.contains(&self.container.name);
        let succeeded = terminated(status).is_some_and(|t| t.exit_code == 0) && !is_replaced;
        let has_succeeded = self.init && succeeded && (inferred || !is_sidecar(self.container));
        // A container that has run before does not show `ContainerCreating` or `PodInitializing`.
        let is_made = terminated(status).is_some()
            && reason.reason.as_deref() == Some(not_created(self.state.pod));
        if has_succeeded || is_made || !self.is_to_be_restarted() {
            return;
        }
        if terminated(status).is_some() {
            status.last_state = status.state.take();
        }
        status.state = Some(waiting(reason.clone()));
    }

    fn is_to_be_restarted(&self) -> bool {
        if self.state.pod.metadata.deletion_timestamp.is_some() {
            return false;
        }
        let Some(newest) = self.instances().next() else {
            return true;
        };
        match newest.state {
            pleg::ContainerState::Running => false,
            pleg::ContainerState::Exited => {
                let code = newest.details.exit_code.unwrap_or(UNKNOWN_EXIT_CODE);
                self.state.observed.replaced.contains(&self.container.name)
                    || restarts(self.container, spec_of(self.state.pod), code)
            }
            _ => true,
        }
    }

    /// Sets `started` and `ready`.
    fn apply_probes(&self, status: &mut ContainerStatus) {
        // A container with a probe that has no result yet counts as not started or not ready.
        let succeeds = |probe: &Option<Probe>, of: fn(&ProbeResults) -> &BTreeSet<String>| {
            let results = self.state.observed.probes.as_ref();
            results.map_or(probe.is_none(), |r| of(r).contains(&self.container.name))
        };
        let container = self.container;
        let started = is_running(status) && succeeds(&container.startup_probe, |r| &r.started);
        status.started = Some(started);
        status.ready = match self.init && !is_sidecar(container) {
            true => terminated(status).is_some_and(|t| t.exit_code == 0),
            false => started && succeeds(&container.readiness_probe, |r| &r.ready),
        };
    }
}

/// The message for a container that was last reported as running, if it no longer exists and has no exit record.
const VANISHED: &str = "The container could not be located when the pod was deleted.  \
                        The container used to be Running";

/// The message for a container whose state the runtime does not know.
const NOT_LOCATED: &str = "The container could not be located when the pod was terminated";

/// The message for an init container that no longer exists although a regular one does: it must have succeeded.
const INFERRED: &str = "Unable to get init container status from container runtime and pod has been \
                        initialized, treat it as exited normally";

/// The terminated state that upstream's kubelet reports if it is not known how a container ended.
fn unknown(message: &str) -> Terminated {
    Terminated {
        message: text(message),
        exit_code: 137,
        reason: text("ContainerStatusUnknown"),
        ..Terminated::default()
    }
}

pub(super) fn text(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn ended_state(ended: Terminated) -> ContainerState {
    ContainerState {
        terminated: Some(ended),
        ..ContainerState::default()
    }
}

fn waiting(waiting: ContainerStateWaiting) -> ContainerState {
    ContainerState {
        waiting: Some(waiting),
        ..ContainerState::default()
    }
}

pub(super) fn terminated(status: &ContainerStatus) -> Option<&Terminated> {
    status.state.as_ref()?.terminated.as_ref()
}

pub(super) fn last_terminated(status: &ContainerStatus) -> Option<&Terminated> {
    status.last_state.as_ref()?.terminated.as_ref()
}

pub(super) fn is_running(status: &ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|s| s.running.is_some())
}

pub(super) fn is_waiting(status: &ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|s| s.waiting.is_some())
}
