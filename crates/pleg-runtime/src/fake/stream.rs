//! Event streams of the fake runtime.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::channel::mpsc::UnboundedReceiver;
use futures::stream::{self, BoxStream, Stream, StreamExt as _};
use pleg_core::{CallError, CallErrorKind, RuntimeEvent};

use super::error;
use crate::clock::Clock;

/// The behavior of one call of `subscribe`.
#[derive(Clone, Debug)]
pub enum Dial {
    /// `subscribe` fails.
    Fail(CallErrorKind),
    /// `subscribe` hangs.
    Hang,
    /// `subscribe` returns a stream that performs these steps, and then ends with OK.
    Open(Vec<Step>),
}

/// A step of an event stream.
#[derive(Clone, Debug)]
pub enum Step {
    /// The stream delivers nothing for this time, then continues with the next step.
    Wait(Duration),
    /// An event.
    Event(Box<RuntimeEvent>),
    /// The stream breaks.
    Fail(CallErrorKind),
    /// Reading the stream panics.
    Panic,
    /// From here on the stream delivers the events that the test sends. This must be the last step.
    Live,
}

pub(super) type Item = Result<RuntimeEvent, CallError>;

/// An event stream of a [`FakeRuntime`](super::FakeRuntime).
pub struct FakeEvents(BoxStream<'static, Item>);

impl FakeEvents {
    pub(super) fn new(clock: Clock, steps: Vec<Step>, sent: UnboundedReceiver<Item>) -> Self {
        let script = (VecDeque::from(steps), sent);
        let items = stream::unfold(script, move |(mut steps, mut sent)| async move {
            let item = loop {
                if matches!(steps.front()?, Step::Live) {
                    break sent.next().await?;
                }
                match steps.pop_front()? {
                    Step::Wait(time) => clock.sleep_until(clock.now().after(time)).await,
                    Step::Event(event) => break Ok(*event),
                    Step::Fail(kind) => break Err(error("GetContainerEvents", kind)),
                    Step::Panic | Step::Live => panic_in_stream(),
                }
            };
            Some((item, (steps, sent)))
        });
        Self(items.boxed())
    }
}

#[allow(clippy::panic, reason = "the test asked for it")]
fn panic_in_stream() {
    panic!("a scripted panic");
}

impl Stream for FakeEvents {
    type Item = Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        self.0.poll_next_unpin(cx)
    }
}

impl fmt::Debug for FakeEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeEvents").finish_non_exhaustive()
    }
}
