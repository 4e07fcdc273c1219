//! The directory of manifests, read every second.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pleg::PodUid;
use pleg::runtime::clock::Clock;
use pleg_kubelet::manifest::{Changes, Manifest, ManifestError, Manifests, read_directory};
use pleg_kubelet::worker::PodWorkers;

const PERIOD: Duration = Duration::from_secs(1);

pub(crate) struct Source {
    directory: PathBuf,
    node: String,
    clock: Clock,
    manifests: Manifests,
    /// What was logged, so that it is not logged again every second.
    broken: Vec<ManifestError>,
    error: Option<String>,
}

impl Source {
    pub(crate) fn new(directory: PathBuf, node: &str, clock: Clock) -> Self {
        Self {
            directory,
            node: node.to_owned(),
            clock,
            manifests: Manifests::default(),
            broken: Vec::new(),
            error: None,
        }
    }

    /// Waits until the directory can be read, and returns its pods.
    pub(crate) async fn wait(&mut self) -> Vec<(PodUid, Arc<Manifest>)> {
        while self.read().await.is_none() {
            self.pause().await;
        }
        let pods = self.manifests.iter();
        pods.map(|manifest| (uid(manifest), Arc::new(manifest.clone())))
            .collect()
    }

    /// Tells the workers of changes.
    pub(crate) async fn watch(&mut self, workers: &PodWorkers<Manifest>) {
        loop {
            self.pause().await;
            let Some(changes) = self.read().await else {
                continue;
            };
            for manifest in &changes.removed {
                workers.delete(&uid(manifest));
            }
            for (before, after) in changes.changed {
                if uid(&before) != uid(&after) {
                    workers.delete(&uid(&before));
                }
                workers.set(&uid(&after), after);
            }
            for manifest in changes.added {
                workers.set(&uid(&manifest), manifest);
            }
        }
    }

    async fn pause(&self) {
        self.clock.sleep_until(self.clock.now().after(PERIOD)).await;
    }

    /// `None` if the directory cannot be read: all stays as it is.
    async fn read(&mut self) -> Option<Changes> {
        let (directory, node) = (self.directory.clone(), self.node.clone());
        let read = move || read_directory(&directory, &node).map_err(|error| error.to_string());
        let read = tokio::task::spawn_blocking(read).await;
        let found = match read.unwrap_or_else(|panic| Err(panic.to_string())) {
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
        Some(changes)
    }
}

fn uid(manifest: &Manifest) -> PodUid {
    PodUid::from(manifest.uid())
}
