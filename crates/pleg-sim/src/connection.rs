//! Connections that can be cut abruptly, as when a runtime is killed, and that close when the client sends too many
//! pings.
//!
//! All real runtimes use grpc-go servers, which enforce a keepalive policy. hyper answers pings without reporting them,
//! so this module reads the frame headers of the connection. A ping less than five minutes after the previous ping is a
//! strike, unless the server sent headers or data in between. The server answers the third strike with GOAWAY
//! `ENHANCE_YOUR_CALM` "too_many_pings", and closes the connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use pleg_runtime::clock::Clock;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::transport::server::Connected;

/// A connection that can be cut.
pub(crate) struct Connection<IO> {
    io: IO,
    cut: BoxFuture<'static, Option<()>>,
    is_cut: bool,
    received: Frames,
    sent: Frames,
    strikes: Strikes,
    clock: Clock,
    /// The client sent too many pings, and the server has not sent GOAWAY yet.
    too_many_pings: bool,
    /// Signals that the connection was dropped.
    _closed: Option<DropGuard>,
}

impl<IO> Connection<IO> {
    /// A connection over `io`, which cancelling `a` or `b` cuts. Dropping it cancels the token of `closed`.
    pub(crate) fn new(
        io: IO,
        [a, b]: [CancellationToken; 2],
        closed: Option<DropGuard>,
        clock: Clock,
    ) -> Self {
        Self {
            io,
            cut: async move { a.run_until_cancelled(b.cancelled()).await }.boxed(),
            is_cut: false,
            received: Frames {
                skip: PREFACE,
                ..Frames::default()
            },
            sent: Frames::default(),
            strikes: Strikes::default(),
            clock,
            too_many_pings: false,
            _closed: closed,
        }
    }
}

impl<IO: AsyncWrite + Unpin> Connection<IO> {
    /// Fails if the connection is cut. If the client sent too many pings, sends GOAWAY at the next frame boundary and
    /// closes the connection.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        self.is_cut = self.is_cut || self.cut.poll_unpin(cx).is_ready();
        if self.is_cut {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        if self.too_many_pings && self.sent.is_at_boundary() {
            self.is_cut = true;
            // The server closes the connection even if it cannot write the GOAWAY frame.
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
        let new = buf.filled_mut().get_mut(before..).unwrap_or_default();
        accept_authority(new);
        this.received.scan(new, |kind, flags| {
            this.too_many_pings = this.strikes.received(kind, flags, now) || this.too_many_pings;
        });
        this.check(cx)?;
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

/// Replaces `%` in the header `:authority` of a request. Clients of the gRPC C core (Python, C++) send the path of the
/// socket there, percent-encoded: grpc-go accepts that, but hyper would reset the stream. The header is uncompressed.
fn accept_authority(bytes: &mut [u8]) {
    const NAME: &[u8] = b":authority";
    let name = bytes.windows(NAME.len()).position(|part| part == NAME);
    let after = name.and_then(|at| bytes.get_mut(at + NAME.len()..)?.split_first_mut());
    if let Some((length, value)) = after {
        let value = value.iter_mut().take(usize::from(*length));
        let encoded = value.filter(|byte| **byte == b'%');
        encoded.for_each(|byte| *byte = b'-');
    }
}

impl<IO> Connected for Connection<IO> {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

/// The minimum time between two pings.
const MIN_INTERVAL: Duration = Duration::from_secs(5 * 60);
/// The number of ping strikes that the server tolerates.
const MAX_STRIKES: u32 = 2;
const PREFACE: usize = 24;
const HEADER: usize = 9;
const ACK: u8 = 1;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PING: u8 = 6;

/// GOAWAY on stream 0, with last stream id 2^31 - 1, error code 11 and the debug data.
const GOAWAY: &[u8] = b"\0\0\x16\x07\0\0\0\0\0\x7f\xff\xff\xff\0\0\0\x0btoo_many_pings";

/// Finds frames in a byte stream that arrives in arbitrary pieces.
#[derive(Debug, Default)]
struct Frames {
    /// The number of bytes to skip before the next frame header: the preface or a payload.
    skip: usize,
    header: Vec<u8>,
}

impl Frames {
    /// Calls `frame` with the type and flags of each frame whose header is complete after `bytes`.
    fn scan(&mut self, mut bytes: &[u8], mut frame: impl FnMut(u8, u8)) {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            let missing = HEADER.saturating_sub(self.header.len());
            let rest = bytes.get(skipped..).unwrap_or_default();
            let (head, rest) = rest.split_at(missing.min(rest.len()));
            self.header.extend_from_slice(head);
            if let [a, b, c, kind, flags, _, _, _, _] = self.header[..] {
                self.skip = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                self.header.clear();
                frame(kind, flags);
            }
            bytes = rest;
        }
    }

    /// Returns true if the next byte is the first byte of an HTTP/2 frame.
    fn is_at_boundary(&self) -> bool {
        self.skip == 0 && self.header.is_empty()
    }
}

#[derive(Debug, Default)]
struct Strikes {
    last: Option<Instant>,
    strikes: u32,
}

impl Strikes {
    /// Records a frame of the client. Returns true if the frame is a ping and the client has sent too many pings.
    fn received(&mut self, kind: u8, flags: u8, now: Instant) -> bool {
        if kind != PING || flags & ACK != 0 {
            return false;
        }
        let last = self.last.replace(now);
        if last.is_some_and(|last| now.duration_since(last) < MIN_INTERVAL) {
            self.strikes += 1;
        }
        self.strikes > MAX_STRIKES
    }

    /// Records a frame of the server. If the frame has data or headers, resets the strikes.
    fn sent(&mut self, kind: u8) {
        if kind == DATA || kind == HEADERS {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).unwrap();
        [&[0, 0, length, kind, flags, 0, 0, 0, 0], payload].concat()
    }

    #[test]
    fn http2_frames_are_found_in_pieces_of_any_size() {
        let bytes = [
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            frame(4, 0, &[]),
            frame(PING, 0, &[6; 8]),
            frame(HEADERS, 4, &[6; 30]),
            frame(PING, ACK, &[0; 8]),
        ]
        .concat();
        let expected = [(4, 0), (PING, 0), (HEADERS, 4), (PING, ACK)];
        for size in 1..bytes.len() {
            let (mut frames, mut seen) = (Frames::default(), Vec::new());
            frames.skip = PREFACE;
            for piece in bytes.chunks(size) {
                frames.scan(piece, |kind, flags| seen.push((kind, flags)));
            }
            assert_eq!(seen, expected, "{size}");
            assert!(frames.is_at_boundary());
        }
        let mut seen = Vec::new();
        Frames::default().scan(GOAWAY, |kind, flags| seen.push((kind, flags)));
        assert_eq!(seen, [(7, 0)], "one whole frame");
    }

    #[test]
    fn third_early_ping_is_too_many() {
        let clock = Clock::start();
        let mut now = clock.tokio(clock.now());
        let mut strikes = Strikes::default();
        let mut accepts = |strikes: &mut Strikes, count, seconds| {
            (0..count).all(|_| {
                now += Duration::from_secs(seconds);
                !strikes.received(PING, 0, now)
            })
        };
        assert!(accepts(&mut strikes, 10, 300), "five minutes apart");
        assert!(accepts(&mut strikes, 2, 10));
        strikes.sent(DATA);
        assert!(accepts(&mut strikes, 3, 10));
        strikes.sent(4);
        assert!(!accepts(&mut strikes, 1, 10));
        let mut acks = Strikes::default();
        let refused = (0..9).any(|_| acks.received(PING, ACK, now));
        assert!(!refused, "acknowledgements do not count");
    }
}
