use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use pleg::{Pleg, PodUid};
use pleg_kubelet::perform::PerformError;
use pleg_kubelet::worker::{Action, Reconcile as _, Run};
use tokio::sync::oneshot;

use super::kubelet::Kubelet;

/// Runs one pod until it is deleted and has no container and no sandbox.
pub(crate) async fn run_pod(
    kubelet: &Kubelet,
    pleg: &Pleg,
    pod: Arc<Pod>,
    mut deleted: oneshot::Receiver<()>,
) -> Result<(), PerformError> {
    let uid = PodUid::from(pod.metadata.uid.as_deref().unwrap_or_default());
    let mut run = Run::new(pleg, uid, pod);
    while run.spec.is_some() || run.view.status.exists() {
        let result = kubelet.reconcile(&run).await;
        tokio::select! {
            next = run.next(result) => next?,
            _ = &mut deleted, if run.spec.is_some() => {
                run.spec = None;
                run.changed(run.now()); // Failed calls may have taken effect: get a newer view.
                run.next(Ok::<_, PerformError>(Action::await_change())).await?;
            }
        }
    }
    while let Err(error) = kubelet.finish(&run).await {
        tracing::error!(%error, "a deleted pod was not cleaned up");
        run.next(Err(error)).await?;
    }
    Ok(())
}
