//! Decides whether to subscribe to the runtime's events.
//!
//! Some runtimes give each event to one subscriber only (quirk `competing subscribers`). There, a
//! second subscriber takes events from a kubelet with EventedPLEG, so this process does not subscribe
//! while there may be such a kubelet, and polls instead. Others may crash when a subscriber disconnects
//! (quirk `crash on disconnect`). This process ends at some time, so it does not subscribe there.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt as _, Stream};
use pleg::core::{CallError, CallErrorKind, EventProfile, Id, Report, RuntimeEvent};
use pleg::runtime::clock::Clock;
use pleg::runtime::{Row, Runtime, RuntimeVersion, Scope};
use pleg_cri::quirks;
use tokio::sync::watch;

use crate::kubelet::{Subscriber, find_subscriber};

/// How often the node is checked again: before each subscribe, which the generator repeats at this
/// period, and while a stream is open, because a kubelet may start later.
const CHECK_PERIOD: Duration = Duration::from_secs(60);
/// How long a check may take. Reading `/proc` can hang on a process that hangs.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

const OPERATION: &str = "GetContainerEvents";

/// Why there is no subscription, if there is a reason.
pub(crate) type Reason = watch::Receiver<Option<Arc<str>>>;

/// A runtime whose events are subscribed to only if that takes them from no kubelet.
pub(crate) struct Guarded<R> {
    runtime: R,
    /// `None`: always subscribe.
    check: Option<Check>,
    reason: Arc<watch::Sender<Option<Arc<str>>>>,
}

impl<R> Guarded<R> {
    /// Subscribes whatever is found.
    pub(crate) fn always(runtime: R) -> Self {
        Self::with(runtime, None)
    }

    /// Subscribes unless that may take events from a kubelet on this node that uses the same socket, or
    /// may crash the runtime.
    pub(crate) fn auto(runtime: R, socket: Option<PathBuf>, clock: Clock) -> Self {
        let find = move || find_subscriber(Path::new("/"), socket.as_deref());
        Self::with(runtime, Some(Check::new(find, clock)))
    }

    fn with(runtime: R, check: Option<Check>) -> Self {
        Self {
            runtime,
            check,
            reason: Arc::new(watch::Sender::new(None)),
        }
    }

    /// Why there is no subscription, now and as it changes.
    pub(crate) fn reason(&self) -> Reason {
        self.reason.subscribe()
    }
}

impl<R: Runtime> Guarded<R> {
    /// Why the events must not be subscribed to, if there is a reason.
    pub(crate) async fn refusal(&self) -> Result<Option<Arc<str>>, CallError> {
        Ok(self.check().await?.0)
    }

    /// Why the events must not be subscribed to, and the check to be repeated while they are.
    async fn check(&self) -> Result<(Option<Arc<str>>, Option<&Check>), CallError> {
        let Some(check) = &self.check else {
            return Ok((None, None));
        };
        let version = self.runtime.version().await?;
        let profile = quirks::event_profile(&version);
        let runtime = format!("{} {}", version.name, version.version);
        if profile.disconnect_may_crash {
            let why = format!("{runtime} may crash when a client ends its event stream");
            return Ok((Some(why.into()), None));
        }
        if !profile.splits_events_between_subscribers {
            return Ok((None, None));
        }
        let why = check.run().await;
        let why = why.map(|why| {
            format!("{runtime} gives each event to one subscriber only, and {why}").into()
        });
        Ok((why, Some(check)))
    }

    /// Logs and publishes the reason, once.
    fn publish(&self, reason: Option<&Arc<str>>) {
        let changed = self.reason.send_if_modified(|last| {
            let changed = last.as_ref() != reason;
            *last = reason.cloned();
            changed
        });
        match reason {
            Some(reason) if changed => tracing::warn!(
                "polling, without the event stream: {reason}; --events always subscribes anyway"
            ),
            None if changed => {
                tracing::info!("nothing speaks against the event stream any more; subscribing");
            }
            _ => {}
        }
    }
}

/// A repeated check for a subscriber.
#[derive(Clone)]
struct Check {
    find: Arc<dyn Fn() -> Subscriber + Send + Sync>,
    running: Arc<AtomicBool>,
    clock: Clock,
}

impl Check {
    fn new(find: impl Fn() -> Subscriber + Send + Sync + 'static, clock: Clock) -> Self {
        Self {
            find: Arc::new(find),
            running: Arc::default(),
            clock,
        }
    }

    /// Why there may be a subscriber, if there may be one. A check that hangs blocks one thread; no
    /// other one is started beside it.
    async fn run(&self) -> Option<String> {
        let hangs = || Some("the check for a kubelet hangs".to_owned());
        if self.running.swap(true, Ordering::Relaxed) {
            return hangs();
        }
        let (find, running) = (self.find.clone(), self.running.clone());
        let check = tokio::task::spawn_blocking(move || {
            let found = find();
            running.store(false, Ordering::Relaxed);
            found
        });
        match tokio::time::timeout(CHECK_TIMEOUT, check).await {
            Ok(Ok(Subscriber::None)) => None,
            Ok(Ok(Subscriber::Possible(why))) => Some(why),
            Ok(Err(_)) => Some("the check for a kubelet failed".to_owned()),
            Err(_) => hangs(),
        }
    }

    /// Completes when there may be a subscriber, with the reason.
    async fn found(self) -> String {
        loop {
            let next = self.clock.now().after(CHECK_PERIOD);
            self.clock.sleep_until(next).await;
            if let Some(why) = self.run().await {
                return why;
            }
        }
    }
}

/// An event stream that ends when another subscriber is found.
pub(crate) struct Events<S> {
    stream: S,
    found: Option<BoxFuture<'static, String>>,
}

impl<S: Stream<Item = Result<RuntimeEvent, CallError>> + Unpin> Stream for Events<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        if let Some(found) = &mut self.found
            && let Poll::Ready(why) = found.poll_unpin(cx)
        {
            self.found = None;
            let error = CallError::new(OPERATION, CallErrorKind::Cancelled, why);
            return Poll::Ready(Some(Err(error)));
        }
        Pin::new(&mut self.stream).poll_next(cx)
    }
}

impl<R: Runtime> Runtime for Guarded<R> {
    type Events = Events<R::Events>;

    fn list_sandboxes(
        &self,
        scope: &Scope,
        row: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> impl Future<Output = Result<(), CallError>> + Send {
        self.runtime.list_sandboxes(scope, row)
    }

    fn list_containers(
        &self,
        scope: &Scope,
        row: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> impl Future<Output = Result<(), CallError>> + Send {
        self.runtime.list_containers(scope, row)
    }

    fn sandbox_status(&self, id: &Id) -> impl Future<Output = Result<Report, CallError>> + Send {
        self.runtime.sandbox_status(id)
    }

    fn container_status(&self, id: &Id) -> impl Future<Output = Result<Report, CallError>> + Send {
        self.runtime.container_status(id)
    }

    /// `Unimplemented` if the events must not be subscribed to: the generator then polls, and tries again
    /// every 60 s.
    async fn subscribe(&self) -> Result<Self::Events, CallError> {
        let (refusal, check) = self.check().await?;
        self.publish(refusal.as_ref());
        if let Some(reason) = refusal {
            let kind = CallErrorKind::Unimplemented;
            return Err(CallError::new(OPERATION, kind, &*reason));
        }
        Ok(Events {
            stream: self.runtime.subscribe().await?,
            found: check.map(|check| check.clone().found().boxed()),
        })
    }

    fn version(&self) -> impl Future<Output = Result<RuntimeVersion, CallError>> + Send {
        self.runtime.version()
    }

    fn event_profile(&self) -> impl Future<Output = Result<EventProfile, CallError>> + Send {
        self.runtime.event_profile()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt as _;
    use pleg_cri::{CriConfig, CriRuntime};
    use pleg_sim::{Mode, Sim, SimBuilder};
    use std::sync::Mutex;

    type Found = Arc<Mutex<Subscriber>>;

    /// A simulated runtime, and a client whose check returns what `found` contains.
    fn guarded(sim: SimBuilder, found: &Found, dir: &Path) -> (Sim, Guarded<CriRuntime>) {
        let sim = sim.build();
        let path = dir.join("cri.sock");
        let serving = sim.serve_unix(&path, std::future::pending()).unwrap();
        let config = CriConfig::new(serving.path().to_str().unwrap().parse().unwrap());
        let runtime = CriRuntime::new(config).unwrap();
        let found = found.clone();
        let find = move || found.lock().unwrap().clone();
        let check = Check::new(find, runtime.clock());
        (sim, Guarded::with(runtime, Some(check)))
    }

    #[tokio::test]
    async fn shared_events_are_left_to_a_kubelet() {
        let dir = tempfile::tempdir().unwrap();
        let possible = Subscriber::Possible("the kubelet subscribes".to_owned());
        let found = Arc::new(Mutex::new(possible));
        let (sim, runtime) = guarded(Sim::builder().mode(Mode::Containerd17), &found, dir.path());
        let reason = runtime.reason();
        let error = runtime.subscribe().await.err().unwrap();
        assert_eq!(error.kind, CallErrorKind::Unimplemented);
        let why = reason.borrow().clone().unwrap();
        assert!(why.starts_with("containerd 1.7."), "{why}");
        assert!(why.ends_with("and the kubelet subscribes"), "{why}");

        *found.lock().unwrap() = Subscriber::None;
        let mut events = runtime.subscribe().await.unwrap();
        assert_eq!(*reason.borrow(), None);
        assert!(events.next().now_or_never().is_none());
        sim.wait_for_subscribers(1).await;
        sim.shutdown().await;
    }

    #[tokio::test]
    async fn events_that_everybody_gets_are_subscribed_to() {
        let dir = tempfile::tempdir().unwrap();
        let found = Arc::new(Mutex::new(Subscriber::Possible("it does".to_owned())));
        let (sim, runtime) = guarded(Sim::builder(), &found, dir.path());
        assert!(runtime.subscribe().await.is_ok());
        sim.shutdown().await;
    }

    #[tokio::test]
    async fn runtime_that_may_crash_on_a_disconnect_is_not_subscribed_to() {
        for (version, is_safe) in [("1.28.0", false), ("1.32.13", false), ("1.33.0", true)] {
            let dir = tempfile::tempdir().unwrap();
            let found = Arc::new(Mutex::new(Subscriber::None));
            let sim = Sim::builder().mode(Mode::Crio).runtime_version(version);
            let (sim, runtime) = guarded(sim, &found, dir.path());
            assert_eq!(runtime.subscribe().await.is_ok(), is_safe, "{version}");
            let why = runtime.reason().borrow().clone();
            let crash = format!("cri-o {version} may crash when a client ends its event stream");
            assert_eq!(why.as_deref(), (!is_safe).then_some(&*crash));
            sim.shutdown().await;
        }
    }

    #[tokio::test]
    async fn open_stream_ends_when_a_kubelet_is_found() {
        let mut events = Events {
            stream: futures::stream::pending(),
            found: Some(std::future::ready("a kubelet started".to_owned()).boxed()),
        };
        let error = events.next().await.unwrap().unwrap_err();
        assert_eq!(&*error.message, "a kubelet started");
        assert!(events.next().now_or_never().is_none(), "said once");
    }

    #[tokio::test(start_paused = true)]
    async fn check_is_repeated_every_minute() {
        let found = Arc::new(Mutex::new(Subscriber::None));
        let clock = Clock::start();
        let find = {
            let found = found.clone();
            move || {
                std::mem::replace(
                    &mut *found.lock().unwrap(),
                    Subscriber::Possible("it started".to_owned()),
                )
            }
        };
        let began = clock.now();
        assert_eq!(Check::new(find, clock).found().await, "it started");
        let took = clock.now().since(began);
        assert!(took >= 2 * CHECK_PERIOD, "{took:?}");
    }
}
