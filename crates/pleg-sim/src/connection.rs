//! Connections that can be cut abruptly, as a killed runtime cuts them, and that are closed when
//! the client sends too many pings.

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

/// A connection that can be cut.
pub(crate) struct Connection<IO> {
    io: IO,
    cut: BoxFuture<'static, ()>,
    is_cut: bool,
    received: Frames,
    sent: Frames,
    strikes: Strikes,
    clock: Clock,
    /// The client sent too many pings, and GOAWAY has not been sent yet.
    too_many_pings: bool,
    /// Signals that the connection was dropped.
    _closed: Option<DropGuard>,
}

impl<IO> Connection<IO> {
    /// The connection is cut when either token is cancelled. It drops `closed` when it is dropped.
    pub(crate) fn new(
        io: IO,
        cut: [CancellationToken; 2],
        closed: Option<DropGuard>,
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
            received: Frames::after_preface(),
            sent: Frames::default(),
            strikes: Strikes::default(),
            clock,
            too_many_pings: false,
            _closed: closed,
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

impl<IO: AsyncWrite + Unpin> Connection<IO> {
    /// Sends GOAWAY to a client that sent too many pings, at the next frame boundary, and closes
    /// the connection.
    fn close_if_too_many_pings(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.too_many_pings && self.sent.is_at_boundary() {
            self.is_cut = true;
            // The connection closes even if the frame cannot be written.
            let _ = Pin::new(&mut self.io).poll_write(cx, GOAWAY);
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok(())
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncRead for Connection<IO> {
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
        this.received.scan(new, |kind, flags| {
            this.too_many_pings = this.strikes.received(kind, flags, now) || this.too_many_pings;
        });
        this.close_if_too_many_pings(cx)?;
        read
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Connection<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        self.close_if_too_many_pings(cx)?;
        let this = &mut *self;
        let written = std::task::ready!(Pin::new(&mut this.io).poll_write(cx, buf))?;
        let new = buf.get(..written).unwrap_or_default();
        this.sent.scan(new, |kind, _| this.strikes.sent(kind));
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

impl<IO> Connected for Connection<IO> {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}
