//! A client of the agent's HTTP server.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, bail};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::args::TokenArgs;
use crate::record::{Page, Record};
use crate::view::{Query, View};

/// How long the agent may take to answer.
const DEADLINE: Duration = Duration::from_secs(5);
/// The most bytes of a response.
const MOST_BYTES: usize = 4 << 20;

/// Where an agent listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AgentUrl {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Default for AgentUrl {
    fn default() -> Self {
        Self::Tcp(SocketAddr::from(([127, 0, 0, 1], 9394)))
    }
}

impl FromStr for AgentUrl {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text
            .strip_prefix("unix://")
            .or(text.starts_with('/').then_some(text))
        {
            let absolute = path.starts_with('/');
            return absolute
                .then(|| Self::Unix(path.into()))
                .ok_or("the path is not absolute");
        }
        if text.starts_with("https://") {
            return Err("an agent with TLS is not supported; use its unix socket, or curl");
        }
        let address = text
            .strip_prefix("http://")
            .unwrap_or(text)
            .trim_end_matches('/');
        let usage =
            "not an address; use for example http://127.0.0.1:9394 or unix:///run/pleg/agent.sock";
        address.parse().map(Self::Tcp).map_err(|_| usage)
    }
}

impl fmt::Display for AgentUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "http://{address}"),
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

/// A client of one agent.
pub(crate) struct AgentClient {
    url: AgentUrl,
    authorization: Option<String>,
}

impl AgentClient {
    pub(crate) fn new(url: AgentUrl, token: &TokenArgs) -> anyhow::Result<Self> {
        let authorization = token.token_file.as_deref().map(|file| {
            let token = std::fs::read_to_string(file);
            let token = token.with_context(|| format!("cannot read {}", file.display()))?;
            anyhow::Ok(format!("Bearer {}", token.trim()))
        });
        Ok(Self {
            url,
            authorization: authorization.transpose()?,
        })
    }

    /// The recent records, and what the agent says about them.
    pub(crate) async fn events(&self, query: &str) -> anyhow::Result<(Page, Vec<Record>)> {
        let (code, body) = self.get(&format!("/debug/events?{query}")).await?;
        if code != StatusCode::OK {
            bail!("the agent at {} answers {code}", self.url);
        }
        let malformed = || format!("the agent at {} sent something else", self.url);
        let mut lines = body.lines();
        let head = serde_json::from_str(lines.next().unwrap_or_default());
        let records = lines.map(serde_json::from_str).collect::<Result<_, _>>();
        Ok((
            head.with_context(malformed)?,
            records.with_context(malformed)?,
        ))
    }

    /// The node as the agent sees it.
    pub(crate) async fn view(&self, query: &Query) -> anyhow::Result<View> {
        let path = format!("/debug/view?{}", query.to_parameters());
        match self.get(&path).await? {
            (StatusCode::OK, body) => serde_json::from_str(&body)
                .with_context(|| format!("the agent at {} sent something else", self.url)),
            (StatusCode::NOT_FOUND, _) => bail!(
                "the agent at {} has no /debug/view: it is older than this command",
                self.url
            ),
            (code, _) => bail!("the agent at {} answers {code}", self.url),
        }
    }

    /// The status and the body of a response.
    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<(StatusCode, String)> {
        let answer = tokio::time::timeout(DEADLINE, async {
            match &self.url {
                AgentUrl::Tcp(address) => {
                    self.get_on(TcpStream::connect(address).await?, path).await
                }
                AgentUrl::Unix(socket) => {
                    self.get_on(UnixStream::connect(socket).await?, path).await
                }
            }
        });
        match answer.await {
            Ok(answer) => answer.with_context(|| format!("no answer of an agent at {}", self.url)),
            Err(_) => bail!(
                "no answer of an agent at {} within {} s",
                self.url,
                DEADLINE.as_secs()
            ),
        }
    }

    async fn get_on(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        path: &str,
    ) -> anyhow::Result<(StatusCode, String)> {
        let mut request = Request::get(path).header(HOST, "localhost");
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        exchange(stream, request.body(Empty::new())?).await
    }
}

/// The status and the body of what a server on this host answers. Has no deadline.
pub(crate) async fn get_from(
    address: SocketAddr,
    path: &str,
) -> anyhow::Result<(StatusCode, String)> {
    let stream = TcpStream::connect(address).await?;
    let request = Request::get(path).header(HOST, address.to_string());
    exchange(stream, request.body(Empty::new())?).await
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Empty<Bytes>>,
) -> anyhow::Result<(StatusCode, String)> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let answer = async {
        let (head, body) = sender.send_request(request).await?.into_parts();
        let body = Limited::new(body, MOST_BYTES).collect().await;
        let body = body.map_err(|error| anyhow::anyhow!("{error}"))?.to_bytes();
        anyhow::Ok((head.status, String::from_utf8(body.to_vec())?))
    };
    // The answer needs the connection to make progress; its end is no error of its own.
    let connected = async {
        let _ended = connection.await;
        std::future::pending().await
    };
    tokio::select! {
        answer = answer => answer,
        never = connected => never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed_and_shown() {
        for (text, shown) in [
            ("http://127.0.0.1:9394", "http://127.0.0.1:9394"),
            ("http://[::1]:9394/", "http://[::1]:9394"),
            ("127.0.0.1:1", "http://127.0.0.1:1"),
            ("unix:///run/pleg/agent.sock", "unix:///run/pleg/agent.sock"),
            ("/run/pleg/agent.sock", "unix:///run/pleg/agent.sock"),
        ] {
            let url: AgentUrl = text.parse().unwrap();
            assert_eq!(url.to_string(), shown);
        }
        for text in [
            "https://127.0.0.1:1",
            "localhost",
            "unix://run/pleg/agent.sock",
            "",
        ] {
            assert!(text.parse::<AgentUrl>().is_err(), "{text}");
        }
    }
}
