//! A client of the agent's HTTP server.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, HOST, HeaderValue};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls::AlertDescription::CertificateRequired;
use rustls::Error::AlertReceived;
use rustls::pki_types::ServerName;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::args::ClientArgs;
use crate::bounded;
use crate::http::{Connection, tls};
use crate::record::{Page, Record};
use crate::view::{Query, View};

const DEADLINE: Duration = Duration::from_secs(5);
const MOST_BYTES: usize = 4 << 20;

type Answer = anyhow::Result<(StatusCode, String)>;

/// The URL of an agent. `Http` and `Https` contain `HOST:PORT`; the host is a name or an IP address.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
pub(crate) enum AgentUrl {
    #[display("http://{_0}")]
    Http(String),
    #[display("https://{_0}")]
    Https(String),
    #[display("unix://{}", _0.display())]
    Unix(PathBuf),
}

impl Default for AgentUrl {
    fn default() -> Self {
        Self::Http("127.0.0.1:9394".to_owned())
    }
}

impl FromStr for AgentUrl {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let path = text.strip_prefix("unix://").unwrap_or(text);
        if path.starts_with('/') {
            return Ok(Self::Unix(path.into()));
        }
        let tcp = || {
            let url: Uri = text.trim_end_matches('/').parse().ok()?;
            let address = format!("{}:{}", url.host()?, url.port_u16()?);
            match (url.scheme_str().unwrap_or("http"), url.path()) {
                ("http", "" | "/") => Some(Self::Http(address)),
                ("https", "" | "/") => Some(Self::Https(address)),
                _ => None,
            }
        };
        tcp().ok_or(
            "not an address; use for example http://127.0.0.1:9394, https://node-1:9394 or \
             unix:///run/pleg/agent.sock",
        )
    }
}

pub(crate) struct AgentClient {
    url: AgentUrl,
    authorization: Option<HeaderValue>,
    tls: Option<TlsConnector>,
}

impl AgentClient {
    pub(crate) fn new(url: AgentUrl, args: &ClientArgs) -> anyhow::Result<Self> {
        let authorization = args.token_file.as_deref().map(|file| {
            let shown = file.display();
            let token = bounded::read(file).with_context(|| format!("cannot read {shown}"))?;
            let header = HeaderValue::try_from(format!("Bearer {}", token.trim()));
            header.with_context(|| format!("{shown} contains more than a token"))
        });
        let own = args.cert.as_deref().zip(args.key.as_deref());
        let signed = "the authority that signed the certificate of the agent";
        let tls = match (&url, &args.ca) {
            (AgentUrl::Https(_), Some(ca)) => Some(tls::connector(ca, own)?),
            (AgentUrl::Https(_), None) => bail!("{url} needs --ca: {signed}"),
            (_, Some(_)) => bail!("--ca needs an agent at https://, not at {url}"),
            (_, None) => None,
        };
        Ok(Self {
            url,
            authorization: authorization.transpose()?,
            tls,
        })
    }

    /// Requests `/debug/events`: a first line, which counts the records that the agent has dropped, and then records.
    pub(crate) async fn events(&self, query: &str) -> anyhow::Result<(Page, Vec<Record>)> {
        let body = self.get_ok(&format!("/debug/events?{query}")).await?;
        let mut lines = body.lines();
        let head = self.parse(lines.next().unwrap_or_default())?;
        let records = lines.map(|line| self.parse(line));
        Ok((head, records.collect::<anyhow::Result<_>>()?))
    }

    pub(crate) async fn view(&self, query: &Query) -> anyhow::Result<View> {
        let path = format!("/debug/view?{}", query.to_parameters());
        self.parse(&self.get_ok(&path).await?)
    }

    fn parse<T: DeserializeOwned>(&self, text: &str) -> anyhow::Result<T> {
        serde_json::from_str(text)
            .with_context(|| format!("the agent at {} sent an unexpected response", self.url))
    }

    async fn get_ok(&self, path: &str) -> anyhow::Result<String> {
        let (code, body) = self.get(path).await?;
        let hint = match (code, &self.authorization) {
            (StatusCode::OK, _) => return Ok(body),
            (StatusCode::UNAUTHORIZED, None) => ": it needs a token (--token-file)",
            (StatusCode::UNAUTHORIZED, Some(_)) => ": it does not accept the token",
            (StatusCode::NOT_FOUND, _) => ": it is older than this command",
            _ => "",
        };
        bail!("the agent at {} answers {code}{hint}", self.url)
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        let mut request = Request::get(path).header(HOST, "localhost");
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let answer = async {
            let answer = exchange(self.connect().await?, request.body(Empty::new())?).await;
            if answer.is_err() && self.tls.is_none() && self.is_tls().await {
                bail!("this agent speaks https");
            }
            answer
        };
        let answer = tokio::time::timeout(DEADLINE, answer).await;
        let answer = answer.unwrap_or_else(|_| bail!("it took longer than {DEADLINE:?}"));
        let answer = answer.map_err(of_tls);
        answer.with_context(|| format!("no answer from an agent at {}", self.url))
    }

    /// Returns true if the agent answers a request without TLS with a TLS alert.
    async fn is_tls(&self) -> bool {
        const ALERT: u8 = 0x15;
        let mut first = [0];
        let ask = async {
            let mut stream = self.connect().await?;
            stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await?;
            anyhow::Ok(stream.read_exact(&mut first).await?)
        };
        ask.await.is_ok() && first == [ALERT]
    }

    async fn connect(&self) -> anyhow::Result<Box<dyn Connection>> {
        let address = match &self.url {
            AgentUrl::Unix(path) => return Ok(Box::new(UnixStream::connect(path).await?)),
            AgentUrl::Http(address) | AgentUrl::Https(address) => address,
        };
        let stream = TcpStream::connect(address).await?;
        let Some(tls) = &self.tls else {
            return Ok(Box::new(stream));
        };
        let (host, _) = address.rsplit_once(':').unwrap_or((address, ""));
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())?;
        Ok(Box::new(tls.connect(name, stream).await?))
    }
}

/// Returns the TLS error inside `error`, if any, in a few words: `pleg check` shows only 80 characters.
fn of_tls(error: anyhow::Error) -> anyhow::Error {
    let mut causes = error.chain().filter_map(<dyn Error>::downcast_ref);
    match causes.find_map(|e: &io::Error| e.get_ref()?.downcast_ref().cloned()) {
        Some(AlertReceived(CertificateRequired)) => anyhow!("it needs --cert and --key"),
        Some(AlertReceived(_)) => anyhow!("it rejects the certificate"),
        Some(other) => other.into(),
        None => error,
    }
}

/// Sends a GET request to a server on this host, and returns status and body. The caller must set a deadline.
pub(crate) async fn get_from(address: SocketAddr, path: &str) -> Answer {
    let stream = TcpStream::connect(address).await?;
    let request = Request::get(path).header(HOST, address.to_string());
    exchange(stream, request.body(Empty::new())?).await
}

async fn exchange(stream: impl Connection + 'static, request: Request<Empty<Bytes>>) -> Answer {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let answer = sender.send_request(request).await;
    if answer.is_err() {
        // If the connection has failed, returns the connection's error, because it has caused the request's error.
        drop(sender);
        connection.await??;
    }
    let (head, body) = answer?.into_parts();
    let body = Limited::new(body, MOST_BYTES).collect().await;
    let body = body.map_err(|error| anyhow!("{error}"))?.to_bytes();
    Ok((head.status, String::from_utf8(body.to_vec())?))
}
