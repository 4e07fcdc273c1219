//! Directories and logs of pods: work that may block on the file system.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use pleg::runtime::clock::Clock;
use pleg::{Id, PodUid};

use crate::actions::PodActions;
use crate::from_pod::volumes;
use crate::volumes::{FileName, VolumeError};
use crate::worker::Run;

use super::Performer;

/// How long such work may take. A mount may hang.
const DEADLINE: Duration = Duration::from_secs(10);

impl Performer {
    /// Removes the directory and the logs of a pod that is gone, and drops what else is kept of it.
    ///
    /// It blocks on the file system.
    ///
    /// # Errors
    /// If something cannot be removed.
    pub fn remove_pod(&self, uid: &PodUid) -> Result<(), VolumeError> {
        self.images.forget_pod(uid);
        self.names.release(uid);
        self.last_waiting().remove(uid);
        let removed = self.node.pods.remove(uid);
        removed.and(self.node.remove_logs(|of| of == uid))
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

    /// Makes the volumes of the pod, and the directories of its logs. containerd makes those of containers itself;
    /// CRI-O's conmon fails to start a container whose directory is missing ("Failed to open log file").
    pub(super) async fn make_directories<S>(
        &self,
        run: &Run<S>,
        pod: &Pod,
        actions: &PodActions,
    ) -> Result<(), VolumeError> {
        let (directories, uid) = (self.node.pods.clone(), run.uid.clone());
        let (volumes, logs) = (volumes(pod), self.node.log_directory(pod)?);
        let mut log_directories = vec![logs.clone()];
        for start in &actions.start {
            log_directories.push(logs.join(FileName::new(&*start.name)?));
        }
        let work = move || {
            directories.prepare(&uid, &volumes)?;
            log_directories.into_iter().try_for_each(|path| {
                std::fs::create_dir_all(&path)
                    .map_err(|source| VolumeError::Directory { path, source })
            })
        };
        self.files.run(run.clock(), &run.uid, work).await
    }

    /// Removes the log of a container that was removed.
    pub(super) async fn remove_log<S>(&self, run: &Run<S>, id: &Id) -> Result<(), VolumeError> {
        let status = &run.view.status;
        let Some(container) = status.containers.iter().find(|c| c.id == *id) else {
            return Ok(());
        };
        let path = self.node.log_of(status, container)?;
        let work = move || match std::fs::remove_file(&path) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                Err(VolumeError::Directory { path, source })
            }
            _ => Ok(()),
        };
        self.files.run(run.clock(), &run.uid, work).await
    }
}

/// Work on the file system, of each pod one piece at a time: one that hangs cannot be cancelled, and
/// another one would hang, too.
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
    async fn work_that_hangs_is_given_up_and_not_begun_again_beside_it() {
        let (files, uid) = (Files::default(), PodUid::from("p"));
        let clock = Clock::start_at(WallTime::from_nanos(1));
        let (release, hangs) = mpsc::channel::<()>();
        let work = move || {
            // It ends when the test ends.
            let _ = hangs.recv();
            Ok(())
        };
        let (first, ()) = tokio::join!(
            files.run(clock, &uid, work),
            tokio::time::advance(2 * DEADLINE)
        );
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
