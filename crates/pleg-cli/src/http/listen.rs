//! Where the server listens: a TCP address or a unix socket.

use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::str::FromStr;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};

/// The most connections that wait to be accepted. If there are more, the kernel drops the attempt of a new
/// client, which tries again after a second. Linux' own default is the most that it allows, as for unix sockets.
const BACKLOG: u32 = 4096;

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listen {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl FromStr for Listen {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let path = text.strip_prefix("unix://").unwrap_or(text);
        if path.starts_with('/') {
            return Ok(Self::Unix(path.into()));
        }
        let usage = "not an address; use for example 127.0.0.1:9394, [::1]:9394 or unix:///run/pleg/agent.sock";
        text.parse().map(Self::Tcp).map_err(|_| usage)
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

impl Listen {
    /// Whether only processes of this host can connect.
    pub(crate) fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().is_loopback(),
            Self::Unix(_) => true,
        }
    }

    pub(crate) const fn is_tcp(&self) -> bool {
        matches!(self, Self::Tcp(_))
    }

    pub(crate) async fn bind(&self) -> io::Result<Listener> {
        match self {
            Self::Tcp(address) => bind_tcp(*address).map(Listener::Tcp),
            Self::Unix(path) => {
                remove_stale_socket(path).await?;
                let listener = UnixListener::bind(path)?;
                Ok(Listener::Unix(listener, SocketFile(path.clone())))
            }
        }
    }
}

/// Like [`TcpListener::bind`], with a longer queue.
fn bind_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Removes a socket that no process listens on.
async fn remove_stale_socket(path: &Path) -> io::Result<()> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket());
    if is_socket
        && let Err(error) = UnixStream::connect(path).await
        && error.kind() == io::ErrorKind::ConnectionRefused
    {
        fs::remove_file(path)?;
    }
    Ok(())
}

/// A listening socket.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

impl Listener {
    /// The address, with the actual port.
    pub(crate) fn address(&self) -> io::Result<Listen> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(Listen::Tcp),
            Self::Unix(_, file) => Ok(Listen::Unix(file.0.clone())),
        }
    }

    pub(super) async fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => {
                let (stream, client) = listener.accept().await?;
                Ok(Stream::Tcp(stream, client.ip()))
            }
            Self::Unix(listener, _) => listener.accept().await.map(|(s, _)| Stream::Unix(s)),
        }
    }
}

/// The file of a unix socket. It is removed when this is dropped.
pub(crate) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // If this fails, the next start removes it.
        let _ = fs::remove_file(&self.0);
    }
}

/// A connection.
pub(super) enum Stream {
    Tcp(TcpStream, IpAddr),
    Unix(UnixStream),
}

impl Stream {
    /// The address of the client; all clients of a unix socket count as one.
    pub(super) const fn client(&self) -> Option<IpAddr> {
        match self {
            Self::Tcp(_, client) => Some(*client),
            Self::Unix(_) => None,
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream, _) => Pin::new(stream).poll_read(cx, buf),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream, _) => Pin::new(stream).poll_write(cx, buf),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream, _) => Pin::new(stream).poll_flush(cx),
            Self::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream, _) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_paths_are_parsed() {
        for (text, local) in [
            ("127.0.0.1:1", true),
            ("[::1]:1", true),
            ("0.0.0.0:1", false),
            ("unix:///run/pleg/agent.sock", true),
            ("/run/pleg/agent.sock", true),
        ] {
            assert_eq!(
                text.parse().map(|l: Listen| l.is_local()),
                Ok(local),
                "{text}"
            );
        }
        for text in ["localhost", "localhost:1", "unix://run/pleg/agent.sock", ""] {
            assert!(text.parse::<Listen>().is_err(), "{text}");
        }
    }
}
