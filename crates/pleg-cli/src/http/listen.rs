//! The address on which the server listens: a TCP address or a unix socket.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt as _;
use std::path::PathBuf;
use std::str::FromStr;

use tempfile::TempPath;
use tokio::net::{TcpListener, TcpSocket, UnixListener, UnixStream};

use super::*;

/// The maximum number of connections that wait to be accepted, which is also the default limit of Linux. Above it,
/// Linux drops the attempt of a new client, which tries again after a second. tokio's own value is 128.
const BACKLOG: u32 = 4096;

#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
pub(crate) enum Listen {
    Tcp(SocketAddr),
    #[display("unix://{}", _0.display())]
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

impl Listen {
    pub(crate) async fn bind(&self) -> Result<Listener> {
        let listener = self.try_bind().await;
        listener.with_context(|| format!("cannot listen on {self}"))
    }

    async fn try_bind(&self) -> io::Result<Listener> {
        match self {
            Self::Tcp(address) => {
                let socket = match address.is_ipv4() {
                    true => TcpSocket::new_v4()?,
                    false => TcpSocket::new_v6()?,
                };
                socket.set_reuseaddr(true)?;
                socket.bind(*address)?;
                socket.listen(BACKLOG).map(Listener::Tcp)
            }
            Self::Unix(path) => {
                remove_stale_socket(path).await?;
                let listener = UnixListener::bind(path)?;
                Ok(Listener::Unix(listener, TempPath::try_from_path(path)?))
            }
        }
    }
}

async fn remove_stale_socket(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket())
        && let Err(error) = UnixStream::connect(path).await
        && error.kind() == io::ErrorKind::ConnectionRefused
    {
        fs::remove_file(path)?;
    }
    Ok(())
}

pub(crate) enum Listener {
    Tcp(TcpListener),
    /// The file of the socket is removed when the listener is dropped. If that fails, the next start removes the file.
    Unix(UnixListener, TempPath),
}

impl Listener {
    pub(crate) fn url(&self, scheme: &str) -> io::Result<String> {
        Ok(match self {
            Self::Tcp(listener) => format!("{scheme}://{}", listener.local_addr()?),
            Self::Unix(_, file) => format!("unix://{}", file.display()),
        })
    }

    /// Accepts a connection. Also returns a name for its client: the IP address, or `unix socket`.
    pub(super) async fn accept(&self) -> io::Result<(Box<dyn Connection>, String)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, client) = listener.accept().await?;
                Ok((Box::new(stream), client.ip().to_string()))
            }
            Self::Unix(listener, _) => {
                let (stream, _) = listener.accept().await?;
                Ok((Box::new(stream), "unix socket".to_owned()))
            }
        }
    }
}
