//! Finds the images of containers, and pulls missing ones.
//!
//! A pull runs in a task of its own, so a pod can be stopped during a slow pull. The end of the pull wakes the worker.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, ContainerStateWaiting, Pod};
use pleg::{Instant, PodUid};
use pleg_cri::v1;
use tokio_util::task::AbortOnDropHandle;

use super::{Performing, Remembered, not_created};
use crate::lock;
use crate::pod_status::waiting;

/// The maximum number of images that are pulled at once. Upstream pulls one at a time unless configured otherwise.
pub(super) const MAX_PULLS: usize = 5;
/// The time for which a container's status shows `ErrImagePull` after a failed pull, before `ImagePullBackOff`.
const ERROR_SHOWN: Duration = Duration::from_secs(10);
/// The delay before a failed lookup of an image in the runtime is repeated. A lookup calls no registry: no back-off.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// The name of a container, and the image to pull for it.
pub(super) type Wanted = (String, String);

#[derive(Debug)]
pub(super) enum Pull {
    /// The task of the pull, and the error of the previous pull.
    Running(AbortOnDropHandle<()>, Option<String>),
    /// The name of the pulled image in the runtime's image service.
    Succeeded(String),
    /// The error of the pull, and a flag that is true once a status has shown this error.
    Failed(String, bool),
}

/// Why a container has no image yet, and when the worker runs again. `None`: when the pull ends or the pod changes.
type Absent = (ContainerStateWaiting, Option<Instant>);

impl Remembered {
    fn pull_ended(&mut self, uid: &PodUid, wanted: Wanted, pull: Pull, now: Instant) {
        let (container, image) = &wanted;
        if let Pull::Failed(error, _) = &pull {
            tracing::warn!(pod = %uid, container, image, error, "an image could not be pulled");
            // If containers pull the same image at the same time and the pulls fail, that is one failure.
            if self.back_off.delayed_retry(image, now).is_none() {
                self.back_off.restarted(image, now, now);
            }
        }
        self.pulls.insert(wanted, pull);
    }
}

impl<S> Performing<'_, S> {
    /// The name of a container's image in the runtime's image service. Starts a pull of the image if one is needed.
    pub(super) async fn image(&self, pod: &Pod, container: &Container) -> Result<String, Absent> {
        let image = container.image.as_deref().unwrap_or_default();
        if !is_reference(image) {
            let message = format!("{image:?} is not the name of an image");
            return Err((waiting("InvalidImageName", message), None));
        }
        let wanted = (container.name.clone(), image.to_owned());
        let waits = match self.pulled(pod, &wanted) {
            // Another pod or a user may have pulled the image after this failed pull, so the runtime is asked first.
            Some(Err((reason, Some(due)))) => Some((reason, Some(due))),
            Some(pulled) => return pulled,
            None => None,
        };
        let policy = container.image_pull_policy.as_deref();
        // As in upstream's kubelet, an image without a tag and without a digest has the tag `latest` by default.
        let name = image.rsplit('/').next().unwrap_or_default();
        let is_latest = name.ends_with(":latest") || !name.contains([':', '@']);
        let present = match policy.map_or(is_latest, |policy| policy == "Always") {
            true => Ok(None),
            false => self.performer.client.image_status(spec_of(image)).await,
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

    /// The result of the last pull for this container. `None` if there was no pull, or the image must be pulled again.
    fn pulled(&self, pod: &Pod, wanted: &Wanted) -> Option<Result<String, Absent>> {
        let (mut pods, now) = (lock(&self.performer.pods), self.run.now());
        let known = pods.get_mut(&self.run.uid)?;
        let (_, image) = wanted;
        let absent = match known.pulls.get_mut(wanted)? {
            // The task of the pull has ended without storing a result, so it has panicked.
            Pull::Running(task, _) if task.is_finished() => return None,
            Pull::Running(_, failed) => (pulling(pod, image, failed.as_deref()), None),
            Pull::Succeeded(reference) => {
                let reference = reference.clone();
                known.pulls.remove(wanted);
                return Some(Ok(reference));
            }
            Pull::Failed(error, is_shown) => {
                let (until, _) = known.back_off.delayed_retry(image, now)?;
                match std::mem::replace(is_shown, true) {
                    true => (pulling(pod, image, Some(error)), Some(until)),
                    false => {
                        let due = until.min(now.after(ERROR_SHOWN));
                        (waiting("ErrImagePull", error.clone()), Some(due))
                    }
                }
            }
        };
        Some(Err(absent))
    }

    fn begin_pull(&self, pod: &Pod, wanted: Wanted) -> Absent {
        let (performer, uid, (container, image)) = (self.performer, &self.run.uid, &wanted);
        tracing::info!(pod = %uid, container, image, "pulling an image");
        let mut all = lock(&performer.pods);
        let known = all.entry(uid.clone()).or_default();
        known.back_off.settings = performer.image_back_off;
        let failed = match known.pulls.remove(&wanted) {
            Some(Pull::Failed(error, _)) => Some(error),
            _ => None,
        };
        let reason = pulling(pod, image, failed.as_deref());
        let (client, sources) = (performer.client.clone(), performer.sources.clone());
        let (permits, pods) = (performer.pull_permits.clone(), performer.pods.clone());
        let (uid, clock, wake) = (uid.clone(), self.run.pleg.clock(), self.run.waker());
        let (key, pod) = (wanted.clone(), pod.clone());
        let task = tokio::spawn(async move {
            // The semaphore is never closed.
            let permit = permits.acquire().await;
            let auth = sources.credentials(&pod, &wanted.1).await;
            let pull = match auth {
                Err(error) => Pull::Failed(format!("no pull credentials: {error}"), false),
                Ok(auth) => match client.pull_image(spec_of(&wanted.1), auth, None).await {
                    Err(error) => Pull::Failed(error.to_string(), false),
                    Ok(reference) => Pull::Succeeded(reference),
                },
            };
            drop(permit);
            // If the pod was removed during the pull, the result of the pull is dropped.
            if let Some(known) = lock(&pods).get_mut(&uid) {
                known.pull_ended(&uid, wanted, pull, clock.now());
            }
            wake();
        });
        let pull = Pull::Running(AbortOnDropHandle::new(task), failed);
        known.pulls.insert(key, pull);
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

/// Returns true if `image` has the form that registries require: `host:port/path/name:tag@digest`.
fn is_reference(image: &str) -> bool {
    let (image, digest) = image.split_once('@').unwrap_or((image, "a:"));
    // A `:` that has a `/` after it precedes the port of the host.
    let tagged = image.rsplit_once(':').filter(|(_, tag)| !tag.contains('/'));
    let (name, tag) = tagged.unwrap_or((image, "a"));
    let path = match name.split_once('/') {
        Some((host, path)) if host.contains(['.', ':']) || host == "localhost" => path,
        _ => name,
    };
    let is_plain = |part: &str| {
        let is_inner = |c| matches!(c, 'a'..='z' | '0'..='9' | '.' | '_' | '-');
        let ends_fit = !part.is_empty() && part.trim_matches(['.', '_', '-']) == part;
        ends_fit && part.chars().all(is_inner)
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
