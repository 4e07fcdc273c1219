//! Directories and logs of pods: work that may block on the file system.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use pleg::runtime::clock::Clock;
use pleg::{ContainerState, ContainerStatus, Id, PodStatus, PodUid};
use pleg_cri::v1::ContainerConfig;

use crate::actions::Actions;
use crate::cri_config::{ContainerInput, FieldError, with_sub_paths};
use crate::from_pod::volumes;
use crate::names;
use crate::plan::Observed;
use crate::sub_path::SubPath;
use crate::termination::Source;
use crate::volumes::{FileName, Volume, VolumeError, make_file};
use crate::worker::Run;

use super::{PerformError, Performer};

/// How long such work may take. A mount may hang.
const DEADLINE: Duration = Duration::from_secs(10);

impl Performer {
    /// Removes the directory and the logs of a pod that is gone, and drops what else is kept of it: for
    /// [`Reconcile::finish`](crate::worker::Reconcile::finish).
    ///
    /// # Errors
    /// If something cannot be removed, or that takes longer than 10 s.
    ///
    /// # Cancel safety
    /// What was begun goes on. Call it again.
    pub async fn remove_pod<S>(&self, run: &Run<S>) -> Result<(), PerformError> {
        let (node, uid) = (self.node.clone(), run.uid.clone());
        self.images.forget_pod(&uid);
        self.names.release(&uid);
        self.last_waiting().remove(&uid);
        self.messages().remove(&uid);
        let work = move || {
            node.pods
                .remove(&uid)
                .and(node.remove_logs(|of| *of == uid))
        };
        Ok(self.files.run(run.clock(), &run.uid, work).await?)
    }

    /// Removes directories and logs of pods that are not among these: those that went while no kubelet
    /// ran. Call it before the pod workers start.
    ///
    /// It blocks on the file system.
    ///
    /// # Errors
    /// If something cannot be read or removed. The error is that of the first pod; the other pods' files have been
    /// removed.
    pub fn remove_orphans(&self, known: &BTreeSet<PodUid>) -> Result<(), VolumeError> {
        let mut removed = Ok(());
        for uid in self.node.pods.uids()? {
            if !known.contains(&uid) {
                removed = removed.and(self.node.pods.remove(&uid));
            }
        }
        removed.and(self.node.remove_logs(|uid| !known.contains(uid)))
    }

    /// Makes the volumes of the pod, the directories of its logs, its hosts file, and the files for its termination
    /// messages. containerd makes the directories of containers' logs itself; CRI-O's conmon fails to start a container
    /// whose directory is missing ("Failed to open log file").
    pub(super) async fn make_directories<S>(
        &self,
        run: &Run<S>,
        pod: &Pod,
        actions: &Actions,
    ) -> Result<(), PerformError> {
        let (directories, uid) = (self.node.pods.clone(), run.uid.clone());
        let (volumes, logs) = (volumes(pod, &self.node)?, self.node.log_directory(pod)?);
        let mut log_directories = vec![logs.clone()];
        let (hosts, ips, of) = (
            directories.hosts(&uid)?,
            self.pod_ips(run, pod),
            pod.clone(),
        );
        let mut messages = Vec::new();
        for start in actions.start.iter().filter(|s| s.existing.is_none()) {
            log_directories.push(logs.join(FileName::new(&*start.name)?));
            messages.push(directories.termination_log(&uid, &start.name, start.attempt)?);
        }
        let work = move || {
            directories.prepare(&uid, &volumes)?;
            messages
                .iter()
                .try_for_each(|path| make_file(path, "", 0o666))?;
            // Only where a container is created.
            if !messages.is_empty() {
                let of_node = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
                make_file(&hosts, &crate::hosts::hosts(&of, &ips, &of_node), 0o644)?;
            }
            log_directories.into_iter().try_for_each(|path| {
                std::fs::create_dir_all(&path)
                    .map_err(|source| VolumeError::Directory { path, source })
            })
        };
        Ok(self.files.run(run.clock(), &run.uid, work).await?)
    }

    /// Rewrites the files of `downwardAPI` volumes whose values have changed while the pod runs.
    pub(super) async fn refresh_volumes<S>(&self, run: &Run<S>, pod: &Pod, actions: &Actions) {
        let Ok(mut volumes) = volumes(pod, &self.node) else {
            return;
        };
        volumes.retain(|_, volume| matches!(volume, Volume::Files { .. }));
        if volumes.is_empty() || actions.terminating || actions.create_sandbox.is_some() {
            return;
        }
        let (directories, uid) = (self.node.pods.clone(), run.uid.clone());
        let work = move || directories.prepare(&uid, &volumes).map(drop);
        if let Err(error) = self.files.run(run.clock(), &run.uid, work).await {
            tracing::warn!(pod = %run.uid, %error, "the files of a downwardAPI volume may be old");
        }
    }

    /// The configuration of a container. The paths in volumes that it needs are mounted.
    pub(super) async fn config_with_paths<S>(
        &self,
        run: &Run<S>,
        input: &ContainerInput<'_>,
    ) -> Result<ContainerConfig, FieldError> {
        let (config, sub_paths) = with_sub_paths(input, &self.node)?;
        if sub_paths.is_empty() {
            return Ok(config);
        }
        let mount = |path: &SubPath| {
            path.mount().map_err(|source| VolumeError::Directory {
                path: path.volume.join(&path.path),
                source,
            })
        };
        let work = move || sub_paths.iter().try_for_each(mount);
        let mounted = self.files.run(run.clock(), &run.uid, work).await;
        mounted.map_err(|error| FieldError::new("volumeMounts", error.to_string()))?;
        Ok(config)
    }

    /// The termination messages of the containers that have ended, by id: what they wrote to the file at their
    /// `terminationMessagePath`, or with the policy `FallbackToLogsOnError` the end of their log. For
    /// [`PodState::messages`](crate::pod_status::PodState::messages). Each is read once.
    ///
    /// # Cancel safety
    /// Nothing is lost; what was not read is read the next time.
    pub async fn termination_messages<S>(
        &self,
        run: &Run<S>,
        observed: &Observed,
    ) -> BTreeMap<Id, String> {
        let status = &observed.view.status;
        let mut known = self.messages().remove(&run.uid).unwrap_or_default();
        let exists = |id: &Id| status.containers.iter().any(|c| c.id == *id);
        known.retain(|id, _| exists(id) || observed.ended.iter().any(|r| r.id == *id));
        let unread = status
            .containers
            .iter()
            .filter(|c| !known.contains_key(&c.id));
        let sources: Vec<_> = unread.filter_map(|c| self.message_of(status, c)).collect();
        if !sources.is_empty() {
            let (send, read) = std::sync::mpsc::channel();
            let work = move || {
                for (id, source) in sources {
                    // Nobody may be waiting any more.
                    let _ = send.send((id, source.read()));
                }
                Ok(())
            };
            match self.files.run(run.clock(), &run.uid, work).await {
                Ok(()) => known.extend(read.try_iter()),
                Err(error) => {
                    tracing::warn!(pod = %run.uid, %error, "termination messages not read");
                }
            }
        }
        self.messages().insert(run.uid.clone(), known.clone());
        known
    }

    /// Where the message of a container is, once it has ended and its exit code is known.
    fn message_of(&self, pod: &PodStatus, container: &ContainerStatus) -> Option<(Id, Source)> {
        let code = container.details.exit_code?;
        if container.state != ContainerState::Exited {
            return None;
        }
        let (name, attempt) = (&container.name, container.attempt);
        let file = self
            .node
            .pods
            .termination_log(&pod.uid, name, attempt)
            .ok()?;
        let annotations = &container.details.annotations;
        let policy = annotations.get(names::TERMINATION_MESSAGE_POLICY);
        let is_log = code != 0 && policy.is_some_and(|policy| policy == "FallbackToLogsOnError");
        let log = is_log.then(|| self.node.log_of(pod, container).ok());
        let log = log.flatten();
        Some((container.id.clone(), Source { file, log }))
    }

    fn messages(&self) -> MutexGuard<'_, BTreeMap<PodUid, BTreeMap<Id, String>>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the log of a container that was removed, and the file of its termination message.
    pub(super) async fn remove_log<S>(&self, run: &Run<S>, id: &Id) -> Result<(), VolumeError> {
        let status = &run.view.status;
        let Some(container) = status.containers.iter().find(|c| c.id == *id) else {
            return Ok(());
        };
        let (name, attempt) = (&container.name, container.attempt);
        let message = self.node.pods.termination_log(&run.uid, name, attempt)?;
        let paths = [self.node.log_of(status, container)?, message];
        let work = move || {
            paths
                .into_iter()
                .try_for_each(|path| match std::fs::remove_file(&path) {
                    Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                        Err(VolumeError::Directory { path, source })
                    }
                    _ => Ok(()),
                })
        };
        self.files.run(run.clock(), &run.uid, work).await
    }
}

/// Work on the file system, of each pod one piece at a time: one that hangs cannot be cancelled, and
/// another one would hang as well.
#[derive(Debug, Default)]
pub(super) struct Files {
    busy: Arc<Mutex<BTreeSet<PodUid>>>,
}

/// The pod is busy until this is dropped.
struct Busy {
    all: Arc<Mutex<BTreeSet<PodUid>>>,
    uid: PodUid,
}

impl Files {
    async fn run(
        &self,
        clock: Clock,
        uid: &PodUid,
        work: impl FnOnce() -> Result<(), VolumeError> + Send + 'static,
    ) -> Result<(), VolumeError> {
        if !lock(&self.busy).insert(uid.clone()) {
            return Err(VolumeError::Hangs);
        }
        let busy = Busy {
            all: self.busy.clone(),
            uid: uid.clone(),
        };
        let task = tokio::task::spawn_blocking(move || {
            let _busy = busy;
            work()
        });
        tokio::select! {
            done = task => done.unwrap_or_else(|panic| {
                let source = std::io::Error::other(panic);
                Err(VolumeError::Directory { path: "".into(), source })
            }),
            () = clock.sleep_until(clock.now().after(DEADLINE)) => Err(VolumeError::Hangs),
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        lock(&self.all).remove(&self.uid);
    }
}

fn lock(busy: &Mutex<BTreeSet<PodUid>>) -> MutexGuard<'_, BTreeSet<PodUid>> {
    busy.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use pleg::WallTime;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn hung_file_operation_times_out_and_is_not_started_twice() {
        let (files, uid) = (Files::default(), PodUid::from("p"));
        let clock = Clock::start_at(WallTime::from_nanos(1));
        let (release, hangs) = mpsc::channel::<()>();
        let work = move || {
            // It ends when the test ends.
            let _ = hangs.recv();
            Ok(())
        };
        let pass = tokio::time::advance(2 * DEADLINE);
        let (first, ()) = tokio::join!(files.run(clock, &uid, work), pass);
        assert!(matches!(first, Err(VolumeError::Hangs)), "{first:?}");
        let second = files.run(clock, &uid, || Ok(())).await;
        assert!(matches!(second, Err(VolumeError::Hangs)), "{second:?}");
        let other = files.run(clock, &PodUid::from("q"), || Ok(())).await;
        assert!(other.is_ok(), "{other:?}");
        drop(release);
        while lock(&files.busy).contains(&uid) {
            tokio::task::yield_now().await;
        }
        assert!(files.run(clock, &uid, || Ok(())).await.is_ok());
    }
}
