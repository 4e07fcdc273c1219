//! A line within the process between a client and a server, which breaks as it is told to: after
//! so many bytes, with a reset, an early end or a silence. Knows nothing of what is carried.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

/// What a pipe holds before its writer waits, about as much as a unix socket does.
const PIPE: usize = 208 << 10;

/// How a connection breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// Reset: reads and writes fail.
    Reset,
    /// It ends without a word, as if the server had closed it.
    End,
    /// Nothing arrives any more, until [`Line::resume`]. Writes are taken.
    Stall,
}

/// What becomes of those who connect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Welcome {
    /// They are served.
    #[default]
    Served,
    /// They are refused: nobody listens.
    Refused,
    /// They are accepted and dropped at once.
    Dropped,
    /// They are accepted and never hear a word.
    Mute,
}

type Accept = Arc<dyn Fn(DuplexStream) + Send + Sync>;

/// The line. Clones are the same one.
#[derive(Clone)]
pub struct Line {
    accept: Accept,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    welcome: Welcome,
    dials: u64,
    latest: Option<Arc<Mutex<State>>>,
}

/// One connection.
#[derive(Debug)]
struct State {
    /// None once it is broken: then the server's end is dropped, too.
    io: Option<DuplexStream>,
    /// The server's end of a connection that nobody serves.
    unserved: Option<DuplexStream>,
    carried: u64,
    /// After which byte it breaks, and how.
    fault: Option<(u64, Break)>,
    wakers: Vec<Waker>,
}

impl Line {
    /// A line to a server that takes connections by `accept`.
    pub fn to(accept: impl Fn(DuplexStream) + Send + Sync + 'static) -> Self {
        Self {
            accept: Arc::new(accept),
            shared: Arc::default(),
        }
    }

    /// A new connection.
    ///
    /// # Errors
    /// If nobody listens.
    pub fn connect(&self) -> io::Result<Wire> {
        let (near, far) = tokio::io::duplex(PIPE);
        let mut shared = lock(&self.shared);
        shared.dials += 1;
        let mut unserved = None;
        match shared.welcome {
            Welcome::Served => (self.accept)(far),
            Welcome::Refused => return Err(io::ErrorKind::ConnectionRefused.into()),
            Welcome::Dropped => drop(far),
            Welcome::Mute => unserved = Some(far),
        }
        let state = Arc::new(Mutex::new(State {
            io: Some(near),
            unserved,
            carried: 0,
            fault: None,
            wakers: Vec::new(),
        }));
        shared.latest = Some(state.clone());
        Ok(Wire(state))
    }

    /// How those are met who connect from now on.
    pub fn welcome(&self, welcome: Welcome) {
        lock(&self.shared).welcome = welcome;
    }

    /// How often it was tried to connect.
    pub fn dials(&self) -> u64 {
        lock(&self.shared).dials
    }

    /// How many bytes the client has read from the latest connection.
    pub fn carried(&self) -> u64 {
        self.latest(|wire| wire.carried).unwrap_or(0)
    }

    /// Breaks the latest connection once the client has read so many bytes more.
    pub fn break_after(&self, bytes: u64, how: Break) {
        self.latest(|wire| {
            wire.fault = Some((wire.carried + bytes, how));
            wire.wake();
        });
    }

    /// Breaks the latest connection now.
    pub fn break_now(&self, how: Break) {
        self.break_after(0, how);
    }

    /// Whether the latest connection has broken.
    pub fn is_broken(&self) -> bool {
        let broken = |wire: &mut State| wire.fault.is_some_and(|(at, _)| wire.carried >= at);
        self.latest(broken).unwrap_or(false)
    }

    /// A stalled connection goes on.
    pub fn resume(&self) {
        self.latest(|wire| {
            wire.fault = None;
            wire.wake();
        });
    }

    fn latest<T>(&self, act: impl FnOnce(&mut State) -> T) -> Option<T> {
        let latest = lock(&self.shared).latest.clone();
        latest.map(|wire| act(&mut lock(&wire)))
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").finish_non_exhaustive()
    }
}

/// The client's end of a connection.
#[derive(Debug)]
pub struct Wire(Arc<Mutex<State>>);

impl State {
    fn wake(&mut self) {
        self.wakers.drain(..).for_each(Waker::wake);
    }

    fn remember(&mut self, cx: &Context<'_>) {
        if !self.wakers.iter().any(|w| w.will_wake(cx.waker())) {
            self.wakers.push(cx.waker().clone());
        }
    }

    /// How it has broken, if it has. What is broken for good lets go of the server.
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

    /// The connection for a write; a stalled one takes them.
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

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        lock(&self.0).read(cx, buf)
    }
}

impl AsyncWrite for Wire {
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

impl Drop for Wire {
    /// The line remembers its latest connection, which must not keep it open.
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        state.io = None;
        state.unserved = None;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
