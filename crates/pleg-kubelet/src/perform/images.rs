//! The images of containers: which is present, and pulls.
//!
//! A pull runs in a task of its own, so that a pod whose image is slow can still be stopped. Its end
//! runs the pod again.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, ContainerStateWaiting, Pod};
use pleg::core::CallError;
use pleg::runtime::clock::Clock;
use pleg::{Instant, PodUid};
use pleg_cri::{CriClient, v1};
use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;

use super::credentials::credentials;
use super::{AnySources, not_created};
use crate::backoff::BackOff;
use crate::pod_status::{image_pull_back_off, waiting};
use crate::worker::Run;

/// The images that containers need.
#[derive(Debug)]
pub(super) struct Images {
    client: CriClient,
    /// The file with the credentials for pulls.
    docker_config: Option<PathBuf>,
    state: Arc<Mutex<State>>,
    permits: Arc<Semaphore>,
}

/// How many images are pulled at once. Upstream pulls one at a time unless configured otherwise.
const MAX_PULLS: usize = 5;

/// How long a container that waits for its image shows why the pull failed, before it shows the back-off.
const ERROR_SHOWN: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
struct State {
    /// How the image service names an image that was found or pulled. One that is gone is found out
    /// by the create that fails.
    known: BTreeMap<String, String>,
    pulls: BTreeMap<Wanted, Pull>,
    back_off: BackOff,
}

/// The container that an image is pulled for, and the image.
type Wanted = (PodUid, String, String);

#[derive(Debug)]
enum Pull {
    Running {
        task: AbortOnDropHandle<()>,
        /// The error of the one before.
        failed: Option<String>,
    },
    Succeeded(String),
    Failed {
        error: String,
        /// Whether a status has shown the error.
        is_shown: bool,
    },
}

/// What a container that is to be created has.
#[derive(Debug)]
pub(super) enum Image {
    /// An image with that name in the image service.
    Present(String),
    /// None yet. The pod is run again at that instant; without one, when the pull has ended.
    Absent(ContainerStateWaiting, Option<Instant>),
}

impl Images {
    pub(super) fn new(
        client: CriClient,
        docker_config: Option<PathBuf>,
        back_off: BackOff,
    ) -> Self {
        let state = State {
            back_off,
            ..State::default()
        };
        Self {
            client,
            docker_config,
            state: Arc::new(Mutex::new(state)),
            permits: Arc::new(Semaphore::new(MAX_PULLS)),
        }
    }

    /// The image of a container that is to be created now. Begins a pull if one is needed.
    pub(super) async fn of<S>(
        &self,
        run: &Run<S>,
        pod: &Pod,
        container: &Container,
        sources: &Arc<dyn AnySources>,
    ) -> Image {
        let image = container.image.clone().unwrap_or_default();
        if !is_reference(&image) {
            let message = format!("{image:?} is not the name of an image");
            return Image::Absent(waiting("InvalidImageName", message), None);
        }
        let wanted = (run.uid.clone(), container.name.clone(), image.clone());
        let policy = container.image_pull_policy.as_deref();
        // Upstream's default.
        let is_latest = image.ends_with(":latest") || !has_tag(&image);
        let may_be_present = policy.map_or(!is_latest, |policy| policy != "Always");
        if let Some(pulled) = self.pulled(run, pod, &wanted, &image) {
            // Somebody else may have pulled it since.
            let waits = matches!(pulled, Image::Absent(_, Some(_)));
            if waits
                && may_be_present
                && let Ok(Some(reference)) = self.present(&image).await
            {
                return Image::Present(reference);
            }
            return pulled;
        }
        if may_be_present {
            match self.present(&image).await {
                Ok(Some(reference)) => return Image::Present(reference),
                Ok(None) if policy == Some("Never") => {
                    let message = format!(
                        "Container image {image:?} is not present with pull policy of Never"
                    );
                    return Image::Absent(waiting("ErrImageNeverPull", message), retry(run));
                }
                Ok(None) => {}
                Err(error) => {
                    let message = format!("Failed to inspect image {image:?}: {error}");
                    return Image::Absent(waiting("ImageInspectError", message), retry(run));
                }
            }
        }
        self.pull(run, pod, wanted, sources.clone())
    }

    /// The image may not be present any more.
    pub(super) fn forget_image(&self, image: &str) {
        lock(&self.state).known.remove(image);
    }

    /// Ends the pulls of a pod, and drops what is kept of it.
    pub(super) fn forget_pod(&self, uid: &PodUid) {
        let mut state = lock(&self.state);
        state.pulls.retain(|(of, _, _), _| of != uid);
        state.back_off.forget(uid);
    }

    /// The result of a pull for this container; `None` if there was none or it is to be repeated.
    fn pulled<S>(&self, run: &Run<S>, pod: &Pod, wanted: &Wanted, image: &str) -> Option<Image> {
        let State {
            pulls, back_off, ..
        } = &mut *lock(&self.state);
        match pulls.get_mut(wanted)? {
            // It panicked, or it would have left a result.
            Pull::Running { task, .. } if task.is_finished() => None,
            Pull::Running { failed, .. } => {
                let reason = pulling(pod, image, failed.as_deref());
                Some(Image::Absent(reason, None))
            }
            Pull::Succeeded(reference) => {
                let reference = reference.clone();
                pulls.remove(wanted);
                Some(Image::Present(reference))
            }
            Pull::Failed { error, is_shown } => {
                let (uid, _, _) = wanted;
                let delayed = back_off.delayed_since_last(uid, image, run.now())?;
                Some(match std::mem::replace(is_shown, true) {
                    false => {
                        let due = delayed.until.min(run.now().after(ERROR_SHOWN));
                        Image::Absent(waiting("ErrImagePull", error.clone()), Some(due))
                    }
                    true => Image::Absent(pulling(pod, image, Some(error)), Some(delayed.until)),
                })
            }
        }
    }

    async fn present(&self, image: &str) -> Result<Option<String>, CallError> {
        if let Some(known) = lock(&self.state).known.get(image) {
            return Ok(Some(known.clone()));
        }
        let found = self.client.image_status(spec_of(image)).await?;
        let id = found.map(|found| found.id);
        if let Some(id) = &id {
            let mut state = lock(&self.state);
            state.known.insert(image.to_owned(), id.clone());
        }
        Ok(id)
    }

    fn pull<S>(
        &self,
        run: &Run<S>,
        pod: &Pod,
        wanted: Wanted,
        sources: Arc<dyn AnySources>,
    ) -> Image {
        let image = &*wanted.2.clone();
        tracing::info!(pod = %run.uid, container = wanted.1, image, "pulling an image");
        let pull = Pulling {
            client: self.client.clone(),
            docker_config: self.docker_config.clone(),
            clock: run.clock(),
            sources,
            pod: pod.clone(),
            image: image.to_owned(),
            wanted: wanted.clone(),
            state: self.state.clone(),
            permits: self.permits.clone(),
        };
        let wake = run.waker();
        let mut state = lock(&self.state);
        let failed = match state.pulls.remove(&wanted) {
            Some(Pull::Failed { error, .. }) => Some(error),
            _ => None,
        };
        let reason = pulling(pod, image, failed.as_deref());
        let task = tokio::spawn(async move {
            pull.run().await;
            wake();
        });
        let running = Pull::Running {
            task: AbortOnDropHandle::new(task),
            failed,
        };
        state.pulls.insert(wanted, running);
        Image::Absent(reason, None)
    }
}

/// A pull in its task.
struct Pulling {
    client: CriClient,
    docker_config: Option<PathBuf>,
    clock: Clock,
    sources: Arc<dyn AnySources>,
    pod: Pod,
    image: String,
    wanted: Wanted,
    state: Arc<Mutex<State>>,
    permits: Arc<Semaphore>,
}

impl Pulling {
    async fn pull(&self) -> Result<String, String> {
        let given = self.sources.credentials(&self.pod, &self.image).await;
        let given = given.map_err(|error| format!("no pull credentials: {error}"))?;
        let (file, image) = (self.docker_config.clone(), self.image.clone());
        let find = move || file.and_then(|file| credentials(&file, &image));
        let auth = match given {
            Some(given) => Some(given),
            None => tokio::task::spawn_blocking(find).await.unwrap_or_default(),
        };
        let pulled = self.client.pull_image(spec_of(&self.image), auth, None);
        pulled.await.map_err(|error| error.to_string())
    }

    async fn run(self) {
        // It is never closed.
        let _permit = self.permits.acquire().await;
        let pulled = self.pull().await;
        let state = &mut *lock(&self.state);
        // A pod that is gone needs no result.
        let Some(pull) = state.pulls.get_mut(&self.wanted) else {
            return;
        };
        *pull = match pulled {
            Ok(reference) => {
                state.known.insert(self.image, reference.clone());
                Pull::Succeeded(reference)
            }
            Err(error) => {
                let (uid, container, image) = &self.wanted;
                tracing::warn!(pod = %uid, container, image, %error, "an image could not be pulled");
                let now = self.clock.now();
                state.back_off.restarted(uid, image, now, now);
                Pull::Failed {
                    error,
                    is_shown: false,
                }
            }
        };
    }
}

fn spec_of(image: &str) -> v1::ImageSpec {
    v1::ImageSpec {
        image: image.to_owned(),
        user_specified_image: image.to_owned(),
        ..v1::ImageSpec::default()
    }
}

/// Why a container waits while its image is pulled, or is to be pulled again after that error.
fn pulling(pod: &Pod, image: &str, failed: Option<&str>) -> ContainerStateWaiting {
    let Some(error) = failed else {
        return waiting(not_created(pod), format!("Pulling image {image:?}"));
    };
    let mut reason = image_pull_back_off(image);
    let message = reason.message.get_or_insert_default();
    message.push_str(": ErrImagePull: ");
    message.push_str(error);
    reason
}

/// When the runtime is asked again for an image that is not to be pulled: after a second. There is no
/// back-off, because no registry is asked.
fn retry<S>(run: &Run<S>) -> Option<Instant> {
    Some(run.now().after(Duration::from_secs(1)))
}

/// Whether a reference names a tag or a digest.
fn has_tag(image: &str) -> bool {
    let last = image.rsplit('/').next().unwrap_or(image);
    last.contains(':') || last.contains('@')
}

/// Returns true for a name that has the grammar of the registries: `host:port/path/name:tag@digest`.
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
        let ends = part.starts_with(|c: char| c.is_ascii_alphanumeric())
            && !part.ends_with(['.', '_', '-']);
        ends && part
            .chars()
            .all(|c| matches!(c, 'a'..='z' | '0'..='9' | '.' | '_' | '-'))
    };
    let is_tag = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    path.split('/').all(is_plain)
        && (1..=128).contains(&tag.len())
        && !tag.starts_with(['.', '-'])
        && tag.chars().all(is_tag)
        && digest.contains(':')
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_images_are_checked_as_registries_do() {
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
