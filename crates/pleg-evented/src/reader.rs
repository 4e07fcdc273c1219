//! The event stream reader: one task that subscribes, drains and reconnects until it is shut down.
//!
//! Whenever the reader waits, it also watches for the shutdown; see [`Outlet::during`]. It never waits for the receiver
//! that takes its events.

use std::any::Any;
use std::convert::Infallible;
use std::future::{Future, pending, poll_fn};
use std::mem::discriminant;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use pleg_runtime::Runtime;
use pleg_runtime::clock::Clock;
use pleg_runtime::core::{
    Arrival, CallError, CallErrorKind, GoDuration, Instant, RuntimeEvent, StreamChange, StreamEnd,
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::{HintSender, ReconnectPolicy, stream_end};

/// Subscribes to the runtime's events and hands them over to `out`, until it is shut down.
///
/// On a notification of `renew` the reader ends the present stream and subscribes again, as after a lost connection. It
/// also subscribes again after the stream has panicked.
///
/// Reconnecting never stops: `run` returns only when `shutdown` is cancelled or the other end of `out` is gone. Then it
/// returns promptly and leaves no task. The future of `run` may be dropped at any time.
pub async fn run<R: Runtime>(
    runtime: Arc<R>,
    clock: Clock,
    policy: ReconnectPolicy,
    out: HintSender,
    renew: Arc<Notify>,
    shutdown: CancellationToken,
) {
    let outlet = Outlet { out, shutdown };
    let mut reader = Reader {
        runtime,
        clock,
        backoff: Backoff::new(&policy),
        policy,
        renew,
        outlet,
    };
    loop {
        // A stream may panic, for example while it decodes. It is dropped with its state, so no broken state remains.
        match AssertUnwindSafe(reader.read_for_ever())
            .catch_unwind()
            .await
        {
            Ok(Err(Over)) => return,
            Err(panic) => {
                let retry_at = reader.panicked(&*panic);
                let pause = reader.clock.sleep_until(retry_at);
                if reader.outlet.during(pause).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// The interval of the `stream_hazard` calls while a stream is open: by then, a competing subscriber may have started.
const HAZARD_CHECK: Duration = Duration::from_secs(60);

/// The number of events that the reader reads before it yields to other tasks.
const AT_ONCE: u64 = 16;

/// The reader must end: it was shut down, or the receiver is gone.
struct Over;

struct Reader<R> {
    runtime: Arc<R>,
    clock: Clock,
    backoff: Backoff,
    policy: ReconnectPolicy,
    renew: Arc<Notify>,
    outlet: Outlet,
}

impl<R: Runtime> Reader<R> {
    async fn read_for_ever(&mut self) -> Result<Infallible, Over> {
        // The kind of failure of the last dial; `None` if it succeeded.
        let mut failed = None;
        loop {
            let retry_at = match self.dial().await? {
                Ok(events) => {
                    failed = None;
                    self.drain(events).await?
                }
                Err(why) => {
                    let last = failed.replace(discriminant(&why));
                    self.no_connection(last == failed, why)
                }
            };
            self.outlet.during(self.clock.sleep_until(retry_at)).await?;
        }
    }

    async fn dial(&mut self) -> Result<Result<R::Events, StreamEnd>, Over> {
        let deadline = self.policy.settings().dial_deadline;
        let until = self.clock.tokio(self.clock.now().after(deadline));
        let dial = async {
            match self.hazard().await {
                Ok(Some(hazard)) => Err(StreamEnd::Declined(hazard)),
                Ok(None) => self.runtime.subscribe().await.map_err(stream_end::of_dial),
                Err(error) => Err(StreamEnd::Refused(error)),
            }
        };
        let dial = tokio::time::timeout_at(until, dial);
        let events = self.outlet.during(dial).await?;
        Ok(events.unwrap_or_else(|_elapsed| {
            let message = format!("no connection within {deadline:?}");
            let kind = CallErrorKind::DeadlineExceeded;
            Err(StreamEnd::Refused(CallError::new(OPERATION, kind, message)))
        }))
    }

    /// The reason why the policy forbids a subscribe call, if any.
    async fn hazard(&self) -> Result<Option<CallError>, CallError> {
        if !self.policy.avoids_harm() {
            return Ok(None);
        }
        let declined = |why| CallError::new(OPERATION, CallErrorKind::Unimplemented, why);
        Ok(self.runtime.stream_hazard().await?.map(declined))
    }

    /// Completes, with the reason as an error, when the policy forbids the open stream.
    async fn hazard_appears(&self) -> CallError {
        if !self.policy.avoids_harm() {
            return pending().await;
        }
        loop {
            let next = self.clock.now().after(HAZARD_CHECK);
            self.clock.sleep_until(next).await;
            if let Ok(Some(hazard)) = self.hazard().await {
                // Then the reader dials, and reports `Declined` if `stream_hazard` still returns a reason.
                return CallError::new(OPERATION, CallErrorKind::Cancelled, hazard.message);
            }
        }
    }

    /// Reports a failed dial. Returns the instant of the next dial.
    fn no_connection(&mut self, is_known: bool, why: StreamEnd) -> Instant {
        // There are 20 dials a second at first; only the first failure of a kind is logged as a warning.
        let at = self.clock.now();
        match &why {
            _ if is_known => tracing::debug!(%why, "still no event stream"),
            StreamEnd::Declined(_) => tracing::warn!("polling: {why}"),
            why => tracing::warn!(%why, "no connection for the event stream"),
        }
        let retry_at = self.backoff.after_dial(at, &why);
        let ended = StreamChange::Ended { at, why, retry_at };
        self.outlet.out.change(ended);
        retry_at
    }

    /// Issues the subscribe call and reads its events to the end. Returns the instant of the next dial.
    async fn drain(&mut self, mut events: R::Events) -> Result<Instant, Over> {
        let (at, wall) = (self.clock.now(), self.clock.wall());
        // The first poll issues the call, so `Subscribed` is reported only after this poll.
        let item = poll_fn(|cx| Poll::Ready(events.poll_next_unpin(cx))).await;
        self.backoff.issued(at);
        self.outlet
            .out
            .change(StreamChange::Subscribed { at, wall });
        tracing::info!("subscribed to the event stream");

        // Discards a `renew` from before this subscribe call: it was meant to end an earlier stream.
        let _ = self.renew.notified().now_or_never();
        let (delivered, error) = self.read_to_end(&mut events, item).await?;
        drop(events);
        Ok(self.ended(at, delivered, error))
    }

    /// Hands over all events from `item` on. Returns whether any arrived, and the error that ended the stream.
    async fn read_to_end(
        &self,
        events: &mut R::Events,
        mut item: Poll<Option<Result<RuntimeEvent, CallError>>>,
    ) -> Result<(bool, Option<CallError>), Over> {
        let (mut delivered, mut read) = (false, 0_u64);
        let mut hazard = pin!(self.hazard_appears());
        loop {
            let next = match std::mem::replace(&mut item, Poll::Pending) {
                Poll::Ready(next) => next,
                Poll::Pending => {
                    let next = async {
                        tokio::select! {
                            biased;
                            () = self.renew.notified() => Err(silent()),
                            hazard = hazard.as_mut() => Err(hazard),
                            next = events.next() => Ok(next),
                        }
                    };
                    match self.outlet.during(next).await? {
                        Err(ended) => return Ok((delivered, Some(ended))),
                        Ok(next) => next,
                    }
                }
            };
            match next {
                Some(Ok(event)) => {
                    delivered = true;
                    self.arrived(event);
                }
                Some(Err(error)) => return Ok((delivered, Some(error))),
                None => return Ok((delivered, None)),
            }
            // A burst of events must starve neither the receiver, which may share this thread, nor the transport: tokio
            // polls the sockets when every task has yielded, and otherwise every 61 polls.
            read += 1;
            if read % AT_ONCE == 0 {
                tokio::task::yield_now().await;
            } else {
                tokio::task::coop::consume_budget().await;
            }
        }
    }

    /// Reports a panic of the stream or the reader. The panic may lose events; the list after the next subscribe call
    /// shows the state changes that these events reported. Returns the instant of the next dial.
    fn panicked(&mut self, panic: &(dyn Any + Send)) -> Instant {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let text = text.unwrap_or("no message");
        tracing::error!(panic = text, "the event stream panicked; subscribing again");
        let at = self.clock.now();
        let message = format!("the event stream panicked: {text}");
        let error = CallError::new(OPERATION, CallErrorKind::Failed, message);
        let why = StreamEnd::Ended(Some(error));
        let retry_at = self.backoff.after_call(at, at, &why);
        self.outlet.out.panicked();
        let ended = StreamChange::Ended { at, why, retry_at };
        self.outlet.out.change(ended);
        retry_at
    }

    fn arrived(&self, event: RuntimeEvent) {
        let (arrived, wall) = (self.clock.now(), self.clock.wall());
        self.outlet.out.event(Arrival {
            event,
            arrived,
            wall,
        });
    }

    /// Reports the end of the subscribe call issued at `issued`. Returns the instant of the next dial.
    fn ended(&mut self, issued: Instant, delivered: bool, error: Option<CallError>) -> Instant {
        let at = self.clock.now();
        let at_once = at.since(issued) < self.policy.settings().at_once;
        let why = stream_end::of_call(delivered, at_once, error);
        let retry_at = self.backoff.after_call(issued, at, &why);
        let retry_in = retry_at.since(at);
        let after = GoDuration(retry_in);
        match &why {
            StreamEnd::NeverOffered | StreamEnd::Disabled => {
                tracing::info!(%why, retry_in = %after, "the runtime offers no event stream");
            }
            why => tracing::warn!(%why, retry_in = %after, "the event stream ended"),
        }
        let ended = StreamChange::Ended { at, why, retry_at };
        self.outlet.out.change(ended);
        retry_at
    }
}

const OPERATION: &str = "GetContainerEvents";

/// The error of a stream that delivers no events although the reconciler's lists and status calls show changes.
fn silent() -> CallError {
    let message = "ended by the reader: no event arrived while reads showed changes";
    CallError::new(OPERATION, CallErrorKind::Cancelled, message)
}

/// The sender of the reader's events, and the token that shuts the reader down.
struct Outlet {
    out: HintSender,
    shutdown: CancellationToken,
}

impl Outlet {
    /// Runs `work` until it completes, the reader is shut down, or the receiver is gone.
    async fn during<W: Future>(&self, work: W) -> Result<W::Output, Over> {
        tokio::select! {
            biased;
            () = self.shutdown.cancelled() => Err(Over),
            done = work => Ok(done),
            () = self.out.closed() => Err(Over),
        }
    }
}
