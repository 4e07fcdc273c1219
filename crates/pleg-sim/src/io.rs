//! Connections that can be cut, as a runtime that dies cuts them: no goodbye, in mid-frame.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::transport::server::Connected;

/// A connection and the ways in which it ends.
pub(crate) struct Severable<IO> {
    io: IO,
    cut: BoxFuture<'static, ()>,
    is_cut: bool,
    /// Tells that the connection was dropped.
    _closed: DropGuard,
}

impl<IO> Severable<IO> {
    /// Cut when either token is cancelled; cancels `closed` once it is gone.
    pub(crate) fn new(io: IO, cut: [CancellationToken; 2], closed: CancellationToken) -> Self {
        let [a, b] = cut.map(CancellationToken::cancelled_owned);
        let cut = futures::future::select(Box::pin(a), Box::pin(b))
            .map(|_| ())
            .boxed();
        Self {
            io,
            cut,
            is_cut: false,
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

impl<IO: AsyncRead + Unpin> AsyncRead for Severable<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Severable<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.io).poll_write(cx, buf)
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
