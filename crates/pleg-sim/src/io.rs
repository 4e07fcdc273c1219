//! Connections that can be cut, as a runtime that dies cuts them: no goodbye, in mid-frame; and
//! that end when the client pings too often.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use pleg_runtime::clock::Clock;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::transport::server::Connected;

use crate::pings::{Frames, GOAWAY, Strikes};

/// A connection and the ways in which it ends.
pub(crate) struct Severable<IO> {
    io: IO,
    cut: BoxFuture<'static, ()>,
    is_cut: bool,
    received: Frames,
    sent: Frames,
    strikes: Strikes,
    clock: Clock,
    /// It pinged too often, and is to be told so.
    too_many: bool,
    /// Tells that the connection was dropped.
    _closed: DropGuard,
}

impl<IO> Severable<IO> {
    /// Cut when either token is cancelled; cancels `closed` once it is gone.
    pub(crate) fn new(
        io: IO,
        cut: [CancellationToken; 2],
        closed: CancellationToken,
        clock: Clock,
    ) -> Self {
        let [a, b] = cut.map(CancellationToken::cancelled_owned);
        let cut = futures::future::select(Box::pin(a), Box::pin(b))
            .map(|_| ())
            .boxed();
        Self {
            io,
            cut,
            is_cut: false,
            received: Frames::of_client(),
            sent: Frames::default(),
            strikes: Strikes::default(),
            clock,
            too_many: false,
            _closed: closed.drop_guard(),
        }
    }

    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        self.is_cut = self.is_cut || self.cut.poll_unpin(cx).is_ready();
        if self.is_cut {
            Err(io::ErrorKind::ConnectionReset.into())
        } else {
            Ok(())
        }
    }
}

impl<IO: AsyncWrite + Unpin> Severable<IO> {
    /// Tells a client that pinged too often to stop it, as soon as a frame may go out, and ends
    /// the connection.
    fn punish(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.too_many && self.sent.is_between() {
            self.is_cut = true;
            // A client that cannot be told is gone all the same.
            let _ = Pin::new(&mut self.io).poll_write(cx, GOAWAY);
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok(())
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncRead for Severable<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        let before = buf.filled().len();
        let read = Pin::new(&mut self.io).poll_read(cx, buf);
        let now = self.clock.tokio(self.clock.now());
        let this = &mut *self;
        let new = buf.filled().get(before..).unwrap_or_default();
        this.received.pass(new, |kind, flags| {
            this.too_many = this.strikes.received(kind, flags, now) || this.too_many;
        });
        this.punish(cx)?;
        read
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Severable<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        self.punish(cx)?;
        let this = &mut *self;
        let written = std::task::ready!(Pin::new(&mut this.io).poll_write(cx, buf))?;
        let new = buf.get(..written).unwrap_or_default();
        this.sent.pass(new, |kind, _| this.strikes.sent(kind));
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

impl<IO> Connected for Severable<IO> {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}
