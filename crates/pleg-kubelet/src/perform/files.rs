//! Directories and logs of pods: work that may block on the file system.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use nix::fcntl::OFlag;
use pleg::{ContainerState, ContainerStatus, Id, Pleg, PodStatus, PodUid};
use tokio::task::AbortHandle;

use crate::actions::Actions;
use crate::cri_config::hosts;
use crate::mounts::SubPath;
use crate::plan::Observed;
use crate::spec::spec_of;
use crate::volumes::{ETC_HOSTS, VolumeError, file_name, make_file, make_volumes, unless};
use crate::worker::Run;
use crate::{lock, names};

use super::{Performer, Performing, Result};

/// The deadline of a file operation. The operation may hang if a mount hangs.
const DEADLINE: Duration = Duration::from_secs(10);
/// Upstream's limits of a termination message: bytes of its file, or bytes and lines of the log.
const MOST_BYTES: u64 = 4096;
const MOST_OF_LOG: usize = 2048;
const MOST_LINES: usize = 80;
/// The bytes that are read at the end of a log: more than `MOST_OF_LOG`, because lines have prefixes and can be long.
const READ_OF_LOG: u64 = 64 << 10;

/// An ended container's id, its termination message file, and its log if that may be read instead.
type Source = (Id, PathBuf, Option<PathBuf>);

impl Performer {
    /// Removes the directory and the logs of a pod that is gone, and the performer's data about the pod. Call it
    /// in [`Reconcile::finish`](crate::worker::Reconcile::finish).
    ///
    /// # Errors
    /// If something cannot be removed, or the removal takes longer than 10 s.
    ///
    /// # Cancel safety
    /// If the future is dropped, file operations in progress go on. Call `remove_pod` again.
    pub async fn remove_pod<S>(&self, run: &Run<S>) -> Result {
        let (node, uid) = (self.node.clone(), run.uid.clone());
        lock(&self.pods).remove(&uid);
        self.names.release(&uid);
        let work = move || node.remove_files(|other| *other == uid);
        Ok(self.files.run(&run.uid, work).await?)
    }

    /// Removes directories and logs of pods that were deleted while no kubelet ran: of all pods that `pleg` does not
    /// show and that are not in `specs`. Call it before the pod workers start. It blocks on the file system.
    ///
    /// # Errors
    /// If the generator is not synced: then nothing is removed. If directories cannot be listed, or the files of a pod
    /// cannot be removed: the other pods' files are removed nevertheless.
    pub fn remove_orphans(&self, pleg: &Pleg, specs: &BTreeSet<PodUid>) -> Result<(), VolumeError> {
        if !pleg.health().current().synced {
            let problem = "the existing pods are not known yet: call Pleg::wait_until_synced first";
            return Err(VolumeError(problem.to_owned()));
        }
        let is_gone = |uid: &PodUid| !specs.contains(uid) && !pleg.get(uid).status.exists();
        self.node.remove_files(is_gone)
    }

    /// The termination messages of ended containers, by id: the file at `terminationMessagePath` or, if this file is
    /// empty and the container failed with the policy `FallbackToLogsOnError`, the end of its log. Each is read once.
    pub(super) async fn termination_messages<S>(
        &self,
        run: &Run<S>,
        observed: &Observed,
    ) -> BTreeMap<Id, String> {
        let status = &observed.view.status;
        let mut known = self.remembered(run, |pod| pod.messages.clone());
        let exists = |id: &Id| status.containers.iter().any(|c| c.id == *id);
        known.retain(|id, _| exists(id) || observed.ended.iter().any(|r| r.id == *id));
        let containers = status.containers.iter();
        let unread = containers.filter(|c| !known.contains_key(&c.id));
        let sources: Vec<_> = unread.filter_map(|c| self.message_of(status, c)).collect();
        if !sources.is_empty() {
            let read = |(id, file, log): Source| (id, message(&file, log.as_deref()));
            let work = move || Ok(sources.into_iter().map(read).collect::<Vec<_>>());
            let read = self.files.run(&run.uid, work).await.inspect_err(|error| {
                tracing::warn!(pod = %run.uid, %error, "termination messages not read");
            });
            known.extend(read.into_iter().flatten());
        }
        self.remembered(run, |pod| pod.messages.clone_from(&known));
        known
    }

    /// The message file of an ended container with a known exit code, and its log if that may replace an empty file.
    fn message_of(&self, pod: &PodStatus, container: &ContainerStatus) -> Option<Source> {
        let has_exited = container.state == ContainerState::Exited;
        let code = container.details.exit_code.filter(|_| has_exited)?;
        let [log, message] = self.node.files_of(pod, container).ok()?;
        let annotations = &container.details.annotations;
        let policy = annotations.get(names::MESSAGE_POLICY);
        let is_log = code != 0 && policy == Some("FallbackToLogsOnError");
        Some((container.id.clone(), message, is_log.then_some(log)))
    }
}

impl<S> Performing<'_, S> {
    /// Makes the volumes of the pod, its log directories, its hosts file, and the files for its termination messages.
    /// The log directories of containers are made for CRI-O: its conmon cannot start a container without them ("Failed
    /// to open log file"). containerd makes these directories itself.
    pub(super) async fn make_directories(&self, pod: &Pod, actions: &Actions) -> Result {
        let (node, uid) = (self.performer.node.clone(), self.run.uid.clone());
        let (ips, pod) = (self.performer.pod_ips(self.run, pod), pod.clone());
        let mut created = actions.start.clone();
        created.retain(|start| start.existing.is_none());
        let work = move || {
            let (logs, uid) = (node.log_directory(&pod)?, uid.as_str());
            let make = |path: &Path| fs::create_dir_all(path).map_err(VolumeError::at(path));
            let write = |path: &Path, text: &str, mode| {
                make_file(path, text, mode, None).map_err(VolumeError::at(path))
            };
            make_volumes(&pod, &node, false)?;
            make(&logs)?;
            for start in &created {
                make(&logs.join(file_name(&start.name)?))?;
                let message = node.termination_log(uid, &start.name, start.attempt)?;
                write(&message, "", 0o666)?;
            }
            // The hosts file is needed only if a container is created.
            if !created.is_empty() {
                let of_node = fs::read_to_string("/etc/hosts").unwrap_or_default();
                let hosts_file = node.pod_path(uid, ETC_HOSTS, &[])?;
                write(&hosts_file, &hosts(&pod, &ips, &of_node), 0o644)?;
            }
            Ok(())
        };
        Ok(self.performer.files.run(&self.run.uid, work).await?)
    }

    /// Rewrites the files of `downwardAPI` volumes whose values have changed while the pod runs.
    pub(super) async fn refresh_volumes(&self, pod: &Pod, actions: &Actions) {
        let mut volumes = spec_of(pod).volumes.iter().flatten();
        let has_files = volumes.any(|volume| volume.downward_api.is_some());
        if !has_files || actions.terminating || actions.create_sandbox.is_some() {
            return;
        }
        let (node, pod) = (self.performer.node.clone(), pod.clone());
        let work = move || make_volumes(&pod, &node, true);
        if let Err(error) = self.performer.files.run(&self.run.uid, work).await {
            tracing::warn!(pod = %self.run.uid, %error, "the files of a downwardAPI volume may be old");
        }
    }

    pub(super) async fn mount_sub_paths(&self, paths: Vec<SubPath>) -> Result<(), VolumeError> {
        if paths.is_empty() {
            return Ok(());
        }
        let mount = |path: &SubPath| {
            let of_volume = path.volume.join(&path.path);
            path.mount().map_err(VolumeError::at(&of_volume))
        };
        let work = move || paths.iter().try_for_each(mount);
        self.performer.files.run(&self.run.uid, work).await
    }

    /// Removes the log of a container that was removed, and the file of its termination message.
    pub(super) async fn remove_log(&self, id: &Id) -> Result<(), VolumeError> {
        let (status, node) = (&self.run.view.status, &self.performer.node);
        let Some(container) = status.containers.iter().find(|c| c.id == *id) else {
            return Ok(());
        };
        let paths = node.files_of(status, container)?;
        let remove = |path: &PathBuf| {
            unless(ErrorKind::NotFound, fs::remove_file(path)).map_err(VolumeError::at(path))
        };
        let work = move || paths.iter().try_for_each(remove);
        self.performer.files.run(&self.run.uid, work).await
    }
}

/// The message that a container left in `file` or, if that is empty, at the end of `log`.
fn message(file: &Path, log: Option<&Path>) -> String {
    let message = end_of(file, MOST_BYTES).unwrap_or_default();
    let Some(log) = log.filter(|_| message.is_empty()) else {
        return String::from_utf8_lossy(&message).into_owned();
    };
    let end = end_of(log, READ_OF_LOG).unwrap_or_default();
    last_lines(&end, end.len() as u64 == READ_OF_LOG)
}

/// Reads the last `most` bytes of a file. A container cannot replace its message file, which is mounted into it.
fn end_of(file: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut options = fs::File::options();
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW;
    let mut file = options.read(true).custom_flags(flags.bits()).open(file)?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(most)))?;
    let mut end = Vec::new();
    file.take(most).read_to_end(&mut end)?;
    Ok(end)
}

/// The text of the last lines of a log in the CRI's format. An entry has a time, the stream, `F` or `P` (the line goes
/// on in the next entry), and the text. `is_cut` is true if the first line is incomplete.
fn last_lines(log: &[u8], is_cut: bool) -> String {
    let log = String::from_utf8_lossy(log);
    let entries: Vec<&str> = log.lines().skip(usize::from(is_cut)).collect();
    let entries = &entries[entries.len().saturating_sub(MOST_LINES)..];
    let mut text = String::new();
    for entry in entries {
        let mut parts = entry.splitn(4, ' ').skip(2);
        let (tag, line) = (parts.next(), parts.next());
        text.push_str(line.unwrap_or_default());
        if tag != Some("P") {
            text.push('\n');
        }
    }
    text.split_off(text.ceil_char_boundary(text.len().saturating_sub(MOST_OF_LOG)))
}

/// The running file operation of each pod, at most one: a hung operation cannot be cancelled, and a second would hang.
#[derive(Debug, Default)]
pub(super) struct Files(Mutex<BTreeMap<PodUid, AbortHandle>>);

impl Files {
    async fn run<T: Send + 'static>(
        &self,
        uid: &PodUid,
        work: impl FnOnce() -> Result<T, VolumeError> + Send + 'static,
    ) -> Result<T, VolumeError> {
        let hangs =
            || VolumeError("the file system does not respond: does a mount hang?".to_owned());
        let task = {
            let mut busy = lock(&self.0);
            busy.retain(|_, task| !task.is_finished());
            if busy.contains_key(uid) {
                return Err(hangs());
            }
            let task = tokio::task::spawn_blocking(work);
            busy.insert(uid.clone(), task.abort_handle());
            task
        };
        let done = tokio::time::timeout(DEADLINE, task).await;
        let done = done.map_err(|_| hangs())?;
        done.unwrap_or_else(|panic| Err(VolumeError(panic.to_string())))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn hung_file_operation_times_out_and_is_not_started_twice() {
        let (files, uid) = (Files::default(), PodUid::from("p"));
        let (release, hangs) = mpsc::channel::<()>();
        let work = move || {
            // Hangs until the test ends.
            let _ = hangs.recv();
            Ok(())
        };
        let pass = tokio::time::advance(2 * DEADLINE);
        let (first, ()) = tokio::join!(files.run(&uid, work), pass);
        assert!(first.is_err());
        assert!(files.run(&uid, || Ok(())).await.is_err());
        let other = files.run(&PodUid::from("q"), || Ok(())).await;
        assert!(other.is_ok(), "{other:?}");
        drop(release);
        while files.run(&uid, || Ok(())).await.is_err() {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn termination_message_is_end_of_long_file_or_log() {
        let dir = tempfile::tempdir().unwrap();
        let (file, log) = (dir.path().join("file"), dir.path().join("log"));
        assert_eq!(message(&file, None), "", "nothing is there");
        fs::write(&log, "2026-01-01T00:00:00Z stderr F panic\n").unwrap();
        assert_eq!(message(&file, Some(&log)), "panic\n");
        fs::write(&file, "x".repeat(5000) + "end").unwrap();
        let message = message(&file, Some(&log));
        assert_eq!((message.len(), message.ends_with("end")), (4096, true));
    }

    #[test]
    fn termination_message_from_log_is_limited_and_joins_partial_lines() {
        let line =
            |n: usize, tag: &str| format!("2026-01-01T00:00:00.{n:09}Z stdout {tag} line {n}\n");
        let log: String = (0..100).map(|n| line(n, "F")).collect();
        let text = last_lines(log.as_bytes(), false);
        let ends = (text.starts_with("line 20\n"), text.ends_with("line 99\n"));
        assert_eq!(ends, (true, true), "{text}");
        let parts = line(1, "P") + &line(2, "F");
        assert_eq!(last_lines(parts.as_bytes(), false), "line 1line 2\n");
        assert_eq!(last_lines(parts.as_bytes(), true), "line 2\n");
        let long = format!("t stdout F {}\n", "ä".repeat(2000));
        let text = last_lines(long.as_bytes(), false);
        assert!((2046..=2048).contains(&text.len()), "{}", text.len());
    }
}
