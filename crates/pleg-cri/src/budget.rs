//! A budget for the bytes of responses that a client is receiving, over all calls of this client.
//!
//! A response is buffered until its last byte has arrived, and a runtime may send up to the message limit for each of
//! hundreds of calls. With a budget, a response waits while too many bytes of other responses are buffered. One
//! response at a time may exceed the budget, so that at least one response can always continue. HTTP/2 flow control
//! stops the runtime from sending the responses that wait.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::FutureExt as _;
use futures::future::{BoxFuture, Either, select};
use http_body::{Body, Frame, SizeHint};
use prost::bytes::Buf;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::client::GrpcService;
use tonic::codegen::http;
use tower::{BoxError, ServiceExt as _};

use crate::transport::Transport;

/// The number of bytes per permit. The bytes of a frame are rounded up to whole permits.
const UNIT: usize = 1024;

/// A gRPC channel on which a client makes calls.
pub(crate) trait Calls:
    GrpcService<
        tonic::body::Body,
        ResponseBody = Budgeted<tonic::body::Body>,
        Error = BoxError,
        Future: Send,
    > + Clone
    + Send
{
}

impl<C> Calls for C where
    C: GrpcService<
            tonic::body::Body,
            ResponseBody = Budgeted<tonic::body::Body>,
            Error = BoxError,
            Future: Send,
        > + Clone
        + Send
{
}

/// The budget for bytes of responses that are buffered at once.
#[derive(Clone, Debug)]
pub(crate) struct ReceiveBudget {
    units: Arc<Semaphore>,
    /// The single permit for a response that exceeds the budget.
    excess: Arc<Semaphore>,
}

impl ReceiveBudget {
    pub(crate) fn new(bytes: usize) -> Self {
        Self {
            units: Arc::new(Semaphore::new(bytes.div_ceil(UNIT))),
            excess: Arc::new(Semaphore::new(1)),
        }
    }

    /// The transport, with responses that count against the budget.
    pub(crate) fn limit(&self, transport: Transport) -> impl Calls + use<> {
        let budget = self.clone();
        transport.map_response(move |response: http::Response<_>| {
            response.map(|body| Budgeted::new(body, budget))
        })
    }

    /// Waits for `units` permits of the budget, or for the single permit for a response that exceeds the budget.
    async fn reserve(self, units: u32) -> Reserved {
        let within = self.units.acquire_many_owned(units).boxed();
        let beyond = self.excess.acquire_owned().boxed();
        // Neither semaphore is ever closed.
        match select(within, beyond).await {
            Either::Left((permit, _)) => Reserved::Within(permit.ok()),
            Either::Right((permit, _)) => Reserved::Beyond(permit.ok()),
        }
    }
}

enum Reserved {
    Within(Option<OwnedSemaphorePermit>),
    Beyond(Option<OwnedSemaphorePermit>),
}

/// The body of a response that counts against a budget until it is dropped.
///
/// The budget counts a frame after the frame has arrived. The next frame is read only when the budget has room for the
/// arrived frame. So every response may exceed the budget by one frame.
pub(crate) struct Budgeted<B> {
    body: B,
    budget: ReceiveBudget,
    acquired: Option<OwnedSemaphorePermit>,
    excess: Option<OwnedSemaphorePermit>,
    /// The pending reservation for the frame that arrived most recently; `None` if the budget has room for the frame.
    waiting: Option<BoxFuture<'static, Reserved>>,
}

impl<B> Budgeted<B> {
    const fn new(body: B, budget: ReceiveBudget) -> Self {
        Self {
            body,
            budget,
            acquired: None,
            excess: None,
            waiting: None,
        }
    }

    fn count(&mut self, bytes: usize) {
        if self.excess.is_some() || bytes == 0 {
            return;
        }
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        match self.budget.units.clone().try_acquire_many_owned(units) {
            Ok(permit) => self.hold(permit),
            Err(_) => self.waiting = Some(self.budget.clone().reserve(units).boxed()),
        }
    }

    fn hold(&mut self, permit: OwnedSemaphorePermit) {
        match &mut self.acquired {
            Some(acquired) => acquired.merge(permit),
            None => self.acquired = Some(permit),
        }
    }
}

impl<B: Body + Unpin> Body for Budgeted<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        if let Some(waiting) = &mut self.waiting {
            let reserved = ready!(waiting.poll_unpin(cx));
            self.waiting = None;
            match reserved {
                Reserved::Within(permit) => {
                    if let Some(permit) = permit {
                        self.hold(permit);
                    }
                }
                Reserved::Beyond(permit) => self.excess = permit,
            }
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            self.count(data.remaining());
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
