//! The pods that the API server assigns to this node.

use std::collections::BTreeSet;

use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt as _};
use pleg::PodUid;
use pleg_kubelet::worker::PodWorkers;

use crate::status::is_terminal;

/// Returns true if a pod must run: it is not being deleted, and its phase is not terminal.
#[must_use]
pub fn is_to_run(pod: &Pod) -> bool {
    let has_ended = pod.status.as_ref().is_some_and(is_terminal);
    pod.metadata.deletion_timestamp.is_none() && !has_ended
}

/// The changes of the pods of a node. It lists them first, and again whenever the API server has lost the connection.
pub fn changes(
    client: Client,
    node: &str,
) -> impl Stream<Item = Result<Event<Pod>, watcher::Error>> + Send {
    let config = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
    watcher(Api::all(client), config).default_backoff()
}

/// Tells the workers of every change, until the stream ends.
///
/// # Cancel safety
/// What was taken from the stream was told.
pub async fn follow(
    mut changes: impl Stream<Item = Result<Event<Pod>, watcher::Error>> + Unpin,
    workers: &PodWorkers<Pod>,
) {
    let mut listed = BTreeSet::new();
    while let Some(change) = changes.next().await {
        match change {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(pod)) => {
                listed.insert(uid_of(&pod));
                tell(workers, pod);
            }
            // What the list lacks was removed while nobody watched.
            Ok(Event::InitDone) => {
                let known = workers.specs().into_keys();
                known
                    .filter(|uid| !listed.contains(uid))
                    .for_each(|uid| workers.delete(&uid));
            }
            Ok(Event::Apply(pod)) => tell(workers, pod),
            Ok(Event::Delete(pod)) => workers.delete(&uid_of(&pod)),
            Err(error) => tracing::warn!(%error, "the watch of the node's pods has failed"),
        }
    }
}

/// Tells the workers of one pod.
fn tell(workers: &PodWorkers<Pod>, pod: Pod) {
    let (uid, is_to_run) = (uid_of(&pod), is_to_run(&pod));
    // The worker needs the object even if the pod is to end: it may have a shorter grace period now.
    workers.set(&uid, pod);
    if !is_to_run {
        workers.delete(&uid);
    }
}

fn uid_of(pod: &Pod) -> PodUid {
    PodUid::from(pod.uid().unwrap_or_default())
}
