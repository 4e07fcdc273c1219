//! The statuses of a pod's containers.

use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated as Terminated,
    ContainerStateWaiting, ContainerStatus, VolumeMountStatus,
};
use pleg::core;
use pleg::{Id, WallTime};

use super::{PodState, api_time};
use crate::history::restart_count;
use crate::perform::not_created;
use crate::resources;
use crate::spec::{UNKNOWN_EXIT_CODE, containers_in, is_sidecar, restarts, spec_of};

/// The containers of the specification, in its order, with their statuses.
pub(super) struct Statuses<'a> {
    pub(super) init: Vec<(&'a Container, ContainerStatus)>,
    pub(super) regular: Vec<(&'a Container, ContainerStatus)>,
}

impl<'a> PodState<'a> {
    pub(super) fn statuses(&self) -> Statuses<'a> {
        let spec = spec_of(self.pod);
        let init = spec.init_containers.iter().flatten();
        let regular = spec.containers.iter();
        Statuses {
            init: init.map(|c| (c, self.status_of(c, true))).collect(),
            regular: regular.map(|c| (c, self.status_of(c, false))).collect(),
        }
    }

    fn status_of(&self, container: &Container, init: bool) -> ContainerStatus {
        let previous = self.previous.and_then(|p| {
            let lists = [&p.init_container_statuses, &p.container_statuses];
            let mut all = lists.into_iter().flatten().flatten();
            all.find(|status| status.name == container.name)
        });
        let containers = self.observed.view.status.containers.iter();
        let mut instances = containers.filter(|c| *c.name == *container.name);
        let one = One {
            state: self,
            container,
            previous,
            newest: instances.next(),
            older: instances.next(),
            init,
        };
        let mut status = match one.newest {
            Some(newest) => one.existing(newest),
            None => one.absent(),
        };
        status.volume_mounts = volume_mounts(container);
        one.apply_waiting(&mut status);
        one.apply_probes(&mut status);
        status
    }
}

/// A container of the specification, with the inputs of its status, such as the two newest containers of its name.
struct One<'a> {
    state: &'a PodState<'a>,
    container: &'a Container,
    previous: Option<&'a ContainerStatus>,
    newest: Option<&'a core::ContainerStatus>,
    older: Option<&'a core::ContainerStatus>,
    init: bool,
}

impl One<'_> {
    fn id(&self, id: &Id) -> String {
        format!("{}://{id}", self.state.runtime)
    }

    /// The state from the last exit record of a container that has this name and not the id `except`.
    fn recorded(&self, except: Option<&str>) -> Option<ContainerState> {
        let records = self.state.observed.ended.iter();
        let records = records.filter(|r| *r.name == *self.container.name);
        let others = records.filter(|r| Some(&*self.id(&r.id)) != except);
        let last = others.max_by_key(|record| record.detected)?;
        Some(ended_state(Terminated {
            finished_at: last.finished_at.map(api_time),
            ..self.ended(&last.id, last.exit_code, &last.reason, "")
        }))
    }

    /// The status from the newest container of this name.
    fn existing(&self, newest: &core::ContainerStatus) -> ContainerStatus {
        let (details, previous, id) = (&newest.details, self.previous, self.id(&newest.id));
        let older = self.older.map(|older| self.state_of(older));
        let older = older.or_else(|| self.recorded(Some(&id)));
        let same = previous.filter(|p| p.container_id.as_ref() == Some(&id));
        let runs = newest.state == pleg::ContainerState::Running;
        let in_effect = details.resources.as_deref().filter(|_| runs);
        let specified = self.container.resources.as_ref();
        let image = text(&details.image).or_else(|| self.container.image.clone());
        let mut status = ContainerStatus {
            name: self.container.name.clone(),
            image: image.unwrap_or_default(),
            // As in upstream's kubelet, `image_id` is the image's reference, not its id.
            image_id: details.image_ref.to_string(),
            restart_count: i32::try_from(restart_count(newest)).unwrap_or(i32::MAX),
            state: Some(self.state_of(newest)),
            // Without an earlier container of this name or its exit record, keeps the reported `last_state`.
            last_state: older.or_else(|| same?.last_state.clone()),
            container_id: Some(id),
            resources: resources::reported(self.container, in_effect),
            allocated_resources: specified.and_then(|r| r.requests.clone()),
            ..ContainerStatus::default()
        };
        let is_unknown = matches!(newest.state, pleg::ContainerState::Unknown { .. });
        if let Some(previous) = previous.filter(|p| is_unknown && is_running(p)) {
            let message = "The container could not be located when the pod was terminated";
            status.state = Some(ended_state(unknown(message)));
            status.restart_count = previous.restart_count.saturating_add(1);
        }
        let mut records = self.state.observed.ended.iter();
        let code_may_come = match records.any(|record| record.id == newest.id) {
            true => self.state.observed.unread.contains(&newest.id),
            false => newest.error.is_some() || newest.status_missing,
        };
        let has_exited = newest.state == pleg::ContainerState::Exited;
        if has_exited && details.exit_code.is_none() && code_may_come {
            let before = same.and_then(|p| p.state.clone());
            status.state = before.or_else(|| Some(waiting(ContainerStateWaiting::default())));
        }
        status
    }

    /// The state of one container. Waiting if it was created and not started, or if its state is unknown.
    fn state_of(&self, status: &core::ContainerStatus) -> ContainerState {
        let details = &status.details;
        let started_at = details.started_at.map(api_time);
        match status.state {
            pleg::ContainerState::Running => ContainerState {
                running: Some(ContainerStateRunning { started_at }),
                ..ContainerState::default()
            },
            pleg::ContainerState::Exited => {
                let (code, reason) = (details.exit_code, &details.reason);
                // As upstream, the start time of a container that never started is the epoch.
                let never = code.map(|_| api_time(WallTime::from_nanos(0)));
                ended_state(Terminated {
                    started_at: started_at.or(never),
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
        let mut texts = vec![message, left];
        texts.retain(|text| !text.is_empty());
        let mut message = texts.join(": ");
        let most = OF_POD / containers_in(spec_of(self.state.pod)).count().max(1);
        message.truncate(message.floor_char_boundary(most));
        let mut ended = unknown(&message);
        if let Some(code) = code {
            (ended.exit_code, ended.reason) = (code, text(reason));
        }
        ended.container_id = Some(self.id(id));
        ended
    }

    /// The status if no container of this name exists, as implied by `previous`, exit records or regular containers.
    fn absent(&self) -> ContainerStatus {
        let mut previous = self.previous.cloned().unwrap_or_default();
        if terminated(&previous.state).is_some() {
            let recorded = self.recorded(previous.container_id.as_deref());
            previous.last_state = recorded.or(previous.last_state);
            return previous;
        }
        let reason = ContainerStateWaiting {
            reason: text(not_created(self.state.pod)),
            message: None,
        };
        let mut status = ContainerStatus {
            name: self.container.name.clone(),
            image: self.container.image.clone().unwrap_or_default(),
            restart_count: previous.restart_count,
            last_state: self.recorded(None).or(previous.last_state),
            state: Some(waiting(reason)),
            ..ContainerStatus::default()
        };
        if self.previous.is_some_and(is_running) && terminated(&status.last_state).is_none() {
            let message = "The container could not be located when the pod was deleted.  \
                           The container used to be Running";
            status.last_state = Some(ended_state(unknown(message)));
            if self.state.pod.metadata.deletion_timestamp.is_none() {
                status.restart_count = status.restart_count.saturating_add(1);
            }
        }
        let found = &self.state.observed.view.status;
        let mut regular = spec_of(self.state.pod).containers.iter();
        let is_initialized = regular.any(|c| found.container(&c.name).is_some());
        if self.init && !is_sidecar(self.container) && is_initialized {
            let message = "Unable to get init container status from container runtime and pod has been \
                           initialized, treat it as exited normally";
            let mut success = unknown(message);
            (success.exit_code, success.reason) = (0, text("Completed"));
            status.state = Some(ended_state(success));
        }
        status
    }

    /// Sets the waiting reason of a container that will be started or restarted, if the reason is known.
    fn apply_waiting(&self, status: &mut ContainerStatus) {
        let (name, pod) = (&self.container.name, self.state.pod);
        let Some(reason) = self.state.waiting.get(name) else {
            return;
        };
        let is_replaced = self.state.observed.replaced.contains(name);
        let starts = self.newest.is_none_or(|newest| match newest.state {
            pleg::ContainerState::Running => false,
            pleg::ContainerState::Exited => {
                let code = newest.details.exit_code.unwrap_or(UNKNOWN_EXIT_CODE);
                is_replaced || restarts(self.container, spec_of(pod), code)
            }
            _ => true,
        });
        let ended = terminated(&status.state).map(|ended| ended.exit_code);
        let may_repeat = self.newest.is_some() && is_sidecar(self.container);
        let has_succeeded = self.init && ended == Some(0) && !is_replaced && !may_repeat;
        // A container that has run before does not show `ContainerCreating` or `PodInitializing`.
        let is_made = ended.is_some() && reason.reason.as_deref() == Some(not_created(pod));
        let is_deleted = pod.metadata.deletion_timestamp.is_some();
        if is_deleted || has_succeeded || is_made || !starts {
            return;
        }
        if ended.is_some() {
            status.last_state = status.state.take();
        }
        status.state = Some(waiting(reason.clone()));
    }

    fn apply_probes(&self, status: &mut ContainerStatus) {
        let (container, name) = (self.container, &self.container.name);
        // A container with a probe that has no result yet counts as not started or not ready.
        let [started, ready] = match &self.state.observed.probes {
            Some(results) => [&results.started, &results.ready].map(|of| of.contains(name)),
            None => [&container.startup_probe, &container.readiness_probe].map(Option::is_none),
        };
        let started = started && is_running(status);
        status.started = Some(started);
        status.ready = match self.init && !is_sidecar(container) {
            true => terminated(&status.state).is_some_and(|t| t.exit_code == 0),
            false => started && ready,
        };
    }
}

fn volume_mounts(container: &Container) -> Option<Vec<VolumeMountStatus>> {
    let mounts = container.volume_mounts.as_ref()?.iter();
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

pub(super) fn terminated(state: &Option<ContainerState>) -> Option<&Terminated> {
    state.as_ref()?.terminated.as_ref()
}

pub(super) fn is_running(status: &ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|s| s.running.is_some())
}
