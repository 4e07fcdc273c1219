//! In-process connections between a client and a server. A test can break them after a given number of
//! bytes, with a reset, an early end or a stall.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

/// The number of bytes that a connection buffers, about as many as a unix socket.
const PIPE: usize = 208 << 10;

/// The way in which a connection breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Break {
    /// Reset: reads and writes fail.
    Reset,
    /// The connection ends, as if the server had closed it.
    End,
    /// The client receives nothing until [`FaultyPipe::resume`], but the client's writes succeed.
    Stall,
}

/// What happens to new connections.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Accepting {
    /// New connections are served.
    #[default]
    Served,
    /// New connections are refused.
    Refused,
    /// New connections are accepted and dropped at once.
    Dropped,
    /// New connections are accepted, but the server sends nothing on them.
    Silent,
    /// New connections are served, and are reset after this number of bytes.
    Cut(u64),
    /// New connections are passed to this function instead of the server.
    By(fn(DuplexStream)),
}

type Accept = Arc<dyn Fn(DuplexStream) + Send + Sync>;

/// The connections from one client to one server. Clones share their state.
#[derive(Clone)]
pub(crate) struct FaultyPipe {
    accept: Accept,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    accepting: Accepting,
    dials: u64,
    latest: Option<Arc<Mutex<State>>>,
}

/// One connection.
#[derive(Debug)]
struct State {
    /// The client's end. `None` if the connection was reset or has ended.
    io: Option<DuplexStream>,
    /// The server's end, stored to keep it open if nobody serves the connection.
    unserved: Option<DuplexStream>,
    carried: u64,
    /// The fault of the connection: after this number of bytes, it breaks in this way.
    fault: Option<(u64, Break)>,
    wakers: Vec<Waker>,
}

impl FaultyPipe {
    /// Makes connections in memory. For each, `accept` must serve the server's end.
    pub(crate) fn to(accept: impl Fn(DuplexStream) + Send + Sync + 'static) -> Self {
        Self {
            accept: Arc::new(accept),
            shared: Arc::default(),
        }
    }

    /// Opens a new connection.
    pub(crate) fn connect(&self) -> io::Result<PipeEnd> {
        let (near, far) = tokio::io::duplex(PIPE);
        let mut shared = lock(&self.shared);
        shared.dials += 1;
        let (mut unserved, mut fault) = (None, None);
        match shared.accepting {
            Accepting::Served => (self.accept)(far),
            Accepting::Refused => return Err(io::ErrorKind::ConnectionRefused.into()),
            Accepting::Dropped => drop(far),
            Accepting::Silent => unserved = Some(far),
            Accepting::Cut(bytes) => {
                fault = Some((bytes, Break::Reset));
                (self.accept)(far);
            }
            Accepting::By(serve) => serve(far),
        }
        let state = Arc::new(Mutex::new(State {
            io: Some(near),
            unserved,
            carried: 0,
            fault,
            wakers: Vec::new(),
        }));
        shared.latest = Some(state.clone());
        Ok(PipeEnd(state))
    }

    /// Sets the treatment of new connections.
    pub(crate) fn set_accepting(&self, accepting: Accepting) {
        lock(&self.shared).accepting = accepting;
    }

    /// The number of attempts to connect.
    pub(crate) fn dials(&self) -> u64 {
        lock(&self.shared).dials
    }

    /// The number of bytes that the client has read from the latest connection.
    pub(crate) fn carried(&self) -> u64 {
        self.latest(|connection| connection.carried).unwrap_or(0)
    }

    /// Breaks the latest connection once the client has read another `bytes` bytes from it.
    pub(crate) fn break_after(&self, bytes: u64, how: Break) {
        self.latest(|connection| {
            connection.fault = Some((connection.carried + bytes, how));
            connection.wake();
        });
    }

    /// Breaks the latest connection now.
    pub(crate) fn break_now(&self, how: Break) {
        self.break_after(0, how);
    }

    /// Resumes a stalled connection.
    pub(crate) fn resume(&self) {
        self.latest(|connection| {
            connection.fault = None;
            connection.wake();
        });
    }

    fn latest<T>(&self, act: impl FnOnce(&mut State) -> T) -> Option<T> {
        let latest = lock(&self.shared).latest.clone();
        latest.map(|connection| act(&mut lock(&connection)))
    }
}

impl fmt::Debug for FaultyPipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyPipe").finish_non_exhaustive()
    }
}

/// The client's end of a connection.
#[derive(Debug)]
pub(crate) struct PipeEnd(Arc<Mutex<State>>);

impl State {
    fn wake(&mut self) {
        self.wakers.drain(..).for_each(Waker::wake);
    }

    fn remember(&mut self, cx: &Context<'_>) {
        if !self.wakers.iter().any(|w| w.will_wake(cx.waker())) {
            self.wakers.push(cx.waker().clone());
        }
    }

    /// Returns how the connection is broken, if it is. Drops the client's end, unless the connection stalls.
    fn broken(&mut self) -> Option<Break> {
        let (at, how) = self.fault?;
        if self.carried < at {
            return None;
        }
        if how != Break::Stall {
            self.io = None;
        }
        Some(how)
    }

    /// Returns the client's end for a write, or an error if the connection is broken. A stalled one accepts writes.
    fn writable(&mut self, cx: &Context<'_>) -> io::Result<Pin<&mut DuplexStream>> {
        self.remember(cx);
        self.broken();
        match &mut self.io {
            Some(io) => Ok(Pin::new(io)),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.remember(cx);
        match self.broken() {
            Some(Break::Reset) => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            Some(Break::End) => return Poll::Ready(Ok(())),
            Some(Break::Stall) => return Poll::Pending,
            None => {}
        }
        let left = self.fault.map_or(u64::MAX, |(at, _)| at - self.carried);
        let room = usize::try_from(left).map_or(buf.remaining(), |n| n.min(buf.remaining()));
        let Some(io) = &mut self.io else {
            return Poll::Ready(Ok(()));
        };
        let mut part = ReadBuf::new(buf.initialize_unfilled_to(room));
        let polled = Pin::new(io).poll_read(cx, &mut part);
        let read = part.filled().len();
        buf.advance(read);
        self.carried += read as u64;
        polled
    }
}

impl AsyncRead for PipeEnd {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        lock(&self.0).read(cx, buf)
    }
}

impl AsyncWrite for PipeEnd {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        lock(&self.0).writable(cx)?.poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        lock(&self.0).writable(cx)?.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut lock(&self.0).io {
            Some(io) => Pin::new(io).poll_shutdown(cx),
            None => Poll::Ready(Ok(())),
        }
    }
}

impl Drop for PipeEnd {
    /// Closes the connection explicitly: `FaultyPipe` still owns the latest state, which would keep it open.
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        state.io = None;
        state.unserved = None;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
