//! Polls the directory of manifests, and passes its changes to the pod workers.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pleg::PodUid;
use pleg::runtime::clock::Clock;
use tokio::task::JoinHandle;

use super::{Changes, Manifest, ManifestError, Manifests, ReadManifests, read_directory};
use pleg_kubelet::worker::PodWorkers;

/// The time after which a read of the directory counts as failed. The read itself goes on.
const DEADLINE: Duration = Duration::from_secs(10);

/// The manifests of a directory as a source of pods. An error is logged once, and again when its text changes.
#[derive(Debug)]
pub struct ManifestSource {
    directory: PathBuf,
    node: String,
    /// If true, a manifest with fields that the API does not have is refused. The default is false: these fields are
    /// ignored, as upstream does, with a warning for each manifest, and another when the ignored fields change.
    pub strict_fields: bool,
    period: Duration,
    clock: Clock,
    manifests: Manifests,
    /// The errors that were logged last, so that a read with the same errors does not log them again.
    broken: Vec<ManifestError>,
    error: Option<String>,
    /// A read of the directory that exceeded `DEADLINE` and is still in progress.
    reading: Option<JoinHandle<Result<ReadManifests, String>>>,
}

impl ManifestSource {
    /// A source of the manifests in `directory` for the node `node`. It reads the directory every `period`.
    pub fn new(directory: impl Into<PathBuf>, node: &str, period: Duration, clock: Clock) -> Self {
        Self {
            directory: directory.into(),
            node: node.to_owned(),
            strict_fields: false,
            period,
            clock,
            manifests: Manifests::default(),
            broken: Vec::new(),
            error: None,
            reading: None,
        }
    }

    /// Sets the pods that were running when the kubelet started. See [`Manifests::set_running`].
    pub fn set_running(&mut self, uids: BTreeSet<PodUid>) {
        self.manifests.set_running(uids);
    }

    /// Waits until the directory can be read, and returns its pods: the complete list, which the pod workers need
    /// before they start.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: call `wait` again.
    pub async fn wait(&mut self) -> Vec<(PodUid, Arc<Manifest>)> {
        while self.read().await.is_none() {
            self.pause().await;
        }
        let pods = self.manifests.iter();
        pods.map(|manifest| (uid(manifest), Arc::new(manifest.clone())))
            .collect()
    }

    /// Applies changes of manifests to the workers. Calls `will_delete` before it deletes a pod. Never returns.
    ///
    /// # Cancel safety
    /// If the future is dropped, changes that were read but not applied yet are lost: do not call `watch` again.
    pub async fn watch(&mut self, workers: &PodWorkers<Manifest>, will_delete: impl Fn(&PodUid)) {
        loop {
            self.pause().await;
            let Some(changes) = self.read().await else {
                continue;
            };
            apply_changes(workers, changes, &will_delete);
        }
    }

    async fn pause(&self) {
        let next = self.clock.now().after(self.period);
        self.clock.sleep_until(next).await;
    }

    /// Reads the changes of the manifests. `None` if the directory cannot be read; then all pods stay as they are.
    async fn read(&mut self) -> Option<Changes> {
        let found = match self.read_directory().await {
            Ok(found) => found,
            Err(error) => {
                if self.error.as_ref() != Some(&error) {
                    tracing::error!("{error}");
                }
                self.error = Some(error);
                return None;
            }
        };
        if self.error.take().is_some() {
            tracing::info!("the manifest directory can be read again");
        }
        let changes = self.manifests.update(found);
        for error in changes.broken.iter().filter(|e| !self.broken.contains(e)) {
            tracing::error!("{error}");
        }
        self.broken.clone_from(&changes.broken);
        warn_of_ignored(&changes);
        Some(changes)
    }

    /// Reads the directory. A hung read cannot be cancelled, so the next call waits for that read and starts no other.
    async fn read_directory(&mut self) -> Result<ReadManifests, String> {
        let mut reading = self.reading.take().unwrap_or_else(|| {
            let (directory, node) = (self.directory.clone(), self.node.clone());
            let strict = self.strict_fields;
            tokio::task::spawn_blocking(move || read_directory(&directory, &node, strict))
        });
        let deadline = self.clock.now().after(DEADLINE);
        tokio::select! {
            read = &mut reading => read.map_err(|panic| panic.to_string())?,
            () = self.clock.sleep_until(deadline) => {
                self.reading = Some(reading);
                let directory = self.directory.display();
                Err(format!(
                    "reading {directory} takes longer than {DEADLINE:?}: check its file system"
                ))
            }
        }
    }
}

/// Logs the ignored fields of new manifests, and of changed manifests whose ignored fields have changed.
fn warn_of_ignored(changes: &Changes) {
    let added = changes.added.iter();
    let changed = changes.changed.iter();
    let changed = changed.filter(|(before, after)| before.ignored != after.ignored);
    for manifest in added.chain(changed.map(|(_, after)| after)) {
        if !manifest.ignored.is_empty() {
            let (file, fields) = (manifest.file.display(), manifest.ignored.join(", "));
            tracing::warn!(
                "{file}: {fields}: there are no such fields, so they are ignored: check their \
                 names and their indentation"
            );
        }
    }
}

fn apply_changes(workers: &PodWorkers<Manifest>, changes: Changes, will_delete: impl Fn(&PodUid)) {
    let delete = |uid: &PodUid| {
        will_delete(uid);
        workers.delete(uid);
    };
    for manifest in &changes.removed {
        delete(&uid(manifest));
    }
    // As in upstream's kubelet, all deletions come before the first start, because changed pods may swap their ports.
    for (before, after) in &changes.changed {
        if uid(before) != uid(after) {
            delete(&uid(before));
        }
    }
    for (_, after) in changes.changed {
        workers.set(&uid(&after), after);
    }
    for manifest in changes.added {
        workers.set(&uid(&manifest), manifest);
    }
}

fn uid(manifest: &Manifest) -> PodUid {
    PodUid::from(manifest.uid())
}
