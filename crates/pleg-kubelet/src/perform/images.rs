//! Finds the images of containers, and pulls missing ones.
//!
//! A pull runs in a task of its own, so a pod can be stopped during a slow pull. The end of the pull wakes the worker.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, ContainerStateWaiting, Pod};
use pleg::{Instant, PodUid};
use pleg_cri::{CriClient, v1};
use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;

use super::{AnySources, Performing, Remembered, not_created};
use crate::backoff::BackOffSettings;
use crate::lock;
use crate::pod_status::waiting;

/// The images that containers need.
#[derive(Debug)]
pub(super) struct Images {
    client: CriClient,
    back_off: BackOffSettings,
    pub(super) pods: Mutex<BTreeMap<PodUid, Remembered>>,
    permits: Semaphore,
}

/// The maximum number of images that are pulled at once. Upstream pulls one at a time unless configured otherwise.
const MAX_PULLS: usize = 5;

/// The time for which a container's status shows `ErrImagePull` after a failed pull, before `ImagePullBackOff`.
const ERROR_SHOWN: Duration = Duration::from_secs(10);

/// The delay before a failed lookup of an image in the runtime is repeated. A lookup calls no registry: no back-off.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// The name of a container, and the image to pull for it.
pub(super) type Wanted = (String, String);

#[derive(Debug)]
pub(super) enum Pull {
    Running {
        task: AbortOnDropHandle<()>,
        /// The error of the previous pull.
        failed: Option<String>,
    },
    Succeeded(String),
    /// The pull failed with this error, which no status has shown yet.
    Failed(String),
    /// The pull failed with this error, which a status has shown.
    BackingOff(String),
}

/// The name of the pulled image in the runtime's image service, or the error of the pull.
type Pulled = Result<String, String>;

/// Why a container has no image yet, and when its pod's worker runs again. `None`: when the pull ends or pod changes.
type Absent = (ContainerStateWaiting, Option<Instant>);

impl Images {
    pub(super) fn new(client: CriClient, back_off: BackOffSettings) -> Arc<Self> {
        Arc::new(Self {
            client,
            back_off,
            pods: Mutex::default(),
            permits: Semaphore::new(MAX_PULLS),
        })
    }

    async fn pull(&self, from: &dyn AnySources, pod: &Pod, image: &str) -> Pulled {
        // The semaphore is never closed.
        let _permit = self.permits.acquire().await;
        let auth = from.credentials(pod, image).await;
        let auth = auth.map_err(|error| format!("no pull credentials: {error}"))?;
        let pulled = self.client.pull_image(spec_of(image), auth, None);
        pulled.await.map_err(|error| error.to_string())
    }

    fn pull_ended(&self, uid: &PodUid, wanted: Wanted, pulled: Pulled, now: Instant) {
        let (container, image) = &wanted;
        let mut pods = lock(&self.pods);
        // If the pod was removed during the pull, the result of the pull is dropped.
        let Some(pod) = pods.get_mut(uid) else { return };
        let pull = pulled.map_or_else(Pull::Failed, Pull::Succeeded);
        if let Pull::Failed(error) = &pull {
            tracing::warn!(pod = %uid, container, image, error, "an image could not be pulled");
            pod.back_off.settings = self.back_off;
            // If containers pull the same image at the same time and the pulls fail, that is one failure.
            if pod.back_off.delayed_retry(image, now).is_none() {
                pod.back_off.restarted(image, now, now);
            }
        }
        pod.pulls.insert(wanted, pull);
    }
}

impl<S> Performing<'_, S> {
    /// The name of a container's image in the runtime's image service. Starts a pull of the image if one is needed.
    pub(super) async fn image(&self, pod: &Pod, container: &Container) -> Result<String, Absent> {
        let images = &self.performer.images;
        let image = container.image.clone().unwrap_or_default();
        if !is_reference(&image) {
            let message = format!("{image:?} is not the name of an image");
            return Err((waiting("InvalidImageName", message), None));
        }
        let wanted = (container.name.clone(), image.clone());
        let policy = container.image_pull_policy.as_deref();
        // As in upstream's kubelet, an image without a tag and without a digest has the tag `latest` by default.
        let name = image.rsplit('/').next().unwrap_or_default();
        let is_latest = name.ends_with(":latest") || !name.contains([':', '@']);
        let may_be_present = policy.map_or(!is_latest, |policy| policy != "Always");
        let waits = match self.pulled(pod, &wanted) {
            // Another pod or a user may have pulled the image after this failed pull, so the runtime is asked first.
            Some(Err((reason, Some(due)))) => Some((reason, Some(due))),
            Some(pulled) => return pulled,
            None => None,
        };
        let present = match may_be_present {
            true => images.client.image_status(spec_of(&image)).await,
            false => Ok(None),
        };
        let (reason, message) = match (present, waits) {
            (Ok(Some(found)), _) => return Ok(found.id),
            (_, Some(waits)) => return Err(waits),
            (Ok(None), None) if policy != Some("Never") => return Err(self.begin_pull(pod, wanted)),
            (Ok(None), None) => (
                "ErrImageNeverPull",
                format!("Container image {image:?} is not present with pull policy of Never"),
            ),
            (Err(error), None) => (
                "ImageInspectError",
                format!("Failed to inspect image {image:?}: {error}"),
            ),
        };
        let again = self.run.now().after(ASK_AGAIN);
        Err((waiting(reason, message), Some(again)))
    }

    /// The result of the last pull for this container. `None` if there was no pull, or if another one must be made.
    fn pulled(&self, pod: &Pod, wanted: &Wanted) -> Option<Result<String, Absent>> {
        let mut pods = lock(&self.performer.images.pods);
        let known = pods.get_mut(&self.run.uid)?;
        let (_, image) = wanted;
        let pull = known.pulls.get_mut(wanted)?;
        match pull {
            // The task of the pull has ended without storing a result, so it has panicked.
            Pull::Running { task, .. } if task.is_finished() => None,
            Pull::Running { failed, .. } => {
                let reason = pulling(pod, image, failed.as_deref());
                Some(Err((reason, None)))
            }
            Pull::Succeeded(reference) => {
                let reference = reference.clone();
                known.pulls.remove(wanted);
                Some(Ok(reference))
            }
            Pull::Failed(error) => {
                let (now, error) = (self.run.now(), error.clone());
                let (until, _) = known.back_off.delayed_retry(image, now)?;
                *pull = Pull::BackingOff(error.clone());
                let due = until.min(now.after(ERROR_SHOWN));
                Some(Err((waiting("ErrImagePull", error), Some(due))))
            }
            Pull::BackingOff(error) => {
                let (until, _) = known.back_off.delayed_retry(image, self.run.now())?;
                Some(Err((pulling(pod, image, Some(error)), Some(until))))
            }
        }
    }

    fn begin_pull(&self, pod: &Pod, wanted: Wanted) -> Absent {
        let (uid, (container, image)) = (self.run.uid.clone(), &wanted);
        tracing::info!(pod = %uid, container, image, "pulling an image");
        let mut pods = lock(&self.performer.images.pods);
        let pulls = &mut pods.entry(uid.clone()).or_default().pulls;
        let failed = match pulls.remove(&wanted) {
            Some(Pull::Failed(error) | Pull::BackingOff(error)) => Some(error),
            _ => None,
        };
        let reason = pulling(pod, image, failed.as_deref());
        let (key, pod, clock) = (wanted.clone(), pod.clone(), self.run.clock());
        let images = self.performer.images.clone();
        let sources = self.performer.sources.clone();
        let wake = self.run.waker();
        let task = tokio::spawn(async move {
            let pulled = images.pull(&*sources, &pod, &wanted.1).await;
            images.pull_ended(&uid, wanted, pulled, clock.now());
            wake();
        });
        let task = AbortOnDropHandle::new(task);
        pulls.insert(key, Pull::Running { task, failed });
        (reason, None)
    }
}

fn spec_of(image: &str) -> v1::ImageSpec {
    v1::ImageSpec {
        image: image.to_owned(),
        user_specified_image: image.to_owned(),
        ..v1::ImageSpec::default()
    }
}

/// The waiting reason of a container without its image. `failed` is the error of the last pull if that pull failed.
fn pulling(pod: &Pod, image: &str, failed: Option<&str>) -> ContainerStateWaiting {
    let Some(error) = failed else {
        return waiting(not_created(pod), format!("Pulling image {image:?}"));
    };
    let message = format!("Back-off pulling image \"{image}\": ErrImagePull: {error}");
    waiting("ImagePullBackOff", message)
}

/// Returns true if a name has the grammar of registries for images: `host:port/path/name:tag@digest`.
fn is_reference(image: &str) -> bool {
    let (image, digest) = image.split_once('@').unwrap_or((image, "a:"));
    let slash = image.rfind('/').map_or(0, |at| at + 1);
    let colon = image[slash..].find(':').map(|at| slash + at);
    let (name, tag) = colon.map_or((image, "a"), |at| (&image[..at], &image[at + 1..]));
    let path = match name.split_once('/') {
        Some((host, path)) if host.contains(['.', ':']) || host == "localhost" => path,
        _ => name,
    };
    let is_plain = |part: &str| {
        let is_inner = |c| matches!(c, 'a'..='z' | '0'..='9' | '.' | '_' | '-');
        let ends = part.starts_with(|c: char| c.is_ascii_alphanumeric());
        ends && !part.ends_with(['.', '_', '-']) && part.chars().all(is_inner)
    };
    let is_tag = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    path.split('/').all(is_plain)
        && (1..=128).contains(&tag.len())
        && !tag.starts_with(['.', '-'])
        && tag.chars().all(is_tag)
        && digest.contains(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_names_are_checked_as_registries_check_them() {
        let good = "nginx a/b_c:1.0-X localhost:5000/a R.example/a@sha256:0 a__b--c/d:x@sha256:0";
        for good in good.split(' ') {
            assert!(is_reference(good), "{good}");
        }
        let bad = ",Nginx,a/B,a:,a: b,a//b,-a,a:-1,a@b,http://a,a/b/";
        for bad in bad.split(',') {
            assert!(!is_reference(bad), "{bad}");
        }
    }
}
