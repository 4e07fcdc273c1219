//! The pods that the API server assigns to this node.

use std::collections::{BTreeMap, BTreeSet};

use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt as _};
use pleg::PodUid;
use pleg_kubelet::spec::PodSpec;
use pleg_kubelet::worker::PodWorkers;

use crate::status::is_terminal;

/// A pod of the API server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ApiPod {
    /// Its object.
    pub pod: Pod,
    /// What pod workers use.
    pub spec: PodSpec,
}

impl ApiPod {
    /// The specification for the worker of that pod.
    #[must_use]
    pub fn new(pod: Pod) -> Self {
        Self {
            spec: PodSpec::from_pod(&pod),
            pod,
        }
    }

    /// Returns true if it must run: it is not being deleted, and its phase is not terminal.
    #[must_use]
    pub fn is_to_run(&self) -> bool {
        let has_ended = self.pod.status.as_ref().is_some_and(is_terminal);
        self.pod.metadata.deletion_timestamp.is_none() && !has_ended
    }
}

/// The changes of the pods of a node. It lists them first, and again whenever the API server has lost the connection.
pub fn changes(
    client: Client,
    node: &str,
) -> impl Stream<Item = Result<Event<Pod>, watcher::Error>> + Send {
    let config = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
    watcher(Api::all(client), config).default_backoff()
}

/// Waits for the first complete list.
pub async fn first(
    changes: &mut (impl Stream<Item = Result<Event<Pod>, watcher::Error>> + Unpin),
) -> BTreeMap<PodUid, Pod> {
    let mut pods = BTreeMap::new();
    while let Some(change) = changes.next().await {
        match change {
            Ok(Event::Init) => pods.clear(),
            Ok(Event::InitApply(pod)) => drop(pods.insert(uid_of(&pod), pod)),
            Ok(Event::InitDone) => break,
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "the pods of the node cannot be listed"),
        }
    }
    pods
}

/// Tells the workers of every change, until the stream ends.
///
/// # Cancel safety
/// What was taken from the stream was told.
pub async fn follow(
    mut changes: impl Stream<Item = Result<Event<Pod>, watcher::Error>> + Unpin,
    workers: &PodWorkers<ApiPod>,
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
pub fn tell(workers: &PodWorkers<ApiPod>, pod: Pod) {
    let uid = uid_of(&pod);
    let pod = ApiPod::new(pod);
    let is_to_run = pod.is_to_run();
    // The worker needs the object even if the pod is to end: it may have a shorter grace period now.
    workers.set(&uid, pod);
    if !is_to_run {
        workers.delete(&uid);
    }
}

fn uid_of(pod: &Pod) -> PodUid {
    PodUid::from(pod.uid().unwrap_or_default())
}
