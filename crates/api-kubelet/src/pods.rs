//! The pods that the API server assigns to this node.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, Result, watcher};
use kube::{Api, Client, ResourceExt as _};
use pleg::PodUid;
use pleg_kubelet::worker::PodWorkers;

use crate::status::is_terminal;

/// Changes of pods, from a watch.
pub(crate) type Changes = BoxStream<'static, Result<Event<Pod>>>;

/// Returns true if a pod must run: it is not being deleted, and its phase is not terminal.
pub(crate) fn is_to_run(pod: &Pod) -> bool {
    let has_ended = pod.status.as_ref().is_some_and(is_terminal);
    pod.metadata.deletion_timestamp.is_none() && !has_ended
}

/// A stream of a node's pod changes. It first lists all pods, and lists them again if the watch cannot be resumed.
pub(crate) fn changes(client: Client, node: &str) -> Changes {
    let config = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
    watcher(Api::all(client), config).default_backoff().boxed()
}

/// Waits for the next complete list of pods in `changes`. Returns `None` if the stream has ended.
pub(crate) async fn list(changes: &mut Changes) -> Option<BTreeMap<PodUid, Arc<Pod>>> {
    let mut listed = BTreeMap::new();
    loop {
        match changes.next().await? {
            Ok(Event::InitApply(pod)) => drop(listed.insert(uid_of(&pod), Arc::new(pod))),
            Ok(Event::InitDone) => return Some(listed),
            Ok(Event::Init) => listed.clear(),
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "the pods of the node cannot be listed"),
        }
    }
}

/// Passes every change of a pod to the pod workers, until the stream of changes ends.
///
/// # Cancel safety
/// If the future is dropped, the workers miss a list that is still incomplete. They got all changes before this list.
pub(crate) async fn follow(mut changes: Changes, workers: &PodWorkers<Pod>) {
    while let Some(change) = changes.next().await {
        match change {
            Ok(Event::Apply(pod)) => apply(workers, pod),
            Ok(Event::Delete(pod)) => workers.delete(&uid_of(&pod)),
            Ok(Event::Init) => match list(&mut changes).await {
                Some(listed) => replace(workers, listed),
                None => return,
            },
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "the watch of the node's pods has failed"),
        }
    }
}

/// Passes all listed pods to the workers. Deletes the workers' other pods, which were deleted while no watch ran.
pub(crate) fn replace(workers: &PodWorkers<Pod>, listed: BTreeMap<PodUid, Arc<Pod>>) {
    let known = workers.specs().into_keys();
    let gone = known.filter(|uid| !listed.contains_key(uid));
    gone.for_each(|uid| workers.delete(&uid));
    listed.into_values().for_each(|pod| apply(workers, pod));
}

fn apply(workers: &PodWorkers<Pod>, pod: impl Into<Arc<Pod>>) {
    let pod = pod.into();
    let uid = uid_of(&pod);
    match pod.metadata.deletion_timestamp.is_none() {
        true => workers.set(&uid, pod),
        // A change may shorten the grace period of a pod that is being deleted, so the worker gets every change.
        false => workers.delete_with(&uid, pod),
    }
}

pub(crate) fn uid_of(pod: &Pod) -> PodUid {
    PodUid::from(pod.uid().unwrap_or_default())
}
